"""Scores with segments hidden in the cache, against plain passes and against masks written out by hand."""

import copy
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from attr_core.capabilities import offered  # noqa: E402
from attr_core.engines._layer_masks import layer_windows  # noqa: E402
from attr_core.engines._layout import lay_out  # noqa: E402
from attr_core.engines._memory import Footprint  # noqa: E402
from attr_core.engines.huggingface import HuggingFaceEngine  # noqa: E402
from attr_core.errors import (  # noqa: E402
    ConfigurationError,
    ContextTooLongError,
    InputError,
    MissingCapabilityError,
    SegmentationError,
)
from attr_core.protocols import Capability, Sampling  # noqa: E402
from attr_core.types import Location, Message, Prompt, Segment, SegmentKind, ToolCall  # noqa: E402

FAMILIES = (
    "llama",
    "qwen2",
    "qwen2-sliding",
    "qwen3",
    "qwen3-sliding",
    "mistral",
    "gemma",
    "gemma2",
    "gemma3",
)
ON_CACHE = {Capability.SCORE_HIDDEN, Capability.GATE_GRADIENTS}
FACTS = [
    "The tower opened in 1835.",
    "The market closed in 1902.",
    "Nobody knows the keeper.",
    "The river is cold.",
    "Who built the city?",
]
RESPONSE = "The old tower opened in 1835, and it is cold."


def segment(name, *locations):
    return Segment(name, SegmentKind.RETRIEVED, "", tuple(Location(*location) for location in locations))


def facts(texts=FACTS, *, times=1):
    """A prompt whose question comes last, and a segment for each of the texts before it."""
    content, segments = "Context:\n", []
    for number, text in enumerate(texts * times):
        segments.append(segment(str(number), (1, len(content), len(content) + len(text))))
        content += text + "\n"
    messages = (Message("system", "Be brief."), Message("user", content + "\nWhen did the tower open?"))
    return Prompt(messages), segments


def random_masks(n_masks, n_segments, seed=0):
    return np.random.default_rng(seed).random((n_masks, n_segments)) < 0.5


def logprobs(scores):
    return np.array([score.logprobs for score in scores])


def laid_out(engine, prompt, segments):
    return lay_out(engine._model.writer, engine._model.tokens, prompt, segments)


def one_pass(engine, layout, hidden, continuation):
    """The same mask in one pass over everything, without cache or packing: each query's keys written out one by one."""
    model = engine._model.forward.model
    ids = [*layout.prefix, *layout.tail, *engine._model.tokens.encode(continuation)]
    low = torch.finfo(torch.float32).min
    masks = {}
    for kind, window in layer_windows(model.config).items():
        mask = torch.full((len(ids), len(ids)), low)
        for query in range(len(ids)):
            for key in range(query + 1):
                in_window = window is None or query - key < window
                is_hidden = query >= len(layout.prefix) and key < len(layout.prefix) and hidden[key]
                if in_window and not is_hidden:
                    mask[query, key] = 0
        masks[kind] = mask[None, None]
    given = masks if len(masks) > 1 else next(iter(masks.values()))
    with torch.inference_mode():
        logits = model(torch.tensor([ids]), attention_mask=given, use_cache=False).logits[0].double().log_softmax(-1)
    begin = len(layout.prefix) + len(layout.tail)
    return [logits[at - 1, ids[at]].item() for at in range(begin, len(ids))]


# The numbers


