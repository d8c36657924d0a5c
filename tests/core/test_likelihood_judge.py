"""Evidence is what a segment adds to a claim's least supported word, and is never called a judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from attr_core.cache import Cache
from attr_core.errors import BudgetExceededError, ConfigurationError, EngineError, MissingCapabilityError
from attr_core.judge.likelihood import ENTAILS_FROM, NO_JUDGE, LikelihoodJudge
from attr_core.metering import MeteredEngine
from attr_core.protocols import Completion, Judge, Sampling, TokenScores
from attr_core.reading import log_odds
from attr_core.results import Budget
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Claim, Prompt, Segment, SegmentKind


def claims_of(*texts: str) -> tuple[Claim, ...]:
    return tuple(Claim(index, 0, len(text), text) for index, text in enumerate(texts))


def segments_of(*texts: str) -> tuple[Segment, ...]:
    return tuple(Segment(f"c{index}", SegmentKind.RETRIEVED, text, ()) for index, text in enumerate(texts))


CLAIM = "Aldemoor fair opened in 1911."
RIGHT, OTHER_YEAR, OTHER_FAIR, UNRELATED = SEGMENTS = segments_of(
    "Aldemoor fair opened in 1911, they say.",
    "Aldemoor fair opened in 1935.",
    "Kestrel fair opened in 1911.",
    "Most clouds consist of water.",
)


def words_in(prompt: Prompt, word: str) -> float:
    """-6 nats for a word of the claim that the prompt does not hold, -0.5 for one that it does."""
    return -0.5 if word.strip(".") in prompt.messages[-1].content else -6.0


GAIN = float(log_odds(np.array(-0.5)) - log_odds(np.array(-6.0)))


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(logprob=words_in)


def test_the_least_supported_word_decides(engine: ScriptedEngine) -> None:
    support = LikelihoodJudge(engine).judge(claims_of(CLAIM), SEGMENTS)
    assert support.verdicts.tolist() == [["entails", "neutral", "neutral", "neutral"]]
    assert support.evidence is not None
    np.testing.assert_allclose(support.evidence, [[GAIN, 0.0, 0.0, 0.0]], atol=1e-9)
    assert support.rationale[0, 1] == "+0.0 nats for '1911', its least supported word"
    assert support.rationale[0, 2] == "+0.0 nats for 'Aldemoor', its least supported word"


def test_evidence_is_labelled_as_such_and_no_judge_has_spoken(engine: ScriptedEngine) -> None:
    support = LikelihoodJudge(engine).judge(claims_of(CLAIM), SEGMENTS)
    assert (support.kind, support.judge, support.notes) == ("evidence", "likelihood:test:scripted", (NO_JUDGE,))
    assert "no judge has spoken" in NO_JUDGE
    assert isinstance(LikelihoodJudge(engine), Judge)


def test_no_evidence_however_negative_is_a_contradiction() -> None:
    engine = ScriptedEngine(logprob=lambda prompt, word: -20.0 if "1935" in prompt.messages[-1].content else -5.0)
    support = LikelihoodJudge(engine).judge(claims_of(CLAIM), SEGMENTS)
    assert support.evidence is not None
    assert support.evidence[0, 1] < -10
    assert set(support.verdicts.flat) == {"neutral"}


def test_evidence_is_the_weight_that_an_additive_engine_gives_a_segment() -> None:
    engine = AdditiveEngine({"1911": {RIGHT.text: 7.0, OTHER_YEAR.text: -2.0, OTHER_FAIR.text: 0.9}}, bias=-5.0)
    support = LikelihoodJudge(engine).judge(claims_of(CLAIM), SEGMENTS)
    np.testing.assert_allclose(support.evidence, [[7.0, -2.0, 0.9, 0.0]], atol=1e-9)
    assert support.verdicts.tolist() == [["entails", "neutral", "neutral", "neutral"]]
    low = LikelihoodJudge(engine, threshold=0.5).judge(claims_of(CLAIM), SEGMENTS)
    assert low.verdicts.tolist() == [["entails", "neutral", "entails", "neutral"]]


def test_words_that_were_likely_anyway_do_not_count_but_numbers_do() -> None:
    said: Mapping[str, float] = {"Aldemoor": -8.0, "1911.": -2.0}

    def logprob(prompt: Prompt, word: str) -> float:
        is_with = len(prompt.messages[-1].content) > 40
        return said.get(word, -3.0) + (2.0 if is_with and word == "Aldemoor" else 0.0)

    support = LikelihoodJudge(ScriptedEngine(logprob=logprob)).judge(claims_of(CLAIM), SEGMENTS[:1])
    assert support.rationale[0, 0].endswith("'1911', its least supported word")
    without_number = LikelihoodJudge(ScriptedEngine(logprob=logprob)).judge(claims_of("Aldemoor opened."), SEGMENTS[:1])
    assert without_number.verdicts.tolist() == [["entails"]]


@pytest.mark.parametrize("claim", ["a", "!!", "東京は1868年に首都になった。", "It is so.", "🙂", "x" * 300])
def test_every_claim_has_some_evidence(claim: str, engine: ScriptedEngine) -> None:
    support = LikelihoodJudge(engine).judge(claims_of(claim), SEGMENTS)
    assert support.evidence is not None
    assert np.isfinite(support.evidence).all()


def test_the_question_stands_in_both_prompts(engine: ScriptedEngine) -> None:
    LikelihoodJudge(engine).judge(claims_of(CLAIM), SEGMENTS, question="When did it open?")
    assert all(prompt.messages[-1].content.endswith("When did it open?") for prompt in engine.seen)
    assert len({prompt.messages[-1].content for prompt in engine.seen}) == 5


def test_it_costs_a_scored_prompt_for_each_pair_and_one_for_each_claim_and_nothing_again() -> None:
    cache, engine = Cache(":memory:"), ScriptedEngine(logprob=words_in)
    claims = claims_of(CLAIM, "It rained.")
    judge = LikelihoodJudge(MeteredEngine(engine, cache=cache))
    assert judge.n_calls(claims, SEGMENTS) == judge.judge(claims, SEGMENTS).cost.calls == len(engine.seen) == 10
    later = LikelihoodJudge(MeteredEngine(engine, cache=cache)).judge(claims, SEGMENTS)
    assert (later.cost.calls, later.cost.cache_hits) == (0, 10)


@pytest.mark.parametrize(("n_claims", "n_segments"), [(0, 4), (2, 0), (0, 0)])
def test_nothing_to_judge_costs_nothing(n_claims: int, n_segments: int, engine: ScriptedEngine) -> None:
    support = LikelihoodJudge(engine).judge(claims_of(CLAIM, "It rained.")[:n_claims], SEGMENTS[:n_segments])
    assert support.verdicts.shape == (n_claims, n_segments)
    assert engine.seen == []


@dataclass
class Failing:
    """Scores nothing where ``bad`` stands in the prompt, nor anything after call ``last``."""

    bad: str
    last: int = 10**6
    calls: int = 0
    max_context: int | None = None
    spec: str = "test:failing"
    fingerprint: str = "test:failing"

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        self.calls += 1
        scores = ScriptedEngine(logprob=words_in).score(prompts, continuation)
        done = {n: scores[n] for n, prompt in enumerate(prompts) if self.bad not in prompt.messages[-1].content}
        if len(done) < len(prompts) or self.calls > self.last:
            raise EngineError("it is down", completed=done if self.calls <= self.last else {})
        return scores


def test_what_was_scored_before_a_failure_is_kept_and_the_rest_tells_the_failure() -> None:
    support = LikelihoodJudge(Failing("clouds")).judge(claims_of(CLAIM), SEGMENTS)
    assert support.verdicts.tolist() == [["entails", "neutral", "neutral", "undetermined"]]
    assert support.rationale[0, 3] == "scoring failed: it is down"
    assert support.evidence is not None
    assert np.isnan(support.evidence[0, 3])


def test_an_engine_that_went_down_is_not_asked_about_the_other_claims() -> None:
    engine = Failing("nothing at all", last=1)
    support = LikelihoodJudge(engine).judge(claims_of(CLAIM, "It rained.", "It snowed."), SEGMENTS)
    assert support.verdicts[0].tolist() == ["entails", "neutral", "neutral", "neutral"]
    assert set(support.verdicts[1:].flat) == {"undetermined"}
    assert engine.calls == 2


def test_an_engine_that_scores_nothing_at_all_is_an_error() -> None:
    with pytest.raises(EngineError, match="it is down"):
        LikelihoodJudge(Failing("", last=0)).judge(claims_of(CLAIM), SEGMENTS)


def test_what_does_not_fit_the_window_is_undetermined() -> None:
    engine = ScriptedEngine(logprob=words_in, max_context=150)
    support = LikelihoodJudge(engine).judge(claims_of(CLAIM), (*SEGMENTS[:2], *segments_of("long " * 50)))
    assert support.verdicts.tolist() == [["entails", "neutral", "undetermined"]]
    assert "do not fit" in support.rationale[0, 2]


def test_caps_hold() -> None:
    engine = ScriptedEngine(logprob=words_in)
    with pytest.raises(BudgetExceededError):
        LikelihoodJudge(MeteredEngine(engine, budget=Budget(calls=3))).judge(claims_of(CLAIM), SEGMENTS)
    assert len(engine.seen) <= 3


def test_an_engine_that_does_not_score_and_thresholds_that_are_none_are_refused() -> None:
    class Generates:
        spec = fingerprint = "test:generates"
        max_context = None

        def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
            return []

    with pytest.raises(MissingCapabilityError, match="LikelihoodJudge needs score"):
        LikelihoodJudge(Generates())
    with pytest.raises(ConfigurationError, match="finite"):
        LikelihoodJudge(ScriptedEngine(), threshold=float("nan"))


@pytest.mark.model
def test_a_small_model_tells_the_segment_that_says_it_from_others(small_engine: Any) -> None:
    claim = "The Aldemoor Lantern Festival opened in 1873."
    segments = segments_of(
        "It was in 1873 that the Lantern Festival of Aldemoor first received visitors.",
        "The Aldemoor Lantern Festival opened in 1932.",
        "Mira Thorne worked as a printer before moving to Corvath.",
    )
    judge = LikelihoodJudge(small_engine)
    support = judge.judge(claims_of(claim), segments, question="In which year did the Aldemoor Lantern Festival open?")
    assert support.evidence is not None
    assert support.evidence[0].argmax() == 0
    assert support.verdicts.tolist() == [["entails", "neutral", "neutral"]]
    assert support.evidence[0, 0] >= ENTAILS_FROM
