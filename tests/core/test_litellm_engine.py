"""Hosted models through litellm, against a local server that speaks the OpenAI protocol, with and without faults."""

import functools
import importlib.util
import itertools
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest
from faulty_proxy import FAULTS, Endpoint, FaultyProxy, Plan, close_clients, event_loop, vector_of

from attr_core.capabilities import offered
from attr_core.engines import _litellm_calls, _prices, _requests
from attr_core.engines._litellm_calls import load_litellm
from attr_core.engines.litellm import Limits, LiteLLMEngine
from attr_core.errors import (
    BudgetExceededError,
    ConfigurationError,
    ContextTooLongError,
    EngineError,
    MissingCapabilityError,
    ModelNotFoundError,
    TraceNotFoundError,
)
from attr_core.metering import MeteredEngine
from attr_core.middleware import flush_logging, with_logging
from attr_core.protocols import Capability, CountsTokens, Embeds, Engine, Generates, Price, Priced, Sampling
from attr_core.results import Budget
from attr_core.store import Store
from attr_core.types import Message, Prompt, ToolCall

# litellm's own models give the first three, with or without attrkit; clients of which several threads make the first
# at once are let go of unclosed.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
if importlib.util.find_spec("litellm") is None:  # importing it takes seconds, which collecting need not
    pytest.skip("litellm is not installed", allow_module_level=True)

KEY = "sk-very-secret-key"
SHORT = Sampling(max_tokens=8)
QUICK = Limits(timeout=5.0)


@pytest.fixture(autouse=True)
def _impatient_and_without_keys(monkeypatch):
    monkeypatch.setattr(_requests, "FIRST_WAIT", 0.02)
    monkeypatch.setattr(_requests, "LONGEST_WAIT", 0.1)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for provider in ("OPENAI", "ANTHROPIC", "GEMINI", "GOOGLE", "NVIDIA_NIM", "NVIDIA"):
        for what in ("API_KEY", "API_BASE", "BASE_URL"):
            monkeypatch.delenv(f"{provider}_{what}", raising=False)


@pytest.fixture(scope="module", autouse=True)
def litellm():
    with event_loop():
        module = load_litellm()
        yield module
        close_clients(module)


@pytest.fixture
def endpoint():
    with Endpoint() as server:
        yield server


@pytest.fixture
def engine(endpoint):
    return LiteLLMEngine("openai/m", api_base=endpoint.url, api_key=KEY, limits=QUICK)


def prompts_of(*texts):
    return [Prompt((Message("user", text),)) for text in texts]


def texts_of(completions):
    return [completion.text for completion in completions]


def refusing(status, message="no", headers=None, **error):
    return lambda request: (status, {"error": {"message": message, "type": "t", **error}}, headers or {})


QUESTIONS = [f"when did fair {n} open?" for n in range(24)]


def test_it_is_an_engine_that_generates_tells_its_price_and_counts_tokens(engine):
    for protocol in (Engine, Generates, Embeds, Priced, CountsTokens):
        assert isinstance(engine, protocol)
    assert engine.spec == "litellm:openai/m"
    assert repr(engine) == "LiteLLMEngine('litellm:openai/m')"
    assert offered(engine) == {Capability.GENERATE}


def test_each_prompt_gets_its_answer_in_order(engine, endpoint):
    completions = engine.generate(prompts_of(*QUESTIONS), SHORT)
    assert texts_of(completions) == [text.upper() for text in QUESTIONS]
    assert all(one.finish_reason == "stop" and one.tokens_in > 0 and one.tokens_out > 0 for one in completions)
    assert endpoint.n_requests == len(QUESTIONS)


def test_no_prompts_send_nothing(engine, endpoint):
    assert engine.generate([]) == []
    assert engine.embed is not None
    assert endpoint.n_requests == 0


