"""Verdicts in prose: labelled lines, numbered lines, and the few sentences in which a single verdict is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from attr_core.judge._words import NOUNS, PHRASES, PLAIN_ANSWERS, alternatives, normal
from attr_core.results import SupportVerdict

Cell = tuple[int, int]

_form = partial(re.compile, flags=re.IGNORECASE)
_CLAIM = r"(?:claims?|statements?|c)"
_SEGMENT = r"(?:segments?|passages?|chunks?|contexts?|documents?|docs?|sources?|s|p)"
_PHRASE = rf"(?:{alternatives()})"
_BETWEEN = r"[\s,;/x×&|:()\[\]–—-]*(?:(?:and|with|vs\.?|versus|against|on|in|for|by|given|from)\s+)?(?:the\s+)?"
_THEN = r"[\s)\]]*(?:[:=–—-]|->|→|=>)+\s*"

_PAIR = _form(rf"[(\[]?{_CLAIM}\s*#?(?P<claim>\d{{1,4}}){_BETWEEN}{_SEGMENT}\s*#?(?P<segment>\d{{1,4}}){_THEN}")
_PAIR_TURNED = _form(rf"[(\[]?{_SEGMENT}\s*#?(?P<segment>\d{{1,4}}){_BETWEEN}{_CLAIM}\s*#?(?P<claim>\d{{1,4}}){_THEN}")
_PAIR_BARE = _form(rf"[(\[]?(?P<claim>\d{{1,4}})\s*[,/x×]\s*(?P<segment>\d{{1,4}}){_THEN}")
_ONE = _form(
    rf"[(\[]?(?:(?P<of_claim>{_CLAIM})|(?P<of_segment>{_SEGMENT}))?\s*#?(?P<number>\d{{1,4}})"
    r"(?:[)\]]+[.:]?(?=\s)|\.(?=\s)|\s*(?:[:=–—]|-(?=\s)|->|→|=>))\s*"
)
_HEADING = _form(rf"#*\s*{_CLAIM}\s*#?(?P<claim>\d{{1,4}})\s*[.:]?")

_TAIL = (
    r"(?:\s+(?:(?:the|this|that)\s+)?(?:claim|statement))?"
    r"(?=\s*\Z|\s*[.!;:,(—–]|\s+-+\s|\s+(?:because|since)\b)(?P<rest>.*)"
)
_LABEL = r"(?:the\s+)?(?:final\s+|my\s+)?(?:answer|verdict|label|note|result|conclusion|judge?ment|response|relation)"
_LABELLED = _form(rf"(?:{_LABEL}\s*(?:is\b|[:=–—-])\s*)+[\"'“]?(?P<said>{_PHRASE})[\"'”]?{_TAIL}")
_BARE = _form(rf"(?P<said>{_PHRASE}){_TAIL}")
_SENTENCES = (
    _LABELLED,
    _form(  # Based on chunk [r0_c1], yes
        r"(?:based\s+on|according\s+to|given|judging\s+by|considering)\b[^\"“”?;.!]{1,80}?,\s*(?:(?:so|then|thus)\s+)?"
        rf"(?:the\s+(?:answer|verdict)\s+is\s+|(?:it|this|the\s+claim)\s+is\s+|it\s+)?(?P<said>{_PHRASE}){_TAIL}"
    ),
    _form(  # It is well known, so yes
        r"(?:as\s+|it\s+is\s+|it's\s+|this\s+is\s+)?(?:well[- ])?known\b[^\"“”?]{0,80}?[,;:.…—–]+\s*"
        rf"(?:(?:so|thus|then)[\s,]+)?(?P<said>yes){_TAIL}"
    ),
    _form(
        rf"(?:the\s+|this\s+)?(?:{_SEGMENT}|text|it)\s+(?:clearly\s+|directly\s+|explicitly\s+)?"
        rf"(?P<said>entails|supports|contradicts|refutes){_TAIL}"
    ),
    _form(
        r"(?:the|this)\s+(?:claim|statement)\s+is\s+(?:clearly\s+|directly\s+|explicitly\s+)?"
        rf"(?P<said>entailed|supported|contradicted|refuted|neutral|true|not\s+supported|not\s+entailed){_TAIL}"
    ),
)
_HEDGE = _form(
    rf"[\s.!;:,(—–\"'-]*(?:(?:and|or|but|though|although|however|except|perhaps|possibly|rather|if|unless|almost|nearly"
    rf"|only|in\s+part|not|also|none|nil|zero|n/a|low|weak|little)\b|{_PHRASE}\b"
    r"|[01]?\.\d|\d[\d.,]*\s*(?:[%),;/]|\Z))"
)
_WORD = _form(rf"\b{_PHRASE}\b")
_REFUSAL = _form(
    r"\W*(?:(?:i['’]?m|i\s+am)\s+(?:very\s+|so\s+)?(?:sorry|afraid|unable)|sorry\b|i\s+apologi[sz]e"
    r"|i\s+(?:can['’]?t|cannot|can\s+not|won['’]?t|will\s+not|do\s+not|don['’]?t)\b|as\s+an\s+ai\b|unfortunately\b)"
)
_BULLET = re.compile(r"\A\s*(?:[-•+]\s+)?")
_LONGEST_LINE = 500


@dataclass(frozen=True, slots=True)
class Line:
    """What a line says of a cell; ``verdict`` is ``None`` where it answers without one of the three."""

    cell: Cell
    verdict: SupportVerdict | None
    why: str


def is_refusal(text: str) -> bool:
    """Whether an answer begins as one that declines to answer."""
    return _REFUSAL.match(text) is not None


def read_lines(lines: list[str], n_claims: int, n_segments: int) -> Iterator[Line]:
    """What the lines of an answer say, cells counted from 1.

    A number alone, or a claim's under a heading, tells a cell only where no second one is needed. Without a number
    the line must be a sentence of a known form about the single cell there is; a verdict alone, the first or last line.
    """
    heading: int | None = None
    shown = [_plain(line) for line in lines]
    filled = [index for index, line in enumerate(shown) if line]
    for index in filled:
        line = shown[index]
        if (found := _HEADING.fullmatch(line)) is not None:
            heading = int(found["claim"])
            continue
        cell, said = _cell(line, n_claims, n_segments, heading)
        if cell is not None:
            stated = _said(said, is_bare=True)
        elif (n_claims, n_segments) == (1, 1) and said == line:
            cell, stated = (1, 1), _said(line, is_bare=index in (filled[0], filled[-1]))
        else:
            continue
        if stated is not None:
            yield Line(cell, *stated)


def _plain(line: str) -> str:
    if line.lstrip().startswith((">", "```")):  # a quotation, a fence
        return ""
    return _BULLET.sub("", line.replace("**", "").replace("__", "").replace("`", "")).strip()


def _cell(line: str, n_claims: int, n_segments: int, heading: int | None) -> tuple[Cell | None, str]:
    """The cell that a line begins with, and what follows; the line itself where it begins with none."""
    for form in (_PAIR, _PAIR_TURNED, _PAIR_BARE):
        if found := form.match(line):
            return (int(found["claim"]), int(found["segment"])), line[found.end() :]
    if not (found := _ONE.match(line)):
        return None, line
    number, rest = int(found["number"]), line[found.end() :]
    if found["of_claim"]:
        return ((number, 1) if n_segments == 1 else None), rest
    if found["of_segment"]:
        claim = 1 if n_claims == 1 else heading
        return ((claim, number) if claim is not None else None), rest
    if n_claims == 1:
        return (1, number), rest
    if n_segments == 1:
        return (number, 1), rest
    return ((heading, number) if heading is not None else None), rest


def _said(text: str, *, is_bare: bool) -> tuple[SupportVerdict | None, str] | None:
    text = text[:_LONGEST_LINE]
    for form in (*_SENTENCES, *([_BARE] if is_bare else [])):
        if found := form.match(text):
            phrase, rest = normal(found["said"]), found["rest"]
            verdict = PHRASES[phrase]
            is_heading = phrase in NOUNS and rest.lstrip().startswith(":")
            if is_heading or _HEDGE.match(rest) or (phrase in PLAIN_ANSWERS and _says_else(rest, verdict)):
                return None, ""
            return verdict, rest.strip(" .!;:,(—–-")
    return None


def _says_else(rest: str, verdict: SupportVerdict | None) -> bool:
    others = {PHRASES[normal(word[0])] for word in _WORD.finditer(rest)}
    return bool(others - {verdict})
