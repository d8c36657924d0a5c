"""Runs each adapter's tests with the lowest and the newest versions of its framework that its extra allows.

One environment a row in ``.venv-matrix``, made where there is none. What the extra names is taken at the lower bound,
or as new as it may be; everything else as pip chooses, without the pinned set.

    python scripts/test_matrix.py                     every row
    python scripts/test_matrix.py langgraph:lowest    one
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
ROWS = {"langgraph": "tests/langchain", "llamaindex": "tests/llamaindex", "haystack": "tests/haystack"}
EDGES = ("lowest", "newest")
TEST_TOOLS = ("hypothesis>=6.100", "pytest>=8.3", "pytest-timeout>=2.3")


def main(wanted: list[str]) -> int:
    rows = [(extra, edge) for extra in ROWS for edge in EDGES]
    known = [f"{extra}:{edge}" for extra, edge in rows]
    if unknown := set(wanted) - set(known):
        print(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    failed = [
        f"{extra}:{edge}"
        for extra, edge in rows
        if (not wanted or f"{extra}:{edge}" in wanted) and not run(extra, edge)
    ]
    print(f"failed: {', '.join(failed)}" if failed else "all rows passed")
    return len(failed)


def run(extra: str, edge: str) -> bool:
    """Whether the tests of an adapter passed with the framework at that edge of what its extra allows."""
    folder = ROOT / ".venv-matrix" / f"{extra}-{edge}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    chosen = list(requirements(extra, edge))
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    upgrade = ["--upgrade", "--upgrade-strategy", "eager"] if edge == "newest" else []
    subprocess.run([*pip, *upgrade, "-e", f"{ROOT}[{extra}]", *chosen, *TEST_TOOLS], check=True)
    versions = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = {Requirement(line).name for line in chosen}
    print(
        f"{extra}:{edge}:", *sorted(line for line in versions.splitlines() if line.split("==")[0] in names), flush=True
    )
    tests = subprocess.run([python, "-m", "pytest", "-q", "-m", "not slow and not model", ROWS[extra]], cwd=ROOT)
    return tests.returncode == 0


def requirements(extra: str, edge: str) -> Iterator[str]:
    """What the extra names, pinned to its lower bound for the lowest edge."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in project["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == project["name"]:
            for nested in requirement.extras:
                yield from requirements(nested, edge)
        elif edge == "newest":
            yield line
        else:
            (lowest,) = (bound.version for bound in requirement.specifier if bound.operator == ">=")
            yield f"{requirement.name}=={lowest}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
