"""The one SQLite file that holds traces, results and measured values, opened safely by many threads and processes.

Text that SQLite cannot hold as UTF-8 (lone surrogates) or that its functions stop at (NUL) is written as U+001A
SUBSTITUTE and four hexadecimal digits, U+001A itself likewise, and read back exactly. All other text is stored as it
is.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attr_core._storage.forks import GATE
from attr_core._storage.schema import APPLICATION_ID, MIGRATIONS, apply
from attr_core.errors import AttrkitError, StoreError

MEMORY = ":memory:"
BUSY_SECONDS = 10.0
"""How long a writer waits for others before it says that the file is locked."""

_UNSTORABLE = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")
_SURROGATE = re.compile("[\ud800-\udfff]")

_REMEDIES = {
    sqlite3.SQLITE_NOTADB: "is not an SQLite database; move it away or set ATTRKIT_DB to another file",
    sqlite3.SQLITE_CORRUPT: (
        "is a damaged SQLite database; restore a backup, or move it away and save what is left with sqlite3's .recover"
    ),
    sqlite3.SQLITE_READONLY: "cannot be written; make it and its folder writable or set ATTRKIT_DB to another file",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; make its folder writable or set ATTRKIT_DB to another file",
    sqlite3.SQLITE_BUSY: "is locked by another process; close that one or try again",
    sqlite3.SQLITE_FULL: "cannot grow because the disk is full; free some space",
    sqlite3.SQLITE_TOOBIG: "takes no text of more than a billion bytes; store less of it",
    sqlite3.SQLITE_IOERR: "could not be read or written by the system; check that its disk is neither full nor failing",
}

_ABANDONED: list[sqlite3.Connection] = []
"""Connections that a fork left behind: closing them here would disturb the process that owns them."""

_WRITERS: dict[str, threading.Lock] = {}
"""File -> whose turn it is in this process: threads that poll SQLite's own lock may wait for ever among many."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WRITERS.clear)  # the threads that held them do not live in a child


def default_path() -> Path:
    """``ATTRKIT_DB`` where it is set, else ``~/.attrkit/attrkit.db``."""
    return Path(os.environ.get("ATTRKIT_DB") or "~/.attrkit/attrkit.db").expanduser()


def import_what_makes_a_database(path: str | os.PathLike[str] | None = None) -> None:
    """Where there is no file yet: now, since another thread could not while a program forks or ends."""
    if not Path(default_path() if path is None else path).expanduser().exists():
        importlib.import_module("sqlite_utils")


def open_database(path: str | os.PathLike[str] | None = None, *, error: type[AttrkitError] = StoreError) -> Database:
    """Open the file, or make it (mode 0600, its folder 0700), and bring its schema up to date.

    Parameters
    ----------
    path : path, optional
        ``":memory:"`` keeps everything in memory; by default :func:`default_path`.
    error : type
        What every failure is raised as.

    Raises
    ------
    StoreError or CacheError
        The file is not SQLite, another program's, of a newer attrkit, or cannot be written.
    """
    database = Database(default_path() if path is None else path, error=error)
    with database.reading():  # the first connection finds out what is wrong, if anything is
        return database


class Database:
    """One SQLite file with one connection per thread; in memory, one connection that threads take in turn."""

    def __init__(self, path: str | os.PathLike[str], *, error: type[AttrkitError] = StoreError) -> None:
        self.path = MEMORY if str(path) == MEMORY else str(Path(path).expanduser())
        self._error = error
        self._closed = False
        self._local: Any = _Anywhere() if self.path == MEMORY else threading.local()
        self._turn = threading.RLock() if self.path == MEMORY else contextlib.nullcontext()
        self._handles: weakref.WeakSet[_Handle] = weakref.WeakSet()

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection, seeing one state of the file throughout."""
        with self._transaction("BEGIN") as db:
            yield db

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """As :meth:`reading`, with the write lock held: all of it is kept, or nothing."""
        with self._queued(), self._transaction("BEGIN IMMEDIATE") as db:
            yield db

    def check(self) -> None:
        """Read the whole file and take the write lock; raises where it is damaged or cannot be written."""
        with self.reading() as db:
            found = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
        if found != "ok":
            raise self._error(f"{self.path} {_REMEDIES[sqlite3.SQLITE_CORRUPT]} ({found.splitlines()[-1]})")
        with self.writing():
            pass

    def n_bytes(self) -> int:
        """Size of the file and of the log that SQLite keeps beside it; in memory, of the pages."""
        if self.path == MEMORY:
            with self.reading() as db:
                return int(
                    db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]
                )
        files = (Path(self.path), Path(f"{self.path}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def release_pages(self) -> None:
        """Give the space of what was deleted back to the file system, where nobody is in the way."""
        with contextlib.suppress(self._error), self._queued(), GATE, self._translated(), self._turn:
            conn = self._connection()
            conn.executescript("PRAGMA incremental_vacuum")  # execute() would take a single step, which is one page
            if self.path != MEMORY:
                conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Close the connections of all threads; the database cannot be used afterwards."""
        self._closed = True
        for handle in list(self._handles):
            handle.close()

    @contextlib.contextmanager
    def _queued(self) -> Iterator[None]:
        if self.path == MEMORY:
            yield
            return
        turn = _WRITERS.setdefault(self.path, threading.Lock())
        if not turn.acquire(timeout=BUSY_SECONDS):
            raise self._error(f"{self.path} is locked by other threads of this process; try again")
        try:
            yield
        finally:
            turn.release()

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with GATE, self._translated(), self._turn:
            db = self._connection()
            db.execute(begin)
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # some errors have rolled back already
                    db.execute("ROLLBACK")
                raise

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise self._error(f"{self.path} was closed; open it again")
        handle: _Handle | None = getattr(self._local, "handle", None)
        if handle is None or handle.pid != os.getpid():
            if GATE.is_unsound:  # its locks may be held for ever, and what it thinks of a file's locks may be wrong
                raise self._error(
                    f"{self.path} cannot be used: this process was forked while a thread was using SQLite; start it "
                    "with spawn, or before that"
                )
            handle = _Handle(_connect(self.path), _identity(self.path))
            try:
                _prepare(handle.connection, self.path, self._error)
            except BaseException:
                handle.close()
                raise
            self._local.handle = handle
            self._handles.add(handle)
        elif handle.identity != _identity(self.path):  # SQLite would write on into a file that has no name any more
            raise self._error(f"{self.path} was moved, replaced or deleted while it was open; open it again")
        return handle.connection

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            remedy = _REMEDIES.get(code & 0xFF) if code is not None else None
            raise self._error(
                f"{self.path} {remedy or f'cannot be used ({error}); set ATTRKIT_DB to another file'}"
            ) from error
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"{self.path} cannot be created ({reason}); set ATTRKIT_DB to a file that can be written"
            raise self._error(message) from error


