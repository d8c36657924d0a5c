"""The value that regenerates, against closed forms: engines whose answer is a known function of the prompt."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from attr_core.cache import Cache
from attr_core.capabilities import require
from attr_core.errors import BudgetExceededError, EngineError, InputError, MissingCapabilityError
from attr_core.estimators import Banzhaf, DebiasedLasso, LeaveOneOut
from attr_core.metering import MeteredEngine
from attr_core.metrics import embedding_similarity, numeric_aware, token_overlap
from attr_core.protocols import Completion, Sampling, ValueFunction
from attr_core.results import Budget
from attr_core.testing import ScriptedEngine
from attr_core.types import (
    Claim,
    Generation,
    Location,
    Message,
    Prompt,
    Segment,
    SegmentKind,
    Target,
    TargetKind,
    ToolCall,
)
from attr_core.values.response_similarity import ResponseSimilarity

FACTS = ("The fair opened in 1911.", "Tickets cost four marks.", "A choir sings.")
ANSWER = "It opened in 1911. Entry is four marks."
CLAIMS = (Claim(0, 0, 18, ANSWER[:18]), Claim(1, 19, 39, ANSWER[19:]))
OPENED, ENTRY = (Target(TargetKind.CLAIM, one.start, one.end, one.text, one.index) for one in CLAIMS)
WHOLE = Target(TargetKind.RESPONSE, 0, len(ANSWER), ANSWER)
ALL, NONE = np.ones((1, 3), dtype=bool), np.zeros((1, 3), dtype=bool)
ENDS = np.concatenate([ALL, NONE])
UNKNOWN = "Nobody knows."


def told(facts: Sequence[str] = FACTS, **options: Any) -> tuple[Generation, list[Segment]]:
    content, segments = "", []
    for number, text in enumerate(facts):
        place = Location(0, len(content), len(content) + len(text))
        segments.append(Segment(f"s{number}", SegmentKind.RETRIEVED, text, (place,)))
        content += text + "\n"
    return Generation((Message("user", content + "So?"),), ANSWER, **options), segments


def answering(rule: Callable[[str], str]) -> ScriptedEngine:
    return ScriptedEngine(reply=lambda prompt: rule(prompt.messages[0].content))


def by_facts(context: str) -> str:
    """Says of each fact what the context has."""
    said = [claim.text for claim, fact in zip(CLAIMS, FACTS, strict=False) if fact in context]
    return " ".join(said) or UNKNOWN


def value(
    engine: Any, *targets: Target, metric: Any = token_overlap, facts: Sequence[str] = FACTS, **options: Any
) -> Any:
    generation, segments = told(facts)
    return ResponseSimilarity(
        engine,
        generation,
        segments=segments,
        response=ANSWER,
        metric=metric,
        targets=targets or (WHOLE,),
        claims=CLAIMS,
        **options,
    )


@dataclass(slots=True)
class Dice:
    """Says one of the faces, by the sampling's seed and the prompt; above temperature 0 by nothing else."""

    faces: Sequence[str]
    spec: str = "test:dice"
    fingerprint: str = "test:dice"
    max_context: int | None = None
    seeds: list[int] = field(default_factory=list)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        self.seeds += [sampling.seed] * len(prompts)
        drawn = [random.Random(f"{sampling.seed}{prompt}") for prompt in prompts]  # noqa: S311
        return [Completion(one.choice(self.faces), "stop") for one in drawn]


def test_it_is_a_value_function_in_similarity_without_an_idea_of_right_and_wrong() -> None:
    found = value(answering(by_facts))
    assert isinstance(found, ValueFunction)
    assert (found.name, found.unit, found.floor, found.knows_right) == ("ResponseSimilarity", "similarity", 0.1, False)
    assert (found.n_segments, found.n_targets, found.scales.tolist(), found.metric) == (3, 1, [1.0], "token_overlap")


def test_the_segment_that_the_answer_depends_on_has_all_of_the_effect() -> None:
    engine = answering(lambda context: ANSWER if FACTS[0] in context else "???")
    effects = Banzhaf().estimate(value(engine, WHOLE, OPENED)).effects
    np.testing.assert_allclose(effects, [[1, 0, 0], [1, 0, 0]])


