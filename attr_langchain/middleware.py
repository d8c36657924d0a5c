"""For ``create_agent``: puts what the handler recorded and measured into the agent's state and its custom stream."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import OmitFromInput
from langgraph.config import get_config, get_stream_writer
from langgraph.runtime import Runtime

from attr_core.capture import Complaints, guarded
from attr_core.types import ATTRKIT_KEY
from attr_langchain.handler import AttributionCallbackHandler

__all__ = ["AttributionMiddleware", "AttributionState"]


class AttributionState(AgentState[Any]):
    """An agent's state with what attrkit found; the key is not part of the agent's input."""

    attrkit: NotRequired[Annotated[dict[str, Any], OmitFromInput]]


class AttributionMiddleware(AgentMiddleware[AttributionState, Any]):
    """Leaves ``{"trace_id": ...}``, in ``inline`` mode with the compact results, in the state and the custom stream.

    ``create_agent(model, tools, middleware=[AttributionMiddleware(handler)]).with_config(callbacks=[handler])``: the
    handler records, this tells. In ``inline`` mode the run is attributed when the agent is done, before it returns.

    Parameters
    ----------
    handler : AttributionCallbackHandler
        The one among the callbacks of the agent's runs; where it is not, nothing is left, and a warning says so.
    """

    state_schema = AttributionState

    def __init__(self, handler: AttributionCallbackHandler) -> None:
        super().__init__()
        self._handler = handler

    @property
    def complaints(self) -> Complaints:
        """The handler's."""
        return self._handler.complaints

    @guarded
    def after_agent(self, state: AttributionState, runtime: Runtime[Any]) -> dict[str, Any] | None:
        """The agent is done."""
        run_id = getattr(get_config().get("callbacks"), "parent_run_id", None)
        trace = self._handler.recorder.so_far(run_id)
        if trace is None:
            text = "the middleware's handler is not among the callbacks of this run, so nothing is left in its state"
            self.complaints.say("unheard", text)
            return None
        found: dict[str, Any] = {"trace_id": trace.id}
        if self._handler.collector.mode == "inline":
            self._handler.collector.deliver(trace, into=found)
        get_stream_writer()({ATTRKIT_KEY: found})
        return {ATTRKIT_KEY: found}
