"""Deferred attribution never touches the host: order, faults, budgets, executors, contexts, and what is said of it."""

from __future__ import annotations

import contextvars
import gc
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attr_core import _lane
from attr_core import worker as worker_module
from attr_core._lane import Lane
from attr_core._recording.writer import current
from attr_core._storage import database
from attr_core.capture import RunRecorder
from attr_core.errors import BudgetExceededError, ConfigurationError, EngineError, PostponedError, StoreError
from attr_core.middleware import flush_logging, with_logging
from attr_core.protocols import TokenScores
from attr_core.results import Budget
from attr_core.store import Store
from attr_core.testing import AdditiveEngine
from attr_core.types import Prompt, Trace
from attr_core.worker import Worker, WorkerStats

FACT = "The Aldemoor fair opened in 1911."
ANSWER = "It opened in 1911."


class Scoring:
    """Scores as it should, after whatever the test wants to happen first."""

    spec, max_context = "test:scoring", None

    def __init__(self, first: Callable[[], Any] = lambda: None) -> None:
        self.inner, self.first = AdditiveEngine({"1911": {FACT: 9.0}}, bias=-5.0), first

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        self.first()
        return self.inner.score(prompts, continuation)


class Held(Scoring):
    """Measures nothing before it is let go."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Event()
        super().__init__(self._hold)

    def _hold(self) -> None:
        self.entered.set()
        self.gate.wait(60)


def a_trace(n: int = 0, **changes: Any) -> Trace:
    content = f"{FACT}\n\nNote {n}.\n\nWhen did it open?"
    return replace(Trace.from_messages([{"role": "user", "content": content}], ANSWER), **changes)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as opened:
        yield opened


@contextmanager
def told() -> Iterator[list[str]]:
    """The warnings that are given meanwhile, in any thread."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(warning.message) for warning in caught]


def test_traces_are_attributed_one_at_a_time_in_the_order_they_came(store: Store) -> None:
    under_way, most, order = 0, 0, []

    def look() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        time.sleep(0.001)
        under_way -= 1

    traces = [a_trace(n) for n in range(12)]
    with Worker(Scoring(look), store=store) as worker:
        futures = [worker.submit(trace) for trace in traces]
        for future in futures:
            assert future is not None
            future.add_done_callback(lambda done: order.append(done.result().trace_id))
        assert worker.flush(60)
        assert worker.stats == WorkerStats(n_done=12)
    assert most == 1
    assert order == [trace.id for trace in traces]
    for trace in traces:
        [found] = store.attributions(trace.id)
        assert "drives" in found.verdicts


def test_a_file_is_opened_where_it_is_named_and_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, default = tmp_path / "named.db", tmp_path / "default.db"
    monkeypatch.setenv("ATTRKIT_DB", str(default))
    for place, options in ((named, {"db": named}), (default, {})):
        trace = a_trace()
        with Worker(Scoring(), **options) as worker:
            worker.submit(trace)
        with Store(place) as opened:
            assert len(opened.attributions(trace.id)) == 1


def test_what_is_stored_meanwhile_is_neither_lost_nor_overwritten(tmp_path: Path) -> None:
    old = a_trace(tags=("old",), metadata={"version": 1})
    new = replace(old, tags=("new",), metadata={"version": 2}, reference="1911")
    engine = Held()
    with Store(tmp_path / "a.db") as opened, Worker(engine, db=tmp_path / "a.db") as worker:
        opened.save(old)
        worker.submit(old)
        assert engine.entered.wait(30)
        opened.save(new)
        engine.gate.set()
        assert worker.flush(60)
        kept = opened.get(old.id)
        assert len(opened.attributions(old.id)) == 1
    assert (kept.tags, kept.metadata, kept.reference) == (new.tags, new.metadata, new.reference)
    assert [segment.fixed for segment in kept.generations[0].segments] == [False, True]


def test_segments_are_not_kept_with_messages_that_were_not_cut(store: Store) -> None:
    old = a_trace()
    engine = Held()
    with Worker(engine, store=store) as worker:
        store.save(old)
        worker.submit(old)
        assert engine.entered.wait(30)
        other = replace(old.generations[0], messages=a_trace(1).generations[0].messages)
        store.save(new := old.with_generation(other))
        engine.gate.set()
        assert worker.flush(60)
    assert store.get(old.id) == new
    assert len(store.attributions(old.id)) == 1


