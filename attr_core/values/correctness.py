"""Share of the expected claims that an answer states which is generated anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from attr_core._text.refusals import declines
from attr_core.claims import split_claims
from attr_core.errors import ConfigurationError, InputError
from attr_core.outcomes import Outcome, outcome_of
from attr_core.protocols import Capability, Engine, Judge, Sampling
from attr_core.results import Cost, FloatArray, MaskArray, SupportVerdict
from attr_core.types import Claim, Generation, Segment, Target
from attr_core.values._documents import document_groups
from attr_core.values._judging import ask, judgements
from attr_core.values._regenerating import Regenerations

__all__ = ["Correctness"]


@dataclass(frozen=True, slots=True)
class _Mark:
    """What one answer amounts to, by the majority of judgements and by each."""

    value: float
    outcome: Outcome
    each: tuple[float, ...] = ()


@dataclass(slots=True)
class _Marks:
    """Of every answer that was judged, and what that took."""

    known: dict[str, _Mark] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    notes: tuple[str, ...] = ()
    reasons: dict[str, str] = field(default_factory=dict)


class Correctness:
    """v(S) = share of the expected claims that the model states when it is shown only the segments in S.

    Unit: share of expected claims stated. The answer is generated anew under each mask and a judge says whether it
    entails each claim of the expected answer. One that contradicts any of them is 0, and so is one that says nothing:
    it is not right, whatever :meth:`outcomes` calls it. Where the judge could not say, the value is NaN. Positive is
    ``helpful``, negative ``harmful``.
    Cost: one generation per mask, and ``n_expected_claims`` verdicts per answer that differs from all before,
    ``repeats`` times; the answers of one call are judged together. What was generated and judged is kept for as long
    as this object or one made from it lives.

    ``floor`` is 0.2. :meth:`noise` tells how far values of one and the same prompt lie apart, by the model that answers
    anew and by the judge whose repeats differ; the margin is twice that where it is more.

    Parameters
    ----------
    engine : Engine that generates
    generation : Generation
        The call whose prompt is ablated.
    segments : sequence of Segment, length n_segments
        The columns of every mask.
    response : str
        What was recorded; it is not judged here.
    expected : str
        What should have been answered.
    judge : Judge
        One that repeats itself (``LLMJudge(engine, repeats=3)``) is asked once.
    targets : sequence of Target
        What :func:`~attr_core.values.reference_target` gives, or nothing.
    question : str, optional
        What both answers answer.
    wanted : sequence of Claim, optional
        What has to be stated; by default the sentences of ``expected``.
    sampling : Sampling
        How to generate.
    repeats : int, default 3
        Judgements wanted. A judge that remembers what it said gives one.

    Raises
    ------
    InputError
        The expected answer is empty.
    ConfigurationError
        ``repeats`` is not positive.

    References
    ----------
    Ru et al., RAGChecker, 2024 (arXiv:2408.08067), section 3: claim recall of an answer. Over ablations it is ours.

    Examples
    --------
    >>> from attr_core.testing import ScriptedEngine, ScriptedJudge
    >>> from attr_core.types import Location, Message, SegmentKind, TargetKind
    >>> fact = "It opened in 1911."
    >>> segment = Segment("c0", SegmentKind.RETRIEVED, fact, (Location(0, 0, len(fact)),))
    >>> engine = ScriptedEngine(lambda prompt: fact if fact in prompt.messages[0].content else "In 1937.")
    >>> judge = ScriptedJudge({(fact, fact): SupportVerdict.ENTAILS})
    >>> generation = Generation((Message("user", f"{fact} When did it open?"),), fact)
    >>> value = Correctness(
    ...     engine,
    ...     generation,
    ...     segments=[segment],
    ...     response=fact,
    ...     expected=fact,
    ...     judge=judge,
    ...     targets=[Target(TargetKind.REFERENCE, 0, len(fact), fact)],
    ... )
    >>> value.exact(np.array([[True], [False]])).tolist()
    [[1.0], [0.0]]
    """

    name: ClassVar[str] = "Correctness"
    unit: ClassVar[str] = "share of expected claims stated"
    floor: ClassVar[float] = 0.2
    knows_right: ClassVar[bool] = True
    needs: ClassVar[frozenset[Capability]] = frozenset({Capability.GENERATE})

    def __init__(
        self,
        engine: Engine,
        generation: Generation,
        *,
        segments: Sequence[Segment],
        response: str,
        expected: str,
        judge: Judge,
        targets: Sequence[Target] = (),
        claims: Sequence[Claim] = (),
        question: str | None = None,
        wanted: Sequence[Claim] | None = None,
        sampling: Sampling = Sampling(),
        repeats: int = 3,
    ) -> None:
        if not expected.strip():
            raise InputError("the expected answer is empty; say what should have been answered")
        if repeats < 1:
            raise ConfigurationError(f"{repeats=} judgements cannot be made; ask for 1 or more")
        self._engine = engine
        self._generation = generation
        self._segments = tuple(segments)
        self._response = response
        self._expected = expected
        self._judge = judge
        self._question = question
        self._wanted = tuple(split_claims(expected) if wanted is None else wanted)
        self._sampling = sampling
        self._repeats = repeats
        self.targets = tuple(targets)
        self._regenerations = Regenerations(engine, generation, segments, sampling)
        self._marks = _Marks()

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
        """Ones ``(n_targets,)``: shares are comparable as they are."""
        return np.ones(self.n_targets)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Columns of each document, as for :class:`ResponseLogOdds`."""
        return document_groups(self._segments)

    @property
    def cost(self) -> Cost:
        """What the judge took so far; what the engine took, its own account says."""
        return self._marks.cost

    def with_targets(self, targets: Sequence[Target]) -> Correctness:
        """The same answers and verdicts for other targets; generates and judges nothing anew."""
        made = Correctness(
            self._engine,
            self._generation,
            segments=self._segments,
            response=self._response,
            expected=self._expected,
            judge=self._judge,
            targets=targets,
            question=self._question,
            wanted=self._wanted,
            sampling=self._sampling,
            repeats=self._repeats,
        )
        made._regenerations, made._marks = self._regenerations, self._marks
        return made

    def fits(self, masks: MaskArray) -> MaskArray:
        """Which masks ``(n_masks,)`` leave a prompt that fits the model's window with room for an answer."""
        return self._regenerations.fits(masks)

    def exact(self, masks: MaskArray) -> FloatArray:
        """Share stated ``(n_masks, n_targets)`` under each mask; one generation per mask that fits, NaN for the others.

        Raises
        ------
        EngineError, BudgetExceededError
            The engine failed, or the judge answered nothing at all.
        """
        values = np.full((len(masks), self.n_targets), np.nan)
        fits = self.fits(masks)
        if fits.any():
            found = [mark.value for mark in self._judged(self.regenerations(masks[fits]))]
            values[fits] = np.array(found)[:, None]
        return values

    def regenerations(self, masks: MaskArray) -> list[str]:
        """What the model says under each mask; one generation for each mask that was not asked for before."""
        return self._regenerations.texts(masks)

    def outcomes(self, masks: MaskArray) -> list[Outcome]:
        """What the answer under each mask amounts to: ``right``, ``incomplete``, ``wrong``, ``refused``.

        ``undetermined`` where the judge could not say.
        """
        return [mark.outcome for mark in self._judged(self.regenerations(masks))]

    def repeats(self, n: int) -> FloatArray:
        """Values ``(n, n_targets)`` of further answers to the prompt with every segment; NaN where it does not fit."""
        values = np.full((max(n, 0), self.n_targets), np.nan)
        if texts := self._regenerations.again(n):
            values[:] = np.array([mark.value for mark in self._judged(texts)])[:, None]
        return values

    def noise(self, n: int) -> FloatArray:
        """How far values of the unchanged prompt lie apart ``(n_targets,)``, as a standard deviation.

        Of ``n`` further answers and the first, and of the judge's repeats on one answer, averaged over all answers;
        together as independent errors. NaN where neither was measured.
        """
        whole = np.ones((1, self.n_segments), dtype=np.bool_)
        values = np.concatenate([self.exact(whole), self.repeats(n)])[:, :1]
        values = values[np.isfinite(values)]
        parts = [float(values.var(ddof=1))] if n > 0 and len(values) > 1 else []
        parts += [] if np.isnan(judge := self._judge_variance()) else [judge]
        return np.full(self.n_targets, np.sqrt(sum(parts)) if parts else np.nan)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said with the values."""
        marks, notes = self._marks, list(self._marks.notes)
        unsaid = [text for text, mark in marks.known.items() if mark.outcome == "undetermined"]
        if unsaid:
            why = next((marks.reasons[text] for text in unsaid if marks.reasons.get(text)), "no reason given")
            notes.append(f"the judge could not say of {len(unsaid)} of {len(marks.known)} answers: {why}")
        refused = [mark for mark in marks.known.values() if mark.outcome is Outcome.REFUSED]
        if refused:
            notes.append(f"{len(refused)} of {len(marks.known)} different answers say nothing: they count as not right")
        if any(mark.each for mark in marks.known.values()) and np.isnan(self._judge_variance()):
            notes.append("how far the judge's verdicts differ was not measured: it gave one judgement; see its repeats")
        return tuple(notes)

    def _judge_variance(self) -> float:
        """Of the value of one answer over the judge's repeats, averaged over the answers; NaN without repeats."""
        each = [np.array(mark.each)[np.isfinite(mark.each)] for mark in self._marks.known.values()]
        found = [float(values.var(ddof=1)) for values in each if len(values) > 1]
        return float(np.mean(found)) if found else float("nan")

    def _judged(self, texts: Sequence[str]) -> list[_Mark]:
        """What each text amounts to; those that were not judged before are judged together."""
        marks = self._marks
        new = [text for text in dict.fromkeys(texts) if text not in marks.known]
        asked = [text for text in new if text.strip() and not declines(text)]
        marks.known |= {text: _Mark(0.0, Outcome.REFUSED) for text in new if text not in asked}
        if asked:
            columns = [Segment.quoted(f"a{n}", text) for n, text in enumerate(asked)]
            found = ask(self._judge, self._wanted, columns, question=self._question, repeats=self._repeats)
            marks.cost += found.cost
            marks.notes = tuple(dict.fromkeys([*marks.notes, *found.notes]))
            tables = judgements(found)
            for column, text in enumerate(asked):
                value, outcome = _mark(found.verdicts[:, column])
                marks.known[text] = _Mark(value, outcome, tuple(_mark(table[:, column])[0] for table in tables))
                marks.reasons[text] = next(filter(None, map(str, found.rationale[:, column])), "")
        return [marks.known[text] for text in texts]


def _mark(said: NDArray[np.str_]) -> tuple[float, Outcome]:
    """The share and the outcome of an answer, from what it says of each expected claim."""
    outcome = outcome_of(said.tolist(), is_wanted=True)
    if outcome is Outcome.UNDETERMINED:
        return float("nan"), outcome
    return (0.0 if outcome is Outcome.WRONG else float((said == SupportVerdict.ENTAILS).mean())), outcome
