"""The claim × segment heat map: a number in every cell, its colour in steps of the margin δ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attr_core.attribution import Attribution
from attr_core.reports._html.causes import strongest_row, target_rows
from attr_core.reports._html.claims import GridRow, ShownClaim
from attr_core.reports._words import signed
from attr_core.results import Verdict
from attr_core.types import Segment

STEPS = 4
"""Colours either way: from one margin on, two, three, four."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a segment does to a claim, on the pivot or claim where that is most; ``told`` says on which."""

    effect: str
    style: str
    support: str
    is_cited: bool
    told: str


def heat_cells(
    attribution: Attribution | None, claims: Sequence[ShownClaim], segments: Sequence[Segment]
) -> list[list[Cell]]:
    """One row per segment, one cell per claim."""
    rows = [[] if attribution is None or c.index is None else target_rows(attribution, c.index) for c in claims]
    return [
        [
            _cell(
                attribution, rows[place], column, [s.rows[segment.id] for s in claim.statements if segment.id in s.rows]
            )
            for place, claim in enumerate(claims)
        ]
        for column, segment in enumerate(segments)
    ]


def _cell(attribution: Attribution | None, rows: Sequence[int], column: int, judged: Sequence[GridRow]) -> Cell:
    support = _support(judged)
    is_cited = any(row.get("cited") for row in judged)
    if attribution is not None and rows:
        row = strongest_row(attribution, rows, column)
        if row is None:
            return Cell("–", "", support, is_cited, "not measured")
        effect, verdict = float(attribution.effects[row, column]), str(attribution.verdicts[row, column])
        style = "u" if verdict == Verdict.UNDETERMINED.value else _step(effect, float(attribution.delta[row]))
        return Cell(signed(effect), style, support, is_cited, f"{verdict}, on «{attribution.targets[row].text[:60]}»")
    known = [row for row in judged if row.get("effect") is not None]
    first: Mapping[str, object] = known[0] if known else {}
    effect = float(str(first.get("effect", "nan")))
    return Cell(
        signed(effect), "p3" if first.get("used") else "", support, is_cited, str(first.get("words") or "")[:60]
    )


def _step(effect: float, delta: float) -> str:
    """``p1`` to ``p4`` above δ, ``n1`` to ``n4`` below −δ, nothing within."""
    if math.isnan(delta) or delta <= 0 or abs(effect) < delta:
        return ""
    return f"{'p' if effect > 0 else 'n'}{min(int(abs(effect) / delta), STEPS)}"


def _support(judged: Sequence[GridRow]) -> str:
    found = {row["support"] for row in judged}
    return next((one for one in ("contradicts", "entails", "undetermined", "neutral") if one in found), "")
