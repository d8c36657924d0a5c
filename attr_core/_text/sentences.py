"""A text -> the spans of its sentences and list items; code and tables stay whole.

Markdown is cut into blocks first, prose into sentences by the sentencex library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from attr_core._text.language import guess_language
from attr_core._text.views import Span

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

_ASIDE = re.compile(r"\([^()]{2,400}[.!?…][\"”’»]?\)(?=\s+\w)")
_DOTTED = re.compile(r"(?:^|[\s(\[])(?:[^\W\d_]{1,4}\.){2,}$")
_LONGEST_ABBREVIATION = 24
# What sentencex does not know: titles, and words that begin a sentence after a single letter and are nobody's surname.
_TITLES = {
    "fr": re.compile(r"(?:^|[\s('’])(?:MM?|Mmes?|Mlles?|Mgr|Cie)\.$"),
    "nl": re.compile(r"(?:^|[\s(])(?:Mevr|Mw|Dhr)\.$"),
}
_OPENERS = {
    language: re.compile(rf"(?<=\s[^\W\d_]\.)\s+(?=(?:{words})\b)")
    for language, words in {
        "de": "Es|Er|Sie|Das|Die|Der|Dies|Dieser|Diese|Dieses|Dann|Danach|Wir|Ich",
        "es": "Él|Ella|Ello|Esto|Este|Esta|Los|Las|Después|Luego",
        "it": "Il|Lo|Lui|Lei|Questo|Questa|Poi|Essi",
        "pt": "Ele|Ela|Isso|Isto|Este|Esta|Os|As|Depois",
    }.items()
}

# sentencex 1.0 panics on white space beyond ASCII after an initial and cannot take lone surrogates. One character
# stands for one, so the boundaries hold.
_PLAIN = {code: " " for code in range(0x80, 0x3001) if chr(code).isspace()} | dict.fromkeys(
    range(0xD800, 0xE000), "\ufffd"
)


class _Piece(NamedTuple):
    start: int
    end: int
    joins: Literal["next", "last", "none"]


class _Block(NamedTuple):
    start: int
    end: int
    kind: Literal["prose", "whole", "heading"]


def sentence_spans(text: str, language: str | None = None) -> list[Span]:
    """Cut a text that is not blank into sentences, list items, tables and code, as ``claims.split_claims`` says.

    Spans begin and end with something other than white space; between two there is nothing else.
    """
    return _joined(list(_pieces(text, language or guess_language(text))))


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

    prose = _ASIDE.sub(_without_brackets, text[start:end].translate(_PLAIN))
    cuts = [boundary["end_index"] for boundary in get_sentence_boundaries(language, prose)]
    if opener := _OPENERS.get(language):
        cuts += [match.end() for match in opener.finditer(prose)]
    ends: list[int] = []
    for position in sorted(cuts):
        cut = _after_closing_marks(text, start + position, end)
        cut -= text[cut - 1] in "(["  # blanked, and what it opens is the next sentence
        if (not ends or cut > ends[-1]) and not _is_abbreviation(prose, position, language):
            ends.append(cut)
    return [*ends, end] if not ends or ends[-1] < end else ends


def _without_brackets(aside: re.Match[str]) -> str:
    # The library takes no end inside brackets for a sentence's, nor that of "(It is so.) The end."
    says = aside[0][1:-1]
    return f" {says} " if aside.string[aside.end() :].lstrip()[:1].isupper() else aside[0]


def _is_abbreviation(prose: str, position: int, language: str) -> bool:
    """Whether the full stop before ``position`` belongs to a title or to a dotted word in the midst of a sentence."""
    before = prose[max(0, position - _LONGEST_ABBREVIATION) : position].rstrip()
    title = _TITLES.get(language)
    if title and title.search(before) and prose[position : position + 1].isupper():
        return True
    return _DOTTED.search(before) is not None and prose[position : position + 1].islower()


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
