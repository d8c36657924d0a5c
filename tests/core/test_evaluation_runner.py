"""Runs over evaluation sets: what an application may give, what fails, and what is never done twice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import evaluation_parts
import pytest
from evaluation_parts import app, calls, failing_app, judge, rows

from attr_core._storage.at_work import AtWork
from attr_core._storage.evaluations import Evaluations
from attr_core.errors import ConfigurationError, DatasetError, EngineError, InputError
from attr_core.evaluation import answers
from attr_core.evaluation.answers import load_app, to_trace
from attr_core.evaluation.planted import PerfectJudge, planted
from attr_core.evaluation.results import open_run
from attr_core.evaluation.rows import Row, read_rows
from attr_core.evaluation.runner import Evaluation
from attr_core.protocols import Price
from attr_core.results import Budget
from attr_core.store import Store
from attr_core.testing import ScriptedEngine, ScriptedJudge
from attr_core.types import Document, Trace

ROW = Row("r", "When did it open?", expected_answer="In 1911.", expected_chunks=("c1",), tags=("x",))
CHUNK = {"id": "c1", "text": "It opened in 1911."}


@pytest.fixture
def written(tmp_path, monkeypatch) -> Path:
    """Where calls of application and judge are written down."""
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv("EVALUATION_CALLS", str(path))
    return path


def evaluation(db, application=app, dataset=None, **options) -> Evaluation:
    chosen = {"judge": judge(), "db": db, "concurrency": 1, **options}
    return Evaluation(application, rows() if dataset is None else dataset, **chosen)


@pytest.mark.parametrize(
    "found",
    [
        ("In 1911.", [CHUNK]),
        {"answer": "In 1911.", "contexts": [CHUNK]},
        {"response": "In 1911.", "documents": [Document("c1", "It opened in 1911.")]},
        {"output": "In 1911.", "chunks": [CHUNK], "tokens": 3},
    ],
)
def test_an_answer_and_its_chunks_become_a_trace_that_knows_what_was_expected(found) -> None:
    trace = to_trace(found, ROW)
    assert (trace.answer, trace.reference) == ("In 1911.", "In 1911.")
    assert (trace.expected_chunks, trace.tags) == (("c1",), ("x",))
    assert [one.id for one in trace.documents] == ["c1"]
    assert "It opened in 1911." in trace.generations[0].messages[-1].content
    assert trace.metadata["attrkit"] == {"prompt": "put together"}


def test_a_text_alone_says_nothing_of_what_was_retrieved() -> None:
    assert to_trace("In 1911.", ROW).retrievals == ()
    [nothing] = to_trace(("In 1911.", []), ROW).retrievals
    assert nothing.documents == ()


def test_a_trace_is_kept_with_the_prompt_that_was_sent() -> None:
    sent = Trace.from_messages([{"role": "user", "content": "It opened in 1911. When?"}], "1911", tags=["mine"])
    found = to_trace(sent, ROW)
    assert (found.generations, found.reference, found.tags) == (sent.generations, "In 1911.", ("mine", "x"))


def test_messages_that_were_sent_are_taken_instead_of_a_prompt_put_together() -> None:
    messages = [{"role": "user", "content": "Context: It opened in 1911.\nWhen did it open?"}]
    found = to_trace({"answer": "1911", "contexts": [CHUNK], "messages": messages, "model": "m"}, ROW)
    assert found.generations[0].messages[0].content == messages[0]["content"]
    assert (found.generations[0].model, found.metadata) == ("m", {})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "gave NoneType"),
        (5, "gave int"),
        ({"reply": "1911"}, "the fields reply, in which no answer is known"),
        ({"answer": "1911", "my_passages": ["x"]}, "'my_passages', which may be the context and is not known"),
        ({"answer": "1911", "result": "1912"}, "answer and result, which may both be the answer"),
        (("1911", 5), "a pair of str and int"),
    ],
)
def test_what_no_answer_can_be_read_in_is_an_error_that_names_what_was_seen(found, said) -> None:
    with pytest.raises(InputError) as raised:
        to_trace(found, ROW)
    assert said in str(raised.value)


def test_a_coroutine_is_run() -> None:
    async def asking(query: str) -> str:
        return "In 1911."

    [row] = Evaluation(asking, [{"query": "When?"}], judge=ScriptedJudge(), db=":memory:").run().rows
    assert (row.status, row.answer) == ("done", "In 1911.")


def test_an_object_of_a_framework_is_read_by_its_own_converter_found_by_entry_point(monkeypatch) -> None:
    @dataclass
    class Node:
        content: str

    @dataclass
    class Reply:
        said: str
        nodes: list

    @dataclass
    class Point:
        name: str
        found: object

        def load(self):
            return self.found

    for kind in (Node, Reply):
        kind.__module__ = "some_framework.schema"
    points = [
        Point("some_framework.answer", lambda reply: reply.said),
        Point("some_framework.documents", lambda reply: reply.nodes),
        Point("some_framework.document", lambda node: Document(f"n-{len(node.content)}", node.content)),
    ]
    monkeypatch.setattr(answers, "entry_points", lambda group: points if group == answers.CONVERTERS else [])
    answers._packages.cache_clear()
    answers._converters.cache_clear()
    try:
        found = to_trace(Reply("In 1911.", [Node("It opened in 1911.")]), ROW)
        pair = to_trace(("In 1911.", [Node("It opened in 1911.")]), ROW)
    finally:
        monkeypatch.undo()
        answers._packages.cache_clear()
        answers._converters.cache_clear()
    assert (found.answer, [one.id for one in found.documents]) == ("In 1911.", ["n-18"])
    assert pair.documents == found.documents


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("evaluation_parts", "is not module:function"),
        ("no_such_module:app", "cannot be imported"),
        ("evaluation_parts:nothing", "has no nothing"),
        ("evaluation_parts:N_ROWS", "cannot be called"),
    ],
)
def test_an_application_that_is_not_there_is_told_before_anything_is_asked(spec, said) -> None:
    assert load_app("evaluation_parts:app") is app
    with pytest.raises(ConfigurationError) as raised:
        Evaluation(spec, rows(), db=":memory:")
    assert said in str(raised.value)


def test_rows_with_answers_need_no_application_and_rows_without_are_refused_before(tmp_path) -> None:
    [row] = Evaluation(None, [{"query": "a", "answer": "b"}], judge=ScriptedJudge(), db=":memory:").run().rows
    assert row.status == "done"
    with pytest.raises(DatasetError, match="hold no answer, and no application is named"):
        Evaluation(None, [{"query": "a"}], judge=ScriptedJudge(), db=":memory:").run()


def test_one_failing_row_in_three_leaves_two_results_and_means_over_what_was_measured(tmp_path) -> None:
    run = evaluation(tmp_path / "a.db", failing_app, rows(3)).run()
    summary = run.summary()
    assert (summary.n_rows, summary.n_done, summary.n_failed, summary.n_left) == (3, 2, 1, 0)
    assert summary.failures == (("r1", "RuntimeError: the index is away"),)
    correctness = next(score for score in summary.metrics if score.name == "correctness")
    assert (correctness.value, correctness.n, correctness.of) == (0.5, 2, 3)
    assert "1 left out: the row failed" in correctness.reason
    assert [row.status for row in run.rows] == ["done", "failed", "done"]


def test_a_bad_row_and_an_answer_of_nothing_are_recorded_as_failed(tmp_path) -> None:
    dataset = [{"query": "a", "answer": "b"}, {"query": 5, "answer": "c"}, {"query": "d", "answer": ""}]
    run = evaluation(tmp_path / "a.db", None, dataset).run()
    assert [row.status for row in run.rows] == ["done", "failed", "failed"]
    assert "the question is 5" in run.rows[1].error
    assert "empty response" in run.rows[2].error


def test_an_error_is_recorded_without_the_keys_of_the_environment(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")

    def leaking(query: str):
        raise RuntimeError("refused sk-0123456789")

    run = evaluation(tmp_path / "a.db", leaking, rows(1)).run()
    assert run.rows[0].error == "RuntimeError: refused ***"


def test_a_judge_that_fails_is_no_verdict(tmp_path) -> None:
    class Broken:
        def judge(self, claims, segments, *, question=None):
            raise ValueError("no")

    run = evaluation(tmp_path / "a.db", judge=Broken(), name="mine").run()
    assert run.summary().n_failed == 6
    assert all("no" in row.error and row.trace_id for row in run.rows)  # what was answered is kept


def test_what_the_judge_failed_at_is_judged_again_and_not_asked_again(tmp_path, written) -> None:
    broken = ScriptedEngine("no verdicts", failures={n: EngineError("away") for n in range(1, 99)}, spec="test:judge")
    assert evaluation(tmp_path / "a.db", judge=broken, name="mine").run().summary().n_failed == 6
    assert evaluation(tmp_path / "a.db", name="mine", retry_failed=True).run().summary().n_done == 6
    assert len(calls(written, "app")) == 6


@pytest.mark.parametrize("who", ["app", "judge"])
def test_an_interrupted_run_goes_on_without_asking_or_judging_anything_twice(
    tmp_path, written, monkeypatch, who
) -> None:
    monkeypatch.setenv("EVALUATION_DIES_IN", who)
    monkeypatch.setenv("EVALUATION_DIES_AT", "4")
    monkeypatch.setenv("EVALUATION_DIES_OF", "interrupt")
    with pytest.raises(KeyboardInterrupt):
        evaluation(tmp_path / "a.db", judge=judge()).run()
    told: list[str] = []
    run = evaluation(tmp_path / "a.db", judge=judge()).run(told=told.append)
    assert run.summary().n_done == 6
    assert re.search(r"goes on: [1-5] of 6 rows are there", told[0])
    for one in ("app", "judge"):  # but for the one call that the interrupt cut off
        made = calls(written, one)
        assert len(made) - len(set(made)) == (one == who)


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
@pytest.mark.parametrize("who", ["judge", pytest.param("app", marks=pytest.mark.slow)])
def test_a_killed_run_goes_on_without_repeating_a_call_that_was_finished(tmp_path, written, who) -> None:
    db = str(tmp_path / "a.db")
    command = [sys.executable, "-c", "import sys, evaluation_parts; evaluation_parts.run_named(sys.argv[1])", db]
    paths = os.pathsep.join([str(Path(evaluation_parts.__file__).parent), str(Path.cwd())])
    dying = {**os.environ, "PYTHONPATH": paths, "EVALUATION_DIES_IN": who, "EVALUATION_DIES_AT": "4"}
    killed = subprocess.run(command, env=dying, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    with Evaluations(db) as store:
        states = [status for status, *_ in store.states(store.find("killed").id).values()]
    assert states.count("answered") == (who == "judge")
    assert 0 < states.count("done") < 6
    evaluation_parts.run_named(db)
    assert {row.status for row in open_run("killed", db=db).rows} == {"done"}
    for one in ("app", "judge"):
        made = calls(written, one)
        assert len(made) - len(set(made)) == (one == who)


def test_a_finished_run_begins_anew_without_a_name_and_with_one_shows_what_is_there(tmp_path, written) -> None:
    first = evaluation(tmp_path / "a.db").run()
    again = evaluation(tmp_path / "a.db").run()
    assert (first.id != again.id, len(calls(written, "app"))) == (True, 12)
    named = [evaluation(tmp_path / "a.db", name="mine").run() for _ in range(2)]
    assert (named[0].id == named[1].id, len(calls(written, "app"))) == (True, 18)


def test_a_named_run_of_another_judge_application_or_row_is_refused(tmp_path) -> None:
    db = tmp_path / "a.db"
    evaluation(db, name="mine").run()
    with pytest.raises(ConfigurationError, match="was made with judge 'test:judge', not 'test:other'"):
        evaluation(db, name="mine", judge=ScriptedEngine(spec="test:other")).run()
    with pytest.raises(ConfigurationError, match="was made with app"):
        evaluation(db, failing_app, name="mine").run()
    with pytest.raises(ConfigurationError, match="row 'r0' is another one"):
        evaluation(db, dataset=[{**rows()[0], "expected_answer": "else"}], name="mine").run()


def test_a_named_run_grows_with_its_set(tmp_path, written) -> None:
    evaluation(tmp_path / "a.db", name="mine", limit=2).run()
    run = evaluation(tmp_path / "a.db", name="mine").run()
    assert (run.summary().n_done, len(calls(written, "app"))) == (6, 6)


def test_rows_that_failed_are_tried_again_only_where_that_is_asked_for(tmp_path, monkeypatch) -> None:
    flaws = {"fair 1": True}

    def flawed(query: str):
        if flaws["fair 1"] and "fair 1 " in query:
            raise RuntimeError("not now")
        return app(query)

    first = evaluation(tmp_path / "a.db", flawed, name="mine").run()
    flaws["fair 1"] = False
    same = evaluation(tmp_path / "a.db", flawed, name="mine").run()
    mended = evaluation(tmp_path / "a.db", flawed, name="mine", retry_failed=True).run()
    assert [run.summary().n_failed for run in (first, same, mended)] == [1, 1, 0]


def test_a_run_that_another_process_is_at_work_on_is_left_alone(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(AtWork, "_is_mine", lambda *_: False)
    with pytest.raises(ConfigurationError, match="under way in another process"):
        evaluation(tmp_path / "a.db").run()


def test_rows_run_at_the_same_time_and_each_is_asked_once(tmp_path, written) -> None:
    together = threading.Barrier(3, timeout=20)

    def slow(query: str):
        together.wait()
        return app(query)

    run = evaluation(tmp_path / "a.db", slow, concurrency=3).run()
    assert run.summary().n_done == 6
    assert sorted(calls(written, "app")) == sorted(row["query"] for row in rows())
    assert [row.id for row in run.rows] == [row["id"] for row in rows()]  # in the set's order


def test_a_cap_over_all_rows_holds_and_the_same_run_goes_on_with_a_larger_one(tmp_path, written) -> None:
    stopped = evaluation(tmp_path / "a.db", name="mine", budget=Budget(calls=4), concurrency=3).run()
    assert 0 < len(calls(written, "judge")) <= 4
    assert stopped.stopped is not None
    assert "budget of 4 calls" in stopped.stopped
    assert stopped.summary().n_left > 0
    assert stopped.summary().n_failed == 0
    whole = evaluation(tmp_path / "a.db", name="mine").run()
    made = calls(written, "judge")
    assert (whole.summary().n_done, len(made)) == (6, len(set(made)))
    assert len(calls(written, "app")) == 6


def test_a_price_counts_towards_the_cap(tmp_path) -> None:
    dear = ScriptedEngine(evaluation_parts.verdicts, price=Price(1.0, 1.0), spec="test:dear", fingerprint="dear")
    run = evaluation(tmp_path / "a.db", judge=dear, budget=Budget(usd=0.01)).run()
    assert (run.summary().n_done, len(dear.seen)) == (0, 0)
    assert "USD" in (run.stopped or "")


def test_answers_can_be_gathered_without_judging_them(tmp_path, written) -> None:
    run = evaluation(tmp_path / "a.db", diagnose=False).run()
    assert (run.summary().n_done, run.summary().metrics, calls(written, "judge")) == (6, (), [])


def test_progress_counts_rows_those_included_that_were_there(tmp_path) -> None:
    seen: list[tuple[int, int]] = []
    evaluation(tmp_path / "a.db", name="mine", limit=2).run()
    evaluation(tmp_path / "a.db", name="mine").run(progress=lambda done, of: seen.append((done, of)))
    assert (seen[0], seen[-1]) == ((2, 6), (6, 6))


def test_traces_and_diagnoses_are_in_the_store_and_go_with_their_trace(tmp_path) -> None:
    db = tmp_path / "a.db"
    run = evaluation(db, name="mine").run()
    with Store(db) as store:
        assert len(store.list()) == 6
        [diagnosis] = store.diagnoses(run.rows[0].trace_id)
        assert diagnosis == run.rows[0].diagnosis
        store.delete(run.rows[0].trace_id)
    assert (open_run("mine", db=db).summary().n_left, len(open_run("mine", db=db).rows)) == (1, 5)


def test_strategy_cause_measures_what_each_segment_did(tmp_path) -> None:
    sample = planted(("chunk_dominance",), per_label=1)[0]
    run = Evaluation(
        lambda query: sample.trace,
        [{"id": sample.id, "query": sample.trace.query, "expected_answer": sample.expected}],
        judge=PerfectJudge(),
        engine=sample.model,
        strategy="cause",
        db=tmp_path / "a.db",
    ).run()
    assert run.rows[0].label == "chunk_dominance"
    hurt = [use for use in run.rows[0].segments if use["hurt"]]
    assert [use["hurt"] for use in hurt] == ["proved"]
    assert run.summary().idle is not None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strategy": "guess"}, "strategy 'guess' is unknown"),
        ({"runner": "spark"}, "runner 'spark' is unknown"),
        ({"concurrency": 0}, "runs nothing"),
        ({"runner": "ray", "budget": Budget(calls=1)}, "caps over all rows hold in one process only"),
    ],
)
def test_options_that_do_not_fit_are_refused_at_once(options, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        evaluation(":memory:", **options)


def test_a_set_is_read_once_and_may_be_handed_over_read() -> None:
    assert Evaluation(app, read_rows(rows()), db=":memory:").rows().rows == read_rows(rows()).rows
