"""What went wrong with a server, said in one sentence with what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attr_core.engines._server_http import Endpoint, Nonsense, Refused, is_transport, is_unreachable
from attr_core.engines._server_kinds import unknown_model
from attr_core.errors import AttrkitError, ContextTooLongError, EngineError, ModelNotFoundError

_TOO_LONG = re.compile(
    r"context length|context window|max_model_len|too long|max_tokens must be at least 1|exceed\w* .*(context|tokens)",
    re.I,
)


def explained(
    error: Exception,
    endpoint: Endpoint,
    model: str | None,
    models: tuple[str, ...],
    *,
    what: str | None = None,
    completed: Mapping[int, Any] | None = None,
) -> AttrkitError:
    """The error to raise for the first thing that went wrong.

    Parameters
    ----------
    error : Exception
        What the client raised, or an error that already says what is the matter.
    endpoint : Endpoint
    model : str, optional
        As it was asked for.
    models : tuple of str
        Those the server lists.
    what : str, optional
        What failed of a batch.
    completed : mapping, optional
        Index in the batch -> what did not fail.
    """
    where = f"the server at {endpoint.url}"
    failed = f" on {what}" if what else ""
    if isinstance(error, Nonsense):
        return EngineError(f"{where} {error}; it is at fault", completed=completed)
    if isinstance(error, EngineError):
        return type(error)(*error.args, completed=completed) if completed and not error.completed else error
    if isinstance(error, AttrkitError):
        return error
    if is_unreachable(error):
        return EngineError(
            f"no server answers at {endpoint.url}{failed} ({_line(error)}); start one, such as: vllm serve MODEL",
            completed=completed,
        )
    if isinstance(error, Refused):
        return _refused(error, where, failed, model, models, endpoint, completed)
    kind = type(error).__name__
    remedy = "look at its log, or allow more time by limits" if is_transport(error) else "look at its log"
    return EngineError(f"{where} failed{failed}, first with {kind}: {_line(error)}; {remedy}", completed=completed)


def _refused(
    error: Refused,
    where: str,
    failed: str,
    model: str | None,
    models: tuple[str, ...],
    endpoint: Endpoint,
    completed: Mapping[int, Any] | None,
) -> EngineError:
    if error.status in {401, 403}:
        return EngineError(
            f"{where} refuses the key ({error}); set ATTRKIT_SERVER_KEY or pass api_key", completed=completed
        )
    if error.status == 404 and model and "model" in error.said.lower():
        return ModelNotFoundError(unknown_model(model, models, endpoint), completed=completed)
    if error.status in {400, 413, 422} and _TOO_LONG.search(error.said):
        return ContextTooLongError(
            f"{where} finds the prompt too long{failed} ({error.said}); shorten it or enlarge the server's window",
            completed=completed,
        )
    return EngineError(f"{where} failed{failed}, first because {error}; look at its log", completed=completed)


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
