"""Placebo segments: sentences that cannot matter, put into the prompt to see what "no effect" looks like there."""

from __future__ import annotations

from dataclasses import replace

from attr_core.errors import InputError
from attr_core.types import Generation, Location, Segment

__all__ = ["PLACEBO", "SENTENCES", "with_placebos"]

PLACEBO = "placebo"
"""Key in the ``source`` of a placebo segment."""

SENTENCES = (
    "The paint on the second bench was renewed in spring.",
    "Some clouds were seen above the hills that week.",
    "The corridor has a grey carpet and two plain chairs.",
    "A kettle stood on the shelf beside the window.",
    "The gravel path was swept before noon.",
    "Nobody had moved the boxes from the cellar.",
)


def with_placebos(generation: Generation, n_placebos: int = 3) -> Generation:
    """The generation with ``n_placebos`` unrelated sentences after the last segment that can be removed.

    Each is a paragraph and a segment of its own, of its neighbour's kind, with ``source == {"placebo": True}``.

    Parameters
    ----------
    generation : Generation
        With its segments filled.
    n_placebos : int, default 3
        At most ``len(SENTENCES)``.

    Raises
    ------
    InputError
        More placebos than there are sentences, or no segment that can be removed.
    """
    if not 1 <= n_placebos <= len(SENTENCES):
        raise InputError(f"{n_placebos} placebos were asked for; ask for 1 to {len(SENTENCES)}")
    places = [(place, s) for s in generation.segments if not s.fixed for place in s.locations]
    if not places:
        raise InputError("the prompt holds no segment that can be removed; there is nothing to compare placebos with")
    place, neighbour = max(places, key=lambda pair: (pair[0].message, pair[0].end))
    inserted, added, position = "", [], place.end
    for number, sentence in enumerate(SENTENCES[:n_placebos], start=1):
        inserted += "\n\n" + sentence
        end = position + len(inserted)
        location = Location(place.message, end - len(sentence), end)
        added.append(
            Segment(
                f"{PLACEBO}{number}", neighbour.kind, sentence, (location,), source={PLACEBO: True}, group_id=PLACEBO
            )
        )
    content = generation.messages[place.message].content
    message = replace(generation.messages[place.message], content=content[:position] + inserted + content[position:])
    messages = (*generation.messages[: place.message], message, *generation.messages[place.message + 1 :])
    moved = [_moved(segment, place, len(inserted)) for segment in generation.segments]
    return replace(generation, messages=messages, segments=(*moved, *added))


def _moved(segment: Segment, place: Location, by: int) -> Segment:
    locations = tuple(
        Location(spot.message, spot.start + by, spot.end + by)
        if spot.message == place.message and spot.start >= place.end
        else spot
        for spot in segment.locations
    )
    return replace(segment, locations=locations)
