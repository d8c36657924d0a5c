"""The value functions against closed forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.errors import BudgetExceededError, InputError
from attr_core.metering import MeteredEngine
from attr_core.prompt import ablations
from attr_core.protocols import Capability, Engine, GateScores, ScreenedValue, TailSize, TokenScores
from attr_core.reading import LOG_PROBABILITY_CEILING
from attr_core.results import Budget, FloatArray, MaskArray
from attr_core.testing import AdditiveEngine
from attr_core.types import Claim, Generation, Location, Message, Prompt, Segment, SegmentKind, Target, TargetKind
from attr_core.values import ResponseLogOdds, log_odds

CONTEXT = "Red is warm.\nBlue is cold."
SEGMENTS = (
    Segment("red", SegmentKind.RETRIEVED, "Red is warm.", (Location(0, 0, 12),)),
    Segment("blue", SegmentKind.RETRIEVED, "Blue is cold.", (Location(0, 13, 26),)),
)
RESPONSE = "It is warm. It is cold."
FACTS = {"warm": {"Red is warm.": 5.0}, "cold": {"Blue is cold.": 7.0, "Red is warm.": -1.0}}
ENGINE = AdditiveEngine(FACTS, bias=-2.0)
GENERATION = Generation((Message("user", CONTEXT),), RESPONSE)
MASKS = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], dtype=bool)


def value(*targets: Target) -> ResponseLogOdds:
    claims = (Claim(0, 0, 11, RESPONSE[:11]), Claim(1, 12, 23, RESPONSE[12:]))
    return ResponseLogOdds(ENGINE, GENERATION, segments=SEGMENTS, response=RESPONSE, targets=targets, claims=claims)


def test_a_word_is_worth_its_log_odds_under_each_mask() -> None:
    warm, cold = Target(TargetKind.PIVOT, 6, 10, "warm"), Target(TargetKind.PIVOT, 18, 22, "cold")
    expected = [[3, 4], [3, -3], [-2, 5], [-2, -2]]
    np.testing.assert_allclose(value(warm, cold).exact(MASKS), expected, atol=1e-9)


def test_all_direct_targets_share_their_passes() -> None:
    engine = AdditiveEngine({"warm": {}, "cold": {}})
    targets = [Target(TargetKind.CLAIM, 0, 11, "It is warm."), Target(TargetKind.RESPONSE, 0, 23, RESPONSE)]
    ResponseLogOdds(engine, GENERATION, segments=SEGMENTS, response=RESPONSE, targets=targets).exact(MASKS)
    assert engine.calls == 4


def test_a_total_target_is_scored_without_the_earlier_claims() -> None:
    total = Target(TargetKind.CLAIM, 12, 23, "It is cold.", claim=1, reading="total")
    np.testing.assert_allclose(value(total).exact(MASKS[:1]), [[4]], atol=1e-9)
    np.testing.assert_array_equal(value(total).scales, [3])


def test_a_word_of_a_total_target_is_read_in_its_claim_alone() -> None:
    total = Target(TargetKind.PIVOT, 18, 22, "cold", claim=1, reading="total")
    np.testing.assert_allclose(value(total).exact(MASKS), [[4], [-3], [5], [-2]], atol=1e-9)


def test_a_total_target_without_a_claim_is_an_error() -> None:
    with pytest.raises(InputError, match="belongs to no claim"):
        value(Target(TargetKind.SPAN, 18, 22, "cold", reading="total")).exact(MASKS)


def test_masks_whose_prompt_exceeds_the_window_are_nan_and_not_sent() -> None:
    engine = AdditiveEngine({"warm": {"Red is warm.": 5.0}}, max_context=120)
    warm = Target(TargetKind.PIVOT, 6, 10, "warm")
    narrow = ResponseLogOdds(engine, GENERATION, segments=SEGMENTS, response=RESPONSE, targets=[warm])
    engine.max_context = 16 + len(RESPONSE) + 16 + 14  # room for one of the two sentences
    np.testing.assert_array_equal(narrow.fits(MASKS), [False, True, True, True])
    assert np.isnan(narrow.exact(MASKS)[0, 0])
    assert engine.calls == 3


def test_the_whole_response_multiplies_its_words_probabilities() -> None:
    whole = value(Target(TargetKind.RESPONSE, 0, 23, RESPONSE)).exact(MASKS[:1])[0, 0]
    probability = 1 / (1 + math.exp(-3)) / (1 + math.exp(-4))
    assert whole == pytest.approx(math.log(probability / (1 - probability)))


def test_tokens_are_given_with_their_offsets() -> None:
    offsets, logprobs = value().tokens(MASKS)
    assert [RESPONSE[start:end] for start, end in offsets] == ["It", " is", " warm.", " It", " is", " cold."]
    assert logprobs.shape == (4, 6)


def test_an_empty_response_is_an_error() -> None:
    with pytest.raises(InputError, match="empty response"):
        ResponseLogOdds(ENGINE, GENERATION, segments=SEGMENTS, response=" \n")


@given(st.floats(-40, 15))
def test_log_odds_invert_the_logistic_function(odds: float) -> None:
    logprob = -np.logaddexp(0, -odds)
    assert log_odds(np.array(logprob)) == pytest.approx(odds, abs=1e-6)


def test_certainty_is_capped_and_finite() -> None:
    assert log_odds(np.array(0.0)) == pytest.approx(-math.log(-LOG_PROBABILITY_CEILING), abs=1e-6)


# What an engine that caches its prompt offers on top

LEAK = 0.25
"""By how much a hidden segment leaves the log-odds higher than a deleted one."""


class CachingEngine(AdditiveEngine):
    """An additive engine that can hide and differentiate too, and keeps what it was asked."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.scored: list[Prompt] = []
        self.hid: list[tuple[str, int]] = []
        self.differentiated: list[tuple[str, list[tuple[int, int]]]] = []

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        self.scored += prompts
        return super().score(prompts, continuation)

    def score_hidden(
        self, prompt: Prompt, segments: Sequence[Segment], masks: MaskArray, continuation: str
    ) -> list[TokenScores]:
        self.hid.append((continuation, len(masks)))
        left = ablations(Generation(prompt.messages, continuation), segments, masks)
        scores = super().score(left, continuation)
        return [
            replace(score, logprobs=score.logprobs - LEAK * (~mask).sum() * (score.logprobs < 0))
            for score, mask in zip(scores, masks, strict=True)
        ]

    def gate_gradients(
        self,
        prompt: Prompt,
        segments: Sequence[Segment],
        gates: FloatArray,
        continuation: str,
        targets: Sequence[Target],
    ) -> list[GateScores]:
        self.differentiated.append((continuation, [(target.start, target.end) for target in targets]))
        words = [continuation[target.start : target.end] for target in targets]
        slopes = [[self.facts[word].get(segment.text, 0.0) for segment in segments] for word in words]
        return [GateScores(np.zeros(len(targets)), np.array(slopes) * row, 10) for row in gates]

    def tail_size(self, prompt: Prompt, segments: Sequence[Segment], continuation: str) -> TailSize:
        return TailSize(100, 10)


