"""What became of each segment of an answer's context: whether it helped, hurt, or had no effect."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from attr_core._setup import Options
from attr_core.capabilities import price_of
from attr_core.diagnosing import case_of
from attr_core.measuring import answers_for
from attr_core.prompt import count_text
from attr_core.results import Diagnosis
from attr_core.types import Segment, Trace

__all__ = ["GOOD", "segment_uses", "spent_idly"]

GOOD = frozenset({"ok", "correct_abstention"})
"""Labels of answers with which nothing is wrong."""

_REMOVED_TO_REPAIR = frozenset(
    {"chunk_dominance", "distraction", "memory_override", "compound", "instruction_injection"}
)
"""Labels whose culprits are what made the answer wrong; those of other labels are what was ignored, or both sides."""

_SNIPPET = 80


def segment_uses(trace: Trace, diagnosis: Diagnosis, engine: Any = None) -> list[dict[str, Any]]:
    """One plain record per segment of the context that was diagnosed; calls no model.

    ``hurt`` is ``proved`` where the answer becomes right without the segment, ``judged`` where it bears out a claim
    that is not right. ``helped`` is ``measured`` where it drives a claim that is right, ``judged`` where it bears one
    out; without an expected answer, claims of an answer that is right count. ``idle`` is whether it has no effect on
    any claim; ``None`` where that was not measured. ``tokens`` are counted by the engine, else a quarter of the
    characters.
    """
    case = case_of(trace, Options(generation=diagnosis.generation_id or None), expected=diagnosis.expected)
    cells = defaultdict(list)
    for cell in (diagnosis.grid or {}).get("rows", ()):
        cells[cell["segment"]].append(cell)
    right = _right_claims(diagnosis)
    return [_use(source, cells[source.id], diagnosis, right, engine) for source in case.sources]


def spent_idly(trace: Trace, uses: Sequence[Mapping[str, Any]], engine: Any) -> dict[str, Any] | None:
    """Tokens of segments without effect, and their price each time the prompt is sent; ``None`` where not measured.

    ``usd`` is ``None`` where the answering model's price is not known here.
    """
    known = [use for use in uses if use["idle"] is not None]
    if not known:
        return None
    tokens = sum(use["tokens"] for use in known if use["idle"])
    price = price_of(engine)
    by = trace.target_generation.model
    is_known = price is not None and by is not None and not answers_for(by, engine.spec)
    return {
        "tokens": tokens,
        "of": sum(use["tokens"] for use in known),
        "usd": tokens * price.token_in if is_known and price is not None else None,
    }


def _use(
    source: Segment, cells: Sequence[Mapping[str, Any]], diagnosis: Diagnosis, right: Mapping[str, bool], engine: Any
) -> dict[str, Any]:
    effects = [cell["effect"] for cell in cells if cell["effect"] is not None]
    used = [cell["used"] for cell in cells]
    return {
        "id": source.id,
        "group": source.group_id or next(iter(source.documents), None) or source.id,
        "kind": source.kind.value,
        "text": source.text[:_SNIPPET],
        "tokens": math.ceil(len(source.text) / 4) if engine is None else count_text(engine, source.text),
        "hurt": _hurt(source.id, cells, diagnosis, right),
        "helped": _helped(cells, diagnosis, right),
        "idle": None if None in used or not used else not any(used),
        "effect": max(effects, key=abs, default=None),
    }


def _right_claims(diagnosis: Diagnosis) -> dict[str, bool]:
    """Claim -> whether it is right, as far as the expected answer tells; where the answer is, its claims are."""
    items = next((score["items"] for score in diagnosis.scores if score["name"] == "correctness"), ())
    return {item["text"]: item["value"] == 1 for item in items if item["value"] is not None}


def _hurt(name: str, cells: Sequence[Mapping[str, Any]], diagnosis: Diagnosis, right: Mapping[str, bool]) -> str | None:
    if diagnosis.label in GOOD:
        return None
    removed = ((diagnosis.proof or {}).get("intervention") or {}).get("remove") or ()
    is_side = diagnosis.label == "context_conflict" and name in removed
    if name in diagnosis.culprits and (diagnosis.label in _REMOVED_TO_REPAIR or is_side):
        return "proved"
    stated = [cell for cell in cells if cell["support"] == "entails" and right.get(cell["claim"]) is False]
    return "judged" if stated else None


def _helped(cells: Sequence[Mapping[str, Any]], diagnosis: Diagnosis, right: Mapping[str, bool]) -> str | None:
    good = [cell for cell in cells if right.get(cell["claim"], diagnosis.outcome == "right")]
    if any(cell["used"] for cell in good):
        return "measured"
    stated = [cell for cell in good if cell["support"] == "entails" and cell["used"] is not False]
    return "judged" if stated else None
