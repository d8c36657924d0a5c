"""LangChain's objects as the core's and back: nothing is lost, nothing is shared, nothing is changed."""

import copy
import json
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document as LangChainDocument
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import create_retriever_tool, tool
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import BaseModel, SecretStr

from attr_core.segmenter import segment
from attr_core.types import Document, Message, Prompt, ToolCall
from attr_langchain.convert import (
    from_messages,
    from_prompt,
    query_of,
    texts_in,
    to_answer,
    to_completion,
    to_document,
    to_generation,
    to_message,
    to_text_generation,
    to_tool_result,
)

WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"token": {"type": "string"}}}},
}


def answered(message: AIMessage, **more: Any) -> dict[str, Any]:
    return to_answer(LLMResult(generations=[[ChatGeneration(message=message, **more)]]))


# --- messages ---------------------------------------------------------------------------------------------------------


class Urgent(HumanMessage):
    """An application's own kind of message."""


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (HumanMessage("x"), "user"),
        (HumanMessageChunk("x"), "user"),
        (Urgent("x"), "user"),
        (AIMessage("x"), "assistant"),
        (AIMessageChunk("x"), "assistant"),
        (SystemMessage("x"), "system"),
        (SystemMessage("x", additional_kwargs={"__openai_role__": "developer"}), "developer"),
        (ToolMessage("x", tool_call_id="c1"), "tool"),
        (FunctionMessage(content="x", name="f"), "function"),
        (ChatMessage(content="x", role="critic"), "critic"),
        (ChatMessage(content="x", role="human"), "user"),
        (ChatMessage(content="x", role=""), "user"),
    ],
)
def test_every_kind_of_message_has_its_role(message, role):
    assert to_message(message).role == role
    assert to_message(message).content == "x"


def test_a_message_keeps_names_ids_and_calls():
    call = {"name": "weather", "args": {"city": "Aldemoor"}, "id": "c1"}
    message = to_message(AIMessage("Let me see.", name="guide", tool_calls=[call], id="m1"))
    assert message.name == "guide"
    assert message.tool_calls == (ToolCall("c1", "weather", {"city": "Aldemoor"}),)
    assert message.metadata == {"id": "m1"}
    assert to_message(ToolMessage("Rain.", tool_call_id="c1")).tool_call_id == "c1"


def test_a_call_that_is_no_json_is_kept_as_the_model_wrote_it():
    broken = {"name": "weather", "args": '{"city": "Alde', "id": "c1", "error": "unterminated"}
    whole = {"name": "weather", "args": {}, "id": "c2"}
    message = to_message(AIMessage("", tool_calls=[whole], invalid_tool_calls=[broken]))
    assert [call.arguments for call in message.tool_calls] == [{}, '{"city": "Alde']


def test_a_function_call_of_old_is_a_tool_call():
    raw = {"function_call": {"name": "weather", "arguments": '{"city": "Aldemoor"}'}}
    assert to_message(AIMessage("", additional_kwargs=raw)).tool_calls == (
        ToolCall("", "weather", {"city": "Aldemoor"}),
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (["one", {"type": "text", "text": "two"}], "one\n\ntwo"),
        ([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}], "see\n\n[image_url]"),
        ([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "so"}], "[reasoning]\n\nso"),
        ([{"type": "search_result", "title": "t", "content": [{"type": "text", "text": "found"}]}], "found"),
        ([{"type": "document", "source": {"type": "text", "data": "a page"}}], "a page"),
        ([{"type": "tool_result", "content": "gave"}], "gave"),
        ([{"type": "search_result", "content": []}, {}], "[search_result]\n\n[part]"),
        ([], ""),
    ],
)
def test_blocks_become_text(content, text):
    assert to_message(HumanMessage(content)).content == text


def test_blocks_of_an_answer_are_pieces_of_one_text_without_thoughts_and_calls():
    content = [
        {"type": "thinking", "thinking": "The fair, not the parade."},
        {"type": "text", "text": "The fair opened "},
        {"type": "text", "text": "in 1911", "citations": [{"cited_text": "1911"}]},
        ".",
        {"type": "tool_use", "id": "c1", "name": "weather", "input": {}},
    ]
    assert to_message(AIMessage(content)).content == "The fair opened in 1911."
    assert answered(AIMessage(content))["response"] == "The fair opened in 1911."


