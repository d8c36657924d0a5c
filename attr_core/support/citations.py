"""Citations in an answer: which claim cites which segment, as the answer or its provider says.

A citation is what the model *says* that it used. Whether the segment bears the claim out is the judge's to say, whether
it caused the claim is measured; :mod:`attr_core.support.grid` shows the three beside each other.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from attr_core._text.views import Span, fold
from attr_core.support._cited import Columns, Sources, joined, sources_of
from attr_core.support._markers import Marker, markers
from attr_core.support._provider_citations import Given, provider_citations
from attr_core.support._sentences import supporting_sentence
from attr_core.types import Claim, Generation, Segment

__all__ = ["Citation", "Citations", "citations", "supporting_sentence"]

_Reading = Literal["name", "label", "order", "text", "none"]

_SAID = re.compile(r"[^\W_]")
_LONGEST_QUOTE = 20_000
"""Characters of quoted text that are looked for in the segments."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation of one claim: characters ``start`` to ``end`` of the answer are its marker, or the words cited for.

    ``claim`` is the position among the claims (of those that share a sentence, the first), ``None`` where it stands
    behind none. ``segments`` are columns; ``missing`` are names and numbers that are no segment's: with no column at
    all the citation dangles. ``text`` is the cited text, where it is given. ``form`` is how it is written: ``bracket``,
    ``lenticular``, ``tag``; or whose object it is: ``anthropic``, ``cohere``, ``openai``, ``annotation``. ``reading``
    is what tells the source: its ``name``, its ``label`` in the prompt, its place in the ``order`` of the documents, or
    the quoted ``text`` that stands there; ``none`` where nothing does.
    """

    start: int
    end: int
    claim: int | None
    segments: tuple[int, ...]
    form: str
    reading: _Reading
    missing: tuple[str, ...] = ()
    text: str | None = None

    @property
    def dangles(self) -> bool:
        """Whether no segment is what it cites."""
        return not self.segments


@dataclass(frozen=True, slots=True)
class Citations:
    """The citations of an answer in the order of its text; ``notes`` say how numbers were read, and what dangles."""

    found: tuple[Citation, ...]
    notes: tuple[str, ...] = ()


def citations(
    answer: str,
    claims: Sequence[Claim],
    segments: Sequence[Segment],
    generation: Generation | None = None,
    *,
    provider: Any = None,
) -> Citations:
    """Which claim cites which segment.

    Read are ``[1]``, ``[1, 2]``, ``[1-3]``, ``[^1]``, ``[[1]]``, ``[Source 2]``, ``【1】``, ``【1†source】``,
    ``<cite>``, and names: ``[handbook.pdf]``, where that is a segment's or document's id or stands in its metadata. A
    number is the label of a document (``[3] text``, ``Document 3:``, ``<document index="3">``), where at least half of
    the documents have one in the prompt, else its place in the order of the prompt, counted from 1; the notes say so
    where the two differ. A marker cites for the sentence that it stands in or right behind; a provider's object, and
    ``<cite>``, for the claims whose words they enclose. ``(1)``, superscripts and links are no citations.
    Cost: no calls; time is linear in the answer's length.

    Parameters
    ----------
    answer : str
    claims : sequence of Claim
        Spans of the answer.
    segments : sequence of Segment
        Columns count in these.
    generation : Generation, optional
        Its messages are what the segments stand in; without it only labels that are part of a segment are seen.
    provider : optional
        Citation objects of Anthropic (``char_location`` and its kin), Cohere or OpenAI (``url_citation``,
        ``file_citation``), as a list, in content blocks, or in a message or its metadata. Those without a place in the
        answer are kept, for no claim.

    Returns
    -------
    Citations

    Examples
    --------
    >>> from attr_core.claims import split_claims
    >>> from attr_core.types import Location, SegmentKind
    >>> texts = ("The fair opened in 1911.", "Tickets cost four marks.")
    >>> places = ((Location(0, 0, 24),), (Location(0, 26, 50),))
    >>> segments = [Segment(f"c{n}", SegmentKind.RETRIEVED, texts[n], places[n]) for n in range(2)]
    >>> answer = "A ticket is four marks [2]. It opened in 1911 [c0]."
    >>> [(one.claim, one.segments) for one in citations(answer, split_claims(answer), segments).found]
    [(0, (1,)), (1, (0,))]
    """
    sources = sources_of(segments, () if generation is None else generation.messages)
    given = list(provider_citations(answer, provider))
    own = [one.span for one in given if one.span is not None and one.is_marker]
    written = [one for one in markers(answer) if not _overlaps(one, own)]
    places = _Claims(answer, claims, [*own, *(span for one in written for span in one.marks)])
    folded = _Texts(segments)
    found: list[Citation] = []
    for marker in written:
        found += _written(marker, answer, sources, places, folded)
    for one in given:
        found += _given(one, answer, sources, places, folded)
    found.sort(key=lambda one: (one.start, one.end, -1 if one.claim is None else one.claim))
    return Citations(tuple(dict.fromkeys(found)), tuple(_notes(found, given, sources)))


def _written(marker: Marker, answer: str, sources: Sources, places: _Claims, texts: _Texts) -> Iterator[Citation]:
    """The marker's citations; none where it holds nothing that could be a source, as an interval [0, 1] does not."""
    if marker.form == "bracket" and 0 in marker.numbers and 0 not in sources.labels:
        return
    inner, quoted = marker.inner, None
    columns, reading, missing = _source(marker, sources)
    if inner is not None and not columns:
        said = answer[slice(*inner)].strip()
        if named := sources.named(said[:_LONGEST_QUOTE]):
            columns, reading, missing, inner = named, "name", (), None
        elif held := texts.holding(said):
            columns, reading, missing, quoted = held, "text", (), said
    if not columns and not marker.needs_source:
        return
    for claim in places.behind(marker.start, marker.end) if inner is None else places.within(*inner):
        yield Citation(marker.start, marker.end, claim, columns, marker.form, reading, missing, quoted)


