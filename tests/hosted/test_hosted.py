"""Real providers, a few cents at most: each test runs only where its provider's key is set and `hosted` is asked for.

Another model than the default is named by ATTRKIT_TEST_OPENAI, ATTRKIT_TEST_ANTHROPIC, ATTRKIT_TEST_GEMINI or
ATTRKIT_TEST_NVIDIA, as litellm names it.
"""

import importlib.util
import os
import traceback
from dataclasses import dataclass

import numpy as np
import pytest

from attr_core.engines.litellm import Limits, LiteLLMEngine
from attr_core.errors import EngineError, ModelNotFoundError
from attr_core.judge import LLMJudge
from attr_core.metering import MeteredEngine
from attr_core.protocols import Capability, Sampling
from attr_core.results import Budget
from attr_core.types import Claim, Message, Prompt, Segment, SegmentKind, ToolCall

pytestmark = [
    pytest.mark.hosted,
    pytest.mark.filterwarnings("ignore"),  # litellm's and the clients' own are not what is tested here
]
if importlib.util.find_spec("litellm") is None:
    pytest.skip("litellm is not installed", allow_module_level=True)

LIMITS = Limits(concurrency=2, timeout=60.0, retries=3, requests_per_minute=30)
ROOM = Sampling(max_tokens=1024)
"""Enough for models that think before they write."""

TOOL = {
    "type": "function",
    "function": {
        "name": "opening_year",
        "description": "The year in which a fair opened.",
        "parameters": {"type": "object", "properties": {"fair": {"type": "string"}}, "required": ["fair"]},
    },
}
JUDGED_CLAIMS = ("The Aldemoor fair opened in 1911.", "A ticket costs four marks.", "The fair has two gates.")
JUDGED_SEGMENTS = (
    "The Aldemoor fair opened in 1911. It is held each May.",
    "The Aldemoor fair opened in 1937.",
    "Tickets to the Aldemoor fair cost four marks each.",
    "Tickets to the Aldemoor fair cost nine marks each.",
    "The Aldemoor fair has exactly two gates.",
    "The lamp makers of Corvath formed a guild.",
)
WRONG_KEY = "sk-0123456789-no-such-key-0123456789"


@dataclass(frozen=True)
class Provider:
    key: str
    model: str
    embedding_model: str | None = None
    has_price: bool = True


PROVIDERS = {
    "openai": Provider("OPENAI_API_KEY", "openai/gpt-6-luna", "openai/text-embedding-3-small"),
    "anthropic": Provider("ANTHROPIC_API_KEY", "anthropic/claude-haiku-5-5"),
    "gemini": Provider("GEMINI_API_KEY", "gemini/gemini-3.5-flash-lite", "gemini/gemini-embedding-001"),
    "nvidia": Provider(
        "NVIDIA_API_KEY",
        "nvidia_nim/meta/llama-3.1-8b-instruct",
        "nvidia_nim/nvidia/nv-embedqa-e5-v5",
        has_price=False,
    ),
}


@pytest.fixture(params=PROVIDERS)
def provider(request):
    found = PROVIDERS[request.param]
    if not os.environ.get(found.key):
        pytest.skip(f"{found.key} is not set")
    return Provider(
        found.key,
        os.environ.get(f"ATTRKIT_TEST_{request.param.upper()}") or found.model,
        found.embedding_model,
        found.has_price,
    )


@pytest.fixture
def engine(provider):
    return LiteLLMEngine(provider.model, embedding_model=provider.embedding_model, limits=LIMITS)


def asked(*messages, tools=()):
    return Prompt(tuple(messages), tuple(tools))


FACTS = "The Aldemoor Lantern Festival opened in 1911. The Corvath Torch Parade opened in 1937."
QUESTION = asked(
    Message("system", "Answer in one short sentence, using only the context."),
    Message("user", f"Context:\n{FACTS}\n\nQuestion: In which year did the Aldemoor Lantern Festival open?"),
)


