"""LangChain's objects <-> the core's types: pure functions.

What comes out shares nothing with what went in that either side could change; what goes in is never changed. Odd input
(messages of unknown kinds, contents of any shape) gives odd text, not an exception: these functions are called in the
middle of an application's run.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import LLMResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.protocols import Completion
from attr_core.types import Generation, Message, Prompt, ToolCall
from attr_langchain._contents import answer_text, reasoning_of, text_of
from attr_langchain._documents import to_document, to_tool_result
from attr_langchain._inputs import query_of, texts_in

__all__ = [
    "from_messages",
    "from_prompt",
    "query_of",
    "texts_in",
    "to_answer",
    "to_completion",
    "to_document",
    "to_generation",
    "to_message",
    "to_text_generation",
    "to_tool_result",
]

_ROLES: tuple[tuple[type, str], ...] = (
    (HumanMessage, "user"),
    (AIMessage, "assistant"),
    (SystemMessage, "system"),
    (ToolMessage, "tool"),
    (FunctionMessage, "function"),
)
_ROLE_NAMES = {"human": "user", "ai": "assistant"}
_OPENAI_ROLE = "__openai_role__"  # where LangChain keeps what its own roles cannot say
_MARKS = ("rag_chunk_id", "group_id", "memory")
"""What the segmenter understands of a message's metadata."""

_MODEL_KEYS = ("model", "model_name", "model_id", "deployment_name", "azure_deployment", "repo_id", "endpoint_name")
_NOT_PARAMETERS = frozenset({*_MODEL_KEYS, "_type", "tools", "functions", "messages", "stop"})
_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason", "stopReason")
_USAGE = {
    "prompt_tokens": (("input_tokens",), ("prompt_tokens",)),
    "completion_tokens": (("output_tokens",), ("completion_tokens",)),
    "total_tokens": (("total_tokens",),),
    "cached_tokens": (("input_token_details", "cache_read"), ("prompt_tokens_details", "cached_tokens")),
    "reasoning_tokens": (("output_token_details", "reasoning"), ("completion_tokens_details", "reasoning_tokens")),
}


def to_message(message: BaseMessage) -> Message:
    """A message as the core holds it.

    ``metadata`` has the message's ``id`` and, of what the application put into ``additional_kwargs`` or
    ``response_metadata``, ``rag_chunk_id``, ``group_id`` and ``memory``.
    """
    name, call_id = getattr(message, "name", None), getattr(message, "tool_call_id", None)
    return Message(
        role=_role(message),
        content=text_of(message),
        name=str(name) if name else None,
        tool_calls=_tool_calls(message),
        tool_call_id=None if call_id is None else str(call_id),
        metadata=_marks(message),
    )


