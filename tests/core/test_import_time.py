"""``import attr_core`` is light: it brings nothing that an extra installs, nor what only the numerics need."""

import subprocess
import sys

import pytest

from attr_core.store import Store

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


def test_a_logged_call_does_not_bring_pandas_into_the_host(tmp_path):
    path = tmp_path / "attrkit.db"
    with Store(path):
        pass  # making a file needs sqlite-utils, which imports pandas where it is installed
    answer = {"choices": [{"message": {"role": "assistant", "content": "Hello."}}]}
    program = (
        "from attr_core import flush_logging, with_logging\n"
        f"logged = with_logging(lambda model, messages: {answer!r}, db={str(path)!r})\n"
        "logged('m', [{'role': 'user', 'content': 'Hi'}])\n"
        "if not flush_logging(): raise SystemExit('not stored')"
    )
    assert not _loaded(program) & {"pandas", "sqlite_utils"}
    with Store(path) as store:
        assert store.last().answer == "Hello."
