"""Measured values by content: what was sent, to which engine, decides the key, so measuring again is free.

It keeps what was measured (token log-probabilities, texts, vectors), never what was derived from it. Nothing of
attrkit's own (metadata, segment ids) enters a key.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeVar

from attr_core._storage import measurements
from attr_core._storage.database import execute, insert, open_database, select
from attr_core.errors import CacheError, ConfigurationError, InputError
from attr_core.protocols import Completion, GateScores, Sampling, TokenScores
from attr_core.results import FloatArray
from attr_core.types import Prompt

__all__ = ["DEFAULT_MAX_BYTES", "Cache", "CacheStats", "cache_key"]

DEFAULT_MAX_BYTES = 1_000_000_000
"""Size of the stored values; ``ATTRKIT_CACHE_MAX_BYTES`` overrides it."""

KEY_VERSION = 1
"""Part of every key; raised when what a key stands for changes."""

_ROW_OVERHEAD = 160  # bytes that SQLite spends on a row beside its value: the key twice, columns, index entries
_TOUCH_SECONDS = 60.0  # a reader notes the use of an entry at most this often, so that reading rarely writes
_PRUNE_TO = 0.9  # a full cache makes room for a while, not for one entry
_LISTED = "(SELECT value FROM json_each(?))"
_T = TypeVar("_T")
_now: Callable[[], float] = time.time


def cache_key(
    kind: str,
    fingerprint: str,
    prompt: Prompt | str,
    *,
    continuation: str | None = None,
    sampling: Sampling | None = None,
    repeat: int = 0,
    detail: Any = None,
) -> str:
    """SHA-256 over exactly what is sent and to whom.

    Parameters
    ----------
    kind : str
        What is measured: ``"score"``, ``"score_hidden"``, ``"gate_gradients"``, ``"generate"``, ``"embed"``.
    fingerprint : str
        The engine's.
    prompt : Prompt or str
        The messages and tool schemas as chat APIs take them, in their order (templates print schemas as they come); a
        plain text where that is what is sent (embeddings).
    continuation : str, optional
        The text that is scored.
    sampling : Sampling, optional
        The parameters of a generation.
    repeat : int
        Tells apart several generations of one prompt.
    detail : plain JSON, optional
        What else decides the measurement: the spans that are hidden, the gates.

    Raises
    ------
    InputError
        A tool schema holds what JSON cannot say.
    """
    sent = prompt if isinstance(prompt, str) else {"messages": prompt.to_chat(), "tools": list(prompt.tools)}
    parameters = None if sampling is None else asdict(sampling) | {"temperature": float(sampling.temperature)}
    if parameters is not None and parameters["schema"] is None:
        del parameters["schema"]  # as keys were before there were schemas
    parts = [KEY_VERSION, kind, fingerprint, sent, continuation, parameters, repeat]
    parts += [] if detail is None else [detail]
    try:
        canonical = json.dumps(parts, ensure_ascii=False, separators=(",", ":"), default=_mapping)
    except (TypeError, ValueError) as error:
        raise InputError(f"the prompt cannot be sent as JSON ({error}); use plain values in tool schemas") from error
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class CacheStats:
    """``n_bytes`` is what counts against ``max_bytes``; ``kinds`` says how many entries there are of each."""

    n_entries: int
    n_bytes: int
    max_bytes: int
    kinds: Mapping[str, int]


class Cache:
    """Measured values in SQLite, by :func:`cache_key`; usable from any thread and from several processes at once.

    Getters return what is there, one query for all keys; a damaged entry counts as absent. Putters write all entries
    in one transaction and, past ``max_bytes``, remove the least recently used ones.

    What was measured was paid for. Where the file fails once it is open (disk full, locked, damaged), that is said
    once, as a :class:`RuntimeWarning`; values stay in memory, are found there, and are written as soon as the file
    takes them, with a last try on closing.

    Parameters
    ----------
    path : path, optional
        As for :class:`attr_core.store.Store`, whose file it shares by default.
    max_bytes : int, optional
        Size cap of the values; by default ``ATTRKIT_CACHE_MAX_BYTES``, else 1 GB.

    Raises
    ------
    CacheError
        The file is not attrkit's database, or cannot be written.
    ConfigurationError
        The cap is not a non-negative whole number.

    Examples
    --------
    >>> from attr_core.types import Message
    >>> key = cache_key("generate", "test:scripted", Prompt((Message("user", "Say yes."),)), sampling=Sampling())
    >>> with Cache(":memory:") as cache:
    ...     cache.put_completions({key: Completion("yes")})
    ...     cache.get_completions([key, "another"])[key].text
    'yes'
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, max_bytes: int | None = None) -> None:
        self.max_bytes = _cap(max_bytes)
        self._database = open_database(path, error=CacheError)
        self._room = 0  # bytes that may be written before the size is looked up again
        self._unwritten: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._trouble: str | None = None

    @property
    def path(self) -> str:
        """The file, or ``":memory:"``."""
        return self._database.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def trouble(self) -> str | None:
        """Why values are kept in memory only; ``None`` while the file takes them."""
        return self._trouble

    def close(self) -> None:
        """Write what the file did not take before, if it does now, and close the connections of all threads."""
        if not self._database.is_closed and self._unwritten:
            self._write([])
        self._database.close()

    def get_scores(self, keys: Iterable[str]) -> dict[str, TokenScores]:
        """Token log-probabilities of the keys that are known, exactly as they were put."""
        return self._get("scores", keys, measurements.read_scores)

    def put_scores(self, scores: Mapping[str, TokenScores]) -> None:
        """Keep token log-probabilities."""
        self._put("scores", scores, measurements.write_scores)

    def get_completions(self, keys: Iterable[str]) -> dict[str, Completion]:
        """Completions of the keys that are known."""
        return self._get("completions", keys, measurements.read_completion)

    def put_completions(self, completions: Mapping[str, Completion]) -> None:
        """Keep completions."""
        self._put("completions", completions, measurements.write_completion)

    def get_vectors(self, keys: Iterable[str]) -> dict[str, FloatArray]:
        """Embeddings ``(dim,)``, float64, of the keys that are known, exactly as they were put."""
        return self._get("vectors", keys, measurements.read_vector)

    def put_vectors(self, vectors: Mapping[str, FloatArray]) -> None:
        """Keep embeddings ``(dim,)``."""
        self._put("vectors", vectors, measurements.write_vector)

    def get_gates(self, keys: Iterable[str]) -> dict[str, GateScores]:
        """Targets at rows of gates of the keys that are known, exactly as they were put."""
        return self._get("gates", keys, measurements.read_gates)

    def put_gates(self, scores: Mapping[str, GateScores]) -> None:
        """Keep targets at rows of gates."""
        self._put("gates", scores, measurements.write_gates)

    def stats(self) -> CacheStats:
        """How much is kept."""
        sql = "SELECT kind, count(*) AS n, sum(size) AS size FROM measurements GROUP BY kind ORDER BY kind"
        with self._database.reading() as db:
            rows = select(db, sql)
        return CacheStats(
            n_entries=sum(row["n"] for row in rows),
            n_bytes=sum(row["size"] for row in rows),
            max_bytes=self.max_bytes,
            kinds={row["kind"]: row["n"] for row in rows},
        )

    def clear(self) -> int:
        """Remove all measured values, not the traces; how many there were."""
        return self.prune(max_bytes=0)

    def prune(self, *, max_bytes: int | None = None) -> int:
        """Remove the least recently used values until the rest fits in ``max_bytes`` (by default the cache's cap).

        Returns
        -------
        int
            How many were removed.
        """
        target = self.max_bytes if max_bytes is None else _cap(max_bytes)
        with self._database.writing() as db:
            n_removed = _remove_oldest(db, target)
        self._database.release_pages()
        return n_removed

    def _get(self, kind: str, keys: Iterable[str], read: Callable[[bytes], _T]) -> dict[str, _T]:
        keys = list(dict.fromkeys(keys))
        wanted = json.dumps(keys)  # one variable however many keys: SQLite limits their number
        sql = f"SELECT key, value, checksum, used_at FROM measurements WHERE kind = ? AND key IN {_LISTED}"  # noqa: S608
        rows: list[dict[str, Any]] = []
        with self._outlived(), self._database.reading() as db:
            rows = select(db, sql, [kind, wanted])
        with self._lock:
            held = [self._unwritten[key] for key in keys if key in self._unwritten]
        rows += [row for row in held if row["kind"] == kind]
        found = {}
        for row in rows:
            if isinstance(row["value"], bytes) and _checksum(row["key"], row["value"]) == row["checksum"]:
                with contextlib.suppress(KeyError, TypeError, ValueError):  # damaged: measured again, overwritten then
                    found[row["key"]] = read(row["value"])
        now = _now()
        self._touch([row["key"] for row in rows if row["key"] in found and row["used_at"] < now - _TOUCH_SECONDS], now)
        return found

    def _touch(self, keys: list[str], now: float) -> None:
        if keys:
            with contextlib.suppress(CacheError), self._database.writing() as db:  # what was found is good without it
                sql = f"UPDATE measurements SET used_at = ? WHERE key IN {_LISTED}"  # noqa: S608
                execute(db, sql, [now, json.dumps(keys)])

    def _put(self, kind: str, values: Mapping[str, _T], write: Callable[[_T], bytes]) -> None:
        if not values:
            return
        blobs = {key: write(value) for key, value in values.items()}
        now = _now()
        rows = [
            {
                "key": key,
                "kind": kind,
                "value": blob,
                "checksum": _checksum(key, blob),
                "size": len(blob) + _ROW_OVERHEAD,
                "used_at": now,
            }
            for key, blob in blobs.items()
        ]
        self._write(rows)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        """Write rows and those that could not be written before, or hold them all."""
        with self._lock:
            self._unwritten.update((row["key"], row) for row in rows)
            waiting = list(self._unwritten.values())
        with self._outlived():
            with self._database.writing() as db:
                insert(db, "measurements", waiting, key=("key",))
                room = self._room - sum(row["size"] for row in waiting)
                if room < 0:
                    if _size(db) > self.max_bytes:
                        _remove_oldest(db, int(self.max_bytes * _PRUNE_TO))
                    room = (self.max_bytes - _size(db)) // 8  # other processes write into the same file
            self._room = room
            self._trouble = None
            with self._lock:
                for row in waiting:
                    if self._unwritten.get(row["key"]) is row:
                        del self._unwritten[row["key"]]

    @contextlib.contextmanager
    def _outlived(self) -> Iterator[None]:
        """Note a failure of the file and say it once, instead of losing what was measured."""
        try:
            yield
        except CacheError as error:
            if self._database.is_closed:
                raise
            first, self._trouble = self._trouble is None, str(error)
            if first:
                with contextlib.suppress(Warning):  # one that is an error for the host must not stop the measuring
                    warnings.warn(f"attrkit: measured values stay in memory: {error}", RuntimeWarning, stacklevel=5)


def _cap(max_bytes: int | None) -> int:
    given = os.environ.get("ATTRKIT_CACHE_MAX_BYTES") if max_bytes is None else str(max_bytes)
    if not given:
        return DEFAULT_MAX_BYTES
    if not given.isdecimal():
        raise ConfigurationError(f"cache size {given!r} is not a whole number of bytes; write for example 1000000000")
    return int(given)


def _size(db: sqlite3.Connection) -> int:
    return int(select(db, "SELECT coalesce(sum(size), 0) AS size FROM measurements")[0]["size"])


def _remove_oldest(db: sqlite3.Connection, max_bytes: int) -> int:
    sql = """DELETE FROM measurements WHERE key IN (
        SELECT key FROM (
            SELECT key, sum(size) OVER (ORDER BY used_at DESC, rowid DESC ROWS UNBOUNDED PRECEDING) AS total
            FROM measurements)
        WHERE total > ?)"""
    return execute(db, sql, [max_bytes])


def _checksum(key: str, blob: bytes) -> int:
    return zlib.crc32(blob, zlib.crc32(key.encode("utf-8", "surrogatepass")))


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
