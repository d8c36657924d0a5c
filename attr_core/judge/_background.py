"""The thread in which finished claims are judged while the rest of the answer arrives."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attr_core.claims import split_claims
from attr_core.judge._cutting import ClaimCutter
from attr_core.judge._stream_rows import Row, table_of
from attr_core.judge._words import readable
from attr_core.protocols import Judge
from attr_core.results import FloatArray, Support, freeze_arrays
from attr_core.types import Claim, Segment

Cause = Callable[[Claim, str], Any]

MOMENT = 0.05
"""Seconds that whoever stops the thread waits for a call of the judge that is under way."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the answer, as it came."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """What each segment says of one claim; arrays are ``(n_segments,)``, ``evidence`` in nats where it was measured."""

    claim: Claim
    verdicts: NDArray[np.str_]
    rationale: NDArray[np.str_]
    evidence: FloatArray | None = None

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, slots=True, eq=False)
class Caused:
    """What ``cause`` found of one claim; where it failed ``result`` is ``None`` and ``reason`` says why."""

    claim: Claim
    result: Any
    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """All claims of the whole answer and their verdicts, arrays ``(n_claims, n_segments)``.

    ``withdrawn`` are claims that were told before the answer's end and are none of its claims: the rest made the
    splitter cut otherwise. What was said of them no longer counts.
    """

    support: Support
    claims: tuple[Claim, ...]
    withdrawn: tuple[Claim, ...] = ()


Event = Token | Verdicts | Caused | Finished


class Background:
    """Cuts, judges and traces in a thread of its own what :meth:`feed` brings; verdicts come before causes.

    Parameters
    ----------
    wake : callable, optional
        Called in the thread, once for each event that is ready.
    """

    def __init__(
        self,
        *,
        segments: Sequence[Segment],
        judge: Judge,
        question: str | None,
        cause: Cause | None,
        language: str | None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._segments, self._judge, self._question = segments, judge, question
        self._cause, self._language, self._wake = cause, language, wake
        self._changed = threading.Condition()
        self._pieces: list[str] = []
        self._has_ended = self._has_stopped = self._is_asking = False
        self._events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self._cutter: ClaimCutter | None = ClaimCutter(language)
        self._text = ""
        self._waiting: list[Claim] = []
        self._untraced: list[Claim] = []
        self._rows: dict[tuple[int, int], Row] = {}
        self._told: list[Claim] = []
        self._given: list[Support] = []
        # What surrounds the consumer (a capture, a request's identity) surrounds its judge too.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="attrkit-judge-stream", daemon=True)

    def start(self) -> None:
        """Begin; nothing is judged before something is fed."""
        self._thread.start()

    def feed(self, token: str) -> None:
        """More of the answer; returns at once."""
        with self._changed:
            self._pieces.append(token)
            self._changed.notify()

    def end(self) -> None:
        """There is no more of it."""
        with self._changed:
            self._has_ended = True
            self._changed.notify()

    def stop(self) -> None:
        """Begin nothing more. A call of the judge cannot be called back; it is waited for no longer than a moment."""
        with self._changed:
            self._has_stopped = True
            self._changed.notify()
            is_asking = self._is_asking
        if self._thread is not threading.current_thread():
            self._thread.join(MOMENT if is_asking else None)

    def ready(self) -> Iterator[Event]:
        """What is known by now; does not wait."""
        while True:
            try:
                yield self.next(block=False)
            except queue.Empty:
                return

    def next(self, *, block: bool = True) -> Event:
        """The next event; the last is :class:`Finished`.

        Raises
        ------
        queue.Empty
            There is none yet, and ``block`` is false.
        """
        event = self._events.get(block=block)
        if isinstance(event, BaseException):
            raise event
        return event

    def _run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:  # the consumer waits for an event
            self._put(error)

    def _step(self) -> bool:
        """Take up what has arrived, and do one thing; ``False`` where nothing is left to do."""
        with self._changed:
            if not self._waiting and not self._untraced:
                self._changed.wait_for(lambda: self._pieces or self._has_ended or self._has_stopped)
            if self._has_stopped:
                return False
            arrived, has_ended = "".join(self._pieces), self._has_ended
            self._pieces.clear()
        self._text += arrived
        if has_ended:
            return self._finish()
        new = self._cut() if arrived else []
        self._waiting += new
        self._untraced += new if self._cause is not None else []
        return self._one_thing()

    def _cut(self) -> list[Claim]:
        if self._cutter is None:
            return []
        try:
            return self._cutter.cut(self._text)
        except BaseException:  # the splitter's library panics so; the whole answer is cut at its end in any case
            self._cutter = None
            return []

    def _one_thing(self) -> bool:
        if self._waiting:
            claims, self._waiting = self._waiting, []
            return self._asking(lambda: self._ask(claims))
        if self._untraced:
            claim = self._untraced.pop(0)
            return self._asking(lambda: self._trace(claim))
        return True

    def _asking(self, ask: Callable[[], None]) -> bool:
        with self._changed:
            if self._has_stopped:
                return False
            self._is_asking = True
        try:
            ask()
        finally:
            with self._changed:
                self._is_asking = False
        return True

    def _finish(self) -> bool:
        """Judge what is left of the whole answer, and tell what there is."""
        claims = split_claims(self._text, language=self._language) if self._text.strip() else ()
        traced = {claim for claim in self._told if claim not in self._untraced}
        unknown = [claim for claim in claims if (claim.start, claim.end) not in self._rows]
        if unknown and not self._asking(lambda: self._ask(unknown)):
            return False
        for claim in claims:
            if claim not in self._told:  # known under another number
                self._tell(claim)
        for claim in claims if self._cause is not None else ():
            if claim not in traced and not self._asking(lambda claim=claim: self._trace(claim)):  # type: ignore[misc]
                return False
        rows = [self._rows[claim.start, claim.end] for claim in claims]
        support = table_of(
            rows,
            len(self._segments),
            given=self._given,
            judge=getattr(self._judge, "spec", None),
            reads=getattr(self._judge, "reads", True),
        )
        withdrawn = tuple(claim for claim in self._told if claim not in claims)
        self._put(Finished(support, tuple(claims), withdrawn))
        return False

    def _ask(self, claims: Sequence[Claim]) -> None:
        """All that wait in one call; a failure is no verdict, and no reason to stop the answer."""
        support, reason = None, ""
        try:
            support = self._judge.judge(claims, self._segments, question=self._question)
            expected = (len(claims), len(self._segments))
            if support.verdicts.shape != expected:
                reason, support = f"the judge gave a table of {support.verdicts.shape}, not {expected}", None
        except BaseException as error:  # nothing that a judge raises is for this thread
            support, reason = None, readable(f"the judge failed: {_told(error)}")
        if support is not None:
            self._given.append(support)
        for number, claim in enumerate(claims):
            self._rows[claim.start, claim.end] = Row(support, number, reason)
            self._tell(claim)

    def _tell(self, claim: Claim) -> None:
        row, n = self._rows[claim.start, claim.end], len(self._segments)
        self._told.append(claim)
        self._put(Verdicts(claim, row.verdicts(n), row.rationale(n), row.evidence(n)))

    def _trace(self, claim: Claim) -> None:
        if self._cause is None:
            return
        try:
            self._put(Caused(claim, self._cause(claim, self._text)))
        except BaseException as error:  # as for the judge
            self._put(Caused(claim, None, readable(f"the cause could not be measured: {_told(error)}")))

    def _put(self, event: Event | BaseException) -> None:
        self._events.put(event)
        self._wake()


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
