"""What a call brings back: chat completions and ``responses.create``, as dicts or as clients' objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from attr_core._plain import plain
from attr_core.errors import InputError
from attr_core.types import Message, ToolCall

__all__ = ["Answer", "call_of_item", "read", "read_answer", "usage_of"]

_USAGE = {
    "prompt_tokens": (("prompt_tokens",), ("input_tokens",)),
    "completion_tokens": (("completion_tokens",), ("output_tokens",)),
    "total_tokens": (("total_tokens",),),
    "cached_tokens": (("prompt_tokens_details", "cached_tokens"), ("input_tokens_details", "cached_tokens")),
    "reasoning_tokens": (
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
    ),
}
_NOT_ARGUMENTS = frozenset({"id", "type", "status", "call_id", "name", "output", "result", "error", "metadata"})

Status = Literal["ok", "error", "interrupted", "partial"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, or as much of it as did. Of several choices it is the first."""

    response: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Mapping[str, int] = field(default_factory=dict)
    model: str | None = None
    status: Status = "ok"
    error: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def read_answer(response: Any) -> Answer:
    """Read a whole response.

    Raises
    ------
    InputError
        It has a shape that is not known.
    """
    if response is None or isinstance(response, str):
        return Answer(response)
    choices, output = read(response, "choices"), read(response, "output")
    if choices is None and isinstance(output, list | tuple):
        return _of_items(response, output)
    if not isinstance(choices, list | tuple) or not choices:
        raise InputError(f"a response of type {type(response).__name__} has no choices; its answer was not read")
    message = read(choices[0], "message")
    if message is None:
        raise InputError(f"a response of type {type(response).__name__} has no message; its answer was not read")
    content = read(message, "content")
    calls = read(message, "tool_calls") or _legacy_calls(message)
    parsed = Message.parse({"role": "assistant", "content": content, "tool_calls": calls})
    return Answer(
        response=text_or_none(read(message, "refusal")) if content is None else parsed.content,
        reasoning=text_or_none(read(message, "reasoning_content")) or text_or_none(read(message, "reasoning")),
        tool_calls=_owned(parsed.tool_calls),
        finish_reason=text_or_none(read(choices[0], "finish_reason")),
        usage=usage_of(response),
        model=text_or_none(read(response, "model")),
        metadata=_cited([message]),
    )


def call_of_item(item: Any) -> ToolCall:
    """The tool call that an item of a ``responses.create`` input or output stands for."""
    kind, arguments = read(item, "type"), read(item, "arguments")
    if arguments is None:
        arguments = read(item, "input")
    if arguments is None:  # a tool of the provider's own: whatever it says of itself
        raw = item.model_dump() if hasattr(item, "model_dump") else dict(item)
        arguments = {key: value for key, value in raw.items() if key not in _NOT_ARGUMENTS and value is not None}
    function = {"name": read(item, "name") or str(kind).removesuffix("_call"), "arguments": arguments}
    raw_call = {"id": read(item, "call_id") or read(item, "id"), "function": function}
    (call,) = _owned(Message.parse({"role": "assistant", "tool_calls": [raw_call]}).tool_calls)
    output, error = read(item, "output"), read(item, "error")
    return ToolCall(
        id=call.id,
        name=call.name,
        arguments=call.arguments,
        output=output if output is None or isinstance(output, str) else str(plain(output)),
        error=None if error is None else str(plain(error)),
    )


def usage_of(response: Any) -> dict[str, int]:
    """Token counts under one set of names, whichever the API uses."""
    usage = read(response, "usage")
    found: dict[str, int] = {}
    for name, paths in _USAGE.items():
        for path in paths:
            count = read(usage, *path)
            if isinstance(count, int):
                found.setdefault(name, count)
    return found


def read(holder: Any, *names: str) -> Any:
    """A value by keys or attributes, whichever the holder has; ``None`` where there is none."""
    for name in names:
        holder = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return holder


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _cited(messages: Iterable[Any]) -> dict[str, Any]:
    """The provider's own citations, where a message or a block of its content carries some, under ``citations``."""
    found = []
    for message in messages:
        content = read(message, "content")
        blocks = content if isinstance(content, list | tuple) else []
        for holder in (message, read(message, "provider_specific_fields"), *blocks):
            for name in ("citations", "annotations"):
                given = read(holder, name)
                if isinstance(given, list | tuple) and given:
                    text = read(holder, "text")
                    found.append({name: plain(given)} | ({"text": text} if isinstance(text, str) else {}))
    return {"citations": found} if found else {}


def _of_items(response: Any, output: Sequence[Any]) -> Answer:
    texts, refusals, thoughts = [], [], []
    calls: list[ToolCall] = []
    for item in output:
        kind = read(item, "type")
        if kind == "message":
            texts += _texts(read(item, "content"), "text")
            refusals += _texts(read(item, "content"), "refusal")
        elif kind == "reasoning":
            thoughts += _texts(read(item, "summary"), "text") + _texts(read(item, "content"), "text")
        elif isinstance(kind, str) and kind.endswith("_call"):
            calls.append(call_of_item(item))
    status, incomplete = read(response, "status"), read(response, "incomplete_details", "reason")
    identifier = text_or_none(read(response, "id"))
    error = read(response, "error")
    return Answer(
        response="".join(texts or refusals) if texts or refusals else None,
        reasoning="\n\n".join(thoughts) or None,
        tool_calls=tuple(calls),
        finish_reason=text_or_none(incomplete) or text_or_none(status),
        usage=usage_of(response),
        model=text_or_none(read(response, "model")),
        status=_status(status),
        error=None if error is None else text_or_none(read(error, "message")) or str(plain(error)),
        metadata=({} if identifier is None else {"response_id": identifier}) | _cited(output),
    )


def _status(said: Any) -> Status:
    if said in ("failed", "cancelled"):
        return "error" if said == "failed" else "interrupted"
    return "partial" if said in ("queued", "in_progress") else "ok"


def _texts(parts: Any, name: str) -> list[str]:
    if not isinstance(parts, list | tuple):
        return []
    return [text for part in parts if isinstance(text := read(part, name), str)]


def _legacy_calls(message: Any) -> list[dict[str, Any]]:
    function = read(message, "function_call")
    return [] if function is None else [{"id": "", "function": function}]


def _owned(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """The same calls with arguments that nobody else can change."""
    return tuple(ToolCall(id=call.id, name=call.name, arguments=plain(call.arguments)) for call in calls)
