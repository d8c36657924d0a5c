"""Prompts through the chat template that a server holds, by the same rules as through one that lies here."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attr_core.engines._chat import (
    ALL,
    NOTES,
    REFUSED_NOTE,
    Chat,
    Rewrite,
    chat_of,
    plain,
    probe_of,
    rewrites_of,
    rewritten,
    schema_of,
)
from attr_core.engines._local_model import LocalModel
from attr_core.engines._server_http import Refused
from attr_core.engines._server_offsets import Spans
from attr_core.engines._tokens import covering, whole_characters
from attr_core.engines._weights import is_cached
from attr_core.errors import InputError, ModelNotFoundError
from attr_core.protocols import Rendering
from attr_core.types import Prompt

_UNPROCESSABLE = frozenset({400, 422})


class Tokenizes(Protocol):
    """A server that holds a tokenizer and a chat template."""

    def tokenize_chat(self, chat: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]: ...
    def tokenize(self, text: str, *, special: bool = False) -> list[int]: ...
    def detokenize(self, rows: Sequence[Sequence[int]]) -> list[str]: ...
    def continuation(self, text: str) -> tuple[list[int], Spans]: ...


class RemoteTemplate:
    """Prompts and responses as a server's tokens.

    What the template cannot carry is written as text, as :mod:`attr_core.engines._chat` says: once for each structure
    of a conversation (roles, tools, calls) placeholders are sent, and looked for in what comes back. Unlike there, text
    that looks like a control token is one to the server: so it is when the application sends it.
    """

    def __init__(self, server: Tokenizes, ask: Callable[[Callable[[], Any]], Any]) -> None:
        self._server = server
        self._ask = ask
        self._settled: dict[str, Rewrite | None] = {}
        self._lock = threading.Lock()

    def settle(self, prompt: Prompt) -> Callable[[], tuple[list[int], tuple[str, ...]]]:
        """What makes the prompt's ids and notes by one request; asks more before where the structure is new.

        Raises
        ------
        InputError
            There are no messages, or the template takes this structure but not these contents.
        """
        if not prompt.messages:
            raise InputError("the prompt has no messages; give at least one")
        chat, tools = chat_of(prompt.messages), schemas(prompt)
        rewrite = self._rewrite(chat, tools)
        return partial(self._encode, *rewritten(chat, tools, ALL if rewrite is None else rewrite), rewrite)

    def encode(self, prompt: Prompt) -> tuple[list[int], tuple[str, ...]]:
        """A prompt's ids, and notes on what the template could not carry."""
        ids, notes = self._ask(self.settle(prompt))
        return ids, notes

    def chat(self, prompt: Prompt) -> tuple[Chat, list[dict[str, Any]]]:
        """Messages and tools as they are to be sent for an answer: as given, but what the template cannot carry."""
        chat, tools = chat_of(prompt.messages), schemas(prompt)
        rewrite = self._rewrite(chat, tools)
        if not rewrite:
            return prompt.to_chat(), tools
        chat, tools = rewritten(chat, tools, rewrite)
        return _wire(chat), tools

    def render(self, prompt: Prompt) -> Rendering:
        """A prompt as text and ids, the text as the server decodes the ids."""
        ids, notes = self.encode(prompt)
        text = self._ask(lambda: self._server.detokenize([ids])[0])
        return Rendering(text, tuple(ids), notes)

    def continuation(self, text: str) -> tuple[list[int], NDArray[np.int64]]:
        """Ids of a response and each one's half-open characters ``(n_tokens, 2)``, together covering the text.

        Raises
        ------
        InputError
            The text is empty or gives no token.
        """
        if not text:
            raise InputError("the response is empty; there is nothing to score")
        text = whole_characters(text)
        ids, spans = self._ask(lambda: self._server.continuation(text))
        if not ids:
            raise InputError(f"the response {text[:40]!r} gives no tokens; there is nothing to score")
        return ids, covering(spans, len(text))

    def _encode(
        self, chat: Chat, tools: list[dict[str, Any]], rewrite: Rewrite | None
    ) -> tuple[list[int], tuple[str, ...]]:
        if rewrite is None:
            return self._server.tokenize(plain(chat), special=True), (REFUSED_NOTE,)
        try:
            ids = self._server.tokenize_chat(_wire(chat), tools)
        except Refused as refused:
            if refused.status not in _UNPROCESSABLE:
                raise
            raise InputError(f"the chat template fails on this prompt: {refused.said}; check its messages") from refused
        return ids, tuple(NOTES[one] for one in Rewrite if one in rewrite)

    def _rewrite(self, chat: Chat, tools: list[dict[str, Any]]) -> Rewrite | None:
        """The fewest rewritings that this structure needs; ``None`` where the template takes none of them."""
        probe, probe_tools, expected = probe_of(chat, tools)
        key = json.dumps([probe, probe_tools], sort_keys=True)
        with self._lock:
            if key not in self._settled:
                self._settled[key] = next(
                    (
                        rewrite
                        for rewrite in rewrites_of(probe, tools)
                        if self._carries(*rewritten(probe, probe_tools, rewrite), expected)
                    ),
                    None,
                )
            return self._settled[key]

    def _carries(self, chat: Chat, tools: list[dict[str, Any]], expected: set[str]) -> bool:
        try:
            ids = self._ask(lambda: self._server.tokenize_chat(_wire(chat), tools))
        except Refused as refused:
            if refused.status not in _UNPROCESSABLE:
                raise
            return False
        [text] = self._ask(lambda: self._server.detokenize([ids]))
        return all(text_ in text for text_ in expected)


