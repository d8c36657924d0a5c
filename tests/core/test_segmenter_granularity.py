"""How finely a prompt is cut: by message, by document, by paragraph or by sentence."""

import json

import pytest

from attr_core.errors import InputError
from attr_core.segmenter import segment, segment_trace, unlocated
from attr_core.types import Document, Generation, Message, SegmentKind, Trace

FAIR = Document(
    "fair", "The fair opened in 1911. It rained.\n\nDr. Vex came. He left early.", metadata={"source": "f.md"}
)
HALL = Document("hall", "The hall burnt.")
BOTH = (FAIR, HALL)
TURN = f"Use the documents.\n\n[1] {FAIR.text}\n[2] {HALL.text}\n\nWhen did it open?"


def _cut(granularity, *contents, documents=BOTH, role="user", **options):
    messages = tuple(Message(role, content, **options) for content in contents)
    return segment(Generation(messages, None), documents=documents, granularity=granularity)


def _texts(segments):
    return {piece.id: piece.text for piece in segments if not piece.fixed}


def test_chunk_is_the_default():
    generation = Generation((Message("user", TURN),), None)
    assert segment(generation, documents=BOTH) == _cut("chunk", TURN)


def test_message_leaves_documents_in_their_message_and_the_question_apart():
    segments = _cut("message", TURN)
    assert [piece.text for piece in segments if piece.fixed] == ["Use the documents.", "When did it open?"]
    assert list(_texts(segments).values()) == [f"{FAIR.text}\n[2] {HALL.text}"]
    (held,) = [piece for piece in segments if not piece.fixed]
    assert (held.kind, held.documents, held.located) == (SegmentKind.USER_TURN, ("fair", "hall"), None)
    assert unlocated(BOTH, segments) == ()


def test_message_granularity_keeps_other_messages_whole():
    segments = _cut("message", json.dumps([d.text for d in BOTH]), role="tool")
    assert [(piece.id, piece.documents) for piece in segments] == [("m0", ("fair", "hall"))]


def test_paragraphs_of_documents():
    segments = _cut("paragraph", TURN)
    first, second = FAIR.text.split("\n\n")
    assert _texts(segments) == {"fair.p1": first, "fair.p2": second, "hall": HALL.text}


def test_sentences_of_documents_keep_all_that_is_the_documents():
    segments = _cut("sentence", TURN)
    assert _texts(segments) == {
        "fair.s1": "The fair opened in 1911.",
        "fair.s2": "It rained.",
        "fair.s3": "Dr. Vex came.",
        "fair.s4": "He left early.",
        "hall": HALL.text,
    }
    pieces = [piece for piece in segments if piece.id.startswith("fair")]
    assert {(piece.group_id, piece.documents, piece.located, piece.coverage) for piece in pieces} == {
        ("f.md", ("fair",), "exact", 1.0)
    }
    assert all(piece.source is FAIR.metadata for piece in pieces)
    assert unlocated(BOTH, segments) == ()


@pytest.mark.parametrize("granularity", ["paragraph", "sentence"])
def test_escaped_documents_are_cut_at_their_escaped_line_breaks(granularity):
    content = json.dumps({"text": FAIR.text})
    texts = list(_texts(_cut(granularity, content, role="tool", tool_call_id="c")).values())
    whole = {"paragraph": 2, "sentence": 4}
    assert len(texts) == whole[granularity]
    assert all("\\n" not in text and text in content for text in texts)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message("tool", "It opened. It closed.", tool_call_id="c"), SegmentKind.TOOL_OUTPUT),
        (Message("system", "Likes tea. Lives in Ghent.", metadata={"memory": True}), SegmentKind.MEMORY),
        (Message("user", "It opened. It closed.", metadata={"rag_chunk_id": "c7"}), SegmentKind.RETRIEVED),
    ],
)
def test_tool_outputs_memory_and_marked_chunks_are_cut_whatever_their_length(message, kind):
    segments = segment(Generation((message, Message("user", "When?")), None), granularity="sentence")
    name = "c7" if kind is SegmentKind.RETRIEVED else "m0"
    assert [(piece.id, piece.kind) for piece in segments] == [
        (f"{name}.s1", kind),
        (f"{name}.s2", kind),
        ("m1", "user_turn"),
    ]


@pytest.mark.parametrize("role", ["system", "assistant", "user"])
def test_long_turns_are_cut_and_short_ones_are_not(role):
    long, short = " ".join(f"Rule {number} is kept." for number in range(20)), "One. Two."
    messages = (Message(role, long), Message(role, short), Message("user", "When?"))
    segments = segment(Generation(messages, None), granularity="sentence")
    assert len([piece for piece in segments if piece.group_id == "m0"]) == 20
    assert [piece.id for piece in segments if piece.group_id == "m1"] == ["m1"]


def test_question_and_instructions_are_never_cut():
    question = "When did it open? " * 20
    segments = _cut("sentence", f"{FAIR.text}\n\n{question}")
    assert [piece.text for piece in segments if piece.fixed] == [question.strip()]


def test_code_and_tables_in_a_document_stay_whole():
    code = "```\na = 1. B.\n\nc = 2\n```"
    document = Document("d", f"Run this.\n\n{code}\n\nThen stop.")
    for granularity in ("paragraph", "sentence"):
        pieces = _texts(_cut(granularity, f"{document.text}\n\nWhen?", documents=[document]))
        assert list(pieces.values()) == ["Run this.", code, "Then stop."]


def test_sentence_that_documents_share_is_one_segment_of_both():
    one, two = Document("one", "It opened. See our terms."), Document("two", "It closed. See our terms.")
    segments = _cut("sentence", f"{one.text}\n{two.text}\n\nWhen?", documents=[one, two])
    (shared,) = [piece for piece in segments if piece.text == "See our terms."]
    assert (shared.documents, len(shared.locations)) == (("one", "two"), 2)


def test_unknown_granularity_is_refused():
    with pytest.raises(InputError, match="granularity 'word' does not exist; use message, chunk, paragraph, sentence"):
        _cut("word", TURN)


def test_trace_is_cut_anew_where_a_granularity_is_named():
    trace = Trace.from_messages([{"role": "user", "content": TURN}], "In 1911.", documents=BOTH)
    chunks = segment_trace(trace)
    assert segment_trace(trace, chunks) is chunks
    finer = segment_trace(trace, chunks, granularity="sentence")
    assert "fair.s1" in [piece.id for piece in finer.segments]
    assert segment_trace(trace, finer, granularity="chunk") == chunks


def test_sentences_of_a_repeated_response_name_its_generation():
    said = " ".join(f"Fact {number} is so." for number in range(20))
    first = Generation((Message("user", "Tell."),), said, id="gen_first")
    second = Generation((Message("assistant", said), Message("user", "When?")), "1911", id="gen_second")
    cut = segment_trace(Trace("When?", (first, second), "1911"), second, granularity="sentence")
    assert {piece.origin for piece in cut.segments if piece.kind is SegmentKind.ASSISTANT_TURN} == {"gen_first"}
