"""An engine seen through the cache and the caps: nothing is measured twice, nothing is spent unseen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from attr_core.cache import Cache, cache_key
from attr_core.capabilities import offered, require
from attr_core.errors import BudgetExceededError, EngineError
from attr_core.prompt import count_tokens
from attr_core.protocols import Capability, Completion, Engine, Progress, Rendering, Renders, Sampling, TokenScores
from attr_core.results import Budget, Cost
from attr_core.types import Prompt

__all__ = ["MeteredEngine"]

SLICE = 16
"""Prompts sent at a time: each slice is kept once measured, so that an interruption loses at most one."""

TOLERANCE = 1e-6
"""By how much a log-probability may exceed 0, as rounding does."""

Measured = TypeVar("Measured", TokenScores, Completion)


class MeteredEngine:
    """Offers what ``engine`` offers; looks every measurement up first, counts the rest and holds the caps.

    Parameters
    ----------
    engine : Engine
    cache : Cache, optional
        What was measured before; by default one that lasts as long as this object.
    budget : Budget, optional
        Hard caps. A slice of prompts that could pass one is not sent.
    progress : callable, optional
        Called with (calls made, calls planned) after each slice.
    planned : int, optional
        What ``progress`` is told as the number of calls planned.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        cache: Cache | None = None,
        budget: Budget = Budget(),
        progress: Progress | None = None,
        planned: int = 0,
    ) -> None:
        self.engine = engine
        self.cost = Cost()
        self._cache = cache if cache is not None else Cache(":memory:")
        self._budget = budget
        self._progress = progress
        self._planned = planned
        self._seen: set[str] = set()
        if isinstance(engine, Renders):
            self.render: Callable[[Prompt], Rendering] = engine.render

    @property
    def spec(self) -> str:
        """The engine's."""
        return self.engine.spec

    @property
    def fingerprint(self) -> str:
        """The engine's."""
        return self.engine.fingerprint

    @property
    def max_context(self) -> int | None:
        """The engine's."""
        return self.engine.max_context

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The engine's, as far as they can be metered."""
        return offered(self.engine) & {Capability.SCORE, Capability.GENERATE}

    def score(self, prompts: Sequence[Prompt], continuation: str, *, repeat: int = 0) -> list[TokenScores]:
        """As :class:`~attr_core.protocols.Scores`; ``repeat`` numbers further measurements of the same prompt."""
        require(self.engine, {Capability.SCORE}, by="scoring")
        keys = [cache_key("score", self.fingerprint, p, continuation=continuation, repeat=repeat) for p in prompts]
        engine: Any = self.engine
        return self._measure(
            prompts,
            keys,
            look_up=self._cache.get_scores,
            keep=self._cache.put_scores,
            send=lambda batch: engine.score(batch, continuation),
            tokens=lambda score: (score.tokens_in, 0),
            reserve=lambda prompt: count_tokens(engine, prompt) + len(continuation.encode()),
        )

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling = Sampling(), *, repeat: int = 0
    ) -> list[Completion]:
        """As :class:`~attr_core.protocols.Generates`; ``repeat`` numbers further samples of the same prompt."""
        require(self.engine, {Capability.GENERATE}, by="generating")
        keys = [cache_key("generate", self.fingerprint, p, sampling=sampling, repeat=repeat) for p in prompts]
        engine: Any = self.engine
        return self._measure(
            prompts,
            keys,
            look_up=self._cache.get_completions,
            keep=self._cache.put_completions,
            send=lambda batch: engine.generate(batch, sampling),
            tokens=lambda completion: (completion.tokens_in or 0, completion.tokens_out or 0),
            reserve=lambda prompt: count_tokens(engine, prompt) + sampling.max_tokens,
        )

    def _measure(
        self,
        prompts: Sequence[Prompt],
        keys: Sequence[str],
        *,
        look_up: Callable[[Sequence[str]], dict[str, Measured]],
        keep: Callable[[dict[str, Measured]], None],
        send: Callable[[list[Prompt]], list[Measured]],
        tokens: Callable[[Measured], tuple[int, int]],
        reserve: Callable[[Prompt], int],
    ) -> list[Measured]:
        known = look_up(list(dict.fromkeys(keys)))
        new_hits = {key for key in known if key not in self._seen}
        self._seen.update(keys)
        self.cost = replace(self.cost, cache_hits=self.cost.cache_hits + len(new_hits))
        unknown = {key: prompt for key, prompt in zip(keys, prompts, strict=True) if key not in known}
        # Prompts of like length share a slice, so that engines that pad a batch waste little.
        order = sorted(unknown, key=lambda key: _length(unknown[key]))
        for first in range(0, len(order), SLICE):
            batch = order[first : first + SLICE]
            self._check([unknown[key] for key in batch], reserve)
            started = time.perf_counter()
            answers = send([unknown[key] for key in batch])
            self._refuse_nonsense(answers, len(batch))
            measured = dict(zip(batch, answers, strict=True))
            self._count(list(measured.values()), tokens, time.perf_counter() - started)
            keep(measured)
            known.update(measured)
        return [known[key] for key in keys]

    def _check(self, batch: list[Prompt], reserve: Callable[[Prompt], int]) -> None:
        if self._budget.calls is not None and self.cost.calls + len(batch) > self._budget.calls:
            raise BudgetExceededError(
                f"{len(batch)} more calls after {self.cost.calls} would pass the budget of {self._budget.calls} calls;"
                " raise it: what was measured is kept"
            )
        if self._budget.tokens is not None:
            spent = self.cost.tokens_in + self.cost.tokens_out
            most = sum(reserve(prompt) for prompt in batch)
            if spent + most > self._budget.tokens:
                raise BudgetExceededError(
                    f"up to {most} more tokens after {spent} could pass the budget of {self._budget.tokens} tokens;"
                    " raise it: what was measured is kept"
                )

    def _refuse_nonsense(self, answers: Sequence[TokenScores] | Sequence[Completion], expected: int) -> None:
        """Nothing that is no measurement is kept: it would be found again for ever."""
        if len(answers) != expected:
            raise EngineError(f"{self.spec} gave {len(answers)} answers to {expected} prompts; the engine is at fault")
        scores = [answer for answer in answers if isinstance(answer, TokenScores)]
        for score in scores:
            if not np.isfinite(score.logprobs).all() or (score.logprobs > TOLERANCE).any():
                raise EngineError(f"{self.spec} gave a log-probability that is not finite, or above 0; it is at fault")
            if len(score.logprobs) != len(scores[0].logprobs):
                raise EngineError(f"{self.spec} tokenised one continuation in two ways; the engine is at fault")

    def _count(
        self, measured: Sequence[Measured], tokens: Callable[[Measured], tuple[int, int]], seconds: float
    ) -> None:
        counts = [tokens(one) for one in measured]
        self.cost += Cost(
            calls=len(measured),
            tokens_in=sum(count[0] for count in counts),
            tokens_out=sum(count[1] for count in counts),
            seconds=seconds,
        )
        if self._progress is not None:
            self._progress(self.cost.calls, max(self._planned, self.cost.calls))


def _length(prompt: Prompt) -> int:
    return sum(len(message.content) for message in prompt.messages)
