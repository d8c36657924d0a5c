"""A stream that records itself while the host reads it.

The host gets a proxy: iteration, closing and context management pass through it to the original, everything else goes
to the original directly. Chunks are the original's own objects. ``isinstance`` and attribute access see the original.
"""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import replace
from typing import Any, Protocol

from attr_core._recording.chunks import Assembly
from attr_core._recording.membrane import Complaints, safely
from attr_core._recording.responses import Answer
from attr_core._recording.writer import before_exit
from attr_core.types import ATTRKIT_KEY

__all__ = ["StreamRecord", "is_stream", "recorded_stream"]


class StreamRecord:
    """Follows one stream to its end, whichever comes first: the last chunk, an error, closing, or garbage collection.

    Parameters
    ----------
    finish : callable
        Given the answer, once. Errors come with it, so that their text can be kept.
    """

    complaints = Complaints()  # for one that is collected although it was never set up
    _finish: list[Callable[[Answer, BaseException | None], object]] = []  # noqa: RUF012

    def __init__(self, finish: Callable[[Answer, BaseException | None], object], complaints: Complaints) -> None:
        self.complaints = complaints
        self._assembly = Assembly()
        self._finish = [finish]  # whoever pops it finishes; that is atomic
        self._interruption: BaseException | None = None
        self._damage: str | None = None
        self._process = os.getpid()
        _OPEN.add(self)

    def add(self, chunk: Any) -> None:
        """Take a chunk that the host is about to get."""
        self._interruption = None
        try:
            self._assembly.add(chunk)
        except Exception as error:
            self._damage = f"a chunk could not be read ({type(error).__name__})"
            raise

    def ended(self) -> None:
        """The stream is exhausted."""
        self._close(None)

    def failed(self, error: BaseException) -> None:
        """Reading the next chunk raised; after an interruption (a cancelled ``anext``) the host may still go on."""
        if isinstance(error, Exception):
            self._close(error)
        else:
            self._interruption = error

    def left(self) -> None:
        """The host has closed the stream or lets go of it."""
        self._close(self._interruption, is_early=True)

    def __del__(self) -> None:
        safely(self.complaints, self.left)

    def _close(self, error: BaseException | None, *, is_early: bool = False) -> None:
        try:
            finish = self._finish.pop()
        except IndexError:
            return
        if os.getpid() != self._process:
            return  # a forked child's copy; the parent is the one that reads on
        answer, is_complete = self._assembly.answer(), self._assembly.is_complete
        if self._damage is not None:
            answer = replace(answer, status="partial", error=self._damage)
        elif is_early and answer.status == "ok" and not is_complete:
            answer = replace(answer, status="partial")
        is_beside_the_point = is_complete and not isinstance(error, Exception)
        finish(answer, None if is_beside_the_point else error)


_OPEN: weakref.WeakSet[StreamRecord] = weakref.WeakSet()


def is_stream(response: Any) -> bool:
    """Whether this gives chunks one by one; lists, dicts and models do not, though they can be iterated too."""
    kind = type(response)
    return hasattr(kind, "__next__") or hasattr(kind, "__anext__")


def recorded_stream(original: Any, record: StreamRecord, stamp: dict[str, Any] | None = None) -> Any:
    """A proxy of ``original``; ``stamp`` is what its attribute ``attrkit`` shows."""
    kind: type = type(original)
    proxy = _proxy_type(kind)(original, record)
    if stamp is not None:
        object.__setattr__(proxy, ATTRKIT_KEY, stamp)
    return proxy


def _finish_open() -> None:
    for record in list(_OPEN):
        safely(record.complaints, record.left)


before_exit(_finish_open)


class _Proxy:
    __slots__ = ("__weakref__", "_attrkit_original", "_attrkit_record", ATTRKIT_KEY)

    def __init__(self, original: Any, record: StreamRecord) -> None:
        object.__setattr__(self, "_attrkit_original", original)
        object.__setattr__(self, "_attrkit_record", record)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_attrkit_original"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._attrkit_original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._attrkit_original, name)

    def __dir__(self) -> list[str]:
        return dir(self._attrkit_original)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._attrkit_original)


class _Method(Protocol):
    def __call__(self, proxy: Any, /, *args: Any) -> Any: ...


