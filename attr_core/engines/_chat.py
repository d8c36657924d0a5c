"""Prompts through a model's own chat template, and as text where the template cannot carry something.

How a prompt is written is settled by its *structure* (roles, tools, tool calls), tried once with placeholder texts: an
ablation that empties a message therefore never changes it. Of the rewritings below the fewest that the template accepts
and that lose nothing are used, and noted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from itertools import groupby
from typing import Any

from attr_core.engines._tokens import Piece, whole_characters
from attr_core.errors import InputError
from attr_core.types import Message, Prompt, ToolCall, call_text

Chat = list[dict[str, Any]]
Template = Callable[[Chat, list[dict[str, Any]]], str]


class Rewrite(Flag):
    """What is written as text because the template cannot carry it."""

    TOOLS = auto()
    CALLS = auto()
    OUTPUTS = auto()
    SYSTEM = auto()
    ALTERNATE = auto()


NOTES: Mapping[Rewrite, str] = {
    Rewrite.TOOLS: "the chat template does not carry tool schemas; they are written into a message as text",
    Rewrite.CALLS: "the chat template does not carry tool calls; they are written into the assistant's turns as text",
    Rewrite.OUTPUTS: "the chat template does not carry tool outputs; they are written as labelled user turns",
    Rewrite.SYSTEM: "the chat template takes no such system message; it is written as the beginning of a user turn",
    Rewrite.ALTERNATE: "the chat template takes no such order of roles; neighbouring turns of one role are merged",
}
_DEVELOPER_NOTE = "the chat template has no developer role; developer messages are written as system messages"
_PLAIN_NOTE = "the model has no chat template; messages and tools are written as text under each role's name"
REFUSED_NOTE = "the chat template refuses this conversation; it is written as text under each role's name"
_SINGLE = tuple(Rewrite)
ALL = Rewrite.TOOLS | Rewrite.CALLS | Rewrite.OUTPUTS


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as text: literal pieces are what messages wrote that looks like a control token.

    ``cuts`` are the characters of the text at which each cut asked for stands, by its number; none where the template
    leaves out the text around it.
    """

    pieces: tuple[Piece, ...]
    notes: tuple[str, ...]
    is_plain: bool
    cuts: Mapping[int, tuple[int, ...]]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


class ChatWriter:
    """Writes prompts for one tokenizer.

    ``template`` is the model's, ``None`` without one; ``control`` matches control tokens' texts; ``opening`` stands
    at the beginning of what is written without a template (the tokenizer's <bos>).
    """

    def __init__(
        self, template: Template | None, control: re.Pattern[str], *, opening: str = "", developer: bool = False
    ):
        self._template = template
        self._plain: Template = lambda chat, tools: opening + plain(chat)
        self._control = control
        self._knows_developer = developer
        self._settled: dict[str, Rewrite | None] = {}

    def write(self, prompt: Prompt, cuts: Sequence[tuple[int, int]] = ()) -> Rendered:
        """The prompt up to where the assistant's answer begins.

        ``cuts`` are (message index, character of its content) whose places in the text are asked for; they must stand
        beside a character that no template trims, and inside no control token's text.

        Raises
        ------
        InputError
            There are no messages, or the template fails on these contents.
        """
        if not prompt.messages:
            raise InputError("the prompt has no messages; give at least one")
        chat, tools = chat_of(prompt.messages), [schema_of(tool) for tool in prompt.tools]
        rewrite = self._settle(chat, tools)
        template = self._plain if rewrite is None or self._template is None else self._template
        mark = _unused("zqattr", json.dumps([chat, tools], ensure_ascii=False, default=str))
        literals: list[str] = []
        _insert(cuts, chat, mark)
        masked = self._mask([chat, tools], mark, literals)
        # Templates put a default where a message is empty; a placeholder that vanishes afterwards forestalls it.
        for message in masked[0]:
            if not message["content"] and not message.get("tool_calls"):
                literals.append("")
                message["content"] = f"{mark}{len(literals) - 1}z"
        masked = self._developers(masked[0]), masked[1]
        try:
            text = template(*rewritten(*masked, ALL if rewrite is None else rewrite))
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"the chat template fails on this prompt: {reason}; check its messages") from error
        pieces, found = _pieces(text, mark, literals)
        return Rendered(pieces, self._notes(chat, rewrite), template is self._plain, found)

    def controls(self, text: str) -> list[tuple[int, int]]:
        """Where control tokens' texts stand in ``text``."""
        return [match.span() for match in self._control.finditer(text)]

    def closing(self) -> str | None:
        """The control token that ends an assistant's turn, where the template shows one."""
        if self._template is None:
            return None
        try:
            chat = [{"role": "user", "content": "zqone"}, {"role": "assistant", "content": "zqtwo"}]
            _, _, after = self._template(chat, []).rpartition("zqtwo")
        except Exception:
            return None
        match = self._control.search(after)
        return match.group() if match and not after[: match.start()].strip() else None

    def _settle(self, chat: Chat, tools: list[dict[str, Any]]) -> Rewrite | None:
        """The fewest rewritings that this structure needs; ``None`` where no template takes it."""
        if self._template is None:
            return None
        probe, probe_tools, expected = probe_of(self._developers(chat), tools)
        key = json.dumps([probe, probe_tools], sort_keys=True)
        if key not in self._settled:
            self._settled[key] = next(
                (
                    rewrite
                    for rewrite in rewrites_of(probe, tools)
                    if self._carries(probe, probe_tools, expected, rewrite)
                ),
                None,
            )
        return self._settled[key]

    def _carries(self, chat: Chat, tools: list[dict[str, Any]], expected: set[str], rewrite: Rewrite) -> bool:
        if self._template is None:
            return False
        try:
            text = self._template(*rewritten(chat, tools, rewrite))
        except Exception:  # templates refuse by raising, each in its own way
            return False
        return all(text_ in text for text_ in expected)

    def _developers(self, chat: Chat) -> Chat:
        if self._knows_developer:
            return chat
        return [{**message, "role": "system"} if message["role"] == "developer" else message for message in chat]

    def _notes(self, chat: Chat, rewrite: Rewrite | None) -> tuple[str, ...]:
        if rewrite is None:
            return (_PLAIN_NOTE if self._template is None else REFUSED_NOTE,)
        renamed = not self._knows_developer and any(message["role"] == "developer" for message in chat)
        return ((_DEVELOPER_NOTE,) if renamed else ()) + tuple(NOTES[one] for one in _SINGLE if one in rewrite)

    def _mask(self, value: Any, mark: str, literals: list[str]) -> Any:
        """``value`` with every control token's text in it replaced by a placeholder, and its own copy throughout."""

        def placeholder(match: re.Match[str]) -> str:
            literals.append(match.group())
            return f"{mark}{len(literals) - 1}z"

        if isinstance(value, str):
            return self._control.sub(placeholder, whole_characters(value))
        if isinstance(value, Mapping):
            return {self._mask(key, mark, literals): self._mask(item, mark, literals) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._mask(item, mark, literals) for item in value]
        return value


