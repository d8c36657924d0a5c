"""An agent that calls two tools and answers from what they gave; a tracer records it, and nothing is rewired.

A model this small cannot plan, so what it calls is scripted; the answer is its own.
"""

from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import ToolsType, tool
from local_generator import LocalChatGenerator
from rich.console import Console

from attr_core import attribute
from attr_core.reports.terminal import render_attribution
from attr_haystack import AttributionTracer

ENGINE = "hf:SmolLM2-135M-Instruct.Q4_1.gguf"
PLAN = [
    ToolCall(tool_name="opening_year", arguments={"event": "Aldemoor Lantern Festival"}, id="call_1"),
    ToolCall(tool_name="entrance_fee", arguments={"place": "Aldemoor market"}, id="call_2"),
]


@tool
def opening_year(event: str) -> str:
    """When an event opened."""
    return f"The {event} opened in 1911."


@tool
def entrance_fee(place: str) -> str:
    """What a place charges its visitors."""
    return f"Visitors to the {place} pay four silver marks at the gate."


@component
class ScriptedPlanner:
    """Asks for both tools first, whatever it is told; then the model answers."""

    def __init__(self):
        self.model = LocalChatGenerator(ENGINE)

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: ToolsType | None = None):
        if not any(message.tool_call_results for message in messages):
            return {"replies": [ChatMessage.from_assistant(tool_calls=PLAN)]}
        return self.model.run(messages)


agent = Agent(
    chat_generator=ScriptedPlanner(),
    tools=[opening_year, entrance_fee],
    system_prompt="Answer the question in one short sentence, using only what the tools say.",
)

if __name__ == "__main__":
    turns = [
        ChatMessage.from_user("I want to see the Aldemoor Lantern Festival."),
        ChatMessage.from_assistant("It is worth the journey."),
        ChatMessage.from_user("In which year did it open?"),
    ]
    with AttributionTracer() as tracer:  # records, and measures nothing
        print(agent.run(messages=turns)["last_message"].text)
        tracer.flush()
        trace = tracer.recorded()
    for step in (2, 1):  # the answer, then the calls
        found = attribute(trace, engine=ENGINE, step=step)
        Console(width=120).print(render_attribution(found, trace))
