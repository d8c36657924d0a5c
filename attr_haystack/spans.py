"""What is noted of each span of a run, and passed on to the recorder when it is known what the span stands for.

A span comes without its input, which follows as a tag; so a run begins for the recorder when its input is there, when a
run inside it begins, or when it is over, whichever is first.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from haystack.dataclasses import ChatMessage
from haystack.dataclasses import Document as HaystackDocument

from attr_core._plain import plain
from attr_core.capture import Root, RunRecorder
from attr_core.types import Document, Generation, Retrieval, ToolCall
from attr_haystack.convert import documents_in, to_answer, to_document, to_generation, to_tool_result
from attr_haystack.payloads import (
    Part,
    about,
    answer_in,
    cause_of,
    is_chat,
    is_template,
    part_of,
    query_in,
    status_of,
    texts_in,
    texts_out,
    variables_in,
)

__all__ = ["Note", "begun", "contents", "failed", "finished", "opened"]

PIPELINE, COMPONENT, GENERATOR = "haystack.pipeline.run", "haystack.component.run", "haystack.chat_generator.run"
AGENT, AGENT_LLM, AGENT_TOOL, HOOK = (
    "haystack.agent.run",
    "haystack.agent.step.llm",
    "haystack.agent.step.tool",
    "haystack.agent.hook",
)
_RUNS = frozenset({PIPELINE, AGENT})
_HOLDS_MODELS = frozenset({PIPELINE, AGENT, GENERATOR, COMPONENT})
_INPUT_TAG = {
    COMPONENT: "haystack.component.input",
    GENERATOR: "haystack.component.input",
    AGENT: "haystack.agent.input",
    AGENT_LLM: "haystack.agent.step.llm.input",
    AGENT_TOOL: "haystack.agent.step.tool.input",
}
_OUTPUT_TAG = {
    PIPELINE: "haystack.pipeline.output_data",
    COMPONENT: "haystack.component.output",
    GENERATOR: "haystack.component.output",
    AGENT: "haystack.agent.output",
    AGENT_LLM: "haystack.agent.step.llm.output",
    AGENT_TOOL: "haystack.agent.step.tool.output",
}
_TOOL_FAILED = "Failed to invoke Tool "
"""How such an error begins; before Haystack 3.4 nothing else told it from an output."""

_MAY_HOLD_A_PIPELINE = (Part.MODEL, Part.RETRIEVER)
_MOST = 1_000


@dataclass(slots=True, eq=False)
class Note:
    """A span of ours: ``item`` waits until the run begins, ``found`` until it ends."""

    operation: str
    tags: dict[str, Any]
    parent: Note | None
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    part: Part = Part.OTHER
    item: Generation | Retrieval | ToolCall | None = None
    has_chat: bool = False
    has_run: bool = False
    known: Root = field(default_factory=Root)
    found: dict[str, Any] = field(default_factory=dict)
    trace_id: str | None = None
    is_begun: bool = False
    is_over: bool = False
    asked: dict[int, ToolCall] = field(default_factory=dict)
    """Of an agent: the calls that its model asked for last and that no tool has taken up."""


def opened(recorder: RunRecorder, operation: str, tags: Mapping[str, Any], parent: Note | None) -> Note:
    """A span begins. ``parent`` is the one given or else the one that is current."""
    while parent is not None and parent.is_over and parent.parent is not None:
        parent = parent.parent  # what outlives its component still belongs to the run
    if parent is not None and operation in _RUNS and parent.operation == PIPELINE:
        parent = None  # a pipeline runs components only: the one in front of us is an asynchronous one at a pause
    note = Note(operation, dict(tags), parent)
    if parent is not None and operation in _HOLDS_MODELS:
        parent.has_run = True
        if not parent.is_begun and (parent.part is Part.MODEL or operation == PIPELINE):
            parent.item = None  # a pipeline that looks like a model or a retriever: that one is inside
    if operation == PIPELINE:
        _receive(note, tags.get("haystack.pipeline.input_data"), tags.get("haystack.pipeline.metadata"))
        begun(recorder, note)
    elif operation == HOOK:
        _list(note, "hooks", {key: plain(tags.get(f"haystack.agent.hook.{key}")) for key in ("point", "name")})
    if parent is not None:
        begun(recorder, parent)
    return note


def begun(recorder: RunRecorder, note: Note) -> str | None:
    """Have the run begin for the recorder, those around it first; the id of its trace."""
    if not note.is_begun:
        if note.parent is not None:
            begun(recorder, note.parent)
        note.trace_id = recorder.begin(
            note.run_id,
            None if note.parent is None else note.parent.run_id,
            note.item,
            about=lambda: note.known,
            formats=note.part is Part.FORMATTER,
        )
        note.is_begun = True  # only now: another thread's child must find it begun where it reads so
    return note.trace_id


def contents(recorder: RunRecorder, note: Note, key: str, value: Any) -> bool:
    """A content tag came; whether it is the answer of a model, as a mapping with ``replies``."""
    if key == _INPUT_TAG.get(note.operation):
        _put_in(recorder, note, value)
    elif key == _OUTPUT_TAG.get(note.operation):
        _put_out(recorder, note, value)
        return isinstance(note.item, Generation)
    return False


def finished(recorder: RunRecorder, note: Note) -> None:
    """The span ended."""
    begun(recorder, note)
    note.is_over = True
    recorder.finish(note.run_id, **note.found)


def failed(recorder: RunRecorder, note: Note, error: BaseException) -> None:
    """It ended by an exception; what was there by then is kept."""
    begun(recorder, note)
    note.is_over = True
    fields = {"response", "reasoning", "tool_calls", "finish_reason", "usage", "model"}
    partial = {key: value for key, value in note.found.items() if key in fields and isinstance(note.item, Generation)}
    recorder.fail(note.run_id, cause_of(error), status=status_of(error), **partial)


# --- what goes in -----------------------------------------------------------------------------------------------------


def _put_in(recorder: RunRecorder, note: Note, value: Any) -> None:
    inputs = value if isinstance(value, Mapping) else {}
    if note.operation == AGENT:
        _receive(note, inputs)
    elif note.operation == AGENT_LLM:
        _without_tools(recorder, note, inputs.get("messages"))
        note.item = to_generation(inputs)
    elif note.operation == AGENT_TOOL:
        note.item = _taken_up(note, str(note.tags.get("haystack.tool.name")), plain(value))
    elif note.operation == GENERATOR:
        _receive(note, inputs)
        note.item = to_generation(inputs)
    else:
        _enter_component(recorder, note, inputs)
    if note.part not in _MAY_HOLD_A_PIPELINE:
        begun(recorder, note)


def _enter_component(recorder: RunRecorder, note: Note, inputs: Mapping[str, Any]) -> None:
    note.part, note.has_chat = part_of(note.tags, inputs), any(is_chat(value) for value in inputs.values())
    name = str(note.tags.get("haystack.component.name"))
    _list(note, "components", name)
    if note.part is Part.MODEL:
        note.item = to_generation(inputs)
    elif note.part is Part.RETRIEVER:
        note.item = Retrieval(query=query_in(inputs), documents=(), name=name)
    else:
        begun(recorder, note)
        if note.part is Part.FORMATTER:
            note.found["documents"] = _new(recorder, note, inputs)
        if is_template(note.tags):
            recorder.add_variables(note.run_id, variables_in(inputs))


def _receive(note: Note, inputs: Any, metadata: Any = None) -> None:
    """What a run was given; where it stands in a span of the application's own, that one's root learns it too."""
    note.known = about(inputs, metadata=metadata)
    outer = _root_of(note)
    if outer is not note and outer.operation not in _HOLDS_MODELS:
        outer.found.setdefault("query", note.known.query)
        outer.found["given"] = outer.found.get("given", frozenset()) | note.known.given


def _taken_up(note: Note, name: str, arguments: Any) -> ToolCall:
    """The call that a tool answers: the model's, by name and arguments, or by name where a hook has changed them."""
    agent = _agent_of(note)
    waiting = [] if agent is None else [(key, call) for key, call in list(agent.asked.items()) if call.name == name]
    alike = [(key, call) for key, call in waiting if plain(call.arguments) == arguments]
    for key, call in (*alike, *waiting):
        if agent is not None and agent.asked.pop(key, None) is not None:  # its parallel twin may have been faster
            return replace(call, id=call.id or note.run_id, arguments=arguments)
    return ToolCall(id=note.run_id, name=name, arguments=arguments)


