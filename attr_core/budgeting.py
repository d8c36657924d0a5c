"""What fits a budget: the estimator, and what else is left out for it, settled before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attr_core._setup import Options, Setup
from attr_core.algorithms import default_estimator
from attr_core.capabilities import price_of, require
from attr_core.errors import BudgetExceededError, ConfigurationError
from attr_core.estimators import (
    ContextCite,
    DebiasedLasso,
    Hierarchical,
    LeaveOneOut,
    PathGradients,
    Screened,
    estimator_named,
)
from attr_core.pricing import answers_judged, judged, most_gate_calls, plan_of
from attr_core.protocols import Engine, Estimator, Renders
from attr_core.results import UNPRICED, Plan
from attr_core.values import SCREENS, can_hide

__all__ = ["estimator_for", "within_calls", "within_tokens", "within_usd"]


def estimator_for(setup: Setup, options: Options, max_masks: int | None, *, sample: bool) -> Estimator:
    """What the caller wants, or the default, for at most that many calls a continuation."""
    n_segments, wanted = len(setup.columns), options.estimator or setup.algorithm.estimator
    screens = setup.scores and can_hide(_screen_of(setup), setup.generation, setup.columns, setup.response)
    if wanted is None:
        gates = most_gate_calls(setup, Screened()) if screens else None
        return default_estimator(n_segments, max_masks, sample=sample, gates=gates)
    estimator = estimator_named(wanted) if isinstance(wanted, str) else wanted
    if not setup.scores and isinstance(estimator, Screened | PathGradients):
        does = "generates answers" if setup.generates else "asks a judge"
        raise ConfigurationError(
            f"{estimator.name} hides segments from a response that is scored, and the {setup.algorithm.name} algorithm "
            f"{does}; use debiased-lasso, or leave the estimator to attrkit"
        )
    if isinstance(estimator, Screened | PathGradients):
        require(_screen_of(setup), SCREENS, by=f"the estimator {estimator.name}")
        if not screens and not sample:
            raise ConfigurationError(
                f"{estimator.name} cannot hide segments in this prompt, whose chat template rewrites them; "
                "use debiased-lasso"
            )
    if sample and not isinstance(estimator, DebiasedLasso | ContextCite | Hierarchical):
        raise ConfigurationError(
            f"{estimator.name} needs prompts that exceed the model's window; use debiased-lasso, or a larger window"
        )
    needed = estimator.n_masks(n_segments) + most_gate_calls(setup, estimator)
    if max_masks is not None and needed > max_masks:
        raise BudgetExceededError(
            f"{estimator.name} over {n_segments} segments needs up to {needed} calls, the budget leaves {max_masks};"
            " raise it, or leave the estimator to attrkit"
        )
    return estimator


def _screen_of(setup: Setup) -> Engine:
    """What hides segments, if it can."""
    return setup.engine if setup.screen is None else setup.screen


def within_calls(setup: Setup, options: Options, *, sample: bool) -> Setup:
    """Leave out what the budget of calls cannot pay: first regenerations, then repeats, totals, and ablations."""
    calls = options.budget.calls
    if calls is None:
        return setup
    if not setup.scores and not setup.generates:
        return _within_judged(setup, calls)
    notes = list(setup.notes)
    if setup.totals and _most_calls(setup) > calls:
        notes.append(f"later claims are read given the earlier ones only, to keep the budget of {calls} calls")
        setup = replace(setup, totals=())
    setup = replace(setup, estimator=estimator_for(setup, options, _most_masks(setup, calls), sample=sample))
    if isinstance(setup.estimator, LeaveOneOut) and options.estimator is None and setup.algorithm.estimator is None:
        notes.append(f"the budget of {calls} calls allows single deletions only: they rank, and decide nothing")
    left = calls - _most_calls(setup)
    repeats = min(setup.n_repeats, left // _calls_an_answer(setup))
    regenerations = min(setup.n_regenerations, left - repeats * _calls_an_answer(setup))
    if repeats < setup.n_repeats or regenerations < setup.n_regenerations:
        missing = setup.n_repeats + setup.n_regenerations - repeats - regenerations
        notes.append(f"{missing} checks and regenerations left out, to keep the budget of {calls} calls")
    return replace(setup, n_repeats=repeats, n_regenerations=regenerations, notes=tuple(notes))


def _most_calls(setup: Setup) -> int:
    """Of the estimate alone."""
    of_masks = setup.estimator.n_masks(len(setup.columns))
    of_judge = judged(setup, *answers_judged(setup, of_masks))[0].calls
    return (of_masks + most_gate_calls(setup, setup.estimator)) * setup.n_continuations + of_judge


def _most_masks(setup: Setup, calls: int) -> int:
    """How many subsets so many calls allow, with what judging their answers takes."""
    most = calls // setup.n_continuations
    while most > 0 and setup.judge is not None:
        over = most + judged(setup, *answers_judged(setup, most))[0].calls - calls
        if over <= 0:
            break
        most -= max(1, over // 2)
    return max(most, 0)


def _calls_an_answer(setup: Setup) -> int:
    """Of the unchanged prompt once more: the answer, and its judging where it is another one."""
    return 1 + judged(setup, *answers_judged(setup, 1))[0].calls


def _within_judged(setup: Setup, calls: int) -> Setup:
    """As it is, where the judge needs no more than that.

    Raises
    ------
    BudgetExceededError
        It does.
    """
    plan = plan_of(setup)
    if plan.calls > calls:
        raise BudgetExceededError(
            f"the judge needs about {plan.calls} calls, the budget allows {calls}; raise it, or ask for fewer repeats"
        )
    more = plan.maximum.calls
    told = f"up to {more} calls of the judge where its answers cannot be read, or no segment supports a claim alone"
    return replace(setup, notes=(*setup.notes, *([told] if more > calls else [])))


def within_tokens(setup: Setup, options: Options) -> Setup:
    """As for calls: what a budget of tokens cannot pay at most is left out, or refused before anything is sent.

    Where the engine cannot say beforehand what a prompt takes, what is expected counts, as for USD.
    """
    cap = options.budget.tokens
    if cap is None:
        return setup
    is_sure = isinstance(setup.engine, Renders)

    def needs(plan: Plan) -> float:
        return plan.maximum.tokens_in + plan.maximum.tokens_out if is_sure else plan.tokens

    return _left_out(
        setup, cap, needs, unit="tokens", most=lambda plan: plan.maximum.tokens_in + plan.maximum.tokens_out
    )


def within_usd(setup: Setup, options: Options) -> Setup:
    """As for tokens, but by what is expected: the cap holds whatever comes, so that at worst the run ends early.

    Raises
    ------
    BudgetExceededError
        It cannot be paid, or nobody knows the price.
    """
    cap = options.budget.usd
    if cap is None:
        return setup
    embeds = setup.generates or isinstance(setup.estimator, Screened)
    judge = setup.judge if setup.judge_engine is None else setup.judge_engine
    asked = (setup.engine, setup.screen, setup.embedder if embeds else None, judge)
    engines = [one for one in asked if one is not None]
    if any(price_of(one) is None for one in engines):
        raise BudgetExceededError(UNPRICED)
    return _left_out(setup, cap, lambda plan: plan.usd, unit="USD", most=lambda plan: plan.maximum.usd)


def _left_out(
    setup: Setup, cap: float, needs: Callable[[Plan], float], *, unit: str, most: Callable[[Plan], float]
) -> Setup:
    """The set-up less what the cap cannot pay, with a note on that, and on whether the cap may end the run."""
    smaller = replace(setup, n_regenerations=0, n_repeats=0)
    least = replace(smaller, totals=())
    for tried, missing in (
        (setup, ""),
        (smaller, "checks and regenerations"),
        (least, "checks, regenerations and the total reading of later claims"),
    ):
        plan = plan_of(tried)
        if needs(plan) <= cap:
            notes = [f"{missing} left out, to keep the budget of {_amount(cap, unit)}"] if missing else []
            if most(plan) > cap:
                notes.append(f"up to {_amount(most(plan), unit)}: where {_amount(cap, unit)} is reached first, it ends")
            return replace(tried, notes=(*setup.notes, *notes))
    raise BudgetExceededError(
        f"this needs {'up to ' if unit == 'tokens' else 'about '}{_amount(needs(plan_of(least)), unit)}, the budget "
        f"allows {_amount(cap, unit)}; raise it, or lower calls for fewer ablations"
    )


def _amount(amount: float, unit: str) -> str:
    return f"USD {amount:.4f}" if unit == "USD" else f"{amount:.0f} {unit}"