def test_each_claim_has_its_own_cause() -> None:
    estimate = Banzhaf().estimate(value(answering(by_facts), OPENED, ENTRY))
    np.testing.assert_allclose(estimate.effects, [[1, 0, 0], [0, 1, 0]], atol=1e-12)
    np.testing.assert_allclose(estimate.drops, [[1, 0, 0], [0, 1, 0]], atol=1e-12)


def test_a_segment_that_keeps_the_model_from_the_answer_has_a_negative_effect() -> None:
    engine = answering(lambda context: "???" if FACTS[1] in context else ANSWER)
    np.testing.assert_allclose(Banzhaf().estimate(value(engine)).effects, [[0, -1, 0]])


def test_two_sources_of_one_answer_hide_from_single_deletion_and_share_the_effect() -> None:
    engine = answering(lambda context: ANSWER if FACTS[0] in context or FACTS[1] in context else "???")
    np.testing.assert_allclose(LeaveOneOut().estimate(value(engine)).effects, [[0, 0, 0]])
    np.testing.assert_allclose(Banzhaf().estimate(value(engine)).effects, [[0.5, 0.5, 0]])


def test_many_segments_are_sampled_and_the_one_cause_is_found() -> None:
    facts = [f"Stone {number} is grey." for number in range(12)]
    engine = answering(lambda context: ANSWER if facts[4] in context else "???")
    estimate = DebiasedLasso().estimate(value(engine, facts=facts))
    assert estimate.low[0, 4] > 0.9
    np.testing.assert_allclose(np.delete(estimate.effects[0], 4), 0, atol=0.05)


def test_a_claim_is_compared_with_that_claim_of_the_new_text_which_is_most_like_it() -> None:
    replies = {
        "moved": "Entry is four marks. It opened in 1911.",
        "among others": "Well. You ask much. It opened in 1911. I am glad to help.",
        "reworded": "In 1911 it opened.",
        "other": "It closed in 1937.",
        "empty": "",
    }
    found = {name: value(ScriptedEngine(reply), OPENED).exact(ALL)[0, 0] for name, reply in replies.items()}
    assert found == pytest.approx({"moved": 1, "among others": 1, "reworded": 1, "other": 0.5, "empty": 0})


def test_any_span_is_a_target_and_both_readings_are_the_same() -> None:
    year = Target(TargetKind.SPAN, 13, 17, "1911", 0)
    total = Target(TargetKind.CLAIM, 0, 18, ANSWER[:18], 0, "total")
    values = value(answering(by_facts), year, OPENED, total).exact(ENDS)
    np.testing.assert_allclose(values[0], [1, 1, 1])  # the year stands there, whatever else does
    np.testing.assert_allclose(values[1], 0)


def test_numbers_are_told_apart_where_words_hardly_are() -> None:
    engine = answering(lambda context: ANSWER if FACTS[0] in context else ANSWER.replace("1911", "1937"))
    effects = [
        Banzhaf().estimate(value(engine, metric=metric)).effects[0, 0] for metric in (token_overlap, numeric_aware())
    ]
    np.testing.assert_allclose(effects, [1 / 8, 1])


def test_the_recorded_text_is_what_is_compared_with_even_where_the_full_prompt_gives_another() -> None:
    found = value(ScriptedEngine("Something else."))
    np.testing.assert_array_equal(found.exact(ENDS), [[0], [0]])


# What is sent, and what it costs


def test_each_mask_is_one_generation_from_the_prompt_without_what_it_removes() -> None:
    engine = answering(by_facts)
    mask = np.array([[True, False, True]])
    value(engine, WHOLE, OPENED, ENTRY).exact(np.concatenate([ALL, mask, NONE]))
    contents = [prompt.messages[0].content for prompt in engine.seen]
    assert contents == ["\n".join([*FACTS, "So?"]), "\n".join([FACTS[0], "", FACTS[2], "So?"]), "\n\n\nSo?"]


def test_another_metric_or_other_targets_generate_nothing_anew() -> None:
    engine = answering(by_facts)
    found = value(engine)
    Banzhaf().estimate(found)
    assert len(engine.seen) == 8
    again = found.rescored(numeric_aware())
    assert again.metric == "numeric_aware(token_overlap)"
    Banzhaf().estimate(again)
    Banzhaf().estimate(again.with_targets([OPENED, ENTRY]))
    assert len(engine.seen) == 8
    np.testing.assert_allclose(found.rescored(token_overlap).exact(ENDS), found.exact(ENDS))