def _source(marker: Marker, sources: Sources) -> tuple[Columns, _Reading, tuple[str, ...]]:
    """The columns, what told them, and what is missing."""
    numbers = marker.numbers
    for names in marker.options:
        if (columns := sources.all_named(names)) and not (numbers and all(name.isdecimal() for name in names)):
            return columns, "name", ()
    known = {number: columns for number in numbers if (columns := sources.numbered(number))}
    missing = tuple(str(number) for number in numbers if number not in known)
    if known:
        return joined(known.values()), "label" if sources.labels else "order", missing
    for names in marker.options:  # a document whose id is a number
        if columns := sources.all_named(names):
            return columns, "name", ()
    return (), "none", missing or marker.options[0][:1] if marker.options else missing


def _given(one: Given, answer: str, sources: Sources, places: _Claims, texts: _Texts) -> Iterator[Citation]:
    columns, reading, missing = _given_source(one, sources, texts)
    start, end = one.span or (0, len(answer))
    claims: Sequence[int | None] = (None,)
    if one.span is not None:
        claims = places.behind(start, end) if one.is_marker else places.within(start, end)
    for claim in claims:
        yield Citation(start, end, claim, columns, one.form, reading, missing, one.quoted)


def _given_source(one: Given, sources: Sources, texts: _Texts) -> tuple[Columns, _Reading, tuple[str, ...]]:
    """What holds the cited text, as far as the object's name or number leaves it open; else what these say."""
    reading: _Reading = "name"
    columns = next((found for name in one.names if (found := sources.named(name))), ())
    at = () if one.index is None else sources.documents[one.index : one.index + 1]
    if at and (not columns or set(at[0]) <= set(columns)):  # a title may be that of several
        columns, reading = at[0], "order"
    held = texts.holding(one.quoted) if one.quoted else ()
    if both := tuple(column for column in columns if column in held):
        return both, reading, ()
    if held and (reading != "name" or not columns):
        return held, "text", ()
    if columns:
        return columns, reading, ()
    return (), "none", one.names[:1] or (() if one.index is None else (str(one.index),))


