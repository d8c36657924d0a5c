"""Segments that an earlier step of the run produced name it as their origin, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core._segmenting.origins import MIN_CONTAINED, producer
from attr_core.segmenter import documents_before, segment_trace
from attr_core.types import Document, Generation, Granularity, Message, Retrieval, Segment, ToolCall, Trace

OUTPUT = "The Aldemoor fair opened in 1911. It closed in 1915."
QUESTION = Message("user", "When did the fair open?")
ASK = (Message("system", "Use the tools."), QUESTION)


def user(text: str) -> Message:
    return Message("user", text)


def run_of(
    *messages: Message,
    calls: tuple[ToolCall, ...] = (ToolCall("c1", "search", output=OUTPUT),),
    said: str | None = None,
    before: tuple[Message, ...] = ASK,
    retrievals: tuple[Retrieval, ...] = (),
) -> Trace:
    """A first step that asked for ``calls`` and a second one with ``messages`` as its prompt."""
    asked = tuple(ToolCall(call.id, call.name) for call in calls)
    first = Generation(before, said, id="gen_1", tool_calls=asked)
    second = Generation(messages, "In 1911.", id="gen_2")
    return Trace(None, (first, second), "In 1911.", tool_calls=calls, retrievals=retrievals)


def segments(trace: Trace, granularity: Granularity | None = None) -> tuple[Segment, ...]:
    return segment_trace(trace, granularity=granularity).segments


def origins(trace: Trace, granularity: Granularity | None = None) -> dict[str, str | None]:
    return {piece.text: piece.origin for piece in segments(trace, granularity)}


# Outputs and responses


def test_a_tool_message_without_an_id_is_known_by_its_text() -> None:
    assert origins(run_of(*ASK, Message("tool", f" {OUTPUT}\n")))[f" {OUTPUT}\n"] == "c1"


def test_a_short_output_counts_as_a_whole_message_but_not_as_anyones_words() -> None:
    calls = (ToolCall("c1", "sum", output="42"),)
    found = segments(run_of(user("42"), Message("tool", "42"), Message("system", "42"), QUESTION, calls=calls))
    assert [(piece.kind.value, piece.origin) for piece in found[:3]] == [
        ("user_turn", None),
        ("tool_output", "c1"),
        ("system", None),
    ]


def test_a_message_that_holds_an_output_came_from_it() -> None:
    trace = run_of(user(f"Observation: {OUTPUT}"), QUESTION)
    assert origins(trace)[f"Observation: {OUTPUT}"] == "c1"


def test_an_excerpt_of_an_output_came_from_it() -> None:
    excerpt = OUTPUT[:33]
    found = origins(run_of(Message("system", excerpt), Message("system", "in 1911."), QUESTION))
    assert found[excerpt] == "c1"
    assert found["in 1911."] is None


def test_every_sentence_of_an_output_came_from_it() -> None:
    calls = (ToolCall("c1", "search", output=f"Yes. {OUTPUT}"),)
    found = origins(run_of(*ASK, Message("tool", f"Yes. {OUTPUT}"), calls=calls), "sentence")
    assert [found[text] for text in ("Yes.", OUTPUT[:33], OUTPUT[34:])] == ["c1"] * 3


@pytest.mark.parametrize("role", ["assistant", "user", "system"])
def test_what_an_earlier_step_wrote_names_that_step(role: str) -> None:
    said = "The fair is that of Aldemoor."
    trace = run_of(Message(role, said), Message("system", f"Plan: {said}"), QUESTION, said=said, calls=())
    assert origins(trace) == {said: "gen_1", f"Plan: {said}": "gen_1", QUESTION.content: None}


def test_words_that_only_resemble_an_output_have_no_origin() -> None:
    others = [OUTPUT.upper(), OUTPUT.replace(" ", "  "), OUTPUT[:33] + "!", "It opened long ago, and closed."]
    found = origins(run_of(*map(user, others), QUESTION))
    assert [found[text] for text in others] == [None] * 4


def test_the_id_that_a_message_carries_comes_first() -> None:
    found = segments(run_of(*ASK, Message("tool", OUTPUT, tool_call_id="c7")))
    assert found[-1].origin == "c7"


def test_of_calls_that_gave_the_same_text_the_earliest_is_the_origin() -> None:
    calls = (ToolCall("c1", "search", output=OUTPUT), ToolCall("c2", "search", output=OUTPUT))
    assert origins(run_of(*ASK, Message("tool", OUTPUT), calls=calls))[OUTPUT] == "c1"


def test_what_is_equal_comes_before_what_only_holds_it_and_more_before_less() -> None:
    answer = f"The search says: {OUTPUT} So 1911."
    trace = run_of(Message("assistant", answer), user(f"Note. {answer}"), QUESTION, said=answer)
    assert origins(trace)[answer] == "gen_1"
    assert origins(trace)[f"Note. {answer}"] == "gen_1"


def test_what_stood_in_the_prompt_before_the_call_did_not_come_from_it() -> None:
    trace = run_of(Message("system", OUTPUT), QUESTION, before=(Message("system", OUTPUT), QUESTION))
    assert origins(trace)[OUTPUT] is None


def test_an_output_that_is_part_of_an_earlier_word_came_from_its_call() -> None:
    calls = (ToolCall("c1", "sum", output="42"),)
    trace = run_of(user("And 1942?"), Message("tool", "42"), before=(user("And 1942?"),), calls=calls)
    assert origins(trace)["42"] == "c1"


def test_a_step_has_no_origin_in_itself_or_later() -> None:
    trace = run_of(*ASK, Message("tool", OUTPUT), before=(Message("system", OUTPUT), QUESTION))
    assert {piece.origin for piece in segment_trace(trace, trace.generations[0]).segments} == {None}


def test_a_call_without_a_known_step_or_with_an_output_of_its_own_counts() -> None:
    second = Generation((*ASK, Message("tool", OUTPUT)), "In 1911.", id="gen_2")
    untied = Trace(None, (second,), None, tool_calls=(ToolCall("c1", "search", output=OUTPUT),))
    assert origins(untied)[OUTPUT] == "c1"
    first = Generation(ASK, None, id="gen_1", tool_calls=(ToolCall("c1", "search", output=OUTPUT),))
    assert origins(Trace(None, (first, second), None))[OUTPUT] == "c1"


def test_a_call_without_an_id_is_nobodys_origin() -> None:
    assert (
        origins(run_of(*ASK, Message("tool", OUTPUT), calls=(ToolCall("", "search", output=OUTPUT),)))[OUTPUT] is None
    )


# Documents


def brought(*documents: Document, output: str | None = None) -> tuple[ToolCall, ...]:
    return (ToolCall("c1", "search", output=output, documents=documents),)


def test_a_document_that_a_call_brought_names_it_wherever_and_however_it_stands() -> None:
    short, spaced = Document("short", "Ghent"), Document("spaced", "The hall  was\nbuilt of brick.")
    trace = run_of(
        user(f"Context:\nGhent\n\nThe hall was built of brick.\n\n{QUESTION.content}"), calls=brought(short, spaced)
    )
    found = {piece.id: piece for piece in segments(trace)}
    assert (found["short"].origin, found["short"].located) == ("c1", "exact")
    assert (found["spaced"].origin, found["spaced"].located) == ("c1", "folded")


def test_a_document_of_the_same_id_from_a_retriever_has_no_origin() -> None:
    trace = run_of(
        user(f"It rained in May.\n\nIt snowed in June.\n\n{QUESTION.content}"),
        calls=brought(Document("doc1", "It snowed in June.")),
        retrievals=(Retrieval(None, (Document("doc1", "It rained in May."),)),),
    )
    assert origins(trace) == {"It rained in May.": None, "It snowed in June.": "c1", QUESTION.content: None}


def test_documents_of_later_calls_are_not_looked_for_in_an_earlier_prompt() -> None:
    memory = Message("system", OUTPUT, metadata={"memory": True})
    trace = run_of(*ASK, before=(memory, QUESTION), calls=brought(Document("d1", OUTPUT)))
    first, second = trace.generations
    assert documents_before(trace, first) == ()
    assert [document.id for document in documents_before(trace, second)] == ["d1"]
    assert [piece.kind.value for piece in segment_trace(trace, first).segments] == ["memory", "user_turn"]


# Which tool, which step


def told(trace: Trace, text: str) -> tuple[str | None, int | None] | None:
    generation = segment_trace(trace)
    piece = next(piece for piece in generation.segments if piece.text == text)
    return producer(trace, generation, piece)


def test_the_tool_and_the_step_that_asked_for_it_are_told() -> None:
    assert told(run_of(*ASK, Message("tool", OUTPUT, tool_call_id="c1")), OUTPUT) == ("search", 1)
    assert told(run_of(Message("assistant", "Let me look."), QUESTION, said="Let me look."), "Let me look.") == (
        None,
        1,
    )


def test_the_generation_that_a_call_names_is_its_step() -> None:
    second = Generation(ASK, None, id="gen_2")
    third = Generation((*ASK, Message("tool", OUTPUT, tool_call_id="c1")), "In 1911.", id="gen_3")
    call = ToolCall("c1", "search", output=OUTPUT, generation_id="gen_2")
    assert told(
        Trace(None, (Generation(ASK, "Well.", id="gen_1"), second, third), None, tool_calls=(call,)), OUTPUT
    ) == (
        "search",
        2,
    )


def test_a_call_of_unknown_step_is_told_by_its_tool_alone() -> None:
    message = Message("tool", OUTPUT, tool_call_id="c1")
    last = Generation((*ASK, message), "In 1911.", id="gen_2")
    assert told(Trace(None, (last,), None, tool_calls=(ToolCall("c1", "search"),)), OUTPUT) == ("search", None)


def test_a_tool_of_an_earlier_run_is_named_by_the_message_that_called_it() -> None:
    history = (
        Message("user", "Is there a fair?"),
        Message("assistant", "", tool_calls=(ToolCall("c1", "list_fairs"),)),
        Message("tool", "Aldemoor.", tool_call_id="c1"),
        Message("assistant", "", tool_calls=(ToolCall("c1", "search"),)),
        Message("tool", OUTPUT, tool_call_id="c1"),
        QUESTION,
    )
    trace = Trace(None, (Generation(history, "In 1911."),), "In 1911.")
    assert told(trace, OUTPUT) == ("search", None)
    assert told(trace, "Aldemoor.") == ("list_fairs", None)


def test_ids_that_every_step_uses_again_are_told_apart_by_what_they_gave() -> None:
    rain = "It rains in Aldemoor."
    first = Generation(ASK, None, id="gen_1", tool_calls=(ToolCall("0", "search"),))
    second = Generation((*ASK, Message("tool", OUTPUT, tool_call_id="0")), None, tool_calls=(ToolCall("0", "weather"),))
    third = Generation((*second.messages, Message("tool", rain, tool_call_id="0")), "In 1911.")
    calls = (
        ToolCall("0", "search", output=OUTPUT, generation_id=first.id),
        ToolCall("0", "weather", output=rain, generation_id=second.id),
    )
    trace = Trace(None, (first, second, third), None, tool_calls=calls)
    assert told(trace, OUTPUT) == ("search", 1)
    assert told(trace, rain) == ("weather", 2)


def test_an_origin_that_the_trace_does_not_know_is_not_told() -> None:
    assert told(run_of(*ASK, Message("tool", OUTPUT, tool_call_id="elsewhere")), OUTPUT) is None


TEXTS = st.text(alphabet="ab .\n", max_size=40)


@given(output=TEXTS, said=TEXTS, contents=st.lists(TEXTS, min_size=1, max_size=4), by_sentence=st.booleans())
def test_an_origin_always_shares_its_text(output: str, said: str, contents: list[str], by_sentence: bool) -> None:
    trace = run_of(*map(user, contents), calls=(ToolCall("c1", "search", output=output),), said=said)
    texts = {"c1": output.strip(), "gen_1": said.strip(), None: ""}
    for piece in segments(trace, "sentence" if by_sentence else None):
        told, text = texts[piece.origin], piece.text.strip()
        whole = trace.generations[1].messages[piece.locations[0].message].content.strip()
        assert told in whole or text in told
        is_same = told in (text, whole)
        assert piece.origin is None or is_same or max(len(told), len(text)) >= MIN_CONTAINED
