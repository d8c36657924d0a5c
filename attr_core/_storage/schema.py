"""The tables of attrkit's database: ordered migrations, each applied once, inside one transaction.

Made with sqlite-utils' ``create_table`` (``Table.create`` commits in its older versions). It is imported only where a
file is made or brought up to date: it brings pandas along where that is installed, a third of a second that no logged
call and no listing should pay. Rows are read and written by plain SQL.

Rows of a run share its ``trace_id``. ``generation``, ``retrieval``, ``tool_call`` and ``message`` are positions of the
owning row in that run. Columns with nested or free-form data hold JSON.

What messages say is kept once per distinct text, in ``texts`` by its SHA-256, since an agent's calls each repeat the
whole history; ``turns`` says where it was said, and the view ``messages`` puts both together.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any

APPLICATION_ID = 0x61747472
"""``attr``, in the header of the file: tells it from another program's database."""

RUN_TABLES = ("tags", "generations", "turns", "retrievals", "documents", "tool_calls")
"""What is written again when a trace is saved again; results are kept."""

RESULT_TABLES = ("attributions", "diagnoses", "evaluation_rows")


def digest(stored: bytes) -> bytes:
    """Key of a text in ``texts``: the SHA-256 of its bytes as they are stored."""
    return hashlib.sha256(stored).digest()


def apply(migration: Callable[[Any], None], connection: sqlite3.Connection) -> None:
    """Run one migration on the connection, within the transaction that is open."""
    from sqlite_utils import Database

    migration(Database(connection))


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
    db.create_table("texts", {"digest": bytes, "text": str}, pk="digest", not_null={"digest"})
    _create_part(
        db,
        "turns",
        {
            "generation": int,
            "position": int,
            "role": str,
            "digest": bytes,
            "name": str,
            "tool_call_id": str,
            "metadata": str,
        },
        ("generation", "position"),
    )
    db.create_view("messages", _MESSAGES)
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
    db.create_table("memory", {"key": str, "value": str}, pk="key", not_null={"key", "value"})
    db.create_table(
        "measurements",
        {"key": str, "kind": str, "value": bytes, "checksum": int, "size": int, "used_at": float},
        pk="key",
        not_null={"key", "kind", "value", "checksum", "size", "used_at"},
    )
    db["measurements"].create_index(["used_at", "size"])


def _create_diagnoses(db: Any) -> None:
    _create_part(
        db,
        "diagnoses",
        {"id": str, "generation_id": str, "label": str, "judge": str, "saved_at": float, "result": str},
        ("id",),
    )


def _create_evaluations(db: Any) -> None:
    db.create_table(
        "evaluations",
        {
            "id": str,
            "name": str,
            "key": str,  # what the run is of: the same command has the same
            "n_rows": int,
            "started_at": float,
            "finished_at": float,
            "settings": str,
        },
        pk="id",
        not_null={"id", "name", "key", "n_rows", "started_at"},
    )
    db["evaluations"].create_index(["name"], unique=True)
    db["evaluations"].create_index(["key"])
    db.create_table(
        "evaluation_rows",
        {
            "evaluation_id": str,
            "row_id": str,
            "digest": str,  # of what the row says
            "position": int,
            "status": str,  # answered: its trace is there, and not diagnosed yet; done; failed
            "query": str,
            "tags": str,
            "trace_id": str,  # null where the application failed
            "diagnosis_id": str,
            "error": str,
            "seconds": float,
            "saved_at": float,
            "details": str,
        },
        pk=("evaluation_id", "row_id"),
        not_null={"evaluation_id", "row_id", "position", "status", "saved_at"},
        foreign_keys=[("evaluation_id", "evaluations", "id")],
    )
    db["evaluation_rows"].create_index(["trace_id"])


def _create_part(db: Any, name: str, columns: dict[str, type], key: tuple[str, ...]) -> None:
    db.create_table(
        name,
        {"trace_id": str, **columns},
        pk=("trace_id", *key),
        not_null={"trace_id", *key},
        foreign_keys=[("trace_id", "traces", "id")],
    )


_MESSAGES = """
SELECT t.trace_id, t.generation, t.position, t.role, x.text AS content, t.name, t.tool_call_id, t.metadata
FROM turns t LEFT JOIN texts x ON x.digest = t.digest
"""

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

MIGRATIONS: tuple[Callable[[Any], None], ...] = (
    _create_traces,
    _create_memory_and_cache,
    _create_diagnoses,
    _create_evaluations,
)
