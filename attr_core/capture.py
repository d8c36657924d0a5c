"""Puts an application's events together, each root run as one trace; the adapters for frameworks feed it.

An adapter tells when a run begins and when it is finished, with what it is (a model call, a retrieval, a tool call, or
none of these) as plain data of its own. What belongs together is found by the parent's id. A trace is handed on when
its root is over; where a child is still at work, once more when the last one is done.

Nothing here waits for a lock: events come from many threads, from event loops, from the garbage collector (an abandoned
stream) in the midst of another event, and in forked children. Each step is a single operation on a dict, list or set.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from attr_core._recording.membrane import Complaints, is_paused, safely
from attr_core._recording.runs import Item, OpenRun, Root, Status, Step, trace_of
from attr_core._recording.writer import before_exit
from attr_core._redact import masked
from attr_core.types import Document, Generation, Retrieval, ToolCall, Trace, new_id

__all__ = ["MAX_AGE", "MAX_RUNS", "Complaints", "Root", "RunRecorder", "guarded", "paused"]

MAX_RUNS = 1_000
"""Root runs that may be open at a time; beyond, the oldest is handed on as it is."""

MAX_AGE = 600.0
"""Seconds without an event after which an open root run is handed on as it is."""

_SWEEP_SECONDS = 1.0
_UNSEEN = "no end of this run was seen; the application may have let go of it"


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Record nothing that begins within: attrkit's own model calls are no runs of the application."""
    token = is_paused.set(True)
    try:
        yield
    finally:
        is_paused.reset(token)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def guarded(method: _Method) -> _Method:
    """A method that never raises into the host: it gives ``None`` where it fails, and warns once a kind.

    For methods of objects with ``complaints``, as the recorder, the collector and the adapters have.
    """

    @functools.wraps(method)
    def safe(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            safely(self.complaints, _complain, self.complaints, error)
            return None

    return cast(_Method, safe)


def _complain(complaints: Complaints, error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}"
    complaints.say("failure", f"a run could not be recorded in full ({reason}); the application is not affected")


class RunRecorder:
    """The open runs of one adapter.

    Parameters
    ----------
    deliver : callable
        Called with a trace and whether it is complete, in the thread of the last event; it must not wait.
    framework : str
        Recorded with each trace.
    max_runs, max_age
        When an open root run is handed on without its end; :data:`MAX_RUNS` and :data:`MAX_AGE`.
    clock : callable
        Seconds; for tests.
    """

    def __init__(
        self,
        deliver: Callable[[Trace, bool], object],
        *,
        framework: str,
        max_runs: int = MAX_RUNS,
        max_age: float = MAX_AGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.complaints = Complaints()
        self.n_evicted = 0
        self._deliver = deliver
        self._framework = framework
        self._max_runs, self._max_age, self._clock = max_runs, max_age, clock
        self._swept = clock()
        self._steps: dict[Hashable, Step] = {}
        self._roots: dict[Hashable, OpenRun] = {}
        _recorders.add(self)

    @property
    def n_open(self) -> int:
        """Root runs that are not handed on yet."""
        return len(self._roots)

    @property
    def n_remembered(self) -> int:
        """Runs of any kind that something is kept of; 0 when nothing is open."""
        return len(self._steps)

    @guarded
    def begin(
        self,
        run_id: Hashable,
        parent_id: Hashable | None = None,
        item: Item | Callable[[], Item | None] | None = None,
        *,
        about: Callable[[], Root] = Root,
        formats: bool = False,
    ) -> str | None:
        """A run has begun; one that is known already is left as it is.

        Parameters
        ----------
        parent_id : hashable, optional
            Without one, or with one that is not known (any more), the run is a root.
        item : Generation, Retrieval, ToolCall or callable, optional
            What it is, if it is one of these.
        about : callable
            Called where the run is a root.
        formats : bool
            Whether it was given documents, so that text it gives is what it made of them.

        Returns
        -------
        str or None
            The id of the trace that it will be part of; ``None`` where nothing is recorded.
        """
        if is_paused.get():
            return None
        if (known := self._steps.get(run_id)) is not None:
            return known.root.trace_id
        parent = None if parent_id is None else self._steps.get(parent_id)
        root = self._new_root(run_id, parent_id, about) if parent is None else parent.root
        step = Step(run_id, root, item() if callable(item) else item, formats)
        if (first := self._steps.setdefault(run_id, step)) is not step:  # another thread was told the same
            return first.root.trace_id
        root.steps.append(step)
        root.open.add(step)
        root.touched = self._clock()
        if parent is None:
            self._roots[run_id] = root
            self._evict()
        return root.trace_id

    @guarded
    def finish(
        self,
        run_id: Hashable,
        *,
        output: str | None = None,
        query: str | None = None,
        given: frozenset[str] = frozenset(),
        documents: tuple[Document, ...] = (),
        contexts: Iterable[str] = (),
        swallowed: str | None = None,
        **found: Any,
    ) -> None:
        """A run has come to its end; one that is not open is left as it is.

        Parameters
        ----------
        output : str, optional
            Of a root: what the application was given as the answer, where it is text.
        query, given
            Of a root whose input became known only now.
        documents : tuple of Document
            What a run that is no retrieval gave all the same; those of a tool call belong to the call.
        contexts : iterable of str
            Of a run that ``formats``: what it made of the documents, which tells where in a prompt they stand.
        swallowed : str, optional
            Of a root that ended well as far as its caller can tell: the error of a part that the application passed
            over; the run's status is ``error`` then.
        **found
            Fields of its item: ``response``, ``documents``, ``output``, ...
        """
        if (step := self._steps.get(run_id)) is None or not step.is_open:
            return
        if isinstance(step.item, Retrieval | ToolCall):
            found = {**found, **({"documents": documents} if documents else {})}
        else:
            step.documents = documents
        if isinstance(step.item, ToolCall) and output is not None:
            found["output"] = output
        if step.item is not None and found:
            step.item = replace(step.item, **found)
        root = step.root
        root.texts.update(document.text for document in documents)
        if step.formats:
            root.contexts += [text for text in contexts if text.strip()]
        if root.run_id == run_id:
            root.query = query if query is not None else root.query
            root.output = output
            root.about = replace(root.about, given=root.about.given | _stripped(given))
            if swallowed is not None:
                root.status, root.error = "error", swallowed
        self._close(step)

    @guarded
    def fail(self, run_id: Hashable, error: BaseException, *, status: Status | None = None, **found: Any) -> None:
        """A run has come to its end by an exception.

        Parameters
        ----------
        status : str, optional
            By default ``partial`` where the application stopped reading (``GeneratorExit``), ``interrupted`` for a
            cancellation, else ``error``. Only an ``error`` has its text recorded. Where a child is said to be
            ``interrupted``, so is the whole run.
        **found
            As for :meth:`finish`: what was there before it failed.
        """
        if (step := self._steps.get(run_id)) is None or not step.is_open:
            return
        is_told = status is not None
        status = _status_of(error) if status is None else status
        text = masked(f"{type(error).__name__}: {error}", os.environ) if status == "error" else None
        if isinstance(step.item, Generation | ToolCall):
            step.item = replace(step.item, **({"error": text} | found))
        elif step.item is not None and found:
            step.item = replace(step.item, **found)
        root = step.root
        # What was put together of a stream by then may lack its last piece; the model's own answer does not.
        root.is_cut = root.is_cut or (status == "partial" and isinstance(step.item, Generation))
        if root.run_id == run_id:
            root.status, root.error = status, text
        elif (is_told and status == "interrupted") or (status == "partial" and root.over is not None):
            root.status = status
        self._close(step)

    @guarded
    def add_variables(self, run_id: Hashable, texts: frozenset[str]) -> None:
        """Texts that were put into a prompt template: what a template itself says is no memory."""
        if (step := self._steps.get(run_id)) is not None:
            step.root.variables = (step.root.variables or set()) | _stripped(texts)

    @guarded
    def withdraw(self, run_id: Hashable) -> None:
        """A run turned out to be none of a model call, retrieval or tool call: those that it makes are."""
        if (step := self._steps.get(run_id)) is not None:
            step.item = None

    def root_id(self, run_id: Hashable) -> Hashable:
        """Of the root run that an open run belongs to; ``None`` where it is not known (any more)."""
        step = self._steps.get(run_id)
        return None if step is None else step.root.run_id

    def trace_id(self, run_id: Hashable) -> str | None:
        """Of the trace that an open run belongs to."""
        step = self._steps.get(run_id)
        return None if step is None else step.root.trace_id

    def first_time(self, run_id: Hashable) -> str | None:
        """The same, the first time that it is asked for."""
        step = self._steps.get(run_id)
        if step is None or step.is_asked:
            return None
        step.is_asked = True
        return step.root.trace_id

    def is_root(self, run_id: Hashable) -> bool:
        """Whether an open run is a root."""
        return run_id in self._roots

    def is_new(self, run_id: Hashable, text: str) -> bool:
        """Whether no document of that text was found so far in the run that an open run belongs to."""
        step = self._steps.get(run_id)
        return step is not None and text not in step.root.texts

    def so_far(self, run_id: Hashable) -> Trace | None:
        """The trace of an open run as it stands."""
        step = self._steps.get(run_id)
        return None if step is None else trace_of(step.root, framework=self._framework)

    def hand_on_all(self) -> None:
        """Hand every open run on as it is, counted as evicted: the process ends, or nobody waits any longer."""
        for root in list(self._roots.values()):
            self._evict_one(root)

    def _new_root(self, run_id: Hashable, parent_id: Hashable | None, about: Callable[[], Root]) -> OpenRun:
        known = about()
        known = replace(known, given=_stripped(known.given))
        if parent_id is not None:
            known = replace(known, metadata={**known.metadata, "parent_run_id": str(parent_id)})
        return OpenRun(run_id, known, new_id("tr"), datetime.now(UTC), self._clock())

    def _close(self, step: Step) -> None:
        root = step.root
        step.is_open = False
        root.touched = self._clock()
        if root.run_id == step.run_id:
            root.over = datetime.now(UTC)
            if root.status == "ok" and any(isinstance(other.item, Generation) for other in root.open - {step}):
                root.status = "partial"  # the application stopped reading before the model had done
        root.open.discard(step)
        if root.over is None:
            return
        if root.open:
            self._deliver(trace_of(root, framework=self._framework), False)
            if root.open:
                return
            # The last child was done meanwhile; its trace may have been handed on before this one.
        self._complete(root)

    def _complete(self, root: OpenRun) -> None:
        is_first = self._roots.pop(root.run_id, None) is not None
        for step in list(root.steps):
            if not step.is_open:
                self._steps.pop(step.run_id, None)
        self._deliver(trace_of(root, framework=self._framework), is_first)

    def _evict(self) -> None:
        for root in list(self._roots.values())[: max(len(self._roots) - self._max_runs, 0)]:
            self._evict_one(root)
        now = self._clock()
        if now - self._swept >= min(_SWEEP_SECONDS, self._max_age):
            self._swept = now
            for root in list(self._roots.values()):
                if now - root.touched > self._max_age:
                    self._evict_one(root)

    def _evict_one(self, root: OpenRun) -> None:
        if self._roots.pop(root.run_id, None) is None:
            return
        self.n_evicted += 1
        for step in list(root.steps):
            self._steps.pop(step.run_id, None)
        if root.over is None:
            root.status, root.error = "partial", _UNSEEN
        self._deliver(trace_of(root, framework=self._framework), True)


def _stripped(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(text.strip() for text in texts)


def _status_of(error: BaseException) -> Status:
    if isinstance(error, GeneratorExit):
        return "partial"
    if isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception):
        return "interrupted"
    return "error"


_recorders: weakref.WeakSet[RunRecorder] = weakref.WeakSet()


def _hand_on_what_is_open() -> None:
    for recorder in list(_recorders):
        recorder.hand_on_all()


before_exit(_hand_on_what_is_open)
