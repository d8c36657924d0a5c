"""A run over a set, and two of them, as tables for a terminal; all text of rows is inert."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from attr_core.reports._words import cropped, signed, visible
from attr_core.reports.costs import render_cost

__all__ = ["render_comparison", "render_run"]

MOST_SOURCES = 5
MOST_GROUPS = 5
MOST_FAILED = 5
WIDTH = 70


def render_run(run: Any) -> RenderableType:
    """Labels, means with their coverage, slices, sources that hurt, what failures share, and what it cost."""
    summary = run.summary()
    parts: list[RenderableType] = [Text(_head(run, summary), style="bold")]
    parts += [Text(f"stopped: {visible(run.stopped)}", style="bold yellow")] if run.stopped else []
    if summary.labels:
        parts += [Text(), _labels(summary)]
    if summary.metrics:
        parts += [Text(), _metrics(summary)]
    if slices := run.by_tag():
        parts += [Text(), _slices(slices)]
    if hurt := [one for one in run.attribution(MOST_SOURCES) if one.n_hurt]:
        parts += [Text(), _sources(hurt)]
    if groups := run.failures()[:MOST_GROUPS]:
        parts += [Text(), Text("what answers that are not right have in common", style="bold"), *map(_group, groups)]
    if summary.failures:
        parts += [Text(), Text("failed rows", style="bold"), *_failed(summary)]
    parts += [Text(), *_foot(summary)]
    return Group(*parts)


def render_comparison(found: Any) -> RenderableType:
    """Means of both runs with the interval of their difference, and the labels that changed."""
    table = _table("metric", "first", "second", "difference", "95 % interval", "rows")
    for one in found.metrics:
        interval = f"{one.low:+.3f} to {one.high:+.3f}" if math.isfinite(one.low) else f"N/A: {one.reason}"
        style = "bold" if one.is_clear else ""
        numbers = (_number(one.first), _number(one.second), signed(one.difference), interval, f"{one.n} of {one.of}")
        table.add_row(one.metric, *numbers, style=style)
    labels = _table("label", "first", "second", "only first", "only second", "p")
    for one in (found.right, *found.labels):
        counts = (one.first, one.second, one.only_first, one.only_second)
        labels.add_row(visible(one.label), *map(str, counts), f"{one.p_value:.3f}")
    head = f"{visible(found.first)} (first) against {visible(found.second)} (second), {found.n} rows in both"
    parts: list[RenderableType] = [Text(head, style="bold"), Text(), table, Text(), labels]
    parts.append(Text("p by McNemar's exact test, of labels adjusted after Holm; right over rows judged in both"))
    if found.unpaired:
        parts.append(Text(f"{len(found.unpaired)} rows are in one of them only and left out", style="yellow"))
    return Group(*parts)


def _head(run: Any, summary: Any) -> str:
    left = f", {summary.n_left} left" if summary.n_left else ""
    return f"{visible(run.name)}: {summary.n_rows} rows, {summary.n_done} done, {summary.n_failed} failed{left}"


def _labels(summary: Any) -> Table:
    table = _table("label", "rows", "share")
    for label, n in summary.labels.items():
        table.add_row(label, str(n), f"{n / summary.n_done:.0%}")
    return table


def _metrics(summary: Any) -> Table:
    table = _table("metric", "mean", "rows", "left out")
    for score in summary.metrics:
        table.add_row(score.name, _number(score.value), f"{score.n} of {score.of}", Text(cropped(score.reason, WIDTH)))
    return table


def _slices(slices: Any) -> Table:
    names = list(dict.fromkeys(score.name for one in slices.values() for score in one.metrics))
    shown = [name for name in ("correctness", "faithfulness") if name in names]
    table = _table("tag", "rows", "failed", "commonest label", *shown)
    for tag, one in slices.items():
        label = next((f"{name} ({n})" for name, n in one.labels.items()), "none")
        means = {score.name: f"{_number(score.value)} ({score.n})" for score in one.metrics}
        cells = (str(one.n_rows), str(one.n_failed), label, *(means.get(name, "N/A") for name in shown))
        table.add_row(Text(cropped(tag, WIDTH)), *cells)
    return table


def _sources(hurt: Any) -> Table:
    table = _table("source", "hurt", "proved", "helped", "of answers", "begins")
    for one in hurt:
        counts = (one.n_hurt, one.n_proved, one.n_helped, one.n_answers)
        table.add_row(Text(cropped(one.source, 30)), *map(str, counts), Text(cropped(one.text, 40)))
    return table


def _group(one: Any) -> Text:
    elsewhere = f", {one.elsewhere} of {one.of_others} others" if one.of_others else ""
    return Text(f"  {one.by} {cropped(one.value, WIDTH)}: {one.n} of {one.of} rows{elsewhere}")


def _failed(summary: Any) -> Iterator[Text]:
    for identifier, error in summary.failures[:MOST_FAILED]:
        yield Text(f"  {cropped(identifier, 30)}: {cropped(error, 2 * WIDTH)}", style="red")
    if len(summary.failures) > MOST_FAILED:
        yield Text(f"  … and {len(summary.failures) - MOST_FAILED} more; --json has all")


def _foot(summary: Any) -> Iterator[Text]:
    if summary.idle is not None:
        idle = summary.idle
        share = f" ({idle.tokens / idle.of:.0%})" if idle.of else ""
        money = "price not known" if math.isnan(idle.usd) else f"USD {idle.usd:.4f} each time they are sent"
        told = f"{idle.tokens:,} of {idle.of:,} tokens{share} went to segments without effect, {money}"
        yield Text(f"{told}; {idle.n_rows} rows measured")
    for note in summary.notes:
        yield Text(f"note: {visible(note)}", style="yellow")
    judges = f"; judged by {', '.join(map(visible, summary.judges))}" if summary.judges else ""
    yield Text(f"cost: {render_cost(summary.cost)}{judges}", style="dim")


def _number(value: float) -> str:
    return "N/A" if math.isnan(value) else f"{value:.3f}"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 or name in ("left out", "begins") else "right")
    return table
