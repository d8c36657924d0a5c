"""One trace attributed beside the application, within its budgets: what the worker and the backlog do alike."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from attr_core._setup import Options, Setup
from attr_core.algorithms import Algorithm
from attr_core.attribution import Attribution
from attr_core.cache import Cache
from attr_core.capture import paused
from attr_core.errors import ConfigurationError, StoreError
from attr_core.measuring import measure
from attr_core.metering import MeteredEngine
from attr_core.planning import settle
from attr_core.pricing import plan_of
from attr_core.protocols import Engine, Progress
from attr_core.results import Budget, Plan
from attr_core.store import Store
from attr_core.types import Trace

__all__ = ["Job", "check_options"]

_OF_THE_CALLER = ("engine", "algorithm", "budget", "placebos")


class Job:
    """How traces are attributed, and for how much; one for all traces of a worker.

    Parameters
    ----------
    algorithm : str or algorithm
    budget, budget_per_day : Budget
        Caps for one run, and for all deferred runs of a UTC day on one database. A run is planned within both.
    options : mapping
        Further ones of :func:`attr_core.api.attribute`.

    Raises
    ------
    ConfigurationError
        An option that there is not, or that has a parameter of its own.
    """

    def __init__(
        self,
        *,
        algorithm: str | Algorithm = "likelihood",
        budget: Budget = Budget(),
        budget_per_day: Budget = Budget(),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        check_options(options or {})
        _import_what_measuring_needs()
        self._options = Options(algorithm=algorithm, budget=_tighter(budget, budget_per_day), **(options or {}))
        self._per_day = budget_per_day

    def plan(self, trace: Trace, engine: Engine) -> Plan:
        """What an attribution would do, and cost, as if the cache were empty; spends nothing."""
        return plan_of(self._settle(trace, engine))

    def run(
        self, trace: Trace, engine: Engine, *, store: Store, cache: Cache, progress: Progress | None = None
    ) -> Attribution:
        """Attribute a trace and keep the result in the store, where the trace itself stays as it is.

        A trace that is not there yet is added; one that was there and is deleted meanwhile is not.

        Raises
        ------
        PostponedError
            What is left of the day's budget is too little; nothing was spent.
        AttrkitError
            As for :func:`attr_core.api.attribute`; or the result could not be stored.
        """
        was_there = trace.id in store
        setup = self._settle(trace, engine)
        most = plan_of(setup).maximum
        reservation = store.spending.reserve(most, within=self._per_day)
        metered = MeteredEngine(
            setup.engine, cache=cache, budget=self._options.budget, progress=progress, planned=most.calls
        )
        try:
            with paused():
                attribution = measure(setup, metered, seed=self._options.seed)
        finally:
            with contextlib.suppress(StoreError):  # what cannot be given back stays spent: the cap holds
                store.spending.settle(reservation, metered.cost)
        if not was_there:
            store.add(trace)
        # Segments of another granularity are this look's, not the trace's.
        whole = self._options.granularity in (None, "chunk")
        store.save_attribution(attribution, cut=setup.generation if whole else None)
        return attribution

    def _settle(self, trace: Trace, engine: Engine) -> Setup:
        return settle(trace, replace(self._options, engine=engine))


def _import_what_measuring_needs() -> None:
    """Now, since a fork in the midst of another thread's import would leave the child with half a module."""
    for name in ("sentencex", "sklearn.linear_model", "sklearn.preprocessing"):
        importlib.import_module(name)


def check_options(options: Iterable[str]) -> None:
    """See that these are options of an attribution without a parameter of their own.

    Raises
    ------
    ConfigurationError
        One is not.
    """
    known = [field.name for field in fields(Options) if field.name not in _OF_THE_CALLER]
    for name in options:
        if name not in known:
            raise ConfigurationError(f"option {name!r} is not known here; use {', '.join(known)}")


def _tighter(first: Budget, second: Budget) -> Budget:
    """The lower of the caps of both."""
    caps = {
        name: min((cap for cap in (getattr(first, name), getattr(second, name)) if cap is not None), default=None)
        for name in ("calls", "tokens", "usd")
    }
    return Budget(**caps)
