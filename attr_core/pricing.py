"""What a settled run will cost, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attr_core._setup import Setup
from attr_core.estimators import Hierarchical, PathGradients, Screened
from attr_core.estimators.path_gradients import GATES
from attr_core.interventions import sampling_like
from attr_core.prompt import ablate, count_tokens
from attr_core.protocols import Estimator, SizesTails, TailSize
from attr_core.results import Cost, Plan, Step
from attr_core.types import Message, Prompt
from attr_core.values import can_hide

__all__ = ["gate_calls", "most_gate_calls", "plan_of"]

LIKELY_HIDDEN = 52
"""Hidden masks that a screen is likely to take: two looks, and what it deletes."""

LIKELY_DELETED = 8

MOST_ROUNDS = 3
"""Of a hierarchy that screens: a small screen and a whole one take up its masks, so it has two."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Tokens of the full prompt, of the prompt without segments, and of the response."""

    full: int
    empty: int
    answer: int

    @property
    def ablated(self) -> int:
        """Of a prompt with half of its segments, and the response."""
        return (self.full + self.empty) // 2 + self.answer


def plan_of(setup: Setup) -> Plan:
    """What a settled run will cost, as if the cache were empty."""
    nothing = ablate(setup.generation, setup.columns, np.zeros(len(setup.columns), dtype=np.bool_))
    sizes = _Sizes(
        full=count_tokens(setup.engine, setup.generation.prompt),
        empty=count_tokens(setup.engine, nothing),
        answer=count_tokens(setup.engine, Prompt((Message("user", setup.response),))),
    )
    steps, more = _screening(setup, sizes) if _screens(setup.estimator) else _ablating(setup, sizes)
    again = sizes.empty if _screens(setup.estimator) else sizes.full
    steps += [
        Step("the same prompt scored again", setup.n_repeats, setup.n_repeats * (again + sizes.answer)),
        Step("answers generated anew", setup.n_regenerations, setup.n_regenerations * (sizes.full + sizes.answer)),
    ]
    steps = [step for step in steps if step.calls]
    calls, tokens = sum(step.calls for step in steps), sum(step.tokens for step in steps)
    new = sampling_like(setup.generation, response_tokens=sizes.answer).max_tokens
    most = Cost(calls=calls + more.calls, tokens_in=max(tokens, more.tokens_in) + setup.n_regenerations * new)
    return Plan(
        method=f"{setup.algorithm.name} × {setup.estimator.name}",
        engine=setup.engine.spec,
        steps=tuple(steps),
        calls=calls,
        tokens=tokens,
        usd=0.0,
        maximum=most,
        notes=(*setup.notes, *_without_screen(setup)),
    )


def most_gate_calls(setup: Setup, estimator: Estimator) -> int:
    """Calls that the path's gates take at most for one continuation: a pass each, and two more per target."""
    return _looks(setup, estimator) * gate_calls(setup.n_direct)


def gate_calls(n_targets: int) -> int:
    """Calls that one path's gates take for so many targets of one continuation."""
    return len(GATES) * (1 + 2 * n_targets)


def _looks(setup: Setup, estimator: Estimator) -> int:
    """How often an estimator differentiates along the path: a screen inside a hierarchy once a round."""
    if isinstance(estimator, Hierarchical):
        can = can_hide(
            setup.engine if setup.screen is None else setup.screen, setup.generation, setup.columns, setup.response
        )
        return MOST_ROUNDS if can else 0
    return 1 if _screens(estimator) else 0


def _screens(estimator: Estimator) -> bool:
    return isinstance(estimator, Screened | PathGradients)


def _ablating(setup: Setup, sizes: _Sizes) -> tuple[list[Step], Cost]:
    """Steps as expected; calls that may come on top, and the most tokens of all."""
    expected = _expected_masks(setup.estimator, len(setup.columns))
    scored = expected * setup.n_continuations
    most = setup.estimator.n_masks(len(setup.columns)) + most_gate_calls(setup, setup.estimator)
    extra = (most - expected) * setup.n_continuations
    calls = scored + setup.n_repeats + setup.n_regenerations + extra
    steps = [Step("ablations scored", scored, scored * sizes.ablated)]
    return steps, Cost(calls=extra, tokens_in=calls * (sizes.full + sizes.answer))


def _screening(setup: Setup, sizes: _Sizes) -> tuple[list[Step], Cost]:
    """As :func:`_ablating`. The prompt is forwarded once, with the gates; then its tail only."""
    n, estimator, rounds = len(setup.columns), setup.estimator, setup.n_continuations
    tail = _tail_size(setup)
    gates, most_gates = gate_calls(setup.likely_direct) * rounds, most_gate_calls(setup, estimator) * rounds
    hidden, deleted, tokens_deleted = 0, rounds, rounds * (sizes.empty + sizes.answer)  # all removed
    if isinstance(estimator, Screened):
        hidden, deleted = LIKELY_HIDDEN * rounds, (LIKELY_DELETED + 1) * rounds
        tokens_deleted += rounds * min(estimator.exact_tokens, LIKELY_DELETED * sizes.ablated)
    steps = [
        Step("gates differentiated behind the cached prompt", gates, tail.prefix + gates * tail.tail),
        Step("ablations hidden in the cached prompt", hidden, hidden * tail.tail),
        Step("ablations scored", deleted, tokens_deleted),
    ]
    most = most_gates + estimator.n_masks(n) * rounds
    whole = (sizes.full + sizes.answer) * (setup.n_repeats + setup.n_regenerations)
    exact = estimator.most_deleted(n) * rounds if isinstance(estimator, Screened) else 0
    tokens = tail.prefix + most * tail.tail + exact * (sizes.full + sizes.answer) + whole
    return steps, Cost(calls=most - gates - hidden - deleted, tokens_in=tokens)


def _tail_size(setup: Setup) -> TailSize:
    engine = setup.engine if setup.screen is None else setup.screen
    if isinstance(engine, SizesTails):
        return engine.tail_size(setup.generation.prompt, setup.columns, setup.response)
    full = count_tokens(engine, setup.generation.prompt)
    return TailSize(full, full + count_tokens(engine, Prompt((Message("user", setup.response),))))


def _without_screen(setup: Setup) -> list[str]:
    """What to say where many segments are ablated exactly since the engine cannot hide them."""
    if (
        can_hide(setup.engine, setup.generation, setup.columns, setup.response)
        or setup.screen is not None
        or setup.estimator.n_masks(len(setup.columns)) <= len(setup.columns) + 2
    ):
        return []
    return [f"{setup.engine.spec} cannot hide segments in a cached prompt: exact ablations are used"]


def _expected_masks(estimator: Estimator, n_segments: int) -> int:
    """Masks that differ and are likely needed: random ones repeat among few subsets, and few segments lead a target."""
    most = estimator.n_masks(n_segments)
    n_drops = getattr(estimator, "n_drops", None)
    if n_drops is None:
        return most
    n_random = most - 2 - (n_segments if n_drops else 0)
    distinct = float(n_random)
    if n_segments <= 20:  # beyond, hardly any repeats
        distinct = 2.0**n_segments * (1 - (1 - 0.5**n_segments) ** n_random)
    return min(most, round(distinct) + 2 + min(n_segments, 2 * int(n_drops)))