@pytest.mark.parametrize("family", FAMILIES)
def test_hiding_nothing_equals_the_plain_score(tiny_engine, family):
    engine = tiny_engine(family)
    prompt, segments = facts()
    [hidden] = engine.score_hidden(prompt, segments, np.ones((1, 5), dtype=bool), RESPONSE)
    [plain] = engine.score([prompt], RESPONSE)
    np.testing.assert_allclose(hidden.logprobs, plain.logprobs, atol=1e-4)
    np.testing.assert_array_equal(hidden.offsets, plain.offsets)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_any_mask_equals_one_unpacked_pass_with_the_same_mask(tiny_engine, family, attention):
    if (family, attention) == ("gemma2", "sdpa"):
        pytest.skip("transformers has no soft-capping in sdpa")
    engine = tiny_engine(family, attention=attention)
    prompt, segments = facts()
    masks = np.concatenate([random_masks(6, 5), np.zeros((1, 5), dtype=bool)])
    found = engine.score_hidden(prompt, segments, masks, RESPONSE)
    layout = laid_out(engine, prompt, segments)
    expected = [one_pass(engine, layout, hidden, RESPONSE) for hidden in layout.hidden(masks)]
    np.testing.assert_allclose(logprobs(found), expected, atol=1e-4)
    assert len({tuple(row.round(3)) for row in logprobs(found)}) > 1


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
@pytest.mark.parametrize("options", [{"max_batch_tokens": 1}, {"max_batch_tokens": 100}, {"hidden_memory": 1}])
def test_how_many_masks_share_a_pass_does_not_matter(tiny_engine, family, options):
    prompt, segments = facts()
    masks = random_masks(9, 5)
    packed = tiny_engine(family).score_hidden(prompt, segments, masks, RESPONSE)
    other = tiny_engine(family, **options).score_hidden(prompt, segments, masks, RESPONSE)
    np.testing.assert_allclose(logprobs(packed), logprobs(other), atol=1e-4)


def test_masks_come_in_their_order_and_each_as_if_alone(tiny_engine):
    engine = tiny_engine("gemma2")
    prompt, segments = facts()
    masks = random_masks(7, 5)
    alone = [engine.score_hidden(prompt, segments, mask[None], RESPONSE)[0] for mask in masks]
    np.testing.assert_allclose(
        logprobs(engine.score_hidden(prompt, segments, masks, RESPONSE)), logprobs(alone), atol=1e-4
    )


def test_all_places_of_a_segment_are_hidden_together(tiny_engine):
    engine = tiny_engine("llama")
    prompt, apart = facts()
    tied = [segment("both", (1, *span(apart[0])), (1, *span(apart[3]))), apart[1]]
    [one] = engine.score_hidden(prompt, [*tied, apart[4]], np.array([[False, True, True]]), RESPONSE)
    [other] = engine.score_hidden(prompt, apart, np.array([[False, True, True, False, True]]), RESPONSE)
    np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def span(one):
    return one.locations[0].start, one.locations[0].end


def test_what_is_hidden_does_not_matter_and_what_is_kept_does(tiny_model, tiny_tokenizer):
    """Behind one layer of attention nothing of a hidden segment is left."""
    prompt, segments = facts(["The tower opened in 2794.", "The river is cold."])
    other, _ = facts(["The tower opened in 4679.", "The river is cold."])
    engine = HuggingFaceEngine(tiny_model("llama", num_hidden_layers=1), tiny_tokenizer)
    masks = np.array([[False, True], [True, True]])
    before, after = (logprobs(engine.score_hidden(p, segments, masks, RESPONSE)) for p in (prompt, other))
    np.testing.assert_allclose(before[0], after[0], atol=1e-5)
    assert np.abs(before[1] - after[1]).max() > 1e-3


def test_no_masks_give_no_scores(tiny_engine):
    prompt, segments = facts()
    assert tiny_engine("llama").score_hidden(prompt, segments, np.ones((0, 5), dtype=bool), RESPONSE) == []


def test_a_prompt_without_segments_is_scored_plainly(tiny_engine):
    engine = tiny_engine("llama")
    prompt, _ = facts()
    scores = engine.score_hidden(prompt, [], np.ones((2, 0), dtype=bool), RESPONSE)
    for score in scores:
        np.testing.assert_allclose(score.logprobs, engine.score([prompt], RESPONSE)[0].logprobs, atol=1e-4)


def test_a_prompt_of_one_token_has_no_prefix(tiny_model, tiny_tokenizer):
    engine = with_template(tiny_model, tiny_tokenizer, "{% for m in messages %}{{ m.content }}{% endfor %}")
    prompt = Prompt((Message("user", "a"),))
    [score] = engine.score_hidden(prompt, [segment("all", (0, 0, 1))], np.array([[False]]), RESPONSE)
    np.testing.assert_allclose(score.logprobs, engine.score([prompt], RESPONSE)[0].logprobs, atol=1e-4)


