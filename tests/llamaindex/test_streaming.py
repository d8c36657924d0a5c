"""A stream belongs to its query, its every token reaches the reader, and it is a trace however it ends."""

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Generator

import pytest
from llama_index.core.base.llms.types import ChatMessage, CompletionResponse
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.llms import MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from llamaindex_parts import (
    ANSWER,
    QUESTION,
    TEXTS,
    ScriptedLLM,
    SilentLLM,
    chat_engine,
    index,
    query_engine,
    words_of,
)

from attr_core.capture import paused
from attr_core.testing import AdditiveEngine
from attr_llamaindex import instrument

WORDS = words_of(ANSWER)
MODELS = pytest.mark.parametrize(
    "llm", [ScriptedLLM(), ScriptedLLM(is_chat_model=True), SilentLLM()], ids=["text", "chat", "silent"]
)


class Breaking(ScriptedLLM):
    """Its server goes away after the first word."""

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        def pieces():
            yield CompletionResponse(text=WORDS[0], delta=WORDS[0])
            raise ConnectionError("the server is gone")

        return pieces()


def streaming(llm=None, **options):
    return query_engine(llm, streaming=True, **options)


async def all_of(response):
    return [piece async for piece in response.async_response_gen()]


# --- read to the end ----------------------------------------------------------------------------------------------


@MODELS
def test_a_stream_that_is_read_is_one_trace(trace, llm):
    llm.asked.clear()
    response = streaming(llm).query(QUESTION)
    assert type(response) is StreamingResponse
    assert isinstance(response.response_gen, Generator)
    assert list(response.response_gen) == WORDS
    found = trace()
    assert found.id == response.metadata["attrkit"]["trace_id"]
    assert (found.query, found.answer, found.status) == (QUESTION, ANSWER, "ok")
    assert [generation.response for generation in found.generations] == [ANSWER]
    assert len(llm.asked) == 1
    assert len(found.retrievals[0].documents) == 2


@MODELS
def test_an_asynchronous_stream_that_is_read_is_one_trace(trace, llm):
    llm.asked.clear()

    async def ask():
        response = await streaming(llm).aquery(QUESTION)
        assert type(response) is AsyncStreamingResponse
        assert isinstance(response.response_gen, AsyncGenerator)
        return response, await all_of(response)

    response, pieces = asyncio.run(ask())
    assert pieces == WORDS
    found = trace()
    assert found.id == response.metadata["attrkit"]["trace_id"]
    assert (found.query, found.answer, found.status) == (QUESTION, ANSWER, "ok")
    assert [generation.response for generation in found.generations] == [ANSWER]
    assert len(llm.asked) == 1


def test_whichever_way_a_stream_is_read_the_reader_gets_the_same(traces, capsys):
    assert str(streaming().query(QUESTION)) == ANSWER
    assert streaming().query(QUESTION).get_response().response == ANSWER
    streaming().query(QUESTION).print_response_stream()
    assert capsys.readouterr().out == ANSWER
    assert [found.answer for found in traces()] == [ANSWER] * 3


def test_pieces_are_the_very_objects_that_the_model_gave(instrumentation):
    class Piece(str):
        """As some model may give."""

    given = [Piece("a"), Piece("b")]

    class Own(CustomQueryEngine):
        def custom_query(self, query_str):
            return StreamingResponse(response_gen=(piece for piece in given))

    got = list(Own().query(QUESTION).response_gen)
    assert all(mine is theirs for mine, theirs in zip(got, given, strict=True))


def test_nothing_is_asked_of_the_model_before_the_reader_asks(instrumentation):
    llm, plain = ScriptedLLM(), ScriptedLLM()
    with paused():
        streaming(plain).query(QUESTION).response_gen.close()
    response = streaming(llm).query(QUESTION)
    assert llm.asked == plain.asked
    next(response.response_gen)
    assert len(llm.asked) == 1
    response.response_gen.close()


def test_a_stream_that_refines_is_one_trace_with_all_its_calls(trace):
    llm = ScriptedLLM()
    helper = PromptHelper(context_window=3000, num_output=20, chunk_overlap_ratio=0.0, chunk_size_limit=30)
    synthesizer = get_response_synthesizer(llm=llm, response_mode="refine", prompt_helper=helper, streaming=True)
    engine = RetrieverQueryEngine(index().as_retriever(similarity_top_k=3), synthesizer)
    assert str(engine.query(QUESTION)) == ANSWER
    found = trace()
    assert [generation.messages[0].content for generation in found.generations] == llm.asked
    assert len(llm.asked) == 3