def test_a_trace_that_is_not_stored_yet_is_added_and_one_deleted_meanwhile_stays_deleted(store: Store) -> None:
    new, deleted = a_trace(1), a_trace(2)
    engine = Held()
    with told() as warned, Worker(engine, store=store) as worker:
        store.save(deleted)
        future = worker.submit(deleted)
        assert engine.entered.wait(30)
        store.delete(deleted.id)
        engine.gate.set()
        worker.submit(new)
        assert worker.flush(60)
        assert worker.stats == WorkerStats(n_done=1, n_failed=1)
    assert future is not None
    assert isinstance(future.exception(), StoreError)
    assert new.id in store
    assert deleted.id not in store
    assert len(warned) == 1


def test_a_full_queue_drops_counts_warns_once_and_never_waits(store: Store) -> None:
    engine = Held()
    with told() as warned:
        worker = Worker(engine, store=store, queue_limit=3)
        assert worker.submit(a_trace()) is not None
        assert engine.entered.wait(30)
        taken = [worker.submit(a_trace(n)) is not None for n in range(8)]
        assert taken == [True] * 3 + [False] * 5
        assert worker.stats == WorkerStats(n_dropped=5, n_pending=4)
        assert not worker.flush(0.05)
        engine.gate.set()
        assert worker.close(60)
    assert worker.stats == WorkerStats(n_done=4, n_dropped=5)
    assert warned == ["attrkit: 3 traces wait for attribution; runs go without it until the worker catches up"]


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (EngineError("down"), EngineError),
        (RuntimeError("CUDA out of memory"), RuntimeError),
        (MemoryError(), MemoryError),
        (SystemExit(1), EngineError),
        (KeyboardInterrupt(), EngineError),
    ],
)
def test_an_engine_that_fails_is_told_of_once_and_the_next_trace_is_attributed(
    store: Store, error: BaseException, kept: type[Exception]
) -> None:
    failing = iter([error, error])

    def fail() -> None:
        for one in failing:
            raise one

    with told() as warned, Worker(Scoring(fail), store=store) as worker:
        futures = [worker.submit(a_trace(n)) for n in range(3)]
        assert worker.flush(60)
        assert worker.stats == WorkerStats(n_done=1, n_failed=2)
    assert [type(future.exception()) for future in futures if future is not None] == [kept, kept, type(None)]
    [text] = warned
    assert f"a run could not be attributed ({type(error).__name__}" in text


def test_nonsense_is_no_result_and_is_not_kept(store: Store) -> None:
    class Mad(Scoring):
        def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
            return [replace(one, logprobs=one.logprobs * np.nan) for one in super().score(prompts, continuation)]

    class Empty(Scoring):
        def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
            return []

    for engine in (Mad(), Empty()):
        with told(), Worker(engine, store=store) as worker:
            future = worker.submit(a_trace())
            assert future is not None
            assert isinstance(future.exception(60), EngineError)
    assert store.stats().n_attributions == 0


def test_anything_may_be_submitted(store: Store) -> None:
    with told() as warned, Worker(Scoring(), store=store) as worker:
        worker.submit(None)  # type: ignore[arg-type]
        worker.submit(replace(a_trace(), generations=()))
        worker.submit(a_trace(answer=None))
        assert worker.flush(60)
        assert worker.stats == WorkerStats(n_done=1, n_failed=2)
    assert len(warned) == 2


def test_a_locked_database_costs_that_attribution_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    engine = Scoring()
    with told(), Store(path) as opened, Worker(engine, db=path) as worker:
        opened.save(trace := a_trace())
        with monkeypatch.context() as patched, opened._database.writing():
            patched.setattr(database, "BUSY_SECONDS", 0.05)
            future = worker.submit(trace)
            assert future is not None
            assert isinstance(future.exception(60), StoreError)
        worker.submit(trace)
        assert worker.flush(60)
        assert worker.stats == WorkerStats(n_done=1, n_failed=1)
        assert len(opened.attributions(trace.id)) == 1


SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


