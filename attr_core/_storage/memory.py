"""Small values that outlive the process, as a mapping over one table of the database."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import Any

from attr_core._storage.database import Database, execute, insert, select, unescape


class Memory(MutableMapping[str, Any]):
    """JSON values by key; what JSON cannot say becomes its ``repr``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __getitem__(self, key: str) -> Any:
        with self._database.reading() as db:
            found = select(db, "SELECT value FROM memory WHERE key = ?", [key])
        if not found:
            raise KeyError(key)
        try:
            return json.loads(unescape(found[0]["value"]))
        except (TypeError, ValueError):  # a damaged memory is one that never was
            raise KeyError(key) from None

    def __setitem__(self, key: str, value: Any) -> None:
        with self._database.writing() as db:
            insert(
                db, "memory", [{"key": key, "value": json.dumps(value, ensure_ascii=False, default=repr)}], key=("key",)
            )

    def __delitem__(self, key: str) -> None:
        with self._database.writing() as db:
            if not execute(db, "DELETE FROM memory WHERE key = ?", [key]):
                raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        with self._database.reading() as db:
            keys = [unescape(row["key"]) for row in select(db, "SELECT key FROM memory ORDER BY key")]
        return iter(keys)

    def __len__(self) -> int:
        with self._database.reading() as db:
            return int(select(db, "SELECT count(*) AS n FROM memory")[0]["n"])
