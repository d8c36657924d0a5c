"""Traces that other tools exported become ours: what they hold, what is said to be missing, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from attr_core import diagnose
from attr_core.cli import _import
from attr_core.errors import ConfigurationError, InputError
from attr_core.evaluation.planted import PerfectJudge, WorldModel
from attr_core.importing import Imported, read_traces
from attr_core.importing.openinference import nested
from attr_core.importing.steps import moment
from attr_core.segmenter import segment_trace
from attr_core.store import Store
from attr_core.types import SegmentKind, Trace

DATA = Path(__file__).parent / "data"
FILES = ("openinference_otlp.json", "phoenix_spans.jsonl", "langsmith_runs.jsonl", "langfuse_observations.json")
QUESTION = "When did the Lorwyn Copper Mill open?"
ANSWER = "The Lorwyn Copper Mill opened in 1979."
TEXTS = (
    "The Lorwyn Copper Mill opened in 1911.",
    "A museum guide says that the Lorwyn Copper Mill opened in 1979.",
)


def first_of(name: str) -> Trace:
    return read_traces(DATA / name).found[0].trace


def written(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "export.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def span(**attributes: object) -> dict[str, object]:
    """A span of one model call as the SDK's console exporter writes it."""
    return {
        "name": "llm",
        "context": {"trace_id": "0x01", "span_id": "0x0a"},
        "parent_id": None,
        "start_time": "2026-12-01T10:00:00.000000Z",
        "attributes": {"openinference.span.kind": "LLM", **attributes},
    }


def chat(content: str = "Hi", answer: str = "Hello.") -> dict[str, object]:
    return {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": content,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
    }


@pytest.mark.parametrize("name", FILES)
def test_question_prompt_documents_and_answer_of_a_recorded_run_are_read(name: str) -> None:
    trace = first_of(name)
    target = trace.target_generation
    assert (trace.query, trace.answer, target.response) == (QUESTION, ANSWER, ANSWER)
    assert [message.role for message in target.messages] == ["system", "user"]
    assert tuple(document.text for document in trace.documents) == TEXTS
    assert trace.started is not None
    assert trace.started.isoformat().startswith(("2025-12-01T10:00:00", "2026-12-01T10:00:00"))
    assert trace.started.tzinfo is not None
    assert trace.framework in ("openinference", "langsmith", "langfuse")


@pytest.mark.parametrize("name", FILES)
def test_the_documents_of_an_imported_run_are_found_in_its_prompt(name: str) -> None:
    segments = segment_trace(first_of(name)).segments
    assert tuple(one.text for one in segments if one.kind is SegmentKind.RETRIEVED) == TEXTS


@pytest.mark.parametrize("name", FILES)
def test_an_imported_run_can_be_diagnosed(name: str) -> None:
    trace, model = first_of(name), WorldModel()
    found = diagnose(trace, expected=TEXTS[0], judge=PerfectJudge(), engine=model, strategy="support", db=":memory:")
    assert found.outcome == "wrong"
    assert found.trace_id == trace.id


@pytest.mark.parametrize("name", FILES)
def test_the_same_file_gives_the_same_traces_ids_included(name: str) -> None:
    assert read_traces(DATA / name) == read_traces(DATA / name)


@pytest.mark.parametrize("name", FILES)
def test_an_imported_run_is_stored_as_it_is(name: str) -> None:
    with Store(":memory:") as store:
        for one in read_traces(DATA / name).found:
            store.save(one.trace)
            assert store.get(one.trace.id) == one.trace


@pytest.mark.parametrize("name", FILES)
def test_no_key_of_a_provider_is_imported(name: str) -> None:
    assert "sk-not-to-be-kept" not in repr(read_traces(DATA / name))


def test_scores_metadata_and_counts_of_tokens_are_kept() -> None:
    trace = first_of("openinference_otlp.json")
    assert [(one.id, one.score, one.metadata) for one in trace.documents] == [
        ("d1", 0.91, {"source": "archive-1.md"}),
        ("d2", 0.88, {}),
    ]
    assert trace.target_generation.usage == {"prompt_tokens": 61, "completion_tokens": 9}
    assert trace.target_generation.parameters == {"temperature": 0.2, "max_tokens": 64}
    assert trace.session_id == "s-7"


def test_documents_in_one_json_text_are_read() -> None:
    assert [one.id for one in first_of("phoenix_spans.jsonl").documents] == ["d1", "d2"]


