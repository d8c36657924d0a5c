"""What litellm raises, as outcomes of requests: a line without secrets, what to do, and whether to try again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from attr_core._redact import masked
from attr_core.engines._litellm_calls import load_litellm
from attr_core.engines._prices import provider_of
from attr_core.engines._requests import Failure, failure_of_status, retry_after
from attr_core.errors import AttrkitError, ConfigurationError, ContextTooLongError, EngineError, ModelNotFoundError

_NO_KEY = re.compile(
    r"missing credentials|missing [\w ]{0,40}api[ _]key|api_key client option must be set|api key is required"
    r"|no api[ _]key|api[ _]key not (found|provided|set)",
    re.IGNORECASE,
)
_REPEATED = re.compile(
    r"^(?:litellm\.)?(\w+): (?:(?:litellm\.)?\w+: )*(?:\w+(?:Exception|Error)(?: \w+)? - )?(?:litellm\.)?"
)
"""``litellm.RateLimitError: RateLimitError: OpenAIException - ``, of which the first name is enough."""

_GOOGLE_WAIT = re.compile(r'"retryDelay":\s*"(\d+(?:\.\d+)?)s"')
_LONGEST = 500


class RequestFailed(Exception):  # noqa: N818 - an outcome
    """One request's failure, as a line without secrets; with how to take it and what to raise of it."""

    def __init__(self, text: str, *, failure: Failure, remedy: str, kind: type[AttrkitError] = EngineError) -> None:
        super().__init__(text)
        self.failure = failure
        self.remedy = remedy
        self.kind = kind


def failed_request(error: Exception, *, model: str, options: Mapping[str, Any]) -> RequestFailed:
    """What litellm raised, as an outcome.

    Parameters
    ----------
    error : Exception
    model : str
        Who was asked, for the line.
    options : mapping
        With which; the values of those that are secret are blanked, as are the environment's.
    """
    whole = _with_detail(str(error).strip(), getattr(error, "body", None))
    line = masked(whole, os.environ, options).partition("\n")[0][:_LONGEST]
    text = _REPEATED.sub(r"\1: ", line) or type(error).__name__
    return _of_all(error, whole, text, model, options) or _of_this(error, whole, text)


def _of_all(error: Exception, whole: str, text: str, model: str, options: Mapping[str, Any]) -> RequestFailed | None:
    """What no other request will escape."""

    def hopeless(text: str, remedy: str, kind: type[AttrkitError] = EngineError) -> RequestFailed:
        return RequestFailed(text, failure=Failure(passing=False, hopeless=True), remedy=remedy, kind=kind)

    status, keys = getattr(error, "status_code", None), _key_names(model)
    if _NO_KEY.search(whole) and not options.get("api_key") and not any(map(os.environ.get, keys)):
        remedy = f"set {' or '.join(keys)}, or pass api_key"
        return hopeless(f"no API key is set for {model}", remedy, ConfigurationError)
    if "LLM Provider NOT provided" in whole:
        remedy = "name it as PROVIDER/MODEL, such as openai/gpt-4o"
        return hopeless(f"no provider is known for {model}", remedy, ModelNotFoundError)
    if status == 404:
        return hopeless(text, "see that the model's name and api_base are right", ModelNotFoundError)
    if status in (401, 403):
        return hopeless(text, f"see that {' or '.join(keys)} or api_key is valid and may use this model")
    if status == 429 and "insufficient_quota" in f"{whole} {getattr(error, 'body', '')}":
        return hopeless(text, "the account has nothing left; top it up")
    return None


def _of_this(error: Exception, whole: str, text: str) -> RequestFailed:
    """What may be this request's own, or pass."""
    names = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(error, "status_code", None)
    once = Failure(passing=False)
    if "ContextWindowExceededError" in names:
        remedy = "give it less, or use a model with a larger window"
        return RequestFailed(text, failure=once, remedy=remedy, kind=ContextTooLongError)
    if "codec can't encode" in whole:
        return RequestFailed(text, failure=once, remedy="take the lone surrogates out of the prompt's text")
    if not isinstance(status, int) or not names & {"APIError", "OpenAIError"}:
        text = text if text.startswith(type(error).__name__) else f"{type(error).__name__}: {text}"
        return RequestFailed(text, failure=once, remedy="see that the model and its parameters are right")
    if "Timeout" in names:
        return RequestFailed(text, failure=Failure(passing=True), remedy="raise timeout in its limits")
    failure = failure_of_status(status, wait=_asked_wait(error, whole))
    if failure.passing:
        return RequestFailed(text, failure=failure, remedy="look at the endpoint, or lower the pace in its limits")
    remedy = "see that the model is right; where it refuses a sampling parameter, name that in keep"
    return RequestFailed(text, failure=failure, remedy=remedy)


def _key_names(model: str) -> list[str]:
    """Environment variables that may hold the key of the model's provider."""
    usual = f"{re.sub(r'[^A-Z0-9]', '_', provider_of(model).upper())}_API_KEY"
    try:
        missing = [str(one) for one in load_litellm().validate_environment(model)["missing_keys"]]
    except Exception:  # a provider that litellm does not know
        missing = []
    return [one for one in missing if "KEY" in one] or [usual]


def _with_detail(text: str, body: Any) -> str:
    """What servers of other makes say beside the status, which litellm leaves out."""
    detail = body.get("detail") or body.get("message") if isinstance(body, Mapping) else None
    return text if not isinstance(detail, str) or detail in text else f"{text}: {detail}"


def _asked_wait(error: Exception, text: str) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    # Of the two, which has them depends on the provider.
    told = retry_after({**headers, **(getattr(error, "litellm_response_headers", None) or {})})
    if told is None and (found := _GOOGLE_WAIT.search(text)) is not None:
        return float(found[1])
    return told
