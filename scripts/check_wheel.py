"""Build the wheel by way of the source distribution, install it without extras in a scratch environment, use it there.

The packages lie flat in the checkout, so a file that the wheel lacks goes unnoticed until it is used elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("attr_core", "attr_langchain", "attr_llamaindex", "attr_haystack", "haystack_integrations")
TYPED = (*PACKAGES[:-1], "haystack_integrations/components/attribution")

USE = """
import importlib, pathlib, pkgutil, sys
import attr_core
from attr_core.errors import MissingDependencyError

assert pathlib.Path(attr_core.__file__).is_relative_to(sys.prefix), attr_core.__file__

def check_nothing_heavy(after):
    heavy = {"torch", "transformers", "litellm", "openai", "langchain_core", "llama_index", "haystack"}
    assert not heavy & set(sys.modules), f"{after} loads {heavy & set(sys.modules)}"

check_nothing_heavy("import attr_core")
from attr_core import *
check_nothing_heavy("from attr_core import *")

modules = [info.name for info in pkgutil.walk_packages(attr_core.__path__, "attr_core.") if "._" not in info.name]
modules.remove("attr_core.pytest_plugin")  # which pytest alone imports
for name in [*modules, "attr_langchain", "attr_llamaindex", "attr_haystack"]:
    try:
        importlib.import_module(name)
    except MissingDependencyError as error:
        print(f"{name}: {error}")
    else:
        assert name.startswith("attr_core."), f"{name} was imported without its framework"
print(f"{len(modules)} public modules of attr_core looked at")
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="attrkit wheel ") as scratch:
        folder = Path(scratch).resolve()
        _run(sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(ROOT), cwd=folder)
        (wheel,) = (folder / "dist").glob("*.whl")
        _check_contents(wheel)
        venv.create(folder / "env", with_pip=True)
        binaries = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        python = str(binaries / "python")
        constraints = str(ROOT / "constraints.txt")
        _run(python, "-m", "pip", "install", "--quiet", "-c", constraints, str(wheel), cwd=folder)
        _run(python, "-I", "-W", "error", "-c", USE, cwd=folder)
        _run(str(binaries / "attrkit"), "--help", cwd=folder)
        print(f"{wheel.name}: built, installed without extras and used ({wheel.stat().st_size / 1024:.0f} KiB)")


def _check_contents(wheel: Path) -> None:
    """The wheel holds every module of the checkout, the type markers and the licence, and nothing else of the tree."""
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wanted |= {f"{package}/py.typed" for package in TYPED}
    held = {name for name in names if ".dist-info/" not in name}
    if held != wanted:
        raise SystemExit(f"{wheel.name} lacks {sorted(wanted - held)} and holds besides {sorted(held - wanted)}")
    if not any(name.endswith("/licenses/LICENSE") for name in names):
        raise SystemExit(f"{wheel.name} holds no licence")


def _run(*command: str, cwd: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    finished = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        sys.stderr.write(finished.stdout[-4000:] + finished.stderr[-4000:])
        raise SystemExit(f"failed with exit code {finished.returncode}: {' '.join(command)[:200]}")
    if "-c" in command and USE in command:
        sys.stdout.write(finished.stdout)


if __name__ == "__main__":
    main()
