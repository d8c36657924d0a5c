"""What caused each target of a claim: the segments that count, each with its effect, interval and verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attr_core.attribution import Attribution, probability
from attr_core.carried import Way
from attr_core.reports._together import alike_name, together_lines
from attr_core.reports._ways import way_lines
from attr_core.reports._words import is_call, signed, source_name, value_name
from attr_core.reports.compact import telling_rows
from attr_core.results import Verdict
from attr_core.types import TargetKind

LEAST_SHOWN = 3
"""Segments of each target that are shown whatever their verdict."""

FOR = frozenset({Verdict.DRIVES.value, Verdict.HELPFUL.value, Verdict.SUPPORTS.value})
AGAINST = frozenset({Verdict.OPPOSES.value, Verdict.HARMFUL.value, Verdict.UNDERMINES.value})

TINY = -6.9
"""Log-odds of a probability of 0.1 %."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An effect and its interval on a line from 0 to 100; ``band`` is the margin δ, ``interval`` empty without one."""

    zero: float
    band: tuple[float, float]
    effect: tuple[float, float]
    interval: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cause:
    """A segment (column) and what it does to a target."""

    column: int
    name: str
    effect: str
    interval: str
    drop: str
    direct: str
    verdict: str
    tone: str
    bar: Bar | None


@dataclass(frozen=True, slots=True)
class ShownTarget:
    """A row of the attribution: a pivot, a value of a call, the claim as a whole, or the expected answer.

    ``is_direct_told`` says that the causes have effects given the earlier claims too.
    """

    row: int
    name: str
    quote: str
    value: str
    delta: str
    is_known: bool
    causes: tuple[Cause, ...]
    n_more: int
    lines: tuple[str, ...]
    is_direct_told: bool = False


@dataclass(frozen=True, slots=True)
class Sources:
    """An attribution with what its trace tells of where segments came from."""

    attribution: Attribution
    origins: Mapping[str, str]
    ways: tuple[Way, ...] = ()


def target_rows(attribution: Attribution, claim: int) -> list[int]:
    """The rows shown of a claim: its pivots or values, then the claim as a whole."""
    rows = telling_rows(attribution, claim)
    whole = attribution.rows(TargetKind.CLAIM, claim=claim, reading="total")
    whole = whole or attribution.rows(TargetKind.CLAIM, claim=claim)
    if not rows and not whole and len(attribution.claims) == 1:
        return attribution.rows(TargetKind.RESPONSE)
    return [*rows, *(row for row in whole if row not in rows)]


def other_rows(attribution: Attribution) -> list[int]:
    """Rows that are no claim's: the expected answer, spans of no claim, and the response where it has many claims."""
    spans = [row for row in attribution.rows(TargetKind.SPAN) if attribution.targets[row].claim is None]
    spans = [row for row in spans if not _has_total(attribution, row)]
    whole = attribution.rows(TargetKind.RESPONSE) if len(attribution.claims) > 1 else []
    return [*attribution.rows(TargetKind.REFERENCE), *spans, *whole]


def shown_target(sources: Sources, row: int) -> ShownTarget:
    """Everything that is said of one row."""
    attribution, target = sources.attribution, sources.attribution.targets[row]
    later = {column for columns in attribution.tied for column in columns[1:]}
    ranking = [column for column in attribution.ranking(row) if column not in later]
    shown = [
        column
        for place, column in enumerate(ranking)
        if place < LEAST_SHOWN or str(attribution.verdicts[row, column]) in FOR | AGAINST
    ]
    direct = attribution.direct_row(row) if target.reading == "total" else None
    return ShownTarget(
        row=row,
        name=_target_name(attribution, row),
        quote=target.text if target.kind in (TargetKind.PIVOT, TargetKind.SPAN, TargetKind.REFERENCE) else "",
        value=value_told(attribution, row),
        delta=f"{attribution.delta[row]:.2f} {attribution.unit}",
        is_known=attribution.is_known(row),
        causes=tuple(_cause(sources, row, column, direct, shown) for column in shown),
        n_more=len(ranking) - len(shown),
        lines=(*together_lines(attribution, row), *way_lines(attribution, sources.ways, row)),
        is_direct_told=direct is not None,
    )


def named(sources: Sources, rows: Sequence[int], verdicts: frozenset[str]) -> list[int]:
    """Columns that have such a verdict on one of the rows, the largest effect first."""
    if not rows:
        return []
    held = np.isin(sources.attribution.verdicts[list(rows)], list(verdicts)).any(axis=0)
    sizes = np.nan_to_num(np.abs(sources.attribution.effects[list(rows)])).max(axis=0)
    return sorted(np.flatnonzero(held).tolist(), key=lambda column: -float(sizes[column]))


