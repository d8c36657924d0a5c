"""One call that instruments every query engine, chat engine and agent in the process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Self

from llama_index_instrumentation import get_dispatcher

from attr_core.algorithms import Algorithm
from attr_core.attribution import Attribution
from attr_core.capture import MAX_AGE, MAX_RUNS, Complaints
from attr_core.collector import INLINE_SECONDS, Collector, Mode, Strategy
from attr_core.middleware import SavesTraces
from attr_core.protocols import Engine, Judge
from attr_core.reports.compact import compact, compact_diagnosis
from attr_core.results import Budget, Diagnosis
from attr_core.store import Store
from attr_core.types import ATTRKIT_KEY, Trace
from attr_core.worker import WorkerStats
from attr_llamaindex.events import AttributionEventHandler, AttributionReady, DiagnosisReady
from attr_llamaindex.runs import Runs
from attr_llamaindex.spans import AttributionSpanHandler

__all__ = ["Instrumentation", "current", "instrument"]

_lock = threading.Lock()
_active: Instrumentation | None = None


def _start_over() -> None:
    global _lock
    _lock = threading.Lock()  # the thread that held it does not live in a forked child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


def instrument(
    *,
    mode: Mode | None = None,
    engine: str | Engine | None = None,
    algorithm: str | Algorithm = "likelihood",
    store: str | os.PathLike[str] | Store | SavesTraces | None = None,
    sample_rate: float = 1.0,
    redact: Callable[[str], str] | None = None,
    stamp: bool = True,
    budget: Budget = Budget(),
    budget_per_day: Budget = Budget(),
    time_limit: float = INLINE_SECONDS,
    queue_limit: int = 256,
    executor: Executor | None = None,
    max_runs: int = MAX_RUNS,
    max_age: float = MAX_AGE,
    diagnose: bool = False,
    judge: str | Judge | Any | None = None,
    strategy: Strategy = "cause",
    **options: Any,
) -> Instrumentation:
    """Record every run of a query engine, chat engine, agent, retriever or model in this process, from now on.

    Without an engine runs are captured: each becomes a trace in the database, for ``attrkit inspect`` and ``attrkit
    worker``. With one they are also attributed, in a thread of its own (``mode="deferred"``) or before the run returns
    (``mode="inline"``, for notebooks and tests; in an event loop that holds everybody up). A response carries
    ``{"trace_id": ...}`` in ``metadata["attrkit"]`` at once, in ``inline`` mode with the compact result; an agent's
    final message in ``additional_kwargs``. Nothing else of the application's data is touched, nodes never, and no
    exception of attrkit's reaches it. Building or changing an index makes no trace.

    Called again with the same arguments it gives the instrumentation that is there; with others it takes that one's
    place.

    Parameters
    ----------
    mode : {"capture", "deferred", "inline"}, optional
        By default ``deferred`` where an engine is given, else ``capture``.
    engine : str or Engine, optional
        What measures: ``"hf:MODEL"``, or a loaded engine. Without one nothing is ever spent in this process.
    algorithm : str or algorithm, default "likelihood"
    store : path, Store or object with ``save(trace)``, optional
        By default ``ATTRKIT_DB``, else ``~/.attrkit/attrkit.db``.
    sample_rate : float, default 1.0
        Share of the runs that are attributed; all are stored.
    redact : callable, optional
        Text -> text, applied before anything is stored or attributed, in the thread of the run.
    stamp : bool, default True
        Leave the key ``attrkit`` in responses. It is taken off a message that is sent to a model again.
    budget, budget_per_day : Budget
        Caps for one run, and for all runs of a UTC day in this database.
    time_limit : float
        Seconds that ``inline`` mode may hold a run up.
    queue_limit, executor
        As for :class:`attr_core.collector.Collector`.
    max_runs, max_age
        When an open run is stored without its end: how many may be open, and for how many seconds without an event.
    diagnose : bool, default False
        Also say which failure each answer is, what proves it and what to do: see ``docs/diagnosis.md``. It runs prompts
        again on ``engine``, for what the attribution leaves of ``budget``.
    judge : str, Judge, callable or object, optional
        Who judges, such as ``"litellm:MODEL"``; see :func:`attr_core.judge.load_judge` for more, and for the default.
    strategy : {"cause", "support"}, default "cause"
        ``support`` asks the judge alone: no engine is needed, and nothing is attributed.
    **options
        Further ones of :func:`attr_core.attribute`: ``estimator``, ``granularity``, ``totals``, ...

    Returns
    -------
    Instrumentation
        Also a context manager, which ends it.

    Raises
    ------
    ConfigurationError
        See :class:`attr_core.collector.Collector`.
    """
    global _active
    asked = {
        "mode": mode,
        "engine": engine,
        "algorithm": algorithm,
        "store": store,
        "sample_rate": sample_rate,
        "redact": redact,
        "stamp": stamp,
        "budget": budget,
        "budget_per_day": budget_per_day,
        "time_limit": time_limit,
        "queue_limit": queue_limit,
        "executor": executor,
        "max_runs": max_runs,
        "max_age": max_age,
        "diagnose": diagnose,
        "judge": judge,
        "strategy": strategy,
        **options,
    }
    with _lock:
        if _active is not None and _active.asked == asked:
            return _active
        fresh = Instrumentation(asked)
        if _active is not None:
            _active._detach()
        fresh._attach()
        _active = fresh
        return fresh


def current() -> Instrumentation | None:
    """The instrumentation that records now, if any."""
    return _active


class Instrumentation:
    """What :func:`instrument` gives: the results, and the way to end it."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        own = ("stamp", "max_runs", "max_age")
        self.asked = dict(asked)
        self.collector = Collector(**{key: value for key, value in asked.items() if key not in own})
        self.collector.on_result(_announce)
        self.collector.on_diagnosis(_announce_diagnosis)
        self.runs = Runs(self._deliver, stamp=asked["stamp"], max_runs=asked["max_runs"], max_age=asked["max_age"])
        self._spans, self._events = AttributionSpanHandler(self.runs), AttributionEventHandler(self.runs)

    def __repr__(self) -> str:
        return f"Instrumentation(mode={self.collector.mode!r}, {'active' if self.is_active else 'ended'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def is_active(self) -> bool:
        """Whether it records."""
        return _active is self

    @property
    def stats(self) -> WorkerStats:
        """How many runs were attributed, failed, dropped, postponed, and wait."""
        return self.collector.stats

    @property
    def complaints(self) -> Complaints:
        """What has been warned of."""
        return self.collector.complaints

    def uninstrument(self) -> None:
        """Record nothing any more; the dispatcher is as it was before. Runs that are open are stored as they stand.

        Results are still there, and those that are under way will be. It may be called again.
        """
        global _active
        with _lock:
            if _active is self:
                _active = None
                self._detach()

    def result(self, run: Any = None, *, timeout: float | None = None) -> Attribution | None:
        """The attribution of a run: by its response, its trace id or the id of its span; by default of the last one.

        See :meth:`attr_core.collector.Collector.result`.
        """
        return self.collector.result(_identifier(run), timeout=timeout)

    async def aresult(self, run: Any = None, *, timeout: float | None = None) -> Attribution | None:
        """:meth:`result` for callers that run an event loop."""
        return await self.collector.aresult(_identifier(run), timeout=timeout)

    def diagnosis(self, run: Any = None, *, timeout: float | None = None) -> Diagnosis | None:
        """The diagnosis of a run, as :meth:`result` gives the attribution; ``None`` where it was not diagnosed."""
        return self.collector.diagnosis(_identifier(run), timeout=timeout)

    async def adiagnosis(self, run: Any = None, *, timeout: float | None = None) -> Diagnosis | None:
        """:meth:`diagnosis` for callers that run an event loop."""
        return await self.collector.adiagnosis(_identifier(run), timeout=timeout)

    def last(self, *, timeout: float | None = None) -> Attribution | None:
        """The attribution of the run that ended last; ``None`` where it was only captured."""
        return self.collector.result(timeout=timeout)

    def trace(self, run: Any = None) -> Trace:
        """A run as it was recorded, named as for :meth:`result`; by default the one that ended last."""
        return self.collector.trace(_identifier(run))

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the runs that ended are stored and, where they are to be, attributed; whether all are."""
        return self.collector.flush(timeout)

    def close(self, timeout: float | None = None) -> bool:
        """:meth:`uninstrument`, flush, and attribute nothing more."""
        self.uninstrument()
        return self.collector.close(timeout)

    def _attach(self) -> None:
        root = get_dispatcher()
        root.add_span_handler(self._spans)
        root.add_event_handler(self._events)

    def _detach(self) -> None:
        root = get_dispatcher()
        # New lists: one that is being gone through elsewhere stays whole.
        root.span_handlers = [handler for handler in root.span_handlers if handler is not self._spans]
        root.event_handlers = [handler for handler in root.event_handlers if handler is not self._events]
        self.runs.hand_on_all()

    def _deliver(self, trace: Trace, complete: bool, stamp: dict[str, Any]) -> None:
        self.collector.deliver(trace, complete, into=stamp)


def _announce(trace: Trace, result: Attribution) -> None:
    event = AttributionReady(trace_id=trace.id, run_id=trace.run_id, attribution=compact(result), span_id=trace.run_id)
    get_dispatcher(__name__).event(event)


def _announce_diagnosis(trace: Trace, diagnosis: Diagnosis) -> None:
    found = compact_diagnosis(diagnosis)
    event = DiagnosisReady(trace_id=trace.id, run_id=trace.run_id, diagnosis=found, span_id=trace.run_id)
    get_dispatcher(__name__).event(event)


def _identifier(run: Any) -> Any:
    """The trace id that a response carries; anything else as it is."""
    for holder in (run, getattr(run, "response", None)):
        for name in ("metadata", "additional_kwargs"):
            held = getattr(holder, name, None)
            if isinstance(held, dict) and isinstance(held.get(ATTRKIT_KEY), dict):
                return held[ATTRKIT_KEY]["trace_id"]
    return run
