"""Reads what callbacks are given besides messages: inputs and outputs of runnables, which may be anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.capture import Root
from attr_langchain.convert import query_of, texts_in, to_message

__all__ = ["about", "answer_in", "documents_in", "status_of", "texts_out"]

_SESSION_KEYS = ("thread_id", "session_id", "conversation_id")
_ANSWER_KEYS = ("answer", "output", "result", "text", "response", "generation")
_INTERNAL = ("ls_", "langgraph_", "checkpoint_", "lc_", "__")


def about(inputs: Any, told: Mapping[str, Any]) -> Root:
    """What a root run's input and its callback's keywords tell of it."""
    metadata = told.get("metadata") or {}
    session = next((metadata[key] for key in _SESSION_KEYS if metadata.get(key)), None)
    own = {key: value for key, value in metadata.items() if not str(key).startswith(_INTERNAL)}
    return Root(
        query=query_of(inputs),
        name=told.get("name"),
        session_id=None if session is None else str(session),
        tags=tuple(str(tag) for tag in told.get("tags") or ()),
        metadata=plain(without_secrets(own)),
        given=frozenset(texts_in(inputs)),
    )


def answer_in(outputs: Any) -> str | None:
    """What a root run gave the application, where it is text or holds one that is plainly the answer."""
    if isinstance(outputs, str):
        return outputs
    if isinstance(outputs, BaseMessage):
        return to_message(outputs).content or None
    if not isinstance(outputs, Mapping):
        return None
    messages = outputs.get("messages")
    if isinstance(messages, Sequence) and messages and isinstance(messages[-1], AIMessage):
        return to_message(messages[-1]).content or None
    return next(
        (answer_in(outputs[key]) for key in _ANSWER_KEYS if isinstance(outputs.get(key), str | AIMessage)), None
    )


def documents_in(value: Any) -> list[Document]:
    """The documents of a list of them, or of a mapping that holds such lists."""
    if isinstance(value, list | tuple):
        return list(value) if value and all(isinstance(item, Document) for item in value) else []
    if isinstance(value, Mapping):
        return [
            document for item in value.values() if isinstance(item, list | tuple) for document in documents_in(item)
        ]
    return []


def texts_out(outputs: Any) -> list[str]:
    """The text that a runnable gave, or the texts of a mapping that it gave."""
    if isinstance(outputs, str):
        return [outputs]
    if isinstance(outputs, Mapping):
        return [item for item in outputs.values() if isinstance(item, str)]
    return []


def status_of(error: BaseException) -> Literal["ok", "interrupted"] | None:
    """LangGraph ends a node by an exception where it is to ask somebody, or goes on elsewhere: no failure."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if "GraphInterrupt" in names:
        return "interrupted"
    return "ok" if "GraphBubbleUp" in names else None
