"""What columns of an evaluation set mean: the names of several tools, never guessed silently.

A set is read by one convention, chosen over all its columns. Where no convention covers them, each column is taken by
itself, if its name means the same in every convention that has it. What stays open is an error that names the columns
and the option that settles them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from attr_core.errors import ConfigurationError, DatasetError

__all__ = ["CONVENTIONS", "OURS", "FieldMap", "map_fields", "parse_choices"]

OURS = ("id", "query", "expected_answer", "expected_chunks", "tags", "answer", "contexts", "metadata")
"""Names of a :class:`~attr_core.evaluation.rows.Row`'s fields, all of which an option may settle."""

_IDS = {"context_ids": "contexts", "expected_chunk_ids": "expected_chunks"}
"""What beside ``OURS`` a column may be -> the field whose ids it gives."""

_SEVERAL = "several tools'"

_OPEN = "?"
"""A name that its own tool uses in two ways."""

_ANY = {name: name for name in ("id", "tags", "metadata", "expected_answer", "expected_chunks")}
"""Ours, and in no tool's way."""

CONVENTIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "attrkit": {name: name for name in OURS},
        "raglens": {
            "query": "query",
            "answer": "answer",
            "chunks": "contexts",
            "reference": "expected_answer",
            "expected_answer": "expected_answer",
        },
        "ragas": {
            "user_input": "query",
            "response": "answer",
            "retrieved_contexts": "contexts",
            "retrieved_context_ids": "context_ids",
            "reference": "expected_answer",
            "reference_contexts": "expected_chunks",
            "reference_context_ids": "expected_chunk_ids",
        },
        "ragas 0.1": {
            "question": "query",
            "answer": "answer",
            "contexts": "contexts",
            "ground_truth": "expected_answer",
            "ground_truths": "expected_answer",
        },
        "DeepEval": {
            "input": "query",
            "actual_output": "answer",
            "expected_output": "expected_answer",
            "retrieval_context": "contexts",
            "context": "expected_chunks",
        },
        "RAGChecker": {
            "query_id": "id",
            "query": "query",
            "gt_answer": "expected_answer",
            "response": "answer",
            "retrieved_context": "contexts",
        },
        "Haystack": {
            "questions": "query",
            "predicted_answers": "answer",
            "contexts": "contexts",
            "retrieved_documents": "contexts",
            "ground_truth_answers": "expected_answer",
            "ground_truth_documents": "expected_chunks",
        },
        "Phoenix": {"input": "query", "output": "answer", "context": "contexts", "reference": _OPEN},
        "MLflow": {
            "inputs": "query",
            "outputs": "answer",
            "expectations": "expected_answer",
            "request_id": "id",
        },
        "Azure": {
            "query": "query",
            "response": "answer",
            "context": "contexts",
            "ground_truth": "expected_answer",
        },
    }
)
"""Tool -> its name of a column -> what that is here."""

