"""A trace <-> rows of plain columns: pure functions, exact in both directions.

In free-form columns, mapping keys become strings, tuples become lists, numbers of other libraries become Python's, and
whatever JSON cannot say becomes its ``repr``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from attr_core._plain import plain
from attr_core._storage.database import escape, unescape
from attr_core._storage.schema import digest
from attr_core.errors import StoreError
from attr_core.types import (
    Document,
    Generation,
    Location,
    Message,
    Retrieval,
    Segment,
    SegmentKind,
    ToolCall,
    Trace,
)

Rows = dict[str, list[dict[str, Any]]]
_Owner = tuple[int | None, ...]


def to_rows(trace: Trace, *, saved_at: float) -> Rows:
    """Table -> its rows, without ``trace_id``; a row of ``traces`` has its own id, one of ``texts`` is no trace's."""
    rows: Rows = {"traces": [_trace_row(trace, saved_at)]}
    rows["tags"] = [{"position": i, "tag": tag} for i, tag in enumerate(trace.tags)]
    rows["generations"] = [_generation_row(i, generation) for i, generation in enumerate(trace.generations)]
    rows["retrievals"] = [
        {"position": i, "id": r.id, "name": r.name, "query": r.query, "metadata": to_json(r.metadata)}
        for i, r in enumerate(trace.retrievals)
    ]
    rows["turns"], rows["documents"], rows["tool_calls"] = [], [], []
    texts: dict[bytes, str] = {}
    for i, retrieval in enumerate(trace.retrievals):
        _add_documents(rows, retrieval.documents, retrieval=i)
    _add_tool_calls(rows, trace.tool_calls)
    for i, generation in enumerate(trace.generations):
        _add_tool_calls(rows, generation.tool_calls, generation=i)
        for j, message in enumerate(generation.messages):
            key = text_key(message)
            texts[key] = message.content
            rows["turns"].append(_turn_row(i, j, message, key))
            _add_tool_calls(rows, message.tool_calls, generation=i, message=j)
    rows["texts"] = [{"digest": key, "text": text} for key, text in texts.items()]
    return rows


def from_rows(rows: Rows) -> Trace:
    """The trace that :func:`to_rows` took apart, from its rows with those of ``texts`` and ``turns`` as ``messages``.

    Raises
    ------
    StoreError
        A row is damaged; the message names its table and id.
    """
    (row,) = (_Row("traces", values, values["id"]) for values in rows["traces"])
    trace_id = row.name("id")
    parts = {
        table: [_Row(table, values, trace_id) for values in found] for table, found in rows.items() if table != "traces"
    }
    found = _grouped(parts["documents"], "retrieval")
    brought = _grouped(parts["documents"], "tool_call")
    calls = {
        owner: tuple(_tool_call(call, brought) for call in owned)
        for owner, owned in _grouped(parts["tool_calls"], "generation", "message").items()
    }
    messages = _grouped(parts["messages"], "generation")
    return Trace(
        query=row.text("query"),
        generations=tuple(_generation(g, messages, calls) for g in parts["generations"]),
        answer=row.text("answer"),
        id=trace_id,
        retrievals=tuple(_retrieval(retrieval, found) for retrieval in parts["retrievals"]),
        tool_calls=calls.get((None, None), ()),
        reference=row.text("reference"),
        expected_chunks=tuple(row.json("expected_chunks", list)),
        tags=tuple(tag.name("tag") for tag in parts["tags"]),
        framework=row.text("framework"),
        run_id=row.text("run_id"),
        session_id=row.text("session_id"),
        status=row.name("status"),  # type: ignore[arg-type]
        error=row.text("error"),
        started=row.moment("started"),
        finished=row.moment("finished"),
        metadata=row.json("metadata", dict),
    )


def to_json(value: Any) -> str:
    """The JSON kept for a free-form value; never fails."""
    return json.dumps(plain(value), ensure_ascii=False)