def _step(name: str) -> _Method:
    """Gives the next chunk."""

    def step(self: Any, /, *args: Any) -> Any:
        record = self._attrkit_record
        try:
            chunk = getattr(self._attrkit_original, name)(*args)
        except StopIteration:
            safely(record.complaints, record.ended)
            raise
        except BaseException as error:
            safely(record.complaints, record.failed, error)
            raise
        safely(record.complaints, record.add, chunk)
        return chunk

    return step


def _async_step(name: str) -> _Method:
    async def step(self: Any, /, *args: Any) -> Any:
        record = self._attrkit_record
        try:
            chunk = await getattr(self._attrkit_original, name)(*args)
        except StopAsyncIteration:
            safely(record.complaints, record.ended)
            raise
        except BaseException as error:
            safely(record.complaints, record.failed, error)
            raise
        safely(record.complaints, record.add, chunk)
        return chunk

    return step


def _end(name: str) -> _Method:
    """Closes the stream; some clients' ``close`` is to be awaited."""

    def end(self: Any, /, *args: Any) -> Any:
        record = self._attrkit_record
        result = None
        try:
            result = getattr(self._attrkit_original, name)(*args)
        finally:
            if not inspect.isawaitable(result):
                safely(record.complaints, record.left)
        return _ended(result, record) if inspect.isawaitable(result) else result

    return end


def _async_end(name: str) -> _Method:
    async def end(self: Any, /, *args: Any) -> Any:
        return await _ended(getattr(self._attrkit_original, name)(*args), self._attrkit_record)

    return end


async def _ended(closing: Any, record: StreamRecord) -> Any:
    try:
        return await closing
    finally:
        safely(record.complaints, record.left)


def _view(name: str) -> _Method:
    """Gives the stream itself, or another view of it: an iterator, or what ``with`` binds."""

    def view(self: Any, /, *args: Any) -> Any:
        result = getattr(self._attrkit_original, name)(*args)
        return safely(self._attrkit_record.complaints, _same_or_recorded, self, result, default=result)

    return view


def _async_view(name: str) -> _Method:
    async def view(self: Any, /, *args: Any) -> Any:
        result = await getattr(self._attrkit_original, name)(*args)
        return safely(self._attrkit_record.complaints, _same_or_recorded, self, result, default=result)

    return view


def _same_or_recorded(proxy: Any, result: Any) -> Any:
    if result is proxy._attrkit_original:
        return proxy
    return recorded_stream(result, proxy._attrkit_record) if is_stream(result) else result


def _passed_on(name: str) -> _Method:
    def method(self: Any, /, *args: Any) -> Any:
        return getattr(type(self._attrkit_original), name)(self._attrkit_original, *args)

    return method


_RECORDED: dict[str, Callable[[str], _Method]] = {
    "__next__": _step,
    "__anext__": _async_step,
    **dict.fromkeys(("close", "__exit__"), _end),
    **dict.fromkeys(("aclose", "__aexit__"), _async_end),
    **dict.fromkeys(("__iter__", "__aiter__", "__enter__"), _view),
    "__aenter__": _async_view,
}
_OF_GENERATORS: dict[str, Callable[[str], _Method]] = {
    **dict.fromkeys(("send", "throw"), _step),
    **dict.fromkeys(("asend", "athrow"), _async_step),
}


@functools.lru_cache(maxsize=64)
def _proxy_type(kind: type) -> type[Any]:
    """A proxy class with just those special methods that ``kind`` has: Python looks for them on the class only."""
    makers = {**_RECORDED, **(_OF_GENERATORS if issubclass(kind, Generator | AsyncGenerator) else {})}
    methods: dict[str, Any] = {name: make(name) for name, make in makers.items() if hasattr(kind, name)}
    for name in dir(kind):
        is_special = name.startswith("__") and name.endswith("__")
        is_own = getattr(kind, name, None) is not getattr(object, name, None)
        if is_special and is_own and callable(getattr(kind, name, None)) and name not in {*methods, *_NOT_PASSED_ON}:
            methods[name] = _passed_on(name)
    return type(kind.__name__, (_Proxy,), {"__slots__": (), **methods})


_NOT_PASSED_ON = frozenset(
    {"__class__", "__new__", "__init__", "__del__", "__getattribute__", "__init_subclass__", "__subclasshook__"}
    | {"__class_getitem__", "__reduce__", "__reduce_ex__", "__getstate__", "__annotate__", "__annotate_func__"}
    | {*vars(_Proxy)}
)
