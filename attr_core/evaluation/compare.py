"""Two runs over the same rows, paired row by row: differences of metrics with intervals, and of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from attr_core.errors import DatasetError

if TYPE_CHECKING:
    from attr_core.evaluation.results import EvaluationRun, RowResult

__all__ = ["Comparison", "Difference", "LabelChange", "compare"]

LEVEL = 0.95
N_RESAMPLES = 4_000


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric in two runs, over the ``n`` rows that have a value in both.

    ``low`` and ``high`` bound the mean difference (second less first) at 95 %; NaN for ``reason`` where they cannot be
    told. ``is_clear`` where the interval leaves 0 out.
    """

    metric: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    n: int
    of: int
    reason: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes ``None``."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class LabelChange:
    """How many of ``n`` pairs of rows have a label in the first run only, and in the second only.

    ``p_value`` is McNemar's, exact and two-sided: that both runs have it equally often.
    """

    label: str
    first: int
    second: int
    only_first: int
    only_second: int
    p_value: float
    n: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes ``None``."""
        return _plain(self)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs over the ``n`` rows that both have.

    ``right`` is of answers that are right, over the pairs where that is known in both; ``labels`` of each label, their
    p-values adjusted after Holm. ``unpaired`` are ids of rows that only one run has a diagnosis of.
    """

    first: str
    second: str
    n: int
    metrics: tuple[Difference, ...]
    right: LabelChange
    labels: tuple[LabelChange, ...]
    unpaired: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes ``None``."""
        return {
            "schema": "attrkit.comparison/1",
            "first": self.first,
            "second": self.second,
            "n": self.n,
            "metrics": [one.to_dict() for one in self.metrics],
            "right": self.right.to_dict(),
            "labels": [one.to_dict() for one in self.labels],
            "unpaired": list(self.unpaired),
        }


def compare(first: EvaluationRun, second: EvaluationRun, *, seed: int = 0) -> Comparison:
    """Pair the rows of two runs by their ids; calls no model.

    Intervals of mean differences are percentile bootstraps over pairs (Efron and Tibshirani 1993, chapter 13), labels
    are compared by McNemar's exact test.

    Raises
    ------
    DatasetError
        They have no row in common that was diagnosed in both.
    """
    rows = [{row.id: row for row in run.rows if row.diagnosis is not None} for run in (first, second)]
    pairs = [(rows[0][name], rows[1][name]) for name in rows[0] if name in rows[1]]
    if not pairs:
        raise DatasetError(
            f"runs {first.name} and {second.name} have no row in common; give rows an id, or compare runs of one set"
        )
    names = list(dict.fromkeys(name for pair in pairs for row in pair for name in row.scores))
    known = sorted({row.label for pair in pairs for row in pair if row.label})
    changes = [_change(label, [(one.label == label, other.label == label) for one, other in pairs]) for label in known]
    right = [(one.is_right, other.is_right) for one, other in pairs]
    return Comparison(
        first=first.name,
        second=second.name,
        n=len(pairs),
        metrics=tuple(_difference(name, pairs, seed) for name in names),
        right=_change("right", [(bool(a), bool(b)) for a, b in right if a is not None and b is not None]),
        labels=_adjusted(changes),
        unpaired=tuple(sorted(rows[0].keys() ^ rows[1].keys())),
    )


def _difference(name: str, pairs: Sequence[tuple[RowResult, RowResult]], seed: int) -> Difference:
    values = [[row.scores[name].value if name in row.scores else math.nan for row in pair] for pair in pairs]
    table = np.array(values, dtype=np.float64)
    table = table[~np.isnan(table).any(axis=1)]
    if not len(table):
        nan = math.nan
        return Difference(name, nan, nan, nan, nan, nan, 0, len(pairs), "no row has a value in both")
    apart = table[:, 1] - table[:, 0]
    first, second = (float(mean) for mean in table.mean(axis=0))
    low, high, reason = _interval(apart, seed)
    return Difference(name, first, second, float(apart.mean()), low, high, len(table), len(pairs), reason)


def _interval(apart: np.ndarray[Any, Any], seed: int) -> tuple[float, float, str]:
    if len(apart) < 2:
        return math.nan, math.nan, "one pair has no interval"
    if np.ptp(apart) == 0:
        return math.nan, math.nan, "all pairs differ by the same, so resampling them says nothing"
    found = stats.bootstrap(
        (apart,),
        np.mean,
        n_resamples=N_RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        batch=max(1, 1_000_000 // len(apart)),
        random_state=np.random.default_rng(seed),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high), ""


def _change(label: str, has: Sequence[tuple[bool, bool]]) -> LabelChange:
    only_first = sum(one and not other for one, other in has)
    only_second = sum(other and not one for one, other in has)
    apart = only_first + only_second
    p_value = float(stats.binomtest(only_first, apart, 0.5).pvalue) if apart else 1.0
    first, second = sum(one for one, _ in has), sum(other for _, other in has)
    return LabelChange(label, first, second, only_first, only_second, p_value, len(has))


def _adjusted(changes: Sequence[LabelChange]) -> tuple[LabelChange, ...]:
    """Holm's step-down over the labels, in the order given."""
    adjusted, largest = {}, 0.0
    for rank, one in enumerate(sorted(changes, key=lambda change: change.p_value)):
        largest = max(largest, min(1.0, (len(changes) - rank) * one.p_value))
        adjusted[one.label] = largest
    return tuple(replace(one, p_value=adjusted[one.label]) for one in changes)


def _plain(found: Any) -> dict[str, Any]:
    values = {name: getattr(found, name) for name in found.__dataclass_fields__}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}
