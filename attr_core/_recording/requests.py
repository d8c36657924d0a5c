"""What a call sends: read for the record, and freed of what only attrkit knows before it goes to the provider."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attr_core._plain import plain
from attr_core._recording.responses import call_of_item, read
from attr_core._redact import without_secrets
from attr_core.errors import InputError
from attr_core.types import ATTRKIT_KEY, Document, Generation, Message, Retrieval, ToolCall, Trace

__all__ = ["CallSite", "bare", "call_site", "read_request"]

_PACKAGES = frozenset({"litellm", "openai"})
_NOT_PARAMETERS = frozenset({"model", "messages", "input", "instructions", "tools", "metadata", "client"})
_OURS = frozenset({"metadata", ATTRKIT_KEY})
_ELSEWHERE = ("previous_response_id", "conversation", "prompt")
"""Options of ``responses.create`` that bring context which only the provider has."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """What can be told of a callable before it is called: its positional parameters and what it already holds."""

    names: tuple[str, ...]
    preset: Mapping[str, Any]
    framework: str | None
    secrets: Mapping[str, Any]

    def options(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All arguments of a call by name."""
        return {**self.preset, **dict(zip(self.names, args, strict=False)), **kwargs}


def call_site(call: Callable[..., Any]) -> CallSite:
    """Look at a function, a bound method of a client, or a :func:`functools.partial` of one."""
    preset: dict[str, Any] = {}
    names = _positional_names(call)
    while isinstance(call, functools.partial):
        preset = {**dict(zip(_positional_names(call.func), call.args, strict=False)), **call.keywords, **preset}
        call = call.func
    package = (getattr(call, "__module__", None) or "").partition(".")[0]
    client = getattr(getattr(call, "__self__", None), "_client", None)
    return CallSite(
        names=names,
        preset=preset,
        framework=package if package in _PACKAGES else None,
        secrets={"api_key": getattr(client, "api_key", None)},
    )


def read_request(options: Mapping[str, Any], documents: Iterable[Any] | None) -> Trace:
    """A trace of what is about to be sent, sharing nothing with the host that the host could change.

    Raises
    ------
    InputError
        A message or document cannot be read.
    """
    messages, unread = _messages(options)
    model = options.get("model")
    parameters = {key: value for key, value in options.items() if key not in _NOT_PARAMETERS}
    generation = Generation(
        messages=tuple(_own_message(message) for message in messages),
        response=None,
        model=None if model is None else str(model),
        tools=tuple(_tool(tool) for tool in _listed(options.get("tools"), "tools")),
        parameters=without_secrets(parameters),
    )
    found = tuple(_own_document(Document.parse(document, i)) for i, document in enumerate(documents or ()))
    metadata: dict[str, Any] = {name: plain(options[name]) for name in _ELSEWHERE if _is_given(options, name)}
    if unread:
        metadata["unread_items"] = unread
    return Trace(
        query=_last_user_text(generation.messages),
        generations=(generation,),
        answer=None,
        retrievals=(Retrieval(query=None, documents=found),) if found else (),
        metadata=metadata,
    )