@pytest.mark.parametrize("in_executor", [False, True])
def test_a_job_sees_nothing_of_the_hosts_context_and_leaves_nothing_in_the_next(
    store: Store, in_executor: bool
) -> None:
    seen: list[str] = []
    delivered: list[Trace] = []
    recorder = RunRecorder(lambda trace, complete: delivered.append(trace), framework="test")

    def look() -> None:
        seen.append(SEEN.get())
        SEEN.set("a job's")
        recorder.begin("its own call")
        recorder.finish("its own call")

    SEEN.set("the host's")
    with (
        ThreadPoolExecutor(1) as executor,
        Worker(Scoring(look), store=store, executor=executor if in_executor else None) as worker,
    ):
        for n in range(2):
            worker.submit(a_trace(n))
        assert worker.flush(60)
        assert worker.stats.n_done == 2
    firsts = [seen[0], next(text for text in seen[1:] if text != "a job's")]
    assert firsts == ["nothing", "nothing"]
    assert delivered == []
    recorder.begin("the host's call")
    recorder.finish("the host's call")
    assert len(delivered) == 1


def test_a_logged_function_that_an_engine_calls_logs_nothing(store: Store) -> None:
    complete = with_logging(lambda model, messages: {"choices": [{"message": {"content": "hm"}}]}, store=store)
    question = [{"role": "user", "content": "q"}]
    with Worker(Scoring(lambda: complete("m", question)), store=store) as worker:
        worker.submit(a_trace())
        assert worker.flush(60)
    assert flush_logging(60)
    assert store.stats().n_traces == 1
    complete("m", question)
    assert flush_logging(60)
    assert store.stats().n_traces == 2


def test_what_an_engine_submits_itself_is_dropped(store: Store) -> None:
    inside: list[Future[Any] | None] = []
    with told() as warned:
        worker = Worker(Scoring(lambda: inside.append(worker.submit(a_trace()))), store=store)
        worker.submit(a_trace())
        assert worker.flush(60)
        assert worker.close(60)
    assert set(inside) == {None}
    assert worker.stats == WorkerStats(n_done=1, n_dropped=len(inside))
    assert "would never end" in warned[0]


def test_a_flush_from_inside_does_not_wait_for_itself(store: Store) -> None:
    flushed: list[bool] = []
    worker = Worker(Scoring(lambda: flushed.append(worker.flush())), store=store)
    future = worker.submit(a_trace())
    assert future is not None
    future.add_done_callback(lambda done: flushed.append(worker.flush()))
    future.add_done_callback(lambda done: flushed.append(worker.close()))
    assert future.result(60)
    assert worker.close(60)
    assert set(flushed) == {False}
    assert worker.stats.n_done == 1


def test_a_callback_may_submit_and_may_fail(store: Store) -> None:
    more: list[Future[Any] | None] = []

    def submit_another(done: Future[Any]) -> None:
        more.append(worker.submit(a_trace(1)))
        raise SystemExit

    with Worker(Scoring(), store=store) as worker:
        future = worker.submit(a_trace())
        assert future is not None
        future.add_done_callback(submit_another)
        assert future.result(60)
        assert worker.flush(60)
        [other] = more
        assert other is not None
        assert other.result(60)


