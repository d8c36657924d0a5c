"""A whole evaluation as a report: its numbers are the run's, hostile texts stay text, and the command finds it."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from evaluation_parts import failing_app, judge, rows
from typer.testing import CliRunner

from attr_core._storage.evaluations import Evaluations, StoredRun
from attr_core.cli._report import report
from attr_core.errors import ConfigurationError, InputError, StoreError, TraceNotFoundError
from attr_core.evaluation.results import EvaluationRun, RowResult
from attr_core.evaluation.runner import Evaluation
from attr_core.reports.set_formats import csv_set_report, markdown_set_report
from attr_core.reports.set_html import html_set_report
from attr_core.results import Cost, Diagnosis
from attr_core.store import Store
from attr_core.support.scores import averaged
from attr_core.types import Trace

ATTACK = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}\u202e\x1b[31m\ud800"


class _Page(HTMLParser):
    """Tags with their attributes, ids, links and the text that is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._hidden = False
        self.feed(text)
        self.ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        self.links = [attributes["href"] for tag, attributes in self.tags if tag == "a"]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._hidden = tag == "style"
        self.text += " "

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False
        self.text += " "

    def handle_data(self, data: str) -> None:
        self.text += "" if self._hidden else data


def row(name: str, label: str = "ok", confidence: float = math.nan, **more) -> RowResult:
    right = label == "ok"
    found = Diagnosis(
        label,
        f"headline of {name}",
        outcome="right" if right else "wrong",
        confidence=confidence,
        cost=Cost(calls=2, usd=0.5),
        judge="a judge",
        evidence=("seen",),
        fixes=("mend it",),
    )
    scores = {"correctness": averaged("correctness", [("a", float(right))])}
    return RowResult(name, 0, "done", diagnosis=found, scores=scores, **more)


def failed(name: str, error: str = "ValueError: no") -> RowResult:
    return RowResult(name, 0, "failed", error=error)


def run_of(*found: RowResult, **more) -> EvaluationRun:
    return EvaluationRun("ev_1", "nightly", len(found), found, **more)


def use(group: str, **more) -> dict[str, object]:
    blank = {"id": group, "group": group, "kind": "retrieved", "text": f"text of {group}", "tokens": 10}
    return {**blank, "hurt": None, "helped": None, "idle": None, "effect": None, **more}


def worst(page: str) -> list[str]:
    """Ids of the rows that are shown in full, in order."""
    return re.findall(r'<article class="sample"[^>]*>\s*<h3><span[^>]*>[^<]*</span> <bdi>([^<]*)</bdi>', page)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, EvaluationRun]:
    """Six rows, two of which follow rumours, and one of which the application failed at."""
    db = tmp_path_factory.mktemp("a") / "a.db"
    return db, Evaluation(failing_app, rows(), judge=judge(), db=db, name="nightly").run()


def test_numbers_are_those_of_the_runs_summary(stored: tuple[Path, EvaluationRun]) -> None:
    run = stored[1]
    summary, page = run.summary(), html_set_report(run)
    text = " ".join(_Page(page).text.split())
    assert f"{summary.n_done} of {summary.n_rows} rows done" in text
    for label, n in summary.labels.items():
        assert f"{label} {n} {round(100 * n / summary.n_done, 1)} %" in text
    for score in summary.metrics:
        mean = "N/A" if math.isnan(score.value) else f"{score.value:.3f}"
        shown = f"{mean} {score.n} of {score.of}, {score.of - score.n} N/A"
        assert f"{score.name.replace('_', ' ')} {shown}" in text
    for tag, one in run.by_tag().items():
        assert f"{tag} {one.n_rows} {one.n_failed}" in text
    assert f"{summary.cost.calls:,} model calls" in text
    assert "RuntimeError: the index is away" in text
    hurt = run.attribution()[0]
    assert f"{hurt.source} {hurt.text} {hurt.n_hurt} {hurt.n_proved} {hurt.n_helped}" in text


