"""A small world of invented entities: what is true of each, what a model makes up, and documents that say either."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from attr_core.errors import ConfigurationError
from attr_core.evaluation.planted.facts import ATTRIBUTES, PLACES, THINGS, Asked, sentence, value_of
from attr_core.evaluation.planted.policies import believed, digits_swapped
from attr_core.types import Document

__all__ = ["World"]

_FILLERS = (
    "A committee met every {day} to review the plans.",
    "In spring the path along the river is closed on a {day}.",
    "The eastern hall has a small workshop that is cleaned on a {day}.",
    "Guests arrive by boat, mostly on a {day}.",
    "Lectures are given there on a {day} evening.",
)
_Item = TypeVar("_Item")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_INVENTIONS = ("", "wrong", "ignores", "crowd")


@dataclass(slots=True)
class World:
    """Entities with one value for every attribute; no value of a kind is used twice.

    ``entity`` is the one asked about, by ``attributes``; ``kin`` are others, the first few of a name that is like its.
    Nothing that a model of ``model_seed`` makes up about what is asked is true but, where it ``knows``, its belief.
    """

    rng: random.Random
    attributes: tuple[str, ...]
    model_seed: int
    entity: str = ""
    kin: tuple[str, ...] = ()
    knows: bool = False
    values: dict[Asked, str] = field(default_factory=dict)
    used: dict[str, set[str]] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.numbers = self.rng.sample(range(10, 100), 40)
        place, thing = self.rng.choice(PLACES), self.rng.choice(THINGS)
        near = [f"{place} {other}" for other in THINGS if other != thing]
        near += [f"{other} {thing}" for other in PLACES if other != place]
        self.entity, self.kin = f"{place} {thing}", tuple(self.rng.sample(near, 8))
        for asked in self.asked:
            inventions = {believed(self.model_seed, asked, which) for which in _INVENTIONS}
            self._used(asked[1]).update(inventions)
            if self.knows:
                self.values[asked] = believed(self.model_seed, asked)

    @property
    def asked(self) -> tuple[Asked, ...]:
        """What the question asks."""
        return tuple((self.entity, attribute) for attribute in self.attributes)

    @property
    def is_clear(self) -> bool:
        """Whether what the model would make up differs, in every word, from one invention to the next."""
        inventions = [[believed(self.model_seed, asked, which) for which in _INVENTIONS] for asked in self.asked]
        words = [[word for value in values for word in value.split()] for values in inventions]
        return all(len(set(some)) == len(some) and not set(some) & set(self.entity.split()) for some in words)

    def true(self, asked: Asked) -> str:
        """The one value."""
        if asked not in self.values:
            self.values[asked] = self.fresh(asked[1])
        return self.values[asked]

    def fresh(self, attribute: str) -> str:
        """A value that nothing has; of numbers, one whose last two digits swapped are nothing's either.

        No part of a name is used twice as long as there are others.
        """
        used = self._used(attribute)
        for attempt in range(1000):
            value = value_of(attribute, self.rng)
            taken = {value, digits_swapped(value)} if value.isdigit() else {value}
            parts = {part for one in used for part in one.split()} if attempt < 200 else set()
            is_plain = not value.isdigit() or (len(taken) == 2 and "0" not in value[-2:])
            if is_plain and not taken & used and not parts & set(value.split()) and value not in self.entity:
                used |= taken
                return value
        raise ConfigurationError(f"the attribute {attribute!r} has too few values for a world of this size")

    def states(self, asked: Asked, value: str | None = None, way: int | None = None) -> str:
        """The fact as a sentence, by default the true one in any way."""
        return sentence(asked, self.true(asked) if value is None else value, self._way(way))

    def document(self, *sentences: str, before: str = "", after: str = "", filler: str | None = None) -> Document:
        """A chunk of one line that says this and something idle, from a source of its own."""
        number = self.numbers.pop()
        text = " ".join([*sentences, self.filler() if filler is None else filler])
        return Document(f"c{number}", f"{before}{text}{after}", metadata={"source": f"archive-{number}.md"})

    def right(self, **more: str) -> Document:
        """A chunk that answers all that is asked."""
        return self.document(*(self.states(asked) for asked in self.asked), **more)

    def wrong(self, value: str, *, way: int | None = None, **more: str) -> Document:
        """A chunk that answers the first thing that is asked, with that value."""
        return self.document(self.states(self.asked[0], value, way), **more)

    def others(self, n: int) -> list[Document]:
        """Chunks about other entities: what is asked, of them, and something else."""
        return [self.about(self.kin[number]) for number in range(n)]

    def about(self, entity: str, *attributes: str) -> Document:
        """A chunk about an entity; by default with what is asked of the one in question."""
        stated = list(attributes or self.attributes[:1])
        stated.append(self.rng.choice([name for name in ATTRIBUTES if name not in {*stated, *self.attributes}]))
        return self.document(*(self.states((entity, name)) for name in stated))

    def aside(self) -> Document:
        """A chunk about the entity in question that says nothing of what is asked, or is easily taken for it."""
        taken = {*self.attributes, *(ATTRIBUTES[name].like for name in self.attributes)}
        return self.document(self.states((self.entity, self.rng.choice([n for n in ATTRIBUTES if n not in taken]))))

    def filler(self) -> str:
        """An idle sentence."""
        return self.rng.choice(_FILLERS).format(day=self.rng.choice(_DAYS))

    def shuffled(self, some: Sequence[_Item]) -> list[_Item]:
        """The same in any order."""
        return self.rng.sample(list(some), len(some))

    def _used(self, attribute: str) -> set[str]:
        return self.used.setdefault(ATTRIBUTES[attribute].kind, set())

    def _way(self, way: int | None) -> int:
        return self.rng.randrange(6) if way is None else way
