"""Streamed pieces put together again: chat-completion chunks and the events of ``responses.create``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attr_core._plain import plain
from attr_core._recording.responses import Answer, Status, read, read_answer, text_or_none, usage_of

__all__ = ["Assembly"]

_LAST_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_PIECES = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}
_ARGUMENTS = ("_arguments.delta", "_input.delta", "_code.delta")


class Assembly:
    """Takes chunks as they pass, keeping nothing of the chunk itself, and tells the answer so far at any time."""

    def __init__(self) -> None:
        self._chat = _ChatPieces()
        self._events = _EventPieces()
        self._last: _ChatPieces | _EventPieces = self._chat

    def add(self, chunk: Any) -> None:
        kind = read(chunk, "type")
        is_event = isinstance(kind, str) and (kind.startswith("response.") or kind == "error")
        self._last = self._events if is_event else self._chat
        self._last.add(chunk)

    @property
    def is_complete(self) -> bool:
        """Whether the provider has said that this was all, so that a host may stop reading."""
        return self._last.is_complete

    def answer(self) -> Answer:
        return self._last.answer()


class _ChatPieces:
    """Deltas of the first choice."""

    def __init__(self) -> None:
        self._text: dict[str, list[str]] = {"content": [], "reasoning_content": [], "refusal": []}
        self._calls: list[dict[str, Any]] = []
        self._finish_reason: str | None = None
        self._usage: dict[str, int] = {}
        self._model: str | None = None

    @property
    def is_complete(self) -> bool:
        return self._finish_reason is not None

    def add(self, chunk: Any) -> None:
        if isinstance(chunk, str):
            self._text["content"].append(chunk)
            return
        self._model = text_or_none(read(chunk, "model")) or self._model
        self._usage.update(usage_of(chunk))
        for choice in read(chunk, "choices") or ():
            if not read(choice, "index"):  # 0, or not said
                self._add_delta(read(choice, "delta"))
                self._finish_reason = text_or_none(read(choice, "finish_reason")) or self._finish_reason

    def answer(self) -> Answer:
        text = {name: "".join(pieces) if pieces else None for name, pieces in self._text.items()}
        calls = [
            {"id": call["id"], "function": {"name": call["name"], "arguments": "".join(call["arguments"])}}
            for call in self._calls
        ]
        whole = {
            "model": self._model,
            "choices": [{"message": {**text, "tool_calls": calls}, "finish_reason": self._finish_reason}],
        }
        return replace(read_answer(whole), usage=dict(self._usage))

    def _add_delta(self, delta: Any) -> None:
        for name, pieces in self._text.items():
            piece = read(delta, name)
            if piece is None and name == "reasoning_content":
                piece = read(delta, "reasoning")
            if isinstance(piece, str):
                pieces.append(piece)
        for position, call in enumerate(read(delta, "tool_calls") or ()):
            self._add_call(call, read(call, "index"), read(call, "function"), position)
        if (function := read(delta, "function_call")) is not None:
            self._add_call(None, None, function, 0)

    def _add_call(self, call: Any, index: Any, function: Any, position: int) -> None:
        """A piece of a tool call; some servers number every call 0, and only the id tells that a new one begins."""
        identifier = text_or_none(read(call, "id")) or ""
        key = index if isinstance(index, int) else position
        known = next((held for held in reversed(self._calls) if held["key"] == key), None)
        if known is None or (identifier and known["id"] and identifier != known["id"]):
            known = {"key": key, "id": "", "name": "", "arguments": []}
            self._calls.append(known)
        known["id"] = known["id"] or identifier
        known["name"] = known["name"] or text_or_none(read(function, "name")) or ""
        arguments = read(function, "arguments")
        if isinstance(arguments, str):
            known["arguments"].append(arguments)


class _EventPieces:
    """Events by the output item they belong to, until one of them carries the whole response."""

    def __init__(self) -> None:
        self._whole: Answer | None = None
        self._error: str | None = None
        self._head: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}

    @property
    def is_complete(self) -> bool:
        return self._whole is not None

    def add(self, event: Any) -> None:
        kind, position = read(event, "type"), read(event, "output_index")
        if kind in _LAST_EVENTS:
            self._whole = read_answer(read(event, "response"))
        elif kind == "error":
            self._error = text_or_none(read(event, "message")) or str(read(event, "code"))
        elif kind in ("response.created", "response.in_progress"):
            self._head = {name: text_or_none(read(event, "response", name)) for name in ("id", "model")}
        elif isinstance(position, int):
            self._add_piece(kind, position, event)

    def answer(self) -> Answer:
        if self._whole is not None:
            return self._whole
        status: Status = "partial" if self._error is None else "error"
        items = [self._item(position) for position in sorted(self._items.keys() | self._pieces.keys())]
        found = read_answer({**self._head, "output": items, "status": "in_progress"})
        return replace(found, status=status, error=self._error, finish_reason=None)

    def _add_piece(self, kind: str, position: int, event: Any) -> None:
        delta = read(event, "delta")
        if kind in ("response.output_item.added", "response.output_item.done"):
            item = read(event, "item")
            self._items[position] = plain(item.model_dump() if hasattr(item, "model_dump") else item)
            if kind.endswith("done"):
                self._pieces.pop(position, None)
        elif isinstance(delta, str):
            name = _PIECES.get(kind) or ("arguments" if kind.endswith(_ARGUMENTS) else None)
            if name is not None:
                self._pieces.setdefault(position, {}).setdefault(name, []).append(delta)

    def _item(self, position: int) -> dict[str, Any]:
        item = self._items.get(position) or {}
        pieces = {name: "".join(parts) for name, parts in self._pieces.get(position, {}).items()}
        if "text" in pieces or "refusal" in pieces:
            return {"type": "message", "content": [pieces]}
        if "reasoning" in pieces:
            return {"type": "reasoning", "summary": [{"text": pieces["reasoning"]}]}
        return {**item, **pieces}
