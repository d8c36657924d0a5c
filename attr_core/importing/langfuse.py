"""Observations of Langfuse as its API and its exports give them: camel or snake case, with or without their trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.importing.assembly import Run
from attr_core.importing.steps import (
    Kind,
    Step,
    documents_in,
    first,
    looks_like_documents,
    messages_in,
    moment,
    parsed,
    text_in,
)
from attr_core.types import Message

__all__ = ["SOURCE", "is_record", "runs"]

SOURCE = "langfuse"

_KINDS: Mapping[str, Kind] = {"GENERATION": "llm", "RETRIEVER": "retriever", "TOOL": "tool"}
_TYPES = frozenset(
    {"GENERATION", "SPAN", "EVENT", "RETRIEVER", "TOOL", "AGENT", "CHAIN", "EMBEDDING", "EVALUATOR", "GUARDRAIL"}
)


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether this is an observation, a trace with its observations, or a page of either."""
    if isinstance(record.get("observations"), list):
        return True
    if isinstance(record.get("data"), list) and record["data"]:
        return isinstance(record["data"][0], Mapping) and is_record(record["data"][0])
    return str(record.get("type")).upper() in _TYPES and bool({"traceId", "trace_id"} & set(record))


def runs(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Run | Exception]]:
    """A run for each trace id, or what is wrong with it."""
    traces: dict[str, Mapping[str, Any]] = {}
    observations: dict[str, list[Mapping[str, Any]]] = {}
    for record in _unpaged(records):
        if isinstance(record.get("observations"), list):
            name = str(record.get("id"))
            traces[name] = record
            inner = [one for one in record["observations"] if isinstance(one, Mapping)]
            observations.setdefault(name, []).extend(inner)
        else:
            observations.setdefault(str(_read(record, "traceId")), []).append(record)
    for trace_id, found in observations.items():
        try:
            yield trace_id, _run(trace_id, found, traces.get(trace_id, {}))
        except Exception as error:  # one odd record is not to hide the others
            yield trace_id, error


def _unpaged(records: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for record in records:
        pages = record.get("data")
        if isinstance(pages, list) and "type" not in record:
            yield from (one for one in pages if isinstance(one, Mapping))
        else:
            yield record


def _run(trace_id: str, found: Sequence[Mapping[str, Any]], trace: Mapping[str, Any]) -> Run:
    about = trace or (found[0] if found else {})
    tags = parsed(about.get("tags"))
    session = _read(about, "sessionId")
    return Run(
        trace_id,
        tuple(_step(one) for one in found),
        SOURCE,
        query=text_in(trace.get("input"), of="question"),
        answer=text_in(trace.get("output"), of="answer"),
        session=None if session is None else str(session),
        tags=tuple(str(tag) for tag in tags) if isinstance(tags, list) else (),
    )


def _step(observation: Mapping[str, Any]) -> Step:
    kind = _KINDS.get(str(observation.get("type")).upper(), "other")
    value_in, value_out = parsed(observation.get("input")), parsed(observation.get("output"))
    told = _read(observation, "statusMessage")
    is_error = str(observation.get("level")).upper() == "ERROR"
    known: dict[str, Any] = {
        "id": str(observation.get("id")),
        "kind": kind,
        "name": str(observation["name"]) if observation.get("name") else None,
        "parent": str(parent) if (parent := _read(observation, "parentObservationId")) else None,
        "started": moment(_read(observation, "startTime")),
        "finished": moment(_read(observation, "endTime")),
        "error": str(told or "the observation has the level ERROR") if is_error else None,
        "text_in": text_in(value_in, of="question"),
        "text_out": text_in(value_out, of="answer"),
    }
    if kind == "llm":
        return Step(**known, **_call(observation, value_in, value_out))
    is_retrieval = kind == "retriever" or looks_like_documents(value_out)
    documents, lost = documents_in(value_out) if is_retrieval else ((), 0)
    said = messages_in([value_out]) if isinstance(value_out, Mapping) else ()
    return Step(
        **known,
        value_out=said[0].content if said else value_out,
        arguments=value_in,
        call_id=said[0].tool_call_id if said else None,
        documents=documents,
        lost=lost,
    )


def _call(observation: Mapping[str, Any], value_in: Any, value_out: Any) -> dict[str, Any]:
    notes: tuple[str, ...] = ()
    messages = messages_in(value_in)
    if not messages and (text := value_in if isinstance(value_in, str) else text_in(value_in, of="question")):
        messages = (Message("user", text),)
        notes = ("a model call took a text, not messages: it stands as one user turn",)
    said = messages_in(value_out) or messages_in([value_out])
    response = said[-1] if said else None
    if response is None and isinstance(value_out, Mapping) and isinstance(value_out.get("tool_calls"), list):
        response = Message.parse({"role": "assistant", **value_out})
    if response is None and (text := text_in(value_out, of="answer")):
        response = Message("assistant", text)
    given = parsed(_read(observation, "modelParameters"))
    known = {name: _number(value) for name, value in given.items()} if isinstance(given, Mapping) else {}
    tools = value_in.get("tools") if isinstance(value_in, Mapping) else None
    model = first(observation.get("model"), _read(observation, "providedModelName"))
    return {
        "messages": messages,
        "response": response,
        "model": None if model is None else str(model),
        "parameters": without_secrets(plain(known)),
        "usage": _usage(observation),
        "tools": tuple(plain(one) for one in tools if isinstance(one, Mapping)) if isinstance(tools, list) else (),
        "notes": notes,
    }


def _number(value: Any) -> Any:
    """Parameters are written as texts by some clients."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _usage(observation: Mapping[str, Any]) -> dict[str, Any]:
    told = parsed(first(_read(observation, "usageDetails"), observation.get("usage")))
    if not isinstance(told, Mapping):
        return {}
    names = {"input": "prompt_tokens", "output": "completion_tokens", "total": "total_tokens"}
    found = {own: told.get(name) for name, own in names.items()}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _read(record: Mapping[str, Any], name: str) -> Any:
    """A field under its name in camel case or in snake case."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return first(record.get(name), record.get(snake))
