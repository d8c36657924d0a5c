"""What becomes of a finished run: stored always, attributed where and when its user chose."""

import asyncio
import threading
import warnings
from dataclasses import replace

import pytest

from attr_core import collector as collector_module
from attr_core.collector import Collector
from attr_core.errors import AttrkitError, ConfigurationError, TraceNotFoundError
from attr_core.sampling import is_sampled
from attr_core.store import Store
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Generation, Message, Trace

FACT = "The fair opened in 1911."


def facts():
    return AdditiveEngine({"1911": {FACT: 9.0}}, answer="In 1911.")


def run(run_id="r1", response="In 1911."):
    messages = (Message("user", f"{FACT}\n\nWhen did it open?"),)
    return Trace(None, (Generation(messages, response),), response, run_id=run_id)


@pytest.fixture
def db(tmp_path):
    return tmp_path / "attrkit.db"


def test_without_an_engine_a_run_is_stored_and_nothing_is_spent(db):
    with Collector(store=db) as collector:
        assert collector.mode == "capture"
        assert collector.deliver(run()) is None
        assert collector.flush(10)
        assert collector.result("r1") is None
        assert collector.trace("r1").answer == "In 1911."
    with Store(db) as store:
        assert store.attributions(store.last().id) == []


def test_with_an_engine_it_is_attributed_later(db):
    with Collector(engine=facts(), store=db) as collector:
        assert collector.mode == "deferred"
        assert collector.deliver(run()) is None
        assert collector.result("r1", timeout=60).response == "In 1911."
        assert collector.stats.n_done == 1
    with Store(db) as store:
        assert len(store.attributions(store.last().id)) == 1


def test_in_inline_mode_the_result_is_given_at_once(db):
    with Collector(mode="inline", engine=facts(), store=db) as collector:
        trace = run()
        assert collector.deliver(trace).trace_id == trace.id


def test_an_inline_attribution_that_takes_too_long_goes_on_without_the_application(db):
    release = threading.Event()

    def wait(prompt, word):
        release.wait(60)
        return -1.0

    with Collector(mode="inline", engine=ScriptedEngine(logprob=wait), store=db, time_limit=0.05) as collector:
        with pytest.warns(RuntimeWarning, match=r"longer than 0.05 s"):
            assert collector.deliver(run()) is None
        release.set()
        assert collector.result("r1", timeout=60) is not None


def test_a_run_that_is_not_complete_is_stored_and_attributed_once_it_is(db):
    engine = facts()
    with Collector(engine=engine, store=db) as collector:
        trace = run()
        collector.deliver(replace(trace, generations=(), answer=None), complete=False)
        assert collector.flush(10)
        assert (collector.trace().answer, engine.calls) == (None, 0)
        collector.deliver(trace)
        collector.deliver(replace(trace, tags=("late",)))
        assert collector.flush(60)
        assert collector.stats.n_done == 1
        assert collector.trace().tags == ("late",), "what was learnt last is what is kept"
    with Store(db) as store:
        assert len(store.list()) == 1
        assert len(store.attributions(trace.id)) == 1


def test_all_runs_are_stored_and_the_sampled_ones_attributed(db):
    with Collector(engine=facts(), store=db, sample_rate=0.3) as collector:
        traces = [run(f"r{n}") for n in range(40)]
        for trace in traces:
            collector.deliver(trace)
        assert collector.flush(60)
        sampled = {trace.id for trace in traces if is_sampled(trace.id, 0.3)}
        assert collector.stats.n_done == len(sampled)
    with Store(db) as store:
        assert len(store.list(limit=None)) == 40
        assert {
            trace.id for trace in traces if store.get(trace.id).metadata.get("attrkit", {}).get("sampled", True)
        } == sampled
        assert all(bool(store.attributions(trace.id)) == (trace.id in sampled) for trace in traces)


def test_a_trace_says_on_which_engine_it_was_to_be_measured(db):
    with Collector(mode="capture", engine="hf:some/model", store=db) as collector:
        collector.deliver(run())
        collector.flush(10)
        assert collector.trace().metadata["attrkit"] == {"engine": "hf:some/model"}
    with Collector(engine=facts(), store=db) as collector:
        collector.deliver(run())
        collector.flush(60)
        assert collector.trace().metadata["attrkit"] == {"engine": {"object": "test:additive"}}


def test_a_redactor_does_not_touch_what_another_process_is_told(db):
    with Collector(mode="capture", engine="hf:some/model", store=db, redact=lambda text: "hidden") as collector:
        collector.deliver(replace(run(), metadata={"note": "some"}))
        collector.flush(10)
        assert collector.trace().metadata["attrkit"] == {"engine": "hf:some/model"}
        assert collector.trace().metadata["note"] == "hidden"


