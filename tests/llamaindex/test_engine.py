"""A LlamaIndex model as an engine: it says what the model says, and its calls are no runs of the application."""

import doctest
import threading
from typing import Any

import numpy as np
import pytest
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import CustomLLM, MockLLM
from llama_index.core.llms.callbacks import llm_chat_callback
from llamaindex_parts import ScriptedLLM, ToolLLM, WordEmbedding, calls, query_engine, says
from pydantic import Field, PrivateAttr, SecretStr

import attr_llamaindex.engine
from attr_core.capabilities import offered, probe, require
from attr_core.errors import ConfigurationError, ContextTooLongError, EngineError, MissingCapabilityError
from attr_core.metering import MeteredEngine
from attr_core.protocols import Capability, Sampling
from attr_core.store import Store
from attr_core.types import Message, Prompt, ToolCall
from attr_llamaindex import LlamaIndexEngine, instrument

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Of a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
ASK = Prompt((Message("system", "Be brief."), Message("user", "When?")))


class Spoken(CustomLLM):
    """Takes what most integrations take, and notes with what it was called."""

    model: str = "spoken-1"
    temperature: float = 0.7
    max_tokens: int | None = None
    seed: int | None = None
    stop: list[str] | None = None
    api_key: str = "sk-secret"
    token: SecretStr = SecretStr("hidden")
    window: int = 4096
    say: Any = Field(default="In 1911.", exclude=True)
    _seen: list[Any] = PrivateAttr(default_factory=list)

    @property
    def seen(self):
        return self._seen

    @property
    def metadata(self):
        return LLMMetadata(context_window=self.window, is_chat_model=True, model_name=self.model)

    @llm_chat_callback()
    def chat(self, messages, **kwargs):
        settings = {name: getattr(self, name) for name in ("temperature", "max_tokens", "seed", "stop")}
        self._seen.append((list(messages), settings))
        said = self.say(messages) if callable(self.say) else self.say
        raw = {"model": "spoken-1-2026", "choices": [{"finish_reason": "stop"}]}
        counts = {"prompt_tokens": 7, "completion_tokens": 3}
        return ChatResponse(message=ChatMessage(role="assistant", content=said), raw=raw, additional_kwargs=counts)

    def complete(self, prompt, formatted=False, **kwargs):
        raise AssertionError("a chat model is asked to chat")

    def stream_complete(self, prompt, formatted=False, **kwargs):
        raise AssertionError("nothing is streamed")


def test_the_examples_in_its_docstring_hold():
    assert doctest.testmod(attr_llamaindex.engine).failed == 0


def test_a_chat_model_gets_the_messages_and_the_sampling():
    llm = Spoken()
    engine = LlamaIndexEngine(llm)
    (completion,) = engine.generate([ASK], Sampling(max_tokens=5, temperature=0.5, seed=3, stop=("\n",)))
    assert (completion.text, completion.finish_reason) == ("In 1911.", "stop")
    assert (completion.tokens_in, completion.tokens_out) == (7, 3)
    ((messages, settings),) = llm.seen
    assert [(message.role.value, message.content) for message in messages] == [
        ("system", "Be brief."),
        ("user", "When?"),
    ]
    assert settings == {"temperature": 0.5, "max_tokens": 5, "seed": 3, "stop": ["\n"]}


def test_the_users_model_is_never_changed():
    llm = Spoken()
    before = llm.model_dump()
    LlamaIndexEngine(llm).generate([ASK], Sampling(max_tokens=5, temperature=0.5, seed=3))
    assert llm.model_dump() == before


def test_greedy_answers_get_no_seed():
    llm = Spoken(seed=9)
    LlamaIndexEngine(llm).generate([ASK], Sampling(max_tokens=5))
    assert llm.seen[0][1]["seed"] == 9


def test_what_is_to_be_kept_is_kept_and_said():
    llm = Spoken()
    engine = LlamaIndexEngine(llm, keep=["temperature"])
    engine.generate([ASK])
    assert llm.seen[0][1]["temperature"] == 0.7
    assert engine.notes == ("custom_llm is not told temperature; the model's own holds",)
    assert engine.bounds_answers
    assert not LlamaIndexEngine(llm, keep=["max_tokens"]).bounds_answers


def test_an_answer_ends_where_a_stop_string_begins():
    (completion,) = LlamaIndexEngine(Spoken(say="In 1911. END and more")).generate([ASK], Sampling(stop=("END",)))
    assert (completion.text, completion.finish_reason) == ("In 1911. ", "stop")


def test_a_model_that_completes_gets_a_single_turn_as_it_stands():
    llm = ScriptedLLM()
    LlamaIndexEngine(llm).generate([Prompt((Message("user", "Context: x\nQuestion: y"),)), ASK])
    assert llm.asked == ["Context: x\nQuestion: y", "system: Be brief.\nuser: When?\nassistant: "]