def test_a_retriever_that_is_recorded_as_a_tool_is_a_retrieval_and_that_is_told() -> None:
    second = read_traces(DATA / "phoenix_spans.jsonl").found[1]
    assert tuple(one.text for one in second.trace.documents) == TEXTS
    assert second.trace.tool_calls == ()
    assert any("recorded as a tool" in note for note in second.notes)


def test_a_tool_call_keeps_its_arguments_output_and_id() -> None:
    (call,) = first_of("langsmith_runs.jsonl").tool_calls
    assert (call.name, call.arguments, call.output, call.id) == (
        "lookup",
        {"entity": "Lorwyn Copper Mill"},
        "no entry",
        "call_1",
    )


def test_one_bad_trace_is_told_and_the_others_are_imported() -> None:
    imported = read_traces(DATA / "langsmith_runs.jsonl")
    assert len(imported.found) == 2
    ((name, why),) = imported.failed
    assert name.endswith("0f84")
    assert "no role or no text" in why


def test_a_line_that_is_no_json_is_told_by_its_number(tmp_path: Path) -> None:
    lines = (DATA / "langsmith_runs.jsonl").read_text().splitlines()
    imported = read_traces(written(tmp_path, "\n".join([*lines[:4], '{"id": "cut', *lines[5:]])))
    assert ("line 5", "it is not JSON") in imported.failed
    assert len(imported.found) == 2


def test_what_a_record_lacks_is_told_and_not_made_up(tmp_path: Path) -> None:
    (only,) = read_traces(written(tmp_path, [span(**chat())])).found
    target = only.trace.target_generation
    assert (only.trace.query, target.model, dict(target.parameters), only.trace.retrievals) == (None, None, {}, ())
    told = " | ".join(only.notes)
    for lacking in ("the model that answered", "the temperature", "the question", "no retrieval"):
        assert lacking in told
    assert only.trace.metadata["imported"] == {"from": "openinference", "notes": list(only.notes)}


def test_hidden_prompts_are_refused(tmp_path: Path) -> None:
    ((_, why),) = read_traces(written(tmp_path, [span(**chat("__REDACTED__"))])).failed
    assert "hidden" in why


def test_an_earlier_call_is_not_taken_for_the_one_that_answered(tmp_path: Path) -> None:
    hidden = {**span(**chat("__REDACTED__")), "context": {"trace_id": "0x01", "span_id": "0x0b"}}
    hidden["start_time"] = "2026-12-01T10:00:09Z"
    ((_, why),) = read_traces(written(tmp_path, [span(**chat()), hidden])).failed
    assert "of the model call that answered" in why


def test_a_hidden_answer_is_none_and_that_is_told(tmp_path: Path) -> None:
    (only,) = read_traces(written(tmp_path, [span(**chat(answer="__REDACTED__"))])).found
    assert only.trace.answer is None
    assert any("no answer of a model" in note for note in only.notes)


def test_a_file_of_no_known_format_names_the_keys_that_it_holds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the keys seen are prompt, completion; known are OpenInference"):
        read_traces(written(tmp_path, [{"prompt": "Hi", "completion": "Hello."}]))


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "is empty"), ("no json", "is not JSON"), ("[1, 2]", "are no objects"), ("a\nb", "holds no JSON")],
)
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_traces(written(tmp_path, text))


def test_a_missing_file_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_traces(tmp_path / "none.json")
    with pytest.raises(ConfigurationError, match="openinference, langsmith, langfuse"):
        read_traces(DATA / FILES[0], format="weave")


def test_bytes_that_are_no_text_and_deep_nesting_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_traces(path)
    with pytest.raises(InputError, match=r"nested too deeply|not JSON"):
        read_traces(written(tmp_path, "[" * 200_000))


def test_the_order_of_spans_in_a_file_does_not_matter(tmp_path: Path) -> None:
    lines = (DATA / "langsmith_runs.jsonl").read_text().splitlines()[:4]
    there = read_traces(written(tmp_path, "\n".join(lines))).found
    back = read_traces(written(tmp_path, "\n".join(reversed(lines)))).found
    assert there == back


def test_child_runs_that_stand_inside_their_parents_are_read(tmp_path: Path) -> None:
    runs = [json.loads(line) for line in (DATA / "langsmith_runs.jsonl").read_text().splitlines()[:4]]
    root = {**runs[0], "child_runs": [{k: v for k, v in run.items() if k != "parent_run_id"} for run in runs[1:]]}
    assert read_traces(written(tmp_path, root)).found[0].trace == first_of("langsmith_runs.jsonl")