def bare(
    names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without message metadata; whatever has none is the caller's own object."""
    for name in ("messages", "input"):
        if name in kwargs:
            return args, {**kwargs, name: _bare_messages(kwargs[name])}
        if name in names and (position := names.index(name)) < len(args):
            return (*args[:position], _bare_messages(args[position]), *args[position + 1 :]), kwargs
    return args, kwargs


def _positional_names(call: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the positional parameters; those of ``litellm.completion`` where the callable does not tell."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return ("model", "messages")
    names = tuple(parameter.name for parameter in parameters if parameter.kind in kinds)
    takes_it = {parameter.name for parameter in parameters} & {"messages", "input"}
    return names if takes_it else ("model", "messages")


def _bare_messages(messages: Any) -> Any:
    if not isinstance(messages, list | tuple):
        return messages
    freed = [_bare_message(message) for message in messages]
    if all(new is old for new, old in zip(freed, messages, strict=True)):
        return messages
    return tuple(freed) if isinstance(messages, tuple) else freed


def _bare_message(message: Any) -> Any:
    if isinstance(message, Message):
        return message.to_chat()
    if isinstance(message, Mapping):
        if _OURS.isdisjoint(message):
            return message
        return {key: value for key, value in message.items() if key not in _OURS}
    if hasattr(message, "model_dump") and any(getattr(message, name, None) is not None for name in _OURS):
        return {"content": None, **message.model_dump(exclude=set(_OURS), exclude_none=True)}
    return message


def _messages(options: Mapping[str, Any]) -> tuple[list[Message], list[str]]:
    """What the model is given to read, and the types of items that are not text."""
    if _is_given(options, "messages"):
        return [_chat_message(message) for message in _listed(options["messages"], "messages")], []
    instructions, given = options.get("instructions"), options.get("input")
    messages = [Message("system", instructions)] if isinstance(instructions, str) and instructions else []
    if isinstance(given, str):
        return [*messages, Message("user", given)], []
    unread: list[str] = []
    for item in _listed(given, "input"):
        _add_item(messages, unread, item)
    return messages, unread


def _is_given(options: Mapping[str, Any], name: str) -> bool:
    return bool(options.get(name))  # clients' markers for "not given" are false


def _listed(items: Any, name: str) -> Iterable[Any]:
    if isinstance(items, Iterator):
        raise InputError(f"{name} is an iterator, which can be read only once; pass a list to have the call recorded")
    return items or ()


def _chat_message(raw: Any) -> Message:
    message = Message.parse(raw)
    function = read(raw, "function_call")  # how tools were called before there were several
    if function is None or message.tool_calls or isinstance(raw, Message):
        return message
    return replace(message, tool_calls=Message.parse({"role": "x", "tool_calls": [{"function": function}]}).tool_calls)


def _add_item(messages: list[Message], unread: list[str], item: Any) -> None:
    """One item of a ``responses.create`` input; a model's tool calls in a row are one turn, as in a chat."""
    kind = read(item, "type")
    if isinstance(item, str):
        messages.append(Message("user", item))
    elif isinstance(item, Message) or read(item, "role") is not None:
        messages.append(Message.parse(item))
    elif isinstance(kind, str) and kind.endswith("_call_output"):
        output = Message.parse({"role": "tool", "content": _output(item), "metadata": read(item, "metadata")})
        messages.append(replace(output, tool_call_id=str(read(item, "call_id") or "")))
    elif isinstance(kind, str) and kind.endswith("_call"):
        call = call_of_item(item)
        if messages and messages[-1].role == "assistant":
            messages[-1] = replace(messages[-1], tool_calls=(*messages[-1].tool_calls, call))
        else:
            messages.append(Message("assistant", "", tool_calls=(call,)))
    else:
        unread.append(str(kind))


def _output(item: Any) -> Any:
    output = read(item, "output")
    return output if output is None or isinstance(output, str | Sequence) else str(output)


def _own_message(message: Message) -> Message:
    if not message.metadata and not message.tool_calls:
        return message
    return replace(
        message, metadata=plain(message.metadata), tool_calls=tuple(_own_call(call) for call in message.tool_calls)
    )


def _own_call(call: ToolCall) -> ToolCall:
    return replace(call, arguments=plain(call.arguments), metadata=plain(call.metadata))


def _own_document(document: Document) -> Document:
    return replace(document, metadata=plain(document.metadata)) if document.metadata else document


def _tool(tool: Any) -> dict[str, Any]:
    """A tool's schema in the shape that chat APIs and templates take."""
    raw: dict[str, Any] = tool.model_dump() if hasattr(tool, "model_dump") else dict(tool)
    if "function" not in raw and raw.get("type") == "function":
        raw = {"type": "function", "function": {key: value for key, value in raw.items() if key != "type"}}
    # A function's parameters may well be named "token"; only the provider's own tools (MCP) carry headers.
    found: dict[str, Any] = plain(raw) if "function" in raw else without_secrets(raw)
    return found


def _last_user_text(messages: Iterable[Message]) -> str | None:
    texts = [message.content for message in messages if message.role == "user"]
    return texts[-1] if texts else None