@pytest.mark.parametrize("content", [None, 7, {"type": "text"}, [None, 7, [["deep"]]], b"bytes", ("a", "b")])
@pytest.mark.parametrize("kind", [HumanMessage, AIMessage, SystemMessage])
def test_content_of_any_shape_is_some_text(kind, content):
    message = kind.model_construct(content=content)
    assert isinstance(to_message(message).content, str)
    assert to_message(message).content == "" or content is not None


def test_the_marks_that_the_segmenter_understands_are_kept_and_nothing_else():
    message = HumanMessage(
        "The fair opened in 1911.",
        additional_kwargs={"rag_chunk_id": "c7", "group_id": "fairs", "cache_control": {"type": "ephemeral"}},
        response_metadata={"memory": True, "attrkit": {"trace_id": "tr_1"}, "headers": {"authorization": "x"}},
    )
    assert to_message(message).metadata == {"rag_chunk_id": "c7", "group_id": "fairs", "memory": True}
    generation = to_generation([message, HumanMessage("When?")])
    first = segment(generation)[0]
    assert (first.id, str(first.kind), first.group_id) == ("c7", "retrieved", "fairs")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)
names = st.none() | st.text(min_size=1, max_size=8)


def is_no_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


calls = st.builds(
    ToolCall,
    id=st.text(max_size=6),
    name=st.text(max_size=6),
    arguments=objects | st.lists(json_values, max_size=3) | st.text(max_size=12).filter(is_no_json),
)
messages = st.one_of(
    st.builds(Message, st.sampled_from(["system", "developer", "user", "critic"]), st.text(), names),
    st.builds(Message, st.just("assistant"), st.text(), names, st.lists(calls, max_size=3).map(tuple)),
    st.builds(Message, st.just("tool"), st.text(), names, tool_call_id=st.text(max_size=6)),
    st.builds(Message, st.just("function"), st.text(), st.text(min_size=1, max_size=6)),
)


@given(st.lists(messages, max_size=4))
def test_messages_survive_the_way_to_langchain_and_back(given_messages):
    def ordered(message):  # LangChain keeps whole and broken calls apart
        return sorted(message.tool_calls, key=lambda call: not isinstance(call.arguments, dict))

    back = [to_message(message) for message in from_messages(given_messages)]
    assert len(back) == len(given_messages)
    for before, after in zip(given_messages, back, strict=True):
        assert list(after.tool_calls) == ordered(before)
        assert (after.role, after.content, after.name) == (before.role, before.content, before.name)
        assert (after.tool_call_id, after.metadata) == (before.tool_call_id, {})


def test_a_call_without_arguments_and_one_with_a_json_string_are_objects_to_langchain():
    given_calls = (ToolCall("c1", "now"), ToolCall("c2", "weather", '{"city": "Aldemoor"}'))
    (message,) = from_messages([Message("assistant", "", tool_calls=given_calls)])
    assert [call["args"] for call in message.tool_calls] == [{}, {"city": "Aldemoor"}]
    assert message.invalid_tool_calls == []


def test_metadata_is_not_sent():
    (message,) = from_messages([Message("user", "x", metadata={"rag_chunk_id": "c1", "id": "m1", "secret": "s"})])
    assert message.additional_kwargs == {}
    assert message.response_metadata == {}
    assert message.id is None


def test_a_prompt_becomes_messages_and_schemas_of_its_own():
    prompt = Prompt((Message("user", "x"),), (WEATHER, {"name": "now", "input_schema": {"type": "object"}}))
    sent, tools = from_prompt(prompt)
    assert [type(message) for message in sent] == [HumanMessage]
    assert tools == [
        WEATHER,
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
    ]
    tools[0]["function"]["name"] = "changed"
    assert prompt.tools[0]["function"]["name"] == "weather"


# --- what is live stays apart -----------------------------------------------------------------------------------------


def scramble(value: Any, depth: int = 0) -> None:
    """Change everything that can be changed, however deep."""
    if depth > 6:
        return
    if isinstance(value, dict):
        for inner in list(value.values()):
            scramble(inner, depth + 1)
        value.clear()
        value["scrambled"] = ["scrambled"]
    elif isinstance(value, list):
        for inner in value:
            scramble(inner, depth + 1)
        value[:] = ["scrambled"]
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            scramble(getattr(value, name), depth + 1)


