"""The tables of attrkit's database: ordered migrations, each applied once.

Made with ``create_table`` rather than ``Table.create``, which commits in older versions of sqlite-utils.

Rows of a run share its ``trace_id``. ``generation``, ``retrieval``, ``tool_call`` and ``message`` are positions of the
owning row in that run. Columns with nested or free-form data hold JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

APPLICATION_ID = 0x61747472
"""``attr``, in the header of the file: tells it from another program's database."""

RUN_TABLES = ("tags", "generations", "messages", "retrievals", "documents", "tool_calls")
"""What is written again when a trace is saved again; ``attributions`` are kept."""


def _create_traces(db: Any) -> None:
    db.create_table(
        "traces",
        {
            "id": str,
            "query": str,
            "answer": str,
            "reference": str,
            "framework": str,
            "run_id": str,
            "session_id": str,
            "status": str,
            "error": str,
            "started": str,
            "finished": str,
            "expected_chunks": str,
            "metadata": str,
            "started_at": float,  # seconds since 1970, when it was first saved where no start is known
        },
        pk="id",
        not_null={"id", "status", "started_at"},
    )
    db["traces"].create_index(["started_at"])
    _create_part(db, "tags", {"position": int, "tag": str}, ("position",))
    _create_part(
        db,
        "generations",
        {
            "position": int,
            "id": str,
            "parent": str,
            "model": str,
            "response": str,
            "reasoning": str,
            "finish_reason": str,
            "error": str,
            "tools": str,
            "segments": str,
            "parameters": str,
            "usage": str,
            "rendered": str,
        },
        ("position",),
    )
    _create_part(
        db,
        "messages",
        {
            "generation": int,
            "position": int,
            "role": str,
            "content": str,
            "name": str,
            "tool_call_id": str,
            "metadata": str,
        },
        ("generation", "position"),
    )
    _create_part(
        db,
        "retrievals",
        {"position": int, "id": str, "name": str, "query": str, "metadata": str},
        ("position",),
    )
    _create_part(
        db,
        "documents",
        {
            "position": int,
            "retrieval": int,  # or it came from a tool
            "tool_call": int,
            "id": str,
            "text": str,
            "score": float,
            "metadata": str,
        },
        ("position",),
    )
    _create_part(
        db,
        "tool_calls",
        {
            "position": int,
            "generation": int,  # the generation that asked for it; null for one that the run executed
            "message": int,  # null unless it stands in a message of that generation's history
            "id": str,
            "name": str,
            "arguments": str,
            "output": str,
            "error": str,
            "generation_id": str,
            "metadata": str,
        },
        ("position",),
    )
    _create_part(
        db,
        "attributions",
        {"id": str, "generation_id": str, "method": str, "measured_on": str, "saved_at": float, "result": str},
        ("id",),
    )
    db.create_view("trace_summaries", _SUMMARIES)


def _create_memory_and_cache(db: Any) -> None:
    db.create_table("memory", {"key": str, "value": str}, pk="key", not_null={"value"})
    db.create_table(
        "measurements",
        {"key": str, "kind": str, "value": bytes, "checksum": int, "size": int, "used_at": float},
        pk="key",
        not_null={"kind", "value", "checksum", "size", "used_at"},
    )
    db["measurements"].create_index(["used_at", "size"])


def _create_part(db: Any, name: str, columns: dict[str, type], key: tuple[str, ...]) -> None:
    db.create_table(
        name,
        {"trace_id": str, **columns},
        pk=("trace_id", *key),
        not_null={"trace_id", *key},
        foreign_keys=[("trace_id", "traces", "id")],
    )


_SUMMARIES = """
SELECT t.id, t.started, t.started_at, t.rowid AS number,
    coalesce(t.query, (SELECT m.content FROM messages m WHERE m.trace_id = t.id AND m.role = 'user'
        ORDER BY m.generation DESC, m.position DESC LIMIT 1)) AS query,
    t.answer,
    (SELECT g.model FROM generations g WHERE g.trace_id = t.id
        ORDER BY coalesce(g.response, '') <> '' DESC, g.position DESC LIMIT 1) AS model,
    t.framework, t.status,
    (SELECT count(*) FROM generations g WHERE g.trace_id = t.id) AS n_generations,
    (SELECT count(*) FROM documents d WHERE d.trace_id = t.id AND d.retrieval IS NOT NULL) AS n_documents,
    (SELECT count(*) FROM attributions a WHERE a.trace_id = t.id) AS n_attributions
FROM traces t
"""

MIGRATIONS: tuple[Callable[[Any], None], ...] = (_create_traces, _create_memory_and_cache)