def test_the_window_can_be_filled_to_its_last_token(tiny_engine):
    engine = tiny_engine("gemma3")
    prompt, segments = facts(times=4)
    room = engine.max_context - len(engine.render(prompt).token_ids)
    everything = np.ones((1, 20), dtype=bool)
    [hidden] = engine.score_hidden(prompt, segments, everything, "z" * room)
    assert len(hidden.logprobs) == room
    np.testing.assert_allclose(hidden.logprobs, engine.score([prompt], "z" * room)[0].logprobs, atol=1e-4)
    with pytest.raises(ContextTooLongError, match="512 tokens"):
        engine.score_hidden(prompt, segments, everything, "z" * (room + 1))


# The cache


def test_the_prompt_is_forwarded_once_and_counted_for_the_first_mask(tiny_engine):
    engine = tiny_engine("llama")
    prompt, segments = facts()
    [plain] = engine.score([prompt], RESPONSE)
    size = engine.tail_size(prompt, segments, RESPONSE)
    assert not size.is_held
    assert size.prefix + size.tail == plain.tokens_in
    first = engine.score_hidden(prompt, segments, random_masks(3, 5), RESPONSE)
    again = engine.score_hidden(prompt, segments, random_masks(2, 5), RESPONSE)
    assert [score.tokens_in for score in first] == [plain.tokens_in, size.tail, size.tail]
    assert [score.tokens_in for score in again] == [size.tail] * 2
    assert engine.tail_size(prompt, segments, RESPONSE).is_held
    engine.release()
    assert not engine.tail_size(prompt, segments, RESPONSE).is_held
    assert engine.score_hidden(prompt, segments, random_masks(1, 5), RESPONSE)[0].tokens_in == plain.tokens_in


