"""Diagnoses beside attributions: made after them and on one budget, and never at their cost or the application's."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from attr_core.api import diagnose
from attr_core.backlog import Backlog
from attr_core.collector import Collector
from attr_core.errors import (
    BudgetExceededError,
    ConfigurationError,
    EngineError,
    JudgeError,
    MissingCapabilityError,
    PostponedError,
)
from attr_core.evaluation.planted import PerfectJudge, PlantedSample, planted
from attr_core.reports.compact import compact, compact_diagnosis
from attr_core.results import Budget, Diagnosis, Support
from attr_core.store import Store
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Claim, Prompt, Segment, Trace
from attr_core.worker import Worker, WorkerStats

SAMPLE = planted(["chunk_dominance"], per_label=1)[0]
MANY = planted(["chunk_dominance"], per_label=8)
KEYS = {"label", "headline", "outcome", "culprits", "confidence", "fixes", "secondary"}


@dataclass
class Judging:
    """The perfect judge, after whatever the test wants to happen first."""

    first: Callable[[], Any] = lambda: None
    of: PerfectJudge = field(default_factory=PerfectJudge)

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        self.first()
        return self.of.judge(claims, segments, question=question)


class Counting:
    """An engine that counts the prompts it is sent."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.n = inner, 0
        self.spec, self.fingerprint = inner.spec, inner.fingerprint
        self.max_context, self.price = inner.max_context, inner.price

    def score(self, prompts: Sequence[Any], continuation: str) -> Any:
        self.n += len(prompts)
        return self.inner.score(prompts, continuation)

    def generate(self, prompts: Sequence[Any], *sampling: Any) -> Any:
        self.n += len(prompts)
        return self.inner.generate(prompts, *sampling)


def run(sample: PlantedSample = SAMPLE, run_id: str = "r1") -> Trace:
    return replace(sample.trace, run_id=run_id)


def by_hand(sample: PlantedSample = SAMPLE, **options: Any) -> Diagnosis:
    options = {"engine": sample.model, "judge": PerfectJudge(), **options}
    return diagnose(sample.trace, db=":memory:", **options)


def raises(error: BaseException) -> Judging:
    def first() -> None:
        raise error

    return Judging(first)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "attrkit.db"


# --- what is found, and where it is told ------------------------------------------------------------------------------


def test_inline_both_are_told_under_one_key_and_stored(db: Path) -> None:
    with Collector(mode="inline", engine=SAMPLE.model, store=db, diagnose=True, judge=PerfectJudge()) as collector:
        told: dict[str, Any] = {"trace_id": SAMPLE.trace.id}
        stamp = collector.stamp(SAMPLE.trace.id)
        attribution = collector.deliver(run(), into=told)
        diagnosis = collector.diagnosis("r1", timeout=0)
    assert attribution is not None
    assert diagnosis is not None
    assert diagnosis.label == by_hand().label == SAMPLE.label
    assert diagnosis.culprits == by_hand().culprits == tuple(SAMPLE.culprits[0])
    assert told == stamp == compact(attribution, diagnosis)
    assert told["diagnosis"] == compact_diagnosis(diagnosis)
    assert set(told["diagnosis"]) == KEYS
    assert {key: value for key, value in told.items() if key != "diagnosis"} == compact(attribution)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    with Store(db) as store:
        assert [one.trace_id for one in store.attributions(SAMPLE.trace.id)] == [SAMPLE.trace.id]
        assert [one.label for one in store.diagnoses(SAMPLE.trace.id)] == [SAMPLE.label]


def test_a_confidence_that_is_not_known_is_null() -> None:
    assert compact_diagnosis(Diagnosis("ok", "it is right"))["confidence"] is None
    assert compact(None, Diagnosis("ok", "it is right", trace_id="t"))["trace_id"] == "t"
    assert compact(None) == {}


