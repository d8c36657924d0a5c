"""What a citation can name: documents by their number in the prompt, by a label there, or by a name of theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from attr_core._text.views import fold
from attr_core.types import Location, Message, Segment, SegmentKind

__all__ = ["Sources", "sources_of"]

NAME_KEYS = (
    *("source", "file_name", "filename", "file", "file_path", "path", "url", "uri", "link", "title", "name"),
    *("document_id", "doc_id", "id", "ref_doc_id", "source_id", "document_title", "document_name"),
)
"""Metadata of a segment that a citation may name it by; of a path or address, the last part too."""

_BEFORE = 200
"""Characters before a document in which its label may stand."""

_KEY = (
    r"(?:document|doc|source|passage|chunk|context|reference|ref|snippet|result|excerpt|text|dokument|quelle|auszug"
    r"|documento|fuente|fonte|extrait)"
)
_NUMBER = r"(?<!\d)(?P<n>\d{1,3})(?!\d|\.\d)"
_NUMBERING = rf"{_KEY}[ \t_]{{0,3}}(?:no\.?|nr\.?|#|:)?[ \t]{{0,3}}[\[(【]?{_NUMBER}[\])】]?(?!\w)"
_LABELS = tuple(
    re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for pattern in (
        rf"^[ \t>#*_=-]{{0,10}}[\[(【<]?{_NUMBERING}",
        rf"^[ \t>#*_=-]{{0,10}}[\[【]{_NUMBER}[\]】]",
        rf"<\w{{1,20}}\b[^<>]{{0,80}}?\b(?:index|id|number|idx|n)\s{{0,2}}=\s{{0,2}}[\"']?{_NUMBER}[\"']?[^<>]{{0,80}}>",
        rf"<(?:index|id|number)>\s{{0,3}}{_NUMBER}\s{{0,3}}</",
        # Right before the document it need not open a line.
        rf"\b{_NUMBERING}[*_]{{0,2}}\s{{0,3}}[:.)|–-]?[*_\"]{{0,3}}\s{{0,4}}\Z",
        rf"(?<!\S)[*_]{{0,2}}[\[(【]{_NUMBER}[\])】][*_]{{0,2}}\s{{0,2}}[:.|–-]?\s{{0,4}}\Z",
        rf"^[ \t>*-]{{0,6}}{_NUMBER}[.):][*_]{{0,2}}\s{{0,4}}\Z",
    )
)
_OPENING = re.compile(
    rf"\s{{0,10}}[ \t>#*_=-]{{0,10}}(?:[\[(【<]?{_NUMBERING}|[\[【](?P<m>\d{{1,3}})[\]】])", re.IGNORECASE
)

Columns = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sources:
    """The columns that each name stands for, those of each document in prompt order, and those of each label.

    ``labels`` is empty where fewer than half of the documents have one.
    """

    names: Mapping[str, Columns]
    documents: tuple[Columns, ...]
    labels: Mapping[int, Columns]

    def named(self, name: str) -> Columns:
        """Columns of that name, whatever its case; none where it is unknown."""
        return self.names.get(_key(name), ())

    def all_named(self, names: Iterable[str]) -> Columns:
        """Columns of all of these names; none where one is unknown."""
        found = [self.named(name) for name in names]
        return joined(found) if all(found) else ()

    def numbered(self, number: int) -> Columns:
        """Columns of the document with that label or, where documents have none, of the n-th, counted from 1."""
        if self.labels:
            return self.labels.get(number, ())
        return self.documents[number - 1] if 1 <= number <= len(self.documents) else ()

    @property
    def labels_differ(self) -> bool:
        """Whether some label is not the document's number."""
        return any(self.labels.get(n) != columns for n, columns in enumerate(self.documents, 1)) and bool(self.labels)


def sources_of(segments: Sequence[Segment], messages: Sequence[Message] = ()) -> Sources:
    """Read the names, the order and the labels off the segments and, for labels before them, the messages."""
    names: dict[str, dict[int, None]] = {}
    for column, segment in enumerate(segments):
        for name in _names(segment):
            if key := _key(name):
                names.setdefault(key, {})[column] = None
    documents = _documents(segments)
    labels: dict[int, list[Columns]] = {}
    n_labelled = 0
    ends: dict[int, int] = {}
    for columns, place, end in documents:
        label = _label(segments[columns[0]], place, messages, ends.get(place.message, 0))
        ends[place.message] = max(ends.get(place.message, 0), end)
        if label is not None:
            n_labelled += 1
            labels.setdefault(label, []).append(columns)
    if 2 * n_labelled < len(documents):
        labels = {}
    return Sources(
        {name: tuple(columns) for name, columns in names.items()},
        tuple(columns for columns, _, _ in documents),
        {label: joined(columns) for label, columns in labels.items()},
    )


@lru_cache(maxsize=4096)
def _key(name: str) -> str:
    return fold(name)


def joined(columns: Iterable[Columns]) -> Columns:
    """All of them, each once, in order."""
    return tuple(sorted({column for some in columns for column in some}))


def _names(segment: Segment) -> Iterable[str]:
    yield segment.id
    yield from segment.documents
    yield from filter(None, (segment.group_id,))
    for key in NAME_KEYS:
        value: Any = segment.source.get(key)
        if isinstance(value, str) and value.strip():
            yield value
            if last := re.split(r"[/\\]", value.rstrip("/\\"))[-1]:
                yield last


def _documents(segments: Sequence[Segment]) -> list[tuple[Columns, Location, int]]:
    """The documents in prompt order, each with its columns, where it begins and where it ends.

    Pieces of one document that follow each other are one; where a text stands twice, it is two documents.
    """
    held = [n for n, one in enumerate(segments) if one.kind is SegmentKind.RETRIEVED or one.documents]
    held = held or [n for n, one in enumerate(segments) if one.kind is SegmentKind.TOOL_OUTPUT]
    places = [(place.message, place.start, column, place) for column in held for place in segments[column].locations]
    places = places or [(0, 0, column, Location(0, 0, 0)) for column in held]
    found: list[tuple[list[int], Location, int]] = []
    last: tuple[str, ...] = ()
    for _, _, column, place in sorted(places, key=lambda one: one[:3]):
        documents = segments[column].documents
        if found and documents and documents == last and column not in found[-1][0]:
            found[-1] = ([*found[-1][0], column], found[-1][1], place.end)
            continue
        last = documents
        is_holder = segments[column].kind is not SegmentKind.RETRIEVED
        found += [([column], place, place.end)] * (max(len(documents), 1) if is_holder else 1)
    return [(tuple(columns), place, end) for columns, place, end in found]


def _label(segment: Segment, place: Location, messages: Sequence[Message], after: int) -> int | None:
    """The number that stands before a document, behind the last one, or at its beginning."""
    if place.message < len(messages):
        content = messages[place.message].content
        start = max(after, place.start - _BEFORE)
        matches = [match for one in _LABELS for match in one.finditer(content, start, place.start)]
        if matches:
            return int(max(matches, key=lambda match: match.end())["n"])
    opening = _OPENING.match(segment.text)
    return None if opening is None else int(opening["n"] or opening["m"])
