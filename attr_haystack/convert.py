"""Haystack's objects <-> the core's types: pure functions.

What comes out shares nothing with what went in that either side could change; what goes in is never changed. Odd input
gives odd text, not an exception: these functions are called in the middle of an application's run.
"""

from __future__ import annotations

import json
import numbers
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from haystack.dataclasses import ChatMessage, FileContent, ImageContent
from haystack.dataclasses import Document as HaystackDocument
from haystack.dataclasses import ToolCall as HaystackToolCall
from haystack.tools.tool import Tool

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.types import ATTRKIT_KEY, Document, Generation, Message, Prompt, ToolCall

__all__ = [
    "documents_in",
    "from_messages",
    "from_prompt",
    "stamped",
    "stamped_document",
    "to_answer",
    "to_document",
    "to_generation",
    "to_messages",
    "to_tool_result",
]

_DEEPEST = 6
_MOST_DOCUMENTS = 1_000
_MARKS = ("rag_chunk_id", "group_id", "memory")
"""What the segmenter understands of a message's metadata."""

_NOTES: Mapping[type, str] = {ImageContent: "[image]", FileContent: "[file]"}

_USAGE = {
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "completion_tokens": ("completion_tokens", "output_tokens"),
    "total_tokens": ("total_tokens",),
}


def to_messages(messages: Any) -> tuple[Message, ...]:
    """Messages as the core holds them; a bare text is the user's.

    A message that carries several tool results becomes a message for each, since each answers a call of its own.
    """
    if isinstance(messages, str):
        return (Message("user", messages),)
    given = [messages] if isinstance(messages, ChatMessage) else messages
    if not isinstance(given, list | tuple):
        return ()
    return tuple(one for message in given for one in _to_messages(message))


def to_document(document: HaystackDocument, position: int = 0) -> Document:
    """A document with its own id and score; ``meta.source_id`` (a splitter's) makes its group."""
    metadata = plain(document.meta) if isinstance(document.meta, Mapping) else {}
    metadata.pop(ATTRKIT_KEY, None)
    return Document(
        id=str(document.id) if document.id else f"doc{position + 1}",
        text=document.content if isinstance(document.content, str) else "",
        score=float(score) if (score := document.score) is not None and _is_number(score) else None,
        metadata=metadata,
    )


def to_generation(inputs: Mapping[str, Any]) -> Generation:
    """A call of a chat generator as it begins, from its inputs; without secrets, and without an answer."""
    asked = inputs.get("messages")
    options = inputs.get("generation_kwargs")
    return Generation(
        messages=to_messages(inputs.get("prompt") if asked is None else asked),
        response=None,
        tools=tuple(_to_schema(tool) for tool in _tools(inputs.get("tools"))),
        parameters=plain(without_secrets(options)) if isinstance(options, Mapping) else {},
    )


def to_answer(replies: Any) -> dict[str, Any]:
    """The fields of a :class:`~attr_core.Generation` that are known once the model has answered.

    Of several replies the first is the answer, and ``usage["candidates"]`` says how many there were. ``response`` is
    ``None`` where tool calls are all.
    """
    candidates = list(replies) if isinstance(replies, list | tuple) else []
    if not candidates:
        return {}
    first = candidates[0]
    several = {"candidates": len(candidates)} if len(candidates) > 1 else {}
    if not isinstance(first, ChatMessage):
        return {"response": first if isinstance(first, str) else _text(first), "usage": several}
    meta, calls = first.meta, _tool_calls(first)
    answer = {
        "response": _content(first) or (None if calls else ""),
        "reasoning": "\n\n".join(thought.reasoning_text for thought in first.reasonings) or None,
        "tool_calls": calls,
        "finish_reason": _string(meta.get("finish_reason")),
        "usage": {**_usage(meta.get("usage")), **several},
    }
    model = _string(meta.get("model"))
    return answer if model is None else {**answer, "model": model}


def to_tool_result(result: Any) -> tuple[str, tuple[Document, ...]]:
    """What a tool gave, as the text that an agent shows to the model by default, and the documents in it."""
    found = islice(documents_in(result), _MOST_DOCUMENTS)
    return _text(result), tuple(to_document(document, position) for position, document in enumerate(found))


def documents_in(value: Any, depth: int = 0) -> Iterator[HaystackDocument]:
    """Haystack's documents, wherever they stand in nested lists and mappings."""
    if isinstance(value, HaystackDocument):
        yield value
    elif depth < _DEEPEST and isinstance(value, list | tuple | Mapping):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from documents_in(item, depth + 1)


def from_messages(messages: Iterable[Message]) -> list[ChatMessage]:
    """Messages as Haystack's generators take them, without metadata.

    A role that Haystack does not know becomes the nearest one: ``developer`` system, anything else user.
    """
    names: dict[str, str] = {}
    found = []
    for message in messages:
        names.update({call.id: call.name for call in message.tool_calls})
        found.append(_from_message(message, names))
    return found


