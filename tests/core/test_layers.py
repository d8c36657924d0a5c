"""The import contracts hold, and each of them catches what it forbids."""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import attr_core

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("attr_core", "attr_langchain", "attr_llamaindex", "attr_haystack")


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    return subprocess.run([*command, "--no-logo"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path):
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_hold():
    result = _lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "planted", "contract"),
    [
        ("attr_core/types.py", "import attr_core.api", "attr_core's imports go down only"),
        ("attr_core/types.py", "from attr_core import api", "attr_core's imports go down only"),
        ("attr_core/types.py", "import attr_langchain", "Adapters stand on the core and never import each other"),
        ("attr_core/unplaced.py", "import attr_core.types", "attr_core's imports go down only"),
        ("attr_langchain/convert.py", "import attr_haystack", "Adapters stand on the core and never import each other"),
        ("attr_langchain/convert.py", "import attr_core.cli", "Adapters do not import the command line"),
        ("attr_core/claims.py", "import langchain_core.documents", "attr_core imports no framework"),
        ("attr_core/claims.py", "def f():\n    import torch", "Only an engine's own files import its library"),
        ("attr_haystack/convert.py", "import openai", "Only an engine's own files import its library"),
    ],
)
def test_planted_violation_is_caught(tree, module, planted, contract):
    with (tree / module).open("a") as file:
        file.write(f"\n{planted}\n")
    result = _lint(tree)
    assert result.returncode != 0
    assert f"{contract} BROKEN" in result.stdout, result.stdout + result.stderr


def test_libraries_imported_by_name_stay_where_the_contract_allows_them():
    # import-linter reads import statements only; `require("torch", ...)` gets past it.
    contracts = {
        contract["id"]: contract
        for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    }
    allowed = {tuple(line.split(" -> ")) for line in contracts["backends"]["ignore_imports"]}
    forbidden = {*contracts["backends"]["forbidden_modules"], *contracts["frameworks"]["forbidden_modules"]}
    for path in sorted((ROOT / "attr_core").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        named = {name.split(".")[0] for name in _imported_by_name(path)}
        assert {(module, name) for name in named & forbidden} <= allowed


def test_inside_the_core_names_are_imported_from_their_home():
    # What attr_core re-exports is out of the contract's sight: a lower module could reach a higher one through it.
    for path in sorted((ROOT / "attr_core").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "attr_core":
                assert not {alias.name for alias in node.names} & set(attr_core._HOMES), path


def _imported_by_name(path: Path) -> set[str]:
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and node.args)
    return {
        call.args[0].value
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] in {"require", "import_module", "__import__"}
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    }