def test_hostile_texts_stay_text() -> None:
    hurt = row(
        f"b{ATTACK}", "misreading", query=ATTACK, answer=ATTACK, expected=ATTACK, tags=(ATTACK,), trace_id=ATTACK
    )
    bad = use(ATTACK, hurt="proved", text=ATTACK)
    twins = [replace(hurt, id=f"{n}{ATTACK}", segments=(bad,)) for n in range(2)]
    plain = row(f"ok{ATTACK}", segments=(use("good.md"),), query=ATTACK)
    settings = {"app": ATTACK, "judge": ATTACK, "options": {ATTACK: ATTACK}, ATTACK: [ATTACK]}
    run = EvaluationRun(
        *(ATTACK, ATTACK, 5, (failed(ATTACK, ATTACK), *twins, plain)),
        settings=settings,
        is_finished=False,
        stopped=ATTACK,
        note=ATTACK,
    )
    page = html_set_report(run)
    page.encode()
    parsed = _Page(page)
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in parsed.tags}
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    assert not {"\u202e", "\x1b", "\ud800"} & set(page)
    assert "alert" not in str(parsed.tags)
    assert parsed.text.count("<script>alert(1)</script>") > 10
    assert "{{ 7*7 }}" in parsed.text
    written = markdown_set_report(run)
    assert not {"\u202e", "\x1b", "\ud800"} & set(written)
    assert "<script>" not in written


def test_the_page_loads_nothing_runs_no_script_and_links_only_within_itself(
    stored: tuple[Path, EvaluationRun],
) -> None:
    page = _Page(html_set_report(stored[1]))
    policy = next(
        attributes["content"]
        for tag, attributes in page.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert re.fullmatch(r"default-src 'none'; style-src 'sha256-[\w+/=]+'; base-uri 'none'; form-action 'none'", policy)
    assert not [one for tag, one in page.tags if {"src", "style"} & set(one) or (tag != "a" and "href" in one)]
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link} <= set(page.ids)
    assert all(link and link.startswith("#") for link in page.links)


def test_failed_rows_come_first_then_wrong_ones_the_surest_first_then_what_is_not_known() -> None:
    unknown = RowResult("u", 0, "done", diagnosis=Diagnosis("inconclusive", "so"))
    found = [row("fine"), unknown, row("n", "misreading"), row("l", "position", 0.6), row("h", "misreading", 0.9)]
    page = html_set_report(run_of(*found, failed("x")))
    assert worst(page) == ["x", "h", "l", "n", "u"]
    assert '<tr id="r1">' in page
    assert page.count("<tr id=") == 1


def test_a_hundred_rows_are_shown_in_full_and_failed_ones_do_not_crowd_out_wrong_ones() -> None:
    found = [failed(f"f{n}") for n in range(150)] + [row(f"w{n}", "misreading") for n in range(150)]
    page = html_set_report(run_of(*found))
    shown = worst(page)
    assert (len(shown), [name[0] for name in shown].count("f")) == (100, 50)
    assert page.count("<tr id=") == 200
    assert "100 of 300 in full" in page
    assert [name[0] for name in worst(html_set_report(run_of(*found[:170])))].count("f") == 80


def test_rows_of_a_label_are_grouped_by_what_they_share_and_linked() -> None:
    wrong = [row(f"w{n}", "misreading", query=f"What is the refund of {n}?") for n in range(3)]
    right = [row(f"o{n}", query=f"What is the price of {n}?") for n in range(3)]
    page = html_set_report(run_of(*right, *wrong))
    text = " ".join(_Page(page).text.split())
    assert "misreading 3 rows w0 w1 w2 words of the question refund 3 of 3 rows, 0 of 3 others w0 w1 w2" in text
    assert '<a href="#r4"><bdi>w0</bdi></a>' in page


def test_two_hundred_rows_of_long_texts_stay_small() -> None:
    long = '"&<>' * 5_000
    bad = use(long)
    texts = {"query": long[:900], "answer": long, "expected": long, "segments": (bad,)}
    found = [row(f"r{n}", "misreading", tags=(long, str(n)), **texts) for n in range(200)]
    page = html_set_report(run_of(*found, failed("x", long)))
    assert len(page.encode()) < 4_000_000
    assert "18,500 more characters, not shown" in page
    assert "101 smaller tags are not shown" in page
    ordinary = [row(f"r{n}", "misreading", query="Why? " * 20, answer="So. " * 100) for n in range(200)]
    assert len(html_set_report(run_of(*ordinary)).encode()) < 300_000


