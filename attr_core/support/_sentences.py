"""The sentences of a segment with what they say, and how much two of them share."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from attr_core._text.language import guess_language, is_common
from attr_core._text.number_words import SCALES, begins_number
from attr_core._text.quantities import Quantity, quantities
from attr_core._text.sentences import sentence_spans
from attr_core._text.views import Span
from attr_core._text.words import words

__all__ = ["MAX_SENTENCES", "Sentence", "differ", "frame", "said", "sentences_of", "shared", "supporting_sentence"]

MAX_SENTENCES = 500
"""Sentences of one segment that are looked at; the rest are taken for one."""

_NEGATION = re.compile(
    r"(?i:\b(?:not|never|no|none|nobody|nothing|neither|nor|without|cannot|nicht|nie|niemals|kein\w{0,2}|ohne|pas|jamais"
    r"|aucune?|sans|ne|nunca|jam[aá]s|sin|non|mai|senza|n[aã]o|sem|niet|geen|nooit|inte|ikke)\b|n['’]t\b)|ない|没|不|未"
)
_WORD = re.compile(r"[^\W\d_][\w'’-]{1,40}")


class Sentence(NamedTuple):
    """A sentence of a text: its span, its content words, those with a capital, its quantities, whether it denies."""

    start: int
    end: int
    text: str
    words: frozenset[str]
    names: frozenset[str]
    quantities: frozenset[Quantity]
    denies: bool


def supporting_sentence(claim_text: str, segment_text: str) -> Span | None:
    """Where the segment's sentence stands that shares most content words and numbers with the claim.

    It is shown as evidence beside a verdict; by itself it proves nothing, "not signed" shares as much with "signed".
    Function words count nothing, a number counts as such, however it is written, and as a word. Of sentences that share
    as much, the shorter is taken, then the earlier.

    Returns
    -------
    tuple of int or None
        Half-open characters of ``segment_text``; ``None`` where no sentence shares anything.

    Examples
    --------
    >>> supporting_sentence("It opened in 1911.", "Tickets cost four marks. The fair opened in 1911.")
    (25, 49)
    """
    claim = said(claim_text, guess_language(segment_text))
    found = sentences_of(segment_text)
    best = max(found, key=lambda one: (shared(claim, one), -len(one.words), -one.start), default=None)
    return (best.start, best.end) if best is not None and shared(claim, best) else None


@lru_cache(maxsize=64)
def sentences_of(text: str) -> tuple[Sentence, ...]:
    """The sentences of a text; empty for one that is blank."""
    if not text.strip():
        return ()
    language = guess_language(text)
    spans = sentence_spans(text, language)
    if len(spans) > MAX_SENTENCES:
        spans = [*spans[: MAX_SENTENCES - 1], (spans[MAX_SENTENCES - 1][0], spans[-1][1])]
    return tuple(said(text[start:end], language, start=start) for start, end in spans)


@lru_cache(maxsize=64)
def said(text: str, language: str, *, start: int = 0) -> Sentence:
    """One text as a sentence; ``language`` tells its function words."""
    content = frozenset(word for word in words(text) if not is_common(word, language))
    capitals = [word for match in _WORD.findall(text) if match[0].isupper() for word in words(match)]
    names, numbers = content.intersection(capitals), frozenset(quantities(text))
    return Sentence(start, start + len(text), text, content, names, numbers, _NEGATION.search(text) is not None)


def shared(first: Sentence, second: Sentence) -> int:
    """Content words and quantities that both have."""
    return len(first.words & second.words) + len(first.quantities & second.quantities)


def differ(first: Sentence, second: Sentence) -> bool:
    """Whether each has a number or a name that the other lacks, or only one denies something."""
    if first.denies != second.denies or _both_ways(first.quantities, second.quantities):
        return True
    return bool(first.names - second.words) and bool(second.names - first.words)


def frame(sentence: Sentence) -> str:
    """Its words without numbers and negations: what "opened in 1911" and "did not open" may have in common.

    Empty where no content word is left.
    """
    kept = [_NEGATION.sub(" ", word) for word in words(sentence.text) if not _is_number(word)]
    return " ".join(kept) if sentence.words.intersection(kept) else ""


def _is_number(word: str) -> bool:
    return any(map(str.isdigit, word)) or word in SCALES or (word != "a" and begins_number(word))


def _both_ways(first: frozenset[Quantity], second: frozenset[Quantity]) -> bool:
    return bool(first - second) and bool(second - first)
