"""A text that is still arriving -> the claims whose end is sure, as the splitter would cut the whole."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from attr_core._text.language import guess_language
from attr_core._text.sentences import sentence_spans
from attr_core._text.views import Span
from attr_core.types import Claim

_SAMPLE = 4000
"""Characters that decide on the language; beyond, it is not guessed again."""

_WELL_GUESSED = 200
"""Characters from which the language of a text in Latin script seldom turns out another."""

_LATIN = ("en", "de", "fr", "es", "it", "pt", "nl")

_CLOSERS = "`\"'”’»›」』）)】》]}"
"""What may close a quotation or bracket, inside which no sentence ends."""

_MARKS = re.compile(r"(?:[^\w\s]|_|\[\^?\d[\d, -]{0,11}\]|\s)*")
_WORD = re.compile(r"[^\W_]\S*(?=\s)")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


class ClaimCutter:
    """Cuts finished claims off a text that grows.

    A claim is finished when the splitter cuts it alike whatever may follow: the sentence after it has a whole word, so
    that abbreviations and decimals are known for what they are, and a closing quote, bracket or citation, a heading's
    end, a table's rule or a fence, were it next, would not move its end. Only the language may still turn out another:
    it is guessed of what has arrived, and while that is little the likeliest others must cut alike.
    """

    def __init__(self, language: str | None = None) -> None:
        self._language = language
        self._guess = language or "en"
        self._guessed_of = 0
        self._tail = 0  # where the text that is still cut begins: a line after a blank one
        self._end = 0
        self._count = 0

    def cut(self, text: str) -> list[Claim]:
        """The claims that are finished now and were not before; ``text`` is all that has arrived."""
        if len(self._next(text, self._guess)) < 2:
            return []
        if self._language is None and self._guessed_of < min(len(text), _SAMPLE):
            self._guess, self._guessed_of = guess_language(text), len(text)
        found = list(self._finished(text))
        claims = [Claim(self._count + n, *span, text[slice(*span)]) for n, (span, _) in enumerate(found)]
        if found:
            (_, self._end), begins = found[-1]
            self._count += len(found)
            if _BLANK_LINE.search(text, self._end, begins):
                self._tail = text.rfind("\n", self._end, begins) + 1
        return claims

    def _finished(self, text: str) -> Iterator[tuple[Span, int]]:
        """Spans of finished claims, each with the begin of the next one."""
        spans = self._next(text, self._guess)
        n_sure = max((n for n in range(1, len(spans)) if _has_a_word(text, *spans[n])), default=0)
        for ending, language in self._otherwise(text) if n_sure else ():
            other = self._next(text + ending, language)
            n_sure = next((n for n in range(n_sure) if n >= len(other) - 1 or other[n] != spans[n]), n_sure)
        yield from ((spans[n], spans[n + 1][0]) for n in range(n_sure))

    def _otherwise(self, text: str) -> Iterator[tuple[str, str]]:
        """How the text may go on, and what language it may turn out to be."""
        yield from ((ending, self._guess) for ending in _endings(text[self._tail :]))
        if self._language is None and self._guess in _LATIN and len(text) < _WELL_GUESSED:
            yield from (("", language) for language in _LATIN if language != self._guess)

    def _next(self, text: str, language: str) -> list[Span]:
        """All spans that begin after the last finished claim."""
        tail = text[self._tail :]
        spans = sentence_spans(tail, language) if tail.strip() else []
        return [(a + self._tail, b + self._tail) for a, b in spans if a + self._tail >= self._end]


def _has_a_word(text: str, start: int, end: int) -> bool:
    """Whether a claim begins with a whole word, or with a letter of a script that needs no space after one."""
    begins = _MARKS.match(text, start, end)
    position = begins.end() if begins else start
    if position < end and unicodedata.category(text[position]) == "Lo":
        return True
    return _WORD.match(text, position) is not None


def _endings(text: str) -> Iterator[str]:
    """Ways to go on that would change most of what stands before them."""
    yield _CLOSERS + " x"
    yield from (" X", ") x", ".) X", "] X")
    yield "x"
    *before, last = text.rsplit("\n", 2)
    plain = last.strip(" \t>")
    for mark in ("**", "__"):
        if plain.startswith(mark):
            yield from (f":{mark}\n", f"{mark}:\n", f"{mark[0]}:\n", f":{mark[0]}\n", ":\n")
    if "|" in last or (before and "|" in before[-1]):
        yield from ("\n|-|\nx", "|-|\nx", "-|\nx", "|\nx", "-\nx")
    if len(set(plain)) < 2 and plain[:1] in ("", "`", "~"):
        yield ("`" if plain[:1] != "~" else "~") * 3 + "\nx"
