"""The traces that wait to be attributed, or diagnosed, read page by page: there may be a hundred thousand."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from attr_core._storage.database import Database, select, unescape
from attr_core._storage.trace_rows import seconds
from attr_core.types import ATTRKIT_KEY

PAGE = 500

# What was called or answered stands in a generation's own rows; an answer of white space is none.
_BLANK = "' ' || char(9, 10, 11, 12, 13)"
_WROTE = f"""EXISTS (SELECT 1 FROM generations g WHERE g.trace_id = t.id AND (
    trim(coalesce(g.response, ''), {_BLANK}) <> ''
    OR t.status NOT IN ('error', 'interrupted') AND EXISTS (SELECT 1 FROM tool_calls c
        WHERE c.trace_id = t.id AND c.generation = g.position AND c.message IS NULL)))"""  # noqa: S608
# A damaged row's metadata is no JSON, and must not keep the others from being found.
_SAMPLED = "CASE WHEN json_valid(t.metadata) THEN json_type(t.metadata, '$.attrkit.sampled') END IS NOT 'false'"
_WITHOUT = {
    "attribution": "NOT EXISTS (SELECT 1 FROM attributions a WHERE a.trace_id = t.id)",
    "diagnosis": "NOT EXISTS (SELECT 1 FROM diagnoses d WHERE d.trace_id = t.id)",
}


@dataclass(frozen=True, slots=True)
class PendingTrace:
    """A trace without a result: the spec of the engine it was to be measured on, as far as one was named.

    ``object`` is what an engine called itself that was handed over as an object, which no other process can load.
    """

    id: str
    engine: str | None = None
    object: str | None = None


def pending(
    database: Database,
    *,
    since: datetime | None = None,
    tag: str | None = None,
    framework: str | None = None,
    without: Literal["attribution", "diagnosis"] = "attribution",
) -> Iterator[PendingTrace]:
    """As :meth:`attr_core.store.Store.pending`; nothing is held open between two pages."""
    conditions: dict[str, Any] = {
        "t.started_at >= ?": None if since is None else seconds(since),
        "t.id IN (SELECT trace_id FROM tags WHERE tag = ?)": tag,
        "t.framework = ?": framework,
    }
    wanted = {sql: value for sql, value in conditions.items() if value is not None}
    where = " AND ".join(["(t.started_at, t.rowid) > (?, ?)", *wanted, _WITHOUT[without], _SAMPLED, _WROTE])
    sql = f"""SELECT t.id, t.metadata, t.started_at, t.rowid AS number FROM traces t WHERE {where}
        ORDER BY t.started_at, t.rowid LIMIT {PAGE}"""  # noqa: S608
    last: tuple[float, int] = (-math.inf, 0)
    while True:
        with database.reading() as db:
            rows = select(db, sql, [*last, *wanted.values()])
        for row in rows:
            told = _told(row)
            if told.get("sampled") is not False:  # SQLite takes no metadata that holds escaped text for JSON
                yield _pending(unescape(row["id"], strict=False), told)
        if len(rows) < PAGE:
            return
        last = (rows[-1]["started_at"], rows[-1]["number"])


def _told(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What attrkit itself left in a trace's metadata; a framework's own keys mean nothing here."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        told = json.loads(unescape(row["metadata"], strict=False)).get(ATTRKIT_KEY)
        if isinstance(told, dict):
            return told
    return {}


def _pending(identifier: str, told: Mapping[str, Any]) -> PendingTrace:
    named = told.get("engine")
    if isinstance(named, str):
        return PendingTrace(identifier, engine=named)
    kind = named.get("object") if isinstance(named, dict) else None
    return PendingTrace(identifier, object=None if kind is None else str(kind))