def test_a_template_that_is_streamed_is_a_run(trace):
    pieces = list(ScriptedLLM().stream(PromptTemplate("{query_str}"), query_str=QUESTION))
    assert pieces == WORDS
    found = trace()
    assert (found.query, found.answer, found.status, len(found.generations)) == (QUESTION, ANSWER, "ok", 1)


def test_a_model_that_is_streamed_alone_is_a_run(trace):
    pieces = [response.delta for response in ScriptedLLM().stream_complete(QUESTION)]
    assert pieces == WORDS
    found = trace()
    assert (found.answer, found.status, len(found.generations)) == (ANSWER, "ok", 1)


def test_a_model_that_is_streamed_asynchronously_is_one_call(trace):
    async def ask():
        stream = await ScriptedLLM().astream_chat([ChatMessage(role="user", content=QUESTION)])
        return [response.delta async for response in stream]

    assert asyncio.run(ask()) == WORDS
    found = trace()
    assert (found.answer, found.status, len(found.generations)) == (ANSWER, "ok", 1)


class Streaming(Workflow):
    """A user's own, whose result is a stream."""

    @step
    async def ask(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await streaming().aquery(ev.query))


def test_a_stream_that_a_workflow_gives_belongs_to_the_workflow(trace):
    async def ask():
        return await all_of(await Streaming().run(query=QUESTION))

    assert asyncio.run(ask()) == WORDS
    found = trace()
    assert (found.metadata["name"], found.answer, found.status) == ("Streaming.run", ANSWER, "ok")
    assert len(found.generations) == 1


# --- ended early --------------------------------------------------------------------------------------------------


@MODELS
def test_a_stream_that_is_closed_is_kept_as_far_as_it_was_read(trace, llm):
    response = streaming(llm).query(QUESTION)
    assert next(response.response_gen) == WORDS[0]
    response.response_gen.close()
    assert list(response.response_gen) == []
    found = trace()
    assert (found.status, found.error, found.answer) == ("partial", None, WORDS[0])


def test_a_stream_that_is_let_go_of_is_kept_as_far_as_it_was_read(trace):
    response = streaming().query(QUESTION)
    next(response.response_gen)
    del response
    gc.collect()
    found = trace()
    assert (found.status, found.answer, len(found.generations)) == ("partial", WORDS[0], 1)


def test_a_stream_that_is_never_read_is_kept_without_an_answer(traces):
    streaming().query(QUESTION)
    streaming().query(QUESTION).response_gen.close()
    gc.collect()
    assert [(found.status, found.answer) for found in traces()] == [("partial", None)] * 2


@MODELS
def test_a_models_own_stream_that_is_let_go_of_is_kept_as_far_as_it_was_read(traces, llm):
    ask = [ChatMessage(role="user", content=QUESTION)]
    stream = llm.stream_chat(ask)
    next(stream)
    unread = llm.stream_chat(ask)
    del stream, unread
    gc.collect()
    found = traces()
    assert [(one.status, len(one.generations)) for one in found] == [("partial", 1)] * 2
    assert found[1].answer is None


def test_what_came_piece_by_piece_is_the_answer_whatever_the_last_piece_says(trace):
    """The last response of LlamaIndex's own scripted model lacks the last word."""
    answer = str(streaming(MockLLM(max_tokens=3)).query(QUESTION))
    assert answer.strip() == "text text text"
    assert trace().generations[0].response == answer


def test_asynchronous_streams_that_end_early_are_kept_as_far_as_they_were_read(traces):
    async def ask():
        closed, dropped, unread = [await streaming().aquery(QUESTION) for _ in range(3)]
        assert await anext(closed.response_gen) == WORDS[0]
        assert await anext(dropped.response_gen) == WORDS[0]
        await closed.response_gen.aclose()
        del dropped, unread
        gc.collect()
        await asyncio.sleep(0.05)

    asyncio.run(ask())
    found = traces()
    assert [one.status for one in found] == ["partial"] * 3
    assert sorted(str(one.answer) for one in found) == sorted([WORDS[0], WORDS[0], "None"])


