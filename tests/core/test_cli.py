"""The command line: what it shows, what it costs, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attr_core import cli, engines
from attr_core.store import Store
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Trace

FACT = "The Aldemoor fair opened in 1911."
NOISE = "Fees are four silver marks."
ANSWER = "It opened in 1911."
MESSAGES = [{"role": "user", "content": f"{FACT}\n\n{NOISE}\n\nWhen did it open?"}]


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = AdditiveEngine({"1911": {FACT: 9.0}}, bias=-5.0, answer=ANSWER)
    monkeypatch.setitem(engines._loaded, "hf:known", known)
    monkeypatch.setenv("ATTRKIT_ENGINE", "hf:known")
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "attrkit.db"))


@pytest.fixture
def stored() -> Trace:
    trace = Trace.from_messages(MESSAGES, ANSWER, model="test:additive", tags=["fairs"])
    with Store() as store:
        store.save(trace)
    return trace


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli._run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_inspect_shows_claims_pivots_causes_and_cost(capsys: pytest.CaptureFixture[str], stored: Trace) -> None:
    code, out, _ = run(capsys, "inspect", "last")
    assert code == 0
    assert "[1] It opened in «1911»." in out
    [line] = [line for line in out.splitlines() if line.strip().startswith("+9.00") and "m0.p1" in line][:1]
    assert "drives" in line
    assert FACT in line
    assert "without m0.p1" in out
    assert "I do not know." in out
    assert "cost: 9 model calls" in out
    assert "causes    [1] «1911» from m0.p1" in out


def test_a_second_inspect_makes_no_call(capsys: pytest.CaptureFixture[str], stored: Trace) -> None:
    run(capsys, "inspect", stored.id)
    _, out, _ = run(capsys, "inspect", stored.id[:8], "--json")
    assert json.loads(out)["cost"]["calls"] == 0


def test_json_output_is_json_alone(capsys: pytest.CaptureFixture[str], stored: Trace) -> None:
    code, out, err = run(capsys, "inspect", "last", "--json", "--span", "1911", "--seed", "3")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert [target["kind"] for target in found["targets"]] == ["pivot", "claim", "span", "response"]
    assert found["seed"] == 3


def test_a_file_of_messages_can_be_inspected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plain, full = tmp_path / "plain.json", tmp_path / "full.json"
    plain.write_text(json.dumps([*MESSAGES, {"role": "assistant", "content": ANSWER}]))
    full.write_text(json.dumps({"messages": MESSAGES, "response": ANSWER, "documents": [{"id": "a", "text": FACT}]}))
    assert "m0.p1" in run(capsys, "inspect", "--file", str(plain))[1]
    _, out, _ = run(capsys, "inspect", "--file", str(full), "--json")
    assert "a" in [segment["id"] for segment in json.loads(out)["segments"]]


def test_a_dry_run_spends_nothing(capsys: pytest.CaptureFixture[str], stored: Trace) -> None:
    code, out, _ = run(capsys, "inspect", "last", "--dry-run")
    assert code == 0
    assert "ablations scored: 4 calls" in out
    assert engines._loaded["hf:known"].calls == 0


def test_estimator_budget_and_claim_are_heeded(capsys: pytest.CaptureFixture[str], stored: Trace) -> None:
    _, out, _ = run(capsys, "inspect", "last", "--estimator", "leave-one-out", "--claim", "1", "--budget", "calls=4")
    assert "LeaveOneOut" in out
    assert "undetermined" in out
    assert "cost: 4 model calls" in out


def test_a_long_answer_is_shown_whatever_its_probability(capsys: pytest.CaptureFixture[str]) -> None:
    with Store() as store:
        store.save(Trace.from_messages(MESSAGES, "It opened in 1911. " + "word " * 30))
    unlikely = ScriptedEngine(logprob=lambda prompt, word: -50.0)
    engines._loaded["hf:known"] = unlikely
    code, out, _ = run(capsys, "inspect", "last")
    assert code == 0
    assert "<0.1 % likely" in out or "nats of log-odds" in out


def test_the_listing_keeps_its_columns_beside_long_texts(capsys: pytest.CaptureFixture[str]) -> None:
    with Store() as store:
        trace = Trace.from_messages([{"role": "user", "content": "why " * 200}], "because " * 200, model="some-model")
        store.save(trace)
    _, out, _ = run(capsys, "traces")
    row = next(line for line in out.splitlines() if trace.id in line)
    assert all(part in row for part in ("some-model", " ok ", "why", "because"))


def test_a_placebo_check_heeds_what_is_left_of_the_budget(capsys: pytest.CaptureFixture[str], stored: Trace) -> None:
    code, out, err = run(capsys, "inspect", "last", "--placebo", "--budget", "calls=9")
    assert engines._loaded["hf:known"].calls <= 9
    assert (code, "m0.p1" in out, "the budget" in err) == (2, True, True)


def test_a_placebo_check_is_shown_and_dumped(capsys: pytest.CaptureFixture[str], stored: Trace) -> None:
    _, out, _ = run(capsys, "inspect", "last", "--placebo")
    assert "placebo check: 3 unrelated sentences, 3 targets: all stay within δ" in out
    _, out, _ = run(capsys, "inspect", "last", "--placebo", "--json")
    assert json.loads(out)["placebo"]["beyond"] == 0


def test_later_claims_show_both_readings_and_the_route(capsys: pytest.CaptureFixture[str]) -> None:
    with Store() as store:
        store.save(Trace.from_messages(MESSAGES, "It opened in 1911. Yes, 1911 it was."))
    _, out, _ = run(capsys, "inspect", "last", "--json")
    readings = [(target["claim"], target["reading"]) for target in json.loads(out)["targets"]]
    assert (1, "total") in readings
    _, out, _ = run(capsys, "inspect", "last")
    assert "given earlier" in out
    assert "[2] Yes, «1911» it was." in out
    _, out, _ = run(capsys, "inspect", "last", "--direct-only")
    assert "given earlier" not in out


def test_the_context_can_be_cut_by_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with Store() as store:
        user = {"role": "user", "content": f"{FACT} {NOISE}\n\nWhen did it open?"}
        store.save(Trace.from_messages([user], ANSWER, documents=[f"{FACT} {NOISE}"]))
    _, out, _ = run(capsys, "inspect", "last", "--granularity", "sentence", "--json")
    assert [segment["text"] for segment in json.loads(out)["segments"]] == [FACT, NOISE]


def test_traces_are_listed_filtered_and_dumped(capsys: pytest.CaptureFixture[str], stored: Trace) -> None:
    assert stored.id in run(capsys, "traces")[1]
    assert stored.id in run(capsys, "traces", "--query", "1911", "--tag", "fairs", "--since", "1d")[1]
    assert stored.id not in run(capsys, "traces", "--query", "nothing like it")[1]
    [summary] = json.loads(run(capsys, "traces", "--json")[1])
    assert (summary["id"], summary["answer"], summary["model"]) == (stored.id, ANSWER, "test:additive")


def test_no_traces_says_how_to_get_some(capsys: pytest.CaptureFixture[str]) -> None:
    assert "attrkit demo" in run(capsys, "traces")[1]


def test_hostile_text_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07[bold red]not markup[/] \u202eesrever"
    with Store() as store:
        store.save(Trace.from_messages([{"role": "user", "content": f"{hostile}\n\nWhen?"}], f"It is {hostile} 1911."))
    for arguments in (("inspect", "last"), ("traces",)):
        _, out, _ = run(capsys, *arguments)
        assert not set(out) & {"\x1b", "\x07", "\u202e"}
        assert "[bold red]not ma" in out


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version")[1].startswith("attrkit 0.")
    for arguments in ([], ["--help"], ["inspect", "--help"], ["traces", "--help"], ["demo", "--help"]):
        code, out, _ = run(capsys, *arguments)
        assert (code, "attrkit" in out) == (0, True)
    assert "attrkit inspect last" in run(capsys, "inspect", "--help")[1]


FILES = {
    "text.db": "this is a text file, not a database, and long enough to tell " * 20,
    "broken.json": "{messages:",
    "empty.json": json.dumps({"messages": MESSAGES, "response": ""}),
    "blank.json": json.dumps({"messages": MESSAGES, "response": " \n "}),
    "none.json": json.dumps({"messages": [], "response": ANSWER}),
    "shape.json": "3",
    "roleless.json": json.dumps({"messages": [{"content": "x"}], "response": ANSWER}),
    "documents.json": json.dumps({"messages": MESSAGES, "response": ANSWER, "documents": 5}),
    "good.json": json.dumps({"messages": MESSAGES, "response": ANSWER}),
}
GOOD = ["inspect", "--file", "HERE/good.json"]
BAD = {
    "unknown id": (["inspect", "tr_unknown"], "tr_unknown"),
    "no traces": (["inspect", "last"], "no trace"),
    "empty response": (["inspect", "--file", "HERE/empty.json"], "empty.json holds no answer"),
    "response of white space": (["inspect", "--file", "HERE/blank.json"], "blank.json holds no answer"),
    "empty message list": (["inspect", "--file", "HERE/none.json"], "message list is empty"),
    "a message without a role": (["inspect", "--file", "HERE/roleless.json"], "has no role"),
    "database that is a text file": (["traces", "--db", "HERE/text.db"], "text.db"),
    "database in inspect": (["inspect", "last", "--db", "HERE/text.db"], "text.db"),
    "model folder that does not exist": ([*GOOD, "--engine", "hf:HERE/nowhere"], "nowhere"),
    "engine without prefix": ([*GOOD, "--engine", "gpt-4"], "'gpt-4' has no known prefix"),
    "not JSON": (["inspect", "--file", "HERE/broken.json"], "broken.json is not JSON"),
    "another shape": (["inspect", "--file", "HERE/shape.json"], "shape.json has another shape"),
    "missing file": (["inspect", "--file", "HERE/absent.json"], "absent.json cannot be read"),
    "negative seed": ([*GOOD, "--seed", "-1"], "seed -1 cannot be used"),
    "documents that are no list": (["inspect", "--file", "HERE/documents.json"], "documents 5 are no list"),
    "no trace named": (["inspect"], "name a trace"),
    "two traces named": ([*GOOD, "last"], "name a trace"),
    "bad budget": ([*GOOD, "--budget", "coins=3"], "budget 'coins=3' is unknown"),
    "bad budget number": ([*GOOD, "--budget", "calls=many"], "is not a number"),
    "budget too small": ([*GOOD, "--budget", "calls=1"], "the budget allows 1"),
    "unknown estimator": ([*GOOD, "--estimator", "lime"], "estimator 'lime' is unknown"),
    "unknown granularity": ([*GOOD, "--granularity", "word"], "granularity 'word' does not exist"),
    "unknown algorithm": ([*GOOD, "--algorithm", "tea"], "algorithm 'tea' is unknown"),
    "span not there": ([*GOOD, "--span", "1999"], "'1999' does not stand"),
    "claim not there": ([*GOOD, "--claim", "7"], "claim 7 does not exist"),
    "bad date": (["traces", "--since", "yore"], "--since 'yore' is no date"),
    "unknown option": (["traces", "--colour", "red"], "--colour"),
    "unknown command": (["inspekt"], "inspekt"),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_input_is_one_clear_line_and_exit_code_2(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments, message = BAD[name]
    for file, content in FILES.items():
        (tmp_path / file).write_text(content)
    code, out, err = run(capsys, *(argument.replace("HERE", str(tmp_path)) for argument in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("attrkit: ")
    assert len(err.splitlines()) == 1
    assert message in err
