"""Rows of evaluation sets: field names of several tools, several kinds of file, and what is refused, where."""

from __future__ import annotations

import json
import math

import pytest
from evaluation_parts import rows
from hypothesis import given, settings
from hypothesis import strategies as st

from attr_core.errors import ConfigurationError, DatasetError
from attr_core.evaluation.fields import CONVENTIONS, map_fields, parse_choices
from attr_core.evaluation.planted import PerfectJudge, planted
from attr_core.evaluation.planted.records import to_dict
from attr_core.evaluation.readers import listed
from attr_core.evaluation.rows import Row, read_rows
from attr_core.evaluation.runner import Evaluation

NAMES = {
    "attrkit": ("query", "answer", "contexts", "expected_answer"),
    "raglens": ("query", "answer", "chunks", "reference"),
    "ragas": ("user_input", "response", "retrieved_contexts", "reference"),
    "ragas 0.1": ("question", "answer", "contexts", "ground_truth"),
    "DeepEval": ("input", "actual_output", "retrieval_context", "expected_output"),
    "RAGChecker": ("query", "response", "retrieved_context", "gt_answer"),
    "Haystack": ("questions", "predicted_answers", "contexts", "ground_truth_answers"),
    "Phoenix": ("input", "output", "context", "expected_answer"),
    "Azure": ("query", "response", "context", "ground_truth"),
}
SAMPLES = planted(("ok", "chunk_dominance", "misreading"), per_label=1)


def named(tool: str) -> list[dict[str, object]]:
    """The same three rows, as that tool names their fields."""
    query, answer, contexts, expected = NAMES[tool]
    found = []
    for sample in SAMPLES:
        texts: list[object] = [one.text for one in sample.trace.documents]
        if tool == "RAGChecker":
            texts = [{"doc_id": None, "text": text} for text in texts]
        found.append(
            {query: sample.trace.query, answer: sample.trace.answer, contexts: texts, expected: sample.expected}
        )
    return found


def results(dataset: object) -> list[dict[str, object]]:
    run = Evaluation(None, dataset, judge=PerfectJudge(), db=":memory:").run()
    found = [row.to_dict() for row in run.rows]
    for row in found:
        row.pop("trace_id")
        row.pop("seconds")
    return found


@pytest.fixture(scope="module")
def ours() -> list[dict[str, object]]:
    return results(named("attrkit"))


@pytest.mark.parametrize("tool", [tool for tool in NAMES if tool != "attrkit"])
def test_the_same_rows_in_another_tools_names_give_the_same_results(tool, ours) -> None:
    assert read_rows(named(tool)).fields.tool == tool
    assert results(named(tool)) == ours
    assert [row["status"] for row in ours] == ["done"] * 3


def test_how_the_fields_were_read_is_told_where_the_names_are_not_our_own() -> None:
    assert read_rows(named("ragas")).note == (
        "read as ragas rows: user_input -> query, response -> answer, retrieved_contexts -> contexts, "
        "reference -> expected_answer"
    )
    assert read_rows(named("attrkit")).note is None


def test_mlflow_rows_are_read_out_of_their_nested_fields() -> None:
    row = {"inputs": {"question": "When?"}, "outputs": {"response": "1911"}, "expectations": {"expected_response": "x"}}
    [found] = read_rows([row]).rows
    assert (found.query, found.answer, found.expected_answer, found.trouble) == ("When?", "1911", "x", "")


def test_ids_of_contexts_and_of_expected_chunks_are_ragas_own() -> None:
    row = {
        "user_input": "When?",
        "retrieved_contexts": ["In 1911.", "In 1979."],
        "retrieved_context_ids": ["c1", 2],
        "reference_context_ids": ["c1"],
    }
    [found] = read_rows([row]).rows
    assert [one.id for one in found.contexts] == ["c1", "2"]
    assert found.expected_chunks == ("c1",)


def test_a_context_without_an_id_has_the_same_one_in_every_row() -> None:
    found = read_rows([{"query": "a", "contexts": ["x", "y"]}, {"query": "b", "contexts": ["y"]}]).rows
    assert found[0].contexts[1].id == found[1].contexts[0].id != found[0].contexts[0].id