def _without_tools(recorder: RunRecorder, note: Note, messages: Any) -> None:
    """Calls that were answered without a tool: there is none of that name, or a hook answered itself."""
    agent = _agent_of(note)
    if agent is None or not agent.asked or not isinstance(messages, list | tuple):
        return
    results = [r for message in messages if isinstance(message, ChatMessage) for r in message.tool_call_results]
    for key, call in list(agent.asked.items()):
        named = (r for r in reversed(results) if (r.origin.id or "", r.origin.tool_name) == (call.id, call.name))
        result = next(named, None)
        if result is not None and agent.asked.pop(key, None) is not None:
            run_id, (text, documents) = str(uuid.uuid4()), to_tool_result(result.result)
            recorder.begin(run_id, agent.run_id, replace(call, id=call.id or run_id))
            found = {"error": text} if result.error else {"output": text, "documents": documents}
            recorder.finish(run_id, **found)


# --- what comes out ---------------------------------------------------------------------------------------------------


def _put_out(recorder: RunRecorder, note: Note, value: Any) -> None:
    outputs = value if isinstance(value, Mapping) else {}
    begun(recorder, note)
    if isinstance(note.item, Generation):
        note.found.update(to_answer(outputs.get("replies")))
        _note_calls(note)
    elif isinstance(note.item, ToolCall):
        _leave_tool(note, value)
    elif note.operation == COMPONENT:
        _leave_component(recorder, note, outputs)
    elif note.operation == AGENT:
        _without_tools(recorder, note, outputs.get("messages"))
    if note.operation in _RUNS and _is_outermost(note):
        note.found["output"] = answer_in(outputs)
        outer = _root_of(note)
        if outer is not note:
            outer.found["output"] = note.found.pop("output")