WARM, COLD = Target(TargetKind.PIVOT, 6, 10, "warm"), Target(TargetKind.PIVOT, 18, 22, "cold")
TOTAL = replace(COLD, claim=1, reading="total")
CLAIMS = (Claim(0, 0, 11, RESPONSE[:11]), Claim(1, 12, 23, RESPONSE[12:]))


def caching() -> CachingEngine:
    return CachingEngine(FACTS, bias=-2.0)


def cached(
    engine: AdditiveEngine, *targets: Target, screen: Engine | None = None, segments: Sequence[Segment] = SEGMENTS
) -> ResponseLogOdds:
    return ResponseLogOdds(
        engine, GENERATION, segments=segments, response=RESPONSE, targets=targets, claims=CLAIMS, screen=screen
    )


def declaring(*capabilities: Capability) -> CachingEngine:
    engine = caching()
    engine.capabilities = frozenset(capabilities)
    return engine


@pytest.mark.parametrize(
    ("engine", "screen", "is_offered"),
    [
        (ENGINE, None, False),
        (caching(), None, True),
        (MeteredEngine(caching()), None, True),
        (MeteredEngine(ENGINE), None, False),
        (declaring(Capability.SCORE), None, False),
        (declaring(Capability.SCORE, Capability.SCORE_HIDDEN), None, False),
        (declaring(Capability.SCORE, Capability.GATE_GRADIENTS), None, False),
        (ENGINE, caching(), True),
        (caching(), ENGINE, False),
    ],
)
def test_hiding_and_gradients_are_offered_where_the_screening_engine_can_do_both(
    engine: AdditiveEngine, screen: Engine | None, is_offered: bool
) -> None:
    for found in (cached(engine, WARM, screen=screen), cached(engine, screen=screen).with_targets([WARM])):
        assert (hasattr(found, "hidden"), hasattr(found, "gradients")) == (is_offered, is_offered)
        assert isinstance(found, ScreenedValue) == is_offered


