"""Exact scores of prompts that begin alike: the same numbers whichever way, and the shared tokens forwarded once."""

import copy
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from attr_core.engines import _shared  # noqa: E402
from attr_core.engines._forward import batches  # noqa: E402
from attr_core.engines._shared import Sharing, Terms, share  # noqa: E402
from attr_core.engines._tokens import n_alike  # noqa: E402
from attr_core.engines.huggingface import HuggingFaceEngine  # noqa: E402
from attr_core.errors import ContextTooLongError, EngineError  # noqa: E402
from attr_core.metering import MeteredEngine  # noqa: E402
from attr_core.protocols import Sampling  # noqa: E402
from attr_core.types import Location, Message, Prompt, Segment, SegmentKind  # noqa: E402

FAMILIES = ("llama", "qwen2-sliding", "qwen3", "mistral", "gemma", "gemma2", "gemma3")
SYSTEM = "Answer from the facts alone. Be brief, and say so where nobody knows. The keeper of the market asks."
FACTS = (
    "The tower opened in 1835.",
    "The market closed in 1902.",
    "Nobody knows the keeper.",
    "The river is cold.",
    "Who built the city?",
    "The old market does.",
)
RESPONSE = "The old tower opened in 1835, and it is cold."


def prompt(kept, *, facts=FACTS):
    content = "".join(fact + "\n" for fact, is_kept in zip(facts, kept, strict=True) if is_kept)
    return Prompt((Message("system", SYSTEM), Message("user", f"{content}\nWhen did the tower open?")))


def without(*gone, n=6):
    return [number not in gone for number in range(n)]


def full_and_segments():
    full, segments, begin = prompt(without()), [], 0
    for number, fact in enumerate(FACTS):
        location = Location(1, begin, begin + len(fact) + 1)
        segments.append(Segment(str(number), SegmentKind.RETRIEVED, fact, (location,)))
        begin = location.end
    return full, segments


def one_by_one(engine, prompts, response=RESPONSE):
    """Each prompt in a plain pass of its own, by an engine around the same model that holds nothing."""
    fresh = HuggingFaceEngine(engine._model.forward.model, engine._model.tokenizer)
    found = []
    for one in prompts:
        found += fresh.score([one], response)
        fresh.release()
    return found


def ids_of(engine, one):
    return engine.render(one).token_ids


def hold(engine, one, response=RESPONSE):
    """Let the engine hold a prompt up to its last segment, as a screen does."""
    full, segments = one
    engine.score_hidden(full, segments, np.ones((1, len(segments)), dtype=bool), response)


def assert_alike(found, expected, atol=1e-4):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=atol)
        np.testing.assert_array_equal(one.offsets, other.offsets)


# The numbers


DELETED = st.lists(st.sets(st.integers(0, len(FACTS) - 1)), min_size=1, max_size=9)


@pytest.fixture(scope="module")
def kept_engine(tiny_engine):
    """One engine of each family for all examples."""
    return functools.cache(tiny_engine)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=15)
@given(deleted=DELETED, before=st.lists(DELETED, max_size=2), is_screened=st.booleans())
def test_any_batch_scores_as_each_prompt_in_a_plain_pass(kept_engine, family, deleted, before, is_screened):
    engine = kept_engine(family)
    engine.release()
    if is_screened:
        hold(engine, full_and_segments())
    for others in before:
        engine.score([prompt(without(*gone)) for gone in others], RESPONSE)
    prompts = [prompt(without(*gone)) for gone in deleted]
    assert_alike(engine.score(prompts, RESPONSE), one_by_one(engine, prompts))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_rests_of_different_lengths_share_a_pass(tiny_engine, family, attention, monkeypatch):
    if (family, attention) == ("gemma2", "sdpa"):
        pytest.skip("transformers has no soft-capping in sdpa")
    engine = tiny_engine(family, attention=attention)
    prompts = [prompt(without(n)) for n in range(len(FACTS))]
    expected = one_by_one(engine, prompts)
    hold(engine, full_and_segments())
    passes = []
    rests = engine._prefix.rests
    monkeypatch.setattr(engine._prefix, "rests", lambda *a, **k: passes.append(a) or rests(*a, **k))
    assert_alike(engine.score(prompts, RESPONSE), expected)
    starts, tails = passes[0]
    assert len(set(starts)) == len(set(map(len, tails))) > 1


@pytest.mark.parametrize("options", [{"max_batch_tokens": 1}, {"max_batch_tokens": 100}, {"hidden_memory": 1}])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_how_much_goes_into_a_pass_does_not_matter(tiny_engine, family, options):
    prompts = [prompt(without(n)) for n in range(len(FACTS))]
    engine = tiny_engine(family, **options)
    assert_alike(engine.score(prompts, RESPONSE), one_by_one(engine, prompts))


