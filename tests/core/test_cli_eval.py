"""``attrkit eval`` and ``attrkit compare``: what is printed, what is asked first, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import evaluation_parts
import pytest
from evaluation_parts import calls, judge, rows

from attr_core import cli
from attr_core.cli import _eval
from attr_core.protocols import Price
from attr_core.testing import ScriptedEngine

if "eval" not in {command.name for command in cli.app.registered_commands}:
    cli.app.command("eval", epilog=_eval.EVAL_EXAMPLES)(_eval.evaluate)
    cli.app.command("compare", epilog=_eval.COMPARE_EXAMPLES)(_eval.compare)


@pytest.fixture
def questions(tmp_path, monkeypatch) -> Path:
    """A file of questions; ``test:judge`` names a judge, ``test:paid`` one that costs, calls are written down."""
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "a.db"))
    monkeypatch.setenv("EVALUATION_CALLS", str(tmp_path / "calls.jsonl"))
    monkeypatch.delenv("ATTRKIT_JUDGE", raising=False)
    monkeypatch.chdir(tmp_path)
    paid = ScriptedEngine(evaluation_parts.verdicts, price=Price(1.0, 1.0), spec="test:paid", fingerprint="paid")
    engines = {"test:judge": judge(), "test:paid": paid}

    def load(spec, **_):
        return engines[spec] if isinstance(spec, str) else spec

    monkeypatch.setattr("attr_core.engines.load_engine", load)
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    return path


def out(capsys, *arguments: object) -> tuple[int, str, str]:
    code = cli._run([str(argument) for argument in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def evaluated(capsys, questions, *more: object) -> tuple[int, str, str]:
    return out(capsys, "eval", questions, "--app", "evaluation_parts:app", "--judge", "test:judge", *more)


def test_a_set_is_shown_with_its_means_slices_and_the_source_that_hurt_most(questions, capsys) -> None:
    code, shown, said = evaluated(capsys, questions, "--name", "mine")
    assert (code, said) == (0, "")
    assert shown.startswith("mine: 6 rows, 6 done, 0 failed")
    for part in ("correctness", "6 of 6", "even", "rumours.md", "in common", "cost:", "judged by test:judge"):
        assert part in shown


def test_json_is_the_whole_run_and_nothing_else(questions, capsys) -> None:
    code, shown, _ = evaluated(capsys, questions, "--json")
    found = json.loads(shown)
    assert (code, found["schema"], found["summary"]["n_done"]) == (0, "attrkit.evaluation/1", 6)


def test_how_fields_were_read_and_that_a_run_goes_on_is_told_beside_the_output(questions, capsys, tmp_path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("user_input,reference\nWhen did fair 1 open?,Fair 1 opened in 1901.\n")
    _, _, said = evaluated(capsys, path, "--name", "a", "--json")
    assert said == "note: read as ragas rows: user_input -> query, reference -> expected_answer\n"
    _, _, said = evaluated(capsys, path, "--name", "a")
    assert "run a goes on: 1 of 1 rows are there" in said


def test_a_field_that_is_not_clear_ends_with_2_and_the_option_that_settles_it(questions, capsys, tmp_path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"query": "When?", "answer": "1911", "my_passages": ["In 1911."]}\n')
    code, _, said = out(capsys, "eval", path, "--judge", "test:judge")
    assert (code, "its fields are query, answer, my_passages" in said) == (2, True)
    code, shown, _ = out(capsys, "eval", path, "--judge", "test:judge", "--field", "contexts=my_passages")
    assert (code, "1 done" in shown) == (0, True)


def test_a_dry_run_tells_what_would_be_done_and_asks_nobody(questions, capsys, tmp_path) -> None:
    code, shown, _ = evaluated(capsys, questions, "--dry-run")
    assert code == 0
    assert "6 rows, read as attrkit rows" in shown
    assert "6 calls of evaluation_parts:app" in shown
    answered = tmp_path / "answered.jsonl"
    answered.write_text(json.dumps({"query": "When?", "answer": "It opened in 1911.", "contexts": ["x"]}) + "\n")
    code, shown, _ = out(capsys, "eval", answered, "--judge", "test:judge", "--dry-run", "--json")
    told = json.loads(shown)
    assert (told["rows"], told["app_calls"], told["plan"]["calls"] > 0) == (1, 0, True)
    assert not (tmp_path / "calls.jsonl").exists()
    assert not (tmp_path / "a.db").exists()


def test_only_the_rows_of_a_tag_and_no_more_than_so_many(questions, capsys) -> None:
    _, shown, _ = evaluated(capsys, questions, "--tag", "odd", "--limit", "2", "--json")
    assert [row["id"] for row in json.loads(shown)["rows"]] == ["r1", "r3"]


def test_a_judge_that_costs_is_asked_about_first_and_a_cap_ends_the_run_with_2(questions, capsys, tmp_path) -> None:
    command = ("eval", questions, "--app", "evaluation_parts:app", "--judge", "test:paid")
    code, _, said = out(capsys, *command)
    assert (code, "test:paid may cost money" in said) == (2, True)
    assert not (tmp_path / "calls.jsonl").exists()
    code, shown, said = out(capsys, *command, "--yes", "--budget", "usd=0.01", "--name", "mine")
    assert (code, calls(tmp_path / "calls.jsonl", "judge")) == (2, [])
    assert "stopped:" in shown
    assert "with a larger budget goes on" in said
    code, shown, _ = out(capsys, *command, "--yes", "--name", "mine")
    assert (code, "6 done" in shown, len(calls(tmp_path / "calls.jsonl", "app"))) == (0, True, 6)


def test_a_set_of_which_no_row_has_a_result_ends_with_1(questions, capsys) -> None:
    code, shown, _ = out(capsys, "eval", questions, "--app", "json:loads", "--judge", "test:judge")
    assert (code, "0 done, 6 failed" in shown, "JSONDecodeError" in shown) == (1, True, True)


def test_an_engine_for_a_strategy_that_runs_nothing_is_refused(questions, capsys) -> None:
    code, _, said = evaluated(capsys, questions, "--engine", "test:judge")
    assert (code, "add --strategy cause" in said) == (2, True)


def test_two_runs_are_compared_row_by_row(questions, capsys, tmp_path) -> None:
    evaluated(capsys, questions, "--name", "before")
    command = ("eval", questions, "--app", "evaluation_parts:failing_app", "--judge", "test:judge", "--name", "after")
    out(capsys, *command, "--csv", tmp_path / "after.csv")
    assert (tmp_path / "after.csv").read_text().count("\n") >= 7
    code, shown, _ = out(capsys, "compare", "before", "after")
    assert code == 0
    assert shown.startswith("before (first) against after (second), 5 rows in both")
    assert "1 rows are in one of them only" in shown
    code, shown, _ = out(capsys, "compare", "before", "last", "--json")
    assert (code, json.loads(shown)["n"]) == (0, 5)
    code, _, said = out(capsys, "compare", "before", "nothing")
    assert (code, "there are: after, before" in said) == (2, True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_an_interrupt_from_the_keyboard_ends_the_command_with_130_and_it_goes_on(questions, tmp_path) -> None:
    program = """
import sys, evaluation_parts, attr_core.engines
from attr_core.evaluation.runner import Evaluation
try:
    Evaluation(evaluation_parts.app, sys.argv[1], judge=evaluation_parts.judge(), concurrency=2, name="a").run()
except KeyboardInterrupt:
    sys.exit(130)
"""
    paths = os.pathsep.join([str(Path(evaluation_parts.__file__).parent), str(Path(cli.__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": paths, "EVALUATION_SECONDS": "0.5"}
    command = [sys.executable, "-c", program, str(questions)]
    written = tmp_path / "calls.jsonl"
    with subprocess.Popen(command, env=environment) as process:
        while not written.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    subprocess.run(command, env={**environment, "EVALUATION_SECONDS": "0"}, timeout=60, check=True)
    assert sorted(calls(written, "app")) == sorted(row["query"] for row in rows())  # those under way were stored
