"""What of a call's options may be kept: plain values, without anything that opens a door."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

_SECRET = re.compile(
    r"(^|_)((api|access|secret|private)?_?keys?|token(?!_ids?($|_))|secrets?|passw(or)?ds?|passphrase|username"
    r"|credentials?|authorization|auth|headers?|cookies?|connection_string)($|_)"
)
_VERBATIM = frozenset({"functions", "response_format"})  # schemas, whose fields may well be named "token"
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SHORTEST_SECRET = 8  # shorter values would blank ordinary words of an error message


def without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options whose names are no secret's, at any depth; objects, functions and classes are left out.

    Addresses lose user, password and query.
    """
    return {
        str(key): copy.deepcopy(value) if key in _VERBATIM else _clean(value)
        for key, value in options.items()
        if _is_kept(key, value)
    }


def masked(text: str, options: Mapping[str, Any]) -> str:
    """``text`` with the values of secret options blanked."""
    for secret in sorted(set(_secrets(options)), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _is_kept(name: Any, value: Any) -> bool:
    return not is_secret(str(name)) and isinstance(value, int | float | str | list | tuple | Mapping | None)


def is_secret(name: str) -> bool:
    """Whether an option of that name holds a secret (``max_tokens`` does not, ``hf_token`` does)."""
    return _SECRET.search(_WORD_START.sub("_", name).lower().replace("-", "_")) is not None


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value)
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value if _is_kept("", item)]
    if isinstance(value, str) and _ADDRESS.match(value):
        return _bare_address(value)
    return value


def _bare_address(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return "***"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _secrets(value: Any, secret: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, secret or is_secret(str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, secret)
    elif secret and isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
        yield value