def to_generation(
    messages: Iterable[BaseMessage],
    *,
    invocation_params: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Generation:
    """A call of a chat model as it begins, from what its callback is told; without secrets, and without an answer."""
    return _generation(tuple(to_message(message) for message in messages), invocation_params, metadata, options)


def to_text_generation(
    prompt: str,
    *,
    invocation_params: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Generation:
    """A call of a text model as it begins: its prompt is one user message."""
    return _generation((Message("user", str(prompt)),), invocation_params, metadata, options)


def to_answer(response: LLMResult) -> dict[str, Any]:
    """The fields of a :class:`~attr_core.Generation` that are known once the model has answered.

    Of several candidates the first is the answer, and ``usage["candidates"]`` says how many there were. ``model`` is
    missing where the answer does not name it, so that the one that was asked for stands. ``usage`` has the core's names
    (``prompt_tokens``, ``completion_tokens``, ...). ``response`` is ``None`` where tool calls are all.
    """
    candidates = response.generations[0] if response.generations else []
    first = candidates[0] if candidates else None
    message = getattr(first, "message", None)
    told = _told(first, message)
    output = response.llm_output if isinstance(response.llm_output, Mapping) else {}
    calls = _tool_calls(message) if message is not None else ()
    text = None if first is None else _answer(first, message)
    usage = _usage(getattr(message, "usage_metadata", None) or output.get("token_usage") or output.get("usage"))
    if len(candidates) > 1:
        usage["candidates"] = len(candidates)
    answer = {
        "response": text if text or not calls else None,
        "reasoning": None if message is None else reasoning_of(message),
        "tool_calls": calls,
        "finish_reason": _first(told, _FINISH_KEYS) or _first(output, _FINISH_KEYS),
        "usage": usage,
    }
    model = _first(told, _MODEL_KEYS) or _first(output, _MODEL_KEYS)
    return answer if model is None else {**answer, "model": model}


def to_completion(answer: Any) -> Completion | None:
    """What a chat model answered, its tool calls written out as :attr:`attr_core.Generation.written` does.

    ``None`` where it is no message.
    """
    if not isinstance(answer, BaseMessage):
        return None
    calls, usage = _tool_calls(answer), _usage(getattr(answer, "usage_metadata", None))
    finish = _first(_told(None, answer), _FINISH_KEYS)
    return Completion(
        text=Generation((), _answer(None, answer), tool_calls=calls).written if calls else _answer(None, answer),
        finish_reason=finish or ("tool_calls" if calls else None),
        tokens_in=usage.get("prompt_tokens"),
        tokens_out=usage.get("completion_tokens"),
    )


def from_messages(messages: Iterable[Message]) -> list[BaseMessage]:
    """Messages as LangChain's models take them, without metadata.

    Arguments of tool calls that are no JSON object are kept as what the model wrote (``invalid_tool_calls``).
    """
    return [_from_message(message) for message in messages]


def from_prompt(prompt: Prompt) -> tuple[list[BaseMessage], list[dict[str, Any]]]:
    """A prompt as (messages, tool schemas in OpenAI's shape)."""
    return from_messages(prompt.messages), [_tool(tool) for tool in prompt.tools]


# --- messages ---------------------------------------------------------------------------------------------------------


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return _ROLE_NAMES.get(message.role, message.role) or "user"
    if isinstance(message, SystemMessage) and (message.additional_kwargs or {}).get(_OPENAI_ROLE) == "developer":
        return "developer"
    known = next((role for kind, role in _ROLES if isinstance(message, kind)), None)
    return known or str(getattr(message, "type", "") or "user")


def _marks(message: BaseMessage) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for holder in ("response_metadata", "additional_kwargs"):
        if held := getattr(message, holder, None):
            found.update({key: plain(held[key]) for key in _MARKS if held.get(key) is not None})
    identifier = getattr(message, "id", None)
    return found if identifier is None else {**found, "id": str(identifier)}


def _tool_calls(message: Any) -> tuple[ToolCall, ...]:
    calls = getattr(message, "tool_calls", None) or ()
    broken = getattr(message, "invalid_tool_calls", None) or ()
    found = [_tool_call(call, plain(call.get("args"))) for call in calls]
    found += [_tool_call(call, _parsed(call.get("args"))) for call in broken]
    legacy = (getattr(message, "additional_kwargs", None) or {}).get("function_call")
    if not found and isinstance(legacy, Mapping):  # how tools were called before there were several
        found = [_tool_call(legacy, _parsed(legacy.get("arguments")))]
    return tuple(found)


def _tool_call(call: Mapping[str, Any], arguments: Any) -> ToolCall:
    return ToolCall(id=str(call.get("id") or ""), name=str(call.get("name") or ""), arguments=arguments)


def _parsed(arguments: Any) -> Any:
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # a model may write anything; then its own words are kept
            return json.loads(arguments)
    return plain(arguments)


def _from_message(message: Message) -> BaseMessage:
    text, name = message.content, message.name
    match message.role:
        case "user":
            return HumanMessage(text, name=name)
        case "system":
            return SystemMessage(text, name=name)
        case "developer":
            return SystemMessage(text, name=name, additional_kwargs={_OPENAI_ROLE: "developer"})
        case "tool":
            return ToolMessage(text, tool_call_id=message.tool_call_id or "", name=name)
        case "function":
            return FunctionMessage(content=text, name=name or "")
        case "assistant":
            calls = [_from_tool_call(call) for call in message.tool_calls]
            return AIMessage(
                text,
                name=name,
                tool_calls=[call for call in calls if call["type"] == "tool_call"],
                invalid_tool_calls=[call for call in calls if call["type"] != "tool_call"],
            )
        case _:
            return ChatMessage(role=message.role, content=text, name=name)


def _from_tool_call(call: ToolCall) -> dict[str, Any]:
    arguments = {} if call.arguments is None else _parsed(call.arguments)
    whole = {"name": call.name, "id": call.id or None}
    if isinstance(arguments, dict):
        return {**whole, "args": arguments, "type": "tool_call"}
    raw = call.arguments if isinstance(call.arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {**whole, "args": raw, "error": None, "type": "invalid_tool_call"}


# --- what a model is asked and answers --------------------------------------------------------------------------------


def _generation(
    messages: tuple[Message, ...],
    invocation_params: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    options: Mapping[str, Any] | None,
) -> Generation:
    asked, about = invocation_params or {}, metadata or {}
    parameters = {key: value for key, value in asked.items() if key not in _NOT_PARAMETERS and value is not None}
    if stop := asked.get("stop") or (options or {}).get("stop"):
        parameters["stop"] = stop
    return Generation(
        messages=messages,
        response=None,
        tools=tuple(_tool(tool) for key in ("tools", "functions") for tool in _listed(asked.get(key))),
        model=_first(asked, _MODEL_KEYS) or _first(about, ("ls_model_name", "model")),
        parameters=plain(without_secrets(parameters)),
    )


def _tool(tool: Any) -> dict[str, Any]:
    """A tool's schema in the shape that chat APIs and templates take."""
    if isinstance(tool, str):
        return {"type": "function", "function": {"name": tool}}
    if not isinstance(tool, Mapping):
        with contextlib.suppress(Exception):
            return dict(plain(convert_to_openai_tool(tool)))
        name = getattr(tool, "name", None) or getattr(tool, "__name__", None) or type(tool).__name__
        return {"type": "function", "function": {"name": str(name)}}
    if isinstance(spec := tool.get("toolSpec"), Mapping):  # Bedrock's
        schema = spec.get("inputSchema") or {}
        tool = {**spec, "inputSchema": None, "input_schema": schema.get("json", schema)}
    if "function" in tool:
        # A function's parameters may well be named "token"; only the provider's own tools (MCP) carry headers.
        return dict(plain(tool))
    if "name" in tool and ("input_schema" in tool or "parameters" in tool):
        function = {
            "name": tool["name"],
            "description": tool.get("description"),
            "parameters": tool.get("input_schema", tool.get("parameters")),
            "strict": tool.get("strict"),
        }
        return {"type": "function", "function": plain({k: v for k, v in function.items() if v is not None})}
    return dict(plain(without_secrets(tool)))


def _listed(tools: Any) -> Sequence[Any]:
    return tools if isinstance(tools, list | tuple) else () if tools is None else (tools,)


def _told(generation: Any, message: Any) -> dict[str, Any]:
    """What a provider says about its answer."""
    holders = (getattr(generation, "generation_info", None), getattr(message, "response_metadata", None))
    return {key: value for holder in holders if isinstance(holder, Mapping) for key, value in holder.items()}


def _answer(generation: Any, message: Any) -> str:
    if message is None:
        return str(getattr(generation, "text", "") or "")
    refusal = (getattr(message, "additional_kwargs", None) or {}).get("refusal")
    return answer_text(getattr(message, "content", None)) or (refusal if isinstance(refusal, str) else "")


def _usage(usage: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, paths in _USAGE.items():
        for first, *rest in paths:
            count = usage.get(first) if isinstance(usage, Mapping) else None
            for key in rest:
                count = count.get(key) if isinstance(count, Mapping) else None
            if isinstance(count, int) and not isinstance(count, bool):
                found.setdefault(name, count)
    return found


def _first(holder: Mapping[str, Any], keys: Iterable[str]) -> str | None:
    return next((str(value) for key in keys if isinstance(value := holder.get(key), str) and value), None)
