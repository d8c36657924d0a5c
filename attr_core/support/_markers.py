"""Citation markers in an answer, by their form alone: which names and numbers they hold, and where they stand.

The rules, each of which can be checked by looking at the text.

1. Brackets hold numbers of one to three digits, single, in lists or ranges (``[1]``, ``[1, 2]``, ``[1-3]``, ``[^1]``,
   ``【1】``, ``[[1]]``, ``[Source 2]``), or names. A year (``[1997]``) is no number, nor is one in round brackets.
2. A link ``[text](url)``, a link ``[text][1]``, its definition ``[1]: url``, a check box, code, a value of JSON
   (``"ids": [1]``) and a row of a matrix (``[[1, 2], [3, 4]]``) are no citations.
3. Nor is an index: brackets right behind a single small letter, a name with ``_`` or dots between letters
   (``sys.argv``), a camelCase name or another index, or between a word and an equals sign or a method. Right behind
   other words (``in 1911[1]``) they are a citation.
4. ``<cite>`` holds the words that are cited for, unless these are a number or a name; what it cites is in its
   attributes. ``<cite id="c0"/>`` and one that is never closed stand behind what they are cited for.
5. Behind a heading such as *References* nothing is a citation at the beginning of a line.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from attr_core._text.views import Span

__all__ = ["Marker", "code_spans", "markers", "numbers_in"]

MAX_NUMBERS = 50
"""Numbers of one marker; a longer range or list is no citation."""

_BRACKET = re.compile(r"\[([^\[\]\n]{1,200}+)\]|【([^【】\n]{1,200}+)】")
_TAG = re.compile(r"<(?P<close>/?)cite\b(?P<attributes>[^<>]{0,300}+)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([\w-]{1,30})\s{0,3}=\s{0,3}(?:"([^"]{1,200})"|'([^']{1,200})'|([^\s"'>/]{1,200}))""")
_CODE = re.compile(
    r"^[ \t>]*+(?P<fence>`{3,}+|~{3,}+)[^\n]*+(?:\n(?:(?![ \t>]*+(?P=fence))[^\n]*+(?:\n|\Z))*+[^\n]*+|\Z)"
    r"|(?<!`)`[^`\n]{1,300}+`(?!`)|(?<!`)``(?!`)[^\n]{1,300}?``(?!`)",
    re.MULTILINE,
)
_NUMBERED = re.compile(
    r"[#^]?(?:(?:doc(?:ument)?|source|src|passage|chunk|context|ref(?:erence)?|citation|snippet|result)s?"
    r"\s*+[:#.]?\s*+(?:no\.?\s*+)?)?\^?(?P<numbers>\d{1,3}(?:\s*+(?:[,;&+]|-|–|—|and\b)\s*+\^?\d{1,3})*)",
    re.IGNORECASE,
)
_ITEM = re.compile(r"(\d{1,3})(?:\s*[-–—]\s*\^?(\d{1,3}))?")
_LENTICULAR = re.compile(r"\s*+(?P<number>\d{1,3}(?::\d{1,4})?)\s*+†(?P<name>.*)", re.DOTALL)
_WORD_BEFORE = re.compile(r"[\w$.]*\w\Z")
_INDEXED = re.compile(
    r"(?:.*\.)?[a-z]|\$[A-Za-z].*|.*_.*|[a-z]{2,}(?:[A-Z][a-z]+)+\d*|[a-z]\w*(?:\.[A-Za-z]\w*)+", re.DOTALL
)
_NO_ATTRIBUTE = re.compile(r".*\.(?:com|org|net|io|edu|gov|de|uk|eu|pdf|md|txt|html?|docx?|csv|json|xlsx?|pptx?)\Z")
_ASSIGNED = re.compile(r"\s{0,2}[-+*/|&]?=(?!>)|\.[a-z_]")
_JSON_KEY = re.compile(r"[\"']\s{0,2}:\s{0,2}\[?\Z")
_LIST_HEADING = re.compile(
    r"^[ \t>#*_]{0,10}+(?:references|sources(?: cited)?|citations|bibliography|footnotes|works cited|quellen\w{0,12}"
    r"|références|referencias|fuentes|fonti|referências|参考文献)[ \t:*_]{0,10}$",
    re.IGNORECASE | re.MULTILINE,
)
_NAME_PREFIX = re.compile(
    r"(?:(?:source|src|file|doc(?:ument)?|id|ref(?:erence)?)(?:\s*+[:=]|\s)|see\s|cf\.)\s*+", re.IGNORECASE
)