def test_a_prompt_that_begins_alike_forwards_only_the_rest(tiny_engine):
    engine = tiny_engine("gemma3")
    prompt, segments = facts()
    engine.score_hidden(prompt, segments[:2], random_masks(1, 2), RESPONSE)
    held = engine.tail_size(prompt, segments[:2], RESPONSE).prefix
    size = engine.tail_size(prompt, segments, RESPONSE)
    masks = random_masks(4, 5)
    extended = engine.score_hidden(prompt, segments, masks, RESPONSE)
    assert extended[0].tokens_in == size.prefix - held + size.tail
    shorter = engine.score_hidden(prompt, segments[:2], masks[:, :2], RESPONSE)
    assert shorter[0].tokens_in == engine.tail_size(prompt, segments[:2], RESPONSE).tail
    for found, columns in ((extended, 5), (shorter, 2)):
        fresh = tiny_engine("gemma3").score_hidden(prompt, segments[:columns], masks[:, :columns], RESPONSE)
        np.testing.assert_allclose(logprobs(found), logprobs(fresh), atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2"])
def test_other_calls_in_between_leave_the_cache_as_it_was(tiny_engine, family):
    engine = tiny_engine(family)
    prompt, segments = facts()
    masks = random_masks(3, 5)
    before = engine.score_hidden(prompt, segments, masks, RESPONSE)
    engine.generate([prompt], Sampling(max_tokens=3))
    engine.score([prompt, Prompt((Message("user", "Hi"),))], "Yes.")
    engine.score_hidden(prompt, segments, ~masks, "No, nobody.")
    engine.gate_gradients(prompt, segments, np.full((2, 5), 0.3), RESPONSE, [])
    after = engine.score_hidden(prompt, segments, masks, RESPONSE)
    np.testing.assert_allclose(logprobs(before), logprobs(after), atol=1e-5)


def test_a_failure_half_way_leaves_no_half_cache(tiny_engine, monkeypatch):
    engine = tiny_engine("llama", max_batch_tokens=40)
    prompt, segments = facts()
    masks = random_masks(2, 5)
    forward, calls = engine._model.forward, []
    continued = forward.continued

    def fails_at_the_second_chunk(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return continued(*arguments, **options)

    monkeypatch.setattr(forward, "continued", fails_at_the_second_chunk)
    with pytest.raises(KeyboardInterrupt):
        engine.score_hidden(prompt, segments, masks, RESPONSE)
    found = engine.score_hidden(prompt, segments, masks, RESPONSE)
    fresh = tiny_engine("llama").score_hidden(prompt, segments, masks, RESPONSE)
    np.testing.assert_allclose(logprobs(found), logprobs(fresh), atol=1e-4)


def test_packs_shrink_with_the_stated_memory(tiny_engine):
    prompt, segments = facts()
    rows = []
    for memory in (1, 1_000_000, 10_000_000):
        engine = tiny_engine("llama", hidden_memory=memory)
        size = engine.tail_size(prompt, segments, RESPONSE)
        packed = engine._prefix.rows_at_once(size.tail, size.prefix, n_read=20)
        footprint = Footprint.of(engine._model.forward, layer_windows(engine._model.config))
        needed = footprint.in_all(packed, size.tail, size.prefix, n_read=20)
        assert packed == 1 or needed <= memory
        rows.append(packed)
    assert rows[0] == 1 < rows[1] < rows[2]


def test_a_budget_that_is_no_number_of_bytes_is_refused(tiny_model, tiny_tokenizer):
    with pytest.raises(ConfigurationError, match="hidden_memory=0"):
        HuggingFaceEngine(tiny_model("llama"), tiny_tokenizer, hidden_memory=0)


# Where the segments stand


def token_bytes(engine, ids):
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    codes = {character: byte for byte, character in bytes_to_unicode().items()}
    names = engine._model.tokenizer.convert_ids_to_tokens(list(ids))
    return b"".join(bytes(codes[c] for c in name) for name in names)


CONTROL = "<|im_end|>"
TEXTS = st.lists(st.sampled_from([*"ab .\n\té漢🙂'\"{}", CONTROL, " to", "tower"]), max_size=20).map("".join)


@pytest.fixture(scope="module")
def llama(tiny_engine):
    return tiny_engine("llama")


@settings(max_examples=150)
@given(data=st.data(), contents=st.lists(TEXTS, min_size=1, max_size=3))
def test_hidden_tokens_hold_the_whole_segment_and_share_a_character_with_it(llama, data, contents):
    message = data.draw(st.integers(0, len(contents) - 1))
    content = contents[message]
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(content))] * 2)))
    prompt = Prompt(tuple(Message("user", content) for content in contents))
    layout = laid_out(llama, prompt, [segment("s", (message, start, end))])
    ids = np.array([*layout.prefix, *layout.tail])
    assert tuple(ids) == llama.render(prompt).token_ids
    wanted = content[start:end].strip()
    places = np.flatnonzero(layout.members[0])
    assert (len(places) > 0) == bool(wanted)
    if wanted:
        assert list(places) == list(range(places[0], places[-1] + 1))
        assert wanted.encode() in token_bytes(llama, ids[places])
        for first in range(len(content)):  # control tokens' texts are hidden whole
            if content.startswith(CONTROL, first) and first < end and first + len(CONTROL) > start:
                start, end = min(start, first), max(end, first + len(CONTROL))
        assert token_bytes(llama, ids[places[1:-1]]) in content[start:end].encode()


def test_a_token_across_a_boundary_is_hidden_with_either_side(llama):
    content = "The tower"
    assert [llama._model.decode([token]) for token in llama._model.tokens.encode(content)] == ["The", " tower"]
    prompt = Prompt((Message("user", content), Message("user", "So?")))
    layout = laid_out(llama, prompt, [segment("left", (0, 0, 6)), segment("right", (0, 6, 9))])
    left, right = (np.flatnonzero(row) for row in layout.members)
    assert list(left[1:]) == list(right)
    np.testing.assert_array_equal(layout.hidden(np.array([[True, False], [False, True]])), layout.members[::-1])


def test_places_are_those_after_the_templates_trimming(tiny_engine):
    engine = tiny_engine("llama")
    prompt = Prompt((Message("user", "  \n The tower.  \n"), Message("user", "So?")))
    layout = laid_out(engine, prompt, [segment("all", (0, 0, 17))])
    assert engine._model.decode(np.array(layout.prefix)[layout.members[0]].tolist()) == "The tower."


def test_white_space_that_the_template_keeps_goes_with_its_segment(tiny_engine):
    engine = tiny_engine("llama")
    prompt = Prompt((Message("user", "A b.\n\n  C d.  \nE."), Message("user", "So?")))
    layout = laid_out(engine, prompt, [segment("middle", (0, 4, 15))])
    assert engine._model.decode(np.array(layout.prefix)[layout.members[0]].tolist()) == "\n\n  C d.  \n"


