"""What is left of texts that do not stand in a message in full: their longest stretches there, and how much they cover.

Every stretch of ``SEED`` folded characters that only one text holds is a seed. One pass through a message finds the
seeds and grows each to both sides, so the cost is linear in the message and the texts. Boilerplate that two texts share
holds no seed: it can complete a match and never makes one.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from attr_core._text.views import Span, View, gaps

MIN_LENGTH = 24
"""Characters of a text that must stand there; an ideograph or other letter of a script without spaces counts twice."""

MIN_SHARE = 0.1
"""Share of a text that must stand there, unless ``LONG`` characters do."""

LONG = 200
"""Characters that are a match whatever their share: a page cut to a paragraph."""

MAX_GAP = 24
"""Foreign characters between two stretches of one match: an ellipsis, a line's quotation mark, a changed word."""

SEED = 12
"""Length of a seed; half of it where most letters are of a script without spaces."""

FIRST_UNSPACED = "\u0e00"
"""From Thai on, most scripts put no space between words."""


class Stretch(NamedTuple):
    """``view.text[start:end]`` is what the text says from ``at`` on."""

    start: int
    end: int
    at: int


class Match(NamedTuple):
    """A part of a text: ``view.text[start:end]``, of which ``matched`` characters are the text's."""

    start: int
    end: int
    matched: int


class Seeds:
    """The seeds of folded texts that stand in any of ``hays``; only those of texts ``wanted`` are looked for."""

    def __init__(self, texts: Sequence[str], hays: Iterable[str], *, wanted: Iterable[int]) -> None:
        self._texts = texts
        hays = list(hays)
        lengths = {n: SEED // 2 if 2 * _unspaced(texts[n]) > len(texts[n]) else SEED for n in wanted}
        self._owners = {
            length: _owners(texts, hays, length, {number for number in lengths if lengths[number] == length})
            for length in set(lengths.values())
        }

    def stretches(self, hay: str) -> dict[int, list[Stretch]]:
        """Text -> where its parts stand in ``hay``, left to right; they never overlap."""
        found: dict[int, list[Stretch]] = defaultdict(list)
        for length, owners in self._owners.items():
            position = end = 0
            while position <= len(hay) - length:
                seed = owners.get(hay[position : position + length])
                if seed is None:
                    position += 1
                    continue
                number, at = seed
                text = self._texts[number]
                start = position - _common_behind(hay, position, text, at, most=position - end)
                stop = position + _common_ahead(hay, position, text, at)
                if _holds_enough_seeds(hay, start, stop, owners, length):
                    found[number].append(Stretch(start, stop, at - (position - start)))
                    position = end = stop
                else:  # perhaps the text says it twice, and goes on elsewhere
                    position += 1
        return found


def matches(stretches: Iterable[Stretch], view: View, *, taken: Sequence[Span]) -> Iterator[Match]:
    """Stretches of one text outside what is taken, joined over small gaps, trimmed to whole words of ``view``.

    ``taken`` holds spans of the view's text in order, none of which overlap.
    """
    chain: list[Stretch] = []
    for stretch in stretches:
        for start, end in gaps(stretch.end, [(0, stretch.start), *_touching(taken, stretch.start, stretch.end)]):
            piece = Stretch(start, end, stretch.at + start - stretch.start)
            if chain and not _continues(chain[-1], piece, taken):
                yield _trimmed(chain, view)
                chain = []
            twice = max(0, chain[-1].at + chain[-1].end - chain[-1].start - piece.at) if chain else 0
            chain.append(Stretch(start + twice, end, piece.at + twice))
    if chain:
        yield _trimmed(chain, view)


def is_enough(match: Match, text: str, view: View) -> bool:
    """Whether a match is too long to be chance."""
    said = view.text[match.start : match.end]
    is_long = match.matched + _unspaced(said) >= MIN_LENGTH and 2 * sum(map(str.isalnum, said)) >= match.matched
    return is_long and (match.matched >= MIN_SHARE * len(text) or match.matched >= LONG)


def is_one_word(left: str, right: str) -> bool:
    """Whether two neighbouring characters (or none) belong to the same word."""
    if not left or not right or max(left, right) >= FIRST_UNSPACED:
        return bool(right) and unicodedata.combining(right) > 0
    return left.isalnum() and (right.isalnum() or unicodedata.combining(right) > 0)


def _owners(texts: Sequence[str], hays: Iterable[str], length: int, wanted: set[int]) -> dict[str, tuple[int, int]]:
    """Seed -> the one text that holds it and where it first stands there."""
    present = {hay[at : at + length] for hay in hays for at in range(len(hay) - length + 1)}
    owners: dict[str, tuple[int, int]] = {}
    shared: set[str] = set()
    for number, text in enumerate(texts):
        for at in range(len(text) - length + 1):
            seed = text[at : at + length]
            if seed in present and owners.setdefault(seed, (number, at))[0] != number:
                shared.add(seed)
    return {seed: owner for seed, owner in owners.items() if owner[0] in wanted and seed not in shared}


def _holds_enough_seeds(hay: str, start: int, end: int, owners: Mapping[str, object], length: int) -> bool:
    # A seed may be shared text but for its last letter; as many as a seed is long are not.
    count = 0
    for position in range(start, end - length + 1):
        count += hay[position : position + length] in owners
        if count == length:
            return True
    return False


def _common_ahead(hay: str, position: int, text: str, at: int) -> int:
    most = min(len(hay) - position, len(text) - at)
    size, step = 0, SEED
    while size < most:
        step = min(step, most - size)
        ahead = size + step
        if hay[position + size : position + ahead] == text[at + size : at + ahead]:
            size, step = ahead, 2 * step
        elif step == 1:
            break
        else:
            step //= 2
    return size


def _common_behind(hay: str, position: int, text: str, at: int, *, most: int) -> int:
    most = min(most, at)
    size = 0
    while size < most and hay[position - size - 1] == text[at - size - 1]:
        size += 1
    return size


def _continues(last: Stretch, piece: Stretch, taken: Sequence[Span]) -> bool:
    # The space before a line's quotation mark and the one after it are one space of the text.
    is_near = piece.start - last.end <= MAX_GAP and piece.at + SEED >= last.at + last.end - last.start
    return is_near and not _touching(taken, last.end, piece.start)


def _touching(spans: Sequence[Span], start: int, end: int) -> Sequence[Span]:
    first = bisect_right(spans, start, key=itemgetter(1))
    return spans[first : bisect_left(spans, end, lo=first, key=itemgetter(0))]


def _trimmed(chain: Sequence[Stretch], view: View) -> Match:
    text, start, end = view.text, chain[0].start, chain[-1].end
    while start < end and (text[start].isspace() or not _may_cut(view, start)):
        start += 1
    while start < end and (text[end - 1].isspace() or not _may_cut(view, end)):
        end -= 1
    return Match(start, end, sum(max(0, min(piece.end, end) - max(piece.start, start)) for piece in chain))


def _may_cut(view: View, position: int) -> bool:
    text = view.text
    if is_one_word(text[position - 1 : position], text[position : position + 1]):
        return False
    return position in (0, len(text)) or view.starts[position] != view.starts[position - 1]


def _unspaced(text: str) -> int:
    return 0 if text.isascii() else sum(character >= FIRST_UNSPACED and character.isalnum() for character in text)
