"""Which subsets to measure: rows of True (kept) and False (removed)."""

from __future__ import annotations

import numpy as np

from attr_core.errors import ConfigurationError
from attr_core.results import FloatArray, MaskArray

MAX_ENUMERATED = 16
"""Most segments whose subsets are enumerated: 65,536 masks."""


def kept(n_segments: int) -> MaskArray:
    """The all-kept row ``(1, n_segments)``."""
    return np.ones((1, n_segments), dtype=np.bool_)


def removed(n_segments: int) -> MaskArray:
    """The all-removed row ``(1, n_segments)``."""
    return np.zeros((1, n_segments), dtype=np.bool_)


def single_deletions(n_segments: int) -> MaskArray:
    """One row per segment, that one removed ``(n_segments, n_segments)``."""
    return ~np.eye(n_segments, dtype=np.bool_)


def all_subsets(n_segments: int) -> MaskArray:
    """Every subset ``(2**n_segments, n_segments)``; row ``r`` keeps segment ``s`` when bit ``s`` of ``r`` is set.

    Raises
    ------
    ConfigurationError
        More than ``MAX_ENUMERATED`` segments.
    """
    if n_segments > MAX_ENUMERATED:
        raise ConfigurationError(
            f"{n_segments} segments have 2**{n_segments} subsets; enumerate at most {MAX_ENUMERATED}, or sample them"
        )
    rows = np.arange(2**n_segments)[:, None]
    return np.asarray((rows >> np.arange(n_segments)) & 1, dtype=np.bool_)


def drops_from_subsets(values: FloatArray, n_segments: int) -> FloatArray:
    """v(all) - v(all without s), ``(n_targets, n_segments)``, from the values of :func:`all_subsets`."""
    everything = 2**n_segments - 1
    without = [everything ^ (1 << segment) for segment in range(n_segments)]
    return np.asarray((values[everything] - values[without]).T, dtype=np.float64).reshape(values.shape[1], n_segments)
