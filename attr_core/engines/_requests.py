"""Many requests to one endpoint: a few at a time, paced, repeated where that may help, and each with its outcome."""

from __future__ import annotations

import contextlib
import email.utils
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from attr_core._optional import require
from attr_core.engines._pace import Halted, Limits, Pace
from attr_core.errors import ConfigurationError

__all__ = ["Failure", "Limits", "Pace", "failure_of_status", "retry_after", "send_all"]

T = TypeVar("T")

FIRST_WAIT = 1.0
"""Seconds before the second attempt, where the server asks for none; each further wait is up to twice as long."""

LONGEST_WAIT = 30.0
LONGEST_ASKED_WAIT = 120.0
"""A server that asks for more will answer none of the batch."""

_POLL = 0.2
_PASSING = frozenset({408, 409, 425, 429})
_FOR_GOOD = frozenset({501, 505})
_REFUSALS = frozenset({401, 402, 403, 404})


@dataclass(frozen=True, slots=True)
class Failure:
    """How an exception of a client is to be taken.

    Parameters
    ----------
    passing : bool
        It is worth another attempt.
    wait : float, optional
        Seconds that the server asked for.
    hopeless : bool, default False
        No other request of the batch will do better: a bad key, an unknown model.
    """

    passing: bool
    wait: float | None = None
    hopeless: bool = False


def send_all(
    jobs: Sequence[Callable[[], T]],
    *,
    limits: Limits,
    pace: Pace,
    judge: Callable[[Exception], Failure],
    tokens: Sequence[int] = (),
    done: Callable[[int, T], None] | None = None,
) -> list[T | Exception]:
    """Do all jobs, each a request, ``limits.concurrency`` at a time.

    What is hopeless stops those that were not sent; they have its exception as their outcome. So does an endpoint that
    gave up on as many requests in a row as are under way at a time (at least two), with no answer in between. An
    exception in the caller's thread, such as ``KeyboardInterrupt``, stops them too and goes on at once; what is under
    way then is left to its time limit.

    Parameters
    ----------
    jobs : sequence of callable
        Each makes one attempt, and raises where it fails.
    limits : Limits
    pace : Pace
        Of the engine, made with the same limits.
    judge : callable
        Says how an exception is to be taken.
    tokens : sequence of int, optional
        About how many each job takes, read and written, for ``tokens_per_minute``.
    done : callable, optional
        Called with index and result, in the caller's thread, as results come; those too that had come before an
        interruption.

    Returns
    -------
    list
        Per job its result, or the exception of its last attempt.

    Raises
    ------
    MissingDependencyError
        ``tenacity`` is not installed.
    """
    sizes = list(tokens) or [0] * len(jobs)
    if len(sizes) != len(jobs):
        raise ConfigurationError(f"{len(sizes)} token counts do not fit {len(jobs)} requests; give one for each")
    batch = _Batch(jobs, sizes, limits, pace, judge)
    outcomes: dict[int, T | Exception] = {}

    def take(index: int, outcome: T | BaseException) -> None:
        if isinstance(outcome, Exception):
            outcomes[index] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            outcomes[index] = outcome
            if done is not None:
                done(index, outcome)

    try:
        batch.start()
        while len(outcomes) < len(jobs):
            try:
                take(*batch.arrived.get(timeout=_POLL))  # without a limit, Windows would not hear Ctrl-C
            except queue.Empty:
                continue
    except BaseException as error:
        batch.halt.set()
        while not batch.arrived.empty():
            with contextlib.suppress(BaseException):  # a second one is no news
                take(*batch.arrived.get())
        completed = {n: one for n, one in outcomes.items() if not isinstance(one, Exception)}
        with contextlib.suppress(AttributeError):  # an interrupt says what had come, as an engine's error does
            error.completed = completed  # type: ignore[attr-defined]
        raise
    return [outcomes[n] for n in range(len(jobs))]


