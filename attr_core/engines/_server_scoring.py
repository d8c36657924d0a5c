"""Scores from a server: whether it gives any, tried once, and how prompts are sent for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from attr_core.engines._server_chat import LocalTemplate, RemoteTemplate
from attr_core.engines._server_http import Endpoint, Nonsense, Refused
from attr_core.engines._server_kinds import Ask, Server
from attr_core.engines._sglang import SGLang
from attr_core.engines._vllm import VLLM
from attr_core.errors import AttrkitError
from attr_core.results import FloatArray
from attr_core.types import Message, Prompt

BATCH = 4
"""Prompts scored by one request."""

BATCH_TOKENS = 8192
"""Tokens of such a request, unless a single prompt has more."""

TOLERANCE = 1e-6
"""By how much a log-probability may exceed 0, as rounding does."""

PROBE = Prompt(
    (
        Message("system", "Be brief."),
        Message("user", "Caf\u00e9 \U0001f642?"),
        Message("assistant", "Yes."),
        Message("user", "Say yes."),
    )
)
"""A conversation whose tokens tell the template and the tokenizer."""

_SHORT = Prompt((Message("user", "Say yes."),))
_WANTS_PROMPT = re.compile(r"field required|missing|invalid prompt type", re.IGNORECASE)
_NAMES = {"vllm": "vLLM", "sglang": "SGLang"}


@dataclass(frozen=True, slots=True)
class Scorer:
    """How a server that tokenises is asked; ``why_not`` says why it cannot score nevertheless."""

    protocol: VLLM | SGLang
    template: RemoteTemplate | LocalTemplate
    why_not: str | None = None

    def batches(self, rows: Mapping[int, Sequence[int]]) -> list[list[int]]:
        """Which rows to send together, and in which order, so that a cache of beginnings serves."""
        order = sorted(rows, key=lambda n: list(rows[n])) if self.protocol.keeps_prefixes else list(rows)
        batches: list[list[int]] = []
        room = 0
        for n in order:
            if not batches or len(batches[-1]) == BATCH or len(rows[n]) > room:
                batches.append([])
                room = BATCH_TOKENS
            batches[-1].append(n)
            room -= len(rows[n])
        return batches

    def score(self, rows: Sequence[Sequence[int]], n_read: int) -> list[FloatArray]:
        """Log-probabilities of the last ``n_read`` tokens of each row, by one request.

        Raises
        ------
        Nonsense
            The server gave none, others than those asked for, or numbers that are no log-probabilities.
        """
        found = []
        for numbers in self.protocol.score(rows, n_read):
            logprobs: FloatArray = np.array(numbers, dtype=np.float64)
            if not np.isfinite(logprobs).all() or (logprobs > TOLERANCE).any():
                raise Nonsense("gave a log-probability that is not finite, or above 0")
            found.append(np.minimum(logprobs, 0.0))
        return found


def find_scorer(endpoint: Endpoint, server: Server, ask: Ask, *, options: Mapping[str, Any]) -> Scorer | str:
    """How to get scores from the server, seen to work with a few tokens, or why it does not even tokenise.

    ``options`` are further variables for the chat template.
    """
    if server.kind == "openai":
        return server.why_not or "it is of no kind that does"
    protocol: VLLM | SGLang
    protocol = (VLLM if server.kind == "vllm" else SGLang)(endpoint, server.model, options)
    found = _template(protocol, server, ask, options)
    if isinstance(found, str):
        return found
    scorer = Scorer(protocol, found)
    name = _NAMES[server.kind]
    try:
        row = [*found.encode(_SHORT)[0], *found.continuation("yes")[0]]
        ask(partial(scorer.score, [row], 1))
    except Refused as refused:
        if not is_final(refused):
            raise
        return replace(scorer, why_not=f"this {name} refuses to give prompt log-probabilities ({refused})")
    except (AttrkitError, Nonsense) as error:
        return replace(scorer, why_not=f"this {name} gives no prompt log-probabilities that can be used ({error})")
    return scorer


def is_final(refused: Refused) -> bool:
    """Whether a refusal is about what was asked, so that the same will be refused again."""
    return 400 <= refused.status < 500 and refused.status not in {401, 403, 408, 425, 429}


def _template(
    protocol: VLLM | SGLang, server: Server, ask: Ask, options: Mapping[str, Any]
) -> RemoteTemplate | LocalTemplate | str:
    name = _NAMES[server.kind]
    try:
        ask(partial(protocol.tokenize, "yes"))
    except Refused as refused:
        if not is_final(refused):
            raise
        tells = "what answers /version as vLLM does" if server.kind == "vllm" else f"this {name}"
        return f"{tells} does not tokenise ({refused})"
    if isinstance(protocol, SGLang):
        try:
            ask(partial(protocol.tokenize_chat, _SHORT.to_chat(), []))
        except Refused as refused:
            if not is_final(refused):
                raise
            if not _WANTS_PROMPT.search(refused.said):
                return RemoteTemplate(protocol, ask)  # it knows conversations, and this one has no template
            try:
                return LocalTemplate(server.tokenizer or "", options)
            except AttrkitError as error:
                return f"this {name} applies no chat template when asked for tokens ({refused}), and {error}"
    return RemoteTemplate(protocol, ask)
