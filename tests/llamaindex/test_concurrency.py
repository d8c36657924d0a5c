"""Runs that go on at once, in threads and in event loops, do not mix."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.llms.callbacks import llm_completion_callback
from llamaindex_parts import ScriptedLLM, ToolLLM, chat_engine, index, says, words_of

N = 8
FAIRS = {f"fair{n}": f"The fair number {n} opened in 19{n}1." for n in range(N)}


class Busy(ScriptedLLM):
    """Takes its time, so that others come in between."""

    def _said(self, prompt):
        time.sleep(int(number(prompt.partition("Query: ")[2])) % 3 / 100)
        return super()._said(prompt)

    @llm_completion_callback()
    async def acomplete(self, prompt, formatted=False, **kwargs):
        await asyncio.sleep(int(number(prompt.partition("Query: ")[2])) % 3 / 100)
        return CompletionResponse(text=ScriptedLLM._said(self, prompt))

    @llm_completion_callback()
    async def astream_complete(self, prompt, formatted=False, **kwargs):
        async def pieces():
            for piece in words_of(ScriptedLLM._said(self, prompt)):
                await asyncio.sleep(0.001)
                yield CompletionResponse(text=piece, delta=piece)

        return pieces()


def number(text):
    return text.rpartition("number ")[2].split()[0].strip("?.")


def question(n):
    return f"When did the fair number {n} open?"


def answer(prompt):
    return f"It is number {number(prompt.partition('Query: ')[2])} that opened."


def engines(**options):
    """One model for all, an index for each."""
    llm = Busy(say=answer)
    return llm, [index({name: text}).as_query_engine(llm=llm, **options) for name, text in FAIRS.items()]


def check(traces, llm, n=N):
    found = traces()
    assert sorted(one.query for one in found) == sorted(question(k % N) for k in range(n))
    assert len(llm.asked) == n
    for one in found:
        k = int(number(one.query))
        assert one.status == "ok"
        assert one.answer == f"It is number {k} that opened."
        assert len(one.generations) == 1
        (document,) = one.retrievals[0].documents
        assert document.text.endswith(FAIRS[f"fair{k}"])
        assert FAIRS[f"fair{k}"] in one.generations[0].messages[0].content


def test_eight_threads(traces):
    llm, built = engines()
    threads = [threading.Thread(target=engine.query, args=(question(n),)) for n, engine in enumerate(built)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(traces, llm)


def test_eight_queries_of_one_event_loop(traces):
    llm, built = engines()

    async def ask():
        return await asyncio.gather(*(engine.aquery(question(n)) for n, engine in enumerate(built)))

    responses = asyncio.run(ask())
    assert [str(response) for response in responses] == [f"It is number {n} that opened." for n in range(N)]
    assert len({response.metadata["attrkit"]["trace_id"] for response in responses}) == N
    check(traces, llm)


def test_many_queries_of_few_threads(traces):
    llm, built = engines()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: built[k % N].query(question(k % N)), range(4 * N)))
    check(traces, llm, 4 * N)


def test_eight_streams_of_one_event_loop(traces):
    llm, built = engines(streaming=True)

    async def read(n, engine):
        response = await engine.aquery(question(n))
        return "".join([piece async for piece in response.async_response_gen()])

    async def ask():
        return await asyncio.gather(*(read(n, engine) for n, engine in enumerate(built)))

    assert asyncio.run(ask()) == [f"It is number {n} that opened." for n in range(N)]
    check(traces, llm)


def test_eight_streams_of_eight_threads(traces):
    llm, built = engines(streaming=True)
    with ThreadPoolExecutor(N) as pool:
        read = list(pool.map(lambda pair: str(pair[1].query(question(pair[0]))), enumerate(built)))
    assert read == [f"It is number {n} that opened." for n in range(N)]
    check(traces, llm)


def test_eight_chats_that_stream_at_once(traces):
    def talk(n):
        llm = ScriptedLLM(is_chat_model=True, say=lambda prompt: f"It is {n} years old.")
        return "".join(chat_engine("context", llm).stream_chat(question(n)).response_gen)

    with ThreadPoolExecutor(N) as pool:
        assert list(pool.map(talk, range(N))) == [f"It is {n} years old." for n in range(N)]
    assert sorted((one.query, one.answer, one.status, len(one.generations)) for one in traces()) == sorted(
        (question(n), f"It is {n} years old.", "ok", 1) for n in range(N)
    )


def test_eight_agents_of_one_event_loop(traces):
    async def talk(n):
        agent = FunctionAgent(llm=ToolLLM(says(f"It is {n} years old.")), streaming=n % 2 == 0)
        return str(await agent.run(question(n)))

    async def ask():
        return await asyncio.gather(*(talk(n) for n in range(N)))

    assert asyncio.run(ask()) == [f"It is {n} years old." for n in range(N)]
    found = traces()
    assert sorted((one.query, one.answer) for one in found) == sorted(
        (question(n), f"It is {n} years old.") for n in range(N)
    )
    assert [len(one.generations) for one in found] == [1] * N
