"""A run over a set -> everything that the template of its page names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attr_core.reports._html import facts, samples
from attr_core.reports.costs import render_cost

MOST_TAGS = 100
MOST_SOURCES = 20
MOST_SHARED = 8
"""Things of each kind that the rows of a label share."""

MOST_LINKS = 8
FEW_LINKS = 3
"""Rows that a line links; fewer where many lines are close together."""

WIDTH = 120

KINDS = {"culprit": "sources that hurt", "source": "sources in the context", "term": "words of the question"}


@dataclass(frozen=True, slots=True)
class Count:
    """A label with its rows; ``share`` is of 100."""

    name: str
    tone: str
    n: int
    share: float


@dataclass(frozen=True, slots=True)
class Linked:
    """Some rows by number and name, and how many more there are."""

    rows: tuple[tuple[int, str], ...]
    n_more: int


@dataclass(frozen=True, slots=True)
class Shared:
    """What rows of a label share: ``told`` compares them with the others."""

    value: str
    told: str
    rows: Linked


@dataclass(frozen=True, slots=True)
class Failure:
    """A label that is not good, with its rows and, by kind, what they share."""

    count: Count
    rows: Linked
    shared: tuple[tuple[str, tuple[Shared, ...], int], ...]


def set_page_of(run: Any) -> dict[str, Any]:
    """The names of the template, each with its value."""
    summary = run.summary()
    numbers = samples.numbers_of(run.rows)
    worst, others = samples.parted(run.rows)
    shown = {number for number, _ in (*worst, *others[: samples.MOST_LISTED])}
    links = _Links({name: number for name, number in numbers.items() if number in shown})
    slices = run.by_tag()
    hurt = [one for one in run.attribution(None) if one.n_hurt]
    return {
        "title": run.name,
        "head": tuple(_head(run, summary)),
        "warnings": tuple(_warnings(run, summary)),
        "summary": summary,
        "labels": tuple(_counts(summary.labels, summary.n_done)),
        "outcomes": tuple(summary.outcomes.items()),
        "metrics": tuple(_metrics(summary)),
        "slices": tuple(_slices(slices)),
        "sliced": _sliced(slices),
        "n_more_slices": max(0, len(slices) - MOST_TAGS),
        "sources": tuple(_source(one, links) for one in hurt[:MOST_SOURCES]),
        "n_more_sources": max(0, len(hurt) - MOST_SOURCES),
        "has_segments": any(row.segments for row in run.rows),
        "failures": tuple(_failures(run, summary, links)),
        "worst": tuple(samples.sample(number, row) for number, row in worst),
        "n_bad": samples.n_bad(run.rows),
        "others": tuple(samples.line(number, row) for number, row in others[: samples.MOST_LISTED]),
        "n_more_others": max(0, len(others) - samples.MOST_LISTED),
        "made": tuple(_made(run, summary)),
        "notes": summary.notes,
    }


@dataclass(frozen=True, slots=True)
class _Links:
    """Numbers of the rows that are on the page, by id."""

    numbers: Mapping[str, int]

    def of(self, ids: Sequence[str], most: int = MOST_LINKS) -> Linked:
        known = [name for name in ids if name in self.numbers][:most]
        return Linked(tuple((self.numbers[name], samples.in_line(name, 30)) for name in known), len(ids) - len(known))


def _head(run: Any, summary: Any) -> Iterator[tuple[str, str]]:
    yield "run", samples.in_line(run.name, WIDTH)
    if run.id != run.name:
        yield "id", samples.in_line(run.id, WIDTH)
    yield "rows", f"{summary.n_rows:,}"
    for name, n in (("done", summary.n_done), ("failed", summary.n_failed), ("left", summary.n_left)):
        if n or name == "done":
            yield name, f"{n:,}"


def _warnings(run: Any, summary: Any) -> Iterator[str]:
    if run.stopped:
        yield f"stopped: {samples.in_line(run.stopped, 5 * WIDTH)}"
    if summary.n_left:
        told = "row is" if summary.n_left == 1 else "rows are"
        yield f"{summary.n_left:,} {told} left; the same evaluation, run again, goes on from here"
    if summary.n_failed:
        told = "row has" if summary.n_failed == 1 else "rows have"
        yield f"{summary.n_failed:,} {told} no result; no mean counts them"
    if run.note:
        yield samples.in_line(run.note, 5 * WIDTH)


def _counts(labels: Mapping[str, int], n_done: int) -> Iterator[Count]:
    for label, n in labels.items():
        yield Count(label, facts.tone_of_label(label), n, round(100 * n / n_done, 1) if n_done else 0.0)


def _metrics(summary: Any) -> Iterator[tuple[facts.Metric, int]]:
    """Each mean as it is shown, and how many rows have none."""
    for score in summary.metrics:
        is_known = not math.isnan(score.value)
        shown = facts.Metric(
            name=score.name.replace("_", " "),
            value=f"{score.value:.3f}" if is_known else "N/A",
            share=round(100 * score.value, 1) if is_known else None,
            coverage=f"{score.n:,} of {score.of:,}",
            reason=samples.in_line(score.reason, 5 * WIDTH),
        )
        yield shown, score.of - score.n


def _sliced(slices: Mapping[str, Any]) -> tuple[str, ...]:
    return samples.main_of(score.name for one in slices.values() for score in one.metrics)


def _slices(slices: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The largest first."""
    names = _sliced(slices)
    largest = sorted(slices.items(), key=lambda one: (-one[1].n_rows, one[0]))
    for tag, one in largest[:MOST_TAGS]:
        means = {score.name: score for score in one.metrics}
        yield {
            "tag": samples.in_line(tag, WIDTH),
            "n_rows": one.n_rows,
            "n_failed": one.n_failed,
            "labels": tuple(_counts(one.labels, one.n_done))[:3],
            "n_more_labels": max(0, len(one.labels) - 3),
            "means": tuple(_mean(means.get(name)) for name in names),
        }


