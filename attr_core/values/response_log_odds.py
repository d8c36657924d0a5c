"""Log-odds of the recorded response, per target: ContextCite's value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import InputError
from attr_core.pivots import tokens_in
from attr_core.prompt import ablations
from attr_core.protocols import Capability, Scores, TokenScores
from attr_core.results import FloatArray, MaskArray
from attr_core.types import Generation, Segment, Target

__all__ = ["LOG_PROBABILITY_CEILING", "ResponseLogOdds", "log_odds"]

LOG_PROBABILITY_CEILING = -1e-7
"""Log-probabilities above this are not told apart from certainty: log-odds end at 16.1 nats, where float32 does."""


def log_odds(logprob: FloatArray) -> FloatArray:
    """log p - log(1 - p), in nats, from log p; at most 16.1 (see ``LOG_PROBABILITY_CEILING``)."""
    capped = np.minimum(np.asarray(logprob, dtype=np.float64), LOG_PROBABILITY_CEILING)
    return np.asarray(capped - np.log(-np.expm1(capped)), dtype=np.float64)


class ResponseLogOdds:
    """v(S) = log-odds that the model, shown only the segments in S, gives a target's text.

    The text is teacher-forced: a target's log-probability is the sum over its tokens, each given the prompt and the
    response before it; log-odds are log p - log(1 - p). Unit: nats. A ``direct`` target is read off the whole response,
    so what an earlier claim already says counts as given; a ``total`` one is scored with the earlier claims cut out.
    Cost: one scored prompt per mask and distinct continuation; all direct targets share theirs.

    Parameters
    ----------
    engine : Scores
    generation : Generation
        The call whose prompt is ablated.
    segments : sequence of Segment, length n_segments
        The columns of every mask.
    response : str
        What the spans of ``targets`` count in.
    targets : sequence of Target, length n_targets

    References
    ----------
    Cohen-Wang et al., ContextCite: Attributing Model Generation to Context, 2024 (arXiv:2409.00729), section 3.
    Theirs is the whole response or a selected span; ours adds pivots and the total reading, and a cap of 16.1 nats.
    """

    name: ClassVar[str] = "ResponseLogOdds"
    unit: ClassVar[str] = "nats"
    floor: ClassVar[float] = 1.0
    knows_right: ClassVar[bool] = False
    needs: ClassVar[frozenset[Capability]] = frozenset({Capability.SCORE})

    def __init__(
        self,
        engine: Scores,
        generation: Generation,
        *,
        segments: Sequence[Segment],
        response: str,
        targets: Sequence[Target] = (),
    ) -> None:
        if not response.strip():
            raise InputError(f"generation {generation.id} has an empty response; nothing can be attributed")
        self._engine = engine
        self._generation = generation
        self._segments = tuple(segments)
        self._response = response
        self.targets = tuple(targets)
        self._scales: FloatArray | None = None

    def with_targets(self, targets: Sequence[Target]) -> ResponseLogOdds:
        """The same measurement read out for other targets."""
        return ResponseLogOdds(
            self._engine,
            self._generation,
            segments=self._segments,
            response=self._response,
            targets=targets,
        )

    @property
    def n_segments(self) -> int:
        """Columns of a mask."""
        return len(self._segments)

    @property
    def n_targets(self) -> int:
        """Columns of a value."""
        return len(self.targets)

    @property
    def scales(self) -> FloatArray:
        """Tokens of each target ``(n_targets,)``; measures the full prompt if nothing was measured yet."""
        if self._scales is None:
            self.exact(np.ones((1, self.n_segments), dtype=np.bool_))
        if self._scales is None:
            return np.zeros(0)
        return self._scales

    def exact(self, masks: MaskArray) -> FloatArray:
        """Log-odds ``(n_masks, n_targets)`` of each target under each mask; one scored prompt per mask."""
        values = np.full((len(masks), self.n_targets), np.nan)
        scales = np.zeros(self.n_targets)
        for continuation, columns in self._continuations().items():
            scores = self._score(masks, continuation)
            for column in columns:
                start, end = self._span(self.targets[column])
                inside = tokens_in(scores[0].offsets, start, end)
                if not inside.any():
                    raise InputError(f"no token of the response lies in {self.targets[column].text!r}; name other text")
                values[:, column] = log_odds(np.array([score.logprobs[inside].sum() for score in scores]))
                scales[column] = inside.sum()
        self._scales = scales
        return values

    def tokens(self, masks: MaskArray) -> tuple[NDArray[np.int64], FloatArray]:
        """Offsets ``(n_tokens, 2)`` and log-probabilities ``(n_masks, n_tokens)`` of the whole response."""
        scores = self._score(masks, self._response)
        return scores[0].offsets, np.array([score.logprobs for score in scores])

    def _score(self, masks: MaskArray, continuation: str) -> list[TokenScores]:
        return self._engine.score(ablations(self._generation, self._segments, masks), continuation)

    def _continuations(self) -> dict[str, list[int]]:
        columns: dict[str, list[int]] = {}
        for column, target in enumerate(self.targets):
            text = self._response if target.reading == "direct" else self._response[target.start : target.end]
            columns.setdefault(text, []).append(column)
        return columns

    def _span(self, target: Target) -> tuple[int, int]:
        if target.reading == "direct":
            return target.start, target.end
        return 0, target.end - target.start
