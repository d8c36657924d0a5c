"""Agents: their steps, tools and hooks are one run, and what each tool gave is known by its call."""

import asyncio

import pytest
from haystack import Pipeline
from haystack.components.agents.state import State
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks import hook
from haystack.tools import AgentTool
from haystack.tools.errors import ToolInvocationError
from haystack_parts import ANSWER, QUESTION, agent, broken, calls, engine, said

from attr_core import attribute
from attr_core.segmenter import segment_trace
from attr_core.types import SegmentKind
from attr_haystack import AttributionTracer

ASK = [ChatMessage.from_user(QUESTION)]
BOTH = [("opening", {"name": "fair"}, "c1"), ("price", {"name": "fair"}, "c2")]

RUNS = {
    "run": lambda agent, **inputs: agent.run(**inputs),
    "run_async": lambda agent, **inputs: asyncio.run(agent.run_async(**inputs)),
}


@pytest.mark.parametrize("way", RUNS)
def test_an_agent_with_two_tools_is_one_trace(way, tracer, traces):
    outputs = RUNS[way](agent(said(BOTH, ANSWER), system_prompt="Be brief."), messages=ASK)
    [trace] = traces()
    assert (trace.query, trace.answer, trace.status) == (QUESTION, ANSWER, "ok")
    first, second = trace.generations
    assert [tool["function"]["name"] for tool in first.tools] == ["opening", "price"]
    assert [(call.id, call.name) for call in first.tool_calls] == [("c1", "opening"), ("c2", "price")]
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "tool", "tool"]
    ran = {call.id: call for call in trace.tool_calls}
    assert (ran["c1"].output, ran["c1"].arguments) == ("The fair opened in 1911.", {"name": "fair"})
    assert {call.generation_id for call in trace.tool_calls} == {first.id}
    assert [document.text for document in ran["c2"].documents] == ["The fair charges four marks."]
    assert outputs["last_message"].meta["attrkit"] == {"trace_id": trace.id}
    assert [m.meta.get("attrkit") for m in outputs["messages"] if m.is_from("assistant")] == [
        {"trace_id": trace.id}
    ] * 2


def test_tool_outputs_are_segments_that_name_their_call(tracer, traces):
    agent(said(BOTH, ANSWER)).run(messages=ASK)
    [trace] = traces()
    pieces = segment_trace(trace).segments
    [output] = [piece for piece in pieces if piece.kind is SegmentKind.TOOL_OUTPUT and piece.origin == "c1"]
    assert output.text == "The fair opened in 1911."
    [document] = [piece for piece in pieces if piece.kind is SegmentKind.RETRIEVED]
    assert (document.origin, document.group_id, document.text) == ("c2", "fees", "The fair charges four marks.")


def test_the_text_of_a_tools_output_is_the_one_the_model_was_shown(tracer, traces):
    agent(said(BOTH, ANSWER)).run(messages=ASK)
    [trace] = traces()
    shown = {m.tool_call_id: m.content for m in trace.generations[1].messages if m.role == "tool"}
    assert {call.id: call.output for call in trace.tool_calls} == shown


def test_an_agent_in_a_pipeline_is_part_of_its_run(tracer, traces):
    pipeline = Pipeline()
    pipeline.add_component("agent", agent(said(BOTH, ANSWER)))
    history = [ChatMessage.from_user("Earlier."), ChatMessage.from_assistant("Yes.")]
    outputs = pipeline.run({"agent": {"messages": [*history, *ASK]}})
    [trace] = traces()
    assert (trace.query, trace.answer, len(trace.generations), len(trace.tool_calls)) == (QUESTION, ANSWER, 2, 2)
    assert trace.metadata["components"] == ["agent"]
    assert not [p for p in segment_trace(trace).segments if p.kind is SegmentKind.MEMORY], "the caller gave the history"
    assert outputs["agent"]["last_message"].meta["attrkit"] == {"trace_id": trace.id}


