"""What a settled run will cost, before anything runs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attr_core._setup import Setup
from attr_core.algorithms import CounterfactualFaithfulness, SimilarityAlgorithm, Subject, default_estimator
from attr_core.capabilities import is_free, price_of
from attr_core.claims import split_claims
from attr_core.estimators import (
    Banzhaf,
    ContextCite,
    DebiasedLasso,
    Hierarchical,
    LeaveOneOut,
    PathGradients,
    Screened,
    Shapley,
)
from attr_core.estimators.path_gradients import GATES
from attr_core.interventions import sampling_like
from attr_core.judge._prices import table_cost
from attr_core.metering import SLICE
from attr_core.prompt import ablate, ablations, count_text, count_tokens, most_tokens
from attr_core.protocols import Estimator, SizesScores, SizesTails, TailSize
from attr_core.results import Cost, Plan, Step
from attr_core.types import Claim, Message, Prompt, Segment
from attr_core.values import can_hide

__all__ = [
    "N_REPEATS_GENERATED",
    "answers_judged",
    "gate_calls",
    "judged",
    "most_gate_calls",
    "on_the_model_itself",
    "plan_of",
]

_FIXED = (Banzhaf, ContextCite, DebiasedLasso, LeaveOneOut, Shapley)

LIKELY_HIDDEN = 52
"""Hidden masks that a screen is likely to take: two looks, and what it deletes."""

LIKELY_DELETED = 8
"""Subsets that are likely deleted of a long prompt."""

N_REPEATS_GENERATED = 5
"""Times that the unchanged prompt is answered again where answers are compared, for the noise floor."""

_COPIED = re.compile(r"\w[\w./:@+-]*")  # what may stand in a command that somebody copies

MOST_ROUNDS = 3
"""Of a hierarchy that screens: a small screen and a whole one take up its masks, so it has two."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Tokens of the full prompt, of that without segments, and of the response; ``most_full`` is never too low."""

    full: int
    empty: int
    answer: int
    most_full: int

    @property
    def half(self) -> int:
        """Of a prompt with half of its segments."""
        return (self.full + self.empty) // 2

    @property
    def ablated(self) -> int:
        """Of a prompt with half of its segments, and the response."""
        return self.half + self.answer


def plan_of(setup: Setup) -> Plan:
    """What a settled run will cost, as if the cache were empty."""
    nothing = ablate(setup.generation, setup.columns, np.zeros(len(setup.columns), dtype=np.bool_))
    sizes = _Sizes(
        full=count_tokens(setup.engine, setup.generation.prompt),
        empty=count_tokens(setup.engine, nothing),
        answer=count_text(setup.engine, setup.response),
        most_full=most_tokens(setup.engine, setup.generation.prompt),
    )
    if setup.generates:
        steps, most = _generating(setup, sizes)
    elif not setup.scores:
        steps, most = _reading(setup)
    elif _screens(setup.estimator):
        steps, most = _screening(setup, sizes)
    else:
        steps, most = _ablating(setup, sizes)
    anew = _anew(setup, sizes)
    steps = [step for step in (*steps, anew) if step.calls]
    new = sampling_like(setup.generation, response_tokens=sizes.answer).max_tokens
    most += _cost(setup.engine, setup.n_regenerations, sizes.most_full, new)
    expected = Cost(
        calls=sum(step.calls for step in steps),
        tokens_in=sum(step.tokens for step in steps),
        usd=sum(step.usd for step in steps),
    )
    return Plan(
        method=f"{setup.algorithm.name} × {setup.estimator.name}",
        engine=setup.engine.spec,
        steps=tuple(steps),
        calls=expected.calls,
        tokens=expected.tokens_in,
        usd=expected.usd,
        maximum=replace(most, tokens_in=max(most.tokens_in, expected.tokens_in - most.tokens_out)),
        notes=(*setup.notes, *_without_screen(setup)),
    )


