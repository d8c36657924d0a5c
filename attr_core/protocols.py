"""The seams: what an engine, a value function, an estimator and a judge must offer.

All are structural: an object that has the methods fits. All calls are synchronous and batch-first; an engine owns its
concurrency, retries and time limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attr_core.results import Estimate, FloatArray, MaskArray, Support
from attr_core.types import Claim, Prompt, Segment, Target

__all__ = [
    "BoundsAnswers",
    "Capability",
    "Completion",
    "CountsTokens",
    "Embeds",
    "Engine",
    "Estimator",
    "GateScores",
    "GatesGradients",
    "Generates",
    "HasNotes",
    "HoldsPrompts",
    "Judge",
    "Price",
    "Priced",
    "Progress",
    "Rendering",
    "Renders",
    "Reproduces",
    "Sampling",
    "Scores",
    "ScoresHidden",
    "ScoringEngine",
    "ScreenedValue",
    "SendsTogether",
    "SizesScores",
    "SizesTails",
    "TailSize",
    "TokenScores",
    "ValueFunction",
]

Progress = Callable[[int, int], None]
"""Called with (calls done, calls planned)."""


class Capability(StrEnum):
    """What an engine can do."""

    GENERATE = "generate"
    SCORE = "score"
    SCORE_HIDDEN = "score_hidden"
    GATE_GRADIENTS = "gate_gradients"
    EMBED = "embed"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to generate; temperature 0 is greedy.

    ``schema`` is a JSON schema, as text, that the answer is to fit: engines that can enforce it, others ignore it.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model said, and the tokens it took (``None`` where the engine does not tell)."""

    text: str
    finish_reason: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TokenScores:
    """Log-probabilities of one continuation under one prompt.

    ``logprobs`` ``(n_tokens,)`` in nats, float64 and precise near 0 (a token's log-odds can be had from them);
    ``offsets`` ``(n_tokens, 2)`` half-open characters into the continuation; ``tokens_in`` tokens forwarded.
    """

    logprobs: FloatArray
    offsets: NDArray[np.int64]
    tokens_in: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class GateScores:
    """Targets at one row of gates.

    ``log_odds`` ``(n_targets,)`` in nats, and ``gradients`` ``(n_targets, n_segments)``, their derivatives by each
    gate: positive where paying the segment more attention makes the target more likely. ``tokens_in`` tokens forwarded,
    a backward pass counted as two forward ones.
    """

    log_odds: FloatArray
    gradients: FloatArray
    tokens_in: int = 0


@dataclass(frozen=True, slots=True)
class TailSize:
    """Tokens that measuring on a prompt's cache forwards: ``prefix`` once, unless it ``is_held``, and ``tail`` each."""

    prefix: int
    tail: int
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Rendering:
    """A prompt as the model reads it. ``notes`` says where the template could not carry something."""

    text: str
    token_ids: tuple[int, ...]
    notes: tuple[str, ...] = field(default=())


@runtime_checkable
class Engine(Protocol):
    """A model attrkit can talk to.

    ``spec`` names it in results (``hf:MODEL``); ``fingerprint`` is all that decides what it answers (model, revision,
    dtype, template, endpoint), and keys the cache. The windows limit is ``max_context`` tokens, ``None`` if unknown.
    """

    @property
    def spec(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def max_context(self) -> int | None: ...


@runtime_checkable
class Generates(Protocol):
    """One completion per prompt, in order.

    Where a batch fails in part, the :class:`~attr_core.errors.EngineError` holds the other prompts' completions in
    ``completed``, by their index in the batch. An engine keeps none of them itself: asked again, it asks anew.
    """

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = ...) -> list[Completion]: ...


@runtime_checkable
class Scores(Protocol):
    """Token log-probabilities of ``continuation`` after each prompt, in order; all tokenised alike.

    Where a batch fails in part, the :class:`~attr_core.errors.EngineError` holds the other prompts' scores in
    ``completed``, as for :class:`Generates`.
    """

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]: ...


@runtime_checkable
class ScoringEngine(Engine, Scores, Protocol):
    """An engine that scores."""


@runtime_checkable
class ScoresHidden(Protocol):
    """As :class:`Scores`, with segments hidden in the cache of one prompt; masks are ``(n_masks, n_segments)``.

    ``tokens_in`` of the first result counts the prompt's own tokens, if they had to be forwarded.
    """

    def score_hidden(
        self, prompt: Prompt, segments: Sequence[Segment], masks: MaskArray, continuation: str
    ) -> list[TokenScores]: ...


@runtime_checkable
class GatesGradients(Protocol):
    """Gradients of each target's log-odds by a gate on each segment; ``gates`` ``(n_gates, n_segments)`` in (0, 1].

    One result per row of gates. Targets' spans count in ``continuation``. ``tokens_in`` of the first result counts the
    prompt's own tokens, if they had to be forwarded.
    """

    def gate_gradients(
        self,
        prompt: Prompt,
        segments: Sequence[Segment],
        gates: FloatArray,
        continuation: str,
        targets: Sequence[Target],
    ) -> list[GateScores]: ...


