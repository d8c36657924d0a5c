"""Engines: one backend per file, found by the prefix of a spec.

``hf:MODEL`` is a model on this machine, ``litellm:MODEL`` any that litellm reaches, ``server:URL#MODEL`` a server that
speaks OpenAI's protocol, ``st:MODEL`` one that embeds.
"""

from __future__ import annotations

import importlib
import inspect
import os
import threading
from collections.abc import Mapping
from typing import Any

from attr_core.engines.local_models import default_model
from attr_core.errors import ConfigurationError, DownloadNeededError
from attr_core.protocols import Engine

__all__ = ["DEFAULT_DOWNLOAD", "EMBED_VARIABLE", "ENGINE_VARIABLE", "load_embedder", "load_engine"]

ENGINE_VARIABLE = "ATTRKIT_ENGINE"
EMBED_VARIABLE = "ATTRKIT_EMBED"
DEFAULT_DOWNLOAD = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The small hub model that measures where no model is installed."""

_DEFAULT_DOWNLOAD_MEGABYTES = 270

_BACKENDS: Mapping[str, str] = {
    "hf": "attr_core.engines.huggingface:HuggingFaceEngine",
    "litellm": "attr_core.engines.litellm:LiteLLMEngine",
    "server": "attr_core.engines.openai_server:OpenAIServerEngine",
    "st": "attr_core.engines.sentence_transformers:SentenceTransformersEngine",
}
"""Spec prefix -> module and class, which is called with what follows the prefix; imported when it is asked for."""

_NAMED = {"server": "URL#MODEL"}

_loaded: dict[str, Engine] = {}
_lock = threading.Lock()


def _start_over() -> None:
    global _lock
    _lock = threading.Lock()  # the thread that held it does not live in a forked child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


def load_engine(spec: str | Engine | None = None, *, download: bool = False) -> Engine:
    """The engine that a spec names; the same object for the same spec within a process.

    Parameters
    ----------
    spec : str or Engine, optional
        Such as ``hf:MODEL``, or an engine, which is returned as it is. Default: the environment variable
        ``ATTRKIT_ENGINE``, else an installed packaged model, else a small model from the hub.
    download : bool, default False
        Whether that small model may be downloaded where it is missing. A hub model that is *named* always may.

    Raises
    ------
    ConfigurationError
        The spec is malformed or its prefix unknown.
    DownloadNeededError
        Nothing is named or installed and ``download`` is not given; it says what would be downloaded.
    ModelNotFoundError
        The model is not on this machine and may not be downloaded.
    MissingDependencyError
        The backend's package is not installed.

    Examples
    --------
    >>> load_engine("mistery:model")
    Traceback (most recent call last):
    attr_core.errors.ConfigurationError: engine 'mistery:model' has no known prefix; write hf:MODEL, litellm:MODEL, ...
    """
    if spec is None:
        spec = os.environ.get(ENGINE_VARIABLE, "").strip() or default_model() or _hub_default(download=download)
    if not isinstance(spec, str):
        return _checked(spec)
    spec = spec.strip()
    prefix, colon, name = spec.partition(":")
    if colon and not name and prefix in _BACKENDS:
        raise ConfigurationError(f"engine {spec!r} names no model; write {prefix}:{_NAMED.get(prefix, 'MODEL')}")
    if not colon or not name or prefix not in _BACKENDS:
        known = ", ".join(f"{prefix}:{_NAMED.get(prefix, 'MODEL')}" for prefix in _BACKENDS)
        raise ConfigurationError(f"engine {spec!r} has no known prefix; write {known}")
    with _lock:
        if spec not in _loaded:
            module, _, backend = _BACKENDS[prefix].partition(":")
            _loaded[spec] = getattr(importlib.import_module(module), backend)(name)
        return _loaded[spec]


def load_embedder(spec: str | Engine | None = None) -> Engine | None:
    """The engine that embeds; by default what ``ATTRKIT_EMBED`` names, else an installed packaged one, else ``None``.

    Raises
    ------
    ConfigurationError, MissingDependencyError, ModelNotFoundError
        As for :func:`load_engine`.
    """
    if spec is None:
        from attr_core.engines.sentence_transformers import default_embedder

        spec = os.environ.get(EMBED_VARIABLE, "").strip() or default_embedder()
    return None if spec is None else load_engine(spec)


def _hub_default(*, download: bool) -> str:
    from attr_core.engines._weights import is_cached

    if not download and not is_cached(DEFAULT_DOWNLOAD):
        raise DownloadNeededError(DEFAULT_DOWNLOAD, megabytes=_DEFAULT_DOWNLOAD_MEGABYTES)
    return f"hf:{DEFAULT_DOWNLOAD}"


def _checked(engine: Any) -> Engine:
    # Looked up statically: reading a fingerprint may hash a model's weights.
    missing = object()
    if any(inspect.getattr_static(engine, name, missing) is missing for name in ("spec", "fingerprint", "max_context")):
        raise ConfigurationError(
            f"{type(engine).__name__} is no engine; give a spec such as hf:MODEL or a HuggingFaceEngine"
        )
    checked: Engine = engine
    return checked
