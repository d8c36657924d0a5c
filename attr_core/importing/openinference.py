"""Spans of OpenInference and OpenTelemetry: OTLP as JSON, Phoenix's exports, and those of the SDK's console exporter.

Attributes may be flattened (``llm.input_messages.0.message.role``), nested, or lists written as one JSON text; all come
down to one tree. What spans say of models in OpenTelemetry's own conventions (``gen_ai.*``) is read where OpenInference
says nothing. Documents that instrumentations put under a span of kind ``TOOL`` are a retrieval all the same.

The conventions are OpenInference's ``spec/semantic_conventions.md`` and OpenTelemetry's for generative AI.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.importing.assembly import Run
from attr_core.importing.steps import Kind, Step, documents_in, first, messages_in, moment, parsed, text_in
from attr_core.types import Message

__all__ = ["SOURCE", "is_record", "nested", "runs"]

SOURCE = "openinference"

_DEEPEST_KEY = 32
_KINDS: Mapping[str, Kind] = {"LLM": "llm", "RETRIEVER": "retriever", "RERANKER": "retriever", "TOOL": "tool"}
_OPERATIONS: Mapping[str, Kind] = {
    **dict.fromkeys(("chat", "text_completion", "generate_content"), "llm"),
    **dict.fromkeys(("retrieval", "vector_db_retrieve"), "retriever"),
    "execute_tool": "tool",
}
_COUNTS = {"prompt": "prompt_tokens", "completion": "completion_tokens", "total": "total_tokens"}


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether this is a span, or an export that holds spans."""
    if "resourceSpans" in record or "resource_spans" in record:
        return True
    has_ids = isinstance(record.get("context"), Mapping) or "context.trace_id" in record
    has_ids = has_ids or bool({"spanId", "span_id"} & set(record))
    return has_ids and ("attributes" in record or any(str(key).startswith("attributes.") for key in record))


def runs(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Run | Exception]]:
    """A run for each trace id, or what is wrong with it."""
    spans: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        for span in _spans(record):
            spans.setdefault(_trace_id(span), []).append(span)
    for trace_id, found in spans.items():
        try:
            yield trace_id, _run(trace_id, found)
        except Exception as error:  # one odd record is not to hide the others
            yield trace_id, error


def _run(trace_id: str, spans: Sequence[Mapping[str, Any]]) -> Run:
    trees = [_attributes(span) for span in spans]
    steps = tuple(_step(span, tree) for span, tree in zip(spans, trees, strict=True))
    session = next((str(found) for tree in trees if (found := _at(tree, "session", "id"))), None)
    tags = next((found for tree in trees if isinstance(found := parsed(_at(tree, "tag", "tags")), list)), [])
    return Run(trace_id, steps, SOURCE, session=session, tags=tuple(str(tag) for tag in tags))


def _spans(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    groups = first(record.get("resourceSpans"), record.get("resource_spans"))
    if groups is None:
        yield record
        return
    for group in _mappings(groups):
        scopes = first(group.get("scopeSpans"), group.get("scope_spans"), group.get("instrumentationLibrarySpans"))
        for scope in _mappings(scopes):
            yield from _mappings(scope.get("spans"))


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping))


def _read(span: Mapping[str, Any], *names: str) -> Any:
    """A field of the span or of its context, under any of these names."""
    context = span.get("context")
    held = [span, context] if isinstance(context, Mapping) else [span]
    return first(*(one.get(name) for one in held for name in names), *(span.get(f"context.{name}") for name in names))


def _trace_id(span: Mapping[str, Any]) -> str:
    return _hex(_read(span, "traceId", "trace_id")) or "without a trace id"


def _hex(value: Any) -> str:
    return "" if value is None else str(value).removeprefix("0x")


def _step(span: Mapping[str, Any], tree: Mapping[str, Any]) -> Step:
    kind = _kind(span, tree)
    value_in, value_out = _at(tree, "input", "value"), _at(tree, "output", "value")
    if value_out is None:  # OpenLLMetry's names for the same
        value_in = first(value_in, _at(tree, "traceloop", "entity", "input"), _at(tree, "gen_ai", "task", "input"))
        value_out = first(_at(tree, "traceloop", "entity", "output"), _at(tree, "gen_ai", "task", "output"))
    name = _read(span, "name")
    known: dict[str, Any] = {
        "id": _hex(_read(span, "spanId", "span_id")),
        "kind": kind,
        "name": str(first(_at(tree, "tool", "name"), _at(tree, "gen_ai", "tool", "name"), name) or "") or None,
        "parent": _hex(_read(span, "parentSpanId", "parent_span_id", "parent_id")) or None,
        "started": moment(_read(span, "startTimeUnixNano", "start_time_unix_nano", "start_time")),
        "finished": moment(_read(span, "endTimeUnixNano", "end_time_unix_nano", "end_time")),
        "error": _error(span),
        "text_in": text_in(value_in, of="question"),
        "text_out": text_in(value_out, of="answer"),
        "value_out": value_out,
    }
    if kind == "llm":
        return Step(**known, **_call(tree, value_in, value_out))
    documents, lost = _documents(tree, value_out, is_retriever=kind == "retriever")
    arguments = first(_at(tree, "tool", "parameters"), _at(tree, "gen_ai", "tool", "call", "arguments"), value_in)
    call_id = first(_at(tree, "tool_call", "id"), _at(tree, "tool", "id"), _at(tree, "gen_ai", "tool", "call", "id"))
    return Step(
        **known,
        arguments=parsed(arguments),
        call_id=None if call_id is None else str(call_id),
        documents=documents,
        lost=lost,
    )


