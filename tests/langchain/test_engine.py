"""A LangChain chat model as an engine: it says what the model says, and no listener of the application hears it."""

import doctest
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tracers import context as tracing
from langchain_core.tracers.context import collect_runs
from local_chat_model import LocalChatModel
from pydantic import Field, SecretStr

import attr_langchain.engine
from attr_core.capabilities import offered, probe, require
from attr_core.errors import (
    BudgetExceededError,
    ConfigurationError,
    ContextTooLongError,
    EngineError,
    MissingCapabilityError,
)
from attr_core.metering import MeteredEngine
from attr_core.protocols import Capability, Sampling
from attr_core.results import Budget
from attr_core.store import Store
from attr_core.testing import ScriptedEngine
from attr_core.types import Message, Prompt, ToolCall
from attr_langchain import LangChainEngine

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


class Bare(BaseChatModel):
    """Says what ``reply`` makes of the last message, and notes each call; it takes no sampling parameter."""

    reply: Any = "yes"
    calls: list[Mapping[str, Any]] = Field(default_factory=list, exclude=True)

    @property
    def _llm_type(self):
        return "bare"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.calls.append({"messages": messages, "stop": stop, "model": self, **kwargs})
        said = self.reply(messages[-1].content) if callable(self.reply) else self.reply
        if not isinstance(said, ChatResult):
            message = said if isinstance(said, AIMessage) else AIMessage(said)
            said = ChatResult(generations=[ChatGeneration(message=message)])
        return said


class Spoken(Bare):
    """Takes what most integrations take."""

    model: str = "spoken-1"
    temperature: float | None = 0.7
    max_tokens: int | None = None
    seed: int | None = None
    n: int | None = None
    profile: Any = None
    api_key: SecretStr | None = None
    base_url: str | None = None

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=[tool["function"]["name"] for tool in tools], **kwargs)


class Inner(Bare):
    """Asks another model, as wrappers and routers of applications do."""

    other: Any

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=self.other.invoke(messages))])


class Ear(BaseCallbackHandler):
    """Hears every run."""

    def __init__(self):
        self.heard = []

    def on_chat_model_start(self, serialized, messages, **told):
        self.heard.append(messages[0][-1].content)

    def on_chain_start(self, serialized, inputs, **told):
        self.heard.append(inputs)


def prompts(*texts, tools=()):
    return [Prompt((Message("user", text),), tuple(tools)) for text in texts]


def texts(completions):
    return [completion.text for completion in completions]


# --- what is a model --------------------------------------------------------------------------------------------------


def test_the_answers_come_in_order_with_their_tokens():
    def reply(text):
        usage = {"input_tokens": len(text), "output_tokens": 1, "total_tokens": len(text) + 1}
        return AIMessage(text.upper(), usage_metadata=usage, response_metadata={"finish_reason": "stop"})

    asked = [f"q{n}" for n in range(20)]
    answers = LangChainEngine(Spoken(reply=reply)).generate(prompts(*asked))
    assert texts(answers) == [text.upper() for text in asked]
    assert {(one.finish_reason, one.tokens_in, one.tokens_out) for one in answers} == {("stop", 2, 1), ("stop", 3, 1)}


def test_roles_calls_and_tool_outputs_reach_the_model():
    model = Spoken()
    call = ToolCall("c1", "weather", {"city": "A"})
    chat = (
        Message("system", "Be brief."),
        Message("user", "Rain?"),
        Message("assistant", "", tool_calls=(call,), metadata={"memory": True}),
        Message("tool", "It rains.", tool_call_id="c1"),
    )
    LangChainEngine(model).generate([Prompt(chat)])
    (sent,) = [call["messages"] for call in model.calls]
    assert [message.type for message in sent] == ["system", "human", "ai", "tool"]
    assert sent[2].tool_calls[0]["args"] == {"city": "A"}
    assert sent[3].tool_call_id == "c1"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: model,
        lambda model: model.bind(top_p=0.5),
        lambda model: model.bind(top_p=0.1).bind(top_p=0.5),
        lambda model: model.with_retry(),
        lambda model: model.with_config(tags=["mine"], callbacks=[Ear()]),
        lambda model: model.with_listeners(on_start=lambda run: pytest.fail("heard")),
        lambda model: model.with_retry().bind(top_p=0.5).with_config(run_name="mine").with_retry(),
        lambda model: model.configurable_fields(base_url=ConfigurableField("url")),
        lambda model: model.configurable_alternatives(
            ConfigurableField("which"), other=FakeListChatModel(responses=[])
        ),
        lambda model: model.bind_tools([WEATHER]),
    ],
)
def test_what_is_wrapped_around_a_model_stays(wrap):
    model = Spoken(reply="In 1911.")
    runnable = wrap(model)
    assert texts(LangChainEngine(runnable).generate(prompts("When?"))) == ["In 1911."]
    assert model.calls[-1].get("top_p") == getattr(runnable, "kwargs", {}).get("top_p")


