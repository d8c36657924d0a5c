"""One run as CSV: a line for each target and segment, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attr_core.attribution import Attribution
from attr_core.reports._html.claims import ShownClaim, claims_shown
from attr_core.reports._html.inert import inert
from attr_core.results import Diagnosis

__all__ = ["COLUMNS", "csv_lines", "csv_report"]

COLUMNS = (
    *("target", "target_kind", "claim", "reading", "segment", "segment_kind", "group_id", "origin", "text"),
    *("effect", "low", "high", "p_value", "drop", "delta", "verdict", "resolution", "full", "closed_book"),
    *("support", "cell", "cited", "post_hoc"),
)
"""Those of :meth:`Attribution.to_pandas`, then those of the diagnosis' grid."""

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")

_JUDGED = ("support", "cell", "cited", "post_hoc")


def csv_report(attribution: Attribution | None = None, diagnosis: Diagnosis | None = None) -> str:
    """A header and a line for each target and segment; what is not known is empty, never 0.

    Support is the claim's, and stands with each of its targets; where a judge read several statements out of one claim,
    their verdicts are parted by ``|``. A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    answer = attribution.response if attribution is not None else diagnosis.answer if diagnosis is not None else ""
    claims = claims_shown(answer, attribution, diagnosis)
    rows = list(_attributed(attribution, claims)) if attribution is not None else list(_judged(claims))
    return csv_lines(COLUMNS, rows)


def csv_lines(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV of any rows, with what :func:`csv_report` says of cells; columns that a row has not are empty."""
    held = io.StringIO()
    writer = csv.writer(held)
    names = list(columns)
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return held.getvalue()


def _attributed(attribution: Attribution, claims: Iterable[ShownClaim]) -> Iterator[dict[str, Any]]:
    judged = {claim.index: claim for claim in claims if claim.index is not None}
    for row in attribution._cells():
        claim = judged.get(row["claim"])
        said = [] if claim is None else [s.rows[row["segment"]] for s in claim.statements if row["segment"] in s.rows]
        yield {**row, **{name: " | ".join(_word(one.get(name)) for one in said) for name in _JUDGED}}


def _judged(claims: Iterable[ShownClaim]) -> Iterator[dict[str, Any]]:
    """Without an attribution: effects as far as the grid has them."""
    for claim in claims:
        for statement in claim.statements:
            for segment, row in statement.rows.items():
                told = {name: row.get(name) for name in ("effect", "low", "high", *_JUDGED)}
                yield {
                    "target": statement.text,
                    "target_kind": "claim",
                    "claim": claim.number - 1,
                    "segment": segment,
                    **told,
                }


def _word(value: Any) -> str:
    return "" if value is None else str(value)


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if not isinstance(value, str):
        return value
    text = str(inert(value))
    return f"'{text}" if text.lstrip().startswith(_FORMULA) or text[:1] in ("\t", "\r", "\n") else text
