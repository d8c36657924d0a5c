"""Calls are recorded as they were made, and the host never notices: real clients against a real local server."""

import asyncio
import contextlib
import copy
import functools
import inspect
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from attr_core.errors import ConfigurationError, InputError, StoreError
from attr_core.middleware import log_call, with_logging
from attr_core.store import Store
from attr_core.types import Message

# litellm's own models give these, with or without attrkit.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]

KEY = "sk-very-secret-key"
QUESTION = {"role": "user", "content": "When did the fair open?"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {"type": "object", "properties": {"token": {"type": "string"}}},
        },
    }
]


def forbidden_keys(value):
    if isinstance(value, dict):
        found = {"metadata", "documents", "attrkit"} & set(value)
        return found.union(*map(forbidden_keys, value.values())) if value else found
    return set().union(*map(forbidden_keys, value)) if isinstance(value, list) else set()


class Provider(ThreadingHTTPServer):
    """Speaks the OpenAI protocol; keeps every request body and refuses what no provider should be sent."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.requests = []
        self.message = {"role": "assistant", "content": "In 1911."}
        self.finish_reason = "stop"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        if leaked := forbidden_keys(body):
            return self._answer(400, {"error": {"message": f"unexpected {sorted(leaked)}", "type": "invalid"}})
        if body["model"] == "absent":
            return self._answer(404, {"error": {"message": f"no such model for {KEY}", "type": "not_found"}})
        head = {"id": "c1", "created": 1, "model": "served-model"}
        if body.get("stream"):
            return self._stream({**head, "object": "chat.completion.chunk"})
        choice = {"index": 0, "message": self.server.message, "finish_reason": self.server.finish_reason}
        usage = {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}
        usage["prompt_tokens_details"] = {"cached_tokens": 8}
        return self._answer(200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def _answer(self, status, payload):
        raw = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, head):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for piece, finish in (("In ", None), ("1911.", None), (None, "stop")):
            delta = {"role": "assistant", "content": piece} if piece else {}
            chunk = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serving():
    with Provider() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def provider():
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def litellm():
    """The real thing, past the warnings of its first call, and with what it leaves open closed in the end."""
    loop = asyncio.new_event_loop()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        patch.setenv("NO_PROXY", "127.0.0.1")
        warnings.simplefilter("ignore")
        asyncio.set_event_loop(loop)
        module = pytest.importorskip("litellm")
        patch.setattr(module, "suppress_debug_info", True)
        with serving() as server:
            module.completion("openai/m", [QUESTION], api_base=server.url, api_key=KEY, max_retries=0)
        yield module
        for client in list(module.in_memory_llm_clients_cache.cache_dict.values()):
            if not inspect.iscoroutinefunction(getattr(client, "close", None)):
                client.close()
        asyncio.set_event_loop(None)
        loop.close()


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "attrkit.db") as opened:
        yield opened


@pytest.fixture
def ask(litellm, provider, store):
    """``litellm.completion``, logged and pointed at the local server."""
    logged = with_logging(litellm.completion, store=store)
    return functools.partial(logged, api_base=provider.url, api_key=KEY, max_retries=0)


def answer_with(response):
    def complete(model, messages, **options):
        return response() if callable(response) else response

    return complete


def completion(content="In 1911.", **message):
    return {"model": "m", "choices": [{"message": {"content": content, **message}, "finish_reason": "stop"}]}


def test_a_litellm_call_is_recorded_and_stamped(ask, store, provider):
    messages = [{"role": "system", "content": "Be brief."}, QUESTION]
    response = ask(model="openai/m", messages=messages, temperature=0, max_tokens=20)
    assert response.choices[0].message.content == "In 1911."
    trace = store.get(response.attrkit["trace_id"])
    assert (trace.query, trace.answer, trace.status, trace.framework) == (
        QUESTION["content"],
        "In 1911.",
        "ok",
        "litellm",
    )
    assert trace.started < trace.finished
    (generation,) = trace.generations
    assert generation.prompt.to_chat() == messages == provider.requests[0]["messages"]
    assert (generation.response, generation.finish_reason, generation.model) == ("In 1911.", "stop", "openai/m")
    assert trace.metadata == {"response_model": response.model}
    assert generation.usage == {
        "prompt_tokens": 11,
        "completion_tokens": 4,
        "total_tokens": 15,
        "cached_tokens": 8,
    }


def test_model_and_messages_may_be_positional(ask, store):
    response = ask("openai/m", [QUESTION])
    assert store.get(response.attrkit["trace_id"]).generations[0].model == "openai/m"


def test_documents_and_message_metadata_are_recorded_but_never_sent(ask, store, provider):
    messages = [
        {"role": "user", "content": "The fair opened in 1911.", "metadata": {"rag_chunk_id": "c7", "group_id": "g"}},
        {"role": "user", "content": "You like fairs.", "metadata": {"memory": True}},
        {**QUESTION, "metadata": None, "attrkit": {"trace_id": "old"}},
    ]
    before = copy.deepcopy(messages)
    response = ask("openai/m", messages, documents=["The fair opened in 1911.", {"id": "d2", "text": "x"}])
    assert messages == before
    assert provider.requests[0]["messages"] == [
        {key: value for key, value in message.items() if key in ("role", "content")} for message in before
    ]
    trace = store.get(response.attrkit["trace_id"])
    assert [(document.id, document.text) for document in trace.documents] == [
        ("doc1", "The fair opened in 1911."),
        ("d2", "x"),
    ]
    assert [message.metadata for message in trace.generations[0].messages] == [
        {"rag_chunk_id": "c7", "group_id": "g"},
        {"memory": True},
        {},
    ]


def test_the_local_server_does_refuse_what_must_not_be_sent(litellm, provider):
    with pytest.raises(litellm.BadRequestError, match="metadata"):
        litellm.completion(
            "openai/m", [{**QUESTION, "metadata": {}}], api_base=provider.url, api_key=KEY, max_retries=0
        )


def test_no_secret_is_recorded(ask, store, tmp_path):
    response = ask(
        "openai/m",
        [QUESTION],
        extra_headers={"Authorization": f"Bearer {KEY}"},
        extra_body={"apiKey": KEY, "min_p": 0.1, "hf_token": KEY, "stop_token_ids": [2], "nested": [{"password": KEY}]},
        response_format={"type": "json_object"},
        seed=7,
    )
    parameters = store.get(response.attrkit["trace_id"]).generations[0].parameters
    assert parameters["seed"] == 7
    assert parameters["extra_body"] == {"min_p": 0.1, "stop_token_ids": [2], "nested": [{}]}
    assert parameters["response_format"] == {"type": "json_object"}
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apiKey",
        "x-api-key",
        "API_KEY",
        "aws_secret_access_key",
        "aws_access_key_id",
        "aws_session_token",
        "azure_ad_token",
        "vertex_credentials",
        "client_secret",
        "azure_password",
        "extra_headers",
        "default_headers",
        "headers",
        "Authorization",
        "cookies",
        "accessToken",
        "hf_token",
        "auth",
    ],
)
def test_an_option_named_like_a_secret_is_not_recorded(store, name):
    with_logging(answer_with(completion), store=store)("m", [QUESTION], **{name: KEY}, extra_body={name: {"a": KEY}})
    assert store.last().generations[0].parameters == {"extra_body": {}}


def test_sampling_parameters_are_recorded(store):
    parameters = {
        "temperature": 0.5,
        "max_tokens": 5,
        "max_completion_tokens": 5,
        "stop": ["\n"],
        "logit_bias": {"5": 1},
    }
    parameters |= {"stop_token_ids": [2], "tokenizer": "t", "top_k": 3, "tool_choice": "auto", "user": "u", "n": None}
    with_logging(answer_with(completion), store=store)("m", [QUESTION], **parameters)
    assert store.last().generations[0].parameters == parameters


def test_credentials_in_an_address_are_not_recorded(store):
    logged = with_logging(answer_with(completion), store=store)
    logged("m", [QUESTION], api_base=f"https://user:{KEY}@host:8080/v1?key={KEY}", client=object(), on_token=print)
    assert store.last().generations[0].parameters == {"api_base": "https://host:8080/v1"}


def test_a_tool_of_the_providers_loses_its_headers_and_a_function_keeps_its_schema(store):
    mcp = {"type": "mcp", "server_url": "https://h/x?token=1", "headers": {"Authorization": KEY}, "authorization": KEY}
    with_logging(answer_with(completion), store=store)("m", [QUESTION], tools=[*TOOLS, mcp])
    assert store.last().generations[0].tools == (*TOOLS, {"type": "mcp", "server_url": "https://h/x"})


def test_provider_errors_are_recorded_and_raised_unchanged(litellm, ask, store, provider):
    with pytest.raises(litellm.NotFoundError, match="no such model"):
        ask("openai/absent", [QUESTION])
    trace = store.last()
    assert (trace.status, trace.answer, trace.query) == ("error", None, QUESTION["content"])
    assert trace.error.startswith("NotFoundError: ")
    assert KEY not in trace.error
    assert trace.generations[0].error == trace.error


def test_the_very_exception_object_is_raised(store):
    mine = ValueError("mine")

    def fail(model, messages):
        raise mine

    with pytest.raises(ValueError, match="mine") as raised:
        with_logging(fail, store=store)("m", [QUESTION])
    assert raised.value is mine
    assert mine.__context__ is None


def test_an_interrupted_call_is_recorded_as_such(store):
    def interrupt(model, messages):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        with_logging(interrupt, store=store)("m", [QUESTION])
    assert store.last().status == "interrupted"


def test_tool_calls_are_recorded(ask, store, provider):
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"token": "fair"}'}}
    provider.message = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Look it up."}
    provider.finish_reason = "tool_calls"
    response = ask("openai/m", [QUESTION], tools=TOOLS)
    trace = store.get(response.attrkit["trace_id"])
    (generation,) = trace.generations
    assert (trace.answer, generation.response, generation.finish_reason) == (None, None, "tool_calls")
    assert generation.reasoning == "Look it up."
    assert generation.tools == tuple(TOOLS)
    assert [(c.id, c.name, c.arguments) for c in generation.tool_calls] == [("c1", "search", {"token": "fair"})]

    # The model's own message object goes back in with the tool's output, as applications do.
    message = response.choices[0].message
    provider.message = {"role": "assistant", "content": "In 1911."}
    history = [
        QUESTION,
        message,
        {"role": "tool", "content": "1911", "tool_call_id": "c1", "metadata": {"group_id": 1}},
    ]
    again = store.get(ask("openai/m", history, tools=TOOLS).attrkit["trace_id"])
    assert again.query == QUESTION["content"]
    assert [m.role for m in again.generations[0].messages] == ["user", "assistant", "tool"]
    assert again.generations[0].messages[1].tool_calls[0].arguments == {"token": "fair"}
    assert provider.requests[-1]["messages"][1]["tool_calls"][0]["id"] == "c1"


def test_an_openai_client_is_recorded_too(provider, store, monkeypatch):
    openai = pytest.importorskip("openai")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with openai.OpenAI(base_url=provider.url, api_key=KEY, max_retries=0) as client:
        create = with_logging(client.chat.completions.create, store=store)
        response = create(model="m", messages=[{**QUESTION, "metadata": {"group_id": "g"}}], documents=["x"])
        history = [QUESTION, response.choices[0].message, QUESTION]
        second = create(model="m", messages=history)
    trace = store.get(response.attrkit["trace_id"])
    assert (trace.answer, trace.framework) == ("In 1911.", "openai")
    assert second.attrkit["trace_id"] != trace.id
    assert [m.content for m in store.last().generations[0].messages][1] == "In 1911."


def test_streams_pass_untouched_and_are_said_once_to_be_unrecorded(ask, store, provider):
    with pytest.warns(RuntimeWarning, match="streams are not recorded yet"):
        stream = ask("openai/m", [{**QUESTION, "metadata": {"group_id": "g"}}], stream=True, documents=["x"])
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "In 1911."
    assert "".join(c.choices[0].delta.content or "" for c in ask("openai/m", [QUESTION], stream=True)) == "In 1911."
    assert store.list() == []


def test_async_functions_stay_async_and_pass_untouched(store):
    seen = []

    async def complete(model, messages):
        seen.append(messages)
        return completion()

    logged = with_logging(complete, store=store)
    assert inspect.iscoroutinefunction(logged)
    with pytest.warns(RuntimeWarning, match="asynchronous calls are not recorded yet"):
        response = asyncio.run(logged("m", [{**QUESTION, "metadata": {}}], documents=["x"]))
    assert response == completion()
    assert seen == [[QUESTION]]
    asyncio.run(logged("m", [QUESTION]))
    assert store.list() == []


def test_an_awaitable_from_a_plain_function_passes_untouched(store):
    async def later():
        return "awaited"

    with pytest.warns(RuntimeWarning, match="not recorded yet"):
        result = with_logging(answer_with(later), store=store)("m", [QUESTION])
    assert asyncio.run(_await(result)) == "awaited"


async def _await(awaitable):
    return await awaitable


def test_what_carries_no_metadata_is_passed_on_as_the_same_object(store):
    seen = {}

    def complete(model, messages, **options):
        seen.update(options, messages=messages)
        return completion()

    logged = with_logging(complete, store=store)
    odd, tools = SimpleNamespace(role="user", content="hi"), list(TOOLS)
    messages = [QUESTION, odd]
    logged("m", messages, tools=tools)
    assert seen["messages"] is messages
    assert seen["tools"] is tools
    mixed = (QUESTION, {"role": "user", "content": "x", "metadata": {"memory": True}}, Message("user", "mine"))
    logged("m", mixed)
    assert seen["messages"] == (QUESTION, {"role": "user", "content": "x"}, {"role": "user", "content": "mine"})
    assert seen["messages"][0] is QUESTION


def test_metadata_on_message_objects_is_not_sent(litellm, ask, store, provider):
    message = litellm.Message(role="user", content="Chunk.", metadata={"rag_chunk_id": "c1"})
    response = ask("openai/m", [message, QUESTION])
    assert message.metadata == {"rag_chunk_id": "c1"}
    assert provider.requests[0]["messages"][0]["content"] == "Chunk."
    trace = store.get(response.attrkit["trace_id"])
    assert trace.generations[0].messages[0].metadata == {"rag_chunk_id": "c1"}


def test_a_history_changed_during_the_call_is_recorded_as_it_was_sent(store):
    def complete(model, messages):
        messages.append({"role": "assistant", "content": "changed"})
        messages[0]["content"] = "changed"
        return completion()

    with_logging(complete, store=store)("m", [dict(QUESTION)])
    assert [m.content for m in store.last().generations[0].messages] == [QUESTION["content"]]


def test_none_and_parts_as_content_are_recorded(store):
    parts = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    history = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}]
    response = with_logging(answer_with(completion()), store=store)("m", history)
    messages = store.get(response["attrkit"]["trace_id"]).generations[0].messages
    assert [m.content for m in messages] == ["See\n\n[image_url]", ""]


def test_stamping_can_be_switched_off(litellm, provider, store):
    logged = with_logging(litellm.completion, store=store, stamp=False)
    response = logged("openai/m", [QUESTION], api_base=provider.url, api_key=KEY, max_retries=0)
    assert not hasattr(response, "attrkit")
    assert store.last().answer == "In 1911."
    plain = with_logging(answer_with(completion()), store=store, stamp=False)("m", [QUESTION])
    assert plain == completion()


def test_the_wrapped_function_keeps_its_name_and_signature(litellm):
    logged = with_logging(litellm.completion)
    assert logged.__name__ == "completion"
    assert logged.__wrapped__ is litellm.completion


def test_messages_are_found_by_the_callables_own_parameter_order(store):
    def complete(messages, model, temperature=1.0):
        return completion()

    with_logging(complete, store=store)([QUESTION], "m", 0.5)
    generation = store.last().generations[0]
    assert (generation.model, dict(generation.parameters)) == ("m", {"temperature": 0.5})
    assert store.last().query == QUESTION["content"]


def test_a_plain_text_answer_is_recorded(store):
    assert with_logging(answer_with("In 1911."), store=store)("m", [QUESTION]) == "In 1911."
    assert store.last().answer == "In 1911."


@pytest.mark.parametrize(
    "response",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [{}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": "text"},
        object(),
        42,
        SimpleNamespace(choices=[SimpleNamespace(message=None)]),
    ],
)
def test_a_response_of_an_odd_shape_is_returned_as_it_is_and_recorded_as_partial(store, response):
    before = copy.deepcopy(response) if isinstance(response, dict) else response
    returned = with_logging(answer_with(response), store=store)("m", [QUESTION])
    assert returned is response
    assert isinstance(response, dict) <= (response == before)
    trace = store.last()
    assert (trace.status, trace.answer, trace.query) == ("partial", None, QUESTION["content"])
    assert "\n" not in trace.error


def test_a_response_that_takes_no_attribute_is_returned_as_it_is(store):
    class Sealed:
        __slots__ = ("choices",)

        def __init__(self):
            self.choices = [{"message": {"content": "In 1911."}}]

    returned = with_logging(answer_with(Sealed), store=store)("m", [QUESTION])
    assert isinstance(returned, Sealed)
    assert store.last().answer == "In 1911."


class Broken:
    def save(self, trace):
        raise RuntimeError("store is down")


def test_a_failing_store_warns_once_and_the_call_goes_through(litellm, provider):
    logged = with_logging(litellm.completion, store=Broken())
    ask = functools.partial(logged, "openai/m", [QUESTION], api_base=provider.url, api_key=KEY, max_retries=0)
    with pytest.warns(RuntimeWarning, match="could not be recorded .*store is down") as caught:
        responses = [ask(), ask()]
    assert len([w for w in caught if "attrkit" in str(w.message)]) == 1
    assert [response.choices[0].message.content for response in responses] == ["In 1911."] * 2
    assert not hasattr(responses[0], "attrkit")


def test_warnings_turned_into_errors_do_not_reach_the_host():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert with_logging(answer_with(completion), store=Broken())("m", [QUESTION]) == completion()


def test_a_failing_store_does_not_hide_the_providers_error():
    def fail(model, messages):
        raise ValueError("provider")

    with pytest.warns(RuntimeWarning, match="store is down"), pytest.raises(ValueError, match="provider"):
        with_logging(fail, store=Broken())("m", [QUESTION])


def test_a_database_that_cannot_be_written_warns_and_the_call_goes_through(tmp_path):
    (tmp_path / "file").touch()
    logged = with_logging(answer_with(completion), db=tmp_path / "file" / "attrkit.db")
    with pytest.warns(RuntimeWarning, match="could not be recorded .*StoreError"):
        assert logged("m", [QUESTION]) == completion()


class Hostile:
    def __getattr__(self, name):
        raise RuntimeError("hostile")

    def __repr__(self):
        raise RuntimeError("hostile")


@pytest.mark.parametrize(
    "messages",
    [
        None,
        5,
        "text",
        [None],
        [{"content": "no role"}],
        [{"role": "user", "content": 5}],
        [Hostile()],
        {"role": "user"},
    ],
    ids=["none", "number", "text", "none inside", "no role", "number as content", "hostile", "one message"],
)
def test_messages_that_cannot_be_read_reach_the_provider_as_they_are(store, messages):
    seen = []

    def complete(model, messages):
        seen.append(messages)
        return "ok"

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert with_logging(complete, store=store)("m", messages) == "ok"
    assert seen[0] is messages
    assert len(caught) <= 1


def test_documents_that_cannot_be_read_cost_only_the_record(store):
    with pytest.warns(RuntimeWarning, match="has no text"):
        assert with_logging(answer_with("ok"), store=store)("m", [QUESTION], documents=[5]) == "ok"


def test_a_call_without_messages_fails_as_it_would_have(store):
    with pytest.raises(TypeError, match="messages"):
        with_logging(answer_with("ok"), store=store)("m")


def test_misuse_is_refused_when_wrapping(store, tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be called"):
        with_logging("litellm.completion")
    with pytest.raises(ConfigurationError, match="both db and store"):
        with_logging(print, db=tmp_path / "x.db", store=store)


def test_wrapping_makes_no_file_and_the_first_call_does(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "env.db"))
    logged = with_logging(answer_with(completion))
    assert list(tmp_path.iterdir()) == []
    response = logged("m", [QUESTION])
    with Store() as store:
        assert store.get(response["attrkit"]["trace_id"]).answer == "In 1911."


def test_threads_log_at_once(store):
    logged = with_logging(answer_with(lambda: completion()), store=store)
    threads = [threading.Thread(target=lambda: [logged("m", [QUESTION]) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.list(limit=None)) == 40


def test_log_call_records_what_was_called_elsewhere(store, tmp_path):
    identifier = log_call([QUESTION], "In 1911.", documents=["d"], model="m", store=store, tags=["eval"])
    trace = store.get(identifier)
    assert (trace.query, trace.answer, trace.tags) == (QUESTION["content"], "In 1911.", ("eval",))
    assert (trace.generations[0].model, trace.documents[0].text) == ("m", "d")
    path = tmp_path / "other.db"
    identifier = log_call([QUESTION], completion(reasoning_content="because"), db=path)
    with Store(path) as other:
        generation = other.get(identifier).generations[0]
        assert (generation.response, generation.reasoning, generation.model) == ("In 1911.", "because", "m")


def test_log_call_raises_what_goes_wrong(store, tmp_path):
    with pytest.raises(InputError, match="empty"):
        log_call([], "x", store=store)
    with pytest.raises(InputError, match="no choices"):
        log_call([QUESTION], 42, store=store)
    (tmp_path / "file").touch()
    with pytest.raises(StoreError):
        log_call([QUESTION], "x", db=tmp_path / "file" / "a.db")


def test_logging_takes_little_time(store):
    logged = with_logging(answer_with(lambda: completion()), store=store)
    messages = [{"role": "system", "content": "Be brief."}, *[QUESTION] * 6]
    documents = ["A chunk of text. " * 60] * 5
    times = []
    for _ in range(100):
        start = time.perf_counter()
        logged("m", messages, documents=documents, temperature=0)
        times.append(time.perf_counter() - start)
    assert statistics.median(times) < 0.05


@pytest.fixture
def served_model(tmp_path):
    """``transformers serve`` with the real small model; needs the package's ``serving`` extra."""
    for package in ("fastapi", "uvicorn"):
        pytest.importorskip(package)
    local_models = pytest.importorskip("attr_core.engines.local_models")
    weights = local_models.find_packaged("SmolLM2-135M-Instruct.Q4_1.gguf")
    if weights is None:
        pytest.skip("the packaged model is not installed")
    folder = str(local_models.convert_gguf(weights))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = "from transformers.cli.transformers import main; main()"
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    with (tmp_path / "server.log").open("w") as log:
        command = [sys.executable, "-c", program, "serve", folder, *options]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"}
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        for _ in range(480):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            assert server.poll() is None, (tmp_path / "server.log").read_text()
            time.sleep(0.25)
        yield f"openai/{folder}", f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.slow
@pytest.mark.model
def test_a_real_model_behind_a_real_server_is_recorded(litellm, served_model, store, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    model, url = served_model
    fact = "The Tavel fair opened in 1911."
    messages = [
        {"role": "system", "content": "Answer in one short sentence."},
        {"role": "user", "content": fact, "metadata": {"rag_chunk_id": "c1"}},
        {"role": "user", "content": "When did the Tavel fair open?"},
    ]
    logged = with_logging(litellm.completion, store=store)
    response = logged(model, messages, documents=[fact], api_base=url, api_key=KEY, max_tokens=24, temperature=0)
    trace = store.get(response.attrkit["trace_id"])
    assert trace.answer == response.choices[0].message.content
    assert "1911" in trace.answer
    assert trace.generations[0].usage["completion_tokens"] > 0
    assert trace.generations[0].messages[1].metadata == {"rag_chunk_id": "c1"}