def test_another_continuation_of_the_same_prompts_scores_as_in_plain_passes(tiny_engine):
    engine = tiny_engine("llama")
    prompts = [prompt(without(n)) for n in range(len(FACTS))]
    for response in (RESPONSE, "No.", "Nobody knows who built the old tower of the city, but the keeper does."):
        assert_alike(engine.score(prompts, response), one_by_one(engine, prompts, response))


def test_a_prompt_that_begins_another_and_one_sent_twice_score_as_in_plain_passes(tiny_model, tiny_tokenizer):
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    engine = HuggingFaceEngine(tiny_model("gemma2"), tokenizer)
    text = " ".join(FACTS)
    prompts = [Prompt((Message("user", one),)) for one in (text, text, text + " Who?", text[:60], "T")]
    expected = one_by_one(engine, prompts)
    for _ in range(2):  # the second time around all is held
        assert_alike(engine.score(prompts, RESPONSE), expected)
        assert_alike(engine.score(prompts[:1], RESPONSE), expected[:1])


def test_the_window_can_be_filled_to_its_last_token(tiny_engine):
    engine = tiny_engine("gemma3")
    prompts = [prompt(without()), prompt(without(5)), prompt(without(4))]
    room = engine.max_context - len(ids_of(engine, prompts[0]))
    assert_alike(engine.score(prompts, "z" * room), one_by_one(engine, prompts, "z" * room))
    with pytest.raises(ContextTooLongError, match=r"prompt 0 .* 512 tokens"):
        engine.score(prompts, "z" * (room + 1))


def test_nan_is_an_error_behind_a_held_prompt_too(tiny_model, tiny_tokenizer):
    engine = HuggingFaceEngine(tiny_model("llama"), tiny_tokenizer)
    hold(engine, full_and_segments())
    with torch.no_grad():
        engine._model.forward.model.lm_head.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="NaN"):
        engine.score([prompt(without(5))], RESPONSE)


# The tokens


@settings(max_examples=40)
@given(deleted=st.lists(st.sets(st.integers(0, len(FACTS) - 1), min_size=1, max_size=3), min_size=1, max_size=8))
def test_deletions_from_a_held_prompt_forward_exactly_what_follows_the_shared_tokens(kept_engine, deleted):
    engine = kept_engine("llama")
    engine.release()
    hold(engine, full_and_segments())
    held = engine._prefix.held
    prompts = [prompt(without(*gone)) for gone in deleted]
    rows = [ids_of(engine, one) for one in prompts]
    n_continuation = len(engine._model.tokens.encode(RESPONSE))
    wide = max(map(len, rows)) + n_continuation
    found = engine.score(prompts, RESPONSE)
    if engine._prefix.held == held:
        expected = [len(row) - n_alike(held, row) + n_continuation for row in rows]
        assert [score.tokens_in for score in found] == expected
    # Another prompt is held only where that forwards fewer tokens, with what it forgets counted.
    forgotten = len(held) - n_alike(held, engine._prefix.held)
    assert sum(score.tokens_in for score in found) + forgotten <= sum(
        len(row) - n_alike(held, row) + n_continuation for row in rows
    )
    assert all(score.tokens_in <= wide for score in found)


def test_leaving_one_out_forwards_the_full_prompt_once_and_each_rest(tiny_engine):
    engine = tiny_engine("llama")
    kept = [without(), *(without(n) for n in range(len(FACTS)))]
    rows = [ids_of(engine, prompt(one)) for one in kept]
    n_continuation = len(engine._model.tokens.encode(RESPONSE))
    found = engine.score([prompt(one) for one in kept], RESPONSE)
    shared = [n_alike(rows[0], row) for row in rows[1:]]
    rests = [len(row) - n + n_continuation for row, n in zip(rows[1:], shared, strict=True)]
    assert [score.tokens_in for score in found] == [len(rows[0]) + n_continuation, *rests]
    assert sum(rests) < 0.75 * sum(len(row) + n_continuation for row in rows[1:])
    again = engine.score([prompt(one) for one in kept], RESPONSE)
    assert [score.tokens_in for score in again] == [1 + n_continuation, *rests]


def test_slices_of_one_design_forward_what_they_share_once(tiny_model, tiny_tokenizer):
    facts = [f"The tower {n} opened in {1800 + 7 * n}." for n in range(24)]
    kept = [without(n=24), *(without(n, n=24) for n in range(24))]
    prompts = [prompt(one, facts=facts) for one in kept]
    engine = HuggingFaceEngine(tiny_model("llama", max_position_embeddings=2048), tiny_tokenizer)
    n_full = len(ids_of(engine, prompts[0]))
    metered = MeteredEngine(engine)
    metered.score(prompts, "Yes.")
    n_continuation = len(engine._model.tokens.encode("Yes."))
    full = ids_of(engine, prompts[0])
    rests = sum(len(row) - n_alike(full, row) + n_continuation for row in (ids_of(engine, one) for one in prompts[1:]))
    # Each slice may hold a prompt that lacks one segment, of which the next one then forwards the end.
    assert n_full + rests <= metered.cost.tokens_in < 1.1 * (n_full + n_continuation + rests)


