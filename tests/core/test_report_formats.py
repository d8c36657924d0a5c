"""A run's report as JSON, CSV and Markdown: complete, and harmless wherever it is opened."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import ANSWER, attribution_of, diagnosis_of, run

from attr_core.attribution import Attribution
from attr_core.reports.csv import COLUMNS, csv_lines, csv_report
from attr_core.reports.json import REPORT_SCHEMA, json_report
from attr_core.reports.markdown import as_text, markdown_report
from attr_core.results import Diagnosis


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_json_holds_a_run_whole_and_is_read_back() -> None:
    trace = run()
    attribution, diagnosis = attribution_of(trace), diagnosis_of(trace)
    found = json.loads(json_report(trace, attribution, diagnosis))
    assert found["schema"] == REPORT_SCHEMA
    assert (found["trace"]["id"], found["trace"]["answer"]) == (trace.id, ANSWER)
    assert Attribution.from_dict(found["attribution"]).to_dict() == attribution.to_dict()
    assert Diagnosis.from_dict(found["diagnosis"]) == diagnosis
    assert json.loads(json_report(trace)) | {"trace": 0} == {
        "schema": 1,
        "trace": 0,
        "attribution": None,
        "diagnosis": None,
    }


def test_json_of_a_text_that_utf_8_cannot_say_is_still_json() -> None:
    trace = run(answer="lone \ud800 1911. It closed.")
    text = json_report(trace)
    text.encode()
    assert json.loads(text)["trace"]["answer"] == trace.answer


def test_csv_has_a_line_for_each_target_and_segment_with_what_supports_it() -> None:
    trace = run()
    attribution = attribution_of(trace)
    rows = _rows(csv_report(attribution, diagnosis_of(trace)))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(attribution.targets) * len(attribution.segments)
    for place, row in enumerate(rows):
        t, s = divmod(place, len(attribution.segments))
        value = float(attribution.effects[t, s])
        assert row["effect"] == ("" if math.isnan(value) else str(value))
        assert row["segment"] == attribution.segments[s].id
    whole = next(
        row for row in rows if row["target_kind"] == "claim" and row["segment"] == "c6" and row["claim"] == "1"
    )
    assert (whole["support"], whole["cell"], whole["post_hoc"]) == ("entails", "supported but not used", "True")
    assert {row["support"] for row in rows if row["target_kind"] == "response"} == {""}


def test_csv_of_a_diagnosis_alone_has_its_grid() -> None:
    diagnosis = diagnosis_of(run())
    rows = _rows(csv_report(None, diagnosis))
    assert [(row["target"], row["segment"], row["support"]) for row in rows] == [
        (row["claim"], row["segment"], row["support"]) for row in diagnosis.grid["rows"]
    ]
    assert (rows[0]["effect"], rows[0]["low"]) == ("9.157", "")
    assert csv_report() == ",".join(COLUMNS) + "\r\n"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "＝", " ="])
def test_a_text_that_a_spreadsheet_would_compute_stays_text_and_a_number_stays_a_number(start: str) -> None:
    attack = f'{start}HYPERLINK("http://evil","x")'
    trace = run([attack, "b"], ids=[attack, "plain"])
    rows = _rows(csv_report(attribution_of(trace)))
    assert rows[0]["text"].startswith("'")
    assert rows[0]["segment"].startswith("'")
    assert any(row["effect"].startswith("-") for row in rows)


@given(st.lists(st.text(st.characters(codec=None), max_size=30), min_size=1, max_size=4))
def test_no_cell_begins_as_a_formula_and_no_text_breaks_the_table(texts: list[str]) -> None:
    columns = [f"c{n}" for n in range(len(texts))]
    written = csv_lines(columns, [dict(zip(columns, texts, strict=True))])
    written.encode()
    read = list(csv.reader(io.StringIO(written, newline="")))
    assert len(read) == 2
    assert len(read[1]) == len(texts)
    assert not any(cell.lstrip().startswith(tuple("=+-@")) for cell in read[1])


def test_markdown_tells_claims_proof_metrics_and_costs() -> None:
    trace = run()
    text = markdown_report(trace, attribution_of(trace), diagnosis_of(trace))
    for told in (
        "**Answer:** The Lantern Fair opened in 1911.",
        "## chunk\\_dominance: chunk c1 misled the model",
        "| c1 (c1.md) | +9.16 | +8.66 to +9.91 | +8.24 | drives |",
        "| c6 | supported but not used | entails | cited |",
        "| context relevance | N/A | 0 of 6 segments | the judge gave no verdict |",
        "without c1: right in 5 of 5 runs",
        "- seed: 11",
    ):
        assert told in text
    assert "nothing yet" in markdown_report(trace)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("![x](http://e)", "\\!\\[x\\](http://e)"),
        ("a|b\nc", "a\\|b c"),
        ("# head", "\\# head"),
        ("- item", "\\- item"),
        ("1. item", "1\\. item"),
        ("1911. Then", "1911\\. Then"),
        ("1.25 nats", "1.25 nats"),
        ("12 = 12", "12 = 12"),
        ("===", "\\==="),
        ("In 1911.", "In 1911."),
        ("@team", "&#64;team"),
        ("`code` **b** _i_ ~s~ $m$", "\\`code\\` \\*\\*b\\*\\* \\_i\\_ \\~s\\~ \\$m\\$"),
        ("\u202eevil\x00", "\ufffdevil\ufffd"),
    ],
)
def test_markdown_and_html_in_a_text_are_shown_as_written(text: str, seen: str) -> None:
    assert as_text(text) == seen


def test_a_row_of_a_markdown_table_has_its_columns_whatever_the_texts_are() -> None:
    trace = run(["a | b \\| c", "d\n|e"], ids=["x|y", "\\"])
    diagnosis = replace(diagnosis_of(trace), conflicts=())
    for line in markdown_report(trace, attribution_of(trace), diagnosis).splitlines():
        if line.startswith("|"):
            bars = line.replace("\\\\", "").replace("\\|", "").count("|")
            assert bars in (5, 6)
