"""Haystack's chat generators and embedders as an engine."""

from __future__ import annotations

import contextvars
import copy
import hashlib
import inspect
import json
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from haystack.core.serialization import component_to_dict
from haystack.dataclasses import Document
from haystack.utils import Secret

from attr_core._plain import plain
from attr_core.capabilities import require
from attr_core.capture import paused
from attr_core.engines.batches import all_or_error, check_sampling, completion_of, cut, failure, vectors
from attr_core.errors import ConfigurationError, EngineError
from attr_core.protocols import Capability, Completion, Sampling
from attr_core.results import FloatArray
from attr_core.types import Generation, Prompt
from attr_haystack.convert import from_prompt, to_answer

__all__ = ["HaystackEngine"]

_SETTINGS = ("max_tokens", "temperature", "seed", "stop")
_NAMES: Mapping[str, Mapping[str, str | None]] = {
    "OpenAIResponsesChatGenerator": {"max_tokens": "max_output_tokens", "seed": None, "stop": None},
    "AzureOpenAIResponsesChatGenerator": {"max_tokens": "max_output_tokens", "seed": None, "stop": None},
    "HuggingFaceLocalChatGenerator": {"max_tokens": "max_new_tokens", "seed": None, "stop": "stop_strings"},
    "OllamaChatGenerator": {"max_tokens": "num_predict"},
    "AnthropicChatGenerator": {"seed": None, "stop": "stop_sequences"},
    "CohereChatGenerator": {"stop": "stop_sequences"},
    "GoogleGenAIChatGenerator": {"max_tokens": "max_output_tokens", "stop": "stop_sequences"},
}
"""Class -> how it calls what others call as OpenAI does; ``None`` where it has no such parameter."""

_SAME_ANSWER = frozenset({"streaming_callback", "timeout", "max_retries", "http_client_kwargs", "tools_strict"})
"""Parameters that decide no answer."""


