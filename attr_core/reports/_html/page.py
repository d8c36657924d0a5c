"""A run, its attribution and its diagnosis -> everything that the page's template names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attr_core.attribution import Attribution
from attr_core.carried import carried
from attr_core.reports._html import facts
from attr_core.reports._html.answer import LOWERED, RAISED, parts_of, words_of
from attr_core.reports._html.causes import (
    AGAINST,
    FOR,
    ShownTarget,
    Sources,
    named,
    other_rows,
    shown_target,
    target_rows,
)
from attr_core.reports._html.claims import ShownClaim, claims_shown
from attr_core.reports._html.context import Evidence, evidence_of, segments_of, shown_segments
from attr_core.reports._html.heat import heat_cells
from attr_core.reports._words import listed, origins_of, segment_name, step_shown
from attr_core.results import Diagnosis, Verdict
from attr_core.types import Segment, Trace

MAX_NAMED = 3
"""Most segments that a claim's heading names."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A claim opened: what caused each of its targets, and what each segment says of it."""

    claim: ShownClaim
    summary: str
    tone: str
    targets: tuple[ShownTarget, ...]
    evidence: tuple[tuple[str, tuple[Evidence, ...], int], ...]


def page_of(
    trace: Trace, attribution: Attribution | None, diagnosis: Diagnosis | None, others: Sequence[Attribution]
) -> dict[str, Any]:
    """The names of the template, each with its value."""
    answer = _answer(trace, attribution, diagnosis)
    sources = None
    if attribution is not None:
        ways = carried(attribution, trace, others)
        sources = Sources(attribution, origins_of(attribution, trace), ways)
    segments = segments_of(trace, attribution, diagnosis)
    culprits = () if diagnosis is None else diagnosis.culprits
    shown = shown_segments(segments, {} if sources is None else sources.origins, culprits)
    claims = claims_shown(answer, attribution, diagnosis)
    return {
        "title": (diagnosis.headline if diagnosis else "") or _question(trace, diagnosis) or trace.id,
        "run": tuple(facts.run_of(trace)),
        "step": "" if attribution is None else ", ".join(step_shown(attribution, trace) or ()),
        "question": _question(trace, diagnosis),
        "expected": (diagnosis.expected if diagnosis else None) or trace.reference or "",
        "parts": parts_of(answer, claims, attribution),
        "has_words": attribution is not None and any(np.isfinite(word.value) for word in words_of(attribution)),
        "legend": tuple(_legend()),
        "panels": tuple(_panel(claim, segments, shown, sources) for claim in claims),
        "others": () if sources is None else tuple(shown_target(sources, r) for r in other_rows(sources.attribution)),
        "segments": shown,
        "places": {segment.id: place for segment, place in zip(segments, shown, strict=True)},
        "cells": heat_cells(attribution, claims, segments) if claims else [],
        "d": diagnosis,
        "tone": "" if diagnosis is None else facts.tone_of_label(diagnosis.label),
        "confidence": "" if diagnosis is None else facts.confidence_of(diagnosis),
        "proof": None if diagnosis is None else facts.proof_of(diagnosis),
        "metrics": () if diagnosis is None else tuple(facts.metrics_of(diagnosis)),
        "a": attribution,
        "unit": attribution.unit if attribution else ((diagnosis.grid or {}).get("unit", "") if diagnosis else ""),
        "said": () if attribution is None else tuple(facts.said_under_changes(attribution)),
        "together": () if attribution is None else tuple(_together(attribution)),
        "method": () if attribution is None else tuple(facts.method_of(attribution)),
        "examination": () if diagnosis is None else tuple(facts.examination_of(diagnosis)),
        "warnings": tuple(_warnings(attribution, diagnosis, segments)),
    }


def _answer(trace: Trace, attribution: Attribution | None, diagnosis: Diagnosis | None) -> str:
    if attribution is not None:
        return attribution.response
    return (diagnosis.answer if diagnosis is not None else "") or trace.answer or ""


def _question(trace: Trace, diagnosis: Diagnosis | None) -> str:
    return (diagnosis.question if diagnosis is not None else None) or trace.query or ""


def _panel(claim: ShownClaim, segments: Sequence[Segment], shown: Sequence[Any], sources: Sources | None) -> Panel:
    rows = [] if sources is None or claim.index is None else target_rows(sources.attribution, claim.index)
    summary, tone = ("not measured", "none") if sources is None or not rows else _summary(sources, rows)
    return Panel(
        claim=claim,
        summary=summary,
        tone=tone,
        targets=() if sources is None else tuple(shown_target(sources, row) for row in rows),
        evidence=tuple(evidence_of(claim, rows, segments, shown, sources)),
    )


def _summary(sources: Sources, rows: Sequence[int]) -> tuple[str, str]:
    """What caused a claim in a few words, and their style."""
    attribution = sources.attribution
    names = [
        [segment_name(attribution.segments[column]) for column in named(sources, rows, verdicts)]
        for verdicts in (FOR, AGAINST)
    ]
    parts = [
        f"{word} {listed(found, MAX_NAMED)}" for word, found in zip(("from", "against"), names, strict=True) if found
    ]
    if parts:
        return ", ".join(parts), "for" if names[0] else "against"
    if (attribution.verdicts[list(rows)] == Verdict.UNDETERMINED.value).any():
        return "undetermined", "open"
    return "from none in particular", "none"


def _together(attribution: Attribution) -> Iterator[dict[str, Any]]:
    """Redundancy groups, then pairs, each with the columns it is of and its numbers."""
    for group in attribution.groups:
        yield {
            "what": "each does without the others" if len(group.members) > 2 else "each does without the other",
            "columns": group.members,
            "target": attribution.targets[group.target].text,
            "told": f"deleting all takes {group.joint_drop:.2f} {attribution.unit}, "
            f"their single drops add up to {group.summed_drops:.2f}",
        }
    for pair in attribution.pairs:
        yield {
            "what": "each counts for more with the other" if pair.effect > 0 else "each counts for less with the other",
            "columns": (pair.first, pair.second),
            "target": attribution.targets[pair.target].text,
            "told": f"{pair.effect:+.2f} {attribution.unit}",
        }


def _legend() -> Iterator[tuple[str, str]]:
    yield "x2", f"≤ −{LOWERED[1]:g}"
    yield "x1", f"≤ −{LOWERED[0]:g}"
    for level, least in enumerate(RAISED, start=1):
        yield f"w{level}", f"≥ {least:g}"


def _warnings(
    attribution: Attribution | None, diagnosis: Diagnosis | None, segments: Sequence[Segment]
) -> Iterator[str]:
    if attribution is not None:
        if attribution.partial:
            yield "PARTIAL: the measurement was interrupted; run it again, and it goes on from here"
        yield from attribution.warnings
    if diagnosis is not None:
        yield from diagnosis.notes
        yield from (diagnosis.grid or {}).get("notes", ())
        judged = {row["segment"] for row in (diagnosis.grid or {}).get("rows", ())}
        if lost := judged - {segment.id for segment in segments}:
            yield f"the diagnosis cut the context in another way: {len(lost)} of its segments are not shown"
