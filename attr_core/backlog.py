"""The stored traces that have no result yet, attributed or diagnosed one after the other: what ``attrkit worker`` does.

It also finishes what a killed process left: measurements are kept as they are made, and none is made again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Self

from attr_core._job import Found, Job, Strategy
from attr_core._storage.at_work import AtWork
from attr_core.algorithms import Algorithm
from attr_core.cache import Cache
from attr_core.engines import ENGINE_VARIABLE, load_engine
from attr_core.errors import AttrkitError, ConfigurationError, PostponedError, TraceNotFoundError
from attr_core.protocols import Engine, Judge, Progress
from attr_core.results import Budget, Cost, Plan
from attr_core.sampling import check_rate, is_sampled
from attr_core.store import PendingTrace, Store

__all__ = ["Backlog", "Outcome", "Planned", "State"]

State = Literal["done", "failed", "no engine", "postponed", "elsewhere", "gone", "stopped"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one trace, and why where it was not attributed or, where that is asked for, not diagnosed.

    ``no engine``: none is named, or it was an object. ``postponed``: it does not fit into the day's budget any more.
    ``elsewhere``: another process is at work on it, or was faster. ``gone``: it was deleted. ``stopped``: it was left
    between two slices of measurements, which are kept. ``cost`` of one that was not ``done`` counts calls only.
    ``label`` is that of the diagnosis.
    """

    trace_id: str
    state: State
    reason: str | None = None
    engine: str | None = None
    cost: Cost = field(default_factory=Cost)
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """What an attribution would do and cost; without a plan, ``reason`` says why it cannot be made."""

    trace_id: str
    plan: Plan | None = None
    reason: str | None = None