_CONTEXT_LIKE = frozenset(
    {"context", "contexts", "chunk", "chunks", "passage", "passages", "document", "documents", "doc", "docs"}
    | {"retrieved", "retrieval", "evidence", "snippet", "snippets", "node", "nodes", "source", "sources", "excerpts"}
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class FieldMap:
    """Column -> field, by the convention of ``tool``; ``left`` are columns that go to the metadata."""

    tool: str
    columns: Mapping[str, str]
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        """One line that says how the columns were read."""
        said = [column if column == ours else f"{column} -> {ours}" for column, ours in self.columns.items()]
        said += [f"{', '.join(self.left)} -> metadata"] if self.left else []
        return f"read as {self.tool} rows: {', '.join(said)}"

    @property
    def is_plain(self) -> bool:
        """Whether every column has our own name."""
        return all(column == ours for column, ours in self.columns.items()) and not self.left

    def column(self, ours: str) -> str | None:
        """The column that is that field."""
        return next((column for column, found in self.columns.items() if found == ours), None)


def parse_choices(choices: Iterable[str]) -> dict[str, str]:
    """Column -> field, out of ``query=question`` as the option ``--field`` takes it.

    Raises
    ------
    ConfigurationError
        Another shape, no such field, or one column twice.
    """
    found: dict[str, str] = {}
    for choice in choices:
        ours, equals, column = (part.strip() for part in choice.partition("="))
        if not equals or not column or ours not in OURS:
            raise ConfigurationError(f"--field {choice!r} is not FIELD=COLUMN; FIELD is one of {', '.join(OURS)}")
        if column in found:
            raise ConfigurationError(f"--field settles column {column!r} twice; give it once")
        found[column] = ours
    return found


def map_fields(columns: Sequence[str], *, chosen: Mapping[str, str] | None = None, where: str = "the rows") -> FieldMap:
    """What each column is; settled once for a whole set.

    Parameters
    ----------
    columns : sequence of str
        All that occur in the set.
    chosen : mapping, optional
        Column -> field, settled by the caller.
    where : str
        What the message of an error begins with.

    Raises
    ------
    DatasetError
        Two columns are the same field, the query is missing, a name may mean two things, or what looks like context is
        not known.

    Examples
    --------
    >>> print(map_fields(["user_input", "response", "retrieved_contexts"]))
    read as ragas rows: user_input -> query, response -> answer, retrieved_contexts -> contexts
    """
    settled = dict(chosen or {})
    if missing := [column for column in settled if column not in columns]:
        raise DatasetError(f"{where} have no column {missing[0]!r}; {_seen(columns)}")
    others = [column for column in columns if column not in settled]
    taken = {ours for ours in settled.values() if ours != "metadata"}
    tool, found = _by_convention(others, taken, where, columns)
    mapping = {column: {**found, **settled}[column] for column in columns if column in found or column in settled}
    _refuse_two(mapping, where, columns)
    if "query" not in mapping.values():
        raise DatasetError(f"{where} have no question; {_seen(columns)}; say which one by --field query=NAME")
    left = tuple(column for column in columns if column not in mapping)
    if "contexts" not in mapping.values() and (unknown := [one for one in left if _is_context_like(one)]):
        raise DatasetError(
            f"{where} have {_named(unknown)}, which may be the context and is not known; {_seen(columns)}; say so by "
            f"--field contexts={unknown[0]}, or --field metadata={unknown[0]} where it is not"
        )
    return FieldMap(tool, MappingProxyType(mapping), left)


def _by_convention(
    columns: Sequence[str], taken: set[str], where: str, seen: Sequence[str]
) -> tuple[str, dict[str, str]]:
    """The convention that has all columns which any convention has, or each column by itself."""
    known = [column for column in columns if column in _MEANINGS or column in _ANY]
    fitting: dict[str, dict[str, str]] = {}
    for tool, names in CONVENTIONS.items():
        both = {**_ANY, **names}
        if all(column in both for column in known):
            fitting[tool] = {column: both[column] for column in known}
    full = {tool: found for tool, found in fitting.items() if {"query"} <= {*found.values()} | taken}
    ways = {tuple(found.items()) for found in (full or fitting).values()}
    if len(ways) == 1:
        tool, found = next(iter((full or fitting).items()))
        _refuse_open({column: {ours} for column, ours in found.items()}, where, seen)
        return tool, found
    meanings = {column: _MEANINGS.get(column, set()) | {*filter(None, [_ANY.get(column)])} for column in known}
    if not {"input", "output"} & set(columns):  # elsewhere than in Phoenix's rows the name is clear
        meanings = {column: means - {_OPEN} for column, means in meanings.items()}
    _refuse_open(meanings, where, seen)
    return _SEVERAL, {column: next(iter(means)) for column, means in meanings.items()}


def _refuse_open(meanings: Mapping[str, set[str]], where: str, seen: Sequence[str]) -> None:
    for column, means in meanings.items():
        if len(means) > 1 or _OPEN in means:
            may_be = sorted(means - {_OPEN} or {"contexts", "expected_answer"})
            ways = " or ".join(f"--field {ours}={column}" for ours in may_be)
            raise DatasetError(f"{where} have {column!r}, which tools use in several ways; {_seen(seen)}; say {ways}")


def _refuse_two(mapping: Mapping[str, str], where: str, seen: Sequence[str]) -> None:
    names: dict[str, list[str]] = defaultdict(list)
    for column, ours in mapping.items():
        if ours != "metadata":
            names[ours].append(column)
    for ours, several in names.items():
        if len(several) > 1:
            field = _IDS.get(ours, ours)
            raise DatasetError(
                f"{where} have {_named(several)}, which are both {ours}; {_seen(seen)}; leave one out, or say which by "
                f"--field {field}={several[0]} --field metadata={several[1]}"
            )


def _is_context_like(column: str) -> bool:
    return any(word.casefold() in _CONTEXT_LIKE for word in _WORD.findall(column))


def _seen(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return f"its fields are {', '.join(column[:60] for column in columns[:_SHOWN]) or 'none'}{more}"


def _named(columns: Sequence[str]) -> str:
    return " and ".join(repr(column[:60]) for column in columns[:3])


def _meanings() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for names in CONVENTIONS.values():
        for column, ours in names.items():
            found[column].add(ours)
    return dict(found)


_MEANINGS = _meanings()
