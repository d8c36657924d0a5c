"""What SGLang's server is asked, and how its answers are read.

Written after its documents, and tried against a server that speaks as they say, not against SGLang itself:
docs.sglang.io, "SGLang Native APIs" (``/generate``, ``/get_model_info``, ``/tokenize``, ``/detokenize``) and "Sampling
Parameters" (``input_ids``, ``return_logprob``, ``logprob_start_len``); its own frontend,
``python/sglang/lang/backend/runtime_endpoint.py``, scores with ``max_new_tokens`` 0 as this does. That ``/tokenize``
takes ``messages`` is said in its pull request 29444; versions that do not are told apart by their refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attr_core.engines._server_http import Endpoint, Malformed, Nonsense
from attr_core.engines._server_offsets import Spans
from attr_core.engines._vllm import NEUTRAL, by_prefixes, chat_body, ids_of, options_of_template


class SGLang:
    """Requests to one SGLang; each method makes one, or as many as it says."""

    neutral: Mapping[str, Any] = NEUTRAL

    keeps_prefixes = True
    """Its radix cache forwards a beginning that prompts share once, if they come one after another."""

    def __init__(self, endpoint: Endpoint, model: str, options: Mapping[str, Any]) -> None:
        self._endpoint = endpoint
        self._model = model
        self._options = options_of_template(options)

    def tokenize_chat(self, chat: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of a conversation after the chat template, up to where the answer begins."""
        return self._tokenize(chat_body(chat, tools, self._options))

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text, with what begins a prompt or without."""
        return self._tokenize({"prompt": text, "add_special_tokens": special})

    def detokenize(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Texts of rows of ids, control tokens included."""
        body = {"model": self._model, "tokens": [list(row) for row in rows], "skip_special_tokens": False}
        answer = self._endpoint.post("/detokenize", body)
        texts = answer.get("text") if isinstance(answer, dict) else None
        if not isinstance(texts, list) or len(texts) != len(rows) or not all(isinstance(one, str) for one in texts):
            raise Malformed("/detokenize answered no texts")
        return texts

    def continuation(self, text: str) -> tuple[list[int], Spans]:
        """Ids of a response and each one's characters; four requests.

        Raises
        ------
        Nonsense
            The tokens do not give back the text.
        """
        ids = self.tokenize(text)
        return ids, by_prefixes(self, ids, text)

    def score(self, rows: Sequence[Sequence[int]], n_read: int) -> list[list[float]]:
        """Log-probabilities of the last ``n_read`` tokens of each row.

        What comes first has no log-probability, so it is asked for from one token earlier on.

        Raises
        ------
        Nonsense
            The server gave none, or others.
        """
        body = {
            "input_ids": [list(row) for row in rows],
            "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": [max(len(row) - n_read - 1, 0) for row in rows],
            "top_logprobs_num": 0,
            "return_text_in_logprobs": False,
        }
        answers = self._endpoint.post("/generate", body)
        if not isinstance(answers, list):
            raise Malformed("/generate answered no list")
        if len(answers) != len(rows):
            raise Nonsense(f"answered {len(answers)} of {len(rows)} prompts")
        return [_read(answer, row[len(row) - n_read :]) for answer, row in zip(answers, rows, strict=True)]

    def _tokenize(self, body: Mapping[str, Any]) -> list[int]:
        answer = self._endpoint.post("/tokenize", {"model": self._model, **body})
        return ids_of(answer.get("tokens") if isinstance(answer, dict) else None)


def _read(answer: Any, tokens: Sequence[int]) -> list[float]:
    told = answer.get("meta_info") if isinstance(answer, dict) else None
    entries = told.get("input_token_logprobs") if isinstance(told, dict) else None
    if entries is None:
        raise Nonsense("gave no prompt log-probabilities")
    # The token before the response comes with them, or does not.
    if not isinstance(entries, list) or len(entries) not in {len(tokens), len(tokens) + 1}:
        n_given = len(entries) if isinstance(entries, list) else 0
        raise Nonsense(f"gave {n_given} log-probabilities where {len(tokens) + 1} are due")
    return [_number(entry, token) for entry, token in zip(entries[-len(tokens) :], tokens, strict=True)]


def _number(entry: Any, token: int) -> float:
    is_entry = isinstance(entry, list) and len(entry) >= 2
    if not is_entry or entry[1] != token or isinstance(entry[0], bool) or not isinstance(entry[0], int | float):
        raise Nonsense(f"gave no log-probability for token {token}")
    return float(entry[0])
