"""What the host's redactor hides is hidden everywhere, and nothing is stored where it fails."""

import re
import warnings
from types import SimpleNamespace

import pytest

from attr_core._redact import masked
from attr_core.errors import ConfigurationError
from attr_core.middleware import flush_logging, log_call, with_logging
from attr_core.store import Store

NAME = "Ada Lovelace"


def hide(text):
    return text.replace(NAME, "[name]")


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "attrkit.db") as opened:
        yield opened
        flush_logging()


def the_whole_call():
    """A call whose every text holds the name."""
    schema = {"name": "find", "description": NAME, "parameters": {"properties": {"who": {"enum": [NAME]}}}}
    call = {"id": "c1", "function": {"name": "find", "arguments": f'{{"who": "{NAME}", "name": "{NAME}"}}'}}
    request = {
        "messages": [
            {"role": "system", "content": f"You serve {NAME}."},
            {"role": "user", "content": [{"type": "text", "text": NAME}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": f"{NAME} was found", "tool_call_id": "c1", "metadata": {"note": NAME}},
            {"role": "user", "content": f"Who is {NAME}?"},
        ],
        "tools": [{"type": "function", "function": schema}],
        "documents": [{"id": "d1", "text": f"{NAME} wrote programs.", "metadata": {"title": [NAME], "group_id": "g"}}],
        "stop": [NAME],
        "extra_body": {"note": {"deep": NAME}},
    }
    message = {"content": f"{NAME} is a poet's child.", "reasoning_content": f"Think of {NAME}.", "tool_calls": [call]}
    return request, {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}


def bytes_in(folder):
    return b"".join(file.read_bytes() for file in folder.iterdir())


def test_no_text_of_a_call_escapes_the_redactor(store, tmp_path):
    request, response = the_whole_call()
    logged = with_logging(lambda model, messages, **options: response, store=store, redact=hide)
    assert logged("m", **request) is response
    assert flush_logging()
    assert NAME.encode() not in bytes_in(tmp_path)
    trace = store.last()
    (generation,) = trace.generations
    assert trace.metadata == {"redacted": True}
    assert (trace.query, trace.answer) == ("Who is [name]?", "[name] is a poet's child.")
    assert generation.response == trace.answer
    assert generation.reasoning == "Think of [name]."
    assert [message.content for message in generation.messages][:2] == ["You serve [name].", "[name]"]
    assert generation.messages[3].metadata == {"note": "[name]"}
    assert generation.tool_calls[0].arguments == {"who": "[name]", "name": "[name]"}
    assert generation.tools[0]["function"]["description"] == "[name]"
    assert (trace.documents[0].text, trace.documents[0].metadata["title"]) == ("[name] wrote programs.", ["[name]"])
    assert generation.parameters == {"stop": ["[name]"], "extra_body": {"note": {"deep": "[name]"}}}


def test_the_host_and_the_provider_see_the_texts_as_they_were(store):
    seen = {}

    def complete(model, messages, **options):
        seen.update(messages=messages, **options)
        return response

    request, response = the_whole_call()
    before, _ = the_whole_call()
    del request["messages"][3]["metadata"]
    with_logging(complete, store=store, redact=hide, stamp=False)("m", **request)
    assert seen["messages"] is request["messages"]
    assert response == the_whole_call()[1]
    assert seen["tools"] == before["tools"]


def test_what_ties_a_trace_together_is_kept_even_by_a_redactor_that_hides_all(store):
    request, response = the_whole_call()
    with_logging(lambda model, messages, **options: response, store=store, redact=lambda text: "x")("m", **request)
    assert flush_logging()
    trace = store.last()
    (generation,) = trace.generations
    assert [message.role for message in generation.messages] == ["system", "user", "assistant", "tool", "user"]
    assert generation.messages[2].tool_calls[0].id == generation.messages[3].tool_call_id == "c1"
    assert (generation.messages[2].tool_calls[0].name, generation.tools[0]["function"]["name"]) == ("find", "find")
    assert (trace.documents[0].id, trace.documents[0].metadata["group_id"]) == ("d1", "g")
    assert {message.content for message in generation.messages} == {"x"}


@pytest.mark.parametrize("error", [ValueError(f"no such {NAME}"), RuntimeError(f"{NAME} failed")])
def test_a_providers_error_is_redacted_too(store, tmp_path, error):
    def fail(model, messages):
        raise error

    with pytest.raises(type(error)) as raised:
        with_logging(fail, store=store, redact=hide)("m", [{"role": "user", "content": NAME}])
    assert raised.value is error
    assert flush_logging()
    assert NAME.encode() not in bytes_in(tmp_path)
    assert "[name]" in store.last().error


def test_a_streams_pieces_are_redacted_as_one_text(store, tmp_path):
    chunks = [{"choices": [{"delta": {"content": piece}}]} for piece in ("I am Ada", " Love", "lace.")]
    stream = with_logging(lambda model, messages: iter(chunks), store=store, redact=hide)("m", [])
    assert list(stream) == chunks
    assert flush_logging()
    assert store.last().answer == "I am [name]."


def test_responses_create_is_redacted_too(store, tmp_path):
    item = SimpleNamespace(type="message", content=[SimpleNamespace(text=f"It is {NAME}.")])
    call = {"type": "function_call", "call_id": "c", "name": "find", "arguments": NAME}
    output = {"type": "function_call_output", "call_id": "c", "output": NAME}

    def create(*, model, input, instructions):  # noqa: A002
        return SimpleNamespace(id="r", output=[item], status="completed", model="m")

    logged = with_logging(create, store=store, redact=hide)
    logged(model="m", input=[NAME, call, output], instructions=NAME)
    assert flush_logging()
    assert NAME.encode() not in bytes_in(tmp_path)
    assert store.last().answer == "It is [name]."


def broken(text):
    if NAME in text:
        raise ValueError(f"cannot hide {text!r}")
    return text


@pytest.mark.parametrize("redact", [broken, lambda text: None, lambda text: text.encode()])
def test_where_the_redactor_fails_a_marker_is_stored_and_it_is_said_once(store, tmp_path, redact):
    request, response = the_whole_call()
    logged = with_logging(lambda model, messages, **options: response, store=store, redact=redact)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert logged("m", **request) is response
        assert logged("m", **request) is response
    (told,) = caught
    assert "the redactor failed" in str(told.message)
    assert NAME not in str(told.message)
    assert flush_logging()
    assert NAME.encode() not in bytes_in(tmp_path)
    assert store.last().answer == "[not stored: the redactor failed]"
    assert store.last().metadata == {"redacted": True}


def test_without_a_redactor_the_trace_does_not_claim_one(store):
    with_logging(lambda model, messages: "a", store=store)("m", [])
    assert flush_logging()
    assert store.last().metadata == {}


def test_a_text_that_stands_in_several_places_is_redacted_once(store):
    seen = []

    def count(text):
        seen.append(text)
        return text

    messages = [{"role": "user", "content": "q"}]
    with_logging(lambda model, messages: "a", store=store, redact=count)("m", messages, documents=["q"])
    assert sorted(seen) == ["a", "q"]


def test_log_call_redacts_too(store, tmp_path):
    request, response = the_whole_call()
    identifier = log_call(
        request["messages"], response, documents=request["documents"], reference=NAME, store=store, redact=hide
    )
    assert NAME.encode() not in bytes_in(tmp_path)
    assert store.get(identifier).metadata["redacted"] is True
    with pytest.warns(RuntimeWarning, match="redactor failed"):
        log_call([{"role": "user", "content": NAME}], NAME, store=store, redact=broken)
    assert NAME.encode() not in bytes_in(tmp_path)


def test_a_redactor_that_cannot_be_called_is_refused_when_wrapping(store):
    with pytest.raises(ConfigurationError, match="redact="):
        with_logging(print, redact=re.compile("x"))
    with pytest.raises(ConfigurationError, match="redact="):
        log_call([], "x", store=store, redact="x")


def test_what_an_address_holds_of_secrets_is_blanked_however_it_is_written() -> None:
    address = "https://someone:long-password@host/v1?api_key=top%20secret%20value&v=2"
    told = (
        "no /v1?api_key=top%20secret%20value for top secret value (Basic c29tZW9uZTpsb25nLXBhc3N3b3Jk, long-password)"
    )
    shown = masked(told, {"api_base": address})
    for secret in ("top", "c29tZW9uZTpsb25nLXBhc3N3b3Jk", "long-password"):
        assert secret not in shown
    assert "/v1?api_key=" in shown
