"""Diagnoses reach LlamaIndex's applications as attributions do: under the same key, by the same responses."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.schema import TextNode
from llama_index_instrumentation import get_dispatcher
from llamaindex_parts import ANSWER, ScriptedLLM, ToolLLM, WordEmbedding, says
from pydantic import PrivateAttr

from attr_core.api import diagnose
from attr_core.evaluation.planted import PerfectJudge, planted
from attr_core.reports.compact import compact, compact_diagnosis
from attr_core.store import Store
from attr_llamaindex import AttributionReady, DiagnosisReady, instrument

SAMPLES = {sample.trace.query: sample for sample in planted(["chunk_dominance"], per_label=8) if sample.trace.documents}
QUESTION = next(iter(SAMPLES))
MODEL = SAMPLES[QUESTION].model


def asked(question=QUESTION, *, streaming=False):
    """A query engine that finds what was planted for the question, says the planted answer, and is asked."""
    sample = SAMPLES[question]
    nodes = [TextNode(id_=one.id, text=one.text) for one in sample.trace.documents]
    index = VectorStoreIndex(nodes, embed_model=WordEmbedding())
    llm = ScriptedLLM(say=lambda prompt: sample.trace.answer)
    return index.as_query_engine(llm=llm, similarity_top_k=len(nodes), streaming=streaming).query(question)


def diagnosing(db, **options):
    return instrument(**{"engine": MODEL, "store": db, "diagnose": True, "judge": PerfectJudge(), **options})


class Failing:
    def __init__(self, first):
        self.first = first

    def judge(self, claims, segments, *, question=None):
        self.first()
        return PerfectJudge().judge(claims, segments, question=question)


def test_inline_the_response_carries_attribution_and_diagnosis_under_one_key(db):
    with diagnosing(db, mode="inline") as instrumentation:
        response = asked()
        result, diagnosis = instrumentation.result(response), instrumentation.diagnosis(response, timeout=0)
        trace = instrumentation.trace(response)
    expected = diagnose(trace, engine=MODEL, judge=PerfectJudge(), db=":memory:")
    stamp = response.metadata["attrkit"]
    assert (diagnosis.label, diagnosis.culprits) == (expected.label, expected.culprits)
    assert diagnosis.culprits, "one chunk is to blame"
    assert stamp == compact(result, diagnosis)
    assert json.loads(json.dumps(stamp, allow_nan=False)) == stamp
    assert str(response) == SAMPLES[QUESTION].trace.answer
    assert set(response.metadata) == {"attrkit", *(node.node_id for node in response.source_nodes)}
    assert all("attrkit" not in node.node.metadata for node in response.source_nodes)


def test_inline_a_stream_carries_both_once_it_is_read(db):
    with diagnosing(db, mode="inline") as instrumentation:
        response = asked(streaming=True)
        assert set(response.metadata["attrkit"]) == {"trace_id"}
        assert str(response) == SAMPLES[QUESTION].trace.answer
        diagnosis = instrumentation.diagnosis(response)
        assert response.metadata["attrkit"] == compact(instrumentation.result(response), diagnosis)


def test_inline_an_agents_message_carries_it(db):
    async def run():
        return await FunctionAgent(llm=ToolLLM(says(ANSWER)), streaming=False).run("When did the fair open?")

    with diagnosing(db, engine=None, mode="inline", strategy="support") as instrumentation:
        result = asyncio.run(run())
        stamp = result.response.additional_kwargs["attrkit"]
        assert stamp == compact(None, instrumentation.diagnosis(result))
        assert set(stamp) == {"trace_id", "diagnosis"}
        assert instrumentation.result(result) is None


def test_deferred_a_response_leads_to_its_diagnosis(db):
    with diagnosing(db) as instrumentation:
        responses = [asked(question) for question in list(SAMPLES)[:3]]
        found = [instrumentation.diagnosis(response, timeout=60) for response in responses]
        assert [one.metadata["attrkit"] for one in responses] == [{"trace_id": one.trace_id} for one in found]
        assert [one.question for one in found] == list(SAMPLES)[:3]

        async def later():
            return await instrumentation.adiagnosis(responses[0], timeout=60)

        assert asyncio.run(later()) is found[0]
        assert instrumentation.result(responses[0]).trace_id == found[0].trace_id
    with Store(db) as store:
        assert [one.label for one in store.diagnoses(found[0].trace_id)] == [found[0].label]


def test_without_it_there_is_none(db):
    with instrument(mode="inline", engine=MODEL, store=db) as instrumentation:
        response = asked()
        assert "diagnosis" not in response.metadata["attrkit"]
        assert instrumentation.diagnosis(response) is None


def test_a_judge_that_leaves_leaves_answer_and_attribution_as_they_are(db):
    def no():
        raise SystemExit(3)

    with diagnosing(db, mode="inline", judge=Failing(no)) as instrumentation:
        with pytest.warns(RuntimeWarning, match="could not be diagnosed"):
            response = asked()
        assert str(response) == SAMPLES[QUESTION].trace.answer
        assert response.metadata["attrkit"] == compact(instrumentation.result(response))
        assert instrumentation.stats.n_done == 1


def test_a_judge_that_hangs_does_too(db):
    release = threading.Event()
    with diagnosing(db, mode="inline", judge=Failing(lambda: release.wait(60)), time_limit=3) as instrumentation:
        with pytest.warns(RuntimeWarning, match="a diagnosis took longer than 3 s"):
            response = asked()
        assert str(response) == SAMPLES[QUESTION].trace.answer
        assert response.metadata["attrkit"] == compact(instrumentation.result(response))
        release.set()
        assert instrumentation.diagnosis(response, timeout=60).label


@pytest.mark.parametrize("mode", ["inline", "deferred"])
def test_eight_parallel_queries_get_their_own(db, mode):
    with diagnosing(db, mode=mode) as instrumentation:
        with ThreadPoolExecutor(8) as pool:
            responses = dict(zip(SAMPLES, pool.map(asked, SAMPLES), strict=True))
        assert instrumentation.flush(120)
        assert instrumentation.stats.n_done == len(SAMPLES)
        for question, response in responses.items():
            stamp, diagnosis = response.metadata["attrkit"], instrumentation.diagnosis(response)
            assert str(response) == diagnosis.answer == SAMPLES[question].trace.answer
            assert (diagnosis.question, diagnosis.trace_id) == (question, stamp["trace_id"])
            if mode == "inline":
                assert stamp["diagnosis"] == compact_diagnosis(diagnosis)


class Listening(BaseEventHandler):
    """A user's own event handler."""

    _heard: list = PrivateAttr(default_factory=list)

    @classmethod
    def class_name(cls):
        return "Listening"

    def handle(self, event, **kwargs):
        if isinstance(event, AttributionReady | DiagnosisReady):
            self._heard.append(event)


def test_an_event_says_that_a_diagnosis_is_there_after_that_of_the_attribution(db):
    listening = Listening()
    root = get_dispatcher()
    root.add_event_handler(listening)
    try:
        with diagnosing(db) as instrumentation:
            response = asked()
            diagnosis = instrumentation.diagnosis(response, timeout=60)
            instrumentation.flush(60)
            run_id = instrumentation.trace(response).run_id
    finally:
        root.event_handlers = [handler for handler in root.event_handlers if handler is not listening]
    first, second = listening._heard
    assert [first.class_name(), second.class_name()] == ["AttributionReady", "DiagnosisReady"]
    assert (second.trace_id, second.run_id, second.span_id) == (diagnosis.trace_id, run_id, run_id)
    assert second.diagnosis == compact_diagnosis(diagnosis)