def test_langfuse_exports_in_snake_case_with_inputs_as_texts_are_read(tmp_path: Path) -> None:
    page = json.loads((DATA / "langfuse_observations.json").read_text())
    names = {"traceId": "trace_id", "startTime": "start_time", "endTime": "end_time"}
    names |= {"parentObservationId": "parent_observation_id", "modelParameters": "model_parameters"}
    rows = [
        {
            names.get(key, key): json.dumps(value) if isinstance(value, dict | list) else value
            for key, value in one.items()
        }
        for one in page["data"]
    ]
    lines = "\n".join(map(json.dumps, rows))
    again, before = read_traces(written(tmp_path, lines)).found[0].trace, first_of("langfuse_observations.json")
    assert (again.id, again.query, again.documents) == (before.id, before.query, before.documents)
    assert again.target_generation.messages == before.target_generation.messages


def test_a_langfuse_trace_with_its_observations_gives_question_answer_and_session(tmp_path: Path) -> None:
    page = json.loads((DATA / "langfuse_observations.json").read_text())
    whole = {"id": "t-1", "input": "Asked?", "output": "Said.", "sessionId": "s-1", "tags": ["a"]}
    (one,) = read_traces(written(tmp_path, {**whole, "observations": page["data"]})).found
    assert (one.trace.query, one.trace.answer, one.trace.session_id, one.trace.tags) == (
        "Asked?",
        "Said.",
        "s-1",
        ("a",),
    )
    assert one.trace.id == first_of("langfuse_observations.json").id


def test_opentelemetrys_own_conventions_are_read_where_openinference_says_nothing(tmp_path: Path) -> None:
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "example-model",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Hello."}]}]),
    }
    record = {**span(), "attributes": said}
    (one,) = read_traces(written(tmp_path, [record])).found
    target = one.trace.target_generation
    assert [(message.role, message.content) for message in target.messages] == [("system", "Be brief."), ("user", "Hi")]
    assert (target.response, target.model, target.parameters["temperature"]) == ("Hello.", "example-model", 0.5)


def test_tool_calls_of_a_model_are_read_and_tied_to_what_ran(tmp_path: Path) -> None:
    asked = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Hi",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "lookup",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"q": "mill"}',
    }
    ran = {**span(), "context": {"trace_id": "0x01", "span_id": "0x0b"}, "parent_id": "0x0a"}
    ran["attributes"] = {
        "openinference.span.kind": "TOOL",
        "tool.name": "lookup",
        "tool_call.id": "c1",
        "output.value": "1911",
    }
    (one,) = read_traces(written(tmp_path, [span(**asked), ran])).found
    generation, (call,) = one.trace.generations[0], one.trace.tool_calls
    assert [(c.id, c.name, c.arguments) for c in generation.tool_calls] == [("c1", "lookup", {"q": "mill"})]
    assert (call.output, call.generation_id) == ("1911", generation.id)


def test_what_a_reranker_hands_on_is_not_retrieved_twice(tmp_path: Path) -> None:
    def held(number: int, kind: str, name: str) -> dict[str, object]:
        documents = {f"{name}.0.document.id": "d1", f"{name}.0.document.content": "A fact."}
        made = {**span(), "context": {"trace_id": "0x01", "span_id": f"0x{number}"}, "parent_id": "0x0a"}
        return made | {"attributes": {"openinference.span.kind": kind, **documents}}

    both = [held(2, "RETRIEVER", "retrieval.documents"), held(3, "RERANKER", "reranker.output_documents")]
    (one,) = read_traces(written(tmp_path, [span(**chat()), *both])).found
    assert [document.id for document in one.trace.documents] == ["d1"]


def test_documents_of_several_retrievals_never_share_an_id(tmp_path: Path) -> None:
    def held(number: int, text: str) -> dict[str, object]:
        made = {**span(), "context": {"trace_id": "0x01", "span_id": f"0x{number}"}, "parent_id": "0x0a"}
        output = json.dumps([{"page_content": text, "metadata": {}}])
        return made | {"attributes": {"openinference.span.kind": "RETRIEVER", "output.value": output}}

    (one,) = read_traces(written(tmp_path, [span(**chat()), held(2, "A fact."), held(3, "Another.")])).found
    assert [(document.id, document.text) for document in one.trace.documents] == [
        ("doc1", "A fact."),
        ("doc1#2", "Another."),
    ]


