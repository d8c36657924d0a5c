"""The component in a pipeline: what it puts out, in every way that a pipeline can be run, and what it leaves alone."""

import asyncio
import copy
import json
import threading

import pytest
from haystack import Document, Pipeline
from haystack.components.builders import AnswerBuilder
from haystack.core.errors import BreakpointException, PipelineRuntimeError
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.dataclasses.breakpoints import Breakpoint
from haystack.utils import Secret
from haystack_parts import ANSWER, DOCUMENTS, FAIR, PARADE, QUESTION, Failing, agent, asked, engine, rag, said

from attr_core.errors import ConfigurationError, ModelNotFoundError
from attr_core.results import Budget
from attr_core.store import Store
from attr_core.testing import ScriptedEngine
from attr_haystack import AttributionComponent

EVERYTHING = {"retriever", "llm"}


@pytest.fixture
def component(db):
    return AttributionComponent(engine(), store=db)


def stored(component, db):
    assert component.collector.flush(10)
    with Store(db) as store:
        return [store.get(summary.id) for summary in reversed(store.list(limit=None))]


def check_found(outputs):
    """The one fact's document is named as the cause, everywhere where it is to be told."""
    told = outputs["attribution"]
    assert "claims" in told, told
    [claim] = told["claims"]
    [target] = claim["targets"]
    fair = next(document for document in DOCUMENTS if document.content == FAIR)
    assert target["text"] == "1911"
    assert [(cause["segment"], cause["verdict"], cause["effect"]) for cause in target["causes"]] == [
        (fair.id, "drives", 6.0)
    ]
    assert target["causes"][0]["group_id"] == "fairs", "meta.source_id groups the pieces of a source"
    [reply] = outputs["replies"]
    assert reply.text == ANSWER
    assert reply.meta["attrkit"] == told
    scores = {document.content: document.meta["attrkit"] for document in outputs["documents"]}
    assert (scores[FAIR]["verdict"], scores[FAIR]["effect"], scores[FAIR]["target"]) == ("drives", 6.0, "1911")
    assert (scores[PARADE]["verdict"], scores[PARADE]["effect"]) == ("no effect", 0.0)
    assert {document.id for document in outputs["documents"]} == {document.id for document in DOCUMENTS}
    assert all(score["trace_id"] == told["trace_id"] and score["located"] == "exact" for score in scores.values())
    assert json.loads(json.dumps(told)) == told


def test_run_names_the_document_that_caused_the_answer(component, db):
    outputs = rag(attribution=component).run(asked(attribution={"query": QUESTION}))
    check_found(outputs["attribution"])
    [trace] = stored(component, db)
    assert (trace.query, trace.answer, trace.framework, trace.status) == (QUESTION, ANSWER, "haystack", "ok")
    assert trace.id == outputs["attribution"]["attribution"]["trace_id"]
    assert trace.generations[0].model == "mock-model"


def test_run_async_names_it(component):
    check_found(asyncio.run(rag(attribution=component).run_async(asked()))["attribution"])


def test_run_async_does_not_hold_up_the_event_loop(db):
    ticked, is_measured = threading.Event(), threading.Event()

    def patient(prompt, word):
        if not is_measured.is_set():
            assert ticked.wait(20), "the event loop stood still while the engine measured"
            is_measured.set()
        return -1.0

    component = AttributionComponent(ScriptedEngine(reply=ANSWER, logprob=patient), store=db)

    async def run():
        running = asyncio.create_task(rag(attribution=component).run_async(asked()))
        await asyncio.sleep(0.05)
        ticked.set()
        return await running

    assert asyncio.run(run())["attribution"]["attribution"]["claims"]


def test_stream_gives_every_token_and_then_the_cause(component):
    async def run():
        handle = rag(attribution=component).stream(asked())
        return "".join([chunk.content async for chunk in handle]), handle.result

    text, result = asyncio.run(run())
    assert text == ANSWER
    check_found(result["attribution"])


