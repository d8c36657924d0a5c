"""A response -> its claims: sentences and list items with exact spans.

Markdown is cut into blocks first (fenced code and tables stay whole), prose into sentences by the sentencex library.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from attr_core.errors import InputError
from attr_core.types import Claim

__all__ = ["split_claims"]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})")
_TABLE_RULE = re.compile(r"(?=[^\n]*\|)[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?\s*")
_HEADING = re.compile(r"[ \t>]*#{1,6}(?:[ \t]|\s*$)|[ \t]*(\*\*|__)[^*_\n]{1,80}(?::\1|\1:)\s*$")
_ITEM = re.compile(
    r"[ \t>]*(?:"
    r"[-*+•‣◦▪●○■□–—・][ \t]+(?:\[[ xX]\][ \t]+)?"  # a bullet, perhaps with a check box
    r"|[(（]?(?:\d{1,3}|[a-z]|[ivx]{1,4})(?:[.)][ \t]+|[、．）][ \t]*)"
    r"|[①-⑳][ \t]*)"
)
_CITATION = r"\[\^?\d[\d, -]{0,11}\](?!\()"
_CLOSING = re.compile(rf"(?:[)\]}}»”’」』）】》]|{_CITATION})+")
_CLOSING_AT_GAP = re.compile(rf"(?:[*_~`\"')\]}}»”’」』）】》]|{_CITATION})+(?=\s|\Z)")
_CITATION_AFTER_SPACE = re.compile(rf"[ \t]+(?:{_CITATION})+(?=\s|\Z)")

# sentencex 1.0 panics on white space beyond ASCII after an initial and cannot take lone surrogates. One character
# stands for one, so the boundaries hold.
_PLAIN = {code: " " for code in range(0x80, 0x3001) if chr(code).isspace()} | dict.fromkeys(
    range(0xD800, 0xE000), "\ufffd"
)

_LANGUAGES = {
    "ARABIC": "ar",
    "ARMENIAN": "hy",
    "BENGALI": "bn",
    "CJK": "zh",
    "CYRILLIC": "ru",
    "DEVANAGARI": "hi",
    "ETHIOPIC": "am",
    "GREEK": "el",
    "HANGUL": "ko",
    "HEBREW": "he",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "MYANMAR": "my",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
}
_SAMPLE = 4000
"""Characters that decide on the language."""


class _Piece(NamedTuple):
    start: int
    end: int
    joins: Literal["next", "last", "none"]


class _Block(NamedTuple):
    start: int
    end: int
    kind: Literal["prose", "whole", "heading"]


def split_claims(response: str, *, language: str | None = None) -> tuple[Claim, ...]:
    """Cut a response into claims, in order.

    A claim is a sentence; a list item is cut like prose and its marker belongs to its first claim. A fenced code block
    or a Markdown table is one claim. A heading belongs to the claim after it, a piece without a letter or digit (a
    rule, an emoji) to the one before it, so that neither is ever judged alone. Every character is in a claim or is
    white space between two.

    Parameters
    ----------
    response : str
        The model's answer.
    language : str, optional
        ISO 639 code for the sentence rules, which know its abbreviations; by default the one that the response's script
        suggests (English for Latin script).

    Returns
    -------
    tuple of Claim
        At least one; ``response[claim.start:claim.end] == claim.text``, without white space at either end.

    Raises
    ------
    InputError
        The response is empty or only white space.

    Examples
    --------
    >>> [claim.text for claim in split_claims("Dr. Smith paid $3.50. He left.")]
    ['Dr. Smith paid $3.50.', 'He left.']
    """
    if not response.strip():
        raise InputError("the response is empty; give the text that the model answered")
    language = language or _language(response)
    spans = _joined(list(_pieces(response, language)))
    return tuple(Claim(index, start, end, response[start:end]) for index, (start, end) in enumerate(spans))


def _pieces(text: str, language: str) -> Iterator[_Piece]:
    for block in _blocks(text):
        body, cuts = block.start, [block.end]
        if block.kind == "prose":
            marker = _ITEM.match(text, block.start, block.end)
            body = marker.end() if marker else block.start
            cuts = _sentence_ends(text, body, block.end, language)
        start = block.start
        for end in cuts:
            if piece := text[start:end].strip():
                first = text.index(piece[0], start)
                says_something = any(character.isalnum() for character in text[max(body, start) : end])
                joins: Literal["next", "last", "none"] = "none" if says_something else "last"
                yield _Piece(first, first + len(piece), "next" if block.kind == "heading" else joins)
            start = end


def _sentence_ends(text: str, start: int, end: int, language: str) -> list[int]:
    """The ends of the sentences in ``text[start:end]``; the last one is ``end``."""
    from sentencex import get_sentence_boundaries

    ends: list[int] = []
    for boundary in get_sentence_boundaries(language, text[start:end].translate(_PLAIN)):
        cut = _after_closing_marks(text, start + boundary["end_index"], end)
        if not ends or cut > ends[-1]:
            ends.append(cut)
    return ends or [end]


def _after_closing_marks(text: str, cut: int, end: int) -> int:
    """A closing quote, bracket, emphasis or citation belongs to the sentence that it follows."""
    if text[cut - 1].isspace():
        closed = _CITATION_AFTER_SPACE.match(text, cut - 1, end)
    else:
        closed = _CLOSING_AT_GAP.match(text, cut, end) or _CLOSING.match(text, cut, end)
    return closed.end() if closed else cut


def _blocks(text: str) -> Iterator[_Block]:
    """Paragraphs and list items (prose), fenced code and tables (whole), headings."""
    lines = [match.span() for match in _LINE.finditer(text)]
    start: int | None = None
    row = 0
    while row < len(lines):
        begin, end = lines[row]
        last = _last_row(text, lines, row)
        is_heading = last is None and _HEADING.match(text, begin, end) is not None
        is_blank = not text[begin:end].strip()
        if start is not None and (last is not None or is_heading or is_blank or _ITEM.match(text, begin, end)):
            yield _Block(start, begin, "prose")
            start = None
        if last is not None:
            yield _Block(begin, lines[last][1], "whole")
            row = last
        elif is_heading:
            yield _Block(begin, end, "heading")
        elif start is None and not is_blank:
            start = begin
        row += 1
    if start is not None:
        yield _Block(start, len(text), "prose")


def _last_row(text: str, lines: list[tuple[int, int]], row: int) -> int | None:
    """The last line of the fenced code or table that begins at ``row``, if one does."""
    fence = _FENCE.match(text, *lines[row])
    if fence:
        for later in range(row + 1, len(lines)):
            close = _FENCE.match(text, *lines[later])
            if close and close[1].startswith(fence[1]) and not text[close.end() : lines[later][1]].strip():
                return later
        return len(lines) - 1
    is_table = row + 1 < len(lines) and "|" in text[slice(*lines[row])] and _TABLE_RULE.fullmatch(text, *lines[row + 1])
    if not is_table:
        return None
    last = row + 1
    while last + 1 < len(lines) and "|" in text[slice(*lines[last + 1])]:
        last += 1
    return last


def _joined(pieces: list[_Piece]) -> list[tuple[int, int]]:
    """Spans of the claims; what joins the last piece and has none before it joins the next."""
    spans: list[tuple[int, int]] = []
    waiting: int | None = None
    for piece in pieces:
        if piece.joins == "none":
            spans.append((piece.start if waiting is None else waiting, piece.end))
            waiting = None
        elif piece.joins == "last" and spans and waiting is None:
            spans[-1] = (spans[-1][0], piece.end)
        elif waiting is None:
            waiting = piece.start
    if waiting is not None:
        spans.append((waiting, pieces[-1].end))
    return spans


def _language(text: str) -> str:
    """By the script of most letters; any kana makes Han characters Japanese."""
    names = (unicodedata.name(character, "") for character in text[:_SAMPLE] if character.isalpha())
    scripts = Counter(name.split("-")[0].split(" ")[0] for name in names)
    if not scripts:
        return "en"
    if scripts["CJK"]:
        kana = scripts["HIRAGANA"] + scripts["KATAKANA"]
        scripts["HIRAGANA" if kana else "CJK"] += scripts["CJK"] if kana else 0
    return _LANGUAGES.get(scripts.most_common(1)[0][0], "en")