def test_a_context_field_that_is_not_known_is_an_error_that_names_the_fields_and_the_remedy() -> None:
    with pytest.raises(DatasetError) as raised:
        read_rows([{"query": "a", "answer": "b", "my_passages": ["c"]}])
    told = str(raised.value)
    assert "'my_passages', which may be the context and is not known" in told
    assert "its fields are query, answer, my_passages" in told
    assert "--field contexts=my_passages" in told


def test_what_is_named_by_the_option_is_taken(tmp_path) -> None:
    rows_ = [{"Frage": "a", "answer": "b", "my_passages": ["c"]}]
    found = read_rows(rows_, fields=["query=Frage", "contexts=my_passages"]).rows[0]
    assert (found.query, found.contexts[0].text) == ("a", "c")
    kept = read_rows(rows_, fields=["query=Frage", "metadata=my_passages"]).rows[0]
    assert (kept.contexts, kept.metadata) == (None, {"my_passages": ["c"]})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"query": "a", "question": "b"}, "'query' and 'question', which are both query"),
        ({"question": "a", "ground_truth": "b", "ground_truths": ["b"]}, "which are both expected_answer"),
        ({"input": "a", "context": ["b"]}, "'context', which tools use in several ways"),
        ({"input": "a", "output": "b", "reference": "c"}, "--field contexts=reference or --field expected_answer=ref"),
        ({"answer": "a"}, "no question; its fields are answer; say which one by --field query=NAME"),
    ],
)
def test_what_is_not_clear_is_refused_with_the_fields_and_the_option(row, said) -> None:
    with pytest.raises(DatasetError) as raised:
        read_rows([row])
    assert said.replace("reference or --field expected_answer=ref", "") in str(raised.value) or said in str(
        raised.value
    )
    assert "--field" in str(raised.value)


def test_names_of_several_tools_are_read_where_each_means_one_thing() -> None:
    found = read_rows([{"question": "a", "actual_output": "b", "gt_answer": "c", "colour": "red"}])
    assert found.fields.tool == "several tools'"
    assert (found.rows[0].answer, found.rows[0].expected_answer, found.rows[0].metadata) == (
        "b",
        "c",
        {"colour": "red"},
    )


@pytest.mark.parametrize("choice", ["query", "query=", "=x", "colour=x"])
def test_an_option_that_settles_nothing_is_refused(choice) -> None:
    with pytest.raises(ConfigurationError, match="is not FIELD=COLUMN"):
        parse_choices([choice])


def test_jsonl_may_have_a_byte_order_mark_blank_lines_and_line_separators_in_texts(tmp_path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('\ufeff{"query": "one\u2028two"}\r\n\n  \n{"query": "three"}\n', encoding="utf-8")
    assert [row.query for row in read_rows(file).rows] == ["one\u2028two", "three"]


@pytest.mark.parametrize(
    ("line", "said"),
    [("5", "a number, no row"), ('["a"]', "a list, no row"), ("null", "null, no row"), ("{", "is not JSON")],
)
def test_a_line_that_is_no_row_is_told_with_its_file_and_line(tmp_path, line, said) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"query": "a"}}\n\n{line}\n')
    with pytest.raises(DatasetError) as raised:
        read_rows(file)
    assert f"{file}:3 is" in str(raised.value)
    assert said in str(raised.value)


