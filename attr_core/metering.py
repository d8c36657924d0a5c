"""An engine seen through the cache and the caps: nothing is measured twice, nothing is spent unseen."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attr_core._account import Account
from attr_core._places import check_columns, hidden_places, places
from attr_core._sanity import in_completions, in_gates, in_scores, in_vectors, is_count, rows
from attr_core.cache import Cache, cache_key
from attr_core.capabilities import is_free, offered, price_of, require
from attr_core.errors import BudgetExceededError, EngineError
from attr_core.prompt import most_tokens
from attr_core.protocols import (
    BoundsAnswers,
    Capability,
    Completion,
    CountsTokens,
    Engine,
    GateScores,
    Price,
    Progress,
    Rendering,
    Renders,
    Sampling,
    SendsTogether,
    SizesTails,
    TailSize,
    TokenScores,
)
from attr_core.results import Budget, Cost, FloatArray, MaskArray
from attr_core.types import Prompt, Segment, Target

__all__ = ["MeteredEngine"]

SLICE = 16
"""Prompts sent at a time: each slice is kept once measured, so that an interruption loses at most one."""

ROUNDS = 4
"""Requests of a slice, for each that an engine says it sends at a time (``concurrency``)."""

Sent = TypeVar("Sent", Prompt, NDArray[Any], str)
Measured = TypeVar("Measured", TokenScores, Completion, GateScores, FloatArray)


class MeteredEngine:
    """Offers what ``engine`` offers; looks every measurement up first, counts the rest and holds the caps.

    From any thread: the most that a slice can cost is held before it is sent, so caps hold for all threads together.
    What an engine sends again after a failure is not counted: only its provider knows whether that was charged.

    Where a slice fails in part, what the error has as ``completed`` is checked, kept and counted as any measurement,
    and the error goes on. If any of it is no answer to the slice, none is kept: then whose answer is whose is not sure.

    Parameters
    ----------
    engine : Engine
    cache : Cache, optional
        What was measured before; by default one that lasts as long as this object.
    budget : Budget, optional
        Hard caps. A slice of prompts that could pass one is not sent.
    progress : callable, optional
        Called with (calls made, calls planned) after each slice; what it raises stops the run, with the slice kept.
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
        self._account = Account(budget)
        self._cache = cache if cache is not None else Cache(":memory:")
        self._budget = budget
        self._progress = progress
        self._planned = planned
        self._seen: set[str] = set()
        self._sends = True
        if isinstance(engine, Renders):
            self.render: Callable[[Prompt], Rendering] = engine.render
        if isinstance(engine, CountsTokens):
            self.count_tokens: Callable[[Prompt], int] = engine.count_tokens
        if isinstance(engine, SizesTails):
            self.tail_size: Callable[[Prompt, Sequence[Segment], str], TailSize] = engine.tail_size

    @property
    def cost(self) -> Cost:
        """What was spent so far, by those alongside too."""
        return self._account.cost

    def alongside(self, engine: Engine) -> MeteredEngine:
        """Another engine on the same account: one cost, and caps that hold for both together."""
        other = MeteredEngine(
            engine, cache=self._cache, budget=self._budget, progress=self._progress, planned=self._planned
        )
        other._account, other._sends = self._account, self._sends
        return other

    def only_known(self) -> MeteredEngine:
        """The same engine, on the same account, that answers from the cache alone and raises where it would send."""
        other = self.alongside(self.engine)
        other._sends = False
        return other

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
        return offered(self.engine)

    @property
    def price(self) -> Price | None:
        """The engine's."""
        return price_of(self.engine)

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
            nonsense=in_scores,
            tokens=lambda one, score: (
                score.tokens_in if is_count(score.tokens_in) else most_tokens(engine, one) + _text_tokens(continuation),
                0,
            ),
            reserve=lambda batch: (sum(most_tokens(engine, one) + _text_tokens(continuation) for one in batch), 0),
        )

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling = Sampling(), *, repeat: int = 0
    ) -> list[Completion]:
        """As :class:`~attr_core.protocols.Generates`; ``repeat`` numbers further samples of the same prompt."""
        require(self.engine, {Capability.GENERATE}, by="generating")
        engine: Any = self.engine
        caps = (self._budget.tokens, self._budget.usd)
        if caps != (None, None) and isinstance(engine, BoundsAnswers) and not engine.bounds_answers:
            raise BudgetExceededError(
                f"{self.spec} is not told how long an answer may be, so no budget of tokens or usd can hold; cap calls"
            )
        keys = [cache_key("generate", self.fingerprint, p, sampling=sampling, repeat=repeat) for p in prompts]
        return self._measure(
            prompts,
            keys,
            look_up=self._cache.get_completions,
            keep=self._cache.put_completions,
            send=lambda batch: engine.generate(batch, sampling),
            nonsense=in_completions,
            tokens=partial(_told_or_counted, engine),
            reserve=lambda batch: (
                sum(most_tokens(engine, one) for one in batch),
                sampling.max_tokens * len(batch),
            ),
        )

    def score_hidden(
        self, prompt: Prompt, segments: Sequence[Segment], masks: MaskArray, continuation: str
    ) -> list[TokenScores]:
        """As :class:`~attr_core.protocols.ScoresHidden`; a mask is a call."""
        require(self.engine, {Capability.SCORE_HIDDEN}, by="scoring with hidden segments")
        check_columns(masks, segments)
        engine: Any = self.engine
        return self._measure(
            list(masks),
            [
                cache_key("score_hidden", self.fingerprint, prompt, continuation=continuation, detail=detail)
                for detail in hidden_places(segments, masks)
            ],
            look_up=self._cache.get_scores,
            keep=self._cache.put_scores,
            send=lambda batch: engine.score_hidden(prompt, segments, np.array(batch), continuation),
            nonsense=in_scores,
            tokens=lambda _, score: (score.tokens_in, 0),
            reserve=lambda batch: self._reserve_tails(prompt, segments, continuation, n_tails=len(batch)),
        )

    def gate_gradients(
        self,
        prompt: Prompt,
        segments: Sequence[Segment],
        gates: FloatArray,
        continuation: str,
        targets: Sequence[Target],
    ) -> list[GateScores]:
        """As :class:`~attr_core.protocols.GatesGradients`; a row of gates is a call, and two more for each target."""
        require(self.engine, {Capability.GATE_GRADIENTS}, by="differentiating by gates")
        check_columns(gates, segments)
        where = [places(segment) for segment in segments]
        spans = [(target.start, target.end) for target in targets]
        details = [{"segments": where, "targets": spans, "gates": row} for row in gates.tolist()]
        engine: Any = self.engine
        n_passes = 1 + 2 * len(targets)
        return self._measure(
            list(gates),
            [
                cache_key("gate_gradients", self.fingerprint, prompt, continuation=continuation, detail=detail)
                for detail in details
            ],
            look_up=self._cache.get_gates,
            keep=self._cache.put_gates,
            send=lambda batch: engine.gate_gradients(prompt, segments, np.array(batch), continuation, targets),
            nonsense=partial(in_gates, shape=(len(targets), len(segments))),
            tokens=lambda _, scores: (scores.tokens_in, 0),
            reserve=lambda batch: self._reserve_tails(prompt, segments, continuation, n_tails=n_passes * len(batch)),
            calls=n_passes,
        )

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """As :class:`~attr_core.protocols.Embeds`; a text is a call, and its tokens are counted from above.

        Unless embedding is free: then nothing is counted.
        """
        require(self.engine, {Capability.EMBED}, by="embedding")
        engine: Any = self.engine
        free = is_free(engine)
        found = self._measure(
            list(texts),
            [cache_key("embed", self.fingerprint, text) for text in texts],
            look_up=self._cache.get_vectors,
            keep=self._cache.put_vectors,
            send=lambda batch: rows(engine.embed(batch)),
            nonsense=in_vectors,
            tokens=lambda text, _: (0 if free else _text_tokens(text), 0),
            reserve=lambda batch: (0 if free else sum(map(_text_tokens, batch)), 0),
            calls=0 if free else 1,
        )
        if len({len(vector) for vector in found}) > 1:
            raise EngineError(f"{self.spec} gave vectors of different lengths; the engine is at fault")
        return np.array(found) if found else np.empty((0, 0))

    def _reserve_tails(
        self, prompt: Prompt, segments: Sequence[Segment], continuation: str, *, n_tails: int
    ) -> tuple[int, int]:
        """The most tokens that so many tails behind one prompt can take."""
        if not isinstance(self.engine, SizesTails):
            return n_tails * (most_tokens(self.engine, prompt) + _text_tokens(continuation)), 0
        size = self.engine.tail_size(prompt, segments, continuation)
        return n_tails * size.tail + (0 if size.is_held else size.prefix), 0

    def _measure(
        self,
        sent: Sequence[Sent],
        keys: Sequence[str],
        *,
        look_up: Callable[[Sequence[str]], dict[str, Measured]],
        keep: Callable[[dict[str, Measured]], None],
        send: Callable[[list[Sent]], list[Measured]],
        nonsense: Callable[[Sequence[Any]], str | None],
        tokens: Callable[[Sent, Measured], tuple[int, int]],
        reserve: Callable[[list[Sent]], tuple[int, int]],
        calls: int = 1,
    ) -> list[Measured]:
        known = look_up(list(dict.fromkeys(keys)))
        new_hits = {key for key in known if key not in self._seen}
        self._seen.update(keys)
        self._account.hit(len(new_hits))
        unknown = {key: one for key, one in zip(keys, sent, strict=True) if key not in known}
        # Prompts of like length share a slice, so that engines that pad a batch waste little.
        order = sorted(unknown, key=lambda key: _length(unknown[key]))

        def take(measured: dict[str, Measured], seconds: float, reserved: Cost) -> None:
            spent = [tokens(unknown[key], one) for key, one in measured.items()]
            self._account.settle(reserved, self._cost(calls * len(measured), spent, seconds))
            known.update(measured)
            keep(measured)  # before anybody is told, who may want to stop here
            self._tell()

        if order and not self._sends:
            raise EngineError(f"{len(order)} of these prompts were not measured by {self.spec}")
        self._account.check_calls(calls * len(order))
        # Where requests overlap, a slice waits for its slowest one, so it is made of several rounds of them.
        together = self.engine.concurrency if isinstance(self.engine, SendsTogether) else 0
        first, size = 0, max(SLICE, ROUNDS * together)
        while first < len(order):
            batch = order[first : first + size]
            now = [unknown[key] for key in batch]
            most = partial(self._most, calls * len(batch), partial(reserve, now))
            try:
                reserved = self._account.reserve(most, calls=calls * len(batch))
            except BudgetExceededError:
                if size == 1:
                    raise
                size = max(1, len(batch) // 2)  # what the caps still allow is measured
                continue
            started = time.perf_counter()
            try:
                answers = send(now)
                self._refuse_nonsense(answers, len(batch), nonsense)
            except BaseException as error:  # an interrupt too may have what was answered before it
                if completed := _completed(error, batch, nonsense):
                    take(completed, time.perf_counter() - started, reserved)
                else:
                    self._account.settle(reserved, Cost())
                if isinstance(error, EngineError) and error.completed:
                    found = {n: known[k] for n, k in enumerate(keys) if k in known}
                    raise _reindexed(error, found) from error.__cause__
                raise
            take(dict(zip(batch, answers, strict=True)), time.perf_counter() - started, reserved)
            first += len(batch)
        return [known[key] for key in keys]

    def _refuse_nonsense(
        self, answers: Sequence[Any], expected: int, nonsense: Callable[[Sequence[Any]], str | None]
    ) -> None:
        """Nothing that is no measurement is kept: it would be found again for ever."""
        if not isinstance(answers, Sequence):
            raise EngineError(f"{self.spec} gave {type(answers).__name__} as its answers; the engine is at fault")
        if len(answers) != expected:
            raise EngineError(f"{self.spec} gave {len(answers)} answers to {expected} prompts; the engine is at fault")
        if found := nonsense(answers):
            raise EngineError(f"{self.spec} {found}; the engine is at fault")

    def _most(self, calls: int, reserve: Callable[[], tuple[int, int]]) -> Cost:
        return self._cost(calls, [reserve()], 0.0)

    def _cost(self, calls: int, counts: Sequence[tuple[int, int]], seconds: float) -> Cost:
        tokens_in, tokens_out = sum(count[0] for count in counts), sum(count[1] for count in counts)
        price = self.price
        usd = math.nan if price is None else tokens_in * price.token_in + tokens_out * price.token_out
        return Cost(calls=calls, tokens_in=tokens_in, tokens_out=tokens_out, usd=usd if calls else 0.0, seconds=seconds)

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self.cost.calls, max(self._planned, self.cost.calls))