live_messages = st.builds(
    lambda text, blocks, args, kwargs, metadata: [
        SystemMessage(text, additional_kwargs=kwargs),
        HumanMessage(blocks, response_metadata={"group_id": [metadata], **metadata}),
        AIMessage(
            text,
            tool_calls=[{"name": "t", "args": args, "id": "c"}],
            invalid_tool_calls=[{"name": "t", "args": "{", "id": "d", "error": None}],
            additional_kwargs={"rag_chunk_id": metadata, "memory": [kwargs]},
        ),
        ToolMessage(text, tool_call_id="c", artifact=[LangChainDocument(text, metadata=metadata)]),
    ],
    st.text(max_size=20),
    st.lists(st.text(max_size=5) | objects, max_size=3),
    objects,
    objects,
    objects,
)


@given(live_messages, objects)
def test_what_was_converted_is_not_changed_by_what_becomes_of_the_original(live, parameters):
    document = LangChainDocument("text", metadata=copy.deepcopy(parameters))
    asked = {"model": "m", "tools": [copy.deepcopy(WEATHER)], "stop": ["x"], **parameters}
    answer = LLMResult(generations=[[ChatGeneration(message=live[2])]], llm_output={"token_usage": parameters})
    before = [message.model_dump() for message in live], document.model_dump(), copy.deepcopy(asked)
    converted = [
        [asdict(to_message(message)) for message in live],
        to_generation(live, invocation_params=asked, metadata=parameters),
        to_document(document),
        to_answer(answer),
        to_tool_result(live[3]),
        to_tool_result(parameters),
    ]
    assert ([message.model_dump() for message in live], document.model_dump(), asked) == before
    kept = copy.deepcopy(converted)
    for original in (*live, document, asked, answer, parameters):
        scramble(original)
    assert converted == kept


@given(st.lists(messages, min_size=1, max_size=3))
def test_what_is_sent_shares_nothing_with_the_prompt(given_messages):
    kept = copy.deepcopy(given_messages)
    for message in from_messages(given_messages):
        scramble(message)
    assert given_messages == kept


# --- documents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (LangChainDocument("t", id="d9"), Document("d9", "t")),
        (LangChainDocument("t", metadata={"id": 4}), Document("4", "t", metadata={"id": 4})),
        (LangChainDocument("t", metadata={"_id": "q"}), Document("q", "t", metadata={"_id": "q"})),
        (LangChainDocument("t"), Document("doc3", "t")),
        (
            LangChainDocument("t", id="", metadata={"source": "a.md"}),
            Document("doc3", "t", metadata={"source": "a.md"}),
        ),
        ((LangChainDocument("t", id="d"), 0.25), Document("d", "t", 0.25)),
        ([LangChainDocument("t", id="d"), 0.25], Document("d", "t", 0.25)),
        ((LangChainDocument("t", id="d"), None), Document("d", "t")),
        ("bare", Document("doc3", "bare")),
        ({"page_content": "t", "id": "d", "metadata": {"score": 1}}, Document("d", "t", 1.0, {"score": 1})),
        ({"no": "text"}, Document("doc3", '{"no": "text"}')),
        (None, Document("doc3", "null")),
    ],
)
def test_a_document_has_an_id_and_its_metadata(raw, expected):
    assert to_document(raw, 2) == expected


@pytest.mark.parametrize(
    ("metadata", "score"),
    [
        ({"relevance_score": 0.9, "score": 0.1}, 0.9),
        ({"score": 3}, 3.0),
        ({"_score": 12.5}, 12.5),
        ({"relevance_score": "high", "score": 0.1}, 0.1),
        ({"score": True}, None),
        ({"rank": 1}, None),
    ],
)
def test_the_score_is_what_rerankers_and_stores_leave(metadata, score):
    document = to_document(LangChainDocument("t", metadata=metadata))
    assert document.score == score
    assert document.metadata == metadata


def test_a_score_of_numpy_is_a_float():
    import numpy as np

    found = to_document((LangChainDocument("t", metadata={"vector": np.float32(2)}), np.float32(0.5)))
    assert type(found.score) is float
    assert found.score == 0.5
    assert found.metadata == {"vector": 2.0}


