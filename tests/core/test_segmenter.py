"""Prompts are cut into segments: messages, documents, duplicates; and traces."""

import pytest

from attr_core.errors import InputError
from attr_core.segmenter import group_of, segment, segment_trace, unlocated
from attr_core.types import Document, Generation, Location, Message, Retrieval, Segment, SegmentKind, ToolCall, Trace

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


# Whole messages


def test_kind_follows_marks_then_role():
    segments = _cut(
        _system("s"),
        {"role": "developer", "content": "d"},
        _user("chunk", rag_chunk_id="c7"),
        _user("by metadata", tool_call_id="call_1"),
        {"role": "tool", "content": "by role", "tool_call_id": "call_2"},
        {"role": "system", "content": "likes tea", "metadata": {"memory": True}},
        _assistant("a"),
        _user("q"),
    )
    assert {name: piece.kind for name, piece in segments.items()} == {
        "m0": SegmentKind.SYSTEM,
        "m1": SegmentKind.SYSTEM,
        "c7": SegmentKind.RETRIEVED,
        "m3": SegmentKind.TOOL_OUTPUT,
        "m4": SegmentKind.TOOL_OUTPUT,
        "m5": SegmentKind.MEMORY,
        "m6": SegmentKind.ASSISTANT_TURN,
        "m7": SegmentKind.USER_TURN,
    }
    assert (segments["m3"].origin, segments["m4"].origin) == ("call_1", "call_2")


def test_message_without_text_is_no_segment():
    assert list(_cut(_system(" \n"), _assistant(None), _user("q"))) == ["m2"]


@pytest.mark.parametrize(
    ("metadata", "group"),
    [
        ({"group_id": "g", "ref_doc_id": "r", "source": "s"}, "g"),
        ({"ref_doc_id": "r", "source_id": "i", "source": "s"}, "r"),
        ({"source_id": "i", "source": "s"}, "i"),
        ({"source": "s", "file_path": "f", "url": "u"}, "s"),
        ({"file_path": "f", "url": "u"}, "f"),
        ({"url": "u"}, "u"),
        ({"group_id": None, "source": " ", "url": 7}, "7"),
        ({"page": 3}, "own"),
    ],
)
def test_group_is_the_first_of_explicit_parent_path_and_own_id(metadata, group):
    assert group_of(metadata, "own") == group
    document = Document("own", "The fair.", metadata=metadata)
    piece = _cut(_user("The fair.\n\nWhen?"), documents=[document])["own"]
    assert piece.group_id == group
    assert piece.source is metadata


def test_paragraphs_of_a_message_are_one_group():
    segments = _cut(_user("One.\n\nTwo.\n\nThree?"))
    assert {piece.group_id for piece in segments.values()} == {"m0"}


# Documents


def test_documents_are_located_and_labels_belong_to_no_segment():
    content = "[1] The fair opened in 1911.\n---\n[2] Source: b.txt\nIt closed in 1915.\nThe hall burnt.\n\nWhen?"
    segments = _cut(_user(content), documents=BOTH)
    assert [piece.text for piece in segments.values()] == [OPENED.text, CLOSED.text, "When?"]
    assert segments["opened"].locations == (Location(0, 4, 28),)
    assert segments["opened"].kind is SegmentKind.RETRIEVED


def test_white_space_around_a_document_is_not_part_of_it():
    document = Document("d", "\n  The fair.  \n")
    segments = _cut(_user("The fair.\n\nWhen?"), documents=[document])
    assert segments["d"].text == "The fair."
    assert unlocated([document], list(segments.values())) == ()


def test_short_document_is_not_found_inside_a_long_one():
    short, long = Document("short", "Ghent"), Document("long", "The fair of Ghent opened.")
    inside = _cut(_user("The fair of Ghent opened.\n\nWhen?"), documents=[short, long])
    assert "short" not in inside
    beside = _cut(_user("The fair of Ghent opened.\n\nGhent\n\nWhen?"), documents=[short, long])
    assert beside["short"].locations == (Location(0, 27, 32),)


def test_short_document_is_not_found_inside_an_old_copy_of_a_long_one():
    short, long = Document("short", "Ghent"), Document("long", "The fair of Ghent opened.")
    segments = _cut(_user(long.text), _assistant("Yes."), _user(f"{long.text}\n\nWhen?"), documents=[short, long])
    assert "short" not in segments


def test_document_is_not_found_inside_a_word():
    segments = _cut(_user("The 1911s were Ghentish.\n\nGhent\n\nWhen?"), documents=[Document("g", "Ghent")])
    assert segments["g"].locations == (Location(0, 26, 31),)


def test_scripts_without_spaces_are_searched_inside_runs_of_letters():
    segments = _cut(_user("参考东京很大。\n\n问题：多大？"), documents=[Document("t", "东京很大。")])
    assert segments["t"].locations == (Location(0, 2, 7),)
    assert _fixed(segments)[-1] == "多大？"


def test_duplicate_documents_share_a_segment_with_all_locations():
    twin = Document("twin", OPENED.text)
    segments = _cut(_user(f"{OPENED.text}\n{OPENED.text}\n\nWhen?"), documents=[OPENED, twin])
    assert segments["opened"].locations == (Location(0, 0, 24), Location(0, 25, 49))
    assert "twin" not in segments
    assert unlocated([OPENED, twin], list(segments.values())) == ()


def test_document_that_also_stands_in_the_history_is_found_in_the_last_turn():
    segments = _cut(
        _user(f"{OPENED.text}\n\nWhen did it open?"),
        _assistant(f"As written: {OPENED.text}"),
        _user(f"{OPENED.text}\n\nAre you sure?"),
        documents=[OPENED],
    )
    assert segments["opened"].locations == (Location(2, 0, 24),)
    assert segments["m0"].text.startswith(OPENED.text)
    assert segments["m1"].kind is SegmentKind.ASSISTANT_TURN