def test_messages_tools_and_sampling_reach_the_provider_as_they_are_and_nothing_else(endpoint):
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
    call = ToolCall("c1", "search", {"q": "fair"})
    prompt = Prompt(
        (
            Message("system", ""),
            Message("user", "When?", metadata={"rag_chunk_id": "x"}),
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", "1911", tool_call_id="c1"),
        ),
        (tool,),
    )
    engine = LiteLLMEngine("openai/m", api_base=endpoint.url, api_key=KEY, limits=QUICK, top_p=0.5)
    engine.generate([prompt], Sampling(max_tokens=7, temperature=0.3, seed=5, stop=("END",)))
    assert endpoint.requests == [
        {
            "model": "m",
            "messages": prompt.to_chat(),
            "tools": [tool],
            "temperature": 0.3,
            "max_tokens": 7,
            "seed": 5,
            "stop": ["END"],
            "top_p": 0.5,
        }
    ]
    assert endpoint.keys == [f"Bearer {KEY}"]


def test_a_stop_string_that_the_server_ignores_still_ends_the_answer(engine):
    (completion,) = engine.generate(prompts_of("one end two"), Sampling(max_tokens=8, stop=("END",)))
    assert (completion.text, completion.finish_reason) == ("ONE ", "stop")


def test_a_tool_call_is_told_as_text(engine, endpoint):
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "fair"}'}}
    endpoint.message = lambda request: {"role": "assistant", "content": None, "tool_calls": [call]}
    (completion,) = engine.generate(prompts_of("When?"), SHORT)
    assert completion.finish_reason == "tool_calls"
    assert "search" in completion.text
    assert "fair" in completion.text


def test_an_answer_without_text_is_an_empty_completion(engine, endpoint):
    endpoint.message = lambda request: {"role": "assistant", "content": None}
    (completion,) = engine.generate(prompts_of("When?"), SHORT)
    assert completion.text == ""


def test_a_setting_in_keep_is_left_to_the_model(endpoint):
    engine = LiteLLMEngine("openai/m", api_base=endpoint.url, api_key=KEY, keep=("temperature", "seed"), limits=QUICK)
    engine.generate(prompts_of("a"), SHORT)
    assert not {"temperature", "seed"} & set(endpoint.requests[0])
    assert engine.notes == (
        "the model is not told temperature; its own holds",
        "the model is not told seed; its own holds",
    )


@pytest.mark.parametrize(
    ("model", "untold", "has_placeholder"),
    [
        ("openai/gpt-4o-mini", [], False),
        ("openai/o3", ["temperature"], False),
        ("anthropic/claude-sonnet-4-5", ["seed"], True),
        ("gemini/gemini-2.5-flash", [], True),
        ("nvidia_nim/meta/llama-3.1-8b-instruct", [], False),
    ],
)
def test_notes_say_what_a_model_does_not_take(litellm, model, untold, has_placeholder):
    notes = LiteLLMEngine(model).notes
    assert [note.split()[5].rstrip(";") for note in notes if "not told" in note] == untold
    assert any("'(empty)'" in note for note in notes) == has_placeholder


