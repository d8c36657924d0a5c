"""Numbers in English words -> their values.

Written here since none of the libraries does all of it: years (``nineteen eighty-four``), halves, ``1.2 million``. Of
those, text2num is kept, but brings a compiled module and reads these three otherwise.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

__all__ = ["SCALES", "Spelled", "begins_number", "spelled_number"]

SCALES = {
    "hundred": 100,
    "thousand": 1_000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
}
_BIG = {word: value for word, value in SCALES.items() if word not in ("hundred", "dozen")}
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()  # noqa: SIM905
_ONES += ["seventeen", "eighteen", "nineteen"]
_TENS = dict(
    zip("twenty thirty forty fifty sixty seventy eighty ninety".split(), range(20, 100, 10), strict=True)  # noqa: SIM905
)
_CARDINALS = {word: value for value, word in enumerate(_ONES)} | _TENS
_ORDINALS = {
    "first": 1,
    "second": 2,
    "third": 3,
    "fifth": 5,
    "eighth": 8,
    "ninth": 9,
    "twelfth": 12,
    **{f"{word}th": value for word, value in _CARDINALS.items() if value in {4, 6, 7, 10, 11, *range(13, 20)}},
    **{f"{word[:-1]}ieth": value for word, value in _TENS.items()},
}
_BIG_ORDINALS = {f"{word}th": value for word, value in _BIG.items()}
_FRACTIONS = {"half": 2, "quarter": 4, **{word: value for word, value in _ORDINALS.items() if 3 <= value <= 10}}
_PLURALS = {"halves": 2, **{f"{word}s": value for word, value in _FRACTIONS.items() if word != "half"}}
_STARTS = {*_CARDINALS, *_ORDINALS}
_KNOWN = {*_STARTS, *SCALES, *_BIG_ORDINALS, *_FRACTIONS, *_PLURALS, "a", "and", "oh", "o", "point", "hundredth"}

_WORD = re.compile(r"(?P<joint>[ -]*)(?P<word>[A-Za-z]+)(?![^\W_])")
_JOINTS = {"", " ", "-"}
_LONGEST = 32
"""Words of one number that are looked at."""


class Spelled(NamedTuple):
    """A number in words that ends before character ``end`` of its text."""

    value: Fraction
    end: int
    is_ordinal: bool = False
    n_words: int = 1


class _Part(NamedTuple):
    value: int
    after: int
    is_ordinal: bool = False


class _Words(NamedTuple):
    words: list[str]
    joints: list[str]
    ends: list[int]

    def at(self, index: int) -> str:
        return self.words[index] if index < len(self.words) else ""


def begins_number(word: str) -> bool:
    """Whether a number can begin with this word, in lower case; ``a`` can (``a hundred``)."""
    return word in _STARTS or word == "a"


def spelled_number(text: str, start: int) -> Spelled | None:
    """The longest number in words that begins at ``start``, if any.

    Examples
    --------
    >>> [str(spelled_number(text, 0).value) for text in ("two and a half", "nineteen eighty-four", "a dozen")]
    ['5/2', '1984', '12']
    """
    words = _words(text, start)
    found = _year(words) or _whole(words)
    if found is None:
        return None
    if found.is_ordinal:
        return Spelled(Fraction(found.value), words.ends[found.after - 1], True, found.after)
    value, after = _fraction(words, found)
    if value is None:
        value, after = _with_rest(words, found)
    return Spelled(value, words.ends[after - 1], False, after)


def _words(text: str, start: int) -> _Words:
    found = _Words([], [], [])
    position = start
    while len(found.words) < _LONGEST and (match := _WORD.match(text, position)) and match["joint"] in _JOINTS:
        if (word := match["word"].lower()) not in _KNOWN:
            break
        found.words.append(word)
        found.joints.append(match["joint"])
        found.ends.append(match.end())
        position = match.end()
    return found


def _year(words: _Words) -> _Part | None:
    """Nineteen eighty-four, twenty twenty, nineteen oh five."""
    century = _small(words, 0)
    if century is None or century.is_ordinal or not 13 <= century.value <= 20:
        return None
    if words.at(century.after) in ("oh", "o") and 1 <= _CARDINALS.get(words.at(century.after + 1), 0) <= 9:
        return _Part(century.value * 100 + _CARDINALS[words.words[century.after + 1]], century.after + 2)
    rest = _small(words, century.after)
    if rest is None or rest.is_ordinal or rest.value < 10 or words.at(rest.after) in SCALES:
        return None
    return _Part(century.value * 100 + rest.value, rest.after)


def _whole(words: _Words) -> _Part | None:
    """Groups of hundreds with falling scales."""
    total, after, limit = 0, 0, 10**15
    while group := _group(words, after + (after > 0 and words.at(after) == "and"), is_first=after == 0):
        scale = words.at(group.after)
        if not group.is_ordinal and _BIG.get(scale, limit) < limit:
            limit = _BIG[scale]
            total, after = total + group.value * limit, group.after + 1
        elif not group.is_ordinal and _BIG_ORDINALS.get(scale, limit) < limit:
            return _Part(total + group.value * _BIG_ORDINALS[scale], group.after + 1, True)
        elif scale in _BIG or group.value >= limit or (after > 0 and limit == 10**15):
            break
        else:
            return _Part(total + group.value, group.after, group.is_ordinal)
    return _Part(total, after) if after else None


def _group(words: _Words, index: int, *, is_first: bool) -> _Part | None:
    """Below a thousand, or so many hundreds (``nineteen hundred``)."""
    if is_first and words.at(index) == "a" and words.at(index + 1) in SCALES:
        if words.at(index + 1) == "dozen":
            return _Part(12, index + 2)
        found = _Part(1, index + 1)
    else:
        small = _small(words, index)
        if small is None:
            return None
        found = small
    if found.is_ordinal:
        return found
    if words.at(found.after) == "dozen":
        return _Part(found.value * 12, found.after + 1)
    if words.at(found.after) == "hundredth":
        return _Part(found.value * 100, found.after + 1, True)
    if words.at(found.after) != "hundred":
        return found
    hundreds = _Part(found.value * 100, found.after + 1)
    rest = _small(words, hundreds.after + (words.at(hundreds.after) == "and"))
    if rest is None or not rest.value or words.at(rest.after) in ("hundred", "dozen"):
        return hundreds
    return _Part(hundreds.value + rest.value, rest.after, rest.is_ordinal)


def _small(words: _Words, index: int) -> _Part | None:
    """Below a hundred."""
    word, following = words.at(index), words.at(index + 1)
    if word in _ORDINALS:
        return _Part(_ORDINALS[word], index + 1, True)
    if word not in _CARDINALS:
        return None
    if word in _TENS:
        if 1 <= _CARDINALS.get(following, 0) <= 9:
            return _Part(_TENS[word] + _CARDINALS[following], index + 2)
        # "Thirty second" is a span of time, "thirty-second" a place.
        is_place = following != "second" or words.joints[index + 1] == "-"
        if is_place and 1 <= _ORDINALS.get(following, 0) <= 9:
            return _Part(_TENS[word] + _ORDINALS[following], index + 2, True)
    return _Part(_CARDINALS[word], index + 1)


def _fraction(words: _Words, found: _Part) -> tuple[Fraction | None, int]:
    """Two thirds, one half."""
    if words.at(0) == "a":
        return None, 0
    parts = (_FRACTIONS if found.value == 1 else _PLURALS).get(words.at(found.after))
    return (None, 0) if parts is None else (Fraction(found.value, parts), found.after + 1)


def _with_rest(words: _Words, found: _Part) -> tuple[Fraction, int]:
    """Two and a half million, three point one four."""
    value, after = Fraction(found.value), found.after
    if words.at(after) == "point":
        digits: list[str] = []
        while (digit := _CARDINALS.get(words.at(after + 1 + len(digits)), 10)) < 10:
            digits.append(str(digit))
        value += Fraction(int("".join(digits) or "0"), 10 ** len(digits))
        after += 1 + len(digits) if digits else 0
    elif words.words[after : after + 2] == ["and", "a"] and words.at(after + 2) in ("half", "quarter"):
        value += Fraction(1, _FRACTIONS[words.words[after + 2]])
        after += 3
    if after > found.after and words.at(after) in SCALES:
        return value * SCALES[words.at(after)], after + 1
    return value, after
