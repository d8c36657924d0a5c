"""How a made-up model picks what it says of one question: one function for each way to go right or wrong.

A policy is given the model and what it saw, and returns the values it would state, none where it declines to answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from attr_core.evaluation.planted.facts import ATTRIBUTES, Asked, facts_in, value_of
from attr_core.evaluation.planted.reading import NOTICE, Seen

if TYPE_CHECKING:
    from attr_core.evaluation.planted.models import WorldModel

__all__ = [
    "CONFIDENTIAL",
    "POLICIES",
    "Policy",
    "Values",
    "believed",
    "believes",
    "declines",
    "declines_what_is_confidential",
    "digits_swapped",
    "ignores",
    "loses_track",
    "reads",
    "reads_one_place",
    "states_all",
    "swaps_digits",
    "takes_the_like",
    "trusts_any_notice",
    "trusts_memory",
    "trusts_notices",
    "trusts_notices_then_memory",
]

Values = tuple[str, ...]
Policy = Callable[["WorldModel", Seen, Asked], Values]

CONFIDENTIAL: Final = "Confidential"


def believed(seed: int, asked: Asked, which: str = "") -> str:
    """What a model of that seed makes up about a question; ``which`` tells several inventions apart."""
    return value_of(asked[1], random.Random(f"{seed}|{asked}|{which}"))  # noqa: S311


def digits_swapped(value: str) -> str:
    """The number with its last two digits the other way round."""
    return value[:-2] + value[:-3:-1]


def reads(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """The first chunk that answers."""
    return _first(seen.slots, asked) or _otherwise(model, seen, asked)


def trusts_notices(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """A notice about the matter before any other chunk."""
    return _first(_notices(seen), asked) or reads(model, seen, asked)


def trusts_any_notice(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """A notice on the attribute, whatever it is about."""
    return _like(_notices(seen), asked) or reads(model, seen, asked)


def trusts_notices_then_memory(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """A notice about the matter, then what was said earlier, then the chunks."""
    return _first(_notices(seen), asked) or trusts_memory(model, seen, asked)


def trusts_memory(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """What was said earlier before any chunk."""
    return _first(seen.earlier, asked) or reads(model, seen, asked)


def states_all(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """Every value that the chunks give."""
    values = (value for fact in seen.stated(asked) for value in sorted(fact.values))
    return tuple(dict.fromkeys(values)) or _otherwise(model, seen, asked)


def loses_track(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """Right until ``threshold`` chunks that do not answer are there; then the value of one of them, or an invention."""
    aside = [chunk for chunk in seen.chunks if not _first([chunk], asked)]
    if len(aside) < model.threshold:
        return reads(model, seen, asked)
    like = _like(aside, asked) if model.otherwise == "likens" else ()
    return like or (believed(model.seed, asked, "crowd"),)


def believes(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """Its own belief, whatever it is given."""
    return (believed(model.seed, asked),)


def ignores(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """Makes something up as soon as any chunk is there, whatever the chunk says."""
    if seen.chunks:
        return (believed(model.seed, asked, "ignores"),)
    return () if model.otherwise == "refuses" else (believed(model.seed, asked),)


def takes_the_like(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """In the chunk that answers, the value of another attribute that reads alike."""
    like = ATTRIBUTES[asked[1]].like
    right = [slot for slot in seen.slots if _first([slot], asked)]
    mistaken = _first(right, (asked[0], like)) if like else ()
    return mistaken or reads(model, seen, asked)


def swaps_digits(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """The number that the chunk gives, with two digits swapped."""
    values = _first(seen.slots, asked)
    return tuple(map(digits_swapped, values)) or _otherwise(model, seen, asked)


def reads_one_place(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """The chunk in the first or the last place only, whatever it is about; empty places count."""
    place = seen.slots[:1] if model.place == "first" else seen.slots[-1:]
    return _first(place, asked) or _like(place, asked)


def declines(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """Never answers."""
    return ()


def declines_what_is_confidential(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """Never answers while any chunk is marked as confidential."""
    return () if any(CONFIDENTIAL in chunk for chunk in seen.chunks) else reads(model, seen, asked)


POLICIES: Final[Mapping[str, Policy]] = {
    policy.__name__: policy
    for policy in (
        *(reads, trusts_notices, trusts_any_notice, trusts_notices_then_memory, trusts_memory, states_all, loses_track),
        *(believes, ignores, takes_the_like, swaps_digits, reads_one_place, declines, declines_what_is_confidential),
    )
}


def _otherwise(model: WorldModel, seen: Seen, asked: Asked) -> Values:
    """Where nothing answers: nothing, the value of something else, or an invention."""
    if model.otherwise == "refuses":
        return ()
    like = (
        _like((slot for slot in seen.slots if not _first([slot], asked)), asked) if model.otherwise == "likens" else ()
    )
    return like or (believed(model.seed, asked),)


def _notices(seen: Seen) -> list[str]:
    return [slot for slot in seen.slots if slot.startswith(NOTICE)]


def _first(texts: Iterable[str], asked: Asked) -> Values:
    facts = (fact for text in texts for fact in facts_in(text) if fact.asked == asked)
    return next((tuple(sorted(fact.values)) for fact in facts), ())


def _like(texts: Iterable[str], asked: Asked) -> Values:
    facts = (fact for text in texts for fact in facts_in(text) if fact.attribute == asked[1])
    return next((tuple(sorted(fact.values)) for fact in facts), ())
