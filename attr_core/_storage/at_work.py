"""Who is attributing which trace, told to other processes by locks that end with the process that holds them.

A lock in the database would outlive a killed process, and somebody would have to guess when it is stale.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator

from attr_core._storage.database import MEMORY

try:
    import fcntl
except ImportError:  # a system without POSIX locks: a trace may then be attributed twice
    fcntl = None  # type: ignore[assignment]

_HELD = (errno.EACCES, errno.EAGAIN)


class AtWork:
    """The traces of one database that a process is at work on.

    The locks are a process's, not a thread's, and lie on bytes of an empty file beside the database. They keep double
    work away where they work; nothing breaks where they do not.
    """

    def __init__(self, database: str) -> None:
        self._path = None if database == MEMORY or fcntl is None else f"{database}-work"

    @contextlib.contextmanager
    def on(self, trace_id: str) -> Iterator[bool]:
        """Be at work on a trace; whether no other process is."""
        with contextlib.ExitStack() as stack:
            yield self._is_mine(trace_id, stack)

    def _is_mine(self, trace_id: str, stack: contextlib.ExitStack) -> bool:
        if self._path is None:
            return True
        try:
            file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, file)
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(trace_id))
        except OSError as error:  # else a folder that takes no file, or a file system without locks
            return error.errno not in _HELD
        return True


def _byte(trace_id: str) -> int:
    return int.from_bytes(hashlib.sha256(trace_id.encode("utf-8", "surrogatepass")).digest()[:7])