def test_a_prompt_that_an_engine_recorded_is_sent_just_as_it_was(tmp_path):
    llm = ScriptedLLM()
    with instrument(store=tmp_path / "attrkit.db") as instrumentation:
        query_engine(llm).query("When did the fair open?")
        generation = instrumentation.trace().target_generation
    LlamaIndexEngine(llm).generate([generation.prompt])
    assert llm.asked[0] == llm.asked[1]


def test_tools_and_tool_messages_are_passed_on_and_calls_told():
    llm = ToolLLM(calls(("weather", {"place": "Aldemoor"}, "c1")))
    prompt = Prompt(
        (
            Message("user", "And the weather?"),
            Message("assistant", "", tool_calls=(ToolCall("c0", "weather", {"place": "Corvath"}),)),
            Message("tool", "Rain.", tool_call_id="c0"),
        ),
        (WEATHER,),
    )
    (completion,) = LlamaIndexEngine(llm).generate([prompt])
    assert completion.text == 'Tool call: {"arguments": {"place": "Aldemoor"}, "name": "weather"}'
    user, assistant, tool = llm.requests[0]
    assert assistant["blocks"][0]["tool_kwargs"] == {"place": "Corvath"}
    assert (tool["role"], tool["additional_kwargs"]) == ("tool", {"tool_call_id": "c0"})
    assert user["blocks"][0]["text"] == "And the weather?"


def test_the_tools_have_the_schemas_of_the_prompt():
    seen = {}

    class Noting(ToolLLM):
        def _prepare_chat_with_tools(self, tools, **kwargs):
            seen["tools"] = [tool.metadata.to_openai_tool() for tool in tools]
            return super()._prepare_chat_with_tools(tools, **kwargs)

    LlamaIndexEngine(Noting(says("Dry."))).generate([Prompt((Message("user", "And the weather?"),), (WEATHER,))])
    assert seen["tools"] == [WEATHER]


def test_an_emptied_message_stays_a_message():
    llm = Spoken()
    LlamaIndexEngine(llm).generate([Prompt((Message("system", ""), Message("user", "When?")))])
    assert [message.content for message in llm.seen[0][0]] == ["", "When?"]


# --- nobody hears it ------------------------------------------------------------------------------------------------


def test_its_calls_are_no_runs_of_the_application(tmp_path):
    llm = ScriptedLLM()
    engine = LlamaIndexEngine(llm, WordEmbedding(), max_concurrency=3)
    with instrument(store=tmp_path / "attrkit.db") as instrumentation:
        engine.generate([ASK] * 5)
        engine.embed(["fair"])
        assert instrumentation.flush(10)
        assert instrumentation.runs.n_remembered == 0
    with Store(tmp_path / "attrkit.db") as store:
        assert store.list() == []
    assert len(llm.asked) == 5


def test_nor_are_they_part_of_a_run_that_asks_it(tmp_path):
    engine = LlamaIndexEngine(ScriptedLLM(name="asked"))

    def say(prompt):
        return engine.generate([ASK])[0].text

    with instrument(store=tmp_path / "attrkit.db") as instrumentation:
        query_engine(ScriptedLLM(say=say)).query("When?")
        assert [generation.model for generation in instrumentation.trace().generations] == ["scripted"]


def test_the_users_callbacks_do_not_hear_it():
    handler = LlamaDebugHandler(print_trace_on_end=False)
    LlamaIndexEngine(Spoken(callback_manager=CallbackManager([handler]))).generate([ASK])
    assert handler.get_llm_inputs_outputs() == []


@pytest.mark.filterwarnings("ignore:attrkit:RuntimeWarning")
def test_as_what_measures_it_is_refused_by_an_algorithm_that_scores(tmp_path):
    with instrument(store=tmp_path / "attrkit.db", engine=LlamaIndexEngine(ScriptedLLM())) as instrumentation:
        response = query_engine().query("When?")
        with pytest.raises(MissingCapabilityError, match="score"):
            instrumentation.result(response, timeout=30)


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_tell_models_apart_and_hold_no_secret():
    one, other = LlamaIndexEngine(Spoken()), LlamaIndexEngine(Spoken(model="spoken-2"))
    assert one.spec == "llamaindex:custom_llm:spoken-1"
    assert one.fingerprint == LlamaIndexEngine(Spoken()).fingerprint
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == LlamaIndexEngine(Spoken(api_key="sk-other", token=SecretStr("x"))).fingerprint
    assert one.fingerprint == LlamaIndexEngine(Spoken(temperature=0.1, max_tokens=9)).fingerprint, "set by every call"
    assert one.fingerprint != LlamaIndexEngine(Spoken(temperature=0.1), keep=["temperature"]).fingerprint
    assert one.fingerprint != LlamaIndexEngine(Spoken(system_prompt="Be brief.")).fingerprint
    assert one.fingerprint != LlamaIndexEngine(Spoken(), MockEmbedding(embed_dim=4)).fingerprint
    assert one.max_context == 4096


