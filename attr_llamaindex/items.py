"""What a span is to the recorder: a retrieval, a tool call, or something that tells more of the run it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.agent.workflow.workflow_events import AgentOutput, AgentSetup, ToolCallResult
from llama_index.core.agent.workflow.workflow_events import ToolCall as ToolCallEvent
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from attr_core._plain import plain
from attr_core.capture import RunRecorder
from attr_core.types import Document, Retrieval, ToolCall
from attr_llamaindex.convert import text_of, to_documents, to_tool_result
from attr_llamaindex.kinds import Kind
from attr_llamaindex.payloads import query_in
from attr_llamaindex.records import Span

__all__ = ["note_agent", "note_memory", "note_stage", "retrieval", "retrieved", "tool_call", "tool_result"]


def retrieval(span: Span, arguments: Mapping[str, Any]) -> Retrieval:
    """A retriever is asked."""
    return Retrieval(query_in(arguments), (), name=type(span.instance).__name__, metadata={"stage": "retriever"})


def retrieved(span: Span, result: Any) -> tuple[Document, ...]:
    """What it gave."""
    span.run.stages.append(_state(result))
    return to_documents(result)


def note_stage(recorder: RunRecorder, span: Span, arguments: Mapping[str, Any], nodes: Any, *, stage: str) -> None:
    """Record what a postprocessor left, or a synthesizer was given, where no stage before gave just that.

    So the last retrieval of a run, or of a part of it, holds what was finally used, and those before what was found.
    """
    state = _state(nodes)
    if state in span.run.stages or (stage == "synthesizer" and not state):
        return
    span.run.stages.append(state)
    retrieval = Retrieval(
        query_in(arguments), to_documents(nodes), name=type(span.instance).__name__, metadata={"stage": stage}
    )
    recorder.begin((span.id, stage), span.id, retrieval)
    recorder.finish((span.id, stage))


def tool_call(span: Span, arguments: Mapping[str, Any]) -> ToolCall | None:
    """A tool is called, by an agent's step or by anyone else; a tool within a tool is the same call."""
    if (event := _event(arguments, ToolCallEvent)) is not None:
        return ToolCall(
            id=str(event.tool_id),
            name=str(event.tool_name),
            arguments=plain(event.tool_kwargs),
            generation_id=span.run.asked.get(str(event.tool_id)),
        )
    if _is_inner(span):
        return None
    given = {key: value for key, value in arguments.items() if key not in ("args", "kwargs")}
    given |= {str(number): value for number, value in enumerate(arguments.get("args", ()))}
    given |= arguments.get("kwargs", {})
    return ToolCall(id=span.id, name=str(span.instance.metadata.name or "tool"), arguments=plain(given))


def tool_result(recorder: RunRecorder, span: Span, result: Any) -> dict[str, Any]:
    """What it gave: text, error, and the documents that no retriever of this run has given."""
    if _is_inner(span):
        return {}
    text, error, documents = to_tool_result(result.tool_output if isinstance(result, ToolCallResult) else result)
    if error is not None:
        span.run.told.add(span.id)
    new = tuple(document for document in documents if recorder.is_new(span.id, document.text))
    return {"output": text, "documents": new, **({} if error is None else {"error": error})}


def note_memory(recorder: RunRecorder, span: Span, arguments: Mapping[str, Any]) -> None:
    """What an agent sets out with is its memory; what it adds to that on its way is not."""
    if (setup := _event(arguments, AgentSetup)) is not None:
        recorder.add_variables(span.id, frozenset(text_of(message).strip() for message in setup.input))


def note_agent(span: Span, result: Any) -> None:
    """Which of the model's calls asked for which tool; agents that parse text make up the ids themselves."""
    if isinstance(result, AgentOutput) and span.run.last_generation is not None:
        span.run.asked.update({str(call.tool_id): span.run.last_generation for call in result.tool_calls})


def _is_inner(span: Span) -> bool:
    around = next((one.kind for one in span.around() if one.kind is not Kind.OTHER), None)
    return span.kind is Kind.TOOL and around in (Kind.TOOL, Kind.TOOL_STEP)


def _event(arguments: Mapping[str, Any], kind: type) -> Any:
    return next((given for given in arguments.values() if isinstance(given, kind)), None)


def _state(nodes: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """What decides the documents that nodes become; cheaper to compare than these."""
    given = nodes if isinstance(nodes, list | tuple) else ()
    inner = (node.node if isinstance(node, NodeWithScore) else node for node in given)
    return [
        (node.node_id, node.get_content(metadata_mode=MetadataMode.NONE), dict(node.metadata))
        for node in inner
        if isinstance(node, BaseNode)
    ]
