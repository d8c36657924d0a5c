"""From what hiding a segment does to what deleting it does, with an error that a few deletions set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attr_core.estimators._kriging import fit_towards, spread_over
from attr_core.results import FloatArray, MaskArray

__all__ = ["Confirmed", "Transfer", "corrected", "transferred"]

PRIOR_ROWS = 6.0
"""Subsets that what is known of other prompts counts for, beside those deleted on this one."""

PRIOR_DISAGREEMENT = 0.3
"""Of hidden and exact values, over the spread of the hidden ones, on other prompts (``benchmarks/truth.py``)."""

ROUNDING = 1e-3
"""Least disagreement, in the value's unit: that of float32 over a response."""

PRIOR_SLOPE = 0.15
"""How far from 1 the slope of exact on hidden values may well be."""

PRIOR_TOGETHER = 4.0
"""Variance of what hiding all segments at once is off by, over that of hiding a random half."""

EXPLAINED, UNEXPLAINED = 0.67, 0.7
"""Variance of that disagreement that a sum over segments explains, and that none does, over its square elsewhere.

With the other three set so that intervals cover on the first contexts of ``benchmarks/truth.py``.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Confirmed:
    """Subsets measured both ways: ``masks`` ``(n_rows, n_segments)``; values ``(n_rows,)`` less that of all kept."""

    masks: MaskArray
    exact: FloatArray
    hidden: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """Exact effects and their standard errors ``(n_segments,)``; ``agreement`` is NaN where nothing was confirmed."""

    effects: FloatArray
    error: FloatArray
    dof: float
    agreement: float


def transferred(effects: FloatArray, error: FloatArray, *, spread: float, rows: Confirmed) -> Transfer:
    """Effects of deletion, for one target.

    Deleting takes from the value what hiding takes, times a slope near 1, something of its own for each segment that is
    gone, and something for how much is gone; with all kept both agree. Slope and own parts are normal with means 1 and
    0, as far apart as hidden and exact values were on other prompts and are here: their posterior given the rows is
    Student's, in closed form. What goes with the amount alone is no segment's effect.

    Parameters
    ----------
    effects, error : array, shape (n_segments,)
        Of hiding; the standard error is that of sampling the masks.
    spread : float
        Standard deviation of the hidden values over random subsets.
    rows : Confirmed

    References
    ----------
    Kennedy and O'Hagan, Predicting the Output from a Complex Computer Code When Fast Approximations Are Available,
    Biometrika 2000, section 2, is this model with a Gaussian process where ours is linear in the segments.
    """
    n_rows, n = rows.masks.shape
    shares = spread_over(effects)
    unit = max(PRIOR_DISAGREEMENT * spread, ROUNDING)
    gone = np.where(rows.masks, 0.0, 1.0)
    features = np.column_stack([rows.hidden / unit, -gone, 2 * gone.sum(axis=1) / max(n, 1)])
    # Half of the segments are removed at random, so a quarter of the sum of shares is what varies.
    prior = np.concatenate([[PRIOR_SLOPE**2], 4 * EXPLAINED * shares, [PRIOR_TOGETHER]])
    missed = (rows.exact - rows.hidden) / unit
    covariance = (features * prior) @ features.T + UNEXPLAINED * np.eye(n_rows)
    gain = np.linalg.solve(covariance, features * prior).T if n_rows else np.zeros((n + 2, 0))
    means = gain @ missed
    squared = float(missed @ np.linalg.solve(covariance, missed)) if n_rows else 0.0
    dof = PRIOR_ROWS + n_rows
    scale = (PRIOR_ROWS + squared) / dof
    posterior = np.diag(prior) - gain @ (features * prior)
    # A segment's exact effect is its hidden one, times the slope, and its own part.
    of_slope = effects / unit
    own = slice(1, n + 1)
    variance = of_slope**2 * posterior[0, 0] + 2 * of_slope * posterior[0, own] + np.diag(posterior)[own]
    return Transfer(
        effects=effects + means[0] * effects + unit * means[own],
        error=np.sqrt(error**2 + scale * unit**2 * np.maximum(variance, 0)),
        dof=dof,
        agreement=_agreement(rows, spread),
    )


def corrected(effects: FloatArray, error: FloatArray, *, spread: float, rows: Confirmed) -> Transfer:
    """As :func:`transferred`, by what random subsets alone say of exact less hidden values: no other prompt counts.

    ``rows`` are balanced random subsets, enough for a spread of their own. Hidden values are a control variate here:
    the interval is right however little they say, and the narrower the more they do.
    """
    own = fit_towards(effects, rows.masks, rows.exact - rows.hidden)
    return Transfer(
        effects=effects + own.effects,
        error=np.sqrt(error**2 + own.error**2 + ROUNDING**2),
        dof=len(rows.masks) - 1,
        agreement=_agreement(rows, spread),
    )


def _agreement(rows: Confirmed, spread: float) -> float:
    if not len(rows.masks) or spread <= 0:
        return float("nan")
    return 1 - float(np.mean((rows.exact - rows.hidden) ** 2)) / spread**2
