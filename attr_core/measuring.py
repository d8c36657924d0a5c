"""A settled run -> an attribution: the targets, their effects and verdicts, and what is said beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np
from numpy.typing import NDArray

from attr_core import __version__
from attr_core._setup import Setup
from attr_core.attribution import Attribution
from attr_core.errors import EngineError
from attr_core.estimators import MIN_AGREEMENT
from attr_core.interventions import regenerate, sampling_like
from attr_core.metering import MeteredEngine
from attr_core.pivots import MIN_SHARE, find_pivots, tokens_in
from attr_core.prompt import ablate
from attr_core.results import Estimate, FloatArray, MaskArray, Regeneration, Route, Verdict
from attr_core.types import Claim, Target, TargetKind
from attr_core.values import ReferenceContrast, ResponseLogOdds, reference_target
from attr_core.verdicts import adjusted_p_values, margins, weigh

__all__ = ["IMPROBABLE", "measure"]

IMPROBABLE = -2.5
"""Mean log-probability per token, in nats, below which the measuring model is said to find the response improbable."""

NOISE_MARGIN = 2.0
"""δ is at least so many times the noise floor: what the engine does not reproduce is no effect."""

_DRIVING = (Verdict.DRIVES.value, Verdict.HELPFUL.value)


def measure(setup: Setup, metered: MeteredEngine, *, seed: int) -> Attribution:
    """Run what was settled.

    Parameters
    ----------
    setup : Setup
    metered : MeteredEngine
        Around the set-up's engine; it holds the caps.
    seed : int
        Of the random ablations.
    """
    n = len(setup.columns)
    untargeted = setup.algorithm.value(
        metered,
        setup.generation,
        segments=setup.columns,
        response=setup.response,
        targets=(),
        claims=setup.claims,
        screen=None if setup.screen is None else metered.alongside(setup.screen),
        expected=setup.expected,
    )
    ends = _ends(n)
    readings = _read(setup, untargeted, ends, seed)
    targets = _targets(setup, readings, floor=untargeted.floor)
    value = untargeted.with_targets(targets)
    estimate = setup.estimator.estimate(value, seed=seed)
    full, closed_book = value.exact(ends)
    noise = _noise(setup, metered, value, full=full, closed_book=closed_book)
    floor = max(value.floor, NOISE_MARGIN * float(np.nan_to_num(noise)))
    delta = _shared_margins(targets, margins(estimate.effects, floor=floor))
    p_values = adjusted_p_values(estimate, delta)
    verdicts = weigh(estimate, delta, p_values, knows_right=value.knows_right)
    whole = readings[0]
    tied = {column for columns in estimate.tied for column in columns}
    regenerated, trouble = _regenerate(
        setup, metered, value, estimate.effects, delta, response_tokens=len(whole.offsets)
    )
    return Attribution(
        method=f"{value.name} × {setup.estimator.name}",
        estimand=estimate.estimand or setup.estimator.estimand,
        unit=value.unit,
        trace_id=setup.trace.id,
        generation_id=setup.generation.id,
        response=setup.response,
        segments=setup.columns,
        claims=setup.claims,
        targets=targets,
        effects=estimate.effects,
        low=estimate.low,
        high=estimate.high,
        p_values=p_values,
        verdicts=verdicts,
        drops=estimate.drops,
        delta=delta,
        full=full,
        closed_book=closed_book,
        token_offsets=whole.offsets,
        token_full=whole.full,
        token_closed_book=whole.closed_book,
        exact=estimate.exact,
        cost=metered.cost,
        seed=seed,
        versions=_versions(),
        answered_by=setup.generation.model,
        measured_on=setup.engine.spec,
        level=estimate.level,
        groups=estimate.groups,
        pairs=estimate.pairs,
        routes=_routes(targets, estimate.effects, verdicts),
        n_unfit=estimate.n_unfit,
        noise_floor=noise,
        fit=estimate.fit,
        agreement=estimate.agreement,
        resolution=tuple("group" if column in tied else "individual" for column in range(n)),
        tied=estimate.tied,
        regenerated=regenerated,
        warnings=(
            *setup.notes,
            *trouble,
            *_warnings(setup, whole, regenerated, noise, value.floor),
            *_of_screen(targets, estimate),
        ),
        partial=estimate.partial,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
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


def _ends(n_segments: int) -> MaskArray:
    return np.array([[True] * n_segments, [False] * n_segments], dtype=np.bool_).reshape(2, n_segments)


def _read(setup: Setup, value: ResponseLogOdds | ReferenceContrast, ends: MaskArray, seed: int) -> list[_Reading]:
    """The response first, then each claim with a total reading."""
    readings = []
    masks = setup.estimator.ablations(value, seed=seed)  # measured for the estimate too, so these cost nothing more
    hidden = setup.estimator.fidelity == "hidden" and setup.screen is None  # another model has other tokens
    deleted = masks[:0] if setup.estimator.fidelity == "hidden" else masks
    for claim in (None, *setup.totals):
        offsets, logprobs = value.tokens(np.concatenate([ends, deleted]), claim)
        ablated = value.tokens(masks, claim, hidden=True)[1] if hidden and len(masks) else logprobs[2:]
        ablated = ablated[~np.isnan(ablated).any(axis=1)]
        readings.append(_Reading(claim, offsets, logprobs[0], logprobs[1], ablated))
    return readings


def _targets(setup: Setup, readings: Sequence[_Reading], *, floor: float) -> tuple[Target, ...]:
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


def _pivots(
    response: str, claim: Claim, direct: _Reading, total: _Reading | None, *, floor: float
) -> tuple[Target, ...]:
    """Pivots of the total reading, and those of the direct one that change as much; of two that overlap, the first."""
    found = () if total is None else total.pivots(response, claim, floor)
    bar = max([floor, *(MIN_SHARE * total.change(pivot) for pivot in found if total is not None)])
    found += tuple(
        new
        for new in direct.pivots(response, claim, bar)
        if all(new.end <= old.start or new.start >= old.end for old in found)
    )
    return tuple(sorted(found, key=lambda pivot: pivot.start))


def _routes(targets: Sequence[Target], effects: FloatArray, verdicts: NDArray[np.str_]) -> tuple[Route, ...]:
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


def _shared_margins(targets: Sequence[Target], delta: FloatArray) -> FloatArray:
    """δ ``(n_targets,)`` with both readings of the same words given the larger of their two."""
    words = [(target.kind, target.start, target.end) for target in targets]
    largest = {word: max(d for w, d in zip(words, delta, strict=True) if w == word) for word in words}
    return np.array([largest[word] for word in words])


def _regenerate(
    setup: Setup,
    metered: MeteredEngine,
    value: ResponseLogOdds | ReferenceContrast,
    effects: FloatArray,
    delta: FloatArray,
    *,
    response_tokens: int,
) -> tuple[tuple[Regeneration, ...], list[str]]:
    """What the model says anew, and what is to be said where it does not."""
    n = len(setup.columns)
    leading = [_leading(value.targets, effects, delta, claim) for claim in setup.chosen]
    removals = [(), tuple(range(n)), *((column,) for column in leading if column is not None)]
    masks = np.ones((len(removals), n), dtype=np.bool_)
    for row, columns in enumerate(removals):
        masks[row, list(columns)] = False
    fitting = [removed for removed, fits in zip(removals, value.fits(masks), strict=True) if fits]
    fitting = list(dict.fromkeys(fitting))[: setup.n_regenerations]
    if not fitting:
        return (), []
    sampling = sampling_like(setup.generation, response_tokens=response_tokens)
    try:
        found = regenerate(metered, setup.generation, segments=setup.columns, removals=fitting, sampling=sampling)
    except EngineError as error:  # what is measured is not lost for what cannot be generated
        return (), [f"the answer could not be generated anew: {error}"]
    apart = len(fitting) - len(found)
    told = f"{apart} of {len(fitting)} regenerations called tools, which the engine does not tell; they are left out"
    return found, [told] if apart else []


def _leading(targets: Sequence[Target], effects: FloatArray, delta: FloatArray, claim: Claim) -> int | None:
    """The column with the largest effect on the claim's pivots (on the claim itself if it has none), if beyond δ."""
    rows = [row for row, target in enumerate(targets) if target.claim == claim.index]
    rows = [row for row in rows if targets[row].kind is TargetKind.PIVOT] or rows
    beyond = [(effects[row, s], -s) for row in rows for s in range(effects.shape[1]) if effects[row, s] > delta[row]]
    return -max(beyond)[1] if beyond else None


