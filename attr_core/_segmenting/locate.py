"""Where given texts stand in the messages: a ladder from exact to in part, longest first, or not at all.

``exact``, then ``escaped`` (as a JSON or Python string), then ``folded`` (other white space, case or Unicode form),
then ``partial``. The first rung on which a text stands decides.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple

from attr_core._segmenting.partial import FIRST_UNSPACED, Match, Seeds, Stretch, is_enough, is_one_word, matches
from attr_core._text.views import Span, View, fold, folded, plain, unescaped
from attr_core.types import Location

Rung = Literal["exact", "escaped", "folded", "partial"]
_LADDER: tuple[Rung, ...] = ("exact", "escaped", "folded", "partial")

MIN_FOLDED = 10
"""Characters below which a text is looked for only as it is written: ``US`` is not ``us``. Ideographs count twice."""

_LONGEST_INSIDE_A_WORD = 40
"""Characters from which a text that begins or ends inside a word was cut there by its chunker."""

_MOST_MISSES = 1000
"""Matches that begin or end in the midst of a folded letter; so many has only a text made to have them."""

_ESCAPE_LEVELS = 2
"""A tool's JSON may hold a string that is JSON itself."""

_WORD_END = re.compile(rf"[\W_{FIRST_UNSPACED}-\U0010ffff]")


class Found(NamedTuple):
    """Where a text stands, on which rung it was found, and the share of it that stands there."""

    location: Location
    rung: Rung
    coverage: float = 1.0


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


class Haystack:
    """A message's content and how it reads on each rung, made when first asked for.

    ``zone`` is the part in which texts are looked for before the rest: what a formatter made of the documents.
    """

    def __init__(self, content: str, *, message: int, rank: int, zone: Span | None = None) -> None:
        self.content = content
        self.message = message
        self.rank = rank
        self.zone = zone

    @cached_property
    def escaped(self) -> list[View]:
        views: list[View] = []
        for _ in range(_ESCAPE_LEVELS):
            view = unescaped(views[-1] if views else plain(self.content))
            if view is None:
                break
            views.append(view)
        return views

    @cached_property
    def folded(self) -> list[View]:
        return [folded(view) for view in (plain(self.content), *self.escaped)]

    def views(self, rung: Rung) -> list[View]:
        if rung == "exact":
            return [plain(self.content)]
        return self.escaped if rung == "escaped" else self.folded


def locate(
    texts: Iterable[str], haystacks: Sequence[Haystack], *, taken: Taken, query: str = "", asked: int = -1
) -> tuple[dict[str, list[Found]], Location | None]:
    """Find each text in the messages of lowest rank that hold it, and ``query`` in message ``asked``.

    Longest first, so that a short text is not found inside a long one or what is left of it: what a text covers is
    added to ``taken``, its copies in messages of higher rank included. Of two texts alike in length the query comes
    first, then the one on the better rung, then the earlier. A text without a letter or digit is not looked for.
    """
    folds = {text: fold(text) for text in texts if any(character.isalnum() for character in text)}
    rungs = {text: _best_rung(text, folds[text], haystacks) for text in folds}
    parts = _Parts(folds, [text for text, rung in rungs.items() if rung == "partial"], haystacks)
    order = [
        (parts.longest(text) if rung == "partial" else len(folds[text]), rung, text) for text, rung in rungs.items()
    ]
    found: dict[str, list[Found]] = {}
    question = None
    is_open, asks = bool(query), len(fold(query))
    for length, rung, text in sorted(order, key=lambda item: (-item[0], _LADDER.index(item[1]))):
        if is_open and length <= asks:
            question, is_open = _question(query, haystacks, asked, taken), False
        found[text] = parts.find(text, taken) if rung == "partial" else _find(text, folds[text], haystacks, taken)
        _take(text, found[text], haystacks, taken)
    if is_open:
        question = _question(query, haystacks, asked, taken)
    overlapped = [text for text, places in found.items() if not places and rungs[text] != "partial"]
    parts = _Parts(folds, overlapped, haystacks)  # what the longer ones left of them
    for text in overlapped:
        found[text] = parts.find(text, taken)
        _take(text, found[text], haystacks, taken)
    return {text: places for text, places in found.items() if places}, question


def mark_zone(context: str, haystacks: Sequence[Haystack]) -> None:
    """Have the zone of its message hold where ``context`` stands: what an application made of the documents."""
    context = context.strip()
    if context:
        for found in _find(context, fold(context), haystacks, Taken()):
            zoned = next(haystack for haystack in haystacks if haystack.message == found.location.message)
            start, end = zoned.zone or (found.location.start, found.location.end)
            zoned.zone = (min(start, found.location.start), max(end, found.location.end))