def test_what_a_real_vector_store_finds():
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    ids = store.add_texts(["The fair opened in 1911."], metadatas=[{"source": "fairs.md"}])
    (pair,) = store.similarity_search_with_score("fair")
    found = to_document(pair)
    assert (found.id, found.text, found.metadata) == (ids[0], "The fair opened in 1911.", {"source": "fairs.md"})
    assert found.score == pair[1]
    (bare,) = store.similarity_search("fair")
    assert to_document(bare).score is None


# --- what a model is asked --------------------------------------------------------------------------------------------


class Payloads(BaseCallbackHandler):
    """Keeps what callbacks are really given."""

    def __init__(self):
        self.started, self.ended, self.tools = [], [], []

    def on_chat_model_start(self, serialized, messages, **told):
        self.started.append((messages[0], told))

    def on_llm_start(self, serialized, prompts, **told):
        self.started.append((prompts[0], told))

    def on_llm_end(self, response, **told):
        self.ended.append(response)

    def on_tool_end(self, output, **told):
        self.tools.append(output)


def called(told, *names):
    return {name: told[name] for name in ("invocation_params", "metadata", "options") if name in told}


def test_a_real_call_of_a_chat_model():
    seen = Payloads()
    chain = ChatPromptTemplate.from_messages([("system", "Be brief."), ("human", "{q}")]) | FakeListChatModel(
        responses=["In 1911."]
    ).bind(stop=["\n"], tools=[WEATHER, "now"], temperature=0.5, api_key="hidden", client=object())
    chain.invoke({"q": "When?"}, config={"callbacks": [seen]})
    messages_, told = seen.started[0]
    generation = to_generation(messages_, **called(told))
    assert [(m.role, m.content) for m in generation.messages] == [("system", "Be brief."), ("user", "When?")]
    assert generation.tools == (WEATHER, {"type": "function", "function": {"name": "now"}})
    assert generation.parameters == {"responses": ["In 1911."], "stop": ["\n"], "temperature": 0.5}
    assert generation.response is None
    answer = to_answer(seen.ended[0])
    assert answer["response"] == "In 1911."
    assert "model" not in answer


def test_a_real_call_of_a_text_model():
    seen = Payloads()
    FakeListLLM(responses=["In 1911."]).invoke("When?", stop=["\n"], config={"callbacks": [seen]})
    prompt, told = seen.started[0]
    generation = to_text_generation(prompt, **called(told))
    assert [(m.role, m.content) for m in generation.messages] == [("user", "When?")]
    assert generation.parameters["stop"] == ["\n"]
    assert to_answer(seen.ended[0])["response"] == "In 1911."


@pytest.mark.parametrize(
    ("params", "metadata", "model"),
    [
        ({"model": "a", "model_name": "b"}, {"ls_model_name": "c"}, "a"),
        ({"model_name": "b"}, {}, "b"),
        ({"model_id": "bedrock-x"}, {}, "bedrock-x"),
        ({"model": None}, {"ls_model_name": "c"}, "c"),
        ({"_type": "fake"}, None, None),
        (None, None, None),
    ],
)
def test_the_model_is_named_as_the_integration_names_it(params, metadata, model):
    generation = to_generation([HumanMessage("x")], invocation_params=params, metadata=metadata)
    assert generation.model == model
    assert generation.parameters == {}


def test_no_secret_is_among_the_parameters():
    params = {
        "temperature": 0,
        "max_tokens": 5,
        "openai_api_key": SecretStr("sk-hidden"),
        "default_headers": {"Authorization": "Bearer hidden"},
        "model_kwargs": {"top_p": 1, "extra_headers": {"x": "hidden"}, "token": "hidden"},
        "base_url": "https://user:hidden@host/v1?key=hidden",
        "client": object(),
        "tools": [{"type": "mcp", "server_label": "x", "headers": {"Authorization": "hidden"}}],
    }
    generation = to_generation([HumanMessage("x")], invocation_params=params)
    assert "hidden" not in repr(generation)
    assert generation.parameters["temperature"] == 0
    assert generation.parameters["model_kwargs"] == {"top_p": 1}


@tool
def weather(city: str) -> str:
    """Say what the weather is."""
    return city


