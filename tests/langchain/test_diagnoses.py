"""Diagnoses reach LangChain's applications as attributions do: under the same key, by the same ids."""

import asyncio
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableLambda
from langchain_parts import retriever, scripted

from attr_core.api import diagnose
from attr_core.evaluation.planted import PerfectJudge, planted
from attr_core.reports.compact import compact, compact_diagnosis
from attr_core.store import Store
from attr_langchain import AttributionCallbackHandler
from attr_langchain.feedback import DIAGNOSIS_KEY, FEEDBACK_KEY

STAMP = "attrkit"
KINDS = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
PLANTED = [
    sample
    for sample in planted(["chunk_dominance", "ok"], per_label=8)
    if {message.role for message in sample.trace.target_generation.messages} <= set(KINDS)
]
SAMPLES = {sample.trace.query: sample for sample in PLANTED[:8]}
QUESTION = next(iter(SAMPLES))
MODEL = SAMPLES[QUESTION].model


def chain():
    """Retrieves what was planted for the question, writes the planted prompt, and says the planted answer."""

    def find(question):
        found = SAMPLES[question].trace.documents
        return retriever([Document(one.text, id=one.id, metadata=dict(one.metadata)) for one in found])

    def written(question):
        find(question).invoke(question)
        return [KINDS[one.role](one.content) for one in SAMPLES[question].trace.target_generation.messages]

    def say(question):
        return RunnableLambda(lambda _: written(question)) | FakeListChatModel(
            responses=[SAMPLES[question].trace.answer]
        )

    return RunnableLambda(say)


def by_hand(trace, **options):
    return diagnose(trace, engine=MODEL, judge=PerfectJudge(), db=":memory:", **options)


def handled(db, **options):
    return AttributionCallbackHandler(
        **{"engine": MODEL, "store": db, "diagnose": True, "judge": PerfectJudge(), **options}
    )


class Failing:
    def __init__(self, first):
        self.first = first

    def judge(self, claims, segments, *, question=None):
        self.first()
        return PerfectJudge().judge(claims, segments, question=question)


def test_inline_the_message_carries_attribution_and_diagnosis_under_one_key(db):
    with handled(db, mode="inline") as handler:
        message = chain().invoke(QUESTION, {"callbacks": [handler]})
        found = message.response_metadata[STAMP]
        result, diagnosis = handler.last(), handler.diagnosis(timeout=0)
        expected = by_hand(handler.trace())
    assert message.content == SAMPLES[QUESTION].trace.answer
    assert (diagnosis.label, diagnosis.culprits) == (expected.label, expected.culprits)
    assert diagnosis.culprits, "one chunk is to blame"
    assert found == compact(result, diagnosis)
    assert found["diagnosis"] == compact_diagnosis(diagnosis)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert set(message.response_metadata) == {STAMP}, "nothing else is left"


def test_deferred_it_is_there_by_the_id_of_the_run(db):
    run_id = uuid.uuid4()
    with handled(db) as handler:
        message = chain().invoke(QUESTION, {"callbacks": [handler], "run_id": run_id})
        assert set(message.response_metadata[STAMP]) == {"trace_id"}
        diagnosis = handler.diagnosis(run_id, timeout=60)
        assert asyncio.run(handler.adiagnosis(str(run_id))) is diagnosis
        assert handler.result(run_id).trace_id == diagnosis.trace_id == message.response_metadata[STAMP]["trace_id"]
    with Store(db) as store:
        assert [one.label for one in store.diagnoses(diagnosis.trace_id)] == [diagnosis.label]
    with AttributionCallbackHandler(store=db) as another:
        assert another.diagnosis(run_id).headline == diagnosis.headline


def test_without_it_there_is_none(db):
    with AttributionCallbackHandler(mode="inline", engine=MODEL, store=db) as handler:
        message = chain().invoke(QUESTION, {"callbacks": [handler]})
        assert "diagnosis" not in message.response_metadata[STAMP]
        assert handler.diagnosis() is None


