"""Results made by hand for the tests of reports: every part of them is there, and no engine is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attr_core.attribution import Attribution
from attr_core.results import Cost, Diagnosis, Fit, Pair, RedundancyGroup, Regeneration, Route
from attr_core.types import Claim, Generation, Location, Message, Segment, SegmentKind, Target, TargetKind, Trace

QUESTION = "Who opened the Lantern Fair, and when?"
ANSWER = "The Lantern Fair opened in 1911. Mira Pell led it until 1934."
EXPECTED = "The Lantern Fair opened in 1907. Mira Pell led it until 1934."
TEXTS = (
    "The Lantern Fair opened in 1911, after two years of work. It closes at dusk.",
    "Records of the town say that the Lantern Fair opened in 1907. The first night drew a crowd.",
    "Mira Pell led the fair from its first night until 1934.",
    "Pell, who led the Lantern Fair until 1934, came from Corvath.",
    "A ticket to the bell foundry costs 82 silver marks.",
    "Letters kept in Corvath say that Mira Pell led it until 1934.",
)


def run(
    texts: Sequence[str] = TEXTS, *, answer: str = ANSWER, ids: Sequence[str] | None = None, question: str = QUESTION
) -> Trace:
    """A recorded call whose prompt holds the texts, cut into a segment each."""
    names = ids or [f"c{n}" for n in range(1, len(texts) + 1)]
    content, segments = "", []
    for name, text in zip(names, texts, strict=True):
        place = Location(0, len(content), len(content) + len(text))
        group = f"{name}.md" if ids is None else name
        segments.append(Segment(name, SegmentKind.RETRIEVED, text, (place,), group_id=group))
        content += text + "\n\n"
    asked = Segment("question", SegmentKind.USER_TURN, question, (), fixed=True)
    generation = Generation(
        (Message("user", content + question),), answer, id="gen_1", model="scripted", segments=(*segments, asked)
    )
    return Trace(question, (generation,), answer, id="tr_1", reference=EXPECTED)


def attribution_of(trace: Trace, **changes: Any) -> Attribution:
    """Two claims, the first with a pivot and the second read both ways; intervals, a group, a pair, what was said."""
    generation = trace.generations[0]
    segments = tuple(segment for segment in generation.segments if not segment.fixed)
    answer = generation.response or ""
    claims = _claims(answer)
    first, last = claims[0], claims[-1]
    targets = (
        _target(TargetKind.PIVOT, answer, first, first.text.split()[-1].rstrip(".") if first.text.split() else ""),
        Target(TargetKind.CLAIM, first.start, first.end, first.text, first.index),
        Target(TargetKind.CLAIM, last.start, last.end, last.text, last.index),
        Target(TargetKind.CLAIM, last.start, last.end, last.text, last.index, "total"),
        Target(TargetKind.RESPONSE, 0, len(answer), answer),
    )
    shape = (len(targets), len(segments))
    effects = np.round(np.random.default_rng(7).normal(0, 0.3, shape), 3)
    effects[0, 0], effects[1, 0], effects[4, 0] = 9.157, 6.25, 6.5
    if len(segments) > 3:
        effects[0, 1], effects[1, 1] = -3.4375, -2.125
        effects[3, 2], effects[3, 3], effects[2, 2] = 4.75, 4.5, 1.0625
        effects[3, 4] = math.nan
    verdicts = np.where(effects >= 2, "drives", np.where(effects <= -2, "opposes", "no effect")).astype("<U12")
    verdicts[np.isnan(effects)] = "undetermined"
    verdicts[2, 2:3] = "undetermined"
    offsets = _tokens(answer)
    n_tokens = len(offsets)
    closed_book = np.full(n_tokens, -0.5)
    for place, (start, end) in enumerate(offsets):
        closed_book[place] = {"1911.": -9.5, "1934.": -3.0, "opened": 0.0}.get(answer[start:end].strip(), -0.5)
    values: dict[str, Any] = {
        "method": "ResponseLogOdds × Screened",
        "estimand": "banzhaf",
        "unit": "nats",
        "trace_id": trace.id,
        "generation_id": generation.id,
        "response": answer,
        "segments": segments,
        "claims": claims,
        "targets": targets,
        "effects": effects,
        "low": effects - 0.5,
        "high": effects + 0.75,
        "p_values": np.full(shape, 0.04),
        "verdicts": verdicts,
        "drops": np.round(effects * 0.9, 3),
        "delta": np.full(len(targets), 1.25),
        "full": np.array([6.0, 2.0, 3.0, 1.5, 0.5]),
        "closed_book": np.array([-5.0, -4.0, 2.5, -2.0, -8.0]),
        "token_offsets": offsets,
        "token_full": np.full(n_tokens, -0.75),
        "token_closed_book": closed_book,
        "exact": False,
        "level": 0.95,
        "cost": Cost(128, 40_000, 300, math.nan, 12, 3.4),
        "seed": 11,
        "versions": {"attrkit": "0.1.0"},
        "measured_on": "hf:small",
        "answered_by": "big-model",
        "noise_floor": 0.002,
        "fit": Fit(np.full(len(targets), 0.91), np.full(len(targets), 0.87), 12),
        "warnings": ("the proxy finds the response improbable",),
    }
    if len(segments) > 3:
        values["groups"] = (RedundancyGroup((2, 3), 3, 8.5, 2.25),)
        values["pairs"] = (Pair(0, 0, 1, 1.5),)
        values["routes"] = (Route(3, 2, 0),)
        values["regenerated"] = (Regeneration((), answer, True), Regeneration((0,), "It opened in 1907.", False))
    return Attribution(**{**values, **changes})


def diagnosis_of(trace: Trace, **changes: Any) -> Diagnosis:
    """A misleading segment with its proof, a grid, a conflict, and metrics of which one is not available."""
    generation = trace.generations[0]
    segments = [segment for segment in generation.segments if not segment.fixed]
    rows = [
        _grid_row(claim, segment, column, len(segments))
        for claim in _claims(generation.response or "")
        for column, segment in enumerate(segments)
    ]
    first, other = segments[0].id, segments[min(1, len(segments) - 1)].id
    found = Diagnosis(
        label="chunk_dominance",
        headline=f"chunk {first} misled the model: without it the answer is right",
        secondary=("context_conflict",),
        evidence=(f"{first} is harmful: without, the answer is right in 5 of 5 runs, else in 0 of 10",),
        proof={
            "intervention": {"remove": [first]},
            "changed": {
                "runs": 5,
                "repaired": 5,
                "said": [{"text": "The Lantern Fair opened in 1907.", "outcome": "right", "runs": 5}],
            },
            "unchanged": {
                "runs": 10,
                "repaired": 0,
                "said": [{"text": generation.response or "", "outcome": "wrong", "runs": 10}],
            },
            "p_value": 0.00033,
            "reproducible": False,
        },
        fixes=("re-rank or drop that source",),
        confidence=0.987,
        trace_id=trace.id,
        generation_id=generation.id,
        outcome="wrong",
        question=trace.query,
        answer=generation.response or "",
        expected=EXPECTED,
        culprits=(first,),
        scores=(
            {"name": "faithfulness", "value": 0.5, "n": 2, "of": 2, "what": "claims", "reason": "", "items": []},
            {
                "name": "context_relevance",
                "value": None,
                "n": 0,
                "of": 6,
                "what": "segments",
                "reason": "the judge gave no verdict",
                "items": [],
            },
        ),
        grid={"unit": "nats", "kind": "judged", "rows": rows, "notes": []},
        conflicts=({"first": first, "second": other, "how": "matrix", "why": "two years for one fair"},),
        judge="a judge",
        measured_on="hf:small",
        n_runs=23,
        seed=5,
        cost=Cost(89, 25_659, 1_002, 0.0125, 3, 1.5),
        versions={"attrkit": "0.1.0"},
        notes=("the temperature was not recorded: run again at 0",),
    )
    return replace(found, **changes)


def _claims(answer: str) -> tuple[Claim, ...]:
    found, position = [], 0
    for sentence in answer.split(". ") if answer else [""]:
        end = min(position + len(sentence) + 1, len(answer))
        found.append(Claim(len(found), position, end, answer[position:end]))
        position = min(end + 1, len(answer))
    return tuple(found)


def _target(kind: TargetKind, answer: str, claim: Claim, text: str) -> Target:
    start = answer.find(text, claim.start)
    return Target(kind, start, start + len(text), text, claim.index)


def _tokens(text: str) -> np.ndarray:
    pieces, position = [], 0
    for word in text.split(" "):
        pieces.append((max(position - 1, 0), position + len(word)))
        position += len(word) + 1
    return np.array(pieces, dtype=np.int64)


def _grid_row(claim: Claim, segment: Segment, column: int, n: int) -> dict[str, Any]:
    is_used = column in ((2, 3) if claim.index == 1 and n > 3 else (2 * claim.index,))
    is_post_hoc = (claim.index, column) == (1, 5)
    is_against = (claim.index, column) == (0, 1)
    says = "entails" if is_used or is_post_hoc else "contradicts" if is_against else "neutral"
    cell = "used and supported" if is_used else "supported but not used" if is_post_hoc else "neither"
    return {
        "claim": claim.text,
        "claim_index": claim.index,
        "segment": segment.id,
        "used": is_used,
        "support": says,
        "cell": cell,
        "cited": is_post_hoc,
        "post_hoc": is_post_hoc,
        "sentence": [0, len(segment.text.partition(". ")[0])] if says != "neutral" else None,
        "effect": 9.157 if is_used else 0.25,
        "low": None,
        "high": None,
        "words": claim.text,
    }