@pytest.mark.parametrize(
    ("given_tool", "name", "has_parameters"),
    [
        (WEATHER, "weather", True),
        ({"name": "f", "input_schema": {"type": "object"}}, "f", True),
        ({"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}, "f", True),
        ({"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}, "f", True),
        ("f", "f", False),
        (weather, "weather", True),
        (object(), "object", False),
    ],
)
def test_tools_of_every_provider_have_one_shape(given_tool, name, has_parameters):
    (schema,) = to_generation([], invocation_params={"tools": [given_tool]}).tools
    assert schema["type"] == "function"
    assert schema["function"]["name"] == name
    assert ("parameters" in schema["function"]) is has_parameters


def test_a_tool_of_the_providers_own_is_kept_as_it_is():
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    assert to_generation([], invocation_params={"tools": [search]}).tools == (search,)


# --- what a model answers ---------------------------------------------------------------------------------------------


def test_an_answer_in_full():
    message = AIMessage(
        "In 1911.",
        response_metadata={"model_name": "gpt-x-2026", "finish_reason": "stop"},
        usage_metadata={
            "input_tokens": 9,
            "output_tokens": 4,
            "total_tokens": 13,
            "input_token_details": {"cache_read": 5},
            "output_token_details": {"reasoning": 2},
        },
    )
    assert answered(message) == {
        "response": "In 1911.",
        "reasoning": None,
        "tool_calls": (),
        "finish_reason": "stop",
        "model": "gpt-x-2026",
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 4,
            "total_tokens": 13,
            "cached_tokens": 5,
            "reasoning_tokens": 2,
        },
    }


@pytest.mark.parametrize(
    ("told", "reason"),
    [({"stop_reason": "end_turn"}, "end_turn"), ({"done_reason": "length"}, "length"), ({"stopReason": "x"}, "x")],
)
def test_why_it_stopped_in_each_providers_words(told, reason):
    assert answered(AIMessage("x", response_metadata=told))["finish_reason"] == reason
    assert answered(AIMessage("x"), generation_info=told)["finish_reason"] == reason


@pytest.mark.parametrize(
    ("content", "extra"),
    [
        ([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "so"}], {}),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, "so"], {}),
        ([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "so"}], {}),
        ([{"type": "reasoning_content", "reasoning_content": {"text": "hm"}}, {"type": "text", "text": "so"}], {}),
        ("so", {"reasoning_content": "hm"}),
        ("so", {"reasoning": {"id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}}),
    ],
)
def test_thoughts_are_told_apart_from_the_answer(content, extra):
    answer = answered(AIMessage(content, additional_kwargs=extra))
    assert (answer["response"], answer["reasoning"]) == ("so", "hm")


def test_an_answer_of_tool_calls_alone_has_no_text():
    answer = answered(AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "A"}, "id": "c1"}]))
    assert answer["response"] is None
    assert answer["tool_calls"] == (ToolCall("c1", "weather", {"city": "A"}),)
    assert answered(AIMessage(""))["response"] == ""


def test_a_refusal_is_the_answer_where_there_is_no_other():
    assert answered(AIMessage("", additional_kwargs={"refusal": "I may not."}))["response"] == "I may not."
    assert answered(AIMessage([{"type": "refusal", "refusal": "I may not."}]))["response"] == "I may not."


def test_of_several_candidates_the_first_is_the_answer_and_the_number_is_told():
    candidates = [ChatGeneration(message=AIMessage(text)) for text in ("one", "two", "three")]
    answer = to_answer(LLMResult(generations=[candidates]))
    assert answer["response"] == "one"
    assert answer["usage"] == {"candidates": 3}


@pytest.mark.parametrize("generations", [[], [[]]])
def test_no_candidates_are_no_answer(generations):
    assert to_answer(LLMResult(generations=generations))["response"] is None