def test_the_first_and_the_last_token_stay(tiny_engine, tiny_tokenizer, tiny_model):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    engine = HuggingFaceEngine(tiny_model("llama"), tokenizer)
    prompt = Prompt((Message("user", "The tower opened."),))
    layout = laid_out(engine, prompt, [segment("all", (0, 0, 17))])
    [members] = layout.members
    assert not members[0]
    assert members[1:].all()
    assert len(layout.tail) == 1
    [score] = engine.score_hidden(prompt, [segment("all", (0, 0, 17))], np.array([[False]]), RESPONSE)
    assert np.isfinite(score.logprobs).all()


def test_tool_calls_and_outputs_that_the_template_cannot_carry_are_found_where_they_are_written(tiny_engine):
    engine = tiny_engine("llama")
    call = ToolCall(id="1", name="lookup", arguments={"place": "tower"})
    messages = (
        Message("user", "When?"),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "It opened in 1835.", tool_call_id="1"),
        Message("user", "So?"),
    )
    layout = laid_out(engine, Prompt(messages), [segment("year", (2, 13, 17))])
    assert "1835" in engine._model.decode(np.array(layout.prefix)[layout.members[0]].tolist())


def with_template(tiny_model, tiny_tokenizer, template):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.chat_template = template
    return HuggingFaceEngine(tiny_model("llama"), tokenizer)


def test_what_the_template_leaves_out_has_no_place_and_the_rest_of_its_segment_has(tiny_model, tiny_tokenizer):
    template = "{% for m in messages %}<|im_start|>{{ m.content.split('</think>')[-1] }}{% endfor %}<|im_start|>"
    engine = with_template(tiny_model, tiny_tokenizer, template)
    content = "thought</think>The tower."
    prompt = Prompt((Message("user", content), Message("user", "So?")))
    segments = [segment("thought", (0, 0, 7)), segment("all", (0, 0, len(content)))]
    thought, everything = laid_out(engine, prompt, segments).members
    assert not thought.any()
    ids = np.array(laid_out(engine, prompt, segments).prefix)[everything]
    assert engine._model.decode(ids.tolist()) == "The tower."


def test_a_template_that_looks_at_how_a_text_begins_is_refused(tiny_model, tiny_tokenizer):
    template = "{% for m in messages %}{% if m.content.startswith('Context') %}!{% endif %}{{ m.content }}{% endfor %}"
    engine = with_template(tiny_model, tiny_tokenizer, template)
    prompt, _ = facts()
    with pytest.raises(SegmentationError, match="template"):
        engine.score_hidden(prompt, [segment("first", (1, 0, 20))], np.array([[True]]), RESPONSE)


@pytest.mark.parametrize("location", [(7, 0, 1), (1, 0, 9999), (1, 5, 3), (-1, 0, 1)])
def test_places_outside_the_prompt_are_refused(tiny_engine, location):
    prompt, _ = facts()
    with pytest.raises(SegmentationError):
        tiny_engine("llama").score_hidden(prompt, [segment("s", location)], np.array([[True]]), RESPONSE)


@pytest.mark.parametrize("shape", [(5,), (1, 4), (1, 6)])
def test_masks_of_another_shape_are_refused(tiny_engine, shape):
    prompt, segments = facts()
    with pytest.raises(SegmentationError, match="do not fit 5 segments"):
        tiny_engine("llama").score_hidden(prompt, segments, np.ones(shape, dtype=bool), RESPONSE)


def test_an_empty_response_is_refused(tiny_engine):
    prompt, segments = facts()
    with pytest.raises(InputError, match="empty"):
        tiny_engine("llama").score_hidden(prompt, segments, np.ones((1, 5), dtype=bool), "")


# Which models


