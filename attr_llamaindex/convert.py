"""LlamaIndex's objects <-> the core's types: pure functions.

What comes out shares nothing with what went in that either side could change; what goes in is never changed. Odd input
gives odd text, not an exception: these functions are called in the middle of an application's run.
"""

from __future__ import annotations

import contextlib
import json
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.tools.types import BaseTool, ToolOutput

from attr_core._plain import plain
from attr_core._recording.responses import read, usage_of
from attr_core._redact import without_secrets
from attr_core.types import ATTRKIT_KEY, Document, Generation, Message, ToolCall

__all__ = [
    "from_messages",
    "text_of",
    "to_answer",
    "to_document",
    "to_documents",
    "to_generation",
    "to_message",
    "to_rendered",
    "to_tool_result",
]

_ROLES = {"chatbot": "assistant", "model": "assistant"}
_MARKS = ("rag_chunk_id", "group_id", "memory")
"""What the segmenter understands of a message's metadata."""

_POSITIONS = ("ref_doc_id", "start_char_idx", "end_char_idx")
_PARAMETERS = ("temperature", "max_tokens", "max_new_tokens", "num_predict", "top_p", "seed", "stop")
_NOT_PARAMETERS = frozenset({"tools", "functions", "formatted", "messages", "prompt", "chat_history", "user_msg"})
_FINISH = (("finish_reason",), ("stop_reason",), ("done_reason",))
_COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")


def to_message(message: Any) -> Message:
    """A message as the core holds it; anything else is the user's text."""
    if not isinstance(message, ChatMessage):
        return Message("user", str(message))
    extra = message.additional_kwargs or {}
    role = str(getattr(message.role, "value", message.role))
    call_id = extra.get("tool_call_id") if role in ("tool", "function") else None
    return Message(
        role=_ROLES.get(role, role),
        content=text_of(message),
        name=str(extra["name"]) if extra.get("name") else None,
        tool_calls=_tool_calls(message),
        tool_call_id=None if call_id is None else str(call_id),
        metadata={key: plain(extra[key]) for key in _MARKS if extra.get(key) is not None},
    )


def to_document(node: NodeWithScore | BaseNode, position: int = 0) -> Document:
    """A node with the text that a model is shown of it: as :class:`MetadataMode.LLM` says, metadata header included.

    ``metadata`` is the node's own with ``ref_doc_id``, ``start_char_idx`` and ``end_char_idx``, which say where in the
    source document it stands.
    """
    inner = node.node if isinstance(node, NodeWithScore) else node
    score = node.score if isinstance(node, NodeWithScore) else None
    places = {key: value for key in _POSITIONS if (value := getattr(inner, key, None)) is not None}
    metadata = plain({**places, **(inner.metadata or {})})
    metadata.pop(ATTRKIT_KEY, None)
    return Document(
        id=str(inner.node_id or f"doc{position + 1}"),
        text=inner.get_content(metadata_mode=MetadataMode.LLM),
        score=float(score) if isinstance(score, numbers.Real) else None,
        metadata=metadata,
    )


def to_documents(nodes: Any) -> tuple[Document, ...]:
    """The nodes of a list; none of anything else."""
    if not isinstance(nodes, list | tuple):
        return ()
    found = (node for node in nodes if isinstance(node, NodeWithScore | BaseNode))
    return tuple(to_document(node, position) for position, node in enumerate(found))


def to_generation(
    asked: str | Sequence[Any],
    *,
    llm: Any = None,
    options: Mapping[str, Any] | None = None,
    rendered: Mapping[str, Any] | None = None,
) -> Generation:
    """A call of a model as it begins: its messages, or its prompt as one user message; without secrets.

    Parameters
    ----------
    asked : str or sequence of ChatMessage
    llm : LLM, optional
        Tells the model's name and its settings.
    options : mapping, optional
        Further arguments of the call: tools, and what overrides settings.
    rendered : mapping, optional
        As :func:`to_rendered` gives it.
    """
    options = options or {}
    tools = options.get("tools") or options.get("functions")
    return Generation(
        messages=(Message("user", asked),) if isinstance(asked, str) else tuple(to_message(one) for one in asked),
        response=None,
        tools=tuple(_tool(tool) for tool in (tools if isinstance(tools, list | tuple) else ())),
        model=_model_name(llm),
        parameters={**_settings(llm), **_options(options)},
        rendered=dict(rendered or {}),
    )