def test_the_models_own_stream_is_closed_with_the_response(instrumentation):
    closed = []

    class Noting(ScriptedLLM):
        @llm_completion_callback()
        def stream_complete(self, prompt, formatted=False, **kwargs):
            def pieces():
                try:
                    for piece in WORDS:
                        yield CompletionResponse(text=piece, delta=piece)
                finally:
                    closed.append(True)

            return pieces()

    response = streaming(Noting()).query(QUESTION)
    next(response.response_gen)
    response.response_gen.close()
    assert closed == [True]


def test_so_is_an_engines_own_asynchronous_stream(instrumentation):
    closed = []

    class Own(CustomQueryEngine):
        def custom_query(self, query_str):
            raise AssertionError("it is asked asynchronously")

        async def acustom_query(self, query_str):
            async def pieces():
                try:
                    for piece in WORDS:
                        yield piece
                finally:
                    await asyncio.sleep(0)
                    closed.append(True)

            return AsyncStreamingResponse(response_gen=pieces())

    async def ask():
        response = await Own().aquery(QUESTION)
        await anext(response.response_gen)
        await response.response_gen.aclose()
        return list(closed)

    assert asyncio.run(ask()) == [True]


@pytest.mark.parametrize("is_async", [False, True])
def test_an_error_in_the_midst_of_a_stream_reaches_the_reader_and_the_trace(trace, is_async):
    pieces = []

    async def aread():
        response = await streaming(Breaking()).aquery(QUESTION)
        pieces.append(await anext(response.response_gen))
        await anext(response.response_gen)

    def read():
        response = streaming(Breaking()).query(QUESTION)
        pieces.append(next(response.response_gen))
        next(response.response_gen)

    with pytest.raises(ConnectionError, match="the server is gone"):
        asyncio.run(aread()) if is_async else read()
    assert pieces == [WORDS[0]]
    found = trace()
    assert (found.status, found.error) == ("error", "ConnectionError: the server is gone")
    assert found.generations[0].error == "ConnectionError: the server is gone"
    assert found.generations[0].response == WORDS[0]


def test_an_error_that_the_reader_throws_in_passes_through(trace):
    response = streaming().query(QUESTION)
    next(response.response_gen)
    with pytest.raises(KeyError, match="mine"):
        response.response_gen.throw(KeyError("mine"))
    assert trace().status == "error"


def test_a_cancelled_reader_of_a_stream_is_interrupted(trace):
    class Slow(ScriptedLLM):
        @llm_completion_callback()
        async def astream_complete(self, prompt, formatted=False, **kwargs):
            async def pieces():
                yield CompletionResponse(text=WORDS[0], delta=WORDS[0])
                await asyncio.sleep(30)

            return pieces()

    async def ask():
        response = await streaming(Slow()).aquery(QUESTION)
        reader = asyncio.create_task(all_of(response))
        await asyncio.sleep(0.05)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader

    asyncio.run(ask())
    found = trace()
    assert found.status in ("interrupted", "partial")
    assert found.answer == WORDS[0]


# --- whose it is ---------------------------------------------------------------------------------------------------


def test_a_stream_may_be_read_in_another_thread(trace):
    response = streaming().query(QUESTION)
    pieces = []
    reader = threading.Thread(target=lambda: pieces.extend(response.response_gen))
    reader.start()
    reader.join()
    assert pieces == WORDS
    assert len(trace().generations) == 1


def test_streams_that_are_read_in_turns_stay_apart(traces):
    engines = [streaming(ScriptedLLM(say=lambda prompt, n=n: f"It is {n} years old.")) for n in range(3)]
    responses = [engine.query(f"How old is number {n}?") for n, engine in enumerate(engines)]
    turns = zip(*(response.response_gen for response in responses), strict=True)
    assert len(list(turns)) == 5
    assert [(found.query, found.answer, len(found.generations)) for found in traces()] == [
        (f"How old is number {n}?", f"It is {n} years old.", 1) for n in range(3)
    ]


def test_a_stream_that_is_read_within_another_run_stays_its_own(traces):
    response = streaming(ScriptedLLM(name="outer")).query(QUESTION)

    class Reading(CustomQueryEngine):
        def custom_query(self, query_str):
            text = "".join(response.response_gen)
            return f"{text} {ScriptedLLM(name='inner').complete(query_str)}"

    Reading().query("What does it say?")
    outer, inner = traces()
    assert (outer.query, [generation.model for generation in outer.generations]) == (QUESTION, ["outer"])
    assert (inner.query, [generation.model for generation in inner.generations]) == ("What does it say?", ["inner"])


