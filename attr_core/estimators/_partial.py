"""Effects from what an interrupted run had measured: a ranking."""

from __future__ import annotations

import numpy as np

from attr_core.estimators._kriging import fit_towards
from attr_core.results import Estimate, FloatArray, MaskArray

__all__ = ["ranked_from"]


def ranked_from(masks: MaskArray, values: FloatArray) -> Estimate:
    """A ridge fit to whatever subsets were measured, without intervals: which they are was not drawn at random.

    Parameters
    ----------
    masks : array of bool, shape (n_masks, n_segments)
    values : array, shape (n_masks, n_targets)
        Finite.
    """
    n_targets, n_segments = values.shape[1], masks.shape[1]
    nothing = np.zeros(n_segments)
    effects = np.array([fit_towards(nothing, masks, column).effects for column in values.T])
    unknown = np.full((n_targets, n_segments), np.nan)
    return Estimate(
        effects=effects.reshape(n_targets, n_segments),
        low=unknown,
        high=unknown,
        error=unknown,
        drops=unknown,
        exact=False,
        decisive=False,
        n_masks=len(masks),
        partial=True,
    )
