"""Whether what an engine gave can be a measurement; what cannot is refused, since the cache would keep it for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from attr_core.protocols import Completion, GateScores, TokenScores
from attr_core.results import FloatArray

__all__ = ["in_completions", "in_gates", "in_scores", "in_vectors", "is_count", "rows"]

TOLERANCE = 1e-6
"""By how much a log-probability may exceed 0, as rounding does."""


def is_count(told: Any) -> TypeGuard[int]:
    """Whether what a server says of its tokens can be true."""
    return isinstance(told, int) and not isinstance(told, bool) and told >= 0


def rows(vectors: Any) -> list[FloatArray]:
    """Vectors one by one; what is none becomes an empty one, which is refused."""
    try:
        return [np.asarray(one, dtype=np.float64) for one in vectors]
    except (TypeError, ValueError):
        return []


def in_vectors(answers: Sequence[Any]) -> str | None:
    sizes = {np.shape(one) for one in answers}
    if len(sizes) > 1 or any(len(size) != 1 or not size[0] for size in sizes):
        return "gave something else than vectors of one length"
    return None if all(np.isfinite(one).all() for one in answers) else "gave a vector that is not finite"


def in_completions(answers: Sequence[Any]) -> str | None:
    if not all(isinstance(one, Completion) and isinstance(one.text, str) for one in answers):
        return "gave something else than completions"
    return None


def in_scores(answers: Sequence[Any]) -> str | None:
    if not all(isinstance(one, TokenScores) for one in answers):
        return "gave something else than token scores"
    if any(not np.isfinite(one.logprobs).all() or (one.logprobs > TOLERANCE).any() for one in answers):
        return "gave a log-probability that is not finite, or above 0"
    if len({len(one.logprobs) for one in answers}) > 1:
        return "tokenised one continuation in two ways"
    return None


def in_gates(answers: Sequence[Any], shape: tuple[int, int]) -> str | None:
    if not all(isinstance(one, GateScores) for one in answers):
        return "gave something else than targets at gates"
    if any(one.gradients.shape != shape for one in answers):
        return "gave gradients of another shape than asked for"
    if not all(np.isfinite([*one.log_odds, *one.gradients.flat]).all() for one in answers):
        return "gave log-odds or a gradient that is not finite"
    return None