def to_answer(response: Any, written: str | None = None) -> dict[str, Any]:
    """The fields of a :class:`~attr_core.Generation` that are known once the model has answered.

    Parameters
    ----------
    response : ChatResponse, CompletionResponse or any
        Of a stream the last one.
    written : str, optional
        What came piece by piece, where it was a stream: it is what the user was given.
    """
    message = response.message if isinstance(response, ChatResponse) else None
    calls = () if message is None else _tool_calls(message)
    text = written
    if not text:
        text = text_of(message) if message is not None else getattr(response, "text", None)
    raw = getattr(response, "raw", None)
    answer = {
        "response": (str(text) if text else None) if calls or text is None else str(text),
        "reasoning": None if message is None else _reasoning(message),
        "tool_calls": calls,
        "finish_reason": _finish_reason(raw),
        "usage": usage_of(raw) or _counts(getattr(response, "additional_kwargs", None)),
    }
    model = read(raw, "model")
    return {**answer, "model": model} if isinstance(model, str) and model else answer


def to_rendered(template: Any, arguments: Mapping[str, Any], *, llm: Any = None) -> dict[str, Any]:
    """What a prompt template was given, and itself.

    Returns
    -------
    dict
        ``context`` are the texts that stand where the template wants context, in which the documents are then looked
        for first; ``context_arguments`` are their names, ``arguments`` the others, ``template`` its text.
    """
    if not isinstance(template, BasePromptTemplate):
        return {}
    given = {name: value for name, value in {**template.kwargs, **arguments}.items() if _is_value(value)}
    texts = {name: _texts(value) for name, value in given.items() if name.startswith("context") and _texts(value)}
    rendered: dict[str, Any] = {
        "arguments": plain({name: value for name, value in given.items() if name not in texts}),
        "context": [text for found in texts.values() for text in found],
        "context_arguments": list(texts),
    }
    with contextlib.suppress(Exception):  # a user's template may do as it likes
        rendered["template"] = str(template.get_template(llm=llm))
    return rendered


def _is_value(value: Any) -> bool:
    """A template may be given another one, which is no argument of its text."""
    return not isinstance(value, BasePromptTemplate)


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [one for one in values if isinstance(one, str)]


def to_tool_result(output: Any) -> tuple[str | None, str | None, tuple[Document, ...]]:
    """What a tool gave, as (text, error, documents)."""
    if not isinstance(output, ToolOutput):
        return (None if output is None else str(output)), None, ()
    raw = output.raw_output
    documents = to_documents(raw) or to_documents(getattr(raw, "source_nodes", None))
    return (None, output.content, documents) if output.is_error else (output.content, None, documents)


def from_messages(messages: Iterable[Message]) -> list[ChatMessage]:
    """Messages as LlamaIndex's models take them, without metadata."""
    return [_from_message(message) for message in messages]


# --- messages ---------------------------------------------------------------------------------------------------------


def text_of(message: ChatMessage) -> str:
    """Its texts as LlamaIndex joins them, a block without text as a note of its type."""
    return "\n".join(text for block in message.blocks if (text := _block_text(block)) is not None)


def _block_text(block: Any) -> str | None:
    if isinstance(block, TextBlock):
        return block.text
    kind = getattr(block, "block_type", "part")
    if isinstance(block, ToolCallBlock) or kind in ("thinking", "cache"):
        return None
    inner = getattr(block, "content", None)
    if isinstance(inner, list | tuple):
        return "\n".join(text for one in inner if (text := _block_text(one)) is not None)
    return f"[{kind}]"