def _anew(setup: Setup, sizes: _Sizes) -> Step:
    """Answers to the unchanged prompt, to that without context, and without each leading segment.

    Where ablations are answers, the first two are among them, and where each segment is left out alone, all are.
    """
    n = setup.n_regenerations
    if setup.generates:
        n = 0 if isinstance(setup.estimator, Banzhaf | Shapley | LeaveOneOut) else max(n - 2, 0)
    read = n * sizes.full - (0 if setup.generates or n < 2 else sizes.full - sizes.empty)
    price = price_of(setup.engine)
    usd = math.nan if price is None else read * price.token_in + n * sizes.answer * price.token_out
    written = n * sizes.answer
    return Step("answers generated anew", n, read + written, tokens_out=written, usd=usd if n else 0.0)


def on_the_model_itself(setup: Setup) -> str | None:
    """How to measure on the model that answered, and for how much, where another one measures for it.

    ``None`` where the answering model is unknown, or no hosted one that the price list knows.
    """
    from attr_core.engines._prices import token_price

    model = setup.generation.model if setup.scores else None
    if not model or model == setup.engine.spec or not all(map(_COPIED.fullmatch, (model, setup.trace.id))):
        return None
    if (price := token_price(model)) is None:
        return None
    elsewhere = replace(setup, algorithm=SimilarityAlgorithm(), metric="overlap", embedder=None, screen=None, totals=())
    elsewhere = replace(elsewhere, estimator=default_estimator(len(setup.columns)), n_repeats=N_REPEATS_GENERATED)
    steps = plan_of(elsewhere).steps
    usd = sum((step.tokens - step.tokens_out) * price.token_in + step.tokens_out * price.token_out for step in steps)
    return (
        f"{model} itself can be measured: attrkit inspect {setup.trace.id} --algorithm similarity "
        f"--engine litellm:{model} (about {sum(step.calls for step in steps)} answers, USD {usd:.4f})"
    )


def _step(setup: Setup, name: str, calls: int, tokens_in: int, tokens_out: int = 0) -> Step:
    """A stage of so many calls, each of so many tokens, on the set-up's engine."""
    cost = _cost(setup.engine, calls, tokens_in, tokens_out)
    return Step(name, calls, cost.tokens_in + cost.tokens_out, tokens_out=cost.tokens_out, usd=cost.usd)


def _read(each: float, name: str, calls: int, tokens: int) -> Step:
    """A stage that reads so many tokens in all, for ``each`` of which the engine takes so many USD."""
    return Step(name, calls, tokens, usd=tokens * each if calls else 0.0)


def _cost(engine: object, calls: int, tokens_in: int, tokens_out: int = 0) -> Cost:
    """Of so many calls with so many tokens each."""
    price, calls = price_of(engine), max(calls, 0)
    usd = math.nan if price is None else calls * (tokens_in * price.token_in + tokens_out * price.token_out)
    return Cost(calls, tokens_in=calls * tokens_in, tokens_out=calls * tokens_out, usd=usd if calls else 0.0)


def most_gate_calls(setup: Setup, estimator: Estimator) -> int:
    """Calls that the path's gates take at most for one continuation: a pass each, and two more per target."""
    return _looks(setup, estimator) * gate_calls(setup.n_direct)


def gate_calls(n_targets: int) -> int:
    """Calls that one path's gates take for so many targets of one continuation."""
    return len(GATES) * (1 + 2 * n_targets)


def _looks(setup: Setup, estimator: Estimator) -> int:
    """How often an estimator differentiates along the path: a screen inside a hierarchy once a round."""
    if isinstance(estimator, Hierarchical):
        if not setup.scores:
            return 0
        can = can_hide(
            setup.engine if setup.screen is None else setup.screen, setup.generation, setup.columns, setup.response
        )
        return MOST_ROUNDS if can else 0
    return 1 if _screens(estimator) else 0


def _screens(estimator: Estimator) -> bool:
    return isinstance(estimator, Screened | PathGradients)


