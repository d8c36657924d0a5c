"""Follows a call from what is sent to what came back, and hands the finished trace to the writer."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attr_core._recording import writer
from attr_core._recording.membrane import Complaints, is_paused, safely
from attr_core._recording.requests import CallSite, bare, call_site, read_request
from attr_core._recording.responses import Answer, Status, read_answer
from attr_core._recording.streams import StreamRecord, is_stream, recorded_stream
from attr_core._redact import masked, redacted
from attr_core._storage.database import MEMORY, default_path
from attr_core.errors import InputError
from attr_core.types import ATTRKIT_KEY, Trace

__all__ = ["Call", "Recorder", "answered_trace"]

_UNKNOWN_SITE = CallSite(("model", "messages"), {}, None, {})


@dataclass(frozen=True, slots=True)
class Call:
    """A call under way: the trace as far as it goes, and the options that may hold secrets."""

    trace: Trace
    options: Mapping[str, Any]


class Recorder:
    """Everything that may go wrong beside the host's own call; its methods are called through the membrane."""

    def __init__(
        self,
        call: Callable[..., Any],
        *,
        db: str | os.PathLike[str] | None,
        store: writer.SavesTraces | None,
        framework: str | None,
        stamp: bool,
        redact: Callable[[str], str] | None,
    ) -> None:
        self.complaints = Complaints()
        self._site: CallSite = safely(self.complaints, call_site, call, default=_UNKNOWN_SITE)
        self._framework = framework or self._site.framework
        self._target = store if store is not None or db is None else _absolute(db)
        self._stamp, self._redact = stamp, redact

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], documents: Iterable[Any] | None) -> Call | None:
        """Note what is about to be sent; nothing where it is attrkit that calls the model."""
        if is_paused.get():
            return None
        options = self._site.options(args, kwargs)
        trace = read_request(options, documents)
        return Call(replace(trace, framework=self._framework, started=_now()), options)

    def for_provider(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments without what only attrkit knows."""
        return bare(self._site.names, args, kwargs)

    def answered(self, call: Call | None, response: Any) -> Any:
        """Record what came back; the same object, or where it is yet to come, one that records itself."""
        if call is None:
            return response
        if inspect.iscoroutine(response):
            return self.awaited(call, response)
        if isinstance(response, Awaitable):
            self._when_done(call, response)
            return response
        if is_stream(response):
            record = StreamRecord(functools.partial(self.finish, call), self.complaints)
            return recorded_stream(response, record, self._stamp_of(call))
        try:
            answer = read_answer(response)
        except InputError as error:
            self.finish(call, Answer(status="partial", error=str(error)))
            return response
        if self.finish(call, answer) and (stamp := self._stamp_of(call)) is not None:
            _leave(response, stamp)
        return response

    async def awaited(self, call: Call | None, coming: Awaitable[Any]) -> Any:
        """Await what comes back, and record it."""
        try:
            response = await coming
        except BaseException as error:
            safely(self.complaints, self.failed, call, error)
            raise
        return safely(self.complaints, self.answered, call, response, default=response)

    def failed(self, call: Call | None, error: BaseException) -> None:
        """Record that the provider failed, or that the call was interrupted."""
        if call is not None:
            self.finish(call, Answer(), error)

    def finish(self, call: Call, answer: Answer, error: BaseException | None = None) -> bool:
        """Queue the trace; whether it was taken."""
        if error is not None:
            status: Status = "error" if isinstance(error, Exception) else "interrupted"
            answer = replace(answer, status=status, error=f"{type(error).__name__}: {error}")
        if answer.error is not None:
            answer = replace(answer, error=masked(answer.error, call.options, self._site.secrets, os.environ))
        trace = replace(answered_trace(call.trace, answer), finished=_now())
        if self._redact is not None:
            trace = redacted(trace, self._redact, failed=self.complaints.of_redactor)
        return writer.current().put(trace, self._destination(), self.complaints)

    def _when_done(self, call: Call, coming: Any) -> None:
        if not hasattr(coming, "add_done_callback"):
            raise InputError(f"an awaitable of type {type(coming).__name__} cannot be followed; give a coroutine")
        coming.add_done_callback(lambda done: safely(self.complaints, self._done, call, done))

    def _done(self, call: Call, future: Any) -> None:
        if future.cancelled():
            self.finish(call, Answer(status="interrupted"))
        elif (error := future.exception()) is not None:
            self.failed(call, error)
        else:
            self.answered(call, future.result())

    def _stamp_of(self, call: Call) -> dict[str, Any] | None:
        return {"trace_id": call.trace.id} if self._stamp else None

    def _destination(self) -> str | writer.SavesTraces:
        return _absolute(default_path()) if self._target is None else self._target


def answered_trace(trace: Trace, answer: Answer) -> Trace:
    """The trace of a request with what came back."""
    (generation,) = trace.generations
    model = generation.model or answer.model
    said = {} if answer.model in (None, model) else {"response_model": answer.model}
    generation = replace(
        generation,
        response=answer.response,
        reasoning=answer.reasoning,
        tool_calls=answer.tool_calls,
        finish_reason=answer.finish_reason,
        usage=answer.usage,
        model=model,
        error=answer.error if answer.status in ("error", "interrupted") else None,
    )
    return replace(
        trace,
        generations=(generation,),
        answer=answer.response,
        status=answer.status,
        error=answer.error,
        metadata={**trace.metadata, **said, **answer.metadata},
    )


def _absolute(path: str | os.PathLike[str]) -> str:
    return MEMORY if str(path) == MEMORY else str(Path(path).expanduser().absolute())


def _leave(response: Any, stamp: dict[str, Any]) -> None:
    try:
        if isinstance(response, dict):
            response[ATTRKIT_KEY] = stamp
        elif response is not None and not isinstance(response, str):
            setattr(response, ATTRKIT_KEY, stamp)
    except Exception:  # some responses take no further attribute
        return


def _now() -> datetime:
    return datetime.now(UTC)