def test_csv_cells_may_hold_lists_as_json_or_as_python_writes_them(tmp_path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(
        'question,answer,contexts,tags\n"When, then?",1911,"[""a"", ""b""]",x;y\nWho?,,"[\'c\']",\n',
        encoding="utf-8-sig",
    )
    one, other = read_rows(file).rows
    assert [text.text for text in one.contexts] == ["a", "b"]
    assert (one.query, one.answer, one.tags) == ("When, then?", "1911", ("x", "y"))
    assert ([text.text for text in other.contexts], other.answer) == (["c"], None)


def test_a_csv_row_of_too_many_cells_is_told_with_its_line(tmp_path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("query,answer\na,b\nc,d,e\n")
    with pytest.raises(DatasetError, match=r"a\.csv:3 has more cells"):
        read_rows(file)


def test_data_frames_lists_of_columns_and_data_sets_are_the_same_rows(tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    records = [{"query": "a", "answer": "b", "contexts": ["c"]}, {"query": "d", "answer": None, "contexts": ["e"]}]
    whole = {name: [row[name] for row in records] for name in records[0]}
    as_json = tmp_path / "a.json"
    as_json.write_text(json.dumps({"results": records}))

    class HuggingFace:  # what iterating over a datasets.Dataset gives
        def __iter__(self):
            return iter(records)

    wanted = read_rows(records).rows
    for dataset in (pandas.DataFrame(records), whole, HuggingFace(), as_json):
        assert read_rows(dataset).rows == wanted


def test_missing_numbers_of_a_data_frame_are_no_values() -> None:
    assert read_rows([{"query": "a", "expected_answer": math.nan}]).rows[0].expected_answer is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"query": ""}, "give text that is not blank"),
        ({"query": 5}, "the question is 5"),
        ({"query": [{"role": "user"}]}, "conversations are not read yet"),
        ({"query": "a", "contexts": [5]}, "has no text"),
        ({"query": "a", "answer": {"x": 1}}, "answer is {'x': 1}; give one text"),
    ],
)
def test_a_row_of_bad_content_is_in_trouble_and_leaves_the_others_alone(row, said) -> None:
    found = read_rows([{"query": "fine"}, row]).rows
    assert said in found[1].trouble
    assert found[1].trouble.startswith("row 2: ")
    assert (found[0].query, found[0].trouble) == ("fine", "")


def test_ids_do_not_depend_on_the_order_of_rows_and_are_distinct() -> None:
    first = read_rows([{"query": "a"}, {"query": "b"}, {"query": "b"}]).rows
    second = read_rows([{"query": "b"}, {"query": "a"}, {"query": "b"}]).rows
    assert {row.id for row in first} == {row.id for row in second}
    assert len({row.id for row in first}) == 3


def test_rows_are_chosen_by_tag_and_number() -> None:
    found = read_rows(rows(6))
    assert [row.id for row in found.selected(tags=["odd"], limit=2).rows] == ["r1", "r3"]
    with pytest.raises(DatasetError, match="tags are: even, odd"):
        found.selected(tags=["none"])


def test_a_set_of_planted_failures_is_read_as_the_runs_that_it_is(tmp_path) -> None:
    samples = planted(("tool_error", "dropped_from_prompt"), per_label=1)
    path = tmp_path / "planted.jsonl"
    path.write_text("".join(json.dumps(to_dict(sample)) + "\n" for sample in samples))
    found = read_rows(path)
    assert [row.trace for row in found.rows] == [sample.trace for sample in samples]
    run = Evaluation(None, path, judge=PerfectJudge(), db=tmp_path / "a.db").run()
    assert {tag: list(one.labels) for tag, one in run.by_tag().items()} == {
        "dropped_from_prompt": ["dropped_from_prompt"],
        "tool_error": ["tool_error"],
    }


def test_rows_that_are_rows_are_taken_as_they_are() -> None:
    assert read_rows([Row("x", "a"), Row("y", "b")]).rows == (Row("x", "a"), Row("y", "b"))


@given(st.lists(st.sampled_from(sorted({name for names in CONVENTIONS.values() for name in names})), unique=True))
def test_no_set_of_known_columns_gives_two_columns_for_one_field(columns) -> None:
    try:
        found = map_fields(columns)
    except DatasetError:
        return
    fields = [ours for ours in found.columns.values() if ours != "metadata"]
    assert len(fields) == len(set(fields))
    assert "query" in fields
    assert set(found.columns) | set(found.left) == set(columns)


@given(st.one_of(st.text(), st.text().map(lambda text: f"[{text}]")))
def test_a_cell_is_a_list_or_stays_what_it_is(text) -> None:
    found = listed(text)
    assert isinstance(found, list) or found == text


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.sampled_from(["query", "answer", "contexts", "tags", "id"]), st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=6
)), min_size=1, max_size=4))  # fmt: skip
def test_rows_of_any_content_are_read_or_refused_and_nothing_else(dataset) -> None:
    try:
        found = read_rows(dataset).rows
    except DatasetError:
        return
    assert len(found) == len(dataset)
    assert len({row.id for row in found}) == len(found)
