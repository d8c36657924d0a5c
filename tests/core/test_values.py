"""The value functions against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.errors import InputError
from attr_core.reading import LOG_PROBABILITY_CEILING
from attr_core.testing import AdditiveEngine
from attr_core.types import Claim, Generation, Location, Message, Segment, SegmentKind, Target, TargetKind
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
