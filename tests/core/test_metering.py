"""Nothing is measured twice, nothing passes the caps, and what was paid for is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from attr_core.cache import Cache, cache_key
from attr_core.errors import (
    BudgetExceededError,
    ConfigurationError,
    EngineError,
    MissingCapabilityError,
    SegmentationError,
)
from attr_core.metering import SLICE, MeteredEngine
from attr_core.prompt import ablate, most_tokens
from attr_core.protocols import Capability, Completion, GateScores, Price, Sampling, TailSize, TokenScores
from attr_core.results import Budget, FloatArray, MaskArray
from attr_core.testing import ScriptedEngine
from attr_core.types import Generation, Location, Message, Prompt, Segment, SegmentKind, Target, TargetKind, ToolCall

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


class HalfEngine:
    """Answers no prompt whose text ends in one of ``bad``, and says what it has of the others."""

    spec = fingerprint = "test:half"

    def __init__(self, *bad: str, completed: Callable[[Completion], Any] = lambda one: one) -> None:
        self.bad, self.completed, self.seen = bad, completed, list[str]()

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        texts = [prompt.messages[0].content for prompt in prompts]
        self.seen += texts
        done = {n: Completion(text, "stop", 2, 3) for n, text in enumerate(texts) if not text.endswith(self.bad)}
        if len(done) < len(texts):
            raise EngineError("half failed", completed={n: self.completed(one) for n, one in done.items()})
        return list(done.values())


def test_what_a_failed_batch_has_completed_is_kept_counted_and_told_by_the_place_in_the_whole() -> None:
    cache, bad = Cache(":memory:"), PROMPTS[20].messages[0].content
    metered = MeteredEngine(HalfEngine(bad), cache=cache)
    with pytest.raises(EngineError, match="half failed") as caught:
        metered.generate(PROMPTS)
    done = caught.value.completed
    assert all(done[n].text == PROMPTS[n].messages[0].content for n in done)
    assert 20 not in done
    assert (metered.cost.calls, metered.cost.tokens_in) == (len(done), 2 * len(done))
    well = HalfEngine("none")
    later = MeteredEngine(well, cache=cache)
    assert len(later.generate(PROMPTS)) == 40
    assert later.cost.cache_hits == len(done)
    assert bad in well.seen


@pytest.mark.parametrize("broken", [lambda one: one.text, lambda one: replace(one, text=None)])
def test_what_is_no_completion_is_not_kept_from_a_failed_batch(broken: Callable[[Completion], Any]) -> None:
    cache = Cache(":memory:")
    with pytest.raises(EngineError, match="half failed"):
        MeteredEngine(HalfEngine("x", completed=broken), cache=cache).generate(PROMPTS)
    assert cache.stats().n_entries == 0


def test_completions_for_prompts_that_were_not_asked_are_not_kept() -> None:
    class Strange(HalfEngine):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
            raise EngineError("strange", completed={0: Completion("a", "stop"), 99: Completion("b", "stop")})

    cache = Cache(":memory:")
    with pytest.raises(EngineError, match="strange"):
        MeteredEngine(Strange(), cache=cache).generate(PROMPTS)
    assert cache.stats().n_entries == 0


def test_an_engines_own_error_is_left_as_it_was() -> None:
    own = EngineError("down", completed={0: Completion("a", "stop")})

    class Down(HalfEngine):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
            raise own

    with pytest.raises(EngineError, match="down") as caught:
        MeteredEngine(Down()).generate(PROMPTS)
    assert caught.value is not own
    assert own.completed == {0: Completion("a", "stop")}


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
    assert engine.seen == []
    metered.score(PROMPTS[: SLICE + 1], "yes")
    with pytest.raises(BudgetExceededError, match=f"1 more calls after {SLICE + 1}"):
        metered.score(PROMPTS[-1:], "yes")


def test_what_a_budget_of_tokens_still_allows_is_measured_and_kept() -> None:
    engine, cache = ScriptedEngine(), Cache(":memory:")
    least = most_tokens(engine, PROMPTS[0]) + len("yes") + 8
    metered = MeteredEngine(engine, cache=cache, budget=Budget(tokens=least + 5))
    with pytest.raises(BudgetExceededError, match="budget of"):
        metered.score(PROMPTS, "yes")
    keys = [cache_key("score", engine.fingerprint, prompt, continuation="yes") for prompt in PROMPTS]
    assert 0 < metered.cost.tokens_in <= least + 5
    assert len(cache.get_scores(keys)) == len(engine.seen) > 0


def test_caps_hold_for_threads_that_share_an_account() -> None:
    engine = ScriptedEngine()
    metered = MeteredEngine(engine, budget=Budget(calls=20))

    def one(number: int) -> bool:
        try:
            metered.score([Prompt((Message("user", f"thread {number}"),))], "yes")
        except BudgetExceededError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(one, range(60)))
    assert done == metered.cost.calls == len(engine.seen) == 20


PRICED = Price(1e-3, 1e-2)


def test_money_is_counted_by_the_engines_price_and_unknown_where_that_is() -> None:
    priced = MeteredEngine(ScriptedEngine(reply="In 1911.", price=PRICED))
    priced.generate(PROMPTS[:1], Sampling(max_tokens=8))
    prompt, said = priced.cost.tokens_in, priced.cost.tokens_out
    assert said == len("In 1911.")  # counted from above, since the engine does not tell
    assert priced.cost.usd == pytest.approx(prompt * 1e-3 + said * 1e-2)
    unpriced = MeteredEngine(ScriptedEngine(price=None))
    unpriced.generate(PROMPTS[:1])
    assert math.isnan(unpriced.cost.usd)


def test_a_budget_of_usd_holds_before_anything_is_sent() -> None:
    engine = ScriptedEngine(price=PRICED)
    most = most_tokens(engine, PROMPTS[0]) * 1e-3 + 8e-2
    metered = MeteredEngine(engine, budget=Budget(usd=most * 0.99))
    with pytest.raises(BudgetExceededError, match="could pass the budget of USD"):
        metered.generate(PROMPTS[:1], Sampling(max_tokens=8))
    assert engine.seen == []
    MeteredEngine(engine, budget=Budget(usd=most * 1.01)).generate(PROMPTS[:1], Sampling(max_tokens=8))
    with pytest.raises(BudgetExceededError, match="price is unknown"):
        MeteredEngine(ScriptedEngine(price=None), budget=Budget(usd=5.0)).generate(PROMPTS[:1])


class Embedder:
    spec = fingerprint = "test:embedder"
    max_context = None
    price = PRICED

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> FloatArray:
        self.seen += texts
        return np.array([[len(text), 1.0] for text in texts])


def test_texts_are_embedded_once_and_counted_from_above() -> None:
    engine, cache = Embedder(), Cache(":memory:")
    metered = MeteredEngine(engine, cache=cache)
    np.testing.assert_array_equal(metered.embed(["four", "four", "to"]), [[4, 1], [4, 1], [2, 1]])
    assert sorted(engine.seen) == ["four", "to"]
    assert (metered.cost.calls, metered.cost.tokens_in) == (2, len("four") + len("to") + 16)
    MeteredEngine(engine, cache=cache).embed(["to"])
    assert len(engine.seen) == 2
    assert metered.embed([]).shape == (0, 0)


def test_an_interrupt_that_carries_what_was_answered_loses_none_of_it() -> None:
    stop = KeyboardInterrupt()
    stop.completed = {0: Completion("kept", "stop", 3, 1)}
    cache, engine = Cache(":memory:"), ScriptedEngine(failures={1: stop})
    with pytest.raises(KeyboardInterrupt):
        MeteredEngine(engine, cache=cache).generate(PROMPTS[:1])
    again = MeteredEngine(ScriptedEngine(fingerprint=engine.fingerprint), cache=cache)
    assert again.generate(PROMPTS[:1])[0].text == "kept"


def test_an_engine_of_what_is_known_answers_from_the_cache_and_sends_nothing() -> None:
    engine = ScriptedEngine()
    metered = MeteredEngine(engine)
    metered.score(PROMPTS[:2], "yes")
    known = metered.only_known()
    assert len(known.score(PROMPTS[:2], "yes")) == 2
    with pytest.raises(EngineError, match="1 of these prompts were not measured"):
        known.score(PROMPTS[1:3], "yes")
    assert len(engine.seen) == 2


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


# Hidden masks and gates

PROMPT = Prompt((Message("user", "a fact. another. So?"),))
SEGMENTS = [
    Segment("one", SegmentKind.RETRIEVED, "a fact.", (Location(0, 0, 7),)),
    Segment("two", SegmentKind.RETRIEVED, "another.", (Location(0, 8, 16),)),
]
TARGETS = [Target(TargetKind.SPAN, 0, 3, "yes"), Target(TargetKind.SPAN, 4, 6, "it")]
MASKS = np.array([[True, True], [False, True], [True, False], [False, False]])
GATES = np.array([[1.0, 1.0], [0.5, 0.5], [0.1, 0.1]])


@dataclass
class CachedEngine:
    """Forwards 100 tokens once and 10 a time; a value is how much is kept."""

    fingerprint: str = "test:cached"
    spec: str = "test:cached"
    max_context: int | None = None
    logprob: float = -1.0
    slope: float = 1.0
    is_held: bool = False
    sent: list[tuple[str, int]] = field(default_factory=list)

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        self.sent.append(("score", len(prompts)))
        return [TokenScores(np.array([-3.0]), np.array([[0, 3]]), 110) for _ in prompts]

    def score_hidden(
        self, prompt: Prompt, segments: Sequence[Segment], masks: MaskArray, continuation: str
    ) -> list[TokenScores]:
        self.sent.append(("score_hidden", len(masks)))
        values = self.logprob - (~masks).sum(axis=1)
        return [TokenScores(np.array([value]), np.array([[0, 3]]), self._tokens(10)) for value in values]

    def gate_gradients(
        self,
        prompt: Prompt,
        segments: Sequence[Segment],
        gates: FloatArray,
        continuation: str,
        targets: Sequence[Target],
    ) -> list[GateScores]:
        self.sent.append(("gate_gradients", len(gates)))
        gradients = np.full((len(targets), len(segments)), self.slope)
        each = 10 * (1 + 2 * len(targets))
        return [GateScores(np.full(len(targets), row.sum()), gradients, self._tokens(each)) for row in gates]

    def tail_size(self, prompt: Prompt, segments: Sequence[Segment], continuation: str) -> TailSize:
        return TailSize(100, 10, self.is_held)

    def _tokens(self, each: int) -> int:
        was_held, self.is_held = self.is_held, True
        return each + (0 if was_held else 100)


def test_hidden_masks_and_gates_are_counted_as_forwarded() -> None:
    metered = MeteredEngine(CachedEngine())
    metered.score_hidden(PROMPT, SEGMENTS, MASKS, "yes it is")
    assert (metered.cost.calls, metered.cost.tokens_in) == (4, 140)
    metered.gate_gradients(PROMPT, SEGMENTS, GATES, "yes it is", TARGETS)
    assert (metered.cost.calls, metered.cost.tokens_in) == (4 + 3 * 5, 140 + 3 * 50)


def test_a_second_measurement_of_masks_and_gates_costs_nothing_and_is_the_same() -> None:
    engine, cache = CachedEngine(), Cache(":memory:")
    first = MeteredEngine(engine, cache=cache)
    hidden = first.score_hidden(PROMPT, SEGMENTS, MASKS, "yes it is")
    gated = first.gate_gradients(PROMPT, SEGMENTS, GATES, "yes it is", TARGETS)
    later = MeteredEngine(engine, cache=cache)
    again = later.score_hidden(PROMPT, SEGMENTS, MASKS[::-1], "yes it is")[::-1]
    assert [score.logprobs.tolist() for score in again] == [score.logprobs.tolist() for score in hidden]
    for one, other in zip(gated, later.gate_gradients(PROMPT, SEGMENTS, GATES, "yes it is", TARGETS), strict=True):
        np.testing.assert_array_equal(one.log_odds, other.log_odds)
        np.testing.assert_array_equal(one.gradients, other.gradients)
    assert (later.cost.calls, later.cost.tokens_in, later.cost.cache_hits) == (0, 0, 7)


def test_only_unknown_masks_are_sent_and_equal_ones_once() -> None:
    engine = CachedEngine()
    metered = MeteredEngine(engine)
    metered.score_hidden(PROMPT, SEGMENTS, MASKS[:2], "yes it is")
    scores = metered.score_hidden(PROMPT, SEGMENTS, MASKS[[2, 1, 2, 0]], "yes it is")
    assert engine.sent == [("score_hidden", 2), ("score_hidden", 1)]
    assert [score.logprobs[0] for score in scores] == [-2, -2, -2, -1]


def test_what_is_hidden_is_never_taken_for_what_is_deleted_nor_the_other_way_round() -> None:
    engine = CachedEngine()
    metered = MeteredEngine(engine)
    generation = Generation(PROMPT.messages, "yes")
    exact = [ablate(generation, SEGMENTS, mask) for mask in MASKS]
    for _ in range(2):
        hidden = metered.score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
        deleted = metered.score(exact, "yes")
    assert metered.cost.calls == 8
    assert [score.logprobs[0] for score in hidden] == [-1, -2, -2, -3]
    assert {score.logprobs[0] for score in deleted} == {-3}


def test_masks_that_hide_the_same_text_are_one_measurement_however_it_is_cut() -> None:
    engine = CachedEngine()
    metered = MeteredEngine(engine)
    metered.score_hidden(PROMPT, SEGMENTS, MASKS[3:], "yes")
    tied = [Segment("both", SegmentKind.RETRIEVED, "", tuple(place for s in SEGMENTS for place in s.locations))]
    metered.score_hidden(PROMPT, tied, np.array([[False]]), "yes")
    assert engine.sent == [("score_hidden", 1)]


def test_the_same_text_hidden_before_another_tail_is_another_measurement() -> None:
    engine = CachedEngine()
    metered = MeteredEngine(engine)
    metered.score_hidden(PROMPT, SEGMENTS, np.array([[False, True]]), "yes")
    metered.score_hidden(PROMPT, SEGMENTS[:1], np.array([[False]]), "yes")
    assert engine.sent == [("score_hidden", 1)] * 2


@pytest.mark.parametrize(
    ("gates", "continuation", "targets", "segments"),
    [
        (GATES[1:2], "yes it is", TARGETS, SEGMENTS),
        (GATES[:1], "yes it was", TARGETS, SEGMENTS),
        (GATES[:1], "yes it is", TARGETS[:1], SEGMENTS),
        (GATES[:1], "yes it is", TARGETS, SEGMENTS[::-1]),
    ],
)
def test_other_gates_continuation_targets_or_segments_are_another_measurement(
    gates: FloatArray, continuation: str, targets: list[Target], segments: list[Segment]
) -> None:
    engine = CachedEngine()
    metered = MeteredEngine(engine)
    metered.gate_gradients(PROMPT, SEGMENTS, GATES[:1], "yes it is", TARGETS)
    metered.gate_gradients(PROMPT, segments, gates, continuation, targets)
    assert len(engine.sent) == 2


def test_budgets_hold_for_masks_and_gates() -> None:
    engine = CachedEngine()
    with pytest.raises(BudgetExceededError, match="budget of 3 calls"):
        MeteredEngine(engine, budget=Budget(calls=3)).score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    with pytest.raises(BudgetExceededError, match="budget of 14 calls"):
        MeteredEngine(engine, budget=Budget(calls=14)).gate_gradients(PROMPT, SEGMENTS, GATES, "yes it", TARGETS)
    with pytest.raises(BudgetExceededError, match="up to 110 more tokens"):
        MeteredEngine(engine, budget=Budget(tokens=109)).score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    with pytest.raises(BudgetExceededError, match="up to 150 more tokens"):
        MeteredEngine(engine, budget=Budget(tokens=149)).gate_gradients(PROMPT, SEGMENTS, GATES, "yes it", TARGETS)
    assert engine.sent == []
    enough = MeteredEngine(engine, budget=Budget(calls=4, tokens=140))
    enough.score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    assert enough.cost.tokens_in == 140


def test_a_prompt_that_is_held_is_not_reserved_again() -> None:
    engine = CachedEngine(is_held=True)
    metered = MeteredEngine(engine, budget=Budget(tokens=40))
    metered.score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    assert metered.cost.tokens_in == 40


def test_slices_of_masks_are_kept_when_a_later_one_fails() -> None:
    many = np.array([[bool(n & 1 << bit) for bit in range(6)] for n in range(40)])
    segments = [Segment(str(n), SegmentKind.RETRIEVED, "", (Location(0, n, n + 1),)) for n in range(6)]
    cache, engine = Cache(":memory:"), CachedEngine()

    def stop(done: int, planned: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        MeteredEngine(engine, cache=cache, progress=stop).score_hidden(PROMPT, segments, many, "yes")
    later = MeteredEngine(engine, cache=cache)
    later.score_hidden(PROMPT, segments, many, "yes")
    assert later.cost.cache_hits == SLICE


@pytest.mark.parametrize("logprob", [np.nan, np.inf, 5.0])
def test_hidden_scores_that_are_no_log_probabilities_are_refused_and_not_kept(logprob: float) -> None:
    cache = Cache(":memory:")
    with pytest.raises(EngineError, match="log-probability"):
        MeteredEngine(CachedEngine(logprob=logprob), cache=cache).score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    assert cache.stats().n_entries == 0


@pytest.mark.parametrize("slope", [np.nan, np.inf])
def test_gradients_that_are_no_numbers_are_refused_and_not_kept(slope: float) -> None:
    cache = Cache(":memory:")
    with pytest.raises(EngineError, match="gradient"):
        MeteredEngine(CachedEngine(slope=slope), cache=cache).gate_gradients(PROMPT, SEGMENTS, GATES, "yes it", TARGETS)
    assert cache.stats().n_entries == 0


def test_gradients_of_another_shape_are_refused() -> None:
    class Transposed(CachedEngine):
        def gate_gradients(self, *arguments):  # type: ignore[no-untyped-def]
            found = super().gate_gradients(*arguments)
            return [GateScores(one.log_odds, one.gradients[:, :1], one.tokens_in) for one in found]

    with pytest.raises(EngineError, match="shape"):
        MeteredEngine(Transposed()).gate_gradients(PROMPT, SEGMENTS, GATES, "yes it", TARGETS)


@pytest.mark.parametrize("rows", [np.ones(2), np.ones((1, 3))])
def test_masks_and_gates_that_do_not_fit_the_segments_are_refused(rows: FloatArray) -> None:
    metered = MeteredEngine(CachedEngine())
    with pytest.raises(SegmentationError):
        metered.score_hidden(PROMPT, SEGMENTS, rows.astype(bool), "yes")
    with pytest.raises(SegmentationError):
        metered.gate_gradients(PROMPT, SEGMENTS, rows, "yes it", TARGETS)


def test_it_offers_hidden_masks_and_gates_where_its_engine_does() -> None:
    metered = MeteredEngine(CachedEngine())
    assert metered.capabilities == {Capability.SCORE, Capability.SCORE_HIDDEN, Capability.GATE_GRADIENTS}
    assert metered.tail_size(PROMPT, SEGMENTS, "yes") == TailSize(100, 10)


def test_an_engine_that_declares_less_than_it_has_methods_for_is_believed() -> None:
    class Declares(CachedEngine):
        capabilities = frozenset({Capability.SCORE})

    metered = MeteredEngine(Declares())
    assert metered.capabilities == {Capability.SCORE}
    with pytest.raises(MissingCapabilityError, match="score_hidden"):
        metered.score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    with pytest.raises(MissingCapabilityError, match="gate_gradients"):
        metered.gate_gradients(PROMPT, SEGMENTS, GATES, "yes it", TARGETS)


# Another engine on the same account


def test_what_an_engine_alongside_spends_is_on_the_same_account() -> None:
    engine, other = ScriptedEngine(), CachedEngine()
    metered = MeteredEngine(engine)
    alongside = metered.alongside(other)
    metered.score(PROMPTS[:3], "yes it is")
    alongside.score_hidden(PROMPT, SEGMENTS, MASKS, "yes it is")
    assert metered.cost == alongside.cost
    assert (metered.cost.calls, metered.cost.tokens_in) == (7, 3 * 3 + 140)
    assert (alongside.spec, alongside.fingerprint) == (other.spec, other.fingerprint)
    assert Capability.SCORE_HIDDEN in alongside.capabilities
    assert Capability.SCORE_HIDDEN not in metered.capabilities
    assert alongside.tail_size(PROMPT, SEGMENTS, "yes") == TailSize(100, 10, True)
    with pytest.raises(AttributeError):
        _ = metered.tail_size


def test_caps_hold_for_both_together_whoever_spends_last() -> None:
    metered = MeteredEngine(ScriptedEngine(), budget=Budget(calls=6))
    other = CachedEngine()
    alongside = metered.alongside(other)
    alongside.score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    with pytest.raises(BudgetExceededError, match="3 more calls after 4"):
        metered.score(PROMPTS[:3], "yes")
    metered.score(PROMPTS[:2], "yes")
    with pytest.raises(BudgetExceededError, match="1 more calls after 6"):
        alongside.score_hidden(PROMPT, SEGMENTS, MASKS[:1], "no")
    assert metered.cost.calls == 6
    assert len(other.sent) == 1


def test_a_cap_of_tokens_counts_what_the_other_spent() -> None:
    metered = MeteredEngine(ScriptedEngine(), budget=Budget(tokens=150))
    metered.alongside(CachedEngine()).score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    assert metered.cost.tokens_in == 140
    with pytest.raises(BudgetExceededError, match="after 140 could pass the budget of 150 tokens"):
        metered.score(PROMPTS[:1], "yes")


def test_the_cache_is_shared_and_one_engines_measurement_is_never_the_others() -> None:
    cache = Cache(":memory:")
    first = MeteredEngine(CachedEngine("test:one"), cache=cache)
    other = CachedEngine("test:two", logprob=-2.0)
    alongside = first.alongside(other)
    ours = first.score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    theirs = alongside.score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    assert [score.logprobs[0] for score in theirs] == [score.logprobs[0] - 1 for score in ours]
    again = MeteredEngine(ScriptedEngine(), cache=cache).alongside(other)
    again.score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    assert (again.cost.calls, again.cost.cache_hits) == (0, 4)


def test_progress_counts_both() -> None:
    told: list[tuple[int, int]] = []
    metered = MeteredEngine(ScriptedEngine(), progress=lambda *done: told.append(done), planned=30)
    metered.score(PROMPTS[:5], "yes")
    metered.alongside(CachedEngine()).score_hidden(PROMPT, SEGMENTS, MASKS, "yes")
    metered.score(PROMPTS[5:7], "yes")
    assert told == [(5, 30), (9, 30), (11, 30)]


@pytest.mark.parametrize("told", [0, -5, None, math.nan, "7", True])
def test_usage_that_cannot_be_true_is_counted_from_above(told: Any) -> None:
    class Liar(ScriptedEngine):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
            self.seen += prompts
            return [Completion("In 1911.", "stop", told, told) for _ in prompts]

    engine = Liar()
    metered = MeteredEngine(engine, budget=Budget(tokens=3_000))
    with pytest.raises(BudgetExceededError):
        metered.generate([Prompt((Message("user", f"{n} " + "x" * 200),)) for n in range(60)], Sampling(max_tokens=8))
    assert 0 < len(engine.seen) < 20
    assert metered.cost.tokens_in == sum(most_tokens(engine, prompt) for prompt in engine.seen)


def test_tool_calls_in_a_prompt_count_as_what_is_sent() -> None:
    call = ToolCall(id="c", name="search", arguments={"query": "x" * 5_000})
    prompt = Prompt((Message("user", "Go."), Message("assistant", "", tool_calls=(call,))))
    assert most_tokens(object(), prompt) > 5_000


def test_without_a_bound_on_answers_no_cap_in_tokens_or_usd_is_promised() -> None:
    class Unbounded(ScriptedEngine):
        bounds_answers = False

    engine = Unbounded()
    for budget in (Budget(tokens=10**6), Budget(usd=10.0)):
        with pytest.raises(BudgetExceededError, match="cap calls"):
            MeteredEngine(engine, budget=budget).generate(PROMPTS[:1])
    assert engine.seen == []
    MeteredEngine(engine, budget=Budget(calls=1)).generate(PROMPTS[:1])


@pytest.mark.parametrize("junk", [None, 5, "abc", [1, 2], object()])
def test_an_error_with_junk_beside_it_goes_on_as_it_is_and_frees_what_was_held(junk: Any) -> None:
    stop = KeyboardInterrupt("of the user")
    stop.completed = junk
    metered = MeteredEngine(ScriptedEngine(failures={1: stop}), budget=Budget(calls=1))
    with pytest.raises(KeyboardInterrupt, match="of the user"):
        metered.generate(PROMPTS[:1])
    metered.generate(PROMPTS[:1])


def test_a_response_that_is_no_unicode_can_be_reserved_for() -> None:
    MeteredEngine(ScriptedEngine(), budget=Budget(tokens=10**6)).score(PROMPTS[:1], "yes \ud800")


@pytest.mark.parametrize("rows", [[[1.0, 2], [1, 2, 3]], [["a"], ["b"]], [None, None], [[math.nan], [1]], [[], []]])
def test_vectors_that_are_none_are_refused_and_not_kept(rows: Any) -> None:
    class Broken(Embedder):
        def embed(self, texts: Sequence[str]) -> Any:
            return rows

    cache = Cache(":memory:")
    with pytest.raises(EngineError, match="the engine is at fault"):
        MeteredEngine(Broken(), cache=cache).embed(["a", "b"])
    assert MeteredEngine(Embedder(), cache=cache).embed(["a", "b"]).shape == (2, 2)


def test_answers_that_are_no_list_are_the_engines_fault() -> None:
    class Empty(ScriptedEngine):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> Any:
            return None

    with pytest.raises(EngineError, match="NoneType as its answers"):
        MeteredEngine(Empty()).generate(PROMPTS[:1])


@pytest.mark.parametrize("text", ["calls=5,calls=7", "usd=1_0", "calls=\u0665", "tokens=", "calls=5 tokens=3"])
def test_a_budget_that_could_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Budget.parse(text)
