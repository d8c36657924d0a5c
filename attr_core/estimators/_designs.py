"""Which subsets to measure: rows of True (kept) and False (removed)."""

from __future__ import annotations

import numpy as np

from attr_core.errors import ConfigurationError, ContextTooLongError, MissingCapabilityError
from attr_core.protocols import ScreenedValue, ValueFunction
from attr_core.results import FloatArray, MaskArray

MAX_ENUMERATED = 16
"""Most segments whose subsets are enumerated: 65,536 masks."""


N_DRAWS = 32
"""Random balanced designs of which the least coherent is taken."""


MAX_COMPARED = 200
"""Most segments whose designs are compared; beyond, one more draw costs more than it gains."""


def kept(n_segments: int) -> MaskArray:
    """The all-kept row ``(1, n_segments)``."""
    return np.ones((1, n_segments), dtype=np.bool_)


def removed(n_segments: int) -> MaskArray:
    """The all-removed row ``(1, n_segments)``."""
    return np.zeros((1, n_segments), dtype=np.bool_)


def single_deletions(n_segments: int) -> MaskArray:
    """One row per segment, that one removed ``(n_segments, n_segments)``."""
    return ~np.eye(n_segments, dtype=np.bool_)


def n_subsets(n_segments: int) -> int:
    """2**n_segments.

    Raises
    ------
    ConfigurationError
        More than ``MAX_ENUMERATED`` segments.
    """
    if n_segments > MAX_ENUMERATED:
        raise ConfigurationError(
            f"{n_segments} segments have 2**{n_segments} subsets; enumerate at most {MAX_ENUMERATED}, or sample them"
        )
    return int(2**n_segments)


def all_subsets(n_segments: int) -> MaskArray:
    """Every subset ``(2**n_segments, n_segments)``; row ``r`` keeps segment ``s`` when bit ``s`` of ``r`` is set."""
    rows = np.arange(n_subsets(n_segments))[:, None]
    return np.asarray((rows >> np.arange(n_segments)) & 1, dtype=np.bool_)


def balanced(n_masks: int, n_segments: int, rng: np.random.Generator, *, keep_probability: float = 0.5) -> MaskArray:
    """Random subsets ``(n_masks, n_segments)``, every segment kept in the same share of them.

    Of ``N_DRAWS`` random designs the one whose columns are least alike is taken.
    """
    column = np.arange(n_masks) < n_masks * keep_probability
    best, least = np.zeros((n_masks, n_segments), dtype=np.bool_), np.inf
    for _ in range(N_DRAWS if 1 < n_segments <= MAX_COMPARED else 1):
        design = rng.permuted(np.tile(column[:, None], n_segments), axis=0)
        centred = design - column.mean()
        gram = centred.T @ centred
        alike = np.abs(gram - np.diag(np.diag(gram))).max(initial=0.0)
        if alike < least:
            best, least = design, alike
    return best


def screened(value: ValueFunction, *, by: str) -> ScreenedValue:
    """The value function as one with cheaper fidelities.

    Raises
    ------
    MissingCapabilityError
        It has none: its engine offers none, or what it measures cannot be had so.
    """
    if isinstance(value, ScreenedValue):
        return value
    raise MissingCapabilityError(
        f"{by} needs hidden masks and gradients, which {value.name} does not offer on this engine; use hf:MODEL, or "
        "debiased-lasso"
    )


def check_whole_fits(value: ValueFunction, *, by: str) -> None:
    """See that the full prompt can be measured.

    Raises
    ------
    ContextTooLongError
        It exceeds the model's window.
    """
    if not value.fits(kept(value.n_segments))[0]:
        raise ContextTooLongError(
            f"{by} needs the full prompt, which exceeds the model's window; use debiased-lasso, or a larger window"
        )


def leading_drops(value: ValueFunction, full: FloatArray, effects: FloatArray, *, n_leading: int) -> FloatArray:
    """v(all) - v(all without s) for the ``n_leading`` largest effects of each target, NaN elsewhere.

    Parameters
    ----------
    value : ValueFunction
    full : array, shape (n_targets,)
        v(all).
    effects : array, shape (n_targets, n_segments)
    n_leading : int
    """
    drops = np.full_like(effects, np.nan)
    if np.isnan(full).all():
        return drops
    columns = np.unique(np.argsort(-effects, axis=1, kind="stable")[:, :n_leading])
    if columns.size:
        without = value.exact(single_deletions(value.n_segments)[columns])
        drops[:, columns] = (full - without).T
    return drops


def drops_from_subsets(values: FloatArray, n_segments: int) -> FloatArray:
    """v(all) - v(all without s), ``(n_targets, n_segments)``, from the values of :func:`all_subsets`."""
    everything = 2**n_segments - 1
    without = [everything ^ (1 << segment) for segment in range(n_segments)]
    return np.asarray((values[everything] - values[without]).T, dtype=np.float64).reshape(values.shape[1], n_segments)
