"""How fast an engine may send: a few requests at a time, and so many in a minute."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from attr_core.errors import ConfigurationError

__all__ = ["Halted", "Limits", "Pace"]

T = TypeVar("T")

_MINUTE = 60.0
_POLL = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """How an engine may send requests; holds for all calls of one engine together.

    Parameters
    ----------
    concurrency : int, default 8
        Requests that are under way at a time.
    timeout : float, default 60
        Seconds that one attempt may take.
    retries : int, default 5
        Further attempts of a request that failed for a passing reason: its rate, the server's trouble, a dropped
        connection, a time-out, a malformed answer. Waits grow from a second to half a minute, unless the server says
        how long.
    requests_per_minute, tokens_per_minute : int, optional
        At most so many in any minute, repeated attempts included; by default as the endpoint lets through.

    Raises
    ------
    ConfigurationError
        A number that must be positive is not.

    Examples
    --------
    >>> Limits(requests_per_minute=40).concurrency
    8
    """

    concurrency: int = 8
    timeout: float = 60.0
    retries: int = 5
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        positive = (self.concurrency, self.timeout, self.requests_per_minute, self.tokens_per_minute)
        if self.retries < 0 or not all(one is None or (one > 0 and math.isfinite(one)) for one in positive):
            raise ConfigurationError(f"{self} has a number that is not positive; correct it (retries may be 0)")


class Pace:
    """When the next request of an engine may go; shared by its calls and threads, and fit for forked children.

    Parameters
    ----------
    limits : Limits
    clock : callable, optional
        Seconds, never going back.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._sent: deque[tuple[float, int]] = deque()
        self._held_until = -math.inf
        self._is_limited = limits.requests_per_minute is not None or limits.tokens_per_minute is not None
        self._renew()
        _paces.add(self)

    def _renew(self) -> None:
        self._lock = threading.Lock()
        self._free = threading.Semaphore(self._limits.concurrency)

    def take(self, tokens: int = 0) -> float:
        """Count a request of so many tokens if it may go now.

        Returns
        -------
        float
            0 where it may; else seconds until it is worth asking again.
        """
        with self._lock:
            now = self._clock()
            while self._sent and self._sent[0][0] <= now - _MINUTE:
                self._sent.popleft()
            wait = max(self._held_until - now, self._until_room(tokens, now), 0.0)
            if wait == 0 and self._is_limited:
                self._sent.append((now, tokens))
            return wait

    def hold(self, seconds: float) -> None:
        """Let no request go for so long, as the server asked."""
        with self._lock:
            self._held_until = max(self._held_until, self._clock() + seconds)

    def run(self, job: Callable[[], T], *, tokens: int, halt: threading.Event) -> T:
        """Do it once its turn has come.

        Raises
        ------
        Halted
            ``halt`` was set before.
        """
        while not self._free.acquire(timeout=_POLL):  # only another call of the same engine can have them all
            if halt.is_set():
                raise Halted
        try:
            while wait := self.take(tokens):
                if halt.wait(wait):
                    raise Halted
            if halt.is_set():
                raise Halted
            return job()
        finally:
            self._free.release()

    def _until_room(self, tokens: int, now: float) -> float:
        requests, size = self._limits.requests_per_minute, self._limits.tokens_per_minute
        room = min(tokens, size or tokens)  # one that is larger than a whole minute's share has it for itself
        count, total, wait = len(self._sent), sum(one for _, one in self._sent), 0.0
        for at, leaving in self._sent:
            if (requests is None or count < requests) and (size is None or total + room <= size):
                break
            count, total, wait = count - 1, total - leaving, at + _MINUTE - now
        return wait


_paces: weakref.WeakSet[Pace] = weakref.WeakSet()


def _renew_all() -> None:
    for pace in list(_paces):
        pace._renew()  # the threads that held its lock do not live in a forked child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class Halted(Exception):  # noqa: N818 - an order, not an error
    """Sending has stopped; the request was not made."""
