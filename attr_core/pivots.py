"""Pivots: the phrases of a claim whose log-probability the context changes most."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attr_core.results import FloatArray
from attr_core.types import Claim, Target, TargetKind

__all__ = ["MAX_PIVOTS", "MIN_SHARE", "find_pivots", "tokens_in"]

MAX_PIVOTS = 3
"""Most pivots of one claim."""

MIN_SHARE = 0.25
"""A pivot's change is at least this share of the largest change in its claim."""

# A number with its separators, sign and percent; or a word with inner apostrophes and hyphens. One ideograph or kana is
# a word of its own, since those scripts write no spaces.
_WORD = re.compile(
    r"[+\-−$€£¥]?\d+(?:[.,:/\-–]\d+)*%?"
    r"|[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
    r"|[^\W\d_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+(?:['’\-][^\W\d_]+)*"
)


def find_pivots(
    response: str,
    claims: Sequence[Claim],
    offsets: NDArray[np.int64],
    full: FloatArray,
    closed_book: FloatArray,
    *,
    floor: float = 1.0,
) -> tuple[Target, ...]:
    """The phrases of each claim that the context decides.

    A phrase is a number, a word, or a name (capitalised words side by side). Its change is the sum over its tokens of
    log-probability with the full context minus closed book, in nats. A claim's pivots are the phrases whose change is
    at least ``floor`` and ``MIN_SHARE`` of the claim's largest, at most ``MAX_PIVOTS``, in the order of the text. No
    pivot means that the context changes none of the claim's words. Costs nothing: both rows are measured anyway.

    Parameters
    ----------
    response : str
    claims : sequence of Claim
    offsets : array, shape (n_tokens, 2)
        Half-open characters of each token.
    full, closed_book : array, shape (n_tokens,)
        Log-probabilities with every segment and with none.
    """
    change = full - closed_book
    pivots: list[Target] = []
    for claim in claims:
        spans = _phrases(response, claim)
        sizes = [abs(float(change[tokens_in(offsets, start, end)].sum())) for start, end in spans]
        bar = max(floor, MIN_SHARE * max(sizes, default=0.0))
        largest = sorted((i for i, size in enumerate(sizes) if size >= bar), key=lambda i: -sizes[i])[:MAX_PIVOTS]
        for start, end in sorted(spans[i] for i in largest):
            pivots.append(Target(TargetKind.PIVOT, start, end, response[start:end], claim.index))
    return tuple(pivots)


def tokens_in(offsets: NDArray[np.int64], start: int, end: int) -> NDArray[np.bool_]:
    """Which tokens share a character with ``[start, end)``."""
    return np.asarray((offsets[:, 0] < end) & (offsets[:, 1] > start), dtype=np.bool_)


def _phrases(response: str, claim: Claim) -> list[tuple[int, int]]:
    phrases: list[tuple[int, int]] = []
    for match in _WORD.finditer(response, claim.start, claim.end):
        start, end = match.span()
        if phrases and _is_name(response, *phrases[-1]) and _is_name(response, start, end):
            previous_start, previous_end = phrases[-1]
            if response[previous_end:start] in (" ", "\u00a0", ". ") and not _opens(claim, previous_start):
                phrases[-1] = (previous_start, end)
                continue
        phrases.append((start, end))
    return phrases


def _is_name(response: str, start: int, end: int) -> bool:
    return response[start:end][0].isupper()


def _opens(claim: Claim, start: int) -> bool:
    # The capital of a claim's first word says nothing about whether it is a name.
    return start == claim.start
