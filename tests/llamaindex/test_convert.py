"""LlamaIndex's objects become the core's, and come back, without sharing anything."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.base.response.schema import PydanticResponse, Response
from llama_index.core.llms.mock import MockLLM
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate, SelectorPromptTemplate
from llama_index.core.schema import ImageNode, NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from llama_index.core.tools import FunctionTool, ToolOutput
from llamaindex_parts import ScriptedLLM
from pydantic import BaseModel

from attr_core.segmenter import group_of
from attr_core.types import Message, ToolCall
from attr_llamaindex.convert import (
    from_messages,
    to_answer,
    to_document,
    to_documents,
    to_generation,
    to_message,
    to_rendered,
    to_tool_result,
)
from attr_llamaindex.payloads import answer_in, asked_of, query_in

# --- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        *((role, role) for role in ("system", "developer", "user", "assistant", "tool", "function")),
        *((role, "assistant") for role in ("chatbot", "model")),
    ],
)
def test_roles(role, expected):
    assert to_message(ChatMessage(role=role, content="x")).role == expected


def test_blocks_are_joined_as_llamaindex_joins_them_and_others_noted():
    message = ChatMessage(
        role="user", blocks=[TextBlock(text="One."), TextBlock(text="Two."), ImageBlock(image=b"iVBORw0KGgo=")]
    )
    assert to_message(message).content == "One.\nTwo.\n[image]"
    assert (
        to_message(ChatMessage(role="user", blocks=message.blocks[:2])).content
        == message.model_copy(update={"blocks": message.blocks[:2]}).content
    )


def test_what_is_no_message_is_the_users_text():
    assert to_message("When?") == Message("user", "When?")


def test_tool_calls_in_blocks_and_in_the_places_before_there_were_any():
    block = ToolCallBlock(tool_call_id="c1", tool_name="add", tool_kwargs='{"a": 1}')
    assert to_message(ChatMessage(role="assistant", blocks=[block])).tool_calls == (ToolCall("c1", "add", {"a": 1}),)
    raw = {"id": "c2", "function": {"name": "add", "arguments": '{"a": 2}'}}
    legacy = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [raw]})
    assert to_message(legacy).tool_calls == (ToolCall("c2", "add", {"a": 2}),)
    broken = ToolCallBlock(tool_call_id="c3", tool_name="add", tool_kwargs='{"a": ')
    assert to_message(ChatMessage(role="assistant", blocks=[broken])).tool_calls[0].arguments == '{"a": '


def test_ties_and_marks_of_a_message():
    message = ChatMessage(
        role="tool",
        content="5",
        additional_kwargs={"tool_call_id": "c1", "name": "add", "group_id": "g", "other": object()},
    )
    found = to_message(message)
    assert (found.tool_call_id, found.name, found.metadata) == ("c1", "add", {"group_id": "g"})


TEXT = st.text(max_size=12)
CALLS = st.builds(
    ToolCall, id=st.text("abc", min_size=1, max_size=3), name=TEXT, arguments=st.dictionaries(TEXT, st.integers())
)
MESSAGES = st.one_of(
    st.builds(Message, role=st.sampled_from(["system", "user", "developer"]), content=TEXT),
    st.builds(Message, role=st.just("assistant"), content=st.text(min_size=1), tool_calls=st.lists(CALLS).map(tuple)),
    st.builds(Message, role=st.just("tool"), content=TEXT, tool_call_id=st.text("abc", min_size=1)),
)


@given(st.lists(MESSAGES, max_size=4))
def test_messages_go_there_and_back(messages):
    assert [to_message(message) for message in from_messages(messages)] == messages


def test_a_role_that_llamaindex_does_not_know_is_the_users():
    assert from_messages([Message("critic", "Hm.")])[0].role.value == "user"


# --- nodes ------------------------------------------------------------------------------------------------------------


def node(**options):
    return TextNode(
        text="The fair opened in 1911.",
        id_="n1",
        metadata={"file_path": "fair.md", "secret_of": "embedding", "page": 3},
        excluded_llm_metadata_keys=["secret_of"],
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc-fair")},
        start_char_idx=10,
        end_char_idx=34,
        **options,
    )


def test_a_node_has_the_text_that_a_model_is_shown():
    document = to_document(NodeWithScore(node=node(), score=0.5))
    assert document.text == "file_path: fair.md\npage: 3\n\nThe fair opened in 1911."
    assert (document.id, document.score) == ("n1", 0.5)
    assert document.metadata == {
        "file_path": "fair.md",
        "secret_of": "embedding",
        "page": 3,
        "ref_doc_id": "doc-fair",
        "start_char_idx": 10,
        "end_char_idx": 34,
    }
    assert group_of(document.metadata, "n1") == "doc-fair"


def test_a_group_that_the_application_names_comes_first():
    named = TextNode(
        text="x",
        metadata={"group_id": "g"},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="d")},
    )
    assert group_of(to_document(named).metadata, "n1") == "g"


def test_metadata_is_plain_and_shares_nothing():
    held = {"odd": {1, 2}, "list": [1]}
    source = TextNode(text="x", metadata=held)
    document = to_document(source)
    json.dumps(document.metadata)
    source.metadata["list"].append(2)
    assert document.metadata["list"] == [1]


def test_other_lists_and_nodes_give_what_can_be_told():
    assert to_documents("text") == to_documents(None) == to_documents([1, "x"]) == ()
    assert [document.id for document in to_documents([node(), NodeWithScore(node=node())])] == ["n1", "n1"]
    assert to_document(ImageNode(id_="i1")).text == ""


# --- model calls ----------------------------------------------------------------------------------------------------


def add(a: int, b: int = 2) -> int:
    """The sum."""
    return a + b


def test_a_call_with_its_model_settings_and_tools_and_without_secrets():
    llm = MockLLM(max_tokens=7)
    options = {
        "formatted": True,
        "tools": [FunctionTool.from_defaults(add), {"type": "function", "function": {"name": "raw"}}, object()],
        "temperature": 0.5,
        "api_key": "sk-1",
        "extra_headers": {"Authorization": "Bearer x"},
    }
    generation = to_generation("When?", llm=llm, options=options)
    assert generation.messages == (Message("user", "When?"),)
    assert generation.model == "MockLLM"
    assert generation.parameters == {"max_tokens": 7, "temperature": 0.5}
    assert [tool["function"]["name"] for tool in generation.tools] == ["add", "raw", "object"]
    assert generation.tools[0]["function"]["parameters"]["required"] == ["a"]
    assert to_generation("x", llm=ScriptedLLM(name="named")).model == "named"


def test_an_answer_with_what_its_provider_says_of_it():
    message = ChatMessage(role="assistant", blocks=[ThinkingBlock(content="Hm."), TextBlock(text="In 1911.")])
    raw = {
        "model": "m-1",
        "choices": [{"finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
    found = to_answer(ChatResponse(message=message, raw=raw))
    assert found == {
        "response": "In 1911.",
        "reasoning": "Hm.",
        "tool_calls": (),
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        "model": "m-1",
    }


def test_an_answer_that_is_tool_calls_alone_has_no_text():
    block = ToolCallBlock(tool_call_id="c1", tool_name="add", tool_kwargs={})
    found = to_answer(ChatResponse(message=ChatMessage(role="assistant", blocks=[block])))
    assert found["response"] is None
    assert found["tool_calls"] == (ToolCall("c1", "add", {}),)


def test_a_completion_and_the_counts_that_integrations_leave():
    found = to_answer(CompletionResponse(text="In 1911.", additional_kwargs={"prompt_tokens": 5, "other": 1}))
    assert (found["response"], found["usage"]) == ("In 1911.", {"prompt_tokens": 5})
    assert to_answer(CompletionResponse(text=""))["response"] == ""
    assert to_answer(None)["response"] is None


def test_of_a_stream_what_was_given_piece_by_piece_counts():
    assert to_answer(CompletionResponse(text="text"), "text text")["response"] == "text text"
    assert to_answer(CompletionResponse(text="whole"), "")["response"] == "whole"


def test_templates_of_every_kind():
    plain = PromptTemplate("{context_str} {query_str}", query_str="When?")
    chat = ChatPromptTemplate.from_messages([("system", "Be brief."), ("user", "{context_msg}")])
    chosen = SelectorPromptTemplate(default_template=plain, conditionals=[(lambda llm: True, chat)])
    found = to_rendered(plain, {"context_str": "It opened."})
    assert found == {
        "arguments": {"query_str": "When?"},
        "context": ["It opened."],
        "context_arguments": ["context_str"],
        "template": "{context_str} {query_str}",
    }
    assert "Be brief." in to_rendered(chosen, {"context_msg": "x"}, llm=MockLLM())["template"]
    assert to_rendered(None, {}) == {}
    several = to_rendered(plain, {"context_str": ["One.", "Two."], "template": plain})
    assert (several["context"], several["arguments"]) == (["One.", "Two."], {"query_str": "When?"})


def test_a_template_that_cannot_be_read_leaves_its_arguments():
    class Odd(PromptTemplate):
        def get_template(self, llm=None):
            raise RuntimeError("mine")

    found = to_rendered(Odd("{context_str}"), {"context_str": "x"})
    assert "template" not in found
    assert found["context"] == ["x"]


def test_what_tools_give():
    assert to_tool_result(ToolOutput(tool_name="t", content="5", raw_input={}, raw_output=5)) == ("5", None, ())
    failed = ToolOutput(tool_name="t", content="lost", raw_input={}, raw_output="lost", is_error=True)
    assert to_tool_result(failed) == (None, "lost", ())
    found = ToolOutput(tool_name="t", content="x", raw_input={}, raw_output=[NodeWithScore(node=node())])
    assert [document.id for document in to_tool_result(found)[2]] == ["n1"]
    answered = ToolOutput(
        tool_name="t", content="x", raw_input={}, raw_output=Response("x", source_nodes=[NodeWithScore(node=node())])
    )
    assert [document.id for document in to_tool_result(answered)[2]] == ["n1"]
    assert to_tool_result(None) == (None, None, ())
    assert to_tool_result(3) == ("3", None, ())


# --- what goes into and comes out of a run ------------------------------------------------------------------------


class Year(BaseModel):
    """An answer of the user's own shape."""

    year: int


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("text", "text"),
        (Response("text"), "text"),
        (Response(None), None),
        (PydanticResponse(Year(year=1911)), '{"year":1911}'),
        (CompletionResponse(text="text"), "text"),
        (ChatResponse(message=ChatMessage(role="assistant", content="text")), "text"),
        (ChatMessage(role="assistant", content="text"), "text"),
        (Year(year=1911), '{"year":1911}'),
        ({"answer": Response("text")}, "text"),
        ([NodeWithScore(node=node())], None),
        (None, None),
        (3, None),
        (object(), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_answer_in_whatever_a_run_gives(result, expected):
    assert answer_in(result) == expected


def test_the_question_in_whatever_a_run_is_given():
    assert query_in({"str_or_query_bundle": QueryBundle("When?")}) == "When?"
    assert query_in({"message": "When?", "chat_history": None}) == "When?"
    assert query_in({"user_msg": ChatMessage(role="user", content="When?")}) == "When?"
    assert query_in({"prompt_args": {"query_str": "When?"}}) == "When?"
    assert query_in({"nodes": []}) is None


def test_the_prompt_in_whatever_signature_a_models_method_has():
    assert asked_of({"args": ("p",), "kwargs": {"formatted": True}}) == ("p", {"formatted": True})
    assert asked_of({"args": (), "kwargs": {"prompt": "p", "stop": "x"}}) == ("p", {"stop": "x"})
    assert asked_of({"prompt": "p", "formatted": False}) == ("p", {"formatted": False})
    assert asked_of({"messages": ["m"], "kwargs": {"tools": []}}) == (["m"], {"tools": []})
    assert asked_of({}) == ("", {})