def test_a_model_without_a_name_cannot_be_told_from_another():
    first, second = LlamaIndexEngine(MockLLM()), LlamaIndexEngine(MockLLM())
    assert first.fingerprint == first.fingerprint
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (lambda: LlamaIndexEngine("gpt"), "str is no LLM of LlamaIndex"),
        (lambda: LlamaIndexEngine(MockLLM(), "bge"), "str embeds nothing"),
        (lambda: LlamaIndexEngine(MockLLM(), max_concurrency=0), "must be positive"),
        (lambda: LlamaIndexEngine(MockLLM(), keep="temperature"), "is no collection of"),
        (lambda: LlamaIndexEngine(MockLLM(), keep=["top_k"]), "is no collection of"),
        (lambda: LlamaIndexEngine(MockLLM()).generate([ASK], Sampling(max_tokens=0)), "no tokens"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(given, match):
    with pytest.raises(ConfigurationError, match=match):
        given()


# --- capabilities -----------------------------------------------------------------------------------------------------


def test_it_embeds_only_with_an_embedding_model():
    plain, embedding = LlamaIndexEngine(MockLLM()), LlamaIndexEngine(MockLLM(), WordEmbedding())
    assert offered(plain) == {Capability.GENERATE}
    assert offered(embedding) == {Capability.GENERATE, Capability.EMBED}
    table = embedding.embed(["the fair", "the parade"])
    assert table.shape == (2, 7)
    assert not np.array_equal(table[0], table[1])
    assert embedding.embed([]).size == 0
    with pytest.raises(MissingCapabilityError):
        plain.embed(["the fair"])
    with pytest.raises(MissingCapabilityError):
        require(plain, {Capability.SCORE}, by="a test")
    assert probe(embedding, {}) == {Capability.GENERATE: None, Capability.EMBED: None}


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_names_model_number_and_reason_and_keeps_what_was_answered():
    asked = []

    def say(messages):
        asked.append(messages[-1].content)
        if messages[-1].content == "bad" and asked.count("bad") == 1:
            raise ConnectionError("reset by peer")
        return f"to {messages[-1].content}"

    metered = MeteredEngine(LlamaIndexEngine(Spoken(say=say)))
    prompts = [Prompt((Message("user", text),)) for text in ("one", "bad", "two")]
    with pytest.raises(EngineError, match=r"spoken-1 failed on 1 of 3 prompts, first with ConnectionError: reset") as e:
        metered.generate(prompts)
    assert {n: completion.text for n, completion in e.value.completed.items()} == {0: "to one", 2: "to two"}
    assert [completion.text for completion in metered.generate(prompts)] == ["to one", "to bad", "to two"]
    assert asked == ["one", "bad", "two", "bad"], "what was paid for is not asked again"


def test_a_prompt_that_is_too_long_is_told_apart():
    def say(messages):
        raise ValueError("This model's maximum context length is 4096 tokens")

    with pytest.raises(ContextTooLongError):
        LlamaIndexEngine(Spoken(say=say)).generate([ASK])


def test_secrets_of_the_environment_are_blanked_in_failures(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789abcdef")

    def say(messages):
        raise ValueError("bad key sk-0123456789abcdef")

    with pytest.raises(EngineError) as caught:
        LlamaIndexEngine(Spoken(say=say)).generate([ASK])
    assert "sk-0123456789abcdef" not in str(caught.value)


def test_embeddings_that_are_nonsense_are_refused():
    class Broken(WordEmbedding):
        def _embed(self, text):
            return [float("nan")] * 3

    with pytest.raises(EngineError, match="is at fault"):
        LlamaIndexEngine(MockLLM(), Broken()).embed(["a", "b"])


def test_so_many_calls_are_made_at_a_time():
    barrier = threading.Barrier(3, timeout=20)

    def say(messages):
        barrier.wait()
        return "yes"

    engine = LlamaIndexEngine(Spoken(say=say), max_concurrency=3)
    assert [completion.text for completion in engine.generate([ASK] * 3)] == ["yes"] * 3


def test_a_completion_without_text_is_an_empty_answer():
    class Mute(ScriptedLLM):
        def complete(self, prompt, formatted=False, **kwargs):
            return CompletionResponse(text="")

    assert LlamaIndexEngine(Mute()).generate([ASK])[0].text == ""
