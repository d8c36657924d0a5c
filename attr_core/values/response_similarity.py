"""Similarity of what the model says anew to what it said, per target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from attr_core.claims import split_claims
from attr_core.errors import InputError
from attr_core.metrics import Metric, metric_name, similarities
from attr_core.protocols import Capability, Engine, Sampling
from attr_core.results import FloatArray, MaskArray
from attr_core.types import Claim, Generation, Segment, Target, TargetKind
from attr_core.values._documents import document_groups
from attr_core.values._regenerating import Regenerations

__all__ = ["ResponseSimilarity"]


class ResponseSimilarity:
    """v(S) = similarity of the recorded response to what the model says when it is shown only the segments in S.

    Unit: similarity, from 0 to 1; a segment whose removal leads away from what was recorded has a positive effect. The
    response as a whole is compared with the whole regenerated text; a claim with the claim of the regenerated text that
    is most like it, so that it counts whether a thing is still said, not where. A claim that is said in one sentence
    with others is compared with that whole sentence and reads the lower for it. A span is 1 where its words stand in
    the regenerated text (case and white space aside) and 0 where they do not. Both readings of a target are the same,
    since nothing is given: each regeneration begins at the prompt.
    An answer that is empty, or calls a tool instead of saying something, has nothing in common with a text. A failure
    is raised, never scored.
    Cost: one generation per mask, and what the metric asks for. What was generated is kept for as long as this object
    or one made from it lives, so that another metric or other targets cost no generation.

    ``floor`` is 0.1: a sentence reworded without a change of meaning was seen to lose 0.01 to 0.1 of its similarity by
    MiniLM, and 0.1 to 0.3 by overlap. Where the model is sampled, :meth:`repeats` tells how much it is here, which is
    the better margin if it is larger.

    Parameters
    ----------
    engine : Engine that generates
    generation : Generation
        The call whose prompt is ablated.
    segments : sequence of Segment, length n_segments
        The columns of every mask.
    response : str
        What was recorded, and what the spans of ``targets`` count in.
    targets : sequence of Target, length n_targets
    claims : sequence of Claim
        Those of the response; here only for the same call as other value functions have.
    metric : Metric
        One of :mod:`attr_core.metrics`, or any function of two texts with values from 0 to 1.
    sampling : Sampling
        How to generate; its ``max_tokens`` should be enough for the recorded response.

    Raises
    ------
    InputError
        The response is empty, or a target is no part of it.

    References
    ----------
    Sudhi et al., RAG-Ex: A Generic Framework for Explaining Retrieval Augmented Generation, SIGIR 2024
    (doi:10.1145/3626772.3657660): there too the prompt is perturbed and the new answer compared with the old. Claims as
    targets, and repeats against the recorded text, are ours.
    """

    name: ClassVar[str] = "ResponseSimilarity"
    unit: ClassVar[str] = "similarity"
    floor: ClassVar[float] = 0.1
    knows_right: ClassVar[bool] = False
    needs: ClassVar[frozenset[Capability]] = frozenset({Capability.GENERATE})

    def __init__(
        self,
        engine: Engine,
        generation: Generation,
        *,
        segments: Sequence[Segment],
        response: str,
        metric: Metric,
        targets: Sequence[Target] = (),
        claims: Sequence[Claim] = (),
        sampling: Sampling = Sampling(),
    ) -> None:
        if not response.strip():
            raise InputError(f"generation {generation.id} has an empty response; nothing can be attributed")
        if any(target.kind is TargetKind.REFERENCE for target in targets):
            raise InputError("an expected answer is no part of the response; use ReferenceContrast for it")
        self._engine = engine
        self._generation = generation
        self._segments = tuple(segments)
        self._response = response
        self._claims = tuple(claims)
        self._metric = metric
        self._sampling = sampling
        self.targets = tuple(targets)
        self._regenerations = Regenerations(engine, generation, segments, sampling)
        self._cut: dict[str, tuple[str, ...]] = {}

    @property
    def metric(self) -> str:
        """What compares, as results name it."""
        return metric_name(self._metric)

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
        """Ones ``(n_targets,)``: similarities are comparable as they are."""
        return np.ones(self.n_targets)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Columns of each document, as for :class:`ResponseLogOdds`."""
        return document_groups(self._segments)

    def with_targets(self, targets: Sequence[Target]) -> ResponseSimilarity:
        """The same regenerations compared for other targets; generates nothing anew."""
        return self._again(targets=targets, metric=self._metric)

    def rescored(self, metric: Metric) -> ResponseSimilarity:
        """The same regenerations compared by another metric; generates nothing anew."""
        return self._again(targets=self.targets, metric=metric)

    def fits(self, masks: MaskArray) -> MaskArray:
        """Which masks ``(n_masks,)`` leave a prompt that fits the model's window with room for an answer."""
        return self._regenerations.fits(masks)

    def exact(self, masks: MaskArray) -> FloatArray:
        """Similarity ``(n_masks, n_targets)`` under each mask; one generation per mask that fits, NaN for the others.

        Raises
        ------
        EngineError
            The engine failed, or did not tell which tools it called where the recorded response is a call.
        InputError
            The metric gave something else than similarities.
        """
        values = np.full((len(masks), self.n_targets), np.nan)
        fits = self.fits(masks)
        if fits.any():
            values[fits] = self._compared(self.regenerations(masks[fits]))
        return values

    def regenerations(self, masks: MaskArray) -> list[str]:
        """What the model says under each mask; one generation for each mask that was not asked for before."""
        return self._regenerations.texts(masks)

    def repeats(self, n: int) -> FloatArray:
        """Values ``(n, n_targets)`` of further generations of the prompt with every segment; the noise floor's source.

        Each is compared with the recorded response, as every value is. Above temperature 0 each has a seed of its own;
        at 0 they differ only where the engine does not reproduce itself. Cost: ``n`` generations; NaN, and none, where
        the prompt does not fit.
        """
        texts = self._regenerations.again(n)
        return self._compared(texts) if texts else np.full((max(n, 0), self.n_targets), np.nan)

    def _compared(self, texts: Sequence[str]) -> FloatArray:
        """Values ``(n_texts, n_targets)``."""
        values = np.zeros((len(texts), self.n_targets))
        for column, target in enumerate(self.targets):
            if target.kind is TargetKind.RESPONSE:
                values[:, column] = similarities(self._metric, self._response, texts)
            elif target.kind is TargetKind.SPAN:
                phrase = _plain(target.text)
                values[:, column] = [float(phrase in _plain(text)) for text in texts]
            else:
                values[:, column] = self._most_alike(target.text, texts)
        return values

    def _most_alike(self, said: str, texts: Sequence[str]) -> FloatArray:
        """Of each text's claims the similarity of that which is most like ``said``; 0 without any."""
        pieces = [self._claims_of(text) for text in texts]
        found = iter(similarities(self._metric, said, [piece for one in pieces for piece in one]).tolist())
        return np.array([max((next(found) for _ in one), default=0.0) for one in pieces])

    def _claims_of(self, text: str) -> tuple[str, ...]:
        if text not in self._cut:
            self._cut[text] = tuple(claim.text for claim in split_claims(text)) if text.strip() else ()
        return self._cut[text]

    def _again(self, *, targets: Sequence[Target], metric: Metric) -> ResponseSimilarity:
        made = ResponseSimilarity(
            self._engine,
            self._generation,
            segments=self._segments,
            response=self._response,
            metric=metric,
            targets=targets,
            claims=self._claims,
            sampling=self._sampling,
        )
        made._regenerations, made._cut = self._regenerations, self._cut
        return made


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