def test_usage_of_a_text_model_is_found_beside_its_answer():
    output = {"token_usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}, "model_name": "davinci"}
    answer = to_answer(LLMResult(generations=[[Generation(text="x")]], llm_output=output))
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert answer["model"] == "davinci"


def test_the_merged_chunks_of_a_stream_are_an_answer():
    chunks = [
        AIMessageChunk([{"type": "thinking", "thinking": "The ", "index": 0}]),
        AIMessageChunk([{"type": "thinking", "thinking": "fair.", "index": 0}]),
        AIMessageChunk([{"type": "text", "text": "In ", "index": 1}]),
        AIMessageChunk([{"type": "text", "text": "1911.", "index": 1}]),
        AIMessageChunk("", tool_call_chunks=[{"name": "weather", "args": '{"ci', "id": "c1", "index": 2}]),
        AIMessageChunk("", tool_call_chunks=[{"name": None, "args": 'ty": "A"}', "id": None, "index": 2}]),
        AIMessageChunk("", response_metadata={"finish_reason": "tool_calls", "model_name": "m"}),
    ]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    answer = answered(whole)
    assert (answer["response"], answer["reasoning"]) == ("In 1911.", "The fair.")
    assert answer["tool_calls"] == (ToolCall("c1", "weather", {"city": "A"}),)
    assert (answer["finish_reason"], answer["model"]) == ("tool_calls", "m")


def test_a_completion_writes_calls_out():
    call = {"name": "weather", "args": {"city": "A"}, "id": "c1"}
    found = to_completion(AIMessage("Let me see.", tool_calls=[call]))
    assert found.text == 'Let me see.\nTool call: {"arguments": {"city": "A"}, "name": "weather"}'
    assert found.finish_reason == "tool_calls"
    assert to_completion("no message") is None


# --- what tools give --------------------------------------------------------------------------------------------------

FAIR = LangChainDocument("The fair opened in 1911.", id="fair")
PARADE = LangChainDocument("The parade opened in 1937.", id="parade")


@pytest.mark.parametrize(
    ("output", "text", "ids"),
    [
        ("It rains.", "It rains.", []),
        (None, None, []),
        (5, "5", []),
        ({"year": 1911, "who": "Änne"}, '{"year": 1911, "who": "Änne"}', []),
        ([1, {"a": None}], '[1, {"a": null}]', []),
        (FAIR, FAIR.page_content, ["fair"]),
        ([FAIR, PARADE], f"{FAIR.page_content}\n\n{PARADE.page_content}", ["fair", "parade"]),
        ([(FAIR, 0.5)], FAIR.page_content, ["fair"]),
        ((FAIR, 0.5), FAIR.page_content, ["fair"]),
        (ToolMessage("two", tool_call_id="c", artifact=[FAIR, PARADE]), "two", ["fair", "parade"]),
        (
            ToolMessage("two", tool_call_id="c", artifact={"a": [FAIR], "b": ((PARADE, 0.1),)}),
            "two",
            ["fair", "parade"],
        ),
        (ToolMessage("two", tool_call_id="c", artifact={"raw": "bytes"}), "two", []),
        ([ToolMessage("a", tool_call_id="c"), ToolMessage("b", tool_call_id="d")], "a\n\nb", []),
        ([], "[]", []),
    ],
)
def test_what_a_tool_gave(output, text, ids):
    found = to_tool_result(output)
    assert found[:2] == (text, None)
    assert [document.id for document in found[2]] == ids


def test_an_error_of_a_tool_is_told_apart():
    failed = ToolMessage("no such city", tool_call_id="c", status="error")
    assert to_tool_result(failed) == (None, "no such city", ())
    assert to_tool_result(ValueError("no such city")) == (None, "ValueError: no such city", ())


def test_a_structure_that_holds_itself_comes_to_an_end():
    loop: dict[str, Any] = {"documents": [FAIR]}
    loop["self"] = loop
    text, _, documents = to_tool_result(loop)
    assert text
    assert {document.id for document in documents} == {"fair"}


def test_what_a_real_retriever_tool_gives():
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents([FAIR])
    seen = Payloads()
    search = create_retriever_tool(store.as_retriever(), "search", "find", response_format="content_and_artifact")
    call = {"name": "search", "args": {"query": "fair"}, "id": "c1", "type": "tool_call"}
    search.invoke(call, config={"callbacks": [seen]})
    text, error, documents = to_tool_result(seen.tools[0])
    assert (text, error) == (FAIR.page_content, None)
    assert documents == (Document("fair", FAIR.page_content),)


def test_a_command_of_langgraph_tells_its_messages_and_documents():
    types = pytest.importorskip("langgraph.types")
    message = ToolMessage("found", tool_call_id="c", artifact=[FAIR])
    update = {"messages": [HumanMessage("hand over"), message], "notes": [PARADE]}
    for command in (types.Command(update=update), types.Command(update=list(update.items()))):
        text, error, documents = to_tool_result(command)
        assert (text, error) == ("found", None)
        assert [document.id for document in documents] == ["fair", "parade"]
    assert to_tool_result(types.Command(update={"year": 1911}))[0] == '{"year": 1911}'
    assert to_tool_result([types.Command(update=update)])[0] == "found"


# --- what goes into a run ---------------------------------------------------------------------------------------------


@dataclass
class State:
    messages: list[Any]
    steps: int = 0


class Asked(BaseModel):
    context: str
    question: str


@pytest.mark.parametrize(
    "inputs",
    [
        "When?",
        {"question": "When?", "context": "It opened in 1911."},
        {"input": "When?", "chat_history": [HumanMessage("Earlier.")]},
        {"query": "", "input": {"question": "When?"}},
        {"topic": "When?", "k": 3},
        {"messages": [("human", "Earlier."), ("ai", "Yes."), ("user", "When?")]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "When?"}]}, AIMessage("Hm.")]},
        {"messages": [{"type": "human", "data": {"content": "When?"}}]},
        {"messages": "When?"},
        {"messages": ["When?"]},
        [SystemMessage("Be brief."), HumanMessage("When?"), ToolMessage("1911", tool_call_id="c")],
        HumanMessage("When?"),
        ("human", "When?"),
        ChatPromptValue(messages=[SystemMessage("x"), HumanMessage("When?")]),
        StringPromptValue(text="When?"),
        State([HumanMessage("When?")]),
        Asked(context="c", question="When?"),
    ],
    ids=lambda inputs: type(inputs).__name__,
)
def test_the_question_is_found(inputs):
    assert query_of(inputs) == "When?"


