"""The run that an application records: messages in one of several layouts, retrievals, tool calls, and the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from attr_core.errors import ConfigurationError
from attr_core.evaluation.planted.facts import question_about
from attr_core.evaluation.planted.models import WorldModel
from attr_core.evaluation.planted.worlds import World
from attr_core.protocols import Sampling
from attr_core.types import Document, Message, Prompt, Retrieval, ToolCall, Trace

__all__ = ["Layout", "Scene", "call_of", "question_of"]

Layout = Literal["numbered", "plain", "agent"]

_INSTRUCTION = "Answer in one short sentence, using only the context."
_CALL = "Tool call: "
_MEMORY = "Notes from earlier sessions: "
_SEARCH: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the archive.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
_TRANSFER: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "transfer",
        "description": "Send money.",
        "parameters": {
            "type": "object",
            "properties": {"account": {"type": "string"}, "amount": {"type": "string"}},
            "required": ["account", "amount"],
        },
    },
}


@dataclass(frozen=True, slots=True)
class Scene:
    """What stands in the prompt.

    ``documents`` are the chunks in their order; ``unused`` were retrieved and are not in the prompt. ``memory`` is a
    note from earlier sessions, ``turns`` earlier messages as (role, text). ``output`` is what a lookup gave beside the
    chunks, ``error`` how it failed; ``has_transfer`` offers a tool that sends money.
    """

    documents: Sequence[Document] = ()
    unused: Sequence[Document] = ()
    layout: Layout = "numbered"
    memory: str | None = None
    turns: tuple[tuple[str, str], ...] = ()
    output: str | None = None
    error: str | None = None
    has_transfer: bool = False

    def trace(self, name: str, world: World, model: WorldModel) -> Trace:
        """The run, with the model's answer; a run by chance or of a model that fails is a wrong one."""
        question = question_of(world)
        messages, calls = self._messages(question)
        tools = [dict(_SEARCH)] * bool(calls) + [dict(_TRANSFER)] * self.has_transfer
        said = _answer(model, Prompt(tuple(messages), tuple(tools)), world)
        called = call_of(said, "call_9")
        trace = Trace.from_messages(
            messages, None if called else said, query=question, model=model.spec, tools=tools, framework="planted"
        )
        retrieved = (*self.documents, *self.unused)
        generation = replace(trace.generations[0], id=f"gen_{name}", tool_calls=called)
        return replace(
            trace,
            id=f"tr_{name}",
            generations=(generation,),
            retrievals=(Retrieval(question, retrieved, id=f"ret_{name}"),) if retrieved else (),
            tool_calls=calls,
            started=None,
            finished=None,
        )

    def _messages(self, question: str) -> tuple[list[Message], tuple[ToolCall, ...]]:
        messages = [Message("system", _INSTRUCTION)]
        if self.memory:
            messages.append(Message("system", _MEMORY + self.memory, metadata={"memory": True}))
        messages += [Message(role, text) for role, text in self.turns]
        asked = question
        if self.layout != "agent" and self.documents:
            asked = f"Context:\n{self._context()}\n\nQuestion: {question}"
        messages.append(Message("user", asked))
        found: list[tuple[str, str, str | None]] = []
        calls: list[ToolCall] = []
        if self.layout == "agent" and self.documents:
            found.append(("search", self._context(), None))
        if self.output or self.error:
            found.append(("lookup", self.output or f"Error: {self.error}", self.error if not self.output else None))
        for number, (name, output, error) in enumerate(found, start=1):
            call = ToolCall(f"call_{number}", name, {"query": question})
            messages.append(Message("assistant", "", tool_calls=(call,)))
            messages.append(Message("tool", output, tool_call_id=call.id))
            calls.append(replace(call, output=None if error else output, error=error))
        return messages, tuple(calls)

    def _context(self) -> str:
        if self.layout == "numbered":
            return "\n".join(f"[{number}] {one.text}" for number, one in enumerate(self.documents, start=1))
        return "\n\n".join(one.text for one in self.documents)


def question_of(world: World) -> str:
    """What is asked, one question for each part."""
    parts = [question_about(asked, number) for number, asked in enumerate(world.asked)]
    return " ".join(parts)


def call_of(said: str, name: str) -> tuple[ToolCall, ...]:
    """The tool call that a model wrote as text, if it did."""
    if not said.startswith(_CALL):
        return ()
    data = json.loads(said.removeprefix(_CALL))
    return (ToolCall(name, data["name"], data["arguments"]),)


def _answer(model: WorldModel, prompt: Prompt, world: World) -> str:
    """What the model says; of one whose answers vary, the first that is wrong."""
    working = WorldModel.from_dict({**model.to_dict(), "fails": False})
    for _ in range(200):
        said = working.generate([prompt], Sampling())[0].text
        if working.share is None or world.true(world.asked[0]) not in said:
            return said
    raise ConfigurationError(f"a model that is right in a share of {model.share} gave no wrong answer in 200 runs")
