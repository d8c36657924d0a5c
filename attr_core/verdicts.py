"""From effects to verdicts: the margin δ, p-values against it, and what lies beyond it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attr_core.results import Estimate, FloatArray, Verdict

__all__ = ["MARGIN_SHARE", "adjusted_p_values", "margins", "weigh"]

MARGIN_SHARE = 0.2
"""δ as a share of the largest absolute effect on a target, where that is above the value function's floor."""


def margins(effects: FloatArray, *, floor: float | FloatArray, share: float = MARGIN_SHARE) -> FloatArray:
    """The smallest effect worth naming, δ ``(n_targets,)``.

    ``share`` of the largest absolute effect on the target, at least ``floor``.

    Parameters
    ----------
    effects : array, shape (n_targets, n_segments)
    floor : float or array, shape (n_targets,)
        In the effects' unit.
    share : float, default 0.2
    """
    largest = np.abs(np.nan_to_num(effects)).max(axis=1, initial=0.0)
    return np.asarray(np.maximum(floor, share * largest), dtype=np.float64)


def adjusted_p_values(estimate: Estimate, delta: FloatArray) -> FloatArray:
    """p-values ``(n_targets, n_segments)`` of |effect| <= δ, adjusted over the whole matrix; NaN without an interval.

    The least favourable case is an effect of exactly δ, in either direction.

    References
    ----------
    Benjamini and Hochberg, Controlling the False Discovery Rate, JRSS B 1995.
    """
    p_values = np.full(estimate.effects.shape, np.nan)
    tested = np.isfinite(estimate.error) & np.isfinite(estimate.effects)
    if not tested.any():
        return p_values
    margin = np.broadcast_to(delta[:, None], tested.shape)[tested]
    size, error = np.abs(estimate.effects[tested]), np.maximum(estimate.error[tested], np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        raw = stats.t.sf((size - margin) / error, estimate.dof) + stats.t.sf((size + margin) / error, estimate.dof)
    p_values[tested] = stats.false_discovery_control(np.minimum(raw, 1.0), method="bh")
    return p_values


def weigh(
    estimate: Estimate,
    delta: FloatArray,
    p_values: FloatArray,
    *,
    knows_right: bool = False,
    words: tuple[Verdict, Verdict] | None = None,
) -> NDArray[np.str_]:
    """Verdicts ``(n_targets, n_segments)``: ``drives`` above δ, ``opposes`` below -δ, ``no effect`` within, else open.

    Computed effects are weighed by themselves. Sampled ones drive or oppose where the whole interval lies beyond δ and
    the adjusted p-value is at most 1 - level, and have no effect where the whole interval lies within. Those of an
    estimator that only ranks stay ``undetermined``, as does NaN. Where the value function knows what is right, the
    words are ``helpful`` and ``harmful``; ``words`` are its own, for above and below.
    """
    above, below = words or ((Verdict.HELPFUL, Verdict.HARMFUL) if knows_right else (Verdict.DRIVES, Verdict.OPPOSES))
    verdicts = np.full(estimate.effects.shape, Verdict.UNDETERMINED.value, dtype="<U16")
    if not estimate.decisive:
        return verdicts
    low, high = (estimate.effects, estimate.effects) if estimate.exact else (estimate.low, estimate.high)
    sure = estimate.exact | (p_values <= 1 - estimate.level)
    margin = delta[:, None]
    verdicts[(low > margin) & sure] = above.value
    verdicts[(high < -margin) & sure] = below.value
    verdicts[(low >= -margin) & (high <= margin)] = Verdict.NO_EFFECT.value
    return verdicts
