"""Many runs at once are as many traces, each with its own data."""

import asyncio
import gc
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from haystack import Document, Pipeline, component, tracing
from haystack.components.builders import PromptBuilder
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import PipelineTool
from haystack_parts import ANSWER, SeeingTracer, agent, asked, opening, price, rag, said

from attr_core.capture import paused
from attr_core.store import Store
from attr_haystack import AttributionTracer


@component
class Finder:
    """Finds a document that only this question has."""

    @component.output_types(documents=list[Document])
    def run(self, query: str):
        return {"documents": [Document(content=f"All that is known about {query}.", id=f"d-{query}")]}


def echoing(generator=None):
    """Answers with the whole prompt: each run has its own data."""
    pipeline = Pipeline()
    pipeline.add_component("find", Finder())
    pipeline.add_component("prompt", PromptBuilder("{{ documents[0].content }} Question: {{ question }}"))
    pipeline.add_component("llm", generator or MockChatGenerator())
    pipeline.connect("find.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "llm.messages")
    return pipeline


def data(question):
    return {"find": {"query": question}, "prompt": {"question": question}}


def check(traces, questions):
    """One trace per question, in which nothing is of another's."""
    assert sorted(trace.query for trace in traces) == sorted(questions)
    for trace in traces:
        assert trace.status == "ok"
        assert [document.id for document in trace.documents] == [f"d-{trace.query}"]
        [generation] = trace.generations
        assert generation.response == trace.answer
        assert trace.answer == f"All that is known about {trace.query}. Question: {trace.query}"
        assert trace.metadata["components"] == ["find", "prompt", "llm"]


def test_four_threads_on_one_pipeline_are_one_trace_each_run(tracer, traces):
    pipeline, questions = echoing(), [f"q{n}" for n in range(40)]
    with ThreadPoolExecutor(4) as executor:
        outputs = list(executor.map(lambda question: pipeline.run(data(question)), questions))
    found = traces()
    check(found, questions)
    answered = {trace.id: trace.answer for trace in found}
    for output in outputs:
        [reply] = output["llm"]["replies"]
        assert answered[reply.meta["attrkit"]["trace_id"]] == reply.text


def test_concurrent_run_async_are_one_trace_each(tracer, traces):
    pipeline, questions = echoing(), [f"q{n}" for n in range(20)]

    async def run():
        return await asyncio.gather(*(pipeline.run_async(data(question)) for question in questions))

    assert len(asyncio.run(run())) == 20
    check(traces(), questions)


def test_concurrent_streams_are_one_trace_each(tracer, traces):
    pipeline, questions = echoing(), [f"q{n}" for n in range(10)]

    async def read(question):
        return "".join([chunk.content async for chunk in pipeline.stream(data(question))])

    async def run():
        return await asyncio.gather(*(read(question) for question in questions))

    texts = asyncio.run(run())
    found = traces()
    check(found, questions)
    assert sorted(texts) == sorted(trace.answer for trace in found)


def test_threads_and_event_loops_at_once(tracer, traces):
    pipeline, questions = echoing(), [f"q{n}" for n in range(16)]

    def work(question):
        if int(question[1:]) % 2:
            return pipeline.run(data(question))
        return asyncio.run(pipeline.run_async(data(question)))

    with ThreadPoolExecutor(4) as executor:
        assert len(list(executor.map(work, questions))) == 16
    check(traces(), questions)


def test_a_run_inside_the_pause_of_an_asynchronous_one_is_a_run_of_its_own(tracer, traces):
    async def run():
        async for _ in echoing().run_async_generator(data("outer")):
            await echoing().run_async(data("inner"))
            echoing().run(data("sync"))
            agent(said("All well.")).run(messages=[ChatMessage.from_user("How are you?")])

    asyncio.run(run())
    found = traces()
    counts = Counter(trace.query for trace in found)
    assert counts["outer"] == 1
    assert counts["inner"] == counts["sync"] == counts["How are you?"] > 1
    assert all(len(trace.generations) == 1 for trace in found)
    assert not any("parent_run_id" in trace.metadata for trace in found)


def test_two_asynchronous_runs_taken_in_turns_do_not_mix(tracer, traces):
    async def run():
        runs = [echoing().run_async_generator(data(question)) for question in ("q1", "q2", "q3")]
        while runs:
            for one in list(runs):
                if await anext(one, None) is None:
                    runs.remove(one)
        return await echoing().run_async(data("after"))

    asyncio.run(run())
    check(traces(), ["q1", "q2", "q3", "after"])


def test_an_abandoned_asynchronous_run_leaves_nothing_behind(tracer, traces):
    async def run():
        abandoned = echoing().run_async_generator(data("abandoned"))
        await anext(abandoned)
        del abandoned
        gc.collect()
        await asyncio.sleep(0.01)
        await echoing().run_async(data("next"))

    asyncio.run(run())
    found = {trace.query: trace for trace in traces()}
    assert set(found) == {"abandoned", "next"}
    check([found["next"]], ["next"])
    assert found["abandoned"].status in ("partial", "interrupted")


def test_parallel_branches_of_one_run_stay_in_it(tracer, traces):
    pipeline = Pipeline()
    for n in range(4):
        pipeline.add_component(f"prompt{n}", PromptBuilder("Branch {{ n }}: {{ question }}"))
        pipeline.add_component(f"llm{n}", MockChatGenerator())
        pipeline.connect(f"prompt{n}.prompt", f"llm{n}.messages")
    question = {f"prompt{n}": {"n": n, "question": "why?"} for n in range(4)}
    asyncio.run(pipeline.run_async(question))
    [trace] = traces()
    assert sorted(g.response for g in trace.generations) == [f"Branch {n}: why?" for n in range(4)]


def test_parallel_tools_and_pipelines_in_tools_stay_in_the_agents_run(tracer, traces):
    lookup = PipelineTool(
        pipeline=echoing(),
        input_mapping={"question": ["find.query", "prompt.question"]},
        output_mapping={"llm.replies": "replies"},
        name="lookup",
        description="Looks something up.",
    )
    wanted = [("lookup", {"question": f"q{n}"}, f"c{n}") for n in range(4)]
    helper = agent(said(wanted, ANSWER), lookup, opening, price)
    with ThreadPoolExecutor(3) as executor:
        ask = [ChatMessage.from_user("What of all four?")]
        list(executor.map(lambda _: helper.clone(chat_generator=said(wanted, ANSWER)).run(messages=ask), range(3)))
    found = traces()
    assert len(found) == 3
    for trace in found:
        assert len(trace.generations) == 6, "two steps, and one call inside each tool"
        assert sorted(call.id for call in trace.tool_calls) == ["c0", "c1", "c2", "c3"]
        assert sorted(document.id for document in trace.documents) == ["d-q0", "d-q1", "d-q2", "d-q3"]
        assert trace.answer == ANSWER


def test_a_thread_that_outlives_its_component_still_belongs_to_the_run(tracer, traces):
    may_go_on = threading.Event()

    @component
    class Background:
        @component.output_types(done=bool)
        def run(self, n: int):
            span = tracing.tracer.current_span()

            def late():
                may_go_on.wait(20)
                with tracing.tracer.trace("haystack.chat_generator.run", parent_span=span) as own:
                    own.set_content_tag("haystack.component.input", {"messages": [ChatMessage.from_user("late")]})
                    own.set_content_tag("haystack.component.output", {"replies": [ChatMessage.from_assistant("done")]})

            self.thread = threading.Thread(target=late)
            self.thread.start()
            return {"done": True}

    @component
    class Waiting:
        @component.output_types(n=int)
        def run(self, done: bool):
            may_go_on.set()
            background.thread.join()
            return {"n": 1}

    background, pipeline = Background(), Pipeline()
    pipeline.add_component("background", background)
    pipeline.add_component("wait", Waiting())
    pipeline.connect("background.done", "wait.done")
    pipeline.run({"background": {"n": 1}})
    [trace] = traces()
    assert [g.response for g in trace.generations] == ["done"]


def test_what_attrkit_measures_is_no_run_of_the_application(tracer, traces):
    with paused():
        rag().run(asked())
    assert traces() == []


def test_installing_and_uninstalling_while_runs_are_under_way_breaks_none(tmp_path):
    pipeline, stop = echoing(), threading.Event()
    existing, failures = SeeingTracer(), []  # which is strict about whose spans it is given
    tracing.enable_tracing(existing)

    def work():
        while not stop.is_set():
            try:
                assert pipeline.run(data("q"))["llm"]["replies"][0].text
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    tracer = AttributionTracer(store=tmp_path / "a.db", max_age=0.2)
    for _ in range(30):
        tracer.install()
        pipeline.run(data("q"))
        tracer.uninstall()
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert tracing.tracer.actual_tracer is existing
    tracing.disable_tracing()
    assert tracer.flush(10)
    assert tracer.recorder.n_remembered == 0
    with Store(tmp_path / "a.db") as store:
        assert len(store.list(limit=None)) >= 30
