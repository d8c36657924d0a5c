"""Measured values handed from one file to another: a cache that several databases share without writing at once."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from attr_core._storage.database import BUSY_SECONDS, open_database
from attr_core.errors import CacheError

_COLUMNS = "key, kind, value, checksum, size, used_at"


def copy_measurements(source: Path, target: Path) -> int:
    """Copy the measured values that ``target`` lacks; how many there were.

    Both files are attrkit's; ``target`` is made where there is none. Where either cannot be used (locked, read-only,
    damaged), nothing is copied, and what is missing is measured again.
    """
    if not source.exists():
        return 0
    with contextlib.suppress(CacheError, OSError, sqlite3.Error):
        open_database(target, error=CacheError).close()  # made, and brought up to date
        with contextlib.closing(sqlite3.connect(target, timeout=BUSY_SECONDS)) as db:
            db.execute("ATTACH DATABASE ? AS other", [str(source)])
            with db:
                sql = f"INSERT OR IGNORE INTO main.measurements ({_COLUMNS}) SELECT {_COLUMNS} FROM other.measurements"  # noqa: S608
                return max(db.execute(sql).rowcount, 0)
    return 0