def test_a_screened_prompt_stays_held_between_exact_deletions(tiny_engine):
    engine = tiny_engine("mistral")
    full, segments = full_and_segments()
    size = engine.tail_size(full, segments, RESPONSE)
    masks = np.random.default_rng(0).random((3, len(FACTS))) < 0.5
    engine.score_hidden(full, segments, masks, RESPONSE)
    for gone in [[{5}], [{4}, {4, 5}, {3, 4, 5}], [{2}, {2, 5}, {2, 4}, {1, 5}], [{0}, {0, 3}, {0, 2, 4}]]:
        engine.score([prompt(without(*one)) for one in gone], RESPONSE)
        assert engine.tail_size(full, segments, RESPONSE).is_held
        assert engine.score_hidden(full, segments, masks, RESPONSE)[0].tokens_in == size.tail
    engine.score([full], RESPONSE)
    assert engine.score_hidden(full, segments, masks, RESPONSE)[0].tokens_in == size.tail


def test_a_prompt_scored_alone_is_not_kept(tiny_engine):
    engine = tiny_engine("llama")
    full, segments = full_and_segments()
    [score] = engine.score([full], RESPONSE)
    assert score.tokens_in == len(ids_of(engine, full)) + len(score.logprobs)
    assert not engine.tail_size(full, segments, RESPONSE).is_held


def test_what_is_kept_is_freed_by_release(tiny_engine):
    engine = tiny_engine("llama")
    prompts = [prompt(without(n)) for n in range(len(FACTS))]
    first = [score.tokens_in for score in engine.score(prompts, RESPONSE)]
    assert sum(score.tokens_in for score in engine.score(prompts, RESPONSE)) < sum(first)
    engine.release()
    assert [score.tokens_in for score in engine.score(prompts, RESPONSE)] == first


# Where nothing is shared


def plain_tokens(engine, prompts):
    n_continuation = len(engine._model.tokens.encode(RESPONSE))
    return [len(ids_of(engine, one)) + n_continuation for one in prompts]


def never_on_a_cache(engine, monkeypatch):
    def fail(*_, **__):
        pytest.fail("this model's cache must not be used")

    monkeypatch.setattr(engine._model.forward, "continued", fail)


def test_models_that_keep_a_state_forward_every_prompt_whole(tiny_tokenizer, monkeypatch):
    torch.manual_seed(0)
    config = transformers.MambaConfig(
        vocab_size=len(tiny_tokenizer),
        hidden_size=32,
        state_size=4,
        num_hidden_layers=2,
        pad_token_id=1,
        bos_token_id=1,
        eos_token_id=1,
    )
    engine = HuggingFaceEngine(transformers.MambaForCausalLM(config).eval(), tiny_tokenizer)
    assert "score_hidden" not in engine.capabilities
    never_on_a_cache(engine, monkeypatch)
    prompts = [prompt(without(n)) for n in range(len(FACTS))]
    assert [score.tokens_in for score in engine.score(prompts, RESPONSE)] == plain_tokens(engine, prompts)


