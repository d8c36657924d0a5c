"""Runs over evaluation sets and their rows, each stored at once; a row's trace in the same transaction as the row."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from attr_core._storage import findings, runs, trace_rows
from attr_core._storage.database import Database, execute, insert, open_database, select, unescape
from attr_core.errors import StoreError
from attr_core.results import Diagnosis
from attr_core.types import Trace

SHORTEST_PREFIX = 4


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One run over a set; ``key`` tells what it is of, ``finished_at`` is ``None`` while rows are left."""

    id: str
    name: str
    key: str
    n_rows: int
    started_at: float
    finished_at: float | None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Evaluations:
    """The tables of evaluation runs in one SQLite file; usable from any thread.

    Parameters
    ----------
    path : path, optional
        As for :class:`attr_core.store.Store`.

    Raises
    ------
    StoreError
        The file is not attrkit's database, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._database: Database = open_database(path)

    @property
    def path(self) -> str:
        """The file, or ``":memory:"``."""
        return self._database.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of all threads."""
        self._database.close()

    def begin(self, run: StoredRun) -> None:
        """Write a run that has no rows yet.

        Raises
        ------
        StoreError
            Another run has that name or id.
        """
        row = {name: getattr(run, name) for name in ("id", "name", "key", "n_rows", "started_at", "finished_at")}
        with self._database.writing() as db:
            if select(db, "SELECT 1 FROM evaluations WHERE id = ? OR name = ?", [run.id, run.name]):
                raise StoreError(f"an evaluation named {run.name!r} is in {self.path} already; give another name")
            insert(db, "evaluations", [{**row, "settings": trace_rows.to_json(dict(run.settings))}])

    def resize(self, run_id: str, n_rows: int) -> None:
        """Say how many rows a run is of, now."""
        with self._database.writing() as db:
            execute(db, "UPDATE evaluations SET n_rows = ?, finished_at = NULL WHERE id = ?", [n_rows, run_id])

    def finish(self, run_id: str) -> None:
        """Say that no row is left."""
        with self._database.writing() as db:
            execute(db, "UPDATE evaluations SET finished_at = ? WHERE id = ?", [time.time(), run_id])

    def named(self, name: str) -> StoredRun | None:
        """The run of exactly that name."""
        return self._first("name = ?", [name])

    def latest(self, key: str) -> StoredRun | None:
        """The last run of that key, finished or not."""
        return self._first("key = ?", [key])

    def find(self, name: str) -> StoredRun:
        """The run of that name or id, or of the only id that starts so; ``last`` is the one begun last.

        Raises
        ------
        StoreError
            There is none, or several.
        """
        found = self._first("1", []) if name == "last" else self.named(name) or self._first("id = ?", [name])
        if found is None and len(name) >= SHORTEST_PREFIX:
            several = self.runs("substr(id, 1, length(?)) = ?", [name, name])
            if len(several) > 1:
                raise StoreError(f"run {name!r} is ambiguous; give more of its characters")
            found = several[0] if several else None
        if found is None:
            known = ", ".join(run.name for run in self.runs()[:5]) or "none yet"
            raise StoreError(f"evaluation run {name!r} is not in {self.path}; there are: {known}")
        return found

    def runs(self, condition: str = "1", values: Sequence[Any] = ()) -> list[StoredRun]:
        """Runs, the last first."""
        sql = f"SELECT * FROM evaluations WHERE {condition} ORDER BY started_at DESC, rowid DESC"  # noqa: S608
        with self._database.reading() as db:
            return [_run(row) for row in select(db, sql, values)]

    def answered(self, run_id: str, row: Mapping[str, Any], trace: Trace) -> None:
        """Keep what the application answered to a row, and that it need not be asked again."""
        rows = trace_rows.to_rows(trace, saved_at=time.time())
        with self._database.writing() as db:
            runs.write(db, trace.id, rows)
            _write(db, run_id, {**row, "status": "answered", "trace_id": trace.id})

    def done(self, run_id: str, row: Mapping[str, Any], trace: Trace, diagnosis: Diagnosis | None) -> None:
        """Keep what was found about an answer, or that nothing was asked about it."""
        found = None if diagnosis is None else findings.row_of(diagnosis)
        with self._database.writing() as db:
            if not runs.is_there(db, trace.id):  # deleted meanwhile, or a database in memory
                runs.write(db, trace.id, trace_rows.to_rows(trace, saved_at=time.time()))
            if found is not None:
                findings.write(db, Diagnosis, found)
            identifier = None if found is None else found["id"]
            _write(db, run_id, {**row, "status": "done", "trace_id": trace.id, "diagnosis_id": identifier})

    def failed(self, run_id: str, row: Mapping[str, Any], error: str, *, trace_id: str | None = None) -> None:
        """Keep that a row has no result, and why."""
        with self._database.writing() as db:
            _write(db, run_id, {**row, "status": "failed", "error": error, "trace_id": trace_id})

    def states(self, run_id: str) -> dict[str, tuple[str, str | None, str | None]]:
        """Row id -> (status, trace id, digest of the row)."""
        sql = "SELECT row_id, status, trace_id, digest FROM evaluation_rows WHERE evaluation_id = ?"
        with self._database.reading() as db:
            return {
                unescape(row["row_id"]): (row["status"], row["trace_id"] and unescape(row["trace_id"]), row["digest"])
                for row in select(db, sql, [run_id])
            }

    def trace(self, trace_id: str) -> Trace:
        """The stored trace of exactly that id."""
        with self._database.reading() as db:
            return runs.read(db, trace_id)

    def rows(self, run_id: str) -> list[dict[str, Any]]:
        """All rows of a run in the set's order, with what their trace and diagnosis say."""
        sql = """SELECT r.row_id, r.position, r.status, r.query, r.tags, r.trace_id, r.error, r.seconds, r.details,
            t.answer, t.reference AS expected, d.result AS diagnosis
            FROM evaluation_rows r LEFT JOIN traces t ON t.id = r.trace_id
            LEFT JOIN diagnoses d ON d.trace_id = r.trace_id AND d.id = r.diagnosis_id
            WHERE r.evaluation_id = ? ORDER BY r.position, r.rowid"""
        with self._database.reading() as db:
            found = select(db, sql, [run_id])
        return [_read(row) for row in found]

    def _first(self, condition: str, values: Sequence[Any]) -> StoredRun | None:
        return next(iter(self.runs(condition, values)), None)