def test_calls_of_tools_in_a_history_that_the_caller_gives_are_no_memory(tracer, traces):
    call = ToolCall(tool_name="opening", arguments={"name": "fair"}, id="c0")
    history = [
        ChatMessage.from_user("When did the fair open?"),
        ChatMessage.from_assistant(tool_calls=[call]),
        ChatMessage.from_tool("In 1911.", origin=call),
        ChatMessage.from_assistant("In 1911."),
    ]
    agent(said(ANSWER)).run(messages=[*history, *ASK])
    [trace] = traces()
    assert not any(message.metadata.get("memory") for message in trace.generations[0].messages)


def test_the_same_tool_asked_twice_with_the_same_arguments_ran_twice(tracer, traces):
    twice = [("opening", {"name": "fair"}, "c1"), ("opening", {"name": "fair"}, "c2")]
    agent(said(twice, ANSWER)).run(messages=ASK)
    [trace] = traces()
    assert sorted(call.id for call in trace.tool_calls) == ["c1", "c2"]


def test_calls_without_ids_are_told_apart(tracer, traces):
    nameless = [("opening", {"name": name}, None) for name in ("fair", "parade")]
    agent(said(nameless, ANSWER)).run(messages=ASK)
    [trace] = traces()
    assert len({call.id for call in trace.tool_calls}) == 2
    assert sorted(call.output for call in trace.tool_calls) == [
        "The fair opened in 1911.",
        "The parade opened in 1911.",
    ]
    assert {call.generation_id for call in trace.tool_calls} == {trace.generations[0].id}


def test_a_tool_that_fails_says_so_and_the_run_goes_on(tracer, traces):
    helper = agent(said([("broken", {"name": "fair"}, "c1")], ANSWER), broken, raise_on_tool_invocation_failure=False)
    helper.run(messages=ASK)
    [trace] = traces()
    [call] = trace.tool_calls
    assert (call.output, trace.status) == (None, "ok")
    assert "no such thing: fair" in call.error


@pytest.mark.parametrize("way", RUNS)
def test_a_tool_that_ends_the_run_is_the_applications_own_error(way, tracer, traces):
    helper = agent(said([("broken", {"name": "fair"}, "c1")], ANSWER), broken, raise_on_tool_invocation_failure=True)
    with pytest.raises(ToolInvocationError, match="no such thing: fair"):
        RUNS[way](helper, messages=ASK)
    [trace] = traces()
    assert trace.status == "error"
    assert "no such thing: fair" in trace.error
    assert "no such thing: fair" in trace.tool_calls[0].error


def test_a_model_that_fails_in_an_agent_is_in_the_trace(tracer, traces):
    def fails(messages):
        raise ConnectionError("no route to the model")

    with pytest.raises(ConnectionError, match="no route"):
        agent(MockChatGenerator(response_fn=fails)).run(messages=ASK)
    [trace] = traces()
    assert (trace.status, trace.error) == ("error", "ConnectionError: no route to the model")
    assert trace.generations[0].error == trace.error


def test_a_tool_that_there_is_not_is_in_the_trace(tracer, traces):
    helper = agent(
        said([("nothing", {"name": "fair"}, "c1"), ("opening", {"name": "fair"}, "c2")], ANSWER),
        raise_on_tool_invocation_failure=False,
    )
    helper.run(messages=ASK)
    [trace] = traces()
    ran = {call.id: call for call in trace.tool_calls}
    assert "not found" in ran["c1"].error
    assert ran["c2"].output
    assert ran["c1"].generation_id == trace.generations[0].id


def test_a_run_that_a_tool_ends_has_that_tool(tracer, traces):
    helper = agent(said([("opening", {"name": "fair"}, "c1")]), exit_conditions=["opening"])
    helper.run(messages=ASK)
    [trace] = traces()
    assert [(call.id, call.output) for call in trace.tool_calls] == [("c1", "The fair opened in 1911.")]
    assert len(trace.generations) == 1


