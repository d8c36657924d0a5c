"""One table of verdicts for everything: how many calls it takes, and that every verdict lands in its own cell."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from attr_core.claims import split_claims
from attr_core.errors import InputError
from attr_core.judge import LLMJudge
from attr_core.results import SupportVerdict
from attr_core.support import METRICS, judge_answer, score_all
from attr_core.support.conflicts import conflicts as conflicts_in
from attr_core.support.matrix import reference_text
from attr_core.testing import ScriptedEngine, ScriptedJudge
from attr_core.types import Location, Prompt, Segment, SegmentKind

ANSWER = "The fair opened in 1911. It has four gates. Tickets cost five marks."
EXPECTED = "The fair opened in 1911. Tickets cost four marks."
QUESTION = "When did the fair open, and what does it cost?"
TEXTS = tuple(f"Note {number} on the fair." for number in range(5))
SEGMENTS = tuple(Segment(f"c{n}", SegmentKind.RETRIEVED, text, (Location(0, 0, 1),)) for n, text in enumerate(TEXTS))


def verdict_of(claim: str, text: str) -> str:
    """One of three, by both texts: a verdict in a wrong cell shows."""
    number = hashlib.sha256(f"{claim}|{text}".encode()).digest()[0] % 3
    return ("entails", "contradicts", "neutral")[number]


def reads(prompt: Prompt) -> str:
    """A model that answers in JSON about every claim with every segment that the prompt has."""
    said = prompt.messages[-1].content
    found = {
        kind: re.findall(rf"{kind} \d+:\n<(data\w+)>\n(.*?)\n</\1>", said, re.DOTALL) for kind in ("Claim", "Segment")
    }
    rows = [
        {"claim": i, "segment": j, "verdict": verdict_of(claim, text), "why": ""}
        for i, (_, claim) in enumerate(found["Claim"], start=1)
        for j, (_, text) in enumerate(found["Segment"], start=1)
    ]
    return json.dumps({"verdicts": rows})


def test_three_claims_and_five_segments_take_few_calls_for_everything_and_each_verdict_is_in_its_cell() -> None:
    engine = ScriptedEngine(reads)
    judge = LLMJudge(engine)
    judged = judge_answer(
        judge, answer=ANSWER, claims=split_claims(ANSWER), segments=SEGMENTS, question=QUESTION, expected=EXPECTED
    )
    found = conflicts_in(judged, judge)
    scores = score_all(judged)
    assert len(engine.seen) <= 8
    assert len(engine.seen) == judged.support.cost.calls + judged.sources.cost.calls + found.cost.calls
    assert {score.name for score in scores} == set(METRICS)
    for table, claims in ((judged.support, judged.claims), (judged.sources, judged.wanted)):
        cells = [[verdict_of(claim.text, text) for text in TEXTS] for claim in claims]
        assert table.verdicts.tolist() == cells
    expected = reference_text(QUESTION, EXPECTED)
    assert judged.correct.tolist() == [verdict_of(claim.text, expected) for claim in judged.claims]
    assert judged.recalled.tolist() == [verdict_of(claim.text, ANSWER) for claim in judged.wanted]


def test_without_an_expected_answer_nothing_is_said_of_correctness() -> None:
    judged = judge_answer(
        ScriptedJudge(), answer=ANSWER, claims=split_claims(ANSWER), segments=SEGMENTS, question=QUESTION
    )
    assert set(judged.correct) == {SupportVerdict.UNDETERMINED.value}
    assert judged.wanted == ()
    assert judged.recalled.shape == (0,)
    assert judged.sources.verdicts.shape == (0, len(SEGMENTS))


def test_without_a_question_nobody_is_asked_what_helps_to_answer_it() -> None:
    judged = judge_answer(ScriptedJudge(), answer=ANSWER, claims=split_claims(ANSWER), segments=SEGMENTS)
    assert set(judged.relevant) == {SupportVerdict.UNDETERMINED.value}
    assert judged.responsive == SupportVerdict.UNDETERMINED.value


def test_an_answer_without_a_segment_or_a_claim_is_a_table_without_columns_or_rows() -> None:
    bare = judge_answer(ScriptedJudge(), answer=ANSWER, claims=split_claims(ANSWER), segments=(), expected=EXPECTED)
    assert bare.support.verdicts.shape == (3, 0)
    assert bare.recalled.shape == (2,)
    mute = judge_answer(ScriptedJudge(), answer="…", claims=(), segments=SEGMENTS, expected=EXPECTED)
    assert mute.support.verdicts.shape == (0, 5)


def test_an_empty_answer_is_refused() -> None:
    with pytest.raises(InputError, match="nothing to judge"):
        judge_answer(ScriptedJudge(), answer=" ", claims=(), segments=SEGMENTS)
