"""ContextCite's recipe: random ablations and a LASSO."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from attr_core.errors import ConfigurationError
from attr_core.estimators._designs import kept, leading_drops, removed
from attr_core.protocols import ValueFunction
from attr_core.results import Estimate, FloatArray, MaskArray

__all__ = ["ContextCite", "lasso_effects"]


@dataclass(frozen=True, slots=True)
class ContextCite:
    """Weights of a sparse linear fit to the values of random subsets; they estimate Banzhaf values, shrunk towards 0.

    Each segment is kept with probability ``keep_probability``; the LASSO is fitted on standardised columns to the value
    per token. Shrinkage makes the weights' sampling intervals invalid, so none are given and verdicts stay
    ``undetermined``: it ranks. Unit: the value's; positive when the segment supports the target. Cost: ``n_ablations``
    masks, all kept, all removed, and single deletions of the ``n_drops`` leading segments of each target.

    Parameters
    ----------
    n_ablations : int, default 64
    alpha : float, default 0.01
        LASSO penalty, on the value per token.
    keep_probability : float, default 0.5
    n_drops : int, default 3
        Leading segments of each target whose single deletion is measured; other drops are NaN.

    References
    ----------
    Cohen-Wang et al., ContextCite, 2024 (arXiv:2409.00729), section 3; package context-cite 0.0.4, whose masks for a
    given seed and whose solver's weights this gives. The two plain rows and the drops are ours and stay out of the fit.
    """

    n_ablations: int = 64
    alpha: float = 0.01
    keep_probability: float = 0.5
    n_drops: int = 3

    name: ClassVar[str] = "ContextCite"
    estimand: ClassVar[str] = "banzhaf, shrunk"
    fidelity: ClassVar[Literal["exact", "hidden"]] = "exact"

    def __post_init__(self) -> None:
        if self.n_ablations < 2 or self.alpha <= 0 or not 0 < self.keep_probability < 1 or self.n_drops < 0:
            raise ConfigurationError(
                f"{self} cannot be fitted; give n_ablations >= 2, alpha > 0, 0 < keep_probability < 1"
            )

    def n_masks(self, n_segments: int) -> int:
        """At most: ablations, the two plain rows, and every single deletion if all segments lead somewhere."""
        return self.n_ablations + 2 + (n_segments if self.n_drops else 0)

    def masks(self, n_segments: int, *, seed: int = 0) -> MaskArray:
        """The random ablations ``(n_ablations, n_segments)``: row ``i`` is drawn with seed ``seed + i``."""
        chances = [1 - self.keep_probability, self.keep_probability]
        rows = [
            np.random.RandomState(seed + row).choice([False, True], size=n_segments, p=chances)
            for row in range(self.n_ablations)
        ]
        return np.array(rows, dtype=np.bool_).reshape(self.n_ablations, n_segments)

    def ablations(self, value: ValueFunction, *, seed: int = 0) -> MaskArray:
        """The masks that :meth:`estimate` measures besides the plain rows and drops."""
        return self.masks(value.n_segments, seed=seed)

    def estimate(self, value: ValueFunction, *, seed: int = 0) -> Estimate:
        """Measure the ablations drawn from ``seed`` and fit each target."""
        n = value.n_segments
        masks = self.masks(n, seed=seed)
        values = value.exact(np.concatenate([kept(n), removed(n), masks]))
        measured = np.isfinite(values[2:]).all(axis=1)
        effects = lasso_effects(masks[measured], values[2:][measured], value.scales, alpha=self.alpha)
        drops = leading_drops(value, values[0], effects, n_leading=self.n_drops)
        unsampled = np.full_like(effects, np.nan)
        return Estimate(
            effects=effects,
            low=unsampled,
            high=unsampled,
            error=unsampled,
            drops=drops,
            exact=False,
            decisive=False,
            n_unfit=int((~measured).sum()),
            n_masks=len(masks) + 2 + int(np.isfinite(drops).any(axis=0).sum()),
        )


def lasso_effects(masks: MaskArray, values: FloatArray, scales: FloatArray, *, alpha: float) -> FloatArray:
    """Effects ``(n_targets, n_segments)`` of the standardised LASSO on ``values / scales``, back in the value's unit.

    Parameters
    ----------
    masks : array of bool, shape (n_masks, n_segments)
    values : array, shape (n_masks, n_targets)
        A column that never changes has no effect (NaN); fewer than two rows leave all undefined.
    scales : array, shape (n_targets,)
        What each target's value is divided by before the fit (its tokens), and its effects multiplied by after.
    alpha : float
        Penalty on the standardised columns.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso
    from sklearn.preprocessing import StandardScaler

    effects = np.full((values.shape[1], masks.shape[1]), np.nan)
    if masks.shape[1] == 0 or len(masks) < 2:
        return effects
    scaler = StandardScaler().fit(masks.astype(np.float64))
    columns = scaler.transform(masks.astype(np.float64))
    for target, scale in enumerate(scales):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit = Lasso(alpha=alpha).fit(columns, values[:, target] / scale)
        effects[target] = fit.coef_ / scaler.scale_ * scale
    effects[:, masks.all(axis=0) | ~masks.any(axis=0)] = np.nan  # never removed, or never kept
    return effects
