"""The tracer: what Haystack says about its runs, passed on to the tracer that was there and to the recorder.

The tracer that was there comes first: it is given what it would be given without this one, and where it fails the
application sees that as it would anyway. What attrkit does beside it never raises.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextvars import ContextVar
from typing import Any, Self

from haystack.tracing.tracer import NullTracer, Span, Tracer, enable_tracing
from haystack.tracing.tracer import tracer as proxy

from attr_core.algorithms import Algorithm
from attr_core.attribution import Attribution
from attr_core.capture import MAX_AGE, MAX_RUNS, Complaints, RunRecorder, guarded
from attr_core.collector import INLINE_SECONDS, Collector, Mode, Strategy
from attr_core.errors import ConfigurationError
from attr_core.middleware import SavesTraces
from attr_core.protocols import Engine, Judge
from attr_core.results import Budget, Diagnosis
from attr_core.store import Store
from attr_core.types import Trace
from attr_core.worker import WorkerStats
from attr_haystack import spans
from attr_haystack.convert import stamped
from attr_haystack.spans import Note

__all__ = ["AttributionTracer"]

_current: ContextVar[_Traced | None] = ContextVar("attrkit_haystack_span", default=None)


class AttributionTracer(Tracer):
    """Records every run of a pipeline or an agent, and says what caused its answer.

    ``with AttributionTracer(engine="hf:MODEL"): pipeline.run(...)``, or ``AttributionTracer().install()`` once for the
    process. Haystack has one tracer; this one takes its place and passes everything on to the tracer that was there, so
    install it last. One serves any number of pipelines, threads and event loops.

    Without an engine it captures: each outermost run becomes a trace in the database, for ``attrkit inspect`` and
    ``attrkit worker``. With one it also attributes, in a thread of its own (``mode="deferred"``) or before the run
    returns (``mode="inline"``, for notebooks and tests; in an event loop that holds the loop up). Replies carry
    ``{"trace_id": ...}`` in ``meta["attrkit"]`` at once, in ``inline`` mode with the compact result. Nothing else of
    the application's data is touched, and no exception of attrkit's reaches it.

    Contents are recorded whether or not Haystack's content tracing is on; ``redact`` sees them first. A chat generator
    that is called outside of pipelines and agents makes no span, so it is not recorded.

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
        Leave the key ``attrkit`` in the replies' ``meta``.
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

    Raises
    ------
    ConfigurationError
        See :class:`attr_core.collector.Collector`.
    """

    def __init__(
        self,
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
    ) -> None:
        self._inner: Any = NullTracer()
        self._is_on = False
        self._open: set[object] = set()
        self.collector = Collector(
            mode=mode,
            engine=engine,
            algorithm=algorithm,
            store=store,
            sample_rate=sample_rate,
            redact=redact,
            budget=budget,
            budget_per_day=budget_per_day,
            time_limit=time_limit,
            queue_limit=queue_limit,
            executor=executor,
            diagnose=diagnose,
            judge=judge,
            strategy=strategy,
            **options,
        )
        self.recorder = RunRecorder(self._deliver, framework="haystack", max_runs=max_runs, max_age=max_age)
        self._is_stamping = stamp

    # --- what users call ---------------------------------------------------------------------------------------------

    def install(self) -> Self:
        """Record from now on; the tracer that is enabled is kept and goes on receiving everything.

        Raises
        ------
        ConfigurationError
            Another attrkit tracer that was installed later passes on to this one.
        """
        there = proxy.actual_tracer
        if there is not self:
            if self in _behind(there):
                raise ConfigurationError("this tracer is behind one that was installed later; uninstall that one first")
            self._inner = there
            enable_tracing(self)
        self._is_on = True
        return self

    def uninstall(self) -> None:
        """Record no more, and enable the tracer again that was there before.

        Where another one has been enabled meanwhile, that one stays; what it still passes on here goes through. Where
        runs are under way, that happens when they are over: they hold spans that only this tracer knows.
        """
        self._is_on = False
        self._leave_when_idle()

    def result(self, run: str | None = None, *, timeout: float | None = None) -> Attribution | None:
        """The attribution of a run, by its trace id; see :meth:`attr_core.collector.Collector.result`."""
        return self.collector.result(run, timeout=timeout)

    def last(self, *, timeout: float | None = None) -> Attribution | None:
        """The attribution of the run that ended last; ``None`` where it was only captured."""
        return self.collector.result(timeout=timeout)

    async def aresult(self, run: str | None = None, *, timeout: float | None = None) -> Attribution | None:
        """:meth:`result` for callers that run an event loop."""
        return await self.collector.aresult(run, timeout=timeout)

    def diagnosis(self, run: str | None = None, *, timeout: float | None = None) -> Diagnosis | None:
        """The diagnosis of a run, as :meth:`result` gives the attribution; ``None`` where it was not diagnosed."""
        return self.collector.diagnosis(run, timeout=timeout)

    async def adiagnosis(self, run: str | None = None, *, timeout: float | None = None) -> Diagnosis | None:
        """:meth:`diagnosis` for callers that run an event loop."""
        return await self.collector.adiagnosis(run, timeout=timeout)

    def recorded(self, run: str | None = None) -> Trace:
        """A run as it was recorded, by its trace id; by default the one that ended last."""
        return self.collector.trace(run)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until the runs that ended are stored and, where they are to be, attributed; whether all are."""
        return self.collector.flush(timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Uninstall, flush, and attribute nothing more."""
        self.uninstall()
        return self.collector.close(timeout)

    def __enter__(self) -> Self:
        return self.install()

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def stats(self) -> WorkerStats:
        """How many runs were attributed, failed, dropped, postponed, and wait."""
        return self.collector.stats

    @property
    def complaints(self) -> Complaints:
        """What has been warned of."""
        return self.collector.complaints

    def __getattr__(self, name: str) -> Any:
        # Applications reach for what their tracer offers besides (`tracing.tracer.actual_tracer.flush_traces()`).
        if name.startswith("__") or "_inner" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._inner, name)

    # --- what Haystack calls -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def trace(
        self, operation_name: str, tags: dict[str, Any] | None = None, parent_span: Span | None = None
    ) -> Iterator[Span]:
        """A span of the tracer that was there, watched."""
        inner, ticket = self._inner, object()
        self._open.add(ticket)  # before it is asked whether to record: see uninstall
        try:
            with inner.trace(operation_name, tags=tags, parent_span=_span_for(inner, parent_span)) as span:
                note = self._opened(operation_name, tags, parent_span) if self._is_on else None
                if note is None:
                    yield span
                    return
                with self._watched(_Traced(self, span, note)) as traced:
                    yield traced
        finally:
            self._open.discard(ticket)
            self._leave_when_idle()

    def current_span(self) -> Span | None:
        """The current span of the tracer that was there; it is watched where it stands inside a watched one."""
        span = self._inner.current_span()
        note = self._around() if self._is_on and span is not None else None
        return span if note is None else _Traced(self, span, note)

    # --- what is done with it ----------------------------------------------------------------------------------------

    def _leave_when_idle(self) -> None:
        if not self._is_on and not self._open and proxy.actual_tracer is self:
            enable_tracing(self._inner)

    @contextlib.contextmanager
    def _watched(self, traced: _Traced) -> Iterator[_Traced]:
        """The span as the current one, to its end."""
        token = _current.set(traced)
        try:
            yield traced
        except BaseException as error:
            self._failed(traced.attrkit_note, error)
            raise
        else:
            self._finished(traced.attrkit_note)
        finally:
            with contextlib.suppress(ValueError):  # an abandoned asynchronous generator is closed elsewhere
                _current.reset(token)

    @guarded
    def _around(self, span: Any = None) -> Note | None:
        """What is noted of a span, else of the current one."""
        return _note_of(self, span) or _note_of(self, _current.get())

    @guarded
    def _opened(self, operation: str, tags: dict[str, Any] | None, parent_span: Any) -> Note | None:
        return spans.opened(self.recorder, operation, tags or {}, self._around(parent_span))

    @guarded
    def _tagged(self, note: Note, tags: Any) -> None:
        note.tags.update(tags)

    @guarded
    def _told(self, note: Note, key: str, value: Any) -> None:
        if spans.contents(self.recorder, note, key, value) and note.trace_id is not None and self._is_stamping:
            self._leave(value, note.trace_id)

    @guarded
    def _finished(self, note: Note) -> None:
        spans.finished(self.recorder, note)

    @guarded
    def _failed(self, note: Note, error: BaseException) -> None:
        spans.failed(self.recorder, note, error)

    def _leave(self, outputs: Any, trace_id: str) -> None:
        replies = outputs.get("replies") if isinstance(outputs, dict) else None
        if not isinstance(replies, list):
            return
        # Copies in a list of their own: list and messages may be a cache's, the mapping is this call's.
        outputs["replies"] = [stamped(reply, self.collector.stamp(trace_id)) for reply in replies]

    def _deliver(self, trace: Trace, complete: bool) -> None:
        asked = [retrieval for retrieval in trace.retrievals if retrieval.name or retrieval.query]
        if trace.status == "ok" and not (trace.generations or trace.tool_calls or asked):
            return  # documents were written, say, and nobody was asked anything
        self.collector.deliver(trace, complete)


class _Traced(Span):
    """A span of the tracer that was there, and what is noted beside it; all else that is asked of it is that span's."""

    def __init__(self, owner: AttributionTracer, span: Any, note: Note) -> None:
        self.attrkit_tracer = owner
        self.attrkit_inner = span
        self.attrkit_note = note

    def set_tag(self, key: str, value: Any) -> None:
        self.attrkit_inner.set_tag(key, value)
        self.attrkit_tracer._tagged(self.attrkit_note, [(key, value)])

    def set_tags(self, tags: dict[str, Any]) -> None:
        self.attrkit_inner.set_tags(tags)
        self.attrkit_tracer._tagged(self.attrkit_note, tags)

    def set_content_tag(self, key: str, value: Any) -> None:
        self.attrkit_inner.set_content_tag(key, value)
        self.attrkit_tracer._told(self.attrkit_note, key, value)

    def raw_span(self) -> Any:
        return self.attrkit_inner.raw_span()

    def get_correlation_data_for_logs(self) -> dict[str, Any]:
        data: dict[str, Any] = self.attrkit_inner.get_correlation_data_for_logs()
        return data

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("attrkit_", "__")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.attrkit_inner, name)


def _note_of(tracer: AttributionTracer, span: Any) -> Note | None:
    """What ``tracer`` noted of a span, be it wrapped by one that was installed later."""
    while isinstance(span, _Traced):
        if span.attrkit_tracer is tracer:
            return span.attrkit_note
        span = span.attrkit_inner
    return None


def _span_for(inner: Any, span: Any) -> Any:
    """The span as ``inner`` made it."""
    while isinstance(span, _Traced) and span.attrkit_tracer is not inner:
        span = span.attrkit_inner
    return span


def _behind(tracer: Any) -> Iterator[Any]:
    """A tracer and those that it passes on to, where they are attrkit's."""
    yield tracer
    while isinstance(tracer, AttributionTracer):
        tracer = tracer._inner
        yield tracer
