"""The context's segments, and of each what it says of a claim: used or not, borne out or not, and where."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from attr_core.attribution import Attribution
from attr_core.prompt import candidates
from attr_core.reports._html.causes import AGAINST, FOR, Sources, named
from attr_core.reports._html.claims import GridRow, ShownClaim
from attr_core.reports._words import segment_name, visible
from attr_core.results import Diagnosis
from attr_core.segmenter import segment_trace
from attr_core.types import Generation, Segment, Trace

MOST_TEXT = 120_000
"""Characters of all segments' texts that are shown; each has an equal share."""

LEAST_TEXT = 500
MOST_OF_ONE = 20_000

BEFORE, AFTER = 160, 240
"""Characters shown around the sentence that bears a claim out."""

SENTENCE = 1_200
"""Characters of such a sentence that are shown."""


@dataclass(frozen=True, slots=True)
class ShownSegment:
    """A segment: ``number`` counts them from 1; ``n_more`` characters of its text are not shown.

    ``id`` is empty where its name is its id.
    """

    number: int
    id: str
    name: str
    kind: str
    group: str
    origin: str
    text: str
    n_more: int
    is_culprit: bool


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text around its sentence ``marked``, empty where no sentence shares anything with the claim."""

    before: str
    marked: str
    after: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a segment is to a claim; ``row`` is the grid's, ``None`` where support was not judged."""

    segment: ShownSegment
    row: GridRow | None
    tone: str
    excerpt: Excerpt


def segments_of(trace: Trace, attribution: Attribution | None, diagnosis: Diagnosis | None) -> tuple[Segment, ...]:
    """The segments that were looked at; those of a diagnosis alone are cut again, those that this misses left out."""
    if attribution is not None:
        return attribution.segments
    generation = _generation(trace, diagnosis)
    if generation is None:
        return ()
    found = candidates(segment_trace(trace, generation).segments)
    if diagnosis is None or not diagnosis.grid:
        return found
    judged = {row["segment"] for row in diagnosis.grid["rows"]}
    lost = judged - {segment.id for segment in found}
    again = candidates(segment_trace(trace, generation, granularity="sentence").segments) if lost else ()
    return (*found, *(segment for segment in again if segment.id in lost))


def shown_segments(
    segments: Sequence[Segment], origins: Mapping[str, str], culprits: Collection[str]
) -> tuple[ShownSegment, ...]:
    """Each with as much of its text as there is room for."""
    room = min(max(MOST_TEXT // max(len(segments), 1), LEAST_TEXT), MOST_OF_ONE)
    return tuple(
        ShownSegment(
            number=number,
            id="" if segment_name(segment) == visible(segment.id) else segment.id,
            name=segment_name(segment),
            kind=segment.kind.value.replace("_", " "),
            group=segment.group_id if segment.group_id and segment.group_id != segment.id else "",
            origin=origins.get(segment.id, ""),
            text=segment.text[:room],
            n_more=max(len(segment.text) - room, 0),
            is_culprit=segment.id in culprits,
        )
        for number, segment in enumerate(segments, start=1)
    )


def evidence_of(
    claim: ShownClaim,
    rows: Sequence[int],
    segments: Sequence[Segment],
    shown: Sequence[ShownSegment],
    sources: Sources | None,
) -> Iterator[tuple[str, tuple[Evidence, ...], int]]:
    """For each statement judged of the claim: its words, the segments with a part in it, and how many have none.

    A segment has a part where it drives or opposes the claim, or where support was found, contradiction or a citation.
    """
    causes = [] if sources is None else named(sources, rows, FOR | AGAINST)
    order = [*causes, *(column for column in range(len(segments)) if column not in set(causes))]
    for statement in claim.statements or (None,):
        told = []
        for column in order:
            row = None if statement is None else statement.rows.get(segments[column].id)
            if column in causes or (row is not None and _says(row)):
                excerpt = _excerpt(segments[column].text, None if row is None else row.get("sentence"))
                told.append(Evidence(shown[column], row, tone_of_cell(row), excerpt))
        words = statement.text if statement is not None and statement.text != claim.text else ""
        yield words, tuple(told), len(segments) - len(told)


def tone_of_cell(row: GridRow | None) -> str:
    """The name of a cell's style."""
    cell = "" if row is None else row["cell"]
    return {
        "used and supported": "for",
        "used but not supported": "against",
        "supported but not used": "odd",
        "undetermined": "open",
    }.get(cell, "none")


def _says(row: GridRow) -> bool:
    is_open = row["cell"] == "undetermined" and row["support"] not in ("neutral", "undetermined")
    return row["support"] in ("entails", "contradicts") or bool(row.get("cited")) or bool(row.get("used")) or is_open


def _excerpt(text: str, span: Sequence[int] | None) -> Excerpt:
    start, end = (0, 0) if span is None else (max(span[0], 0), min(span[1], len(text)))
    begin, stop = max(start - BEFORE, 0), min(end + AFTER, len(text))
    marked = text[start:end]
    marked = marked if len(marked) <= SENTENCE else marked[:SENTENCE] + "…"
    before = ("…" if begin else "") + text[begin:start]
    after = text[end:stop] + ("…" if stop < len(text) else "")
    return Excerpt(before, marked, after)


def _generation(trace: Trace, diagnosis: Diagnosis | None) -> Generation | None:
    if not trace.generations:
        return None
    wanted = "" if diagnosis is None else diagnosis.generation_id
    return next((one for one in trace.generations if one.id == wanted), trace.target_generation)
