"""What the host passes and gets is its own, and what is recorded is what was sent.

On functions that stand in for clients; real ones are in ``test_middleware_clients.py``.
"""

import asyncio
import copy
import functools
import inspect
import statistics
import time
import warnings
from types import SimpleNamespace

import pytest

from attr_core.errors import ConfigurationError, InputError, StoreError
from attr_core.middleware import flush_logging, log_call, with_logging
from attr_core.store import Store
from attr_core.types import Message

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


def flushed_after(call, *args):
    try:
        return call(*args)
    finally:
        flush_logging()


class Flushed(Store):
    """A store that, before it is read, waits for what is still to be written."""

    def get(self, id):  # noqa: A002
        flush_logging()
        return super().get(id)

    def last(self):
        flush_logging()
        return super().last()

    def list(self, **options):
        flush_logging()
        return super().list(**options)


@pytest.fixture
def store(tmp_path):
    with Flushed(tmp_path / "attrkit.db") as opened:
        yield opened
        flush_logging()


def answer_with(response):
    def complete(model, messages, **options):
        return response() if callable(response) else response

    return complete


def completion(content="In 1911.", **message):
    return {"model": "m", "choices": [{"message": {"content": content, **message}, "finish_reason": "stop"}]}


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


def test_an_async_function_stays_async_and_is_recorded_when_awaited(store):
    seen = []

    async def complete(model, messages):
        seen.append(messages)
        return completion()

    logged = with_logging(complete, store=store)
    assert inspect.iscoroutinefunction(logged)
    coming = logged("m", [{**QUESTION, "metadata": {}}], documents=["x"])
    assert store.list() == []
    response = asyncio.run(coming)
    assert seen == [[QUESTION]]
    trace = store.get(response.pop("attrkit")["trace_id"])
    assert response == completion()
    assert (trace.answer, trace.documents[0].text, trace.status) == ("In 1911.", "x", "ok")


def test_a_plain_function_that_gives_a_coroutine_is_recorded_when_that_is_awaited(store):
    async def later():
        return completion()

    coming = with_logging(answer_with(later), store=store)("m", [QUESTION])
    assert inspect.iscoroutine(coming)
    assert store.list() == []
    response = asyncio.run(coming)
    assert store.get(response["attrkit"]["trace_id"]).answer == "In 1911."


def test_a_plain_function_that_gives_a_task_gives_that_very_task_and_is_recorded_when_it_is_done(store):
    async def main():
        async def later():
            return completion()

        task = asyncio.create_task(later())
        assert with_logging(answer_with(task), store=store)("m", [QUESTION]) is task
        return await task

    response = asyncio.run(main())
    assert store.get(response["attrkit"]["trace_id"]).answer == "In 1911."


def test_an_awaitable_that_cannot_be_followed_passes_untouched(store):
    class Coming:
        def __await__(self):
            yield from ()
            return "awaited"

    coming = Coming()
    with pytest.warns(RuntimeWarning, match="cannot be followed"):
        assert with_logging(answer_with(coming), store=store)("m", [QUESTION]) is coming


@pytest.mark.parametrize("kind", ["function", "coroutine", "task"])
def test_a_cancelled_call_is_recorded_as_interrupted(store, kind):
    async def wait():
        await asyncio.sleep(60)

    async def complete(model, messages):
        await wait()

    async def main():
        made = {"function": complete, "coroutine": answer_with(wait), "task": lambda model, messages: later()}
        task = asyncio.ensure_future(with_logging(made[kind], store=store)("m", [QUESTION]))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def later():
        return asyncio.create_task(wait())

    asyncio.run(main())
    assert (store.last().status, store.last().query) == ("interrupted", QUESTION["content"])


def test_an_async_functions_error_is_recorded_and_raised_as_the_same_object(store):
    mine = ValueError("mine")

    async def fail(model, messages):
        raise mine

    with pytest.raises(ValueError, match="mine") as raised:
        asyncio.run(with_logging(fail, store=store)("m", [QUESTION]))
    assert raised.value is mine
    assert (store.last().status, store.last().error) == ("error", "ValueError: mine")


def test_what_a_partial_holds_is_recorded(store):
    preset = functools.partial(answer_with(completion), "m", temperature=0.5, api_key=KEY)
    with_logging(preset, store=store)([QUESTION], top_p=1)
    generation = store.last().generations[0]
    assert (generation.model, generation.parameters) == ("m", {"temperature": 0.5, "top_p": 1})
    assert generation.messages[0].content == QUESTION["content"]


def test_messages_that_can_be_read_only_once_are_left_to_the_provider(store):
    def complete(model, messages):
        return len(list(messages))

    with pytest.warns(RuntimeWarning, match="iterator"):
        assert with_logging(complete, store=store)("m", (message for message in [QUESTION, QUESTION])) == 2
    assert store.list() == []


