"""A chat generator as an engine, besides what tests/core/test_engine_contract.py asks of every engine."""

import threading

import numpy as np
import pytest
from haystack import component
from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
from haystack.components.generators.chat import LLM, MockChatGenerator, OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from haystack_parts import opening, rag, retriever, said

from attr_core.capabilities import offered, probe, require
from attr_core.errors import ConfigurationError, EngineError, MissingCapabilityError
from attr_core.metering import MeteredEngine
from attr_core.protocols import Capability, Completion, Sampling
from attr_core.types import Generation, Message, Prompt, ToolCall
from attr_haystack import HaystackEngine
from attr_haystack.convert import to_generation

PROMPTS = [Prompt((Message("system", "s" * (n % 2)), Message("user", f"Question {n}?"))) for n in range(8)]


@component
class Recording:
    """A generator that keeps what it was asked, and answers with the last message."""

    def __init__(self, model="recorded", streaming_callback=None, fails_on=()):
        self.model, self.streaming_callback, self.fails_on = model, streaming_callback, fails_on
        self.asked = []

    @component.output_types(replies=list[ChatMessage])
    def run(
        self, messages: list[ChatMessage], streaming_callback=None, generation_kwargs: dict | None = None, tools=None
    ):
        self.asked.append({"messages": messages, "kwargs": generation_kwargs, "tools": tools})
        if messages[-1].text in self.fails_on:
            raise ConnectionError("no route")
        if callback := streaming_callback or self.streaming_callback:
            callback(messages[-1].text)
        meta = {"finish_reason": "stop", "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
        return {"replies": [ChatMessage.from_assistant(f"You asked: {messages[-1].text}", meta=meta)]}


@pytest.fixture(params=[MockChatGenerator, Recording], ids=["mock", "recording"])
def haystack_engine(request):
    return HaystackEngine(request.param())


def test_offers_to_generate_and_nothing_else(haystack_engine):
    assert offered(haystack_engine) == {Capability.GENERATE}
    assert probe(haystack_engine, {}) == {Capability.GENERATE: None}
    with pytest.raises(MissingCapabilityError, match="score"):
        require(haystack_engine, {Capability.SCORE}, by="likelihood")
    with pytest.raises(MissingCapabilityError, match="embed"):
        haystack_engine.embed(["a"])


def test_generates_one_completion_per_prompt_in_their_order(haystack_engine):
    completions = haystack_engine.generate(PROMPTS, Sampling(max_tokens=4))
    assert [n for n, one in enumerate(completions) if one.text.endswith(f"Question {n}?")] == list(range(8))
    assert all(isinstance(one, Completion) for one in completions)
    backwards = haystack_engine.generate(PROMPTS[::-1], Sampling(max_tokens=4))
    assert backwards[::-1] == completions


@pytest.mark.parametrize("sampling", [Sampling(max_tokens=0), Sampling(temperature=-1.0)])
def test_impossible_sampling_is_refused(haystack_engine, sampling):
    with pytest.raises(ConfigurationError):
        haystack_engine.generate(PROMPTS[:1], sampling)


def test_a_generator_is_told_the_sampling_in_its_own_words():
    generator = Recording()
    sampling = Sampling(max_tokens=7, temperature=0.5, seed=3, stop=("\n",))
    HaystackEngine(generator).generate(PROMPTS[:1], sampling)
    assert generator.asked[0]["kwargs"] == {"max_tokens": 7, "temperature": 0.5, "seed": 3, "stop": ["\n"]}
    engine = HaystackEngine(generator, names={"max_tokens": "max_new_tokens", "seed": None, "stop": None})
    engine.generate(PROMPTS[:1], sampling)
    assert generator.asked[1]["kwargs"] == {"max_new_tokens": 7, "temperature": 0.5}
    assert engine.bounds_answers
    assert not HaystackEngine(generator, names={"max_tokens": None}).bounds_answers
    assert engine.notes == (
        "the generator is not told seed; its own holds",
        "the generator is not told stop; its own holds",
    )


def test_one_that_takes_no_options_is_asked_without():
    @component
    class Plain:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]):
            return {"replies": [ChatMessage.from_assistant("yes")]}

    engine = HaystackEngine(Plain())
    assert engine.generate(PROMPTS[:1])[0].text == "yes"
    assert len(engine.notes) == 4


def test_an_answer_is_cut_where_it_was_to_stop():
    [completion] = HaystackEngine(MockChatGenerator("In 1911.\nAnd more.")).generate(
        PROMPTS[:1], Sampling(stop=("\n",))
    )
    assert (completion.text, completion.finish_reason) == ("In 1911.", "stop")


def test_tool_calls_are_told_as_they_are_written_in_a_trace():
    engine = HaystackEngine(said([("opening", {"name": "fair"}, "c1")]))
    [completion] = engine.generate([Prompt(PROMPTS[0].messages, to_generation({"tools": [opening]}).tools)])
    told = Generation((), None, tool_calls=(ToolCall("c1", "opening", {"name": "fair"}),)).written
    assert completion.text == told
    assert completion.finish_reason == "tool_calls"


def test_a_prompts_tools_reach_the_generator():
    generator = Recording()
    tools = to_generation({"tools": [opening]}).tools
    HaystackEngine(generator).generate([Prompt(PROMPTS[0].messages, tools), PROMPTS[1]])
    given = {asked["messages"][-1].text: asked["tools"] for asked in generator.asked}
    assert [tool.tool_spec for tool in given["Question 0?"]] == [opening.tool_spec]
    assert given["Question 1?"] is None