def test_deferred_both_are_there_later(db: Path) -> None:
    told: list[tuple[str, str]] = []
    with Collector(engine=SAMPLE.model, store=db, diagnose=True, judge=PerfectJudge()) as collector:
        collector.on_result(lambda trace, found: told.append((trace.id, found.trace_id)))
        collector.on_diagnosis(lambda trace, found: told.append((trace.id, found.label)))
        assert collector.deliver(run()) is None
        diagnosis = collector.diagnosis("r1", timeout=60)
        attribution = collector.result("r1", timeout=0)
        assert asyncio.run(collector.adiagnosis(SAMPLE.trace.id)) is diagnosis
        assert collector.flush(60)
        assert collector.stats == WorkerStats(n_done=1)
    assert diagnosis is not None
    assert attribution is not None
    assert told == [(SAMPLE.trace.id, SAMPLE.trace.id), (SAMPLE.trace.id, SAMPLE.label)]
    with Collector(store=db) as another:
        found = another.diagnosis("r1")
        assert found is not None
        assert found.to_dict() == diagnosis.to_dict(), "of an earlier process it is found in the store"
        assert asyncio.run(another.adiagnosis()) is not None


def test_a_run_that_is_not_diagnosed_has_none(db: Path) -> None:
    with Collector(engine=SAMPLE.model, store=db) as collector:
        collector.deliver(run())
        assert collector.result("r1", timeout=60) is not None
        assert collector.diagnosis("r1") is None


def test_the_expected_answer_is_what_the_application_recorded(db: Path) -> None:
    for name, reference in (("known", SAMPLE.expected), ("unknown", None)):
        with Collector(mode="inline", engine=SAMPLE.model, store=db, diagnose=True, judge=PerfectJudge()) as collector:
            collector.deliver(replace(run(), id=name, reference=reference))
            found = collector.diagnosis()
            assert found is not None
            assert found.expected == reference


def test_eight_at_once_get_their_own(db: Path) -> None:
    expected = {one.trace.id: by_hand(one, engine=SAMPLE.model) for one in MANY}
    with Collector(mode="inline", engine=SAMPLE.model, store=db, diagnose=True, judge=PerfectJudge()) as collector:

        def deliver(sample: PlantedSample) -> dict[str, Any]:
            told: dict[str, Any] = {}
            collector.deliver(run(sample, f"run-{sample.id}"), into=told)
            return told

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(deliver, MANY))
        assert collector.stats == WorkerStats(n_done=8)
        for sample, told in zip(MANY, found, strict=True):
            by_run = collector.diagnosis(f"run-{sample.id}")
            assert by_run is not None
            assert told["trace_id"] == by_run.trace_id == sample.trace.id
            assert told["diagnosis"]["culprits"] == list(expected[sample.trace.id].culprits)
            assert told["diagnosis"]["label"] == expected[sample.trace.id].label
    assert len({tuple(told["diagnosis"]["culprits"]) for told in found}) > 1


# --- what nobody asked for --------------------------------------------------------------------------------------------