@runtime_checkable
class SizesScores(Protocol):
    """Tokens that scoring batches of prompts, one after the other, forwards, with ``held`` in the cache at first.

    Asked before it is done; forwards nothing.
    """

    def score_sizes(
        self, batches: Sequence[Sequence[Prompt]], continuation: str, *, held: Prompt | None = None
    ) -> list[int]: ...


@runtime_checkable
class SizesTails(Protocol):
    """What a hidden mask or a row of gates costs, before it is measured."""

    def tail_size(self, prompt: Prompt, segments: Sequence[Segment], continuation: str) -> TailSize: ...


@runtime_checkable
class Embeds(Protocol):
    """Texts -> ``(n_texts, dim)``."""

    def embed(self, texts: Sequence[str]) -> FloatArray: ...


@runtime_checkable
class Renders(Protocol):
    """The prompt after the model's chat template."""

    def render(self, prompt: Prompt) -> Rendering: ...


@dataclass(frozen=True, slots=True)
class Price:
    """USD for each token that is read and for each that is written."""

    token_in: float
    token_out: float


@runtime_checkable
class Priced(Protocol):
    """What an engine takes for its tokens: ``None`` where nobody knows. Models on this machine take nothing."""

    @property
    def price(self) -> Price | None: ...


@runtime_checkable
class BoundsAnswers(Protocol):
    """Whether the model is told how long an answer may be; where it is not, no cap in tokens or USD can hold."""

    @property
    def bounds_answers(self) -> bool: ...


@runtime_checkable
class SendsTogether(Protocol):
    """How many requests an engine has under way at a time."""

    @property
    def concurrency(self) -> int: ...


@runtime_checkable
class HasNotes(Protocol):
    """What an engine does otherwise than a prompt and a sampling say, in sentences for the result."""

    @property
    def notes(self) -> tuple[str, ...]: ...


@runtime_checkable
class Reproduces(Protocol):
    """An engine that says of itself whether the same prompt always gets the same greedy answer: then one run is all."""

    @property
    def reproduces(self) -> bool: ...


@runtime_checkable
class HoldsPrompts(Protocol):
    """An engine that keeps what it has read of prompts, until it is told to let go."""

    def release(self) -> None: ...


@runtime_checkable
class CountsTokens(Protocol):
    """About how many tokens a prompt is, for an engine that cannot render it; sends nothing."""

    def count_tokens(self, prompt: Prompt) -> int: ...


@runtime_checkable
class ValueFunction(Protocol):
    """An oracle for v(S): the number obtained when only the segments in S are kept.

    ``exact(masks)`` is mandatory: ``(n_masks, n_segments)`` bool -> ``(n_masks, n_targets)`` in ``unit``; NaN in rows
    that ``fits`` ``(n_masks,)`` says exceed the model's window. Cheaper
    fidelities (``hidden``, ``gradients``) are offered by having the method. ``floor`` is the smallest effect worth
    naming, in ``unit``; ``knows_right`` says whether more is better for the user (then verdicts read helpful, harmful).
    ``scales`` ``(n_targets,)`` is what a value is divided by to be comparable across targets (its tokens).
    """

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def floor(self) -> float: ...
    @property
    def knows_right(self) -> bool: ...
    @property
    def n_segments(self) -> int: ...
    @property
    def n_targets(self) -> int: ...
    @property
    def scales(self) -> FloatArray: ...
    def fits(self, masks: MaskArray) -> MaskArray: ...
    def exact(self, masks: MaskArray) -> FloatArray: ...


@runtime_checkable
class ScreenedValue(ValueFunction, Protocol):
    """A value function with the two cheap fidelities, which approximate the exact one.

    ``alike`` are groups of columns whose segments are nearly the same, and ``prices(masks)`` ``(n_masks,)`` about
    how many tokens deleting forwards. ``hidden(masks)`` is as ``exact``, with removed segments hidden instead of
    deleted; with all kept both are the same. ``gradients(gates)`` are derivatives ``(n_gates, n_targets,
    n_segments)`` of the value by gates ``(n_gates, n_segments)`` in (0, 1], which lie between hidden (towards 0)
    and kept (1).
    """

    @property
    def alike(self) -> tuple[tuple[int, ...], ...]: ...
    def prices(self, masks: MaskArray) -> NDArray[np.int64]: ...
    @property
    def hidden(self) -> Callable[[MaskArray], FloatArray]: ...
    @property
    def gradients(self) -> Callable[[FloatArray], FloatArray]: ...


@runtime_checkable
class Estimator(Protocol):
    """Which subsets to measure and how to turn their values into effects.

    ``n_masks(n_segments)`` is the most masks it asks for, the all-kept and all-removed rows included; ``ablations`` are
    those it measures in any case, in its ``fidelity``, for who wants to read more off them.
    """

    @property
    def name(self) -> str: ...
    @property
    def estimand(self) -> str: ...
    @property
    def fidelity(self) -> Literal["exact", "hidden"]: ...
    def n_masks(self, n_segments: int) -> int: ...
    def ablations(self, value: ValueFunction, *, seed: int = 0) -> MaskArray: ...
    def estimate(self, value: ValueFunction, *, seed: int = 0) -> Estimate: ...


@runtime_checkable
class Judge(Protocol):
    """Does each segment entail or contradict each claim?"""

    def judge(
        self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None
    ) -> Support: ...
