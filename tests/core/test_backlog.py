"""What was stored without an attribution gets one: each once, the oldest first, and nothing is measured twice."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from attr_core import backlog as backlog_module
from attr_core._storage import spending
from attr_core._storage.at_work import AtWork
from attr_core.backlog import Backlog, Outcome
from attr_core.cache import Cache
from attr_core.errors import ConfigurationError, ContextTooLongError, EngineError
from attr_core.protocols import TokenScores
from attr_core.results import Budget
from attr_core.sampling import is_sampled
from attr_core.store import Store
from attr_core.testing import AdditiveEngine
from attr_core.types import Generation, Message, Prompt, ToolCall, Trace

FACT = "The Aldemoor fair opened in 1911."
ANSWER = "It opened in 1911."
START = datetime(2026, 11, 30, tzinfo=UTC)


class Scoring:
    """Scores as it should, after whatever the test wants to happen first with what it is sent."""

    spec, max_context = "test:scoring", None

    def __init__(self, first: Callable[[Sequence[Prompt]], Any] = lambda prompts: None) -> None:
        self.inner, self.first = AdditiveEngine({"1911": {FACT: 9.0}}, bias=-5.0), first

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        self.first(prompts)
        return self.inner.score(prompts, continuation)


def a_trace(n: int = 0, **changes: Any) -> Trace:
    content = f"{FACT}\n\nNote {n}.\n\nWhen did it open?"
    trace = Trace.from_messages([{"role": "user", "content": content}], ANSWER)
    return replace(trace, **{"started": START + timedelta(minutes=n), **changes})


def large_trace() -> Trace:
    """One with more ablations than a slice holds."""
    documents = [FACT, *(f"Fact {n} is that." for n in range(8))]
    content = "\n\n".join([*documents, "When did it open?"])
    return Trace.from_messages([{"role": "user", "content": content}], ANSWER, documents=documents)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "attrkit.db") as opened:
        yield opened


def states(outcomes: Sequence[Outcome] | Iterator[Outcome]) -> dict[str, str]:
    return {outcome.trace_id: outcome.state for outcome in outcomes}


def test_everything_that_waits_is_attributed_the_oldest_first(store: Store) -> None:
    traces = [a_trace(n) for n in range(5)]
    for i in (3, 0, 4, 1, 2):
        store.save(traces[i])
    with Backlog(store, engine=(engine := Scoring())) as backlog:
        outcomes = list(backlog.work_off())
        assert [(outcome.trace_id, outcome.state) for outcome in outcomes] == [(trace.id, "done") for trace in traces]
        assert sum(outcome.cost.calls for outcome in outcomes) == engine.inner.calls == store.spending.today().calls
        assert {outcome.engine for outcome in outcomes} == {"test:scoring"}
        assert list(backlog.work_off()) == []
        store.save(later := a_trace(9))
        assert states(backlog.work_off()) == {later.id: "done"}
    for trace in (*traces, later):
        [found] = store.attributions(trace.id)
        assert "drives" in found.verdicts


def test_a_trace_is_left_as_it_was_stored(store: Store) -> None:
    trace = a_trace(metadata={"n": 1}, tags=("shop",), framework="langchain", run_id="r")
    store.save(trace)
    with Backlog(store, engine=Scoring()) as backlog:
        assert states(backlog.work_off()) == {trace.id: "done"}
    kept = store.get(trace.id)
    assert kept.with_generation(replace(kept.generations[0], segments=())) == trace


def test_one_that_fails_is_reported_skipped_and_not_tried_again(store: Store) -> None:
    traces = [a_trace(n) for n in range(6)]
    for trace in traces:
        store.save(trace)
    tries = dict.fromkeys("1234", 0)
    faults = {
        "1": EngineError("down"),
        "2": RuntimeError("CUDA"),
        "3": ContextTooLongError("too long"),
        "4": ValueError(),
    }

    def fail(prompts: Sequence[Prompt]) -> None:
        for mark in tries:
            if f"Note {mark}." in prompts[-1].messages[0].content:
                tries[mark] += 1
                raise faults[mark]

    with Backlog(store, engine=Scoring(fail)) as backlog:
        outcomes = list(backlog.work_off())
        assert [outcome.state for outcome in outcomes] == ["done", *["failed"] * 4, "done"]
        assert [outcome.reason for outcome in outcomes[1:4]] == ["down", "RuntimeError: CUDA", "too long"]
        assert list(backlog.work_off()) == []
        assert list(backlog.waiting()) == []
    assert set(tries.values()) == {1}
    with Backlog(store, engine=Scoring()) as another:
        assert set(states(another.work_off()).values()) == {"done"}


def test_a_damaged_trace_and_one_deleted_meanwhile_stop_nobody(store: Store) -> None:
    damaged, deleted, whole = a_trace(1), a_trace(2), a_trace(3)
    for trace in (damaged, deleted, whole):
        store.save(trace)
    with store._database.writing() as db:
        db.execute("UPDATE generations SET parameters = '{' WHERE trace_id = ?", [damaged.id])
    with Backlog(store, engine=Scoring()) as backlog:
        outcomes = []
        for outcome in backlog.work_off():
            if outcome.trace_id == damaged.id:
                store.delete(deleted.id)
            outcomes.append(outcome)
    assert states(outcomes) == {damaged.id: "failed", deleted.id: "gone", whole.id: "done"}, outcomes
    assert "is damaged" in (outcomes[0].reason or "")
    assert deleted.id not in store


def test_a_trace_deleted_while_it_is_measured_stays_deleted(store: Store) -> None:
    store.save(trace := a_trace())
    with Backlog(store, engine=Scoring(lambda prompts: trace.id in store and store.delete(trace.id))) as backlog:
        assert states(backlog.work_off()) == {trace.id: "gone"}
    assert trace.id not in store


def test_a_tool_call_is_something_to_attribute(store: Store) -> None:
    call = ToolCall("c", "search", {"year": 1911})
    generation = Generation((Message("user", f"{FACT}\n\nSearch for it."),), None, tool_calls=(call,))
    store.save(trace := a_trace(generations=(generation,), answer=None))
    with Backlog(store, engine=Scoring()) as backlog:
        [outcome] = backlog.work_off()
    assert (outcome.trace_id, outcome.state) == (trace.id, "done"), outcome.reason


def test_nothing_is_measured_on_an_engine_that_nobody_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    known = Scoring()

    def load(spec: Any) -> Any:
        asked.append(spec)
        return known

    monkeypatch.setattr(backlog_module, "load_engine", load)
    nameless, named = a_trace(1), a_trace(2, metadata={"attrkit": {"engine": "hf:recorded"}})
    an_object = a_trace(3, metadata={"attrkit": {"engine": {"object": "test:theirs"}}})
    for trace in (nameless, named, an_object):
        store.save(trace)
    with Backlog(store) as backlog:
        outcomes = list(backlog.work_off())
        assert states(outcomes) == {nameless.id: "no engine", named.id: "done", an_object.id: "no engine"}
        assert list(backlog.work_off()) == []
    assert asked == ["hf:recorded"]
    assert outcomes[0].reason == "no engine is named"
    assert outcomes[2].reason == "its engine was an object (test:theirs), which another process cannot load"
    monkeypatch.setenv("ATTRKIT_ENGINE", "hf:environment")
    with Backlog(store) as backlog:
        assert set(states(backlog.work_off()).values()) == {"done"}
    assert asked[1:] == ["hf:environment"] * 2


def test_the_engine_named_comes_before_the_one_recorded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTRKIT_ENGINE", "mystery:environment")
    store.save(a_trace(metadata={"attrkit": {"engine": "mystery:recorded"}}))
    with Backlog(store, engine=Scoring()) as backlog:
        assert set(states(backlog.work_off()).values()) == {"done"}


def test_an_engine_named_here_that_cannot_be_loaded_is_an_error_one_recorded_fails_its_traces(store: Store) -> None:
    store.save(a_trace(1, metadata={"attrkit": {"engine": "mystery:recorded"}}))
    store.save(a_trace(2, metadata={"attrkit": {"engine": "mystery:recorded"}}))
    with Backlog(store, engine="mystery:named") as backlog:
        for look in (backlog.work_off, backlog.plans):
            with pytest.raises(ConfigurationError, match="'mystery:named' has no known prefix"):
                list(look())
    with Backlog(store) as backlog:
        outcomes = list(backlog.work_off())
    assert {(outcome.state, outcome.reason) for outcome in outcomes} == {
        (
            "failed",
            "engine 'mystery:recorded' has no known prefix; write hf:MODEL, litellm:MODEL, server:URL#MODEL, st:MODEL",
        )
    }


def test_a_sample_is_the_one_that_capture_takes(store: Store) -> None:
    traces = [a_trace(n) for n in range(30)]
    for trace in traces:
        store.save(trace)
    with Backlog(store, engine=Scoring(), sample_rate=0.3) as backlog:
        done = states(backlog.work_off())
    assert set(done) == {trace.id for trace in traces if is_sampled(trace.id, 0.3)}
    with pytest.raises(ConfigurationError, match="sampling rate"):
        Backlog(store, sample_rate=2.0)


def test_filters_reach_the_store(store: Store) -> None:
    old, shop, chain = a_trace(0), a_trace(10, tags=("shop",)), a_trace(20, framework="langchain")
    for trace in (old, shop, chain):
        store.save(trace)
    for filters, expected in (
        ({"tag": "shop"}, [shop]),
        ({"framework": "langchain"}, [chain]),
        ({"since": START + timedelta(minutes=5)}, [shop, chain]),
    ):
        with Backlog(store, engine=Scoring(), **filters) as backlog:
            assert [pending.id for pending in backlog.waiting()] == [trace.id for trace in expected]


def test_plans_cost_nothing_and_are_what_is_then_done(store: Store) -> None:
    for n in range(3):
        store.save(a_trace(n))
    store.save(large_trace())
    with Backlog(store, engine=(engine := Scoring())) as backlog:
        plans = {planned.trace_id: planned.plan for planned in backlog.plans()}
        assert engine.inner.calls == 0
        assert store.stats().n_attributions == 0
        for outcome in backlog.work_off():
            plan = plans[outcome.trace_id]
            assert plan is not None
            assert outcome.cost.calls + outcome.cost.cache_hits <= plan.maximum.calls


def test_a_stop_is_heeded_after_a_slice_which_is_kept(store: Store) -> None:
    store.save(trace := large_trace())
    engine = Scoring()

    def stop() -> bool:
        return engine.inner.calls >= 20

    with Backlog(store, engine=engine) as backlog:
        [outcome] = backlog.work_off(stop=stop)
        assert outcome.state == "stopped"
        assert (outcome.cost.calls, engine.inner.calls) == (34, 34)  # both ends, and two slices
        assert list(backlog.work_off(stop=stop)) == []
        with Cache(store.path) as cache:
            assert cache.stats().n_entries == 34
        [again] = backlog.work_off()
    assert (again.trace_id, again.state, again.cost.cache_hits) == (trace.id, "done", 34)
    assert engine.inner.calls == 34 + again.cost.calls


def test_progress_is_told_of_the_trace_under_way(store: Store) -> None:
    store.save(large_trace())
    told: list[tuple[int, int]] = []
    with Backlog(store, engine=Scoring()) as backlog:
        [outcome] = backlog.work_off(progress=lambda done, planned: told.append((done, planned)))
    assert told[-1][0] == outcome.cost.calls
    assert all(done <= planned for done, planned in told)


def test_what_does_not_fit_into_the_day_waits_for_the_next(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(6):
        store.save(a_trace(n))
    with Backlog(store, engine=(engine := Scoring()), budget_per_day=Budget(calls=9)) as backlog:
        for number in range(3):
            today = (START + timedelta(days=number)).date()
            monkeypatch.setattr(spending, "_today", lambda today=today: today)
            outcomes = list(backlog.work_off())
            assert [outcome.state for outcome in outcomes][-1] == "postponed" or number == 2
            assert store.spending.of(today).calls <= 9
            assert states(backlog.work_off()).keys() <= {outcomes[-1].trace_id}  # no more today
        assert list(backlog.waiting()) == []
    assert engine.inner.calls == sum(store.spending.of((START + timedelta(days=n)).date()).calls for n in range(3))
    assert store.stats().n_attributions == 6


def test_a_trace_too_large_for_any_day_fails_and_the_others_go_on(store: Store) -> None:
    large, small = replace(large_trace(), started=START), a_trace(1)
    store.save(large)
    store.save(small)
    with Backlog(store, engine=Scoring(), budget_per_day=Budget(tokens=900)) as backlog:
        assert states(backlog.work_off()) == {large.id: "failed", small.id: "done"}


def test_a_day_smaller_than_the_usual_design_makes_it_smaller(store: Store) -> None:
    store.save(large_trace())
    with Backlog(store, engine=(engine := Scoring()), budget_per_day=Budget(calls=40)) as backlog:
        [outcome] = backlog.work_off()
    assert outcome.state == "done", outcome.reason
    assert engine.inner.calls <= 40


def hold_in_a_child(path: str, trace_id: str, begun: Any, end: Any) -> None:
    with AtWork(path).on(trace_id):
        begun.set()
        end.wait(60)


@pytest.mark.skipif(os.name != "posix", reason="POSIX locks")
def test_what_another_process_is_at_work_on_is_left_to_it_until_it_ends(store: Store) -> None:
    held, free = a_trace(1), a_trace(2)
    store.save(held)
    store.save(free)
    spawn = multiprocessing.get_context("spawn")
    begun, end = spawn.Event(), spawn.Event()
    child = spawn.Process(target=hold_in_a_child, args=(store.path, held.id, begun, end))
    child.start()
    assert begun.wait(60)
    with Backlog(store, engine=Scoring()) as backlog:
        assert states(backlog.work_off()) == {held.id: "elsewhere", free.id: "done"}
        child.kill()
        child.join(60)
        assert states(backlog.work_off()) == {held.id: "done"}


def test_what_another_process_was_faster_with_is_not_done_again(store: Store) -> None:
    traces = [a_trace(n) for n in range(3)]
    for trace in traces:
        store.save(trace)
    engine = Scoring()
    with Backlog(store, engine=engine) as slow, Backlog(store, engine=Scoring()) as fast:
        outcomes = slow.work_off()
        assert next(outcomes).state == "done"
        assert set(states(fast.work_off()).values()) == {"done"}
        n_calls = engine.inner.calls
        assert set(states(outcomes).values()) == {"elsewhere"}
    assert engine.inner.calls == n_calls
    assert store.stats().n_attributions == 3


def work_in_a_child(path: Path, seen: Any) -> None:
    with Store(path) as store, Backlog(store, engine=Scoring()) as backlog:
        seen.put([(outcome.trace_id, outcome.state) for outcome in backlog.work_off()])


def test_several_processes_share_the_work_and_none_does_it_twice(store: Store) -> None:
    ids = {store.save(a_trace(n)) for n in range(40)}
    spawn = multiprocessing.get_context("spawn")
    seen = spawn.Queue()
    children = [spawn.Process(target=work_in_a_child, args=(Path(store.path), seen)) for _ in range(3)]
    for child in children:
        child.start()
    outcomes = [outcome for _ in children for outcome in seen.get(timeout=120)]
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * 3
    done = [trace_id for trace_id, state in outcomes if state == "done"]
    assert {state for _, state in outcomes} <= {"done", "elsewhere"}
    assert set(done) == ids
    assert all(store.attributions(trace_id) for trace_id in ids)
    if os.name == "posix":
        assert len(done) == len(ids) == store.stats().n_attributions


def test_a_store_in_memory_keeps_its_own_results() -> None:
    with Store(":memory:") as store:
        store.save(trace := a_trace())
        with Backlog(store, engine=Scoring()) as backlog:
            assert states(backlog.work_off()) == {trace.id: "done"}
        assert len(store.attributions(trace.id)) == 1