def test_a_judge_that_leaves_leaves_answer_and_attribution_as_they_are(db):
    def no():
        raise SystemExit(3)

    with handled(db, mode="inline", judge=Failing(no)) as handler:
        with pytest.warns(RuntimeWarning, match="could not be diagnosed"):
            message = chain().invoke(QUESTION, {"callbacks": [handler]})
        assert message.content == SAMPLES[QUESTION].trace.answer
        assert message.response_metadata[STAMP] == compact(handler.last())
        assert handler.stats.n_done == 1


def test_a_judge_that_hangs_does_too(db):
    release = threading.Event()
    with handled(db, mode="inline", judge=Failing(lambda: release.wait(60)), time_limit=3) as handler:
        with pytest.warns(RuntimeWarning, match="a diagnosis took longer than 3 s"):
            message = chain().invoke(QUESTION, {"callbacks": [handler]})
        assert message.content == SAMPLES[QUESTION].trace.answer
        assert message.response_metadata[STAMP] == compact(handler.last())
        release.set()
        assert handler.diagnosis(timeout=60).culprits


@pytest.mark.parametrize("mode", ["inline", "deferred"])
def test_eight_parallel_invokes_get_their_own(db, mode):
    asked = {question: uuid.uuid4() for question in SAMPLES}
    with handled(db, mode=mode) as handler:

        def invoke(question):
            return chain().invoke(question, {"callbacks": [handler], "run_id": asked[question]})

        with ThreadPoolExecutor(8) as pool:
            messages = dict(zip(asked, pool.map(invoke, asked), strict=True))
        assert handler.flush(120)
        assert handler.stats.n_done == 8
        for question, run_id in asked.items():
            stamp, diagnosis = messages[question].response_metadata[STAMP], handler.diagnosis(run_id)
            assert messages[question].content == diagnosis.answer == SAMPLES[question].trace.answer
            assert diagnosis.trace_id == stamp["trace_id"]
            assert diagnosis.question == question
            if mode == "inline":
                assert stamp["diagnosis"] == compact_diagnosis(diagnosis)


def test_the_judge_alone_needs_no_engine(db):
    with handled(db, engine=None, mode="inline", strategy="support") as handler:
        message = chain().invoke(QUESTION, {"callbacks": [handler]})
        assert set(message.response_metadata[STAMP]) == {"trace_id", "diagnosis"}
        assert handler.last() is None
        assert handler.diagnosis().strategy == "support"


class Feedback:
    def __init__(self):
        self.sent = []

    def create_feedback(self, run_id=None, key="unnamed", **details):
        self.sent.append({"run_id": run_id, "key": key, **details})


def test_langsmith_gets_the_label_as_one_more_feedback(db):
    client, run_id = Feedback(), uuid.uuid4()
    with handled(db, langsmith=client) as handler:
        chain().invoke(QUESTION, {"callbacks": [handler], "run_id": run_id})
        handler.flush(60)
        diagnosis = handler.diagnosis(run_id)
    assert [(one["run_id"], one["key"]) for one in client.sent] == [
        (str(run_id), FEEDBACK_KEY),
        (str(run_id), DIAGNOSIS_KEY),
    ]
    assert DIAGNOSIS_KEY == "attrkit_diagnosis"
    assert (client.sent[1]["value"], client.sent[1]["comment"]) == (diagnosis.label, diagnosis.headline)


def test_an_agents_state_and_stream_carry_it_too(db):
    agents = pytest.importorskip("langchain.agents")
    from attr_langchain import AttributionMiddleware

    with handled(db, engine=None, mode="inline", strategy="support") as handler:
        agent = agents.create_agent(scripted("It opened in 1911."), [], middleware=[AttributionMiddleware(handler)])
        state = agent.with_config(callbacks=[handler]).invoke({"messages": [HumanMessage("When did it open?")]})
        assert state[STAMP]["diagnosis"] == compact_diagnosis(handler.diagnosis())
        assert json.loads(json.dumps(state[STAMP], allow_nan=False)) == state[STAMP]
