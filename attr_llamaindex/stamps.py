"""The key ``attrkit`` in what an application is given, and off what it sends to a model."""

from __future__ import annotations

from typing import Any

from llama_index.core.agent.workflow.workflow_events import AgentOutput
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.base.response.schema import (
    AsyncStreamingResponse,
    PydanticResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.chat_engine.types import AgentChatResponse, StreamingAgentChatResponse

from attr_core.types import ATTRKIT_KEY

__all__ = ["leave", "take_off"]

_WITH_METADATA = (
    Response,
    PydanticResponse,
    StreamingResponse,
    AsyncStreamingResponse,
    AgentChatResponse,
    StreamingAgentChatResponse,
)


def leave(result: Any, stamp: dict[str, Any]) -> None:
    """Leave ``stamp`` in what a run gave: in its ``metadata``, a model's or an agent's in ``additional_kwargs``.

    An agent's message is replaced by a copy that carries it: the agent's memory may hold the message itself. Nodes are
    never touched, since what their metadata says may come into a prompt.
    """
    if isinstance(result, _WITH_METADATA):
        held = vars(result).get("metadata")  # a streamed chat response has no such field
        result.metadata = {**(held or {}), ATTRKIT_KEY: stamp}  # type: ignore[union-attr]
    elif isinstance(result, ChatResponse | CompletionResponse):
        result.additional_kwargs = {**result.additional_kwargs, ATTRKIT_KEY: stamp}
    elif isinstance(result, AgentOutput) and ATTRKIT_KEY not in result.response.additional_kwargs:
        extra = {**result.response.additional_kwargs, ATTRKIT_KEY: stamp}
        result.response = result.response.model_copy(update={"additional_kwargs": extra})


def take_off(messages: Any) -> None:
    """Take the key off messages that are about to be sent to a model: its provider may refuse what it does not know."""
    for message in messages if isinstance(messages, list | tuple) else ():
        if isinstance(message, ChatMessage) and ATTRKIT_KEY in message.additional_kwargs:
            kept = {key: value for key, value in message.additional_kwargs.items() if key != ATTRKIT_KEY}
            message.additional_kwargs = kept
