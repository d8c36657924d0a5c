"""One thread per process stores what was recorded, so that no call waits for a disk.

A host only ever appends to a queue, without waiting: where ``QUEUE_LIMIT`` traces are waiting already, its trace is
dropped and counted. A forked child starts with an empty queue and a thread of its own; what its parent had queued, the
parent writes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from attr_core._recording.membrane import Complaints, safely
from attr_core.store import Store
from attr_core.types import Trace

__all__ = [
    "EXIT_SECONDS",
    "QUEUE_LIMIT",
    "SavesTraces",
    "Writer",
    "after_last_flush",
    "before_exit",
    "current",
    "flush_where_atexit_is_skipped",
]

QUEUE_LIMIT = 2_000
"""Traces that may wait at a time."""

EXIT_SECONDS = 5.0
"""How long a process that ends waits for what is still to be written."""

_FORK_SECONDS = 1.0
_OPEN_FILES = 8
_CLOSE = object()


class SavesTraces(Protocol):
    """Where traces go; :class:`attr_core.store.Store` is one. ``save`` is called by the writer's thread."""

    def save(self, trace: Trace) -> str: ...


@dataclass(frozen=True, slots=True)
class _Entry:
    trace: Trace
    target: str | SavesTraces
    complaints: Complaints


class Writer:
    """A bounded queue and the thread that empties it, started with the first trace.

    The garbage collector may run :meth:`put` for an abandoned stream in a thread that is inside :meth:`put` already.
    Hence ``SimpleQueue``, a lock that is only ever tried, and others that may be taken twice.
    """

    def __init__(self, limit: int = QUEUE_LIMIT) -> None:
        self._limit = limit
        self._complaints = Complaints()
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._writing = threading.RLock()
        self._stores: dict[str, Store] = {}
        self._counting = threading.RLock()
        self._n_lost, self._n_told = 0, 0
        self._busy = False

    def put(self, trace: Trace, target: str | SavesTraces, complaints: Complaints) -> bool:
        """Queue a trace without waiting; whether there was room. ``target`` is a database's path or a store."""
        if self._queue.qsize() >= self._limit:
            self._lose_one()
            text = f"{self._limit} traces wait to be stored; calls are dropped until the store catches up"
            complaints.say("full", text)
            return False
        self._queue.put(_Entry(trace, target, complaints))
        self._is_running()
        return True

    def flush(self, timeout: float | None) -> bool:
        """Wait until what was queued before is stored; whether all of it was, since the last time somebody asked."""
        arrived = self.wait(timeout)
        with self._counting:
            lost, self._n_told = self._n_lost - self._n_told, self._n_lost
        return arrived and not lost

    def wait(self, timeout: float | None) -> bool:
        """Wait until what was queued before is dealt with; whether it was in time. Nobody is told of losses."""
        if self._thread is threading.current_thread():
            return False  # a store that flushes while it saves would wait for itself
        return self._pass_a_marker(timeout) if self._is_alive() or self.n_waiting else True

    def close(self, timeout: float | None) -> bool:
        """Flush, end the thread and close the databases; the next trace starts anew."""
        flushed = self.flush(timeout)
        self._rest(timeout)
        return flushed

    @property
    def n_waiting(self) -> int:
        """Traces queued and not yet stored."""
        return self._queue.qsize() + self._busy

    @property
    def n_lost(self) -> int:
        """Traces that were dropped or could not be stored, so far."""
        return self._n_lost

    def give_up(self) -> int:
        """Take back what still waits; how many traces that is, the one being written included."""
        n_left = int(self._busy)
        with contextlib.suppress(queue.Empty):
            while True:
                n_left += isinstance(self._queue.get_nowait(), _Entry)
        return n_left

    def before_fork(self) -> Callable[[], None]:
        """Have nothing going on, if a moment is enough for that; what is returned lets it go on.

        The thread ends rather than waits, since Python warns a program that forks while it has threads. Where it is not
        done in time, at least no write is under way, whose locks (SQLite's, the import system's) a child would inherit.
        """
        is_at_rest = self._rest(_FORK_SECONDS)
        is_held = not is_at_rest and self._writing.acquire(timeout=_FORK_SECONDS)

        def go_on() -> None:
            if is_held:
                self._writing.release()
            if self.n_waiting:
                self._is_running()

        return go_on

    def _rest(self, timeout: float | None) -> bool:
        """Have the thread end when all is stored; the next trace starts another. Whether it has ended."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return True
        if thread is threading.current_thread():
            return False
        self._queue.put(_CLOSE)
        thread.join(timeout)
        return not thread.is_alive()

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _lose_one(self) -> None:
        with self._counting:
            self._n_lost += 1

    def _pass_a_marker(self, timeout: float | None) -> bool:
        marker = threading.Event()
        self._queue.put(marker)
        if not self._is_running():  # no thread can be had any more: the interpreter is ending, or a limit is reached
            self._drain()
        return marker.wait(timeout)

    def _is_running(self) -> bool:
        if self._is_alive():
            return True
        if not self._starting.acquire(blocking=False):
            return True  # somebody else is starting it
        try:
            self._thread = thread = threading.Thread(
                target=safely, args=(self._complaints, self._run), name="attrkit-writer", daemon=True
            )
            thread.start()
            flush_where_atexit_is_skipped()
        except RuntimeError:
            self._thread = None
            return False
        finally:
            self._starting.release()
        return True

    def _run(self) -> None:
        with contextlib.suppress(BaseException):
            while (entry := self._queue.get()) is not _CLOSE:
                self._handle(entry)
        with contextlib.suppress(BaseException):
            self._close_stores()

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._handle(self._queue.get_nowait())

    def _handle(self, entry: object) -> None:
        if isinstance(entry, threading.Event):
            entry.set()
        elif isinstance(entry, _Entry):
            with self._writing:
                self._busy = True
                try:
                    self._save(entry)
                except BaseException as error:  # of a store that is not ours, even SystemExit
                    self._lose_one()
                    self._tell(entry, error)
                finally:
                    self._busy = False

    def _save(self, entry: _Entry) -> None:
        if not isinstance(entry.target, str):
            entry.target.save(entry.trace)
            return
        try:
            self._store(entry.target).save(entry.trace)
        except BaseException:
            if (store := self._stores.pop(entry.target, None)) is not None:
                store.close()
            raise

    def _store(self, path: str) -> Store:
        store = self._stores.pop(path, None)
        if store is not None and not Path(path).exists():  # deleted to start over: SQLite would write into nowhere
            store.close()
            store = None
        self._stores[path] = store = store or Store(path)  # the one used last stands last
        if len(self._stores) > _OPEN_FILES:
            self._stores.pop(next(iter(self._stores))).close()
        return store

    def _close_stores(self) -> None:
        while self._stores:
            self._stores.popitem()[1].close()

    @staticmethod
    def _tell(entry: _Entry, error: BaseException) -> None:
        with contextlib.suppress(BaseException):
            reason = f"{type(error).__name__}: {error}"
            entry.complaints.say("store", f"a call could not be stored ({reason}); the call itself is not affected")


_current = Writer()
_go_on: Callable[[], None] | None = None
_BEFORE_EXIT: list[Callable[[], None]] = []
_AFTER_FLUSH: list[Callable[[], None]] = []
_ends_in: int | None = None  # the process that has been told to flush in the end


def current() -> Writer:
    """This process's writer."""
    return _current


