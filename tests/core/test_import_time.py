"""``import attr_core`` is light: it brings nothing that an extra installs, nor what only the numerics need."""

import subprocess
import sys

import pytest

FROM_EXTRAS = {
    "torch",
    "transformers",
    "accelerate",
    "litellm",
    "openai",
    "sentence_transformers",
    "pandas",
    "langchain",
    "langchain_core",
    "llama_index",
    "haystack",
}
NUMERICS = {"numpy", "scipy", "sklearn"}
COMMAND_LINE = {"typer", "rich", "click"}


def _loaded(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    return set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_the_core_loads_neither_backends_nor_numerics():
    loaded = _loaded("import attr_core")
    assert "attr_core" in loaded
    assert not loaded & (FROM_EXTRAS | NUMERICS | COMMAND_LINE | {"sqlite3", "sqlite_utils", "jinja2"})


def test_a_trace_can_be_made_without_the_numerics():
    loaded = _loaded("from attr_core import Trace; Trace.from_messages([{'role': 'user', 'content': 'Hi'}], 'Hello.')")
    assert not loaded & (FROM_EXTRAS | NUMERICS)


@pytest.mark.parametrize("statement", ["from attr_core import *", "import attr_core.cli"])
def test_all_names_and_the_command_line_load_no_backend(statement):
    assert not _loaded(statement) & FROM_EXTRAS


def test_importing_the_core_takes_less_than_the_goal():
    # The least of several runs, so that a busy machine passes; benchmarks/import_time.py prints the median.
    program = "import time; start = time.perf_counter(); import attr_core; print(time.perf_counter() - start)"
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout for _ in range(5)]
    assert min(map(float, runs)) < 0.150