def test_configurable_fields_are_settled_as_the_configuration_says():
    model = Spoken(reply="x").configurable_fields(model=ConfigurableField("which"))
    engine = LangChainEngine(model.with_config(configurable={"which": "spoken-2"}))
    assert engine.spec == "langchain:spoken:spoken-2"
    other = Spoken(model="other-1").configurable_alternatives(ConfigurableField("which"), fake=Spoken(model="other-2"))
    assert LangChainEngine(other).spec == "langchain:spoken:other-1"
    assert LangChainEngine(other.with_config(configurable={"which": "fake"})).spec == "langchain:spoken:other-2"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gpt-4o", "str is no chat model"),
        (None, "NoneType is no chat model"),
        (FakeListLLM(responses=["x"]), "FakeListLLM is no chat model"),
        (Spoken() | StrOutputParser(), "pass the model of the chain"),
        (Spoken().with_fallbacks([Spoken()]), "answers of several cannot be compared"),
        (RunnableLambda(lambda text: text).bind(x=1), "RunnableLambda in RunnableBinding is no chat model"),
        (ScriptedEngine(), "ScriptedEngine is no chat model"),
    ],
)
def test_what_is_no_model_is_refused(given, said):
    with pytest.raises(ConfigurationError, match=said):
        LangChainEngine(given)


@pytest.mark.parametrize(
    "options",
    [{"max_concurrency": 0}, {"timeout": 0}, {"keep": ["top_p"]}, {"keep": "seed"}, {"embeddings": object()}],
)
def test_options_without_sense_are_refused(options):
    with pytest.raises(ConfigurationError):
        LangChainEngine(Spoken(), **options)


def test_a_sampling_without_sense_is_refused():
    for sampling in (Sampling(max_tokens=0), Sampling(temperature=-1)):
        with pytest.raises(ConfigurationError):
            LangChainEngine(Spoken()).generate(prompts("x"), sampling)


# --- sampling and tools -----------------------------------------------------------------------------------------------


def taken(model):
    call = model.calls[-1]
    own = {name: getattr(call["model"], name) for name in ("temperature", "max_tokens", "seed", "n")}
    return {**own, **{key: value for key, value in call.items() if key not in ("messages", "model") and value}}


def test_a_sampling_is_set_where_the_model_takes_it():
    model = Spoken(n=3)
    engine = LangChainEngine(model)
    engine.generate(prompts("x"), Sampling(max_tokens=7, temperature=0.5, seed=3, stop=("END",)))
    assert taken(model) == {"temperature": 0.5, "max_tokens": 7, "seed": 3, "n": 1, "stop": ["END"]}
    engine.generate(prompts("x"), Sampling(max_tokens=8))
    assert taken(model) == {"temperature": 0.0, "max_tokens": 8, "seed": None, "n": 1}
    assert engine.notes == ()


def test_other_names_of_a_sampling_parameter_are_known():
    class Llama(Bare):
        num_predict: int = 128
        random_seed: int = 1

    model = Llama()
    LangChainEngine(model).generate(prompts("x"), Sampling(max_tokens=7, temperature=1, seed=3))
    used = model.calls[-1]["model"]
    assert (used.num_predict, used.random_seed) == (7, 3)


