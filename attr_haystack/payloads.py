"""Reads what spans are told: what a component is, what came into a run, and what it gave.

A component is known by what goes in and comes out, not by its class: applications write their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from itertools import islice
from typing import Any, Literal

from haystack.core.errors import BreakpointException, PipelineRuntimeError
from haystack.dataclasses import ChatMessage, Document, GeneratedAnswer

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.capture import Root
from attr_haystack.convert import documents_in, to_messages

__all__ = [
    "Part",
    "about",
    "answer_in",
    "cause_of",
    "is_chat",
    "is_template",
    "part_of",
    "query_in",
    "status_of",
    "texts_in",
    "texts_out",
    "variables_in",
]

_ASKS_A_RETRIEVER = ("query", "queries", "query_embedding", "query_sparse_embedding")
_QUESTIONS = ("query", "question", "user_query", "user_input", "queries", "messages", "text", "prompt")
_SESSIONS = ("session_id", "thread_id", "conversation_id", "chat_history_id")
_NOT_VARIABLES = frozenset({"template", "streaming_callback"})
_ANSWERS = ("answers", "last_message", "replies")
_SENT = ("system", "user")
_DEEPEST = 8
_MOST = 5_000
"""Values that are looked at in one input; a run may well be handed a whole corpus."""


class Part(Enum):
    """What a component does in a run."""

    MODEL = auto()
    RETRIEVER = auto()
    FORMATTER = auto()
    OTHER = auto()


def part_of(tags: Mapping[str, Any], inputs: Mapping[str, Any]) -> Part:
    """What a component does, from its sockets and what it is given.

    One that answers messages with ``replies`` is a model, one that is asked and gives ``documents`` without having been
    given any a retriever, and one that is given documents and gives something else makes text of them.
    """
    gives = _keys(tags.get("haystack.component.output_spec"))
    takes = _keys(tags.get("haystack.component.input_spec")) | _keys(inputs)
    if "replies" in gives and "replies" not in takes and takes & {"messages", "prompt"}:
        return Part.MODEL
    if "documents" in gives:
        is_named = str(tags.get("haystack.component.type", "")).endswith("Retriever")
        is_asked = is_named or any(inputs.get(key) is not None for key in _ASKS_A_RETRIEVER)
        return Part.RETRIEVER if is_asked and "documents" not in takes else Part.OTHER
    return Part.FORMATTER if next(documents_in(inputs), None) is not None else Part.OTHER


def about(inputs: Any, *, name: str | None = None, metadata: Any = None) -> Root:
    """What a root run's input tells of it, and the pipeline's own metadata."""
    told = dict(metadata) if isinstance(metadata, Mapping) else {}
    held = [told, *_levels(inputs)]
    session = next((level[key] for key in _SESSIONS for level in held if level.get(key)), None)
    return Root(
        query=query_in(inputs),
        name=name or (str(told["name"]) if told.get("name") else None),
        session_id=None if session is None else str(session),
        metadata=plain(without_secrets(told)),
        given=texts_in(inputs),
    )


def query_in(inputs: Any) -> str | None:
    """What the user asked: of all components' inputs, what is named most like a question."""
    levels = _levels(inputs)
    asked = (_question(level.get(key)) for key in _QUESTIONS for level in levels)
    return next((text for text in asked if text is not None), None)


def texts_in(value: Any) -> frozenset[str]:
    """All texts of an input, of messages (with ids of tool calls) and documents too, unless very deep or large."""
    found: set[str] = set()
    pending: list[tuple[Any, int]] = [(value, 0)]
    for _ in range(_MOST):
        if not pending:
            break
        item, depth = pending.pop()
        if isinstance(item, str):
            found.add(item)
        elif isinstance(item, ChatMessage):
            for message in to_messages(item):
                found.update((message.content, message.tool_call_id or "", *(call.id for call in message.tool_calls)))
        elif isinstance(item, Document):
            found.add(item.content or "")
        elif depth < _DEEPEST and isinstance(item, Mapping | list | tuple | set):
            inner = item.values() if isinstance(item, Mapping) else item
            pending += [(one, depth + 1) for one in islice(inner, _MOST)]
    return frozenset(text.strip() for text in found if text.strip())


def is_template(tags: Mapping[str, Any]) -> bool:
    """Whether a component writes prompts."""
    return "prompt" in _keys(tags.get("haystack.component.output_spec"))


def variables_in(inputs: Mapping[str, Any]) -> frozenset[str]:
    """Texts that go into a prompt template; what the template itself says is none of them."""
    return texts_in({key: value for key, value in inputs.items() if key not in _NOT_VARIABLES})


def texts_out(outputs: Mapping[str, Any]) -> list[str]:
    """What a component made of documents: text, or messages for a model."""
    found: list[str] = []
    for value in outputs.values():
        for item in value if isinstance(value, list | tuple) else (value,):
            if isinstance(item, str):
                found.append(item)
            elif isinstance(item, ChatMessage) and item.role.value in _SENT:
                found += [message.content for message in to_messages(item)]
    return found


def answer_in(outputs: Any) -> str | None:
    """The one text among a run's outputs that is plainly the answer; ``None`` where there are several, or none."""
    levels = _levels(outputs)
    for key in _ANSWERS:
        texts = {text for level in levels if (text := _first_text(level.get(key)))}
        if texts:
            return texts.pop() if len(texts) == 1 else None
    return None


def cause_of(error: BaseException) -> BaseException:
    """What a component raised, out of the pipeline's wrapping."""
    while isinstance(error, PipelineRuntimeError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


def status_of(error: BaseException) -> Literal["interrupted"] | None:
    """A breakpoint stops a run on purpose."""
    return "interrupted" if isinstance(error, BreakpointException) else None


def _levels(value: Any) -> list[Mapping[str, Any]]:
    """A mapping and the mappings in it: a run's data by component, or of one."""
    if not isinstance(value, Mapping):
        return []
    return [value, *(item for item in value.values() if isinstance(item, Mapping))]


def _keys(value: Any) -> set[str]:
    return {str(key) for key in value} if isinstance(value, Mapping) else set()


def _question(value: Any) -> str | None:
    if isinstance(value, str):
        return value if value.strip() else None
    if not isinstance(value, list | tuple):
        return None
    if value and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    asked = [message.content for message in to_messages(value) if message.role == "user"] if is_chat(value) else []
    return asked[-1] if asked else None


def is_chat(value: Any, depth: int = 2) -> bool:
    """Whether these are messages, or lists of them as joiners are given."""
    if not isinstance(value, list | tuple):
        return depth < 2 and isinstance(value, ChatMessage)
    return depth > 0 and any(is_chat(item, depth - 1) for item in value)


def _first_text(value: Any) -> str | None:
    first: Any = next(iter(value), None) if isinstance(value, Iterable) and not isinstance(value, str) else value
    if isinstance(first, ChatMessage):
        return to_messages(first)[0].content or None
    if isinstance(first, GeneratedAnswer):
        return first.data if isinstance(first.data, str) else None
    return first if isinstance(first, str) and first else None