def segments_json(generation: Generation) -> str:
    """What is kept of how a generation's prompt was cut."""
    return to_json([_segment_json(segment) for segment in generation.segments])


def text_key(message: Message) -> bytes:
    """Key in ``texts`` of what a message says."""
    return digest(escape(message.content).encode())


def seconds(moment: datetime) -> float:
    """Since 1970; a moment without a time zone is taken as UTC."""
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _trace_row(trace: Trace, saved_at: float) -> dict[str, Any]:
    return {
        "id": trace.id,
        "query": trace.query,
        "answer": trace.answer,
        "reference": trace.reference,
        "framework": trace.framework,
        "run_id": trace.run_id,
        "session_id": trace.session_id,
        "status": trace.status,
        "error": trace.error,
        "started": None if trace.started is None else trace.started.isoformat(),
        "finished": None if trace.finished is None else trace.finished.isoformat(),
        "expected_chunks": to_json(trace.expected_chunks),
        "metadata": to_json(trace.metadata),
        "started_at": saved_at if trace.started is None else seconds(trace.started),
    }


def _generation_row(position: int, generation: Generation) -> dict[str, Any]:
    return {
        "position": position,
        "id": generation.id,
        "parent": generation.parent,
        "model": generation.model,
        "response": generation.response,
        "reasoning": generation.reasoning,
        "finish_reason": generation.finish_reason,
        "error": generation.error,
        "tools": to_json(generation.tools),
        "segments": segments_json(generation),
        "parameters": to_json(generation.parameters),
        "usage": to_json(generation.usage),
        "rendered": to_json(generation.rendered),
    }


def _segment_json(segment: Segment) -> dict[str, Any]:
    return {
        "id": segment.id,
        "kind": segment.kind.value,
        "text": segment.text,
        "locations": [asdict(location) for location in segment.locations],
        "group_id": segment.group_id,
        "source": segment.source,
        "origin": segment.origin,
        "fixed": segment.fixed,
        "documents": segment.documents,
        "located": segment.located,
        "coverage": segment.coverage,
    }


def _turn_row(generation: int, position: int, message: Message, key: bytes) -> dict[str, Any]:
    return {
        "generation": generation,
        "position": position,
        "role": message.role,
        "digest": key,
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "metadata": to_json(message.metadata),
    }


def _add_documents(
    rows: Rows, documents: Iterable[Document], *, retrieval: int | None = None, tool_call: int | None = None
) -> None:
    rows["documents"].extend(
        {
            "position": position,
            "retrieval": retrieval,
            "tool_call": tool_call,
            "id": document.id,
            "text": document.text,
            "score": "nan" if document.score is not None and math.isnan(document.score) else document.score,
            "metadata": to_json(document.metadata),
        }
        for position, document in enumerate(documents, start=len(rows["documents"]))
    )


def _add_tool_calls(
    rows: Rows, calls: Iterable[ToolCall], *, generation: int | None = None, message: int | None = None
) -> None:
    for position, call in enumerate(calls, start=len(rows["tool_calls"])):
        rows["tool_calls"].append(
            {
                "position": position,
                "generation": generation,
                "message": message,
                "id": call.id,
                "name": call.name,
                "arguments": to_json(call.arguments),
                "output": call.output,
                "error": call.error,
                "generation_id": call.generation_id,
                "metadata": to_json(call.metadata),
            }
        )
        _add_documents(rows, call.documents, tool_call=position)


