"""Gradients by gates, against finite differences, hidden masks and the reading of plain scores."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from attr_core.engines.huggingface import HuggingFaceEngine  # noqa: E402
from attr_core.errors import InputError, SegmentationError  # noqa: E402
from attr_core.reading import LOG_PROBABILITY_CEILING, log_odds, log_odds_slope  # noqa: E402
from attr_core.types import (  # noqa: E402
    Generation,
    Location,
    Message,
    Prompt,
    Segment,
    SegmentKind,
    Target,
    TargetKind,
)
from attr_core.values import ResponseLogOdds  # noqa: E402

RESPONSE = "It opened in 1835, and it is cold."
TARGETS = [
    Target(TargetKind.RESPONSE, 0, len(RESPONSE), RESPONSE),
    Target(TargetKind.SPAN, 13, 17, "1835"),
    Target(TargetKind.SPAN, 29, 33, "cold"),
]
FACTS = ["The tower opened in 1835.", "The market closed in 1902.", "The river is cold.", "Nobody knows."]
GATES = np.array([[0.9, 0.5, 0.2, 0.05], [0.05, 0.05, 0.05, 0.05]])
FAMILIES = ["llama", "qwen2", "qwen2-sliding", "qwen3", "qwen3-sliding", "mistral", "gemma", "gemma2", "gemma3"]


def facts(texts=FACTS):
    content, segments = "", []
    for text in texts:
        places = (Location(0, len(content), len(content) + len(text)),)
        segments.append(Segment(text, SegmentKind.RETRIEVED, text, places))
        content += text + "\n"
    return Prompt((Message("user", content + "So what?"),)), segments


def differences(engine, gates, *, columns, targets=TARGETS, step):
    """Central differences ``(n_targets, n_columns)`` of the log-odds by each gate."""
    prompt, segments = facts()
    rows = []
    for column in columns:
        for sign in (1, -1):
            row = gates.copy()
            row[column] += sign * step
            rows.append(row)
    values = np.array(
        [one.log_odds for one in engine.gate_gradients(prompt, segments, np.array(rows), RESPONSE, targets)]
    )
    return ((values[::2] - values[1::2]) / (2 * step)).T


@pytest.fixture
def throughout(monkeypatch):
    """Models in float64 all through: transformers takes norms and softmax in float32, too coarse for differences."""
    monkeypatch.setattr(torch, "float32", torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


@pytest.mark.usefixtures("throughout")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_finite_differences(tiny_engine, family, attention):
    if (family, attention) == ("gemma2", "sdpa"):
        pytest.skip("transformers has no soft-capping in sdpa")
    engine = tiny_engine(family, attention=attention, dtype="float64")
    prompt, segments = facts()
    for row, found in zip(GATES, engine.gate_gradients(prompt, segments, GATES, RESPONSE, TARGETS), strict=True):
        expected = differences(engine, row, columns=range(4), step=1e-5)
        np.testing.assert_allclose(found.gradients, expected, rtol=1e-4, atol=1e-5)
        assert np.abs(found.gradients).max() > 1e-3


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_open_gates_give_the_reading_of_the_plain_score(tiny_engine, family):
    engine = tiny_engine(family)
    prompt, segments = facts()
    generation = Generation(prompt.messages, RESPONSE)
    value = ResponseLogOdds(engine, generation, segments=segments, response=RESPONSE, targets=TARGETS)
    [found] = engine.gate_gradients(prompt, segments, np.ones((1, 4)), RESPONSE, TARGETS)
    np.testing.assert_allclose(found.log_odds, value.exact(np.ones((1, 4), dtype=bool))[0], atol=1e-3)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
def test_closing_gates_ends_at_the_hidden_mask(tiny_engine, family):
    engine = tiny_engine(family)
    prompt, segments = facts()
    mask = np.array([[False, True, False, True]])
    [closed] = engine.gate_gradients(prompt, segments, np.where(mask, 1, 1e-30), RESPONSE, TARGETS)
    [hidden] = engine.score_hidden(prompt, segments, mask, RESPONSE)
    assert closed.log_odds[0] == pytest.approx(log_odds(hidden.logprobs.sum()), abs=1e-3)


def test_rows_are_measured_as_if_alone_and_targets_too(tiny_engine):
    engine = tiny_engine("qwen3")
    prompt, segments = facts()
    together = engine.gate_gradients(prompt, segments, GATES, RESPONSE, TARGETS)
    for row, found in zip(GATES, together, strict=True):
        for number, target in enumerate(TARGETS):
            [alone] = engine.gate_gradients(prompt, segments, row[None], RESPONSE, [target])
            np.testing.assert_allclose(alone.gradients[0], found.gradients[number], atol=1e-5)
            assert alone.log_odds[0] == pytest.approx(found.log_odds[number], abs=1e-5)


def test_a_segment_in_several_places_has_the_sum_of_their_gradients(tiny_engine):
    engine = tiny_engine("llama", dtype="float64")
    prompt, apart = facts()
    places = (*apart[0].locations, *apart[2].locations)
    tied = [Segment("tied", SegmentKind.RETRIEVED, "", places), apart[1], apart[3]]
    [one] = engine.gate_gradients(prompt, tied, np.array([[0.3, 0.5, 0.7]]), RESPONSE, TARGETS)
    [each] = engine.gate_gradients(prompt, apart, np.array([[0.3, 0.5, 0.3, 0.7]]), RESPONSE, TARGETS)
    np.testing.assert_allclose(one.log_odds, each.log_odds, atol=1e-10)
    np.testing.assert_allclose(one.gradients[:, 0], each.gradients[:, 0] + each.gradients[:, 2], atol=1e-10)
    np.testing.assert_allclose(one.gradients[:, 1:], each.gradients[:, [1, 3]], atol=1e-10)


def test_a_token_in_two_segments_has_both_gates(tiny_engine):
    engine = tiny_engine("llama", dtype="float64")
    prompt, segments = facts()
    twice = [segments[0], segments[0]]
    [both] = engine.gate_gradients(prompt, twice, np.array([[0.5, 0.2]]), RESPONSE, TARGETS)
    [once] = engine.gate_gradients(prompt, segments[:1], np.array([[0.1]]), RESPONSE, TARGETS)
    np.testing.assert_allclose(both.log_odds, once.log_odds, atol=1e-10)
    np.testing.assert_allclose(both.gradients[:, 0], once.gradients[:, 0] * 0.2, atol=1e-10)


def test_cost_is_a_tail_per_row_and_two_more_per_target(tiny_engine):
    engine = tiny_engine("llama")
    prompt, segments = facts()
    size = engine.tail_size(prompt, segments, RESPONSE)
    first = engine.gate_gradients(prompt, segments, GATES, RESPONSE, TARGETS)
    again = engine.gate_gradients(prompt, segments, GATES, RESPONSE, TARGETS[:1])
    assert [one.tokens_in for one in first] == [size.prefix + 7 * size.tail, 7 * size.tail]
    assert [one.tokens_in for one in again] == [3 * size.tail] * 2


def test_nothing_asked_for_is_nothing_measured(tiny_engine):
    engine = tiny_engine("llama")
    prompt, segments = facts()
    assert engine.gate_gradients(prompt, segments, np.ones((0, 4)), RESPONSE, TARGETS) == []
    [no_targets] = engine.gate_gradients(prompt, segments, np.ones((1, 4)), RESPONSE, [])
    assert no_targets.gradients.shape == (0, 4)
    [no_segments] = engine.gate_gradients(prompt, [], np.ones((1, 0)), RESPONSE, TARGETS)
    assert no_segments.gradients.shape == (3, 0)
    [plain] = engine.score([prompt], RESPONSE)
    assert no_segments.log_odds[0] == pytest.approx(log_odds(plain.logprobs.sum()), abs=1e-3)


def test_a_given_models_weights_get_no_gradients(tiny_model, tiny_tokenizer):
    model = tiny_model("llama")
    engine = HuggingFaceEngine(model, tiny_tokenizer)
    prompt, segments = facts()
    assert all(weight.requires_grad for weight in model.parameters())
    with torch.inference_mode():  # the host's
        [found] = engine.gate_gradients(prompt, segments, GATES[:1], RESPONSE, TARGETS)
    assert np.abs(found.gradients).max() > 0
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("gate", [0.0, -0.1, 1.5, np.nan, np.inf])
def test_gates_that_are_none_are_refused(tiny_engine, gate):
    prompt, segments = facts()
    with pytest.raises(InputError, match="gate"):
        tiny_engine("llama").gate_gradients(prompt, segments, np.full((1, 4), gate), RESPONSE, TARGETS)


@pytest.mark.parametrize("shape", [(4,), (1, 3), (2, 5)])
def test_gates_of_another_shape_are_refused(tiny_engine, shape):
    prompt, segments = facts()
    with pytest.raises(SegmentationError, match="do not fit 4 segments"):
        tiny_engine("llama").gate_gradients(prompt, segments, np.ones(shape), RESPONSE, TARGETS)


def test_a_target_without_tokens_is_refused(tiny_engine):
    prompt, segments = facts()
    target = Target(TargetKind.SPAN, len(RESPONSE), len(RESPONSE) + 4, "more")
    with pytest.raises(InputError, match="'more'"):
        tiny_engine("llama").gate_gradients(prompt, segments, np.ones((1, 4)), RESPONSE, [target])


@given(st.floats(-60, -1e-6))
def test_the_slope_of_log_odds_is_their_derivative(logprob):
    step = 1e-4 * min(1.0, -logprob)
    ends = log_odds(np.array([logprob - step, logprob + step]))
    assert log_odds_slope(np.array(logprob)) == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-4)


def test_beyond_the_cap_log_odds_have_no_slope():
    assert log_odds_slope(np.array([0.0, LOG_PROBABILITY_CEILING / 2])).tolist() == [0.0, 0.0]


def in_float64(engine):
    model = copy.deepcopy(engine._model.forward.model).double()
    return HuggingFaceEngine(model, engine._model.tokenizer)


@pytest.mark.model
@pytest.mark.parametrize("fixture", ["small_engine", pytest.param("gemma_engine", marks=pytest.mark.slow)])
def test_gradients_on_real_weights_equal_finite_differences(request, fixture):
    engine = in_float64(request.getfixturevalue(fixture))
    request.getfixturevalue("throughout")  # loading would not take it
    prompt, segments = facts()
    gates = np.array([0.1, 0.3, 0.05, 0.8])
    year = TARGETS[1:2]
    [found] = engine.gate_gradients(prompt, segments, gates[None], RESPONSE, year)
    expected = differences(engine, gates, columns=[0], targets=year, step=1e-5)
    np.testing.assert_allclose(found.gradients[:, [0]], expected, rtol=1e-5)
    assert np.abs(found.gradients[0, 0]) > 0.1


@pytest.mark.model
def test_gradients_in_float32_are_those_in_float64(small_engine):
    prompt, segments = facts()
    [narrow] = small_engine.gate_gradients(prompt, segments, GATES[:1], RESPONSE, TARGETS[:1])
    engine = in_float64(small_engine)
    [wide] = engine.gate_gradients(prompt, segments, GATES[:1], RESPONSE, TARGETS[:1])
    np.testing.assert_allclose(narrow.gradients, wide.gradients, rtol=1e-3, atol=1e-3)
