"""An open run and its steps, and the trace that they make: plain state and pure functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from attr_core.types import Document, Generation, Message, Retrieval, ToolCall, Trace

__all__ = ["Item", "OpenRun", "Root", "Status", "Step", "trace_of"]

Item = Generation | Retrieval | ToolCall
Status = Literal["ok", "error", "interrupted", "partial"]


@dataclass(frozen=True, slots=True)
class Root:
    """What is known of a root run when it begins.

    ``given`` are the texts that came in with its input, and the ids of calls and messages of tools among them.
    """

    query: str | None = None
    name: str | None = None
    session_id: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    given: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class Step:
    """A run below a root, or the root itself; ``item`` is replaced as more becomes known."""

    run_id: Hashable
    root: OpenRun
    item: Item | None
    formats: bool = False
    is_open: bool = True
    is_asked: bool = False
    documents: tuple[Document, ...] = ()


@dataclass(slots=True, eq=False)
class OpenRun:
    run_id: Hashable
    about: Root
    trace_id: str
    started: datetime
    touched: float
    steps: list[Step] = field(default_factory=list)
    open: set[Step] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    contexts: list[str] = field(default_factory=list)
    variables: set[str] | None = None
    query: str | None = None
    output: str | None = None
    status: Status = "ok"
    error: str | None = None
    over: datetime | None = None
    is_cut: bool = False


def trace_of(root: OpenRun, *, framework: str) -> Trace:
    """What is known of a run so far, as a trace of its own: nothing in it changes with the run."""
    about, steps = root.about, list(root.steps)
    calls = tuple(step.item for step in steps if isinstance(step.item, ToolCall))
    generations = _generations(root, [step.item for step in steps if isinstance(step.item, Generation)], calls)
    answered = [generation.response for generation in generations if generation.response]
    query = root.query if root.query is not None else about.query
    output = None if root.is_cut else root.output
    return Trace(
        query=query if query is not None else _last_question(generations),
        generations=generations,
        answer=output if output is not None else next(reversed(answered), None),
        id=root.trace_id,
        retrievals=_retrievals(steps),
        tool_calls=_asked_for(calls, generations),
        tags=about.tags,
        framework=framework,
        run_id=str(root.run_id),
        session_id=about.session_id,
        status=root.status,
        error=root.error,
        started=root.started,
        finished=root.over,
        metadata={**about.metadata, **({"name": about.name} if about.name else {})},
    )


def _generations(root: OpenRun, generations: list[Generation], calls: tuple[ToolCall, ...]) -> tuple[Generation, ...]:
    """With what the application rendered, and with the messages marked that came out of a memory."""
    produced = {call.output.strip() for call in calls if call.output}
    named = {call.id for call in calls}
    found = []
    for generation in generations:
        messages = tuple(
            replace(message, metadata={**message.metadata, "memory": True})
            if is_past and _is_memory(message, root, produced, named)
            else message
            for message, is_past in _past(generation.messages)
        )
        contexts = [text for text in dict.fromkeys(root.contexts) if any(_stands_in(text, m.content) for m in messages)]
        rendered = {**generation.rendered, **({"context": contexts} if contexts else {})}
        found.append(replace(generation, messages=messages, rendered=rendered))
        if generation.response:
            produced.add(generation.response.strip())
        named.update(call.id for call in generation.tool_calls)
    return tuple(found)


def _stands_in(text: str, content: str) -> bool:
    """``text in content``, which takes ten times as long where both are long and begin alike."""
    start = content.find(head := text[:100])
    while start >= 0:
        if content.startswith(text, start):
            return True
        start = content.find(head, start + 1)
    return False


def _past(messages: tuple[Message, ...]) -> Iterator[tuple[Message, bool]]:
    """Each message with whether it stands before the last user turn."""
    last = max((i for i, message in enumerate(messages) if message.role == "user"), default=0)
    return ((message, i < last) for i, message in enumerate(messages))


def _is_memory(message: Message, root: OpenRun, produced: set[str], named: set[str]) -> bool:
    """Whether an earlier turn came neither with this run's input, nor from a template, nor out of this run."""
    text = message.content.strip()
    if message.role not in ("user", "assistant", "tool", "function") or text in root.about.given or text in produced:
        return False
    ids = {message.tool_call_id, *(call.id for call in message.tool_calls)} - {None, ""}
    if ids & (named | root.about.given):
        return False
    if not text:
        return bool(ids)
    return root.variables is None or text in root.variables


def _asked_for(calls: tuple[ToolCall, ...], generations: tuple[Generation, ...]) -> tuple[ToolCall, ...]:
    """Each call with the generation that asked for it, by the call's id."""
    asked = {call.id: generation.id for generation in reversed(generations) for call in generation.tool_calls}
    return tuple(replace(call, generation_id=call.generation_id or asked.get(call.id)) for call in calls)


def _retrievals(steps: list[Step]) -> tuple[Retrieval, ...]:
    """What retrievers gave, and the documents that came from elsewhere."""
    found = [step.item for step in steps if isinstance(step.item, Retrieval)]
    known = {document.text for retrieval in found for document in retrieval.documents}
    known.update(d.text for step in steps if isinstance(step.item, ToolCall) for d in step.item.documents)
    for step in steps:
        new = tuple(document for document in step.documents if document.text not in known)
        if new:
            known.update(document.text for document in new)
            found.append(Retrieval(query=None, documents=new))
    return tuple(found)


def _last_question(generations: tuple[Generation, ...]) -> str | None:
    texts = [
        message.content for generation in generations[:1] for message in generation.messages if message.role == "user"
    ]
    return texts[-1] if texts else None