def test_positions_that_turn_by_the_longest_one_are_never_continued(tiny_tokenizer, monkeypatch):
    """Beyond their trained window such models read all positions otherwise, those of the beginning included."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    tokens = {"vocab_size": len(tiny_tokenizer), "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1}
    config = transformers.Phi3Config(
        **sizes,
        **tokens,
        num_key_value_heads=2,
        max_position_embeddings=512,
        original_max_position_embeddings=64,
        rope_scaling={"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [3.0] * 4},
    )
    assert not _shared.is_position_fixed(config)
    engine = HuggingFaceEngine(transformers.Phi3ForCausalLM(config).eval(), tiny_tokenizer)
    assert "score_hidden" in engine.capabilities
    never_on_a_cache(engine, monkeypatch)
    prompts = [prompt(without(n)) for n in range(len(FACTS))]
    found = engine.score(prompts, RESPONSE)
    assert [score.tokens_in for score in found] == plain_tokens(engine, prompts)
    assert_alike(found, one_by_one(engine, prompts))


def test_without_the_memory_for_it_every_prompt_is_forwarded_whole(tiny_engine):
    prompts = [prompt(without(n)) for n in range(len(FACTS))]
    engine = tiny_engine("llama", hidden_memory=1)
    assert [score.tokens_in for score in engine.score(prompts, RESPONSE)] == plain_tokens(engine, prompts)
    assert engine._prefix.held == ()


def test_prompts_that_share_little_stay_in_their_batches(tiny_engine, monkeypatch):
    engine = tiny_engine("llama")
    never_on_a_cache(engine, monkeypatch)
    prompts = [Prompt((Message("user", f"{fact} {' '.join(FACTS)}"),)) for fact in ("Who?", "In 1902.", "Cold.")]
    assert [score.tokens_in for score in engine.score(prompts, RESPONSE)] == plain_tokens(engine, prompts)


# The decision

TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=12)


def terms(*, n_continuation=3, max_tokens=24, pass_tokens=2, budget=40, room=10_000):
    return Terms(
        n_continuation,
        max_tokens,
        pass_tokens,
        padded=lambda lengths: list(batches(lengths, budget=budget)),
        fits=lambda n_tokens, n_rows, n_held: n_held + n_tokens <= room,
    )


@settings(max_examples=400)
@given(rows=st.lists(TOKENS, min_size=1, max_size=8), held=TOKENS, room=st.integers(1, 60), is_wanted=st.booleans())
def test_what_is_shared_is_there_and_fits_and_is_packed_once(rows, held, room, is_wanted):
    found = share(rows, tuple(held), terms(room=room), is_wanted=is_wanted)
    kept = held if found.hold is None else rows[found.hold][:-1]
    assert sorted(n for pack in found.packs for n in pack) == sorted(found.shared)
    for n, shared in found.shared.items():
        assert 0 < shared < len(rows[n])
        assert rows[n][:shared] == kept[:shared]
        assert len(kept) + len(rows[n]) - shared + 2 <= room
    for pack in found.packs:
        assert len(pack) == 1 or sum(len(rows[n]) - found.shared[n] + 2 for n in pack) <= 24


@settings(max_examples=400)
@given(rows=st.lists(TOKENS, min_size=1, max_size=8), held=TOKENS)
def test_sharing_never_forwards_more_than_padded_batches_do(rows, held):
    settled = terms()
    found = share(rows, tuple(held), settled)
    padded = _shared._cost_padded(rows, range(len(rows)), settled)
    forgotten = n_new = 0
    if found.hold is not None:
        shared = n_alike(held, rows[found.hold])
        n_new, forgotten = len(rows[found.hold]) - 1 - shared, len(held) - shared
    assert _shared._cost(rows, found, settled) + n_new + forgotten <= padded


@settings(max_examples=200)
@given(rows=st.lists(TOKENS, min_size=1, max_size=8))
def test_shared_beginnings_are_those_of_every_pair(rows):
    found = dict(_shared._alike(rows))
    assert found == {n: [n_alike(one, other) for other in rows] for n, one in enumerate(rows)}


def test_a_held_prompt_gives_way_only_to_savings_above_what_it_cost_or_once_it_was_of_no_use():
    rows = [[*range(2000, 2100), n, n, n] for n in range(5)]
    for n_held, is_kept in ((250, False), (350, True), (1000, True)):  # of five rows of 100, four are saved
        held = tuple(range(n_held))
        assert (share(rows, held, terms(max_tokens=512)) == Sharing()) == is_kept
        assert share(rows, held, terms(max_tokens=512), is_wanted=False).hold == 0


def test_a_stale_prompt_gives_way_at_the_second_batch(tiny_engine):
    engine = tiny_engine("llama")
    engine.score([Prompt((Message("user", f"{'z' * 350}{n}"),)) for n in range(4)], RESPONSE)
    stale = engine._prefix.held
    prompts = [prompt(without(n)) for n in (3, 4)]
    engine.score(prompts, RESPONSE)
    assert engine._prefix.held == stale
    engine.score(prompts, RESPONSE)
    assert engine._prefix.held != stale


# Real weights


@pytest.mark.model
@pytest.mark.parametrize("fixture", ["small_engine", pytest.param("gemma_engine", marks=pytest.mark.slow)])
def test_on_real_weights_leaving_one_out_scores_as_in_plain_passes(request, fixture):
    engine = request.getfixturevalue(fixture)
    facts = [f"Fact {n}: the tower of city {n} opened in {1800 + n}." for n in range(36)]
    deleted = [(), (35,), (18,), (12, 20, 34)]
    prompts = [prompt(without(*gone, n=36), facts=facts) for gone in deleted]
    assert len(ids_of(engine, prompts[0])) > 600  # beyond Gemma's sliding window of 512
    expected = one_by_one(engine, prompts)
    engine.release()
    found = engine.score(prompts, RESPONSE)
    assert sum(one.tokens_in for one in found) < 0.6 * sum(one.tokens_in for one in expected)
    assert_alike(found, expected)
    engine.generate(prompts[1:2], Sampling(max_tokens=2))
    assert_alike(engine.score(prompts[:2], RESPONSE), expected[:2])
    engine.release()
