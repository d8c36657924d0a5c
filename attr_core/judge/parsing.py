"""A judge's answer -> the verdicts that it states, each in its cell; nothing that it does not state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from attr_core.judge._lines import is_refusal, read_lines
from attr_core.judge._objects import Found, json_values
from attr_core.judge._words import readable, verdict_of
from attr_core.results import SupportVerdict

__all__ = ["Stated", "answer_part", "json_entries", "parse_verdicts"]

Cell = tuple[int, int]

_REASONING = r"think|thinking|thought|thoughts|reasoning|reflection|analysis"
_OPENS = re.compile(rf"\s*(?:<({_REASONING})>|\[(think)\]|◁(think)▷)", re.IGNORECASE)
_CLOSES = re.compile(rf"</(?:{_REASONING})>|\[/think\]|◁/think▷", re.IGNORECASE)
_CHANNEL = re.compile(r"\s*(?:<\|start\|>\s*assistant)?\s*<\|channel\|>")
_FINAL = "<|channel|>final<|message|>"

_VERDICTS = ("verdict", "label", "judgment", "judgement", "relation", "answer")
_CLAIMS = ("claim", "claim_id", "claim_index", "claim_number", "statement")
_SEGMENTS = ("segment", "segment_id", "segment_index", "segment_number", "passage", "passage_id", "chunk", "document")
_WHYS = ("why", "reason", "rationale", "explanation")
_INNER = ("segments", "passages", "chunks")
_CONTAINERS = ("verdicts", "results", "answers", "items", "cells", "judgments", "judgements", "claims", "entries")
_CLAIM_NUMBER = re.compile(r"(?:claim|statement|c)?[\s_#]*(\d{1,6})", re.IGNORECASE)
_SEGMENT_NUMBER = re.compile(r"(?:segment|passage|chunk|document|s|p)?[\s_#]*(\d{1,6})", re.IGNORECASE)

_LONGEST_ANSWER = 200_000
_MARKS = " \t-•+*_`>#\"'“”‘’"
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Stated:
    """A verdict that an answer states, with the reason it gives (empty where it gives none)."""

    verdict: SupportVerdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    cell: Cell
    verdict: SupportVerdict | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Table:
    """What one JSON value says; a list of entries supersedes what came before it, where it says something of each."""

    entries: tuple[_Entry, ...]
    is_list: bool


def parse_verdicts(
    text: str,
    n_claims: int,
    n_segments: int,
    *,
    fence: str | None = None,
    quoted: Sequence[str] = (),
    is_cut: bool = False,
) -> dict[Cell, Stated]:
    """The verdicts in a judge's answer, by (claim, segment) counted from 0; a cell that is not stated is left out.

    JSON is read wherever it stands: after reasoning or other text, in fences, line by line, and where it breaks off as
    far as its entries are complete. Of several lists the last that has every cell counts, and what comes after it.
    Without JSON, numbered and labelled lines are read and, for a single cell, a few forms of sentence.

    A verdict is what stands where the verdict belongs, never a word in a reason or quotation, and never a number. What
    an answer says of one cell in two ways, or with an unknown word, it does not state; "no" is no verdict, since it
    leaves open whether the segment says the contrary or nothing. An answer that counts from 0 states nothing.

    Parameters
    ----------
    text : str
        The answer.
    n_claims, n_segments : int
        How many of each were asked about, numbered from 1.
    fence : str, optional
        The name of the tags around data in the prompt: what the answer repeats between them is not its own.
    quoted : sequence of str, optional
        The data itself: a line or JSON value that stands in it is not the answer's own either.
    is_cut : bool, default False
        Whether the answer ended for want of tokens: then its last line of prose is not read.

    Examples
    --------
    >>> parse_verdicts("1. entails: it says so\\n2. neutral, or contradicts", 1, 2)
    {(0, 0): Stated(verdict=<SupportVerdict.ENTAILS: 'entails'>, why='it says so')}
    >>> parse_verdicts("I would rate this 0.8.", 1, 1)
    {}
    """
    text = answer_part(text, fence=fence)
    data = [_folded(one) for one in quoted]
    tables: list[_Table] = []
    others: list[Found] = []
    for found in json_values(text, containers=_CONTAINERS):
        is_own = not _is_quotation(text[found.start : found.end], data)
        if is_own and (table := _table(found, n_claims, n_segments)).entries:
            tables.append(table)
        else:
            others.append(found)
    if tables:
        entries: Sequence[_Entry] = _last(tables, n_claims * n_segments)
    else:
        entries = _prose(_without(text, others), n_claims, n_segments, data, is_cut=is_cut)
    return _agreed(entries, n_claims, n_segments)


def answer_part(text: str, *, fence: str | None = None) -> str:
    """An answer without the reasoning before it and without the data that it repeats; empty where it is only that."""
    text = text[:_LONGEST_ANSWER].replace("\r\n", "\n")
    if fence:
        text = re.sub(rf"<{re.escape(fence)}\b[^>\n]*>.*?(?:</{re.escape(fence)}>|\Z)", "", text, flags=re.DOTALL)
    if _CHANNEL.match(text):
        return text.partition(_FINAL)[2]
    closing = _CLOSES.search(text)
    if _OPENS.match(text):
        return text[closing.end() :] if closing else ""
    if closing is None:
        return text
    before = text[: closing.start()]
    if "{" not in before and "[" not in before:
        return text[closing.end() :]
    # Either a reason that quotes the tag, or reasoning with drafts in it.
    values = json_values(text, containers=_CONTAINERS)
    return text if any(one.is_whole and one.start < closing.start() < one.end for one in values) else ""


def json_entries(text: str, *, fence: str | None = None) -> list[dict[str, Any]]:
    """The JSON objects in an answer's lists, or alone, that are complete; keys without case."""
    text = answer_part(text, fence=fence)
    values = (value for found in json_values(text, containers=_CONTAINERS) for value in found.values)
    return [entry for value in values for entry, _ in _objects(value, {})]