def _leave_component(recorder: RunRecorder, note: Note, outputs: Mapping[str, Any]) -> None:
    if isinstance(note.item, Retrieval):
        note.found["documents"] = _documents(documents_in(outputs))
        return
    note.found["documents"] = (*note.found.get("documents", ()), *_new(recorder, note, outputs))
    if note.part is Part.FORMATTER:
        note.found["contexts"] = texts_out(outputs)
        return
    recalled = [value for value in outputs.values() if is_chat(value)]
    if recalled and not note.has_chat and not note.has_run and not is_template(note.tags):
        recorder.add_variables(note.run_id, texts_in(recalled))  # messages out of nothing are a memory's


def _leave_tool(note: Note, result: Any) -> None:
    error = result.get("error") if isinstance(result, Mapping) and len(result) == 1 else None
    if note.tags.get("haystack.tool.error") or str(error).startswith(_TOOL_FAILED):
        note.found["error"] = str(error)
        return
    note.found["output"], note.found["documents"] = to_tool_result(result)


def _note_calls(note: Note) -> None:
    agent = _agent_of(note)
    if agent is not None and note.operation == AGENT_LLM and isinstance(note.item, Generation):
        calls = note.found.get("tool_calls", ())
        agent.asked = {key: replace(call, generation_id=note.item.id) for key, call in enumerate(calls)}


def _new(recorder: RunRecorder, note: Note, values: Mapping[str, Any]) -> tuple[Document, ...]:
    """Documents that no retriever of this run gave: the application fetched, cut or passed them in."""
    return _documents(d for d in documents_in(values) if d.content and recorder.is_new(note.run_id, d.content))


def _documents(found: Iterable[HaystackDocument]) -> tuple[Document, ...]:
    return tuple(to_document(document, position) for position, document in enumerate(islice(found, _MOST)))


# --- where a span stands ----------------------------------------------------------------------------------------------


def _root_of(note: Note) -> Note:
    while note.parent is not None:
        note = note.parent
    return note


def _is_outermost(note: Note) -> bool:
    """Whether no other run of Haystack's is around it, be it in a span of the application's own."""
    outer = note.parent
    while outer is not None:
        if outer.operation in _HOLDS_MODELS:
            return False
        outer = outer.parent
    return True


def _agent_of(note: Note) -> Note | None:
    """The agent whose step a span is of."""
    found: Note | None = note
    while found is not None and found.operation != AGENT:
        found = found.parent
    return found


def _list(note: Note, key: str, entry: Any) -> None:
    """Have the trace's metadata list what ran: the recorder reads the root's when the run is over."""
    root = _root_of(note)
    metadata = root.known.metadata
    if isinstance(metadata, dict) and len(entries := metadata.setdefault(key, [])) < _MOST:
        entries.append(entry)