def plain(chat: Sequence[Mapping[str, Any]]) -> str:
    """Messages one after another, each under its role's name, and the name of the assistant, whose turn it is."""
    turns = [f"{message['role'].capitalize()}:\n{message['content']}\n\n" for message in chat]
    return "".join(turns) + "Assistant:\n"


def chat_of(messages: Sequence[Message]) -> Chat:
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    chat: Chat = []
    for message in messages:
        entry: dict[str, Any] = {"role": message.role, "content": message.content}
        name = message.name or (names.get(message.tool_call_id or "") if message.role == "tool" else None)
        if name:
            entry["name"] = name
        if message.tool_calls:
            entry["tool_calls"] = [_to_call(call) for call in message.tool_calls]
        if message.tool_call_id is not None:
            entry["tool_call_id"] = message.tool_call_id
        chat.append(entry)
    return chat


def _to_call(call: ToolCall) -> dict[str, Any]:
    # Templates of open models take arguments parsed, unlike the OpenAI API.
    arguments = {} if call.arguments is None else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def schema_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    return dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}


def probe_of(chat: Chat, tools: list[dict[str, Any]]) -> tuple[Chat, list[dict[str, Any]], set[str]]:
    """The same structure with placeholder texts, and those that must be found in what is written."""
    probe: Chat = []
    expected: set[str] = set()
    for n, message in enumerate(chat):
        entry = {**message, "content": f"zqcontent{n}z"}
        expected.add(entry["content"])
        if "tool_calls" in message:
            entry["tool_calls"] = [_probe_call(call, f"{n}z{m}z") for m, call in enumerate(message["tool_calls"])]
            expected.update(
                f"{kind}{n}z{m}z" for m in range(len(message["tool_calls"])) for kind in ("zqcall", "zqvalue")
            )
        probe.append(entry)
    if not tools:
        return probe, [], expected
    parameters = {"type": "object", "properties": {"zqkey": {"type": "string", "description": "zqtext"}}}
    function = {"name": "zqtoolz", "description": "zqtoolz", "parameters": parameters}
    return probe, [{"type": "function", "function": function}], expected | {"zqtoolz"}


def _probe_call(call: dict[str, Any], number: str) -> dict[str, Any]:
    is_parsed = isinstance(call["function"]["arguments"], Mapping)
    arguments = {"zqkey": f"zqvalue{number}"} if is_parsed else f"zqvalue{number}"
    return {**call, "function": {"name": f"zqcall{number}", "arguments": arguments}}


