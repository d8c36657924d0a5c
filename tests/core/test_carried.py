"""What drove an answer by way of earlier model calls is told as paths, each end by its own verdict."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from attr_core.api import attribute
from attr_core.attribution import Attribution
from attr_core.carried import carried
from attr_core.reports.terminal import render_attribution
from attr_core.segmenter import segment_trace
from attr_core.testing import AdditiveEngine
from attr_core.types import Document, Generation, Message, Retrieval, SegmentKind, ToolCall, Trace

QUESTION = "When did the fair of Aldemoor open?"
OPENED = "The fair of Aldemoor opened in 1911."
PARADE = "The parade of Corvath opened in 1937."
HILL = "The fair stands on the hill."
FIRST = "It opened in 1911."
LAST = "It opened in 1911, on the hill."

REFINE = (
    "The original query is as follows: {query}\nWe have provided an existing answer: {draft}\n"
    "We have the opportunity to refine the existing answer with some more context below.\n------------\n{context}\n"
    "------------\nGiven the new context, refine the original answer to better answer the query."
)
ENGINE = AdditiveEngine({"1911": {OPENED: 9.0, FIRST: 9.0}, "hill": {HILL: 9.0}}, bias=-5.0, answer=LAST)


def asked(context: str) -> Message:
    return Message("user", f"Context information is below.\n-----\n{context}\n-----\nQuery: {QUESTION}\nAnswer: ")


def refined(*, draft: str = FIRST, context: str = HILL) -> Message:
    return Message("user", REFINE.format(query=QUESTION, draft=draft, context=context))


def run(*generations: Generation, calls: tuple[ToolCall, ...] = ()) -> Trace:
    documents = tuple(Document(name, text) for name, text in (("c1", OPENED), ("c2", PARADE), ("c3", HILL)))
    return Trace(
        QUESTION,
        generations,
        generations[-1].response,
        id="tr_refined",
        retrievals=(Retrieval(QUESTION, documents),),
        tool_calls=calls,
    )


def refining() -> Trace:
    return run(
        Generation((asked(f"{OPENED}\n\n{PARADE}"),), FIRST, id="gen_1"),
        Generation((refined(),), LAST, id="gen_2"),
    )


def measured(trace: Trace, step: int) -> Attribution:
    return attribute(trace, step=step, engine=ENGINE, db=":memory:", regenerations=False)


def told(trace: Trace, others: list[Attribution], step: int = 2) -> set[tuple[str, str, tuple[int, ...], str | None]]:
    found = measured(trace, step)
    return {
        (found.targets[way.target].text, found.segments[way.column].id, way.steps, way.segment and way.segment.id)
        for way in carried(found, trace, others)
    }


def test_an_answer_to_be_refined_is_a_segment_that_can_be_removed() -> None:
    trace = refining()
    piece = next(one for one in segment_trace(trace, trace.generations[1]).segments if one.id == "step1")
    assert (piece.text, piece.kind, piece.origin) == (FIRST, SegmentKind.ASSISTANT_TURN, "gen_1")
    assert not piece.fixed
    assert piece.documents == ()


def test_what_is_left_around_it_is_still_an_instruction() -> None:
    trace = refining()
    segments = segment_trace(trace, trace.generations[1]).segments
    around = [one for one in segments if one.text.startswith(("We have provided", "Given the new context"))]
    assert len(around) == 2
    assert all(one.fixed for one in around)


def test_answers_to_be_summed_up_are_a_segment_each() -> None:
    other = "The parade of Corvath is another one."
    context = f"{FIRST}\n\n{other}"
    trace = run(
        Generation((asked(OPENED),), FIRST, id="gen_1"),
        Generation((asked(PARADE),), other, id="gen_2"),
        Generation((asked(context),), LAST, id="gen_3", rendered={"context": [context]}),
    )
    origins = {one.text: one.origin for one in segment_trace(trace, trace.generations[2]).segments if one.origin}
    assert origins == {FIRST: "gen_1", other: "gen_2"}


@pytest.mark.parametrize("named", [True, False])
def test_a_short_answer_is_cut_out_only_where_the_template_was_given_it(named: bool) -> None:
    rendered = {"arguments": {"existing_answer": "In 1911."}} if named else {}
    trace = run(
        Generation((asked(OPENED),), "In 1911.", id="gen_1"),
        Generation((refined(draft="In 1911."),), LAST, id="gen_2", rendered=rendered),
    )
    pieces = [one for one in segment_trace(trace, trace.generations[1]).segments if one.text == "In 1911."]
    assert bool(pieces) is named


def test_a_question_that_a_model_wrote_stays_the_question() -> None:
    question = "When did the fair of Aldemoor, on the hill, open?"
    last = Message("user", f"Context:\n{OPENED}\n\nQuery: {question}\nAnswer: ")
    trace = run(
        Generation((Message("user", "Rewrite: and when did it open?"),), question, id="gen_1"),
        Generation((last,), FIRST, id="gen_2", rendered={"arguments": {"query_str": question}}),
    )
    (piece,) = (one for one in segment_trace(trace, trace.generations[1]).segments if one.text == question)
    assert piece.fixed


def test_an_answer_that_stands_in_a_document_is_the_documents() -> None:
    trace = run(
        Generation((asked(PARADE),), OPENED, id="gen_1"),
        Generation((refined(draft="Nothing yet is known.", context=OPENED),), LAST, id="gen_2"),
    )
    (piece,) = (one for one in segment_trace(trace, trace.generations[1]).segments if one.text == OPENED)
    assert (piece.id, piece.kind) == ("c1", SegmentKind.RETRIEVED)


def test_a_node_of_an_earlier_prompt_reaches_the_answer_by_way_of_its_step() -> None:
    trace = refining()
    ways = told(trace, [measured(trace, 1)])
    assert ("1911", "step1", (1,), "c1") in ways
    assert not [way for way in ways if way[3] == "c2" or way[0] == "hill"]


def test_a_step_that_is_not_attributed_is_said_not_guessed() -> None:
    found = measured(refining(), 2)
    ways = carried(found, refining(), [])
    assert ways
    assert all(way.segment is None and not way.is_known for way in ways)


def test_a_text_that_nothing_drives_is_said() -> None:
    trace = refining()
    nothing = AdditiveEngine({"1911": {PARADE: 0.1}}, bias=5.0, answer=FIRST)
    first = attribute(trace, step=1, engine=nothing, db=":memory:", regenerations=False)
    ways = carried(measured(trace, 2), trace, [first])
    assert ways
    assert all(way.segment is None and way.is_known for way in ways)


def test_a_way_may_pass_several_steps() -> None:
    trace = run(
        Generation((asked(OPENED),), FIRST, id="gen_1"),
        Generation((refined(context=PARADE),), LAST, id="gen_2"),
        Generation((refined(draft=LAST, context=HILL),), f"{LAST} So 1911.", id="gen_3"),
    )
    engine = AdditiveEngine({"1911": {OPENED: 9.0, FIRST: 9.0, LAST: 9.0}}, bias=-5.0, answer=LAST)
    first, second, last = (
        attribute(trace, step=step, engine=engine, db=":memory:", regenerations=False) for step in (1, 2, 3)
    )
    found = carried(last, trace, [first, second])
    assert {(way.steps, way.segment and way.segment.id) for way in found} == {((2, 1), "c1")}


def test_a_tools_output_that_a_model_wrote_leads_to_that_model() -> None:
    call = ToolCall("t1", "kb", {"input": QUESTION}, FIRST)
    trace = run(
        Generation((Message("user", QUESTION),), None, id="gen_1", tool_calls=(ToolCall("t1", "kb"),)),
        Generation((asked(f"{OPENED}\n\n{PARADE}"),), FIRST, id="gen_2"),
        Generation((Message("user", QUESTION), Message("tool", FIRST, tool_call_id="t1")), LAST, id="gen_3"),
        calls=(call,),
    )
    ways = told(trace, [measured(trace, 2)], step=3)
    assert {(steps, segment) for _, _, steps, segment in ways} == {((2,), "c1")}


def test_other_traces_and_unknown_generations_lead_nowhere() -> None:
    trace = refining()
    found, first = measured(trace, 2), measured(trace, 1)
    assert carried(found, trace, [replace(first, trace_id="tr_other")]) == carried(found, trace, [])
    assert carried(replace(found, generation_id="gen_none"), trace, [first]) == ()


def test_the_terminal_says_it_below_the_segments() -> None:
    trace = refining()
    out = io.StringIO()
    console = Console(file=out, width=120)
    console.print(render_attribution(measured(trace, 2), trace, others=[measured(trace, 1)]))
    assert "step1 was written in step 1, where c1 drives it" in out.getvalue()
    out.truncate(0)
    console.print(render_attribution(measured(trace, 2), trace))
    assert "attrkit inspect tr_refined --step 1" in out.getvalue()


def test_a_chunk_that_is_named_by_a_uuid_is_shown_by_its_first_part_and_its_source() -> None:
    name = "9ff5e2cd-a509-4880-b5a5-a25051d1a62c"
    document = Document(name, OPENED, metadata={"ref_doc_id": "fairs.md"})
    trace = replace(
        run(Generation((asked(OPENED),), FIRST, id="gen_1")), retrievals=(Retrieval(QUESTION, (document,)),)
    )
    out = io.StringIO()
    Console(file=out, width=120).print(render_attribution(measured(trace, 1), trace))
    assert "from 9ff5e2cd" in out.getvalue()
    assert "9ff5e2cd (fairs.md)" in out.getvalue()
    assert name not in out.getvalue()


@pytest.mark.parametrize("draft", [OPENED, f"As the source says: {OPENED} So 1911."])
def test_a_draft_that_repeats_a_document_is_still_the_draft(draft: str) -> None:
    rendered = {"arguments": {"existing_answer": draft}, "context": [HILL]}
    trace = run(
        Generation((asked(OPENED),), draft, id="gen_1"),
        Generation((refined(draft=draft),), LAST, id="gen_2", rendered=rendered),
    )
    segments = segment_trace(trace, trace.generations[1]).segments
    assert [(one.id, one.origin) for one in segments if OPENED in one.text] == [("step1", "gen_1")]
    assert [one.id for one in segments if one.documents] == ["c3"]


def test_a_document_that_is_given_again_beside_its_repetition_is_removed_with_it() -> None:
    rendered = {"arguments": {"existing_answer": OPENED}, "context": [OPENED]}
    trace = run(
        Generation((asked(OPENED),), OPENED, id="gen_1"),
        Generation((refined(draft=OPENED, context=OPENED),), LAST, id="gen_2", rendered=rendered),
    )
    (piece,) = (one for one in segment_trace(trace, trace.generations[1]).segments if one.text == OPENED)
    assert (piece.id, len(piece.locations)) == ("c1", 2)