def _ablating(setup: Setup, sizes: _Sizes) -> tuple[list[Step], Cost]:
    """Steps as expected, and the most that they can come to."""
    masks = _expected_masks(setup.estimator, len(setup.columns)) * setup.n_continuations
    calls = setup.estimator.n_masks(len(setup.columns)) + most_gate_calls(setup, setup.estimator)
    each = _cost(setup.engine, 1, 1).usd
    steps = [
        _read(each, "ablations scored", masks, round(masks * _tokens_an_ablation(setup, sizes))),
        _step(setup, "the same prompt scored again", setup.n_repeats, sizes.full + sizes.answer),
    ]
    most = calls * setup.n_continuations + setup.n_repeats
    return steps, _cost(setup.engine, most, sizes.most_full + sizes.answer)


def _tokens_an_ablation(setup: Setup, sizes: _Sizes) -> float:
    """Of the design's own subsets, in the slices they are sent in, where the engine shares what they begin with."""
    if not isinstance(setup.engine, SizesScores) or not isinstance(setup.estimator, _FIXED):
        return sizes.ablated
    engine: Any = setup.engine
    subject = Subject(setup.generation, setup.columns, setup.response, setup.claims, expected=setup.expected)
    value = setup.algorithm.value(engine, subject)
    n = len(setup.columns)
    ends = np.array([[True] * n, [False] * n], dtype=np.bool_).reshape(2, n)
    asked = setup.estimator.ablations(value)
    others = [mask for mask in np.unique(asked, axis=0) if 0 < mask.sum() < n] if n else []
    prompts = ablations(setup.generation, setup.columns, np.array(others).reshape(-1, n)) if others else []
    prompts = sorted(prompts, key=lambda prompt: sum(len(message.content) for message in prompt.messages))
    slices = [prompts[first : first + SLICE] for first in range(0, len(prompts), SLICE)]
    both = ablations(setup.generation, setup.columns, ends[:1] if n == 0 else ends)
    held = both[0] if can_hide(engine, setup.generation, setup.columns, setup.response) else None
    # All kept is then read off its own cache, which the others begin with.
    first, whole = (both, 0) if held is None else (both[1:], sizes.full + sizes.answer)
    batches = [batch for batch in (first, *slices) if batch]
    tokens = whole + sum(engine.score_sizes(batches, setup.response, held=held))
    return float(tokens / (len(both) + len(prompts)))


def _generating(setup: Setup, sizes: _Sizes) -> tuple[list[Step], Cost]:
    """As :func:`_ablating`, where an ablation is an answer that is generated and compared."""
    masks, new = _expected_masks(setup.estimator, len(setup.columns)), setup.sampling.max_tokens
    steps = [
        _step(setup, "answers generated under ablations", masks, sizes.half, sizes.answer),
        _step(setup, "the unchanged prompt answered again", setup.n_repeats, sizes.full, sizes.answer),
    ]
    answers = setup.estimator.n_masks(len(setup.columns)) + setup.n_repeats
    most = _cost(setup.engine, answers, sizes.most_full, new)
    if setup.judge is not None:
        steps.append(_judged_step("answers judged", judged(setup, *answers_judged(setup, masks))[0]))
        most += sum([judged(setup, *answers_judged(setup, 1, at_most=True))[1]] * answers, Cost())
    if setup.embedder is not None and not is_free(setup.embedder):
        # The whole answer once, and each of its claims for each of the recorded ones.
        texts = (masks + setup.n_repeats) * (1 + len(setup.claims))
        embedded = _cost(setup.embedder, texts, sizes.answer)
        steps.append(Step("texts embedded", texts, embedded.tokens_in, usd=embedded.usd))
        most += _cost(setup.embedder, 1 + len(setup.claims) + answers * (1 + new), 4 * new)
    return steps, most