def test_what_was_bound_is_replaced_where_it_was_bound():
    model = Spoken()
    LangChainEngine(model.bind(max_tokens=500, temperature=1, stop=["mine"])).generate(prompts("x"), Sampling(7))
    assert {name: model.calls[-1][name] for name in ("max_tokens", "temperature", "stop")} == {
        "max_tokens": 7,
        "temperature": 0.0,
        "stop": ["mine"],
    }
    bare = Bare()
    LangChainEngine(bare.bind(max_tokens=500)).generate(prompts("x"), Sampling(7))
    assert bare.calls[-1]["max_tokens"] == 7


def test_a_model_is_not_told_what_it_does_not_take_and_the_engine_says_so():
    model = Bare()
    engine = LangChainEngine(model)
    engine.generate(prompts("x"), Sampling(7, temperature=0.5, seed=3))
    assert set(model.calls[-1]) == {"messages", "stop", "model"}
    assert [note.split(";")[0] for note in engine.notes] == [
        "the model is not told temperature",
        "the model is not told max_tokens",
        "the model is not told seed",
    ]
    assert not engine.bounds_answers


def test_no_cap_in_tokens_is_promised_where_the_model_keeps_its_own_length():
    model = Spoken(max_tokens=99)
    with pytest.raises(BudgetExceededError, match="cap calls"):
        MeteredEngine(LangChainEngine(model, keep=["max_tokens"]), budget=Budget(tokens=10**6)).generate(prompts("x"))
    told = LangChainEngine(model)
    assert told.bounds_answers
    MeteredEngine(told, budget=Budget(tokens=10**6)).generate(prompts("x"))


def test_a_model_whose_profile_has_no_temperature_is_not_told_one():
    model = Spoken(profile={"temperature": False, "max_input_tokens": 9_000}, temperature=None)
    engine = LangChainEngine(model)
    engine.generate(prompts("x"), Sampling(7))
    assert taken(model)["temperature"] is None
    assert engine.notes == ("the model is not told temperature; its own holds",)
    assert engine.max_context == 9_000
    assert LangChainEngine(Spoken()).max_context is None


def test_what_is_to_be_kept_is_left_as_the_model_has_it():
    model = Spoken(temperature=1.0, max_tokens=99)
    engine = LangChainEngine(model, keep=("temperature", "max_tokens", "seed", "stop"))
    engine.generate(prompts("x"), Sampling(7, temperature=0.5, seed=3, stop=("END",)))
    assert taken(model) == {"temperature": 1.0, "max_tokens": 99, "seed": None, "n": None}
    assert len(engine.notes) == 4


def test_an_answer_ends_at_a_stop_that_the_model_ignored():
    engine = LangChainEngine(Bare(reply="In 1911.\nQuestion: more"))
    (answer,) = engine.generate(prompts("x"), Sampling(stop=("more", "\nQuestion:")))
    assert (answer.text, answer.finish_reason) == ("In 1911.", "stop")


def test_tools_of_a_prompt_replace_those_that_are_bound():
    model = Spoken()
    engine = LangChainEngine(model.bind_tools([WEATHER], tool_choice="any"))
    asked = [*prompts("a", tools=[CLOCK]), *prompts("b"), *prompts("c", tools=[CLOCK, WEATHER])]
    engine.generate(asked)
    by_text = {call["messages"][-1].content: (call.get("tools"), call["tool_choice"]) for call in model.calls}
    assert by_text == {"a": (["clock"], "any"), "b": (["weather"], "any"), "c": (["clock", "weather"], "any")}


def test_a_model_without_bind_tools_is_given_them_as_an_argument():
    model = Bare()
    LangChainEngine(model).generate(prompts("x", tools=[WEATHER]))
    assert model.calls[-1]["tools"] == [WEATHER]


def test_a_provider_that_refuses_empty_messages_is_sent_a_placeholder():
    class Claude(Spoken):
        def _get_ls_params(self, stop=None, **kwargs):
            return {"ls_provider": "anthropic", "ls_model_name": "claude"}

    chat = (Message("user", " "), Message("assistant", ""), Message("user", "When?"))
    for model, sent in ((Claude(), ["(empty)", "", "When?"]), (Spoken(), [" ", "", "When?"])):
        engine = LangChainEngine(model)
        engine.generate([Prompt(chat)])
        assert [message.content for message in model.calls[-1]["messages"]] == sent
        assert any("(empty)" in note for note in engine.notes) is isinstance(model, Claude)


