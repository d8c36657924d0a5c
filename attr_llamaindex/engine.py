"""A LlamaIndex model as an engine."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import LLM

from attr_core.capabilities import require
from attr_core.engines.batches import all_or_error, check_sampling, completion_of, cut, failure, vectors
from attr_core.errors import ConfigurationError, ContextTooLongError, EngineError
from attr_core.protocols import Capability, Completion, Sampling
from attr_core.results import FloatArray
from attr_core.types import Generation, Prompt
from attr_llamaindex.convert import from_messages, to_answer
from attr_llamaindex.models import (
    SETTINGS,
    described,
    given_tools,
    name_of_model,
    places,
    silent,
    unseen,
    with_sampling,
)

__all__ = ["LlamaIndexEngine"]

_TOO_LONG = re.compile(r"context.?(length|window|size)|maximum.{0,20}tokens|too (long|many tokens)", re.IGNORECASE)


class LlamaIndexEngine:
    """Generates with the application's own model; none of its calls is recorded as a run of the application.

    The model is copied without its callbacks, never changed. Its own retries and time limits hold.

    Parameters
    ----------
    llm : LLM
        Any of LlamaIndex's models. One that completes text only is given a single user turn as it stands, several
        messages as its own ``messages_to_prompt`` joins them.
    embed_model : BaseEmbedding, optional
        What embeds; without, the engine does not offer it.
    max_concurrency : int, default 1
        Calls at a time in one batch; raise it for a model behind an API.
    keep : collection of str, optional
        Sampling parameters (``temperature``, ``max_tokens``, ``seed``, ``stop``) that are left as the model has them:
        for models that refuse others. ``notes`` says what a model takes.

    Raises
    ------
    ConfigurationError
        What is given is no model, embeds nothing, or is no sensible number.

    Examples
    --------
    >>> from llama_index.core.llms import MockLLM
    >>> from attr_core.types import Message, Prompt
    >>> engine = LlamaIndexEngine(MockLLM(max_tokens=2), keep=["max_tokens"])
    >>> engine.generate([Prompt((Message("user", "When did the fair open?"),))])[0].text
    'text text'
    """

    def __init__(
        self,
        llm: LLM,
        embed_model: BaseEmbedding | None = None,
        *,
        max_concurrency: int = 1,
        keep: Collection[str] = (),
    ) -> None:
        if not isinstance(llm, LLM):
            raise ConfigurationError(f"{type(llm).__name__} is no LLM of LlamaIndex; pass one, such as Settings.llm")
        if embed_model is not None and not isinstance(embed_model, BaseEmbedding):
            raise ConfigurationError(f"{type(embed_model).__name__} embeds nothing; pass a BaseEmbedding")
        if max_concurrency < 1:
            raise ConfigurationError(f"{max_concurrency=} must be positive; correct it")
        if isinstance(keep, str) or not set(SETTINGS).issuperset(keep):
            raise ConfigurationError(f"keep={keep!r} is no collection of {', '.join(sorted(SETTINGS))}; correct it")
        self._llm: Any = unseen(lambda: silent(llm))
        self._embed_model: Any = None if embed_model is None else unseen(lambda: silent(embed_model))
        self._limit = max_concurrency
        self._keep = frozenset(keep)

    def __repr__(self) -> str:
        return f"LlamaIndexEngine({self.spec!r})"

    @cached_property
    def spec(self) -> str:
        """``llamaindex:``, the model's class, and its name where it has one."""
        return ":".join(filter(None, ("llamaindex", self._llm.class_name(), unseen(lambda: name_of_model(self._llm)))))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides an answer, save what every call sets; without secrets.

        A model without a name cannot be told from another: then it holds for this object only.
        """
        parts = {
            "llm": described(self._llm, without=places(self._llm, self._keep).values()),
            "name": unseen(lambda: name_of_model(self._llm)),
            "set": sorted(places(self._llm, self._keep)),
            "embed_model": described(self._embed_model),
        }
        if parts["name"] is None:
            parts["object"] = uuid.uuid4().hex
        return "llamaindex:" + hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    @cached_property
    def max_context(self) -> int | None:
        """Tokens of prompt and answer, as the model's metadata states them."""
        window = unseen(lambda: self._llm.metadata.context_window)
        return int(window) if isinstance(window, int) and window > 0 else None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """To generate; to embed only with an embedding model."""
        return frozenset({Capability.GENERATE} | (set() if self._embed_model is None else {Capability.EMBED}))

    @property
    def bounds_answers(self) -> bool:
        """Whether the model is told how many tokens an answer may have."""
        return "max_tokens" in places(self._llm, self._keep)

    @property
    def notes(self) -> tuple[str, ...]:
        """What of a sampling the model has no place for, so that its own holds."""
        taken = places(self._llm, self._keep)
        name = self._llm.class_name()
        missing = [setting for setting in ("temperature", "max_tokens", "seed") if setting not in taken]
        return tuple(f"{name} is not told {setting}; the model's own holds" for setting in missing)

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
        if not prompts:
            return []
        llm = unseen(lambda: with_sampling(self._llm, sampling, self._keep))
        with ThreadPoolExecutor(min(self._limit, len(prompts))) as executor:
            outcomes = list(executor.map(lambda prompt: self._ask(llm, prompt, sampling), prompts))
        return all_or_error(outcomes, failed=self._failure)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Vectors of texts, ``(n_texts, dim)``.

        Raises
        ------
        MissingCapabilityError
            The engine was given no embedding model.
        EngineError
            The embedding model failed, or gave something else.
        """
        require(self, {Capability.EMBED}, by="embedding")
        return vectors(
            texts,
            lambda batch: unseen(lambda: self._embed_model.get_text_embedding_batch(batch)),
            by=type(self._embed_model).__name__,
            remedy="it is at fault",
            failed=self._failure,
        )

    def _ask(self, llm: Any, prompt: Prompt, sampling: Sampling) -> Completion | Exception:
        try:
            found = to_answer(unseen(lambda: _answer(llm, prompt)))
        except Exception as error:
            return error
        return cut(completion_of(Generation((), **found)), sampling.stop)

    def _failure(self, error: Exception, what: str, completed: Mapping[int, Completion]) -> EngineError:
        return failure(
            error,
            f"{self.spec} failed {what}",
            remedy="see LlamaIndexEngine's keep and max_concurrency, or try another model",
            kind=ContextTooLongError if _TOO_LONG.search(str(error)) else EngineError,
            completed=completed,
        )


def _answer(llm: Any, prompt: Prompt) -> Any:
    messages: list[ChatMessage] = from_messages(prompt.messages)
    if not llm.metadata.is_chat_model:
        is_text = len(prompt.messages) == 1 and prompt.messages[0].role == "user"
        text = prompt.messages[0].content if is_text else llm.messages_to_prompt(messages)
        return llm.complete(text, formatted=True)
    tools = given_tools(llm, prompt.tools)
    return llm.chat_with_tools(tools, chat_history=messages) if tools else llm.chat(messages)
