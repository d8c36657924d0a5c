"""The event handler, for what spans do not tell: how streams go on. And the events that say that a result is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatInProgressEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionInProgressEvent,
    LLMCompletionStartEvent,
)

from attr_core.capture import Complaints
from attr_llamaindex.listening import heard
from attr_llamaindex.runs import Runs

__all__ = ["AttributionEventHandler", "AttributionReady", "DiagnosisReady"]


class AttributionReady(BaseEvent):
    """A run was attributed; dispatched by the thread that measured.

    ``run_id`` is the id of the run's outermost span, ``attribution`` what
    :func:`attr_core.reports.compact.compact` makes of the result: plain JSON.
    """

    trace_id: str
    run_id: str | None = None
    attribution: dict[str, Any]

    @classmethod
    def class_name(cls) -> str:
        """Its name."""
        return "AttributionReady"


class DiagnosisReady(BaseEvent):
    """A run was diagnosed; dispatched after its :class:`AttributionReady`, by the same thread.

    ``diagnosis`` is what :func:`attr_core.reports.compact.compact_diagnosis` makes of it: plain JSON.
    """

    trace_id: str
    run_id: str | None = None
    diagnosis: dict[str, Any]

    @classmethod
    def class_name(cls) -> str:
        """Its name."""
        return "DiagnosisReady"


class AttributionEventHandler(BaseEventHandler):
    """Passes the events of models' streams on to :class:`~attr_llamaindex.runs.Runs`."""

    _runs: Runs = PrivateAttr()

    def __init__(self, runs: Runs) -> None:
        super().__init__()
        self._runs = runs

    @classmethod
    def class_name(cls) -> str:
        """Its name."""
        return "AttributionEventHandler"

    @property
    def complaints(self) -> Complaints:
        """What has been warned of."""
        return self._runs.complaints

    @heard
    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Something has happened."""
        step = _STEPS.get(type(event))
        if step is None and event.class_name() == "SpanCancelledEvent":  # of workflows, in later versions
            step = _cancel
        if step is not None and event.span_id is not None:
            step(self._runs, event.span_id, event)


Step = Callable[[Runs, str, Any], object]


def _start(runs: Runs, span_id: str, event: Any) -> None:
    runs.calls.hear(span_id)


def _progress(runs: Runs, span_id: str, event: Any) -> None:
    runs.calls.add_piece(span_id, event.response)


def _end(runs: Runs, span_id: str, event: Any) -> None:
    runs.calls.end_stream(span_id, event.response)


def _fail(runs: Runs, span_id: str, event: Any) -> None:
    runs.calls.fail_stream(span_id, event.exception)


def _cancel(runs: Runs, span_id: str, event: Any) -> None:
    runs.cancel(span_id)


_STEPS: Mapping[type, Step] = {
    LLMChatStartEvent: _start,
    LLMCompletionStartEvent: _start,
    LLMChatInProgressEvent: _progress,
    LLMCompletionInProgressEvent: _progress,
    LLMChatEndEvent: _end,
    LLMCompletionEndEvent: _end,
    ExceptionEvent: _fail,
}
