"""Segments that act together: pairs that the fit needs, and groups of which each member would do alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
from scipy import stats

from attr_core.estimators._kriging import centred
from attr_core.results import FloatArray, MaskArray, Pair, RedundancyGroup

__all__ = ["LEADING", "MOST_ALONE", "NEEDLESS", "find_pairs", "members_of", "pair_columns", "redundant"]

LEADING = 6
"""Segments of each target, by size of effect, whose pairs are looked at."""

PAIR_LEVEL = 0.01
"""Largest p-value of a pair, adjusted over the target's pairs."""

MOST_ALONE = 0.5
"""Largest single drop of a member of a redundancy group, over the joint drop: the others must do without it."""

NEEDLESS = 0.2
"""A group's joint drop must exceed the sum of its members' by this share of it, and by the floor."""


def find_pairs(masks: MaskArray, missed: FloatArray, effects: FloatArray, *, target: int, floor: float) -> list[Pair]:
    """Pairs of leading segments whose interaction is at least ``floor`` and lets the fit predict better.

    The effect of a pair is by how much one member's effect is larger with the other kept than without: positive where
    both are needed, negative where either will do.

    Parameters
    ----------
    masks : array of bool, shape (n_masks, n_segments)
        Balanced random subsets.
    missed : array, shape (n_masks,)
        What the fit of single effects missed where the row was left out.
    effects : array, shape (n_segments,)
    target : int
        Row number, for the result.
    floor : float
    """
    leading = sorted(np.argsort(-np.abs(effects), kind="stable")[:LEADING].tolist())
    found = list(combinations(leading, 2))
    if not found or len(missed) < 3:
        return []
    products = pair_columns(masks, found)
    terms = 16 * products * missed[:, None]
    size = terms.mean(axis=0)
    error = np.maximum(terms.std(axis=0, ddof=1) / np.sqrt(len(missed)), np.finfo(np.float64).tiny)
    raw = 2 * stats.t.sf(np.abs(size) / error, len(missed) - 1)
    adjusted = stats.false_discovery_control(raw, method="bh")
    return [
        Pair(target, first, second, float(size[n]))
        for n, (first, second) in enumerate(found)
        if adjusted[n] <= PAIR_LEVEL and abs(size[n]) >= floor and _helps(products[:, n], missed)
    ]


def pair_columns(masks: MaskArray, pairs: Sequence[tuple[int, int]]) -> FloatArray:
    """+1/4 where both or neither are kept, else -1/4 ``(n_masks, n_pairs)``: a coefficient is the pair's effect."""
    signs = centred(masks)
    return np.column_stack(
        [np.zeros((len(masks), 0)), *(signs[:, first] * signs[:, second] for first, second in pairs)]
    )


def _helps(column: FloatArray, missed: FloatArray) -> bool:
    """Whether a line through the column predicts, each row left out, better than the mean does."""
    design = np.column_stack([np.ones(len(missed)), column])
    hat = design @ np.linalg.pinv(design)
    with_column = (missed - hat @ missed) / np.maximum(1 - np.diag(hat), 1e-9)
    without = (missed - missed.mean()) * len(missed) / (len(missed) - 1)
    return bool((with_column**2).sum() < (without**2).sum())


def members_of(alike: Iterable[Sequence[int]], pairs: Iterable[Pair]) -> list[tuple[int, ...]]:
    """Candidates for redundancy: near-duplicates, and segments that a chain of one target's negative pairs joins."""
    sets: list[tuple[int, set[int]]] = []
    for pair in pairs:
        if pair.effect < 0:
            joined = [one for one in sets if one[0] == pair.target and one[1] & {pair.first, pair.second}]
            members = {pair.first, pair.second}.union(*(one[1] for one in joined))
            sets = [one for one in sets if one not in joined] + [(pair.target, members)]
    found = [tuple(sorted(members)) for members in [*map(set, alike), *(members for _, members in sets)]]
    return list(dict.fromkeys(found))


def redundant(
    members: tuple[int, ...], joint: FloatArray, singles: FloatArray, *, told: MaskArray | None = None, floor: float
) -> list[RedundancyGroup]:
    """The targets for which deleting all members takes more than their single drops add up to, and none carries most.

    A fact and its rival ("opened in 1997", "opened in 1979") share words, so that deleting both takes more than the sum
    too; but there one of them alone carries most of it.

    Parameters
    ----------
    members : tuple of int
    joint : array, shape (n_targets,)
    singles : array, shape (n_targets, n_members)
    told : array of bool, shape (n_targets,), optional
        Whether all members support the target; by default they do.
    floor : float
    """
    summed = singles.sum(axis=1)
    return [
        RedundancyGroup(members, target, float(joint[target]), float(summed[target]))
        for target in range(len(joint))
        if (told is None or told[target])
        and joint[target] - summed[target] > max(floor, NEEDLESS * abs(joint[target]))
        and singles[target].max(initial=0.0) <= MOST_ALONE * joint[target]
    ]