def test_a_provider_that_refuses_empty_messages_is_sent_a_placeholder(litellm, monkeypatch):
    sent = []

    def completion(**options):
        sent.append(options)
        return {"choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}

    monkeypatch.setattr(litellm, "completion", completion)
    call = Message("assistant", "", tool_calls=(ToolCall("c1", "search", {}),))
    prompt = Prompt((Message("system", ""), Message("user", "  "), Message("user", "When?"), call))
    LiteLLMEngine("anthropic/claude-sonnet-4-5", api_key=KEY).generate([prompt], SHORT)
    assert [message["content"] for message in sent[0]["messages"]] == ["(empty)", "(empty)", "When?", None]
    assert "seed" not in sent[0]
    assert sent[0]["max_retries"] == 0
    assert [message.content for message in prompt.messages] == ["", "  ", "When?", ""]


@pytest.mark.parametrize(
    "wrong", [{"temperature": 1}, {"n": 3}, {"stream": True}, {"timeout": 3}, {"fallbacks": ["x"]}]
)
def test_what_a_sampling_or_the_limits_set_is_refused_as_a_parameter(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        LiteLLMEngine("openai/m", **wrong)


@pytest.mark.parametrize(
    "wrong", [{"model": " "}, {"model": "a/b", "embedding_model": ""}, {"model": "a/b", "keep": "seed"}]
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        LiteLLMEngine(**wrong)


def test_embeddings_come_in_the_order_of_the_texts_a_few_requests_for_many(endpoint):
    engine = LiteLLMEngine(
        "openai/m", embedding_model="openai/e", api_base=endpoint.url, api_key=KEY, limits=QUICK, top_p=0.5
    )
    assert offered(engine) == {Capability.GENERATE, Capability.EMBED}
    texts = [f"fair {n} opened in {1800 + n}" for n in range(70)]
    table = engine.embed([*texts, ""])
    np.testing.assert_array_equal(table[:70], [vector_of(text) for text in texts])
    assert table.shape == (71, 64)
    assert sorted(len(request["input"]) for request in endpoint.requests) == [7, 32, 32]
    assert all(set(request) <= {"model", "input", "encoding_format"} for request in endpoint.requests)
    assert not any(text == "" for request in endpoint.requests for text in request["input"])
    assert engine.embed([]).shape == (0, 0)


def test_nvidias_retrieval_models_are_told_what_the_texts_are(endpoint):
    name = "nvidia_nim/nvidia/nv-embedqa-e5-v5"
    options = {"api_base": endpoint.url, "api_key": KEY, "limits": QUICK}
    LiteLLMEngine(name, **options).embed(["a"])
    LiteLLMEngine(name, input_type="query", **options).embed(["b"])
    LiteLLMEngine(name, input_type=None, **options).embed(["c"])
    assert [request.get("input_type") for request in endpoint.requests] == ["passage", "query", None]


def test_an_embedding_model_only_embeds(endpoint):
    for name in ("openai/text-embedding-3-small", "nvidia_nim/nvidia/nv-embedqa-e5-v5", "nvidia_nim/baai/bge-m3"):
        engine = LiteLLMEngine(name, api_base=endpoint.url, api_key=KEY)
        assert offered(engine) == {Capability.EMBED}
        with pytest.raises(MissingCapabilityError):
            engine.generate(prompts_of("a"))
    with pytest.raises(MissingCapabilityError):
        LiteLLMEngine("openai/m").embed(["a"])


@pytest.mark.parametrize("provider", ["openai", "nvidia_nim", "together_ai", "hosted_vllm"])
def test_what_fails_is_tried_only_as_often_as_the_limits_say(litellm, endpoint, provider):
    """litellm and the client beneath it have retries of their own, which are off."""
    endpoint.refuse = refusing(500)
    options = {"api_base": endpoint.url, "api_key": KEY, "limits": Limits(retries=1)}
    engine = LiteLLMEngine(f"{provider}/m", embedding_model=f"{provider}/e", **options)
    with pytest.raises(EngineError, match="on 1 of 1 prompts"):
        engine.generate(prompts_of("a"), SHORT)
    assert endpoint.n_requests == 2
    assert "max_retries" not in endpoint.requests[0]
    with pytest.raises(EngineError, match="to embed 1 texts"):
        engine.embed(["a"])
    assert endpoint.n_requests == 4


@pytest.mark.parametrize("model", ["openai/m", "nvidia_nim/m", "anthropic/claude-haiku-4-5", "gemini/gemini-2.5-flash"])
def test_the_wait_that_a_provider_asks_for_is_kept(litellm, endpoint, model):
    in_body = {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.5s"}]}
    headers = {} if model.startswith("gemini") else {"retry-after": "0.5"}
    endpoint.refuse = refusing(429, "slow down", headers, **in_body if not headers else {})
    engine = LiteLLMEngine(model, api_base=endpoint.url, api_key=KEY, limits=Limits(retries=1))
    begun = time.monotonic()
    with pytest.raises(EngineError, match="slow down"):
        engine.generate(prompts_of("a"), SHORT)
    assert time.monotonic() - begun >= 0.5
    assert endpoint.n_requests == 2


def test_another_providers_embedding_model_is_not_given_this_ones_key_or_address(litellm, monkeypatch):
    sent = []

    def embedding(**options):
        sent.append(options)
        raise RuntimeError("stop here")

    monkeypatch.setattr(litellm, "embedding", embedding)
    engine = LiteLLMEngine(
        "anthropic/claude-sonnet-4-5",
        embedding_model="openai/text-embedding-3-small",
        api_key=KEY,
        api_base="http://127.0.0.1:9",
        extra_headers={"x-key": KEY},
    )
    with pytest.raises(EngineError):
        engine.embed(["a"])
    assert KEY not in repr(sent)
    assert "api_base" not in sent[0]


@pytest.mark.parametrize(
    ("refusal", "kind", "says"),
    [
        (refusing(401, f"Incorrect API key provided: {KEY}"), EngineError, "OPENAI_API_KEY"),
        (refusing(403, f"{KEY} has no access"), EngineError, "OPENAI_API_KEY"),
        (refusing(404, "The model `m` does not exist"), ModelNotFoundError, "api_base"),
        (
            refusing(400, "This model's maximum context length is 4097 tokens.", code="context_length_exceeded"),
            ContextTooLongError,
            "larger window",
        ),
        (refusing(429, "You exceeded your current quota", code="insufficient_quota"), EngineError, "top it up"),
        (refusing(400, "odd\nsecond line"), EngineError, "keep"),
        (refusing(500, "out of order"), EngineError, "out of order"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(engine, endpoint, refusal, kind, says):
    endpoint.refuse = refusal
    with pytest.raises(EngineError) as caught:
        engine.generate(prompts_of("a", "b"), SHORT)
    assert type(caught.value) is kind
    text = str(caught.value)
    assert says in text
    assert "\n" not in text
    assert text.startswith("litellm:openai/m failed on 2 of 2 prompts, first with ")
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert KEY not in told


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_that_holds_for_all_stops_the_rest(endpoint, status):
    endpoint.refuse = refusing(status)
    engine = LiteLLMEngine("openai/m", api_base=endpoint.url, api_key=KEY, limits=Limits(concurrency=2))
    with pytest.raises(EngineError, match="on 24 of 24 prompts"):
        engine.generate(prompts_of(*QUESTIONS), SHORT)
    assert endpoint.n_requests <= 3


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/m", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("gemini/gemini-2.5-flash", "GEMINI_API_KEY"),
        ("nvidia_nim/meta/llama-3.1-8b-instruct", "NVIDIA_NIM_API_KEY"),
    ],
)
def test_a_missing_key_names_its_variable_and_sends_nothing(litellm, endpoint, model, variable):
    with pytest.raises(ConfigurationError, match=f"no API key is set for {model}; set .*{variable}") as caught:
        LiteLLMEngine(model, api_base=endpoint.url).generate(prompts_of("a"), SHORT)
    assert "\n" not in str(caught.value)
    assert endpoint.n_requests == 0


def test_a_server_that_speaks_of_keys_is_not_taken_for_a_missing_one(engine, endpoint):
    endpoint.refuse = refusing(400, "the text 'no api key' is not allowed")
    with pytest.raises(EngineError, match="is not allowed"):
        engine.generate(prompts_of("a"), SHORT)


def test_nvidias_usual_variable_holds_the_key_too(endpoint, monkeypatch):
    monkeypatch.setenv("NVIDIA_API_KEY", "nvapi-0123456789")
    LiteLLMEngine("nvidia_nim/m", api_base=endpoint.url).generate(prompts_of("a"), SHORT)
    assert endpoint.keys == ["Bearer nvapi-0123456789"]


def test_a_model_of_an_unknown_provider_is_not_found(litellm):
    with pytest.raises(ModelNotFoundError, match="no provider is known for nosuch; name it as PROVIDER/MODEL"):
        LiteLLMEngine("nosuch").generate(prompts_of("a"), SHORT)


@pytest.mark.parametrize(
    ("models", "says"),
    [
        (("meta/llama-3.1-8b-instruct",), "is listed there but not served to this key"),
        (("other/model",), "is not among the 1 models listed there"),
    ],
)
def test_a_model_of_nvidias_that_is_not_found_says_whether_it_is_listed(endpoint, models, says):
    endpoint.models = models
    endpoint.refuse = refusing(404, "Function '0a1b': Not found for account 'ZZ-account-ZZ'")
    engine = LiteLLMEngine("nvidia_nim/meta/llama-3.1-8b-instruct", api_base=endpoint.url, api_key=KEY)
    with pytest.raises(ModelNotFoundError, match=says) as caught:
        engine.generate(prompts_of("a"), SHORT)
    assert "build.nvidia.com" in str(caught.value)
    assert "ZZ-account-ZZ" not in "".join(traceback.format_exception(caught.value))


FAULTY = {
    "429": 0.15,
    "429 with Retry-After": 0.15,
    "500": 0.08,
    "stall": 0.03,
    "drop": 0.05,
    "malformed": 0.05,
    "wrong type": 0.04,
}


def test_a_batch_through_faults_gives_the_same_answers_as_without(endpoint):
    prompts = prompts_of(*[f"question {n}" for n in range(64)])
    limits = Limits(timeout=0.6, retries=4)
    assert set(FAULTY) == set(FAULTS)
    with FaultyProxy(endpoint.url, Plan(FAULTY, seed=3, stall_seconds=1.5)) as proxy:
        engine = LiteLLMEngine("openai/m", api_base=proxy.url, api_key=KEY, limits=limits)
        completions = engine.generate(prompts, SHORT)
        assert set(proxy.faults) == set(FAULTS), "each fault was met"
        assert proxy.n_requests == len(prompts) + sum(proxy.faults.values())
    straight = LiteLLMEngine("openai/m", api_base=endpoint.url, api_key=KEY, limits=QUICK).generate(prompts, SHORT)
    assert completions == straight
    assert endpoint.n_requests == 2 * len(prompts) + proxy.faults["malformed"]


def test_where_a_batch_cannot_be_completed_all_that_was_answered_comes_with_the_error(endpoint):
    plan = Plan({"429": 0.3, "drop": 0.1}, seed=1, never_passes=b"fair 7 ")
    with FaultyProxy(endpoint.url, plan) as proxy:
        engine = LiteLLMEngine("openai/m", api_base=proxy.url, api_key=KEY, limits=Limits(retries=3))
        with pytest.raises(EngineError, match=r"failed on 1 of 24 prompts, first with .*out of order") as caught:
            engine.generate(prompts_of(*QUESTIONS), SHORT)
    completed = caught.value.completed
    assert set(completed) == set(range(24)) - {7}
    assert all(completed[n].text == QUESTIONS[n].upper() for n in completed)


def test_what_was_paid_for_is_kept_when_a_batch_fails_in_part(endpoint):
    with FaultyProxy(endpoint.url, Plan(never_passes=b"fair 7 ")) as proxy:
        engine = LiteLLMEngine("openai/m", api_base=proxy.url, api_key=KEY, limits=Limits(retries=0))
        metered = MeteredEngine(engine)
        with pytest.raises(EngineError):
            metered.generate(prompts_of(*QUESTIONS[:12]), SHORT)
        assert metered.cost.calls == 11
        proxy.plan = Plan()
        metered.generate(prompts_of(*QUESTIONS[:12]), SHORT)
    assert endpoint.n_requests == 12


def test_a_budget_of_calls_holds_exactly_with_eight_workers(engine, endpoint):
    metered = MeteredEngine(engine, budget=Budget(calls=20))
    with pytest.raises(BudgetExceededError):
        metered.generate(prompts_of(*QUESTIONS), SHORT)
    assert endpoint.n_requests == metered.cost.calls <= 20
    metered.generate(prompts_of(*QUESTIONS[:20]), SHORT)
    assert endpoint.n_requests == metered.cost.calls == 20


def test_a_budget_of_tokens_holds_with_eight_workers(engine, endpoint):
    metered = MeteredEngine(engine, budget=Budget(tokens=3000))
    with pytest.raises(BudgetExceededError):
        metered.generate(prompts_of(*[f"{n} {text}" for n in range(10) for text in QUESTIONS]), SHORT)
    assert 0 < metered.cost.tokens_in + metered.cost.tokens_out <= 3000


def test_repeats_of_a_prompt_are_requests_of_their_own(engine, endpoint):
    metered = MeteredEngine(engine)
    for repeat in (0, 1, 2):
        metered.generate(prompts_of("a"), SHORT, repeat=repeat)
    assert endpoint.n_requests == 3


def test_no_more_requests_than_allowed_are_under_way():
    with Endpoint(seconds=0.03) as endpoint:
        engine = LiteLLMEngine("openai/m", api_base=endpoint.url, api_key=KEY, limits=Limits(concurrency=3))
        calls = [threading.Thread(target=engine.generate, args=(prompts_of(*QUESTIONS[:9]), SHORT)) for _ in range(2)]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        assert endpoint.most_under_way == 3


def test_a_rate_limit_holds_requests_and_tokens_back(endpoint):
    clock = itertools.count()
    limits = Limits(requests_per_minute=10, tokens_per_minute=100)
    engine = LiteLLMEngine("openai/m", api_base=endpoint.url, api_key=KEY, limits=limits)
    engine._pace._clock = lambda: 1000.0 + 0.001 * next(clock)
    engine.generate(prompts_of("a", "b"), Sampling(max_tokens=36))
    sizes = [size for _, size in engine._pace._sent]
    assert all(36 < size <= 50 for size in sizes)
    assert engine._pace.take(36) > 59, "a third would pass the tokens of a minute"


def test_litellms_callbacks_cache_retries_and_attrkits_logging_stay_out_of_it(litellm, endpoint, monkeypatch, tmp_path):
    heard = []

    class Listener(litellm.integrations.custom_logger.CustomLogger):
        def log_pre_api_call(self, model, messages, kwargs):
            heard.append("pre")

        def log_post_api_call(self, kwargs, response_obj, start_time, end_time):
            heard.append("post")

        def log_success_event(self, *args):
            heard.append("success")

        def log_failure_event(self, *args):
            heard.append("failure")

    def listen(*args):
        heard.append("function")

    monkeypatch.setattr(litellm, "callbacks", [Listener()])
    for name in ("success_callback", "failure_callback", "input_callback"):
        monkeypatch.setattr(litellm, name, [listen])
    monkeypatch.setattr(litellm, "cache", litellm.Cache(type="local"))
    monkeypatch.setattr(litellm, "num_retries", 2)
    engine = LiteLLMEngine(
        "openai/m",
        embedding_model="openai/e",
        api_base=endpoint.url,
        api_key=KEY,
        limits=Limits(retries=0, concurrency=1),
    )
    with Store(tmp_path / "attrkit.db") as store:
        monkeypatch.setattr(litellm, "completion", with_logging(litellm.completion, store=store))
        engine.generate(prompts_of("a"), SHORT)
        engine.generate(prompts_of("a"), SHORT)
        engine.embed(["a"])
        assert endpoint.n_requests == 3, "nothing came from a cache"
        endpoint.refuse = refusing(500)
        for call in (lambda: engine.generate(prompts_of("b"), SHORT), lambda: engine.embed(["b"])):
            with pytest.raises(EngineError):
                call()
        assert endpoint.n_requests == 5, "each was tried once"
        assert litellm.num_retries == 2, "the application's setting is as it was"
        time.sleep(0.2)  # litellm tells callbacks from a thread of its own
        assert heard == []
        assert flush_logging()
        with pytest.raises(TraceNotFoundError):
            store.last()


def test_another_versions_records_do_not_keep_calls_from_being_made(litellm, engine, monkeypatch):
    heard = []
    monkeypatch.setattr(_litellm_calls, "_deaf_kind", lambda litellm: int)  # takes no such options
    monkeypatch.setattr(litellm, "success_callback", [lambda *args: heard.append("function")])
    assert texts_of(engine.generate(prompts_of("a"), SHORT)) == ["A"]
    time.sleep(0.2)
    assert heard == []


def test_litellm_prints_nothing_and_its_settings_are_as_they_were(litellm, endpoint, monkeypatch, capsys):
    monkeypatch.setattr(litellm, "suppress_debug_info", False)
    monkeypatch.setattr(litellm, "num_retries", 3)
    endpoint.refuse = refusing(400)
    engines = [LiteLLMEngine(f"openai/{name}", api_base=endpoint.url, api_key=KEY) for name in "abcd"]

    def fail(engine):
        with pytest.raises(EngineError):
            engine.generate(prompts_of("a", "b"), SHORT)

    threads = [threading.Thread(target=fail, args=(engine,)) for engine in (*engines, LiteLLMEngine("nosuch"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (litellm.suppress_debug_info, litellm.num_retries) == (False, 3)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["\x00", "<|endoftext|>", "ﷺ" * 50, "{{ x }} {% y %}"])
def test_odd_texts_go_as_they_are(engine, text):
    (completion,) = engine.generate(prompts_of(text), SHORT)
    assert completion.text == text.upper()
    assert engine.count_tokens(prompts_of(text)[0]) > 0


def test_text_that_cannot_be_encoded_fails_at_once(engine, endpoint, monkeypatch):
    monkeypatch.setattr(_requests, "FIRST_WAIT", 60.0)
    monkeypatch.setattr(_requests, "LONGEST_WAIT", 60.0)
    with pytest.raises(EngineError, match=r"on 1 of 2 prompts.*surrogates") as caught:
        engine.generate(prompts_of("\ud800 When?", "b"), SHORT)
    assert caught.value.completed[1].text == "B"
    assert engine.count_tokens(prompts_of("\ud800 When?")[0]) > 0


def test_an_application_whose_calls_may_fall_back_on_another_model_is_not_measured(litellm, engine, monkeypatch):
    monkeypatch.setattr(litellm, "model_fallbacks", ["openai/other"])
    with pytest.raises(ConfigurationError, match="another model answer"):
        engine.generate(prompts_of("a"), SHORT)


def test_the_key_appears_nowhere(endpoint):
    engine = LiteLLMEngine("openai/m", api_base=f"http://user:{KEY}@127.0.0.1:1/v1?key={KEY}", api_key=KEY)
    same = LiteLLMEngine("openai/m", api_base="http://127.0.0.1:1/v1", api_key="another-key-entirely")
    assert engine.fingerprint == same.fingerprint
    assert KEY not in "".join([repr(engine), engine.spec, engine.fingerprint, *engine.notes])


def test_all_that_decides_an_answer_is_in_the_fingerprint(monkeypatch):
    prints = {
        LiteLLMEngine(*names, **options).fingerprint
        for names, options in [
            (("openai/m",), {}),
            (("openai/n",), {}),
            (("openai/m",), {"api_base": "http://127.0.0.1:1"}),
            (("openai/m",), {"top_p": 0.5}),
            (("openai/m",), {"keep": ("seed",)}),
            (("openai/m",), {"embedding_model": "openai/e"}),
            (("openai/m",), {"embedding_model": "openai/e", "input_type": "query"}),
        ]
    }
    assert len(prints) == 7
    assert LiteLLMEngine("openai/m", limits=Limits(concurrency=1)).fingerprint in prints
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:2")
    assert LiteLLMEngine("openai/m").fingerprint not in prints


def test_prices_and_windows_are_those_of_the_packaged_list():
    assert _prices.token_price("openai/gpt-4o-mini") == _prices.token_price("gpt-4o-mini") == Price(1.5e-07, 6e-07)
    assert LiteLLMEngine("gpt-4o-mini").price == Price(1.5e-07, 6e-07)
    assert LiteLLMEngine("openai/gpt-4o-mini").max_context == 128_000
    assert _prices.token_price("anthropic/claude-sonnet-4-5").token_out > 0
    assert _prices.token_price("openai/text-embedding-3-small").token_out == 0
    assert LiteLLMEngine("ollama/llama3").price == Price(0.0, 0.0)


@pytest.mark.parametrize(
    "model",
    ["openai/SmolLM2", "nvidia_nim/meta/llama-3.1-8b-instruct", "nosuch", "sample_spec", "azure/claude-sonnet-4-5"],
)
def test_what_nobody_lists_has_no_price_and_no_window(model):
    assert _prices.token_price(model) is None
    assert _prices.max_input_tokens(model) is None


def test_a_hosted_model_that_is_listed_at_nothing_has_an_unknown_price(monkeypatch):
    free = {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0, "mode": "chat"}
    monkeypatch.setattr(_prices, "_price_list", lambda: {"gemini/try-me": free, "ollama/x:20b-cloud": free, "a": {}})
    assert _prices.token_price("gemini/try-me") is None
    assert _prices.token_price("ollama/x:20b-cloud") is None
    assert _prices.token_price("a") is None


def test_another_endpoints_price_is_unknown(monkeypatch):
    assert LiteLLMEngine("openai/gpt-4o-mini", api_base="http://127.0.0.1:1/v1").price is None
    assert LiteLLMEngine("ollama/llama3", api_base="http://127.0.0.1:11434").price == Price(0.0, 0.0)
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:1/v1")
    assert LiteLLMEngine("openai/gpt-4o-mini").price is None


@pytest.mark.parametrize(
    "model", ["openai/meta-llama-3-8b", "anthropic/claude-2", "replicate/llama-2-70b", "cohere/command-r", "openai/m"]
)
def test_tokens_are_counted_without_fetching_a_tokenizer(litellm, model):
    """The tests' guard fails what reaches for the hub."""
    engine = LiteLLMEngine(model)
    call = ToolCall("c1", "search", {"q": "fair"})
    tool = {"type": "function", "function": {"name": "search", "parameters": {}}}
    prompt = Prompt(
        (Message("user", "When did <|endoftext|> open?"), Message("assistant", "", tool_calls=(call,))),
        ({"odd": 1}, tool),
    )
    assert 10 < engine.count_tokens(prompt) < 100
    assert engine.count_tokens(Prompt((Message("user", "word " * 1000),))) > 900


def test_nothing_is_imported_before_the_first_use_and_nothing_is_fetched_then(endpoint):
    """Also without the variable that keeps litellm from fetching its price list."""
    script = f"""
import os, sys
for name in ("LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"):
    os.environ.pop(name, None)
reached = []
def note(event, arguments):
    if event == "socket.getaddrinfo":
        reached.append(arguments[0])
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        reached.append(arguments[1][0])
sys.addaudithook(note)
from attr_core.engines.litellm import LiteLLMEngine
from attr_core.types import Message, Prompt
engine = LiteLLMEngine("openai/m", api_base={endpoint.url!r}, api_key={KEY!r})
engine.fingerprint, engine.price, engine.max_context, engine.capabilities
heavy = sorted({{"litellm", "openai", "torch", "httpx"}} & set(sys.modules))
prompt = Prompt((Message("user", "a"),))
print(heavy, engine.generate([prompt])[0].text, engine.count_tokens(prompt) > 0, engine.notes, set(reached))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[] A True () {'127.0.0.1'}", done.stderr
    assert done.stderr == ""


def test_a_call_in_midst_of_an_interruption_is_not_waited_for(endpoint):
    import _thread

    endpoint.seconds = 3.0
    engine = LiteLLMEngine("openai/m", api_base=endpoint.url, api_key=KEY, limits=Limits(concurrency=2))
    threading.Timer(0.5, _thread.interrupt_main).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        engine.generate(prompts_of(*QUESTIONS), SHORT)
    assert time.monotonic() - begun < 2.5
    time.sleep(3.2)
    assert endpoint.n_requests == 2


@pytest.mark.model
def test_the_example_on_nvidias_models_runs_against_a_local_server(endpoint, small_engine, capsys, monkeypatch):
    monkeypatch.setenv("NVIDIA_NIM_API_KEY", "nvapi-0123456789")
    import nim_rag

    few = {name: nim_rag.DOCUMENTS[name] for name in ("torch", "lantern", "river")}
    monkeypatch.setattr(nim_rag, "DOCUMENTS", few)
    fewest = functools.partial(nim_rag.attribute, estimator="leave-one-out", totals=False, regenerations=False)
    monkeypatch.setattr(nim_rag, "attribute", fewest)
    answer = "The Aldemoor Lantern Festival opened in 1911."
    endpoint.message = lambda request: {"role": "assistant", "content": answer}
    nim_rag.main(["--api-base", endpoint.url])
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == answer
    assert " lantern: " in printed
    assert "nvidia_nim/meta/llama-3.1-8b-instruct answered" in printed
    kinds = [request["input_type"] for request in endpoint.requests if "input" in request]
    assert kinds == ["passage", "query"]


def test_what_a_model_is_called_with_is_told_without_keys_and_addresses():
    engine = LiteLLMEngine("openai/m", api_key=KEY, api_base="http://127.0.0.1:9/v1", top_p=0.5)
    assert "the model is called with top_p=0.5" in engine.notes
    assert not any(KEY in note or "127.0.0.1" in note for note in engine.notes)
