"""The rows of a run as a page shows them: the worst in full, the others in a line each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attr_core.reports._html import facts
from attr_core.reports._words import cropped

MAIN = ("correctness", "faithfulness")
"""Metrics that rows and slices are told by."""

MOST_IN_FULL = 100
"""Rows shown in full."""

MOST_LISTED = 5_000
"""Rows shown in a line each; a longer page no browser is quick with."""

WIDTHS = {"question": 800, "answer": 1_500, "expected": 800, "error": 1_000, "line": 300, "headline": 160, "name": 120}
"""Characters of each text that are shown."""

_TAG = 4 * WIDTHS["name"]

MOST_LINES = 5
"""Lines of evidence, fixes and sources of a row."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A text as far as it is shown, and how many characters more it has."""

    text: str
    n_more: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """A row in full; what there is not is empty."""

    number: int
    id: str
    label: str
    tone: str
    headline: Cut
    told: tuple[tuple[str, str], ...]
    texts: tuple[tuple[str, Cut], ...]
    error: Cut
    sources: tuple[tuple[str, str], ...]
    evidence: tuple[str, ...]
    fixes: tuple[str, ...]
    trace_id: str


@dataclass(frozen=True, slots=True)
class Line:
    """A row in a line."""

    number: int
    id: str
    label: str
    tone: str
    headline: str


def numbers_of(rows: Sequence[Any]) -> dict[str, int]:
    """The number of each row on the page, by its id; texts of rows are no part of the page's own names."""
    found: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        found.setdefault(row.id, number)
    return found


def parted(rows: Sequence[Any]) -> tuple[list[tuple[int, Any]], list[tuple[int, Any]]]:
    """Rows with their numbers: the worst, which are shown in full, and the others in their own order.

    Failed rows come first, then wrong answers, the surest first, then the rest whose label is not good. Where there are
    too many, failed rows leave half the places to the others.
    """
    ranked = sorted(enumerate(rows, start=1), key=lambda one: (_rank(one[1]), _doubt(one[1]), one[0]))
    failed = [one for one in ranked if _rank(one[1]) == 0]
    bad = [one for one in ranked if 0 < _rank(one[1]) < 3]
    n_failed = max(MOST_IN_FULL - len(bad), MOST_IN_FULL // 2)
    worst = [*failed[:n_failed], *bad][:MOST_IN_FULL]
    chosen = {number for number, _ in worst}
    others = [one for one in ranked if one[0] not in chosen]
    return worst, others


def n_bad(rows: Sequence[Any]) -> int:
    """How many rows failed or have a label that is not good."""
    return sum(_rank(row) < 3 for row in rows)


def sample(number: int, row: Any) -> Sample:
    """A row in full."""
    found = row.diagnosis
    texts = {"question": row.query, "answer": row.answer, "expected": row.expected}
    is_failed = row.status == "failed"
    return Sample(
        number=number,
        id=in_line(row.id, WIDTHS["name"]),
        label=_label(row),
        tone=_tone(row),
        headline=_cut(found.headline if found else "", WIDTHS["line"]),
        told=tuple(_told(row)),
        texts=tuple((name, _cut(text, WIDTHS[name])) for name, text in texts.items() if text),
        error=_cut(row.error or "no reason was recorded", WIDTHS["error"]) if is_failed else Cut(""),
        sources=tuple(_sources(row.segments)),
        evidence=_lines(found.evidence if found else ()),
        fixes=_lines(found.fixes if found else ()),
        trace_id=row.trace_id or "",
    )


def line(number: int, row: Any) -> Line:
    """A row in a line."""
    if row.status == "failed":
        told = row.error or "no reason was recorded"
    else:
        told = row.diagnosis.headline if row.diagnosis else row.query
    return Line(number, in_line(row.id, 60), _label(row), _tone(row), in_line(told, WIDTHS["headline"]))


def _rank(row: Any) -> int:
    """0 failed, 1 wrong by a known failure, 2 another label that is not good, 3 good or not judged."""
    if row.status == "failed":
        return 0
    if row.label is None or row.label in facts.GOOD:
        return 3
    return 1 if row.is_right is False and _tone(row) == "bad" else 2


def _doubt(row: Any) -> float:
    """From 0; infinite where no confidence is known, so that those come last."""
    sure = math.nan if row.diagnosis is None else row.diagnosis.confidence
    return math.inf if math.isnan(sure) else 1.0 - sure


def _label(row: Any) -> str:
    return row.label or {"failed": "failed", "answered": "not judged yet"}.get(row.status, "not judged")


def _tone(row: Any) -> str:
    if row.status == "failed":
        return "bad"
    return "none" if row.label is None else facts.tone_of_label(row.label)


def _told(row: Any) -> Iterator[tuple[str, str]]:
    if row.outcome:
        yield "outcome", row.outcome
    if row.diagnosis is not None and (sure := facts.confidence_of(row.diagnosis)):
        yield "confidence", sure
    for name in main_of(row.scores):
        if not math.isnan(row.scores[name].value):
            yield name.replace("_", " "), f"{row.scores[name].value:.2f}"
    if row.diagnosis is not None and row.diagnosis.secondary:
        yield "also applies", ", ".join(row.diagnosis.secondary)
    if row.tags:
        yield "tags", in_line(", ".join(one[:_TAG] for one in row.tags), WIDTHS["name"])


def _sources(segments: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Sources that hurt, each with how that is known and how it begins."""
    hurt = {one["group"]: one for one in segments if one["hurt"]}
    for group, one in list(hurt.items())[:MOST_LINES]:
        yield in_line(group, WIDTHS["name"]), f"{one['hurt']}; begins “{in_line(one['text'], WIDTHS['name'])}”"


def _lines(told: Sequence[str]) -> tuple[str, ...]:
    shown = tuple(in_line(one, WIDTHS["line"]) for one in told[:MOST_LINES])
    more = len(told) - len(shown)
    return (*shown, f"… and {more} more") if more > 0 else shown


def main_of(names: Iterable[str]) -> tuple[str, ...]:
    """The two metrics that a row or a slice is told by: the usual ones, else the first."""
    known = tuple(dict.fromkeys(names))
    return tuple(name for name in MAIN if name in known) or known[:2]


def in_line(text: str, width: int) -> str:
    """The beginning of ``text`` on one line, inert; what is far beyond is not looked at."""
    return cropped(text[: 4 * width], width)


def _cut(text: str, width: int) -> Cut:
    return Cut(text[:width], max(0, len(text) - width))
