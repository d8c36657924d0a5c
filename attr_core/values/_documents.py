"""Which columns are of one document."""

from __future__ import annotations

from collections.abc import Sequence

from attr_core.types import Segment


def document_groups(segments: Sequence[Segment]) -> tuple[tuple[int, ...], ...]:
    """Columns of each document, in order of first appearance; every column is in one of them.

    A document is what one ``group_id`` names, else the first retrieved document that a segment is or holds, else its
    message.
    """
    found: dict[tuple[str, str | int], list[int]] = {}
    for column, segment in enumerate(segments):
        found.setdefault(_document_of(segment), []).append(column)
    return tuple(map(tuple, found.values()))


def _document_of(segment: Segment) -> tuple[str, str | int]:
    if segment.group_id:
        return "group", segment.group_id
    return ("document", segment.documents[0]) if segment.documents else ("message", segment.locations[0].message)
