"""Traces and results in SQLite, in tables that plain SQL can query.

``trace_summaries`` is a view with one line per run; :mod:`attr_core._storage.schema` describes the tables. Text is
stored as it is, except that NUL, U+001A and lone surrogates are escaped (U+001A and four hexadecimal digits) and read
back exactly. Free-form metadata is kept as JSON; what JSON cannot say becomes its ``repr``.
"""

from __future__ import annotations

import builtins
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self

from attr_core._storage import findings, runs, trace_rows
from attr_core._storage.database import open_database, select, unescape
from attr_core._storage.memory import Memory
from attr_core._storage.pending import PendingTrace, pending
from attr_core._storage.spending import Spending
from attr_core.attribution import Attribution
from attr_core.errors import ConfigurationError, StoreError, TraceNotFoundError
from attr_core.results import Diagnosis
from attr_core.types import Generation, Trace

__all__ = ["SHORTEST_PREFIX", "PendingTrace", "Pruned", "Store", "StoreStats", "TraceSummary"]

SHORTEST_PREFIX = 4
"""Characters of an id that are enough, where only one trace starts with them."""


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """One line about a trace. ``query`` is the last user turn where the trace names none."""

    id: str
    started: datetime | None
    query: str | None
    answer: str | None
    model: str | None
    framework: str | None
    status: str
    n_generations: int
    n_documents: int
    n_attributions: int


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many traces went, and how many results with them."""

    n_traces: int
    n_attributions: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What the file holds; ``n_bytes`` is its size with what is still in its log, measured values included."""

    path: str
    schema: int
    n_traces: int
    n_attributions: int
    n_bytes: int


