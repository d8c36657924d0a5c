"""One trace attributed, and diagnosed where that is asked for, beside the application and within its budgets.

What the worker and the backlog do alike.
"""

from __future__ import annotations

import contextlib
import importlib
import shlex
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from attr_core._setup import Options, Setup
from attr_core.algorithms import Algorithm
from attr_core.attribution import Attribution
from attr_core.cache import Cache
from attr_core.capabilities import require
from attr_core.capture import paused
from attr_core.errors import ConfigurationError, JudgeError, StoreError
from attr_core.judge import load_judge
from attr_core.measuring import measure
from attr_core.metering import MeteredEngine
from attr_core.planning import generation_of, settle
from attr_core.pricing import plan_of
from attr_core.protocols import Capability, Engine, Judge, Progress
from attr_core.results import Budget, Cost, Diagnosis, Plan
from attr_core.store import Store
from attr_core.types import Trace

__all__ = ["Found", "Job", "Strategy", "Submission", "check_diagnosing", "check_options"]

Strategy = Literal["cause", "support"]

_OF_THE_CALLER = ("engine", "algorithm", "budget", "placebos")
_CAPS = ("calls", "tokens", "usd")


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What came of a trace; ``trouble`` is why an attribution has no diagnosis beside it."""

    attribution: Attribution | None
    diagnosis: Diagnosis | None = None
    trouble: Exception | None = None
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True, eq=False)
class Submission:
    """What is still to come of a trace; ``None`` where it was not asked for. One of both is there."""

    attribution: Future[Attribution] | None
    diagnosis: Future[Diagnosis] | None = None

    @property
    def futures(self) -> tuple[Future[Any], ...]:
        """Those that there are, in the order in which they are done."""
        return tuple(future for future in (self.attribution, self.diagnosis) if future is not None)

    def begin(self) -> bool:
        """Whether it is still wanted: nobody has cancelled it."""
        first, *others = self.futures
        if not first.set_running_or_notify_cancel():
            _cancel(others)
            return False
        for other in others:
            other.set_running_or_notify_cancel()
        return True

    def withdraw(self) -> None:
        """Cancel what has not begun."""
        _cancel(self.futures)

    def tell(self, attribution: Attribution) -> None:
        """The attribution is there, and the diagnosis is not yet."""
        _conclude(self.attribution, attribution, None)

    def conclude(self, found: Found) -> None:
        """All is there, or will not be."""
        _conclude(self.attribution, found.attribution, None)
        _conclude(self.diagnosis, found.diagnosis, found.trouble)

    def fail(self, error: Exception) -> None:
        """Whatever is not there yet will not be."""
        for future in self.futures:
            _conclude(future, None, error)


class Job:
    """How traces are attributed and diagnosed, and for how much; one for all traces of a worker.

    Parameters
    ----------
    algorithm : str or algorithm
    budget, budget_per_day : Budget
        Caps for one run, and for all deferred runs of a UTC day on one database. A run is planned within both.
    options : mapping
        Further ones of :func:`attr_core.api.attribute`.
    diagnose : bool, default False
        Whether each trace is also diagnosed, with its attribution in hand and for what that leaves of the run's
        budget. A trace's ``reference`` is the expected answer.
    judge : str, Judge, callable or object, optional
        As for :func:`attr_core.judge.load_judge`. A ``Judge`` keeps an account of its own: what it spends is counted,
        and no cap holds it.
    strategy : {"cause", "support"}, default "cause"
        ``support`` asks the judge alone: it needs no engine, and nothing is attributed.

    Raises
    ------
    ConfigurationError
        An option that there is not, or that has a parameter of its own; or as for :func:`check_diagnosing`.
    """

    def __init__(
        self,
        *,
        algorithm: str | Algorithm = "likelihood",
        budget: Budget = Budget(),
        budget_per_day: Budget = Budget(),
        options: Mapping[str, Any] | None = None,
        diagnose: bool = False,
        judge: str | Judge | Any | None = None,
        strategy: Strategy = "cause",
    ) -> None:
        check_options(options or {})
        check_diagnosing(diagnose, judge=judge, strategy=strategy, budget=budget, budget_per_day=budget_per_day)
        _import_what_measuring_needs("attr_core.diagnosing" if diagnose else None)
        self._options = Options(algorithm=algorithm, budget=_tighter(budget, budget_per_day), **(options or {}))
        self._per_day = budget_per_day
        self._judge = judge
        self.diagnoses = diagnose
        self.attributes = not (diagnose and strategy == "support")

    @property
    def arguments(self) -> str:
        """What ``attrkit worker`` is to be given, so that it diagnoses alike; a space before each."""
        if not self.diagnoses:
            return ""
        named = "JUDGE" if self._judge is not None and not isinstance(self._judge, str) else self._judge
        judge = "" if named is None else f" --judge {shlex.quote(named)}"
        return f" --diagnose{judge}{'' if self.attributes else ' --strategy support'}"

    def plan(self, trace: Trace, engine: Engine) -> Plan:
        """What an attribution would do, and cost, as if the cache were empty; spends nothing."""
        return plan_of(self._settle(trace, engine))

    def load_judge(self) -> None:
        """Load what is to judge, so that a wrong name is told before anything is spent.

        Raises
        ------
        AttrkitError
            There is no such judge or model.
        """
        if self.diagnoses:
            load_judge(self._judge)

    def known(self, trace: Trace, engine: Engine | None, *, store: Store) -> Attribution | None:
        """An attribution that a diagnosis can build on, made before of the same model call and on that engine."""
        if not (self.diagnoses and self.attributes) or engine is None:
            return None
        wanted = (generation_of(trace, self._options).id, engine.spec)
        made = store.attributions(trace.id, skip_damaged=True) if trace.id in store else []
        fitting = (one for one in reversed(made) if (one.generation_id, one.measured_on) == wanted and not one.partial)
        return next(fitting, None)

    def run(
        self,
        trace: Trace,
        engine: Engine | None,
        *,
        store: Store,
        cache: Cache,
        progress: Progress | None = None,
        known: Attribution | None = None,
        tell: Callable[[Attribution], None] | None = None,
    ) -> Found:
        """Attribute a trace, diagnose it if so asked, and keep the results in the store, the trace itself as it is.

        A trace that is not there yet is added; one that was there and is deleted meanwhile is not. A diagnosis that
        fails leaves the attribution as it is, and is told as ``trouble``.

        Parameters
        ----------
        engine : Engine or None
            Only strategy ``support`` does without.
        known : Attribution, optional
            To diagnose with, instead of a new one.
        tell : callable, optional
            Called with the attribution, which is stored by then, before the diagnosis is begun.

        Raises
        ------
        PostponedError
            What is left of the day's budget is too little; nothing was spent.
        AttrkitError
            As for :func:`attr_core.api.attribute`; or the result could not be stored. Where nothing was to be
            attributed, as for :func:`attr_core.api.diagnose`.
        """
        was_there = trace.id in store
        setup = self._settle(trace, engine) if self.attributes and known is None else None
        planned = Cost() if setup is None else plan_of(setup).maximum
        reservation = store.spending.reserve(self._most(planned), within=self._per_day)
        account = _Account(cache=cache, budget=self._options.budget, progress=progress, planned=planned.calls)
        try:
            with paused():
                attribution = known if setup is None else measure(setup, account(setup.engine), seed=self._options.seed)
            if not was_there:
                store.add(trace)
            if setup is not None and attribution is not None:
                # Segments of another granularity are this look's, not the trace's.
                whole = self._options.granularity in (None, "chunk")
                store.save_attribution(attribution, cut=setup.generation if whole else None)
            if not self.diagnoses:
                return Found(attribution, cost=account.cost)
            if attribution is not None and tell is not None:
                tell(attribution)
            running = engine if setup is None else setup.engine
            return self._with_diagnosis(trace, attribution, running, store=store, account=account)
        finally:
            with contextlib.suppress(StoreError):  # what cannot be given back stays spent: the cap holds
                store.spending.settle(reservation, account.cost)

    def _with_diagnosis(
        self,
        trace: Trace,
        attribution: Attribution | None,
        engine: Engine | None,
        *,
        store: Store,
        account: _Account,
    ) -> Found:
        try:
            with paused():
                diagnosis = self._diagnosed(trace, attribution, engine, account)
            store.save_diagnosis(diagnosis)
        except (Exception, SystemExit) as error:  # also of a judge that is not ours
            if attribution is None:
                raise
            told = error if isinstance(error, Exception) else JudgeError(f"the judge left by SystemExit: {error}")
            return Found(attribution, trouble=told, cost=account.cost)
        return Found(attribution, diagnosis, cost=account.cost)

    def _diagnosed(
        self, trace: Trace, attribution: Attribution | None, engine: Engine | None, account: _Account
    ) -> Diagnosis:
        from attr_core.diagnosing import case_of, diagnosed
        from attr_core.diagnosis import Thresholds

        running = None
        if self.attributes and engine is not None:
            require(engine, {Capability.GENERATE}, by="running the prompt again, as strategy cause does,")
            running = account(engine)
        found = diagnosed(
            case_of(trace, self._options, expected=trace.reference or None),
            trace,
            judge=load_judge(self._judge, meter=account),
            engine=running,
            attribution=attribution,
            thresholds=Thresholds(),
            seed=self._options.seed,
        )
        if isinstance(self._judge, Judge):
            account.apart = found.cost
        return replace(found, cost=account.cost)

    def _most(self, planned: Cost) -> Cost:
        """What a run can come to. A diagnosis has no plan, so with one it is all that the run may spend."""
        caps = self._options.budget
        if not self.diagnoses:
            return planned
        return replace(
            planned,
            calls=planned.calls if caps.calls is None else caps.calls,
            tokens_in=planned.tokens_in if caps.tokens is None else caps.tokens,
            tokens_out=planned.tokens_out if caps.tokens is None else 0,
            usd=planned.usd if caps.usd is None else caps.usd,
        )

    def _settle(self, trace: Trace, engine: Engine | None) -> Setup:
        return settle(trace, replace(self._options, engine=engine))


class _Account:
    """Makes engines of one run metered ones: on one account, under one budget. ``apart`` is what others spent."""

    def __init__(self, *, cache: Cache, budget: Budget, progress: Progress | None, planned: int) -> None:
        self._options: dict[str, Any] = {"cache": cache, "budget": budget, "progress": progress, "planned": planned}
        self._first: MeteredEngine | None = None
        self.apart = Cost()

    def __call__(self, engine: Engine) -> MeteredEngine:
        if self._first is None:
            self._first = MeteredEngine(engine, **self._options)
            return self._first
        return self._first.alongside(engine)

    @property
    def cost(self) -> Cost:
        return self.apart if self._first is None else self._first.cost + self.apart


def _cancel(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        if future.cancel():
            future.set_running_or_notify_cancel()


def _conclude(future: Future[Any] | None, result: object, error: Exception | None) -> None:
    if future is None or future.done():
        return
    with contextlib.suppress(BaseException):  # of callbacks that are not ours, even SystemExit
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


def _import_what_measuring_needs(more: str | None) -> None:
    """Now, since a fork in the midst of another thread's import would leave the child with half a module."""
    for name in ("sentencex", "sklearn.linear_model", "sklearn.preprocessing", more):
        if name is not None:
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


