"""Segments of one kind and text are one, in several places, and no two have the same id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from attr_core.types import Location, Segment, SegmentKind


def distinct(pieces: Iterable[Segment]) -> Iterator[Segment]:
    """The pieces in the order of their first places; the second that is called ``c1`` becomes ``c1#2``."""
    return _named(_merged(pieces))


def place_order(place: Location) -> tuple[int, int]:
    """Sorts locations as the prompt has them."""
    return place.message, place.start


def _merged(pieces: Iterable[Segment]) -> Iterator[Segment]:
    alike: dict[tuple[SegmentKind, str], list[Segment]] = {}
    for piece in pieces:
        alike.setdefault((piece.kind, piece.text), []).append(piece)
    for first, *others in alike.values():
        locations = sorted((place for piece in (first, *others) for place in piece.locations), key=place_order)
        yield replace(
            first,
            locations=tuple(locations),
            fixed=any(piece.fixed for piece in (first, *others)),
            documents=tuple(dict.fromkeys(name for piece in (first, *others) for name in piece.documents)),
        )


def _named(pieces: Iterable[Segment]) -> Iterator[Segment]:
    used: set[str] = set()
    seen: Counter[str] = Counter()
    for piece in pieces:
        name = piece.id
        while name in used:
            seen[piece.id] += 1
            name = f"{piece.id}#{seen[piece.id] + 1}"
        used.add(name)
        yield piece if name == piece.id else replace(piece, id=name)