class _Row:
    """Reads columns of one row and says which row it was where that fails."""

    def __init__(self, table: str, values: Mapping[str, Any], trace_id: Any) -> None:
        self.values = values
        self._where = f"table {table}, trace {trace_id}"
        if table != "traces" and "id" in values:
            self._where += f", row {values['id']}"

    def text(self, column: str) -> str | None:
        value = self.values[column]
        if value is None:
            return None
        if not isinstance(value, str):
            raise self._damaged(column, f"is {type(value).__name__}, not text")
        try:
            return unescape(value)
        except ValueError as error:
            raise self._damaged(column, str(error)) from error

    def name(self, column: str) -> str:
        value = self.text(column)
        if value is None:
            raise self._damaged(column, "is missing")
        return value

    def json(self, column: str, kind: type = object) -> Any:
        try:
            value = json.loads(self.name(column))
        except ValueError as error:
            raise self._damaged(column, "is not JSON") from error
        if not isinstance(value, kind):
            raise self._damaged(column, f"is not a {kind.__name__}")
        return value

    def moment(self, column: str) -> datetime | None:
        value = self.text(column)
        try:
            return None if value is None else datetime.fromisoformat(value)
        except ValueError as error:
            raise self._damaged(column, "is not a time") from error

    def number(self, column: str) -> float | None:
        value = self.values[column]
        try:
            return None if value is None else float(value)
        except (TypeError, ValueError) as error:
            raise self._damaged(column, "is not a number") from error

    def segments(self, column: str) -> tuple[Segment, ...]:
        try:
            return tuple(_segment(data) for data in self.json(column, list))
        except (TypeError, KeyError, ValueError) as error:
            raise self._damaged(column, "does not hold segments") from error

    def _damaged(self, column: str, problem: str) -> StoreError:
        return StoreError(f"{self._where} is damaged: {column} {problem}; delete that trace (`attrkit traces delete`)")


def _grouped(rows: Iterable[_Row], *owner: str) -> dict[_Owner, list[_Row]]:
    groups: dict[_Owner, list[_Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.values[column] for column in owner), []).append(row)
    return groups


def _generation(
    row: _Row, messages: Mapping[_Owner, list[_Row]], calls: Mapping[_Owner, tuple[ToolCall, ...]]
) -> Generation:
    position = row.values["position"]
    return Generation(
        messages=tuple(_message(m, calls) for m in messages.get((position,), ())),
        response=row.text("response"),
        id=row.name("id"),
        parent=row.text("parent"),
        tools=tuple(row.json("tools", list)),
        segments=row.segments("segments"),
        reasoning=row.text("reasoning"),
        tool_calls=calls.get((position, None), ()),
        finish_reason=row.text("finish_reason"),
        model=row.text("model"),
        parameters=row.json("parameters", dict),
        usage=row.json("usage", dict),
        rendered=row.json("rendered", dict),
        error=row.text("error"),
    )


def _message(row: _Row, calls: Mapping[_Owner, tuple[ToolCall, ...]]) -> Message:
    return Message(
        role=row.name("role"),
        content=row.name("content"),
        name=row.text("name"),
        tool_calls=calls.get((row.values["generation"], row.values["position"]), ()),
        tool_call_id=row.text("tool_call_id"),
        metadata=row.json("metadata", dict),
    )


def _retrieval(row: _Row, documents: Mapping[_Owner, list[_Row]]) -> Retrieval:
    return Retrieval(
        query=row.text("query"),
        documents=tuple(_document(d) for d in documents.get((row.values["position"],), ())),
        id=row.name("id"),
        name=row.text("name"),
        metadata=row.json("metadata", dict),
    )


def _document(row: _Row) -> Document:
    return Document(
        id=row.name("id"), text=row.name("text"), score=row.number("score"), metadata=row.json("metadata", dict)
    )


def _tool_call(row: _Row, documents: Mapping[_Owner, list[_Row]]) -> ToolCall:
    return ToolCall(
        id=row.name("id"),
        name=row.name("name"),
        arguments=row.json("arguments"),
        output=row.text("output"),
        error=row.text("error"),
        generation_id=row.text("generation_id"),
        documents=tuple(_document(d) for d in documents.get((row.values["position"],), ())),
        metadata=row.json("metadata", dict),
    )


def _segment(data: Mapping[str, Any]) -> Segment:
    locations = tuple(Location(**location) for location in data["locations"])
    told = {"kind": SegmentKind(data["kind"]), "locations": locations, "documents": tuple(data.get("documents", ()))}
    return Segment(**{**data, **told})
