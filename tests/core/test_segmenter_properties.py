"""Whatever the prompt: segments stand exactly where they say, and every document is one or is reported."""

import json
import time
import unicodedata
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.segmenter import partly_located, segment, unlocated
from attr_core.types import Document, Generation, Message, SegmentKind

_WORDS = st.one_of(
    st.text("aB é1今.\n\t", max_size=8),
    st.text("ßİΣςe\u0301ệ\u200f\u200dשم👨😀ﬁ\\\"'{},:n ", max_size=12),
    st.text(st.characters(exclude_categories=()), max_size=6),
    st.just("The fair of Ghent opened in 1911, in the rain. "),
    st.just("<|im_start|>system\n"),
)
_GLUE = st.sampled_from(
    ("\n\n", "\n", " ", "", "[1] ", "Question: ", "Q:", "Answer:", "Context:\n", "<doc>", "</doc>", "```\n", "---\n")
)
_ON_THE_WAY = st.sampled_from(
    (
        lambda text: text,
        str.upper,
        json.dumps,
        lambda text: json.dumps({"text": text}, ensure_ascii=False),
        lambda text: unicodedata.normalize("NFC", text),
        lambda text: unicodedata.normalize("NFD", text),
        lambda text: "\n ".join(text.split()),
        lambda text: text[: 2 * len(text) // 3] + "…",
    )
)
_GRANULARITIES = st.sampled_from(["message", "chunk", "paragraph", "sentence"])


@st.composite
def _prompts(draw):
    texts = draw(st.lists(st.lists(_WORDS, max_size=4).map("".join), max_size=5))
    documents = [Document(draw(st.sampled_from(["a", "b", "m0"])), text) for text in texts]
    placed = [draw(_ON_THE_WAY)(text) for text in texts]
    parts = st.lists(st.one_of(st.sampled_from(placed), _GLUE, _WORDS) if texts else _WORDS, max_size=10)
    roles = st.sampled_from(["system", "user", "user", "assistant", "tool", "critic"])
    marks = st.sampled_from([{}, {}, {"memory": True}, {"rag_chunk_id": "a"}])
    messages = tuple(
        Message(role, "".join(draw(parts)), metadata=draw(marks)) for role in draw(st.lists(roles, max_size=5))
    )
    query = draw(st.one_of(st.none(), _WORDS, st.sampled_from(texts) if texts else st.none()))
    context = draw(st.one_of(st.none(), parts.map("".join)))
    return Generation(messages, None, rendered={"context": context}), documents, query


@given(_prompts(), _GRANULARITIES)
def test_text_is_the_slice_at_every_location(case, granularity):
    generation, documents, query = case
    for piece in segment(generation, documents=documents, query=query, granularity=granularity):
        assert piece.locations
        assert piece.text.strip()
        for place in piece.locations:
            assert generation.messages[place.message].content[place.start : place.end] == piece.text


@given(_prompts(), _GRANULARITIES)
def test_locations_never_overlap_and_ids_are_unique(case, granularity):
    generation, documents, query = case
    segments = segment(generation, documents=documents, query=query, granularity=granularity)
    places = [place for piece in segments for place in piece.locations]
    for one, other in combinations(places, 2):
        assert one.message != other.message or one.end <= other.start or other.end <= one.start
    assert len({piece.id for piece in segments}) == len(segments)
    assert len({(piece.kind, piece.text) for piece in segments}) == len(segments)


@given(_prompts(), _GRANULARITIES)
def test_segmenting_is_deterministic_and_in_prompt_order(case, granularity):
    generation, documents, query = case
    segments = segment(generation, documents=documents, query=query, granularity=granularity)
    assert segments == segment(generation, documents=documents, query=query, granularity=granularity)
    firsts = [(piece.locations[0].message, piece.locations[0].start) for piece in segments]
    assert firsts == sorted(firsts)
    assert all(
        list(piece.locations) == sorted(piece.locations, key=lambda p: (p.message, p.start)) for piece in segments
    )


@given(_prompts(), _GRANULARITIES)
def test_a_user_turn_with_text_besides_documents_has_a_question(case, granularity):
    generation, documents, query = case
    segments = segment(generation, documents=documents, query=query, granularity=granularity)
    turns = [m for m in generation.messages if m.role == "user" and not m.metadata and m.content.strip()]
    assert all(piece.kind is SegmentKind.USER_TURN for piece in segments if piece.fixed)
    if turns and not documents:
        assert any(piece.fixed for piece in segments)


@given(_prompts(), _GRANULARITIES)
def test_every_document_is_held_by_a_segment_or_reported(case, granularity):
    generation, documents, query = case
    segments = segment(generation, documents=documents, query=query, granularity=granularity)
    lost = unlocated(documents, segments)
    held = {name for piece in segments for name in piece.documents}
    for document in documents:
        if not any(map(str.isalnum, document.text)) and not any(
            m.metadata.get("rag_chunk_id") for m in generation.messages
        ):
            assert document in lost
        # A message marked as another chunk may say the very same.
        is_said = any(
            piece.kind is SegmentKind.RETRIEVED and piece.text.strip() == document.text.strip() for piece in segments
        )
        assert document in lost or is_said or any(name.split("#")[0] == document.id for name in held)


@given(_prompts())
def test_coverage_is_a_share_and_less_than_one_only_in_part(case):
    generation, documents, query = case
    segments = segment(generation, documents=documents, query=query)
    for piece in segments:
        assert 0 < piece.coverage <= 1
        assert (piece.located is not None) >= (piece.coverage < 1)
        assert piece.coverage == 1 or piece.located == "partial"
        assert piece.located is None or piece.kind is SegmentKind.RETRIEVED
    assert set(partly_located(segments)) <= {name for piece in segments for name in piece.documents}


@given(_prompts(), st.sampled_from(["paragraph", "sentence"]))
def test_finer_segments_say_what_the_chunks_said(case, granularity):
    generation, documents, query = case
    chunks = segment(generation, documents=documents, query=query)
    pieces = segment(generation, documents=documents, query=query, granularity=granularity)

    def characters(segments):
        return {
            (place.message, position)
            for piece in segments
            for place in piece.locations
            for position in range(place.start, place.end)
            if not generation.messages[place.message].content[position].isspace()
        }

    whole, cut = characters(chunks), characters(pieces)
    assert cut <= whole
    # What is missing stands between two pieces of an escaped text: its line breaks.
    assert {generation.messages[m].content[p] for m, p in whole - cut} <= set('\\nrtfbux0123456789abcdefABCDEF"')


_LOREM = "The fair of Ghent opened in 1911, in the rain of a late spring. "
_HOSTILE = [
    "`",
    "---\n",
    "hello there\n\n",
    "Q: \n",
    "Context: ",
    "<a ",
    "```\nx\n\ny\n```\n\n",
    "\n  ",
    '{"a": "',
    '\\"',
]


@pytest.mark.parametrize("granularity", ["chunk", "paragraph", "sentence"])
@pytest.mark.parametrize("unit", _HOSTILE)
def test_long_hostile_turns_take_no_time(unit, granularity):
    generation = Generation((Message("user", unit * 10_000 + "x"),), None)
    assert segment(generation, documents=[Document("d", _LOREM)], granularity=granularity)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a" * 60_000, "a" * 2_000),
        ("a" * 60_000, "a" * 2_000 + "b"),
        ("a b " * 15_000, "a b " * 500 + "b c"),
        (_LOREM * 900, _LOREM * 40 + "and more"),
        ("ß" * 60_000, "s" * 2_001),
        ("\\" * 60_000, "x" + "\\" * 2_000),
        ("e\u0301" * 30_000, "é" * 2_000 + "x"),
    ],
)
def test_repetitive_prompts_and_documents_take_no_time(content, text):
    generation = Generation((Message("user", f"{content}\n\nWhen?"),), None)
    documents = [Document(f"d{number}", f"{text}{number}") for number in range(20)]
    started = time.perf_counter()
    segment(generation, documents=documents)
    assert time.perf_counter() - started < 5  # quadratic it would be minutes


@pytest.mark.parametrize(
    "change",
    [str, str.upper, json.dumps, lambda text: text[:1200] + "…", lambda text: f"{text[:500]} [...] {text[-400:]}"],
)
def test_twenty_documents_in_a_long_prompt_are_found_in_no_time(change):
    documents = [
        Document(f"d{n}", " ".join(f"Stall {n} of row {k} sold {k * n + 7} lamps." for k in range(60)))
        for n in range(20)
    ]
    between = " ".join(f"Remark {k} is about something else." for k in range(40))
    content = "\n\n".join(f"{change(document.text)}\n\n{between}" for document in documents)
    assert len(content) > 45_000
    started = time.perf_counter()
    segments = segment(Generation((Message("user", f"{content}\n\nWhen?"),), None), documents=documents)
    assert time.perf_counter() - started < 1  # some 0.05 s on an idle machine
    assert unlocated(documents, segments) == ()
    assert {piece.id for piece in segments if piece.located} == {document.id for document in documents}


def test_many_occurrences_of_a_tiny_document_take_no_time():
    generation = Generation((Message("user", "a b " * 5_000),), None)
    segments = segment(generation, documents=[Document("a", "a")])
    assert len(segments[0].locations) == 5_000
