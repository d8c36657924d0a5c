"""What the caller chose, and what was settled from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attr_core.algorithms import Algorithm
from attr_core.metrics import Metric
from attr_core.pivots import MAX_PIVOTS
from attr_core.protocols import Capability, Engine, Estimator, Judge, Sampling
from attr_core.results import Budget
from attr_core.types import Claim, Generation, Granularity, Segment, Target, Trace

__all__ = ["Options", "Setup", "Span"]

LIKELY_PIVOTS = 2

Span = str | tuple[int, int]


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller chose; see :func:`attr_core.api.attribute`."""

    engine: str | Engine | None = None
    algorithm: str | Algorithm = "likelihood"
    estimator: str | Estimator | None = None
    screen_with: str | Engine | None = None
    generation: str | None = None
    step: int | None = None
    claims: Sequence[int] | None = None
    spans: Sequence[Span] = ()
    granularity: Granularity | None = None
    totals: bool = True
    regenerations: bool = True
    placebos: int = 0
    budget: Budget = Budget()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Setup:
    """A run, settled.

    ``response`` is what the model wrote, tool calls included; ``columns`` are the segments that can be removed,
    ``totals`` the claims scored on their own, ``spans`` what the caller named and ``values`` what tool calls hold.
    ``screen`` is another engine that hides segments for this one, if any; ``expected`` the answer to contrast, or to
    hold others against, where the algorithm needs it; ``metric`` compares texts, by ``embedder`` if need be, where
    answers are ``generated`` under ablations, as ``sampling`` says; ``judge`` gives verdicts, on what answers
    ``question``, by ``judge_engine`` unless it has an account of its own.
    ``n_repeats`` are measurements of one and the same prompt.
    """

    trace: Trace
    generation: Generation
    response: str
    columns: tuple[Segment, ...]
    claims: tuple[Claim, ...]
    chosen: tuple[Claim, ...]
    totals: tuple[Claim, ...]
    spans: tuple[Target, ...]
    values: tuple[Target, ...]
    engine: Engine
    screen: Engine | None
    algorithm: Algorithm
    estimator: Estimator
    expected: str | None
    metric: str | Metric | None
    embedder: Engine | None
    sampling: Sampling
    n_repeats: int
    n_regenerations: int
    notes: tuple[str, ...]
    judge: Judge | None = None
    judge_engine: Engine | None = None
    question: str | None = None

    @property
    def generates(self) -> bool:
        """Whether an ablation is an answer that is generated."""
        return Capability.GENERATE in self.algorithm.needs

    @property
    def scores(self) -> bool:
        """Whether an ablation is scored; where it is not generated either, it follows from a judge's verdicts."""
        return Capability.SCORE in self.algorithm.needs

    @property
    def n_continuations(self) -> int:
        """Texts that each ablation is scored on: the response, each claim with a total reading, the expected answer."""
        return 1 + len(self.totals) + (self.scores and self.expected is not None)

    @property
    def n_direct(self) -> int:
        """Most targets that are read off the whole response: pivots are only found by measuring."""
        if self.expected is not None:
            return 1
        of_claims = len(self.chosen) * (2 * MAX_PIVOTS + 1) + len(self.values) * 2 * MAX_PIVOTS
        return of_claims + len(self.values) + len(self.spans) + 1

    @property
    def likely_direct(self) -> int:
        """How many of them are to be expected."""
        if self.expected is not None:
            return 1
        of_claims = len(self.chosen) * LIKELY_PIVOTS + (len(self.chosen) if len(self.chosen) > 1 else 0)
        return of_claims + len(self.values) + len(self.spans) + 1
