"""A run over an evaluation set as JSON, CSV and Markdown."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from attr_core.reports._html.set_page import set_page_of
from attr_core.reports.csv import csv_lines
from attr_core.reports.markdown import as_text, markdown_table

__all__ = ["csv_set_report", "json_set_report", "markdown_set_report"]

MOST_ROWS = 20
"""Rows that Markdown shows."""


def json_set_report(run: Any) -> str:
    """What :meth:`EvaluationRun.to_dict` gives, as text that UTF-8 can say."""
    told = run.to_dict()
    text = json.dumps(told, ensure_ascii=False, indent=2, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        text = json.dumps(told, indent=2, allow_nan=False)
    return text + "\n"


def csv_set_report(run: Any) -> str:
    """A header and a line per row of the run, safe to open in a spreadsheet; what is not known is empty, never 0."""
    rows = list(run.table())
    return csv_lines(rows[0] if rows else ("id",), rows)


def markdown_set_report(run: Any) -> str:
    """Counts, means, slices, sources that hurt, what failures share and the worst rows, for an issue or a chat."""
    page, summary = set_page_of(run), run.summary()
    lines = [f"# attrkit evaluation: {as_text(run.name)}", ""]
    lines += [", ".join(f"{name} {as_text(value)}" for name, value in page["head"][1:]), ""]
    lines += [f"- {as_text(warning)}" for warning in page["warnings"]]
    lines += [""] if page["warnings"] else []
    for title, columns, rows in _tables(page, summary):
        if rows:
            lines += [f"## {title}", "", *markdown_table(columns, rows), ""]
    lines += ["## How it was run", ""]
    lines += [f"- {as_text(name)}: {as_text(value)}" for name, value in page["made"]]
    return "\n".join(lines).rstrip() + "\n"


def _tables(page: dict[str, Any], summary: Any) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    yield "Labels", ("label", "rows", "share"), [(one.name, str(one.n), f"{one.share} %") for one in page["labels"]]
    means = [
        (one.name, "N/A" if math.isnan(one.value) else f"{one.value:.3f}", f"{one.n} of {one.of}", one.reason)
        for one in summary.metrics
    ]
    yield "Metrics", ("metric", "mean", "rows", "left out"), means
    slices = [
        (one["tag"], str(one["n_rows"]), str(one["n_failed"]), *one["means"], _labels(one["labels"]))
        for one in page["slices"]
    ]
    yield "Slices by tag", ("tag", "rows", "failed", *page["sliced"], "commonest labels"), slices
    hurt = [
        (one["source"], *(str(one[name]) for name in ("n_hurt", "n_proved", "n_helped", "n_answers")))
        for one in page["sources"]
    ]
    yield "Which source hurt most answers", ("source", "hurt", "proved", "helped", "of answers"), hurt
    shared = [
        (failure.count.name, told, one.value, one.told)
        for failure in page["failures"]
        for told, found, _ in failure.shared
        for one in found
    ]
    yield "What failures share", ("label", "by", "what", "how many"), shared
    worst = [
        (one.label, one.id, one.error.text or one.headline.text, _answer(one)) for one in page["worst"][:MOST_ROWS]
    ]
    yield f"Worst rows ({len(worst)} of {page['n_bad']})", ("label", "row", "in short", "answer"), worst


def _labels(counts: tuple[Any, ...]) -> str:
    return ", ".join(f"{one.name} {one.n}" for one in counts)


def _answer(one: Any) -> str:
    return next((text.text for name, text in one.texts if name == "answer"), "")
