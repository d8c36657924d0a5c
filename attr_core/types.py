"""What happened and what it is cut into: the nouns of a run.

Frozen, slotted dataclasses that hold plain data. What was *measured* about a run is in :mod:`attr_core.results`. Past
400 lines because reading the shapes in which clients and frameworks hold messages, documents and tool calls stands with
the nouns they become.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

from attr_core.errors import InputError

__all__ = [
    "ATTRKIT_KEY",
    "Claim",
    "Document",
    "Generation",
    "Granularity",
    "Location",
    "Message",
    "Prompt",
    "Reading",
    "Retrieval",
    "Role",
    "Segment",
    "SegmentKind",
    "Target",
    "TargetKind",
    "ToolCall",
    "Trace",
    "call_text",
    "new_id",
]

ATTRKIT_KEY = "attrkit"
"""The single key under which attrkit leaves anything in someone else's object."""

Role = Literal["system", "developer", "user", "assistant", "tool"]
Reading = Literal["direct", "total"]
Granularity = Literal["message", "chunk", "paragraph", "sentence"]


class SegmentKind(StrEnum):
    """Where a piece of the context came from."""

    SYSTEM = "system"
    USER_TURN = "user_turn"
    ASSISTANT_TURN = "assistant_turn"
    RETRIEVED = "retrieved"
    TOOL_OUTPUT = "tool_output"
    MEMORY = "memory"


class TargetKind(StrEnum):
    """What part of the response a row of an attribution explains."""

    RESPONSE = "response"
    CLAIM = "claim"
    PIVOT = "pivot"
    SPAN = "span"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that the model asked for and, once it ran, what came back.

    ``arguments`` is what the model wrote: parsed JSON where it parses, otherwise the raw string.
    """

    id: str
    name: str
    arguments: Any = None
    output: str | None = None
    error: str | None = None
    generation_id: str | None = None
    documents: tuple[Document, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; ``content`` is always text.

    ``metadata`` is attrkit's and the framework's own (``rag_chunk_id``, ``tool_call_id``, ``group_id``, ``memory``); no
    engine sends it to a model.
    """

    role: str
    content: str
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, raw: Any) -> Message:
        """Read a message in any shape that chat clients use: a dict, a pydantic object or a :class:`Message`.

        Lists of content parts become their texts joined by blank lines, parts without text a bracketed note of their
        type; ``None`` becomes the empty string.

        Raises
        ------
        InputError
            ``raw`` has no role, or content that is neither text, parts nor ``None``.
        """
        if isinstance(raw, Message):
            return raw
        read = _reader(raw)
        role = read("role")
        if not isinstance(role, str) or not role:
            raise InputError(f"message {_short(raw)} has no role; give each message a role and content")
        metadata = read("metadata")
        return cls(
            role=role,
            content=_text_of(read("content")),
            name=read("name"),
            tool_calls=tuple(_parse_tool_call(call) for call in read("tool_calls") or ()),
            tool_call_id=read("tool_call_id"),
            metadata=dict(metadata) if isinstance(metadata, Mapping) else {},
        )

    def to_chat(self) -> dict[str, Any]:
        """The message as chat APIs take it, without attrkit's metadata."""
        chat: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.name is not None:
            chat["name"] = self.name
        if self.tool_calls:
            chat["tool_calls"] = [_tool_call_to_chat(call) for call in self.tool_calls]
        if self.tool_call_id is not None:
            chat["tool_call_id"] = self.tool_call_id
        return chat


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an engine is given: messages and the tool schemas that stood beside them."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()

    def to_chat(self) -> list[dict[str, Any]]:
        """The messages as chat APIs take them."""
        return [message.to_chat() for message in self.messages]


@dataclass(frozen=True, slots=True)
class Document:
    """A retrieved piece of text. ``score`` is the retriever's, in its own unit."""

    id: str
    text: str
    score: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, raw: Any, position: int = 0) -> Document:
        """Read a document from a string, a dict, or an object with ``text``, ``content`` or ``page_content``.

        Raises
        ------
        InputError
            No text can be found in ``raw``.
        """
        if isinstance(raw, Document):
            return raw
        if isinstance(raw, str):
            return cls(id=f"doc{position + 1}", text=raw)
        read = _reader(raw)
        text = next((value for key in ("text", "content", "page_content") if isinstance(value := read(key), str)), None)
        if text is None:
            raise InputError(f"document {_short(raw)} has no text; give a string or a dict with 'text' (and 'id')")
        metadata = read("metadata")
        if not isinstance(metadata, Mapping):
            metadata = read("meta")
        metadata = dict(metadata) if isinstance(metadata, Mapping) else {}
        identifier, score = read("id"), read("score")
        if identifier is None:
            identifier = metadata.get("id")
        return cls(
            id=str(identifier) if identifier is not None else f"doc{position + 1}",
            text=text,
            score=float(score) if isinstance(score, int | float) else None,
            metadata=metadata,
        )

    @classmethod
    def parse_all(cls, raw: Any) -> tuple[Document, ...]:
        """Read several documents; a single string or dict is one.

        Raises
        ------
        InputError
            ``raw`` is no collection, or one of its items has no text.
        """
        items = [raw] if isinstance(raw, str | Mapping | Document) else raw
        if not isinstance(items, Iterable):
            raise InputError(f"documents {_short(raw)} are no list; pass strings or dicts with 'text' (and 'id')")
        return tuple(cls.parse(item, position) for position, item in enumerate(items))


