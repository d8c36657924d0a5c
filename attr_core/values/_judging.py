"""Verdicts of a judge that may err: given more than once, with the majority, and how far the times differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import BudgetExceededError, EngineError
from attr_core.protocols import Judge
from attr_core.results import FloatArray, Support, SupportVerdict
from attr_core.types import Claim, Segment

__all__ = ["ask", "disagreement", "judgements"]

ENTAILS = SupportVerdict.ENTAILS.value
UNDETERMINED = SupportVerdict.UNDETERMINED.value


def ask(
    judge: Judge, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None, repeats: int
) -> Support:
    """What a judge says, up to ``repeats`` times, and what more than half of them say.

    One that repeats itself is asked once. One that answers from its memory the second time has given no second
    judgement, and none is counted. What fails after the first time is left out.

    Returns
    -------
    Support
        ``repeated`` ``(n_judgements, n_claims, n_segments)`` and the cost of all.
    """
    first = judge.judge(claims, segments, question=question)
    shape = (len(claims), len(segments))
    tables = judgements(first).reshape(-1, *shape)
    cost = first.cost
    is_counted = first.cost.calls + first.cost.cache_hits > 0
    while len(tables) < repeats and first.repeats == 1:
        try:
            again = judge.judge(claims, segments, question=question)
        except (EngineError, BudgetExceededError):
            break
        cost += again.cost
        if is_counted and not again.cost.calls:
            break
        tables = np.concatenate([tables, judgements(again).reshape(-1, *shape)])
    verdicts = first.verdicts.reshape(shape) if first.repeats > 1 or len(tables) == 1 else _majority(tables)
    return replace(first, verdicts=verdicts, repeated=tables, repeats=len(tables), cost=cost)


def judgements(support: Support) -> NDArray[np.str_]:
    """Each judgement that the verdicts rest on ``(n_judgements, n_claims, n_segments)``."""
    return support.verdicts[None] if support.repeated is None or not support.repeated.size else support.repeated


def disagreement(tables: NDArray[np.str_]) -> FloatArray:
    """Share ``(n_claims,)`` of a claim's verdicts of which one judgement says ``entails`` and another does not.

    Over all pairs of judgements; NaN where there is only one, or nothing was judged.
    """
    n_judgements, n_claims, n_segments = tables.shape
    if n_judgements < 2 or not n_segments:
        return np.full(n_claims, np.nan)
    says = tables == ENTAILS
    differs = [(says[a] != says[b]).mean(axis=1) for a, b in combinations(range(n_judgements), 2)]
    return np.asarray(np.mean(differs, axis=0))


def _majority(tables: NDArray[np.str_]) -> NDArray[np.str_]:
    found = np.full(tables.shape[1:], UNDETERMINED, dtype="<U12")
    for verdict in SupportVerdict:
        found[2 * (tables == verdict.value).sum(axis=0) > len(tables)] = verdict.value
    return found
