"""Real clients of litellm and openai against a real local server: recorded as they called, sync, async and streamed."""

import asyncio
import contextlib
import copy
import functools
import inspect
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from attr_core.middleware import flush_logging, with_logging
from attr_core.store import Store

# litellm's own models give these, with or without attrkit.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
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
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.requests = []
        self.message = {"role": "assistant", "content": "In 1911."}
        self.finish_reason = "stop"
        self.items = [TEXT_ITEM]
        self.breaks = False


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        if leaked := forbidden_keys(body):
            return self._answer(400, {"error": {"message": f"unexpected {sorted(leaked)}", "type": "invalid"}})
        if body["model"] == "absent":
            return self._answer(404, {"error": {"message": f"no such model for {KEY}", "type": "not_found"}})
        if self.path.endswith("/responses"):
            return self._stream(response_events(self.server)) if body.get("stream") else self._respond()
        if body.get("stream"):
            return self._stream(chat_chunks(self.server))
        choice = {"index": 0, "message": self.server.message, "finish_reason": self.server.finish_reason}
        usage = {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}
        usage["prompt_tokens_details"] = {"cached_tokens": 8}
        return self._answer(200, {**HEAD, "object": "chat.completion", "choices": [choice], "usage": usage})

    def _respond(self):
        self._answer(200, whole_response(self.server.items))

    def _answer(self, status, payload):
        raw = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, events):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        with contextlib.suppress(OSError):  # a client that closes early is what is tested
            for event in events:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *args):
        pass


HEAD = {"id": "c1", "created": 1, "model": "served-model"}
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"token": "fair"}'}}


def chat_chunks(server):
    """What a server streams for its message: the text in pieces, each tool call in three, and the counts."""
    head = {**HEAD, "object": "chat.completion.chunk"}
    for delta in _deltas(server.message):
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        if server.breaks:
            yield {"error": {"message": f"overloaded, {KEY}", "type": "server_error", "code": 500}}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": server.finish_reason}]}
    yield {**head, "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}}


def _deltas(message):
    for word in (message["content"] or "").split(" "):
        yield {"role": "assistant", "content": word + " " if word == "In" else word}
    for i, call in enumerate(message.get("tool_calls") or ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        yield {"tool_calls": [{"index": i, "id": call["id"], "type": "function", "function": {"name": name}}]}
        for piece in (arguments[:5], arguments[5:]):
            yield {"tool_calls": [{"index": i, "function": {"arguments": piece}}]}


TEXT_ITEM = {
    "id": "m1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "In 1911.", "annotations": []}],
}
CALL_ITEM = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "search", "arguments": '{"token": "fair"}'}
THOUGHT_ITEM = {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "Look it up."}]}


def whole_response(items, status="completed"):
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "served-model",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "output": items,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 8},
            "output_tokens": 4,
            "output_tokens_details": {"reasoning_tokens": 2},
            "total_tokens": 15,
        },
    }


def response_events(server):
    """The events of a streamed response, numbered as the API numbers them."""
    for number, event in enumerate(_events(server)):
        yield {**event, "sequence_number": number}


