"""A generation's messages and the captured documents -> segments with exact character spans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, get_args

from attr_core._segmenting.distinct import distinct, place_order
from attr_core._segmenting.finer import coarser, finer
from attr_core._segmenting.locate import Found, Haystack, Taken, locate, mark_zone
from attr_core._segmenting.origins import (
    calls_before,
    carried_in,
    is_carried_only,
    origin_of,
    position_of,
    sources_before,
)
from attr_core._segmenting.turn import Part, substance, turn_parts
from attr_core._text.views import Span, fold, gaps
from attr_core.errors import InputError
from attr_core.types import Document, Generation, Granularity, Location, Message, Segment, SegmentKind, Trace

__all__ = ["documents_before", "group_of", "partly_located", "segment", "segment_trace", "unlocated"]

_Named = dict[str, tuple[Document, tuple[str, ...]]]  # a text's first document, and the names of all that have it
_Held = tuple[int, int, tuple[str, ...]]  # where in a message a text stands, and the names of its documents

_GROUP_KEYS = ("group_id", "ref_doc_id", "source_id", "source", "file_path", "url")

_ROLES = {
    "system": SegmentKind.SYSTEM,
    "developer": SegmentKind.SYSTEM,
    "assistant": SegmentKind.ASSISTANT_TURN,
    "tool": SegmentKind.TOOL_OUTPUT,
    "function": SegmentKind.TOOL_OUTPUT,
}


def segment(
    generation: Generation,
    *,
    documents: Iterable[Document] = (),
    query: str | None = None,
    granularity: Granularity = "chunk",
) -> tuple[Segment, ...]:
    """Cut the prompt of a generation into segments, in the order in which they stand.

    A message is one segment unless it is cut further:

    * A document that stands in a message is a ``retrieved`` segment there. It is looked for as it is, then as a JSON
      string, then in other white space, case or Unicode form, and at last in part; ``located`` and ``coverage`` say
      how it was found. Longer documents come first, so that a short one is not found inside them. What the application
      made of the documents (``rendered["context"]``), the last user turn, what came after it and the system message
      are searched first, earlier turns only for what stands in none of these, assistant turns last, so that a copy in
      the history is not mistaken for the document. What is left of the message is a segment of the message's kind
      where it says something; separators, labels and numbering stay in the prompt and belong to no segment.
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
    granularity : {"chunk", "message", "paragraph", "sentence"}
        ``message`` cuts no documents out of their messages, only the question. ``paragraph`` and ``sentence`` cut
        documents, tool outputs, memory and turns longer than 200 characters further (``d1.s1``, ``d1.s2``).

    Returns
    -------
    tuple of Segment
        Locations never overlap; ``text`` is the slice of the message's content at each of them.

    Raises
    ------
    InputError
        No such granularity.

    Examples
    --------
    >>> message = Message("user", "[1] It opened in 1911.\\n\\nWhen did it open?")
    >>> for piece in segment(Generation((message,), None), documents=[Document("d1", "It opened in 1911.")]):
    ...     print(piece.id, piece.kind, piece.locations[0].start, piece.fixed)
    d1 retrieved 4 False
    m0.p1 user_turn 24 True
    """
    if granularity not in get_args(Granularity):
        raise InputError(f"granularity {granularity!r} does not exist; use {', '.join(get_args(Granularity))}")
    messages, named = generation.messages, _by_text(documents)
    found, question = _find(generation, named, query)
    inside: dict[int, list[_Held]] = {index: [] for index in range(len(messages))}
    pieces: list[Segment] = []
    for text, places in found.items():
        document, names = named[text]
        for one in places:
            inside[one.location.message].append((one.location.start, one.location.end, names))
            if granularity != "message":
                pieces.append(_document_segment(document, names, one, messages))
    for index, parts in _cut(messages, inside, question, whole=granularity == "message"):
        held = inside[index] if granularity == "message" else []
        pieces += _message_segments(index, messages[index], parts, [*held, *_marked(messages[index], named)])
    whole = distinct(sorted(pieces, key=lambda piece: place_order(piece.locations[0])))
    return tuple(distinct(part for piece in whole for part in finer(piece, granularity)))


def segment_trace(
    trace: Trace, generation: Generation | None = None, *, granularity: Granularity | None = None
) -> Generation:
    """A generation of a trace with its segments filled from the trace's documents and query.

    Parameters
    ----------
    trace : Trace
        Where the documents (retrieved, or brought by tool calls) and the query are taken from.
    generation : Generation, optional
        By default the one that gave the answer.
    granularity : {"chunk", "message", "paragraph", "sentence"}, optional
        As for :func:`segment`. Named, it cuts a generation that has segments anew; by default one that has segments is
        returned as it is, another cut into chunks.

    Returns
    -------
    Generation
        A copy. A segment whose text an earlier generation wrote, or a tool call before it gave (as output or document),
        has that as its ``origin``: the earliest, found by the message's ``tool_call_id``, else by texts that are equal
        or hold one another. What stood in the prompt of that model call already did not come from it. An earlier
        generation's response that stands in an instruction or that a prompt template was given (an answer to be
        refined, answers to be summed up) is cut out as a segment of its own, ``step2``, which can be removed.

    Raises
    ------
    InputError
        The trace holds no generation, or there is no such granularity.
    """
    generation = generation or trace.target_generation
    if generation.segments and granularity is None:
        return generation
    documents = documents_before(trace, generation)
    cut = partial(segment, generation, query=trace.query, granularity=granularity or "chunk")
    segments = cut(documents=documents)
    if granularity != "message" and (carried := carried_in(trace, generation, segments)):
        documents = tuple(one for one in documents if not is_carried_only(one.text.strip(), carried, generation))
        answers = [Document(f"step{step}", text) for text, (step, _) in carried.items()]
        segments = tuple(_as_carried(piece, carried) for piece in cut(documents=(*documents, *answers)))
    names = {(document.id, document.text.strip()): name for name, document in _with_names(documents)}
    sources = sources_before(trace, generation, names)
    return replace(
        generation,
        segments=tuple(
            replace(piece, origin=piece.origin or origin_of(piece, generation, trace, sources)) for piece in segments
        ),
    )


def documents_before(trace: Trace, generation: Generation) -> tuple[Document, ...]:
    """The documents of a trace that the prompt of a generation can hold.

    Not those of tool calls that it or a later one asked for, nor retrieved ones that stand in later prompts only.
    """
    later = trace.generations[position_of(trace, generation) + 1 :]
    own, others = _contents([generation]), _contents(later)
    retrieved = (
        document for document in trace.documents if (text := document.text.strip()) in own or text not in others
    )
    brought = (document for call, _ in calls_before(trace, generation) for document in call.documents)
    return (*retrieved, *brought)


def _as_carried(piece: Segment, carried: Mapping[str, tuple[int, str]]) -> Segment:
    """A piece that was cut out as an earlier generation's answer, as what it is."""
    found = {f"step{step}": origin for step, origin in carried.values()}
    if piece.kind is not SegmentKind.RETRIEVED or not set(piece.documents) <= set(found):
        return piece
    origin = found[piece.documents[0]]
    return replace(piece, kind=SegmentKind.ASSISTANT_TURN, origin=origin, documents=(), located=None)


