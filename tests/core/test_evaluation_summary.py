"""What a run amounts to: means with their coverage, slices, sources that hurt, shared terms, and two runs compared."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Sequence

import numpy as np
import pytest
from evaluation_parts import app, failing_app, judge, rows
from scipy import stats

from attr_core._storage.evaluations import Evaluations, StoredRun
from attr_core.errors import ConfigurationError, DatasetError, StoreError
from attr_core.evaluation.answers import answer_row
from attr_core.evaluation.results import EvaluationRun, RowResult, open_run
from attr_core.evaluation.rows import Row
from attr_core.evaluation.runner import Evaluation
from attr_core.reports.evaluation import render_comparison, render_run
from attr_core.results import Cost, Diagnosis
from attr_core.support.scores import averaged, not_available


def row(name: str, label: str = "ok", value: float = 1.0, **more) -> RowResult:
    outcome = "right" if label == "ok" else "wrong"
    score = averaged("mine", [("a", value)]) if not math.isnan(value) else not_available("mine", "the judge slept")
    diagnosis = Diagnosis(label, "so", outcome=outcome, cost=Cost(calls=2, usd=0.5))
    return RowResult(name, 0, "done", diagnosis=diagnosis, scores={"mine": score}, **more)


def run_of(found: Sequence[RowResult], name: str = "r") -> EvaluationRun:
    return EvaluationRun(name, name, len(found), tuple(found))


def use(group: str, **more) -> dict[str, object]:
    blank = {"id": group, "group": group, "kind": "retrieved", "text": f"text of {group}", "tokens": 10}
    return {**blank, "hurt": None, "helped": None, "idle": None, "effect": None, **more}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> EvaluationRun:
    """Six rows, two of which follow rumours, and one of which the application failed at."""
    db = tmp_path_factory.mktemp("a") / "a.db"
    return Evaluation(failing_app, rows(), judge=judge(), db=db, name="mine").run()


def test_means_leave_out_what_was_not_measured_and_say_how_much_that_is() -> None:
    failed = RowResult("x", 0, "failed", error="ValueError: no")
    summary = run_of([row("a", value=0.0), row("b", value=math.nan), row("c"), failed]).summary()
    [mean] = summary.metrics
    assert (mean.value, mean.n, mean.of) == (0.5, 2, 4)
    assert mean.reason == "1 left out: the judge slept; 1 left out: the row failed"
    assert (summary.cost.calls, summary.cost.usd, summary.failures) == (6, 1.5, (("x", "ValueError: no"),))


def test_a_prompt_that_is_not_the_applications_own_is_told(run) -> None:
    assert "the prompt was put together" in run.summary().notes[0]
    assert run.summary().notes[0].endswith("(5 of 5 rows)")


def test_a_run_of_nothing_but_failures_has_no_means_and_no_zeros() -> None:
    summary = run_of([RowResult("x", 0, "failed", error="no")]).summary()
    assert (summary.metrics, summary.labels, summary.n_done) == ((), {}, 0)
    json.dumps(summary.to_dict(), allow_nan=False)


def test_a_price_that_is_not_known_stays_unknown() -> None:
    idle = [{"tokens": 5, "of": 20, "usd": usd} for usd in (0.1, None)]
    summary = run_of([row("a", idle=idle[0]), row("b", idle=idle[1])]).summary()
    assert (summary.idle.tokens, summary.idle.of, summary.idle.n_rows) == (10, 40, 2)
    assert math.isnan(summary.idle.usd)
    assert summary.to_dict()["idle"]["usd"] is None


def test_slices_by_tag_count_a_row_in_each_of_its_tags() -> None:
    found = run_of([row("a", tags=("x", "y")), row("b", "misreading", 0.0, tags=("x",)), row("c")]).by_tag()
    assert {tag: (one.n_rows, one.metrics[0].value) for tag, one in found.items()} == {"x": (2, 0.5), "y": (1, 1.0)}


def test_sources_are_added_up_by_group_and_each_answer_counts_once() -> None:
    uses = [
        (use("s", hurt="proved"), use("s", hurt="judged"), use("t", helped="measured", idle=False)),
        (use("s", hurt="judged"), use("t", idle=True)),
        (use("t", helped="judged", idle=True),),
    ]
    found = run_of([row(str(n), segments=one) for n, one in enumerate(uses)]).attribution()
    assert [(one.source, one.n_answers, one.n_hurt, one.n_proved, one.n_helped, one.n_measured) for one in found] == [
        ("s", 2, 2, 1, 0, 0),
        ("t", 3, 0, 0, 2, 1),
    ]
    assert (found[1].n_idle, found[1].n_weighed, found[0].n_weighed) == (2, 3, 0)
    assert (found[0].rows, found[0].tokens) == (("0", "1"), 30)
    assert len(run_of([row("a", segments=uses[0])]).attribution(1)) == 1


def test_which_source_hurt_most_answers_of_a_real_run(run) -> None:
    first = run.attribution()[0]
    assert (first.source, first.n_hurt, first.n_answers, set(first.rows)) == ("rumours.md", 2, 5, {"r0", "r3"})
    shared = run.failures()[0]
    assert (shared.by, shared.value, shared.n, shared.of, shared.elsewhere) == ("culprit", "rumours.md", 2, 2, 0)


def test_rows_of_a_failure_are_grouped_by_what_they_share_and_the_others_do_not() -> None:
    wrong = [
        row(f"w{n}", "misreading", query=f"What is the refund of {n}?", segments=(use("old.md"),)) for n in range(3)
    ]
    right = [row(f"o{n}", query=f"What is the price of {n}?", segments=(use("new.md"),)) for n in range(3)]
    found = run_of([*wrong, *right]).failures("misreading")
    assert {(one.by, one.value, one.n, one.of, one.elsewhere) for one in found} == {
        ("source", "old.md", 3, 3, 0),
        ("term", "refund", 3, 3, 0),
    }
    assert run_of([*wrong, *right]).failures()[0].rows == ("w0", "w1", "w2")
    with pytest.raises(ConfigurationError, match="labels are: misreading, ok"):
        run_of([*wrong, *right]).failures("parametric")


def test_two_runs_are_paired_by_row_id_whatever_their_order() -> None:
    names = [f"r{n}" for n in range(40)]
    first = [row(name, "misreading" if n < 20 else "ok", 0.2 + 0.01 * (n % 3)) for n, name in enumerate(names)]
    second = [row(name, "misreading" if n < 5 else "ok", 0.6 + 0.01 * (n % 5)) for n, name in enumerate(names)]
    found = run_of(first).compare(run_of([*reversed(second), row("only")], "s"))
    [mine] = found.metrics
    wanted = np.mean(
        [two.scores["mine"].value - one.scores["mine"].value for one, two in zip(first, second, strict=True)]
    )
    assert (mine.n, mine.is_clear) == (40, True)
    assert mine.difference == pytest.approx(wanted)
    assert mine.low < wanted < mine.high
    assert found.unpaired == ("only",)
    assert (found.right.only_first, found.right.only_second) == (0, 15)
    assert found.right.p_value == pytest.approx(stats.binomtest(0, 15).pvalue)


def test_intervals_cover_the_mean_difference_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        apart = np.clip(rng.normal(0.1, 0.2, 30), -0.5, 0.5)
        one = run_of([row(str(n), value=0.5) for n in range(30)])
        other = run_of([row(str(n), value=float(0.5 + gap)) for n, gap in enumerate(apart)])
        [found] = one.compare(other).metrics
        covered += found.low <= 0.1 <= found.high
    assert 51 <= covered <= 60  # 95 %, within what 60 draws can tell


def test_what_resampling_cannot_tell_has_a_reason_instead_of_an_interval() -> None:
    same = run_of([row(str(n)) for n in range(5)])
    [found] = same.compare(same).metrics
    assert (found.difference, math.isnan(found.low), found.is_clear) == (0.0, True, False)
    assert "all pairs differ by the same" in found.reason
    [one] = run_of([row("a")]).compare(run_of([row("a", value=0.0)])).metrics
    assert one.reason == "one pair has no interval"
    [none] = run_of([row("a")]).compare(run_of([row("a", value=math.nan)])).metrics
    assert (none.n, none.of, none.reason) == (0, 1, "no row has a value in both")


def test_answers_of_which_nothing_is_known_are_in_no_pair_of_right_and_wrong() -> None:
    unknown = RowResult("a", 0, "done", diagnosis=Diagnosis("inconclusive", "so"))
    assert run_of([unknown]).compare(run_of([row("a")])).right.n == 0


def test_p_values_of_labels_are_adjusted_after_holm() -> None:
    first = [row(str(n), "misreading") for n in range(12)]
    second = [row(str(n), "ok" if n < 11 else "position") for n in range(12)]
    found = {one.label: one.p_value for one in run_of(first).compare(run_of(second)).labels}
    raw = {"misreading": 12, "ok": 11, "position": 1}
    assert found["misreading"] == pytest.approx(3 * stats.binomtest(0, raw["misreading"]).pvalue)
    assert found["ok"] == pytest.approx(2 * stats.binomtest(0, raw["ok"]).pvalue)
    assert found["position"] == 1.0


def test_runs_without_a_common_row_cannot_be_compared() -> None:
    with pytest.raises(DatasetError, match="have no row in common"):
        run_of([row("a")]).compare(run_of([row("b")]))


def test_a_run_is_plain_json_of_a_named_schema(run) -> None:
    told = run.to_dict()
    json.dumps(told, allow_nan=False)
    assert (told["schema"], told["name"], told["finished"]) == ("attrkit.evaluation/1", "mine", True)
    assert {one["id"]: one["right"] for one in told["rows"]} == {
        **{f"r{n}": n % 3 != 0 for n in range(6)},
        "r1": None,
    }
    compared = run.compare(run).to_dict()
    json.dumps(compared, allow_nan=False)
    assert compared["schema"] == "attrkit.comparison/1"


def test_a_run_is_a_table_with_a_line_per_row(run, tmp_path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = run.to_pandas()
    assert list(frame["id"]) == [f"r{n}" for n in range(6)]
    assert pandas.isna(frame["correctness"][1])
    run.to_csv(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    assert [one["status"] for one in written] == ["done", "failed", "done", "done", "done", "done"]
    assert written[0]["correctness"] == "0.0"


def test_a_stored_run_is_found_by_name_prefix_or_as_the_last(tmp_path) -> None:
    db = tmp_path / "a.db"
    first = Evaluation(app, rows(1), judge=judge(), db=db, name="mine").run()
    second = Evaluation(app, rows(2), judge=judge(), db=db).run()
    assert open_run("mine", db=db).rows == first.rows
    assert open_run(second.id[:9], db=db).rows == second.rows == open_run(db=db).rows
    with pytest.raises(StoreError, match=r"'other' is not in .*; there are: ev_"):
        open_run("other", db=db)


def test_text_of_rows_cannot_paint_the_terminal(run) -> None:
    from rich.console import Console

    evil = "\x1b[31m[bold]red\u202e"
    hostile = RowResult(evil, 0, "failed", query=evil, error=evil, tags=(evil,))
    hurt = row("a", "misreading", segments=(use(evil, hurt="judged", text=evil),), tags=(evil,))
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(render_run(run_of([hostile, hurt, row("b", "misreading", segments=(use(evil),))], evil)))
        console.print(render_comparison(run_of([hurt], evil).compare(run_of([row("a")], evil))))
        console.print(render_run(run))
    assert not {"\x1b", "\u202e"} & set(captured.get())
    assert "[bold]red" in captured.get()


@pytest.mark.slow
def test_a_thousand_stored_rows_are_summarised(tmp_path, capsys) -> None:
    done = Evaluation(app, rows(1), judge=judge(), db=":memory:").run().rows[0]
    diagnosis, details = done.diagnosis, {"segments": list(done.segments)}
    with Evaluations(tmp_path / "a.db") as store:
        store.begin(StoredRun("ev_1", "many", "k", 1000, 0.0, None))
        for n in range(1000):
            trace = answer_row(app, Row(f"r{n}", f"When did fair {n} open?"))
            line = {"row_id": f"r{n}", "position": n, "query": trace.query, "tags": [str(n % 7)], "details": details}
            found = Diagnosis.from_dict({**diagnosis.to_dict(), "trace_id": trace.id})
            store.done("ev_1", line, trace, found)
    began = time.perf_counter()
    run = open_run("many", db=tmp_path / "a.db")
    summary, slices, sources, groups = run.summary(), run.by_tag(), run.attribution(), run.failures()
    with capsys.disabled():
        print(f" [1,000 rows read and summarised in {time.perf_counter() - began:.2f} s]", end="")  # noqa: T201
    assert (summary.n_done, len(slices), sources[0].n_answers) == (1000, 7, 1000)
    assert groups == () or groups[0].of == 1000