def test_document_that_stands_only_in_the_history_is_found_there():
    segments = _cut(_user(f"{OPENED.text}\n\nWhen?"), _assistant("In 1911."), _user("Sure?"), documents=[OPENED])
    assert segments["opened"].locations == (Location(0, 0, 24),)
    assert _fixed(segments) == ["Sure?"]


def test_document_in_the_system_message_is_not_history():
    segments = _cut(
        _system(f"Use the context.\n\nContext:\n{OPENED.text}\n\nNever lie."),
        _user("Hi"),
        _assistant(f"Hello. {OPENED.text}"),
        _user("When?"),
        documents=[OPENED],
    )
    assert [place.message for place in segments["opened"].locations] == [0]
    assert [(p.text, p.fixed) for p in segments.values() if p.kind is SegmentKind.SYSTEM] == [
        ("Use the context.", False),
        ("Never lie.", False),
    ]


def test_document_in_a_tool_output_is_retrieved_and_keeps_the_call_as_origin():
    segments = _cut(
        _user("When?"),
        {"role": "tool", "tool_call_id": "c1", "content": f"Result 1: {OPENED.text}"},
        documents=[OPENED],
    )
    assert segments["opened"].kind is SegmentKind.RETRIEVED
    assert segments["opened"].origin == "c1"
    assert _fixed(segments) == ["When?"]


@pytest.mark.parametrize(
    "document",
    [
        Document("d", "The fair opened in 1912."),
        Document("d", "THE FAIR OPENED IN 1911."),
        Document("d", "The fair opened in 1911. Then it closed."),
        Document("d", "fair"),
        Document("d", ""),
        Document("d", "."),
    ],
)
def test_document_that_cannot_be_found_is_reported_and_not_guessed(document):
    segments = _cut(_user(f"{OPENED.text}\n\nWhen?"), documents=[OPENED, document])
    assert list(segments) == ["opened", "m0.p1"]
    assert unlocated([OPENED, document], list(segments.values())) == (document,)


def test_message_marked_as_a_chunk_counts_as_its_document():
    header = Document("c2", "It closed.")
    segments = _cut(
        _user(OPENED.text, rag_chunk_id="c1"),
        _user("Title\nIt closed.", rag_chunk_id="c2"),
        _user("When?"),
        documents=[OPENED, header],
    )
    assert list(segments) == ["c1", "c2", "m2"]
    assert unlocated([OPENED, header], list(segments.values())) == ()


def test_clashing_ids_are_made_unique():
    one, two, three = Document("c", "One."), Document("c", "Two."), Document("m0.p1", "Three.")
    segments = _cut(_user("One.\nTwo.\nThree.\n\nWhen?"), documents=[one, two, three])
    assert list(segments) == ["c", "c#2", "m0.p1", "m0.p1#2"]


# Duplicates


def test_exact_duplicates_of_one_kind_share_a_segment():
    segments = _cut(_user("Same."), _assistant("Same."), _user("Same."), _assistant("Ok"), _user("Why?"))
    assert segments["m0"].locations == (Location(0, 0, 5), Location(2, 0, 5))
    assert segments["m1"].locations == (Location(1, 0, 5),)


def test_repeated_question_is_fixed_wherever_it_stands():
    segments = _cut(_user("Why?"), _assistant("So."), _user("Why?"))
    assert segments["m0"].fixed
    assert [place.message for place in segments["m0"].locations] == [0, 2]


# Traces


def test_trace_gives_documents_and_query():
    trace = Trace.from_messages(
        [_user(f"When?\n\n{OPENED.text}\n\nThink hard.")], "In 1911.", documents=[OPENED], query="When?"
    )
    cut = segment_trace(trace)
    assert [(piece.id, piece.text) for piece in cut.segments if not piece.fixed] == [("opened", OPENED.text)]
    assert "When?" in [piece.text for piece in cut.segments if piece.fixed]
    assert trace.generations[0].segments == ()
    assert (cut.id, cut.messages) == (trace.generations[0].id, trace.generations[0].messages)


def test_documents_that_a_tool_brought_are_located_too():
    generation = _generation(_user("When?"), {"role": "tool", "tool_call_id": "c1", "content": OPENED.text})
    call = ToolCall("c1", "search", documents=(OPENED,))
    lost = Retrieval(None, (CLOSED,))
    trace = Trace("When?", (generation,), None, tool_calls=(call,), retrievals=(lost,))
    cut = segment_trace(trace)
    assert [piece.id for piece in cut.segments] == ["m0", "opened"]
    assert unlocated(trace, cut.segments) == (CLOSED,)


def test_generation_with_segments_is_returned_as_it_is():
    piece = Segment("mine", SegmentKind.USER_TURN, "Wh", (Location(0, 0, 2),))
    generation = Generation((Message("user", "When?"),), "Now.", segments=(piece,))
    assert segment_trace(Trace("When?", (generation,), "Now."), generation) is generation


def test_segment_that_repeats_an_earlier_response_names_its_generation():
    first = Generation((Message("user", "Summarise."),), "It opened.", id="gen_first")
    second = Generation((Message("assistant", "It opened."), Message("user", "When?")), "1911", id="gen_second")
    third = Generation((Message("user", "1911"),), "It opened.", id="gen_third")
    trace = Trace("When?", (first, second, third), "1911")
    assert [piece.origin for piece in segment_trace(trace, second).segments] == ["gen_first", None]


def test_trace_without_generations_is_refused():
    with pytest.raises(InputError, match="holds no model call"):
        segment_trace(Trace("q", (), None))
