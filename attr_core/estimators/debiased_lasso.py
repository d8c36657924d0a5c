"""Debiased LASSO: effects of random ablations with intervals that hold their level."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attr_core.errors import ConfigurationError, ContextTooLongError
from attr_core.estimators._designs import balanced, kept, leading_drops, removed
from attr_core.protocols import ValueFunction
from attr_core.results import Estimate, Fit, FloatArray, MaskArray

__all__ = ["DebiasedLasso", "debiased_effects", "held_out_fit", "projected_effects"]

N_FOLDS = 8
"""Folds of the cross-fit."""

N_PENALTIES = 40
"""Penalties tried by cross-validation."""

KEEP_PROBABILITIES = (0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02)
"""Tried in turn until ``MIN_FITTING`` of the ablations fit the model's window."""

MIN_FITTING = 0.8

MIN_FREE = 8
"""Fewest degrees of freedom of that estimate."""

MIN_ROWS = 4
"""Fewest rows that must keep, and that must remove, a segment whose effect is estimated without a balanced design."""


@dataclass(frozen=True, slots=True)
class DebiasedLasso:
    """Banzhaf values from random balanced ablations, each with an interval and a p-value.

    A segment's Banzhaf value is twice the mean of z·v, with z = ±1 its indicator, whatever the interactions. A LASSO
    fitted on other folds predicts v, and the mean of z times what it misses corrects its coefficient: unbiased for any
    prediction, and the better the prediction, the narrower the interval. Intervals are Student's, from the spread of
    z times the residual over the ablations. Where the full prompt exceeds the model's window, fewer segments are kept
    (the estimand's name says so), effects come from a regression on the subsets that fit, and one that hardly ever fits
    has none (NaN). Unit: the value's; positive when the segment supports the
    target. Cost: ``n_ablations`` masks, all kept, all removed, and single deletions of the ``n_drops`` leading segments
    of each target.

    Parameters
    ----------
    n_ablations : int, optional
        By default max(64, 2n).
    level : float, default 0.95
        Nominal coverage of each interval.
    n_drops : int, default 3
        Leading segments of each target whose single deletion is measured; other drops are NaN.

    References
    ----------
    Chernozhukov et al., Double/Debiased Machine Learning, Econometrics Journal 2018, section 3 (cross-fitting); Zhang
    and Zhang, Confidence Intervals for Low Dimensional Parameters, JRSS B 2014. Here the design is ours, so the
    regression of a segment on the others is known to be zero. The masks differ from ContextCite's by their balance.

    Examples
    --------
    >>> from attr_core.testing import GameValue
    >>> found = DebiasedLasso().estimate(GameValue(lambda mask: [6.0 * mask[1]], n_segments=9))
    >>> int(found.effects[0].argmax()), round(float(found.effects[0, 1]), 1)
    (1, 6.0)
    """

    n_ablations: int | None = None
    level: float = 0.95
    n_drops: int = 3

    name: ClassVar[str] = "DebiasedLasso"
    estimand: ClassVar[str] = "banzhaf"
    fidelity: ClassVar[Literal["exact", "hidden"]] = "exact"

    def __post_init__(self) -> None:
        if self.n_ablations is not None and self.n_ablations < 2 * N_FOLDS:
            raise ConfigurationError(
                f"{self.n_ablations} ablations are too few to cross-fit; give {2 * N_FOLDS} or more"
            )
        if not 0 < self.level < 1 or self.n_drops < 0:
            raise ConfigurationError(f"{self} cannot be fitted; give 0 < level < 1 and n_drops >= 0")

    def n_random(self, n_segments: int) -> int:
        """Random ablations for that many segments."""
        return self.n_ablations if self.n_ablations is not None else max(64, 2 * n_segments)

    def n_masks(self, n_segments: int) -> int:
        """At most: ablations, the two plain rows, and every single deletion if all segments lead somewhere."""
        return self.n_random(n_segments) + 2 + (n_segments if self.n_drops else 0)

    def masks(self, value: ValueFunction, *, seed: int = 0) -> tuple[MaskArray, float, int]:
        """The random ablations that fit the model's window, the probability of keeping, and how many did not fit.

        Each segment is kept in half of the rows; in fewer where most such prompts would be too long.

        Raises
        ------
        ContextTooLongError
            Hardly any ablation fits.
        """
        rng, n = np.random.default_rng(seed), value.n_segments
        everything_fits = bool(value.fits(kept(n))[0])
        # What does not even fit alone is never kept; it must not keep the others from being measured.
        usable = np.ones(n, dtype=np.bool_) if everything_fits else value.fits(np.eye(n, dtype=np.bool_))
        drawn = self.n_random(n)
        for probability in KEEP_PROBABILITIES if usable.any() or everything_fits else ():
            design = np.zeros((drawn, n), dtype=np.bool_)
            design[:, usable] = balanced(drawn, int(usable.sum()), rng, keep_probability=probability)
            fits = value.fits(design)
            if fits.mean() >= MIN_FITTING:
                return design[fits], probability, int((~fits).sum())
        raise ContextTooLongError(
            f"of {n} segments hardly any subset fits the model's window; use a model with a larger one, or segments of "
            "finer granularity"
        )

    def ablations(self, value: ValueFunction, *, seed: int = 0) -> MaskArray:
        """The masks that :meth:`estimate` measures besides the plain rows and drops."""
        return self.masks(value, seed=seed)[0]

    def estimate(self, value: ValueFunction, *, seed: int = 0) -> Estimate:
        """Measure ablations drawn from ``seed`` and fit each target."""
        n = value.n_segments
        masks, probability, n_unfit = self.masks(value, seed=seed)
        values = value.exact(np.concatenate([kept(n), removed(n), masks]))
        if np.isnan(values[0]).all():  # the full prompt does not fit
            effects, error, predicted, dof = projected_effects(masks, values[2:])
        else:
            effects, error, predicted = debiased_effects(masks, values[2:], np.random.default_rng(seed))
            dof = len(masks) - 1
        half_width = error * stats.t.ppf((1 + self.level) / 2, dof)
        drops = leading_drops(value, values[0], effects, n_leading=self.n_drops)
        return Estimate(
            effects=effects,
            low=effects - half_width,
            high=effects + half_width,
            error=error,
            dof=dof,
            drops=drops,
            exact=False,
            decisive=True,
            n_masks=len(masks) + 2 + int(np.isfinite(drops).any(axis=0).sum()),
            level=self.level,
            fit=held_out_fit(predicted, values[2:]),
            n_unfit=n_unfit,
            estimand=None if probability == KEEP_PROBABILITIES[0] else f"{self.estimand} at {probability:.0%} kept",
        )


