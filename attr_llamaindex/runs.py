"""The runs that are open: spans and events of LlamaIndex's dispatcher, put together for the recorder.

A root run is an outermost span that answers something. It ends with its span, or, where it gives a stream, when that
has been read. As in the recorder, nothing here waits for a lock.
"""

from __future__ import annotations

import weakref
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.workflow import StopEvent

from attr_core.capture import Complaints, RunRecorder, guarded
from attr_core.types import Generation, Retrieval, ToolCall, Trace
from attr_llamaindex import items
from attr_llamaindex.calls import Calls
from attr_llamaindex.convert import to_rendered
from attr_llamaindex.kinds import ROOTS, Kind, is_building, kind_of
from attr_llamaindex.payloads import about, answer_in, messages_in, outcome_of
from attr_llamaindex.records import Run, Span
from attr_llamaindex.stamps import leave, take_off
from attr_llamaindex.streams import Reading, joined, recorded

__all__ = ["Runs"]

Deliver = Callable[[Trace, bool, dict[str, Any]], object]


class Runs:
    """What is open, and what is known of it.

    Parameters
    ----------
    deliver : callable
        Given each trace, whether it is complete, and the stamp that was left in what the run gave.
    stamp : bool
        Whether to leave stamps.
    max_runs, max_age
        As for :class:`attr_core.capture.RunRecorder`.
    """

    def __init__(self, deliver: Deliver, *, stamp: bool, max_runs: int, max_age: float) -> None:
        self.recorder = RunRecorder(self._deliver, framework="llamaindex", max_runs=max_runs, max_age=max_age)
        self.calls = Calls(self.recorder, self._settle)
        self._hand_on = deliver
        self._is_stamping = stamp
        self._spans: dict[str, Span] = {}
        self._runs: dict[str, Run] = {}
        self._silent: set[str] = set()

    @property
    def complaints(self) -> Complaints:
        """What has been warned of."""
        return self.recorder.complaints

    @property
    def n_remembered(self) -> int:
        """Spans, calls and runs that something is kept of; 0 when nothing is open."""
        own = len(self._spans) + len(self._runs) + len(self._silent) + len(self.calls)
        return own + self.recorder.n_remembered

    def enter(
        self,
        span_id: str,
        arguments: Mapping[str, Any],
        *,
        instance: Any,
        parent_id: str | None,
        tags: Mapping[str, Any] | None,
    ) -> None:
        """A span begins."""
        kind = kind_of(span_id, instance, arguments)
        self._take_off(kind, arguments)
        parent_id = joined(parent_id)
        run = self._run_of(parent_id)
        call = self.calls.at_work() if kind in ROOTS else None
        if call is not None and call.run is not run:  # a model's stream, which is read outside its span
            run, parent_id = call.run, call.id
        if parent_id in self._silent or (run is None and kind is Kind.BUILDING):
            self._silent.add(span_id)
            return
        if run is None:
            if kind not in ROOTS or is_building():
                return
            run, parent_id = Run(span_id, kind), None
        span = Span(span_id, kind, run, self._spans.get(parent_id or ""), instance)
        trace_id = self.recorder.begin(
            span_id,
            parent_id,
            lambda: self._item(span, arguments),
            about=lambda: about(span_id, instance, arguments, tags),
        )
        if trace_id is None:  # attrkit itself asks
            self._silent.add(span_id)
            return
        self._spans[span_id] = run.spans[span_id] = span
        if span_id == run.id:
            run.trace_id, run.stamp = trace_id, {"trace_id": trace_id}
            self._runs[span_id] = run
        self._note_begin(span, arguments)

    def leave(self, span_id: str, arguments: Mapping[str, Any], result: Any) -> None:
        """A span ends with what its method gave."""
        self._silent.discard(span_id)
        span = self._spans.pop(span_id, None)
        if span is None:
            return
        run = span.run
        run.spans.pop(span_id, None)
        if span_id == run.id:
            self._stamp(run, outcome_of(result))
        if span.kind is Kind.CALL:
            self.calls.leave(span, result)
        elif span_id == run.id:
            self._leave_root(run, outcome_of(result), self._found(span, arguments, result) or {})
        else:
            self.recorder.finish(span_id, **(self._found(span, arguments, result) or {}))
            self._note_history(span, None)

    def drop(self, span_id: str, error: BaseException | None) -> None:
        """A span ends by an exception."""
        self._silent.discard(span_id)
        span = self._spans.pop(span_id, None)
        if span is None:
            return
        error = RuntimeError("no reason was given") if error is None else error
        span.run.spans.pop(span_id, None)
        if span.kind is Kind.CALL:
            self.calls.drop(span, error)
        else:
            if span.kind in (Kind.TOOL, Kind.TOOL_STEP):
                span.run.told.add(span_id)
            self.recorder.fail(span_id, error)
            self._note_history(span, error)

    def cancel(self, span_id: str) -> None:
        """The user has stopped a workflow."""
        if span_id in self._spans:
            self.recorder.fail(span_id, CancelledError(), status="interrupted")

    def hand_on_all(self) -> None:
        """Hand every open run on as it is."""
        self.recorder.hand_on_all()
        self._silent.clear()

    # --- spans --------------------------------------------------------------------------------------------------------

    @guarded
    def _take_off(self, kind: Kind, arguments: Mapping[str, Any]) -> None:
        take_off(messages_in(kind, arguments))

    def _run_of(self, parent_id: str | None) -> Run | None:
        if parent_id is None:
            return None
        parent = self._spans.get(parent_id)
        return parent.run if parent is not None else self._runs.get(str(self.recorder.root_id(parent_id)))

    @guarded
    def _item(self, span: Span, arguments: Mapping[str, Any]) -> Generation | Retrieval | ToolCall | None:
        match span.kind:
            case Kind.CALL:
                return self.calls.begin(span, arguments)
            case Kind.RETRIEVER:
                return items.retrieval(span, arguments)
            case Kind.TOOL | Kind.TOOL_STEP:
                return items.tool_call(span, arguments)
        return None

    @guarded
    def _note_begin(self, span: Span, arguments: Mapping[str, Any]) -> None:
        if span.id == span.run.id and span.kind not in (Kind.CHAT, Kind.WORKFLOW):
            self.recorder.add_variables(span.id, frozenset())  # these have no memory
        match span.kind:
            case Kind.PREDICTION:
                given = arguments.get("prompt_args")
                span.rendered = to_rendered(arguments.get("prompt"), given or {}, llm=span.instance)
            case Kind.SYNTHESIZER:
                items.note_stage(self.recorder, span, arguments, arguments.get("nodes"), stage="synthesizer")
            case Kind.OTHER:
                items.note_memory(self.recorder, span, arguments)

    @guarded
    def _found(self, span: Span, arguments: Mapping[str, Any], result: Any) -> dict[str, Any]:
        """What a span gave, for its item."""
        match span.kind:
            case Kind.RETRIEVER:
                return {"documents": items.retrieved(span, result)}
            case Kind.POSTPROCESSOR:
                items.note_stage(self.recorder, span, arguments, result, stage="postprocessor")
            case Kind.TOOL | Kind.TOOL_STEP:
                return items.tool_result(self.recorder, span, result)
            case Kind.OTHER:
                items.note_agent(span, result)
                if isinstance(result, StopEvent) and span.parent is not None and span.parent.id == span.run.id:
                    self._stamp(span.run, result.result)  # before who listens to the agent's events gets it
        return {}

    # --- root runs ----------------------------------------------------------------------------------------------------

    def _leave_root(self, run: Run, given: Any, found: dict[str, Any]) -> None:
        if isinstance(given, StreamingResponse | AsyncStreamingResponse) and given.response_gen is not None:
            run.is_read = True
            given.response_gen = recorded(given.response_gen, self._reading(run))
        elif isinstance(given, StreamingAgentChatResponse):
            run.is_read = True
            self._hold_chat(run, given)
        elif run.streams:
            run.is_held, run.output = True, answer_in(given)
        else:
            self._finish(run, answer_in(given), found)

    def _hold_chat(self, run: Run, given: StreamingAgentChatResponse) -> None:
        """Where a thread or task of the chat engine reads the stream for its memory, its span will tell the end."""
        if given.write_response_to_history_thread is None and given.awrite_response_to_history_task is None:
            if given.chat_stream is not None:
                given.chat_stream = recorded(given.chat_stream, self._reading(run))
            elif given.achat_stream is not None:
                given.achat_stream = recorded(given.achat_stream, self._reading(run))
            return
        run.response = weakref.ref(given, lambda _: self._read(run, "", GeneratorExit()))
        if given.is_done or given.exception is not None:  # it was quicker than this
            self._read(run, given.response or run.last_text or "", given.exception)

    def _note_history(self, span: Span, error: BaseException | None) -> None:
        run = span.run
        if span.kind is Kind.HISTORY and run.response is not None and run.response() is span.instance:
            self._read(run, getattr(span.instance, "response", "") or run.last_text or "", error)

    def _reading(self, run: Run) -> Reading:
        return Reading(run.id, lambda text, error: self._read(run, text, error), self.complaints)

    @guarded
    def _read(self, run: Run, text: str, error: BaseException | None) -> None:
        """The response of a run was read to its end, or as far as it will be."""
        if self._runs.get(run.id) is not run or not run.is_read:
            return
        run.is_read = False
        if error is None:
            self.calls.end_silent(run, text)
            self._finish(run, text)
            return
        for call in list(run.streams):
            self.calls.fail(call, error, text=text)
        self.recorder.fail(run.id, error)

    def _settle(self, run: Run) -> None:
        if run.is_held and not run.streams:
            run.is_held = False
            self._finish(run, run.output if run.output is not None else run.last_text)

    def _finish(self, run: Run, output: str | None, found: Mapping[str, Any] | None = None) -> None:
        self.recorder.finish(run.id, output=output, swallowed=self._swallowed(run), **(found or {}))

    def _swallowed(self, run: Run) -> str | None:
        """The error of a model call that nothing made good.

        A call is made good where the same was asked again with success, and accounted for where its tool said so.
        """
        failed = {name for name, tools in run.failed.items() if run.told.isdisjoint(tools)}
        trace = self.recorder.so_far(run.id) if failed else None
        generations = () if trace is None else trace.generations
        good = [_said(one) for one in generations if one.error is None and one.written]
        return next((one.error for one in generations if one.id in failed and _said(one) not in good), None)

    @guarded
    def _stamp(self, run: Run, given: Any) -> None:
        if self._is_stamping:
            leave(given, run.stamp)

    def _deliver(self, trace: Trace, complete: bool) -> None:
        run = self._runs.get(trace.run_id or "")
        if run is not None and complete:
            self._runs.pop(run.id, None)
            for span_id in list(run.spans):
                self._spans.pop(span_id, None)
            for call in list(run.streams):
                self.calls.forget(call)
        is_empty = not (trace.generations or trace.retrievals or trace.tool_calls)
        if not (is_empty and run is not None and run.kind in (Kind.WORKFLOW, Kind.PREDICTION)):
            self._hand_on(trace, complete, {} if run is None else run.stamp)


def _said(generation: Generation) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in generation.messages]
