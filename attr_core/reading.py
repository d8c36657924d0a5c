"""How a target is read off token log-probabilities: the sum over its tokens, as log-odds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import InputError
from attr_core.pivots import tokens_in
from attr_core.results import FloatArray, MaskArray
from attr_core.types import Target

__all__ = ["LOG_PROBABILITY_CEILING", "log_odds", "log_odds_slope", "tokens_of"]

LOG_PROBABILITY_CEILING = -1e-7
"""Log-probabilities above this are not told apart from certainty: log-odds end at 16.1 nats, where float32 does."""


def log_odds(logprob: FloatArray) -> FloatArray:
    """log p - log(1 - p), in nats, from log p; at most 16.1 (see ``LOG_PROBABILITY_CEILING``)."""
    capped = np.minimum(np.asarray(logprob, dtype=np.float64), LOG_PROBABILITY_CEILING)
    return np.asarray(capped - np.log(-np.expm1(capped)), dtype=np.float64)


def log_odds_slope(logprob: FloatArray) -> FloatArray:
    """The derivative of :func:`log_odds` by log p, 1 / (1 - p); 0 above the cap."""
    given = np.asarray(logprob, dtype=np.float64)
    capped = np.minimum(given, LOG_PROBABILITY_CEILING)
    return np.asarray(np.where(given > LOG_PROBABILITY_CEILING, 0.0, -1 / np.expm1(capped)), dtype=np.float64)


def tokens_of(target: Target, offsets: NDArray[np.int64], *, begins: int = 0) -> MaskArray:
    """Which tokens ``(n_tokens,)`` of a continuation are a target's: those that share a character with its span.

    Parameters
    ----------
    target : Target
    offsets : array, shape (n_tokens, 2)
        Half-open characters of each token, counted in the continuation.
    begins : int, default 0
        Where in the target's text the continuation begins.

    Raises
    ------
    InputError
        There is none.
    """
    inside = tokens_in(offsets, target.start - begins, target.end - begins)
    if not inside.any():
        raise InputError(f"no token of the response lies in {target.text!r}; name other text")
    return inside
