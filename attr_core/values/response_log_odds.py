"""Log-odds of the recorded response, per target: ContextCite's value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attr_core.capabilities import offered
from attr_core.errors import ContextTooLongError, InputError, SegmentationError
from attr_core.prompt import ablations, count_tokens
from attr_core.protocols import Capability, Embeds, Engine, ScoringEngine, SizesTails, TailSize, TokenScores
from attr_core.reading import log_odds, tokens_of
from attr_core.results import FloatArray, MaskArray
from attr_core.similar import near_duplicates, paraphrases
from attr_core.types import Claim, Generation, Message, Prompt, Segment, Target, TargetKind
from attr_core.values._documents import document_groups

__all__ = ["SCREENS", "ResponseLogOdds", "can_hide"]

SCREENS = frozenset({Capability.SCORE_HIDDEN, Capability.GATE_GRADIENTS})
"""What an engine must offer for the cheaper fidelities."""


class ResponseLogOdds:
    """v(S) = log-odds that the model, shown only the segments in S, gives a target's text.

    The text is teacher-forced: a target's log-probability is the sum over its tokens, each given the prompt and the
    response before it; log-odds are log p - log(1 - p). Unit: nats. A ``direct`` target is read off the whole response,
    so what an earlier claim already says counts as given; a ``total`` one is read off its claim scored alone, with the
    earlier ones cut out.
    Cost: one scored prompt per mask and distinct continuation; all direct targets share theirs. Where the engine can
    hide segments in a cached prompt, the mask that keeps all is measured on that cache, which is the same, and
    ``hidden`` and ``gradients`` are offered.

    Parameters
    ----------
    engine : ScoringEngine
    generation : Generation
        The call whose prompt is ablated.
    segments : sequence of Segment, length n_segments
        The columns of every mask.
    response : str
        What the spans of ``targets`` count in.
    targets : sequence of Target, length n_targets
    claims : sequence of Claim
        Where a total target's continuation begins and ends: at the claim that it belongs to.
    screen : Engine, optional
        What ``hidden`` and ``gradients`` are measured on instead: a smaller model.
    embedder : Embeds, optional
        What finds segments that say the same in other words, for ``paraphrases``.

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
        engine: ScoringEngine,
        generation: Generation,
        *,
        segments: Sequence[Segment],
        response: str,
        targets: Sequence[Target] = (),
        claims: Sequence[Claim] = (),
        screen: Engine | None = None,
        embedder: Embeds | None = None,
    ) -> None:
        if not response.strip():
            raise InputError(f"generation {generation.id} has an empty response; nothing can be attributed")
        self._engine = engine
        self._generation = generation
        self._segments = tuple(segments)
        self._response = response
        self.targets = tuple(targets)
        self._claims = tuple(claims)
        self._scales: FloatArray | None = None
        self._screen: Any = engine if screen is None else screen
        self._embedder = embedder
        if can_hide(self._screen, generation, self._segments, response):
            self.hidden: Callable[[MaskArray], FloatArray] = self._hidden
            self.gradients: Callable[[FloatArray], FloatArray] = self._gradients

    def with_targets(self, targets: Sequence[Target]) -> ResponseLogOdds:
        """The same measurement read out for other targets."""
        return ResponseLogOdds(
            self._engine,
            self._generation,
            segments=self._segments,
            response=self._response,
            targets=targets,
            claims=self._claims,
            screen=self._screen,
            embedder=self._embedder,
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

    def fits(self, masks: MaskArray) -> MaskArray:
        """Which masks ``(n_masks,)`` leave a prompt that fits the model's window together with the response.

        The response's tokens are counted from above, by a user message that holds it.
        """
        limit = self._engine.max_context
        if limit is None:
            return np.ones(len(masks), dtype=np.bool_)
        room = limit - count_tokens(self._engine, Prompt((Message("user", self._response),)))
        if count_tokens(self._engine, self._generation.prompt) <= room:
            return np.ones(len(masks), dtype=np.bool_)
        prompts = ablations(self._generation, self._segments, masks)
        return np.array([count_tokens(self._engine, prompt) <= room for prompt in prompts], dtype=np.bool_)

    def exact(self, masks: MaskArray) -> FloatArray:
        """Log-odds ``(n_masks, n_targets)`` of each target under each mask; one scored prompt per mask that fits."""
        values = np.full((len(masks), self.n_targets), np.nan)
        fits = self.fits(masks)
        if not fits.any():
            return values
        self._scales = np.zeros(self.n_targets)
        for continuation, columns in self._continuations().items():
            scores = self._score(masks[fits], continuation)
            for column in columns:
                inside = self._tokens_of(self.targets[column], scores[0])
                values[fits, column] = _summed(scores, inside)
                self._scales[column] = inside.sum()
        return values

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Columns of each document, in order of first appearance; every column is in one of them."""
        return document_groups(self._segments)

    @cached_property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Groups of columns whose texts are nearly the same."""
        return near_duplicates([segment.text for segment in self._segments])

    @cached_property
    def paraphrases(self) -> tuple[tuple[int, ...], ...]:
        """Groups of columns whose texts may say the same in other words; one text embedded per segment."""
        if self._embedder is None or not self._segments:
            return ()
        return paraphrases(self._embedder.embed([segment.text for segment in self._segments]))

    def prices(self, masks: MaskArray) -> NDArray[np.int64]:
        """About how many tokens ``exact`` forwards for each mask ``(n_masks,)``, per distinct continuation.

        By characters: what is kept, behind the first removed segment only where what stands before it is cached.
        """
        places = [min((one.message, one.start) for one in segment.locations) for segment in self._segments]
        lengths = np.array([sum(one.end - one.start for one in segment.locations) for segment in self._segments])
        order = np.array(sorted(range(len(places)), key=lambda n: places[n]), dtype=np.int64)
        size = self._tail_size
        is_held = can_hide(self._engine, self._generation, self._segments, self._response)
        per_character = size.prefix / max(int(lengths.sum()), 1)
        found = np.zeros(len(masks), dtype=np.int64)
        for row, mask in enumerate(masks[:, order]):
            first = (int(np.argmin(mask)) if not mask.all() else len(mask)) if is_held else 0
            found[row] = size.tail + round(per_character * float((lengths[order] * mask)[first:].sum()))
        return found

    @cached_property
    def _tail_size(self) -> TailSize:
        if isinstance(self._engine, SizesTails):
            return self._engine.tail_size(self._generation.prompt, self._segments, self._response)
        nothing = np.zeros((1, self.n_segments), dtype=np.bool_)
        least = count_tokens(self._engine, ablations(self._generation, self._segments, nothing)[0])
        answer = count_tokens(self._engine, Prompt((Message("user", self._response),)))
        return TailSize(count_tokens(self._engine, self._generation.prompt) - least, least + answer)

    def _hidden(self, masks: MaskArray) -> FloatArray:
        """As :meth:`exact`, with removed segments hidden in the full prompt's cache; one tail per mask."""
        values = np.full((len(masks), self.n_targets), np.nan)
        for continuation, columns in self._continuations().items():
            scores = self._score_hidden(masks, continuation) if len(masks) else []
            for column in columns if scores else ():
                values[:, column] = _summed(scores, self._tokens_of(self.targets[column], scores[0]))
        return values

    def _gradients(self, gates: FloatArray) -> FloatArray:
        """Derivatives ``(n_gates, n_targets, n_segments)`` of the log-odds by each gate on a segment's cached tokens.

        Per row of gates one tail forward, and one backward for each target that reads other tokens.
        """
        slopes = np.full((len(gates), self.n_targets, self.n_segments), np.nan)
        for continuation, columns in self._continuations().items():
            spans = [self._within(self.targets[column]) for column in columns]
            distinct = list(dict.fromkeys(spans))
            asked = [Target(TargetKind.SPAN, start, end, continuation[start:end]) for start, end in distinct]
            found = self._screen.gate_gradients(self._generation.prompt, self._segments, gates, continuation, asked)
            for row, scores in zip(slopes, found, strict=True):
                row[columns] = scores.gradients[[distinct.index(span) for span in spans]]
        return slopes

    def read(self, scores: Sequence[TokenScores]) -> FloatArray:
        """Values ``(n_scores, n_targets)`` of the direct targets from scores of the whole response; NaN for total."""
        values = np.full((len(scores), self.n_targets), np.nan)
        for column, target in enumerate(self.targets):
            if target.reading == "direct" and scores:
                values[:, column] = _summed(scores, self._tokens_of(target, scores[0]))
        return values

    def tokens(
        self, masks: MaskArray, claim: Claim | None = None, *, hidden: bool = False
    ) -> tuple[NDArray[np.int64], FloatArray]:
        """Offsets ``(n_tokens, 2)`` into the response and log-probabilities ``(n_masks, n_tokens)``.

        Of the whole response, or of one claim scored without the earlier ones. NaN in rows that do not fit. With
        ``hidden``, removed segments are hidden, not deleted.
        """
        fits = self.fits(masks)
        continuation, begins = (self._response, 0) if claim is None else (self._text_of(claim), claim.start)
        scores = (self._score_hidden if hidden else self._score)(masks[fits], continuation)
        if not scores:
            raise ContextTooLongError(
                f"generation {self._generation.id} does not fit the model's window even without its context; "
                "use a model with a larger one"
            )
        logprobs = np.full((len(masks), len(scores[0].logprobs)), np.nan)
        logprobs[fits] = [score.logprobs for score in scores]
        return scores[0].offsets + begins, logprobs

    def _score(self, masks: MaskArray, continuation: str) -> list[TokenScores]:
        """Exact; all kept is read off the cached prompt where there will be one, which saves a pass over all of it."""
        whole: MaskArray = np.asarray(masks.all(axis=1), dtype=np.bool_)
        if not whole.any() or self._screen is not self._engine or not hasattr(self, "hidden"):
            return self._engine.score(ablations(self._generation, self._segments, masks), continuation)
        cached = iter(self._score_hidden(masks[whole], continuation))
        deleted = iter(self._engine.score(ablations(self._generation, self._segments, masks[~whole]), continuation))
        return [next(cached if is_whole else deleted) for is_whole in whole.tolist()]

    def _score_hidden(self, masks: MaskArray, continuation: str) -> list[TokenScores]:
        prompt = self._generation.prompt
        found: list[TokenScores] = self._screen.score_hidden(prompt, self._segments, masks, continuation)
        return found

    def _within(self, target: Target) -> tuple[int, int]:
        """The target's span in the continuation that it is read from."""
        claim = self._claim_of(target)
        begins = 0 if claim is None else claim.start
        return target.start - begins, target.end - begins

    def _continuations(self) -> dict[str, list[int]]:
        columns: dict[str, list[int]] = {}
        for column, target in enumerate(self.targets):
            claim = self._claim_of(target)
            columns.setdefault(self._response if claim is None else self._text_of(claim), []).append(column)
        return columns

    def _claim_of(self, target: Target) -> Claim | None:
        """The claim that a total target is scored in; ``None`` for a direct one."""
        if target.reading == "direct":
            return None
        if target.claim is None or target.claim >= len(self._claims):
            raise InputError(f"the total target {target.text!r} belongs to no claim; give its claim")
        return self._claims[target.claim]

    def _text_of(self, claim: Claim) -> str:
        return self._response[claim.start : claim.end]

    def _tokens_of(self, target: Target, score: TokenScores) -> NDArray[np.bool_]:
        claim = self._claim_of(target)
        return tokens_of(target, score.offsets, begins=0 if claim is None else claim.start)


def can_hide(engine: object, generation: Generation, segments: Sequence[Segment], response: str) -> bool:
    """Whether the engine offers hidden masks and gradients, for this very prompt; forwards nothing.

    Some templates rewrite what segments say, and prompts may exceed the window: then segments can only be deleted.
    """
    if not offered(engine) >= SCREENS:
        return False
    if isinstance(engine, SizesTails):
        try:
            engine.tail_size(generation.prompt, segments, response)
        except (SegmentationError, ContextTooLongError):
            return False
    return True


def _summed(scores: Sequence[TokenScores], inside: NDArray[np.bool_]) -> FloatArray:
    return log_odds(np.array([score.logprobs[inside].sum() for score in scores]))
