"""Haystack's messages, documents and tools become the core's and back, and share nothing with them."""

import copy

import pytest
from haystack.dataclasses import (
    ChatMessage,
    Document,
    FileContent,
    ImageContent,
    ReasoningContent,
    TextContent,
    ToolCall,
)
from haystack.tools import Toolset
from haystack_parts import opening, price
from hypothesis import given
from hypothesis import strategies as st

from attr_core.segmenter import segment
from attr_core.types import Message, Prompt
from attr_core.types import ToolCall as CoreToolCall
from attr_haystack.convert import (
    from_messages,
    from_prompt,
    stamped,
    stamped_document,
    to_answer,
    to_document,
    to_generation,
    to_messages,
    to_tool_result,
)

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def test_each_role_keeps_what_it_says():
    call = ToolCall(tool_name="opening", arguments={"name": "fair"}, id="c1")
    messages = [
        ChatMessage.from_system("Be brief."),
        ChatMessage.from_user("When?", name="ada"),
        ChatMessage.from_assistant("I look.", tool_calls=[call], reasoning="Hm."),
        ChatMessage.from_tool("In 1911.", origin=call),
        ChatMessage.from_assistant("In 1911."),
    ]
    system, user, asks, result, answer = to_messages(messages)
    assert [m.role for m in (system, user, asks, result, answer)] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert (user.content, user.name) == ("When?", "ada")
    assert asks.content == "I look.", "what a model thought is no part of the prompt's text"
    assert asks.tool_calls == (CoreToolCall("c1", "opening", {"name": "fair"}),)
    assert (result.content, result.tool_call_id, result.name) == ("In 1911.", "c1", "opening")


def test_a_bare_prompt_is_the_users():
    assert to_messages("When?") == (Message("user", "When?"),)


def test_parts_without_text_are_told_by_their_kind():
    image = ImageContent(base64_image=PIXEL, mime_type="image/png", validation=False)
    file = FileContent(base64_data="aGk=", mime_type="text/plain", validation=False)
    [message] = to_messages([ChatMessage.from_user(content_parts=["See", image, file, "and say."])])
    assert message.content == "See\n\nand say.\n\n[image]\n\n[file]"


def test_a_tool_message_of_parts_says_their_texts():
    call = ToolCall(tool_name="look", arguments={}, id="c1")
    image = ImageContent(base64_image=PIXEL, mime_type="image/png", validation=False)
    [message] = to_messages([ChatMessage.from_tool([TextContent("A tower."), image], origin=call)])
    assert message.content == "A tower.\n\n[image]"


def test_a_failed_tool_result_says_so():
    call = ToolCall(tool_name="look", arguments={}, id=None)
    [message] = to_messages([ChatMessage.from_tool("no such tower", origin=call, error=True)])
    assert (message.tool_call_id, message.metadata) == (None, {"error": True})


def test_only_the_marks_that_mean_something_are_kept_of_a_messages_meta():
    meta = {"memory": True, "group_id": "g", "model": "m", "attrkit": {"trace_id": "tr"}, "usage": {"x": 1}}
    [message] = to_messages([ChatMessage.from_user("Earlier.", meta=meta)])
    assert message.metadata == {"memory": True, "group_id": "g"}


@pytest.mark.parametrize("odd", [None, 3, object(), [3], [None], {"role": "user"}])
def test_odd_messages_become_odd_text_and_raise_nothing(odd):
    assert all(isinstance(message.content, str) for message in to_messages(odd))


def test_a_document_keeps_id_score_and_meta():
    document = Document(content="Text.", meta={"source_id": "s", "page": 3}, score=0.5)
    found = to_document(document)
    assert (found.id, found.text, found.score, found.metadata) == (document.id, "Text.", 0.5, document.meta)
    assert to_document(Document(content=None, meta={"a": 1})).text == ""


def test_the_pieces_of_one_source_are_one_group():
    pieces = [
        Document(content=text, meta={"source_id": "fairs"}) for text in ("It opened in 1911.", "It closed in 1937.")
    ]
    prompt = ChatMessage.from_user(f"{pieces[0].content}\n\n{pieces[1].content}\n\nWhen?")
    generation = to_generation({"messages": [prompt]})
    found = segment(generation, documents=[to_document(piece) for piece in pieces])
    assert [piece.group_id for piece in found if piece.kind == "retrieved"] == ["fairs", "fairs"]


def test_what_is_converted_shares_nothing_with_what_it_came_from():
    meta, arguments = {"nested": {"list": [1]}}, {"options": ["a"]}
    document = Document(content="Text.", meta=meta)
    message = ChatMessage.from_assistant(tool_calls=[ToolCall(tool_name="t", arguments=arguments, id="c")])
    before = copy.deepcopy((document, message))
    found, [told] = to_document(document), to_messages([message])
    meta["nested"]["list"].append(2)
    arguments["options"].append("b")
    assert found.metadata == before[0].meta
    assert told.tool_calls[0].arguments == {"options": ["a"]}