def _table(found: Found, n_claims: int, n_segments: int) -> _Table:
    entries: list[_Entry] = []
    for entry, given in (one for value in found.values for one in _objects(value, {})):
        claim, segment = (_number(entry, given, *keys) for keys in ((_CLAIMS, n_claims), (_SEGMENTS, n_segments)))
        if 0 in (claim, segment):  # who counts from 0 means another cell each time
            cells = product(range(1, n_claims + 1), range(1, n_segments + 1))
            return _Table(tuple(_Entry(cell, None) for cell in cells), is_list=True)
        if _is_entry(entry) or any(key in entry for key in (*_CLAIMS, *_SEGMENTS)):
            entries.append(_Entry((claim or 0, segment or 0), _verdict(entry), _why(entry)))
    is_alone = found.is_whole and isinstance(found.values[0], dict) and _is_entry(found.values[0])
    return _Table(tuple(entries), is_list=not is_alone)


def _objects(
    value: Any, given: Mapping[str, Any], depth: int = 0
) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """The entries of a value and of the lists under known keys, with what the objects around them say."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for item in value:
            yield from _objects(item, given, depth + 1)
    elif isinstance(value, dict):
        inner = [value[key] for key in (*_CONTAINERS, *_INNER) if isinstance(value.get(key), list | dict)]
        if _is_entry(value) or not inner:
            yield value, given
        for one in inner:
            yield from _objects(one, {**given, **value}, depth + 1)


def _is_entry(value: Mapping[str, Any]) -> bool:
    return any(key in value and not isinstance(value[key], list | dict) for key in _VERDICTS)


def _number(entry: Mapping[str, Any], given: Mapping[str, Any], keys: Sequence[str], n: int) -> int | None:
    """Which claim or segment an entry is of; ``None`` where it is none of those asked about, 0 where it counts so."""
    named = [source[key] for source in (entry, given) for key in keys if key in source]
    if not named:
        return 1 if n == 1 else None
    numbers = {_read_number(one, keys) for one in named}
    if 0 in numbers:
        return 0
    number = numbers.pop() if len(numbers) == 1 else None
    return number if number is not None and number <= n else None


def _read_number(value: Any, keys: Sequence[str]) -> int | None:
    if isinstance(value, str):
        found = (_CLAIM_NUMBER if keys is _CLAIMS else _SEGMENT_NUMBER).fullmatch(value.strip())
        return int(found[1]) if found else None
    return value if type(value) is int and value >= 0 else None


def _verdict(entry: Mapping[str, Any]) -> SupportVerdict | None:
    given = [entry[key] for key in _VERDICTS if key in entry]
    read = {verdict_of(one) if isinstance(one, str) else None for one in given}
    return read.pop() if len(read) == 1 else None


def _why(entry: Mapping[str, Any]) -> str:
    return next((readable(entry[key]) for key in _WHYS if isinstance(entry.get(key), str)), "")


def _last(tables: Sequence[_Table], n_cells: int) -> list[_Entry]:
    """The entries from the last list on that has every cell, or of all tables where none has."""
    begins = 0
    for index, table in enumerate(tables):
        stated = {entry.cell for entry in table.entries if entry.verdict is not None}
        if table.is_list and len(stated) == n_cells:
            begins = index
    return [entry for table in tables[begins:] for entry in table.entries]


def _prose(text: str, n_claims: int, n_segments: int, data: Sequence[str], *, is_cut: bool) -> list[_Entry]:
    if is_refusal(text):
        return []
    if (n_claims, n_segments) == (1, 1) and not is_cut and (verdict := verdict_of(text)) is not None:
        return [_Entry((1, 1), verdict)]
    lines = text.split("\n")
    own = ["" if _is_quotation(line.strip(_MARKS), data) else line for line in (lines[:-1] if is_cut else lines)]
    entries = [_Entry(one.cell, one.verdict, readable(one.why)) for one in read_lines(own, n_claims, n_segments)]
    return [] if any(0 in entry.cell for entry in entries) else entries


def _agreed(entries: Sequence[_Entry], n_claims: int, n_segments: int) -> dict[Cell, Stated]:
    found: dict[Cell, list[_Entry]] = {}
    for entry in entries:
        claim, segment = entry.cell
        if 1 <= claim <= n_claims and 1 <= segment <= n_segments:
            found.setdefault((claim - 1, segment - 1), []).append(entry)
    stated = {}
    for cell, said in sorted(found.items()):
        verdict = said[0].verdict
        if verdict is not None and all(one.verdict == verdict for one in said):
            stated[cell] = Stated(verdict, next((one.why for one in said if one.why), ""))
    return stated


def _is_quotation(piece: str, data: Sequence[str]) -> bool:
    """Whether a JSON value, or a line of two words or more, stands in the data as it is."""
    if piece[:1] in ("{", "["):
        return any("".join(piece.casefold().split()) in one.replace(" ", "") for one in data)
    line = re.compile(rf"(?<!\w){re.escape(_folded(piece))}(?!\w)")
    return len(piece.split()) > 1 and any(line.search(one) for one in data)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _without(text: str, found: Sequence[Found]) -> str:
    kept, position = [], 0
    for one in found:
        kept.append(text[position : one.start])
        position = one.end
    return "".join(kept) + text[position:]
