"""What all tools' records come down to: steps of a run, and the shapes that texts, times and documents have in them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from attr_core._plain import plain
from attr_core.errors import InputError
from attr_core.types import Document, Message

__all__ = [
    "Kind",
    "Step",
    "documents_in",
    "first",
    "looks_like_documents",
    "messages_in",
    "moment",
    "parsed",
    "text_in",
]

Kind = Literal["llm", "retriever", "tool", "other"]

_QUESTIONS = ("query", "question", "input", "user_input", "prompt", "text", "content")
_ANSWERS = ("answer", "output", "response", "result", "text", "content", "output_text")
_TEXTS = ("page_content", "content", "text")
_LARGEST_SECONDS = 253_402_300_799  # of the year 9999
_ROLES = {"human": "user", "ai": "assistant", "chatbot": "assistant", "model": "assistant"}


@dataclass(frozen=True, slots=True)
class Step:
    """One record of a run: a model call, a retrieval, a tool call, or what only holds others together.

    ``text_in`` and ``text_out`` are what went in and came out, where that is a text. ``value_out`` is what came out as
    the tool wrote it. ``lost`` counts documents without a text.
    """

    id: str
    kind: Kind
    name: str | None = None
    parent: str | None = None
    started: datetime | None = None
    finished: datetime | None = None
    error: str | None = None
    text_in: str | None = None
    text_out: str | None = None
    value_out: Any = None
    messages: tuple[Message, ...] = ()
    response: Message | None = None
    model: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    arguments: Any = None
    call_id: str | None = None
    documents: tuple[Document, ...] = ()
    lost: int = 0
    notes: tuple[str, ...] = ()


def parsed(value: Any) -> Any:
    """The value, a JSON object or list where it is the text of one."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def first(*values: Any) -> Any:
    """The first that is neither ``None`` nor empty."""
    return next((value for value in values if value not in (None, "", [], {})), None)


def text_in(value: Any, *, of: Literal["question", "answer"]) -> str | None:
    """The one text that a step's input or output is, if it is one: itself, or under a name that says so."""
    value = parsed(value)
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, Sequence) and len(value) == 1:
        return text_in(value[0], of=of)
    if not isinstance(value, Mapping):
        return None
    for name in _QUESTIONS if of == "question" else _ANSWERS:
        found = value.get(name)
        if isinstance(found, str) and found.strip():
            return found
    inner = value.get("message", value.get("messages"))
    if isinstance(inner, list):
        inner = inner[-1] if inner else None
    return text_in(inner, of=of) if isinstance(inner, Mapping) else None


def moment(value: Any) -> datetime | None:
    """A time written in ISO 8601, or since 1970 in seconds, milliseconds, micro- or nanoseconds; else ``None``.

    Without a time zone it is UTC.
    """
    if isinstance(value, str) and not value.strip().isdecimal():
        try:
            found = datetime.fromisoformat(value.strip().replace(" UTC", "+00:00"))
        except ValueError:
            return None
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if isinstance(value, bool) or not math.isfinite(seconds) or seconds <= 0:
        return None
    for _ in range(3):
        if seconds > _LARGEST_SECONDS / 25:
            seconds /= 1000
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def messages_in(value: Any) -> tuple[Message, ...]:
    """Chat messages as OpenAI's clients, LangChain's dumps and batches of one write them; none where it is no chat.

    Raises
    ------
    InputError
        A message among them has no role or content that can be read.
    """
    value = parsed(value)
    if isinstance(value, Mapping) and "messages" in value:
        value = parsed(value["messages"])
    if isinstance(value, Mapping) and _is_message(value):
        value = [value]
    while isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        inner = parsed(value[0])
        if not isinstance(inner, Sequence) or isinstance(inner, str) or _is_pair(inner):
            break
        value = inner
    if isinstance(value, str) or not isinstance(value, Sequence):
        return ()
    items = [parsed(item) for item in value]
    if not items or not all(_is_message(item) for item in items):
        return ()
    return tuple(_message(item) for item in items)


def documents_in(value: Any) -> tuple[tuple[Document, ...], int]:
    """Documents in any of the shapes that tools write, and how many had no text."""
    value = parsed(value)
    if isinstance(value, Mapping):
        held = next((value[key] for key in ("documents", "nodes", "context", "output") if key in value), None)
        return documents_in(held) if held is not None else ((), 0)
    if isinstance(value, str) or not isinstance(value, Sequence):
        return (), 0
    found = [_document(parsed(item), position) for position, item in enumerate(value)]
    kept = tuple(one for one in found if one is not None)
    return kept, len(found) - len(kept)


