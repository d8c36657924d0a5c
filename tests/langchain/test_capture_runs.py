"""One trace a run, with everything in it, and nothing left behind; whichever way a chain is called."""

import asyncio
import contextlib
import gc

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_parts import DOCUMENTS, PROMPT, asks, joined, rag, retriever, scripted

from attr_core.segmenter import segment_trace

QUESTION = "When did the fair open?"
ANSWER = "It opened in 1911."


def config(handler, **more):
    return {"callbacks": [handler], **more}


def check_rag(trace, question=QUESTION, answer=ANSWER):
    assert (trace.query, trace.answer, trace.status, trace.framework) == (question, answer, "ok", "langchain")
    assert {d.id for d in trace.documents} == {d.id for d in DOCUMENTS}
    [generation] = trace.generations
    assert [m.role for m in generation.messages] == ["system", "user"]
    assert generation.response == answer


def test_an_invoked_chain_is_one_trace_with_query_documents_messages_and_answer(handler, traces):
    assert rag().invoke(QUESTION, config(handler)) == ANSWER
    [trace] = traces()
    check_rag(trace)
    found = {d.id: d for d in trace.documents}
    assert found["lantern"].metadata == {"source": "fairs.md", "page": 3}
    assert trace.retrievals[0].query == QUESTION
    located = {s.id: s for s in segment_trace(trace).segments if s.documents}
    assert {s.located for s in located.values()} == {"exact"}
    assert located["lantern"].group_id == "fairs.md"


def test_five_hundred_runs_are_five_hundred_traces(handler, traces):
    chain = rag()
    for n in range(500):
        chain.invoke(f"question {n}", config(handler))
    found = traces()
    assert sorted(t.query for t in found) == sorted(f"question {n}" for n in range(500))
    assert {t.answer for t in found} == {ANSWER}


def own_data(question):
    """A chain whose documents and answer are the question's own."""
    find = RunnableLambda(lambda asked: [Document(f"Said of {asked}.", id=f"d-{asked}")])
    say = RunnableLambda(lambda prompt: FakeListChatModel(responses=[prompt.to_messages()[0].content]))
    return {"context": find | RunnableLambda(joined), "question": RunnablePassthrough()} | PROMPT | say


def check_own_data(traces, questions):
    assert sorted(t.query for t in traces) == sorted(questions)
    for trace in traces:
        assert [d.id for d in trace.documents] == [f"d-{trace.query}"]
        assert f"Said of {trace.query}." in trace.answer
        assert [g.messages[-1].content for g in trace.generations] == [trace.query]


def test_a_batch_of_forty_is_forty_traces_each_with_its_own_documents(handler, traces):
    questions = [f"q{n}" for n in range(40)]
    own_data(None).batch(questions, config(handler, max_concurrency=8))
    check_own_data(traces(), questions)


def test_twenty_concurrent_ainvokes_are_twenty_traces_each_with_its_own_documents(handler, traces):
    questions = [f"q{n}" for n in range(20)]

    async def all_at_once():
        await asyncio.gather(*(own_data(None).ainvoke(question, config(handler)) for question in questions))

    asyncio.run(all_at_once())
    check_own_data(traces(), questions)


def test_abatch_and_batch_as_completed_are_recorded_like_batch(handler, traces):
    asyncio.run(own_data(None).abatch(["a1", "a2"], config(handler)))
    list(own_data(None).batch_as_completed(["b1", "b2"], [config(handler)] * 2))
    check_own_data(traces(), ["a1", "a2", "b1", "b2"])


def test_a_stream_is_recorded_with_the_question_that_only_its_end_tells(handler, traces):
    assert "".join(rag().stream(QUESTION, config(handler))) == ANSWER
    [trace] = traces()
    check_rag(trace)


def test_an_asynchronous_stream_is_recorded_like_a_stream(handler, traces):
    async def read():
        return [chunk async for chunk in rag().astream(QUESTION, config(handler))]

    assert "".join(asyncio.run(read())) == ANSWER
    [trace] = traces()
    check_rag(trace)


def test_astream_events_is_one_trace(handler, traces):
    async def read():
        return [event async for event in rag().astream_events(QUESTION, config(handler), version="v2")]

    assert asyncio.run(read())
    [trace] = traces()
    check_rag(trace)


def test_an_abandoned_stream_has_the_partial_answer_and_says_so(handler, traces):
    stream = rag(parse=False).stream(QUESTION, config(handler))
    heard = "".join(next(stream).content for _ in range(5))
    stream.close()
    [trace] = traces()
    assert (trace.answer, trace.status, trace.error) == (heard, "partial", None)


def test_an_abandoned_stream_whose_model_goes_on_behind_a_parser_says_partial(handler, traces):
    stream = rag().stream(QUESTION, config(handler))
    next(stream)
    stream.close()
    [trace] = traces()
    assert trace.status == "partial"


def test_an_abandoned_asynchronous_stream_is_recorded_once_it_is_collected(handler, traces):
    async def read():
        stream = rag(parse=False).astream(QUESTION, config(handler))
        await anext(stream)
        await stream.aclose()
        del stream
        gc.collect()
        await asyncio.sleep(0.05)

    asyncio.run(read())
    [trace] = traces()
    assert trace.status == "partial"


def test_a_handler_that_is_registered_twice_records_once(handler, traces):
    chain = rag().with_config(callbacks=[handler])
    chain.invoke(QUESTION, config(handler))
    assert "".join(chain.stream(QUESTION, config(handler))) == ANSWER
    found = traces()
    assert len(found) == 2
    for trace in found:
        check_rag(trace)