def test_what_one_asks_for_later_the_other_has_too() -> None:
    engine = answering(by_facts)
    found = value(engine)
    found.with_targets([OPENED]).exact(ENDS)
    found.exact(ENDS)
    assert len(engine.seen) == 2


def test_through_a_cache_a_later_run_with_another_metric_costs_no_call() -> None:
    cache, engine = Cache(":memory:"), answering(by_facts)
    first = MeteredEngine(engine, cache=cache)
    Banzhaf().estimate(value(first))
    later = MeteredEngine(engine, cache=cache, budget=Budget(calls=0))
    Banzhaf().estimate(value(later, OPENED, metric=numeric_aware()))
    assert (first.cost.calls, later.cost.calls, later.cost.cache_hits) == (8, 0, 8)
    with pytest.raises(BudgetExceededError):
        value(later, sampling=Sampling(max_tokens=9)).exact(ALL)


def test_regenerations_are_the_texts_in_the_order_of_the_masks() -> None:
    found = value(answering(by_facts))
    assert found.regenerations(np.concatenate([NONE, ALL, NONE])) == [UNKNOWN, ANSWER, UNKNOWN]


def test_all_claims_of_all_regenerations_are_embedded_in_one_call_per_target() -> None:
    class Letters:
        spec = "test:letters"
        calls = 0

        def embed(self, texts: Sequence[str]) -> np.ndarray:
            self.calls += 1
            return np.array([[text.count(letter) + 0.1 for letter in "aeinorst19"] for text in texts])

    embedder = Letters()
    found = value(answering(by_facts), OPENED, metric=embedding_similarity(embedder))
    values = found.exact(np.array([[a, b, True] for a in (True, False) for b in (True, False)]))
    assert embedder.calls == 1
    np.testing.assert_allclose(values[:2], 1)
    assert (values[2:] < 0.95).all()


# Windows


def test_a_mask_that_leaves_no_room_for_an_answer_is_not_sent() -> None:
    engine = answering(by_facts)
    engine.max_context = 120  # bytes and 16 for the message, as no tokenizer is known
    found = value(engine, sampling=Sampling(max_tokens=50))
    masks = np.array([[True, True, True], [True, False, False], [False, False, False]])
    assert found.fits(masks).tolist() == [False, True, True]
    values = found.exact(masks)
    assert len(engine.seen) == 2
    assert np.isnan(values[0]).all()
    assert np.isfinite(values[1:]).all()
    assert np.isnan(found.repeats(2)).all()
    assert found.exact(ALL).shape == (1, 1)
    assert len(engine.seen) == 2


# Noise


def test_repeats_of_a_greedy_engine_are_the_full_value_and_of_the_same_seed() -> None:
    engine = Dice([ANSWER])
    np.testing.assert_array_equal(value(engine, WHOLE, OPENED).repeats(3), np.ones((3, 2)))
    assert engine.seeds == [0, 0, 0]


def test_repeats_are_sampled_with_a_seed_each_and_measured_against_the_recorded_response() -> None:
    engine = Dice([ANSWER, UNKNOWN, "It opened in 1937. Entry is free."])
    found = value(engine, WHOLE, sampling=Sampling(temperature=1.0, seed=7))
    repeats = found.repeats(12)
    assert engine.seeds == list(range(8, 20))
    assert repeats.shape == (12, 1)
    assert set(np.round(repeats[:, 0], 3)) == {0.0, 0.667, 1.0} == {round(x, 3) for x in (0, 2 / 3, 1)}


def test_the_masks_themselves_share_one_seed() -> None:
    engine = Dice([ANSWER, UNKNOWN])
    value(engine, sampling=Sampling(temperature=1.0, seed=7)).exact(ENDS)
    assert engine.seeds == [7, 7]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_through_a_cache_repeats_are_measured_once_each_and_then_free(temperature: float) -> None:
    cache, sampling = Cache(":memory:"), Sampling(temperature=temperature)
    first = MeteredEngine(Dice([ANSWER, UNKNOWN]), cache=cache)
    found = value(first, sampling=sampling)
    found.exact(ALL)
    repeats = found.repeats(4)
    assert first.cost.calls == 5
    later = MeteredEngine(Dice([ANSWER, UNKNOWN]), cache=cache)
    np.testing.assert_array_equal(value(later, sampling=sampling).repeats(4), repeats)
    assert (later.cost.calls, later.cost.cache_hits) == (0, 4)


