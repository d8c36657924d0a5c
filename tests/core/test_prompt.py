"""Ablation deletes spans and nothing else."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.errors import SegmentationError
from attr_core.prompt import ablate, ablations, candidates
from attr_core.segmenter import segment
from attr_core.types import Document, Generation, Location, Message, Segment, SegmentKind, ToolCall

_CALL = ToolCall("call_1", "search", {"q": "fair"})


def _segment(text, *places, fixed=False):
    locations = tuple(Location(message, start, start + len(text)) for message, start in places)
    return Segment("s", SegmentKind.RETRIEVED, text, locations, fixed=fixed)


def _mask(*kept):
    return np.array(kept, dtype=bool)


def _contents(prompt):
    return [message.content for message in prompt.messages]


def _generation(*contents):
    return Generation(tuple(Message("user", content) for content in contents), None)


def test_fixed_segments_are_no_candidates():
    question, chunk = _segment("q", (0, 0), fixed=True), _segment("c", (0, 2))
    assert candidates([question, chunk]) == (chunk,)


def test_removed_segment_leaves_separators_and_labels():
    generation = _generation("[1] one\n[2] two\n")
    segments = [_segment("one", (0, 4)), _segment("two", (0, 12))]
    assert _contents(ablate(generation, segments, _mask(False, True))) == ["[1] \n[2] two\n"]
    assert _contents(ablate(generation, segments, _mask(False, False))) == ["[1] \n[2] \n"]


def test_adjacent_segments_are_removed_apart_and_together():
    generation = _generation("onetwothree")
    segments = [_segment("one", (0, 0)), _segment("two", (0, 3)), _segment("three", (0, 6))]
    assert _contents(ablate(generation, segments, _mask(True, False, True))) == ["onethree"]
    assert _contents(ablate(generation, segments, _mask(False, False, True))) == ["three"]
    assert _contents(ablate(generation, segments, _mask(False, False, False))) == [""]


def test_duplicates_are_removed_at_all_their_locations():
    generation = _generation("a x a", "a")
    assert _contents(ablate(generation, [_segment("a", (0, 0), (0, 4), (1, 0))], _mask(False))) == [" x ", ""]


def test_a_span_removed_twice_is_removed_once():
    generation = _generation("one two")
    segments = [_segment("one", (0, 0)), _segment("one", (0, 0)), _segment("ne t", (0, 1))]
    assert _contents(ablate(generation, segments, _mask(False, False, True))) == [" two"]
    assert _contents(ablate(generation, segments, _mask(False, False, False))) == ["wo"]


def test_message_stays_when_its_content_is_gone():
    messages = (
        Message("system", "Be kind.", name="rules"),
        Message("assistant", "Let me look.", tool_calls=(_CALL,)),
        Message("tool", "It opened.", tool_call_id="call_1", metadata={"k": 1}),
    )
    generation = Generation(messages, None, tools=({"type": "function"},))
    segments = segment(generation)
    prompt = ablate(generation, segments, np.zeros(len(segments), dtype=bool))
    assert _contents(prompt) == ["", "", ""]
    assert prompt.tools == generation.tools
    assert [chat | {"content": None} for chat in prompt.to_chat()] == [
        message.to_chat() | {"content": None} for message in messages
    ]


def test_one_prompt_per_row_of_masks():
    generation = _generation("ab")
    segments = [_segment("a", (0, 0)), _segment("b", (0, 1))]
    masks = np.array([[True, True], [False, True], [True, False]])
    assert [_contents(prompt) for prompt in ablations(generation, segments, masks)] == [["ab"], ["b"], ["a"]]


def test_generation_itself_is_unchanged():
    generation = _generation("one two")
    ablate(generation, [_segment("one", (0, 0))], _mask(False))
    assert generation.messages[0].content == "one two"


@pytest.mark.parametrize("mask", [_mask(), _mask(True, True), np.ones((1, 1), dtype=bool)])
def test_mask_of_another_shape_is_refused(mask):
    with pytest.raises(SegmentationError, match="does not fit 1 segments"):
        ablate(_generation("one"), [_segment("one", (0, 0))], mask)


@pytest.mark.parametrize("location", [Location(0, 1, 9), Location(0, -1, 2), Location(0, 2, 1), Location(7, 0, 1)])
def test_location_outside_the_prompt_is_refused(location):
    stray = Segment("s", SegmentKind.RETRIEVED, "x", (location,))
    with pytest.raises(SegmentationError, match=r"message \d"):
        ablate(_generation("one"), [stray], _mask(False))


_TEXTS = st.one_of(
    st.text("ab é\n今", min_size=1, max_size=6),
    st.text('ße\u0301שם👨\u200d"\\. ', min_size=1, max_size=12),
    st.text(st.characters(exclude_categories=()), max_size=6),
    st.just("The fair of Ghent opened in 1911. It rained.\n\nThe hall burnt in 1915. Nobody was hurt."),
).filter(str.strip)
_ON_THE_WAY = st.sampled_from((str, str.upper, json.dumps, lambda text: text[: 3 * len(text) // 4] + "…"))


@st.composite
def _prompts(draw):
    texts = draw(st.lists(_TEXTS, max_size=5, unique=True))
    documents = [Document(f"d{number}", text) for number, text in enumerate(texts)]
    placed = [draw(_ON_THE_WAY)(text) for text in texts]
    piece = st.sampled_from([*placed, "\n\n", " ", "[1] ", "Question: why?\n", "Some words.", ""])
    messages = []
    for role in draw(st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), min_size=1, max_size=5)):
        content = "".join(draw(st.lists(piece, max_size=8)))
        calls = (_CALL,) if role == "assistant" else ()
        call_id = "call_1" if role == "tool" else None
        messages.append(Message(role, content, tool_calls=calls, tool_call_id=call_id))
    generation = Generation(tuple(messages), None)
    granularity = draw(st.sampled_from(["message", "chunk", "paragraph", "sentence"]))
    segments = segment(generation, documents=documents, granularity=granularity)
    mask = np.array(draw(st.lists(st.booleans(), min_size=len(segments), max_size=len(segments))), dtype=bool)
    return generation, segments, mask


@given(_prompts())
def test_keeping_all_gives_the_original_messages(case):
    generation, segments, mask = case
    assert ablate(generation, segments, np.ones_like(mask)) == generation.prompt


@given(_prompts())
def test_message_count_roles_and_tool_ids_never_change(case):
    generation, segments, mask = case
    before, after = generation.messages, ablate(generation, segments, mask).messages
    assert [(m.role, m.name, m.tool_calls, m.tool_call_id, m.metadata) for m in after] == [
        (m.role, m.name, m.tool_calls, m.tool_call_id, m.metadata) for m in before
    ]


@given(_prompts(), st.randoms())
def test_order_of_segments_does_not_matter(case, random):
    generation, segments, mask = case
    order = list(range(len(segments)))
    random.shuffle(order)
    shuffled = ablate(generation, [segments[i] for i in order], mask[order])
    assert shuffled == ablate(generation, segments, mask)


@given(_prompts())
def test_exactly_the_removed_characters_go(case):
    generation, segments, mask = case
    gone = {
        (place.message, position)
        for piece, kept in zip(segments, mask, strict=True)
        if not kept
        for place in piece.locations
        for position in range(place.start, place.end)
    }
    expected = [
        "".join(character for position, character in enumerate(message.content) if (index, position) not in gone)
        for index, message in enumerate(generation.messages)
    ]
    assert _contents(ablate(generation, segments, mask)) == expected


@given(_prompts())
def test_of_what_is_removed_nothing_is_left_at_its_place(case):
    generation, segments, mask = case
    after = ablate(generation, segments, mask).messages
    for index, message in enumerate(generation.messages):
        gone = sum(
            place.end - place.start
            for piece, kept in zip(segments, mask, strict=True)
            if not kept
            for place in piece.locations
            if place.message == index
        )
        assert len(after[index].content) == len(message.content) - gone