def test_a_failing_chain_raises_its_own_error_and_the_trace_carries_it(handler, traces):
    broken = rag(RunnableLambda(lambda _: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        broken.invoke(QUESTION, config(handler))
    [trace] = traces()
    assert (trace.status, trace.error) == ("error", "ZeroDivisionError: division by zero")
    assert len(trace.documents) == len(DOCUMENTS)


class Failing(FakeListChatModel):
    def _call(self, *args, **kwargs):
        raise ValueError("rate limit")


def test_retries_and_fallbacks_are_several_generations_of_one_trace(handler, traces):
    model = Failing(responses=[""]).with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    chain = rag(model.with_fallbacks([FakeListChatModel(responses=[ANSWER])]))
    assert chain.invoke(QUESTION, config(handler)) == ANSWER
    [trace] = traces()
    assert trace.status == "ok"
    assert [(g.response, g.error) for g in trace.generations] == [
        (None, "ValueError: rate limit"),
        (None, "ValueError: rate limit"),
        (ANSWER, None),
    ]


def test_a_model_alone_is_a_trace(handler, traces):
    FakeListChatModel(responses=[ANSWER]).invoke(QUESTION, config(handler))
    FakeListLLM(responses=[ANSWER]).invoke(QUESTION, config(handler))
    for trace in traces():
        assert (trace.query, trace.answer) == (QUESTION, ANSWER)
        assert [(m.role, m.content) for m in trace.generations[0].messages] == [("user", QUESTION)]


def test_a_text_model_in_a_chain_is_recorded_with_its_prompt(handler, traces):
    assert rag(FakeListLLM(responses=[ANSWER])).invoke(QUESTION, config(handler)) == ANSWER
    [trace] = traces()
    assert trace.answer == ANSWER
    assert DOCUMENTS[0].page_content in trace.generations[0].messages[0].content


def test_documents_that_a_function_fetched_are_recorded_like_a_retrievers(handler, traces):
    find = RunnableLambda(lambda _: [d.model_copy() for d in DOCUMENTS])
    assert rag(find=find).invoke(QUESTION, config(handler)) == ANSWER
    [trace] = traces()
    check_rag(trace)


def test_a_formatter_makes_the_location_exact_where_the_history_says_the_same(handler, traces):
    history = [HumanMessage(DOCUMENTS[0].page_content), AIMessage("Noted.")]
    find = retriever()
    chain = (
        RunnablePassthrough.assign(context=RunnableLambda(lambda x: x["question"]) | find | RunnableLambda(joined))
        | PROMPT
        | FakeListChatModel(responses=[ANSWER])
        | StrOutputParser()
    )
    chain.invoke({"question": QUESTION, "history": history}, config(handler))
    [trace] = traces()
    assert trace.query == QUESTION
    [segment] = [s for s in segment_trace(trace).segments if s.id == "lantern"]
    assert [place.message for place in segment.locations] == [0], "in the system message, not in the history"
    assert not any(m.metadata.get("memory") for m in trace.generations[0].messages), "the caller passed the history in"


def test_tags_metadata_and_the_name_of_the_run_are_kept_and_secrets_are_not(handler, traces):
    more = {"tags": ["blue"], "metadata": {"user": "u1", "api_key": "sk-123456789", "thread_id": "t7"}}
    rag().invoke(QUESTION, config(handler, run_name="my-rag", **more))
    [trace] = traces()
    assert (trace.tags, trace.session_id) == (("blue",), "t7")
    assert trace.metadata["name"] == "my-rag"
    assert trace.metadata["user"] == "u1"
    assert "sk-123456789" not in str(trace)


def test_a_recorded_run_does_not_change_with_the_applications_objects(handler, traces):
    documents = [d.model_copy(deep=True) for d in DOCUMENTS]
    answer = AIMessage(ANSWER)
    rag(RunnableLambda(lambda _: scripted(answer)), find=RunnableLambda(lambda _: documents)).invoke(
        QUESTION, config(handler)
    )
    documents[0].page_content, documents[0].metadata["source"] = "changed", "changed"
    [trace] = traces()
    assert {d.text for d in trace.documents} == {d.page_content for d in DOCUMENTS}
    assert trace.documents[0].metadata["source"] == "fairs.md"


def test_a_run_of_that_id_is_found_by_it(handler, traces):
    import uuid

    run_id = uuid.uuid4()
    rag().invoke(QUESTION, config(handler, run_id=run_id))
    traces()
    assert handler.trace(run_id).answer == ANSWER
    assert handler.trace(str(run_id)).id == handler.trace().id
    assert handler.result(run_id) is None, "it was only captured"


def test_a_run_that_never_ends_is_stored_when_it_is_too_old(db):
    from attr_core.store import Store
    from attr_langchain import AttributionCallbackHandler

    with AttributionCallbackHandler(store=db, max_age=0.0) as handler:
        stream = rag(parse=False).stream(QUESTION, config(handler))
        next(stream)
        rag().invoke("another", config(handler))
        assert handler.flush(10)
        assert handler.recorder.n_evicted >= 1
        with contextlib.suppress(RuntimeError):
            stream.close()
    with Store(db) as store:
        assert {s.status for s in store.list()} >= {"partial"}


def test_two_tools_that_the_model_asks_for_in_a_plain_chain_are_in_its_generation(handler, traces):
    model = scripted(asks(("search", {"query": "fair"}, "c1"), ("add", {"a": 2, "b": 3}, "c2")))
    model.invoke(QUESTION, config(handler))
    [trace] = traces()
    assert [(c.id, c.name, c.arguments) for c in trace.generations[0].tool_calls] == [
        ("c1", "search", {"query": "fair"}),
        ("c2", "add", {"a": 2, "b": 3}),
    ]