def looks_like_documents(value: Any) -> bool:
    """Whether a value is documents beyond doubt, whatever its step calls itself."""
    value = parsed(value)
    if isinstance(value, Mapping):
        return isinstance(value.get("documents"), list) and looks_like_documents(value["documents"])
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        return False
    items = [_unwrapped(parsed(item)) for item in value]
    return all(isinstance(item, Mapping) and _text(item) is not None and "role" not in item for item in items) and all(
        "page_content" in item or {"metadata", "score", "id"} & set(item) for item in items
    )


def _is_pair(value: Sequence[Any]) -> bool:
    """``("user", "...")``, as LangChain takes messages."""
    return len(value) == 2 and all(isinstance(one, str) for one in value)


def _is_message(item: Any) -> bool:
    if isinstance(item, Mapping):
        named = isinstance(item.get("role"), str) or isinstance(item.get("type"), str)
        return (named and ("content" in item or "data" in item or "tool_calls" in item or "parts" in item)) or (
            "kwargs" in item and isinstance(item.get("id"), list)
        )
    return isinstance(item, Sequence) and not isinstance(item, str) and _is_pair(item)


def _message(item: Any) -> Message:
    """A message of OpenAI's, of LangChain's (dumped, as ``{"type", "data"}``, as a pair) or of OpenTelemetry's."""
    if not isinstance(item, Mapping):
        return Message(_role(str(item[0])), str(item[1]))
    read: dict[str, Any] = dict(item)
    if isinstance(read.get("kwargs"), Mapping):
        kind = str(read["id"][-1]) if read.get("id") else ""
        read = {"type": kind.removesuffix("Chunk").removesuffix("Message").lower(), **read["kwargs"]}
    elif isinstance(read.get("data"), Mapping):
        read = {"type": read.get("type"), **read["data"]}
    role = first(read.get("role"), read.get("type"))
    content = read.get("content")
    if content is None and isinstance(read.get("parts"), list):
        return _of_parts(_role(str(role)), read["parts"])
    if isinstance(content, Mapping):
        content = text_in(content, of="answer") or json.dumps(plain(content), ensure_ascii=False)
    extra = read.get("additional_kwargs")
    calls = first(read.get("tool_calls"), extra.get("tool_calls") if isinstance(extra, Mapping) else None)
    if not isinstance(role, str) or not (content is None or isinstance(content, str | list)):
        raise InputError(f"a message with the keys {', '.join(map(str, item))[:200]} has no role or no text")
    return Message.parse(
        {
            "role": _role(role),
            "content": content,
            "name": read.get("name") if isinstance(read.get("name"), str) else None,
            "tool_calls": calls if isinstance(calls, list) else [],
            "tool_call_id": None if read.get("tool_call_id") is None else str(read["tool_call_id"]),
        }
    )


def _of_parts(role: str, parts: Iterable[Any]) -> Message:
    """A message of OpenTelemetry's conventions for generative models."""
    texts, calls, call_id = [], [], None
    for part in parts:
        if not isinstance(part, Mapping):
            continue
        kind = part.get("type")
        if kind == "tool_call":
            calls.append({"id": part.get("id"), "name": part.get("name"), "arguments": part.get("arguments")})
        elif kind == "tool_call_response":
            call_id = part.get("id")
            said = first(part.get("response"), part.get("result"))
            texts.append(said if isinstance(said, str) else json.dumps(plain(said), ensure_ascii=False))
        elif isinstance(said := first(part.get("content"), part.get("text")), str) and kind != "reasoning":
            texts.append(said)
    call_name = None if call_id is None else str(call_id)
    return Message.parse({"role": role, "content": "\n\n".join(texts), "tool_calls": calls, "tool_call_id": call_name})


def _role(role: str) -> str:
    return _ROLES.get(role.lower(), role.lower())


def _unwrapped(item: Any) -> Any:
    for key in ("document", "node", "kwargs"):
        if isinstance(item, Mapping) and isinstance(item.get(key), Mapping):
            item = {**{k: v for k, v in item.items() if k != key}, **item[key]}
    return item


def _text(item: Mapping[str, Any]) -> str | None:
    return next((item[key] for key in _TEXTS if isinstance(item.get(key), str)), None)


def _document(item: Any, position: int) -> Document | None:
    if isinstance(item, str):
        return Document(f"doc{position + 1}", item) if item.strip() else None
    item = _unwrapped(item)
    if not isinstance(item, Mapping) or not (text := _text(item) or "").strip():
        return None
    metadata = parsed(item.get("metadata"))
    metadata = plain(metadata) if isinstance(metadata, Mapping) else {}
    score, name = item.get("score"), item.get("id")
    if isinstance(name, list) or name is None:  # LangChain's dumps have the class there
        name = first(item.get("id_"), item.get("node_id"), item.get("document_id"), metadata.get("id"))
    known = isinstance(score, int | float) and not isinstance(score, bool)
    return Document(
        id=str(name) if name is not None else f"doc{position + 1}",
        text=text,
        score=float(score) if known else None,  # type: ignore[arg-type]
        metadata=metadata,
    )
