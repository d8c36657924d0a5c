"""Where attrkit keeps what it derives from models, and what a file holds."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import platformdirs

CACHE_VARIABLE = "ATTRKIT_CACHE"


def cache_folder() -> Path:
    """The user's cache folder for attrkit; the environment variable ``ATTRKIT_CACHE`` overrides it."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("attrkit")


def file_digest(path: Path) -> str:
    """SHA-256 of the file's content, read once per (path, size, time of change)."""
    stat = path.stat()
    state = f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
    note = cache_folder() / "digests" / hashlib.sha256(state.encode()).hexdigest()
    with contextlib.suppress(OSError):
        known = note.read_text()
        if len(known) == 64:
            return known
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with contextlib.suppress(OSError):  # a cache that cannot be written costs time, nothing else
        note.parent.mkdir(parents=True, exist_ok=True)
        partial = note.with_suffix(f".{os.getpid()}")
        partial.write_text(digest)
        partial.replace(note)
    return digest
