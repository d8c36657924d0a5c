"""The answer in runs of one look each: its claims, in them the pivots, and words tinted by what the context did."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from attr_core.attribution import Attribution
from attr_core.reports._html.claims import ShownClaim
from attr_core.types import TargetKind

RAISED = (0.5, 1.0, 2.0, 4.0)
LOWERED = (0.5, 2.0)
"""Nats of log-probability from which on a word has the next tint, where the context raised it and where it lowered it.

An e-fold is one nat.
"""

_WIDE = "\u2e80"
"""From here on, scripts that are written without blanks: each token is a word."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of the answer that looks the same: ``tint`` is a style's name, ``told`` the number behind it."""

    text: str
    tint: str
    told: str
    is_pivot: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What belongs to the same claims, by their numbers; to none where a judge or splitter found no claim."""

    numbers: tuple[int, ...]
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class _Word:
    start: int
    end: int
    value: float


def parts_of(answer: str, claims: Sequence[ShownClaim], attribution: Attribution | None) -> tuple[Part, ...]:
    """The whole answer, in order; of claims that overlap, the first has the text and the later only their numbers."""
    words = [] if attribution is None else list(words_of(attribution))
    pivots = [] if attribution is None else _pivots(attribution)
    parts, position = [], 0
    for span, numbers in _spans(claims):
        start, end = max(span[0], position), max(span[1], position)
        if start > position:
            parts.append(Part((), tuple(_runs(answer, (position, start), words, pivots))))
        parts.append(Part(numbers, tuple(_runs(answer, (start, end), words, pivots))))
        position = end
    if position < len(answer):
        parts.append(Part((), tuple(_runs(answer, (position, len(answer)), words, pivots))))
    return tuple(parts)


def words_of(attribution: Attribution) -> Iterator[_Word]:
    """Words with what the context adds to their log-probability; NaN where one of their tokens was not measured.

    A word's log-probability is the sum of its tokens', since it is the product of their probabilities.
    """
    text = attribution.response
    gains = attribution.token_full - attribution.token_closed_book
    if len(gains) != len(attribution.token_offsets):
        return
    held: _Word | None = None
    for (first, last), gain in zip(attribution.token_offsets.tolist(), gains.tolist(), strict=True):
        start, end = _trimmed(text, first, last)
        if start >= end:
            continue
        if held is not None and _continues(text, held.end, start):
            held = _Word(held.start, end, held.value + gain)
            continue
        if held is not None:
            yield held
        held = _Word(start, end, gain)
    if held is not None:
        yield held


def tint_of(value: float) -> str:
    """The name of a word's style; empty for one that the context hardly changed, or of which that is not known."""
    if math.isnan(value):
        return ""
    if value >= 0:
        return f"w{level}" if (level := bisect_right(RAISED, value)) else ""
    return f"x{level}" if (level := bisect_right(LOWERED, -value)) else ""


def _trimmed(text: str, start: int, end: int) -> Span:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _continues(text: str, end: int, start: int) -> bool:
    if start != end:
        return False
    before, after = text[end - 1], text[start]
    return before.isalnum() and after.isalnum() and before < _WIDE and after < _WIDE


def _spans(claims: Iterable[ShownClaim]) -> list[tuple[Span, tuple[int, ...]]]:
    numbers: dict[Span, list[int]] = {}
    for claim in claims:
        if claim.span is not None:
            numbers.setdefault(claim.span, []).append(claim.number)
    return [(span, tuple(found)) for span, found in sorted(numbers.items())]


def _pivots(attribution: Attribution) -> list[Span]:
    return sorted({(t.start, t.end) for t in attribution.targets if t.kind is TargetKind.PIVOT})


def _runs(answer: str, span: Span, words: Sequence[_Word], pivots: Sequence[Span]) -> Iterator[Run]:
    """The stretch cut at every edge of a tinted word or pivot."""
    start, end = span
    tinted = [word for word in words if word.start < end and word.end > start and tint_of(word.value)]
    marked = [pivot for pivot in pivots if pivot[0] < end and pivot[1] > start]
    edges = {start, end}
    for first, last in [*((word.start, word.end) for word in tinted), *marked]:
        edges |= {min(max(first, start), end), min(max(last, start), end)}
    cuts = sorted(edges)
    place = 0
    for first, last in pairwise(cuts):
        while place < len(tinted) and tinted[place].end <= first:
            place += 1
        word = tinted[place] if place < len(tinted) and tinted[place].start <= first else None
        is_pivot = any(begin <= first < stop for begin, stop in marked)
        tint, told = ("", "") if word is None else (tint_of(word.value), f"{word.value:+.2f} nats")
        yield Run(answer[first:last], tint, told, is_pivot)
