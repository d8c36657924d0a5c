"""Where given texts stand in the messages: by exact match, longest first, or not at all."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from attr_core.types import Location

Span = tuple[int, int]
"""Half-open characters of one message's content."""

_FIRST_UNSPACED = 0x0E00
"""From Thai on, most scripts put no space between words, so a match inside a run of letters is an honest one."""


@dataclass(slots=True)
class Taken:
    """Characters that belong to something already; spans never overlap."""

    spans: defaultdict[int, list[Span]] = field(default_factory=lambda: defaultdict(list))

    def add(self, location: Location) -> None:
        insort(self.spans[location.message], (location.start, location.end))

    def clear_after(self, message: int, span: Span) -> int | None:
        """``None`` where ``span`` is free, else the end of the last taken span that it touches."""
        spans = self.spans[message]
        before = bisect_left(spans, (span[1], -1)) - 1
        return spans[before][1] if before >= 0 and spans[before][1] > span[0] else None


def locate(
    texts: Iterable[str], contents: Sequence[str], *, ranks: Sequence[int | None], taken: Taken
) -> dict[str, tuple[Location, ...]]:
    """Find each text in the messages of lowest rank that hold it; ``None`` in ``ranks`` bars a message.

    Longest first, so that a short text is not found inside a long one: what a text covers is added to ``taken``, its
    copies in messages of higher rank included. A text without a letter or digit is not looked for.
    """
    found: dict[str, tuple[Location, ...]] = {}
    for text in sorted(dict.fromkeys(texts), key=len, reverse=True):
        if not any(character.isalnum() for character in text):
            continue
        everywhere = [
            (rank, location)
            for message, rank in enumerate(ranks)
            if rank is not None
            for location in occurrences(text, contents[message], message=message, taken=taken)
        ]
        for _, location in everywhere:
            taken.add(location)
        if everywhere:
            best = min(rank for rank, _ in everywhere)
            found[text] = tuple(location for rank, location in everywhere if rank == best)
    return found


def occurrences(text: str, content: str, *, message: int, taken: Taken) -> Iterator[Location]:
    """Where ``text`` stands in ``content``, outside what is taken and not as a part of words, left to right."""
    start = content.find(text)
    while start >= 0:
        end = start + len(text)
        after = taken.clear_after(message, (start, end))
        if after is not None:
            start = content.find(text, max(after, start + 1))
        elif _inside_a_word(content, start, end):
            start = content.find(text, start + 1)
        else:
            yield Location(message, start, end)
            start = content.find(text, end)


def gaps(length: int, spans: Iterable[Span]) -> list[Span]:
    """What ``spans`` leave of ``length`` characters."""
    left, position = [], 0
    for start, end in sorted(spans):
        if start > position:
            left.append((position, start))
        position = max(position, end)
    return [*left, (position, length)] if position < length else left


def _inside_a_word(content: str, start: int, end: int) -> bool:
    return _one_word(content[start - 1 : start], content[start]) or _one_word(content[end - 1], content[end : end + 1])


def _one_word(left: str, right: str) -> bool:
    if not left or not right or max(left, right) >= chr(_FIRST_UNSPACED):
        return bool(right) and unicodedata.combining(right) > 0
    return left.isalnum() and (right.isalnum() or unicodedata.combining(right) > 0)