class HaystackEngine:
    """Generates with the application's own chat generator; neither its callbacks nor a tracer of attrkit's hears it.

    The generator's own retries and time limits hold, and what it was given for ``generation_kwargs``, other than the
    sampling. It must stand being called from several threads, as Haystack's own components call it, where
    ``max_concurrency`` is more than one.

    Parameters
    ----------
    generator : chat generator
        What answers messages with ``replies``: ``pipeline.get_component("llm")``.
    embedder : text or document embedder, optional
        What embeds; without, the engine does not offer it.
    max_concurrency : int, default 4
        Calls at a time in one batch.
    names : mapping, optional
        Sampling parameter (``max_tokens``, ``temperature``, ``seed``, ``stop``) -> what the generator calls it among
        its ``generation_kwargs``; ``None`` where it has no such parameter. By default as OpenAI calls them, or as the
        generator's class is known to.

    Raises
    ------
    ConfigurationError
        What is given is no chat generator, no embedder, or no sensible number or name.

    Examples
    --------
    >>> from haystack.components.generators.chat import MockChatGenerator
    >>> from attr_core.types import Message, Prompt
    >>> engine = HaystackEngine(MockChatGenerator("In 1911."))
    >>> engine.generate([Prompt((Message("user", "When did the fair open?"),))])[0].text
    'In 1911.'
    """

    def __init__(
        self,
        generator: Any,
        embedder: Any = None,
        *,
        max_concurrency: int = 4,
        names: Mapping[str, str | None] | None = None,
    ) -> None:
        if max_concurrency < 1:
            raise ConfigurationError(f"max_concurrency={max_concurrency} is not positive; give at least 1")
        if unknown := sorted(set(names or {}) - set(_SETTINGS)):
            raise ConfigurationError(f"names has {unknown}, which are none of {', '.join(_SETTINGS)}; correct it")
        _check(generator, {"messages"}, {"replies"}, "answers messages with replies; pass a chat generator")
        if embedder is not None:
            _check(embedder, {"text", "documents"}, {"embedding", "documents"}, "embeds; pass an embedder")
        self._generator, self._embedder = generator, embedder
        self._limit = max_concurrency
        known = _NAMES.get(type(generator).__name__, {})
        self._names = {name: name for name in _SETTINGS} | dict(known) | dict(names or {})
        self._takes = _parameters(generator)
        self._warm: set[int] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"HaystackEngine({self.spec!r})"

    @cached_property
    def spec(self) -> str:
        """``haystack:``, the generator's class, and the model's name where it has one."""
        return ":".join(filter(None, ("haystack", type(self._generator).__name__, _model_of(self._generator))))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides an answer, as the generator and the embedder write themselves to YAML.

        One that cannot be written, or that names no model, cannot be told from another: then it holds for this object
        only.
        """
        parts = [_identity(part) for part in (self._generator, self._embedder) if part is not None]
        parts.append({key: value for key, value in self._names.items() if value is None})
        return "haystack:" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def max_context(self) -> int | None:
        """``None``: generators do not tell."""
        return None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """To generate; to embed only with an embedder."""
        return frozenset({Capability.GENERATE} | (set() if self._embedder is None else {Capability.EMBED}))

    @property
    def bounds_answers(self) -> bool:
        """Whether the generator is told how many tokens an answer may have."""
        return "max_tokens" not in self._untold

    @property
    def notes(self) -> tuple[str, ...]:
        """What of a sampling the generator is not told."""
        return tuple(f"the generator is not told {name}; its own holds" for name in self._untold)

    @property
    def _untold(self) -> list[str]:
        return [name for name in _SETTINGS if self._names[name] is None or "generation_kwargs" not in self._takes]

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        """One answer per prompt, up to ``max_concurrency`` at a time.

        A tool call is told as :attr:`attr_core.Generation.written` tells it.

        Raises
        ------
        EngineError
            Some prompts were not answered; names the generator, how many, and the first reason. ``completed`` has the
            answers to the others.
        """
        check_sampling(sampling)
        self._warm_up(self._generator)
        outcomes = self._each(lambda n: self._answer(prompts[n], sampling), range(len(prompts)))
        return all_or_error(outcomes, failed=self._failure)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Vectors of texts, ``(n_texts, dim)``.

        Raises
        ------
        MissingCapabilityError
            The engine was given no embedder.
        EngineError
            The embedder failed, or gave something else.
        """
        require(self, {Capability.EMBED}, by="embedding")
        if texts:
            self._warm_up(self._embedder)
        return vectors(
            texts,
            self._vectors,
            by=type(self._embedder).__name__,
            remedy="use another embedder",
            failed=self._failure,
        )

    def _vectors(self, texts: Sequence[str]) -> list[Any]:
        if "text" in _parameters(self._embedder):
            rows = self._each(lambda n: self._embedder.run(text=texts[n])["embedding"], range(len(texts)))
            for row in rows:
                if isinstance(row, Exception):
                    raise row
            return rows
        with paused():
            given = [Document(id=str(n), content=text) for n, text in enumerate(texts)]
            return [document.embedding for document in self._embedder.run(documents=given)["documents"]]

    def _answer(self, prompt: Prompt, sampling: Sampling) -> Completion:
        messages, tools = from_prompt(prompt)
        asked: dict[str, Any] = {"messages": messages}
        if "generation_kwargs" in self._takes:
            told: dict[str, Any] = {
                "max_tokens": sampling.max_tokens,
                "temperature": sampling.temperature,
                "seed": sampling.seed,
            }
            if sampling.stop:
                told["stop"] = list(sampling.stop)
            names = {key: self._names[key] for key in told}
            asked["generation_kwargs"] = {name: told[key] for key, name in names.items() if name is not None}
        if tools and "tools" in self._takes:
            asked["tools"] = tools
        if "streaming_callback" in self._takes and getattr(self._generator, "streaming_callback", None) is not None:
            asked["streaming_callback"] = _unheard
        replies = self._generator.run(**asked)["replies"]
        if not replies:
            raise ValueError("it gave no reply")
        return cut(completion_of(Generation((), **to_answer(replies))), sampling.stop)

    def _each(self, call: Callable[[int], Any], members: Sequence[int]) -> list[Any]:
        """The outcome of each, in order, with nothing of it recorded; an exception is an outcome."""

        def outcome(n: int) -> Any:
            try:
                with paused():
                    return call(n)
            except Exception as error:
                return error

        if len(members) < 2 or self._limit == 1:
            return [outcome(n) for n in members]
        contexts = [contextvars.copy_context() for _ in members]
        with ThreadPoolExecutor(min(self._limit, len(members))) as executor:
            return list(executor.map(lambda context, n: context.run(outcome, n), contexts, members))

    def _warm_up(self, part: Any) -> None:
        with self._lock:
            if id(part) in self._warm:
                return
            if callable(warm_up := getattr(part, "warm_up", None)):
                try:
                    warm_up()
                except Exception as error:
                    raise self._failure(error, "to warm up", {}) from error
            self._warm.add(id(part))

    def _failure(self, error: Exception, what: str, completed: Mapping[int, Completion]) -> EngineError:
        return failure(
            error,
            f"{self.spec} failed {what}",
            remedy="where it refuses a sampling parameter, give names={parameter: None}",
            completed=completed,
        )


def _unheard(chunk: Any) -> None:
    """In place of the application's own callback, which must not hear what is only measured."""


def _check(part: Any, takes: Collection[str], gives: Collection[str], what: str) -> None:
    outputs = getattr(part, "__haystack_output__", None)
    given = set(gives) if outputs is None else set(getattr(outputs, "_sockets_dict", None) or gives)
    if not callable(getattr(part, "run", None)) or not set(takes) & _parameters(part) or not set(gives) & given:
        raise ConfigurationError(f"{type(part).__name__} is nothing that {what}")


def _parameters(part: Any) -> set[str]:
    run = getattr(part, "run", None)
    return set(inspect.signature(run).parameters) if callable(run) else set()


def _model_of(part: Any) -> str | None:
    names = (getattr(part, key, None) for key in ("model", "azure_deployment", "model_name"))
    return next((name for name in names if isinstance(name, str) and name), None)


def _identity(part: Any) -> Any:
    """What a component writes of itself, without its secrets."""
    shown = copy.copy(part)
    for name, value in vars(part).items():
        if isinstance(value, Secret):  # one that holds a token refuses to be written
            vars(shown)[name] = Secret.from_env_var("HIDDEN", strict=False)
    try:
        written = component_to_dict(shown, "part")
    except Exception:
        written = None
    if written is None or _model_of(part) is None:
        return {"type": f"{type(part).__module__}.{type(part).__qualname__}", "object": uuid.uuid4().hex}
    parameters = {key: plain(value) for key, value in written["init_parameters"].items() if key not in _SAME_ANSWER}
    return {"type": written["type"], "parameters": parameters}
