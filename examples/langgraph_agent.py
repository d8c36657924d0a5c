"""A graph that calls two tools and answers from what they gave: what caused the answer, and what caused each call.

A model this small cannot plan, so what it calls is scripted; the answer is its own.
"""

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from local_chat_model import LocalChatModel
from rich.console import Console

from attr_core import attribute
from attr_core.reports.terminal import render_attribution
from attr_langchain import AttributionCallbackHandler

PLAN = [
    {"name": "opening_year", "args": {"event": "Aldemoor Lantern Festival"}, "id": "call_1"},
    {"name": "entrance_fee", "args": {"place": "Aldemoor market"}, "id": "call_2"},
]
ANSWER = "Answer the question in one short sentence, using only the context."


@tool
def opening_year(event: str) -> str:
    """When an event opened."""
    return f"The {event} opened in 1911."


@tool
def entrance_fee(place: str) -> str:
    """What a place charges its visitors."""
    return f"Visitors to the {place} pay four silver marks at the gate."


class ScriptedPlanner(LocalChatModel):
    """Asks for both tools, whatever it is told."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=PLAN))])


model = LocalChatModel()
planner = ScriptedPlanner(engine=model.engine).bind_tools([opening_year, entrance_fee])


def plan(state):
    return {"messages": planner.invoke(state["messages"])}


def answer(state):
    *_, question, _, year, fee = [message.content for message in state["messages"]]
    context = f"Context:\n{year}\n\n{fee}\n\nQuestion: {question}"
    return {"messages": model.invoke([("system", ANSWER), ("human", context)])}


graph = StateGraph(MessagesState)
graph.add_node("plan", plan)
graph.add_node("tools", ToolNode([opening_year, entrance_fee]))
graph.add_node("answer", answer)
graph.add_edge(START, "plan")
graph.add_edge("plan", "tools")
graph.add_edge("tools", "answer")
agent = graph.compile()

if __name__ == "__main__":
    turns = [
        ("human", "I want to see the Aldemoor Lantern Festival."),
        ("ai", "It is worth the journey."),
        ("human", "In which year did it open?"),
    ]
    with AttributionCallbackHandler() as handler:  # records, and measures nothing
        agent.invoke({"messages": turns}, config={"callbacks": [handler]})
        handler.flush()
        trace = handler.trace()
    for step in (2, 1):  # the answer, then the calls
        found = attribute(trace, engine=model.engine, step=step)
        Console(width=120).print(render_attribution(found, trace))