def test_all_kept_is_read_off_the_cached_prompt_and_nothing_else_is() -> None:
    engine = caching()
    found = cached(engine, WARM, COLD)
    np.testing.assert_array_equal(found.exact(MASKS), cached(ENGINE, WARM, COLD).exact(MASKS))
    assert engine.hid == [(RESPONSE, 1)]
    assert [message.content.strip() for prompt in engine.scored for message in prompt.messages] == [
        "Red is warm.",
        "Blue is cold.",
        "",
    ]
    shuffled = found.exact(MASKS[[3, 0, 1, 0]])
    np.testing.assert_array_equal(shuffled, cached(ENGINE, WARM, COLD).exact(MASKS[[3, 0, 1, 0]]))


def test_hiding_reads_what_hiding_gives() -> None:
    engine = caching()
    hidden = cached(engine, WARM, COLD).hidden(MASKS)
    exact = cached(ENGINE, WARM, COLD).exact(MASKS)
    np.testing.assert_array_equal(hidden[0], exact[0])
    assert (hidden[1:] < exact[1:]).all()
    assert engine.scored == []
    assert cached(engine, WARM).hidden(MASKS[:0]).shape == (0, 1)


def test_a_total_target_is_hidden_and_differentiated_in_its_claim_alone() -> None:
    engine = caching()
    found = cached(engine, WARM, TOTAL)
    hidden = found.hidden(MASKS)
    assert engine.hid == [(RESPONSE, 4), ("It is cold.", 4)]
    np.testing.assert_allclose(hidden[0], [3, 4], atol=1e-9)
    slopes = found.gradients(np.array([[1.0, 1.0], [0.5, 0.1]]))
    assert engine.differentiated == [(RESPONSE, [(6, 10)]), ("It is cold.", [(6, 10)])]
    np.testing.assert_allclose(slopes, [[[5, 0], [-1, 7]], [[2.5, 0], [-0.5, 0.7]]])


def test_targets_of_the_same_span_share_a_gradient() -> None:
    engine = caching()
    same = replace(WARM, kind=TargetKind.SPAN)
    slopes = cached(engine, COLD, WARM, same, COLD).gradients(np.ones((1, 2)))
    assert engine.differentiated == [(RESPONSE, [(18, 22), (6, 10)])]
    np.testing.assert_allclose(slopes, [[[-1, 7], [5, 0], [5, 0], [-1, 7]]])


def test_deleting_the_last_segment_is_priced_at_little_and_deleting_the_first_at_the_prompt() -> None:
    lines = [f"Line number {n} of ten, of one length." for n in range(10)]
    places = [(n * 40, n * 40 + len(line)) for n, line in enumerate(lines)]
    content = "".join(line.ljust(40) for line in lines)
    segments = [
        Segment(str(n), SegmentKind.RETRIEVED, line, (Location(0, *place),))
        for n, (line, place) in enumerate(zip(lines, places, strict=True))
    ]
    order = [7, 0, 3, 9, 1, 2, 4, 5, 6, 8]  # columns need not come in the prompt's order
    found = ResponseLogOdds(
        caching(),
        Generation((Message("user", content),), RESPONSE),
        segments=[segments[n] for n in order],
        response=RESPONSE,
        targets=[WARM],
    )
    prices = dict(zip(order, found.prices(~np.eye(10, dtype=bool)).tolist(), strict=True))
    assert [prices[n] for n in range(10)] == [10 + 10 * (9 - n) for n in range(10)]
    assert found.prices(np.ones((1, 10), dtype=bool)).tolist() == [10]
    assert found.prices(np.zeros((1, 10), dtype=bool)).tolist() == [10]
    halves = np.array([n >= 5 for n in order])
    assert found.prices(np.array([halves, ~halves])).tolist() == [10 + 50, 10]


def test_without_a_cache_every_deletion_is_priced_at_all_that_is_kept() -> None:
    generation, segments = told([f"Line number {n} of ten." for n in range(10)])
    engine = AdditiveEngine({"warm": {}})
    found = ResponseLogOdds(engine, generation, segments=segments, response=RESPONSE, targets=[WARM], screen=caching())
    prices = found.prices(~np.eye(10, dtype=bool))
    assert prices.min() == prices.max()
    assert prices[0] > 5 * found.prices(np.zeros((1, 10), dtype=bool))[0] / 2


def test_near_duplicates_are_told_by_their_columns() -> None:
    texts = ["Page 3 of the county records.", "Blue is cold.", "PAGE 4 of the county records."]
    segments = [Segment(str(n), SegmentKind.RETRIEVED, text, (Location(0, 0, 1),)) for n, text in enumerate(texts)]
    assert cached(ENGINE, segments=segments).alike == ((0, 2),)
    assert cached(ENGINE).alike == ()


