"""From a model's name to its folder on this machine, and to what identifies its weights."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attr_core._optional import require
from attr_core.engines import local_models
from attr_core.engines._files import file_digest
from attr_core.engines._quiet import quiet
from attr_core.errors import ConfigurationError, ModelNotFoundError

_SUFFIXES = {".json", ".safetensors", ".bin", ".model", ".jinja", ".txt", ".py"}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from: exactly one of a folder, a GGUF file or a hub repository not yet downloaded."""

    folder: Path | None = None
    gguf: Path | None = None
    repo: str | None = None
    revision: str | None = None
    gguf_file: str | None = None

    def fetch(self) -> Path:
        """The folder to load from; downloads or converts where that is still to be done."""
        if self.folder is not None:
            return self.folder
        gguf = self.gguf
        if self.repo is not None:
            fetched = _download(self.repo, self.revision, self.gguf_file)
            if self.gguf_file is None:
                return fetched
            gguf = fetched
        if gguf is None:
            raise ConfigurationError("the model has neither folder nor file nor hub name; name one")
        return local_models.convert_gguf(gguf)


def locate(model: str, *, revision: str | None = None, gguf_file: str | None = None) -> Source:
    """Find a model by folder, GGUF file, packaged file name or hub name, without loading or downloading it.

    Raises
    ------
    ModelNotFoundError
        It is not on this machine and may not or cannot be downloaded.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return _in_folder(path, gguf_file)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ConfigurationError(f"{model} is a file but no .gguf; name the model's folder")
        return Source(gguf=path)
    packaged = local_models.find_packaged(model)
    if packaged is not None:
        return Source(gguf=packaged)
    repo, file = _split_hub_file(model)
    gguf_file = gguf_file or file
    if not _HUB_ID.fullmatch(repo):
        raise ModelNotFoundError(f"there is no model folder or file {model}; check the path")
    if repo.endswith(".gguf"):
        raise ModelNotFoundError(
            f"there is no file {model} here and no installed package ships it; check the path or install its package"
        )
    cached = _cached(repo, revision, gguf_file)
    if cached is not None:
        return Source(gguf=cached) if gguf_file else Source(folder=cached)
    if is_offline():
        raise ModelNotFoundError(
            f"model {repo} is no folder here and not in the Hugging Face cache, and HF_HUB_OFFLINE forbids "
            "downloading; name a local folder or unset it"
        )
    return Source(repo=repo, revision=revision, gguf_file=gguf_file)


def identity(folder: Path) -> dict[str, Any]:
    """What identifies the model in a folder: the GGUF it was converted from, or the hashes of its files.

    Files are hashed whole, once per change, so that equal copies are equal and any edit differs.
    """
    marker = folder / local_models.MARKER
    if marker.is_file():
        return dict(json.loads(marker.read_text()))
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
        return {"hub": folder.parent.parent.name, "commit": folder.name}
    return {file.name: file_digest(file) for file in sorted(folder.iterdir()) if file.suffix in _SUFFIXES}


def parameter_identity(model: Any) -> dict[str, Any]:
    """What identifies a loaded model: a hash of all its weights, read once."""
    torch = require("torch", extra="hf")
    digest = hashlib.sha256(json.dumps(model.config.to_diff_dict(), sort_keys=True, default=str).encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        if tensor.is_meta:
            raise ConfigurationError(
                "the model's weights are offloaded and cannot be identified; load it whole or name its folder"
            )
        flat = tensor.detach().contiguous().cpu().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return {"parameters": digest.hexdigest()}


def tokenizer_identity(tokenizer: Any) -> str:
    """What identifies a tokenizer: a hash of its vocabulary, rules, special tokens and chat template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    inner = json.dumps(tokenizer.get_vocab(), sort_keys=True) if backend is None else backend.to_str()
    template = json.dumps(getattr(tokenizer, "chat_template", None), sort_keys=True)
    return hashlib.sha256(f"{inner}\0{template}\0{tokenizer.special_tokens_map}".encode()).hexdigest()


def parse_dtype(dtype: Any) -> Any:
    """A floating-point type from torch or its name, or ``"auto"``."""
    if dtype == "auto":
        return dtype
    torch = require("torch", extra="hf")
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ConfigurationError(f"dtype {dtype!r} is unknown; give 'float32', 'auto' or a torch.dtype")
    return found


def is_offline() -> bool:
    """Whether the environment forbids downloads from the hub."""
    flags = (os.environ.get(name, "") for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(flag.upper() in {"1", "ON", "YES", "TRUE"} for flag in flags)


def is_cached(repo: str) -> bool:
    """Whether a hub model is complete in the local Hugging Face cache."""
    return _cached(repo, None, None) is not None


def _split_hub_file(model: str) -> tuple[str, str | None]:
    parts = model.split("/")
    if model.endswith(".gguf") and len(parts) == 3:
        return "/".join(parts[:2]), parts[2]
    return model, None


def _in_folder(folder: Path, gguf_file: str | None) -> Source:
    if gguf_file is not None:
        if not (folder / gguf_file).is_file():
            raise ModelNotFoundError(f"there is no file {gguf_file} in {folder}; check gguf_file")
        return Source(gguf=folder / gguf_file)
    if (folder / "config.json").is_file():
        return Source(folder=folder)
    ggufs = sorted(folder.glob("*.gguf"))
    if len(ggufs) == 1:
        return Source(gguf=ggufs[0])
    what = f"{len(ggufs)} .gguf files; choose one with gguf_file" if ggufs else "no config.json and no .gguf file"
    raise ModelNotFoundError(f"folder {folder} holds no model to load: {what}")


def _cached(repo: str, revision: str | None, gguf_file: str | None) -> Path | None:
    hub = require("huggingface_hub", extra="hf")
    found = hub.try_to_load_from_cache(repo, gguf_file or "config.json", revision=revision)
    if not isinstance(found, str):
        return None
    if gguf_file:
        return Path(found)
    folder = Path(found).parent
    return folder if _has_weights(folder) else None


def _has_weights(folder: Path) -> bool:
    for index in folder.glob("*.index.json"):
        shards = set(json.loads(index.read_text()).get("weight_map", {}).values())
        if shards and all((folder / shard).exists() for shard in shards):
            return True
    return any((folder / name).exists() for name in ("model.safetensors", "pytorch_model.bin"))


def _download(repo: str, revision: str | None, gguf_file: str | None) -> Path:
    hub = require("huggingface_hub", extra="hf")
    plain = {"revision": revision, "ignore_patterns": ["*/*"]}
    try:
        with quiet():
            if gguf_file:
                return Path(hub.hf_hub_download(repo, gguf_file, revision=revision))
            text = ["*.json", "*.model", "*.txt", "*.jinja"]
            folder = Path(hub.snapshot_download(repo, allow_patterns=[*text, "*.safetensors"], **plain))
            if not _has_weights(folder):
                folder = Path(hub.snapshot_download(repo, allow_patterns=[*text, "*.bin"], **plain))
    except Exception as error:
        raise ModelNotFoundError(
            f"model {repo} is not on this machine and could not be downloaded ({_reason(error)}); "
            "check its name and the connection, or name a local folder"
        ) from error
    if not _has_weights(folder):
        raise ModelNotFoundError(
            f"hub repository {repo} holds no safetensors or .bin weights; name another, or a .gguf"
        )
    return folder


def _reason(error: Exception) -> str:
    known = {"RepositoryNotFoundError": "no such repository, or it is private", "GatedRepoError": "access is gated"}
    name = type(error).__name__
    return known.get(name, name)
