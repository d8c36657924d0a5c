"""A segment -> its paragraphs or sentences, or a turn -> what is asked and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from attr_core._segmenting.turn import FENCE_OR_BLANK_LINES, Part, substance
from attr_core._text.sentences import sentence_spans
from attr_core._text.views import Span, gaps, plain, unescaped
from attr_core.types import Granularity, Location, Segment, SegmentKind

LONG_TURN = 200
"""Characters up to which what a system, user or assistant turn says is one segment at every granularity."""

_ALWAYS_CUT = (SegmentKind.RETRIEVED, SegmentKind.TOOL_OUTPUT, SegmentKind.MEMORY)


def finer(piece: Segment, granularity: Granularity) -> list[Segment]:
    """The paragraphs or sentences of a segment: ``doc1`` becomes ``doc1.p1``, ``doc1.p2`` or ``doc1.s1``, ``doc1.s2``.

    All else about them is the segment's. What is fixed stays whole, so do short turns.
    """
    is_short_turn = piece.kind not in _ALWAYS_CUT and len(piece.text) <= LONG_TURN
    if piece.fixed or is_short_turn or granularity not in ("paragraph", "sentence"):
        return [piece]
    view = plain(piece.text)
    if piece.located not in (None, "exact"):  # then its line breaks may be written as \n
        view = unescaped(view) or view
    cut = _paragraphs if granularity == "paragraph" else sentence_spans
    spans = [view.original(*span) for span in cut(view.text)]
    if len(spans) < 2:
        return [piece]
    return [
        replace(
            piece,
            id=f"{piece.id}.{granularity[0]}{number}",
            text=piece.text[start:end],
            locations=tuple(
                Location(place.message, place.start + start, place.start + end) for place in piece.locations
            ),
        )
        for number, (start, end) in enumerate(spans, start=1)
    ]


def coarser(content: str, parts: Sequence[Part]) -> list[Part]:
    """What is fixed of a turn, and between that all else it says, documents included."""
    fixed = [part for part in parts if part.fixed]
    rest = (substance(content, gap) for gap in gaps(len(content), [(part.start, part.end) for part in fixed]))
    return sorted([*fixed, *(Part(*span, fixed=False) for span in rest if span is not None)])


def _paragraphs(text: str) -> list[Span]:
    return list(_stripped(text, _between_blank_lines(text)))


def _between_blank_lines(text: str) -> Iterator[Span]:
    start = 0
    for match in FENCE_OR_BLANK_LINES.finditer(text):
        if not match["fence"]:
            yield start, match.start()
            start = match.end()
    yield start, len(text)


def _stripped(text: str, spans: Iterator[Span]) -> Iterator[Span]:
    for start, end in spans:
        said = text[start:end].strip()
        if said:
            first = text.index(said[0], start)
            yield first, first + len(said)