@dataclass(frozen=True, slots=True)
class Retrieval:
    """One call of a retriever; ``documents`` in the order it returned them."""

    query: str | None
    documents: tuple[Document, ...]
    id: str = field(default_factory=lambda: new_id("ret"))
    name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a segment stands: half-open characters ``[start, end)`` of one message's content."""

    message: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of the context that can be removed as one.

    Exact duplicates share one segment with several locations. ``fixed`` marks what is never ablated (the question being
    answered). ``group_id`` ties the pieces of one source; ``source`` is the framework's own metadata, untouched;
    ``origin`` names the earlier generation or tool call that produced the text.

    ``documents`` are the ids of the retrieved documents that it is or holds. How such a document was found is
    ``located``: ``exact``, ``escaped`` (as a JSON string), ``folded`` (other white space, case or Unicode form) or
    ``partial``, then with ``coverage``, the share of the document that stands there.
    """

    id: str
    kind: SegmentKind
    text: str
    locations: tuple[Location, ...]
    group_id: str | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    origin: str | None = None
    fixed: bool = False
    documents: tuple[str, ...] = ()
    located: str | None = None
    coverage: float = 1.0

    @classmethod
    def quoted(cls, id: str, text: str) -> Segment:  # noqa: A002
        """A text of no prompt, to be judged as segments are: an answer, or what is expected."""
        return cls(id, SegmentKind.ASSISTANT_TURN, text, (Location(0, 0, len(text)),))


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the response: ``response[start:end] == text``.

    A claim that a judge took out of a sentence keeps that sentence's span; its text is then the judge's.
    """

    index: int
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Target:
    """A row of an attribution: the span of the response whose cause is measured.

    ``claim`` is the index of the claim it belongs to, if any. ``reading`` is ``direct`` (scored given the response's
    earlier text) or ``total`` (scored without the earlier claims). A ``reference`` target's text is the expected
    answer, with ``start`` and ``end`` counted in that.
    """

    kind: TargetKind
    start: int
    end: int
    text: str
    claim: int | None = None
    reading: Reading = "direct"


@dataclass(frozen=True, slots=True)
class Generation:
    """One model call. ``rendered`` keeps what located the documents (formatter output, template arguments)."""

    messages: tuple[Message, ...]
    response: str | None
    id: str = field(default_factory=lambda: new_id("gen"))
    parent: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    segments: tuple[Segment, ...] = ()
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    model: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    rendered: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def prompt(self) -> Prompt:
        """The messages and tools as they were sent."""
        return Prompt(self.messages, self.tools)

    @property
    def written(self) -> str:
        """What the model wrote, and what a target's span counts in: its text, then its tool calls, a line each.

        A call stands there as :func:`call_text` writes it. Text of white space only is none; empty where the model
        wrote nothing.
        """
        said = [self.response] if self.response and self.response.strip() else []
        return "\n".join([*said, *(call_text(call.name, call.arguments) for call in self.tool_calls)])