def _reasoning(message: ChatMessage) -> str | None:
    thoughts = (block for block in message.blocks if getattr(block, "block_type", None) == "thinking")
    return "\n\n".join(text for block in thoughts if isinstance(text := read(block, "content"), str) and text) or None


def _tool_calls(message: ChatMessage) -> tuple[ToolCall, ...]:
    found = [
        ToolCall(id=str(block.tool_call_id or ""), name=str(block.tool_name), arguments=_parsed(block.tool_kwargs))
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]
    legacy = (message.additional_kwargs or {}).get("tool_calls")  # as integrations passed them before there were blocks
    if found or not isinstance(legacy, list | tuple):
        return tuple(found)
    return tuple(_legacy_call(call) for call in legacy)


def _legacy_call(call: Any) -> ToolCall:
    function = call if read(call, "function") is None else read(call, "function")
    names = (("tool_name", "tool_kwargs"), ("name", "arguments"), ("name", "input"))
    name, arguments = next(
        ((read(function, a), read(function, b)) for a, b in names if read(function, a) is not None), ("", None)
    )
    identifier = next((found for key in ("tool_id", "tool_call_id", "id") if (found := read(call, key))), "")
    return ToolCall(id=str(identifier), name=str(name), arguments=_parsed(arguments))


def _parsed(arguments: Any) -> Any:
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError):  # a model may write anything; then its own words are kept
            return json.loads(arguments)
    return plain(arguments)


def _from_message(message: Message) -> ChatMessage:
    extra: dict[str, Any] = {}
    if message.tool_call_id is not None:
        extra["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        extra["name"] = message.name
    # An empty message is a message too, which an ablation leaves where a text was.
    blocks: list[Any] = [TextBlock(text=message.content)] if message.content or not message.tool_calls else []
    blocks += [
        ToolCallBlock(
            tool_call_id=call.id or None,
            tool_name=call.name,
            tool_kwargs=dict(call.arguments) if isinstance(call.arguments, Mapping) else str(call.arguments or "{}"),
        )
        for call in message.tool_calls
    ]
    role = message.role if message.role in {known.value for known in MessageRole} else "user"
    return ChatMessage(role=role, blocks=blocks, additional_kwargs=extra)


# --- what a model is asked and answers --------------------------------------------------------------------------------


def _tool(tool: Any) -> dict[str, Any]:
    """A tool's schema in the shape that chat APIs and templates take."""
    if isinstance(tool, BaseTool):
        with contextlib.suppress(Exception):
            return dict(plain(tool.metadata.to_openai_tool(skip_length_check=True)))
        return {"type": "function", "function": {"name": str(tool.metadata.name)}}
    if isinstance(tool, Mapping):
        # A function's parameters may well be named "token"; only a provider's own tools carry headers.
        return dict(plain(tool if "function" in tool or "input_schema" in tool else without_secrets(tool)))
    return {"type": "function", "function": {"name": str(getattr(tool, "name", None) or type(tool).__name__)}}


def _model_name(llm: Any) -> str | None:
    if llm is None:
        return None
    with contextlib.suppress(Exception):  # an integration may ask its server
        name = llm.metadata.model_name
        if isinstance(name, str) and name and name != "unknown":
            return name
    return type(llm).__name__


def _settings(llm: Any) -> dict[str, Any]:
    names = getattr(type(llm), "model_fields", {})
    found = {name: getattr(llm, name, None) for name in _PARAMETERS if name in names}
    return dict(plain({name: value for name, value in found.items() if value is not None}))


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in options.items() if key not in _NOT_PARAMETERS and value is not None}
    return dict(plain(without_secrets(given)))


def _finish_reason(raw: Any) -> str | None:
    choices = read(raw, "choices")
    holders = [choices[0], raw] if isinstance(choices, list | tuple) and choices else [raw]
    told = (read(holder, *path) for holder in holders for path in _FINISH)
    return next((reason for reason in told if isinstance(reason, str)), None)


def _counts(extra: Any) -> dict[str, int]:
    """Where LlamaIndex's integrations put token counts."""
    return {name: count for name in _COUNTS if isinstance(count := read(extra, name), int)}