def test_the_engine_is_loaded_by_the_worker_not_by_the_host(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded_in: list[str] = []

    def load(spec: Any) -> Any:
        loaded_in.append(threading.current_thread().name)
        return Scoring()

    monkeypatch.setattr(worker_module, "load_engine", load)
    with Worker("hf:some-model", store=store) as worker:
        assert loaded_in == []
        worker.submit(a_trace())
    assert loaded_in == ["attrkit-worker"]


def test_an_engine_that_cannot_be_loaded_is_not_tried_for_every_trace(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def load(spec: Any) -> Any:
        nonlocal tries
        tries += 1
        raise ConfigurationError("no such engine")

    monkeypatch.setattr(worker_module, "load_engine", load)
    with told() as warned, Worker("hf:none", store=store) as worker:
        for n in range(5):
            worker.submit(a_trace(n))
        assert worker.flush(60)
        assert worker.stats == WorkerStats(n_failed=5)
        assert (tries, len(warned)) == (1, 0)
        monkeypatch.setattr(worker_module, "_RETRY_SECONDS", 0.0)
        worker.submit(a_trace())
        assert worker.flush(60)
    assert tries == 2
    assert len(warned) == 1


def test_an_executor_does_the_work_one_trace_at_a_time(store: Store) -> None:
    threads, at_once, most = set(), 0, 0

    def look() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        threads.add(threading.current_thread().name)
        time.sleep(0.002)
        at_once -= 1

    with (
        ThreadPoolExecutor(4, thread_name_prefix="theirs") as executor,
        Worker(Scoring(look), store=store, executor=executor) as worker,
    ):
        for n in range(6):
            worker.submit(a_trace(n))
        assert worker.flush(60)
        assert worker.stats.n_done == 6
    assert most == 1
    assert all(name.startswith("theirs") for name in threads)


def test_an_executor_that_was_shut_down_drops_what_comes_and_holds_nobody_up(store: Store) -> None:
    executor = ThreadPoolExecutor(1)
    with told() as warned, Worker(Scoring(), store=store, executor=executor) as worker:
        first = worker.submit(a_trace())
        assert first is not None
        assert first.result(60)
        executor.shutdown()
        futures = [worker.submit(a_trace(n)) for n in range(3)]
        assert worker.flush(60)
        assert worker.stats == WorkerStats(n_done=1, n_dropped=3)
    assert all(future is not None and future.exception(1) is not None for future in futures)
    [text] = warned
    assert "the executor takes no attribution any more" in text


def test_a_cancelled_future_is_not_measured(store: Store) -> None:
    engine = Held()
    with Worker(engine, store=store) as worker:
        worker.submit(a_trace())
        assert engine.entered.wait(30)
        future = worker.submit(a_trace(1))
        assert future is not None
        assert future.cancel()
        engine.gate.set()
        assert worker.flush(60)
        assert worker.stats == WorkerStats(n_done=1, n_dropped=1)
    assert store.stats().n_attributions == 1


def test_a_closed_worker_refuses_and_counts(store: Store) -> None:
    with told() as warned:
        with Worker(Scoring(), store=store) as worker:
            worker.submit(a_trace())
        assert worker.stats == WorkerStats(n_done=1)
        assert [worker.submit(a_trace(n)) for n in range(2)] == [None, None]
        assert worker.close(1)
    assert worker.stats == WorkerStats(n_done=1, n_dropped=2)
    assert warned == ["attrkit: a worker was closed; what is submitted to it now is not attributed"]


def test_closing_in_vain_gives_up_what_waits_and_says_how_to_finish_it(tmp_path: Path) -> None:
    engine = Held()
    with told() as warned:
        worker = Worker(engine, db=tmp_path / "a b.db")
        futures = [worker.submit(a_trace(n)) for n in range(3)]
        assert engine.entered.wait(30)
        assert not worker.close(0.05)
        assert worker.stats == WorkerStats(n_pending=3)
        assert not worker.close(0.05)  # nothing more to say
        engine.gate.set()
        assert isinstance(futures[0].exception(60), CancelledError)
    assert worker.stats == WorkerStats(n_pending=3)
    for future in futures[1:]:
        with pytest.raises(CancelledError):
            future.result(1)
    [text] = warned
    assert text.startswith("attrkit: 3 attributions are pending that this process did not make; their engine was an ")
    assert text.endswith(f"attrkit worker --once --engine SPEC --db '{tmp_path / 'a b.db'}'")


def test_what_is_left_half_done_keeps_what_was_measured(tmp_path: Path) -> None:
    path, engine = tmp_path / "a.db", Held()
    documents = [f"Fact {n} is that." for n in range(8)]
    content = "\n\n".join([FACT, *documents, "When did it open?"])
    trace = Trace.from_messages([{"role": "user", "content": content}], ANSWER, documents=[FACT, *documents])
    with told(), Store(path) as opened:
        opened.save(trace)
        worker = Worker(engine, db=path)
        future = worker.submit(trace)
        assert future is not None
        assert engine.entered.wait(30)
        assert not worker.close(0.05)
        engine.gate.set()
        assert isinstance(future.exception(60), CancelledError)
        n_measured = engine.inner.calls
        assert 0 < n_measured <= 16
        again = Worker(Scoring(), db=path)
        done = again.submit(trace)
        assert done is not None
        assert done.result(60).cost.cache_hits == n_measured
        assert again.close(60)


def test_a_budget_holds_for_each_trace(store: Store) -> None:
    with told(), Worker(Scoring(), store=store, budget=Budget(calls=3)) as worker:
        future = worker.submit(a_trace())
        assert future is not None
        found = future.exception(60) or future.result()
    assert isinstance(found, BudgetExceededError) or found.cost.calls <= 3


def test_what_does_not_fit_into_the_day_is_postponed_and_costs_nothing(store: Store) -> None:
    engine = Scoring()
    with told() as warned, Worker(engine, store=store, budget_per_day=Budget(calls=9)) as worker:
        futures = [worker.submit(a_trace(n)) for n in range(4)]
        assert worker.flush(60)
        stats = worker.stats
    assert (stats.n_done, stats.n_postponed, stats.n_failed) == (2, 2, 0)
    assert engine.inner.calls == store.spending.today().calls <= 9
    assert isinstance(futures[3].exception(), PostponedError)
    assert len(warned) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": " "}, "no engine is given"),
        ({"engine": None}, "no engine is given"),
        ({"engine": object()}, "is no engine"),
        ({"db": "a", "store": "b"}, "both db and store"),
        ({"queue_limit": 0}, "leaves no room"),
        ({"options": {"granularty": "chunk"}}, "'granularty' is not known here; use estimator, screen_with"),
        ({"options": {"budget": Budget()}}, "'budget' is not known here"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Worker(**{"engine": Scoring(), **options})


def test_options_are_those_of_attribute(store: Store) -> None:
    with Worker(Scoring(), store=store, options={"estimator": "leave-one-out", "granularity": "message"}) as worker:
        future = worker.submit(a_trace())
        assert future is not None
        found = future.result(60)
    assert found.method.endswith("LeaveOneOut")
    assert store.get(found.trace_id).generations[0].segments == ()  # of this look only


def test_a_worker_that_nobody_holds_is_collected_with_its_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lane, "IDLE_SECONDS", 0.01)
    worker = Worker(Scoring(), store=store)
    worker.submit(a_trace())
    assert worker.flush(60)
    thread, watched = worker._lane._thread, weakref.ref(worker)
    if thread is not None:
        thread.join(30)
    del worker
    gc.collect()
    assert watched() is None


def test_a_submission_by_the_garbage_collector_inside_a_submission_waits_for_nothing(store: Store) -> None:
    class Abandoned:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            worker.submit(a_trace())

    worker = Worker(Scoring(), store=store)
    with worker._lane._starting, worker._counting:
        Abandoned()
        gc.collect()
    assert worker.close(60)
    assert worker.stats.n_done == 1


def test_without_a_thread_to_be_had_a_flush_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worker = Worker(Scoring(), store=store)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        future = worker.submit(a_trace())
        assert not worker.flush(10)
        assert worker.stats == WorkerStats(n_pending=1)
    assert worker.close(60)
    assert future is not None
    assert future.done()


def test_a_thread_that_ends_for_want_of_work_never_leaves_any_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lane, "IDLE_SECONDS", 0.0)
    done: list[int] = []
    at_once = most = 0

    def do(number: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        done.append(number)
        at_once -= 1

    lane: Lane[int] = Lane(do, name="test", on_start=lambda: None)

    def put(first: int) -> None:
        for number in range(first, first + 500):
            lane.put(number)

    threads = [threading.Thread(target=put, args=(i * 500,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert lane.wait(60)
    assert sorted(done) == list(range(2000))
    assert most == 1


def test_the_writer_and_the_worker_share_a_database(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with told() as warned, Worker(Scoring(), db=path) as worker:
        traces = [a_trace(n, metadata={"n": n}) for n in range(20)]
        for trace in traces:
            current().put(trace, str(path), worker._complaints)
            worker.submit(trace)
        assert current().flush(60)
        assert worker.flush(60)
        assert worker.stats == WorkerStats(n_done=20)
    assert warned == []
    with Store(path) as opened:
        assert all(opened.get(trace.id).metadata == {"n": n} for n, trace in enumerate(traces))
        assert all(len(opened.attributions(trace.id)) == 1 for trace in traces)
