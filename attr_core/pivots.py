"""Pivots: the phrases of a claim whose log-probability the context changes most."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attr_core._text.language import guess_language
from attr_core._text.phrases import Phrase, phrases
from attr_core.results import FloatArray
from attr_core.types import Claim, Target, TargetKind

__all__ = ["MAX_PIVOTS", "MIN_SHARE", "find_pivots", "tokens_in"]

MAX_PIVOTS = 3
"""Most pivots of one claim."""

MIN_SHARE = 0.25
"""A pivot's change is at least this share of the largest change in its claim."""

TOGETHER = 0.25
"""Neighbouring parts whose changes point the same way and are at least this share of the larger one are one phrase."""


def find_pivots(
    response: str,
    claims: Sequence[Claim],
    offsets: NDArray[np.int64],
    full: FloatArray,
    closed_book: FloatArray,
    *,
    ablated: FloatArray | None = None,
    floor: float = 1.0,
) -> tuple[Target, ...]:
    """The phrases of each claim that the context decides.

    A phrase is a number, a negation or a name, each whole, or another word; :mod:`attr_core._text.phrases` has the
    rules. Where a script writes no spaces or no capitals, neighbouring characters or words that change together are one
    phrase. Its change, in nats, is that of its log-probability (summed over its tokens) from closed book to the full
    context, or twice its standard deviation over the ablations where that is more: two segments that pull a phrase
    apart leave its sum alone. A claim's pivots are the phrases whose change is at least ``floor``; numbers
    come before other phrases, which must also reach ``MIN_SHARE`` of the claim's largest change; at most
    ``MAX_PIVOTS``, in the order of the text. No pivot means that the context changes none of the claim's words. Costs
    nothing: all of it is measured anyway.

    Parameters
    ----------
    response : str
    claims : sequence of Claim
    offsets : array, shape (n_tokens, 2)
        Half-open characters of each token.
    full, closed_book : array, shape (n_tokens,)
        Log-probabilities with every segment and with none.
    ablated : array, shape (n_masks, n_tokens), optional
        Log-probabilities under random ablations.
    floor : float, default 1.0
        The smallest change worth naming, in nats.
    """
    change = full - closed_book
    language = guess_language(response)
    pivots: list[Target] = []
    for claim in claims:
        spans = _together(response, phrases(response, claim.start, claim.end, language=language), offsets, change)
        sizes = [_size(span, offsets, change, ablated) for span in spans]
        bar = max(floor, MIN_SHARE * max(sizes, default=0.0))
        is_number = [any(char.isdigit() for char in response[span.start : span.end]) for span in spans]
        passing = [i for i, size in enumerate(sizes) if size >= (floor if is_number[i] else bar)]
        leading = sorted(passing, key=lambda i: (not is_number[i], -sizes[i]))[:MAX_PIVOTS]
        for start, end, _ in sorted(spans[i] for i in leading):
            pivots.append(Target(TargetKind.PIVOT, start, end, response[start:end], claim.index))
    return tuple(pivots)


def tokens_in(offsets: NDArray[np.int64], start: int, end: int) -> NDArray[np.bool_]:
    """Which tokens share a character with ``[start, end)``."""
    return np.asarray((offsets[:, 0] < end) & (offsets[:, 1] > start), dtype=np.bool_)


def _size(span: Phrase, offsets: NDArray[np.int64], change: FloatArray, ablated: FloatArray | None) -> float:
    inside = tokens_in(offsets, span.start, span.end)
    size = abs(float(change[inside].sum()))
    if ablated is None or not len(ablated):
        return size
    return max(size, 2 * float(ablated[:, inside].sum(axis=1).std()))


def _change(span: Phrase, offsets: NDArray[np.int64], change: FloatArray) -> float:
    return float(change[tokens_in(offsets, span.start, span.end)].sum())


def _together(response: str, spans: Sequence[Phrase], offsets: NDArray[np.int64], change: FloatArray) -> list[Phrase]:
    """The phrases, with neighbouring parts put together where they share a token or change together."""
    found: list[Phrase] = []
    smallest = largest = 0.0  # changes among the parts of the last phrase found, by size
    for span in spans:
        size = _change(span, offsets, change)
        if found and span.is_part and found[-1].is_part and response[found[-1].end : span.start] in ("", " "):
            last = found[-1]
            share_a_token = bool((tokens_in(offsets, *last[:2]) & tokens_in(offsets, *span[:2])).any())
            low, high = sorted((abs(smallest), abs(largest), abs(size)))[::2]
            if share_a_token or (size * largest > 0 and low >= TOGETHER * high):
                found[-1] = Phrase(last.start, span.end, is_part=True)
                if not share_a_token:
                    smallest, largest = math.copysign(low, size), math.copysign(high, size)
                continue
        found.append(span)
        smallest = largest = size
    return found