def test_another_engine_screens_and_this_one_deletes() -> None:
    engine, screen = (
        AdditiveEngine(FACTS, bias=-2.0),
        CachingEngine({"warm": {}, "cold": {"Red is warm.": 3.0}}, bias=0),
    )
    found = cached(engine, COLD, screen=screen)
    np.testing.assert_allclose(found.exact(MASKS), [[4], [-3], [5], [-2]], atol=1e-9)
    assert screen.hid == []
    assert engine.calls == 4, "all kept is no longer to be had from a cache"
    np.testing.assert_allclose(found.hidden(MASKS)[0], [3], atol=1e-9)
    np.testing.assert_allclose(found.gradients(np.ones((1, 2))), [[[3, 0]]])
    assert engine.calls == 4


def test_an_engine_and_its_screen_spend_from_one_account_and_keep_its_caps_together() -> None:
    engine = MeteredEngine(AdditiveEngine(FACTS, bias=-2.0), budget=Budget(calls=9))
    found = cached(engine, COLD, screen=engine.alongside(caching()))
    found.exact(MASKS)
    found.hidden(MASKS)
    assert engine.cost.calls == 8
    with pytest.raises(BudgetExceededError, match="3 more calls after 8 would pass the budget of 9"):
        found.gradients(np.ones((1, 2)))
    with pytest.raises(BudgetExceededError, match="after 8"):
        cached(engine, TOTAL).exact(MASKS)
    assert engine.cost.calls == 8


def told(texts: Sequence[str]) -> tuple[Generation, list[Segment]]:
    content, segments = "", []
    for text in texts:
        places = (Location(0, len(content), len(content) + len(text)),)
        segments.append(Segment(text, SegmentKind.RETRIEVED, text, places))
        content += text + "\n"
    return Generation((Message("user", content + "So what?"),), RESPONSE), segments


@pytest.mark.parametrize("screened_by", [None, "qwen2"])
def test_on_a_real_cache_all_kept_is_the_plain_score_and_another_model_screens_by_itself(
    tiny_engine: Any, screened_by: str | None
) -> None:
    generation, segments = told(["The tower opened in 1835.", "The river is cold.", "Nobody knows."])
    engine, screen = tiny_engine("llama"), None if screened_by is None else tiny_engine(screened_by)
    targets = [Target(TargetKind.RESPONSE, 0, 23, RESPONSE), TOTAL]
    whole = np.ones((1, 3), dtype=bool)
    masks = np.array([[True, False, True], [False, False, False]])

    def on(measuring: Any, screen: Any = None) -> ResponseLogOdds:
        return ResponseLogOdds(
            measuring,
            generation,
            segments=segments,
            response=RESPONSE,
            targets=targets,
            claims=CLAIMS,
            screen=screen,
        )

    found, plain = on(engine, screen), on(_Plain(engine))
    np.testing.assert_allclose(found.exact(whole), plain.exact(whole), atol=1e-3)
    np.testing.assert_allclose(found.exact(masks), plain.exact(masks), atol=1e-3)
    screens = on(engine if screen is None else screen)
    np.testing.assert_allclose(found.hidden(whole), screens.exact(whole), atol=1e-3)
    np.testing.assert_allclose(found.hidden(masks), screens.hidden(masks), atol=1e-3)
    np.testing.assert_allclose(
        found.gradients(np.full((1, 3), 0.5)), screens.gradients(np.full((1, 3), 0.5)), atol=1e-3
    )
    if screen is not None:
        assert np.abs(found.hidden(whole) - found.exact(whole)).max() > 0.1


def test_on_a_real_cache_prices_are_about_what_is_forwarded(tiny_engine: Any) -> None:
    generation, segments = told(["The tower opened in 1835.", *(f"The city market {n} is cold." for n in range(7))])
    engine = MeteredEngine(tiny_engine("llama"))
    found = ResponseLogOdds(engine, generation, segments=segments, response=RESPONSE, targets=[WARM])
    found.exact(np.ones((1, 8), dtype=bool))
    for column in (7, 4, 1):
        mask = np.arange(8)[None] != column
        before = engine.cost.tokens_in
        found.exact(mask)
        assert found.prices(mask)[0] == pytest.approx(engine.cost.tokens_in - before, rel=0.35)
    late, early = found.prices(~np.eye(8, dtype=bool))[[7, 0]]
    assert early > 3 * late


class _Plain:
    """The same model as one that scores only."""

    def __init__(self, engine: Any) -> None:
        self.score, self.spec, self.fingerprint = engine.score, engine.spec, engine.fingerprint
        self.max_context = engine.max_context