def other_model(name, tiny_tokenizer, **options):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.4, **options}
    sizes |= {"vocab_size": len(tiny_tokenizer), "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1}
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM" if name != "GPT2" else "GPT2LMHeadModel")
    return model(getattr(transformers, f"{name}Config")(**sizes)).eval()


OTHERS = {
    "Phi3": {"intermediate_size": 48, "num_key_value_heads": 2, "sliding_window": 24},
    "GPT2": {"n_positions": 512},
    "GPTNeoX": {"intermediate_size": 48, "max_position_embeddings": 512},
    "Bloom": {"n_layer": 2, "n_head": 4},
    "Mixtral": {"intermediate_size": 48, "num_key_value_heads": 2, "num_local_experts": 2, "head_dim": 8},
    "Olmo2": {"intermediate_size": 48, "num_key_value_heads": 2},
    "Cohere2": {
        "intermediate_size": 48,
        "num_key_value_heads": 2,
        "sliding_window": 24,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "Mamba": {"state_size": 4, "intermediate_size": 64},
    "Mamba2": {"num_heads": 8, "head_dim": 8, "state_size": 4, "n_groups": 1},
    "RecurrentGemma": {"intermediate_size": 48, "num_key_value_heads": 2, "num_hidden_layers": 3, "lru_width": 32},
    "FalconH1": {"intermediate_size": 48, "num_key_value_heads": 2, "mamba_d_ssm": 32, "mamba_n_heads": 4},
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_family_that_is_tried_offers_is_true(name, tiny_tokenizer):
    engine = HuggingFaceEngine(other_model(name, tiny_tokenizer, **OTHERS[name]), tiny_tokenizer)
    prompt, segments = facts()
    if Capability.SCORE_HIDDEN not in offered(engine):
        with pytest.raises(MissingCapabilityError, match="score_hidden"):
            engine.score_hidden(prompt, segments, random_masks(1, 5), RESPONSE)
        return
    masks = np.concatenate([np.ones((1, 5), dtype=bool), random_masks(3, 5)])
    found = engine.score_hidden(prompt, segments, masks, RESPONSE)
    np.testing.assert_allclose(found[0].logprobs, engine.score([prompt], RESPONSE)[0].logprobs, atol=1e-4)
    layout = laid_out(engine, prompt, segments)
    expected = [one_pass(engine, layout, hidden, RESPONSE) for hidden in layout.hidden(masks)]
    np.testing.assert_allclose(logprobs(found), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["Phi3", "GPT2", "Mixtral", "Olmo2"])
def test_plain_decoders_outside_the_list_offer_it_after_a_try(name, tiny_tokenizer):
    engine = HuggingFaceEngine(other_model(name, tiny_tokenizer, **OTHERS[name]), tiny_tokenizer)
    assert offered(engine) >= ON_CACHE


@pytest.mark.parametrize("name", ["Mamba", "Mamba2", "RecurrentGemma", "FalconH1"])
def test_models_that_keep_a_state_do_not(name, tiny_tokenizer):
    engine = HuggingFaceEngine(other_model(name, tiny_tokenizer, **OTHERS[name]), tiny_tokenizer)
    assert offered(engine) == {Capability.GENERATE, Capability.SCORE}
    prompt, segments = facts()
    with pytest.raises(MissingCapabilityError, match="score_hidden"):
        engine.score_hidden(prompt, segments, random_masks(1, 5), RESPONSE)
    with pytest.raises(MissingCapabilityError, match="gate_gradients"):
        engine.gate_gradients(prompt, segments, np.ones((1, 5)), RESPONSE, [])


def test_attention_that_looks_ahead_does_not(tiny_engine):
    engine = tiny_engine("gemma3")
    if not hasattr(engine._model.config, "use_bidirectional_attention"):
        pytest.skip("this version of transformers has none")
    engine._model.config.use_bidirectional_attention = True
    assert offered(engine) == {Capability.GENERATE, Capability.SCORE}


def test_attention_that_takes_no_mask_does_not(tiny_model, tiny_tokenizer, monkeypatch):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def blind(module, query, key, value, attention_mask, **options):
        return sdpa(module, query, key, value, None, **{**options, "is_causal": query.shape[2] == key.shape[2]})

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "blind", blind)
    model = tiny_model("llama")
    model.config._attn_implementation = "blind"
    assert offered(HuggingFaceEngine(model, tiny_tokenizer)) == {Capability.GENERATE, Capability.SCORE}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_try_agrees_with_the_list(tiny_engine, family):
    from attr_core.engines._self_check import by_trying

    engine = tiny_engine(family)
    assert by_trying(engine._model.forward, layer_windows(engine._model.config)) == ON_CACHE


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_precisions_are_offered_and_agree_with_their_plain_score(tiny_engine, dtype):
    from attr_core.engines._self_check import by_trying

    engine = tiny_engine("qwen3", dtype=dtype)
    assert by_trying(engine._model.forward, layer_windows(engine._model.config)) == ON_CACHE
    prompt, segments = facts()
    [hidden] = engine.score_hidden(prompt, segments, np.ones((1, 5), dtype=bool), RESPONSE)
    [plain] = engine.score([prompt], RESPONSE)
    tolerance = {"bfloat16": 0.3, "float16": 0.05, "float64": 1e-9}[dtype]
    np.testing.assert_allclose(hidden.logprobs, plain.logprobs, atol=tolerance)


# Real weights


@pytest.mark.model
@pytest.mark.parametrize("fixture", ["small_engine", "gemma_engine"])
def test_on_real_weights_nothing_hidden_is_the_plain_score_and_packs_do_not_matter(request, fixture):
    engine = request.getfixturevalue(fixture)
    engine.release()
    texts = [f"Fact {number}: the tower of city {number} opened in {1800 + number}." for number in range(40)]
    prompt, segments = facts(texts)
    assert len(engine.render(prompt).token_ids) > 700  # beyond Gemma's sliding window of 512
    masks = np.concatenate([np.ones((1, 40), dtype=bool), np.zeros((1, 40), dtype=bool), random_masks(4, 40)])
    found = engine.score_hidden(prompt, segments, masks, RESPONSE)
    np.testing.assert_allclose(found[0].logprobs, engine.score([prompt], RESPONSE)[0].logprobs, atol=1e-4)
    for mask, score in zip(masks[1:4], found[1:4], strict=True):
        [alone] = engine.score_hidden(prompt, segments, mask[None], RESPONSE)
        np.testing.assert_allclose(score.logprobs, alone.logprobs, atol=1e-4)
    assert np.abs(found[0].logprobs - found[1].logprobs).max() > 1


@pytest.mark.model
def test_capabilities_of_a_known_family_come_without_loading_its_weights(small_engine):
    from attr_core.engines.local_models import convert_gguf, find_packaged

    engine = HuggingFaceEngine(str(convert_gguf(find_packaged("SmolLM2-135M-Instruct.Q4_1.gguf"))))
    assert offered(engine) == offered(small_engine) >= ON_CACHE
    assert "forward" not in vars(engine._model)


PEAK = r"""
import json, pathlib, sys
import numpy as np
import torch
from attr_core.engines.huggingface import HuggingFaceEngine
from attr_core.types import Location, Message, Prompt, Segment, SegmentKind

torch.set_num_threads(1)
def memory(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
engine = HuggingFaceEngine("SmolLM2-135M-Instruct.Q4_1.gguf", hidden_memory=int(sys.argv[1]))
response, content, segments = "The tower of city 5 opened in 1805.", "", []
while len(segments) < 355:
    text = f"Fact {len(segments)}: the tower of city {len(segments)} opened in {1800 + len(segments)}.\n"
    place = Location(0, len(content), len(content) + len(text))
    segments.append(Segment(str(len(segments)), SegmentKind.RETRIEVED, text, (place,)))
    content += text
prompt = Prompt((Message("user", content + "When did the tower of city 5 open?"),))
engine.score([Prompt((Message("user", "Hi"),))], response)
pathlib.Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
masks = np.random.default_rng(0).random((64, len(segments))) < 0.5
engine.score_hidden(prompt, segments, masks, response)
size = engine.tail_size(prompt, segments, response)
print(json.dumps({"tokens": size.prefix + size.tail, "peak": memory("VmHWM") - before}))
"""


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel how much memory was used")
@pytest.mark.usefixtures("small_engine")
def test_the_stated_memory_holds_for_eight_thousand_tokens_and_64_masks():
    budget = 1 << 30
    run = subprocess.run([sys.executable, "-c", PEAK, str(budget)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert 7_900 < found["tokens"] <= 8_192
    assert found["peak"] <= budget
