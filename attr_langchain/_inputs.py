"""What goes into a run of an application: a string, a mapping, messages in any of their spellings, a graph's state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompt_values import PromptValue, StringPromptValue

from attr_langchain._contents import content_text, text_of

__all__ = ["query_of", "texts_in"]

_QUESTION_KEYS = (
    "question",
    "query",
    "user_question",
    "user_query",
    "user_input",
    "input",
    "messages",
    "message",
    "prompt",
    "text",
)
_USER = frozenset({"human", "user", "HumanMessageChunk"})
_DEEPEST = 8
_MOST = 5_000
"""Values that are looked at in one input; a run may well be handed a whole corpus."""


def query_of(inputs: Any) -> str | None:
    """What the user asked, as far as a run's input tells.

    That is a text itself, the last human message of several, or what stands under a key that is named like a question
    (``question``, ``query``, ``input``, ``messages``, ...) of a mapping, a dataclass or a pydantic model; of a mapping
    with a single text, that text. ``None`` where nothing of the kind is found.
    """
    return _query(inputs, 0)


def texts_in(value: Any) -> frozenset[str]:
    """All texts in a run's input, messages (with ids of tool calls) and documents included, unless very deep or large.

    What stands in a prompt but not here came from elsewhere: from the template, a retriever, or memory.
    """
    found: set[str] = set()
    pending: list[tuple[Any, int]] = [(value, 0)]
    for _ in range(_MOST):
        if not pending:
            break
        item, depth = pending.pop()
        if isinstance(item, str):
            found.add(str(item))
        elif depth < _DEEPEST:
            found.update(_own_texts(item))
            pending += [(inner, depth + 1) for inner in _inside(item)]
    return frozenset(text for text in found if text.strip())


def _query(value: Any, depth: int) -> str | None:
    if isinstance(value, str):
        return str(value) if value.strip() else None
    if value is None or depth > _DEEPEST:
        return None
    if (message := _message(value)) is not None:
        role, text = message
        return text if role in _USER and text.strip() else None
    if isinstance(value, PromptValue):
        return value.text if isinstance(value, StringPromptValue) else _query(value.to_messages(), depth + 1)
    if isinstance(value, list | tuple):
        return _last_human(value)
    fields = _fields(value)
    for key in _QUESTION_KEYS:
        if (found := _query(fields.get(key), depth + 1)) is not None:
            return found
    for key in ("update", "resume"):  # how a graph that was interrupted is told to go on
        if type(value).__name__ == "Command" and (found := _query(fields.get(key), depth + 1)) is not None:
            return found
    texts = [text for text in fields.values() if isinstance(text, str) and text.strip()]
    return texts[0] if len(texts) == 1 and isinstance(value, Mapping) else None


def _last_human(items: Iterable[Any]) -> str | None:
    found = None
    for item in items:
        role, text = _message(item) or (None, "")
        if role in _USER and text.strip():
            found = text
        elif isinstance(item, str) and item.strip():  # LangChain reads a string among messages as the user's
            found = item
    return found


def _message(value: Any) -> tuple[str, str] | None:
    """Role and text of what LangChain would take for a message."""
    if isinstance(value, BaseMessage):
        role = "human" if isinstance(value, HumanMessage) else getattr(value, "role", None) or value.type
        return str(role), text_of(value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return value[0], content_text(value[1])
    if isinstance(value, Mapping):
        role = value.get("role") or value.get("type")
        told = value["data"] if isinstance(value.get("data"), Mapping) else value
        if isinstance(role, str) and "content" in told:
            return role, content_text(told["content"])
    return None


def _own_texts(item: Any) -> list[str]:
    if isinstance(item, BaseMessage):
        calls = getattr(item, "tool_calls", None) or ()
        ids = [getattr(item, "tool_call_id", None), *(call.get("id") for call in calls)]
        return [text_of(item), *(one for one in ids if isinstance(one, str))]
    if isinstance(item, Document):
        return [item.page_content]
    if isinstance(item, Mapping) and isinstance(item.get("content"), list):
        return [content_text(item["content"])]
    return []


def _inside(item: Any) -> Iterable[Any]:
    if isinstance(item, BaseMessage):
        content = getattr(item, "content", None)
        return [_said(block) for block in content] if isinstance(content, list) else ()
    if isinstance(item, Document):
        return ()
    if isinstance(item, StringPromptValue):
        return (item.text,)
    if isinstance(item, PromptValue):
        return item.to_messages()
    if isinstance(item, list | tuple | set | frozenset):
        return list(item)[:_MOST]
    return _fields(item).values()


def _said(block: Any) -> Any:
    return block.get("text") if isinstance(block, Mapping) else block


def _fields(value: Any) -> Mapping[str, Any]:
    """Of a mapping, a pydantic model or a dataclass."""
    if isinstance(value, Mapping):
        return value
    kind = type(value)
    names = getattr(kind, "model_fields", None) or getattr(kind, "__dataclass_fields__", None)
    return {name: getattr(value, name, None) for name in names} if isinstance(names, Mapping) else {}
