"""What ``__all__`` lists is all there is, and all of it is there."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import attr_core

PUBLIC_MODULES = sorted(
    info.name
    for info in pkgutil.walk_packages(attr_core.__path__, "attr_core.")
    if not any(part.startswith("_") for part in info.name.split("."))
)


@pytest.mark.parametrize("name", attr_core.__all__)
def test_every_listed_name_is_there_and_public_in_its_home(name):
    found = getattr(attr_core, name)
    if name != "__version__":
        home = importlib.import_module(f"attr_core.{attr_core._HOMES[name]}")
        assert getattr(home, name) is found
        assert name in home.__all__


def test_the_list_is_complete_sorted_and_what_type_checkers_see():
    assert sorted(attr_core.__all__) == sorted([*attr_core._HOMES, "__version__"])
    assert list(attr_core.__all__) == sorted(attr_core.__all__)
    assert len(attr_core.__all__) == len(set(attr_core.__all__))
    imported = {
        (f"{node.module}".removeprefix("attr_core."), alias.asname)
        for node in ast.walk(ast.parse(Path(attr_core.__file__).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("attr_core.")
        for alias in node.names
    }
    assert imported == {(home, name) for name, home in attr_core._HOMES.items()}


def test_star_import_brings_exactly_the_list():
    program = "before = set(globals()); from attr_core import *; print(*sorted(set(globals()) - before - {'before'}))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == sorted(attr_core.__all__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = attr_core.no_such_name
    assert set(attr_core.__all__) <= set(dir(attr_core))


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_public_modules_list_what_they_define(name):
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", [])  # a package may be nothing but a place
    assert [entry for entry in listed if not hasattr(module, entry)] == []
    assert [entry for entry in listed if entry.startswith("_")] == []
    # What a terminal calls is public there, under its own name, not as a function.
    commands = (
        [command.callback for command in app.registered_commands] if (app := getattr(module, "app", None)) else []
    )
    defined = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_") and getattr(value, "__module__", None) == name and callable(value)
        if value not in commands
    }
    assert defined - set(listed) == set()


def test_version_is_the_one_to_cite():
    citation = Path(__file__).parents[2].joinpath("CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == attr_core.__version__


@pytest.mark.parametrize(
    ("package", "framework", "extra"),
    [
        ("attr_langchain", "langchain_core", "langchain"),
        ("attr_llamaindex", "llama_index", "llamaindex"),
        ("attr_haystack", "haystack", "haystack"),
    ],
)
def test_adapter_without_its_framework_names_the_extra(package, framework, extra):
    program = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {framework!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from attr_core.errors import MissingDependencyError
try:
    import {package}
except MissingDependencyError as error:
    print(error.extra, isinstance(error, ImportError), error)
"""
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.startswith(f"{extra} True {framework}")
    assert f'pip install "attrkit[{extra}]"' in printed