def rewrites_of(chat: Chat, tools: list[dict[str, Any]]) -> list[Rewrite]:
    """Every sensible combination for this structure, the fewest rewritings first."""
    roles = {message["role"] for message in chat}
    relevant = Rewrite.ALTERNATE
    if tools:
        relevant |= Rewrite.TOOLS
    if any("tool_calls" in message for message in chat):
        relevant |= Rewrite.CALLS
    if "tool" in roles:
        relevant |= Rewrite.OUTPUTS
    if "system" in roles:
        relevant |= Rewrite.SYSTEM
    sets = [Rewrite(bits) for bits in range(1 << len(_SINGLE)) if Rewrite(bits) & relevant == Rewrite(bits)]
    # A system message as a user turn of its own would be a second voice; it goes into the turn that follows.
    sets = [one for one in sets if Rewrite.SYSTEM not in one or Rewrite.ALTERNATE in one]
    return sorted(sets, key=lambda one: (one.value.bit_count(), one.value))


def rewritten(chat: Chat, tools: list[dict[str, Any]], rewrite: Rewrite) -> tuple[Chat, list[dict[str, Any]]]:
    chat = [dict(message) for message in chat]
    if Rewrite.TOOLS in rewrite and tools:
        holder = next((m for role in ("system", "user") for m in chat if m["role"] == role), chat[0])
        holder["content"] = _joined(holder, "Tools that can be called, as JSON:\n" + "\n".join(map(_json, tools)))
        tools = []
    for message in chat:
        if Rewrite.CALLS in rewrite and "tool_calls" in message:
            functions = (call["function"] for call in message.pop("tool_calls"))
            calls = (call_text(function["name"], function["arguments"]) for function in functions)
            message["content"] = "\n".join(filter(None, (message["content"], *calls)))
        if Rewrite.OUTPUTS in rewrite and message["role"] == "tool":
            label = f"Output of tool {message['name']}" if message.get("name") else "Tool output"
            message.update(role="user", content=f"{label}:\n{message['content']}")
            message.pop("tool_call_id", None)
            message.pop("name", None)
        if Rewrite.SYSTEM in rewrite and message["role"] == "system":
            message["role"] = "user"
    return (_alternating(chat) if Rewrite.ALTERNATE in rewrite else chat), tools


def _joined(holder: Mapping[str, Any], schemas: str) -> str:
    # After a system message's own text, but before a user's question.
    text = holder["content"]
    return f"{text}\n\n{schemas}" if holder["role"] == "system" else f"{schemas}\n\n{text}"


def _alternating(chat: Chat) -> Chat:
    merged: Chat = []
    for role, run in groupby(chat, key=lambda message: message["role"]):
        turns = list(run)
        if role == "tool":  # each answers a call of its own
            merged += turns
            continue
        whole = {**turns[0], "content": "\n\n".join(turn["content"] for turn in turns)}
        calls = [call for turn in turns for call in turn.get("tool_calls", ())]
        merged.append({**whole, "tool_calls": calls} if calls else whole)
    first = next((n for n, message in enumerate(merged) if message["role"] != "system"), len(merged))
    if first < len(merged) and merged[first]["role"] == "assistant":
        merged.insert(first, {"role": "user", "content": "(The assistant speaks first.)"})
    return merged


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _unused(mark: str, text: str) -> str:
    while mark in text:
        mark += "q"
    return mark


def _insert(cuts: Sequence[tuple[int, int]], chat: Chat, mark: str) -> None:
    # From the last to the first, so that those still to come keep their places.
    for number, (message, at) in sorted(enumerate(cuts), key=lambda cut: cut[1], reverse=True):
        content = chat[message]["content"]
        chat[message]["content"] = f"{content[:at]}{mark}c{number}z{content[at:]}"


def _pieces(text: str, mark: str, literals: Sequence[str]) -> tuple[tuple[Piece, ...], dict[int, tuple[int, ...]]]:
    pieces: list[Piece] = []
    cuts: dict[int, tuple[int, ...]] = {}
    length = 0
    for n, part in enumerate(re.split(f"{mark}(c?[0-9]+)z", text)):
        if n % 2 and part.startswith("c"):
            cuts[int(part[1:])] = (*cuts.get(int(part[1:]), ()), length)
            continue
        piece = (literals[int(part)], True) if n % 2 else (part, False)
        length += len(piece[0])
        # What a cut parted is one again.
        if pieces and not piece[1] and not pieces[-1][1]:
            piece = (pieces.pop()[0] + piece[0], False)
        pieces += [piece] if piece[0] else []
    return tuple(pieces), cuts