# --- what comes back --------------------------------------------------------------------------------------------------


def test_tool_calls_are_written_out():
    call = {"name": "weather", "args": {"city": "A"}, "id": "c1"}
    (answer,) = LangChainEngine(Bare(reply=AIMessage("", tool_calls=[call]))).generate(prompts("x"))
    assert answer.text == 'Tool call: {"arguments": {"city": "A"}, "name": "weather"}'
    assert answer.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "In "}, "1911."], "In 1911."),
        ([], ""),
        ([{"type": "image", "url": "x"}], ""),
    ],
)
def test_blocks_are_an_answer(content, text):
    (answer,) = LangChainEngine(Bare(reply=AIMessage(content))).generate(prompts("x"))
    assert answer.text == text


def test_no_content_is_an_empty_answer():
    nothing = ChatGeneration.model_construct(message=AIMessage.model_construct(content=None))
    result = ChatResult.model_construct(generations=[nothing], llm_output=None)
    (answer,) = LangChainEngine(Bare(reply=lambda text: result)).generate(prompts("x"))
    assert answer.text == ""


def test_what_is_no_message_is_an_error_and_not_an_answer():
    class Odd(Bare):
        def invoke(self, *args, **kwargs):
            return 42

    with pytest.raises(
        EngineError, match="langchain:odd failed on 2 of 2 prompts, first with TypeError: int is no mes"
    ):
        LangChainEngine(Odd()).generate(prompts("x", "y"))


def test_a_batch_of_the_wrong_length_is_an_error():
    class Short(Bare):
        def batch(self, inputs, config=None, **kwargs):
            return [AIMessage("one")]

    with pytest.raises(EngineError, match="1 answers to 2 prompts"):
        LangChainEngine(Short()).generate(prompts("x", "y"))


def test_no_answer_at_all_is_an_error():
    with pytest.raises(EngineError, match="IndexError"):
        LangChainEngine(Bare(reply=lambda text: ChatResult(generations=[]))).generate(prompts("x"))


# --- faults -----------------------------------------------------------------------------------------------------------


def fails_on(bad, error):
    def reply(text):
        if text in bad:
            raise error
        return text.upper()

    return reply


def test_an_error_names_the_model_how_many_failed_and_the_first_reason():
    engine = LangChainEngine(Spoken(reply=fails_on({"b", "d"}, ValueError("rate limit\nsecond line"))))
    with pytest.raises(EngineError) as caught:
        engine.generate(prompts("a", "b", "c", "d"))
    said = str(caught.value)
    assert said.startswith("langchain:spoken:spoken-1 failed on 2 of 4 prompts, first with ValueError: rate limit; ")
    assert "\n" not in said
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_has_the_answers_to_the_other_prompts():
    engine = LangChainEngine(Spoken(reply=fails_on({"b"}, ValueError("x"))))
    with pytest.raises(EngineError) as caught:
        engine.generate(prompts("a", "b", "c"))
    assert {n: completion.text for n, completion in caught.value.completed.items()} == {0: "A", 2: "C"}


def test_what_was_answered_is_not_asked_again_when_others_failed():
    model, bad = Spoken(), {"b"}
    model.reply = lambda text: fails_on(bad, ValueError("x"))(text)
    metered = MeteredEngine(LangChainEngine(model))
    with pytest.raises(EngineError):
        metered.generate(prompts("a", "b", "c"))
    assert metered.cost.calls == 2
    bad.clear()
    model.calls.clear()
    assert texts(metered.generate(prompts("a", "b", "c"))) == ["A", "B", "C"]
    assert [call["messages"][-1].content for call in model.calls] == ["b"]


def test_a_secret_is_not_in_the_error(monkeypatch):
    monkeypatch.setenv("SPOKEN_API_KEY", "sk-very-hidden-1")
    engine = LangChainEngine(Spoken(reply=fails_on({"a"}, ValueError("no such key: sk-very-hidden-1"))))
    with pytest.raises(EngineError, match=r"no such key: \*\*\*"):
        engine.generate(prompts("a"))


