"""A run over a set as it is stored: its rows, and what can be asked of them."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attr_core._optional import require
from attr_core._storage.evaluations import Evaluations, StoredRun
from attr_core.errors import ConfigurationError, StoreError
from attr_core.evaluation.blame import Blame, FailureGroup, blame, grouped
from attr_core.evaluation.compare import Comparison, compare
from attr_core.evaluation.segments import GOOD
from attr_core.evaluation.summary import Summary, summarise
from attr_core.results import Diagnosis
from attr_core.support.scores import Score

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA", "EvaluationRun", "RowResult", "load_run", "open_run"]

SCHEMA = "attrkit.evaluation/1"
"""Of :meth:`EvaluationRun.to_dict`."""


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row of a run: ``status`` is ``done``, ``failed``, or ``answered`` where it is still to be diagnosed.

    ``scores`` are the metrics by name; ``segments`` what became of each segment
    (:func:`attr_core.evaluation.segments.segment_uses`), ``idle`` what those without effect cost. ``own_prompt`` tells
    whether the prompt is the application's own, not one put together from question and chunks.
    """

    id: str
    position: int
    status: str
    query: str = ""
    answer: str | None = None
    expected: str | None = None
    tags: tuple[str, ...] = ()
    trace_id: str | None = None
    error: str | None = None
    seconds: float | None = None
    diagnosis: Diagnosis | None = None
    scores: Mapping[str, Score] = field(default_factory=dict)
    segments: tuple[Mapping[str, Any], ...] = ()
    idle: Mapping[str, Any] | None = None
    own_prompt: bool = True

    @property
    def label(self) -> str | None:
        """Of the diagnosis; ``None`` where there is none."""
        return None if self.diagnosis is None else self.diagnosis.label

    @property
    def outcome(self) -> str | None:
        """What the answer amounts to; ``None`` where it was not diagnosed."""
        return None if self.diagnosis is None else self.diagnosis.outcome

    @property
    def is_right(self) -> bool | None:
        """Whether nothing is wrong with the answer; ``None`` where that is not known."""
        if self.label in GOOD or self.outcome == "right":
            return True
        return None if self.outcome in (None, "undetermined", "changed") else False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, without the diagnosis itself, which is stored with the trace."""
        names = ("id", "position", "status", "query", "answer", "expected", "trace_id", "error", "seconds")
        return {
            **{name: getattr(self, name) for name in (*names, "label", "outcome")},
            "right": self.is_right,
            "tags": list(self.tags),
            "headline": None if self.diagnosis is None else self.diagnosis.headline,
            "scores": {name: score.to_dict() for name, score in self.scores.items()},
            "segments": [dict(one) for one in self.segments],
            "idle": None if self.idle is None else dict(self.idle),
            "own_prompt": self.own_prompt,
        }


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """What came of a set; ``n_rows`` of it are in the set, ``rows`` those that are there.

    ``stopped`` says which cap ended it, ``note`` how the fields were read.
    """

    id: str
    name: str
    n_rows: int
    rows: tuple[RowResult, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_finished: bool = True
    stopped: str | None = None
    note: str | None = None

    def summary(self) -> Summary:
        """Counts of labels and outcomes, means with their coverage, failures and costs."""
        return summarise(self.rows, n_rows=self.n_rows)

    def by_tag(self) -> dict[str, Summary]:
        """The summary of each tag's rows, by tag; a row with several tags counts in each."""
        tags = sorted({tag for row in self.rows for tag in row.tags})
        return {tag: summarise([row for row in self.rows if tag in row.tags]) for tag in tags}

    def attribution(self, top_k: int | None = 10) -> tuple[Blame, ...]:
        """Which sources hurt most answers, and which helped: segments added up by their ``group_id``."""
        return blame(self.rows, top_k=top_k)

    def failures(self, label: str | None = None) -> tuple[FailureGroup, ...]:
        """Rows of one label (by default all whose answer is not right) by what they have in common.

        Raises
        ------
        ConfigurationError
            No row has that label.
        """
        known = sorted({row.label for row in self.rows if row.label})
        if label is not None and label not in known:
            raise ConfigurationError(
                f"no row of run {self.name} is {label!r}; labels are: {', '.join(known) or 'none'}"
            )
        return grouped(self.rows, label)

    def compare(self, other: EvaluationRun, *, seed: int = 0) -> Comparison:
        """This run against another one of the same rows, paired by row id; differences are the other's less ours."""
        return compare(self, other, seed=seed)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes ``None``."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "name": self.name,
            "settings": dict(self.settings),
            "finished": self.is_finished,
            "stopped": self.stopped,
            "summary": self.summary().to_dict(),
            "by_tag": {tag: found.to_dict() for tag, found in self.by_tag().items()},
            "attribution": [one.to_dict() for one in self.attribution(None)],
            "failures": [one.to_dict() for one in self.failures()],
            "rows": [row.to_dict() for row in self.rows],
        }

    def table(self) -> Iterator[dict[str, Any]]:
        """One flat record per row; a metric that is not available is ``None``."""
        metrics = list(dict.fromkeys(name for row in self.rows for name in row.scores))
        for row in self.rows:
            cost = None if row.diagnosis is None else row.diagnosis.cost
            yield {
                **{name: getattr(row, name) for name in ("id", "status", "label", "outcome")},
                **{name: _known(row.scores[name].value) if name in row.scores else None for name in metrics},
                **{name: getattr(row, name) for name in ("query", "answer", "expected")},
                "tags": ", ".join(row.tags),
                "trace_id": row.trace_id,
                "error": row.error,
                "calls": None if cost is None else cost.calls,
                "usd": None if cost is None else _known(cost.usd),
            }

    def to_pandas(self) -> pd.DataFrame:
        """One line per row, as :meth:`table` gives them.

        Raises
        ------
        MissingDependencyError
            pandas is not installed.
        """
        frame: pd.DataFrame = require("pandas", extra="pandas").DataFrame(list(self.table()))
        return frame

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write one line per row, UTF-8, as :meth:`table` gives them."""
        records = list(self.table())
        with Path(path).open("w", encoding="utf-8", errors="replace", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]) if records else ["id"])
            writer.writeheader()
            writer.writerows(records)


def open_run(name: str = "last", *, db: str | os.PathLike[str] | None = None) -> EvaluationRun:
    """The stored run of that name or id; ``last`` is the one begun last.

    Raises
    ------
    StoreError
        There is none, or it is damaged.
    """
    with Evaluations(db) as store:
        return load_run(store, store.find(name).id)


def load_run(store: Evaluations, run_id: str) -> EvaluationRun:
    """A run with its rows, out of an open store."""
    run: StoredRun = store.find(run_id)
    rows = tuple(_result(row) for row in store.rows(run.id))
    return EvaluationRun(run.id, run.name, run.n_rows, rows, run.settings, run.finished_at is not None)


def _result(row: Mapping[str, Any]) -> RowResult:
    told = row["diagnosis"]
    try:
        diagnosis = None if told is None else Diagnosis.from_dict(told)
        scores = {} if diagnosis is None else {one["name"]: _score(one) for one in diagnosis.scores}
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the diagnosis of row {row['row_id']} is damaged ({error}); evaluate it again") from error
    details = row["details"] or {}
    return RowResult(
        id=row["row_id"],
        diagnosis=diagnosis,
        scores=scores,
        tags=tuple(row["tags"] or ()),
        segments=tuple(details.get("segments", ())),
        idle=details.get("idle"),
        own_prompt=bool(details.get("own_prompt", True)),
        query=row["query"] or "",
        **{name: row[name] for name in ("position", "status", "answer", "expected", "trace_id", "error", "seconds")},
    )


def _score(told: Mapping[str, Any]) -> Score:
    items: Sequence[Mapping[str, Any]] = told["items"]
    return Score(
        told["name"],
        _number(told["value"]),
        told["n"],
        told["of"],
        told["reason"],
        tuple((item["text"], _number(item["value"])) for item in items),
        told["what"],
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
