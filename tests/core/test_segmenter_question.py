"""The question being answered and its instructions are fixed, whatever else the turn says."""

import pytest

from attr_core.segmenter import segment, unlocated
from attr_core.types import Document, Generation, Location, Message

OPENED = Document("opened", "The fair opened in 1911.")
CLOSED = Document("closed", "It closed in 1915.\nThe hall burnt.")
BOTH = (OPENED, CLOSED)


def _generation(*messages):
    return Generation(tuple(Message.parse(message) for message in messages), None)


def _user(content, **metadata):
    return {"role": "user", "content": content, "metadata": metadata}


def _assistant(content):
    return {"role": "assistant", "content": content}


def _system(content):
    return {"role": "system", "content": content}


def _cut(*messages, **options):
    return {piece.id: piece for piece in segment(_generation(*messages), **options)}


def _fixed(segments):
    return [piece.text for piece in segments.values() if piece.fixed]


def _rankable(segments):
    return [piece.text for piece in segments.values() if not piece.fixed]


# The question


def test_last_user_message_of_one_paragraph_is_the_question():
    segments = _cut(_system("s"), _user("Hi"), _assistant("Hello"), _user("When did\nit open?\n"))
    assert _fixed(segments) == ["When did\nit open?\n"]
    assert _rankable(segments) == ["s", "Hi", "Hello"]


def test_last_paragraph_is_the_question_and_others_can_be_removed():
    segments = _cut(_user("I live in Ghent.\n\nI have cats.\n \nHow many?"))
    assert list(segments) == ["m0.p1", "m0.p2", "m0.p3"]
    assert _fixed(segments) == ["How many?"]


def test_code_is_one_paragraph():
    code = "```py\na = 1\n\nb = 2\n```"
    segments = _cut(_user(f"Look:\n\n{code}\n\nWhat is b?"))
    assert code in _rankable(segments)


def test_query_is_the_question_where_it_stands():
    segments = _cut(_user("When did it open?\n\nI ask since I like fairs."), query="When did it open?")
    assert _fixed(segments) == ["When did it open?"]
    assert _rankable(segments) == ["I ask since I like fairs."]


def test_query_is_taken_where_it_stands_last_outside_the_documents():
    faq = Document("faq", "When did it open?")
    both = _cut(_user("When did it open?\n\nWhen did it open?"), documents=[faq], query=faq.text)
    assert (both["faq"].locations, _fixed(both)) == ((Location(0, 0, 17),), ["When did it open?"])
    once = segment(_generation(_user(f"{OPENED.text}\n\n{faq.text}")), documents=[OPENED, faq], query=faq.text)
    assert [(piece.id, piece.fixed) for piece in once] == [("opened", False), ("m0.p1", True)]
    assert unlocated([OPENED, faq], once) == (faq,)


def test_query_inside_a_document_is_not_the_question():
    document = Document("d", "Ask: When did it open? It opened in 1911.")
    segments = _cut(_user(f"{document.text}\n\nTell me."), documents=[document], query="When did it open?")
    assert _fixed(segments) == ["Tell me."]


def test_query_that_is_the_whole_turn_does_not_hide_what_it_holds():
    content = f"{OPENED.text}\n\nI was there.\n\nWhen?"
    segments = _cut(_user(content), documents=[OPENED], query=content)
    assert segments["opened"].locations == (Location(0, 0, 24),)
    assert _fixed(_cut(_user("Fairs.\n\nWhen?"), query="Fairs.\n\nWhen?")) == ["When?"]


def test_query_that_the_chain_rewrote_gives_way_to_position():
    segments = _cut(_user(f"{OPENED.text}\n\nAnd when?"), documents=[OPENED], query="When did the fair open?")
    assert _fixed(segments) == ["And when?"]


@pytest.mark.parametrize(
    "label",
    [
        "Question:",
        "Query: ",
        "Q:",
        "question :",
        "**Question:**",
        "## Question\n",
        "User question:",
        "Frage:",
        "问题：",
    ],
)
@pytest.mark.parametrize("tail", ["", "\nAnswer:", "\n\nContext:\n", "\n**Answer**: "])
def test_labelled_text_is_the_question_wherever_it_stands(label, tail):
    after = _cut(_user(f"{OPENED.text}\n\n{label}When, please?{tail}"), documents=[OPENED])
    before = _cut(_user(f"{label}When, please?{tail}\n\n{OPENED.text}\n\nThink."), documents=[OPENED])
    alone = _cut(_user(f"{OPENED.text}\n{label}When, please?{tail}"))
    for segments in (after, before, alone):
        assert "When, please?" in _fixed(segments)
    assert _rankable(alone) == [OPENED.text]


