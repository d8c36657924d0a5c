"""The engine for the user's own servers: any that speaks the OpenAI protocol generates; vLLM and SGLang also score."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from attr_core._optional import require
from attr_core.engines._requests import Limits, Pace, send_all
from attr_core.engines._schemas import schema_format
from attr_core.engines._server_chat import LocalTemplate, RemoteTemplate, schemas
from attr_core.engines._server_errors import explained
from attr_core.engines._server_http import Endpoint, Malformed, Nonsense, Refused, judge, judge_first, read_address
from attr_core.engines._server_kinds import Server, look_at
from attr_core.engines._server_replies import completion_of_reply
from attr_core.engines._server_scoring import PROBE, Scorer, find_scorer
from attr_core.engines._vllm import options_of_template
from attr_core.engines.batches import check_sampling, cut
from attr_core.errors import ConfigurationError, ContextTooLongError, InputError, MissingCapabilityError
from attr_core.protocols import Capability, Completion, Price, Rendering, Sampling, TokenScores
from attr_core.types import Prompt

__all__ = ["KEY_VARIABLE", "LIMITS", "Limits", "OpenAIServerEngine"]

KEY_VARIABLE = "ATTRKIT_SERVER_KEY"
"""Environment variable that holds the server's key, where it asks for one."""

LIMITS = Limits(concurrency=4, timeout=600.0)
"""A server of one's own has no rates, but may have no GPU either, and lets requests wait for each other."""

_KEEPS_TO_SCHEMAS = frozenset({"vllm", "sglang"})
T = TypeVar("T")


