"""Claims as they are shown: those that were attributed and those that were judged, put together by their words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from attr_core.attribution import Attribution
from attr_core.results import Diagnosis

GridRow = Mapping[str, Any]
"""A claim and segment of ``Diagnosis.grid``."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A claim as the judge read it, and by segment id what the grid says of each."""

    text: str
    rows: Mapping[str, GridRow]


@dataclass(frozen=True, slots=True)
class ShownClaim:
    """A claim of the answer, numbered from 1.

    ``span`` is where it stands, ``None`` where its words stand nowhere in the answer; ``index`` is its index in the
    attribution, ``None`` where it was only judged. A sentence out of which the judge read several has them all.
    """

    number: int
    text: str
    span: tuple[int, int] | None
    index: int | None
    statements: tuple[Statement, ...] = ()


def claims_shown(answer: str, attribution: Attribution | None, diagnosis: Diagnosis | None) -> tuple[ShownClaim, ...]:
    """The attribution's claims, then those of the diagnosis that are none of them."""
    shown = [
        ShownClaim(number, claim.text, (claim.start, claim.end), claim.index)
        for number, claim in enumerate(() if attribution is None else attribution.claims, start=1)
    ]
    position = 0
    for index, rows in _by_claim(diagnosis):
        statement = Statement(rows[0]["claim"], {row["segment"]: row for row in rows})
        span = _span(rows[0], answer) or _found(answer, statement.text, position)
        position = span[1] if span else position
        place = _place(shown, statement.text, span, index)
        if place is None:
            text = answer[slice(*span)] if span else statement.text
            shown.append(ShownClaim(len(shown) + 1, text, span, None, (statement,)))
        else:
            shown[place] = replace(shown[place], statements=(*shown[place].statements, statement))
    return tuple(shown)


def _by_claim(diagnosis: Diagnosis | None) -> Iterable[tuple[int, list[GridRow]]]:
    grid = None if diagnosis is None else diagnosis.grid
    rows: dict[int, list[GridRow]] = {}
    for row in (grid or {}).get("rows", ()):
        rows.setdefault(row["claim_index"], []).append(row)
    return rows.items()


def _place(shown: list[ShownClaim], text: str, span: tuple[int, int] | None, index: int) -> int | None:
    """Where that claim is shown already: at its own index, else the first of its words that nobody judged.

    Else, since a judge may read several out of one sentence, where that sentence is.
    """
    same = [place for place, claim in enumerate(shown) if claim.text == text and claim.index is not None]
    if index in same:
        return index
    free = [place for place in same if not shown[place].statements]
    there = [place for place, claim in enumerate(shown) if span is not None and claim.span == span]
    return next(iter([*free, *there]), None)


def _span(row: GridRow, answer: str) -> tuple[int, int] | None:
    """Where the sentence stands that the claim was read out of, if the diagnosis tells."""
    start, end = row.get("span") or (0, 0)
    return (start, end) if 0 <= start < end <= len(answer) else None


def _found(answer: str, text: str, position: int) -> tuple[int, int] | None:
    start = answer.find(text, position) if text else -1
    start = answer.find(text) if start < 0 and text else start
    return None if start < 0 else (start, start + len(text))