def _noise(
    setup: Setup,
    metered: MeteredEngine,
    value: ResponseLogOdds | ReferenceContrast,
    *,
    full: FloatArray,
    closed_book: FloatArray,
) -> float:
    """Largest difference over the direct targets between one prompt's values in a batch, alone, and alone again."""
    kept, removed = _ends(len(setup.columns))
    # What was screened is cheap, so the check must be: it reads the prompt without its segments again.
    is_full = setup.estimator.fidelity == "exact" and value.fits(kept[None])[0]
    prompt = ablate(setup.generation, setup.columns, kept if is_full else removed)
    again = [metered.score([prompt], setup.response, repeat=repeat + 1)[0] for repeat in range(setup.n_repeats)]
    differences = np.abs(value.read(again) - (full if is_full else closed_book))
    return float(np.nanmax(differences)) if np.isfinite(differences).any() else float("nan")


def _warnings(
    setup: Setup, whole: _Reading, regenerated: Sequence[Regeneration], noise: float, floor: float
) -> list[str]:
    warnings: list[str] = []
    answered, measured = setup.generation.model, setup.engine.spec
    proxy = answered is not None and answered != measured
    if proxy:
        warnings.append(f"{answered} answered; {measured} measured as a proxy: causes are the proxy's")
    if not setup.columns:
        warnings.append("the prompt holds nothing but the question: there is no context to rank")
    mean = float(whole.shown.mean())
    if mean < IMPROBABLE:
        warnings.append(
            f"{measured} finds the response improbable ({np.exp(mean):.1%} a token): effects may not be those of the"
            " model that wrote it"
        )
    unchanged = next((again for again in regenerated if not again.removed), None)
    if unchanged is not None and not unchanged.same and not proxy:
        warnings.append("the unchanged prompt does not reproduce what was recorded")
    if NOISE_MARGIN * noise > floor:
        warnings.append(
            f"the engine does not reproduce its own numbers: one prompt's values differ by {noise:.2f}; the margin δ "
            "was raised to twice that"
        )
    return warnings


def _of_screen(targets: Sequence[Target], estimate: Estimate) -> list[str]:
    """What to say where hiding segments and deleting them came apart."""
    if estimate.agreement is None:
        return []
    low = np.flatnonzero(estimate.agreement < MIN_AGREEMENT).tolist()
    named = ", ".join(f"{targets[row].text[:40]!r}" for row in low[:3]) + (", …" if len(low) > 3 else "")
    unsure = np.isnan(estimate.error[low]).all(axis=1) if low else np.zeros(0, dtype=np.bool_)
    how = "verdicts there are left open" if unsure.any() else "more segments were deleted there"
    return [f"hiding segments does not stand for deleting them on {named}: {how}"] if low else []


def _versions() -> dict[str, str]:
    versions = {"attrkit": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for package in ("numpy", "scikit-learn", "torch", "transformers"):
        if {"scikit-learn": "sklearn"}.get(package, package) in sys.modules:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                continue
    return versions
