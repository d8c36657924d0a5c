"""What an adapter hands finished runs to: each is stored, and attributed where and when its user chose.

Three modes. ``capture`` stores and spends nothing. ``deferred`` also queues the run for a thread that attributes it,
and diagnoses it where that is asked for. ``inline`` waits for that, up to a time limit.

Longer than a module should be, since most of it is what the parameters and results of the adapters' one entry mean.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

from attr_core._job import Strategy, Submission, check_diagnosing, check_options
from attr_core._recording import writer
from attr_core._recording.membrane import Complaints, safely
from attr_core._redact import redacted
from attr_core._storage.database import MEMORY, default_path, import_what_makes_a_database
from attr_core.algorithms import Algorithm
from attr_core.attribution import Attribution
from attr_core.capture import guarded
from attr_core.errors import ConfigurationError, TraceNotFoundError
from attr_core.middleware import SavesTraces
from attr_core.protocols import Engine, Judge
from attr_core.reports.compact import compact
from attr_core.results import Budget, Diagnosis
from attr_core.sampling import check_rate, is_sampled
from attr_core.store import Store
from attr_core.types import ATTRKIT_KEY, Trace
from attr_core.worker import Worker, WorkerStats

__all__ = ["Collector", "Mode", "Strategy"]

Mode = Literal["capture", "deferred", "inline"]

INLINE_SECONDS = 120.0
"""How long an inline attribution may hold the application up."""

_REMEMBERED = 256
_READ_SECONDS = 5.0

_Result = TypeVar("_Result", Attribution, Diagnosis)


@dataclass(frozen=True, slots=True)
class _Run:
    trace_id: str
    run_id: str | None
    job: Submission | None


class Collector:
    """Stores and attributes the runs of one adapter.

    Parameters
    ----------
    mode : {"capture", "deferred", "inline"}, optional
        By default ``deferred`` where an engine is given, or a judge alone is asked, else ``capture``.
    engine : str or Engine, optional
        What measures. Only one that is given spends anything in this process.
    algorithm : str or algorithm
    store : path, Store or object with ``save(trace)``, optional
        Where traces and results are kept; by default ``ATTRKIT_DB``, else ``~/.attrkit/attrkit.db``. An object that
        only saves takes traces in ``capture`` mode.
    sample_rate : float
        Share of the runs that are attributed, decided by the trace's id. All are stored.
    redact : callable, optional
        Text -> text, applied to every text before it is stored, and so before it is attributed.
    budget, budget_per_day : Budget
        Caps for one run, and for all runs of a UTC day in this database.
    time_limit : float
        Seconds that an inline attribution, with its diagnosis, may hold the application up; what is not there then
        goes on as deferred.
    queue_limit : int
        Runs that may wait for attribution; beyond, a run is stored and not attributed.
    executor : Executor, optional
        Where to attribute, instead of a thread of the worker's own.
    diagnose, judge, strategy
        Whether runs are also diagnosed, who judges, and how; see :class:`attr_core.worker.Worker`. A trace's
        ``reference`` is the expected answer.
    **options
        Further ones of :func:`attr_core.api.attribute`: ``granularity``, ``estimator``, ``totals``, ...

    Raises
    ------
    ConfigurationError
        An unknown mode or option, a mode that needs an engine without one, a rate outside 0 to 1, a store that cannot
        hold results, a redactor that cannot be called, a judge that cannot judge, or diagnoses with caps for a day and
        none for a run.
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
        budget: Budget = Budget(),
        budget_per_day: Budget = Budget(),
        time_limit: float = INLINE_SECONDS,
        queue_limit: int = 256,
        executor: concurrent.futures.Executor | None = None,
        diagnose: bool = False,
        judge: str | Judge | Any | None = None,
        strategy: Strategy = "cause",
        **options: Any,
    ) -> None:
        check_diagnosing(diagnose, judge=judge, strategy=strategy, budget=budget, budget_per_day=budget_per_day)
        self.diagnoses, self.attributes = diagnose, not (diagnose and strategy == "support")
        measures = engine is not None or not self.attributes
        if mode is None:
            if diagnose and not measures:
                raise ConfigurationError(
                    "diagnose=True runs prompts again, and no engine is given; pass engine='hf:MODEL', or "
                    "strategy='support' to ask the judge alone"
                )
            mode = "deferred" if measures else "capture"
        if mode not in get_args(Mode):
            raise ConfigurationError(f"mode {mode!r} does not exist; use {', '.join(get_args(Mode))}")
        if mode != "capture" and not measures:
            raise ConfigurationError(f"mode {mode!r} measures, and no engine is given; pass engine='hf:MODEL'")
        if redact is not None and not callable(redact):
            raise ConfigurationError(f"redact={redact!r} cannot be called; pass a function from text to text")
        if mode != "capture" and not (store is None or isinstance(store, str | os.PathLike | Store)):
            raise ConfigurationError(f"store {store!r} takes no results; pass a path or a Store, or mode='capture'")
        check_rate(sample_rate)
        self.mode: Mode = mode
        self.complaints = Complaints()
        self.time_limit = time_limit
        if isinstance(store, str | os.PathLike) and str(store) == MEMORY:
            store = Store(MEMORY)  # one for all: each that opens such a path has a memory of its own
        self._target = _absolute(store) if isinstance(store, str | os.PathLike) else store
        self._sample_rate, self._redact = sample_rate, redact
        self._engine = _named(engine)
        self._runs: dict[str, _Run] = {}
        self._stamps: dict[str, list[dict[str, Any]]] = {}
        self._listeners: list[Callable[[Trace, Attribution], None]] = []
        self._diagnosis_listeners: list[Callable[[Trace, Diagnosis], None]] = []
        check_options(options)
        if self._target is None or isinstance(self._target, str):
            safely(self.complaints, import_what_makes_a_database, self._target)
        self._worker: Worker | None = None
        if mode != "capture":
            self._worker = Worker(
                engine,
                store=store if isinstance(store, Store) else None,
                db=self._target if isinstance(self._target, str) else None,
                algorithm=algorithm,
                budget=budget,
                budget_per_day=budget_per_day,
                queue_limit=queue_limit,
                executor=executor,
                options=options,
                diagnose=diagnose,
                judge=judge,
                strategy=strategy,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def stats(self) -> WorkerStats:
        """How many runs were attributed, failed, dropped, postponed, and wait."""
        return WorkerStats() if self._worker is None else self._worker.stats

    def on_result(self, listener: Callable[[Trace, Attribution], None]) -> None:
        """Have ``listener`` called with each result, in the thread that measured it."""
        self._listeners.append(listener)

    def on_diagnosis(self, listener: Callable[[Trace, Diagnosis], None]) -> None:
        """Have ``listener`` called with each diagnosis, after the result that it is built on, in the same thread."""
        self._diagnosis_listeners.append(listener)

    def stamp(self, trace_id: str) -> dict[str, Any]:
        """What to leave in the application's data under the key ``attrkit``: plain JSON that says which trace it is of.

        In ``inline`` mode the compact results are added to it when the run is delivered.
        """
        stamp: dict[str, Any] = {"trace_id": trace_id}
        if self.mode == "inline":
            self._stamps.setdefault(trace_id, []).append(stamp)
            _keep_newest(self._stamps)  # a run may turn out to be none, and is never delivered
        return stamp

    @guarded
    def deliver(self, trace: Trace, complete: bool = True, *, into: dict[str, Any] | None = None) -> Attribution | None:
        """Store a run and, once it is complete, attribute it as the mode says; never raises.

        Parameters
        ----------
        trace : Trace
        complete : bool
        into : dict, optional
            Gets the compact results, as stamps do: in ``inline`` mode, where they were there in time.

        Returns
        -------
        Attribution or None
            In ``inline`` mode, where it was there in time.
        """
        known = self._runs.get(trace.id)
        trace = self._prepared(trace)
        target = self._target if self._target is not None else _absolute(default_path())
        writer.current().put(trace, target, self.complaints)
        job = None if known is None else known.job
        if complete and job is None and self._worker is not None and self._is_wanted(trace):
            job = self._queued(self._worker, trace)
        self._remember(_Run(trace.id, trace.run_id, job))
        if self.mode != "inline" or not complete:
            return None
        stamps = self._stamps.pop(trace.id, [])
        if job is None:
            return None
        self._await(job)
        attribution = _there(job.attribution)
        found = compact(attribution, _there(job.diagnosis))
        for stamp in stamps if into is None else [*stamps, into]:
            stamp.update(found)
        return attribution

    def result(self, run: object = None, *, timeout: float | None = None) -> Attribution | None:
        """The attribution of a run, by its run id or trace id; by default of the last one.

        Waits for one that is queued or under way, at most ``timeout`` seconds.

        Returns
        -------
        Attribution or None
            ``None`` where the run was not attributed: it was not sampled, dropped, or only captured, or the judge alone
            was asked.

        Raises
        ------
        Exception
            Why it could not be attributed: an ``AttrkitError``, or what an engine raised.
        CancelledError
            The worker was closed before its turn came.
        TimeoutError
            Time ran out.
        TraceNotFoundError
            There is no such run.
        """
        job = self._job_of(run)
        if job is not None and job.attribution is not None:
            return job.attribution.result(timeout)
        return self._stored(run, Store.attributions)

    async def aresult(self, run: object = None, *, timeout: float | None = None) -> Attribution | None:
        """:meth:`result` for callers that run an event loop."""
        job = self._job_of(run)
        if job is not None and job.attribution is not None:
            return await _in_loop(job.attribution, timeout)
        return await asyncio.to_thread(self.result, run, timeout=timeout)

    def diagnosis(self, run: object = None, *, timeout: float | None = None) -> Diagnosis | None:
        """The diagnosis of a run, waited for and found as :meth:`result` does; it raises alike.

        Returns
        -------
        Diagnosis or None
            ``None`` where the run was not diagnosed.
        """
        job = self._job_of(run)
        if job is not None and job.diagnosis is not None:
            return job.diagnosis.result(timeout)
        return self._stored(run, Store.diagnoses)

    async def adiagnosis(self, run: object = None, *, timeout: float | None = None) -> Diagnosis | None:
        """:meth:`diagnosis` for callers that run an event loop."""
        job = self._job_of(run)
        if job is not None and job.diagnosis is not None:
            return await _in_loop(job.diagnosis, timeout)
        return await asyncio.to_thread(self.diagnosis, run, timeout=timeout)

    def trace(self, run: object = None) -> Trace:
        """A run as it is stored, by its run id or trace id; by default the last one.

        Raises
        ------
        TraceNotFoundError
            There is no such run.
        """
        found = self._find(run)
        with self._opened() as store:
            return store.get(self._stored_id(store, run) if found is None else found.trace_id)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until what was delivered is stored and what was queued is attributed; whether all of it was."""
        left = _countdown(timeout)
        stored = writer.current().flush(left())
        return (self._worker is None or self._worker.flush(left())) and stored

    def close(self, timeout: float | None = None) -> bool:
        """Flush and attribute nothing more; what comes later is still stored."""
        left = _countdown(timeout)
        stored = writer.current().flush(left())
        return (self._worker is None or self._worker.close(left())) and stored

    def _prepared(self, trace: Trace) -> Trace:
        """As it is stored: redacted, and with what another process is to know of how it is attributed."""
        if self._redact is not None:
            trace = redacted(trace, self._redact, failed=self.complaints.of_redactor)
        told: dict[str, Any] = {} if self._engine is None else {"engine": self._engine}
        if self._sample_rate < 1 and not is_sampled(trace.id, self._sample_rate):
            told["sampled"] = False
        return replace(trace, metadata={**trace.metadata, ATTRKIT_KEY: told}) if told else trace

    @staticmethod
    def _is_wanted(trace: Trace) -> bool:
        told = trace.metadata.get(ATTRKIT_KEY, {})
        return told.get("sampled", True) and any(g.written.strip() for g in trace.generations)

    def _remember(self, run: _Run) -> None:
        self._runs[run.trace_id] = run
        _keep_newest(self._runs)

    def _queued(self, worker: Worker, trace: Trace) -> Submission | None:
        job = worker.queue(trace)
        if job is not None and job.attribution is not None:
            job.attribution.add_done_callback(lambda done: self._tell(trace, done, self._listeners))
        if job is not None and job.diagnosis is not None:
            job.diagnosis.add_done_callback(lambda done: self._tell(trace, done, self._diagnosis_listeners))
        return job

    def _await(self, job: Submission) -> None:
        _, missing = concurrent.futures.wait(job.futures, self.time_limit)
        if missing:
            what = "an attribution" if job.attribution in missing else "a diagnosis"
            text = f"{what} took longer than {self.time_limit:g} s; it goes on in its thread"
            self.complaints.say("slow" if job.attribution in missing else "slow diagnosis", text)

    def _tell(
        self,
        trace: Trace,
        done: concurrent.futures.Future[_Result],
        listeners: Iterable[Callable[[Trace, _Result], None]],
    ) -> None:
        if (found := _there(done)) is None:
            return
        for listener in list(listeners):
            try:
                listener(trace, found)
            except Exception as error:
                self.complaints.say("listener", f"a result could not be passed on ({type(error).__name__}: {error})")

    def _job_of(self, run: object) -> Submission | None:
        found = self._find(run)
        return None if found is None else found.job

    def _stored(self, run: object, read: Callable[[Store, str], list[_Result]]) -> _Result | None:
        """The last result that the store has of a run."""
        found = self._find(run)
        with self._opened() as store:
            if found is None:
                return next(reversed(read(store, self._stored_id(store, run))), None)
            with contextlib.suppress(TraceNotFoundError):  # not stored yet, so neither is a result
                return next(reversed(read(store, found.trace_id)), None)
            return None

    def _find(self, run: object) -> _Run | None:
        runs = list(self._runs.values())
        if run is None:
            return runs[-1] if runs else None
        wanted = str(run)
        return next((found for found in reversed(runs) if wanted in (found.trace_id, found.run_id)), None)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Store]:
        writer.current().wait(_READ_SECONDS)
        if isinstance(self._target, Store):
            yield self._target
            return
        if self._target is not None and not isinstance(self._target, str):
            raise ConfigurationError("this store only saves; pass a path or a Store to read results")
        with Store(self._target) as store:
            yield store

    @staticmethod
    def _stored_id(store: Store, run: object) -> str:
        if run is None:
            return store.last().id
        return store.find_run(str(run)) or str(run)


async def _in_loop(future: concurrent.futures.Future[_Result], timeout: float | None) -> _Result:
    return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), timeout)


def _there(future: concurrent.futures.Future[_Result] | None) -> _Result | None:
    """What came of it, if it is done and was no failure."""
    if future is None or not future.done() or future.cancelled() or future.exception() is not None:
        return None
    return future.result()


def _keep_newest(remembered: dict[str, Any]) -> None:
    for trace_id in list(remembered)[: max(len(remembered) - _REMEMBERED, 0)]:
        remembered.pop(trace_id, None)


def _countdown(timeout: float | None) -> Callable[[], float | None]:
    """What is left of ``timeout`` seconds from now on."""
    end = None if timeout is None else time.monotonic() + timeout
    return lambda: None if end is None else max(end - time.monotonic(), 0.0)


def _named(engine: str | Engine | None) -> Any:
    """What another process is told of the engine: its spec, or that it was an object."""
    if engine is None or isinstance(engine, str):
        return engine
    return {"object": getattr(engine, "spec", type(engine).__name__)}


def _absolute(path: str | os.PathLike[str]) -> str:
    return MEMORY if str(path) == MEMORY else str(Path(path).expanduser().absolute())