class _Batch(Generic[T]):
    """Jobs on their way, done by threads that do not keep a process from ending."""

    def __init__(
        self,
        jobs: Sequence[Callable[[], T]],
        sizes: Sequence[int],
        limits: Limits,
        pace: Pace,
        judge: Callable[[Exception], Failure],
    ) -> None:
        self.arrived: queue.SimpleQueue[tuple[int, T | BaseException]] = queue.SimpleQueue()
        self.halt = threading.Event()
        self._jobs = jobs
        self._sizes = sizes
        self._limits = limits
        self._pace = pace
        self._judge = judge
        self._tenacity: Any = require("tenacity", extra="litellm")
        self._left = iter(range(len(jobs)))
        self._lock = threading.Lock()
        self._reason: Exception | None = None
        self._given_up_in_a_row = 0

    def start(self) -> None:
        for _ in range(min(self._limits.concurrency, len(self._jobs))):
            threading.Thread(target=self._work, name="attrkit-requests", daemon=True).start()

    def _work(self) -> None:
        while (index := self._next()) is not None:
            try:
                outcome: T | BaseException = self._outcome(index)
            except BaseException as error:
                outcome = error
            self.arrived.put((index, outcome))

    def _next(self) -> int | None:
        with self._lock:
            return next(self._left, None)

    def _outcome(self, index: int) -> T | Exception:
        last: list[Exception] = []

        def attempt() -> T:
            try:
                return self._pace.run(self._jobs[index], tokens=self._sizes[index], halt=self.halt)
            except Halted:
                raise
            except Exception as error:
                last.append(error)
                raise

        try:
            result: T = self._retrying()(attempt)
        except Halted as halted:
            return last[-1] if last else self._reason or halted
        except Exception as error:
            self._count_failure(error)
            return error
        with self._lock:
            self._given_up_in_a_row = 0
        return result

    def _retrying(self) -> Any:
        tenacity = self._tenacity
        half = {"multiplier": FIRST_WAIT / 2, "max": LONGEST_WAIT / 2}
        backoff = tenacity.wait_exponential(**half) + tenacity.wait_random_exponential(**half)
        spread = tenacity.wait_random(0, FIRST_WAIT / 4)

        def wait(state: Any) -> float:
            asked = self._judge(state.outcome.exception()).wait
            if not asked:
                return float(backoff(state))
            self._pace.hold(asked)
            return asked + float(spread(state))

        return tenacity.Retrying(
            stop=tenacity.stop_any(
                tenacity.stop_after_attempt(self._limits.retries + 1), tenacity.stop_when_event_set(self.halt)
            ),
            retry=tenacity.retry_if_exception(self._is_worth_another),
            wait=wait,
            sleep=tenacity.sleep_using_event(self.halt),
            reraise=True,
        )

    def _is_worth_another(self, error: BaseException) -> bool:
        if isinstance(error, Halted) or not isinstance(error, Exception):
            return False
        failure = self._judge(error)
        return failure.passing and not self._is_hopeless(failure)

    def _is_hopeless(self, failure: Failure) -> bool:
        return failure.hopeless or (failure.wait or 0.0) > LONGEST_ASKED_WAIT

    def _count_failure(self, error: Exception) -> None:
        failure = self._judge(error)
        with self._lock:
            self._given_up_in_a_row += failure.passing
            is_dead = self._given_up_in_a_row >= max(2, self._limits.concurrency)
            if (is_dead or self._is_hopeless(failure)) and not self.halt.is_set():
                self._reason = error
                self.halt.set()


def failure_of_status(status: int, *, wait: float | None = None) -> Failure:
    """How an HTTP status is to be taken; ``wait`` is what the server asked for.

    Examples
    --------
    >>> failure_of_status(503).passing, failure_of_status(400).passing, failure_of_status(401).hopeless
    (True, False, True)
    """
    passing = status in _PASSING or (status >= 500 and status not in _FOR_GOOD)
    return Failure(passing=passing, wait=wait if passing else None, hopeless=status in _REFUSALS)


def retry_after(headers: Mapping[str, str], *, now: Callable[[], float] = time.time) -> float | None:
    """Seconds that a response asks to wait, from ``Retry-After`` (seconds or a date) or ``Retry-After-Ms``.

    ``None`` where it does not say, or says nonsense; never negative.

    Examples
    --------
    >>> retry_after({"Retry-After": "2"}), retry_after({"Retry-After": "soon"})
    (2.0, None)
    """
    told = {name.lower(): str(value).strip() for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(told[name]) / unit
        except (KeyError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(seconds, 0.0)
    try:
        return max(email.utils.parsedate_to_datetime(told["retry-after"]).timestamp() - now(), 0.0)
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        return None
