"""Reads what spans are given besides messages: the arguments of any method, and what it gave, which may be anything."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.schema import QueryBundle
from llama_index.core.workflow import StopEvent

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.capture import Root
from attr_llamaindex.convert import text_of, to_message
from attr_llamaindex.kinds import Kind, name_of

__all__ = ["about", "answer_in", "asked_of", "is_stream", "messages_in", "outcome_of", "query_in"]

_SESSION_KEYS = ("session_id", "thread_id", "conversation_id")
_INTERNAL = ("llamaindex.", "__")
_QUERY_ARGUMENTS = ("str_or_query_bundle", "query", "query_bundle", "message", "query_str", "question", "user_msg")
_QUESTION_KEYS = ("user_msg", "query", "question", "message", "input", "topic", "text")


def about(span_id: str, instance: Any, arguments: Mapping[str, Any], tags: Mapping[str, Any] | None) -> Root:
    """What the arguments of a root run tell of it, and the tags that the application has set around it."""
    given = {str(key): value for key, value in (tags or {}).items() if not str(key).startswith(_INTERNAL)}
    session = next((given[key] for key in _SESSION_KEYS if given.get(key)), None)
    known = [*_texts(_inputs(arguments)), *_texts(getattr(instance, "_prefix_messages", None))]
    return Root(
        query=query_in(arguments),
        name=name_of(span_id),
        session_id=None if session is None else str(session),
        metadata=plain(without_secrets(given)),
        given=frozenset(text.strip() for text in known if text.strip()),
    )


def query_in(arguments: Mapping[str, Any]) -> str | None:
    """What is asked, by the names that LlamaIndex gives questions, or the event that starts a workflow."""
    if (event := arguments.get("start_event")) is not None:
        found = (query_of(_value(event, key)) for key in _QUESTION_KEYS)
        return next((text for text in found if text), None)
    filled = arguments.get("prompt_args")
    given = {**(filled if isinstance(filled, Mapping) else {}), **arguments}
    found = (query_of(given.get(key)) for key in _QUERY_ARGUMENTS)
    return next((text for text in found if text), None)


def query_of(value: Any) -> str | None:
    """The text of a question in any of its shapes."""
    if isinstance(value, QueryBundle):
        return value.query_str
    if isinstance(value, ChatMessage):
        return text_of(value) or None
    return value if isinstance(value, str) else None


def asked_of(arguments: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The prompt or messages of a model's method, whatever its signature, and its other arguments."""
    named = dict(arguments)
    positional = named.pop("args", ())
    further = named.pop("kwargs", {})
    options = {**named, **(further if isinstance(further, Mapping) else {})}
    for key in ("messages", "prompt"):
        if key in options:
            return options.pop(key), options
    first = positional[0] if isinstance(positional, tuple) and positional else ""
    return first, options


def messages_in(kind: Kind, arguments: Mapping[str, Any]) -> Any:
    """The messages that a method is given, which may go to a model or be written into its prompt."""
    match kind:
        case Kind.CALL:
            return asked_of(arguments)[0]
        case Kind.PREDICTION:
            return getattr(arguments.get("prompt"), "message_templates", None)
        case Kind.CHAT:
            return arguments.get("chat_history")
        case Kind.WORKFLOW:
            return _value(arguments.get("start_event"), "chat_history")
    return None


def is_stream(result: Any) -> bool:
    """Whether a model's method gives its answer piece by piece."""
    return isinstance(result, Iterator | AsyncIterator)


def outcome_of(result: Any) -> Any:
    """What a run gave: of a workflow, what its last event carries."""
    return result.result if isinstance(result, StopEvent) else result


def answer_in(result: Any, depth: int = 0) -> str | None:
    """What a run gave the application, where that is text or plainly holds one."""
    if isinstance(result, str):
        return result
    if depth > 3 or isinstance(result, StreamingResponse | AsyncStreamingResponse):
        return None
    if isinstance(result, ChatResponse):
        return text_of(result.message) or None
    if isinstance(result, CompletionResponse):
        return str(result.text)
    if isinstance(result, ChatMessage):
        return text_of(result) or None
    if isinstance(result, Mapping):
        keys = ("response", "answer", "result", "output")
        return next((answer_in(result[key], depth + 1) for key in keys if key in result), None)
    if "response" in getattr(type(result), "__dataclass_fields__", getattr(type(result), "model_fields", ())):
        return answer_in(result.response, depth + 1)
    dump: Callable[[], str] | None = getattr(result, "model_dump_json", None)
    with contextlib.suppress(Exception):
        return None if dump is None else str(dump())
    return None


def _inputs(arguments: Mapping[str, Any]) -> list[Any]:
    event = arguments.get("start_event")
    if event is not None:
        return [_value(event, key) for key in (*_QUESTION_KEYS, "chat_history")]
    asked, options = asked_of(arguments)
    return [asked, *(options.get(key) for key in (*_QUERY_ARGUMENTS, "chat_history"))]


def _texts(values: Any) -> Iterable[str]:
    """What was said, and the ids of calls and messages of tools."""
    for value in values if isinstance(values, list | tuple) else ():
        if isinstance(value, list | tuple):
            yield from _texts(value)
        elif isinstance(value, ChatMessage):
            message = to_message(value)
            yield from (message.content, message.tool_call_id or "", *(call.id for call in message.tool_calls))
        elif (text := query_of(value)) is not None:
            yield text


def _value(event: Any, key: str) -> Any:
    """Of an event, which holds fields of its class and any others that it was made with."""
    with contextlib.suppress(Exception):
        return event.get(key, None)
    return None
