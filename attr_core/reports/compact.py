"""An attribution and a diagnosis in a few lines of plain JSON: what adapters leave in an application's response."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attr_core.attribution import Attribution
from attr_core.results import Diagnosis, Verdict
from attr_core.types import TargetKind

__all__ = ["compact", "compact_diagnosis", "telling_rows"]

_CAUSES = tuple(verdict.value for verdict in Verdict if verdict not in (Verdict.NO_EFFECT, Verdict.UNDETERMINED))


def compact(attribution: Attribution | None, diagnosis: Diagnosis | None = None) -> dict[str, Any]:
    """What caused each claim, without the texts of the context; beside it, where there is one, the diagnosis.

    Returns
    -------
    dict
        ``claims``: for each its ``text`` and its ``targets`` (its pivots and what was named in it, such as a tool
        call's arguments; where there are none the claim itself). Each target has its ``causes``, the segments with
        a verdict other than no effect or undetermined, the largest effect first, and ``undetermined``, how many
        segments could not be told; ``groups`` of segments of which each does without the others, and ``pairs`` that
        act together, where there are any. ``resolution`` "group" says that a segment was removed with its near-
        duplicates only. ``expected`` is such a target too, where the expected answer was measured against this one.
        Effects are in ``unit``, rounded to three decimals. ``diagnosis`` is as of :func:`compact_diagnosis`; where
        nothing was attributed, it stands with the ``trace_id`` alone.
    """
    told = {} if attribution is None else _attribution(attribution)
    if diagnosis is None:
        return told
    return {"trace_id": diagnosis.trace_id, **told, "diagnosis": compact_diagnosis(diagnosis)}


def compact_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    """Which failure an answer is, the ids of the segments to blame and what to do; NaN becomes ``None``."""
    return {
        "label": str(diagnosis.label),
        "headline": diagnosis.headline,
        "outcome": str(diagnosis.outcome),
        "culprits": list(diagnosis.culprits),
        "confidence": None if math.isnan(diagnosis.confidence) else round(float(diagnosis.confidence), 3),
        "fixes": list(diagnosis.fixes),
        "secondary": [str(label) for label in diagnosis.secondary],
    }


def telling_rows(attribution: Attribution, claim: int) -> list[int]:
    """The rows that say most about a claim: its pivots and the phrases named in it, or where there are none the claim.

    In total reading where there is one.
    """
    rows = attribution.rows(claim=claim, reading="total") or attribution.rows(claim=claim)
    phrases = [row for row in rows if attribution.targets[row].kind in (TargetKind.PIVOT, TargetKind.SPAN)]
    return phrases or [row for row in rows if attribution.targets[row].kind is TargetKind.CLAIM]


def _attribution(attribution: Attribution) -> dict[str, Any]:
    claims = [
        {"text": claim.text, "targets": [_target(attribution, row) for row in rows]}
        for claim in attribution.claims
        if (rows := telling_rows(attribution, claim.index))
    ]
    return {
        "trace_id": attribution.trace_id,
        "generation_id": attribution.generation_id,
        "method": attribution.method,
        "unit": attribution.unit,
        "measured_on": attribution.measured_on,
        "claims": claims,
        **_expected(attribution),
        "warnings": list(attribution.warnings),
    }


def _target(attribution: Attribution, row: int) -> dict[str, Any]:
    verdicts = attribution.verdicts[row]
    return {
        "text": attribution.targets[row].text,
        "causes": [
            _cause(attribution, row, column) for column in attribution.ranking(row) if str(verdicts[column]) in _CAUSES
        ],
        "undetermined": int(np.count_nonzero(verdicts == Verdict.UNDETERMINED.value)),
        **_together(attribution, row),
    }


def _expected(attribution: Attribution) -> dict[str, Any]:
    rows = attribution.rows(TargetKind.REFERENCE)
    return {"expected": _target(attribution, rows[0])} if rows else {}


def _together(attribution: Attribution, row: int) -> dict[str, Any]:
    names = [segment.id for segment in attribution.segments]
    groups = [
        {
            "segments": [names[column] for column in group.members],
            "joint_drop": round(group.joint_drop, 3),
            "summed_drops": round(group.summed_drops, 3),
        }
        for group in attribution.groups
        if group.target == row
    ]
    pairs = [
        {"segments": [names[pair.first], names[pair.second]], "effect": round(pair.effect, 3)}
        for pair in attribution.pairs
        if pair.target == row
    ]
    return {**({"groups": groups} if groups else {}), **({"pairs": pairs} if pairs else {})}


def _cause(attribution: Attribution, row: int, column: int) -> dict[str, Any]:
    segment, effect = attribution.segments[column], float(attribution.effects[row, column])
    return {
        "segment": segment.id,
        "kind": segment.kind.value,
        "group_id": segment.group_id,
        "origin": segment.origin,
        "effect": None if math.isnan(effect) else round(effect, 3),
        "verdict": str(attribution.verdicts[row, column]),
        "resolution": attribution.resolution[column] if attribution.resolution else "individual",
    }