def test_it_answers_from_the_context_and_says_what_it_took(engine):
    (completion,) = engine.generate([QUESTION], ROOM)
    assert "1911" in completion.text
    assert completion.tokens_in > 20
    assert completion.tokens_out > 0
    assert completion.finish_reason == "stop"


def test_its_price_and_its_tokens_are_known_beforehand(provider, engine):
    assert (engine.price is not None) == provider.has_price
    (completion,) = engine.generate([QUESTION], ROOM)
    assert engine.count_tokens(QUESTION) == pytest.approx(completion.tokens_in, rel=0.6)


def test_messages_that_ablation_has_emptied_are_taken(engine):
    call = ToolCall("call_0", "opening_year", {"fair": "Aldemoor Lantern Festival"})
    emptied = [
        asked(Message("system", ""), Message("user", "Say yes.")),
        asked(Message("system", "Be brief."), Message("user", ""), Message("user", "Say yes.")),
        asked(
            Message("user", "When did the Aldemoor Lantern Festival open?"),
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", "", tool_call_id="call_0"),
            tools=[TOOL],
        ),
    ]
    assert len(engine.generate(emptied, ROOM)) == 3


def test_a_tool_call_is_told_as_text(engine):
    prompt = asked(Message("user", "Use the tool: when did the Aldemoor Lantern Festival open?"), tools=[TOOL])
    (completion,) = engine.generate([prompt], ROOM)
    assert "opening_year" in completion.text
    assert "Aldemoor" in completion.text


def test_a_budget_holds_and_nothing_is_paid_twice(engine):
    metered = MeteredEngine(engine, budget=Budget(calls=1))
    first = metered.generate([QUESTION], ROOM)
    assert metered.generate([QUESTION], ROOM) == first
    assert metered.cost.calls == 1


def test_texts_are_embedded(provider, engine):
    if provider.embedding_model is None:
        assert Capability.EMBED not in engine.capabilities
        pytest.skip("the provider has no embedding model")
    table = engine.embed(["When did the fair open?", "The year in which the fair was opened.", "Rivers freeze.", ""])
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    assert unit[0] @ unit[1] > unit[0] @ unit[2]


def test_a_wrong_key_is_refused_at_once_and_not_told(provider):
    engine = LiteLLMEngine(provider.model, api_key=WRONG_KEY, limits=LIMITS)
    with pytest.raises(EngineError) as caught:
        engine.generate([QUESTION] * 3, ROOM)
    told = "".join(traceback.format_exception(caught.value))
    assert WRONG_KEY not in told
    assert "\n" not in str(caught.value)


def test_an_unknown_model_is_not_found(provider):
    prefix = provider.model.partition("/")[0]
    with pytest.raises(ModelNotFoundError):
        LiteLLMEngine(f"{prefix}/no-such-model-at-all", limits=LIMITS).generate([QUESTION], ROOM)


def test_a_judge_says_the_same_of_many_pairs_in_one_call_as_of_each_alone(provider: Provider) -> None:
    claims = tuple(Claim(n, 0, len(text), text) for n, text in enumerate(JUDGED_CLAIMS))
    segments = tuple(Segment(f"c{n}", SegmentKind.RETRIEVED, text, ()) for n, text in enumerate(JUDGED_SEGMENTS))
    engine = MeteredEngine(LiteLLMEngine(provider.model, limits=LIMITS), budget=Budget(calls=60))
    options = {"reasoning_tokens": 1024}
    batched = LLMJudge(engine, **options).judge(claims, segments, question="What is known of the fair?")
    single = LLMJudge(engine, max_cells=1, **options).judge(claims, segments, question="What is known of the fair?")
    assert batched.cost.calls <= 4
    assert (batched.verdicts == single.verdicts).mean() >= 0.95
    assert set(single.verdicts.ravel()) >= {"entails", "contradicts", "neutral"}
