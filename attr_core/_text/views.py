"""A text without escapes, or without differences of white space, case and Unicode form, and the way back."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

Span = tuple[int, int]
"""Half-open characters of one text."""

_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\"'\\/bfnrt])"
)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_STRETCH = re.compile(r"[!-~]+(?: [!-~]+)*(?![^\x00-\x7f\s])|\s+|[!-~]?[^\s!-~]+")


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """``text`` was made from an original whose characters ``starts[i]`` to ``ends[i]`` gave its character ``i``."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def original(self, start: int, end: int) -> Span:
        """Where ``text[start:end]`` came from."""
        return self.starts[start], self.ends[end - 1]

    def is_whole(self, start: int, end: int) -> bool:
        """Whether ``text[start:end]`` parts no original character: half of what ß folds to is not a text."""
        opens = start == 0 or self.starts[start] != self.starts[start - 1]
        return opens and (end == len(self.text) or self.starts[end] != self.starts[end - 1])


def plain(text: str) -> View:
    """A text as it is."""
    return View(text, range(len(text)), range(1, len(text) + 1))


def unescaped(view: View) -> View | None:
    r"""Without one level of JSON or Python string escapes (``\n``, ``\"``, ``\u00e9``); ``None`` where none are."""
    pieces: list[str] = []
    starts, ends, position = array("l"), array("l"), 0
    for match in _ESCAPE.finditer(view.text):
        begin, end = match.span()
        pieces += view.text[position:begin], _character(match.group())
        starts.extend(view.starts[position : begin + 1])
        ends.extend(view.ends[position:begin])
        ends.append(view.ends[end - 1])
        position = end
    if not pieces:
        return None
    pieces.append(view.text[position:])
    starts.extend(view.starts[position:])
    ends.extend(view.ends[position:])
    return View("".join(pieces), starts, ends)


def folded(view: View) -> View:
    """With white space as single spaces, without case, canonically decomposed, without invisible format characters."""
    pieces: list[str] = []
    starts, ends = array("l"), array("l")
    for match in _STRETCH.finditer(view.text):
        begin, end = match.span()
        stretch = match.group()
        if stretch[0].isspace():
            if pieces and pieces[-1] == " ":  # between them stood only invisible characters
                ends[-1] = view.ends[end - 1]
                continue
            pieces.append(" ")
            starts.append(view.starts[begin])
            ends.append(view.ends[end - 1])
        elif stretch.isascii():
            pieces.append(stretch.lower())
            starts.extend(view.starts[begin:end])
            ends.extend(view.ends[begin:end])
        else:
            while begin < end:
                after = _end_of_marks(view.text, begin + 1, end)
                if letters := _folded_letter(view.text[begin:after]):
                    pieces.append(letters)
                for _ in letters:
                    starts.append(view.starts[begin])
                    ends.append(view.ends[after - 1])
                begin = after
    return View("".join(pieces), starts, ends)


def fold(text: str) -> str:
    """What :func:`folded` makes of a text, without white space at its ends."""
    return folded(plain(text)).text.strip()


def gaps(length: int, spans: Iterable[Span]) -> list[Span]:
    """What ``spans`` leave of ``length`` characters."""
    left, position = [], 0
    for start, end in sorted(spans):
        if start > position:
            left.append((position, min(start, length)))
        position = max(position, end)
        if position >= length:
            return left
    return [*left, (position, length)] if position < length else left


def _end_of_marks(text: str, start: int, end: int) -> int:
    """Where the marks end that belong to the character before ``start``, invisible characters among them included."""
    after = start
    for position in range(start, end):
        if unicodedata.combining(text[position]):
            after = position + 1
        elif unicodedata.category(text[position]) != "Cf":
            break
    return after


@lru_cache(maxsize=1 << 14)
def _folded_letter(letter: str) -> str:
    """A character with its marks; these are put in the one order that Unicode gives them."""
    letter = "".join(character for character in letter if unicodedata.category(character) != "Cf")
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", letter).casefold())


def _character(escape: str) -> str:
    kind = escape[1]
    if kind in "ux":
        codes = [int(code, 16) for code in re.findall(r"[0-9a-fA-F]{2,4}", escape)]
        if len(codes) == 2:
            return chr(0x10000 + ((codes[0] - 0xD800) << 10) + codes[1] - 0xDC00)
        return chr(codes[0])
    return _ESCAPED.get(kind, kind)