class _Anywhere:
    """Stands in for ``threading.local`` where all threads share one connection."""


class _Handle:
    """A thread's connection, closed when the thread ends, the database is closed or the program exits."""

    def __init__(self, connection: sqlite3.Connection, identity: tuple[int, int] | None) -> None:
        self.connection = connection
        self.identity = identity
        self.pid = os.getpid()
        self.close = weakref.finalize(self, _close, connection, self.pid)


def _close(connection: sqlite3.Connection, pid: int) -> None:
    if os.getpid() == pid:
        with GATE:
            connection.close()
    else:
        _ABANDONED.append(connection)


def _connect(path: str) -> sqlite3.Connection:
    if path != MEMORY:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # SQLite gives -wal and -shm the mode of the main file
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.text_factory = _decode
    return connection


def _identity(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - at every transaction, and a third of Path.stat's time
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")  # damaged text must not keep other rows from being read


def _prepare(conn: sqlite3.Connection, path: str, error: type[AttrkitError]) -> None:
    conn.execute("PRAGMA foreign_keys = ON")
    known = [conn.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    if known != [APPLICATION_ID, len(MIGRATIONS)]:
        _migrate(conn, path, error)
    conn.execute("PRAGMA synchronous = NORMAL")


def _migrate(conn: sqlite3.Connection, path: str, error: type[AttrkitError]) -> None:
    _check_owner(conn, path, error)
    conn.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has its effect only on a file that is still empty
    if path != MEMORY:
        _enable_wal(conn)
    conn.execute("BEGIN IMMEDIATE")
    try:
        version = _check_owner(conn, path, error)  # another process may have been faster
        for migration in MIGRATIONS[version:]:
            apply(migration, conn)
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        conn.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        conn.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            conn.execute("ROLLBACK")
        raise


def _check_owner(conn: sqlite3.Connection, path: str, error: type[AttrkitError]) -> int:
    # The owner last: whoever is making this database just now commits it together with the rest.
    n_tables = conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    version = int(conn.execute("PRAGMA user_version").fetchone()[0])
    owner = conn.execute("PRAGMA application_id").fetchone()[0]
    if owner != APPLICATION_ID and (n_tables or owner or version):
        raise error(f"{path} is another program's database; set ATTRKIT_DB to another file")
    if version > len(MIGRATIONS):
        raise error(
            f"{path} has schema version {version}, newer than the {len(MIGRATIONS)} of this attrkit; "
            "upgrade attrkit or set ATTRKIT_DB to another file"
        )
    return version


def _enable_wal(conn: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; SQLite does not wait for other openers here, so this does."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            conn.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def escape(text: str) -> str:
    """The text as it is stored."""
    return _UNSTORABLE.sub(lambda match: f"\x1a{ord(match[0]):04x}", text)


def unescape(stored: str, *, strict: bool = True) -> str:
    """The text that was stored.

    Raises
    ------
    ValueError
        ``strict``, and the file held bytes that are not UTF-8.
    """
    if strict and _SURROGATE.search(stored):
        raise ValueError("text is not valid UTF-8")
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), stored)


def insert(db: sqlite3.Connection, table: str, rows: Iterable[Mapping[str, Any]], *, key: Sequence[str] = ()) -> None:
    """Insert rows of equal columns, escaped; rows that share ``key`` with an older one overwrite what differs."""
    rows = list(rows)
    if not rows:
        return
    columns = list(rows[0])
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
    if key:
        updates = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in key)
        differs = " OR ".join(f"{table}.{column} IS NOT excluded.{column}" for column in columns if column not in key)
        sql += f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {updates} WHERE {differs}"
    db.executemany(sql, [[_storable(row[column]) for column in columns] for row in rows])


def select(db: sqlite3.Connection, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """All rows of a query; parameters are escaped, results are not yet unescaped."""
    found = db.execute(sql, [_storable(value) for value in parameters])
    columns = [column[0] for column in found.description]
    return [dict(zip(columns, row, strict=True)) for row in found]


def execute(db: sqlite3.Connection, sql: str, parameters: Sequence[Any] = ()) -> int:
    """Run one statement inside the caller's transaction; how many rows it touched."""
    return int(db.execute(sql, [_storable(value) for value in parameters]).rowcount)


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return escape(value)
    return value if value is None or isinstance(value, int | float | bytes) else str(value)
