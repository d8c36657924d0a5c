"""The words that a verdict is given in, and those that give none."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from attr_core.results import SupportVerdict

ENTAILS, CONTRADICTS, NEUTRAL = SupportVerdict.ENTAILS, SupportVerdict.CONTRADICTS, SupportVerdict.NEUTRAL

PHRASES: Mapping[str, SupportVerdict | None] = {
    **dict.fromkeys(("entails", "entail", "entailed", "entailment", "supports", "support", "supported"), ENTAILS),
    **dict.fromkeys(("yes", "true"), ENTAILS),
    **dict.fromkeys(("contradicts", "contradict", "contradicted", "contradiction", "contradictory"), CONTRADICTS),
    **dict.fromkeys(("refutes", "refute", "refuted"), CONTRADICTS),
    **dict.fromkeys(("neutral", "unrelated", "irrelevant", "neither", "not mentioned", "not stated"), NEUTRAL),
    **dict.fromkeys(("not enough information", "neither entails nor contradicts"), NEUTRAL),
    # "No" leaves open whether the segment says the contrary or nothing.
    **dict.fromkeys(("no", "false", "unsupported", "not supported", "not entailed", "not contradicted"), None),
    **dict.fromkeys(("does not entail", "does not support", "does not contradict", "doesn't entail"), None),
    **dict.fromkeys(("doesn't support", "doesn't contradict", "partially", "partly", "maybe", "unclear"), None),
    **dict.fromkeys(("unsure", "unknown", "undetermined"), None),
}
"""Phrase -> verdict; ``None`` where somebody answers without giving one of the three."""

PLAIN_ANSWERS = frozenset({"yes", "true", "no", "false"})
"""Phrases that do not say what they answer."""

NOUNS = frozenset({"entailment", "support", "contradiction"})
"""Phrases that may head a number or a "none"."""

_LONGEST_WHY = 300
_AROUND = " \t\r\n\"'`*_.!“”‘’"


def alternatives(phrases: Mapping[str, SupportVerdict | None] = PHRASES) -> str:
    """The phrases as a regular expression, longer ones first."""
    longest_first = sorted(phrases, key=len, reverse=True)
    return "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in longest_first)


def verdict_of(text: str) -> SupportVerdict | None:
    """The verdict that a text is, if it is one and nothing else.

    Examples
    --------
    >>> verdict_of("Entails."), verdict_of("entails, or neutral"), verdict_of("0.8")
    (<SupportVerdict.ENTAILS: 'entails'>, None, None)
    """
    return PHRASES.get(normal(text.strip(_AROUND)))


def normal(text: str) -> str:
    """A text as the phrases are written: without case, one space between words."""
    return " ".join(text.casefold().split())


def readable(why: str) -> str:
    """A rationale on one line, without control characters and of bounded length."""
    plain = "".join(character if unicodedata.category(character)[0] != "C" else " " for character in why[:2000])
    line = " ".join(plain.split())
    return line if len(line) <= _LONGEST_WHY else line[: _LONGEST_WHY - 1] + "…"
