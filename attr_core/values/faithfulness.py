"""Share of the answer's claims that the kept segments support, by a judge's verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import ConfigurationError, InputError
from attr_core.protocols import Capability, Judge
from attr_core.results import Cost, FloatArray, MaskArray, RedundancyGroup, Support, SupportVerdict, Verdict
from attr_core.types import Claim, Generation, Segment, Target, TargetKind
from attr_core.values._documents import document_groups
from attr_core.values._joint import Joint, is_open, joint_of
from attr_core.values._judging import ask, disagreement, judgements

__all__ = ["Faithfulness"]


@dataclass(slots=True)
class _Table:
    """What the judge said, once it was asked: verdicts on claims by segments, and by segments together."""

    support: Support | None = None
    joint: list[Joint | None] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)


class Faithfulness:
    """v(S) = share of the target's claims that the judge finds supported by the segments in S.

    Unit: share of claims supported. The answer stays as it is: this says what the context supports, not what the model
    did with it. A claim is 1 while one kept segment entails it, else 0; so of two segments that both do, either will
    do: each alone takes nothing away, both together all (:meth:`redundancy`). A response is the mean over its claims, a
    span that over the claims it lies in. Positive is ``supports``, negative ``undermines``, never helpful or harmful: a
    misleading segment supports the wrong answer that it caused.
    Where the judge could not say of a segment, and nothing kept entails the claim, the value is NaN; such claims are
    left out of a response's share, and :attr:`notes` tells of both.
    Cost: one table of ``n_claims * n_segments`` verdicts for all masks, ``repeats`` times; with ``joint``, for claims
    that no segment entails alone, up to three tables more, on segments together.

    ``floor`` is 0.05. :meth:`noise` is how far the judge's repeats disagree; the margin is twice that where it is more.

    Parameters
    ----------
    judge : Judge
        One that repeats itself (``LLMJudge(engine, repeats=3)``) is asked once.
    generation : Generation
        The call that gave the answer.
    segments : sequence of Segment, length n_segments
        The columns of every mask.
    response : str
        What the spans of ``targets`` count in.
    targets : sequence of Target, length n_targets
    claims : sequence of Claim
        Those of the response.
    question : str, optional
        What the claims answer.
    repeats : int, default 3
        Judgements wanted. A judge that remembers what it said gives one.
    joint : bool, default True
        Whether to ask about segments together where none entails a claim alone, and all are neutral or more than one
        is not.

    Raises
    ------
    InputError
        The response is empty, or a target is no part of it.
    ConfigurationError
        ``repeats`` is not positive.

    References
    ----------
    Es et al., RAGAS: Automated Evaluation of Retrieval Augmented Generation, 2023 (arXiv:2309.15217), section 3: the
    share of claims supported by the whole context. Over subsets, and from one table, is ours.

    Examples
    --------
    >>> from attr_core.claims import split_claims
    >>> from attr_core.testing import ScriptedJudge
    >>> from attr_core.types import Location, Message, SegmentKind
    >>> texts = ["It opened in 1911.", "Lamps are sold there."]
    >>> segments = [Segment(text, SegmentKind.RETRIEVED, text, (Location(0, 0, len(text)),)) for text in texts]
    >>> judge = ScriptedJudge({("It opened in 1911.", "It opened in 1911."): SupportVerdict.ENTAILS})
    >>> answer = "It opened in 1911."
    >>> generation, claims = Generation((Message("user", "When?"),), answer), split_claims(answer)
    >>> whole = Target(TargetKind.RESPONSE, 0, len(answer), answer)
    >>> value = Faithfulness(
    ...     judge, generation, segments=segments, response=answer, targets=[whole], claims=claims
    ... )
    >>> value.exact(np.array([[True, True], [False, True]])).tolist()
    [[1.0], [0.0]]
    """

    name: ClassVar[str] = "Faithfulness"
    unit: ClassVar[str] = "share of claims supported"
    floor: ClassVar[float] = 0.05
    knows_right: ClassVar[bool] = False
    words: ClassVar[tuple[Verdict, Verdict]] = (Verdict.SUPPORTS, Verdict.UNDERMINES)
    needs: ClassVar[frozenset[Capability]] = frozenset()

    def __init__(
        self,
        judge: Judge,
        generation: Generation,
        *,
        segments: Sequence[Segment],
        response: str,
        targets: Sequence[Target] = (),
        claims: Sequence[Claim] = (),
        question: str | None = None,
        repeats: int = 3,
        joint: bool = True,
    ) -> None:
        if not response.strip():
            raise InputError(f"generation {generation.id} has an empty response; nothing can be attributed")
        if any(target.kind is TargetKind.REFERENCE for target in targets):
            raise InputError("an expected answer is no part of the response; use ReferenceContrast or Correctness")
        if repeats < 1:
            raise ConfigurationError(f"{repeats=} judgements cannot be made; ask for 1 or more")
        self._judge = judge
        self._generation = generation
        self._segments = tuple(segments)
        self._response = response
        self._claims = tuple(claims)
        self._question = question
        self._repeats = repeats
        self._joint = joint
        self.targets = tuple(targets)
        self._table = _Table()

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
        """What the judge took so far."""
        return self._table.cost

    @property
    def support(self) -> Support:
        """Each segment alone: verdicts ``(n_claims, n_segments)``, of the majority where there are repeats."""
        return self._judged().support or Support(self._empty(), self._empty())

    def with_targets(self, targets: Sequence[Target]) -> Faithfulness:
        """The same verdicts read out for other targets; asks nobody anew."""
        made = Faithfulness(
            self._judge,
            self._generation,
            segments=self._segments,
            response=self._response,
            targets=targets,
            claims=self._claims,
            question=self._question,
            repeats=self._repeats,
            joint=self._joint,
        )
        made._table = self._table
        return made

    def fits(self, masks: MaskArray) -> MaskArray:
        """All ``(n_masks,)``: a judge is asked about pieces."""
        return np.ones(len(masks), dtype=np.bool_)

    def exact(self, masks: MaskArray) -> FloatArray:
        """Share supported ``(n_masks, n_targets)`` under each mask; asks the judge if nobody has yet.

        Raises
        ------
        EngineError, BudgetExceededError
            The judge answered nothing at all.
        """
        masks = np.asarray(masks, dtype=np.bool_)
        values = np.full((len(masks), self.n_targets), np.nan)
        of_claims = self._of_claims(masks)
        for column, target in enumerate(self.targets):
            rows = self._rows(target)
            if rows:
                values[:, column] = of_claims[:, rows].mean(axis=1)
        return values

    def redundancy(self) -> tuple[RedundancyGroup, ...]:
        """For each target the segments of which each does without the others: all entail the same claim."""
        entails = self.support.verdicts == SupportVerdict.ENTAILS
        n, found = self.n_segments, []
        for number, target in enumerate(self.targets):
            alike = {tuple(np.flatnonzero(entails[row]).tolist()) for row in self._rows(target)}
            for members in sorted(group for group in alike if len(group) > 1):
                masks = np.ones((2 + len(members), n), dtype=np.bool_)
                masks[1, list(members)] = False
                masks[np.arange(2, 2 + len(members)), list(members)] = False
                values = self.exact(masks)[:, number]
                joint, summed = float(values[0] - values[1]), float((values[0] - values[2:]).sum())
                if joint - summed > self.floor:
                    found.append(RedundancyGroup(members, number, joint, summed))
        return tuple(found)

    def noise(self) -> FloatArray:
        """How far the judge's repeats disagree ``(n_targets,)``: the share of a claim's verdicts that differ.

        On average over pairs of judgements and over the target's claims; NaN where it was judged once.
        """
        table = self._judged()
        rows = disagreement(judgements(self.support)) if self._claims else np.zeros(0)
        rows = np.array([max(row, joint.noise if joint else 0.0) for row, joint in zip(rows, table.joint, strict=True)])
        targets = [self._rows(target) for target in self.targets]
        return np.array([rows[one].mean() if one else np.nan for one in targets], dtype=np.float64)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said with the values."""
        support = self.support
        notes = list(support.notes)
        unsaid = support.verdicts == SupportVerdict.UNDETERMINED
        if unsaid.any():
            why = next((str(reason) for reason in support.rationale[unsaid] if reason), "no reason given")
            notes.append(f"{int(unsaid.sum())} of {unsaid.size} verdicts are undetermined: {why}")
        left_out = int((~self._known()).sum())
        if left_out:
            notes.append(
                f"{left_out} of {len(self._claims)} claims could not be judged under every subset; they are left out of"
                " the response's share"
            )
        if self._claims and self._segments and len(judgements(support)) < 2:
            notes.append("how far the judge's verdicts differ was not measured: it gave one judgement; see its repeats")
        return tuple(notes)

    def _rows(self, target: Target) -> list[int]:
        """Claims that a target is about; of the whole response those of which all subsets are known."""
        if target.kind is TargetKind.RESPONSE:
            return np.flatnonzero(self._known()).tolist()
        return [row for row, claim in enumerate(self._claims) if claim.start < target.end and target.start < claim.end]

    def _known(self) -> MaskArray:
        """Claims ``(n_claims,)`` whose value is known under every subset."""
        table = self._judged()
        unsaid = (self.support.verdicts == SupportVerdict.UNDETERMINED).any(axis=1)
        open_ = [joint is not None and not joint.is_known for joint in table.joint]
        return np.asarray(~unsaid & ~np.array(open_, dtype=np.bool_), dtype=np.bool_)

    def _of_claims(self, masks: MaskArray) -> FloatArray:
        """1 or 0 ``(n_masks, n_claims)``, NaN where nobody knows."""
        verdicts, table = self.support.verdicts, self._judged()
        values = np.zeros((len(masks), len(self._claims)))
        for row, said in enumerate(verdicts):
            together = table.joint[row]
            if together is not None:
                values[:, row] = together.values(masks)
            unsaid = masks[:, said == SupportVerdict.UNDETERMINED].any(axis=1)
            values[unsaid & (values[:, row] != 1), row] = np.nan
            values[masks[:, said == SupportVerdict.ENTAILS].any(axis=1), row] = 1.0
        return values

    def _judged(self) -> _Table:
        table = self._table
        if table.support is not None:
            return table
        if not self._claims or not self._segments:
            table.support, table.joint = Support(self._empty(), self._empty()), [None] * len(self._claims)
            return table
        support = ask(self._judge, self._claims, self._segments, question=self._question, repeats=self._repeats)
        table.support, table.joint, table.cost = support, [None] * len(self._claims), support.cost
        rows = [row for row, said in enumerate(support.verdicts.tolist()) if is_open(said)] if self._joint else []
        if rows:
            claims = [self._claims[row] for row in rows]
            found, cost = joint_of(self._judge, claims, self._segments, question=self._question, repeats=self._repeats)
            table.cost += cost
            for row, joint in zip(rows, found, strict=True):
                table.joint[row] = joint
        return table

    def _empty(self) -> NDArray[np.str_]:
        return np.full((len(self._claims), self.n_segments), "", dtype="<U12")
