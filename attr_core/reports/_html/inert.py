"""Text that does nothing in a page: no control characters, overrides of direction or lone surrogates."""

from __future__ import annotations

import re
from typing import Any

_BLANK = re.compile("[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def inert(value: Any) -> Any:
    """``value``, in a text each such character replaced by U+FFFD or a blank; no offset moves.

    Markup that was escaped already (``__html__``) and what is no text stay as they are.
    """
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return _UNSEEN.sub("\ufffd", _BLANK.sub(" ", value))
