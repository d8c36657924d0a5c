"""A streamed response that belongs to its query: model calls made while it is read are found to be part of that run.

LlamaIndex leaves a query's span before the first token is asked for, and calls the model then. So the response's
generator is replaced by one that passes every token on as it comes, says whose run is at work while it asks for the
next, and tells when the stream is exhausted, fails, is closed, or is let go of.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextvars import ContextVar, Token
from typing import Any

from llama_index.core.instrumentation.span import active_span_id

from attr_core._recording.membrane import Complaints, safely

__all__ = ["Reading", "is_running", "joined", "recorded"]

_Place = tuple[str, str | None]
_reading: ContextVar[_Place | None] = ContextVar("attrkit_llamaindex_reading", default=None)

End = Callable[[str, BaseException | None], object]


class Reading:
    """How far a response has been read.

    Parameters
    ----------
    run_id : str
        Of the run that gave it.
    end : callable
        Given the text read so far and, unless the stream is exhausted, why it ended; called once.
    """

    complaints = Complaints()  # for one that is collected although it was never set up
    _end: list[End] = []  # noqa: RUF012

    def __init__(self, run_id: str, end: End, complaints: Complaints) -> None:
        self.complaints = complaints
        self._run_id = run_id
        self._end = [end]  # whoever pops it ends; that is atomic
        self._pieces: list[str] = []
        self._process = os.getpid()

    def begin_step(self) -> Token[_Place | None]:
        """The next piece is asked for: what begins under the reader's span is part of the run."""
        return _reading.set((self._run_id, active_span_id.get()))

    def add(self, piece: Any) -> None:
        """Take a piece that the reader is about to get."""
        text = piece if isinstance(piece, str) else getattr(piece, "delta", None)
        if isinstance(text, str):
            self._pieces.append(text)

    def over(self, error: BaseException | None = None) -> None:
        """It came to its end; only the first end counts."""
        try:
            end = self._end.pop()
        except IndexError:
            return
        if os.getpid() == self._process:  # else it is a forked child's copy
            end("".join(self._pieces), error)

    def __del__(self) -> None:
        safely(self.complaints, self.over, GeneratorExit())


def joined(parent_id: str | None) -> str | None:
    """Whose child a span is that says to be ``parent_id``'s: the stream's, where it begins while one is read there."""
    place = _reading.get()
    return place[0] if place is not None and place[1] == parent_id else parent_id


def recorded(stream: Any, record: Reading) -> Any:
    """``stream`` as a generator, asynchronous where it is, that tells ``record`` how it is read."""
    return _apassed_on(stream, record) if hasattr(stream, "__anext__") else _passed_on(iter(stream), record)


def _passed_on(original: Iterator[Any], record: Reading) -> Generator[Any, Any, Any]:
    return (yield from _Pieces(original, record))


class _Pieces:
    def __init__(self, original: Iterator[Any], record: Reading) -> None:
        self._original, self._record = original, record

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._step(self._original.__next__)

    def send(self, value: Any) -> Any:
        return self._step(getattr(self._original, "send", lambda _: next(self._original)), value)

    def throw(self, *error: Any) -> Any:
        return self._step(getattr(self._original, "throw", _raise), *error)

    def close(self) -> None:
        try:
            getattr(self._original, "close", lambda: None)()
        finally:
            safely(self._record.complaints, self._record.over, GeneratorExit())

    def _step(self, ask: Callable[..., Any], *given: Any) -> Any:
        record = self._record
        token = safely(record.complaints, record.begin_step)
        try:
            piece = ask(*given)
        except StopIteration:
            _end_step(token)
            safely(record.complaints, record.over)
            raise
        except BaseException as error:
            _end_step(token)
            safely(record.complaints, record.over, error)
            raise
        _end_step(token)
        safely(record.complaints, record.add, piece)
        return piece


async def _apassed_on(original: AsyncIterator[Any], record: Reading) -> AsyncGenerator[Any, None]:
    try:
        while True:
            token = safely(record.complaints, record.begin_step)
            try:
                piece = await original.__anext__()
            except StopAsyncIteration:
                break
            finally:
                _end_step(token)
            safely(record.complaints, record.add, piece)
            yield piece
    except BaseException as error:
        try:
            if isinstance(error, GeneratorExit) and isinstance(original, AsyncGenerator):
                await original.aclose()
        finally:
            safely(record.complaints, record.over, error)
        raise
    safely(record.complaints, record.over)


def is_running(stream: Any) -> bool:
    """Whether a generator is at work further up in this very stack: then what begins here is done by it."""
    frame = getattr(stream, "gi_frame", None) or getattr(stream, "ag_frame", None)
    here = sys._getframe(1) if frame is not None else None
    while here is not None and here is not frame:
        here = here.f_back
    return here is not None


def _end_step(token: Token[_Place | None] | None) -> None:
    with contextlib.suppress(Exception):  # a step that is cut off may end in another context, which is not marked
        if token is not None:
            _reading.reset(token)


def _raise(error: Any, value: Any = None, trace: Any = None) -> Any:
    raise error if value is None else value
