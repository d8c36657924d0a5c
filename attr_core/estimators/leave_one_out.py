"""Leave-one-out: what deleting each segment alone takes away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from attr_core.estimators._designs import kept, removed, single_deletions
from attr_core.protocols import ValueFunction
from attr_core.results import Estimate, MaskArray

__all__ = ["LeaveOneOut"]


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """A segment's drop, v(all) - v(all without it), as its effect.

    Two segments that say the same hide each other: both drops are near 0. So the drops rank, and verdicts stay
    ``undetermined``. Unit: the value's; positive when deleting the segment makes the target less likely. Cost: n + 2
    masks.

    Examples
    --------
    >>> from attr_core.testing import GameValue
    >>> either = GameValue(lambda mask: [5.0 * (mask[0] or mask[1]) + mask[2]], n_segments=3)
    >>> LeaveOneOut().estimate(either).effects
    array([[0., 0., 1.]])
    """

    name: ClassVar[str] = "LeaveOneOut"
    estimand: ClassVar[str] = "drop"
    fidelity: ClassVar[Literal["exact", "hidden"]] = "exact"

    def n_masks(self, n_segments: int) -> int:
        """One per segment, all kept, all removed."""
        return n_segments + 2 if n_segments > 1 else n_segments + 1

    def ablations(self, value: ValueFunction, *, seed: int = 0) -> MaskArray:
        """The masks that :meth:`estimate` measures besides the plain rows and drops."""
        return single_deletions(value.n_segments)

    def estimate(self, value: ValueFunction, *, seed: int = 0) -> Estimate:
        """Measure every single deletion; ``seed`` changes nothing."""
        n = value.n_segments
        values = value.exact(np.concatenate([kept(n), removed(n), single_deletions(n)]))
        drops = (values[0] - values[2:]).T.reshape(value.n_targets, n)
        unsampled = np.full_like(drops, np.nan)
        return Estimate(
            effects=drops,
            low=unsampled,
            high=unsampled,
            error=unsampled,
            drops=drops,
            exact=True,
            decisive=False,
            n_masks=self.n_masks(n),
        )
