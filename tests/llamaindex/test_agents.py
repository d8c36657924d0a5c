"""An agent's run is one trace: its steps, its tools and what they asked, its memory, its end."""

import asyncio

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool, QueryEngineTool, RetrieverTool
from llama_index.core.workflow import Context, StopEvent
from llamaindex_parts import (
    ANSWER,
    QUESTION,
    REFUSED,
    TEXTS,
    ScriptedLLM,
    ToolLLM,
    calls,
    index,
    query_engine,
    refusal,
    says,
)
from workflows.errors import WorkflowCancelledByUser

from attr_core.api import attribute
from attr_core.carried import carried
from attr_core.segmenter import segment_trace
from attr_core.testing import AdditiveEngine

STREAMING = pytest.mark.parametrize("streaming", [False, True])


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


def fail(reason: str) -> str:
    """Does not work."""
    raise LookupError(reason)


def knowledge(llm=None):
    return QueryEngineTool.from_defaults(query_engine(llm or ScriptedLLM()), name="knowledge", description="Of fairs.")


def agent(*said, streaming=False, **options):
    return FunctionAgent(llm=ToolLLM(*said), streaming=streaming, **options)


def run(agent, *args, **kwargs):
    async def go():
        return await agent.run(*args, **kwargs)

    return asyncio.run(go())


def remembering():
    return ChatMemoryBuffer.from_defaults(token_limit=3000)


# --- function agents --------------------------------------------------------------------------------------------------


@STREAMING
def test_an_agent_without_tools_is_one_trace(trace, streaming):
    result = run(agent(says(ANSWER), streaming=streaming, system_prompt="Be brief."), QUESTION)
    found = trace()
    assert found.id == result.response.additional_kwargs["attrkit"]["trace_id"]
    assert (found.query, found.answer, found.status) == (QUESTION, ANSWER, "ok")
    assert found.metadata["name"] == "FunctionAgent.run"
    (generation,) = found.generations
    assert [(message.role, message.content) for message in generation.messages] == [
        ("system", "Be brief."),
        ("user", QUESTION),
    ]
    assert generation.response == ANSWER


@STREAMING
def test_every_piece_of_an_agents_stream_reaches_who_listens(instrumentation, streaming):
    async def listen():
        handler = agent(says(ANSWER), streaming=streaming).run(QUESTION)
        pieces, ends = [], []
        async for event in handler.stream_events():
            pieces.append(getattr(event, "delta", ""))
            if isinstance(event, StopEvent):
                ends.append("attrkit" in event.result.response.additional_kwargs)
        return pieces, ends, await handler

    pieces, ends, result = asyncio.run(listen())
    assert "".join(pieces) == (ANSWER if streaming else "")
    assert ends == [True], "it was there already as the event came"
    assert "attrkit" in result.response.additional_kwargs


@STREAMING
def test_tools_with_what_they_were_given_and_gave(trace, streaming):
    asked = calls(("add", {"a": 2, "b": 3}, "c1"), ("fail", {"reason": "lost"}, "c2"))
    run(agent(asked, says("Five."), streaming=streaming, tools=[add, fail]), "What is 2 + 3?")
    found = trace()
    first, last = found.generations
    assert first.response is None
    assert [(call.id, call.name, call.arguments) for call in first.tool_calls] == [
        ("c1", "add", {"a": 2, "b": 3}),
        ("c2", "fail", {"reason": "lost"}),
    ]
    assert [tool["function"]["name"] for tool in first.tools] == ["add", "fail"]
    assert first.tools[0]["function"]["parameters"]["required"] == ["a", "b"]
    by_id = {call.id: call for call in found.tool_calls}
    assert (by_id["c1"].output, by_id["c1"].error) == ("5", None)
    assert (by_id["c2"].output, by_id["c2"].error) == (None, "lost")
    assert {call.generation_id for call in found.tool_calls} == {first.id}
    assert {message.tool_call_id for message in last.messages if message.role == "tool"} == {"c1", "c2"}
    assert (found.status, found.answer) == ("ok", "Five."), "the model was told, and went on"


@STREAMING
def test_an_engine_as_a_tool_is_part_of_the_run(trace, streaming):
    llm = ScriptedLLM()
    asked = calls(("knowledge", {"input": QUESTION}, "c1"))
    run(agent(asked, says(f"{ANSWER} So I read."), streaming=streaming, tools=[knowledge(llm)]), QUESTION)
    found = trace()
    assert [generation.response for generation in found.generations] == [None, ANSWER, f"{ANSWER} So I read."]
    assert len(llm.asked) == 1
    (call,) = found.tool_calls
    assert (call.name, call.output) == ("knowledge", ANSWER)
    assert [len(retrieval.documents) for retrieval in found.retrievals] == [2]
    (piece,) = (piece for piece in segment_trace(found).segments if piece.text == ANSWER)
    assert piece.origin == "c1"


