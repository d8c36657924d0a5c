"""What is attributed: the rows of an attribution, of which pivots are found by reading the response's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attr_core._setup import Setup
from attr_core.pivots import MIN_SHARE, find_pivots, tokens_in
from attr_core.results import FloatArray, MaskArray, Route, Verdict
from attr_core.types import Claim, Target, TargetKind
from attr_core.values import ReferenceContrast, ResponseLogOdds, reference_target

__all__ = ["Reading", "generated_targets", "read", "routes_of", "scored_targets"]

_DRIVING = (Verdict.DRIVES.value, Verdict.HELPFUL.value)


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Token log-probabilities with every segment, with none, and under the ablations ``(n_masks, n_tokens)``.

    Of the response, or of one claim on its own. ``full`` is NaN where the full prompt does not fit.
    """

    claim: Claim | None
    offsets: NDArray[np.int64]
    full: FloatArray
    closed_book: FloatArray
    ablated: FloatArray

    @property
    def shown(self) -> FloatArray:
        """``full``, or the mean over the ablations where the full prompt does not fit."""
        if not np.isnan(self.full).any():
            return self.full
        return self.ablated.mean(axis=0) if len(self.ablated) else self.closed_book

    def pivots(self, response: str, claim: Claim, floor: float) -> tuple[Target, ...]:
        return find_pivots(
            response,
            [claim],
            self.offsets,
            full=self.shown,
            closed_book=self.closed_book,
            ablated=self.ablated,
            floor=floor,
        )

    def change(self, target: Target) -> float:
        inside = tokens_in(self.offsets, target.start, target.end)
        return abs(float((self.shown - self.closed_book)[inside].sum()))


def read(setup: Setup, value: ResponseLogOdds | ReferenceContrast, ends: MaskArray, masks: MaskArray) -> list[Reading]:
    """The response first, then each claim with a total reading; ``masks`` are those that the estimator measures."""
    readings = []
    hidden = setup.estimator.fidelity == "hidden" and setup.screen is None  # another model has other tokens
    deleted = masks[:0] if setup.estimator.fidelity == "hidden" else masks
    for claim in (None, *setup.totals):
        value.tokens(ends, claim)  # first, since without these an interrupted run could say nothing
        offsets, logprobs = value.tokens(np.concatenate([ends, deleted]), claim)
        ablated = value.tokens(masks, claim, hidden=True)[1] if hidden and len(masks) else logprobs[2:]
        ablated = ablated[~np.isnan(ablated).any(axis=1)]
        readings.append(Reading(claim, offsets, logprobs[0], logprobs[1], ablated))
    return readings


def scored_targets(setup: Setup, readings: Sequence[Reading], *, floor: float) -> tuple[Target, ...]:
    """Each claim's pivots and the claim, both readings of each; the named spans; the whole response.

    A tool call has its name and values, and the pivots inside these: what the call's syntax changes is no finding.
    """
    if setup.expected is not None:
        return (reference_target(setup.expected),)
    whole, *alone = readings
    totals = {reading.claim.index: reading for reading in alone if reading.claim is not None}
    rows: list[Target] = []
    for claim in setup.chosen:
        values = [value for value in setup.values if value.claim == claim.index]
        values = [value for value in values if tokens_in(whole.offsets, value.start, value.end).any()]
        rows += values
        is_call = claim.index >= len(setup.claims) - len(setup.generation.tool_calls)
        for part in [Claim(claim.index, v.start, v.end, v.text) for v in values] if is_call else [claim]:
            pivots = _pivots(setup.response, part, whole, totals.get(claim.index), floor=floor)
            rows += [pivot for pivot in pivots if not is_call or pivot.text != part.text]
        rows.append(Target(TargetKind.CLAIM, claim.start, claim.end, claim.text, claim.index))
    rows += [span for span in setup.spans if span not in rows]
    rows.append(Target(TargetKind.RESPONSE, 0, len(setup.response), setup.response))
    both: list[Target] = []
    for row in rows:
        both += [replace(row, reading="total")] if row.claim in totals else []
        both.append(row)
    return tuple(both)


def _pivots(response: str, claim: Claim, direct: Reading, total: Reading | None, *, floor: float) -> tuple[Target, ...]:
    """Pivots of the total reading, and those of the direct one that change as much; of two that overlap, the first."""
    found = () if total is None else total.pivots(response, claim, floor)
    bar = max([floor, *(MIN_SHARE * total.change(pivot) for pivot in found if total is not None)])
    found += tuple(
        new
        for new in direct.pivots(response, claim, bar)
        if all(new.end <= old.start or new.start >= old.end for old in found)
    )
    return tuple(sorted(found, key=lambda pivot: pivot.start))


def generated_targets(setup: Setup) -> tuple[Target, ...]:
    """Each claim, the named spans and the whole response; what is generated anew has no pivots, and one reading.

    Where answers are held against an expected one, that alone.
    """
    if setup.expected is not None:
        return (reference_target(setup.expected),)
    claims = [Target(TargetKind.CLAIM, claim.start, claim.end, claim.text, claim.index) for claim in setup.chosen]
    whole = Target(TargetKind.RESPONSE, 0, len(setup.response), setup.response)
    return (*claims, *setup.spans, whole)


def routes_of(targets: Sequence[Target], effects: FloatArray, verdicts: NDArray[np.str_]) -> tuple[Route, ...]:
    """By way of which earlier claim a segment drives a later one.

    That is where it drives in total, but given the earlier claims less than half of its effect is left. The way is the
    first earlier claim that the segment drives.
    """
    driven: dict[int, set[int]] = {}
    for row, target in enumerate(targets):
        if target.claim is not None and (target.reading == "total" or target.claim == 0):
            driven.setdefault(target.claim, set()).update(np.flatnonzero(np.isin(verdicts[row], _DRIVING)).tolist())
    routes = []
    for row, target in enumerate(targets):
        if target.reading != "total" or target.claim is None:
            continue
        direct = targets.index(replace(target, reading="direct"))
        for segment in np.flatnonzero(np.isin(verdicts[row], _DRIVING) & (effects[direct] < effects[row] / 2)).tolist():
            way = next((k for k in sorted(driven) if k < target.claim and segment in driven[k]), None)
            routes += [Route(row, segment, way)] if way is not None else []
    return tuple(routes)