def before_exit(step: Callable[[], None]) -> None:
    """Have ``step`` run before the last flush of the process."""
    _BEFORE_EXIT.append(step)


def after_last_flush(step: Callable[[], None]) -> None:
    """Have ``step`` run after it, when all that was recorded is stored."""
    _AFTER_FLUSH.append(step)


def _before_fork() -> None:
    global _go_on
    _go_on = _current.before_fork()


def _after_fork() -> None:
    global _go_on
    if _go_on is not None:
        _go_on()
    _go_on = None


def _start_over() -> None:
    global _current, _go_on
    _current, _go_on = Writer(), None


def flush_where_atexit_is_skipped() -> None:
    """In children of ``multiprocessing``, which has its own list of what to do in the end."""
    global _ends_in
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None and _ends_in != os.getpid():
        _ends_in = os.getpid()
        util.Finalize(None, _at_exit, exitpriority=100)


def _at_exit() -> None:
    for step in _BEFORE_EXIT:
        with contextlib.suppress(Exception):
            step()
    with contextlib.suppress(Exception):
        flushed = _current.flush(EXIT_SECONDS)
        n_left = 0 if flushed else _current.give_up()
        if n_lost := n_left + _current.n_lost:
            text = f"attrkit: {n_lost} recorded calls of this process were not stored ({n_left} still waited)"
            warnings.warn(text, RuntimeWarning, stacklevel=1)
    for step in _AFTER_FLUSH:
        with contextlib.suppress(Exception):
            step()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_start_over)

# weakref.finalize, which closes the databases, must have put its own exit function there first: they run last to first.
weakref.finalize(_current, int).detach()
atexit.register(_at_exit)
