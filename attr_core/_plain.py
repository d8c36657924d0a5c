"""Any value as plain JSON of its own: what is recorded shares nothing with the host that the host could change."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Mapping
from typing import Any

_PLAIN = frozenset({type(None), bool, str, float})
_DEEPEST = 64
_LONGEST_INTEGER = 10_000  # bits; Python refuses to write much longer ones in decimal


def plain(value: Any, depth: int = 0) -> Any:
    """``value`` as JSON can say it; what it cannot say becomes its ``repr``.

    Mapping keys become strings, tuples lists, numbers of other libraries Python's.
    """
    if type(value) in _PLAIN or isinstance(value, str):
        return value
    if type(value) is int and value.bit_length() < _LONGEST_INTEGER:
        return value
    if depth < _DEEPEST:  # deeper, or a structure that holds itself
        if isinstance(value, dict | Mapping):
            return {k if isinstance(k, str) else _safe_repr(k): plain(v, depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item, depth + 1) for item in value]
    with contextlib.suppress(Exception):
        if isinstance(value, numbers.Integral):
            whole = int(value)
            return whole if whole.bit_length() < _LONGEST_INTEGER else hex(whole)
        if isinstance(value, numbers.Real):
            return float(value)
    return _safe_repr(value)


def _safe_repr(value: Any) -> str:
    """``repr`` of anything, its class's name where that fails."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__qualname__}>"