def _told_or_counted(engine: object, prompt: Prompt, completion: Completion) -> tuple[int, int]:
    """Tokens that the engine told; where it does not, counted from above."""
    told_in, told_out = completion.tokens_in, completion.tokens_out
    said = len(completion.text.encode("utf-8", "replace"))
    return (
        told_in if is_count(told_in) and told_in else most_tokens(engine, prompt),
        told_out if is_count(told_out) and (told_out or not said) else said,
    )


def _text_tokens(text: str) -> int:
    """More than any tokenizer makes of a text: its bytes and a few."""
    return len(text.encode("utf-8", "replace")) + 8


def _completed(
    error: BaseException, batch: Sequence[str], nonsense: Callable[[Sequence[Any]], str | None]
) -> dict[str, Any]:
    """By key, what was measured before or beside what failed."""
    completed = getattr(error, "completed", {})
    if not isinstance(completed, Mapping):
        return {}
    found = {key: completed[n] for n, key in enumerate(batch) if n in completed}
    return {} if len(found) < len(completed) or nonsense(list(found.values())) else found


def _reindexed(error: EngineError, completed: Mapping[int, Any]) -> EngineError:
    """The error as of all that was asked for, not of a slice; a copy, since the engine may raise its own again."""
    again = copy.copy(error).with_traceback(error.__traceback__)
    again.completed = completed
    return again


def _length(sent: Prompt | NDArray[Any] | str) -> int:
    if isinstance(sent, str):
        return len(sent)
    return sum(len(message.content) for message in sent.messages) if isinstance(sent, Prompt) else 0
