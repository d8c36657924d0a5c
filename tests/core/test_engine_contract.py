"""What every engine keeps to. A further engine is one more line in ENGINES."""

import numpy as np
import pytest

from attr_core.protocols import Completion, Engine, Sampling
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Message, Prompt

ENGINES = [
    pytest.param(lambda request: AdditiveEngine({"blue": {"Sky is blue": 6.0}}), id="additive"),
    pytest.param(lambda request: ScriptedEngine(reply="blue"), id="scripted"),
    pytest.param(lambda request: request.getfixturevalue("small_engine"), id="hf-smollm2", marks=pytest.mark.model),
    pytest.param(lambda request: request.getfixturevalue("gemma_engine"), id="hf-gemma", marks=pytest.mark.model),
]

RESPONSE = "The sky is blue, and snow is white."
PROMPTS = [
    Prompt((Message("system", "Sky is blue. " * (n % 2)), Message("user", f"Sky?{' So?' * n}")))
    for n in (7, 0, 15, 3, 1, 12, 9, 2, 5, 14, 4, 11, 6, 13, 8, 10)
]


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param(request)


def test_is_an_engine_with_stable_names(engine):
    assert isinstance(engine, Engine)
    assert engine.spec
    assert engine.spec == engine.spec
    assert engine.fingerprint == engine.fingerprint
    assert engine.max_context is None or engine.max_context > 0


def test_scoring_many_equals_scoring_one_at_a_time(engine):
    together = engine.score(PROMPTS, RESPONSE)
    assert len(together) == len(PROMPTS)
    for prompt, scores in zip(PROMPTS, together, strict=True):
        alone = engine.score([prompt], RESPONSE)[0]
        np.testing.assert_allclose(scores.logprobs, alone.logprobs, atol=1e-4)
        np.testing.assert_array_equal(scores.offsets, alone.offsets)
        assert scores.tokens_in == alone.tokens_in


def test_scores_come_in_the_order_of_the_prompts(engine):
    forwards = [scores.logprobs for scores in engine.score(PROMPTS[:4], RESPONSE)]
    backwards = [scores.logprobs for scores in engine.score(PROMPTS[3::-1], RESPONSE)]
    for there, back in zip(forwards, reversed(backwards), strict=True):
        np.testing.assert_allclose(there, back, atol=1e-4)


@pytest.mark.parametrize("response", [RESPONSE, " Two  spaces\n\nand lines. ", "cafe\u0301 🙂 漢字 שלום"])
def test_offsets_cover_the_response_in_order(engine, response):
    scores = engine.score(PROMPTS[:1], response)[0]
    starts, ends = scores.offsets[:, 0], scores.offsets[:, 1]
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    assert (starts < ends).all()
    assert {place for start, end in scores.offsets for place in range(start, end)} == set(range(len(response)))


def test_all_prompts_share_one_tokenisation_of_the_response(engine):
    first, *rest = engine.score(PROMPTS[:3], RESPONSE)
    for scores in rest:
        np.testing.assert_array_equal(first.offsets, scores.offsets)


def test_logprobs_are_finite_float64_and_at_most_zero(engine):
    for scores in engine.score(PROMPTS[:3], RESPONSE):
        assert scores.logprobs.dtype == np.float64
        assert scores.logprobs.shape == (len(scores.offsets),)
        assert np.isfinite(scores.logprobs).all()
        assert (scores.logprobs <= 0).all()


def test_no_prompts_give_no_results(engine):
    assert engine.score([], RESPONSE) == []
    assert engine.generate([], Sampling()) == []


def test_generates_one_completion_per_prompt(engine):
    completions = engine.generate(PROMPTS[:3], Sampling(max_tokens=4))
    assert len(completions) == 3
    assert all(isinstance(one, Completion) and isinstance(one.text, str) for one in completions)


def test_greedy_generation_repeats_itself(engine):
    sampling = Sampling(max_tokens=6)
    assert engine.generate(PROMPTS[:2], sampling) == engine.generate(PROMPTS[:2], sampling)