def test_a_prompt_that_is_too_long_is_told_apart():
    class ContextOverflowError(ValueError):
        """As newer versions of LangChain's integrations raise."""

    engine = LangChainEngine(Spoken(reply=fails_on({"a"}, ContextOverflowError("8193 tokens"))))
    with pytest.raises(ContextTooLongError, match="8193 tokens"):
        engine.generate(prompts("a"))


def test_tools_that_cannot_be_bound_are_an_error():
    class Picky(Spoken):
        def bind_tools(self, tools, **kwargs):
            raise ValueError("no tools here")

    with pytest.raises(EngineError, match="no tools here"):
        LangChainEngine(Picky()).generate(prompts("a", tools=[WEATHER]))


@pytest.fixture
def gate():
    """Opened at the end, so that no thread is left hanging."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: model.with_retry(stop_after_attempt=2)])
def test_a_model_that_hangs_is_left_alone(gate, wrap):
    def reply(text):
        if text == "b":
            gate.wait(60)
        return text.upper()

    engine = LangChainEngine(wrap(Spoken(reply=reply)), timeout=0.3)
    with pytest.raises(
        EngineError, match=r"failed on 1 of 3 prompts, first with TimeoutError: no answer within 0\.3 s"
    ):
        engine.generate(prompts("a", "b", "c"))
    assert texts(engine.generate(prompts("a", "c"))) == ["A", "C"]


def test_a_model_that_times_out_by_itself_says_so_in_its_own_words():
    engine = LangChainEngine(Spoken(reply=fails_on({"a"}, TimeoutError("the endpoint is slow"))), timeout=60)
    with pytest.raises(EngineError, match="TimeoutError: the endpoint is slow"):
        engine.generate(prompts("a"))


def test_each_prompt_has_its_own_answer_whatever_was_retried():
    seen = set()

    def reply(text):
        if text.startswith("slow") and text not in seen:
            seen.add(text)
            raise ValueError("try again")
        return text.upper()

    engine = LangChainEngine(Spoken(reply=reply).with_retry(stop_after_attempt=3, wait_exponential_jitter=False))
    asked = ["a", "slow1", "b", "slow2", "c"]
    assert texts(engine.generate(prompts(*asked))) == [text.upper() for text in asked]


def test_a_prompt_that_fails_for_good_is_not_given_the_answer_of_one_that_was_late():
    attempts = []

    def reply(text):
        attempts.append(text)
        if text == "never" or attempts.count("late") < 3:
            raise ValueError(text)
        return text.upper()

    model = Spoken(reply=reply).with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    with pytest.raises(EngineError, match="failed on 1 of 2 prompts, first with ValueError: never"):
        LangChainEngine(model).generate(prompts("late", "never"))


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: model.with_retry()])
def test_no_more_calls_than_allowed_are_made_at_a_time(wrap):
    lock, running, most = threading.Lock(), [0], [0]
    both = threading.Barrier(2)

    def reply(text):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        both.wait(30)  # passes only where two are made at a time
        time.sleep(0.02)
        with lock:
            running[0] -= 1
        return text

    engine = LangChainEngine(wrap(Spoken(reply=reply)), max_concurrency=2)
    assert len(engine.generate(prompts(*(str(n) for n in range(8))))) == 8
    assert most[0] == 2


def test_engines_may_be_asked_from_several_threads():
    engine = LangChainEngine(Spoken(reply=str.upper))
    found = {}

    def ask(name):
        found[name] = texts(engine.generate(prompts(*(f"{name}{n}" for n in range(10)))))

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: [f"{name.upper()}{n}" for n in range(10)] for name in "abcd"}


# --- nobody hears it --------------------------------------------------------------------------------------------------


def test_the_users_model_is_unchanged():
    ear = Ear()
    model = Spoken(reply="x", callbacks=[ear], tags=["t"], metadata={"a": 1}, temperature=0.9, cache=InMemoryCache())
    before = {name: getattr(model, name) for name in type(model).model_fields}
    bound = model.bind(temperature=1.0, stop=["s"]).with_config(callbacks=[ear])
    kwargs, config = dict(bound.kwargs), dict(bound.config)
    LangChainEngine(bound).generate(prompts("a", "b", tools=[WEATHER]), Sampling(5, temperature=0.5, seed=2))
    for name, value in before.items():
        assert getattr(model, name) is value, name
    assert (bound.kwargs, bound.config) == (kwargs, config)
    assert ear.heard == []
    model.invoke("from the application")
    assert ear.heard == ["from the application"]


@contextmanager
def hooked(variable, **options):
    """A configure hook, taken out again: LangChain has no way to do so."""
    tracing.register_configure_hook(variable, inheritable=True, **options)
    try:
        yield
    finally:
        tracing._configure_hooks.pop()


@pytest.mark.filterwarnings("ignore:The `copy` method:DeprecationWarning")  # LangChain 1.0's collector uses it
def test_no_inherited_handler_hears_it():
    ear, model = Ear(), Spoken(reply="x")
    engine = LangChainEngine(model)
    retried = LangChainEngine(model.with_retry(), timeout=60)
    asked = prompts("ours", "ours")

    def inside(text):
        model.invoke("from the application")
        return texts([*engine.generate(asked), *retried.generate(asked)])

    with collect_runs() as collected:
        assert RunnableLambda(inside).invoke("root", config={"callbacks": [ear]}) == ["x"] * 4
    assert ear.heard == ["root", "from the application"]
    assert len(collected.traced_runs) == 1
    assert "ours" not in repr(collected.traced_runs[0].child_runs)


def test_no_hooked_handler_hears_it(monkeypatch):
    ear, switched, model = Ear(), [], Spoken(reply="x")

    class Switched(Ear):
        def __init__(self):
            super().__init__()
            switched.append(self)

    variable: ContextVar[Any] = ContextVar("hook", default=None)
    other: ContextVar[Any] = ContextVar("switched", default=None)
    always: ContextVar[Any] = ContextVar("always", default=(everywhere := Ear()))
    monkeypatch.setenv("HEAR_EVERYTHING", "true")
    with hooked(variable), hooked(other, handle_class=Switched, env_var="HEAR_EVERYTHING"), hooked(always):
        token = variable.set(ear)
        LangChainEngine(model).generate(prompts("ours", "ours"))
        assert (ear.heard, everywhere.heard, switched) == ([], [], [])
        model.invoke("from the application")
        variable.reset(token)
    assert ear.heard == everywhere.heard == ["from the application"]
    assert [one.heard for one in switched] == [["from the application"]]


def test_no_handler_of_a_model_inside_hears_it():
    ear = Ear()
    inner = Spoken(reply="x", callbacks=[ear])
    listened = inner.with_listeners(on_start=lambda run: ear.heard.append(run))
    for other in (inner, inner.bind(top_p=1).with_config(callbacks=[ear]), listened):
        assert texts(LangChainEngine(Inner(other=other)).generate(prompts("ours"))) == ["x"]
    assert ear.heard == []
    assert inner.callbacks == [ear]


def test_attrkits_own_recorder_does_not_record_it(tmp_path):
    from attr_langchain import AttributionCallbackHandler

    with AttributionCallbackHandler(store=tmp_path / "attrkit.db") as handler:
        # Handed over where nothing can take it away, as a careless wrapper of an application might.
        class Careless(Bare):
            def _generate(self, messages, stop=None, run_manager=None, **kwargs):
                inner = FakeListChatModel(responses=["x"]).invoke(messages, config={"callbacks": [handler]})
                return ChatResult(generations=[ChatGeneration(message=inner)])

        LangChainEngine(Careless()).generate(prompts("ours"))
        Careless().invoke("from the application")
        assert handler.flush(10)
    with Store(tmp_path / "attrkit.db") as store:
        assert [summary.query for summary in store.list(limit=None)] == ["from the application"]


def test_no_cache_is_asked_or_filled():
    cache = InMemoryCache()
    set_llm_cache(cache)
    try:
        for model in (Spoken(reply="x"), Spoken(reply="x", cache=InMemoryCache())):
            LangChainEngine(model).generate(prompts("a", "a"))
            assert len(model.calls) == 2
            assert cache._cache == {}
    finally:
        set_llm_cache(None)


def test_instrumentations_that_patch_classes_are_told_to_look_away(monkeypatch):
    looking = [True]

    @contextmanager
    def suppress_instrumentation():
        looking[0] = False
        yield
        looking[0] = True

    module = ModuleType("opentelemetry.instrumentation.utils")
    module.suppress_instrumentation = suppress_instrumentation
    monkeypatch.setitem(sys.modules, module.__name__, module)
    LangChainEngine(Spoken(reply=lambda text: str(looking[0]))).generate(prompts("x"))
    assert texts(LangChainEngine(Spoken(reply=lambda text: str(looking[0]))).generate(prompts("x"))) == ["False"]
    assert looking == [True]


TRACED = """
from langchain_core.language_models import FakeListChatModel
from langchain_core.tracers.langchain import wait_for_all_tracers
from langsmith import traceable
from langsmith.run_trees import get_cached_client
from attr_core.types import Message, Prompt
from attr_langchain import LangChainEngine

