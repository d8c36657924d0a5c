"""A LangChain chat model as an engine."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from langchain_core.embeddings import Embeddings

from attr_core.capabilities import require
from attr_core.engines.batches import all_or_error, check_sampling, cut, failure, vectors
from attr_core.errors import ConfigurationError, ContextTooLongError, EngineError, ModelNotFoundError
from attr_core.protocols import Capability, Completion, Sampling
from attr_core.results import FloatArray
from attr_core.types import Message, Prompt
from attr_langchain._calls import ask
from attr_langchain._models import described, open_model
from attr_langchain._quiet import unseen
from attr_langchain.convert import from_prompt, to_completion

__all__ = ["LangChainEngine"]

_SETTINGS = frozenset({"max_tokens", "temperature", "seed", "stop"})
_REFUSES_EMPTY = frozenset({"anthropic", "google_genai", "google_vertexai"})  # by an error, or by dropping the message
_PLACEHOLDER = "(empty)"
_KINDS: dict[str, type[EngineError]] = {
    "ContextOverflowError": ContextTooLongError,
    "ModelNotFoundError": ModelNotFoundError,
}


class LangChainEngine:
    """Generates with the application's own chat model; nobody who listens to the application hears it.

    The model is copied without its handlers and cache, never changed, and called where no inherited handler, tracer or
    instrumentation sees it. Its own retries, rate limiter and time limits hold.

    Parameters
    ----------
    chat_model : BaseChatModel or Runnable
        A chat model, also with ``bind``, ``bind_tools``, ``with_retry``, ``with_config`` or configurable fields around
        it. Tools of a prompt replace those that are bound.
    embeddings : Embeddings, optional
        What embeds; without, the engine does not offer it.
    max_concurrency : int, default 8
        Calls at a time in one batch.
    timeout : float, optional
        Seconds that one call, its retries included, may take.
    keep : collection of str, optional
        Sampling parameters (``temperature``, ``max_tokens``, ``seed``, ``stop``) that are left as the model has them:
        for models that refuse others. ``notes`` says what a model takes.

    Raises
    ------
    ConfigurationError
        What is given is no chat model, no embeddings, or no sensible number.

    Examples
    --------
    >>> from langchain_core.language_models import FakeListChatModel
    >>> from attr_core.types import Message, Prompt
    >>> engine = LangChainEngine(FakeListChatModel(responses=["In 1911."]))
    >>> engine.generate([Prompt((Message("user", "When did the fair open?"),))])[0].text
    'In 1911.'
    """

    def __init__(
        self,
        chat_model: Any,
        embeddings: Any = None,
        *,
        max_concurrency: int = 8,
        timeout: float | None = None,
        keep: Collection[str] = (),
    ) -> None:
        if max_concurrency < 1 or (timeout is not None and timeout <= 0):
            raise ConfigurationError(f"{max_concurrency=} and {timeout=} must be positive; correct them")
        if isinstance(keep, str) or not _SETTINGS.issuperset(keep):
            raise ConfigurationError(f"keep={keep!r} is no collection of {', '.join(sorted(_SETTINGS))}; correct it")
        if embeddings is not None and not isinstance(embeddings, Embeddings):
            raise ConfigurationError(f"{type(embeddings).__name__} embeds nothing; pass LangChain's Embeddings")
        self._chat = unseen(partial(open_model, chat_model, keep=keep))
        self._embeddings: Any = embeddings
        self._limit = max_concurrency
        self._timeout = timeout
        self._object = uuid.uuid4().hex

    def __repr__(self) -> str:
        return f"LangChainEngine({self.spec!r})"

    @cached_property
    def spec(self) -> str:
        """``langchain:``, the provider or the model's class, and the model's name where it has one."""
        return ":".join(filter(None, ("langchain", self._chat.provider, self._chat.name)))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides an answer: class, model, address, parameters that no call sets, and what is bound.

        A model without a name cannot be told from another: then it holds for this object only.
        """
        held = getattr(self._embeddings, "__dict__", {})
        parts = {
            **self._chat.identity(),
            "embeddings": [described(self._embeddings), described({k: v for k, v in held.items() if _is_scalar(v)})],
            "object": self._object if self._chat.name is None else None,
        }
        return "langchain:" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    @property
    def max_context(self) -> int | None:
        """Tokens of a prompt, as the model's profile states them."""
        return self._chat.max_input_tokens

    @property
    def capabilities(self) -> frozenset[Capability]:
        """To generate; to embed only with embeddings."""
        return frozenset({Capability.GENERATE} | (set() if self._embeddings is None else {Capability.EMBED}))

    @property
    def bounds_answers(self) -> bool:
        """Whether the model is told how many tokens an answer may have."""
        return "max_tokens" in self._chat.places and "max_tokens" not in self._chat.keep

    @property
    def notes(self) -> tuple[str, ...]:
        """What of a sampling the model does not take, and what else is not as a prompt says."""
        taken = {*self._chat.places, "stop"}
        found = [
            f"the model is not told {setting}; its own holds"
            for setting in ("temperature", "max_tokens", "seed", "stop")
            if setting not in taken or setting in self._chat.keep
        ]
        if self._refuses_empty:
            found.append(f"{self._chat.provider} takes no empty message; one that is, is sent as {_PLACEHOLDER!r}")
        return tuple(found)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        """One answer per prompt, up to ``max_concurrency`` at a time.

        A tool call is told as :attr:`attr_core.Generation.written` tells it.

        Raises
        ------
        EngineError
            Some prompts were not answered; names the model, how many, and the first reason. ``completed`` has the
            answers to the others.
        """
        check_sampling(sampling)
        outcomes: dict[int, Completion | Exception] = {}
        alike: dict[str, list[int]] = defaultdict(list)
        for n, prompt in enumerate(prompts):
            alike[json.dumps([dict(tool) for tool in prompt.tools], default=str)].append(n)
        for members in alike.values():
            outcomes |= dict(zip(members, self._ask([prompts[n] for n in members], sampling), strict=True))
        return all_or_error([outcomes[n] for n in range(len(prompts))], failed=self._failure)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Vectors of texts, ``(n_texts, dim)``.

        Raises
        ------
        MissingCapabilityError
            The engine was given no embeddings.
        EngineError
            The embeddings failed, or gave something else.
        """
        require(self, {Capability.EMBED}, by="embedding")
        return vectors(
            texts,
            lambda batch: unseen(lambda: self._embeddings.embed_documents(batch)),
            by=type(self._embeddings).__name__,
            remedy="it is at fault",
            failed=self._failure,
        )

    @property
    def _refuses_empty(self) -> bool:
        return self._chat.provider in _REFUSES_EMPTY

    def _ask(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion | Exception]:
        """Prompts that have the same tools."""
        _, tools = from_prompt(prompts[0])
        answers = ask(
            lambda: self._chat.runnable(sampling, tools),
            [from_prompt(self._full(prompt))[0] for prompt in prompts],
            limit=self._limit,
            timeout=self._timeout,
            one_by_one=bool(self._chat.retries),  # RunnableRetry.batch may give one prompt the answer to another
            options={"stop": list(sampling.stop)} if sampling.stop and "stop" not in self._chat.keep else {},
        )
        return [self._completion(answer, sampling) for answer in answers]

    def _full(self, prompt: Prompt) -> Prompt:
        if not self._refuses_empty:
            return prompt
        return Prompt(tuple(_filled(message) for message in prompt.messages), prompt.tools)

    def _completion(self, answer: Any, sampling: Sampling) -> Completion | Exception:
        if isinstance(answer, Exception):
            return answer
        completion = to_completion(answer)
        if completion is None:
            return TypeError(f"{type(answer).__name__} is no message")
        return cut(completion, sampling.stop)

    def _failure(self, error: Exception, what: str, completed: Mapping[int, Completion]) -> EngineError:
        names = {kind.__name__ for kind in type(error).__mro__}
        return failure(
            error,
            f"{self.spec} failed {what}",
            remedy="where it refuses a sampling parameter, name that in keep",
            kind=next((kind for name, kind in _KINDS.items() if name in names), EngineError),
            completed=completed,
        )


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _filled(message: Message) -> Message:
    if message.content.strip() or message.role == "assistant":
        return message
    return Message(message.role, _PLACEHOLDER, message.name, message.tool_calls, message.tool_call_id)
