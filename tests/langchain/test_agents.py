"""Agents and graphs: tools, memory, interrupts, and what the middleware leaves."""

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langchain")

from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import create_retriever_tool, tool
from langchain_parts import DOCUMENTS, asks, retriever, scripted
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from attr_core.segmenter import segment_trace
from attr_core.types import SegmentKind


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail(reason: str) -> str:
    """Always fails."""
    raise ValueError(reason)


def searching():
    return create_retriever_tool(retriever(), "search", "Find passages.", response_format="content_and_artifact")


def agent(*messages, tools=None, **options):
    return create_agent(scripted(*messages), tools or [searching(), add], system_prompt="Be brief.", **options)


TWO_TOOLS = asks(("search", {"query": "fair"}, "c1"), ("add", {"a": 2, "b": 3}, "c2"))


def ask(question):
    return {"messages": [("human", question)]}


def check_two_tools(trace):
    assert (trace.query, trace.answer, trace.status) == ("When, and 2+3?", "In 1911; 5.", "ok")
    first, second = trace.generations
    assert [c.id for c in first.tool_calls] == ["c1", "c2"]
    assert {(c.id, c.name, c.generation_id) for c in trace.tool_calls} == {
        ("c1", "search", first.id),
        ("c2", "add", first.id),
    }
    by_id = {c.id: c for c in trace.tool_calls}
    assert (by_id["c2"].arguments, by_id["c2"].output) == ({"a": 2, "b": 3}, "5")
    assert by_id["c1"].arguments == {"query": "fair"}
    assert {d.id for d in by_id["c1"].documents} == {d.id for d in DOCUMENTS}
    assert [m.role for m in second.messages] == ["system", "user", "assistant", "tool", "tool"]
    assert [tool["function"]["name"] for tool in second.tools] == ["search", "add"]
    segments = segment_trace(trace).segments
    assert {s.origin for s in segments if s.kind is SegmentKind.RETRIEVED} == {"c1"}
    assert [s.origin for s in segments if s.text == "5"] == ["c2"]


def test_an_agent_with_two_tools_in_parallel_is_one_trace(handler, traces):
    agent(TWO_TOOLS, "In 1911; 5.").invoke(ask("When, and 2+3?"), {"callbacks": [handler]})
    [trace] = traces()
    check_two_tools(trace)


def test_an_asynchronous_agent_is_one_trace(handler, traces):
    asyncio.run(agent(TWO_TOOLS, "In 1911; 5.").ainvoke(ask("When, and 2+3?"), {"callbacks": [handler]}))
    [trace] = traces()
    check_two_tools(trace)


@pytest.mark.parametrize("mode", ["values", "updates", "messages"])
def test_a_streamed_agent_is_one_trace(handler, traces, mode):
    list(agent(TWO_TOOLS, "In 1911; 5.").stream(ask("When, and 2+3?"), {"callbacks": [handler]}, stream_mode=mode))
    [trace] = traces()
    check_two_tools(trace)


def test_what_the_checkpoint_remembered_is_memory_and_what_was_asked_now_is_not(handler, traces):
    found = agent(TWO_TOOLS, "In 1911; 5.", "You asked when.", checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "T1"}, "callbacks": [handler]}
    found.invoke(ask("When, and 2+3?"), config)
    found.invoke(ask("What did I ask?"), config)
    first, second = traces()
    assert (first.session_id, second.session_id) == ("T1", "T1")
    assert not any(m.metadata.get("memory") for g in first.generations for m in g.messages)
    [generation] = second.generations
    assert [(m.role, bool(m.metadata.get("memory"))) for m in generation.messages] == [
        ("system", False),
        ("user", True),
        ("assistant", True),
        ("tool", True),
        ("tool", True),
        ("assistant", True),
        ("user", False),
    ]
    assert second.query == "What did I ask?"
    kinds = {s.kind for s in segment_trace(second).segments if not s.fixed}
    assert kinds == {SegmentKind.SYSTEM, SegmentKind.MEMORY}