model = FakeListChatModel(responses=["x"])
engines = [LangChainEngine(model), LangChainEngine(model.with_retry(), timeout=60)]

@traceable
def application(text):
    asked = [Prompt((Message("user", "of attrkit's own"),))] * 3
    for engine in engines:
        engine.generate(asked)
    return model.invoke("of the application").content

for engine in engines:
    engine.generate([Prompt((Message("user", "of attrkit's own"),))] * 3)
application("root")
wait_for_all_tracers()
get_cached_client().flush()
"""


def test_langsmith_is_sent_nothing_of_it(tmp_path):
    """With tracing switched on by the environment, and a server in LangSmith's place."""
    sent = []

    class LangSmith(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer({"version": "0.12", "instance_flags": {}})

        def do_POST(self):
            sent.append(self.body())
            self.answer({})

        do_PATCH = do_POST  # noqa: N815

        def body(self):
            if (length := self.headers.get("content-length")) is not None:
                return self.rfile.read(int(length))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            return b"".join(chunks)

        def answer(self, content):
            data = json.dumps(content).encode()
            self.send_response(202 if self.command == "POST" else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), LangSmith)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {
        **os.environ,
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_API_KEY": "lsv2_x",
        "LANGSMITH_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "LANGSMITH_DISABLE_RUN_COMPRESSION": "true",  # so that it can be read here
    }
    try:
        ran = subprocess.run(
            [sys.executable, "-c", TRACED], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
    finally:
        server.shutdown()
        server.server_close()
    assert ran.returncode == 0, ran.stderr
    told = b"".join(sent)
    assert b"of the application" in told, "the application's own run is sent"
    assert b"of attrkit's own" not in told


# --- names ------------------------------------------------------------------------------------------------------------


def fingerprint(runnable=None, *, keep=(), **fields):
    return LangChainEngine(runnable or Spoken(**fields), keep=keep).fingerprint


def test_a_fingerprint_tells_apart_what_answers_differently():
    found = [
        fingerprint(),
        fingerprint(model="spoken-2"),
        fingerprint(base_url="http://elsewhere/v1"),
        fingerprint(Spoken().bind(top_p=0.5)),
        fingerprint(Spoken().bind_tools([WEATHER])),
        fingerprint(keep=("temperature",), temperature=0.1),
        fingerprint(keep=("temperature",), temperature=0.2),
        fingerprint(type("Spoken2", (Spoken,), {})()),
    ]
    assert len(set(found)) == len(found)


def test_a_fingerprint_is_the_same_for_what_answers_alike():
    found = {
        fingerprint(),
        fingerprint(temperature=0.3, max_tokens=9, seed=4),
        fingerprint(api_key="sk-1"),
        fingerprint(callbacks=[Ear()], tags=["t"], metadata={"a": 1}, verbose=True),
        fingerprint(Spoken().with_retry()),
        fingerprint(Spoken().bind(temperature=1)),
    }
    assert len(found) == 2, "bound sampling is set by each call, but elsewhere"
    assert fingerprint(base_url="http://a:b@host/v1") == fingerprint(base_url="http://c:d@host/v1")


def test_a_model_without_a_name_is_like_no_other():
    engine = LangChainEngine(Bare())
    assert engine.fingerprint == engine.fingerprint
    assert engine.fingerprint != LangChainEngine(Bare()).fingerprint
    assert engine.spec == "langchain:bare"


def test_it_generates_and_embeds_only_with_embeddings():
    embeddings = DeterministicFakeEmbedding(size=8)
    assert offered(LangChainEngine(Spoken())) == {Capability.GENERATE}
    assert offered(LangChainEngine(Spoken(), embeddings)) == {Capability.GENERATE, Capability.EMBED}
    with pytest.raises(MissingCapabilityError):
        LangChainEngine(Spoken()).embed(["x"])
    with pytest.raises(MissingCapabilityError, match="hf:MODEL"):
        require(LangChainEngine(Spoken()), {Capability.SCORE}, by="attributing")
    assert probe(LangChainEngine(Spoken(), embeddings), {}) == {Capability.GENERATE: None, Capability.EMBED: None}


def test_texts_are_embedded_in_order():
    embeddings = DeterministicFakeEmbedding(size=8)
    table = LangChainEngine(Spoken(), embeddings).embed(["a", "b", "a"])
    assert (table.shape, table.dtype) == ((3, 8), np.float64)
    np.testing.assert_allclose(table, embeddings.embed_documents(["a", "b", "a"]))
    np.testing.assert_array_equal(table[0], table[2])
    assert LangChainEngine(Spoken(), embeddings).embed([]).shape[0] == 0


@pytest.mark.parametrize("rows", [[[1.0]], [[1.0], [float("nan")]], [[1.0], [1.0, 2.0]], [1.0, 2.0], None])
def test_vectors_that_are_none_are_an_error(rows):
    class Odd(Embeddings):
        def embed_documents(self, texts):
            return rows

        def embed_query(self, text):
            return []

    with pytest.raises(EngineError):
        LangChainEngine(Spoken(), Odd()).embed(["a", "b"])


def test_embeddings_that_fail_are_an_error():
    class Failing(Embeddings):
        def embed_documents(self, texts):
            raise ConnectionError("refused")

        def embed_query(self, text):
            return []

    with pytest.raises(EngineError, match="failed to embed 2 texts, first with ConnectionError: refused"):
        LangChainEngine(Spoken(), Failing()).embed(["a", "b"])


def test_a_metered_engine_counts_it_and_asks_nothing_twice():
    def reply(text):
        return AIMessage(text, usage_metadata={"input_tokens": 5, "output_tokens": 2, "total_tokens": 7})

    model = Spoken(reply=reply)
    metered = MeteredEngine(LangChainEngine(model))
    assert texts(metered.generate(prompts("a", "b", "a"))) == ["a", "b", "a"]
    assert texts(metered.generate(prompts("b"))) == ["b"]
    assert len(model.calls) == 2
    assert (metered.cost.calls, metered.cost.tokens_in, metered.cost.tokens_out) == (2, 10, 4)


def test_the_examples_in_its_documentation_run():
    assert doctest.testmod(attr_langchain.engine).failed == 0


@pytest.mark.model
def test_a_real_model_says_through_langchain_what_it_says_without(small_engine):
    asked = [
        Prompt((Message("system", "Be brief."), Message("user", "Name a colour of the sky."))),
        Prompt((Message("user", "Count to five."),)),
    ]
    sampling = Sampling(max_tokens=12, stop=(".",))
    direct = small_engine.generate(asked, sampling)
    engine = LangChainEngine(LocalChatModel(engine=small_engine, max_tokens=99, temperature=1.0))
    assert engine.spec.endswith(small_engine.spec)
    through = engine.generate(asked, sampling)
    assert [(one.text, one.tokens_in, one.tokens_out) for one in through] == [
        (one.text, one.tokens_in, one.tokens_out) for one in direct
    ]
    streamed = LocalChatModel(engine=small_engine, max_tokens=12).invoke("Count to five.").content
    chunks = [chunk.content for chunk in LocalChatModel(engine=small_engine, max_tokens=12).stream("Count to five.")]
    assert "".join(chunks) == streamed
    assert len(chunks) > 2
