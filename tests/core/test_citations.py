"""Which claim cites which segment: markers in the answer, objects of the provider, and what is neither."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.claims import split_claims
from attr_core.support.citations import Citation, Citations, citations, supporting_sentence
from attr_core.types import Claim, Generation, Location, Message, Segment, SegmentKind

TEXTS = ("The fair opened in 1911.", "Tickets cost four marks.", "A choir sings on the bridge.")


def prompt_of(*chunks: str, template: str = "{chunk}\n\n", first: int = 1) -> tuple[list[Segment], Generation]:
    """Chunks in one user turn, each under the template."""
    content, segments = "Use these sources.\n\n", []
    for n, chunk in enumerate(chunks):
        head, _, tail = template.partition("{chunk}")
        content += head.replace("{n}", str(n + first))
        place = Location(0, len(content), len(content) + len(chunk))
        source = {"source": f"/docs/file{n}.pdf", "title": f"Guide {n}"}
        segments.append(Segment(f"c{n}", SegmentKind.RETRIEVED, chunk, (place,), source=source, documents=(f"c{n}",)))
        content += chunk + tail
    return segments, Generation((Message("user", content + "When did it open?"),), None)


SEGMENTS, GENERATION = prompt_of(*TEXTS)


def read(answer: str, segments: Sequence[Segment] = SEGMENTS, **options: Any) -> Citations:
    return citations(answer, split_claims(answer), segments, options.pop("generation", GENERATION), **options)


def cells(answer: str, segments: Sequence[Segment] = SEGMENTS, **options: Any) -> list[tuple[int | None, Any]]:
    return [(one.claim, one.segments) for one in read(answer, segments, **options).found]


@pytest.mark.parametrize(
    ("marker", "columns"),
    [
        ("[1]", (0,)),
        ("[3]", (2,)),
        ("[1, 3]", (0, 2)),
        ("[1,3]", (0, 2)),
        ("[1; 3]", (0, 2)),
        ("[1 and 3]", (0, 2)),
        ("[1-3]", (0, 1, 2)),
        ("[1–3]", (0, 1, 2)),
        ("[^2]", (1,)),
        ("[[2]]", (1,)),
        ("【2】", (1,)),
        ("【2†source】", (1,)),
        ("【2†L10-L20】", (1,)),
        ("【4:0†file1.pdf】", (1,)),
        ("[Source 2]", (1,)),
        ("[document 2]", (1,)),
        ("[doc2]", (1,)),
        ("<cite>2</cite>", (1,)),
        ("<cite>[2]</cite>", (1,)),
        ('<cite id="c1"/>', (1,)),
        ('<cite doc="2"/>', (1,)),
        ("<cite>file1.pdf</cite>", (1,)),
        ("[c1]", (1,)),
        ("[file1.pdf]", (1,)),
        ("[FILE1.PDF]", (1,)),
        ("[/docs/file1.pdf]", (1,)),
        ("[Guide 1]", (1,)),
        ("[source: file1.pdf]", (1,)),
        ("[file0.pdf, file2.pdf]", (0, 2)),
        ("[file1.pdf, p. 3]", (1,)),
    ],
)
def test_a_marker_at_the_end_of_a_sentence_cites_for_it(marker: str, columns: tuple[int, ...]) -> None:
    answer = f"It was long ago. The fair opened then {marker}. A choir sang."
    found = read(answer).found
    assert [(one.claim, one.segments, one.missing) for one in found] == [(1, columns, ())]
    assert answer[found[0].start : found[0].end] == marker


@pytest.mark.parametrize(
    "answer",
    [
        "It opened in [1997].",
        "It opened in (1).",
        "It opened then (1) and then (2).",
        "See [the guide](https://example.com/a).",
        "See [1](https://example.com/a).",
        "See [[1]](https://example.com/a).",
        "See [the guide][1].",
        "It opened.\n\n[1]: https://example.com/a",
        "It opened.\n\n[^1]: https://example.com/a",
        "It opened.\n\nReferences:\n[1] Guide, 1911.\n[2] Another.",
        "It opened.\n\n## Sources\n- [file1.pdf]",
        "Take `a[1]` and `[2]`.",
        "```python\nx = [1]\ny = a[2]\n```",
        "~~~\n[1]\n~~~",
        "Take a[1] or x[2].",
        "Take sys.argv[1] or user_ids[2] or myList[1].",
        "Take a[1][2].",
        "values[1] = 3",
        'It says {"ids": [1, 2]}.',
        'It says {"ids":[1]}.',
        "The matrix is [[1, 2], [3, 4]].",
        "It lies in [0, 1].",
        "It is [sic] so.",
        "[The] fair opened [...] then.",
        "- [ ] open\n- [x] close",
        "It is [3-1].",
        "It is [1-999].",
        "It is [1.5] or [12%].",
        "It is 【重要】.",
        "It is m² and 10³.",
        "A [ and a ] and an [ unclosed",
    ],
)
def test_what_only_looks_like_a_citation_is_none(answer: str) -> None:
    assert read(answer) == Citations(())


@pytest.mark.parametrize("word", ["1911", "OpenAI", "iPhone", "macOS", "example.com", "blue", "C", "(ACME)", "開業"])
def test_a_number_right_behind_a_word_of_prose_is_a_citation(word: str) -> None:
    assert cells(f"It was {word}[1][2].") == [(0, (0,)), (0, (1,))]


@pytest.mark.parametrize(
    ("answer", "claims"),
    [
        ("It opened [1]. It closed [2].", [0, 1]),
        ("It opened. [1] It closed. [2]", [0, 1]),
        ("It opened.[1] It closed.[2]", [0, 1]),
        ("It opened. 【1†source】 It closed. 【2†source】", [0, 1]),
        ('It opened. <cite id="c0"/> It closed. <cite id="c1"/>', [0, 1]),
        ("It opened. [c0] It closed. [c1]", [0, 1]),
        ("It opened [1], and [2] says that it closed.", [0, 0]),
        ("According to [1], it opened.", [0]),
        ("[1] says that it opened.", [0]),
        ("It opened.\n\n[1] says that it closed.", [1]),
        ("It opened.\n\n[1]", [0]),
        ("- It opened [1]\n- It closed [2]", [0, 1]),
        ("It opened. [1] [2]", [0, 0]),
        ("It opened.\n[1]\n[2]\nIt closed.", [0, 0]),
    ],
)
def test_a_marker_cites_for_the_sentence_that_it_stands_in_or_right_behind(answer: str, claims: list[int]) -> None:
    assert [one.claim for one in read(answer).found] == claims


def test_a_marker_that_no_claim_is_near_cites_for_none() -> None:
    answer = "It opened. Then came the war. [1]"
    assert citations(answer, [Claim(0, 0, 10, "It opened.")], SEGMENTS).found[0].claim is None
    assert citations("[1] It opened.", [Claim(0, 4, 14, "It opened.")], SEGMENTS).found[0].claim is None


def test_of_claims_taken_out_of_one_sentence_the_first_stands_for_all() -> None:
    answer = "It opened in 1911 in Kiel [1]."
    claims = [Claim(0, 0, 30, "It opened in 1911."), Claim(1, 0, 30, "It opened in Kiel.")]
    assert [one.claim for one in citations(answer, claims, SEGMENTS).found] == [0]


def test_a_tag_cites_for_all_the_words_that_it_encloses() -> None:
    answer = 'So. <cite id="c0">It opened. It closed.</cite> A choir sang. <cite doc="2">It rained</cite>.'
    assert cells(answer) == [(1, (0,)), (2, (0,)), (4, (1,))]


def test_a_tag_around_words_of_a_segment_cites_that_segment() -> None:
    found = read("<cite>Tickets cost  four marks</cite>.").found
    assert [(one.segments, one.reading, one.text) for one in found] == [((1,), "text", "Tickets cost  four marks")]


def test_a_tag_that_names_nothing_dangles() -> None:
    found = read("<cite>It opened long ago</cite>. <cite id='c9'>So.</cite>")
    assert [(one.segments, one.dangles, one.missing) for one in found.found] == [((), True, ()), ((), True, ("c9",))]
    assert found.notes == ("2 citations name no segment: c9",)


def test_a_number_beyond_the_documents_dangles_and_is_told() -> None:
    found = read("It opened [7]. It closed [1, 8].")
    assert [(one.segments, one.missing) for one in found.found] == [((), ("7",)), ((0,), ("8",))]
    assert found.notes == ("2 citations name no segment: 7, 8",)
    assert read("It opened [1].", []).found[0].dangles


def test_names_of_one_file_cite_all_of_its_segments() -> None:
    segments = [Segment(f"c{n}", SegmentKind.RETRIEVED, TEXTS[n], (), source={"file_name": "a.pdf"}) for n in range(3)]
    assert cells("It opened [a.pdf].", segments) == [(0, (0, 1, 2))]


@pytest.mark.parametrize(
    "template",
    [
        "[{n}] {chunk}\n\n",
        "[{n}]\n{chunk}\n\n",
        "Document {n}: {chunk}\n\n",
        "Document {n}\n{chunk}\n\n",
        "Source [{n}]: {chunk}\n",
        "Source [{n}]:\n{chunk}\n",
        "Document [{n}](Title: The guide) {chunk}\n",
        '<document index="{n}">\n<source>a.pdf</source>\n<document_content>\n{chunk}\n</document_content>\n',
        "<doc id={n}>{chunk}</doc>\n",
        "### Passage {n}\n\n{chunk}\n\n",
        "**[{n}]** {chunk}\n",
        "({n}) {chunk} ",
        "{n}. {chunk}\n",
        "Quelle {n}: {chunk}\n",
    ],
)
def test_labels_in_the_prompt_count_before_the_order_and_the_result_says_so(template: str) -> None:
    segments, generation = prompt_of(*TEXTS, template=template, first=4)
    found = read("It opened [4]. It cost [6]. It rained [1].", segments, generation=generation)
    assert [one.segments for one in found.found] == [(0,), (2,), ()]
    assert [one.reading for one in found.found] == ["label", "label", "none"]
    assert "numbers are read as the labels that documents have in the prompt" in found.notes[0]


def test_labels_that_are_a_part_of_the_segments_count_too() -> None:
    segments, generation = prompt_of(*(f"[{n}] {text}" for n, text in zip((3, 1, 2), TEXTS, strict=True)))
    assert cells("It opened [3].", segments, generation=generation) == [(0, (0,))]
    assert cells("It opened [3].", segments, generation=None) == [(0, (0,))]


def test_labels_that_are_the_order_are_not_worth_a_note() -> None:
    segments, generation = prompt_of(*TEXTS, template="[{n}] {chunk}\n\n")
    assert read("It opened [2].", segments, generation=generation).notes == ()


def test_a_label_from_zero_is_a_citation() -> None:
    segments, generation = prompt_of(*TEXTS, template="[{n}] {chunk}\n\n", first=0)
    assert cells("It opened in 1911 [0].", segments, generation=generation) == [(0, (0,))]


def test_a_single_chunk_that_begins_with_a_number_labels_nothing() -> None:
    segments, generation = prompt_of("[7] is a number.", *TEXTS)
    assert cells("It opened [2].", segments, generation=generation) == [(0, (1,))]
    segments, generation = prompt_of("1. Introduction", "2. The fair", *TEXTS)
    assert cells("It opened [5].", segments, generation=generation) == [(0, (4,))]


def test_documents_are_counted_in_the_order_of_the_prompt_not_of_the_columns() -> None:
    assert cells("It opened [1].", [SEGMENTS[2], SEGMENTS[0], SEGMENTS[1]]) == [(0, (1,))]


def test_the_pieces_of_a_document_are_one_and_a_text_that_stands_twice_is_two() -> None:
    def piece(name: str, *starts: int, documents: tuple[str, ...]) -> Segment:
        places = tuple(Location(0, start, start + 5) for start in starts)
        return Segment(name, SegmentKind.RETRIEVED, "It is so.", places, documents=documents)

    pieces = [
        piece("d1.s1", 0, 40, documents=("d1", "d3")),
        piece("d1.s2", 10, 50, documents=("d1", "d3")),
        piece("d2", 20, documents=("d2",)),
    ]
    assert [one for _, one in cells("A [1]. B [2]. C [3]. D [4].", pieces)] == [(0, 1), (2,), (0, 1), ()]


def test_a_message_that_holds_several_documents_is_each_of_them() -> None:
    turn = Segment("m0", SegmentKind.USER_TURN, "all of it", (Location(0, 0, 9),), documents=("d1", "d2"))
    assert [one for _, one in cells("A [1]. B [2]. C [3].", [turn])] == [(0,), (0,), ()]


def test_numbers_are_of_tool_outputs_where_nothing_was_retrieved() -> None:
    kinds = (SegmentKind.SYSTEM, SegmentKind.TOOL_OUTPUT, SegmentKind.TOOL_OUTPUT)
    segments = [Segment(f"m{n}", kind, "text", (Location(n, 0, 4),)) for n, kind in enumerate(kinds)]
    assert cells("A [1]. B [2].", segments) == [(0, (1,)), (1, (2,))]


CHAR = {"type": "char_location", "document_index": 1, "document_title": "Guide", "start_char_index": 0}
CITED = "Tickets cost four marks."


@pytest.mark.parametrize(
    "given",
    [
        {**CHAR, "end_char_index": 24, "cited_text": CITED},
        {"type": "page_location", "document_index": 1, "start_page_number": 1, "cited_text": "…"},
        {"type": "content_block_location", "document_index": 1, "start_block_index": 0, "cited_text": CITED},
        {"type": "search_result_location", "search_result_index": 1, "source": "x", "cited_text": CITED},
        {"type": "search_result_location", "search_result_index": 0, "source": "/docs/file1.pdf", "cited_text": "?"},
        {"type": "char_location", "document_index": 9, "cited_text": "tickets COST four\nmarks"},
        {"type": "web_search_result_location", "url": "/docs/file1.pdf", "cited_text": ""},
    ],
)
def test_anthropic_cites_for_the_text_block_that_carries_the_object(given: dict[str, Any]) -> None:
    blocks = [
        {"type": "text", "text": "It opened. "},
        {"type": "text", "text": "A ticket is four marks.", "citations": [given]},
        {"type": "text", "text": " It closed."},
    ]
    answer = "It opened. A ticket is four marks. It closed."
    for provider in (blocks, {"content": blocks}, [{"message": {"content": blocks}}]):
        found = read(answer, provider=provider).found
        assert [(one.claim, one.segments, one.form) for one in found] == [(1, (1,), "anthropic")]
        assert answer[found[0].start : found[0].end] == "A ticket is four marks."


def test_a_title_that_several_documents_have_leaves_it_to_their_number() -> None:
    segments = [replace(one, source={"title": "Guide"}) for one in SEGMENTS]
    block = {"type": "text", "text": "It opened.", "citations": [{**CHAR, "document_index": 2, "cited_text": "?"}]}
    assert cells("It opened.", segments, provider=[block]) == [(0, (2,))]


def test_what_a_note_names_cannot_move_the_terminals_cursor() -> None:
    (note,) = read('It opened <cite id="\x1b[2J\nno">so</cite>.').notes
    assert note.isprintable()


def test_a_bare_object_has_no_place_in_the_answer_and_that_is_told() -> None:
    found = read("It opened.", provider=[[{**CHAR, "cited_text": CITED}]])
    assert found.found == (Citation(0, 10, None, (1,), "anthropic", "order", (), CITED),)
    assert found.notes == ("1 citations of the provider do not say what part of the answer they are for",)


@pytest.mark.parametrize(
    "sources",
    [
        {"document_ids": ["c1"]},
        {"document_ids": ["doc_1"]},
        {"sources": [{"type": "document", "id": "doc:1", "document": {"id": "doc:1", "text": "…"}}]},
        {"sources": [{"type": "document", "id": "0", "document": {"title": "Guide 1"}}]},
    ],
)
def test_cohere_cites_for_the_words_between_start_and_end(sources: dict[str, Any]) -> None:
    answer = "It opened. A ticket is four marks. It closed."
    given = {"start": 23, "end": 33, "text": "four marks", **sources}
    assert cells(answer, provider={"citations": [given]}) == [(1, (1,))]
    assert cells(answer, provider=[{"start": 4, "end": 33, "text": "", **sources}]) == [(0, (1,)), (1, (1,))]


@pytest.mark.parametrize(
    "given",
    [
        {"type": "url_citation", "url_citation": {"url": "/docs/file1.pdf", "start_index": 11, "end_index": 21}},
        {"type": "url_citation", "url": "/docs/file1.pdf", "title": "x", "start_index": 11, "end_index": 21},
        {"type": "file_citation", "filename": "file1.pdf", "file_id": "f", "index": 21},
        {"type": "file_citation", "file_citation": {"file_id": "c1"}, "start_index": 11, "end_index": 21},
    ],
)
def test_openai_annotations_are_markers_and_count_instead_of_what_they_stand_for(given: dict[str, Any]) -> None:
    answer = "It opened. 【2†source】 It closed."
    given = {"text": "【2†source】", **given}
    found = read(answer, provider={"annotations": [given]}).found
    assert [(one.claim, one.segments) for one in found if one.form == "openai"] == [(0, (1,))]


def test_annotations_of_a_block_are_counted_in_the_block() -> None:
    block = {"type": "output_text", "text": "It closed here.", "annotations": [
        {"type": "url_citation", "url": "c2", "start_index": 10, "end_index": 14}
    ]}  # fmt: skip
    found = read("It opened. It closed here.", provider=[{"type": "message", "content": [block]}]).found
    assert [(one.claim, one.segments, one.start, one.end) for one in found] == [(1, (2,), 21, 25)]


@pytest.mark.parametrize(
    "given",
    [
        None,
        "text",
        7,
        [None, 3, "x", [], {}],
        {"citations": "none"},
        {"type": "char_location"},
        {"type": "char_location", "document_index": -1, "cited_text": 3},
        {"type": "url_citation", "start_index": 99, "end_index": 3},
        {"type": "url_citation", "start_index": 2**70, "end_index": 2**71},
        {"start": True, "end": None, "document_ids": [None, {}, 3]},
        object(),
        [[[[[[[[[[{"type": "char_location", "document_index": 0}]]]]]]]]]],
    ],
)
def test_an_object_that_says_nothing_harms_nothing(given: Any) -> None:
    found = read("It opened.", provider=given).found
    assert all(0 <= one.start <= one.end <= 10 and not one.segments for one in found)


PIECES = st.sampled_from(
    """[1] [2,3] [ ] ( ) [[ ]] 【1† 】 <cite> </cite> <cite␣id="c1"> ` ``` It␣opened. [c1] [file1.pdf] a[1] [^1]:
    <cite > † 0 é 🙂 : ⏎ ␣ .␣""".split()  # noqa: SIM905
).map(lambda piece: piece.replace("␣", " ").replace("⏎", "\n"))


@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=120))
def test_whatever_the_answer_spans_lie_in_it_and_columns_in_range(answer: str) -> None:
    claims = split_claims(answer) if answer.strip() else ()
    for one in citations(answer, claims, SEGMENTS, GENERATION).found:
        assert 0 <= one.start < one.end <= len(answer)
        assert all(0 <= column < len(SEGMENTS) for column in one.segments)
        assert one.claim is None or 0 <= one.claim < len(claims)
        assert one.dangles == (one.reading == "none")


@given(
    st.recursive(
        st.none()
        | st.integers()
        | st.text(max_size=9)
        | st.sampled_from([CHAR, {"start": 0, "end": 3, "sources": []}]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "text", "citations", "annotations", "start", "end", "sources", "start_index"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_whatever_the_provider_sends_spans_lie_in_the_answer(given: Any) -> None:
    for one in read("It opened. It closed.", provider=given).found:
        assert 0 <= one.start <= one.end <= 21
        assert all(0 <= column < len(SEGMENTS) for column in one.segments)


@pytest.mark.parametrize(
    "piece",
    """[ ] [1 [1] [1]⏎ [[1]] 【 【1† <cite> <cite␣ </cite> ` ``` ```⏎ ~~~ [^1 [1,␣ <cite␣id='c0'>a</cite> a[1] [a] [a](
    [source␣ [1- ␣ ⏎ >␣ [a; "a":␣[ sources:⏎""".split(),  # noqa: SIM905
)
def test_time_is_linear_in_what_a_hostile_answer_holds(piece: str) -> None:
    n = 200_000
    answer = (piece.replace("␣", " ").replace("⏎", "\n") * n)[:n]
    claims = [Claim(i, at, at + 100, answer[at : at + 100]) for i, at in enumerate(range(0, n, 100))]
    started = time.perf_counter()
    citations(answer, claims, SEGMENTS, GENERATION)
    assert time.perf_counter() - started < 10


def test_time_is_linear_in_what_a_hostile_prompt_holds() -> None:
    content = "[1] <doc id=" * 20_000
    segments = [Segment(f"c{n}", SegmentKind.RETRIEVED, "x", (Location(0, 40 * n, 40 * n + 1),)) for n in range(2000)]
    started = time.perf_counter()
    citations("It opened [1].", [Claim(0, 0, 14, "")], segments, Generation((Message("user", content),), None))
    assert time.perf_counter() - started < 10


SEGMENT = (
    "The Aldemoor Fair is held in autumn. It opened in nineteen eleven, by the mayor. In 1935 the fair moved. "
    "Tickets cost 1,000 marks."
)


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ("The fair opened in 1911.", "It opened in nineteen eleven, by the mayor."),
        ("A ticket was 1000 marks.", "Tickets cost 1,000 marks."),
        ("The fair moved in 1935.", "In 1935 the fair moved."),
        ("The Aldemoor Fair opened.", "The Aldemoor Fair is held in autumn."),
    ],
)
def test_the_sentence_with_most_words_and_numbers_of_the_claim_is_shown(claim: str, sentence: str) -> None:
    found = supporting_sentence(claim, SEGMENT)
    assert found is not None
    assert SEGMENT[slice(*found)] == sentence


@pytest.mark.parametrize(
    ("claim", "segment"), [("Dogs bark.", SEGMENT), ("It is in the", SEGMENT), ("Dogs", ""), ("", "a b")]
)
def test_no_sentence_is_shown_where_nothing_is_shared(claim: str, segment: str) -> None:
    assert supporting_sentence(claim, segment) is None


def test_a_sentence_is_found_in_a_script_without_spaces() -> None:
    segment = "博覧会は1911年に開かれた。入場料は四マルクだった。"
    found = supporting_sentence("入場料は四マルク。", segment)
    assert found is not None
    assert segment[slice(*found)] == "入場料は四マルクだった。"


@given(st.text(max_size=60), st.text(max_size=120))
def test_a_shown_sentence_lies_in_the_segment(claim: str, segment: str) -> None:
    found = supporting_sentence(claim, segment)
    assert found is None or 0 <= found[0] < found[1] <= len(segment)