def strongest_row(attribution: Attribution, rows: Sequence[int], column: int) -> int | None:
    """The row that the segment drives, else the one on which its effect is largest; as the grid counts."""
    measured = [row for row in rows if not math.isnan(attribution.effects[row, column])]
    driven = [row for row in measured if str(attribution.verdicts[row, column]) in FOR]
    return max(driven or measured, key=lambda row: abs(float(attribution.effects[row, column])), default=None)


def value_told(attribution: Attribution, row: int) -> str:
    """The target's value with the whole context and with none."""
    full, closed_book = float(attribution.full[row]), float(attribution.closed_book[row])
    if attribution.targets[row].kind is TargetKind.REFERENCE and attribution.unit == "nats":
        return f"{full:+.2f} nats over what was answered with the context, {closed_book:+.2f} without"
    if attribution.unit != "nats":
        return f"{attribution.unit} {_known(full)} with the context, {_known(closed_book)} without"
    if max(full, closed_book) < TINY and math.isfinite(full):
        return f"{full - closed_book:+.2f} nats of log-odds with the context"
    return f"{_percent(full)} likely with the context, {_percent(closed_book)} without"


def tone_of(verdict: str) -> str:
    """The name of a verdict's style."""
    if verdict in FOR:
        return "for"
    if verdict in AGAINST:
        return "against"
    return "open" if verdict == Verdict.UNDETERMINED.value else "none"


def _cause(sources: Sources, row: int, column: int, direct: int | None, shown: Sequence[int]) -> Cause:
    attribution = sources.attribution
    segment, verdict = attribution.segments[column], str(attribution.verdicts[row, column])
    low, high = float(attribution.low[row, column]), float(attribution.high[row, column])
    is_sampled = math.isfinite(low) and math.isfinite(high)
    routes = {route.segment: route.claim for route in attribution.routes if route.target == row}
    way = f", by way of claim {routes[column] + 1}" if column in routes else ""
    alike = " ".join(filter(None, (alike_name(attribution, column), sources.origins.get(segment.id, ""))))
    return Cause(
        column=column,
        name=source_name(segment, alike) + (f" {alike}" if alike else ""),
        effect=signed(float(attribution.effects[row, column])),
        interval=f"{low:+.2f} to {high:+.2f}" if is_sampled else "",
        drop=signed(float(attribution.drops[row, column])),
        direct="" if direct is None else signed(float(attribution.effects[direct, column])) + way,
        verdict=verdict,
        tone=tone_of(verdict),
        bar=_bar(attribution, row, column, shown),
    )


def _bar(attribution: Attribution, row: int, column: int, shown: Sequence[int]) -> Bar | None:
    """Drawn to the scale of all segments that are shown of that target."""
    effect, delta = float(attribution.effects[row, column]), float(attribution.delta[row])
    if math.isnan(effect):
        return None
    columns = list(shown)
    ends = [values[row, columns] for values in (attribution.effects, attribution.low, attribution.high)]
    margin = 0.0 if math.isnan(delta) else delta
    known = np.concatenate([*ends, [0.0, margin, -margin]])
    known = known[np.isfinite(known)]
    least, most = float(known.min()), float(known.max())
    width = (most - least) or 1.0

    def at(value: float) -> float:
        return round(100 * (value - least) / width, 1)

    low, high = float(attribution.low[row, column]), float(attribution.high[row, column])
    start, end = sorted((at(0.0), at(effect)))
    interval = (at(low), at(high)) if math.isfinite(low) and math.isfinite(high) else ()
    return Bar(at(0.0), (at(-margin), at(margin)), (start, end), interval)


def _target_name(attribution: Attribution, row: int) -> str:
    target = attribution.targets[row]
    if target.kind is TargetKind.CLAIM and target.claim is not None:
        return "the call as a whole" if is_call(attribution.claims[target.claim]) else "the claim as a whole"
    if target.kind is TargetKind.SPAN:
        is_in_call = target.claim is not None and is_call(attribution.claims[target.claim])
        return value_name(attribution, target) if is_in_call else "span"
    return {
        TargetKind.REFERENCE: "instead" if "[instead]" in attribution.method else "expected",
        TargetKind.RESPONSE: "the whole response",
    }.get(target.kind, "")


def _has_total(attribution: Attribution, row: int) -> bool:
    return replace(attribution.targets[row], reading="total") in attribution.targets


def _known(value: float) -> str:
    return "unmeasured" if math.isnan(value) else f"{value:.2f}"


def _percent(log_odds: float) -> str:
    if math.isnan(log_odds):
        return "not known how"
    share = 100 * probability(log_odds)
    if share < 0.1:
        return "<0.1 %"
    return ">99.9 %" if share > 99.9 else f"{share:.1f} %"