def test_a_failed_run_keeps_its_error(tmp_path: Path) -> None:
    failed = {**span(**chat()), "status": {"status_code": "ERROR", "description": "rate limit"}}
    (one,) = read_traces(written(tmp_path, [failed])).found
    assert (one.trace.status, one.trace.error) == ("error", "rate limit")


@pytest.mark.parametrize(
    ("value", "year"),
    [
        ("2026-12-01T10:00:00Z", 2026),
        ("2026-12-01 10:00:00.963000", 2026),
        (1_764_583_200, 2025),
        ("1764583200000", 2025),
        (1_764_583_200_000_000_000, 2025),
        ("soon", None),
        (True, None),
        (float("inf"), None),
        (None, None),
    ],
)
def test_times_are_read_in_every_unit_that_tools_write(value: object, year: int | None) -> None:
    found = moment(value)
    assert (found and found.year) == year


def test_flattened_names_become_a_tree_in_the_order_of_their_numbers() -> None:
    assert nested({f"a.{n}.b": n for n in (10, 2, 0)}) == {"a": [{"b": 0}, {"b": 2}, {"b": 10}]}
    assert nested({"a": "text", "a.b": 1}) == {"a": {"b": 1}}


KEYS = st.sampled_from(
    [
        *("id", "traceId", "trace_id", "type", "run_type", "inputs", "outputs", "attributes", "context", "spanId"),
        *("output", "messages", "role", "content", "documents", "resourceSpans", "scopeSpans", "spans", "observations"),
        *("key", "value", "llm.input_messages.0.message.role", "llm.input_messages", "openinference.span.kind", "data"),
        *("child_runs", "parent_run_id", "kwargs", "tool_calls", "extra", "name", "startTime", "generations", "parts"),
        *("input", "input.value", "output.value", "span_kind", "message", "parent_id"),
    ]
)
LEAVES = st.sampled_from([None, "", "llm", "LLM", "GENERATION", "user", "RETRIEVER", "[{}]", '{"a": 1}', 7, 0.5, True])
ODD = st.recursive(
    LEAVES | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def odd_store() -> Iterator[Store]:
    with Store(":memory:") as store:
        yield store


@settings(max_examples=40)
@given(records=st.lists(st.dictionaries(KEYS, ODD, max_size=6), min_size=1, max_size=3))
def test_whatever_an_export_holds_it_is_read_or_refused(
    records: list[dict[str, object]], odd_store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.json"
    path.write_text(json.dumps(records))
    for name in (None, "openinference", "langsmith", "langfuse"):
        try:
            found = read_traces(path, format=name)
        except InputError:
            continue
        assert isinstance(found, Imported)
        for one in found.found:
            odd_store.save(one.trace)


def test_the_command_stores_what_it_reads_and_says_what_it_could_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = tmp_path / "a.db"
    for _ in range(2):  # again writes the same again
        with pytest.raises(typer.Exit) as stopped:
            _import.import_(DATA / "langsmith_runs.jsonl", db=db)
        assert stopped.value.exit_code == 1
    out = capsys.readouterr().out
    assert "2 traces imported from langsmith" in out
    assert "not read: trace 809ed3a2" in out
    assert "note: the temperature was not recorded" in out
    with Store(db) as store:
        assert {one.id for one in store.list()} == {
            one.trace.id for one in read_traces(DATA / "langsmith_runs.jsonl").found
        }


def test_importing_again_keeps_the_expected_answer_that_was_given_since(tmp_path: Path) -> None:
    db, trace = tmp_path / "a.db", first_of("langfuse_observations.json")
    _import.import_(DATA / "langfuse_observations.json", db=db)
    with Store(db) as store:
        store.save(replace(trace, reference="In 1911."))
    _import.import_(DATA / "langfuse_observations.json", db=db)
    with Store(db) as store:
        assert store.get(trace.id) == replace(trace, reference="In 1911.")


def test_a_dry_run_stores_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _import.import_(DATA / "openinference_otlp.json", dry_run=True, json_=True, db=tmp_path / "a.db")
    assert json.loads(capsys.readouterr().out)["format"] == "openinference"
    assert not (tmp_path / "a.db").exists()


def test_what_a_record_says_is_printed_as_inert_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = span(**chat(), **{"input.value": "x"}) | {"name": "\x1b[31m"}
    root = {**span(), "context": {"trace_id": "0x01", "span_id": "0x09"}}
    root["attributes"] = {"openinference.span.kind": "CHAIN", "input.value": "\x1b[31mWhen\u202e?"}
    _import.import_(written(tmp_path, [root, {**record, "parent_id": "0x09"}]), db=tmp_path / "a.db")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
