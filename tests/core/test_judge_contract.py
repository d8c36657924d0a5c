"""What every judge keeps: one verdict of four per pair, in its place, whatever is asked along with it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from attr_core.evaluation.planted import ErringJudge, PerfectJudge
from attr_core.judge import LikelihoodJudge, LLMJudge
from attr_core.protocols import Judge
from attr_core.results import Support, SupportVerdict
from attr_core.testing import AdditiveEngine, ScriptedEngine, ScriptedJudge
from attr_core.types import Claim, Location, Segment, SegmentKind

FACT = "The Aldemoor River Market opened in 1911."
CLAIMS = tuple(Claim(n, 0, len(t), t) for n, t in enumerate([FACT, "The Aldemoor River Market opened in 1937."]))
TEXTS = (FACT, "The lamp makers formed a guild.", "The Aldemoor River Market opened in 1937.")
SEGMENTS = tuple(Segment(f"c{n}", SegmentKind.RETRIEVED, t, (Location(0, 0, len(t)),)) for n, t in enumerate(TEXTS))


def _reads(prompt) -> str:
    said = prompt.messages[-1].content
    claims, segments = (
        [text for _, text in re.findall(rf"{kind} \d+:\n<(data\w+)>\n(.*?)\n</\1>", said, re.DOTALL)]
        for kind in ("Claim", "Segment")
    )
    rows = [
        {"claim": i, "segment": j, "verdict": "entails" if claim == text else "neutral", "why": ""}
        for i, claim in enumerate(claims, start=1)
        for j, text in enumerate(segments, start=1)
    ]
    return json.dumps({"verdicts": rows})


JUDGES = {
    "LLMJudge": lambda: LLMJudge(ScriptedEngine(_reads)),
    "LLMJudge, repeated": lambda: LLMJudge(ScriptedEngine(_reads), repeats=3),
    "LLMJudge, one pair a call": lambda: LLMJudge(ScriptedEngine(_reads), max_cells=1),
    "LikelihoodJudge": lambda: LikelihoodJudge(
        AdditiveEngine({"1911": {FACT: 6.0}, "1937": {TEXTS[2]: 6.0}}, bias=-5.0)
    ),
    "ScriptedJudge": lambda: ScriptedJudge({(FACT, FACT): SupportVerdict.ENTAILS}),
    "PerfectJudge": PerfectJudge,
    "ErringJudge": lambda: ErringJudge(PerfectJudge(), rate=0.1),
}


@pytest.fixture(params=JUDGES)
def judge(request) -> Judge:
    return JUDGES[request.param]()


def test_it_is_a_judge(judge: Judge) -> None:
    assert isinstance(judge, Judge)


def test_a_table_has_a_row_per_claim_and_a_column_per_segment_of_the_four_verdicts(judge: Judge) -> None:
    found = judge.judge(CLAIMS, SEGMENTS, question="When did the market open?")
    assert isinstance(found, Support)
    assert found.verdicts.shape == found.rationale.shape == (len(CLAIMS), len(SEGMENTS))
    assert set(found.verdicts.ravel().tolist()) <= {verdict.value for verdict in SupportVerdict}
    assert found.kind in ("judged", "evidence")
    assert (found.evidence is not None) == (found.kind == "evidence")
    assert not found.verdicts.flags.writeable


def test_a_segment_that_is_the_claim_entails_it(judge: Judge) -> None:
    if isinstance(judge, ErringJudge):
        pytest.skip("errs on purpose")
    assert judge.judge(CLAIMS[:1], SEGMENTS[:1]).verdicts.tolist() == [["entails"]]


def test_verdicts_do_not_depend_on_the_order_in_which_is_asked(judge: Judge) -> None:
    there = judge.judge(CLAIMS, SEGMENTS).verdicts
    back = judge.judge(CLAIMS[::-1], SEGMENTS[::-1]).verdicts
    np.testing.assert_array_equal(there, back[::-1, ::-1])


@pytest.mark.parametrize(("n_claims", "n_segments"), [(0, 3), (2, 0), (0, 0)])
def test_nothing_to_judge_is_an_empty_table_at_no_cost(judge: Judge, n_claims: int, n_segments: int) -> None:
    found = judge.judge(CLAIMS[:n_claims], SEGMENTS[:n_segments])
    assert found.verdicts.shape == (n_claims, n_segments)
    assert found.cost.calls == 0


def test_the_same_is_said_again(judge: Judge) -> None:
    if isinstance(judge, ErringJudge):
        pytest.skip("errs on purpose")
    first, again = (judge.judge(CLAIMS, SEGMENTS).verdicts for _ in range(2))
    np.testing.assert_array_equal(first, again)