def test_a_run_of_nothing_but_failures_has_a_report_without_means() -> None:
    page = html_set_report(run_of(failed("x", "TimeoutError: away"), RowResult("y", 1, "failed")))
    text = " ".join(_Page(page).text.split())
    assert "TimeoutError: away" in text
    assert "no reason was recorded" in text
    assert "2 rows have no result; no mean counts them" in text
    assert "No answer was judged." in text
    assert 'id="metrics"' not in page
    assert "nan" not in text.lower()


def test_a_run_without_rows_says_so() -> None:
    assert "the run has no rows" in html_set_report(run_of())
    left = html_set_report(EvaluationRun("ev_1", "nightly", 3, (), is_finished=False))
    assert "3 rows are left" in left
    assert "not finished" in left
    assert csv_set_report(run_of()) == "id\r\n"
    assert markdown_set_report(run_of()).startswith("# attrkit evaluation: nightly")


_app = typer.Typer()
_app.command()(report)


def _run(*arguments: str) -> tuple[int, str, str, BaseException | None]:
    result = CliRunner().invoke(_app, list(arguments))
    return result.exit_code, result.stdout, result.stderr, result.exception


def test_the_command_finds_a_run_by_its_name_or_id(stored: tuple[Path, EvaluationRun], tmp_path: Path) -> None:
    db, run = stored
    path = tmp_path / "set.html"
    for name in ("nightly", run.id, run.id[:8]):
        code, out, err, _ = _run(name, "--db", str(db), "-o", str(path))
        assert (code, err) == (0, "")
        assert out.startswith(f"wrote {path} (")
        assert path.read_text(encoding="utf-8") == html_set_report(run)


def test_a_run_is_written_as_json_csv_and_markdown(stored: tuple[Path, EvaluationRun]) -> None:
    db, run = stored
    assert json.loads(_run("nightly", "--db", str(db), "--format", "json")[1]) == run.to_dict()
    written = _run("nightly", "--db", str(db), "--format", "csv")[1]
    assert [one["id"] for one in csv.DictReader(io.StringIO(written))] == [f"r{n}" for n in range(6)]
    markdown = _run("nightly", "--db", str(db), "--format", "markdown")[1]
    assert "## Which source hurt most answers" in markdown
    assert "| rumours.md | 2 |" in markdown


@pytest.fixture
def crowded(tmp_path: Path) -> Path:
    """A trace and runs whose names and ids are alike."""
    db = tmp_path / "b.db"
    with Store(db) as store:
        for identifier in ("tr_12345", "both_1234"):
            trace = Trace.from_messages([{"role": "user", "content": "Why?"}], "So.")
            store.save(replace(trace, id=identifier))
    with Evaluations(db) as store:
        named = {"tr_12345": "ev_1", "tr_12": "ev_2", "x": "both_1289", "y": "twin_1", "z": "twin_2"}
        for name, identifier in named.items():
            store.begin(StoredRun(identifier, name, identifier, 0, 0.0, None))
    return db


def test_what_two_things_are_called_goes_to_the_trace_of_that_id_and_is_told(crowded: Path) -> None:
    code, out, err, _ = _run("tr_12345", "--db", str(crowded), "--format", "json")
    assert (code, json.loads(out)["trace"]["id"]) == (0, "tr_12345")
    assert "note: a run of attrkit eval has that name too: attrkit report ev_1" in err
    code, out, err, _ = _run("tr_12", "--db", str(crowded), "--format", "json")
    assert (code, json.loads(out)["name"]) == (0, "tr_12")
    assert "note: the id of a trace begins so too: attrkit report tr_12345" in err
    assert "no answer of run tr_12 was judged yet" in err


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("both_12",), InputError, "'both_12' begins ids of trace both_1234 and of run both_1289"),
        (("twin_",), StoreError, "run 'twin_' is ambiguous"),
        (("nothing",), TraceNotFoundError, "there are: "),
        (("ev_1", "--step", "1"), ConfigurationError, "a whole evaluation, which has no step"),
    ],
)
def test_what_cannot_be_told_apart_or_found_is_said_in_a_line(
    crowded: Path, arguments: tuple[str, ...], kind: type[Exception], message: str
) -> None:
    error = _run(*arguments, "--db", str(crowded))[3]
    assert isinstance(error, kind)
    assert message in str(error)