def test_a_generation_has_tools_in_any_of_their_nestings_and_no_secrets():
    kwargs = {"temperature": 0.2, "api_key": "sk-secret", "nested": {"token": "t", "top_p": 1}}
    for tools in ([opening, price], Toolset([opening, price]), [Toolset([opening]), price]):
        generation = to_generation(
            {"messages": [ChatMessage.from_user("When?")], "tools": tools, "generation_kwargs": kwargs}
        )
        assert [tool["function"]["name"] for tool in generation.tools] == ["opening", "price"]
        assert generation.parameters == {"temperature": 0.2, "nested": {"top_p": 1}}


def test_an_answer_is_read_from_the_first_reply():
    reply = ChatMessage.from_assistant(
        "In 1911.",
        reasoning=ReasoningContent("Hm."),
        meta={"model": "m", "finish_reason": "stop", "usage": {"input_tokens": 3, "output_tokens": 2}},
    )
    answer = to_answer([reply, ChatMessage.from_assistant("In 1937.")])
    assert (answer["response"], answer["reasoning"], answer["model"], answer["finish_reason"]) == (
        "In 1911.",
        "Hm.",
        "m",
        "stop",
    )
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "candidates": 2}


def test_an_answer_of_tool_calls_alone_has_no_text():
    call = ToolCall(tool_name="opening", arguments={}, id=None)
    answer = to_answer([ChatMessage.from_assistant(tool_calls=[call])])
    assert answer["response"] is None
    assert answer["tool_calls"][0].id == ""
    assert "model" not in answer


@pytest.mark.parametrize("nothing", [None, [], "text", 3])
def test_no_replies_are_no_answer(nothing):
    assert to_answer(nothing) == {}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("In 1911.", "In 1911."),
        ({"year": 1911, "ö": [1, None]}, '{"year": 1911, "ö": [1, null]}'),
        (1911, "1911"),
        (None, "null"),
        ([TextContent("A."), TextContent("B.")], "A.\n\nB."),
    ],
)
def test_a_tools_result_is_the_text_that_the_model_is_shown(result, text):
    assert to_tool_result(result) == (text, ())


def test_documents_are_found_in_a_tools_result_and_in_the_text_of_it():
    document = Document(content="The fair opened in 1911.", meta={"source_id": "fairs"})
    text, (found,) = to_tool_result({"documents": [document], "n": 1})
    assert found == to_document(document)
    assert "The fair opened in 1911." in text


def test_a_result_that_no_json_can_tell_is_told_anyhow():
    class Odd:
        def to_dict(self):
            raise ValueError("no")

    text, documents = to_tool_result([Odd()])
    assert "Odd" in text
    assert documents == ()


def test_messages_come_back_as_they_were():
    messages = (
        Message("system", "Be brief."),
        Message("user", "When?"),
        Message("assistant", "", tool_calls=(CoreToolCall("c1", "opening", {"name": "fair"}),)),
        Message("tool", "In 1911.", name="opening", tool_call_id="c1"),
        Message("assistant", "In 1911."),
    )
    assert to_messages(from_messages(messages)) == messages


texts = st.text(max_size=20)
calls = st.builds(
    CoreToolCall,
    id=st.text(min_size=1, max_size=4),
    name=st.text(min_size=1, max_size=8),
    arguments=st.dictionaries(texts, st.one_of(texts, st.integers(), st.none()), max_size=2),
)
messages = st.one_of(
    st.builds(Message, role=st.sampled_from(["system", "user"]), content=texts),
    st.builds(Message, role=st.just("assistant"), content=texts, tool_calls=st.lists(calls, max_size=2).map(tuple)),
    st.builds(
        Message,
        role=st.just("tool"),
        content=texts,
        name=st.text(min_size=1, max_size=8),
        tool_call_id=st.text(min_size=1, max_size=4),
    ),
)


@given(st.lists(messages, max_size=4).map(tuple))
def test_any_conversation_comes_back_as_it_was(conversation):
    assert to_messages(from_messages(conversation)) == conversation


def test_roles_that_haystack_lacks_become_the_nearest():
    back = from_messages([Message("developer", "d"), Message("critic", "c"), Message("function", "f", name="n")])
    assert [message.role.value for message in back] == ["system", "user", "tool"]


def test_arguments_that_are_no_object_are_not_lost():
    [message] = from_messages([Message("assistant", "", tool_calls=(CoreToolCall("c1", "t", "not { json"),))])
    assert "not { json" in str(message.tool_calls[0].arguments)


def test_a_prompts_tools_come_back_with_their_schemas():
    schema = to_generation({"messages": "When?", "tools": [opening]}).tools
    _, [back] = from_prompt(Prompt((Message("user", "When?"),), schema))
    assert back.tool_spec == opening.tool_spec


def test_stamps_stand_on_copies():
    reply = ChatMessage.from_assistant("In 1911.", meta={"model": "m"})
    document = Document(content="Text.", meta={"a": 1})
    marked, found = stamped(reply, {"trace_id": "tr"}), stamped_document(document, {"trace_id": "tr"})
    assert (marked.text, marked.meta) == ("In 1911.", {"model": "m", "attrkit": {"trace_id": "tr"}})
    assert (found.id, found.meta) == (document.id, {"a": 1, "attrkit": {"trace_id": "tr"}})
    assert (reply.meta, document.meta) == ({"model": "m"}, {"a": 1})
