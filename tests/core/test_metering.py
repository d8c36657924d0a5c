"""Nothing is measured twice, nothing passes the caps, and what was paid for is kept."""

from __future__ import annotations

import pytest

from attr_core.cache import Cache
from attr_core.errors import BudgetExceededError, EngineError, MissingCapabilityError
from attr_core.metering import SLICE, MeteredEngine
from attr_core.protocols import Capability, Sampling
from attr_core.results import Budget
from attr_core.testing import ScriptedEngine
from attr_core.types import Message, Prompt

PROMPTS = [Prompt((Message("user", f"question {number} " + "x" * (number % 7)),)) for number in range(40)]


def test_a_second_measurement_costs_nothing() -> None:
    engine = ScriptedEngine()
    metered = MeteredEngine(engine)
    first = metered.score(PROMPTS, "yes it is")
    again = metered.score(PROMPTS, "yes it is")
    assert len(engine.seen) == metered.cost.calls == 40
    assert [score.logprobs.tolist() for score in first] == [score.logprobs.tolist() for score in again]


def test_what_was_measured_in_this_run_is_no_cache_hit() -> None:
    metered = MeteredEngine(ScriptedEngine())
    for _ in range(2):
        metered.score(PROMPTS, "yes")
    assert metered.cost.cache_hits == 0


def test_an_earlier_runs_measurements_are_cache_hits() -> None:
    engine, cache = ScriptedEngine(), Cache(":memory:")
    MeteredEngine(engine, cache=cache).score(PROMPTS[:30], "yes")
    later = MeteredEngine(engine, cache=cache)
    later.score(PROMPTS, "yes")
    assert (later.cost.calls, later.cost.cache_hits) == (10, 30)


def test_equal_prompts_are_sent_once_and_answered_each() -> None:
    engine = ScriptedEngine()
    scores = MeteredEngine(engine).score([PROMPTS[0]] * 5, "yes")
    assert len(engine.seen) == 1
    assert len(scores) == 5


def test_answers_come_in_the_order_of_the_prompts() -> None:
    engine = ScriptedEngine(reply=lambda prompt: prompt.messages[0].content.upper())
    completions = MeteredEngine(engine).generate(PROMPTS)
    assert [completion.text for completion in completions] == [p.messages[0].content.upper() for p in PROMPTS]


def test_another_continuation_engine_or_sampling_is_another_measurement() -> None:
    cache = Cache(":memory:")
    first = MeteredEngine(ScriptedEngine(), cache=cache)
    first.score(PROMPTS[:1], "yes")
    first.score(PROMPTS[:1], "no")
    first.generate(PROMPTS[:1], Sampling(max_tokens=4))
    first.generate(PROMPTS[:1], Sampling(max_tokens=8))
    first.generate(PROMPTS[:1], Sampling(max_tokens=8), repeat=1)
    other = MeteredEngine(ScriptedEngine(), cache=cache)
    other.score(PROMPTS[:1], "yes")
    assert (first.cost.calls, other.cost.calls) == (5, 1)


def test_a_budget_of_calls_holds_to_the_call() -> None:
    engine = ScriptedEngine()
    metered = MeteredEngine(engine, budget=Budget(calls=SLICE + 1))
    with pytest.raises(BudgetExceededError, match=f"budget of {SLICE + 1} calls"):
        metered.score(PROMPTS, "yes")
    assert len(engine.seen) == SLICE


def test_a_budget_of_tokens_is_reserved_before_sending() -> None:
    engine = ScriptedEngine()
    with pytest.raises(BudgetExceededError, match="budget of 10 tokens"):
        MeteredEngine(engine, budget=Budget(tokens=10)).score(PROMPTS[:1], "yes")
    assert engine.seen == []


def test_what_was_paid_for_before_a_failure_is_kept() -> None:
    cache, failing = Cache(":memory:"), ScriptedEngine(failures={SLICE + 3: EngineError("the server went away")})
    with pytest.raises(EngineError):
        MeteredEngine(failing, cache=cache).score(PROMPTS, "yes")
    healthy = MeteredEngine(ScriptedEngine(fingerprint=failing.fingerprint), cache=cache)
    healthy.score(PROMPTS, "yes")
    assert healthy.cost.cache_hits == SLICE


def test_progress_is_told_after_each_slice() -> None:
    told: list[tuple[int, int]] = []
    MeteredEngine(ScriptedEngine(), progress=lambda done, planned: told.append((done, planned)), planned=40).score(
        PROMPTS, "yes"
    )
    assert told == [(16, 40), (32, 40), (40, 40)]


def test_a_missing_capability_is_named_before_anything_is_sent() -> None:
    class OnlyGenerates:
        spec = fingerprint = "test:generates"
        max_context = None

        def generate(self, prompts: list[Prompt], sampling: Sampling) -> list[str]:
            raise AssertionError

    with pytest.raises(MissingCapabilityError, match=r"needs score, which test:generates does not offer; use hf:MODEL"):
        MeteredEngine(OnlyGenerates()).score(PROMPTS, "yes")


def test_it_offers_what_its_engine_offers() -> None:
    assert MeteredEngine(ScriptedEngine()).capabilities == {Capability.SCORE, Capability.GENERATE}