@dataclass(frozen=True, slots=True)
class Trace:
    """One root run of an application: what it was asked, what it called, what it answered."""

    query: str | None
    generations: tuple[Generation, ...]
    answer: str | None
    id: str = field(default_factory=lambda: new_id("tr"))
    retrievals: tuple[Retrieval, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    reference: str | None = None
    expected_chunks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    framework: str | None = None
    run_id: str | None = None
    session_id: str | None = None
    status: Literal["ok", "error", "interrupted", "partial"] = "ok"
    error: str | None = None
    started: datetime | None = None
    finished: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_messages(
        cls,
        messages: Iterable[Any],
        response: str | None,
        *,
        documents: Iterable[Any] = (),
        query: str | None = None,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] | None = None,
        reference: str | None = None,
        tags: Iterable[str] = (),
        framework: str | None = None,
    ) -> Trace:
        """A trace of one model call that you hold in your hands.

        Parameters
        ----------
        messages : iterable
            Chat messages as sent, dicts or objects. Their ``metadata`` may carry ``rag_chunk_id``, ``tool_call_id``,
            ``group_id`` and ``memory``.
        response : str or None
            What the model answered.
        documents : iterable, optional
            Retrieved chunks (strings, dicts or objects) that stand somewhere in the messages; they are found there.
        query : str, optional
            The question being answered; by default the last user turn.

        Raises
        ------
        InputError
            No messages, or one that cannot be read.

        Examples
        --------
        >>> trace = Trace.from_messages(
        ...     [{"role": "user", "content": "The fair opened in 1911.\\n\\nWhen did it open?"}],
        ...     "In 1911.",
        ...     documents=["The fair opened in 1911."],
        ... )
        >>> trace.generations[0].response, trace.retrievals[0].documents[0].id
        ('In 1911.', 'doc1')
        """
        parsed = tuple(Message.parse(message) for message in messages)
        if not parsed:
            raise InputError("the message list is empty; give at least the user's turn")
        if not isinstance(tools, Sequence) or not all(isinstance(tool, Mapping) for tool in tools):
            raise InputError(f"tools {_short(tools)} are no list of schemas; pass a list of dicts")
        found = Document.parse_all(documents)
        generation = Generation(
            messages=parsed,
            response=response,
            model=model,
            tools=tuple(tools),
            parameters=dict(parameters or {}),
        )
        now = datetime.now(UTC)
        return cls(
            query=query,
            generations=(generation,),
            answer=response,
            retrievals=(Retrieval(query=query, documents=found),) if found else (),
            reference=reference,
            tags=tuple(tags),
            framework=framework,
            started=now,
            finished=now,
        )

    @property
    def target_generation(self) -> Generation:
        """The generation that gave the answer: the last one with a response, else the last that called a tool.

        Where no model call wrote anything, the last.

        Raises
        ------
        InputError
            The trace holds no generation.
        """
        if not self.generations:
            raise InputError(f"trace {self.id} holds no model call; nothing can be attributed")
        answered = [generation for generation in self.generations if generation.response]
        called = [generation for generation in self.generations if generation.tool_calls]
        return (answered or called or self.generations)[-1]

    @property
    def documents(self) -> tuple[Document, ...]:
        """All retrieved documents, in the order they were retrieved."""
        return tuple(document for retrieval in self.retrievals for document in retrieval.documents)

    def with_generation(self, generation: Generation) -> Trace:
        """The same trace with the generation of that id replaced."""
        return replace(self, generations=tuple(generation if g.id == generation.id else g for g in self.generations))


def call_text(name: str, arguments: Any) -> str:
    """A tool call as one line of text, for models and targets that have no syntax of their own for it.

    Examples
    --------
    >>> call_text("search", {"query": "fair", "limit": 3})
    'Tool call: {"arguments": {"limit": 3, "query": "fair"}, "name": "search"}'
    """
    call = {"name": name, "arguments": {} if arguments is None else arguments}
    return "Tool call: " + json.dumps(call, ensure_ascii=False, sort_keys=True, default=str)


def new_id(prefix: str) -> str:
    """A new random id: the prefix (``tr``, ``gen``, ``ret``), an underscore and 16 hexadecimal digits."""
    return f"{prefix}_{uuid.uuid4().hex[:16]}"


def _reader(raw: Any) -> Any:
    if isinstance(raw, Mapping):
        return raw.get
    return lambda key: getattr(raw, key, None)


def _short(raw: Any) -> str:
    text = repr(raw)
    return text if len(text) <= 80 else text[:77] + "..."


def _text_of(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n\n".join(text for part in content if (text := _part_text(part)))
    raise InputError(f"message content {_short(content)} is neither text nor a list of parts; pass text")


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    read = _reader(part)
    text = read("text")
    return text if isinstance(text, str) else f"[{read('type') or 'part'}]"


def _parse_tool_call(raw: Any) -> ToolCall:
    if isinstance(raw, ToolCall):
        return raw
    read = _reader(raw)
    function = _reader(read("function")) if read("function") is not None else read
    arguments = function("arguments") if function("arguments") is not None else function("args")
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # a model may write anything; then its own words are kept
            arguments = json.loads(arguments)
    return ToolCall(id=str(read("id") or ""), name=str(function("name") or ""), arguments=arguments)


def _tool_call_to_chat(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments or {})
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