class LocalTemplate:
    """The same by a tokenizer on this machine, for a server that applies no template when asked for tokens.

    Raises
    ------
    AttrkitError
        It is not here, or what loads it is not installed; nothing is downloaded.
    """

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        if not Path(path).expanduser().is_dir() and not is_cached(path):
            raise ModelNotFoundError(f"the tokenizer {path} is not on this machine; name a server that has one")
        self._model = LocalModel(
            path,
            None,
            dtype="float32",
            device="cpu",
            device_map=None,
            revision=None,
            gguf_file=None,
            template_options=options,
        )
        self._lock = threading.Lock()
        self._model.tokens  # noqa: B018 - so that what cannot be loaded is told at once

    def settle(self, prompt: Prompt) -> Callable[[], tuple[list[int], tuple[str, ...]]]:
        """What makes the prompt's ids and notes; asks nobody."""
        return partial(self.encode, prompt)

    def encode(self, prompt: Prompt) -> tuple[list[int], tuple[str, ...]]:
        """A prompt's ids, and notes on what the template could not carry."""
        with self._lock:
            rendered, ids = self._model.encode(prompt)
        return ids, rendered.notes

    def chat(self, prompt: Prompt) -> tuple[Chat, list[dict[str, Any]]]:
        """Messages and tools as given."""
        return prompt.to_chat(), schemas(prompt)

    def render(self, prompt: Prompt) -> Rendering:
        """A prompt as text and ids."""
        with self._lock:
            rendered, ids = self._model.encode(prompt)
        return Rendering(rendered.text, tuple(ids), rendered.notes)

    def continuation(self, text: str) -> tuple[list[int], NDArray[np.int64]]:
        """Ids of a response and each one's half-open characters."""
        with self._lock:
            return self._model.tokens.encode_continuation(text)


def schemas(prompt: Prompt) -> list[dict[str, Any]]:
    """The prompt's tools as the OpenAI API has them."""
    return [schema_of(tool) for tool in prompt.tools]


def _wire(chat: Chat) -> Chat:
    """Messages as the OpenAI API has them: arguments of a call as text."""
    return [
        {**message, "tool_calls": [_wired(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in chat
    ]


def _wired(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["function"]["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    return {**call, "function": {**call["function"], "arguments": text}}