def test_what_drove_an_answer_by_way_of_an_engine_is_found(trace):
    asked = calls(("knowledge", {"input": QUESTION}, "c1"))
    run(agent(asked, says(f"{ANSWER} So I read."), tools=[knowledge()]), QUESTION)
    found = trace()
    engine = AdditiveEngine({"1911": {TEXTS["fair"]: 9.0, ANSWER: 9.0}}, bias=-5.0, answer=ANSWER)
    inner, last = (attribute(found, step=n, engine=engine, db=":memory:", regenerations=False) for n in (2, 3))
    ways = carried(last, found, [inner])
    assert {(way.steps, way.segment.group_id) for way in ways} == {((2,), "doc-fair")}


def test_a_retriever_as_a_tool_brings_documents_that_are_found_in_the_prompt(trace):
    tool = RetrieverTool.from_defaults(index().as_retriever(similarity_top_k=1), name="find", description="Finds.")
    run(agent(calls(("find", {"input": "fair"}, "c1")), says(ANSWER), tools=[tool]), QUESTION)
    found = trace()
    assert sum(len(retrieval.documents) for retrieval in found.retrievals) == 1
    pieces = [piece for piece in segment_trace(found).segments if TEXTS["fair"] in piece.text]
    assert [piece.origin for piece in pieces] == ["c1"]


def test_an_error_of_a_tools_model_that_the_agent_was_told_of_is_no_error_of_the_run(trace):
    def break_down(prompt):
        raise RuntimeError("the net is down")

    tool = knowledge(ScriptedLLM(say=break_down))
    run(agent(calls(("knowledge", {"input": QUESTION}, "c1")), says("I do not know."), tools=[tool]), QUESTION)
    found = trace()
    assert (found.status, found.error) == ("ok", None)
    assert found.tool_calls[0].error == "the net is down"
    assert [generation.error for generation in found.generations] == [None, "RuntimeError: the net is down", None]


def test_an_error_that_a_synthesizer_swallows_within_a_tool_is_the_runs(trace):
    def refuse(prompt):
        raise refusal()

    tool = knowledge(ScriptedLLM(say=refuse))
    run(agent(calls(("knowledge", {"input": QUESTION}, "c1")), says("Nothing."), tools=[tool]), QUESTION)
    found = trace()
    assert (found.status, found.error) == ("error", REFUSED)
    assert found.tool_calls[0].output == "Empty Response"


@STREAMING
def test_earlier_turns_are_memory_and_steps_of_this_run_are_not(traces, streaming):
    memory = remembering()
    one = agent(says("Hello!"), calls(("add", {"a": 2, "b": 3}, "c1")), says("Five."), streaming=streaming, tools=[add])
    run(one, "Hello.", memory=memory)
    run(one, "What is 2 + 3?", memory=memory)
    first, last = traces()[1].generations
    for generation in (first, last):
        remembered = [message.content for message in generation.messages if message.metadata.get("memory")]
        assert remembered == ["Hello.", "Hello!"]


def test_a_history_that_the_application_gives_is_no_memory(trace):
    history = [ChatMessage(role="user", content="Hello."), ChatMessage(role="assistant", content="Hello!")]
    run(agent(says(ANSWER)), QUESTION, chat_history=history)
    assert not any(message.metadata.get("memory") for message in trace().generations[0].messages)


def test_calls_of_tools_in_a_history_that_the_application_gives_are_no_memory(trace):
    history = [
        ChatMessage(role="user", content="What is 2 + 3?"),
        calls(("add", {"a": 2, "b": 3}, "c0")),
        ChatMessage(role="tool", content="5", additional_kwargs={"tool_call_id": "c0"}),
        ChatMessage(role="assistant", content="Five."),
    ]
    run(agent(says(ANSWER)), QUESTION, chat_history=history)
    messages = trace().generations[0].messages
    assert [call.id for call in messages[-4].tool_calls] == ["c0"]
    assert not any(message.metadata.get("memory") for message in messages)


def test_a_context_that_is_used_again_makes_a_trace_a_run(traces):
    one = agent(says("Hello!"), says(ANSWER))

    async def talk():
        context = Context(one)
        await one.run("Hello.", ctx=context)
        await one.run(QUESTION, ctx=context)

    asyncio.run(talk())
    assert [(found.query, found.answer) for found in traces()] == [("Hello.", "Hello!"), (QUESTION, ANSWER)]


# --- other agents -----------------------------------------------------------------------------------------------------

THOUGHT = 'Thought: I need a tool.\nAction: add\nAction Input: {"a": 2, "b": 3}'


