"""A trace as plain JSON values and back, for files that stand beside tests and are read by people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from attr_core._plain import plain
from attr_core.errors import InputError
from attr_core.types import Document, Generation, Location, Message, Retrieval, Segment, SegmentKind, ToolCall, Trace

__all__ = ["trace_from_json", "trace_to_json"]


def trace_to_json(trace: Trace) -> dict[str, Any]:
    """The trace as JSON values; what JSON cannot say becomes its ``repr``."""
    data = asdict(trace)
    for name in ("started", "finished"):
        data[name] = None if data[name] is None else data[name].isoformat()
    found: dict[str, Any] = plain(data)
    return found


def trace_from_json(data: Mapping[str, Any]) -> Trace:
    """Read what :func:`trace_to_json` wrote.

    Raises
    ------
    InputError
        A field is missing or of another kind.
    """
    try:
        return Trace(
            **{
                **data,
                "generations": tuple(_generation(one) for one in data["generations"]),
                "retrievals": tuple(_retrieval(one) for one in data["retrievals"]),
                "tool_calls": tuple(_call(one) for one in data["tool_calls"]),
                "expected_chunks": tuple(data["expected_chunks"]),
                "tags": tuple(data["tags"]),
                "started": _moment(data["started"]),
                "finished": _moment(data["finished"]),
            }
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"a trace cannot be read from JSON: {error!r}; write it again") from error


def _generation(data: Mapping[str, Any]) -> Generation:
    return Generation(
        **{
            **data,
            "messages": tuple(
                Message(**{**one, "tool_calls": tuple(_call(call) for call in one["tool_calls"])})
                for one in data["messages"]
            ),
            "tools": tuple(data["tools"]),
            "tool_calls": tuple(_call(one) for one in data["tool_calls"]),
            "segments": tuple(_segment(one) for one in data["segments"]),
        }
    )


def _segment(data: Mapping[str, Any]) -> Segment:
    places = tuple(Location(**one) for one in data["locations"])
    kind, documents = SegmentKind(data["kind"]), tuple(data["documents"])
    return Segment(**{**data, "kind": kind, "locations": places, "documents": documents})


def _retrieval(data: Mapping[str, Any]) -> Retrieval:
    return Retrieval(**{**data, "documents": tuple(Document(**one) for one in data["documents"])})


def _call(data: Mapping[str, Any]) -> ToolCall:
    return ToolCall(**{**data, "documents": tuple(Document(**one) for one in data["documents"])})


def _moment(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)
