"""From effects to verdicts: the margin δ, and what lies beyond it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attr_core.results import Estimate, FloatArray, Verdict

__all__ = ["MARGIN_SHARE", "margins", "weigh"]

MARGIN_SHARE = 0.2
"""δ as a share of the largest absolute effect on a target, where that is above the value function's floor."""


def margins(effects: FloatArray, *, floor: float, share: float = MARGIN_SHARE) -> FloatArray:
    """The smallest effect worth naming, δ ``(n_targets,)``.

    ``share`` of the largest absolute effect on the target, at least ``floor``.

    Parameters
    ----------
    effects : array, shape (n_targets, n_segments)
    floor : float
        In the effects' unit.
    share : float, default 0.2
    """
    if effects.shape[1] == 0:
        return np.full(effects.shape[0], floor)
    largest = np.nanmax(np.abs(np.where(np.isnan(effects), 0.0, effects)), axis=1)
    return np.asarray(np.maximum(floor, share * largest), dtype=np.float64)


def weigh(estimate: Estimate, delta: FloatArray, *, knows_right: bool = False) -> NDArray[np.str_]:
    """Verdicts ``(n_targets, n_segments)``: ``drives`` above δ, ``opposes`` below -δ, ``no effect`` within, else open.

    Sampled effects are weighed by their interval, computed ones by themselves; those of an estimator that only ranks
    stay ``undetermined``, as does NaN. Where the value function knows what is right, the words are ``helpful`` and
    ``harmful``.
    """
    low, high = (estimate.effects, estimate.effects) if estimate.exact else (estimate.low, estimate.high)
    margin = delta[:, None]
    verdicts = np.full(estimate.effects.shape, Verdict.UNDETERMINED.value, dtype="<U16")
    if not estimate.decisive:
        return verdicts
    verdicts[(low > margin)] = Verdict.HELPFUL.value if knows_right else Verdict.DRIVES.value
    verdicts[(high < -margin)] = Verdict.HARMFUL.value if knows_right else Verdict.OPPOSES.value
    verdicts[(low >= -margin) & (high <= margin)] = Verdict.NO_EFFECT.value
    return verdicts
