"""Log-odds of the expected answer over those of the recorded one: who leads the model right, and who misleads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import InputError
from attr_core.protocols import Capability, Embeds, Engine, ScoringEngine, TokenScores
from attr_core.results import FloatArray, MaskArray
from attr_core.types import Claim, Generation, Segment, Target, TargetKind
from attr_core.values.response_log_odds import ResponseLogOdds

__all__ = ["ReferenceContrast", "reference_target"]


class ReferenceContrast:
    """v(S) = log-odds of the expected answer less log-odds of the recorded response, both shown only the segments in S.

    Unit: nats. A segment that raises it speaks for the expected answer (``helpful``), one that lowers it for what was
    answered instead (``harmful``: it misleads). Where nobody says that the other answer is right, a foil, these read
    ``drives`` and ``opposes``. Both texts are teacher-forced as wholes, so their lengths and wording
    count: give the expected answer in the words that the model would use. Cost: two scored prompts per mask, one for
    each text; ``hidden`` and ``gradients`` are offered where the engine offers them.

    Parameters
    ----------
    engine : ScoringEngine
    generation : Generation
    segments : sequence of Segment, length n_segments
    response : str
        What was recorded.
    expected : str
        What should have been answered, or any other answer.
    knows_right : bool, default True
        Whether ``expected`` is right.
    targets : sequence of Target
        What :func:`reference_target` gives, or nothing.
    claims : sequence of Claim
    screen : Engine, optional
    embedder : Embeds, optional
        Both as for :class:`ResponseLogOdds`.

    Raises
    ------
    InputError
        One of the texts is empty, or both are the same: then nothing can be told apart.

    References
    ----------
    Our own; the contrast of two continuations' log-probabilities is that of Yin and Neubig, Interpreting Language
    Models with Contrastive Explanations, EMNLP 2022 (arXiv:2202.10419), taken over ablations instead of gradients.
    """

    name: ClassVar[str] = "ReferenceContrast"
    unit: ClassVar[str] = "nats"
    floor: ClassVar[float] = 1.0
    needs: ClassVar[frozenset[Capability]] = ResponseLogOdds.needs

    def __init__(
        self,
        engine: ScoringEngine,
        generation: Generation,
        *,
        segments: Sequence[Segment],
        response: str,
        expected: str,
        knows_right: bool = True,
        targets: Sequence[Target] = (),
        claims: Sequence[Claim] = (),
        screen: Engine | None = None,
        embedder: Embeds | None = None,
    ) -> None:
        if " ".join(expected.split()) == " ".join(response.split()):
            named = "the expected answer" if knows_right else "the other answer"
            raise InputError(f"{named} is what was answered; there is nothing to tell apart")
        self.knows_right = knows_right
        self.targets = tuple(targets)
        self._again = partial(
            ReferenceContrast,
            engine,
            generation,
            segments=segments,
            response=response,
            expected=expected,
            knows_right=knows_right,
            claims=claims,
            screen=screen,
            embedder=embedder,
        )
        self._recorded, self._expected = (
            ResponseLogOdds(
                engine,
                generation,
                segments=segments,
                response=text,
                targets=[Target(TargetKind.RESPONSE, 0, len(text), text)],
                claims=claims,
                screen=screen,
                embedder=embedder,
            )
            for text in (response, expected)
        )
        if hasattr(self._recorded, "hidden"):
            self.hidden: Callable[[MaskArray], FloatArray] = self._hidden
            self.gradients: Callable[[FloatArray], FloatArray] = self._gradients

    def with_targets(self, targets: Sequence[Target]) -> ReferenceContrast:
        """The same measurement for other targets."""
        return self._again(targets=targets)

    @property
    def n_segments(self) -> int:
        """Columns of a mask."""
        return self._recorded.n_segments

    @property
    def n_targets(self) -> int:
        """Columns of a value."""
        return len(self.targets)

    @property
    def scales(self) -> FloatArray:
        """Tokens of both texts together ``(n_targets,)``."""
        return np.repeat(self._recorded.scales + self._expected.scales, self.n_targets)

    @property
    def alike(self) -> tuple[tuple[int, ...], ...]:
        """Groups of columns whose texts are nearly the same."""
        return self._recorded.alike

    @property
    def paraphrases(self) -> tuple[tuple[int, ...], ...]:
        """Groups of columns whose texts may say the same in other words."""
        return self._recorded.paraphrases

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Columns of each document."""
        return self._recorded.groups

    def prices(self, masks: MaskArray) -> NDArray[np.int64]:
        """About how many tokens ``exact`` forwards for each mask ``(n_masks,)``, for each of the two texts."""
        return self._recorded.prices(masks)

    def fits(self, masks: MaskArray) -> MaskArray:
        """Which masks ``(n_masks,)`` leave a prompt that fits the model's window together with the longer text."""
        return self._recorded.fits(masks) & self._expected.fits(masks)

    def exact(self, masks: MaskArray) -> FloatArray:
        """Contrast ``(n_masks, n_targets)`` under each mask; NaN where it does not fit."""
        return self._repeated(self._expected.exact(masks) - self._recorded.exact(masks))

    def read(self, scores: Sequence[TokenScores]) -> FloatArray:
        """NaN ``(n_scores, n_targets)``: scores of the recorded response alone are no contrast."""
        return np.full((len(scores), self.n_targets), np.nan)

    def tokens(
        self, masks: MaskArray, claim: Claim | None = None, *, hidden: bool = False
    ) -> tuple[NDArray[np.int64], FloatArray]:
        """Of the recorded response, as :meth:`ResponseLogOdds.tokens`."""
        return self._recorded.tokens(masks, claim, hidden=hidden)

    def _hidden(self, masks: MaskArray) -> FloatArray:
        return self._repeated(self._expected.hidden(masks) - self._recorded.hidden(masks))

    def _gradients(self, gates: FloatArray) -> FloatArray:
        slopes = self._expected.gradients(gates) - self._recorded.gradients(gates)
        return np.repeat(slopes, self.n_targets, axis=1)

    def _repeated(self, values: FloatArray) -> FloatArray:
        return np.repeat(values, self.n_targets, axis=1)


def reference_target(expected: str) -> Target:
    """The one target of a contrast: the expected answer."""
    return Target(TargetKind.REFERENCE, 0, len(expected), expected)