def test_documents_messages_and_the_callers_data_are_left_as_they_were(component):
    data, pipeline = asked(), rag(attribution=component)
    before = copy.deepcopy(data)
    outputs = pipeline.run(data, include_outputs_from=EVERYTHING)
    assert data == before
    assert all("attrkit" not in document.meta for document in outputs["retriever"]["documents"])
    assert all("attrkit" not in reply.meta for reply in outputs["llm"]["replies"])
    kept = pipeline.get_component("retriever").document_store.filter_documents()
    assert all("attrkit" not in document.meta for document in kept)


def test_called_by_itself_it_changes_none_of_its_inputs(component):
    documents = [Document(content=FAIR, meta={"source_id": "fairs"})]
    messages = [ChatMessage.from_user(f"{FAIR}\n\n{QUESTION}")]
    replies = [ChatMessage.from_assistant(ANSWER, meta={"model": "m"})]
    before = copy.deepcopy((documents, messages, replies))
    outputs = component.run(replies=replies, messages=messages, documents=documents)
    assert (documents, messages, replies) == before
    assert outputs["replies"][0].meta["model"] == "m"
    outputs["attribution"]["claims"].clear()
    assert outputs["replies"][0].meta["attrkit"]["claims"], "what is put out twice shares nothing"


def test_the_answer_builder_hands_the_cause_on(component):
    pipeline = rag(attribution=component)
    pipeline.add_component("answers", AnswerBuilder())
    pipeline.connect("attribution.replies", "answers.replies")
    pipeline.connect("attribution.documents", "answers.documents")
    outputs = pipeline.run({**asked(), "answers": {"query": QUESTION}})
    [answer] = outputs["answers"]["answers"]
    assert answer.meta["attrkit"]["claims"][0]["targets"][0]["text"] == "1911"
    assert {document.meta["attrkit"]["verdict"] for document in answer.documents} == {"drives", "no effect"}


@pytest.mark.parametrize("mode", ["capture", "deferred"])
def test_without_waiting_only_the_traces_id_is_put_out(mode, db):
    component = AttributionComponent(engine(), mode=mode, store=db)
    outputs = rag(attribution=component).run(asked())["attribution"]
    [trace] = stored(component, db)
    told = {"trace_id": trace.id}
    assert outputs["attribution"] == told
    assert outputs["replies"][0].meta["attrkit"] == told
    assert [document.meta["attrkit"] for document in outputs["documents"]] == [told] * 3
    result = component.collector.result(trace.id, timeout=20)
    assert (result is None) == (mode == "capture")


def test_without_an_engine_it_captures(db):
    component = AttributionComponent(store=db)
    assert component.mode == "capture"
    outputs = rag(attribution=component).run(asked())["attribution"]
    assert set(outputs["attribution"]) == {"trace_id"}


def test_a_failing_engine_costs_the_cause_and_not_the_answer(db):
    failing = ScriptedEngine(logprob=lambda prompt, word: 1 / 0)
    component = AttributionComponent(failing, store=db)
    with pytest.warns(RuntimeWarning, match="could not be attributed"):
        outputs = rag(attribution=component).run(asked())["attribution"]
    assert outputs["replies"][0].text == ANSWER
    assert "ZeroDivisionError" in outputs["attribution"]["error"]
    assert len(outputs["documents"]) == 3
    [trace] = stored(component, db)
    assert outputs["attribution"]["trace_id"] == trace.id


def test_what_takes_too_long_goes_on_by_itself(db):
    may_go_on = threading.Event()
    slow = ScriptedEngine(reply=ANSWER, logprob=lambda prompt, word: -1.0 if may_go_on.wait(20) else 0.0)
    component = AttributionComponent(slow, store=db, time_limit=0.05)
    with pytest.warns(RuntimeWarning, match="took longer"):
        outputs = rag(attribution=component).run(asked())["attribution"]
    assert "goes on" in outputs["attribution"]["error"]
    may_go_on.set()
    assert component.collector.result(outputs["attribution"]["trace_id"], timeout=20).claims