def _events(server):
    yield {"type": "response.created", "response": whole_response([], "in_progress")}
    for i, item in enumerate(server.items):
        yield {"type": "response.output_item.added", "output_index": i, "item": {**item, "content": []}}
        if item["type"] == "message":
            place = {"output_index": i, "item_id": item["id"], "content_index": 0}
            part = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **place, "part": part}
            for piece in ("In ", "1911."):
                yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
                if server.breaks:
                    yield {"type": "error", "code": "server_error", "message": f"overloaded, {KEY}", "param": None}
                    return
        elif item["type"] == "function_call":
            place = {"output_index": i, "item_id": item["id"]}
            for piece in (item["arguments"][:5], item["arguments"][5:]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": i, "item": item}
    yield {"type": "response.completed", "response": whole_response(server.items)}


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
def loop():
    """One for all, since litellm keeps its asynchronous clients and workers from call to call."""
    loop = asyncio.new_event_loop()
    yield loop
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:  # gathering none would make a loop of its own, and leave it open
        loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture(scope="module")
def litellm(loop):
    """The real thing, past the warnings of its first call, and with what it leaves open closed in the end."""
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop.run_until_complete(module.close_litellm_async_clients())
        asyncio.set_event_loop(None)


class Flushed(Store):
    """A store that, before it is read, waits for what is still to be written."""

    def get(self, id):  # noqa: A002
        assert flush_logging()
        return super().get(id)

    def last(self):
        assert flush_logging()
        return super().last()


@pytest.fixture
def store(tmp_path):
    with Flushed(tmp_path / "attrkit.db") as opened:
        yield opened
        flush_logging()


@pytest.fixture
def ask(litellm, provider, store):
    """``litellm.completion``, logged and pointed at the local server."""
    logged = with_logging(litellm.completion, store=store)
    return functools.partial(logged, api_base=provider.url, api_key=KEY, max_retries=0)


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


def test_provider_errors_are_recorded_and_raised_unchanged(litellm, ask, store, provider):
    with pytest.raises(litellm.NotFoundError, match="no such model"):
        ask("openai/absent", [QUESTION])
    trace = store.last()
    assert (trace.status, trace.answer, trace.query) == ("error", None, QUESTION["content"])
    assert trace.error.startswith("NotFoundError: ")
    assert KEY not in trace.error
    assert trace.generations[0].error == trace.error


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


class Client:
    """One way of calling: what is wrapped, its fixed options, and how its results are waited for and read."""

    def __init__(self, call, run, options):
        self.call, self.run, self.options = call, run, options

    def log(self, **options):
        return Client(with_logging(self.call, **options), self.run, self.options)

    def __call__(self, *args, **options):
        result = self.call(*args, **{**self.options, **options})
        return self.run(result) if inspect.isawaitable(result) else result

    def chunks(self, stream, n=None):
        """The next ``n`` chunks, or all, read as an application reads them."""
        if hasattr(type(stream), "__anext__") and self.run is not None:
            return self.run(self._read(stream, n))
        return list(itertools.islice(stream, n))

    async def _read(self, stream, n):
        chunks = []
        async for chunk in stream:
            chunks.append(chunk)
            if len(chunks) == n:
                break
        return chunks

    def close(self, stream):
        for name in ("aclose", "close") if self.run is not None else ("close",):
            if hasattr(stream, name):
                result = getattr(stream, name)()
                return self.run(result) if inspect.isawaitable(result) else result
        raise AssertionError("the stream cannot be closed")


@pytest.fixture
def client(request, provider, litellm, loop, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    package, kind, sync = request.param
    run = None if sync == "sync" else loop.run_until_complete
    if package == "litellm":
        names = {"chat": ("completion", "acompletion"), "responses": ("responses", "aresponses")}
        call = getattr(litellm, names[kind][sync == "async"])
        yield Client(call, run, {"model": "openai/m", "api_base": provider.url, "api_key": KEY, "max_retries": 0})
    else:
        openai = pytest.importorskip("openai")
        opened = (openai.OpenAI if sync == "sync" else openai.AsyncOpenAI)(
            base_url=provider.url, api_key=KEY, max_retries=0
        )
        call = opened.chat.completions.create if kind == "chat" else opened.responses.create
        yield Client(call, run, {"model": "m"})
        if sync == "sync":
            opened.close()
        else:
            loop.run_until_complete(opened.close())


def clients(kind, packages=("litellm", "openai")):
    every = [(package, kind, sync) for package in packages for sync in ("sync", "async")]
    return pytest.mark.parametrize("client", every, indirect=True, ids="-".join)


@clients("chat")
def test_every_chat_client_is_recorded(client, store, provider):
    create = client.log(store=store)
    messages = [{**QUESTION, "metadata": {"group_id": "g"}}]
    response = create(messages=messages, documents=["x"], temperature=0)
    assert response.choices[0].message.content == "In 1911."
    trace = store.get(response.attrkit["trace_id"])
    assert (trace.answer, trace.query, trace.status) == ("In 1911.", QUESTION["content"], "ok")
    assert trace.framework in ("litellm", "openai")
    assert trace.documents[0].text == "x"
    generation = trace.generations[0]
    assert generation.usage == {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15, "cached_tokens": 8}
    assert generation.parameters["temperature"] == 0
    assert provider.requests[-1]["messages"] == [QUESTION]

    history = [QUESTION, response.choices[0].message, QUESTION]
    second = create(messages=history)
    assert second.attrkit["trace_id"] != trace.id
    assert [message.content for message in store.last().generations[0].messages][1] == "In 1911."


@clients("chat")
def test_every_chat_clients_stream_is_recorded_and_gives_its_own_chunks(client, store, provider):
    provider.message = {"role": "assistant", "content": "In 1911.", "tool_calls": [CALL, {**CALL, "id": "c2"}]}
    provider.finish_reason = "tool_calls"
    options = {"messages": [QUESTION], "tools": TOOLS, "stream": True, "stream_options": {"include_usage": True}}
    bare = [chunk.model_dump() for chunk in client.chunks(client(**options))]
    stream = client.log(store=store)(**options, documents=["x"])
    chunks = client.chunks(stream)
    varies = {"id", "created"}
    assert [chunk.model_dump(exclude=varies) for chunk in chunks] == [
        {name: value for name, value in chunk.items() if name not in varies} for chunk in bare
    ]
    trace = store.get(stream.attrkit["trace_id"])
    (generation,) = trace.generations
    assert (trace.status, trace.answer, generation.finish_reason) == ("ok", "In 1911.", "tool_calls")
    assert [(c.id, c.name, c.arguments) for c in generation.tool_calls] == [
        ("c1", "search", {"token": "fair"}),
        ("c2", "search", {"token": "fair"}),
    ]
    assert generation.usage["total_tokens"] == 15
    assert trace.documents[0].text == "x"
    assert trace.started < trace.finished


@clients("chat")
def test_a_stream_that_is_closed_early_is_recorded_as_far_as_it_was_read(client, store):
    stream = client.log(store=store)(messages=[QUESTION], stream=True)
    (first,) = client.chunks(stream, 1)
    assert first.choices[0].delta.content == "In "
    client.close(stream)
    trace = store.get(stream.attrkit["trace_id"])
    assert (trace.status, trace.answer, trace.error) == ("partial", "In ", None)


@clients("chat")
def test_a_stream_that_breaks_is_recorded_with_its_error(client, store, provider):
    provider.breaks = True
    stream = client.log(store=store)(messages=[QUESTION], stream=True)
    with pytest.raises(Exception, match="overloaded") as raised:
        client.chunks(stream)
    trace = store.get(stream.attrkit["trace_id"])
    assert (trace.status, trace.answer.strip()) == ("error", "In")
    assert trace.error.startswith(type(raised.value).__name__)
    assert KEY not in trace.error
    assert trace.generations[0].error == trace.error


@clients("chat")
def test_every_chat_clients_failure_is_recorded_and_raised(client, store):
    name = "openai/absent" if client.options["model"].startswith("openai/") else "absent"
    with pytest.raises(Exception, match="no such model"):
        client.log(store=store)(model=name, messages=[QUESTION])
    trace = store.last()
    assert (trace.status, trace.answer) == ("error", None)
    assert KEY not in trace.error


def test_an_openai_stream_keeps_its_attributes_and_its_context_management(provider, store, monkeypatch):
    openai = pytest.importorskip("openai")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with openai.OpenAI(base_url=provider.url, api_key=KEY, max_retries=0) as client:
        create = with_logging(client.chat.completions.create, store=store)
        with create(model="m", messages=[QUESTION], stream=True) as stream:
            assert isinstance(stream, openai.Stream)
            assert stream.response.status_code == 200
            assert next(stream).choices[0].delta.content == "In "
        assert stream.response.is_closed
    assert store.last().status == "partial"


@clients("responses")
def test_responses_create_is_recorded(client, store, provider):
    provider.items = [THOUGHT_ITEM, TEXT_ITEM, CALL_ITEM]
    tool = {"type": "function", **TOOLS[0]["function"], "strict": False}
    create = client.log(store=store)
    response = create(input=QUESTION["content"], instructions="Be brief.", tools=[tool], documents=["x"])
    trace = store.get(response.attrkit["trace_id"])
    (generation,) = trace.generations
    assert [(message.role, message.content) for message in generation.messages] == [
        ("system", "Be brief."),
        ("user", QUESTION["content"]),
    ]
    assert generation.tools == ({"type": "function", "function": {**TOOLS[0]["function"], "strict": False}},)
    assert (trace.query, trace.answer, trace.status) == (QUESTION["content"], "In 1911.", "ok")
    assert (generation.reasoning, generation.finish_reason) == ("Look it up.", "completed")
    assert [(c.id, c.name, c.arguments) for c in generation.tool_calls] == [("c1", "search", {"token": "fair"})]
    assert generation.usage == {
        "prompt_tokens": 11,
        "completion_tokens": 4,
        "total_tokens": 15,
        "cached_tokens": 8,
        "reasoning_tokens": 2,
    }
    assert trace.documents[0].text == "x"

    # The model's own items go back in with the tool's output, as applications do.
    provider.items = [TEXT_ITEM]
    answer = {"type": "function_call_output", "call_id": "c1", "output": "1911", "metadata": {"group_id": "g"}}
    create(input=[QUESTION, *response.output, answer], previous_response_id="resp_0")
    trace = store.last()
    messages = trace.generations[0].messages
    assert [message.role for message in messages] == ["user", "assistant", "tool"]
    assert messages[1].content == "In 1911."
    assert messages[1].tool_calls[0].id == messages[2].tool_call_id == "c1"
    assert (messages[2].content, messages[2].metadata) == ("1911", {"group_id": "g"})
    assert (trace.metadata["previous_response_id"], trace.metadata["unread_items"]) == ("resp_0", ["reasoning"])
    assert "metadata" not in provider.requests[-1]["input"][-1]


@clients("responses")
def test_a_stream_of_responses_create_is_recorded(client, store, provider):
    provider.items = [TEXT_ITEM, CALL_ITEM]
    bare = [event.type for event in client.chunks(client(input=[QUESTION], stream=True))]
    stream = client.log(store=store)(input=[QUESTION], stream=True)
    assert [event.type for event in client.chunks(stream)] == bare
    trace = store.get(stream.attrkit["trace_id"])
    assert (trace.status, trace.answer) == ("ok", "In 1911.")
    assert trace.generations[0].tool_calls[0].arguments == {"token": "fair"}
    assert trace.generations[0].usage["total_tokens"] == 15


@clients("responses", ("openai",))
def test_a_stream_of_responses_create_that_is_closed_early_is_partial(client, store, provider):
    provider.items = [CALL_ITEM, TEXT_ITEM]
    stream = client.log(store=store)(input=[QUESTION], stream=True)
    client.chunks(stream, 3)
    client.close(stream)
    trace = store.get(stream.attrkit["trace_id"])
    assert (trace.status, trace.answer) == ("partial", None)
    assert trace.generations[0].tool_calls[0].arguments == '{"tok'
    assert trace.generations[0].model == "m"


@clients("responses", ("openai",))
def test_an_error_event_of_a_stream_is_recorded(client, store, provider):
    provider.breaks = True
    stream = client.log(store=store)(input=[QUESTION], stream=True)
    with contextlib.suppress(Exception):
        client.chunks(stream)
    trace = store.get(stream.attrkit["trace_id"])
    assert trace.status == "error"
    assert "overloaded" in trace.error
    assert KEY not in trace.error


def test_an_async_client_used_for_many_calls_at_once_mixes_none(provider, store, monkeypatch):
    openai = pytest.importorskip("openai")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    async def main():
        async with openai.AsyncOpenAI(base_url=provider.url, api_key=KEY, max_retries=0) as client:
            create = with_logging(client.chat.completions.create, store=store)
            calls = [create(model="m", messages=[{"role": "user", "content": f"q{i}"}]) for i in range(20)]
            return await asyncio.gather(*calls)

    responses = asyncio.run(main())
    assert [store.get(response.attrkit["trace_id"]).query for response in responses] == [f"q{i}" for i in range(20)]


def test_metadata_on_message_objects_is_not_sent(litellm, ask, store, provider):
    message = litellm.Message(role="user", content="Chunk.", metadata={"rag_chunk_id": "c1"})
    response = ask("openai/m", [message, QUESTION])
    assert message.metadata == {"rag_chunk_id": "c1"}
    assert provider.requests[0]["messages"][0]["content"] == "Chunk."
    trace = store.get(response.attrkit["trace_id"])
    assert trace.generations[0].messages[0].metadata == {"rag_chunk_id": "c1"}


def test_stamping_can_be_switched_off(litellm, provider, store):
    logged = with_logging(litellm.completion, store=store, stamp=False)
    response = logged("openai/m", [QUESTION], api_base=provider.url, api_key=KEY, max_retries=0)
    assert not hasattr(response, "attrkit")
    assert store.last().answer == "In 1911."


def test_the_wrapped_function_keeps_its_name_and_signature(litellm):
    logged = with_logging(litellm.completion)
    assert logged.__name__ == "completion"
    assert logged.__wrapped__ is litellm.completion


class Broken:
    def save(self, trace):
        raise RuntimeError("store is down")


def test_a_failing_store_warns_once_and_the_call_goes_through(litellm, provider):
    logged = with_logging(litellm.completion, store=Broken())
    ask = functools.partial(logged, "openai/m", [QUESTION], api_base=provider.url, api_key=KEY, max_retries=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        responses = [ask(), ask()]
        assert not flush_logging()
    (said,) = [str(warning.message) for warning in caught if "attrkit" in str(warning.message)]
    assert "could not be stored (RuntimeError: store is down)" in said
    assert [response.choices[0].message.content for response in responses] == ["In 1911."] * 2


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
