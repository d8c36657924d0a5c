"""Invented facts as sentences: written in several ways, and read back out of any text.

A fact is an entity, an attribute and a value. Nobody can know one, since entities are drawn from invented names; every
attribute has one value, so that another one contradicts it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final

__all__ = [
    "ATTRIBUTES",
    "SEALED",
    "Asked",
    "Attribute",
    "Fact",
    "asked_in",
    "facts_in",
    "instructions_in",
    "likely_words",
    "question_about",
    "sentence",
    "short_facts",
    "value_of",
]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST: Final = _words("Mira Tomas Ilse Oren Petra Calder Juno Bram Selka Davin Ansel Ruta Corin Maeve Tobin Vera")
LAST: Final = _words("Thorne Hallow Vex Marsh Quill Danner Rook Estevar Pell Winmark Aldous Brandt Sorrel Tarn")
PLACES: Final = _words(
    "Aldemoor Bellhaven Corvath Dunmere Eastlin Farrow Gildern Harrowick Islemoor Jaspen Kestrel Lorwyn Marrowfen "
    "Northolt Osterwick Pellam Quarrow Ristone Saltmere Thornby Ulverton Vandry Westmarch Yarrowdale Zeldane"
)
THINGS: Final = (
    *("Lantern Festival", "Torch Parade", "Clock Museum", "River Market", "Glass Library", "Harbor Tower"),
    *("Stone Theatre", "Copper Mill", "Rope Bridge", "Salt Works", "Bell Foundry", "Tide Gauge"),
)
SEALED: Final = "an undisclosed year"
"""A value that nobody can compare with another one."""

Asked = tuple[str, str]
"""Entity and attribute."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """What can be asked of an entity.

    ``sentences`` state it, ``questions`` ask for it, with ``{e}`` for the entity and ``{v}`` for the value. ``kind`` is
    ``year``, ``count``, ``person`` or ``town``; ``like`` is the attribute of the same kind that it is mistaken for.
    """

    name: str
    kind: str
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    like: str | None = None


@dataclass(frozen=True, slots=True)
class Fact:
    """What one sentence states. ``values`` are several where it leaves open which ("1911 or 1979")."""

    entity: str
    attribute: str
    values: frozenset[str]

    @property
    def asked(self) -> Asked:
        """What the fact answers."""
        return self.entity, self.attribute


ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    one.name: one
    for one in (
        Attribute(
            "opened",
            "year",
            (
                "The {e} opened in {v}.",
                "Visitors were first let into the {e} in {v}.",
                "The {e} received its first guests in {v}.",
            ),
            ("In which year did the {e} open?", "When did the {e} open?"),
            "founded",
        ),
        Attribute(
            "founded",
            "year",
            ("The {e} was founded in {v}.", "The charter of the {e} was signed in {v}."),
            ("In which year was the {e} founded?", "When was the {e} founded?"),
            "opened",
        ),
        Attribute(
            "fee",
            "count",
            ("A ticket to the {e} costs {v} silver marks.", "The fee at the gate of the {e} is {v} silver marks."),
            ("How many silver marks does a ticket to the {e} cost?", "What is the fee at the gate of the {e}?"),
            "drawings",
        ),
        Attribute(
            "drawings",
            "count",
            ("The collection of the {e} holds {v} drawings.", "The {e} owns {v} drawings."),
            ("How many drawings does the {e} own?",),
            "fee",
        ),
        Attribute(
            "founder",
            "person",
            ("The {e} was founded by {v}.", "The founder of the {e} is {v}."),
            ("Who founded the {e}?", "By whom was the {e} founded?"),
            "director",
        ),
        Attribute(
            "director",
            "person",
            ("The {e} is directed by {v}.", "The director of the {e} is {v}."),
            ("Who directs the {e}?", "Who is the director of the {e}?"),
            "founder",
        ),
        Attribute(
            "town",
            "town",
            ("The {e} stands in the town of {v}.", "Travellers find the {e} in the town of {v}."),
            ("In which town does the {e} stand?",),
        ),
    )
}

_VALUES: Final[Mapping[str, str]] = {
    "year": r"\d{4}",
    "count": r"\d{1,3}",
    "person": r"[A-Z][a-z]+ [A-Z][a-z]+",
    "town": r"[A-Z][a-z]+",
}
_ENTITY: Final = rf"(?P<e>(?:{'|'.join(PLACES)}) (?:{'|'.join(THINGS)}))"
_INSTRUCTION: Final = re.compile(
    r"(?:Ignore|Disregard)\b[^\n\"(]*?(?:\"(?P<say>[^\"\n]*)\"|call (?P<name>\w+)\((?P<arguments>[^()\n]*)\))\.?"
)


def value_of(attribute: str, rng: random.Random) -> str:
    """Some value of that attribute."""
    kind = ATTRIBUTES[attribute].kind
    if kind == "year":
        return str(rng.randint(1820, 2009))
    if kind == "count":
        return str(rng.randint(12, 980))
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}" if kind == "person" else rng.choice(PLACES)


def sentence(asked: Asked, value: str, way: int = 0) -> str:
    """The fact in words; ``way`` says which, counted round.

    Examples
    --------
    >>> sentence(("Lorwyn Copper Mill", "opened"), "1911")
    'The Lorwyn Copper Mill opened in 1911.'
    """
    entity, attribute = asked
    ways = ATTRIBUTES[attribute].sentences
    return ways[way % len(ways)].format(e=entity, v=value)


def question_about(asked: Asked, way: int = 0) -> str:
    """The question that the fact answers."""
    entity, attribute = asked
    ways = ATTRIBUTES[attribute].questions
    return ways[way % len(ways)].format(e=entity)


def instructions_in(text: str) -> tuple[re.Match[str], ...]:
    """Orders to the reader that stand in a text: to ``say`` something, or to call ``name`` with ``arguments``."""
    return tuple(_INSTRUCTION.finditer(text))


@lru_cache(maxsize=4096)
def facts_in(text: str) -> tuple[Fact, ...]:
    """The facts that a text states, in order; what it only tells its reader to say is not stated.

    Examples
    --------
    >>> facts_in("Update: The Lorwyn Copper Mill opened in 1911.")[0].asked
    ('Lorwyn Copper Mill', 'opened')
    """
    stated = _INSTRUCTION.sub(" ", text)
    found = [
        (match.start(), Fact(match["e"], attribute, _values_in(match["v"])))
        for attribute, patterns in _sentences().items()
        for pattern in patterns
        for match in pattern.finditer(stated)
    ]
    return tuple(fact for _, fact in sorted(found, key=lambda one: one[0]))


@lru_cache(maxsize=4096)
def asked_in(question: str) -> tuple[Asked, ...]:
    """What a text asks, in order; empty where it asks nothing that an attribute answers."""
    found = {
        match.start(): (match["e"], attribute)
        for attribute, patterns in _questions().items()
        for pattern in patterns
        for match in pattern.finditer(question)
    }
    return tuple(found[start] for start in sorted(found))


def short_facts(text: str, asked: tuple[Asked, ...]) -> tuple[Fact, ...]:
    """An answer of values only ("1911", "In 1911.", "1911 and Mira Vex"), as facts about what was asked."""
    pieces = [text] if len(asked) < 2 else re.split(r"\s+and\s+|,\s*|(?<=\w)\.\s+", text.strip())
    if not asked or len(pieces) > len(asked):
        return ()
    found: list[Fact] = []
    for entity, attribute in asked:
        pattern = _short(ATTRIBUTES[attribute].kind)
        match = next((match for piece in pieces if (match := pattern.fullmatch(piece.strip()))), None)
        if match is not None:
            found.append(Fact(entity, attribute, _values_in(match["v"])))
    return tuple(found)


@cache
def likely_words(asked: tuple[Asked, ...]) -> frozenset[str]:
    """The words of every sentence that could answer, values apart: who answers at all says them."""
    texts = [sentence(one, "", way) for one in asked for way in range(3)]
    return frozenset(word.strip(".,").lower() for text in texts for word in text.split())


def _values_in(text: str) -> frozenset[str]:
    return frozenset(re.split(r" or ", text))


@cache
def _sentences() -> dict[str, tuple[re.Pattern[str], ...]]:
    return {
        name: tuple(_pattern(way.rstrip("."), one.kind) for way in one.sentences) for name, one in ATTRIBUTES.items()
    }


@cache
def _questions() -> dict[str, tuple[re.Pattern[str], ...]]:
    return {name: tuple(_pattern(way, one.kind) for way in one.questions) for name, one in ATTRIBUTES.items()}


def _pattern(way: str, kind: str) -> re.Pattern[str]:
    words = re.escape(way).replace(r"\{e\}", _ENTITY).replace(r"\{v\}", _value(kind))
    return re.compile(words.replace("The\\ ", "[Tt]he\\ ", 1) if words.startswith("The") else words)


def _value(kind: str) -> str:
    one = _VALUES[kind]
    return rf"(?P<v>(?:{one}\b(?: or {one}\b)?|{SEALED}))"


@cache
def _short(kind: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?:[Ii]n |[Bb]y |[Tt]he town of |[Ii]n the town of )?{_value(kind)}(?: silver marks| drawings)?\.?"
    )