def test_a_failing_tool_is_in_the_trace_with_its_error(handler, traces):
    failing = agent(asks(("fail", {"reason": "no luck"}, "c1")), "Sorry.", tools=[fail])
    with pytest.raises(ValueError, match="no luck"):
        failing.invoke(ask("Try."), {"callbacks": [handler]})
    [trace] = traces()
    assert (trace.status, trace.error) == ("error", "ValueError: no luck")
    assert trace.tool_calls[0].error == "ValueError: no luck"


class State(TypedDict, total=False):
    question: str
    approved: bool


def asking_graph():
    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"approved": interrupt("Approve?")})
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=InMemorySaver())


def test_an_interrupted_graph_is_interrupted_and_no_failure(handler, traces):
    graph, config = asking_graph(), {"configurable": {"thread_id": "T"}, "callbacks": [handler]}
    graph.invoke({"question": "Shall I?"}, config)
    graph.invoke(Command(resume=True), config)
    first, second = traces()
    assert (first.status, first.error) == ("interrupted", None)
    assert (second.status, second.error) == ("ok", None)


def test_a_graph_that_fetches_documents_in_a_node_has_them_located(handler, traces):
    class Rag(TypedDict, total=False):
        question: str
        context: list[Any]
        answer: str

    model = scripted("In 1911.")

    def retrieve(state):
        return {"context": [d.model_copy() for d in DOCUMENTS]}

    def generate(state):
        text = "\n".join(d.page_content for d in state["context"])
        return {"answer": model.invoke(f"{text}\n\n{state['question']}").content}

    graph = StateGraph(Rag)
    graph.add_node("retrieve", retrieve)
    graph.add_node("generate", generate)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "generate")
    graph.add_edge("generate", END)
    graph.compile().invoke({"question": "When?"}, {"callbacks": [handler]})
    [trace] = traces()
    assert (trace.query, trace.answer) == ("When?", "In 1911.")
    located = [s for s in segment_trace(trace).segments if s.located == "exact"]
    assert {s.id for s in located} == {d.id for d in DOCUMENTS}


def test_the_trace_id_is_in_every_answer_of_the_model_and_in_the_checkpoint(handler, traces):
    found = agent(TWO_TOOLS, "In 1911; 5.", checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "T1"}, "callbacks": [handler]}
    state = found.invoke(ask("When, and 2+3?"), config)
    [trace] = traces()
    for message in (state["messages"][-1], found.get_state(config).values["messages"][-1]):
        assert message.response_metadata["attrkit"] == {"trace_id": trace.id}
        json.dumps(message.response_metadata["attrkit"])


class TestMiddleware:
    def attributed(self, handler, **options):
        from attr_langchain import AttributionMiddleware

        return agent("In 1911.", tools=[add], middleware=[AttributionMiddleware(handler)], **options)

    def test_the_trace_id_is_in_the_state_and_the_custom_stream(self, handler, traces):
        state = self.attributed(handler).invoke(ask("When?"), {"callbacks": [handler]})
        heard = list(self.attributed(handler).stream(ask("When?"), {"callbacks": [handler]}, stream_mode="custom"))
        first, second = traces()
        assert state["attrkit"] == {"trace_id": first.id}
        assert heard == [{"attrkit": {"trace_id": second.id}}]

    def test_an_asynchronous_agent_has_it_too(self, handler, traces):
        state = asyncio.run(self.attributed(handler).ainvoke(ask("When?"), {"callbacks": [handler]}))
        [trace] = traces()
        assert state["attrkit"] == {"trace_id": trace.id}

    def test_without_the_handler_among_the_callbacks_it_leaves_nothing_and_says_so(self, handler):
        with pytest.warns(RuntimeWarning, match="not among the callbacks"):
            state = self.attributed(handler).invoke(ask("When?"))
        assert "attrkit" not in state


def test_history_that_the_caller_hands_over_is_no_memory_calls_of_tools_included(handler, traces):
    turns = [
        ("human", "What is 2+3?"),
        asks(("add", {"a": 2, "b": 3}, "c0")),
        ToolMessage("5", tool_call_id="c0"),
        ("ai", "5."),
        ("human", "And when did the fair open?"),
    ]
    agent("In 1911.").invoke({"messages": turns}, {"callbacks": [handler]})
    [trace] = traces()
    messages = trace.generations[0].messages
    assert [m.role for m in messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert not any(m.metadata.get("memory") for m in messages)