def _notes(found: Sequence[Citation], given: Sequence[Given], sources: Sources) -> Iterator[str]:
    readings = {one.reading for one in found}
    if "label" in readings and sources.labels_differ:
        yield "numbers are read as the labels that documents have in the prompt, which are not their order there"
    dangling = [one for one in found if one.missing or one.dangles]
    if dangling:
        named = ", ".join(dict.fromkeys(_shown(name) for one in dangling for name in one.missing))
        yield f"{len(dangling)} citations name no segment{f': {named[:200]}' if named else ''}"
    if unplaced := sum(one.span is None for one in given):
        yield f"{unplaced} citations of the provider do not say what part of the answer they are for"


def _shown(name: str) -> str:
    return "".join(one if one.isprintable() else " " for one in name[:40])


def _overlaps(marker: Marker, spans: Sequence[Span]) -> bool:
    return any(start < marker.end and marker.start < end for start, end in spans)


class _Texts:
    """Which segments hold a quoted text, whatever its case and white space."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._folded: list[str] | None = None

    def holding(self, quoted: str) -> Columns:
        """Columns of the segments that hold it; none for a text of a few characters."""
        wanted = fold(quoted[:_LONGEST_QUOTE])
        if len(wanted) < 8:
            return ()
        if self._folded is None:
            self._folded = [fold(segment.text) for segment in self._segments]
        return tuple(column for column, text in enumerate(self._folded) if wanted in text)


class _Claims:
    """Which claims a place of the answer belongs to; of those with one span, the first stands for all."""

    def __init__(self, answer: str, claims: Sequence[Claim], marked: Sequence[Span]) -> None:
        self._answer = answer
        spans: dict[Span, int] = {}
        for position, claim in enumerate(claims):
            spans.setdefault((claim.start, claim.end), position)
        self._spans = sorted(spans)
        self._positions = [spans[span] for span in self._spans]
        self._starts = [start for start, _ in self._spans]
        self._marked = sorted(marked)
        self._marks = [start for start, _ in self._marked]
        nexts = [*self._starts[1:], len(answer)]
        self._says = [self._said_from(first, last) for first, last in self._spans]
        self._after = [
            self._said_from(last, following) for (_, last), following in zip(self._spans, nexts, strict=False)
        ]
        self._stands_for: list[int] = []  # a claim of markers alone belongs to the last
        for at, (_, last) in enumerate(self._spans):
            self._stands_for.append(self._stands_for[-1] if at and self._says[at] >= last else at)

    def within(self, start: int, end: int) -> list[int | None]:
        """All claims with a letter or digit in that part of the answer."""
        found: list[int | None] = []
        for at in range(max(0, bisect_right(self._starts, start) - 1), len(self._spans)):
            first, last = self._spans[at]
            if first >= end:
                break
            if _SAID.search(self._answer, max(first, start), min(last, end)):
                found.append(self._positions[at])
        return found or [None]

    def behind(self, start: int, end: int) -> list[int | None]:
        """The claim that a marker stands in, or that ends before it where it opens the next one on its line."""
        at = bisect_right(self._starts, start) - 1
        if at < 0:
            return [None]
        first, last = self._spans[at]
        if start >= last and self._after[at] < start:
            return [None]  # other words stand between
        opens = at > 0 and start < self._says[at] and "\n" not in self._answer[self._spans[at - 1][1] : first]
        return [self._positions[self._stands_for[at - 1 if opens else at]]]

    def _said_from(self, position: int, limit: int) -> int:
        """Where the next letter or digit stands that is no marker's; ``limit`` where none does."""
        while match := _SAID.search(self._answer, position, limit):
            at = bisect_right(self._marks, match.start()) - 1
            if at < 0 or self._marked[at][1] <= match.start():
                return match.start()
            position = self._marked[at][1]
        return limit