class Store:
    """Traces and attributions in one SQLite file; usable from any thread and from several processes at once.

    What was saved outlives the process, killed or not; a power cut may take the last moments before it. A save that
    fails leaves everything as it was.

    Parameters
    ----------
    path : path, optional
        The file, made where there is none; ``":memory:"`` keeps everything in memory. By default ``ATTRKIT_DB``, else
        ``~/.attrkit/attrkit.db``.

    Raises
    ------
    StoreError
        The file is not attrkit's database, or cannot be written.

    Examples
    --------
    >>> trace = Trace.from_messages([{"role": "user", "content": "When did it open?"}], "In 1911.")
    >>> with Store(":memory:") as store:
    ...     store.save(trace) == trace.id, store.get(trace.id) == trace, store.last().answer
    (True, True, 'In 1911.')
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._database = open_database(path)

    @property
    def path(self) -> str:
        """The file, or ``":memory:"``."""
        return self._database.path

    @property
    def memory(self) -> MutableMapping[str, Any]:
        """Small JSON values kept by key, for :func:`attr_core.capabilities.probe`."""
        return Memory(self._database)

    @property
    def spending(self) -> Spending:
        """What deferred attributions spend on each UTC day."""
        return Spending(self._database)

    def __contains__(self, trace_id: object) -> bool:
        with self._database.reading() as db:
            return isinstance(trace_id, str) and runs.is_there(db, trace_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of all threads."""
        self._database.close()

    def save(self, trace: Trace) -> str:
        """Write a trace, or write it again; its attributions are kept.

        Returns
        -------
        str
            The trace's id.
        """
        rows = trace_rows.to_rows(trace, saved_at=time.time())
        with self._database.writing() as db:
            runs.write(db, trace.id, rows)
        return trace.id

    def add(self, trace: Trace) -> bool:
        """Write a trace unless one of that id is there, which then stays as it is; whether it was written."""
        rows = trace_rows.to_rows(trace, saved_at=time.time())
        with self._database.writing() as db:
            if runs.is_there(db, trace.id):
                return False
            runs.write(db, trace.id, rows)
        return True

    def get(self, id: str) -> Trace:  # noqa: A002
        """The trace of that id, or of the only id that starts with it (from 4 characters on).

        Raises
        ------
        TraceNotFoundError
            There is none.
        StoreError
            Several ids start so, or a row is damaged (the message names its table and id).
        """
        with self._database.reading() as db:
            return runs.read(db, self._resolve(db, id))

    def last(self) -> Trace:
        """The most recently started trace; where no start is known, the time it was first saved counts.

        Raises
        ------
        TraceNotFoundError
            The store is empty.
        """
        with self._database.reading() as db:
            found = select(db, "SELECT id FROM traces ORDER BY started_at DESC, rowid DESC LIMIT 1")
            if not found:
                raise TraceNotFoundError(f"{self.path} holds no trace yet; log a call with with_logging or log_call")
            return runs.read(db, found[0]["id"])

    def find_run(self, run_id: str) -> str | None:
        """The id of the trace of that run of a framework, the last one saved; ``None`` where there is none."""
        with self._database.reading() as db:
            found = select(db, "SELECT id FROM traces WHERE run_id = ? ORDER BY rowid DESC LIMIT 1", [run_id])
        return unescape(found[0]["id"]) if found else None

    def list(
        self,
        *,
        limit: int | None = 20,
        query: str | None = None,
        model: str | None = None,
        tag: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        framework: str | None = None,
    ) -> builtins.list[TraceSummary]:
        """What is stored, the most recently started first.

        Parameters
        ----------
        limit : int or None
            At most so many; ``None`` for all.
        query : str, optional
            Text that the question contains, in any case.
        model : str, optional
            Model of one of the generations, as recorded; ``*`` stands for any text.
        tag, status, framework : str, optional
            Exact values.
        since : datetime, optional
            Started then or later; without a time zone it is taken as UTC.

        Raises
        ------
        ConfigurationError
            ``limit`` is negative.
        """
        if limit is not None and limit < 0:
            raise ConfigurationError(f"limit={limit} is negative; give a number of traces, or None for all")
        by_model = "id IN (SELECT trace_id FROM generations WHERE model GLOB ?)"
        conditions = {
            by_model: None if model is None else model.replace("[", "[[]"),
            "id IN (SELECT trace_id FROM tags WHERE tag = ?)": tag,
            "status = ?": status,
            "framework = ?": framework,
            "started_at >= ?": None if since is None else trace_rows.seconds(since),
            "attrkit_contains(query, ?)": query,
        }
        wanted = {sql: value for sql, value in conditions.items() if value is not None}
        sql = f"""SELECT * FROM trace_summaries WHERE {" AND ".join(wanted) or "1"}
            ORDER BY started_at DESC, number DESC LIMIT ?"""  # noqa: S608
        with self._database.reading() as db:
            db.create_function("attrkit_contains", 2, _contains, deterministic=True)
            return [_summary(row) for row in select(db, sql, [*wanted.values(), -1 if limit is None else limit])]

    def pending(
        self,
        *,
        since: datetime | None = None,
        tag: str | None = None,
        framework: str | None = None,
        without: Literal["attribution", "diagnosis"] = "attribution",
    ) -> Iterator[PendingTrace]:
        """The traces that have no attribution (or diagnosis) yet and are to have one, the oldest first.

        Left out are those that were not sampled (``metadata["attrkit"]["sampled"]`` is false) and those in which no
        model wrote anything. Filters are those of :meth:`list`.
        """
        return pending(self._database, since=since, tag=tag, framework=framework, without=without)

    def save_attribution(self, attribution: Attribution, *, cut: Generation | None = None) -> None:
        """Keep a result with its trace; the same result twice is kept once.

        Parameters
        ----------
        attribution : Attribution
        cut : Generation, optional
            With the segments that were measured: they are kept where the stored messages are still those.

        Raises
        ------
        TraceNotFoundError
            Its trace has not been saved.
        """
        self._keep(attribution, cut)

    def attributions(self, trace_id: str, *, skip_damaged: bool = False) -> builtins.list[Attribution]:
        """Results of that trace, in the order they were first saved.

        Parameters
        ----------
        trace_id : str
        skip_damaged : bool, default False
            Leave out what cannot be read instead of raising.

        Raises
        ------
        TraceNotFoundError
            There is no such trace.
        StoreError
            A result is damaged or was written by a newer attrkit.
        """
        return self._results(Attribution, trace_id, skip_damaged)

    def save_diagnosis(self, diagnosis: Diagnosis) -> None:
        """Keep a diagnosis with its trace; the same one twice is kept once.

        Raises
        ------
        TraceNotFoundError
            Its trace has not been saved.
        """
        self._keep(diagnosis, None)

    def diagnoses(self, trace_id: str, *, skip_damaged: bool = False) -> builtins.list[Diagnosis]:
        """Diagnoses of that trace, in the order they were first saved; see :meth:`attributions`."""
        return self._results(Diagnosis, trace_id, skip_damaged)

    def _keep(self, found: Attribution | Diagnosis, cut: Generation | None) -> None:
        row = findings.row_of(found)
        with self._database.writing() as db:
            if not runs.is_there(db, found.trace_id):
                raise TraceNotFoundError(
                    f"trace {found.trace_id!r} is not in {self.path}; save the trace before what was found about it"
                )
            findings.write(db, type(found), row)
            if cut is not None:
                runs.keep_segments(db, found.trace_id, cut)

    def _results(
        self, kind: type[findings.Result], trace_id: str, skip_damaged: bool
    ) -> builtins.list[findings.Result]:
        with self._database.reading() as db:
            return findings.read(db, kind, self._resolve(db, trace_id), skip_damaged=skip_damaged)

    def delete(self, id: str) -> None:  # noqa: A002
        """Remove a trace with everything that belongs to it; the whole id is needed.

        Raises
        ------
        TraceNotFoundError
            There is no such trace.
        """
        with self._database.writing() as db:
            if not runs.is_there(db, id):
                raise self._not_found(id)
            runs.delete(db, "id = ?", [id])
        self._database.release_pages()

    def prune(self, *, before: datetime, dry_run: bool = False) -> Pruned:
        """Remove the traces that were started earlier, with everything that belongs to them.

        Parameters
        ----------
        before : datetime
            Without a time zone it is taken as UTC. A trace without a known start counts from when it was first saved.
        dry_run : bool, default False
            Count only.
        """
        older = ("started_at < ?", [trace_rows.seconds(before)])
        if dry_run:
            with self._database.reading() as db:
                return Pruned(**runs.count(db, *older))
        with self._database.writing() as db:
            pruned = Pruned(**runs.count(db, *older))
            runs.delete(db, *older)
        self._database.release_pages()
        return pruned

    def stats(self) -> StoreStats:
        """How much is kept."""
        with self._database.reading() as db:
            counted = runs.count(db, "1", [])
            schema = int(select(db, "PRAGMA user_version")[0]["user_version"])
        return StoreStats(self.path, schema, counted["n_traces"], counted["n_attributions"], self._database.n_bytes())

    def check(self) -> None:
        """Read the whole file and take its write lock; changes nothing.

        Raises
        ------
        StoreError
            It is damaged, cannot be written, or is locked.
        """
        self._database.check()

    def _resolve(self, db: sqlite3.Connection, prefix: str) -> str:
        if runs.is_there(db, prefix):
            return prefix
        if len(prefix) < SHORTEST_PREFIX:
            raise self._not_found(prefix)
        sql = "SELECT id FROM traces WHERE substr(id, 1, length(?)) = ? ORDER BY id LIMIT 4"
        ids = [unescape(row["id"]) for row in select(db, sql, [prefix, prefix])]
        if len(ids) > 1:
            shown = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
            raise StoreError(f"trace id {prefix!r} is ambiguous ({shown}); give more of its characters")
        if not ids:
            raise self._not_found(prefix)
        return ids[0]

    def _not_found(self, id: str) -> TraceNotFoundError:  # noqa: A002
        return TraceNotFoundError(f"trace {id!r} is not in {self.path}; run `attrkit traces` to see what is")


def _summary(row: Mapping[str, Any]) -> TraceSummary:
    """Reads what it can: one damaged row must not hide the others."""
    values: dict[str, Any] = {
        key: unescape(value, strict=False) if isinstance(value, str) else value for key, value in row.items()
    }
    try:
        started = None if values["started"] is None else datetime.fromisoformat(values["started"])
    except (TypeError, ValueError):
        started = None
    names = ("id", "query", "answer", "model", "framework", "status", "n_generations", "n_documents", "n_attributions")
    return TraceSummary(started=started, **{name: values[name] for name in names})


def _contains(text: Any, part: str) -> bool:
    return isinstance(text, str) and part.casefold() in text.casefold()
