"""What a message says: its content may be a string, a list of blocks in any provider's shape, or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from attr_core._plain import plain
from attr_core.types import Message

__all__ = ["answer_text", "content_text", "reasoning_of", "text_of"]

_DEEPEST = 4
_TEXT = frozenset({None, "text", "output_text"})
_THOUGHTS = frozenset({"reasoning", "thinking", "reasoning_content"})


def text_of(message: BaseMessage) -> str:
    """Everything that a message says.

    The blocks of a model's answer are pieces of one text (a provider begins a new one at each citation); those of other
    messages are joined as :meth:`attr_core.Message.parse` joins them, a block without text as a note of its type.
    """
    content = getattr(message, "content", None)
    if isinstance(content, str):
        return str(content)
    if isinstance(message, AIMessage):
        return answer_text(content)
    return content_text(content)


def answer_text(content: Any) -> str:
    """The text of an answer without the model's reasoning and tool calls; a refusal where that is all."""
    if isinstance(content, list | tuple):
        return "".join(_written(content, "text")) or "".join(_written(content, "refusal"))
    return content_text(content)


def reasoning_of(message: BaseMessage) -> str | None:
    """What a model says it thought before it answered."""
    content = getattr(message, "content", None)
    blocks = content if isinstance(content, list | tuple) else ()
    said = [text for block in blocks if _kind(block) in _THOUGHTS for text in _thoughts(block, 0)]
    if not said:
        extra = getattr(message, "additional_kwargs", None) or {}
        said = [text for key in ("reasoning_content", "reasoning") for text in _thoughts(extra.get(key), 0)]
    return "\n\n".join(said) or None


def content_text(content: Any) -> str:
    """The text of any content, a block without text as a note of its type."""
    if content is None:
        return ""
    if isinstance(content, str):
        return str(content)
    if isinstance(content, list | tuple):
        return Message.parse({"role": "any", "content": list(_flat(content, 0))}).content
    return json.dumps(plain(content), ensure_ascii=False)


def _flat(blocks: Any, depth: int) -> Iterator[Any]:
    """Blocks with those that they hold: search results and documents of some providers are blocks of blocks."""
    for block in blocks:
        if not isinstance(block, Mapping):
            if block is not None:
                yield str(plain(block))
            continue
        if isinstance(block.get("text"), str) or depth >= _DEEPEST:
            yield block
            continue
        inner, source = block.get("content"), block.get("source")
        if isinstance(inner, str):
            yield inner
        elif isinstance(inner, list | tuple) and inner:
            yield from _flat(inner, depth + 1)
        elif isinstance(source, Mapping) and source.get("type") == "text" and isinstance(source.get("data"), str):
            yield source["data"]
        else:
            yield block


def _written(blocks: Any, key: str) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, str):
            if key == "text":
                yield block
        elif isinstance(block, Mapping) and isinstance(block.get(key), str) and _kind(block) in (_TEXT | {key}):
            yield block[key]


def _kind(block: Any) -> Any:
    kind = block.get("type") if isinstance(block, Mapping) else None
    return kind if isinstance(kind, str) else None


def _thoughts(block: Any, depth: int) -> Iterator[str]:
    """Texts of a block of thought; a summary is a list of such blocks."""
    if isinstance(block, str):
        if block.strip():
            yield block
    elif isinstance(block, Mapping) and depth < _DEEPEST:
        for key in ("reasoning", "thinking", "reasoning_content", "text", "summary", "content"):
            if block.get(key):
                yield from _thoughts(block[key], depth + 1)
                return
    elif isinstance(block, list | tuple) and depth < _DEEPEST:
        for item in block:
            yield from _thoughts(item, depth + 1)