def test_hooks_are_listed_and_what_they_change_is_seen(tracer, traces):
    @hook
    def remember(state: State) -> None:
        messages = [ChatMessage.from_user("I like fairs."), *state.data["messages"]]
        state.set("messages", messages, handler_override=lambda old, new: new)

    @hook
    def other_fair(state: State) -> None:
        asked = calls(("opening", {"name": "parade"}, "c1"))
        state.set("messages", [*state.data["messages"][:-1], asked], handler_override=lambda old, new: new)

    helper = agent(
        said([("opening", {"name": "fair"}, "c1")], ANSWER),
        hooks={"before_run": [remember], "before_tool": [other_fair]},
    )
    helper.run(messages=ASK)
    [trace] = traces()
    assert [(entry["point"], entry["name"].rpartition(".")[2]) for entry in trace.metadata["hooks"]] == [
        ("before_run", "remember"),
        ("before_tool", "other_fair"),
    ]
    [call] = trace.tool_calls
    assert (call.id, call.arguments, call.output) == ("c1", {"name": "parade"}, "The parade opened in 1911.")
    assert [p.text for p in segment_trace(trace).segments if p.kind is SegmentKind.MEMORY] == ["I like fairs."]


def test_a_hook_that_fails_is_the_applications_own_error(tracer, traces):
    @hook
    def fails(state: State) -> None:
        raise RuntimeError("the hook broke")

    with pytest.raises(RuntimeError, match="the hook broke"):
        agent(said(ANSWER), hooks={"after_run": [fails]}).run(messages=ASK)
    [trace] = traces()
    assert (trace.status, trace.error) == ("error", "RuntimeError: the hook broke")
    assert trace.answer == ANSWER


def test_a_hook_can_read_the_traces_id(tracer, traces):
    seen = []

    @hook
    def read(state: State) -> None:
        seen.append(state.data["messages"][-1].meta["attrkit"]["trace_id"])

    agent(said(ANSWER), hooks={"after_run": [read]}).run(messages=ASK)
    assert seen == [traces()[0].id]


def test_an_agent_that_another_one_calls_is_part_of_its_run(tracer, traces):
    expert = agent(said([("opening", {"name": "fair"}, "inner")], "In 1911, says the expert."))
    ask = AgentTool(agent=expert, name="expert", description="Knows fairs.")
    helper = agent(said([("expert", {"messages": [{"role": "user", "content": QUESTION}]}, "outer")], ANSWER), ask)
    helper.run(messages=ASK)
    [trace] = traces()
    assert (trace.query, trace.answer) == (QUESTION, ANSWER)
    assert len(trace.generations) == 4
    assert {call.id for call in trace.tool_calls} == {"inner", "outer"}


def test_a_conversation_is_one_trace_a_turn(tracer, traces):
    helper = agent(said("Hello.", ANSWER))
    messages = helper.run(messages=[ChatMessage.from_user("Hello")])["messages"]
    helper.run(messages=[*messages, *ASK])
    first, second = traces()
    assert (first.answer, second.answer) == ("Hello.", ANSWER)
    assert [message.content for message in second.generations[0].messages] == ["Hello", "Hello.", QUESTION]
    assert all("attrkit" not in message.metadata for message in second.generations[0].messages)


def test_which_tool_output_caused_the_answer_is_measured(db):
    helper = agent(said(BOTH, ANSWER))
    with AttributionTracer(engine=engine(), mode="inline", store=db):
        message = helper.run(messages=ASK)["last_message"]
    causes = message.meta["attrkit"]["claims"][0]["targets"][0]["causes"]
    assert [(cause["kind"], cause["origin"], cause["verdict"]) for cause in causes] == [("tool_output", "c1", "drives")]


def test_each_steps_tool_calls_are_claims_that_can_be_attributed(db):
    helper = agent(said([("opening", {"name": "1911"}, "c1")], ANSWER))
    with AttributionTracer(store=db) as tracer:
        helper.run(messages=[ChatMessage.from_system("Be brief."), *ASK])
    found = attribute(tracer.recorded(), engine=engine(), step=1, db=":memory:")
    assert found.claims[0].text == 'Tool call: {"arguments": {"name": "1911"}, "name": "opening"}'
