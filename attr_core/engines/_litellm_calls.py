"""litellm, asked where no one listens: no callback, cache, retry, or price list from the network."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import os
import sys
import threading
import uuid
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

from attr_core._optional import require
from attr_core.capture import paused
from attr_core.engines._prices import provider_of
from attr_core.errors import ConfigurationError

_LOCAL_LISTS = ("LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS")
# fmt: off
_OWN_RETRIES = frozenset({
    "ai21", "ai21_chat", "baseten", "bigmodel", "clf_ai_gateway", "codestral", "deepinfra", "featherless_ai",
    "hyperbolic", "inception", "morph", "nscale", "nvidia_nim", "sambanova", "text-completion-inception", "v0", "zai",
})
# fmt: on
"""Providers for whom litellm drops ``max_retries``, so that the client it uses tries three times, unless allowed."""


class _NoRetries(int):
    """A zero that does not read as unset: for embeddings litellm takes ``max_retries or 2``."""

    def __bool__(self) -> bool:
        return True


def load_litellm() -> Any:
    """Import it without a network call.

    Raises
    ------
    MissingDependencyError
        It is not installed.
    """
    if (loaded := sys.modules.get("litellm")) is not None and hasattr(loaded, "completion"):
        return loaded
    for name in _LOCAL_LISTS:
        os.environ.setdefault(name, "True")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: Any = require("litellm", extra="litellm")
        with contextlib.suppress(Exception):  # what it imports with its first call warns too
            ask(module, "completion", model="openai/none", messages=[], mock_response="", api_key="none")
    return module


def ask(litellm: Any, call: str, **arguments: Any) -> Any:
    """``litellm.completion`` or ``litellm.embedding``, once; nobody who listens to the application hears it."""
    options = {
        "caching": False,
        "no-log": True,
        "num_retries": 0,
        "max_retries": _NoRetries(0),
        "metadata": {"model_group": arguments["model"]},  # marks it as a router's, whose retries are its own
        **_record(litellm, arguments["model"], call),
    }
    if call == "completion" and provider_of(arguments["model"]) in _OWN_RETRIES:
        options["allowed_openai_params"] = [*arguments.pop("allowed_openai_params", ()), "max_retries"]
    with _unheard():
        return getattr(litellm, call)(**options, **arguments)


def check_fallbacks(litellm: Any) -> None:
    """See that the model that is asked is the one that answers.

    Raises
    ------
    ConfigurationError
        Another would answer in the place of one that fails.
    """
    if getattr(litellm, "model_fallbacks", None):
        raise ConfigurationError("litellm.model_fallbacks lets another model answer instead; unset it to measure")


@contextlib.contextmanager
def undisturbed(litellm: Any) -> Iterator[None]:
    """Keeps litellm from printing advice, and puts back what it changes of its settings when a call fails."""
    global _inside, _settings
    with _lock:
        if not _inside:
            _settings = (litellm.num_retries, litellm.suppress_debug_info)
        _inside += 1
        litellm.suppress_debug_info = True
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                retries, litellm.suppress_debug_info = _settings
                litellm.num_retries = retries if litellm.num_retries is None else litellm.num_retries


_inside = 0
_settings: tuple[Any, Any] = (None, True)
_lock = threading.Lock()


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    with contextlib.ExitStack() as silence:
        silence.enter_context(paused())
        if (instrumentation := sys.modules.get("opentelemetry.instrumentation.utils")) is not None:
            silence.enter_context(instrumentation.suppress_instrumentation())
        yield


def _record(litellm: Any, model: str, call: str) -> dict[str, Any]:
    """litellm's own record of a call, which it would tell to callbacks, as one that tells nobody."""
    try:
        record = _deaf_kind(litellm)(
            model=model,
            messages=[],
            stream=False,
            call_type=call,
            start_time=datetime.datetime.now(),  # noqa: DTZ005 - as litellm subtracts it
            litellm_call_id=str(uuid.uuid4()),
            function_id="",
        )
    except (ImportError, TypeError):  # another version's: then "no-log" alone keeps callbacks out, save those of inputs
        return {}
    return {"litellm_logging_obj": record}


@cache
def _deaf_kind(litellm: Any) -> Any:
    logging = importlib.import_module("litellm.litellm_core_utils.litellm_logging").Logging

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    async def nothing_later(*args: Any, **kwargs: Any) -> None:
        return None

    silent = dict.fromkeys(("pre_call", "post_call", "success_handler", "failure_handler"), nothing)
    later = dict.fromkeys(("async_success_handler", "async_failure_handler"), nothing_later)
    return type("Deaf", (logging,), {**silent, **later})