def _contents(generations: Iterable[Generation]) -> str:
    return "\0".join(message.content for generation in generations for message in generation.messages)


def unlocated(documents: Iterable[Document] | Trace, segments: Sequence[Segment]) -> tuple[Document, ...]:
    """The documents of which nothing was found: rewritten or dropped on the way into the prompt, or inside another one.

    They cannot be attributed, so they are reported and never guessed. For those found in part see
    :func:`partly_located`.

    Parameters
    ----------
    documents : iterable of Document or Trace
        What was retrieved.
    segments : sequence of Segment
        What :func:`segment` made of the prompt and the same documents.
    """
    documents = _documents(documents) if isinstance(documents, Trace) else documents
    names = {name for piece in segments for name in piece.documents}
    texts = {piece.text.strip() for piece in segments if piece.kind is SegmentKind.RETRIEVED}
    return tuple(
        document
        for name, document in _with_names(documents)
        if name not in names and document.text.strip() not in texts
    )


def partly_located(segments: Iterable[Segment]) -> dict[str, float]:
    """Document -> the share of it that stands in the prompt, for those that were only found in part.

    What is missing may have been said elsewhere in the prompt in other words, so their effects are at least suspect.
    """
    parts = [piece for piece in segments if piece.located == "partial"]
    return {name: piece.coverage for piece in parts for name in piece.documents}


def group_of(metadata: Mapping[str, Any], default: str) -> str:
    """The id that ties the pieces of one source together.

    The first of ``group_id``, the framework's parent id (``ref_doc_id``, ``source_id``) and the path or URL
    (``source``, ``file_path``, ``url``) that ``metadata`` has, else ``default``, the chunk's own id.
    """
    named = (metadata.get(key) for key in _GROUP_KEYS)
    return next((str(value) for value in named if isinstance(value, str | int) and str(value).strip()), default)