@STREAMING
def test_a_reasoning_agent(traces, streaming):
    said = iter([THOUGHT, "Thought: I can answer.\nAnswer: five", "Thought: I can answer.\nAnswer: six"])
    llm = ScriptedLLM(is_chat_model=True, say=lambda prompt: next(said))
    one = ReActAgent(tools=[FunctionTool.from_defaults(add)], llm=llm, streaming=streaming)
    memory = remembering()
    result = run(one, "What is 2 + 3?", memory=memory)
    assert result.response.additional_kwargs["attrkit"]["trace_id"] == traces()[0].id
    run(one, "And 3 + 3?", memory=memory)
    first, second = traces()
    assert (first.query, first.answer, first.status) == ("What is 2 + 3?", "five", "ok")
    assert [generation.response for generation in first.generations] == [
        THOUGHT,
        "Thought: I can answer.\nAnswer: five",
    ]
    (call,) = first.tool_calls
    assert (call.name, call.arguments, call.output) == ("add", {"a": 2, "b": 3}, "5")
    assert call.generation_id == first.generations[0].id
    assert not any(message.metadata.get("memory") for g in first.generations for message in g.messages)
    remembered = [message.content for message in second.generations[0].messages if message.metadata.get("memory")]
    assert remembered[0] == "What is 2 + 3?"
    assert len(remembered) == 2
    assert len(first.generations) + len(second.generations) == len(llm.asked)


def test_several_agents_are_one_run(trace):
    one = FunctionAgent(
        name="one",
        description="Passes on.",
        llm=ToolLLM(calls(("handoff", {"to_agent": "two", "reason": "it knows"}, "h1"))),
        can_handoff_to=["two"],
        streaming=False,
    )
    two = FunctionAgent(name="two", description="Knows.", llm=ToolLLM(says(ANSWER)), streaming=False)
    result = run(AgentWorkflow(agents=[one, two], root_agent="one"), QUESTION)
    found = trace()
    assert found.id == result.response.additional_kwargs["attrkit"]["trace_id"]
    assert (found.query, found.answer, len(found.generations)) == (QUESTION, ANSWER, 2)
    assert found.tool_calls[0].name == "handoff"


def test_an_agent_within_an_agent_is_part_of_the_run_and_unstamped(trace):
    inner, seen = agent(says(ANSWER)), []

    async def ask(question: str) -> str:
        """Asks another agent."""
        result = await inner.run(question)
        seen.append(result)
        return str(result)

    result = run(agent(calls(("ask", {"question": QUESTION}, "c1")), says("So it is."), tools=[ask]), "Ask when.")
    found = trace()
    assert (found.query, found.answer) == ("Ask when.", "So it is.")
    assert [generation.response for generation in found.generations] == [None, ANSWER, "So it is."]
    assert found.tool_calls[0].output == ANSWER
    assert "attrkit" not in seen[0].response.additional_kwargs
    assert "attrkit" in result.response.additional_kwargs


def test_a_tool_that_no_agent_calls_belongs_to_the_run_around_it(trace):
    llm = ToolLLM(calls(("add", {"a": 2, "b": 3}, "c1")))
    llm.predict_and_call([FunctionTool.from_defaults(add)], "What is 2 + 3?")
    found = trace()
    assert [(call.name, call.output) for call in found.tool_calls] == [("add", "5")]
    assert len(found.generations) == 1


# --- ends -------------------------------------------------------------------------------------------------------------


def test_an_agent_whose_model_fails(trace):
    with pytest.raises(Exception, match="the net is down"):
        run(agent(RuntimeError("the net is down")), QUESTION)
    found = trace()
    assert (found.status, found.query) == ("error", QUESTION)
    assert "the net is down" in found.error
    assert found.generations[0].error == "RuntimeError: the net is down"


def test_an_agent_that_the_user_stops(trace):
    class Slow(ToolLLM):
        async def achat(self, messages, **kwargs):
            await asyncio.sleep(30)

    async def stop():
        handler = FunctionAgent(llm=Slow(), streaming=False).run(QUESTION)
        await asyncio.sleep(0.05)
        await handler.cancel_run()
        with pytest.raises(WorkflowCancelledByUser):
            await handler

    asyncio.run(stop())
    found = trace()
    assert (found.status, found.query) == ("interrupted", QUESTION)


def test_an_agent_that_takes_too_many_steps(trace):
    asked = [calls(("add", {"a": 2, "b": n}, f"c{n}")) for n in range(5)]
    with pytest.raises(Exception, match="Max iterations"):
        run(agent(*asked, tools=[add]), QUESTION, max_iterations=3)
    found = trace()
    assert found.status == "error"
    assert len(found.generations) == 3