def test_what_is_not_wired_is_told_and_stops_nothing(component):
    with pytest.warns(RuntimeWarning, match="connect what the chat generator was sent"):
        outputs = component.run(replies=[ChatMessage.from_assistant(ANSWER)], documents=list(DOCUMENTS))
    assert outputs["replies"][0].text == ANSWER
    assert outputs["documents"] == list(DOCUMENTS)
    assert outputs["attribution"] == {
        "error": "there are no messages; connect what the chat generator was sent to messages (or prompt)"
    }


def test_no_replies_are_nothing_to_attribute(component, db):
    outputs = component.run(replies=[], messages=[ChatMessage.from_user(QUESTION)], documents=list(DOCUMENTS))
    assert (outputs["replies"], outputs["attribution"]) == ([], {})
    assert stored(component, db) == []


def test_a_text_prompt_will_do(component):
    outputs = component.run(
        replies=[ChatMessage.from_assistant(ANSWER)],
        prompt=f"{FAIR}\n{PARADE}\n\n{QUESTION}",
        documents=list(DOCUMENTS),
    )
    marks = {document.content: document.meta["attrkit"] for document in outputs["documents"]}
    assert marks[FAIR]["verdict"] == "drives"
    absent = marks["The fair charges four marks."]
    assert (absent["located"], absent["effect"], absent["verdict"]) == (None, None, None), "reported, never guessed"


def test_each_reply_is_attributed_on_its_own(component, db):
    replies = [ChatMessage.from_assistant(ANSWER), ChatMessage.from_assistant("In 1911, I think.")]
    outputs = component.run(replies=replies, messages=[ChatMessage.from_user(f"{FAIR}\n\n{QUESTION}")])
    marks = [reply.meta["attrkit"] for reply in outputs["replies"]]
    assert [mark["claims"][0]["text"] for mark in marks] == [ANSWER, "In 1911, I think."]
    assert len({mark["trace_id"] for mark in marks}) == 2
    assert outputs["attribution"] == marks[0]
    assert len(stored(component, db)) == 2


def test_an_agents_messages_can_be_given_as_they_are(component, db):
    call = ("opening", {"name": "fair"}, "c1")
    outputs = agent(said([call], "It opened in 1911.")).run(messages=[ChatMessage.from_user(QUESTION)])
    found = component.run(replies=[outputs["last_message"]], messages=outputs["messages"])
    [trace] = stored(component, db)
    assert [message.role for message in trace.generations[0].messages] == ["user", "assistant", "tool"]
    causes = found["attribution"]["claims"][0]["targets"][0]["causes"]
    assert [(cause["kind"], cause["origin"]) for cause in causes] == [("tool_output", "c1")]


def test_a_reply_that_calls_tools_is_attributed_as_what_it_asks_for(db):
    component = AttributionComponent(ScriptedEngine(reply="x"), store=db)
    reply = ChatMessage.from_assistant(tool_calls=[ToolCall(tool_name="opening", arguments={"name": "fair"}, id="c1")])
    outputs = component.run(replies=[reply], messages=[ChatMessage.from_user(QUESTION)])
    assert "claims" in outputs["attribution"], outputs["attribution"]
    assert (
        outputs["attribution"]["claims"][0]["text"] == 'Tool call: {"arguments": {"name": "fair"}, "name": "opening"}'
    )


def test_what_is_redacted_is_neither_stored_nor_put_out(db):
    component = AttributionComponent(engine(), store=db, redact=lambda text: text.replace("fair", "****"))
    outputs = rag(attribution=component).run(asked())["attribution"]
    [trace] = stored(component, db)
    assert "fair " not in trace.generations[0].messages[1].content
    assert "fair" not in outputs["attribution"]["claims"][0]["text"]
    assert outputs["replies"][0].text == ANSWER, "the application's own reply is not redacted"