def _find(
    generation: Generation, texts: Iterable[str], query: str | None
) -> tuple[dict[str, list[Found]], Location | None]:
    """Where the documents' texts stand, and the query in the last user turn."""
    messages = generation.messages
    last = max(
        (i for i, m in enumerate(messages) if _kind(m) is SegmentKind.USER_TURN and m.content.strip()), default=-1
    )
    haystacks = [
        Haystack(message.content, message=index, rank=rank)
        for index, message in enumerate(messages)
        if (rank := _rank(message, is_history=index < last)) is not None
    ]
    context = generation.rendered.get("context")
    for text in context if isinstance(context, list | tuple) else [context]:
        if isinstance(text, str):
            mark_zone(text, haystacks)
    query = (query or "").strip()
    if last >= 0 and query == messages[last].content.strip():
        query = ""
    return locate(dict.fromkeys(texts), haystacks, taken=Taken(), query=query, asked=last)


def _cut(
    messages: Sequence[Message], inside: Mapping[int, list[_Held]], question: Location | None, *, whole: bool
) -> Iterator[tuple[int, list[Part]]]:
    """What each message says besides its documents, or with ``whole`` documents included; the question apart."""
    is_asked = False
    for index in reversed(range(len(messages))):
        message = messages[index]
        if not message.content.strip():
            continue
        documents = sorted((start, end) for start, end, _ in inside[index])
        parts: list[Part] = []
        if not is_asked and _kind(message) is SegmentKind.USER_TURN and message.role == "user":
            here = question if question and question.message == index else None
            parts = turn_parts(message.content, documents, (here.start, here.end) if here else None)
            is_asked = bool(parts)
            if whole and parts:
                parts = coarser(message.content, parts)
        yield index, parts or _rest(message.content, [] if whole else documents)


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


def _document_segment(document: Document, names: tuple[str, ...], found: Found, messages: Sequence[Message]) -> Segment:
    place = found.location
    return Segment(
        id=document.id,
        kind=SegmentKind.RETRIEVED,
        text=messages[place.message].content[place.start : place.end],
        locations=(place,),
        group_id=group_of(document.metadata, document.id),
        source=document.metadata,
        origin=_tool_call_id(messages[place.message]),
        documents=names,
        located=found.rung,
        coverage=found.coverage,
    )


def _message_segments(index: int, message: Message, parts: Sequence[Part], held: Sequence[_Held]) -> Iterator[Segment]:
    kind, chunk = _kind(message), message.metadata.get("rag_chunk_id")
    name = f"m{index}" if chunk is None else str(chunk)
    for number, part in enumerate(parts, start=1):
        is_whole = (part.start, part.end) == (0, len(message.content))
        within = (names for start, end, names in held if part.start <= start and end <= part.end)
        yield Segment(
            id=name if is_whole else f"{name}.p{number}",
            kind=kind,
            text=message.content[part.start : part.end],
            locations=(Location(index, part.start, part.end),),
            group_id=group_of(message.metadata, name),
            source=message.metadata,
            origin=_tool_call_id(message),
            fixed=part.fixed,
            documents=tuple(dict.fromkeys(chain.from_iterable(within))),
        )


def _marked(message: Message, named: _Named) -> list[_Held]:
    """The documents of a message that is marked as a chunk: of that id, with a text that stands there."""
    chunk = message.metadata.get("rag_chunk_id")
    content = "" if chunk is None else fold(message.content)
    return [
        (0, 0, names)
        for text, (document, names) in named.items()
        if chunk is not None and text and (document.id == str(chunk) or str(chunk) in names) and fold(text) in content
    ]


def _tool_call_id(message: Message) -> str | None:
    identifier = message.tool_call_id or message.metadata.get("tool_call_id")
    return str(identifier) if identifier is not None else None


def _with_names(documents: Iterable[Document]) -> Iterator[tuple[str, Document]]:
    """Documents under their ids made unique: two retrievals may both call their first one ``doc1``."""
    texts: dict[str, str] = {}
    for document in documents:
        name, number, text = document.id, 1, document.text.strip()
        while texts.setdefault(name, text) != text:
            number += 1
            name = f"{document.id}#{number}"
        yield name, document


def _by_text(documents: Iterable[Document]) -> _Named:
    """Each text with the first document that has it and the names of all that do."""
    named: _Named = {}
    for name, document in _with_names(documents):
        first, names = named.get(document.text.strip(), (document, ()))
        named[document.text.strip()] = first, names if name in names else (*names, name)
    return named


def _documents(trace: Trace) -> tuple[Document, ...]:
    return (*trace.documents, *(document for call in trace.tool_calls for document in call.documents))
