"""Diagnoses reach Haystack's applications as attributions do: in the component's output and in replies."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from haystack import Document, Pipeline
from haystack.components.builders import AnswerBuilder
from haystack.components.generators.chat import MockChatGenerator
from haystack.core.serialization import component_to_dict
from haystack.utils import Secret
from haystack_parts import asked, rag

from attr_core.api import diagnose
from attr_core.errors import ConfigurationError
from attr_core.evaluation.planted import PerfectJudge, planted
from attr_core.reports.compact import compact, compact_diagnosis
from attr_core.results import Budget
from attr_core.store import Store
from attr_haystack import AttributionComponent, AttributionTracer

SAMPLES = {sample.trace.query: sample for sample in planted(["chunk_dominance"], per_label=8) if sample.trace.documents}
QUESTION = next(iter(SAMPLES))
MODEL = SAMPLES[QUESTION].model


def planted_rag(question=QUESTION, *, attribution=None):
    """Finds what was planted for the question, and says the planted answer."""
    sample = SAMPLES[question]
    documents = [Document(id=one.id, content=one.text) for one in sample.trace.documents]
    return rag(MockChatGenerator(sample.trace.answer), documents=documents, attribution=attribution)


def run(question=QUESTION, *, attribution=None):
    return planted_rag(question, attribution=attribution).run(asked(question))


def options(db, **more):
    return {"engine": MODEL, "store": db, "diagnose": True, "judge": PerfectJudge(), **more}


class Failing:
    def __init__(self, first):
        self.first = first

    def judge(self, claims, segments, *, question=None):
        self.first()
        return PerfectJudge().judge(claims, segments, question=question)


def no():
    raise SystemExit(3)


# --- the component ----------------------------------------------------------------------------------------------------


def test_the_component_puts_out_attribution_and_diagnosis_under_one_key(db):
    component = AttributionComponent(**options(db))
    assert component.mode == "inline"
    outputs = run(attribution=component)["attribution"]
    told = outputs["attribution"]
    result, diagnosis = component.collector.result(), component.collector.diagnosis()
    expected = diagnose(component.collector.trace(), engine=MODEL, judge=PerfectJudge(), db=":memory:")
    assert (diagnosis.label, diagnosis.culprits) == (expected.label, expected.culprits)
    assert diagnosis.culprits, "one chunk is to blame"
    assert told == compact(result, diagnosis)
    assert told["diagnosis"] == compact_diagnosis(diagnosis)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    [reply] = outputs["replies"]
    assert reply.text == SAMPLES[QUESTION].trace.answer
    assert reply.meta["attrkit"] == told
    assert {one.meta["attrkit"]["trace_id"] for one in outputs["documents"]} == {told["trace_id"]}
    assert set(outputs) == {"replies", "attribution", "documents"}


def test_under_run_async_it_does_too(db):
    component = AttributionComponent(**options(db))
    outputs = asyncio.run(planted_rag(attribution=component).run_async(asked(QUESTION)))
    assert outputs["attribution"]["attribution"]["diagnosis"] == compact_diagnosis(component.collector.diagnosis())


def test_the_answer_builder_hands_the_diagnosis_on(db):
    component = AttributionComponent(**options(db))
    pipeline = planted_rag(attribution=component)
    pipeline.add_component("answers", AnswerBuilder())
    pipeline.connect("attribution.replies", "answers.replies")
    [answer] = pipeline.run({**asked(QUESTION), "answers": {"query": QUESTION}})["answers"]["answers"]
    assert answer.meta["attrkit"]["diagnosis"]["label"] == component.collector.diagnosis().label


def test_deferred_the_traces_id_leads_to_it(db):
    component = AttributionComponent(**options(db, mode="deferred"))
    outputs = run(attribution=component)["attribution"]
    assert set(outputs["attribution"]) == {"trace_id"}
    diagnosis = component.collector.diagnosis(outputs["attribution"]["trace_id"], timeout=60)
    component.close()
    with Store(db) as store:
        assert [one.label for one in store.diagnoses(diagnosis.trace_id)] == [diagnosis.label]


def test_a_judge_that_leaves_costs_the_diagnosis_alone_and_the_output_says_why(db):
    component = AttributionComponent(**options(db, judge=Failing(no)))
    with pytest.warns(RuntimeWarning, match="could not be diagnosed"):
        outputs = run(attribution=component)["attribution"]
    why = {"error": "JudgeError: the judge left by SystemExit: 3"}
    assert outputs["attribution"] == {**compact(component.collector.result()), "diagnosis": why}
    assert outputs["replies"][0].text == SAMPLES[QUESTION].trace.answer


def test_a_judge_that_hangs_does_too(db):
    release = threading.Event()
    component = AttributionComponent(**options(db, judge=Failing(lambda: release.wait(60)), time_limit=3))
    with pytest.warns(RuntimeWarning, match="a diagnosis took longer than 3 s"):
        outputs = run(attribution=component)["attribution"]
    assert outputs["attribution"]["claims"]
    assert outputs["attribution"]["diagnosis"]["error"].startswith("not diagnosed within 3 s")
    assert outputs["replies"][0].text == SAMPLES[QUESTION].trace.answer
    release.set()
    assert component.collector.diagnosis(timeout=60).label
    component.close()


def test_the_judge_alone_needs_no_engine(db):
    component = AttributionComponent(**options(db, engine=None, strategy="support"))
    assert component.mode == "inline"
    component.warm_up()
    outputs = run(attribution=component)["attribution"]
    assert set(outputs["attribution"]) == {"trace_id", "diagnosis"}
    assert outputs["attribution"]["diagnosis"]["label"] == component.collector.diagnosis().label
    assert [set(one.meta["attrkit"]) for one in outputs["documents"]] == [{"trace_id"}] * 3


def test_a_judge_is_written_to_yaml_by_its_spec(db):
    parameters = {
        "engine": "hf:m",
        "mode": "capture",
        "diagnose": True,
        "judge": "litellm:some/model",
        "budget": "usd=1",
    }
    component = AttributionComponent(**parameters)
    written = component_to_dict(component, "attribution")["init_parameters"]
    assert {name: written[name] for name in parameters} == {**parameters, "budget": "usd=1.0"}
    assert written["strategy"] == "cause"
    again = AttributionComponent.from_dict(component.to_dict())
    assert (again.diagnose, again.judge, again.strategy) == (True, "litellm:some/model", "cause")
    secret = AttributionComponent(engine="hf:m", mode="capture", diagnose=True, judge=Secret.from_env_var("THE_JUDGE"))
    assert AttributionComponent.from_dict(secret.to_dict()).judge == Secret.from_env_var("THE_JUDGE")
    component = AttributionComponent(**options(db, engine="hf:m", mode="capture", store=None))
    with pytest.raises(ConfigurationError, match=r"judge=.* is an object, which cannot be written to YAML"):
        component.to_dict()
    assert "diagnose" not in AttributionComponent().to_dict()["init_parameters"], "what is not asked for is not written"


def test_a_pipeline_with_it_is_loaded_from_yaml(db):
    component = AttributionComponent(mode="capture", diagnose=True, judge="hf:some/model", strategy="support")
    pipeline = Pipeline()
    pipeline.add_component("attribution", component)
    again = Pipeline.loads(pipeline.dumps()).get_component("attribution")
    assert (again.mode, again.diagnose, again.strategy) == ("capture", True, "support")


def test_a_judge_that_there_is_not_is_told_before_the_first_question(db):
    component = AttributionComponent(**options(db, judge="mistery:model"))
    with pytest.raises(ConfigurationError, match="mistery"):
        component.warm_up()


def test_a_cap_for_a_day_needs_one_for_a_run(db):
    with pytest.raises(ConfigurationError, match="cap the calls of each run too"):
        AttributionComponent(**options(db, budget_per_day=Budget(calls=9)))


# --- the tracer -------------------------------------------------------------------------------------------------------


def test_inline_the_tracer_leaves_both_in_the_replies(db):
    with AttributionTracer(**options(db, mode="inline")) as tracer:
        [reply] = run()["llm"]["replies"]
        told = reply.meta["attrkit"]
        assert told == compact(tracer.last(), tracer.diagnosis())
        assert told["diagnosis"]["culprits"]
    assert reply.text == SAMPLES[QUESTION].trace.answer


def test_deferred_the_tracer_has_it_later(db):
    with AttributionTracer(**options(db)) as tracer:
        [reply] = run()["llm"]["replies"]
        told = reply.meta["attrkit"]
        assert set(told) == {"trace_id"}
        diagnosis = tracer.diagnosis(told["trace_id"], timeout=60)
        assert asyncio.run(tracer.adiagnosis(told["trace_id"])) is diagnosis
        assert diagnosis.trace_id == tracer.result(told["trace_id"]).trace_id == told["trace_id"]


def test_with_a_judge_that_leaves_the_tracer_leaves_the_attribution(db):
    with AttributionTracer(**options(db, mode="inline", judge=Failing(no))) as tracer:
        with pytest.warns(RuntimeWarning, match="could not be diagnosed"):
            [reply] = run()["llm"]["replies"]
        assert reply.meta["attrkit"] == compact(tracer.last())


@pytest.mark.parametrize("mode", ["inline", "deferred"])
def test_eight_parallel_runs_get_their_own(db, mode):
    with AttributionTracer(**options(db, mode=mode)) as tracer:
        with ThreadPoolExecutor(8) as pool:
            outputs = dict(zip(SAMPLES, pool.map(run, SAMPLES), strict=True))
        assert tracer.flush(120)
        assert tracer.stats.n_done == len(SAMPLES)
        for question, output in outputs.items():
            [reply] = output["llm"]["replies"]
            told = reply.meta["attrkit"]
            diagnosis = tracer.diagnosis(told["trace_id"])
            assert reply.text == diagnosis.answer == SAMPLES[question].trace.answer
            assert (diagnosis.question, diagnosis.trace_id) == (question, told["trace_id"])
            if mode == "inline":
                assert told["diagnosis"] == compact_diagnosis(diagnosis)