def test_a_store_in_memory_named_by_its_path_holds_traces_and_results():
    with Collector(engine=facts(), store=":memory:") as collector:
        collector.deliver(run())
        assert collector.flush(60)
        assert collector.trace("r1").answer == "In 1911."
        assert collector.result("r1").response == "In 1911."


@pytest.mark.parametrize("mode", ["capture", "deferred"])
def test_an_option_that_there_is_not_is_refused_in_every_mode(db, mode):
    with pytest.raises(ConfigurationError, match="option 'sampel_rate' is not known"):
        Collector(mode=mode, engine=facts(), store=db, sampel_rate=0.1)


def test_a_stamp_has_the_compact_result_once_the_run_is_delivered_inline(db):
    with Collector(mode="inline", engine=facts(), store=db) as collector:
        trace = run()
        stamps = [collector.stamp(trace.id), collector.stamp(trace.id)]
        assert stamps == [{"trace_id": trace.id}] * 2
        collector.deliver(trace)
        assert stamps[0] == stamps[1] != {"trace_id": trace.id}
        assert stamps[0]["claims"][0]["targets"][0]["text"] == "1911"
        assert collector._stamps == {}
    with Collector(engine=facts(), store=db) as collector:
        stamp = collector.stamp(trace.id)
        collector.deliver(trace)
        collector.flush(60)
        assert (stamp, collector._stamps) == ({"trace_id": trace.id}, {})


def test_a_run_without_a_models_words_is_stored_and_not_attributed(db):
    with Collector(engine=facts(), store=db) as collector:
        collector.deliver(run(response=None))
        collector.deliver(replace(run("r2"), generations=()))
        assert collector.flush(60)
        stats = collector.stats
        assert (stats.n_done, stats.n_failed, stats.n_dropped) == (0, 0, 0)
    with Store(db) as store:
        assert len(store.list()) == 2


def test_results_land_in_the_very_store_that_was_given():
    with Store(":memory:") as store, Collector(engine=facts(), store=store) as collector:
        trace = run()
        collector.deliver(trace)
        assert collector.flush(60)
        assert len(store.attributions(trace.id)) == 1
        assert collector.result().trace_id == trace.id


def test_why_a_run_could_not_be_attributed_is_raised_where_it_is_asked_for(db):
    engine = ScriptedEngine(failures=dict.fromkeys(range(1, 50), RuntimeError("out of memory")))
    with Collector(engine=engine, store=db) as collector:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            collector.deliver(run())
            collector.flush(60)
        with pytest.raises(Exception, match="out of memory"):
            collector.result("r1")


def test_listeners_hear_results_and_their_faults_harm_nobody(db):
    heard = []
    with Collector(engine=facts(), store=db) as collector:
        collector.on_result(lambda trace, result: 1 / 0)
        collector.on_result(lambda trace, result: heard.append((trace.run_id, result.response)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            collector.deliver(run())
            collector.flush(60)
            collector.close(60)
    assert heard == [("r1", "In 1911.")]


def test_only_so_many_runs_are_remembered_and_older_ones_are_read_from_the_store(db, monkeypatch):
    monkeypatch.setattr(collector_module, "_REMEMBERED", 3)
    with Collector(engine=facts(), store=db) as collector:
        for n in range(10):
            collector.deliver(run(f"r{n}"))
        assert collector.flush(60)
        assert len(collector._runs) == 3
        assert collector.result("r0").response == "In 1911."


def test_a_coroutine_can_wait_and_give_up(db):
    release = threading.Event()
    engine = ScriptedEngine(logprob=lambda prompt, word: -1.0 if release.wait(60) else 0.0)

    async def ask(collector):
        with pytest.raises(TimeoutError):
            await collector.aresult("r1", timeout=0.05)
        release.set()
        return await collector.aresult("r1", timeout=60)

    with Collector(engine=engine, store=db) as collector:
        collector.deliver(run())
        assert asyncio.run(ask(collector)).response == "In 1911."


def test_what_was_never_seen_is_not_found(db):
    with Collector(store=db) as collector:
        with pytest.raises(TraceNotFoundError):
            collector.result()
        with pytest.raises(TraceNotFoundError):
            collector.trace("r1")


class Saves:
    def __init__(self):
        self.saved = []

    def save(self, trace):
        self.saved.append(trace)
        return trace.id


def test_an_object_that_only_saves_takes_traces_and_no_results():
    store = Saves()
    with Collector(store=store) as collector:
        collector.deliver(run())
        assert collector.flush(10)
        assert [trace.run_id for trace in store.saved] == ["r1"]
        with pytest.raises(AttrkitError, match="only saves"):
            collector.trace()
    with pytest.raises(ConfigurationError, match="takes no results"):
        Collector(store=store, engine=facts())


def test_after_closing_runs_are_still_stored(db):
    collector = Collector(engine=facts(), store=db)
    collector.close(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collector.deliver(run())
    assert collector.stats.n_dropped == 1
    collector.flush(10)
    assert collector.trace().answer == "In 1911."
