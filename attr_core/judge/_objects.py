"""A model's answer -> the JSON in it: complete values, and of a value that breaks off the entries that are complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_OPENER = re.compile(r'\{\s*(?:"|\})|\[\s*(?:\{|\])')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_KEY_BEFORE = re.compile(r'"([^"\\]{1,40})"\s*:\s*\Z')
_QUOTES = frozenset("\"'“”‘’«»")
_PAIRS = {"}": "{", "]": "["}
_FAR_ENOUGH = 60


@dataclass(frozen=True, slots=True)
class Found:
    """A JSON value in ``text[start:end]``; ``values`` are itself, or the entries that are left of a broken one."""

    start: int
    end: int
    values: tuple[Any, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Object:
    start: int
    end: int
    inside: tuple[tuple[str, int], ...]


def json_values(text: str, *, containers: Sequence[str]) -> Iterator[Found]:
    """The JSON values of a text, in order; what stands in quotation marks is none.

    Parameters
    ----------
    text : str
    containers : sequence of str
        Keys whose list may break off: the objects in it that are complete are entries.
    """
    at = 0
    while opener := _OPENER.search(text, at):
        start = opener.start()
        at, is_closed, objects = _walk(text, start)
        if start and text[start - 1] in _QUOTES:
            continue
        whole = _loaded(text[start:at]) if is_closed else None
        if whole is not None:
            yield Found(start, at, (whole,), is_whole=True)
            continue
        entries = (_loaded(text[one.start : one.end]) for one in objects if _is_entry(text, one, containers))
        yield Found(start, at, tuple(entry for entry in entries if entry is not None), is_whole=False)


def _walk(text: str, start: int) -> tuple[int, bool, list[_Object]]:
    """Where the value ends that begins at ``start``, whether it is closed there, and the objects in it."""
    stack: list[tuple[str, int]] = []
    objects: list[_Object] = []
    for token in _TOKEN.finditer(text, start):
        mark = token[0]
        if mark in ("{", "["):
            stack.append((mark, token.start()))
        elif mark in _PAIRS:
            kind, begin = stack.pop()
            if kind != _PAIRS[mark]:
                return token.end(), False, objects
            if kind == "{" and len(stack) <= 2:
                objects.append(_Object(begin, token.end(), tuple(stack)))
            if not stack:
                return token.end(), True, objects
    return len(text), False, objects


def _is_entry(text: str, one: _Object, containers: Sequence[str]) -> bool:
    """Whether an object stands in the outermost list, itself at most in one object and there under a known key."""
    kinds = "".join(kind for kind, _ in one.inside)
    if kinds == "{[":
        opened = one.inside[1][1]
        key = _KEY_BEFORE.search(text[max(one.inside[0][1], opened - _FAR_ENOUGH) : opened])
        return key is not None and key[1].casefold() in containers
    return kinds in ("", "[")


def _loaded(source: str) -> Any:
    try:
        return json.loads(source, strict=False, object_pairs_hook=_pairs)
    except (ValueError, RecursionError):
        return None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Keys without case; one that is given twice, and differently, has no value that anybody reads."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        name = key.strip().casefold()
        made[name] = value if name not in made or made[name] == value else ...
    return made