def _write(db: sqlite3.Connection, run_id: str, row: Mapping[str, Any]) -> None:
    names = ("row_id", "digest", "position", "query", "error", "seconds", "trace_id", "status", "diagnosis_id")
    known = {name: row.get(name) for name in names}
    texts = {name: json.dumps(row.get(name) or blank) for name, blank in (("tags", []), ("details", {}))}
    whole = {"evaluation_id": run_id, **known, **texts, "saved_at": time.time()}
    insert(db, "evaluation_rows", [whole], key=("evaluation_id", "row_id"))


def _run(row: Mapping[str, Any]) -> StoredRun:
    told = {name: unescape(value, strict=False) if isinstance(value, str) else value for name, value in row.items()}
    return StoredRun(**{**told, "settings": json.loads(told["settings"] or "{}")})


def _read(row: Mapping[str, Any]) -> dict[str, Any]:
    told = {key: unescape(value, strict=False) if isinstance(value, str) else value for key, value in row.items()}
    for name in ("tags", "details", "diagnosis"):
        try:
            told[name] = json.loads(told[name]) if told[name] else None
        except ValueError as error:
            where = f"table evaluation_rows, row {told['row_id']}"
            raise StoreError(f"{where} is damaged ({error}); evaluate it again under another name") from error
    return told
