"""Runs of LangSmith, as its client and API give them: ``run_type``, ``parent_run_id``, ``inputs``, ``outputs``.

The fields are those of LangSmith's run data format. Messages may be OpenAI's or LangChain's, dumped or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.importing.assembly import Run
from attr_core.importing.steps import Kind, Step, documents_in, first, messages_in, moment, parsed, text_in
from attr_core.types import Message

__all__ = ["SOURCE", "is_record", "runs"]

SOURCE = "langsmith"

_KINDS: Mapping[str, Kind] = {"llm": "llm", "retriever": "retriever", "tool": "tool"}
_NOT_PARAMETERS = ("model", "model_name", "tools", "messages", "_type")
_USAGE = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens", "total_tokens": "total_tokens"}


def is_record(record: Mapping[str, Any]) -> bool:
    """Whether this is a run, or holds runs."""
    return "run_type" in record or (isinstance(record.get("runs"), list) and not {"traceId", "type"} & set(record))


def runs(records: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Run | Exception]]:
    """A run for each trace, or what is wrong with it."""
    flat = [run for record in records for run in _flat(record)]
    parents = {str(run.get("id")): str(run["parent_run_id"]) for run in flat if run.get("parent_run_id")}
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for run in flat:
        grouped.setdefault(_trace_id(run, parents), []).append(run)
    for trace_id, found in grouped.items():
        try:
            yield trace_id, _run(trace_id, found)
        except Exception as error:  # one odd record is not to hide the others
            yield trace_id, error


def _run(trace_id: str, found: Sequence[Mapping[str, Any]]) -> Run:
    root = next((run for run in found if not run.get("parent_run_id")), found[0])
    metadata = _map(_map(root.get("extra")).get("metadata"))
    session = first(metadata.get("session_id"), metadata.get("thread_id"), metadata.get("conversation_id"))
    tags = root.get("tags")
    return Run(
        trace_id,
        tuple(_step(run) for run in found),
        SOURCE,
        session=None if session is None else str(session),
        tags=tuple(str(tag) for tag in tags) if isinstance(tags, list) else (),
    )


def _flat(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A run with those it holds, without a recursion: chains may be deep."""
    waiting = [*reversed(record["runs"])] if isinstance(record.get("runs"), list) else [record]
    while waiting:
        run = waiting.pop()
        if not isinstance(run, Mapping):
            continue
        yield run
        inner = run.get("child_runs")
        above = {"parent_run_id": run.get("id"), "trace_id": run.get("trace_id")}
        children = [one for one in inner if isinstance(one, Mapping)] if isinstance(inner, list) else []
        waiting.extend({**child, **{k: child.get(k) or v for k, v in above.items()}} for child in reversed(children))


def _trace_id(run: Mapping[str, Any], parents: Mapping[str, str]) -> str:
    """Its own word, else the id of the first run above it."""
    if run.get("trace_id"):
        return str(run["trace_id"])
    name = str(run.get("id"))
    for _ in range(len(parents) + 1):
        if name not in parents:
            break
        name = parents[name]
    return name


def _step(run: Mapping[str, Any]) -> Step:
    kind = _KINDS.get(str(run.get("run_type")).lower(), "other")
    inputs, outputs = parsed(run.get("inputs")), parsed(run.get("outputs"))
    known: dict[str, Any] = {
        "id": str(run.get("id")),
        "kind": kind,
        "name": str(run["name"]) if run.get("name") else None,
        "parent": str(run["parent_run_id"]) if run.get("parent_run_id") else None,
        "started": moment(run.get("start_time")),
        "finished": moment(run.get("end_time")),
        "error": str(run["error"]) if run.get("error") else None,
        "text_in": text_in(inputs, of="question"),
        "text_out": text_in(outputs, of="answer"),
    }
    if kind == "llm":
        return Step(**known, **_call(run, _map(inputs), outputs))
    documents, lost = documents_in(outputs) if kind == "retriever" else ((), 0)
    held = outputs.get("output") if isinstance(outputs, Mapping) and set(outputs) == {"output"} else outputs
    said = messages_in([held]) if isinstance(held, Mapping) else ()
    return Step(
        **known,
        value_out=said[0].content if said else held,
        arguments=_arguments(inputs),
        call_id=said[0].tool_call_id if said else None,
        documents=documents,
        lost=lost,
    )


def _arguments(inputs: Any) -> Any:
    """Of a tool: LangChain puts them as a text under ``input``."""
    return parsed(inputs["input"]) if isinstance(inputs, Mapping) and set(inputs) == {"input"} else inputs


def _call(run: Mapping[str, Any], inputs: Mapping[str, Any], outputs: Any) -> dict[str, Any]:
    extra = _map(run.get("extra"))
    given, metadata = _map(extra.get("invocation_params")), _map(extra.get("metadata"))
    parameters = without_secrets(plain({key: given[key] for key in given if key not in _NOT_PARAMETERS}))
    for name in ("temperature", "max_tokens"):
        if name not in parameters and metadata.get(f"ls_{name}") is not None:
            parameters[name] = metadata[f"ls_{name}"]
    messages, notes = _prompt(inputs)
    response, finish_reason = _response(outputs)
    model = first(given.get("model"), given.get("model_name"), metadata.get("ls_model_name"), inputs.get("model"))
    tools = first(given.get("tools"), inputs.get("tools"))
    return {
        "messages": messages,
        "response": response,
        "model": None if model is None else str(model),
        "parameters": parameters,
        "usage": _usage(run, outputs),
        "finish_reason": finish_reason,
        "tools": tuple(plain(one) for one in tools if isinstance(one, Mapping)) if isinstance(tools, list) else (),
        "notes": notes,
    }


def _prompt(inputs: Mapping[str, Any]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    if found := messages_in(inputs):
        return found, ()
    prompts = first(inputs.get("prompts"), inputs.get("prompt"), inputs.get("input"))
    text = prompts[0] if isinstance(prompts, list) and prompts else prompts
    if isinstance(text, str):
        return (Message("user", text),), ("a model call took a text, not messages: it stands as one user turn",)
    return messages_in(prompts), ()


def _response(outputs: Any) -> tuple[Message | None, str | None]:
    """What the model said, and why it stopped: as LangChain's generations, OpenAI's choices, a message or a text."""
    held = _map(outputs)
    candidate = held.get("generations", held.get("choices"))
    while isinstance(candidate, list) and candidate:
        candidate = candidate[0]
    one = _map(candidate)
    info = _map(one.get("generation_info"))
    reason = first(one.get("finish_reason"), info.get("finish_reason"))
    raw = first(one.get("message"), held.get("message"), held if "role" in held else None)
    said = messages_in([raw]) if raw is not None else messages_in(held.get("messages"))
    finish_reason = reason if isinstance(reason, str) else None
    if said:
        return said[-1], finish_reason
    text = first(one.get("text"), text_in(outputs, of="answer"))
    return (Message("assistant", text) if isinstance(text, str) else None), finish_reason


def _usage(run: Mapping[str, Any], outputs: Any) -> dict[str, Any]:
    held = _map(outputs)
    told = _map(first(held.get("usage_metadata"), held.get("usage"), _map(held.get("llm_output")).get("token_usage")))
    counts = {**run, **told}
    found = {own: counts.get(name, counts.get(own)) for name, own in _USAGE.items()}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


def _map(value: Any) -> Mapping[str, Any]:
    value = parsed(value)
    return value if isinstance(value, Mapping) else {}