def check_diagnosing(
    diagnose: bool, *, judge: object, strategy: str, budget: Budget = Budget(), budget_per_day: Budget = Budget()
) -> None:
    """See that traces can be diagnosed so.

    Raises
    ------
    ConfigurationError
        A strategy that there is not, a judge that cannot judge or has nothing to, or a cap for a day without one of the
        same kind for a run: what a diagnosis takes is not known before, so that nothing could be set aside for it.
    """
    if strategy not in ("cause", "support"):
        raise ConfigurationError(f"strategy {strategy!r} is unknown; give 'cause' or 'support'")
    if not diagnose:
        if judge is not None:
            raise ConfigurationError("a judge is given, and nothing is to be diagnosed; pass diagnose=True")
        return
    if judge is not None and not isinstance(judge, str):
        load_judge(judge)
    for cap in _CAPS:
        if getattr(budget_per_day, cap) is not None and getattr(budget, cap) is None:
            raise ConfigurationError(
                f"budget_per_day caps {cap}, and what a diagnosis takes is not known before it is made; "
                f"cap the {cap} of each run too, by budget"
            )


def _tighter(first: Budget, second: Budget) -> Budget:
    """The lower of the caps of both."""
    caps = {
        name: min((cap for cap in (getattr(first, name), getattr(second, name)) if cap is not None), default=None)
        for name in _CAPS
    }
    return Budget(**caps)