def test_a_legacy_function_call_and_a_refusal_are_read(store):
    call = {"name": "search", "arguments": '{"token": "fair"}'}
    history = [QUESTION, {"role": "assistant", "content": None, "function_call": call}]
    with_logging(answer_with(completion(None, refusal="No.")), store=store)("m", history)
    trace = store.last()
    assert trace.answer == "No."
    assert trace.generations[0].messages[1].tool_calls[0].arguments == {"token": "fair"}
    with_logging(answer_with(completion(None, function_call=call)), store=store)("m", [QUESTION])
    assert store.last().generations[0].tool_calls[0].name == "search"


def test_the_providers_own_citations_are_kept_and_found_in_the_answer(store):
    from attr_core.claims import split_claims
    from attr_core.support.citations import citations
    from attr_core.types import Segment, SegmentKind

    cited = {"type": "file_citation", "start_index": 0, "end_index": 20, "file_id": "f", "filename": "fairs.pdf"}
    with_logging(answer_with(completion("It opened in 1911. [1]", annotations=[cited])), store=store)("m", [QUESTION])
    trace = store.last()
    assert trace.metadata["citations"] == [{"annotations": [cited]}]
    source = Segment("c0", SegmentKind.RETRIEVED, "The fair opened in 1911.", (), source={"source": "fairs.pdf"})
    found = citations(trace.answer, split_claims(trace.answer), [source], provider=trace.metadata["citations"])
    assert {(one.claim, one.segments) for one in found.found} == {(0, (0,))}


def test_the_providers_own_tools_and_unreadable_items_of_responses_create_are_noted(store):
    given = [
        "When?",
        {"type": "item_reference", "id": "x"},
        {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "fair"}},
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "SELECT 1"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1"}]},
    ]
    item = {"type": "mcp_call", "id": "p", "name": "look", "arguments": "{}", "output": "found", "error": None}
    failed = {"id": "r", "status": "failed", "error": {"message": "broken"}, "output": [item]}

    def create(*, model, input, **options):  # noqa: A002
        return failed

    response = with_logging(create, store=store)(model="m", input=given)
    trace = store.get(response["attrkit"]["trace_id"])
    assert [message.role for message in trace.generations[0].messages] == ["user", "assistant", "tool"]
    assert [call.name for call in trace.generations[0].messages[1].tool_calls] == ["web_search", "sql"]
    assert trace.generations[0].messages[1].tool_calls[0].arguments == {"action": {"query": "fair"}}
    assert trace.metadata == {"unread_items": ["item_reference"], "response_id": "r"}
    assert (trace.status, trace.error) == ("error", "broken")
    (call,) = trace.generations[0].tool_calls
    assert (call.name, call.arguments, call.output) == ("look", {}, "found")


def test_what_the_host_changes_afterwards_does_not_change_the_record():
    kept = []

    class Slow:
        def save(self, trace):
            kept.append(trace)
            return trace.id

    metadata, schema, arguments = {"group_id": ["g"]}, copy.deepcopy(TOOLS), {"token": ["fair"]}
    document = {"text": "x", "metadata": {"source": {"page": 1}}}
    call = {"id": "c", "function": {"name": "search", "arguments": arguments}}
    messages = [{**QUESTION, "metadata": metadata}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    options = {"stop": ["x"], "response_format": {"schema": {"a": 1}}}
    response = completion(tool_calls=[{"id": "d", "function": {"name": "search", "arguments": arguments}}])
    logged = with_logging(answer_with(response), store=Slow())
    logged("m", messages, tools=schema, documents=[document], **options)
    for changed in (metadata["group_id"], arguments["token"], options["stop"], schema):
        changed.append("changed")
    document["metadata"]["source"]["page"] = schema[0]["function"]["name"] = "changed"
    options["response_format"]["schema"]["a"] = "changed"
    messages[0]["content"] = response["choices"][0]["message"]["content"] = "changed"
    flush_logging()
    assert "changed" not in repr(kept)


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


def test_warnings_turned_into_errors_do_not_reach_the_host():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        response = with_logging(answer_with(completion), store=Broken())("m", [QUESTION])
        assert not flush_logging()
    assert response.pop("attrkit")["trace_id"]
    assert response == completion()


def test_a_failing_store_does_not_hide_the_providers_error():
    def fail(model, messages):
        raise ValueError("provider")

    with pytest.raises(ValueError, match="provider"), pytest.warns(RuntimeWarning, match="store is down"):
        flushed_after(with_logging(fail, store=Broken()), "m", [QUESTION])


def test_a_database_that_cannot_be_written_warns_and_the_call_goes_through(tmp_path):
    (tmp_path / "file").touch()
    logged = with_logging(answer_with(completion), db=tmp_path / "file" / "attrkit.db")
    with pytest.warns(RuntimeWarning, match="could not be stored .*StoreError"):
        response = flushed_after(logged, "m", [QUESTION])
    assert response["choices"] == completion()["choices"]


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
    assert flush_logging()
    with Store() as store:
        assert store.get(response["attrkit"]["trace_id"]).answer == "In 1911."


def test_stamping_can_be_switched_off_for_dicts(store):
    assert with_logging(answer_with(completion()), store=store, stamp=False)("m", [QUESTION]) == completion()
    assert store.last().answer == "In 1911."


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
        time.sleep(0.002)  # as much as a model takes at least, and the writer needs
    assert statistics.median(times) < 0.02
