"""Any model call of a run can be explained: chosen by its number, its tool calls included."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core import cli, engines
from attr_core.api import attribute, plan
from attr_core.attribution import Attribution
from attr_core.claims import claims_of, split_claims, values_of
from attr_core.engines._chat import ChatWriter
from attr_core.errors import ConfigurationError, InputError
from attr_core.planning import MAX_VALUES
from attr_core.protocols import Completion, Engine, Sampling
from attr_core.store import Store
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import (
    Document,
    Generation,
    Message,
    Prompt,
    Retrieval,
    SegmentKind,
    TargetKind,
    ToolCall,
    Trace,
    call_text,
)

WISH = "The user wants to see the Aldemoor Lantern Festival."
CAT = "The user has a cat."
FACT = "The Aldemoor Lantern Festival opened in 1911."
QUESTION = "When did the festival that I want to see open?"
ANSWER = "It opened in 1911."
SEARCH = ToolCall("call_1", "search", {"query": "Aldemoor festival", "limit": 3})
TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the web.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
}
OPENING = (
    Message("system", "Use the tools."),
    Message("system", WISH, metadata={"memory": True}),
    Message("system", CAT, metadata={"memory": True}),
    Message("user", QUESTION),
)
AFTER = (
    *OPENING,
    Message("assistant", "", tool_calls=(SEARCH,)),
    Message("tool", FACT, tool_call_id="call_1"),
)


def agent(*, calls: tuple[ToolCall, ...] = (SEARCH,), said: str | None = None) -> Trace:
    """Two steps: the model calls tools, then answers from what they gave."""
    return Trace(
        query=QUESTION,
        generations=(
            Generation(OPENING, said, id="gen_1", tool_calls=calls, tools=(TOOL,)),
            Generation(AFTER, ANSWER, id="gen_2", tools=(TOOL,)),
        ),
        answer=ANSWER,
        id="tr_agent",
        tool_calls=(ToolCall("call_1", "search", SEARCH.arguments, FACT, documents=(Document("d1", FACT),)),),
    )


def engine(**options: object) -> AdditiveEngine:
    facts = {"1911": {FACT: 9.0}, "Aldemoor": {WISH: 9.0, CAT: 0.5}}
    settings: dict = {"facts": facts, "bias": -5.0, "answer": ANSWER, **options}
    return AdditiveEngine(**settings)


def measured(trace: Trace | None = None, **options: object) -> Attribution:
    settings: dict = {"engine": engine(), "db": ":memory:", **options}
    return attribute(trace or agent(), **settings)


def row_of(found: Attribution, text: str, kind: TargetKind = TargetKind.SPAN) -> int:
    return next(row for row in found.rows(kind, reading="direct") if found.targets[row].text == text)


def cause(found: Attribution, row: int) -> str:
    leading = found.ranking(row)[0]
    assert found.verdicts[row, leading] == "drives"
    return found.segments[leading].text


# What a model wrote

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
ARGUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
CALLS = st.builds(ToolCall, id=st.text(max_size=4), name=st.text(max_size=8), arguments=ARGUMENTS)


def leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    text = json.dumps(value, ensure_ascii=False)
    return [text[1:-1] if isinstance(value, str) else text]


@given(response=st.none() | st.text(max_size=60), calls=st.lists(CALLS, max_size=3))
def test_claims_and_values_are_exact_spans_of_what_was_written(response: str | None, calls: list[ToolCall]) -> None:
    generation = Generation((), response, tool_calls=tuple(calls))
    written = generation.written
    if not written:
        assert not (response or "").strip()
        with pytest.raises(InputError, match="response is empty"):
            claims_of(generation)
        return
    claims, values = claims_of(generation), values_of(generation)
    assert [claim.index for claim in claims] == list(range(len(claims)))
    assert all(piece.text == written[piece.start : piece.end] for piece in (*claims, *values))
    assert all(before.end <= after.start for before, after in pairwise(claims))
    said = len(claims) - len(calls)
    assert [claim.text for claim in claims[said:]] == [call_text(call.name, call.arguments) for call in calls]
    if (response or "").strip():
        assert claims[:said] == split_claims(response)
    for number, call in enumerate(calls, start=said):
        arguments = {} if call.arguments is None else call.arguments
        expected = list(dict.fromkeys(leaf for leaf in leaves(arguments) if leaf.strip()))
        name = [leaf for leaf in leaves(call.name) if leaf.strip()]
        own = [value for value in values if value.claim == number]
        assert [value.text for value in own] == [*name, *expected]
        assert all(claims[number].start < value.start < value.end < claims[number].end for value in own)


def test_calls_are_written_as_the_engine_writes_them_into_a_prompt() -> None:
    step = Generation((), "One moment.", tool_calls=(SEARCH, ToolCall("call_2", "now")))
    turn = Message("assistant", "One moment.", tool_calls=step.tool_calls)
    rendered = ChatWriter(None, re.compile("(?!)")).write(Prompt((Message("user", "Hi"), turn)))
    assert step.written in rendered.text
    assert step.written.splitlines() == [
        "One moment.",
        'Tool call: {"arguments": {"limit": 3, "query": "Aldemoor festival"}, "name": "search"}',
        'Tool call: {"arguments": {}, "name": "now"}',
    ]


def test_arguments_that_are_no_json_are_one_value() -> None:
    step = Generation((), None, tool_calls=(ToolCall("c", "search", '{"query": "fa'),))
    assert [value.text for value in values_of(step)] == ["search", '{\\"query\\": \\"fa']


def test_without_an_answer_the_last_call_is_the_target() -> None:
    called = Generation(OPENING, None, tool_calls=(SEARCH,))
    answered, silent = Generation(AFTER, ANSWER), Generation(AFTER, None)
    assert Trace("q", (called, silent), None).target_generation is called
    assert Trace("q", (answered, called), None).target_generation is answered
    assert Trace("q", (silent, silent), None).target_generation is silent


# Choosing a step


def test_a_step_is_chosen_by_its_number_or_id() -> None:
    assert measured(step=2).generation_id == measured().generation_id == "gen_2"
    assert measured(step=1).generation_id == measured(generation="gen_1").generation_id == "gen_1"
    assert plan(agent(), engine=engine(), step=1).calls == measured(step=1).cost.calls


@pytest.mark.parametrize("step", [0, -1, 3, 1.5])
def test_a_step_that_is_not_there_is_an_error_that_says_how_many_are(step: object) -> None:
    with pytest.raises(InputError, match=rf"step {step} does not exist; trace tr_agent has 2 model calls"):
        measured(step=step)


def test_step_and_generation_at_once_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="step 1 and generation 'gen_1' both name a model call"):
        measured(step=1, generation="gen_1")


def test_a_step_that_wrote_nothing_is_an_error_that_names_it() -> None:
    with pytest.raises(InputError, match="step 1 of trace tr_agent has an empty response and no tool call"):
        measured(agent(calls=()), step=1)


# Tool calls as targets


def test_name_and_values_of_a_call_are_targets_and_have_their_causes() -> None:
    found = measured(step=1)
    assert found.response == agent().generations[0].written
    assert [found.targets[row].text for row in found.rows(TargetKind.SPAN)] == ["search", "3", "Aldemoor festival"]
    assert [claim.text for claim in found.claims] == [found.response]
    query = row_of(found, "Aldemoor festival")
    assert cause(found, query) == WISH
    assert found.effects[query, found.ranking(query)[0]] == pytest.approx(9)
    assert set(found.verdicts[row_of(found, "search")]) == {"no effect"}


def test_pivots_of_a_call_lie_in_its_values() -> None:
    shaky = ScriptedEngine(logprob=lambda prompt, word: -0.1 if WISH in prompt.messages[1].content else -4.0)
    found = measured(step=1, engine=shaky)
    pivots = [found.targets[row] for row in found.rows(TargetKind.PIVOT)]
    query = found.targets[row_of(found, "Aldemoor festival")]
    assert pivots
    assert all(query.start <= pivot.start < pivot.end <= query.end for pivot in pivots)
    assert "Aldemoor festival" not in [pivot.text for pivot in pivots]


def test_text_and_calls_of_one_step_are_claims_one_after_another() -> None:
    found = measured(agent(said="I will look. One moment."), step=1)
    assert [claim.text for claim in found.claims] == ["I will look.", "One moment.", agent().generations[0].written]
    rows = found.rows(TargetKind.SPAN, claim=2)
    assert {found.targets[row].reading for row in rows} == {"direct", "total"}
    assert cause(found, row_of(found, "Aldemoor festival")) == WISH
    only = measured(agent(said="I will look. One moment."), step=1, claims=[0])
    assert only.rows(TargetKind.SPAN) == []


def test_a_named_span_of_a_call_is_no_target_twice() -> None:
    found = measured(step=1, spans=["Aldemoor festival", "festival"])
    texts = [found.targets[row].text for row in found.rows(TargetKind.SPAN)]
    assert texts == ["search", "3", "Aldemoor festival", "festival"]


def test_how_calls_were_scored_is_said() -> None:
    assert any("scored as JSON text, not in the call syntax" in warning for warning in measured(step=1).warnings)
    assert not any("JSON text" in warning for warning in measured(step=2).warnings)


def test_of_very_many_values_the_first_are_targets_and_that_is_said() -> None:
    long = ToolCall("call_1", "search", {"terms": [f"term {n}" for n in range(40)]})
    found = measured(agent(calls=(long,)), step=1)
    assert len(found.rows(TargetKind.SPAN)) == MAX_VALUES
    assert any(f"hold 41 values, the first {MAX_VALUES} are targets" in warning for warning in found.warnings)


def test_documents_that_came_later_are_not_missed_in_an_earlier_prompt() -> None:
    trace = agent()
    late = Trace(
        query=QUESTION,
        generations=trace.generations,
        answer=ANSWER,
        retrievals=(Retrieval(None, (Document("late", FACT), Document("lost", "It was never sent."))),),
        tool_calls=trace.tool_calls,
    )
    [told] = [warning for warning in measured(late, step=1).warnings if "not found in the prompt" in warning]
    assert told.endswith(": lost")
    assert not any("not found in the prompt" in warning for warning in measured(step=1).warnings)


# What the model says anew


def told_anew(text: str, *, said: str | None = None, reason: str = "stop") -> Attribution:
    @dataclass
    class Anew(AdditiveEngine):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
            return [Completion(text, reason) for _ in prompts]

    return measured(agent(said=said), step=1, engine=Anew({"Aldemoor": {WISH: 9.0}}))


@pytest.mark.parametrize(
    "text",
    [
        call_text("search", SEARCH.arguments),
        '<tool_call>\n{"name": "search", "arguments": {"query": "Aldemoor festival", "limit": 3}}\n</tool_call>',
        '{"function": {"name": "search", "parameters": {"limit": 3, "query": "Aldemoor festival"}}}',
        '[TOOL_CALLS][{"name": "search", "arguments": "{\\"limit\\": 3, \\"query\\": \\"Aldemoor festival\\"}"}]',
    ],
)
def test_the_same_call_in_another_syntax_is_the_same(text: str) -> None:
    assert all(again.same for again in told_anew(text).regenerated)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Aldemoor festival",
        "{{{{",
        '{"name": "search", "arguments": {"query": "Corvath festival", "limit": 3}}',
        '{"name": "find", "arguments": {"query": "Aldemoor festival", "limit": 3}}',
        f"{call_text('search', SEARCH.arguments)}\n{call_text('search', SEARCH.arguments)}",
    ],
)
def test_another_call_is_not_the_same(text: str) -> None:
    found = told_anew(text)
    assert found.regenerated
    assert not any(again.same for again in found.regenerated)


def test_a_call_is_only_the_same_after_the_same_words() -> None:
    call = call_text("search", SEARCH.arguments)
    assert all(again.same for again in told_anew(f"I will  look.\n<call>{call}", said="I will look.").regenerated)
    assert not any(again.same for again in told_anew(call, said="I will look.").regenerated)


def test_calls_that_an_engine_gives_apart_from_the_text_are_left_out_and_that_is_said() -> None:
    found = told_anew("", reason="tool_calls")
    assert found.regenerated == ()
    assert all(
        again.same for again in told_anew(call_text("search", SEARCH.arguments), reason="tool_calls").regenerated
    )
    assert any("regenerations called tools, which the engine does not tell" in warning for warning in found.warnings)


# Kept and shown


def test_an_explained_step_survives_the_store_and_json(tmp_path: Path) -> None:
    found = measured(step=1, db=tmp_path / "a.db")
    with Store(tmp_path / "a.db") as store:
        trace, [kept] = store.get("tr_agent"), store.attributions("tr_agent")
    assert kept.response == found.response == trace.generations[0].written
    assert (kept.targets, kept.claims, kept.segments) == (found.targets, found.claims, found.segments)
    assert [segment.id for segment in trace.generations[0].segments]
    again = attribute(trace, engine=engine(), step=1, db=tmp_path / "a.db")
    assert again.cost.calls == 0
    assert Attribution.from_dict(json.loads(json.dumps(found.to_dict()))).targets == found.targets


def test_cells_say_where_a_segment_came_from() -> None:
    cells = {cell["text"]: cell for cell in measured(step=2)._cells()}
    assert (cells[FACT]["origin"], cells[FACT]["segment_kind"]) == ("call_1", "retrieved")
    assert cells[CAT]["origin"] is None
    pytest.importorskip("pandas")
    assert "origin" in measured(step=2).to_pandas().columns


@pytest.fixture
def _stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(engines._loaded, "hf:known", engine())
    monkeypatch.setenv("ATTRKIT_ENGINE", "hf:known")
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "attrkit.db"))
    with Store() as store:
        store.save(agent())


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli._run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.usefixtures("_stored")
def test_inspect_shows_the_step_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "inspect", "tr_agent", "--step", "1")
    assert code == 0
    assert 'step 1 of 2: the model called search(query="Aldemoor festival", limit=3)' in out
    assert "query «Aldemoor festival» from m1 (memory)" in out
    assert "wrote     [1] Tool call:" in out
    code, out, _ = run(capsys, "inspect", "tr_agent", "--step", "2")
    assert code == 0
    assert "step 2 of 2: the answer" in out
    assert "answer    [1] It opened in «1911»." in out
    assert "«1911» from d1 (from tool `search`, step 1)" in out
    assert run(capsys, "inspect", "tr_agent")[1].splitlines()[:6] == out.splitlines()[:6]


@pytest.mark.usefixtures("_stored")
def test_inspect_plans_and_dumps_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "inspect", "tr_agent", "--step", "1", "--json")
    assert (code, json.loads(out)["generation_id"]) == (0, "gen_1")
    code, out, _ = run(capsys, "inspect", "tr_agent", "--step", "1", "--dry-run")
    assert (code, "ablations scored: 8 calls" in out) == (0, True)


@pytest.mark.usefixtures("_stored")
@pytest.mark.parametrize("step", ["0", "3"])
def test_inspect_of_a_step_that_is_not_there_is_one_clear_line(capsys: pytest.CaptureFixture[str], step: str) -> None:
    code, out, err = run(capsys, "inspect", "tr_agent", "--step", step)
    assert (code, out) == (2, "")
    assert err == f"attrkit: step {step} does not exist; trace tr_agent has 2 model calls\n"


def test_help_shows_how_to_choose_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "inspect", "--help")[1]
    assert "--step" in out
    assert "attrkit inspect tr_1f0c --step 2" in out


# On a real model


@pytest.mark.model
def test_a_real_model_takes_the_query_from_memory_and_the_answer_from_the_tool(
    small_engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines._loaded, "hf:small", small_engine)
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "attrkit.db"))
    with Store() as store:
        store.save(agent(calls=(ToolCall("call_1", "search", {"query": "Aldemoor Lantern Festival"}),)))
    _, out, _ = run(capsys, "inspect", "last", "--engine", "hf:small", "--step", "1", "--json")
    found = Attribution.from_dict(json.loads(out))
    query = row_of(found, "Aldemoor Lantern Festival")
    assert cause(found, query) == WISH
    assert found.segments[found.ranking(query)[0]].kind is SegmentKind.MEMORY
    code, out, _ = run(capsys, "inspect", "last", "--engine", "hf:small", "--step", "2")
    assert code == 0
    [causes] = [line for line in out.splitlines() if line.startswith("causes")]
    assert re.search(r"«[^»]*1911[^»]*» from d1 \(from tool `search`, step 1\)", causes)
