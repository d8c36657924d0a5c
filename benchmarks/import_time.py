"""How long ``import attr_core`` takes over bare Python.

Each figure is the median of fresh interpreters, bare ones and importing ones in turn so that a busy machine slows both
alike. The goal is for the import alone; the other rows say what the first use of a name costs.

    python benchmarks/import_time.py [REPEATS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

GOAL_MILLISECONDS = 150.0
STATEMENTS = {
    "import attr_core": "import attr_core",
    "its types and errors": "import attr_core.errors, attr_core.types",
    "all of its names": "from attr_core import *",
    "the command line": "import attr_core.cli",
}


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    for label, statement in STATEMENTS.items():
        goal = f"   goal: below {GOAL_MILLISECONDS:.0f} ms" if statement == "import attr_core" else ""
        print(f"{label:22} {_over_bare(statement, repeats):7.1f} ms{goal}")


def _over_bare(statement: str, repeats: int) -> float:
    """Median milliseconds of ``statement`` less the median of ``pass``; the first pair warms the disk cache."""
    bare, loaded = [], []
    for _ in range(repeats + 1):
        bare.append(_milliseconds("pass"))
        loaded.append(_milliseconds(statement))
    return statistics.median(loaded[1:]) - statistics.median(bare[1:])


def _milliseconds(statement: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return (time.perf_counter() - start) * 1000


if __name__ == "__main__":
    main()