def test_a_query_that_is_asked_between_two_pieces_is_a_run_of_its_own(traces):
    response = streaming().query(QUESTION)
    next(response.response_gen)
    query_engine(ScriptedLLM(name="other")).query("Meanwhile?")
    list(response.response_gen)
    meanwhile, streamed = sorted(traces(), key=lambda found: found.query != "Meanwhile?")
    assert [generation.model for generation in meanwhile.generations] == ["other"]
    assert (streamed.answer, len(streamed.generations)) == (ANSWER, 1)


# --- chats ----------------------------------------------------------------------------------------------------------

CHATS = ["simple", "context", "condense_question", "condense_plus_context"]


@pytest.mark.parametrize("mode", CHATS)
def test_a_streamed_turn_of_a_chat_is_one_trace(traces, mode):
    llm = ScriptedLLM(is_chat_model=True)
    engine = chat_engine(mode, llm)
    for question in (QUESTION, "And is it open now?"):
        response = engine.stream_chat(question)
        assert type(response) is StreamingAgentChatResponse
        assert list(response.response_gen) == WORDS
    assert engine.chat_history[-1].content == ANSWER
    found = traces()
    assert [(one.query, one.answer, one.status) for one in found] == [
        (QUESTION, ANSWER, "ok"),
        ("And is it open now?", ANSWER, "ok"),
    ]
    assert sum(len(one.generations) for one in found) == len(llm.asked)


@pytest.mark.parametrize("mode", CHATS)
def test_an_asynchronously_streamed_turn_of_a_chat_is_one_trace(trace, mode):
    llm = ScriptedLLM(is_chat_model=True)

    async def ask():
        response = await chat_engine(mode, llm).astream_chat(QUESTION)
        return response.metadata["attrkit"]["trace_id"], await all_of(response)

    trace_id, pieces = asyncio.run(ask())
    assert pieces == WORDS
    found = trace()
    assert (found.id, found.answer, found.status) == (trace_id, ANSWER, "ok")
    assert len(found.generations) == len(llm.asked)


def test_a_streamed_turn_that_nobody_reads_is_kept_whole_since_the_chat_reads_it(trace):
    engine = chat_engine("context", ScriptedLLM(is_chat_model=True))
    response = engine.stream_chat(QUESTION)
    response.write_response_to_history_thread.join()
    found = trace()
    assert (found.status, found.answer) == ("ok", ANSWER)


def test_an_error_in_a_streamed_turn_reaches_the_reader_and_the_trace(trace, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)  # LlamaIndex's thread raises it too
    response = chat_engine("simple", Breaking(is_chat_model=True)).stream_chat(QUESTION)
    with pytest.raises(ConnectionError, match="the server is gone"):
        list(response.response_gen)
    if response.write_response_to_history_thread is not None:
        response.write_response_to_history_thread.join()
    found = trace()
    assert (found.status, found.error) == ("error", "ConnectionError: the server is gone")


# --- the same as without a stream -------------------------------------------------------------------------------------


def test_a_stream_and_no_stream_give_the_same_attribution(db):
    engine = AdditiveEngine({"1911": {TEXTS["fair"]: 9.0, TEXTS["parade"]: -1.5}}, answer=ANSWER)
    built = index()
    with instrument(store=db, engine=engine) as instrumentation:
        plain = built.as_query_engine(llm=ScriptedLLM()).query(QUESTION)
        engine = built.as_query_engine(llm=ScriptedLLM(), streaming=True)
        streamed = engine.query(QUESTION)
        assert str(streamed) == str(plain)

        async def ask():
            response = await engine.aquery(QUESTION)
            assert "".join(await all_of(response)) == str(plain)
            return response

        later = asyncio.run(ask())
        expected, *others = (instrumentation.result(response, timeout=30) for response in (plain, streamed, later))
    told = expected.to_dict()
    assert "drives" in expected.verdicts
    for other in others:
        found = other.to_dict()
        assert {key for key in found if found[key] != told[key]} <= {"trace_id", "generation_id", "cost"}
