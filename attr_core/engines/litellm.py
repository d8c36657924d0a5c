"""Hosted models, through litellm: OpenAI, Anthropic, Gemini, NVIDIA NIM, and what else it knows."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from attr_core._recording.responses import read_answer
from attr_core._redact import without_secrets
from attr_core.capabilities import require
from attr_core.engines import _prices
from attr_core.engines._litellm_calls import ask, check_fallbacks, load_litellm, undisturbed
from attr_core.engines._litellm_errors import RequestFailed, failed_request
from attr_core.engines._nim import explained
from attr_core.engines._requests import Failure, Limits, Pace, send_all
from attr_core.engines._schemas import schema_format
from attr_core.engines.batches import all_or_error, check_sampling, completion_of, cut, vectors
from attr_core.errors import ConfigurationError, EngineError, InputError
from attr_core.protocols import Capability, Completion, Price, Sampling
from attr_core.results import FloatArray
from attr_core.types import Generation, Prompt

__all__ = ["Limits", "LiteLLMEngine"]

_SETTINGS = ("temperature", "max_tokens", "seed", "stop")
_OURS = frozenset({*_SETTINGS, "model", "messages", "tools", "stream", "n", "timeout", "num_retries", "max_retries"})
_OURS_TOO = frozenset({"max_completion_tokens", "caching", "metadata", "fallbacks", "input", "mock_response"})
_CONNECTION = frozenset({"api_key", "api_base", "api_version", "organization", "extra_headers", "custom_llm_provider"})
_CONNECTION_OF = ("aws_", "azure_", "vertex_")
_REFUSES_EMPTY = ("anthropic", "gemini", "vertex_ai", "bedrock")
_PLACEHOLDER = "(empty)"
_TEXTS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class _Route:
    provider: str
    takes: frozenset[str]
    takes_schemas: bool = False

    @property
    def refuses_empty(self) -> bool:
        return self.provider.startswith(_REFUSES_EMPTY)


class LiteLLMEngine:
    """Generates and embeds with a hosted model; every call costs what its provider takes.

    Nothing but the requests leaves this machine: litellm's price list is the one that is packaged with it. litellm's
    callbacks, cache, retries and fallbacks, and attrkit's own logging, stay out of it. Several samples of one prompt
    are separate requests.

    Parameters
    ----------
    model : str
        As litellm names it, ``PROVIDER/MODEL``. An embedding model embeds only.
    embedding_model : str, optional
        What embeds beside a model that generates. It is reached with the same ``api_key`` and ``api_base`` only where
        the provider is the same; else by its provider's environment variables.
    limits : Limits, optional
        Requests at a time, time limit, retries, and requests and tokens a minute.
    input_type : str or None, default "passage"
        What NVIDIA's retrieval models are told that texts are; not sent to others.
    keep : collection of str, optional
        Sampling parameters (``temperature``, ``max_tokens``, ``seed``, ``stop``) that are left as the model has them.
        Those that litellm knows a model not to take are left out anyway, and ``notes`` says so.
    **parameters
        What else ``litellm.completion`` takes: ``api_key``, ``api_base``, ``top_p``, ``reasoning_effort``, ... Without
        ``api_key``, litellm looks for the key in the environment (for NVIDIA, in ``NVIDIA_API_KEY`` too).

    Raises
    ------
    ConfigurationError
        A name is empty, or a parameter is one that a sampling or the engine sets.

    Examples
    --------
    >>> engine = LiteLLMEngine("openai/gpt-4o-mini", limits=Limits(requests_per_minute=60))
    >>> engine.spec, sorted(engine.capabilities)
    ('litellm:openai/gpt-4o-mini', [<Capability.GENERATE: 'generate'>])
    """

    def __init__(
        self,
        model: str,
        *,
        embedding_model: str | None = None,
        limits: Limits | None = None,
        input_type: str | None = "passage",
        keep: Collection[str] = (),
        **parameters: Any,
    ) -> None:
        if not model.strip() or (embedding_model is not None and not embedding_model.strip()):
            raise ConfigurationError("the name of a hosted model is empty; write it as PROVIDER/MODEL")
        if isinstance(keep, str) or not set(_SETTINGS).issuperset(keep):
            raise ConfigurationError(f"keep={keep!r} is no collection of {', '.join(_SETTINGS)}; correct it")
        if refused := sorted((_OURS | _OURS_TOO) & set(parameters)):
            raise ConfigurationError(f"{', '.join(refused)} cannot be set for an engine; a Sampling or its limits do")
        if "base_url" in parameters:
            parameters.setdefault("api_base", parameters.pop("base_url"))
        self._model = model
        self._embedding_model = model if _prices.embeds(model) else embedding_model
        self._generates = self._embedding_model != model
        self._limits = limits or Limits()
        self._pace = Pace(self._limits)
        self._input_type = input_type
        self._keep = frozenset(keep)
        self._parameters = parameters

    def __repr__(self) -> str:
        return f"LiteLLMEngine({self.spec!r})"

    @property
    def spec(self) -> str:
        """``litellm:`` and the model's name."""
        return f"litellm:{self._model}"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides an answer and can be told: models, address, parameters; never a key."""
        parts = without_secrets({**self._parameters, "api_base": self._api_base})
        told = {
            "model": self._model,
            "embedding_model": self._embedding_model,
            "input_type": self._input_type if self._embedding_model else None,
            "keep": sorted(self._keep),
            "parameters": parts,
        }
        return "litellm:" + hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()

    @property
    def max_context(self) -> int | None:
        """Tokens of a prompt, as litellm's list states them."""
        return _prices.max_input_tokens(self._model)

    @property
    def concurrency(self) -> int:
        """Requests at a time."""
        return self._limits.concurrency

    @property
    def bounds_answers(self) -> bool:
        """Whether the model is told how many tokens an answer may have; without, no cap in tokens or USD can hold."""
        return "max_tokens" in self._route.takes - self._keep

    @property
    def price(self) -> Price | None:
        """USD per token, as litellm's packaged list states them; unknown where ``api_base`` is not the provider's."""
        price = _prices.token_price(self._model)
        is_paid = price is not None and price.token_in + price.token_out > 0
        return None if is_paid and self._api_base is not None else price

    @property
    def capabilities(self) -> frozenset[Capability]:
        """To generate, unless the model embeds; to embed, if it or ``embedding_model`` does."""
        embeds = {Capability.EMBED} if self._embedding_model is not None else set()
        return frozenset(({Capability.GENERATE} if self._generates else set()) | embeds)

    @property
    def notes(self) -> tuple[str, ...]:
        """What of a sampling the model is not told, and what else is not as a prompt says."""
        route = self._route
        found = [
            f"the model is not told {setting}; its own holds"
            for setting in _SETTINGS
            if self._generates and (setting in self._keep or setting not in route.takes)
        ]
        told = without_secrets({key: one for key, one in self._parameters.items() if not _is_connection(key)})
        found += [f"the model is called with {key}={one!r}" for key, one in sorted(told.items())]
        if route.refuses_empty:
            found.append(f"{route.provider} takes no empty message; one that is, is sent as {_PLACEHOLDER!r}")
        return tuple(found)

    def count_tokens(self, prompt: Prompt) -> int:
        """About how many tokens a prompt is, by OpenAI's tokenizer, whichever the model's is."""
        count = load_litellm().token_counter
        # An empty name, since with some a tokenizer would be fetched from the hub.
        tokens = int(count(model="", messages=prompt.to_chat()))
        return tokens + (int(count(model="", text=json.dumps(prompt.tools, default=str))) if prompt.tools else 0)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        """One answer per prompt, a request each.

        A tool call is told as :attr:`attr_core.Generation.written` tells it. A sampling's schema is sent where litellm
        knows that the model keeps to one.

        Raises
        ------
        MissingCapabilityError
            The model only embeds.
        ModelNotFoundError
            The provider does not serve it.
        ContextTooLongError
            A prompt does not fit the model's window.
        EngineError
            Some prompts were not answered, whatever else the reason. ``completed`` has the answers to the others.
        ConfigurationError
            The provider's key is not set; names the environment variable.
        """
        require(self, {Capability.GENERATE}, by="generating")
        check_sampling(sampling)
        counts = self._limits.tokens_per_minute is not None
        sizes = [self.count_tokens(prompt) + sampling.max_tokens for prompt in prompts] if counts else []
        outcomes = self._send([self._job(prompt, sampling) for prompt in prompts], sizes)
        return all_or_error(outcomes, failed=self._failure)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Vectors of texts, ``(n_texts, dim)``, 32 to a request; an empty text is sent as a placeholder.

        Raises
        ------
        MissingCapabilityError
            Neither the model nor ``embedding_model`` embeds.
        EngineError
            It failed, or gave no vectors.
        ConfigurationError
            The provider's key is not set; names the environment variable.
        """
        require(self, {Capability.EMBED}, by="embedding")
        name = str(self._embedding_model)
        remedy = "name an embedding model"
        return vectors(texts, self._embedded, by=f"litellm:{name}", remedy=remedy, failed=self._failure)

    @cached_property
    def _route(self) -> _Route:
        litellm = load_litellm()
        with undisturbed(litellm):
            return _route_of(litellm, self._model, self._parameters)

    @property
    def _api_base(self) -> str | None:
        """The endpoint, where it is not the provider's own."""
        provider = _prices.provider_of(self._model).upper()
        names = (f"{provider}_API_BASE", f"{provider}_BASE_URL")
        return self._parameters.get("api_base") or next(filter(None, map(os.environ.get, names)), None)

    def _options(self, model: str) -> dict[str, Any]:
        """What is sent beside the messages or texts; another provider is never given this one's key and address."""
        options = dict(self._parameters)
        if model != self._model:
            is_same = _prices.provider_of(model) == _prices.provider_of(self._model)
            options = {key: one for key, one in options.items() if is_same and _is_connection(key)}
        elif not self._generates:
            options = {key: one for key, one in options.items() if _is_connection(key) or key == "dimensions"}
        if model.startswith("nvidia_nim/") and "NVIDIA_NIM_API_KEY" not in os.environ:
            options.setdefault("api_key", os.environ.get("NVIDIA_API_KEY"))
        return {"model": model, "timeout": self._limits.timeout, **options}

    def _job(self, prompt: Prompt, sampling: Sampling) -> Callable[[], Completion]:
        taken = self._route.takes - self._keep
        settings = {
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "seed": sampling.seed,
            "stop": list(sampling.stop) or None,
        }
        told: dict[str, Any] = {name: one for name, one in settings.items() if name in taken and one is not None}
        if prompt.tools:
            told["tools"] = [dict(tool) for tool in prompt.tools]
        if sampling.schema is not None and self._route.takes_schemas and "response_format" not in self._parameters:
            told["response_format"] = schema_format(sampling.schema)

        def job() -> Completion:
            messages = self._chat(prompt)  # anew for each attempt: litellm may change them
            answer = self._ask("completion", self._model, messages=messages, **told)
            return cut(_completion(answer), sampling.stop)

        return job

    def _embedded(self, texts: list[str]) -> list[list[float]]:
        name = str(self._embedding_model)
        extra = {"input_type": self._input_type} if name.startswith("nvidia_nim/") and self._input_type else {}
        full = [text if text.strip() else _PLACEHOLDER for text in texts]
        slices = [full[start : start + _TEXTS_AT_ONCE] for start in range(0, len(full), _TEXTS_AT_ONCE)]

        def job(some: list[str]) -> Callable[[], list[list[float]]]:
            return lambda: _rows(self._ask("embedding", name, input=some, **extra), len(some))

        rows: list[list[float]] = []
        for outcome in self._send([job(some) for some in slices], [sum(map(len, some)) // 4 for some in slices]):
            if isinstance(outcome, Exception):
                raise outcome
            rows += outcome
        return rows

    def _ask(self, call: str, model: str, **arguments: Any) -> Any:
        litellm, options = load_litellm(), self._options(model)
        try:
            return ask(litellm, call, **options, **arguments)
        except Exception as error:
            failed = failed_request(error, model=model, options=options)
            failed = explained(failed, error, model, options)
        raise failed  # out here, so that what litellm raised, which may quote the key, does not come along

    def _send(self, jobs: Sequence[Callable[[], Any]], tokens: Sequence[int]) -> list[Any]:
        litellm = load_litellm()
        check_fallbacks(litellm)
        with undisturbed(litellm):
            return send_all(jobs, limits=self._limits, pace=self._pace, judge=_judged, tokens=tokens)

    def _chat(self, prompt: Prompt) -> list[dict[str, Any]]:
        chat = prompt.to_chat()
        for message in chat if self._route.refuses_empty else ():
            if not message["content"].strip():
                message["content"] = None if message.get("tool_calls") else _PLACEHOLDER
        return chat

    def _failure(self, error: Exception, what: str, completed: Mapping[int, Completion]) -> EngineError:
        if not isinstance(error, RequestFailed):
            return EngineError(f"{self.spec} failed {what}, first with {type(error).__name__}", completed=completed)
        if not issubclass(error.kind, EngineError):
            raise error.kind(f"{error}; {error.remedy}")
        return error.kind(f"{self.spec} failed {what}, first with {error}; {error.remedy}", completed=completed)


def _route_of(litellm: Any, model: str, parameters: Mapping[str, Any]) -> _Route:
    named = {name: parameters.get(name) for name in ("custom_llm_provider", "api_base")}
    try:
        name, provider, _, _ = litellm.get_llm_provider(model, **named)
    except Exception:  # an unknown provider: the first request says so
        return _Route("", frozenset(_SETTINGS))
    taken = litellm.get_supported_openai_params(model=name, custom_llm_provider=provider)
    takes = set(_SETTINGS if taken is None else taken)
    try:
        litellm.utils.get_optional_params(model=name, custom_llm_provider=provider, temperature=0.0)
    except Exception:  # reasoning models are listed as taking a temperature, but only take 1
        takes.discard("temperature")
    return _Route(provider, frozenset(takes), bool(litellm.supports_response_schema(name, provider)))


def _is_connection(name: str) -> bool:
    return name in _CONNECTION or name.startswith(_CONNECTION_OF)


def _judged(error: Exception) -> Failure:
    return error.failure if isinstance(error, RequestFailed) else Failure(passing=False)


def _completion(answer: Any) -> Completion:
    try:
        read = read_answer(answer)
    except InputError as error:
        raise _malformed(str(error)) from None
    return completion_of(
        Generation(
            (),
            read.response or "",
            tool_calls=read.tool_calls,
            finish_reason=read.finish_reason,
            usage=read.usage,
        )
    )


def _rows(answer: Any, n_texts: int) -> list[list[float]]:
    try:
        items = sorted(answer.data, key=lambda item: item["index"])
        rows = [[float(number) for number in item["embedding"]] for item in items]
    except (TypeError, KeyError, ValueError, AttributeError):
        rows = []
    if len(rows) != n_texts:
        raise _malformed(f"{len(rows)} vectors for {n_texts} texts")
    return rows


def _malformed(what: str) -> RequestFailed:
    return RequestFailed(
        f"a malformed answer: {what}", failure=Failure(passing=True), remedy="the endpoint is at fault"
    )