def occurrences(text: str, view: View, *, message: int, taken: Taken) -> Iterator[Location]:
    """Where ``text`` stands in ``view``, outside what is taken and, if short, not as a part of words, left to right."""
    content = view.text
    start, misses = content.find(text), 0
    while start >= 0:
        end = start + len(text)
        after = taken.clear_after(message, view.original(start, end))
        if after is not None:
            start = content.find(text, max(bisect_left(view.starts, after), start + 1))
        elif len(text) < _LONGEST_INSIDE_A_WORD and is_one_word(content[start - 1 : start], content[start]):
            next_word = _WORD_END.search(content, start + 1)
            start = content.find(text, next_word.start()) if next_word else -1
        elif len(text) < _LONGEST_INSIDE_A_WORD and is_one_word(content[end - 1], content[end : end + 1]):
            start = content.find(text, start + 1)
        elif not view.is_whole(start, end):
            misses += 1
            start = content.find(text, start + 1) if misses < _MOST_MISSES else -1
        else:
            yield Location(message, *view.original(start, end))
            start = content.find(text, end)


def _best_rung(text: str, folding: str, haystacks: Sequence[Haystack]) -> Rung:
    """The first rung on which the text stands anywhere; for one that stands nowhere in full ``partial``."""
    for rung, needle in _needles(text, folding):
        if any(needle in view.text for haystack in haystacks for view in haystack.views(rung)):
            return rung
    return "partial"


def _needles(text: str, folding: str) -> Iterator[tuple[Rung, str]]:
    yield "exact", text
    yield "escaped", text
    if len(folding) + sum(character >= FIRST_UNSPACED for character in folding) >= MIN_FOLDED:
        yield "folded", folding


def _find(text: str, folding: str, haystacks: Sequence[Haystack], taken: Taken) -> list[Found]:
    """All copies on the first rung of the lowest rank that has one; those in the zones, if any are."""
    for rank in sorted({haystack.rank for haystack in haystacks}):
        level = [haystack for haystack in haystacks if haystack.rank == rank]
        for rung, needle in _needles(text, folding):
            found = list(chain.from_iterable(_in_message(needle, rung, haystack, taken) for haystack in level))
            if found:
                zoned = [one for one in found if _in_zone(one.location, haystacks)]
                return zoned or found
    return []


def _in_message(needle: str, rung: Rung, haystack: Haystack, taken: Taken) -> list[Found]:
    for view in haystack.views(rung):
        found = [Found(place, rung) for place in occurrences(needle, view, message=haystack.message, taken=taken)]
        if found:
            return found
    return []


def _in_zone(place: Location, haystacks: Sequence[Haystack]) -> bool:
    zone = next(haystack.zone for haystack in haystacks if haystack.message == place.message)
    return zone is not None and zone[0] <= place.start and place.end <= zone[1]


def _take(text: str, found: Sequence[Found], haystacks: Sequence[Haystack], taken: Taken) -> None:
    """What was found is taken, and copies of it that are not the document."""
    for one in found:
        taken.add(one.location)
    for haystack in haystacks if found else ():
        for place in list(occurrences(text, plain(haystack.content), message=haystack.message, taken=taken)):
            taken.add(place)


def _question(query: str, haystacks: Sequence[Haystack], asked: int, taken: Taken) -> Location | None:
    """Where the query stands last in message ``asked``; it is taken from then on."""
    content = next((haystack.content for haystack in haystacks if haystack.message == asked), "")
    places = list(occurrences(query, plain(content), message=asked, taken=taken))
    if not places:
        return None
    taken.add(places[-1])
    return places[-1]


class _Parts:
    """Where parts of the texts stand that stand nowhere in full."""

    def __init__(self, folds: Mapping[str, str], lost: Sequence[str], haystacks: Sequence[Haystack]) -> None:
        self._folds = folds
        self._haystacks = haystacks
        self._stretches: dict[str, list[tuple[Haystack, View, list[Stretch]]]] = {text: [] for text in lost}
        if not lost:
            return
        # Texts that differ only in what is folded are one text here, and the earliest stands for all.
        first = {folding: text for text, folding in reversed([*folds.items()])}
        texts = list(first)
        views = [(haystack, view) for haystack in haystacks for view in haystack.folded]
        wanted = [number for number, folding in enumerate(texts) if first[folding] in self._stretches]
        seeds = Seeds(texts, (view.text for _, view in views), wanted=wanted)
        for haystack, view in views:
            for number, stretches in seeds.stretches(view.text).items():
                self._stretches[first[texts[number]]].append((haystack, view, stretches))

    def longest(self, text: str) -> int:
        """Characters of the longest part; 0 where none is long enough."""
        return max((match.matched for _, _, match in self._matches(text, Taken())), default=0)

    def find(self, text: str, taken: Taken) -> list[Found]:
        """The longest free part of those in messages of lowest rank, in the zones first."""
        free = [
            (haystack.rank, not _in_zone(place, self._haystacks), -match.matched, place)
            for haystack, view, match in self._matches(text, taken)
            for place in [Location(haystack.message, *view.original(match.start, match.end))]
        ]
        if not free:
            return []
        _, _, matched, place = min(free, key=lambda item: item[:3])
        return [Found(place, "partial", -matched / len(self._folds[text]))]

    def _matches(self, text: str, taken: Taken) -> Iterator[tuple[Haystack, View, Match]]:
        for haystack, view, stretches in self._stretches[text]:
            spans = [
                (bisect_left(view.ends, start + 1), bisect_left(view.starts, end))
                for start, end in taken.spans[haystack.message]
            ]
            for match in matches(stretches, view, taken=spans):
                if is_enough(match, self._folds[text], view):
                    yield haystack, view, match