def _screening(setup: Setup, sizes: _Sizes) -> tuple[list[Step], Cost]:
    """As :func:`_ablating`. The prompt is forwarded once, with the gates; then its tail only."""
    n, estimator, rounds = len(setup.columns), setup.estimator, setup.n_continuations
    tail = _tail_size(setup)
    gates, most_gates = gate_calls(setup.likely_direct) * rounds, most_gate_calls(setup, estimator) * rounds
    hidden, deleted, tokens_deleted = 0, rounds, rounds * (sizes.empty + sizes.answer)  # all removed
    if isinstance(estimator, Screened):
        likely = max(LIKELY_DELETED, estimator.likely_deleted(sizes.full, sizes.ablated))
        hidden, deleted = LIKELY_HIDDEN * rounds, (likely + 1) * rounds
        tokens_deleted += rounds * min(estimator.budget(sizes.full), likely * sizes.ablated)
    each = _cost(setup.engine, 1, 1).usd
    steps = [
        _read(each, "gates differentiated behind the cached prompt", gates, tail.prefix + gates * tail.tail),
        _read(each, "ablations hidden in the cached prompt", hidden, hidden * tail.tail),
        _read(each, "ablations scored", deleted, tokens_deleted),
        _step(setup, "the same prompt scored again", setup.n_repeats, sizes.empty + sizes.answer),
    ]
    embeds = setup.embedder is not None and not is_free(setup.embedder) and isinstance(estimator, Screened)
    embedded = _cost(setup.embedder, n if embeds else 0, _most_of_segment(setup))
    steps.append(Step("segments embedded", embedded.calls, embedded.tokens_in, usd=embedded.usd))
    most = most_gates + max(estimator.n_masks(n), 2) * rounds  # with all segments and with none in any case
    exact = estimator.most_deleted(n) * rounds if isinstance(estimator, Screened) else 0
    tokens = tail.prefix + most * tail.tail + exact * (sizes.full + sizes.answer)
    tokens += setup.n_repeats * (sizes.full + sizes.answer)
    return steps, Cost(calls=most + setup.n_repeats, tokens_in=tokens, usd=tokens * each) + embedded


def answers_judged(setup: Setup, n_answers: int, *, at_most: bool = False) -> tuple[Sequence[Claim], Sequence[Segment]]:
    """The table of so many answers, as long as the recorded one or as may be, against what is expected."""
    text = "token " * setup.sampling.max_tokens if at_most else setup.response
    return split_claims(setup.expected) if setup.expected else (), [Segment.quoted("", text)] * n_answers


def _reading(setup: Setup) -> tuple[list[Step], Cost]:
    """As :func:`_ablating`, where all that is asked is a judge, once for all ablations."""
    claims, columns = list(setup.claims), list(setup.columns)
    expected, most = judged(setup, claims, columns)
    whole = Segment.quoted("", "\n\n".join(segment.text for segment in columns))
    if isinstance(setup.algorithm, CounterfactualFaithfulness) and setup.algorithm.joint and len(columns) > 1:
        for n_texts in (1, len(columns), len(claims)):
            most += judged(setup, claims, [whole] * n_texts)[1]
    return [_judged_step("claims judged by segments", expected)], most


def judged(setup: Setup, claims: Sequence[Claim], columns: Sequence[Segment]) -> tuple[Cost, Cost]:
    """What one table of the set-up's judge takes, as expected and at most."""
    if setup.judge is None:
        return Cost(), Cost()
    repeats = getattr(setup.algorithm, "repeats", 1)
    return table_cost(setup.judge, claims, columns, question=setup.question, repeats=repeats, engine=setup.judge_engine)


def _judged_step(name: str, cost: Cost) -> Step:
    return Step(name, cost.calls, cost.tokens_in + cost.tokens_out, tokens_out=cost.tokens_out, usd=cost.usd)


def _most_of_segment(setup: Setup) -> int:
    """More tokens than the longest segment takes where it is embedded."""
    return max((len(segment.text.encode("utf-8", "replace")) for segment in setup.columns), default=0) + 8


def _tail_size(setup: Setup) -> TailSize:
    engine = setup.engine if setup.screen is None else setup.screen
    if isinstance(engine, SizesTails):
        return engine.tail_size(setup.generation.prompt, setup.columns, setup.response)
    full = count_tokens(engine, setup.generation.prompt)
    return TailSize(full, full + count_tokens(engine, Prompt((Message("user", setup.response),))))


def _without_screen(setup: Setup) -> list[str]:
    """What to say where many segments are ablated exactly since the engine cannot hide them."""
    if (
        not setup.scores
        or can_hide(setup.engine, setup.generation, setup.columns, setup.response)
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
