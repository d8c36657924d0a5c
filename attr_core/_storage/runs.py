"""One run in all its tables, within the transaction that the caller has opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from attr_core._storage import trace_rows
from attr_core._storage.database import execute, insert, select
from attr_core._storage.schema import RESULT_TABLES, RUN_TABLES
from attr_core.types import Generation, Trace


def is_there(db: sqlite3.Connection, trace_id: str) -> bool:
    """Whether a trace of exactly that id is stored."""
    return bool(select(db, "SELECT 1 FROM traces WHERE id = ?", [trace_id]))


def write(db: sqlite3.Connection, trace_id: str, rows: trace_rows.Rows) -> None:
    """Write a trace's rows in the place of older ones; where it has no start, the first time it was saved stays."""
    known = select(db, "SELECT started_at FROM traces WHERE id = ?", [trace_id])
    if known and rows["traces"][0]["started"] is None:
        rows["traces"][0].update(known[0])
    insert(db, "traces", rows.pop("traces"), key=("id",))
    insert(db, "texts", rows.pop("texts"), key=("digest",))
    _delete_parts(db, trace_id)
    for table, found in rows.items():
        insert(db, table, [{"trace_id": trace_id, **row} for row in found])


def read(db: sqlite3.Connection, trace_id: str) -> Trace:
    """The trace of exactly that id, which is there."""
    rows = {"traces": select(db, "SELECT * FROM traces WHERE id = ?", [trace_id])}
    for table in RUN_TABLES:
        table, order = ("messages", "generation, position") if table == "turns" else (table, "position")
        rows[table] = select(db, f"SELECT * FROM {table} WHERE trace_id = ? ORDER BY {order}", [trace_id])  # noqa: S608
    return trace_rows.from_rows(rows)


def keep_segments(db: sqlite3.Connection, trace_id: str, cut: Generation) -> None:
    """Keep how a generation's prompt was cut, where its messages are still those that were cut."""
    turns = """SELECT t.digest FROM turns t JOIN generations g ON g.trace_id = t.trace_id AND g.position = t.generation
        WHERE g.trace_id = ? AND g.id = ? ORDER BY t.position"""
    stored = [row["digest"] for row in select(db, turns, [trace_id, cut.id])]
    if stored == [trace_rows.text_key(message) for message in cut.messages]:
        sql = "UPDATE generations SET segments = ? WHERE trace_id = ? AND id = ?"
        execute(db, sql, [trace_rows.segments_json(cut), trace_id, cut.id])


def count(db: sqlite3.Connection, condition: str, parameters: Sequence[Any]) -> dict[str, int]:
    """How many traces a condition on their table names, and how many results they have."""
    sql = f"""SELECT (SELECT count(*) FROM traces WHERE {condition}) AS n_traces, (SELECT count(*) FROM attributions
        WHERE trace_id IN (SELECT id FROM traces WHERE {condition})) AS n_attributions"""  # noqa: S608
    return select(db, sql, [*parameters, *parameters])[0]


def delete(db: sqlite3.Connection, condition: str, parameters: Sequence[Any]) -> None:
    """Remove the traces that a condition on their table names, with everything that belongs to them."""
    for table in (*RUN_TABLES, *RESULT_TABLES):
        sql = f"DELETE FROM {table} WHERE trace_id IN (SELECT id FROM traces WHERE {condition})"  # noqa: S608
        execute(db, sql, parameters)
    execute(db, f"DELETE FROM traces WHERE {condition}", parameters)  # noqa: S608
    execute(db, "DELETE FROM texts WHERE digest NOT IN (SELECT digest FROM turns WHERE digest IS NOT NULL)")


def _delete_parts(db: sqlite3.Connection, trace_id: str) -> None:
    for table in RUN_TABLES:
        execute(db, f"DELETE FROM {table} WHERE trace_id = ?", [trace_id])  # noqa: S608
