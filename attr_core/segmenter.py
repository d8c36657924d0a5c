"""A generation's messages and the captured documents -> segments with exact character spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attr_core._locate import Span, Taken, gaps, locate, occurrences
from attr_core._turn import Part, substance, turn_parts
from attr_core.types import Document, Generation, Location, Message, Segment, SegmentKind, Trace

__all__ = ["group_of", "segment", "segment_trace", "unlocated"]

_GROUP_KEYS = ("group_id", "ref_doc_id", "source_id", "source", "file_path", "url")

_ROLES = {
    "system": SegmentKind.SYSTEM,
    "developer": SegmentKind.SYSTEM,
    "assistant": SegmentKind.ASSISTANT_TURN,
    "tool": SegmentKind.TOOL_OUTPUT,
    "function": SegmentKind.TOOL_OUTPUT,
}


def segment(
    generation: Generation, *, documents: Iterable[Document] = (), query: str | None = None
) -> tuple[Segment, ...]:
    """Cut the prompt of a generation into segments, in the order in which they stand.

    A message is one segment unless it is cut further:

    * A document that stands in a message exactly is a ``retrieved`` segment there. The last user turn, what came after
      it and the system message are searched first, earlier turns only for what stands in none of these, assistant
      turns last, so that a copy in the history is not mistaken for the document. What is left of the message is a
      segment of the message's kind where it says something; separators, labels and numbering stay in the prompt and
      belong to no segment.
    * The question being answered is a fixed segment of the last user turn that says something besides documents and
      labels: ``query`` where it stands there, else what is labelled as the question, else what follows the last
      document, else what precedes the first; without documents the last paragraph. An instruction before or after the
      documents is fixed too; other paragraphs can be removed. A ``query`` that is the whole turn says nothing about
      where the question stands, and is not used.

    Exact duplicates of one kind share a segment with several locations, fixed where one of them is.

    Parameters
    ----------
    generation : Generation
        Whose messages are cut; its own ``segments`` are ignored.
    documents : iterable of Document
        What was retrieved. White space around a text is not part of the segment. See :func:`unlocated` for those that
        could not be found.
    query : str, optional
        What the user asked.

    Returns
    -------
    tuple of Segment
        Locations never overlap; ``text`` is the slice of the message's content at each of them.

    Examples
    --------
    >>> message = Message("user", "[1] It opened in 1911.\\n\\nWhen did it open?")
    >>> for piece in segment(Generation((message,), None), documents=[Document("d1", "It opened in 1911.")]):
    ...     print(piece.id, piece.kind, piece.locations[0].start, piece.fixed)
    d1 retrieved 4 False
    m0.p1 user_turn 24 True
    """
    messages = generation.messages
    by_text: dict[str, Document] = {}
    for document in documents:
        by_text.setdefault(document.text.strip(), document)
    found, question = _find(messages, list(by_text), query)
    pieces = [_document_segment(by_text[text], locations, messages) for text, locations in found.items()]
    spans: dict[int, list[Span]] = {index: [] for index in range(len(messages))}
    for piece in pieces:
        for location in piece.locations:
            spans[location.message].append((location.start, location.end))
    asked: list[Part] = []
    for index in reversed(range(len(messages))):
        message, cuts = messages[index], sorted(spans[index])
        if not message.content.strip():
            continue
        parts = []
        if not asked and _kind(message) is SegmentKind.USER_TURN and message.role == "user":
            here = question if question and question.message == index else None
            parts = asked = turn_parts(message.content, cuts, (here.start, here.end) if here else None)
        pieces += _message_segments(index, message, parts or _rest(message.content, cuts))
    return tuple(_named(_merged(sorted(pieces, key=lambda piece: _order(piece.locations[0])))))


def segment_trace(trace: Trace, generation: Generation | None = None) -> Generation:
    """A generation of a trace with its segments filled from the trace's documents and query.

    Parameters
    ----------
    trace : Trace
        Where the documents (retrieved, or brought by tool calls) and the query are taken from.
    generation : Generation, optional
        By default the one that gave the answer. One that has segments is returned as it is.

    Returns
    -------
    Generation
        A copy. A segment that repeats the response of an earlier generation has that generation as its ``origin``.

    Raises
    ------
    InputError
        The trace holds no generation.
    """
    generation = generation or trace.target_generation
    if generation.segments:
        return generation
    segments = segment(generation, documents=_documents(trace), query=trace.query)
    earlier: dict[str, str] = {}
    for other in trace.generations:
        if other.id == generation.id:
            break
        if other.response and other.response.strip():
            earlier[other.response.strip()] = other.id
    segments = tuple(
        piece if piece.origin else replace(piece, origin=earlier.get(piece.text.strip())) for piece in segments
    )
    return replace(generation, segments=segments)


def unlocated(documents: Iterable[Document] | Trace, segments: Sequence[Segment]) -> tuple[Document, ...]:
    """The documents that are no segment: changed, cut or dropped on the way into the prompt, or inside another one.

    They cannot be attributed, so they are reported and never guessed.

    Parameters
    ----------
    documents : iterable of Document or Trace
        What was retrieved.
    segments : sequence of Segment
        What :func:`segment` made of the prompt.
    """
    retrieved = [piece for piece in segments if piece.kind is SegmentKind.RETRIEVED]
    texts = {piece.text.strip() for piece in retrieved}
    marked = [(str(piece.source["rag_chunk_id"]), piece.text) for piece in retrieved if "rag_chunk_id" in piece.source]

    def is_located(document: Document) -> bool:
        text = document.text.strip()
        inside = any(name == document.id and text in chunk for name, chunk in marked)
        return bool(text) and (text in texts or inside)

    documents = _documents(documents) if isinstance(documents, Trace) else documents
    return tuple(document for document in documents if not is_located(document))


def group_of(metadata: Mapping[str, Any], default: str) -> str:
    """The id that ties the pieces of one source together.

    The first of ``group_id``, the framework's parent id (``ref_doc_id``, ``source_id``) and the path or URL
    (``source``, ``file_path``, ``url``) that ``metadata`` has, else ``default``, the chunk's own id.
    """
    named = (metadata.get(key) for key in _GROUP_KEYS)
    return next((str(value) for value in named if isinstance(value, str | int) and str(value).strip()), default)


def _find(
    messages: Sequence[Message], texts: Sequence[str], query: str | None
) -> tuple[dict[str, tuple[Location, ...]], Location | None]:
    """The documents' locations and the query's; of two that overlap the longer one wins, of two alike the query."""
    contents = [message.content for message in messages]
    last = max(
        (i for i, m in enumerate(messages) if _kind(m) is SegmentKind.USER_TURN and m.content.strip()), default=-1
    )
    ranks = [_rank(message, is_history=index < last) for index, message in enumerate(messages)]
    query = (query or "").strip()
    taken = Taken()
    found = locate([text for text in texts if len(text) > len(query)], contents, ranks=ranks, taken=taken)
    question = None
    if query and last >= 0 and query != contents[last].strip():
        question = max(
            occurrences(query, contents[last], message=last, taken=taken), key=lambda here: here.start, default=None
        )
    if question:
        taken.add(question)
    found |= locate([text for text in texts if len(text) <= len(query)], contents, ranks=ranks, taken=taken)
    return found, question


def _rank(message: Message, *, is_history: bool) -> int | None:
    """In which order messages are searched for documents; one that is marked as a chunk is a segment as it stands."""
    if message.metadata.get("rag_chunk_id") is not None:
        return None
    if message.role == "assistant":
        return 2
    return 1 if is_history and _kind(message) is not SegmentKind.SYSTEM else 0


def _kind(message: Message) -> SegmentKind:
    metadata = message.metadata
    if metadata.get("rag_chunk_id") is not None:
        return SegmentKind.RETRIEVED
    if metadata.get("tool_call_id") is not None:
        return SegmentKind.TOOL_OUTPUT
    if metadata.get("memory"):
        return SegmentKind.MEMORY
    return _ROLES.get(message.role, SegmentKind.USER_TURN)


def _rest(content: str, documents: Sequence[Span]) -> list[Part]:
    """A message that does not hold the question: whole, or what it says around its documents."""
    if not documents:
        return [Part(0, len(content), fixed=False)]
    found = (substance(content, gap) for gap in gaps(len(content), documents))
    return [Part(*span, fixed=False) for span in found if span is not None]


def _document_segment(document: Document, locations: tuple[Location, ...], messages: Sequence[Message]) -> Segment:
    first = locations[0]
    return Segment(
        id=document.id,
        kind=SegmentKind.RETRIEVED,
        text=messages[first.message].content[first.start : first.end],
        locations=locations,
        group_id=group_of(document.metadata, document.id),
        source=document.metadata,
        origin=_tool_call_id(messages[first.message]),
    )


def _message_segments(index: int, message: Message, parts: Sequence[Part]) -> Iterator[Segment]:
    kind, chunk = _kind(message), message.metadata.get("rag_chunk_id")
    name = f"m{index}" if chunk is None else str(chunk)
    for number, part in enumerate(parts, start=1):
        is_whole = (part.start, part.end) == (0, len(message.content))
        yield Segment(
            id=name if is_whole else f"{name}.p{number}",
            kind=kind,
            text=message.content[part.start : part.end],
            locations=(Location(index, part.start, part.end),),
            group_id=group_of(message.metadata, name),
            source=message.metadata,
            origin=_tool_call_id(message),
            fixed=part.fixed,
        )


def _tool_call_id(message: Message) -> str | None:
    identifier = message.tool_call_id or message.metadata.get("tool_call_id")
    return str(identifier) if identifier is not None else None


def _order(place: Location) -> tuple[int, int]:
    return place.message, place.start


def _merged(pieces: Iterable[Segment]) -> Iterator[Segment]:
    alike: dict[tuple[SegmentKind, str], list[Segment]] = {}
    for piece in pieces:
        alike.setdefault((piece.kind, piece.text), []).append(piece)
    for first, *others in alike.values():
        locations = sorted((place for piece in (first, *others) for place in piece.locations), key=_order)
        yield replace(first, locations=tuple(locations), fixed=any(piece.fixed for piece in (first, *others)))


def _named(pieces: Iterable[Segment]) -> Iterator[Segment]:
    """With ids made unique: the second ``c1`` becomes ``c1#2``."""
    used: set[str] = set()
    seen: Counter[str] = Counter()
    for piece in pieces:
        name = piece.id
        while name in used:
            seen[piece.id] += 1
            name = f"{piece.id}#{seen[piece.id] + 1}"
        used.add(name)
        yield piece if name == piece.id else replace(piece, id=name)


def _documents(trace: Trace) -> tuple[Document, ...]:
    return (*trace.documents, *(document for call in trace.tool_calls for document in call.documents))
