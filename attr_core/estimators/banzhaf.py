"""Banzhaf values by enumeration of all subsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from attr_core.estimators._designs import all_subsets, drops_from_subsets, n_subsets
from attr_core.protocols import ValueFunction
from attr_core.results import Estimate, MaskArray

__all__ = ["Banzhaf"]


@dataclass(frozen=True, slots=True)
class Banzhaf:
    """A segment's average marginal contribution over all subsets of the others, each subset weighted alike.

    Keeping every other segment with probability one half is the same thing, so this is what a linear fit on such
    ablations estimates; here it is computed. Unit: the value's; positive when the segment supports the target. Cost:
    2**n masks, at most 2**16. There is no sampling interval.

    References
    ----------
    Banzhaf, Weighted Voting Doesn't Work, 1965; Wang and Jia, Data Banzhaf, AISTATS 2023 (arXiv:2205.15466).

    Examples
    --------
    >>> from attr_core.testing import GameValue
    >>> Banzhaf().estimate(GameValue(lambda mask: [3.0 * mask[0] - mask[1]], n_segments=2)).effects
    array([[ 3., -1.]])
    """

    name: ClassVar[str] = "Banzhaf"
    estimand: ClassVar[str] = "banzhaf"
    fidelity: ClassVar[Literal["exact", "hidden"]] = "exact"

    def n_masks(self, n_segments: int) -> int:
        """2**n_segments; more than 16 segments are an error."""
        return n_subsets(n_segments)

    def ablations(self, value: ValueFunction, *, seed: int = 0) -> MaskArray:
        """The masks that :meth:`estimate` measures besides the plain rows and drops."""
        return all_subsets(value.n_segments)

    def estimate(self, value: ValueFunction, *, seed: int = 0) -> Estimate:
        """Measure every subset; ``seed`` changes nothing."""
        masks = all_subsets(value.n_segments)
        values = value.exact(masks)
        effects = np.full((value.n_targets, value.n_segments), np.nan)
        for segment in range(value.n_segments):
            inside = masks[:, segment]
            effects[:, segment] = values[inside].mean(axis=0) - values[~inside].mean(axis=0)
        unsampled = np.full_like(effects, np.nan)
        return Estimate(
            effects=effects,
            low=unsampled,
            high=unsampled,
            error=unsampled,
            drops=drops_from_subsets(values, value.n_segments),
            exact=True,
            decisive=True,
            n_masks=len(masks),
        )
