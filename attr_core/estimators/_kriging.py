"""Values of subsets as a smooth function of who is in them: kriging with a linear kernel, which is ridge regression.

Each row leaves itself out at no cost, so every fit says how well it predicts what it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attr_core.results import FloatArray, MaskArray

__all__ = ["Surrogate", "centred", "fit_towards", "spread_over"]

RATIOS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Noise over signal, of which the one that predicts best is taken."""


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """A linear prediction of one target's values.

    ``effects`` ``(n_segments,)`` shrink what the rows say towards the prior. ``missed`` ``(n_masks,)`` is each row's
    value less what the other rows predict. ``debiased`` adds back what shrinkage took, ``error`` is its standard error.
    """

    effects: FloatArray
    missed: FloatArray
    debiased: FloatArray
    error: FloatArray


def centred(masks: MaskArray) -> FloatArray:
    """+1/2 kept, -1/2 removed: a coefficient is then the difference that keeping makes."""
    return np.where(masks, 0.5, -0.5)


def spread_over(prior: FloatArray, *, share: float = 0.5) -> FloatArray:
    """How far each segment may be from the prior, as shares ``(n_segments,)`` of the variance.

    ``share`` of it goes by the prior's square, the rest to all alike: who matters more can be further off.
    """
    size = prior**2
    alike = np.full(len(prior), 1 / max(len(prior), 1))
    return alike if size.sum() == 0 else (1 - share) * alike + share * size / size.sum()


def fit_towards(
    prior: FloatArray, masks: MaskArray, values: FloatArray, *, pairs: FloatArray | None = None
) -> Surrogate:
    """Effects of balanced random subsets on ``values`` ``(n_masks,)``, shrunk towards a multiple of ``prior``.

    The multiple is fitted, the strength of the shrinkage is the one whose leave-one-out error is smallest. ``pairs``
    ``(n_masks, n_pairs)`` are further columns, fitted without shrinkage, so that what they explain is no noise.

    References
    ----------
    Dubrule, Cross Validation of Kriging in a Unique Neighborhood, Math. Geology 1983: the leave-one-out formula.
    """
    signs = centred(masks)
    shares = spread_over(prior)
    along = signs @ prior
    extra = np.zeros((len(values), 0)) if pairs is None else pairs
    drift = np.column_stack([np.ones(len(values)), extra, *([along] if np.ptp(along) else [])])
    kernel = (signs * shares) @ signs.T
    scale = float(np.mean(np.diag(kernel))) or 1.0
    fits = [_krige(kernel, drift, values, noise=ratio * scale) for ratio in RATIOS]
    weights, missed, coefficients = min(fits, key=lambda fit: float(np.mean(fit[1] ** 2)))
    effects = shares * (signs.T @ weights)
    if np.ptp(along):
        effects = effects + coefficients[-1] * prior
    corrections = 4 * signs * missed[:, None]
    return Surrogate(
        effects=effects,
        missed=missed,
        debiased=effects + corrections.mean(axis=0),
        error=corrections.std(axis=0, ddof=1) / np.sqrt(len(values)),
    )


def _krige(
    kernel: FloatArray, drift: FloatArray, values: FloatArray, *, noise: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Kernel weights, leave-one-out errors, and the drift's coefficients."""
    precision = np.linalg.inv(kernel + noise * np.eye(len(values)))
    inner = np.linalg.pinv(drift.T @ precision @ drift)
    projected = precision - precision @ drift @ inner @ drift.T @ precision
    weights = projected @ values
    free = np.maximum(np.diag(projected), 1e-12)
    return weights, weights / free, inner @ drift.T @ precision @ values