def _mean(score: Any) -> str:
    return "N/A" if score is None or math.isnan(score.value) else f"{score.value:.3f} ({score.n:,})"


def _source(one: Any, links: _Links) -> dict[str, Any]:
    counts = ("n_hurt", "n_proved", "n_helped", "n_answers", "n_idle", "n_weighed")
    return {
        **{name: getattr(one, name) for name in counts},
        "source": samples.in_line(one.source, WIDTH),
        "text": samples.in_line(one.text, WIDTH),
        "rows": links.of(one.rows),
    }


def _failures(run: Any, summary: Any, links: _Links) -> Iterator[Failure]:
    """Labels that are not good, the commonest first; what their rows share, what sets them most apart first."""
    for count in _counts(summary.labels, summary.n_done):
        if count.tone == "good":
            continue
        groups = run.failures(count.name)
        by_kind = [(told, [one for one in groups if one.by == kind]) for kind, told in KINDS.items()]
        yield Failure(
            count=count,
            rows=links.of([row.id for row in run.rows if row.label == count.name]),
            shared=tuple(
                (told, tuple(_shared(one, links) for one in found[:MOST_SHARED]), max(0, len(found) - MOST_SHARED))
                for told, found in by_kind
                if found
            ),
        )


def _shared(one: Any, links: _Links) -> Shared:
    elsewhere = f", {one.elsewhere:,} of {one.of_others:,} others" if one.of_others else ""
    return Shared(
        samples.in_line(one.value, WIDTH), f"{one.n:,} of {one.of:,} rows{elsewhere}", links.of(one.rows, FEW_LINKS)
    )


def _made(run: Any, summary: Any) -> Iterator[tuple[str, str]]:
    """How the run was made and what it cost, as names and values."""
    for name, value in run.settings.items():
        if value not in (None, "", {}, []):
            yield str(name), samples.in_line(_said(value), 5 * WIDTH)
    judges = ", ".join(summary.judges)
    if judges and judges != run.settings.get("judge"):
        yield "judged by", samples.in_line(judges, 5 * WIDTH)
    yield "cost", f"{render_cost(summary.cost)}; without the application's own calls"
    if summary.idle is not None:
        idle = summary.idle
        share = f" ({idle.tokens / idle.of:.0%})" if idle.of else ""
        money = "price not known" if math.isnan(idle.usd) else f"USD {idle.usd:.4f} each time they are sent"
        yield "without effect", f"{idle.tokens:,} of {idle.of:,} tokens{share}, {money}; {idle.n_rows:,} rows measured"
    yield "state", "finished" if run.is_finished else "not finished"


def _said(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={one}" for name, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
