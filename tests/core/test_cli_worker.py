"""attrkit worker: what it says, what it costs, what it refuses, and how it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from attr_core import _job, cli, engines
from attr_core.cache import Cache
from attr_core.cli import _worker
from attr_core.errors import EngineError
from attr_core.evaluation.planted import PerfectJudge, PlantedSample, planted
from attr_core.protocols import Price, TokenScores
from attr_core.sampling import is_sampled
from attr_core.store import Store
from attr_core.testing import AdditiveEngine
from attr_core.types import Prompt, Trace

FACT = "The Aldemoor fair opened in 1911."
ANSWER = "It opened in 1911."
MODEL = "hf:SmolLM2-135M-Instruct.Q4_1.gguf"


class Scoring:
    """Scores as it should, after whatever the test wants to happen first with what it is sent."""

    spec, max_context = "hf:known", None
    price = Price(0.0, 0.0)

    def __init__(self) -> None:
        self.inner = AdditiveEngine({"1911": {FACT: 9.0}}, bias=-5.0)
        self.first: Callable[[Sequence[Prompt]], Any] = lambda prompts: None

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        self.first(prompts)
        return self.inner.score(prompts, continuation)


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> Scoring:
    known = Scoring()
    monkeypatch.setitem(engines._loaded, "hf:known", known)  # type: ignore[arg-type]
    return known


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli._run(["worker", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


ONCE = ("--once", "--engine", "hf:known")


def stored(n: int, **changes: Any) -> list[Trace]:
    """So many traces, a minute apart, the last one just started."""
    traces = []
    with Store() as store:
        for i in range(n):
            content = f"{FACT}\n\nNote {i}.\n\nWhen did it open?"
            trace = Trace.from_messages([{"role": "user", "content": content}], ANSWER)
            trace = replace(trace, started=datetime.now(UTC) - timedelta(minutes=n - i), **changes)
            store.save(trace)
            traces.append(trace)
    return traces


def n_attributed() -> int:
    with Store() as store:
        return store.stats().n_attributions


def test_it_attributes_what_waits_and_sums_up(capsys: pytest.CaptureFixture[str], engine: Scoring) -> None:
    traces = stored(3)
    code, out, err = run(capsys, *ONCE)
    assert (code, err, n_attributed()) == (0, "", 3)
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == [trace.id for trace in traces]
    assert lines[3].startswith(f"attributed 3 traces: {engine.inner.calls} calls, 0 measurements from the cache, ")
    assert run(capsys, *ONCE) == (0, "no trace waits for an attribution\n", "")


def test_a_later_inspect_makes_no_call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    [trace] = stored(1)
    run(capsys, *ONCE)
    assert cli._run(["inspect", trace.id, "--engine", "hf:known", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"]["calls"] == 0


def test_json_is_a_line_a_trace_and_a_summary(capsys: pytest.CaptureFixture[str], engine: Scoring) -> None:
    good, bad = stored(2)
    engine.first = lambda prompts: _fail("down") if "Note 1." in prompts[-1].messages[0].content else None
    code, out, err = run(capsys, *ONCE, "--json")
    first, second, last = map(json.loads, out.splitlines())
    assert (code, err) == (2, "")
    assert (first["trace_id"], first["state"], first["engine"]) == (good.id, "done", "hf:known")
    assert (second["trace_id"], second["state"], second["reason"]) == (bad.id, "failed", "down")
    summary = last["summary"]
    assert (summary["done"], summary["failed"], summary["waiting"]) == (1, 1, 0)
    assert summary["calls"] == first["calls"] + second["calls"] == engine.inner.calls
    assert summary["reasons"] == [{"state": "failed", "reason": "down", "traces": 1}]


def _fail(text: str) -> None:
    raise EngineError(text)


def test_failures_are_grouped_by_their_reason_and_shown_as_inert_text(
    capsys: pytest.CaptureFixture[str], engine: Scoring
) -> None:
    stored(5)
    engine.first = lambda prompts: _fail("\x1b[2Jdown \u202e [bold]")
    code, out, _ = run(capsys, *ONCE)
    assert code == 2
    assert not set(out) & {"\x1b", "\u202e"}
    [line] = [line for line in out.splitlines() if line.startswith("failed: 5 traces (tr_")]
    assert line.endswith("[bold]")
    assert ", ...): " in line


def test_a_dry_run_counts_and_plans_and_spends_nothing(capsys: pytest.CaptureFixture[str], engine: Scoring) -> None:
    stored(3)
    code, out, _ = run(capsys, *ONCE, "--dry-run")
    assert (code, engine.inner.calls, n_attributed()) == (0, 0, 0)
    assert out.startswith("would attribute 3 traces: 12 calls (at most 12), ")
    _, out, _ = run(capsys, *ONCE, "--dry-run", "--json", "--limit", "2")
    *plans, last = map(json.loads, out.splitlines())
    assert [plan["calls"] for plan in plans] == [4, 4]
    assert (last["summary"]["traces"], last["summary"]["max_calls"]) == (2, 8)
    _, out, _ = run(capsys, *ONCE, "--dry-run", "--budget", "calls=1")
    assert "would attribute 0 traces" in out
    assert "would not attribute: 3 traces" in out


def test_filters_and_limits_are_heeded(capsys: pytest.CaptureFixture[str]) -> None:
    [tagged] = stored(1, tags=("shop",))
    [chain] = stored(1, framework="langchain")
    old = _old()
    for arguments, trace in (
        (("--tag", "shop"), tagged),
        (("--framework", "langchain"), chain),
        (("--limit", "1"), old),
    ):
        code, out, _ = run(capsys, *ONCE, *arguments)
        assert (code, out.splitlines()[0].split()[0]) == (0, trace.id)
    assert n_attributed() == 3
    new = stored(2)
    _old()
    _, out, _ = run(capsys, *ONCE, "--since", "7d", "--json")
    assert [json.loads(line)["trace_id"] for line in out.splitlines()[:-1]] == [trace.id for trace in new]


def _old() -> Trace:
    messages = [{"role": "user", "content": f"{FACT}\n\nWhen did it open?"}]
    trace = replace(Trace.from_messages(messages, ANSWER), started=datetime.now(UTC) - timedelta(days=10))
    with Store() as store:
        store.save(trace)
    return trace


def test_a_sample_is_a_share_of_the_ids(capsys: pytest.CaptureFixture[str]) -> None:
    traces = stored(20)
    code, out, _ = run(capsys, *ONCE, "--sample-rate", "0.4", "--json")
    done = {json.loads(line)["trace_id"] for line in out.splitlines()[:-1]}
    assert (code, done) == (0, {trace.id for trace in traces if is_sampled(trace.id, 0.4)})


def test_options_are_those_of_inspect(capsys: pytest.CaptureFixture[str]) -> None:
    [trace] = stored(1)
    run(capsys, *ONCE, "--estimator", "leave-one-out", "--granularity", "message", "--direct-only")
    with Store() as store:
        [found] = store.attributions(trace.id)
    assert found.method.endswith("LeaveOneOut")


def test_a_budget_of_the_day_postpones_what_it_cannot_pay(capsys: pytest.CaptureFixture[str], engine: Scoring) -> None:
    stored(4)
    code, out, _ = run(capsys, *ONCE, "--budget-per-day", "calls=9")
    assert (code, n_attributed()) == (0, 2)
    assert engine.inner.calls <= 9
    assert "postponed: 1 trace (tr_" in out
    assert "2 traces still to do" in out
    run(capsys, *ONCE, "--budget-per-day", "calls=9")
    assert n_attributed() == 2
    run(capsys, *ONCE)
    assert n_attributed() == 4


def test_without_an_engine_it_asks_for_one_once_and_does_what_it_can(capsys: pytest.CaptureFixture[str]) -> None:
    stored(2, metadata={"attrkit": {"engine": {"object": "test:theirs"}}})
    stored(1)
    [named] = stored(1, metadata={"attrkit": {"engine": "hf:known"}})
    code, out, err = run(capsys, "--once")
    assert code == 2
    assert out.splitlines()[0].split()[0] == named.id
    assert err == (
        "attrkit: 3 traces left without an attribution, 2 since its engine was an object (test:theirs), which another "
        "process cannot load, 1 since no engine is named; name one: attrkit worker --once --engine hf:MODEL\n"
    )
    assert run(capsys, *ONCE)[0] == 0
    assert n_attributed() == 4


def test_the_engine_of_the_environment_is_one_that_was_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(1)
    monkeypatch.setenv("ATTRKIT_ENGINE", "hf:known")
    assert run(capsys, "--once")[0] == 0
    assert n_attributed() == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engine", "mystery:m"), "engine 'mystery:m' has no known prefix"),
        (("--engine", "hf:known", "--estimator", "none"), "none"),
        (("--engine", "hf:known", "--budget", "money=1"), "budget 'money=1' is unknown"),
        (("--engine", "hf:known", "--budget-per-day", "calls=x"), "budget 'calls=x' is not a number"),
        (("--engine", "hf:known", "--since", "yore"), "--since 'yore' is no date"),
        (("--engine", "hf:known", "--sample-rate", "7"), "sampling rate 7.0"),
        (("--engine", "hf:known", "--limit", "0"), "--limit"),
        (("--engine", "hf:known", "--interval", "0"), "--interval"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    stored(1)
    code, out, err = run(capsys, "--once", *arguments)
    assert code == 2
    assert message in out + err
    assert "Traceback" not in out + err
    assert n_attributed() == 0


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "attrkit worker --engine hf:MODEL" in out


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_without_once_it_looks_again_until_it_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    stored(1)

    def go_on() -> None:
        until(lambda: n_attributed() == 1)
        stored(2)
        until(lambda: n_attributed() == 3)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=go_on)
    thread.start()
    code, out, err = run(capsys, "--engine", "hf:known", "--interval", "0.1")
    thread.join(60)
    assert code == 130
    assert "attributed 3 traces" in out
    assert "stopping after the measurements under way" in err
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def large_trace() -> None:
    """One with more ablations than a slice holds."""
    documents = [FACT, *(f"Fact {n} is that." for n in range(8))]
    content = "\n\n".join([*documents, "When did it open?"])
    with Store() as store:
        store.save(Trace.from_messages([{"role": "user", "content": content}], ANSWER, documents=documents))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heeded_after_the_slice_which_is_kept(
    capsys: pytest.CaptureFixture[str], engine: Scoring, number: signal.Signals
) -> None:
    large_trace()
    engine.first = lambda prompts: os.kill(os.getpid(), number) if engine.inner.calls == 18 else None
    code, out, err = run(capsys, *ONCE)
    assert (code, engine.inner.calls) == (130, 34)  # both ends, and two slices
    assert "stopping after the measurements under way" in err
    assert "interrupted; what was measured is kept" in err
    assert "stopped: 1 trace" in out
    with Cache() as cache:
        assert cache.stats().n_entries == 34
    engine.first = lambda prompts: None
    code, out, _ = run(capsys, *ONCE)
    assert code == 0
    assert "34 measurements from the cache" in out


def test_a_second_signal_is_heeded_at_once(capsys: pytest.CaptureFixture[str], engine: Scoring) -> None:
    large_trace()

    def twice(prompts: Sequence[Prompt]) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    engine.first = twice
    code, _, err = run(capsys, *ONCE)
    assert (code, engine.inner.calls) == (130, 0)
    assert err.endswith("attrkit: interrupted; what was measured is kept\n")


def test_a_bar_on_a_terminal_counts_traces(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stored(3)
    seen: list[tuple[int, int]] = []

    class Bar:
        def __init__(self, *, quiet: bool) -> None: ...
        def __enter__(self) -> Callable[[int, int], None]:
            return lambda done, planned: seen.append((done, planned))

        def __exit__(self, *exception: object) -> None: ...

    monkeypatch.setattr(_worker, "progress_bar", Bar)
    code, out, _ = run(capsys, *ONCE)
    assert code == 0
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert out.startswith("attributed 3 traces")


@pytest.mark.model
def test_another_process_does_it_with_a_real_model(tmp_path: Path, small_engine: object) -> None:
    path = tmp_path / "a.db"
    with Store(path) as store:
        for n in range(2):
            messages = [{"role": "user", "content": f"{FACT}\n\nNote {n}.\n\nWhen did it open?"}]
            store.save(replace(Trace.from_messages(messages, ANSWER), metadata={"attrkit": {"engine": MODEL}}))
    command = [sys.executable, "-m", "attr_core.cli", "worker", "--once", "--db", str(path), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert (ran.returncode, ran.stderr) == (0, "")
    *outcomes, last = map(json.loads, ran.stdout.splitlines())
    assert [(outcome["state"], outcome["engine"]) for outcome in outcomes] == [("done", MODEL)] * 2
    with Cache(path) as cache:
        assert last["summary"]["calls"] == cache.stats().n_entries


# --- diagnoses --------------------------------------------------------------------------------------------------------


@pytest.fixture
def planted_run(monkeypatch: pytest.MonkeyPatch) -> PlantedSample:
    """Stored, with the model that failed so as engine ``hf:planted``; every judge is the perfect one."""
    sample = planted(["chunk_dominance"], per_label=1)[0]
    monkeypatch.setitem(engines._loaded, "hf:planted", sample.model)
    monkeypatch.setattr(_job, "load_judge", lambda spec, **options: PerfectJudge())
    with Store() as store:
        store.save(sample.trace)
    return sample


DIAGNOSE = ("--once", "--diagnose", "--judge", "hf:judge")


def test_with_diagnose_it_diagnoses_what_waits(capsys: pytest.CaptureFixture[str], planted_run: PlantedSample) -> None:
    code, out, err = run(capsys, *DIAGNOSE, "--engine", "hf:planted")
    first, last = out.splitlines()
    assert (code, err) == (0, "")
    assert first.split()[:2] == [planted_run.trace.id, "chunk_dominance:"]
    assert last.startswith("diagnosed 1 trace: ")
    with Store() as store:
        assert [one.label for one in store.diagnoses(planted_run.trace.id)] == ["chunk_dominance"]
        assert len(store.attributions(planted_run.trace.id)) == 1
    assert run(capsys, *DIAGNOSE, "--engine", "hf:planted") == (0, "no trace waits for a diagnosis\n", "")


def test_what_was_attributed_before_is_diagnosed_too(
    capsys: pytest.CaptureFixture[str], planted_run: PlantedSample
) -> None:
    run(capsys, "--once", "--engine", "hf:planted")
    code, out, _ = run(capsys, *DIAGNOSE, "--engine", "hf:planted", "--json")
    first, last = map(json.loads, out.splitlines())
    assert (code, first["label"], last["summary"]["done"]) == (0, "chunk_dominance", 1)
    with Store() as store:
        assert len(store.attributions(planted_run.trace.id)) == 1


def test_the_judge_alone_is_asked_without_an_engine(
    capsys: pytest.CaptureFixture[str], planted_run: PlantedSample
) -> None:
    code, out, _ = run(capsys, *DIAGNOSE, "--strategy", "support")
    assert (code, out.splitlines()[-1].split(":")[0]) == (0, "diagnosed 1 trace")
    assert n_attributed() == 0
    with Store() as store:
        assert [one.strategy for one in store.diagnoses(planted_run.trace.id)] == ["support"]


def test_a_dry_run_says_that_diagnoses_cannot_be_planned(
    capsys: pytest.CaptureFixture[str], planted_run: PlantedSample
) -> None:
    code, out, _ = run(capsys, *DIAGNOSE, "--engine", "hf:planted", "--dry-run")
    assert code == 0
    assert out.splitlines()[0].startswith("would attribute 1 trace: ")
    assert out.splitlines()[1] == "would diagnose 1 trace: at what cost is not known before"
    assert n_attributed() == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--judge", "hf:judge"), "pass diagnose=True"),
        (("--diagnose", "--strategy", "guess"), "strategy 'guess' is unknown"),
        (("--diagnose", "--budget-per-day", "calls=9"), "cap the calls of each run too, by budget"),
        (("--diagnose", "--strategy", "support", "--dry-run"), "nothing can be planned"),
    ],
)
def test_what_cannot_be_diagnosed_so_is_an_error(
    capsys: pytest.CaptureFixture[str], planted_run: PlantedSample, arguments: tuple[str, ...], says: str
) -> None:
    code, out, err = run(capsys, "--once", *arguments)
    assert (code, out) == (2, "")
    assert says in err


def test_without_an_engine_it_asks_for_one_to_diagnose_on(
    capsys: pytest.CaptureFixture[str], planted_run: PlantedSample
) -> None:
    code, _, err = run(capsys, *DIAGNOSE)
    assert code == 2
    assert "left without a diagnosis" in err
    assert "attrkit worker --once --diagnose --engine hf:MODEL" in err