def test_only_what_is_sampled_is_measured(db):
    component = AttributionComponent(engine(), store=db, sample_rate=0.0)
    outputs = rag(attribution=component).run(asked())["attribution"]
    assert set(outputs["attribution"]) == {"trace_id"}


def test_budgets_hold(db):
    component = AttributionComponent(engine(), store=db, budget=Budget(calls=1))
    with pytest.warns(RuntimeWarning, match="could not be attributed"):
        outputs = rag(attribution=component).run(asked())["attribution"]
    assert "BudgetExceededError" in outputs["attribution"]["error"]


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sometimes"},
        {"mode": "inline"},
        {"engine": "hf:x", "sample_rate": 2.0},
        {"engine": "hf:x", "budget": "tokens"},
        {"engine": "hf:x", "granulation": "fine"},
    ],
)
def test_what_cannot_work_is_refused_when_it_is_made(options):
    with pytest.raises(ConfigurationError):
        AttributionComponent(**options)


def test_a_wrong_model_is_told_before_the_first_question(db):
    component = AttributionComponent("hf:no/such-model-anywhere", store=db)
    with pytest.raises(ModelNotFoundError):
        rag(attribution=component).warm_up()


def test_a_secret_names_the_engine_and_the_store(monkeypatch, db):
    component = AttributionComponent(
        Secret.from_env_var("THE_ENGINE", strict=False), mode="capture", store=Secret.from_env_var("THE_STORE")
    )
    monkeypatch.setenv("THE_STORE", str(db))
    with pytest.raises(ConfigurationError, match="secret that holds the engine is empty"):
        component.warm_up()
    monkeypatch.setenv("THE_ENGINE", "hf:whatever")
    outputs = rag(attribution=component).run(asked())["attribution"]
    assert stored(component, db)[0].id == outputs["attribution"]["trace_id"]


def test_a_pipeline_stopped_at_the_component_goes_on_from_its_snapshot(component):
    with pytest.raises(BreakpointException) as stopped:
        rag(attribution=component).run(asked(), break_point=Breakpoint("attribution"))
    snapshot = stopped.value.pipeline_snapshot
    again = rag(attribution=AttributionComponent(engine(), store=component.store))
    check_found(again.run({}, pipeline_snapshot=snapshot)["attribution"])


def test_what_it_puts_out_survives_a_snapshot_taken_later(component):
    pipeline = rag(attribution=component)
    pipeline.add_component("answers", AnswerBuilder())
    pipeline.connect("attribution.replies", "answers.replies")
    with pytest.raises(BreakpointException) as stopped:
        pipeline.run(
            {**asked(), "answers": {"query": QUESTION}},
            include_outputs_from={"attribution"},
            break_point=Breakpoint("answers"),
        )
    resumed = pipeline.run({}, pipeline_snapshot=stopped.value.pipeline_snapshot)
    check_found(resumed["attribution"])
    assert resumed["answers"]["answers"][0].meta["attrkit"]["claims"]


def test_a_generator_that_fails_is_the_applications_own_error(component):
    with pytest.raises(PipelineRuntimeError, match="the model is not there"):
        rag(Failing(), attribution=component).run(asked())


def test_one_component_serves_many_threads(component, db):
    pipeline, found = rag(attribution=component), []
    threads = [threading.Thread(target=lambda: found.append(pipeline.run(asked())["attribution"])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for outputs in found:
        check_found(outputs)
    assert len(stored(component, db)) == 4


def test_closing_a_pipeline_waits_for_what_is_deferred(db):
    component = AttributionComponent(engine(), mode="deferred", store=db)
    pipeline: Pipeline = rag(attribution=component)
    pipeline.run(asked())
    pipeline.close()
    assert component.collector.stats.n_done == 1