def projected_effects(masks: MaskArray, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Least-squares effects where the masks that fit are no balanced design; errors, predictions, degrees of freedom.

    Which subsets fit ties the columns together, so their means of z·v are confounded; a regression on all of them is
    not. Errors are heteroskedasticity-consistent (HC3), predictions leave the row out. A segment kept or removed in
    fewer than ``MIN_ROWS`` rows has no effect to speak of: NaN; nor has any where the rows are not ``MIN_FREE`` more
    than what is fitted, since such a fit has no residual to judge itself by.

    Parameters
    ----------
    masks : array of bool, shape (n_masks, n_segments)
    values : array, shape (n_masks, n_targets)

    References
    ----------
    MacKinnon and White, Some Heteroskedasticity-Consistent Covariance Matrix Estimators, J. Econometrics 1985.
    """
    times_kept = masks.sum(axis=0)
    usable = (times_kept >= MIN_ROWS) & (len(masks) - times_kept >= MIN_ROWS)
    design = np.column_stack([np.ones(len(masks)), masks[:, usable]])
    inverse = np.linalg.pinv(design.T @ design)
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    free = np.maximum(1 - leverage, 1e-9)[:, None]
    dof = float(max(len(masks) - design.shape[1], 1))
    coefficients = inverse @ design.T @ values
    left_out = (values - design @ coefficients) / free
    spread = inverse @ design.T
    variance = np.einsum("ji,it->jt", spread**2, left_out**2)
    effects = np.full((values.shape[1], masks.shape[1]), np.nan)
    error = np.full_like(effects, np.nan)
    if len(masks) - design.shape[1] < MIN_FREE:
        return effects, error, np.full_like(values, np.nan), dof
    effects[:, usable] = coefficients[1:].T
    error[:, usable] = np.sqrt(variance[1:].T)
    return effects, error, values - left_out, dof


def debiased_effects(
    masks: MaskArray, values: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Effects and their standard errors ``(n_targets, n_segments)``, and out-of-fold predictions like ``values``.

    Parameters
    ----------
    masks : array of bool, shape (n_masks, n_segments)
        Each column kept in half of the rows, columns independent.
    values : array, shape (n_masks, n_targets)
    rng : numpy.random.Generator
        Deals the rows into folds.
    """
    signs = np.where(masks, 1.0, -1.0)
    folds = rng.permutation(len(masks)) % N_FOLDS
    predicted, coefficients = _cross_fit(signs, values, folds)
    missed = values - predicted
    effects = np.zeros((values.shape[1], masks.shape[1]))
    error = np.zeros_like(effects)
    for target in range(values.shape[1]):
        corrections = signs * missed[:, target, None]
        effects[target] = 2 * (coefficients[target] + corrections.mean(axis=0))
        error[target] = 2 * corrections.std(axis=0, ddof=1) / np.sqrt(len(masks))
    return effects, error, predicted


def held_out_fit(predicted: FloatArray, values: FloatArray) -> Fit:
    """R² and LDS of out-of-fold predictions ``(n_masks, n_targets)``; NaN for a target that never changes."""
    spread = values.var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        r2 = np.where(spread > 0, 1 - ((values - predicted) ** 2).mean(axis=0) / spread, np.nan)
    lds = [
        stats.spearmanr(guess, actual).statistic if np.ptp(guess) > 0 and np.ptp(actual) > 0 else np.nan
        for guess, actual in zip(predicted.T, values.T, strict=True)
    ]
    return Fit(r2=r2, lds=np.array(lds), n_held_out=len(values))


def _cross_fit(signs: FloatArray, values: FloatArray, folds: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Out-of-fold LASSO predictions, and coefficients averaged over the folds ``(n_targets, n_segments)``."""
    predicted = np.zeros_like(values)
    coefficients = np.zeros((values.shape[1], signs.shape[1]))
    if signs.shape[1] == 0:
        for fold in range(N_FOLDS):
            predicted[folds == fold] = values[folds != fold].mean(axis=0)
        return predicted, coefficients
    for target, column in enumerate(values.T):
        if np.ptp(column) == 0:
            predicted[:, target] = column
            continue
        for fold, model in _fits(signs, column, folds):
            inside = folds == fold
            predicted[inside, target] = model.predict(signs[inside])
            coefficients[target] += model.coef_ * inside.mean()
    return predicted, coefficients


def _fits(signs: FloatArray, column: FloatArray, folds: NDArray[np.int64]) -> Iterator[tuple[int, Any]]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso, LassoCV

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # One penalty for all folds: choosing it anew in each costs eight times as much and covers no better.
        penalty = LassoCV(cv=5, alphas=N_PENALTIES, tol=1e-3).fit(signs, column).alpha_
        for fold in range(N_FOLDS):
            outside = folds != fold
            yield fold, Lasso(alpha=penalty, tol=1e-4).fit(signs[outside], column[outside])
