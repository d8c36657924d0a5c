"""What vLLM's server is asked, and how its answers are read.

``/tokenize`` and ``/detokenize`` are documented in its OpenAI-compatible server's page (docs.vllm.ai, "Tokenizer API"),
``prompt_logprobs`` among the extra parameters of its Completions API; all were seen working with version 0.32.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attr_core.engines._server_http import Endpoint, Malformed, Nonsense
from attr_core.engines._server_offsets import Spans, spans_of_prefixes, spans_of_strings

NEUTRAL: Mapping[str, Any] = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling in which nothing of the model's own defaults is left."""

IMPOSSIBLE = -9999.0
"""What vLLM writes for minus infinity."""

_ANCHOR = "a"


class VLLM:
    """Requests to one vLLM for one model; each method makes one, or as many as it says."""

    neutral: Mapping[str, Any] = NEUTRAL

    keeps_prefixes = False
    """Requests for prompt log-probabilities bypass its prefix cache, so their order does not matter."""

    def __init__(self, endpoint: Endpoint, model: str, options: Mapping[str, Any]) -> None:
        self._endpoint = endpoint
        self._model = model
        self._options = options_of_template(options)

    def tokenize_chat(self, chat: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of a conversation after the chat template, up to where the answer begins."""
        return self._tokenize(chat_body(chat, tools, self._options))[0]

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text, with what begins a prompt or without."""
        return self._tokenize({"prompt": text, "add_special_tokens": special})[0]

    def detokenize(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Texts of rows of ids, control tokens included; a request each."""
        return [self._detokenize(row) for row in rows]

    def continuation(self, text: str) -> tuple[list[int], Spans]:
        """Ids of a response and each one's characters; a request more per token where the vocabulary is unusual.

        Raises
        ------
        Nonsense
            The tokens do not give back the text.
        """
        body = {"prompt": text, "add_special_tokens": False, "return_token_strs": True}
        ids, strings = self._tokenize(body)
        spans = None if strings is None else spans_of_strings(strings, text)
        return ids, by_prefixes(self, ids, text) if spans is None else spans

    def score(self, rows: Sequence[Sequence[int]], n_read: int) -> list[list[float]]:
        """Log-probabilities of the last ``n_read`` tokens of each row.

        Raises
        ------
        Nonsense
            The server gave none, or others.
        """
        body = {"prompt": [list(row) for row in rows], "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        choices = self._post("/v1/completions", body).get("choices")
        if not isinstance(choices, list):
            raise Malformed("/v1/completions answered no choices")
        found = {choice.get("index"): choice for choice in choices if isinstance(choice, dict)}
        if len(choices) != len(rows) or sorted(found, key=str) != sorted(range(len(rows)), key=str):
            raise Nonsense(f"answered {len(choices)} of {len(rows)} prompts")
        return [_read(found[n].get("prompt_logprobs"), row, n_read) for n, row in enumerate(rows)]

    def _tokenize(self, body: Mapping[str, Any]) -> tuple[list[int], list[str] | None]:
        answer = self._post("/tokenize", body)
        strings = answer.get("token_strs")
        ids = ids_of(answer.get("tokens"))
        is_told = isinstance(strings, list) and len(strings) == len(ids) and all(isinstance(s, str) for s in strings)
        return ids, strings if is_told else None

    def _detokenize(self, row: Sequence[int]) -> str:
        text = self._post("/detokenize", {"tokens": list(row)}).get("prompt")
        if not isinstance(text, str):
            raise Malformed("/detokenize answered no text")
        return text

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._endpoint.post(path, {"model": self._model, **body})
        if not isinstance(answer, dict):
            raise Malformed(f"{path} answered no object")
        return answer


def options_of_template(options: Mapping[str, Any]) -> dict[str, Any]:
    """Further variables of a chat template, as both kinds of server take them."""
    return {"chat_template_kwargs": dict(options)} if options else {}


def ids_of(tokens: Any) -> list[int]:
    """Token ids as a server gives them.

    Raises
    ------
    Malformed
        They are none.
    """
    if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
        raise Malformed("/tokenize answered no token ids")
    return tokens


def chat_body(
    chat: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """What asks for the ids of a conversation, up to where the answer begins."""
    body = {"messages": list(chat), "add_generation_prompt": True, "add_special_tokens": False, **options}
    return {**body, "tools": list(tools)} if tools else body


def by_prefixes(server: Any, ids: Sequence[int], text: str) -> Spans:
    """Characters of each token by decoding all beginnings, behind a letter that keeps a first space.

    Raises
    ------
    Nonsense
        The tokens do not give back the text.
    """
    anchor = server.tokenize(_ANCHOR)
    prefixes = server.detokenize([[*anchor, *ids[:n]] for n in range(1, len(ids) + 1)])
    begins = server.detokenize([anchor])[0]
    if all(prefix.startswith(begins) for prefix in prefixes):
        spans = spans_of_prefixes([prefix[len(begins) :] for prefix in prefixes], text)
        if spans is not None:
            return spans
    raise Nonsense("decoded the tokens of the response to another text")


def _read(entries: Any, row: Sequence[int], n_read: int) -> list[float]:
    if entries is None:
        raise Nonsense("gave no prompt log-probabilities")
    if not isinstance(entries, list) or len(entries) != len(row):
        n_given = len(entries) if isinstance(entries, list) else 0
        raise Nonsense(f"gave {n_given} log-probabilities to a prompt of {len(row)} tokens")
    begin = len(row) - n_read
    return [_number(entry, token) for entry, token in zip(entries[begin:], row[begin:], strict=True)]


def _number(entry: Any, token: int) -> float:
    told = entry.get(str(token)) if isinstance(entry, dict) else None
    number = told.get("logprob") if isinstance(told, dict) else None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise Nonsense(f"gave no log-probability for token {token}")
    return float("-inf") if number <= IMPOSSIBLE else float(number)
