"""Attributions and diagnoses in their tables, as JSON, within the transaction that the caller has opened."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Mapping
from typing import Any, TypeVar

from attr_core._storage import trace_rows
from attr_core._storage.database import insert, select, unescape
from attr_core.attribution import Attribution
from attr_core.errors import ConfigurationError, StoreError
from attr_core.results import Diagnosis

Result = TypeVar("Result", Attribution, Diagnosis)

_TABLES: Mapping[type[Any], tuple[str, str]] = {Attribution: ("attributions", "at"), Diagnosis: ("diagnoses", "di")}


def row_of(found: Attribution | Diagnosis) -> dict[str, Any]:
    """The row of a result; equal results have equal ids."""
    result = trace_rows.to_json(found.to_dict())
    digest = hashlib.sha256(result.encode("utf-8", "surrogatepass")).hexdigest()
    if isinstance(found, Diagnosis):
        columns = {"label": found.label, "judge": found.judge}
    else:
        columns = {"method": found.method, "measured_on": found.measured_on}
    return {
        "id": f"{_TABLES[type(found)][1]}_{digest[:16]}",
        "trace_id": found.trace_id,
        "generation_id": found.generation_id,
        **columns,
        "saved_at": time.time(),
        "result": result,
    }


def write(db: sqlite3.Connection, kind: type[Any], row: Mapping[str, Any]) -> None:
    """Write what :func:`row_of` gave; a row that is there already is written over."""
    insert(db, _TABLES[kind][0], [row], key=("trace_id", "id"))


def read(db: sqlite3.Connection, kind: type[Result], trace_id: str, *, skip_damaged: bool) -> list[Result]:
    """Results of that kind, in the order they were first saved."""
    table = _TABLES[kind][0]
    sql = f"SELECT id, result FROM {table} WHERE trace_id = ? ORDER BY rowid"  # noqa: S608
    found = []
    for row in select(db, sql, [trace_id]):
        try:
            found.append(_read(kind, row, table))
        except StoreError:
            if not skip_damaged:
                raise
    return found


def _read(kind: type[Result], row: Mapping[str, Any], table: str) -> Result:
    where = f"table {table}, row {row['id']}"
    try:
        return kind.from_dict(json.loads(unescape(row["result"])))
    except ConfigurationError as error:  # written by a newer attrkit
        raise StoreError(f"{where}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{where} is damaged ({error}); delete that trace, or read the others with skip_damaged=True"
        ) from error