_LONGEST_NAME = 200
_NO_SOURCE = frozenset("page pages line lines sentence sentences class style start end lang dir".split())  # noqa: SIM905


class Marker(NamedTuple):
    """A marker in the answer: ``start`` to ``end``; ``inner`` are the words that it encloses, if it does.

    ``options`` are the names it may be meant to hold, in the order in which they are tried: each is a tuple of names
    that all have to be known. ``numbers`` are read where no name is known. ``needs_source`` says that it is a citation
    even where it holds neither.
    """

    start: int
    end: int
    form: str
    options: tuple[tuple[str, ...], ...] = ()
    numbers: tuple[int, ...] = ()
    inner: Span | None = None
    needs_source: bool = False

    @property
    def marks(self) -> tuple[Span, ...]:
        """What of it is not the answer's own words."""
        if self.inner is None:
            return ((self.start, self.end),)
        return (self.start, self.inner[0]), (self.inner[1], self.end)


def markers(answer: str) -> list[Marker]:
    """What may be a citation, from left to right; time is linear in the answer's length."""
    code = code_spans(answer)
    tags = list(_tags(answer, code))
    taken = list(code)
    for one in tags:
        taken += one.marks
    return sorted([*tags, *_brackets(answer, sorted(taken))], key=lambda one: (one.start, one.end))


def code_spans(text: str) -> list[Span]:
    """Fenced and inline code."""
    return [match.span() for match in _CODE.finditer(text)]


@lru_cache(maxsize=1024)
def numbers_in(content: str) -> tuple[int, ...]:
    """The numbers of ``1``, ``1, 2``, ``1-3``, ``Source 2``; empty where it is anything else.

    Examples
    --------
    >>> numbers_in("1, 3-5"), numbers_in("1997"), numbers_in("see below")
    ((1, 3, 4, 5), (), ())
    """
    match = _NUMBERED.fullmatch(content.strip())
    if match is None:
        return ()
    found: dict[int, None] = {}
    for item in _ITEM.finditer(match["numbers"]):
        first, last = int(item[1]), int(item[2] or item[1])
        if last < first or last - first >= MAX_NUMBERS:
            return ()
        found |= dict.fromkeys(range(first, last + 1))
    return tuple(found) if len(found) <= MAX_NUMBERS else ()


def _brackets(answer: str, taken: list[Span]) -> Iterator[Marker]:
    starts = [start for start, _ in taken]
    listed = max((heading.end() for heading in _LIST_HEADING.finditer(answer)), default=len(answer))
    index_end = text_end = -1  # where the last index ended, and the last brackets that may be a link's text
    for match in _BRACKET.finditer(answer):
        start, end = match.span()
        at = bisect_right(starts, start) - 1
        if at >= 0 and taken[at][1] > start:
            continue
        if match[2] is not None:
            yield _lenticular(start, end, match[2])
        elif start == index_end or _is_index(answer, start, end):
            index_end = end
        elif not (start == text_end or answer.startswith("(", end) or _is_data(answer, start, end)):
            marker = _named(answer, start, end, match[1])
            text_end = -1 if marker.numbers else end
            if start < listed or not _opens_line(answer, start):
                yield marker


def _named(answer: str, start: int, end: int, content: str) -> Marker:
    numbers = numbers_in(content)
    if start and answer[start - 1] == "[" and answer.startswith("]", end):
        start, end = start - 1, end + 1
    return Marker(start, end, "bracket", _options(content), numbers, needs_source=bool(numbers))


