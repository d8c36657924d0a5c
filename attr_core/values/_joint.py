"""Which segments entail a claim only together, asked of a judge in at most three tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attr_core.protocols import Judge
from attr_core.results import Cost, FloatArray, MaskArray, Support, SupportVerdict
from attr_core.types import Claim, Segment
from attr_core.values._judging import ask, disagreement, judgements

__all__ = ["Joint", "is_open", "joined", "joint_of"]

ENTAILS, UNDETERMINED = SupportVerdict.ENTAILS.value, SupportVerdict.UNDETERMINED.value


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """What entails a claim that no segment entails alone: more is never less.

    Nothing without all of ``needed`` ``(n_segments,)`` does; every superset of a row of ``enough`` ``(n_sets,
    n_segments)`` does; of the rest nothing is known. ``noise`` is how far judgements differ.
    """

    needed: MaskArray
    enough: MaskArray
    noise: float

    def values(self, masks: MaskArray) -> FloatArray:
        """1 where the kept segments entail the claim, 0 where they do not, NaN where nobody knows ``(n_masks,)``."""
        found = np.full(len(masks), np.nan)
        found[(masks.sum(axis=1) < 2) | ~_holds(masks, self.needed)] = 0.0
        for row in self.enough:
            found[_holds(masks, row)] = 1.0
        return found

    @property
    def is_known(self) -> bool:
        """Whether of every subset it is known whether it entails the claim."""
        return bool((self.enough <= self.needed).all(axis=1).any())


def is_open(verdicts: Sequence[str]) -> bool:
    """Whether a claim with these verdicts, one per segment, is worth asking about the segments together.

    None entails it, and all are neutral or more than one is not.
    """
    touching = sum(verdict != SupportVerdict.NEUTRAL for verdict in verdicts)
    return len(verdicts) > 1 and SupportVerdict.ENTAILS not in verdicts and touching != 1


def joined(segments: Sequence[Segment], mask: MaskArray) -> Segment:
    """The kept segments as one text."""
    kept = [segment.text for segment, keep in zip(segments, mask, strict=True) if keep]
    return Segment.quoted("together", "\n\n".join(kept))


def joint_of(
    judge: Judge, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None, repeats: int
) -> tuple[list[Joint | None], Cost]:
    """For each claim what entails it together; ``None`` where all segments together do not.

    All segments are judged as one text; for claims that this entails, all but each; and at last those alone without
    which it does not. Cost: tables of ``n_claims * (1 + n_segments)`` and ``n_claims**2`` cells, the first with texts
    as long as the whole context.
    """
    n = len(segments)
    everything, singles = np.ones((1, n), dtype=np.bool_), ~np.eye(n, dtype=np.bool_)
    whole = _asked(judge, claims, segments, everything, question, repeats)
    says = whole.verdicts[:, 0]
    found: list[Joint | None] = [None] * len(claims)
    for row in np.flatnonzero(says == UNDETERMINED).tolist():
        found[row] = Joint(np.zeros(n, dtype=np.bool_), everything[:0], float(_noise(whole)[row]))
    rows = np.flatnonzero(says == ENTAILS).tolist()
    if not rows:
        return found, whole.cost
    without = _asked(judge, [claims[row] for row in rows], segments, singles, question, repeats)
    still, lost = without.verdicts == ENTAILS, ~np.isin(without.verdicts, (ENTAILS, UNDETERMINED))
    least = ~still
    sets = np.unique(least[least.sum(axis=1) < n - 1], axis=0)
    sets = sets[sets.sum(axis=1) > 1]
    cost, alone = whole.cost + without.cost, None
    if len(sets):
        alone = _asked(judge, [claims[row] for row in rows], segments, sets, question, repeats)
        cost += alone.cost
    for place, row in enumerate(rows):
        enough = [everything, singles[still[place]]]
        if alone is not None:
            said = [(sets[column] == least[place]).all() for column in range(len(sets))]
            enough.append(sets[np.array(said) & (alone.verdicts[place] == ENTAILS)])
        noise = np.nanmax([0.0, _noise(whole)[row], _noise(without)[place]])
        found[row] = Joint(lost[place], np.concatenate(enough), float(noise))
    return found, cost


def _asked(
    judge: Judge,
    claims: Sequence[Claim],
    segments: Sequence[Segment],
    masks: MaskArray,
    question: str | None,
    repeats: int,
) -> Support:
    texts = [joined(segments, mask) for mask in masks]
    return ask(judge, claims, texts, question=question, repeats=repeats)


def _noise(support: Support) -> FloatArray:
    return disagreement(judgements(support))


def _holds(masks: MaskArray, wanted: MaskArray) -> MaskArray:
    """Which masks keep all of ``wanted``."""
    return np.asarray(masks[:, wanted].all(axis=1), dtype=np.bool_)
