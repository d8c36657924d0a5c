"""A planted sample as plain JSON values, and back.

One object per sample, of schema ``attrkit.planted/1``:

=============== ======================================================================================
``schema``      ``attrkit.planted/1``
``id``          label, seed and number
``label``       what was planted
``variant``     in which form
``question``    what was asked; ``trace`` the id of the run
``messages``    chat messages as sent: ``role``, ``content``, ``tool_calls``, ``tool_call_id``, ``metadata``
``tools``       schemas that stood beside them
``documents``   what was retrieved: ``id``, ``text``, ``metadata``; some may not stand in the messages
``calls``       tool calls that ran: ``id``, ``name``, ``arguments``, ``output``, ``error``
``response``    what the model answered; ``null`` where it called tools instead
``called``      the tool calls it answered with
``expected``    the right answer; ``null`` where it is not to be known
``asked``       pairs of entity and attribute; ``truth`` the right value of each
``right``       ids of documents that answer rightly; ``wrong``, ``irrelevant`` likewise
``culprits``    lists of document or segment ids; each is one cause
``repairs``     ``{"remove": ids}``, ``{"order": ids}`` or ``{"add": {"id", "text"}}``
``model``       parameters of the :class:`~attr_core.evaluation.planted.models.WorldModel` that answers so
``notes``       in words
=============== ======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from attr_core.errors import DatasetError
from attr_core.evaluation.planted.models import WorldModel
from attr_core.evaluation.planted.samples import PlantedSample
from attr_core.types import Document, Message, Retrieval, ToolCall, Trace

__all__ = ["SCHEMA", "from_dict", "to_dict"]

SCHEMA: Final = "attrkit.planted/1"
_LISTS: Final = ("truth", "right", "wrong", "irrelevant", "notes")
_TEXTS: Final = ("id", "label", "variant", "expected")


def to_dict(sample: PlantedSample) -> dict[str, Any]:
    """The sample as JSON values."""
    trace = sample.trace
    generation = trace.generations[0]
    return {
        "schema": SCHEMA,
        **{name: getattr(sample, name) for name in _TEXTS},
        "question": trace.query,
        "trace": trace.id,
        "messages": [_message(one) for one in generation.messages],
        "tools": [dict(tool) for tool in generation.tools],
        "documents": [{"id": one.id, "text": one.text, "metadata": dict(one.metadata)} for one in trace.documents],
        "calls": [_call(one) for one in trace.tool_calls],
        "response": generation.response,
        "called": [_call(one) for one in generation.tool_calls],
        "asked": [list(one) for one in sample.asked],
        **{name: list(getattr(sample, name)) for name in _LISTS},
        "culprits": [sorted(one) for one in sample.culprits],
        "repairs": [dict(one) for one in sample.repairs],
        "model": sample.model.to_dict(),
    }


def from_dict(data: Mapping[str, Any]) -> PlantedSample:
    """Read what :func:`to_dict` wrote.

    Raises
    ------
    DatasetError
        Another schema, or a field is missing or of another kind.
    """
    if data.get("schema") != SCHEMA:
        raise DatasetError(f"schema {data.get('schema')!r} cannot be read; this version reads {SCHEMA}")
    try:
        return PlantedSample(
            **_plain(data),
            trace=_trace(data),
            asked=tuple((entity, attribute) for entity, attribute in data["asked"]),
            culprits=tuple(frozenset(one) for one in data["culprits"]),
            repairs=tuple(data["repairs"]),
            model=WorldModel.from_dict(data["model"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"sample {data.get('id')!r} cannot be read: {error!r}; write the set again") from error


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in _TEXTS} | {name: tuple(data[name]) for name in _LISTS}


def _trace(data: Mapping[str, Any]) -> Trace:
    name = str(data["trace"]).removeprefix("tr_")
    messages = [
        Message(**{**one, "tool_calls": tuple(ToolCall(**call) for call in one["tool_calls"])})
        for one in data["messages"]
    ]
    trace = Trace.from_messages(
        messages,
        data["response"],
        query=data["question"],
        model=WorldModel().spec,
        tools=data["tools"],
        reference=data["expected"],
        framework="planted",
    )
    generation = replace(
        trace.generations[0], id=f"gen_{name}", tool_calls=tuple(ToolCall(**call) for call in data["called"])
    )
    documents = tuple(Document(**one) for one in data["documents"])
    return replace(
        trace,
        id=str(data["trace"]),
        generations=(generation,),
        retrievals=(Retrieval(data["question"], documents, id=f"ret_{name}"),) if documents else (),
        tool_calls=tuple(ToolCall(**call) for call in data["calls"]),
        started=None,
        finished=None,
    )


def _message(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": message.content,
        "tool_calls": [_call(one) for one in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "metadata": dict(message.metadata),
    }


def _call(call: ToolCall) -> dict[str, Any]:
    return {name: getattr(call, name) for name in ("id", "name", "arguments", "output", "error")}
