"""Shapley values by enumeration of all subsets."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import ClassVar, Literal

import numpy as np

from attr_core.estimators._designs import all_subsets, drops_from_subsets, n_subsets
from attr_core.protocols import ValueFunction
from attr_core.results import Estimate, MaskArray

__all__ = ["Shapley"]


@dataclass(frozen=True, slots=True)
class Shapley:
    """A segment's marginal contribution averaged over all orders in which segments can be added.

    The effects of a target add up to v(all) - v(none). Unit: the value's; positive when the segment supports the
    target. Cost: 2**n masks, at most 2**16. There is no sampling interval.

    References
    ----------
    Shapley, A Value for n-Person Games, 1953.

    Examples
    --------
    >>> from attr_core.testing import GameValue
    >>> Shapley().estimate(GameValue(lambda mask: [4.0 * (mask[0] and mask[1])], n_segments=2)).effects
    array([[2., 2.]])
    """

    name: ClassVar[str] = "Shapley"
    estimand: ClassVar[str] = "shapley"
    fidelity: ClassVar[Literal["exact", "hidden"]] = "exact"

    def n_masks(self, n_segments: int) -> int:
        """2**n_segments; more than 16 segments are an error."""
        return n_subsets(n_segments)

    def ablations(self, value: ValueFunction, *, seed: int = 0) -> MaskArray:
        """The masks that :meth:`estimate` measures besides the plain rows and drops."""
        return all_subsets(value.n_segments)

    def estimate(self, value: ValueFunction, *, seed: int = 0) -> Estimate:
        """Measure every subset; ``seed`` changes nothing."""
        n = value.n_segments
        masks = all_subsets(n)
        values = value.exact(masks)
        sizes = masks.sum(axis=1)
        effects = np.full((value.n_targets, n), np.nan)
        for segment in range(n):
            inside = masks[:, segment]
            joining = 1 / (n * np.array([comb(n - 1, size - 1) for size in sizes[inside]]))
            staying = 1 / (n * np.array([comb(n - 1, size) for size in sizes[~inside]]))
            effects[:, segment] = joining @ values[inside] - staying @ values[~inside]
        unsampled = np.full_like(effects, np.nan)
        return Estimate(
            effects=effects,
            low=unsampled,
            high=unsampled,
            error=unsampled,
            drops=drops_from_subsets(values, n),
            exact=True,
            decisive=True,
            n_masks=len(masks),
        )
