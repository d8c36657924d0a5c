"""How far a judge can be believed: its verdicts held against people's, its rates corrected, two judges compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import ConfigurationError, InputError
from attr_core.judge._labels import LabelledRow, read_labels
from attr_core.judge._pairs import NEAR_THRESHOLD, Judgements, judge_pairs, tables_of
from attr_core.judge._prices import table_cost
from attr_core.judge._rates import Rate, cohens_kappa, corrected_rate, mcnemar, share, undefined
from attr_core.protocols import Judge
from attr_core.results import Cost, Plan, Step, SupportVerdict, freeze_arrays

__all__ = [
    "NEAR_THRESHOLD",
    "Calibration",
    "Cascade",
    "Comparison",
    "Difference",
    "LabelledRow",
    "Rate",
    "calibrate_judge",
    "compare_judges",
    "corrected_rate",
    "plan_calibration",
    "read_labels",
]

CLASSES = (SupportVerdict.ENTAILS, SupportVerdict.CONTRADICTS, SupportVerdict.NEUTRAL)
"""Rows of the confusion table; its columns are these and ``undetermined``."""

_COLUMNS = (*CLASSES, SupportVerdict.UNDETERMINED)


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """A judge against labels.

    ``confusion`` ``(3, 4)`` counts rows: labels ``entails``, ``contradicts``, ``neutral`` against verdicts, the last
    column ``undetermined``. Every rate is of the rows with a verdict; ``n_undetermined`` have none. ``sensitivity`` and
    ``specificity`` are by class: the share of its rows that get it as verdict, and of the other rows that do not.
    """

    judge: str | None
    n_rows: int
    n_undetermined: int
    confusion: NDArray[np.int64]
    sensitivity: dict[str, Rate]
    specificity: dict[str, Rate]
    accuracy: Rate
    kappa: Rate
    verdicts: tuple[SupportVerdict, ...]
    cost: Cost
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def correct(self, k: int, n: int, *, verdict: str = "entails") -> Rate:
        """The rate that is likely behind ``k`` such verdicts of ``n``; see :func:`corrected_rate`.

        Raises
        ------
        ConfigurationError
            ``k`` is no part of ``n``, or rates of that verdict are not kept.
        """
        if verdict not in self.sensitivity or not 0 <= k <= n or n < 1:
            raise ConfigurationError(
                f"{k} of {n} {verdict!r} cannot be corrected; give counts of entails or contradicts"
            )
        sensitivity, specificity = self.sensitivity[verdict], self.specificity[verdict]
        for name, rate in (("sensitivity", sensitivity), ("specificity", specificity)):
            if math.isnan(rate.value):
                return undefined(f"the {name} is not known: {rate.reason}", n)
        return corrected_rate(
            k / n,
            sensitivity.value,
            specificity.value,
            n=n,
            n_sensitivity=sensitivity.n,
            n_specificity=specificity.n,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the confusion table by label and verdict."""
        rates = {"accuracy": asdict(self.accuracy), "kappa": asdict(self.kappa)}
        by_class = {
            name: {verdict: asdict(rate) for verdict, rate in found.items()}
            for name, found in (("sensitivity", self.sensitivity), ("specificity", self.specificity))
        }
        table = {
            str(label): {str(column): int(count) for column, count in zip(_COLUMNS, row, strict=True)}
            for label, row in zip(CLASSES, self.confusion, strict=True)
        }
        return {
            "judge": self.judge,
            "rows": self.n_rows,
            "undetermined": self.n_undetermined,
            **by_class,
            **rates,
            "confusion": table,
            "cost": asdict(self.cost),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """A row of which the two judges say different things."""

    line: int
    claim: str
    segment: str
    label: SupportVerdict
    cheap: SupportVerdict
    expensive: SupportVerdict


@dataclass(frozen=True, slots=True)
class Cascade:
    """The cheap judge first, and the expensive one where it is unsure.

    Unsure is no verdict, repeats that differ, or evidence within ``near`` nats of the threshold. ``agreement`` is with
    the expensive judge on the rows where that has a verdict; ``accuracy`` against the labels. ``cost`` counts a table
    of the expensive judge whole where one of its rows is escalated, so what is saved is that at least.
    ``usd_saved`` and ``calls_saved`` are shares of the expensive judge's: of its money, against all that the cascade
    pays, and of its calls, the cheap judge's not counted.
    """

    escalated: Rate
    near: float
    agreement: Rate
    accuracy: Rate
    cost: Cost
    usd_saved: Rate
    calls_saved: Rate


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A cheap judge and an expensive one on the same rows.

    ``agreement`` is of the rows where both have a verdict. ``only_cheap_right`` and ``only_expensive_right`` count
    among them rows that one has as the label, and the other not; ``p_value`` is McNemar's, exact.
    """

    cheap: Calibration
    expensive: Calibration
    agreement: Rate
    only_cheap_right: int
    only_expensive_right: int
    p_value: float
    differences: tuple[Difference, ...]
    cascade: Cascade

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "cheap": self.cheap.to_dict(),
            "expensive": self.expensive.to_dict(),
            "agreement": asdict(self.agreement),
            "only_cheap_right": self.only_cheap_right,
            "only_expensive_right": self.only_expensive_right,
            "p_value": self.p_value,
            "differences": [asdict(one) for one in self.differences],
            "cascade": asdict(self.cascade),
        }


def calibrate_judge(
    judge: Judge, rows: Sequence[LabelledRow], *, progress: Callable[[int, int], None] | None = None
) -> Calibration:
    """A judge's verdicts on labelled rows, held against the labels.

    Rows of one question are judged together where their pairs make a table, and each verdict goes back to its row.
    Intervals are Wilson's, and of kappa that of Fleiss, Cohen and Everitt; both take rows to be independent.
    Cost: a table of at most 24 pairs a call, for each segment or set of segments.

    Parameters
    ----------
    judge : Judge
    rows : sequence of LabelledRow
    progress : callable, optional
        Called with (tables done, tables planned).

    Raises
    ------
    InputError
        There are no rows.
    AttrkitError
        The judge answered nothing at all.

    Examples
    --------
    >>> from attr_core.testing import ScriptedJudge
    >>> rows = [
    ...     LabelledRow("It opened in 1911.", "The fair opened in 1911.", SupportVerdict.ENTAILS),
    ...     LabelledRow("It opened in 1911.", "The sea is cold.", SupportVerdict.NEUTRAL),
    ... ]
    >>> judge = ScriptedJudge({(rows[0].claim, rows[0].segment): SupportVerdict.ENTAILS})
    >>> found = calibrate_judge(judge, rows)
    >>> found.accuracy.value, round(found.accuracy.low, 2), found.kappa.value
    (1.0, 0.34, 1.0)
    """
    return _calibration(_judged(judge, rows, NEAR_THRESHOLD, progress), rows)


def compare_judges(
    cheap: Judge,
    expensive: Judge,
    rows: Sequence[LabelledRow],
    *,
    near: float = NEAR_THRESHOLD,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Two judges on the same labelled rows: where they differ, and what asking the cheap one first would save.

    Cost: as :func:`calibrate_judge`, for both.

    Parameters
    ----------
    cheap, expensive : Judge
        A cheap one that repeats itself (``LLMJudge(…, repeats=3)``) can be unsure.
    rows : sequence of LabelledRow
    near : float, default 1.0
        Nats about a likelihood judge's threshold within which it is unsure.
    progress : callable, optional
        As for :func:`calibrate_judge`, once for each judge.

    Raises
    ------
    InputError
        There are no rows.
    AttrkitError
        A judge answered nothing at all.
    """
    first, second = (_judged(judge, rows, near, progress) for judge in (cheap, expensive))
    pairs = [
        (row, a.verdict, b.verdict)
        for row, a, b in zip(rows, first.said, second.said, strict=True)
        if SupportVerdict.UNDETERMINED not in (a.verdict, b.verdict)
    ]
    first_only = sum(a == row.label != b for row, a, b in pairs)
    second_only = sum(b == row.label != a for row, a, b in pairs)
    return Comparison(
        cheap=_calibration(first, rows),
        expensive=_calibration(second, rows),
        agreement=share(sum(a == b for _, a, b in pairs), len(pairs), what="row that both judged"),
        only_cheap_right=first_only,
        only_expensive_right=second_only,
        p_value=mcnemar(first_only, second_only),
        differences=tuple(
            Difference(row.line, row.claim, row.segment, row.label, a.verdict, b.verdict)
            for row, a, b in zip(rows, first.said, second.said, strict=True)
            if a.verdict != b.verdict
        ),
        cascade=_cascade(first, second, rows, near),
    )


def plan_calibration(judge: Judge, rows: Sequence[LabelledRow], *, engine: object = None) -> Plan:
    """What judging the rows will cost, before anything is asked; ``engine`` is what the judge runs on, if known."""
    tables = tables_of(rows)
    found = [
        table_cost(judge, one.claims, one.segments, question=one.question, repeats=1, engine=engine) for one in tables
    ]
    expected, most = (sum((pair[which] for pair in found), Cost()) for which in (0, 1))
    tokens = expected.tokens_in + expected.tokens_out
    name = str(getattr(judge, "spec", type(judge).__name__))
    n_pairs = sum(len(one.claims) * len(one.segments) for one in tables)
    step = Step(f"{n_pairs} pairs judged", expected.calls, tokens, expected.tokens_out, expected.usd)
    return Plan("calibration", name, (step,), expected.calls, tokens, expected.usd, most)


def _judged(
    judge: Judge, rows: Sequence[LabelledRow], near: float, progress: Callable[[int, int], None] | None
) -> Judgements:
    if not rows:
        raise InputError("there are no labelled rows; give some")
    return judge_pairs(judge, rows, near=near, progress=progress)


def _calibration(judged: Judgements, rows: Sequence[LabelledRow]) -> Calibration:
    verdicts = tuple(said.verdict for said in judged.said)
    confusion = np.zeros((len(CLASSES), len(_COLUMNS)), dtype=np.int64)
    for row, verdict in zip(rows, verdicts, strict=True):
        confusion[CLASSES.index(row.label), _COLUMNS.index(verdict)] += 1
    square = confusion[:, : len(CLASSES)]
    n = int(square.sum())
    sensitivity, specificity = {}, {}
    for index, name in enumerate(CLASSES[:2]):
        others = np.delete(square, index, axis=0)
        of_it = f"row labelled {name} with a verdict"
        sensitivity[str(name)] = share(int(square[index, index]), int(square[index].sum()), what=of_it)
        kept = int(others.sum() - others[:, index].sum())
        specificity[str(name)] = share(kept, int(others.sum()), what=f"row of another label than {name} with a verdict")
    return Calibration(
        judge=judged.judge,
        n_rows=len(rows),
        n_undetermined=len(rows) - n,
        confusion=confusion,
        sensitivity=sensitivity,
        specificity=specificity,
        accuracy=share(int(np.trace(square)), n, what="row with a verdict"),
        kappa=cohens_kappa(square),
        verdicts=verdicts,
        cost=judged.cost,
        notes=(*judged.notes, *_repeated(rows)),
    )


def _repeated(rows: Sequence[LabelledRow]) -> list[str]:
    counts = Counter((row.question, row.claim, row.segment) for row in rows)
    n = sum(count - 1 for count in counts.values())
    return [f"{n} of {len(rows)} rows repeat a pair that stands before: intervals are narrower than they should be"] * (
        n > 0
    )


def _cascade(first: Judgements, second: Judgements, rows: Sequence[LabelledRow], near: float) -> Cascade:
    unsure = [said.unsure for said in first.said]
    verdicts = [(b if a.unsure else a).verdict for a, b in zip(first.said, second.said, strict=True)]
    known = [
        (verdict, said.verdict)
        for verdict, said in zip(verdicts, second.said, strict=True)
        if said.verdict != SupportVerdict.UNDETERMINED
    ]
    judged = [
        (verdict, row.label)
        for verdict, row in zip(verdicts, rows, strict=True)
        if verdict != SupportVerdict.UNDETERMINED
    ]
    asked = {said.table for said, is_unsure in zip(second.said, unsure, strict=True) if is_unsure}
    again = sum((second.costs[table] for table in asked), Cost())
    cost, whole = first.cost + again, second.cost
    return Cascade(
        escalated=share(sum(unsure), len(unsure)),
        near=near,
        agreement=share(sum(a == b for a, b in known), len(known), what="row that the expensive judge judged"),
        accuracy=share(sum(a == b for a, b in judged), len(judged), what="row with a verdict"),
        cost=cost,
        usd_saved=_saved(cost.usd, whole.usd, len(rows), "money"),
        calls_saved=_saved(again.calls, whole.calls, len(rows), "calls"),
    )


def _saved(spent: float, whole: float, n: int, what: str) -> Rate:
    """A share without interval: it is of these very rows."""
    if math.isnan(spent) or math.isnan(whole):
        return undefined("a price is unknown", n)
    if whole <= 0:
        return undefined(f"the expensive judge took no {what}", n)
    return Rate(1 - spent / whole, math.nan, math.nan, n)