def _kind(span: Mapping[str, Any], tree: Mapping[str, Any]) -> Kind:
    named = first(_at(tree, "openinference", "span", "kind"), span.get("span_kind"))
    if isinstance(named, str) and named.upper() in _KINDS:
        return _KINDS[named.upper()]
    operation = first(_at(tree, "gen_ai", "operation", "name"), _at(tree, "llm", "request", "type"))
    if named is None and isinstance(operation, str):
        return _OPERATIONS.get(operation, "other")
    return "other"


def _call(tree: Mapping[str, Any], value_in: Any, value_out: Any) -> dict[str, Any]:
    """What a span says of a model call."""
    notes = []
    messages = _messages(_at(tree, "llm", "input_messages")) or _gen_ai_messages(tree, "input", "prompt")
    if not messages and (prompts := _prompts(tree)):
        messages = prompts
    if not messages and (messages := messages_in(value_in)):
        notes.append("the messages of a model call were read from its input.value")
    if not messages and isinstance(value_in, str) and value_in.strip():
        messages = (Message("user", value_in),)
        notes.append("the messages of a model call were not recorded: its input.value stands as one user turn")
    said = _messages(_at(tree, "llm", "output_messages")) or _gen_ai_messages(tree, "output", "completion")
    response = said[0] if said else None
    if response is None and (text := text_in(value_out, of="answer")):
        response = Message("assistant", text)
    given = first(_at(tree, "llm", "invocation_parameters"), _at(tree, "gen_ai", "request"))
    parameters = parsed(given)
    parameters = without_secrets(plain(parameters)) if isinstance(parameters, Mapping) else {}
    models = (
        *(_at(tree, "llm", "model_name"), _at(tree, "gen_ai", "response", "model")),
        *(_at(tree, "gen_ai", "request", "model"), parameters.get("model")),
    )
    model = first(*models)
    return {
        "messages": messages,
        "response": response,
        "model": None if model is None else str(model),
        "parameters": {key: value for key, value in parameters.items() if key not in ("model", "tools", "messages")},
        "usage": _usage(tree),
        "finish_reason": _finish_reason(tree),
        "tools": tuple(_tools(tree, parameters)),
        "notes": tuple(notes),
    }


def _messages(value: Any) -> tuple[Message, ...]:
    """Messages as OpenInference lists them."""
    items = [_unwrapped(item, "message") for item in _list(value)]
    return messages_in([_as_chat(item) for item in items if isinstance(item, Mapping) and "role" in item])


def _as_chat(message: Mapping[str, Any]) -> dict[str, Any]:
    parts = [_unwrapped(part, "message_content") for part in _list(message.get("contents"))]
    content = message.get("content")
    calls = [_unwrapped(call, "tool_call") for call in _list(message.get("tool_calls"))]
    if message.get("function_call_name"):  # before there were tool calls
        arguments = message.get("function_call_arguments_json")
        calls.append({"id": "", "function": {"name": message["function_call_name"], "arguments": arguments}})
    return {
        "role": str(message["role"]),
        "content": parts if content is None and parts else content,
        "name": message.get("name"),
        "tool_calls": [call for call in calls if isinstance(call, Mapping)],
        "tool_call_id": message.get("tool_call_id"),
    }


def _gen_ai_messages(tree: Mapping[str, Any], side: str, older: str) -> tuple[Message, ...]:
    """OpenTelemetry's ``gen_ai.input.messages``, or the older ``gen_ai.prompt.0.content``."""
    found = messages_in(_at(tree, "gen_ai", side, "messages"))
    if found:
        told = parsed(_at(tree, "gen_ai", "system_instructions")) if side == "input" else None
        return (*messages_in([{"role": "system", "parts": told}]), *found) if isinstance(told, list) else found
    items = [item for item in _list(_at(tree, "gen_ai", older)) if isinstance(item, Mapping)]
    return messages_in([{"role": "assistant" if side == "output" else "user", **item} for item in items])


def _prompts(tree: Mapping[str, Any]) -> tuple[Message, ...]:
    """The prompt of a completion model as one user turn."""
    items = [_unwrapped(item, "prompt") for item in _list(_at(tree, "llm", "prompts"))]
    texts = [item.get("text") if isinstance(item, Mapping) else item for item in items]
    return tuple(Message("user", text) for text in texts[:1] if isinstance(text, str))