def test_fences_around_documents_are_separators():
    content = f"Context:\n```\n{OPENED.text}\n```\n[2]\n```\n{CLOSED.text}\n```\n\nWhen?"
    segments = _cut(_user(content), documents=BOTH)
    assert [piece.text for piece in segments.values()] == [OPENED.text, CLOSED.text, "When?"]


def test_tagged_question_is_the_question():
    content = f"<documents>\n<doc id='1'>{OPENED.text}</doc>\n</documents>\n<question>When?</question>\nBe brief."
    segments = _cut(_user(content), documents=[OPENED])
    assert segments["m0.p1"].text == "When?"
    assert _rankable(segments) == [OPENED.text]


def test_what_follows_the_last_document_is_the_question():
    segments = _cut(
        _user(f"Facts.\n\n{OPENED.text}\n{CLOSED.text}\n---\nWhen?\n\nAnd where?\n\nAnswer:"), documents=BOTH
    )
    assert "When?\n\nAnd where?" in _fixed(segments)


@pytest.mark.parametrize("tail", ["", "\n", "\n```\n", "\n\nAnswer:", "\n</context>"])
def test_what_precedes_the_first_document_is_the_question_if_nothing_follows(tail):
    segments = _cut(_user(f"When did it open?\n\nContext:\n- {OPENED.text}{tail}"), documents=[OPENED])
    assert _fixed(segments) == ["When did it open?"]


def test_request_that_names_the_documents_is_a_question():
    segments = _cut(_user(f"Summarise these documents:\n{OPENED.text}"), documents=[OPENED])
    assert _fixed(segments) == ["Summarise these documents:"]


def test_agent_that_ends_in_a_tool_output_or_assistant_turn_keeps_the_user_turn_fixed():
    tool = {"role": "tool", "tool_call_id": "c", "content": "1911"}
    assert _fixed(_cut(_user("Hi"), _user("When?"), _assistant(None), tool)) == ["When?"]
    assert _fixed(_cut(_user("When?"), _assistant("The year is"))) == ["When?"]


def test_user_message_of_nothing_but_documents_leaves_the_question_to_the_one_before():
    segments = _cut(_user("When?"), _user(f"Context:\n{OPENED.text}"), documents=[OPENED])
    assert _fixed(segments) == ["When?"]


def test_nothing_is_fixed_without_a_user_message():
    assert _fixed(_cut(_system("s"), _assistant("a"))) == []
    assert segment(_generation(_user(" "))) == ()
    assert segment(Generation((), None)) == ()


# What else a turn with documents says


@pytest.mark.parametrize(
    "lead_in",
    [
        "Answer from the context.",
        "Be brief.",
        "Use the following pieces of retrieved context to answer the question. "
        + "Be as concise as you can. " * 8
        + "Go.",
    ],
)
def test_instruction_before_the_documents_is_fixed(lead_in):
    segments = _cut(_user(f"{lead_in}\n\nContext: {OPENED.text}\n\nQuestion: When?"), documents=[OPENED])
    assert _fixed(segments) == [lead_in, "When?"]
    assert _rankable(segments) == [OPENED.text]


def test_instruction_between_documents_and_question_is_fixed():
    content = (
        f"Context information is below.\n-----\n{OPENED.text}\n-----\n"
        "Given the context information and not prior knowledge, answer the query.\nQuery: When?\nAnswer: "
    )
    segments = _cut(_user(content), documents=[OPENED])
    assert _fixed(segments) == [
        "Context information is below.",
        "Given the context information and not prior knowledge, answer the query.",
        "When?",
    ]


def test_paragraph_of_context_beside_the_documents_can_be_removed():
    content = (
        f"I run a shop in Ghent.\n\nUse the documents.\n\n{OPENED.text}\n\nA stray text.\n\n{CLOSED.text}\n\nWhen?"
    )
    segments = _cut(_user(content), documents=BOTH)
    assert _fixed(segments) == ["Use the documents.", "When?"]
    assert _rankable(segments) == ["I run a shop in Ghent.", OPENED.text, "A stray text.", CLOSED.text]
