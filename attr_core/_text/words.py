"""A text -> its words, to be counted: without case and Unicode form, one by one where a script has no spaces."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Literal

from attr_core._text.views import fold

__all__ = ["words"]

_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR")
_INSIDE = {"'": str.isalpha, "’": str.isalpha, ".": str.isdigit, ",": str.isdigit}
"""What holds a word together, and between which characters: ``don't``, ``1,000.5``."""


def words(text: str) -> list[str]:
    """The words of a text, in order; a text of marks alone (an emoji, a rule) has each of these instead.

    Compatibility forms are one: ``ﬁ`` is ``fi`` and ``５`` is ``5``. In a script without spaces each character with its
    marks is a word.

    Examples
    --------
    >>> words("Don't pay $1,000!"), words("東京 is Tokyo"), words("👍")
    (["don't", 'pay', '1,000'], ['東', '京', 'is', 'tokyo'], ['👍'])
    """
    plain = fold(unicodedata.normalize("NFKC", text)).replace("’", "'")
    found: list[str] = []
    is_open = False  # whether the last word may go on
    for at, character in enumerate(plain):
        kind = _kind(character)
        if kind == "part" or (kind == "word" and not is_open):
            found.append(character)
            is_open = kind == "word"
        elif kind == "word" or (kind == "mark" and at and _kind(plain[at - 1])) or (is_open and _is_inside(plain, at)):
            found[-1] += character
        else:
            is_open = False
    return found or [character for character in plain if not character.isspace()]


def _is_inside(text: str, at: int) -> bool:
    """Whether a mark holds the word together that it stands in."""
    is_kind = _INSIDE.get(text[at])
    return is_kind is not None and at + 1 < len(text) and is_kind(text[at - 1]) and is_kind(text[at + 1])


@lru_cache(maxsize=1 << 14)
def _kind(character: str) -> Literal["word", "part", "mark", ""]:
    category = unicodedata.category(character)
    if category[0] == "M":
        return "mark"
    if category[0] not in "LN":
        return ""
    return "part" if unicodedata.name(character, "").startswith(_UNSPACED) else "word"
