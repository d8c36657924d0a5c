"""Values of subsets as a smooth function of who is in them: kriging with a kernel of single segments and their pairs.

Each row leaves itself out at no cost, so every fit says how well it predicts what it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attr_core.results import FloatArray, MaskArray

__all__ = ["ALONE", "Surrogate", "centred", "fit_towards", "spread_over"]

RATIOS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Noise over signal, of which the one that predicts best is taken."""

PAIRED = (0.0, 1.0)
"""Variance of all pairs over that of all single segments, of which the one that predicts best is taken."""

ALONE = (0.0,)
"""Without pairs."""

FEW = 0.9
"""Share of the variance that goes by what was found before: few segments of many matter."""


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """A prediction of one target's values, of which ``effects`` are what adds up.

    ``effects`` ``(n_segments,)`` shrink what the rows say towards the prior. The others are of a first fit, which only
    the prior told who matters: ``missed`` ``(n_masks,)`` is each row's value less what the other rows predict,
    ``debiased`` adds back what shrinkage took, and ``error``, its standard error, holds for ``effects`` too.
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
    prior: FloatArray,
    masks: MaskArray,
    values: FloatArray,
    *,
    pairs: FloatArray | None = None,
    paired: tuple[float, ...] = PAIRED,
) -> Surrogate:
    """Effects of balanced random subsets on ``values`` ``(n_masks,)``, shrunk towards a multiple of ``prior``.

    The multiple is fitted. What single segments are off by is normal, and so is what each pair adds, with the product
    of its members' variances, times one of ``paired``: the kernel of all pairs is that of all segments, squared. It and
    the strength of the shrinkage are those whose leave-one-out error is smallest. A second fit lets those be further
    off that the first found to matter. ``pairs`` ``(n_masks, n_pairs)`` are further columns, fitted without shrinkage,
    so that what they explain is no noise.

    References
    ----------
    Duvenaud, Nickisch and Rasmussen, Additive Gaussian Processes, NIPS 2011, for kernels that add up by order. Dubrule,
    Cross Validation of Kriging in a Unique Neighborhood, Math. Geology 1983: the leave-one-out formula.
    """
    signs = centred(masks)
    along = signs @ prior
    extra = np.zeros((len(values), 0)) if pairs is None else pairs
    drift = np.column_stack([np.ones(len(values)), extra, *([along] if np.ptp(along) else [])])
    towards = prior if np.ptp(along) else np.zeros_like(prior)
    first, missed = _fitted(towards, prior, signs, drift, values, paired)
    effects, _ = _fitted(towards, first, signs, drift, values, paired)
    corrections = 4 * signs * missed[:, None]
    return Surrogate(
        effects=effects,
        missed=missed,
        debiased=first + corrections.mean(axis=0),
        error=corrections.std(axis=0, ddof=1) / np.sqrt(len(values)),
    )


def _fitted(
    towards: FloatArray,
    likely: FloatArray,
    signs: FloatArray,
    drift: FloatArray,
    values: FloatArray,
    paired: tuple[float, ...],
) -> tuple[FloatArray, FloatArray]:
    """Effects, further off the more ``likely`` ones are, and what is missed; the last drift is that of ``towards``."""
    # A quarter of the sum of what they vary by is what varies with segments kept or removed at random.
    varies = 4 * spread_over(likely, share=FEW)
    single = (signs * varies) @ signs.T
    fits = [_krige(single + share * single**2, drift, values) for share in paired]
    weights, missed, coefficients = min(fits, key=lambda fit: float(np.mean(fit[1] ** 2)))
    return varies * (signs.T @ weights) + coefficients[-1] * towards, missed


def _krige(kernel: FloatArray, drift: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Kernel weights, leave-one-out errors, and the drift's coefficients, for the noise that predicts best."""
    left, singular, _ = np.linalg.svd(drift)
    free = left[:, int((singular > 1e-9 * singular[0]).sum()) :]  # what no drift explains
    spectrum, turned = np.linalg.eigh(free.T @ kernel @ free)
    basis = free @ turned
    scale = float(np.mean(np.diag(kernel))) or 1.0
    precision = 1 / (np.maximum(spectrum, 0)[:, None] + scale * np.array(RATIOS))
    weights = basis @ (precision * (basis.T @ values)[:, None])
    missed = weights / np.maximum(basis**2 @ precision, 1e-12)
    best = int(np.argmin((missed**2).mean(axis=0)))
    chosen = weights[:, best]
    left_over = values - kernel @ chosen - scale * RATIOS[best] * chosen
    return chosen, missed[:, best], np.linalg.lstsq(drift, left_over, rcond=None)[0]