def test_without_it_nothing_of_it_is_imported_and_not_a_call_is_made_more(db: Path) -> None:
    script = f"""
import sys
from attr_core.collector import Collector
from attr_core.testing import AdditiveEngine
from attr_core.types import Trace
fact = "The fair opened in 1911."
trace = Trace.from_messages([{{"role": "user", "content": fact + "\\n\\nWhen did it open?"}}], "In 1911.")
with Collector(mode="inline", engine=AdditiveEngine({{"1911": {{fact: 9.0}}}}), store={str(db)!r}) as collector:
    collector.deliver(trace)
print([name for name in sys.modules if name.startswith(("attr_core.diagnos", "attr_core.support"))])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


# --- a judge that fails -----------------------------------------------------------------------------------------------


def test_a_judge_that_fails_leaves_the_attribution_and_a_diagnosis_that_says_so(db: Path) -> None:
    judge = raises(ZeroDivisionError("no"))
    with Collector(mode="inline", engine=SAMPLE.model, store=db, diagnose=True, judge=judge) as collector:
        told: dict[str, Any] = {}
        attribution = collector.deliver(run(), into=told)
        found = collector.diagnosis("r1", timeout=0)
    assert attribution is not None
    assert found is not None
    assert (found.label, found.culprits) == ("inconclusive", ())
    assert told == compact(attribution, found)


def test_a_judge_that_leaves_costs_the_diagnosis_alone(db: Path) -> None:
    judge = raises(SystemExit(3))
    with Collector(mode="inline", engine=SAMPLE.model, store=db, diagnose=True, judge=judge) as collector:
        told: dict[str, Any] = {}
        with pytest.warns(RuntimeWarning, match="could not be diagnosed .*its attribution and the run itself are not"):
            attribution = collector.deliver(run(), into=told)
        assert attribution is not None
        assert told == compact(attribution)
        assert collector.stats == WorkerStats(n_done=1)
        with pytest.raises(JudgeError, match="the judge left by SystemExit: 3"):
            collector.diagnosis("r1", timeout=0)
    with Store(db) as store:
        assert len(store.attributions(SAMPLE.trace.id)) == 1
        assert store.diagnoses(SAMPLE.trace.id) == []


def test_it_is_told_of_once_and_the_next_run_is_diagnosed(db: Path) -> None:
    errors = [SystemExit(3), SystemExit(3)]
    judge = Judging(lambda: _throw(errors))
    with Collector(mode="inline", engine=SAMPLE.model, store=db, diagnose=True, judge=judge) as collector:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for sample in MANY[:3]:
                collector.deliver(run(sample))
        assert ["could not be diagnosed" in str(one.message) for one in said] == [True]
        assert collector.diagnosis() is not None
        assert collector.stats.n_done == 3


def _throw(errors: list[SystemExit]) -> None:
    if errors:
        raise errors.pop()


def test_a_judge_that_hangs_holds_up_nothing_beyond_the_time_limit(db: Path) -> None:
    release, entered = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        release.wait(60)

    options: dict[str, Any] = {"engine": SAMPLE.model, "diagnose": True, "judge": Judging(wait)}
    with Collector(mode="deferred", store=db, **options) as collector:
        collector.deliver(run())
        assert entered.wait(60), "the attribution is cached from here on"
        assert collector.result("r1", timeout=0) is not None
        release.set()
    release.clear()
    with Collector(mode="inline", store=db, time_limit=3, **options) as collector:
        stamp, told = collector.stamp(SAMPLE.trace.id), {}
        with pytest.warns(RuntimeWarning, match="a diagnosis took longer than 3 s; it goes on in its thread"):
            attribution = collector.deliver(run(), into=told)
        assert attribution is not None
        assert told == stamp == compact(attribution)
        with pytest.raises(TimeoutError):
            collector.diagnosis("r1", timeout=0)
        release.set()
        found = collector.diagnosis("r1", timeout=60)
        assert found is not None
        assert found.label == SAMPLE.label


def test_an_attribution_that_fails_takes_its_diagnosis_with_it(db: Path) -> None:
    engine = ScriptedEngine(failures={1: EngineError("down")})
    with Collector(mode="inline", engine=engine, store=db, diagnose=True, judge=PerfectJudge()) as collector:
        told: dict[str, Any] = {}
        with pytest.warns(RuntimeWarning, match="could not be attributed"):
            assert collector.deliver(run(), into=told) is None
        assert told == {}
        for read in (collector.result, collector.diagnosis):
            with pytest.raises(EngineError, match="down"):
                read("r1", timeout=0)
        assert collector.stats == WorkerStats(n_failed=1)


def test_an_engine_that_cannot_run_the_prompt_again_still_attributes(db: Path) -> None:
    class Scoring:
        spec, max_context, price = "test:scoring", None, SAMPLE.model.price
        fingerprint = SAMPLE.model.fingerprint
        score = staticmethod(SAMPLE.model.score)

    with Collector(mode="inline", engine=Scoring(), store=db, diagnose=True, judge=PerfectJudge()) as collector:
        with pytest.warns(RuntimeWarning, match="running the prompt again"):
            assert collector.deliver(run()) is not None
        with pytest.raises(MissingCapabilityError):
            collector.diagnosis(timeout=0)


def test_a_worker_that_is_closed_leaves_a_diagnosis_half_done_and_says_how_to_finish_it(db: Path) -> None:
    entered, release = threading.Event(), threading.Event()

    def reply(prompt: Any) -> str:
        entered.set()
        release.wait(60)
        return "neutral"

    worker = Worker(SAMPLE.model, db=db, diagnose=True, judge=ScriptedEngine(reply=reply))
    submission = worker.queue(run())
    assert submission is not None
    assert submission.attribution is not None
    assert submission.diagnosis is not None
    assert submission.attribution.result(60).trace_id == SAMPLE.trace.id
    assert entered.wait(60)
    threading.Timer(0.3, release.set).start()
    with pytest.warns(RuntimeWarning, match="attrkit worker --once --diagnose --judge JUDGE --engine SPEC"):
        assert not worker.close(0.05)
    with pytest.raises(BaseException, match="the worker ended before"):
        submission.diagnosis.result(60)
    with Store(db) as store:
        assert len(store.attributions(SAMPLE.trace.id)) == 1
        assert [one.id for one in store.pending(without="diagnosis")] == [SAMPLE.trace.id]
        assert list(store.pending()) == []


# --- the judge alone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [None, "hf:no/such/model"])
def test_the_judge_alone_needs_no_engine_and_attributes_nothing(db: Path, engine: str | None) -> None:
    with Collector(engine=engine, store=db, diagnose=True, judge=PerfectJudge(), strategy="support") as collector:
        assert collector.mode == "deferred"
        collector.deliver(run())
        found = collector.diagnosis("r1", timeout=60)
        assert found is not None
        assert (found.strategy, found.proof, found.label) == ("support", None, by_hand(strategy="support").label)
        assert collector.result("r1") is None
        assert collector.stats == WorkerStats(n_done=1)
    with Collector(mode="inline", store=db, diagnose=True, judge=PerfectJudge(), strategy="support") as collector:
        told: dict[str, Any] = {}
        assert collector.deliver(run(MANY[1]), into=told) is None
        assert set(told) == {"trace_id", "diagnosis"}
        with Store(db) as store:
            assert store.stats().n_attributions == 0


def test_a_judge_alone_that_fails_is_a_run_that_failed(db: Path) -> None:
    judge = raises(SystemExit(3))
    with Collector(mode="inline", store=db, diagnose=True, judge=judge, strategy="support") as collector:
        with pytest.warns(RuntimeWarning, match="a run could not be diagnosed"):
            assert collector.deliver(run()) is None
        assert collector.stats == WorkerStats(n_failed=1)
        with pytest.raises(EngineError, match="SystemExit"):
            collector.diagnosis(timeout=0)


# --- budgets ----------------------------------------------------------------------------------------------------------


def disagreeing() -> ScriptedEngine:
    """A model that judges: nothing is ever right, so that all there is is tried."""

    def reply(prompt: Prompt) -> str:
        asked = prompt.messages[-1].content
        claims, segments = (set(re.findall(rf"^{what} (\d+):$", asked, re.MULTILINE)) for what in ("Claim", "Segment"))
        cells = [(int(claim), int(segment)) for claim in claims for segment in segments]
        said = [{"claim": c, "segment": s, "verdict": "contradicts", "why": "no"} for c, s in sorted(cells)]
        return json.dumps({"verdicts": said})

    return ScriptedEngine(reply=reply)


def calls_under(budget: Budget, db: Path) -> tuple[int, int, Any]:
    """Calls of the engine, calls of the judge, and what came of the attribution."""
    engine, judge = Counting(SAMPLE.model), disagreeing()
    with Worker(engine, db=db, diagnose=True, judge=judge, budget=budget) as worker:
        submission = worker.queue(run())
        assert submission is not None
        assert submission.attribution is not None
        assert worker.flush(120)
        return engine.n, len(judge.seen), submission.attribution.result()


@pytest.mark.filterwarnings("ignore:attrkit. a run could not be")
def test_a_cap_for_a_run_holds_over_attribution_and_diagnosis(tmp_path: Path) -> None:
    engine_calls, judge_calls, attribution = calls_under(Budget(), tmp_path / "free.db")
    n = attribution.cost.calls
    assert 0 < n < engine_calls, "the prompt was run again"
    assert judge_calls
    for more in {0, 1, judge_calls // 2, engine_calls + judge_calls - n - 1}:
        engine_calls_, judge_calls_, found = calls_under(Budget(calls=n + more), tmp_path / f"{more}.db")
        assert n <= engine_calls_ + judge_calls_ <= n + more
        assert found.trace_id == SAMPLE.trace.id, "what the cap does not allow is the diagnosis"
    everything = calls_under(Budget(calls=engine_calls + judge_calls), tmp_path / "enough.db")
    assert everything[:2] == (engine_calls, judge_calls)


def test_the_cost_of_a_diagnosis_has_that_of_its_attribution(db: Path) -> None:
    engine = Counting(SAMPLE.model)
    with Collector(mode="inline", engine=engine, store=db, diagnose=True, judge=PerfectJudge()) as collector:
        attribution, diagnosis = collector.deliver(run()), collector.diagnosis()
    assert attribution is not None
    assert diagnosis is not None
    assert attribution.cost.calls < diagnosis.cost.calls == engine.n
    with Store(db) as store:
        assert store.spending.today().calls == engine.n


def test_a_cap_for_a_day_needs_one_for_a_run(db: Path) -> None:
    for day, one in ((Budget(calls=9), Budget(tokens=9)), (Budget(usd=1.0), Budget()), (Budget(tokens=9), Budget())):
        with pytest.raises(ConfigurationError, match=r"budget_per_day caps .* cap the .* of each run too"):
            Collector(engine=SAMPLE.model, store=db, diagnose=True, budget=one, budget_per_day=day)


def test_what_a_run_may_spend_is_set_aside_for_both_before_it_begins(db: Path) -> None:
    engine_calls, judge_calls, _ = calls_under(Budget(), db.with_name("free.db"))
    total = engine_calls + judge_calls
    engine, judge = Counting(SAMPLE.model), disagreeing()
    caps: dict[str, Any] = {"budget": Budget(calls=total), "budget_per_day": Budget(calls=2 * total - 1)}
    with Worker(engine, db=db, diagnose=True, judge=judge, **caps) as worker:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            first, second = worker.queue(run()), worker.queue(run(MANY[1]))
            assert worker.flush(120)
        assert ["an attribution was postponed" in str(one.message) for one in said] == [True]
        assert first is not None
        assert second is not None
        assert second.diagnosis is not None
        assert isinstance(second.diagnosis.exception(0), PostponedError)
        assert worker.stats == WorkerStats(n_done=1, n_postponed=1)
    assert engine.n + len(judge.seen) == total
    with Store(db) as store:
        assert store.spending.today().calls == total


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"diagnose": True, "strategy": "guess"}, "strategy 'guess' is unknown"),
        ({"judge": PerfectJudge()}, "a judge is given, and nothing is to be diagnosed"),
        ({"diagnose": True, "judge": 5}, "int cannot judge"),
        ({"diagnose": True, "engine": None}, "pass engine='hf:MODEL', or strategy='support'"),
        ({"diagnose": True, "engine": None, "mode": "inline"}, "no engine is given"),
        ({"diagnose": True, "strategy": "support", "engine": None, "store": object()}, "takes no results"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(db: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Collector(**{"engine": SAMPLE.model, "store": db, **options})


def test_capture_spends_nothing_whatever_is_asked_for(db: Path) -> None:
    judge = ScriptedEngine()
    with Collector(mode="capture", store=db, diagnose=True, judge=judge) as collector:
        collector.deliver(run())
        assert collector.flush(10)
        assert collector.diagnosis("r1") is None
    assert judge.seen == []


# --- attrkit worker ---------------------------------------------------------------------------------------------------


@pytest.fixture
def store() -> Any:
    with Store(":memory:") as opened:
        yield opened


def test_the_backlog_diagnoses_what_has_no_diagnosis_with_the_attribution_that_is_there(store: Store) -> None:
    engine = Counting(SAMPLE.model)
    store.save(run())
    store.save(run(MANY[1]))
    with Backlog(store, engine=engine) as backlog:
        next(backlog.work_off())
    [known], n = store.attributions(SAMPLE.trace.id), engine.n
    with Backlog(store, engine=engine, diagnose=True, judge=PerfectJudge()) as backlog:
        assert [planned.trace_id for planned in backlog.plans()] == [MANY[1].trace.id]
        first, second = backlog.work_off()
        assert list(backlog.waiting()) == []
    assert (first.state, first.label, second.state) == ("done", SAMPLE.label, "done")
    assert [one.to_dict() for one in store.attributions(SAMPLE.trace.id)] == [known.to_dict()], "it is not made again"
    assert first.cost.calls + second.cost.calls == engine.n - n
    assert len(store.diagnoses(SAMPLE.trace.id)) == len(store.diagnoses(MANY[1].trace.id)) == 1
    assert len(store.attributions(MANY[1].trace.id)) == 1


def test_an_attribution_of_another_engine_is_made_again(store: Store) -> None:
    store.save(SAMPLE.trace)
    with Backlog(store, engine=AdditiveEngine({"never": {}})) as backlog:
        assert [one.state for one in backlog.work_off()] == ["done"]
    with Backlog(store, engine=SAMPLE.model, diagnose=True, judge=PerfectJudge()) as backlog:
        assert [one.state for one in backlog.work_off()] == ["done"]
    assert [one.measured_on for one in store.attributions(SAMPLE.trace.id)] == ["test:additive", SAMPLE.model.spec]


def test_in_the_backlog_a_diagnosis_that_fails_keeps_the_attribution_and_is_not_tried_again(store: Store) -> None:
    store.save(SAMPLE.trace)
    judge = raises(SystemExit(3))
    with Backlog(store, engine=SAMPLE.model, diagnose=True, judge=judge) as backlog:
        [outcome] = backlog.work_off()
        assert list(backlog.work_off()) == []
    assert (outcome.state, outcome.reason) == (
        "failed",
        "it is attributed, and could not be diagnosed: the judge left by SystemExit: 3",
    )
    assert len(store.attributions(SAMPLE.trace.id)) == 1


def test_the_backlog_stops_in_the_midst_of_a_diagnosis(store: Store) -> None:
    store.save(SAMPLE.trace)
    judge = ScriptedEngine(reply="neutral")
    with Backlog(store, engine=SAMPLE.model, diagnose=True, judge=judge) as backlog:
        [outcome] = backlog.work_off(stop=lambda: bool(judge.seen))
        assert outcome.state == "stopped"
        assert [one.id for one in backlog.waiting()] == [SAMPLE.trace.id]
    assert len(store.attributions(SAMPLE.trace.id)) == 1
    assert store.diagnoses(SAMPLE.trace.id) == []


def test_the_backlog_asks_a_judge_alone_without_any_engine(store: Store) -> None:
    store.save(SAMPLE.trace)
    with Backlog(store, diagnose=True, judge=PerfectJudge(), strategy="support") as backlog:
        [outcome] = backlog.work_off()
        with pytest.raises(ConfigurationError, match="nothing can be planned"):
            next(backlog.plans())
    assert (outcome.state, outcome.engine) == ("done", None)
    assert store.attributions(SAMPLE.trace.id) == []
    assert [one.strategy for one in store.diagnoses(SAMPLE.trace.id)] == ["support"]


def test_a_judge_that_there_is_not_is_told_before_anything_is_spent(store: Store) -> None:
    store.save(SAMPLE.trace)
    engine = Counting(SAMPLE.model)
    with (
        Backlog(store, engine=engine, diagnose=True, judge="mistery:model") as backlog,
        pytest.raises(ConfigurationError, match="mistery"),
    ):
        list(backlog.work_off())
    assert engine.n == 0


def test_a_budget_that_is_too_small_for_the_attribution_fails_as_ever(store: Store) -> None:
    store.save(SAMPLE.trace)
    options: dict[str, Any] = {"diagnose": True, "judge": PerfectJudge(), "budget": Budget(calls=1)}
    with Backlog(store, engine=SAMPLE.model, **options) as backlog:
        [outcome] = backlog.work_off()
    assert outcome.state == "failed"
    with pytest.raises(BudgetExceededError):
        by_budget(store)


def by_budget(store: Store) -> None:
    from attr_core.api import attribute

    attribute(SAMPLE.trace, engine=SAMPLE.model, budget=Budget(calls=1), db=":memory:")
