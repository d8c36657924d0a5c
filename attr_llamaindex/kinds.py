"""What a span of LlamaIndex's dispatcher is, told by the object it belongs to and the method's name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from llama_index.core.agent.workflow.workflow_events import ToolCall
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.callbacks import base as callbacks
from llama_index.core.chat_engine.types import BaseChatEngine, StreamingAgentChatResponse
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.response_synthesizers.base import BaseSynthesizer
from llama_index.core.schema import TransformComponent
from llama_index.core.tools.types import BaseTool
from llama_index.core.workflow import Workflow

__all__ = ["ROOTS", "Kind", "is_building", "kind_of", "name_of"]


class Kind(Enum):
    """What a span is to attrkit."""

    QUERY = auto()
    CHAT = auto()
    WORKFLOW = auto()
    RETRIEVER = auto()
    POSTPROCESSOR = auto()
    SYNTHESIZER = auto()
    PREDICTION = auto()
    """A template is filled, then the model is called below."""
    CALL = auto()
    """A method of a model itself."""
    TOOL_STEP = auto()
    """An agent's step that runs a tool, whose own span is below."""
    TOOL = auto()
    HISTORY = auto()
    """A chat engine reads a stream to its end, for its memory."""
    BUILDING = auto()
    OTHER = auto()


ROOTS = frozenset({Kind.QUERY, Kind.CHAT, Kind.WORKFLOW, Kind.RETRIEVER, Kind.SYNTHESIZER, Kind.PREDICTION, Kind.CALL})
"""What is a run of its own where nothing that is recorded stands around it."""

_PREDICTIONS = ("predict", "stream", "structured_predict", "stream_structured_predict", "predict_and_call")
_CALLS = ("complete", "chat", "stream_complete", "stream_chat")


def _both(*names: str) -> frozenset[str]:
    """With the asynchronous methods' names."""
    return frozenset(name for sync in names for name in (sync, f"a{sync}"))


_METHODS: tuple[tuple[type, frozenset[str], Kind], ...] = (
    (BaseQueryEngine, _both("query"), Kind.QUERY),
    (BaseChatEngine, _both("chat", "stream_chat"), Kind.CHAT),
    (Workflow, frozenset({"run"}), Kind.WORKFLOW),
    (BaseRetriever, _both("retrieve"), Kind.RETRIEVER),
    (BaseNodePostprocessor, frozenset({"_postprocess_nodes", "_apostprocess_nodes"}), Kind.POSTPROCESSOR),
    (BaseSynthesizer, _both("synthesize"), Kind.SYNTHESIZER),
    (BaseLLM, _both(*_CALLS), Kind.CALL),
    (BaseLLM, _both(*_PREDICTIONS), Kind.PREDICTION),
    (BaseTool, _both("call") | {"__call__"}, Kind.TOOL),
    (StreamingAgentChatResponse, _both("write_response_to_history"), Kind.HISTORY),
    (IngestionPipeline, frozenset({"run", "arun"}), Kind.BUILDING),
    (TransformComponent, frozenset({"__call__", "acall"}), Kind.BUILDING),
)

_BUILDING = frozenset(
    {"index_construction", "graph_construction", "insert", "insert_nodes", "update_ref_doc", "refresh_ref_docs"}
)
_TRACES: Any = getattr(callbacks, "global_stack_trace_ids", None)


def kind_of(span_id: str, instance: Any, arguments: Mapping[str, Any]) -> Kind:
    """Of a span, which an agent's steps enter without their object."""
    method = name_of(span_id).rpartition(".")[2]
    if instance is not None:
        cls: type = type(instance)
        return _kind(cls, method)
    is_tool_step = method == "call_tool" and any(isinstance(given, ToolCall) for given in arguments.values())
    return Kind.TOOL_STEP if is_tool_step else Kind.OTHER


@functools.lru_cache(maxsize=4096)
def _kind(cls: type, method: str) -> Kind:
    return next((kind for known, names, kind in _METHODS if method in names and issubclass(cls, known)), Kind.OTHER)


def name_of(span_id: str) -> str:
    """``RetrieverQueryEngine.query`` of that, a hyphen and a UUID."""
    return span_id.split("-", 1)[0]


def is_building() -> bool:
    """Whether an index is being built or changed here: then what a model is asked is no run of the application."""
    traces = () if _TRACES is None else _TRACES.get()
    return any(name.removeprefix("a") in _BUILDING or name in _BUILDING for name in traces)