def _documents(tree: Mapping[str, Any], value_out: Any, *, is_retriever: bool) -> tuple[tuple[Any, ...], int]:
    places = (("retrieval", "documents"), ("reranker", "output_documents"), ("gen_ai", "retrieval", "documents"))
    for place in places:
        held = _list(_at(tree, *place))
        if held:
            return documents_in([nested(item) for item in held])
    return documents_in(value_out) if is_retriever else ((), 0)


def _usage(tree: Mapping[str, Any]) -> dict[str, Any]:
    counts = _at(tree, "llm", "token_count")
    found = {own: counts[name] for name, own in _COUNTS.items() if name in counts} if _is_map(counts) else {}
    told = _at(tree, "gen_ai", "usage")
    if not found and _is_map(told):
        names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
        found = {own: told[name] for name, own in names.items() if name in told}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _finish_reason(tree: Mapping[str, Any]) -> str | None:
    reasons = parsed(_at(tree, "gen_ai", "response", "finish_reasons"))
    found = first(_at(tree, "llm", "finish_reason"), reasons[0] if isinstance(reasons, list) and reasons else None)
    return found if isinstance(found, str) else None


def _tools(tree: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    found = [_unwrapped(item, "tool") for item in _list(_at(tree, "llm", "tools"))]
    schemas = [parsed(item.get("json_schema", item)) if _is_map(item) else parsed(item) for item in found]
    yield from (plain(one) for one in schemas or _list(parameters.get("tools")) if isinstance(one, Mapping))


def _error(span: Mapping[str, Any]) -> str | None:
    status = span.get("status")
    code, text = span.get("status_code"), span.get("status_message")
    if isinstance(status, Mapping):
        code = first(status.get("code"), status.get("status_code"))
        text = first(status.get("message"), status.get("description"))
    if code not in (2, "2", "ERROR", "STATUS_CODE_ERROR", "StatusCode.ERROR"):
        return None
    return str(text or "the span ended with an error")


def _attributes(span: Mapping[str, Any]) -> Mapping[str, Any]:
    """The span's attributes as one tree."""
    held = span.get("attributes")
    if isinstance(held, list):
        held = {str(item.get("key")): _any_value(item.get("value")) for item in _mappings(held)}
    columns = {str(key)[11:]: value for key, value in span.items() if str(key).startswith("attributes.")}
    found = nested({**columns, **(held if isinstance(held, Mapping) else {})})
    return found if isinstance(found, Mapping) else {}


def _any_value(value: Any) -> Any:
    """OTLP's ``AnyValue``."""
    if not isinstance(value, Mapping):
        return value
    for name, held in value.items():
        if name in ("stringValue", "string_value", "boolValue", "bool_value", "doubleValue", "double_value"):
            return held
        if name in ("intValue", "int_value"):
            return int(held)
        if name in ("arrayValue", "array_value") and isinstance(held, Mapping):
            return [_any_value(item) for item in held.get("values") or ()]
        if name in ("kvlistValue", "kvlist_value") and isinstance(held, Mapping):
            return {str(item.get("key")): _any_value(item.get("value")) for item in _mappings(held.get("values"))}
    return None


def nested(value: Any) -> Any:
    """Flattened names as a tree, with lists where names are numbers.

    Examples
    --------
    >>> nested({"llm.input_messages.0.message.role": "user", "llm.model_name": "m"})
    {'llm': {'input_messages': [{'message': {'role': 'user'}}], 'model_name': 'm'}}
    """
    if isinstance(value, list):
        return [nested(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    tree: dict[str, Any] = {}
    for key, item in value.items():
        _put(tree, str(key).split(".", _DEEPEST_KEY), nested(item))
    return _with_lists(tree)


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        inner = tree.get(name)
        if isinstance(inner, list):
            inner = {str(n): item for n, item in enumerate(inner)}
        elif not isinstance(inner, dict):  # absent, or a text of the same in one piece
            inner = {}
        tree[name] = inner
        tree = inner
    held = tree.get(path[-1])
    if isinstance(held, dict) and isinstance(value, Mapping):
        for name, item in value.items():
            _put(held, [str(name)], item)
    elif not isinstance(held, dict):
        tree[path[-1]] = value


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    items = {key: _with_lists(item) for key, item in value.items()}
    if items and all(key.isascii() and key.isdigit() and len(key) < 10 for key in items):
        return [items[key] for key in sorted(items, key=int)]
    return items


def _at(tree: Any, *path: str) -> Any:
    for name in path:
        tree = parsed(tree)
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(name)
    return tree


def _list(value: Any) -> list[Any]:
    """The value as a list: also where it is one in a JSON text, or a list of JSON texts."""
    value = parsed(value)
    items = value if isinstance(value, list) else []
    return [nested(parsed(item)) for item in items]


def _unwrapped(item: Any, name: str) -> Any:
    return item[name] if isinstance(item, Mapping) and isinstance(item.get(name), Mapping) else item


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)