class Backlog:
    """What waits in a store, the oldest first. What fails is not tried again by the same object.

    Parameters
    ----------
    store : Store
    engine : str or Engine, optional
        What measures; by default ``ATTRKIT_ENGINE``, else the engine that is recorded with each trace. A trace for
        which none is named is left alone: nothing is measured on an engine that nobody asked for.
    algorithm, budget, budget_per_day, options, judge, strategy
        As for :class:`attr_core.worker.Worker`.
    diagnose : bool, default False
        Look for traces without a diagnosis instead, and make one; an attribution that there is already is used for it,
        where it was measured on the same engine.
    since, tag, framework
        As for :meth:`attr_core.store.Store.pending`.
    sample_rate : float
        Share of the traces to look at, decided by their ids.

    Raises
    ------
    ConfigurationError
        An unknown option, a rate outside 0 to 1, or as for :class:`attr_core.worker.Worker`.

    Examples
    --------
    >>> from attr_core.testing import AdditiveEngine
    >>> from attr_core.types import Trace
    >>> fact = "The fair opened in 1911."
    >>> trace = Trace.from_messages([{"role": "user", "content": f"{fact}\\n\\nWhen did it open?"}], "In 1911.")
    >>> with Store(":memory:") as store:
    ...     _ = store.save(trace)
    ...     with Backlog(store, engine=AdditiveEngine({"1911": {fact: 9.0}})) as backlog:
    ...         [outcome.state for outcome in backlog.work_off()], list(backlog.waiting())
    (['done'], [])
    """

    def __init__(
        self,
        store: Store,
        *,
        engine: str | Engine | None = None,
        algorithm: str | Algorithm = "likelihood",
        budget: Budget = Budget(),
        budget_per_day: Budget = Budget(),
        options: Mapping[str, Any] | None = None,
        since: datetime | None = None,
        tag: str | None = None,
        framework: str | None = None,
        sample_rate: float = 1.0,
        diagnose: bool = False,
        judge: str | Judge | Any | None = None,
        strategy: Strategy = "cause",
    ) -> None:
        check_rate(sample_rate)
        self._store, self._cache = store, Cache(store.path)
        self._engine = engine or os.environ.get(ENGINE_VARIABLE, "").strip() or None
        self._job = Job(
            algorithm=algorithm,
            budget=budget,
            budget_per_day=budget_per_day,
            options=options,
            diagnose=diagnose,
            judge=judge,
            strategy=strategy,
        )
        without = "diagnosis" if diagnose else "attribution"
        self._filters: dict[str, Any] = {"since": since, "tag": tag, "framework": framework, "without": without}
        self._rate = sample_rate
        self._given_up: set[str] = set()
        self._not_loaded: dict[str, AttrkitError] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what it opened; the store stays open."""
        self._cache.close()

    def waiting(self) -> Iterator[PendingTrace]:
        """What waits and was not given up."""
        for pending in self._store.pending(**self._filters):
            if pending.id not in self._given_up and is_sampled(pending.id, self._rate):
                yield pending

    def plans(self) -> Iterator[Planned]:
        """The attributions that :meth:`work_off` would make, one trace after the other; spends nothing.

        Raises
        ------
        ConfigurationError
            The judge alone is asked: what that takes cannot be planned.
        """
        if not self._job.attributes:
            raise ConfigurationError("strategy 'support' makes no attribution, so nothing can be planned; leave it out")
        for pending in self.waiting():
            try:
                if self._job.diagnoses and self._store.attributions(pending.id, skip_damaged=True):
                    continue
                engine = self._engine_of(pending)
                if engine is None:
                    yield Planned(pending.id, reason=_unnamed(pending))
                    continue
                yield Planned(pending.id, self._job.plan(self._store.get(pending.id), engine))
            except AttrkitError as error:
                self._raise_if_ours(error)
                yield Planned(pending.id, reason=str(error))

    def work_off(
        self, *, stop: Callable[[], bool] = lambda: False, progress: Progress | None = None
    ) -> Iterator[Outcome]:
        """Attribute what waits; yields what became of each trace.

        It ends early at the first trace that the day's budget postpones, and where it is told to stop.

        Parameters
        ----------
        stop : callable
            Asked before each trace and after each slice of measurements.
        progress : callable, optional
            Called with (calls made, calls planned) of the trace under way.

        Raises
        ------
        AttrkitError
            The engine or judge that was named cannot be loaded; nothing was spent.
        """
        self._job.load_judge()
        for pending in self.waiting():
            if stop():
                return
            outcome = self._work_on(pending, stop, progress)
            if outcome.state in ("failed", "no engine"):
                self._given_up.add(pending.id)
            yield outcome
            if outcome.state in ("postponed", "stopped"):
                return

    def _work_on(self, pending: PendingTrace, stop: Callable[[], bool], progress: Progress | None) -> Outcome:
        n_calls = 0

        def heed(done: int, planned: int) -> None:
            nonlocal n_calls
            n_calls = done
            if progress is not None:
                progress(done, planned)
            if stop():
                raise _StoppedError

        spec = pending.engine if self._job.attributes else None
        try:
            engine = self._engine_of(pending) if self._job.attributes else None
            if engine is None and self._job.attributes:
                return Outcome(pending.id, "no engine", _unnamed(pending))
            spec = None if engine is None else engine.spec
            with AtWork(self._store.path).on(pending.id) as is_mine:
                if not is_mine or self._is_done(pending.id):
                    return Outcome(pending.id, "elsewhere", "another process is at work on it, or was faster", spec)
                trace = self._store.get(pending.id)
                if trace.id != pending.id:  # found by its first characters
                    return Outcome(pending.id, "gone", f"trace {pending.id} was deleted", spec)
                known = self._job.known(trace, engine, store=self._store)
                found = self._job.run(trace, engine, store=self._store, cache=self._cache, progress=heed, known=known)
                return _outcome(pending.id, spec, found)
        except _StoppedError:
            return Outcome(pending.id, "stopped", "it was told to stop", spec, Cost(calls=n_calls))
        except PostponedError as error:
            return Outcome(pending.id, "postponed", str(error), spec)
        except TraceNotFoundError as error:
            return Outcome(pending.id, "gone", str(error), spec, Cost(calls=n_calls))
        except AttrkitError as error:
            self._raise_if_ours(error)
            return Outcome(pending.id, "failed", str(error), spec, Cost(calls=n_calls))
        except Exception as error:  # of an engine that is not ours; the next trace may fare better
            reason = f"{type(error).__name__}: {error}"
            return Outcome(pending.id, "failed", reason, spec, Cost(calls=n_calls))

    def _is_done(self, trace_id: str) -> bool:
        read = self._store.diagnoses if self._job.diagnoses else self._store.attributions
        return bool(read(trace_id, skip_damaged=True))

    def _engine_of(self, pending: PendingTrace) -> Engine | None:
        named = self._engine or pending.engine
        if named is None:
            return None
        spec = named if isinstance(named, str) else ""
        if spec in self._not_loaded:
            raise self._not_loaded[spec].with_traceback(None)
        try:
            return load_engine(named)
        except AttrkitError as error:
            self._not_loaded[spec] = error
            raise

    def _raise_if_ours(self, error: AttrkitError) -> None:
        """An engine that was named here and cannot be loaded is no fault of a trace."""
        if self._engine is not None and error in self._not_loaded.values():
            raise error


class _StoppedError(BaseException):
    """Raised between two slices of measurements; no failure of what is measured or judged."""


def _outcome(trace_id: str, spec: str | None, found: Found) -> Outcome:
    if found.trouble is not None:
        reason = f"it is attributed, and could not be diagnosed: {found.trouble}"
        return Outcome(trace_id, "failed", reason, spec, found.cost)
    label = None if found.diagnosis is None else str(found.diagnosis.label)
    return Outcome(trace_id, "done", None, spec, found.cost, label)


def _unnamed(pending: PendingTrace) -> str:
    if pending.object is None:
        return "no engine is named"
    return f"its engine was an object ({pending.object}), which another process cannot load"