class OpenAIServerEngine:
    """A model behind a server of the user's own: generates, and scores a given response where the server can.

    Nothing is asked before it is needed. Then the server is asked once what it is: vLLM and SGLang return the
    log-probabilities of a prompt's tokens, so they can score; other servers that speak the OpenAI protocol generate
    only, and :attr:`why_not_score` says why. Calls may come from several threads and share the limits.

    The server applies its own chat template, and tokenises the response, without special tokens; text that looks like
    a control token is one to it, as when the application sends it.

    Parameters
    ----------
    url : str
        ``http://HOST:PORT``, with or without ``/v1``; ``#MODEL`` behind it names the model.
    model : str, optional
        The name under which the server offers it; by default the only one that it lists.
    api_key : str, optional
        Sent as bearer token; by default ``ATTRKIT_SERVER_KEY``, else none. It appears in no name and no message.
    limits : Limits, optional
        Requests at a time, their time limit, repetitions and rates. Default: ``LIMITS``.
    template_options : mapping, optional
        Further variables for the chat template, such as ``{"enable_thinking": False}``; for vLLM and SGLang.

    Raises
    ------
    MissingDependencyError
        httpx is not installed.
    ConfigurationError
        The address is none, or names another model than ``model``.

    Examples
    --------
    >>> OpenAIServerEngine("http://localhost:8000/v1#smol")
    OpenAIServerEngine('http://localhost:8000', 'smol')
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        limits: Limits | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        require("httpx", extra="openai")
        root, named = read_address(url)
        if model and named and model != named:
            raise ConfigurationError(f"the address names the model {named!r}, and model is {model!r}; name it once")
        self._limits = limits or LIMITS
        self._options = dict(template_options or {})
        key = api_key or os.environ.get(KEY_VARIABLE, "").strip() or None
        self._endpoint = Endpoint(root, api_key=key, timeout=self._limits.timeout)
        self._named = model or named
        self._pace = Pace(self._limits)
        self._lock = threading.RLock()
        self._told: Server | None = None
        self._found: Scorer | str | None = None
        self._fingerprint: str | None = None

    def __repr__(self) -> str:
        named = f", {self._named!r}" if self._named else ""
        return f"OpenAIServerEngine({self._endpoint.url!r}{named})"

    @property
    def spec(self) -> str:
        """``server:``, the address without credentials, and the model; the first time may ask the server."""
        return f"server:{self._endpoint.url}#{self._named or self._server.model}"

    @property
    def fingerprint(self) -> str:
        """Hash of the address, the kind and version of the server, and what it tells of weights, template and window.

        The template and tokenizer are told by the tokens of one conversation.
        """
        with self._lock:
            if self._fingerprint is None:
                self._fingerprint = self._identity()
            return self._fingerprint

    @property
    def max_context(self) -> int | None:
        """Tokens of prompt and response together; ``None`` where the server does not tell.

        One less than the window where the server must generate a token in order to score.
        """
        told = self._server
        return told.max_context if told.max_context is None or told.kind == "openai" else told.max_context - 1

    @property
    def concurrency(self) -> int:
        """Requests at a time."""
        return self._limits.concurrency

    @property
    def price(self) -> Price:
        """Nothing: the server is the user's own."""
        return Price(0.0, 0.0)

    @property
    def capabilities(self) -> frozenset[Capability]:
        """``generate``; ``score`` where the server gave the log-probabilities of a few tokens, asked once."""
        return frozenset({Capability.GENERATE} | (set() if self.why_not_score else {Capability.SCORE}))

    @property
    def why_not_score(self) -> str | None:
        """Why the server cannot score; ``None`` where it can."""
        scorer = self._scorer
        return scorer if isinstance(scorer, str) else scorer.why_not

    def render(self, prompt: Prompt) -> Rendering:
        """The prompt as text and token ids, by the server's tokenizer; two requests, and a few for a new structure.

        Raises
        ------
        MissingCapabilityError
            The server does not tokenise (:meth:`count_tokens` estimates).
        InputError
            There are no messages, or the template fails on them.
        EngineError
            The server failed.
        """
        template = self._template
        if template is None:
            raise MissingCapabilityError(f"{self.spec} tells no tokens: {self.why_not_score}; use hf:MODEL")
        return self._explained(partial(template.render, prompt))

    def count_tokens(self, prompt: Prompt) -> int:
        """About how many tokens a prompt is: a third of its bytes and some for each message. Sends nothing."""
        parts = [message.content for message in prompt.messages]
        parts += [json.dumps(dict(tool), ensure_ascii=False, default=str) for tool in prompt.tools]
        return sum(len(part.encode("utf-8", "replace")) // 3 + 8 for part in parts)

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        """Log-probability of each token of ``continuation`` after each prompt, as the server computes it.

        A request tokenises each prompt, and another scores up to four of them. For SGLang they are sent in the
        order of their tokens, so that its cache forwards what they share once.

        Returns
        -------
        list of TokenScores, one per prompt
            ``tokens_in`` counts the prompt and the response, whatever the server takes from a cache.

        Raises
        ------
        MissingCapabilityError
            The server cannot (see :attr:`why_not_score`).
        InputError
            The continuation is empty, or a prompt cannot be rendered.
        ContextTooLongError
            A prompt and the continuation do not fit the model's window.
        EngineError
            The server failed or gave something else; ``completed`` has the scores of the other prompts.
        """
        scorer = self._scorer
        if isinstance(scorer, str) or scorer.why_not:
            raise MissingCapabilityError(
                f"{self.spec} cannot score: {self.why_not_score}; use hf:MODEL, or a server of vLLM's"
            )
        if not prompts:
            return []
        ids, offsets = self._explained(lambda: scorer.template.continuation(continuation))
        encoded = self._encoded(scorer.template, prompts, f"{len(ids)} of the response", len(ids))
        rows = {n: [*row, *ids] for n, row in enumerate(encoded) if not isinstance(row, Exception)}
        batches = scorer.batches(rows)
        outcomes: dict[int, Any] = dict(enumerate(encoded))
        found = self._send(
            [partial(scorer.score, [rows[n] for n in batch], len(ids)) for batch in batches],
            [sum(len(rows[n]) for n in batch) for batch in batches],
        )
        for batch, outcome in zip(batches, found, strict=True):
            if isinstance(outcome, Exception):
                outcomes |= dict.fromkeys(batch, outcome)
            else:
                scored = zip(batch, outcome, strict=True)
                outcomes |= {n: TokenScores(logprobs, offsets, len(rows[n])) for n, logprobs in scored}
        scores: list[TokenScores] = self._all_or_error([outcomes[n] for n in range(len(prompts))])
        return scores

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        """One answer per prompt by ``/v1/chat/completions``; a tool call is told as ``Generation.written`` tells it.

        On vLLM and SGLang the model's own sampling defaults do not apply, a sampling's schema is enforced, and fewer
        than ``max_tokens`` are made where the window ends.

        Raises
        ------
        ContextTooLongError
            A prompt leaves no room for an answer.
        EngineError
            Some prompts were not answered; ``completed`` has the answers to the others.
        """
        check_sampling(sampling)
        if not prompts:
            return []
        rooms, template, limit = [sampling.max_tokens] * len(prompts), self._template, self.max_context
        if template is not None and limit is not None:
            rows = self._encoded(template, prompts, "at least 1 of an answer", 1)
            rooms = [
                min(sampling.max_tokens, limit - len(row)) if isinstance(row, list) else sampling.max_tokens
                for row in rows
            ]
        bodies = [self._body(prompt, sampling, room) for prompt, room in zip(prompts, rooms, strict=True)]
        jobs = [partial(self._answer, body, sampling.stop) for body in bodies]
        sizes = [self.count_tokens(prompt) + room for prompt, room in zip(prompts, rooms, strict=True)]
        return self._all_or_error(self._send(jobs, sizes))

    @property
    def _server(self) -> Server:
        with self._lock:
            if self._told is None:
                self._told = self._explained(lambda: look_at(self._endpoint, self._named, self._ask_first))
                self._named = self._told.model
            return self._told

    @property
    def _scorer(self) -> Scorer | str:
        """How the server is asked for scores, or why it cannot be."""
        with self._lock:
            if self._found is None:
                server = self._server
                self._found = self._explained(
                    lambda: find_scorer(self._endpoint, server, self._ask, options=self._options)
                )
            return self._found

    @property
    def _template(self) -> RemoteTemplate | LocalTemplate | None:
        return None if isinstance(self._scorer, str) else self._scorer.template

    def _identity(self) -> str:
        told, template = self._server, self._template
        parts = {
            "kind": told.kind,
            "url": self._endpoint.url,
            "model": told.model,
            "version": told.version,
            "weights": told.weights,
            "window": told.max_context,
            "template": None if template is None else self._explained(lambda: template.encode(PROBE))[0],
        }
        return "server:" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _encoded(
        self, template: RemoteTemplate | LocalTemplate, prompts: Sequence[Prompt], rest: str, n_rest: int
    ) -> list[list[int] | Exception]:
        """Ids of the prompts, each seen to leave room for the rest; what a server's fault kept from having any."""
        jobs = [self._explained(partial(template.settle, prompt)) for prompt in prompts]
        rows = [one if isinstance(one, Exception) else one[0] for one in self._send(jobs)]
        limit = self.max_context
        for n, row in enumerate(rows):
            if isinstance(row, InputError):
                raise row
            if limit is not None and isinstance(row, list) and len(row) + n_rest > limit:
                raise ContextTooLongError(
                    f"prompt {n} of {len(row)} tokens and {rest} do not fit the window of {limit} tokens of "
                    f"{self.spec}; shorten the prompt or start the server with a larger window"
                )
        return rows

    def _body(self, prompt: Prompt, sampling: Sampling, room: int) -> dict[str, Any]:
        scorer = self._scorer
        neutral: Mapping[str, Any] = {"top_p": 1.0}
        if isinstance(scorer, str):
            chat, tools = prompt.to_chat(), schemas(prompt)
        else:
            chat, tools = self._explained(lambda: scorer.template.chat(prompt))
            neutral = {**scorer.protocol.neutral, **options_of_template(self._options)}
        body: dict[str, Any] = {"model": self._server.model, "messages": chat, **neutral}
        body |= {"max_tokens": room, "temperature": sampling.temperature, "seed": sampling.seed}
        body |= {"stop": list(sampling.stop)} if sampling.stop else {}
        if sampling.schema is not None and self._server.kind in _KEEPS_TO_SCHEMAS:
            body["response_format"] = schema_format(sampling.schema)
        return body | ({"tools": tools} if tools else {})

    def _answer(self, body: Mapping[str, Any], stop: tuple[str, ...]) -> Completion:
        return cut(completion_of_reply(self._endpoint.post("/v1/chat/completions", body)), stop)

    def _send(self, jobs: Sequence[Callable[[], T]], sizes: Sequence[int] = ()) -> list[T | Exception]:
        return send_all(jobs, limits=self._limits, pace=self._pace, judge=judge, tokens=sizes)

    def _ask(self, job: Callable[[], T]) -> T:
        return _only(self._send([job]))

    def _ask_first(self, job: Callable[[], T]) -> T:
        return _only(send_all([job], limits=self._limits, pace=self._pace, judge=judge_first))

    def _explained(self, job: Callable[[], T]) -> T:
        """Do what asks the server, and say in one sentence what went wrong."""
        try:
            return job()
        except (Refused, Malformed, Nonsense, require("httpx", extra="openai").HTTPError) as error:
            raise explained(error, self._endpoint, self._named, self._models) from error

    @property
    def _models(self) -> tuple[str, ...]:
        return self._told.models if self._told is not None else ()

    def _all_or_error(self, outcomes: Sequence[T | Exception]) -> list[T]:
        good = {n: one for n, one in enumerate(outcomes) if not isinstance(one, Exception)}
        first = next((one for one in outcomes if isinstance(one, Exception)), None)
        if first is None:
            return list(good.values())
        n_failed = len(outcomes) - len(good)
        what = f"{n_failed} of {len(outcomes)} prompts" if len(outcomes) > 1 else "the prompt"
        error = explained(first, self._endpoint, self._named, self._models, what=what, completed=good)
        raise error from (first if error is not first else None)


def _only(outcomes: Sequence[T | Exception]) -> T:
    [outcome] = outcomes
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
