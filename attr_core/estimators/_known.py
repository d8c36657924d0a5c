"""Effects of values that a judge gives: some are unknown though their prompt fits, and some are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from attr_core.estimators._designs import all_subsets
from attr_core.estimators._partial import ranked_from
from attr_core.estimators.banzhaf import Banzhaf
from attr_core.estimators.leave_one_out import LeaveOneOut
from attr_core.protocols import Estimator, ValueFunction
from attr_core.results import Estimate, Fit, FloatArray, MaskArray

__all__ = ["estimate_known", "rests_on_few"]

MIN_KNOWN = 0.5
"""Least share of subsets whose value is known for their effects to rank."""

MIN_PAIRS = 8
"""Fewest pairs of subsets, with and without a segment, whose spread says something."""

MIN_ERRORS = 2.5
"""Standard errors over the pairs beyond which a mean is not put down to single verdicts."""

_ROWS = ("effects", "low", "high", "error", "drops")


def estimate_known(estimator: Estimator, value: Any, *, seed: int) -> tuple[Estimate, MaskArray, float]:
    """What the estimator says of the targets whose values are all known; the others' effects rank.

    They come from a ridge fit to the subsets that are known, NaN where these are fewer than half.

    Parameters
    ----------
    estimator : Estimator
    value : ValueFunction
        With ``targets`` and ``with_targets``; what was measured once costs nothing again.
    seed : int

    Returns
    -------
    estimate : Estimate
    is_open : array of bool, shape (n_targets,)
        Targets of which no verdict may be drawn.
    share : float
        Of the values of those that are known; NaN where there are none.
    """
    n = value.n_segments
    ends = np.array([[True] * n, [False] * n], dtype=np.bool_).reshape(2, n)
    masks = np.unique(np.concatenate([ends, estimator.ablations(value, seed=seed)]), axis=0)
    masks = masks[value.fits(masks)]
    values = value.exact(masks)
    is_open = np.isnan(values).any(axis=0)
    if not is_open.any() or isinstance(estimator, LeaveOneOut):
        return estimator.estimate(value, seed=seed), np.zeros(value.n_targets, dtype=np.bool_), float("nan")
    sure = [target for target, unsure in zip(value.targets, is_open, strict=True) if not unsure]
    found = estimator.estimate(value.with_targets(sure), seed=seed)
    whole = _spread(found, ~is_open)
    effects = whole.effects.copy()
    for row in np.flatnonzero(is_open).tolist():
        known = np.isfinite(values[:, row])
        if known.mean() >= MIN_KNOWN:
            effects[row] = ranked_from(masks[known], values[known, row, None]).effects[0]
    return replace(whole, effects=effects), is_open, float(np.isfinite(values[:, is_open]).mean())


def rests_on_few(estimator: Estimator, value: ValueFunction, effects: FloatArray) -> MaskArray:
    """Where an effect over all subsets is no more than a few wrong verdicts could make it ``(n_targets, n_segments)``.

    A judge that always errs alike on one answer shows no noise when it is asked again. But its errors have nothing to
    do with a segment: what adding the segment changes then differs from subset to subset. So the mean change is held
    against its own standard error over the pairs of subsets, as if these were drawn. Of fewer than four segments there
    are too few pairs to say, and nothing is held against them; a sampled design has intervals that hold this already.
    """
    n = value.n_segments
    if not isinstance(estimator, Banzhaf) or 2 ** (n - 1) < MIN_PAIRS:
        return np.zeros(effects.shape, dtype=np.bool_)
    masks = all_subsets(n)
    values, errors = value.exact(masks), np.full(effects.shape, np.nan)
    for segment in range(n):
        inside = masks[:, segment]  # both halves go through the same subsets of the others, in the same order
        errors[:, segment] = (values[inside] - values[~inside]).std(axis=0, ddof=1) / np.sqrt(2 ** (n - 1))
    return np.asarray(np.abs(effects) <= MIN_ERRORS * errors, dtype=np.bool_)


def _spread(found: Estimate, is_sure: MaskArray) -> Estimate:
    """The estimate with a row of NaN for each target that it does not have."""
    rows = np.flatnonzero(is_sure).tolist()

    def wide(values: FloatArray) -> FloatArray:
        whole = np.full((len(is_sure), *values.shape[1:]), np.nan)
        whole[rows] = values
        return whole

    fit, agreement = found.fit, found.agreement
    changes: dict[str, Any] = {name: wide(getattr(found, name)) for name in _ROWS}
    return replace(
        found,
        **changes,
        fit=None if fit is None else Fit(wide(fit.r2), wide(fit.lds), fit.n_held_out),
        agreement=None if agreement is None else wide(agreement),
        pairs=tuple(replace(pair, target=rows[pair.target]) for pair in found.pairs),
        groups=tuple(replace(group, target=rows[group.target]) for group in found.groups),
    )
