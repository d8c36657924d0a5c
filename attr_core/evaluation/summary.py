"""What a run amounts to: counts, means with their coverage, failures, and what was spent for nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from attr_core.results import Cost
from attr_core.support.scores import Score, mean_of, not_available

if TYPE_CHECKING:
    from attr_core.evaluation.results import RowResult

__all__ = ["Idle", "Summary", "summarise"]


@dataclass(frozen=True, slots=True)
class Idle:
    """Tokens of segments without effect on any claim, of all that were measured, over ``n_rows`` answers.

    ``usd`` is what they cost each time these prompts are sent, NaN where a price is not known.
    """

    tokens: int
    of: int
    usd: float
    n_rows: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A run or a slice of it.

    ``n_left`` rows are still to be worked on. ``metrics`` are means over the rows that have a value, each with how many
    those are and why the others have none; a row that failed has none. ``cost`` is what measuring and judging took (not
    the application's own calls). ``idle`` is ``None`` where no causes were measured.
    """

    n_rows: int
    n_done: int
    n_failed: int
    n_left: int
    labels: Mapping[str, int]
    outcomes: Mapping[str, int]
    metrics: tuple[Score, ...]
    failures: tuple[tuple[str, str], ...] = ()
    cost: Cost = field(default_factory=Cost)
    idle: Idle | None = None
    judges: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Counts, labels and means, a line each."""
        left = f", {self.n_left} left" if self.n_left else ""
        lines = [f"{self.n_rows} rows: {self.n_done} done, {self.n_failed} failed{left}"]
        lines += [f"  {label} {n}" for label, n in self.labels.items()]
        return "\n".join([*lines, *(f"  {score}" for score in self.metrics)])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes ``None``."""
        means = []
        for score in self.metrics:
            told = score.to_dict()
            del told["items"]
            means.append(told)
        spent = {one.name: getattr(self.cost, one.name) for one in fields(self.cost)}
        idle = None if self.idle is None else {one.name: getattr(self.idle, one.name) for one in fields(self.idle)}
        return {
            **{name: getattr(self, name) for name in ("n_rows", "n_done", "n_failed", "n_left")},
            "labels": dict(self.labels),
            "outcomes": dict(self.outcomes),
            "metrics": means,
            "failures": [{"id": identifier, "error": error} for identifier, error in self.failures],
            "cost": _known(spent),
            "idle": None if idle is None else _known(idle),
            "judges": list(self.judges),
            "notes": list(self.notes),
        }


def summarise(rows: Sequence[RowResult], *, n_rows: int | None = None) -> Summary:
    """The summary of those rows; ``n_rows`` is how many there are to be, where some are not there yet."""
    done = [row for row in rows if row.status == "done"]
    failed = [row for row in rows if row.status == "failed"]
    total = max(len(rows), n_rows or 0)
    found = [row.diagnosis for row in done if row.diagnosis is not None]
    return Summary(
        n_rows=total,
        n_done=len(done),
        n_failed=len(failed),
        n_left=total - len(done) - len(failed),
        labels=_counted(one.label for one in found),
        outcomes=_counted(one.outcome for one in found),
        metrics=_means(done, failed),
        failures=tuple((row.id, row.error or "no reason was recorded") for row in failed),
        cost=sum((one.cost for one in found), Cost()),
        idle=_idle(done),
        judges=tuple(sorted({one.judge for one in found if one.judge})),
        notes=(*_of_prompts(done), *_notes(found)),
    )


def _means(done: Sequence[RowResult], failed: Sequence[RowResult]) -> tuple[Score, ...]:
    names = dict.fromkeys(name for row in done for name in row.scores)
    found = []
    for name in names:
        scores = [row.scores.get(name) or not_available(name, _why_not(name, row)) for row in done]
        scores += [not_available(name, "the row failed") for _ in failed]
        found.append(mean_of(scores))
    return tuple(found)


def _why_not(name: str, row: RowResult) -> str:
    if row.diagnosis is None:
        return "the answer was not judged"
    return "no chunk is expected" if name.startswith("retrieval_") else "the metric was not computed"


def _idle(done: Sequence[RowResult]) -> Idle | None:
    known = [row.idle for row in done if row.idle is not None]
    if not known:
        return None
    usd = math.fsum(math.nan if one["usd"] is None else one["usd"] for one in known)
    return Idle(sum(one["tokens"] for one in known), sum(one["of"] for one in known), usd, len(known))


def _notes(found: Sequence[Any]) -> tuple[str, ...]:
    """What the diagnoses note, the commonest first, with how many rows note it."""
    counts = Counter(note for one in found for note in dict.fromkeys(one.notes))
    return tuple(f"{note} ({n} of {len(found)} rows)" for note, n in counts.most_common(5))


def _of_prompts(done: Sequence[RowResult]) -> tuple[str, ...]:
    n = sum(not row.own_prompt for row in done)
    told = "the prompt was put together from question and chunks, since the application's own is not known"
    return (f"{told} ({n} of {len(done)} rows)",) if n else ()


def _counted(values: Any) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda one: (-one[1], one[0])))


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()}
