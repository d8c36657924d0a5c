"""What stands between the host and attrkit: a fault of ours must not reach it, and our own calls are not its runs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

__all__ = ["Complaints", "is_paused", "safely"]

is_paused: ContextVar[bool] = ContextVar("attrkit_paused", default=False)
"""Whether nothing is recorded just here, since it is attrkit that calls a model."""


class Complaints:
    """Says each kind of trouble once, as a :class:`RuntimeWarning` that never becomes an exception.

    Without locks: it is also called by the garbage collector, in the middle of anything, and in a forked child.
    """

    def __init__(self) -> None:
        self._said: dict[str, object] = {}

    def say(self, kind: str, text: str) -> None:
        mine = object()
        if self._said.setdefault(kind, mine) is mine:
            with contextlib.suppress(Exception):  # a host may have turned warnings into errors
                warnings.warn(f"attrkit: {text}", RuntimeWarning, stacklevel=5)

    def of_redactor(self, error: Exception) -> None:
        """Without its text: an error of a redactor may well quote what it could not redact."""
        self.say("redact", f"the redactor failed ({type(error).__name__}); what it was given is not stored")


def safely(complaints: Complaints, step: Callable[..., Any], *args: Any, default: Any = None) -> Any:
    """What ``step(*args)`` gives; where it fails, ``default``, and a warning once.

    ``KeyboardInterrupt`` and its like are the host's and go through.
    """
    try:
        return step(*args)
    except Exception as error:
        with contextlib.suppress(Exception):  # even an exception's text can fail
            reason = f"{type(error).__name__}: {error}"
            complaints.say("failure", f"a call could not be recorded ({reason}); the call itself is not affected")
        return default