def test_an_engine_that_answers_at_random_shows_in_its_repeats() -> None:
    class Random(Dice):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
            self.seeds.append(0)
            return [Completion(self.faces[len(self.seeds) % 2], "stop") for _ in prompts]

    assert value(Random([ANSWER, UNKNOWN])).repeats(4).std() == 0.5
    assert value(Random([ANSWER, ANSWER])).repeats(4).std() == 0


@pytest.mark.parametrize("n", [0, -1])
def test_no_repeats_cost_nothing(n: int) -> None:
    engine = answering(by_facts)
    assert value(engine).repeats(n).shape == (0, 1)
    assert engine.seen == []


# Failures


def test_an_empty_answer_has_nothing_in_common_with_a_text() -> None:
    np.testing.assert_array_equal(value(ScriptedEngine(" \n"), WHOLE, OPENED).exact(ALL), [[0, 0]])


def test_a_failure_is_raised_and_never_scored() -> None:
    engine = ScriptedEngine(ANSWER, failures={2: EngineError("test:scripted is overloaded; wait")})
    with pytest.raises(EngineError, match="overloaded"):
        value(engine).exact(ENDS)


class Calling(ScriptedEngine):
    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        return [Completion(str(self.reply), "tool_calls") for _ in prompts]


def test_a_tool_call_in_place_of_an_answer_has_nothing_in_common_with_it() -> None:
    np.testing.assert_array_equal(value(Calling("")).exact(ALL), [[0]])


def test_where_a_call_was_recorded_and_the_engine_does_not_tell_its_calls_it_is_an_error() -> None:
    generation, segments = told(tool_calls=(ToolCall("c1", "search", {"query": "fair"}),))
    options = {"segments": segments, "response": generation.written, "metric": token_overlap}
    whole = [Target(TargetKind.RESPONSE, 0, len(generation.written), generation.written)]
    with pytest.raises(EngineError, match="called tools but does not tell which"):
        ResponseSimilarity(Calling(""), generation, targets=whole, **options).exact(ALL)
    told_calls = Calling(generation.written)
    assert ResponseSimilarity(told_calls, generation, targets=whole, **options).exact(ALL)[0, 0] == 1


def test_an_empty_response_is_refused() -> None:
    generation, segments = told()
    with pytest.raises(InputError, match="has an empty response"):
        ResponseSimilarity(ScriptedEngine(), generation, segments=segments, response=" ", metric=token_overlap)


def test_an_expected_answer_is_no_target() -> None:
    with pytest.raises(InputError, match="an expected answer is no part of the response"):
        value(ScriptedEngine(), Target(TargetKind.REFERENCE, 0, 4, "1912"))


def test_a_metric_that_gives_no_similarity_is_named() -> None:
    def broken(original: str, regenerated: str) -> float:
        return float("nan")

    with pytest.raises(InputError, match="metric 'broken' gave"):
        value(answering(by_facts), metric=broken).exact(ALL)


def test_an_engine_that_only_scores_is_refused_by_what_it_needs() -> None:
    class Scorer:
        spec = "test:scorer"

        def score(self, prompts: Sequence[Prompt], continuation: str) -> list[Any]:
            return []

    with pytest.raises(MissingCapabilityError, match="needs generate"):
        require(Scorer(), ResponseSimilarity.needs, by="ResponseSimilarity")


def test_columns_of_one_document_are_a_group() -> None:
    generation, segments = told()
    grouped = [Segment(s.id, s.kind, s.text, s.locations, group_id=g) for s, g in zip(segments, "aba", strict=True)]
    found = ResponseSimilarity(
        ScriptedEngine(), generation, segments=grouped, response=ANSWER, metric=token_overlap, targets=[WHOLE]
    )
    assert found.groups == ((0, 2), (1,))