@lru_cache(maxsize=1024)
def _options(content: str) -> tuple[tuple[str, ...], ...]:
    """A name as it stands, without what introduces it, or several; what names a page of it is left out."""
    whole = content.strip().strip("\"'`*")
    bare = _NAME_PREFIX.sub("", whole, count=1)
    options: dict[tuple[str, ...], None] = {(whole,): None, (bare,): None}
    for separators in (r"[;|]", r"[,;|]"):
        parts = [part.strip() for part in re.split(separators, bare)]
        if len(parts) > 1 and all(parts):
            options |= dict.fromkeys([tuple(parts), (parts[0],)])
    return tuple(option for option in options if all(option))


def _lenticular(start: int, end: int, content: str) -> Marker:
    """``【1】``, ``【1†source】``; ``【4:0†handbook.pdf】`` numbers nothing that can be known here."""
    match = _LENTICULAR.fullmatch(content)
    if match is None:
        numbers = numbers_in(content)
        return Marker(start, end, "lenticular", _options(content), numbers, needs_source=bool(numbers))
    numbers = () if ":" in match["number"] else (int(match["number"]),)
    return Marker(start, end, "lenticular", _options(match["name"]), numbers, needs_source=True)


def _is_index(answer: str, start: int, end: int) -> bool:
    before = _WORD_BEFORE.search(answer, max(0, start - 60), start)
    if before is None:
        return False
    word = before[0].strip("_")
    if _ASSIGNED.match(answer, end):
        return True
    return _INDEXED.fullmatch(word) is not None and _NO_ATTRIBUTE.match(word) is None


def _is_data(answer: str, start: int, end: int) -> bool:
    """A value of JSON, a row of a matrix, a definition of a link, a link around brackets."""
    opens, closes = start > 0 and answer[start - 1] == "[", answer.startswith("]", end)
    if opens != closes or (opens and answer.startswith("(", end + 1)):
        return True
    if _JSON_KEY.search(answer, max(0, start - 8), start):
        return True
    return answer.startswith(":", end) and _opens_line(answer, start)


def _opens_line(answer: str, start: int) -> bool:
    before = answer[max(0, start - 8) : start]
    return not before.rpartition("\n")[2].strip(" \t>*-") and ("\n" in before or start <= 8)


def _tags(answer: str, code: list[Span]) -> Iterator[Marker]:
    starts = [start for start, _ in code]
    opened: re.Match[str] | None = None
    for match in _TAG.finditer(answer):
        at = bisect_right(starts, match.start()) - 1
        if at >= 0 and code[at][1] > match.start():
            continue
        if match["close"]:
            if opened is not None:
                yield _tag(answer, opened, match)
            opened = None
            continue
        if opened is not None:
            yield _tag(answer, opened, None)
        opened = match
        if match["attributes"].rstrip().endswith("/"):
            yield _tag(answer, match, None)
            opened = None
    if opened is not None:
        yield _tag(answer, opened, None)


def _tag(answer: str, opened: re.Match[str], closed: re.Match[str] | None) -> Marker:
    options: list[tuple[str, ...]] = []
    numbers: tuple[int, ...] = ()
    for name, *values in _ATTRIBUTE.findall(opened["attributes"]):
        if name.lower() in _NO_SOURCE:
            continue
        value = next(filter(None, values))
        options += _options(value)
        if name.lower() == "index":  # 2-1: the first sentence of the second document
            value = re.sub(r"(\d{1,3})-\d{1,4}(?::\d{1,4})?", r"\1", value)
        numbers = numbers or numbers_in(value)
    inner = None if closed is None else (opened.end(), closed.start())
    if inner is not None and inner[1] - inner[0] <= _LONGEST_NAME:
        said = answer[slice(*inner)].strip()
        is_marker = said[:1] in ("[", "【") and said[-1:] in ("]", "】")
        inside = numbers_in(said.strip("[]【】"))
        if is_marker or inside:
            inner, numbers = None, numbers or inside
            options += _options(said.strip("[]【】"))
    end = opened.end() if closed is None else closed.end()
    return Marker(opened.start(), end, "tag", tuple(options), numbers, inner, needs_source=True)