def test_tokens_are_counted_where_the_generator_tells():
    [completion] = HaystackEngine(Recording()).generate(PROMPTS[:1])
    assert (completion.tokens_in, completion.tokens_out) == (3, 2)


def test_the_applications_callback_hears_nothing():
    heard = []
    generator = Recording(streaming_callback=heard.append)
    HaystackEngine(generator).generate(PROMPTS[:2])
    assert heard == []
    generator.run(messages=[ChatMessage.from_user("Mine?")])
    assert heard == ["Mine?"], "the generator itself is as it was"


def test_the_tracer_hears_nothing(tracer, traces):
    @component
    class Spanning:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]):
            return {
                "replies": [rag().run({"retriever": {"query": "q"}, "prompt": {"question": "q"}})["llm"]["replies"][0]]
            }

    assert HaystackEngine(Spanning(), max_concurrency=3).generate(PROMPTS)[0].text
    assert traces() == []


def test_prompts_are_answered_at_the_same_time():
    together = threading.Barrier(3, timeout=20)

    @component
    class Waiting:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]):
            together.wait()
            return {"replies": [ChatMessage.from_assistant("yes")]}

    assert len(HaystackEngine(Waiting(), max_concurrency=3).generate(PROMPTS[:3])) == 3


def test_where_some_fail_the_error_has_the_answers_to_the_others():
    engine = HaystackEngine(Recording(fails_on=["Question 1?"]))
    with pytest.raises(EngineError, match=r"on 1 of 3 prompts, first with ConnectionError: no route") as caught:
        engine.generate(PROMPTS[:3])
    assert sorted(caught.value.completed) == [0, 2]


def test_where_some_fail_the_answers_to_the_others_are_not_paid_twice():
    generator = Recording(fails_on=["Question 1?"])
    metered = MeteredEngine(HaystackEngine(generator))
    with pytest.raises(EngineError):
        metered.generate(PROMPTS[:3])
    assert metered.cost.calls == 2
    generator.fails_on, generator.asked = (), []
    assert len(metered.generate(PROMPTS[:3])) == 3
    assert [asked["messages"][-1].text for asked in generator.asked] == ["Question 1?"]


def test_an_engine_error_holds_no_secret(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")

    @component
    class Leaking:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]):
            raise ValueError("bad key sk-very-secret")

    with pytest.raises(EngineError, match=r"bad key \*\*\*"):
        HaystackEngine(Leaking()).generate(PROMPTS[:1])


def test_no_reply_is_an_error_and_no_empty_answer():
    @component
    class Silent:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]):
            return {"replies": []}

    with pytest.raises(EngineError, match="no reply"):
        HaystackEngine(Silent()).generate(PROMPTS[:1])


def test_it_is_warmed_up_once():
    generator = MockChatGenerator("yes")
    assert not generator._is_warmed_up
    HaystackEngine(generator).generate(PROMPTS[:1])
    assert generator._is_warmed_up


def test_what_decides_an_answer_decides_the_fingerprint(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-one")

    def fingerprint(**options):
        return HaystackEngine(OpenAIChatGenerator(**options)).fingerprint

    same = fingerprint(model="m")
    assert fingerprint(model="m") == same
    assert fingerprint(model="m", timeout=3.0, max_retries=9, streaming_callback=print) == same
    assert fingerprint(model="m", api_key=Secret.from_token("sk-two")) == same, "whose key it is decides no answer"
    assert fingerprint(model="other") != same
    assert fingerprint(model="m", generation_kwargs={"top_p": 0.5}) != same
    assert fingerprint(model="m", api_base_url="http://localhost:1") != same


def test_one_that_cannot_be_told_from_another_is_only_itself():
    @component
    class Nameless:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]):
            return {"replies": []}

    first = HaystackEngine(Nameless())
    assert first.fingerprint == first.fingerprint != HaystackEngine(Nameless()).fingerprint
    scripted = [HaystackEngine(MockChatGenerator(response_fn=lambda messages: "x")) for _ in range(2)]
    assert scripted[0].fingerprint != scripted[1].fingerprint


@pytest.mark.parametrize(
    "embedder", [MockTextEmbedder(dimension=8), MockDocumentEmbedder(dimension=8)], ids=["text", "document"]
)
def test_embeds_with_either_kind_of_embedder(embedder):
    engine = HaystackEngine(MockChatGenerator(), embedder)
    assert offered(engine) == {Capability.GENERATE, Capability.EMBED}
    assert probe(engine, {}) == {Capability.GENERATE: None, Capability.EMBED: None}
    table = engine.embed(["a", "b", "a"])
    assert (table.shape, table.dtype) == ((3, 8), np.float64)
    np.testing.assert_array_equal(table[0], table[2])
    assert not np.array_equal(table[0], table[1])
    assert engine.embed([]).size == 0


def test_an_embedder_that_fails_is_an_engine_error():
    def fails(text):
        raise ConnectionError("no route")

    with pytest.raises(EngineError, match="to embed 2 texts, first with ConnectionError"):
        HaystackEngine(MockChatGenerator(), MockTextEmbedder(embedding_fn=fails)).embed(["a", "b"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: HaystackEngine(object()),
        lambda: HaystackEngine(retriever()),
        lambda: HaystackEngine(LLM(chat_generator=MockChatGenerator())),
        lambda: HaystackEngine(MockChatGenerator(), MockChatGenerator()),
        lambda: HaystackEngine(MockChatGenerator(), max_concurrency=0),
        lambda: HaystackEngine(MockChatGenerator(), names={"top_k": "k"}),
    ],
)
def test_what_is_no_generator_or_makes_no_sense_is_refused(make):
    with pytest.raises(ConfigurationError):
        make()
