"""A thread that does one thing after the other, for a host that never waits for it."""

from __future__ import annotations

import contextlib
import ctypes
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

__all__ = ["Lane", "is_interpreter_ending"]

IDLE_SECONDS = 30.0
"""A thread with nothing to do ends after so long, so that whoever owns it can be collected."""

MOMENT = 1.0
"""How long a fork waits for a thread to end that has nothing to do, and the end of the program for one to stop."""

_REST = object()
_T = TypeVar("_T")


class Lane(Generic[_T]):
    """A queue and the thread that empties it, started with the first thing queued.

    The garbage collector may run :meth:`put` in a thread that is inside it already. Hence ``SimpleQueue``, and a lock
    that is only ever tried.

    Parameters
    ----------
    do : callable
        What is done with each thing; an exception of it ends the thread, and the next thing starts another.
    name : str
        The thread's.
    on_start : callable
        Called by whoever starts a thread.
    """

    def __init__(self, do: Callable[[_T], None], *, name: str, on_start: Callable[[], None]) -> None:
        self._do, self._name, self._on_start = do, name, on_start
        self._queue: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._is_busy = False

    @property
    def n_waiting(self) -> int:
        """Things queued and not begun."""
        return self._queue.qsize()

    @property
    def is_here(self) -> bool:
        """Whether it is asked in the lane's own thread."""
        return self._thread is threading.current_thread()

    def put(self, thing: _T) -> None:
        """Queue a thing."""
        self._queue.put(thing)
        self._is_running()

    def wait(self, timeout: float | None) -> bool:
        """Whether everything queued before is done, after ``timeout`` seconds at most."""
        if not self._is_alive() and not self.n_waiting:
            return True
        marker = threading.Event()
        self._queue.put(marker)
        return self._is_running() and marker.wait(timeout)

    def take_back(self) -> list[_T]:
        """What is queued and not begun, which will not be done; who waits for it, waits no longer."""
        taken: list[_T] = []
        with contextlib.suppress(queue.Empty):
            while True:
                entry = self._queue.get_nowait()
                if isinstance(entry, threading.Event):
                    entry.set()
                elif entry is not _REST:
                    taken.append(entry)  # type: ignore[arg-type]
        return taken

    def end(self) -> None:
        """Have the thread end when all is done; what is queued later starts another."""
        if self._is_alive():
            self._queue.put(_REST)

    def rest(self) -> None:
        """Have a thread that waits for work end, if a moment is enough for that."""
        thread = self._thread
        if thread is not None and not self._is_busy and not self.n_waiting and not self.is_here:
            self._queue.put(_REST)
            thread.join(MOMENT)

    def interrupt(self, error: type[BaseException]) -> None:
        """Have the thread leave what it is at by that exception, wherever it is.

        A thread that is inside a library such as torch when the interpreter ends takes the whole process down.
        """
        thread = self._thread
        if thread is not None and thread.ident is not None and self._is_busy and not self.is_here:
            with contextlib.suppress(AttributeError):  # another interpreter than CPython
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))
            self._queue.put(_REST)
            thread.join(MOMENT)

    def _is_alive(self) -> bool:
        return (thread := self._thread) is not None and thread.is_alive()

    def _is_running(self) -> bool:
        if self._is_alive():
            return True
        if not self._starting.acquire(blocking=False):
            return True  # somebody else is starting it
        try:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
            self._on_start()
        except RuntimeError:  # no thread can be had any more: the interpreter is ending, or a limit is reached
            self._thread = None
            return False
        finally:
            self._starting.release()
        return True

    def _run(self) -> None:
        with contextlib.suppress(BaseException):
            while True:
                try:
                    entry = self._queue.get(timeout=IDLE_SECONDS)
                except queue.Empty:
                    entry = _REST
                if entry is not _REST:
                    self._handle(entry)
                elif self._may_end():
                    return

    def _handle(self, entry: object) -> None:
        if isinstance(entry, threading.Event):
            entry.set()
            return
        self._is_busy = True
        try:
            self._do(entry)  # type: ignore[arg-type]
        finally:
            self._is_busy = False

    def _may_end(self) -> bool:
        """Whether nothing waits; from here on, whoever queues something starts another thread."""
        self._thread = None
        if not self.n_waiting or not self._starting.acquire(blocking=False):
            return True
        try:  # queued just before, by somebody who counted on this thread
            if self._thread is None:
                self._thread = threading.current_thread()
            return self._thread is not threading.current_thread()
        finally:
            self._starting.release()


def is_interpreter_ending() -> bool:
    """Whether Python takes no work any more; what fails then says nothing about the trace or the engine."""
    try:
        with ThreadPoolExecutor(1) as probe:
            probe.submit(int)
    except RuntimeError as error:
        return "shutdown" in str(error)
    return False