def from_prompt(prompt: Prompt) -> tuple[list[ChatMessage], list[Tool]]:
    """A prompt as (messages, tools); the tools have their schemas only and cannot be run."""
    return from_messages(prompt.messages), [_from_schema(tool) for tool in prompt.tools]


def stamped(message: ChatMessage, stamp: dict[str, Any]) -> ChatMessage:
    """A copy of a reply that carries ``stamp``; the reply may be a cache's, so it stays as it is."""
    return replace(message, _meta={**message.meta, ATTRKIT_KEY: stamp})


def stamped_document(document: HaystackDocument, stamp: dict[str, Any]) -> HaystackDocument:
    """A copy of a document that carries ``stamp``, under the same id."""
    return replace(document, meta={**document.meta, ATTRKIT_KEY: stamp})


# --- messages ---------------------------------------------------------------------------------------------------------


def _to_messages(message: Any) -> Iterator[Message]:
    if not isinstance(message, ChatMessage):
        yield Message("user", _text(message))
        return
    metadata = {key: plain(message.meta[key]) for key in _MARKS if message.meta.get(key) is not None}
    for result in message.tool_call_results:
        yield Message(
            role="tool",
            content=_text(result.result),
            name=result.origin.tool_name,
            tool_call_id=result.origin.id,
            metadata={**metadata, **({"error": True} if result.error else {})},
        )
    if not message.tool_call_results or _content(message):
        calls = _tool_calls(message)
        yield Message(message.role.value, _content(message), message.name, calls, metadata=metadata)


def _content(message: ChatMessage) -> str:
    """Its texts, and a note of each part that is none, joined as :meth:`attr_core.Message.parse` joins parts."""
    return "\n\n".join([*message.texts, *(_NOTES[type(part)] for part in (*message.images, *message.files))])


def _tool_calls(message: ChatMessage) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=str(call.id or ""), name=str(call.tool_name), arguments=plain(call.arguments))
        for call in message.tool_calls
    )


def _from_message(message: Message, names: Mapping[str, str]) -> ChatMessage:
    match message.role:
        case "assistant":
            calls = [_from_call(call) for call in message.tool_calls]
            return ChatMessage.from_assistant(message.content or None, name=message.name, tool_calls=calls)
        case "system" | "developer":
            return ChatMessage.from_system(message.content, name=message.name)
        case "tool" | "function":
            name = message.name or names.get(message.tool_call_id or "") or "tool"
            origin = HaystackToolCall(tool_name=name, arguments={}, id=message.tool_call_id)
            return ChatMessage.from_tool(tool_result=message.content, origin=origin)
        case _:
            return ChatMessage.from_user(message.content, name=message.name)


def _from_call(call: ToolCall) -> HaystackToolCall:
    arguments = dict(call.arguments) if isinstance(call.arguments, Mapping) else {}
    if not arguments and call.arguments:  # what a model wrote that is no JSON object
        arguments = {"arguments": call.arguments}
    return HaystackToolCall(tool_name=call.name, arguments=arguments, id=call.id or None)


# --- tools ------------------------------------------------------------------------------------------------------------


def _tools(tools: Any, depth: int = 0) -> Iterator[Any]:
    """The tools of a list of tools and toolsets, which are iterated over as lists are."""
    if isinstance(tools, Tool):
        yield tools
    elif tools is not None and depth < _DEEPEST and isinstance(tools, Iterable) and not isinstance(tools, str):
        for tool in tools:
            yield from _tools(tool, depth + 1)


def _to_schema(tool: Tool) -> dict[str, Any]:
    return {"type": "function", "function": plain(tool.tool_spec)}


def _from_schema(schema: Mapping[str, Any]) -> Tool:
    function = schema.get("function", schema)
    return Tool(
        name=str(function.get("name") or "tool"),
        description=str(function.get("description") or ""),
        parameters=dict(function.get("parameters") or {"type": "object", "properties": {}}),
        function=_never_run,
    )


def _never_run(**arguments: Any) -> None:
    """A measured prompt is only answered; no tool is called for it."""


# --- values -----------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    """A tool's output as an agent makes it text: as it is, the texts of its parts, or JSON."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list | tuple) else [value]
    texts = [_NOTES.get(type(part)) or getattr(part, "text", None) for part in parts]
    if texts and all(isinstance(text, str) for text in texts):
        return "\n\n".join(map(str, texts))
    try:
        return json.dumps(_told(value), ensure_ascii=False)
    except Exception:
        return str(plain(value))


def _told(value: Any, depth: int = 0) -> Any:
    """A value as Haystack tells it: objects by their ``to_dict``, images and files without their bytes."""
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            return {str(key): _told(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [_told(item, depth + 1) for item in value]
        tell = getattr(value, "_to_trace_dict", None) or getattr(value, "to_dict", None)
        if callable(tell):
            return _told(tell(), depth + 1)
    return plain(value)


def _usage(usage: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, keys in _USAGE.items():
        for key in keys:
            count = usage.get(key) if isinstance(usage, Mapping) else getattr(usage, key, None)
            if isinstance(count, int) and not isinstance(count, bool):
                found.setdefault(name, count)
    return found


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
