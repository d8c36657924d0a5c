"""A fork while another thread is using SQLite: held back, or told to the child, whose copy of its state is unsound."""

from __future__ import annotations

import os
import threading

SECONDS = 1.0
"""How long a fork waits for threads that are using SQLite; they wait twice that for the fork."""


class Gate:
    """Lets any number of threads use SQLite at a time, and a fork happen while none does.

    A child would inherit the locks that another thread holds just then, SQLite's own and those of a database in memory,
    and wait for them for ever. ``is_unsound`` tells a child, and its children, that a thread of its parent was inside
    all the same: nobody there can set right what SQLite believes of itself.
    """

    def __init__(self) -> None:
        self.is_unsound = False
        self._start()

    def _start(self) -> None:
        self._changed = threading.Condition()
        self._n_inside = 0
        self._forking: int | None = None

    def __enter__(self) -> None:
        with self._changed:
            if self._forking is not None:
                self._changed.wait_for(lambda: self._forking in (None, threading.get_ident()), 2 * SECONDS)
            self._n_inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._changed:
            self._n_inside -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Before a fork: let nobody in, and wait for those inside."""
        with self._changed:
            self._forking = threading.get_ident()
            self._changed.wait_for(lambda: not self._n_inside, SECONDS)

    def open(self) -> None:
        """In the parent, after it."""
        with self._changed:
            self._forking = None
            self._changed.notify_all()

    def start_over(self) -> None:
        """In the child: its other threads, and what they held, are not there."""
        self.is_unsound = self.is_unsound or self._n_inside > 0
        self._start()


GATE = Gate()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=GATE.close, after_in_parent=GATE.open, after_in_child=GATE.start_over)