@pytest.mark.parametrize(
    "inputs",
    [None, "", "  ", 5, [], {}, {"input": ""}, {"a": "x", "b": "y"}, AIMessage("x"), object(), {"messages": []}],
)
def test_where_there_is_no_question_none_is_guessed(inputs):
    assert query_of(inputs) is None


def test_what_resumes_a_graph_is_the_question():
    types = pytest.importorskip("langgraph.types")
    assert query_of(types.Command(resume="When?")) == "When?"
    assert query_of(types.Command(update={"messages": [HumanMessage("When?")]})) == "When?"


def test_every_text_that_came_in_is_known():
    inputs = {
        "question": "When?",
        "messages": [("human", "pair"), {"role": "user", "content": "mapping"}, HumanMessage(["one", {"text": "two"}])],
        "documents": [FAIR],
        "nested": [({"deep": {"deeper": "leaf"}},)],
        "state": State([AIMessage("in a dataclass")]),
        "n": 5,
        "blank": "  ",
    }
    found = texts_in(inputs)
    assert {
        "When?",
        "pair",
        "mapping",
        "one\n\ntwo",
        "one",
        "two",
        FAIR.page_content,
        "leaf",
        "in a dataclass",
    } <= found
    assert "  " not in found
    assert texts_in(ChatPromptValue(messages=[HumanMessage("x")])) == {"x"}
    assert texts_in(StringPromptValue(text="x")) == {"x"}


def test_texts_of_endless_input_come_to_an_end():
    loop: list[Any] = ["x"]
    loop.append(loop)
    assert texts_in(loop) == {"x"}
    assert len(texts_in([str(n) for n in range(100_000)])) <= 5_000
    assert query_of(loop) == "x"


everything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["role", "content", "messages", "input"]), inner, max_size=3
        ),
        st.builds(lambda content: HumanMessage.model_construct(content=content), inner),
        st.builds(lambda content, calls_: AIMessage.model_construct(content=content), inner, inner),
        st.builds(lambda metadata: LangChainDocument.model_construct(page_content="x", metadata=metadata), inner),
    ),
    max_leaves=10,
)


@given(everything)
def test_no_input_is_too_odd(value):
    assert isinstance(query_of(value), str | None)
    assert all(isinstance(text, str) for text in texts_in(value))
    assert isinstance(to_tool_result(value)[0], str | None)
    assert isinstance(to_document(value), Document)
