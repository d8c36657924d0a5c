"""A settled run -> an attribution: the targets, their effects and verdicts, and what is said beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from attr_core import __version__
from attr_core._setup import Setup
from attr_core._targets import Reading, generated_targets, read, routes_of, scored_targets
from attr_core.algorithms import Subject
from attr_core.attribution import REPRODUCED, Attribution
from attr_core.capabilities import is_free
from attr_core.errors import EngineError
from attr_core.estimators import MIN_AGREEMENT, ranked_from
from attr_core.estimators._known import estimate_known, rests_on_few
from attr_core.interventions import regenerate, sampling_like
from attr_core.judge import LikelihoodJudge, LLMJudge
from attr_core.metering import MeteredEngine
from attr_core.metrics import Metric, metric_named, token_overlap
from attr_core.prompt import ablate
from attr_core.protocols import HoldsPrompts, Judge, Sampling
from attr_core.results import Cost, Estimate, FloatArray, MaskArray, Regeneration, Verdict
from attr_core.types import Claim, Target, TargetKind
from attr_core.values import Correctness, Faithfulness, ReferenceContrast, ResponseLogOdds, ResponseSimilarity
from attr_core.verdicts import adjusted_p_values, margins, weigh

__all__ = ["IMPROBABLE", "MeasuringInterrupted", "answers_for", "measure", "versions"]

IMPROBABLE = -2.5
"""Mean log-probability per token, in nats, below which the measuring model is said to find the response improbable."""

NOISE_MARGIN = 2.0
"""δ is at least so many times the noise floor: what the engine does not reproduce is no effect."""

FEWEST = 4
"""Subsets that must have been measured for an interrupted run to say anything."""

_Value = ResponseLogOdds | ReferenceContrast | ResponseSimilarity | Faithfulness | Correctness


class MeasuringInterrupted(KeyboardInterrupt):
    """The run was interrupted; ``partial`` is what can be said of what was measured by then, which only ranks."""

    def __init__(self, partial: Attribution) -> None:
        super().__init__("interrupted; what was measured is kept")
        self.partial = partial


def measure(setup: Setup, metered: MeteredEngine, *, seed: int) -> Attribution:
    """Run what was settled.

    Parameters
    ----------
    setup : Setup
    metered : MeteredEngine
        Around the set-up's engine; it holds the caps.
    seed : int
        Of the random ablations.

    Raises
    ------
    MeasuringInterrupted
        A keyboard interrupt came when enough was measured for a partial result.
    """
    value = setup.algorithm.value(metered, _subject(setup, metered))
    try:
        return _measure(setup, metered, value, seed=seed)
    except KeyboardInterrupt as stopped:
        partial = _partial(setup, metered, seed=seed)
        if partial is None:
            raise
        raise MeasuringInterrupted(partial) from stopped


def _subject(setup: Setup, metered: MeteredEngine) -> Subject:
    metric: str | Metric = token_overlap if setup.metric is None else setup.metric
    if isinstance(metric, str):
        metric = metric_named(metric, None if setup.embedder is None else metered.alongside(setup.embedder))
    return Subject(
        setup.generation,
        segments=setup.columns,
        response=setup.response,
        claims=setup.claims,
        screen=None if setup.screen is None else metered.alongside(setup.screen),
        embedder=None if setup.embedder is None else metered.alongside(setup.embedder),
        expected=setup.expected,
        metric=metric,
        sampling=setup.sampling,
        judge=_judge(setup, metered),
        question=setup.question,
    )


def _judge(setup: Setup, metered: MeteredEngine) -> Judge | None:
    """The set-up's judge, on this run's account and cache unless it came with its own."""
    if setup.judge_engine is None:
        return setup.judge
    engine = metered.alongside(setup.judge_engine)
    if isinstance(setup.judge, LikelihoodJudge):
        return LikelihoodJudge(engine)
    return LLMJudge(engine, repeats=getattr(setup.algorithm, "repeats", 1))


def _partial(setup: Setup, metered: MeteredEngine, *, seed: int) -> Attribution | None:
    """What can be said of the subsets that were measured, if they are enough; measures nothing that costs.

    A screen is over before anybody gets to interrupt it, and says nothing in between; a judge would have to be asked.
    """
    if setup.estimator.fidelity == "hidden" or setup.judge is not None:
        return None
    known, smaller = metered.only_known(), replace(setup, totals=(), n_repeats=0, n_regenerations=0)
    try:
        subject = _subject(smaller, known)
        if isinstance(setup.metric, str) and setup.embedder is not None and is_free(setup.embedder):
            subject = replace(subject, metric=metric_named(setup.metric, metered.alongside(setup.embedder)))
        value = setup.algorithm.value(known, subject)
        value = value.with_targets(generated_targets(smaller) if setup.expected is None else ())
        asked = np.concatenate([_ends(len(setup.columns)), setup.estimator.ablations(value, seed=seed)])
        masks = asked[np.sort(np.unique(asked, axis=0, return_index=True)[1])]
        measured = masks[[_is_measured(value, mask) for mask in masks]]
        told = f"interrupted when {len(measured)} of {len(masks)} subsets were measured: this only ranks"
        smaller = replace(smaller, notes=(*setup.notes, told))
        return _measure(smaller, known, value, seed=seed, masks=measured) if len(measured) >= FEWEST else None
    except Exception:  # whatever it is, the interrupt is what is to be told
        return None


def _is_measured(value: _Value, mask: MaskArray) -> bool:
    try:
        return bool(np.isfinite(value.exact(mask[None])).all())
    except EngineError:
        return False


def _measure(
    setup: Setup, metered: MeteredEngine, value: Any, *, seed: int, masks: MaskArray | None = None
) -> Attribution:
    """Of all that the estimator asks for; with ``masks``, of those alone, which then are all that is known."""
    n = len(setup.columns)
    ends = _ends(n)
    asked = setup.estimator.ablations(value, seed=seed) if masks is None else masks
    readings: list[Reading] = []
    if not setup.scores:
        targets = generated_targets(setup)
        if isinstance(value, ResponseSimilarity):
            value.regenerations(ends[value.fits(ends)])  # first, since without these an interrupted run says nothing
    else:
        readings = read(setup, value, ends, asked)
        targets = scored_targets(setup, readings, floor=value.floor)
    value = value.with_targets(targets)
    unjudged, known = np.zeros(len(targets), dtype=np.bool_), float("nan")
    if masks is not None:
        estimate = ranked_from(masks, value.exact(masks))
    elif setup.judge is None:
        estimate = setup.estimator.estimate(value, seed=seed)
    else:
        estimate, unjudged, known = estimate_known(setup.estimator, value, seed=seed)
    full, closed_book = value.exact(ends)
    noise = _noise(setup, metered, value, full=full, closed_book=closed_book)
    floor = np.maximum(value.floor, NOISE_MARGIN * np.nan_to_num(noise))
    delta = _shared_margins(targets, margins(estimate.effects, floor=floor))
    p_values = adjusted_p_values(estimate, delta)
    words = value.words if isinstance(value, Faithfulness) else None
    verdicts = weigh(estimate, delta, p_values, knows_right=value.knows_right, words=words)
    lost = full < REPRODUCED if isinstance(value, ResponseSimilarity) else np.zeros(len(targets), dtype=np.bool_)
    verdicts[lost | unjudged] = Verdict.UNDETERMINED.value  # what is not said again cannot be taken away
    if isinstance(value, Correctness):
        few = rests_on_few(setup.estimator, value, estimate.effects) & (verdicts != Verdict.NO_EFFECT.value)
        verdicts[few] = Verdict.UNDETERMINED.value
    whole = readings[0] if readings else None
    tied = {column for columns in estimate.tied for column in columns}
    sampling = sampling_like(setup.generation, response_tokens=len(whole.offsets)) if whole else setup.sampling
    regenerated, trouble = _regenerate(setup, metered, value, estimate.effects, delta, sampling=sampling)
    return Attribution(
        method=f"{_named(value)} × {setup.estimator.name}",
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
        token_offsets=whole.offsets if whole else np.zeros((0, 2), dtype=np.int64),
        token_full=whole.full if whole else np.zeros(0),
        token_closed_book=whole.closed_book if whole else np.zeros(0),
        exact=estimate.exact,
        cost=metered.cost + _apart(setup, value),
        seed=seed,
        versions=versions(),
        answered_by=setup.generation.model,
        measured_on=setup.engine.spec,
        level=estimate.level,
        groups=estimate.groups or (value.redundancy() if isinstance(value, Faithfulness) else ()),
        pairs=estimate.pairs,
        routes=routes_of(targets, estimate.effects, verdicts),
        n_unfit=estimate.n_unfit,
        noise_floor=float(np.nanmax(noise)) if np.isfinite(noise).any() else float("nan"),
        fit=estimate.fit,
        agreement=estimate.agreement,
        resolution=tuple("group" if column in tied else "individual" for column in range(n)),
        tied=estimate.tied,
        regenerated=regenerated,
        warnings=(
            *setup.notes,
            *trouble,
            *_warnings(setup, whole, regenerated, noise, value),
            *_of_screen(targets, estimate),
            *_not_said_again(targets, full, lost),
            *_judged(targets, value, unjudged, known),
        ),
        partial=estimate.partial,
    )


def _apart(setup: Setup, value: _Value) -> Cost:
    """What a judge took that has an account of its own."""
    return value.cost if isinstance(value, Faithfulness | Correctness) and setup.judge_engine is None else Cost()


def _judged(targets: Sequence[Target], value: _Value, unjudged: MaskArray, known: float) -> list[str]:
    """What is to be said of a judge's verdicts, and of the targets where some are missing."""
    notes = list(value.notes) if isinstance(value, Faithfulness | Correctness) else []
    rows = np.flatnonzero(unjudged).tolist()
    if rows:
        named = ", ".join(repr(targets[row].text[:40]) for row in rows[:3]) + (", …" if len(rows) > 3 else "")
        notes.append(f"{known:.0%} of the values are known of {named}: what there is only ranks, without verdicts")
    return notes


def _ends(n_segments: int) -> MaskArray:
    return np.array([[True] * n_segments, [False] * n_segments], dtype=np.bool_).reshape(2, n_segments)


def _named(value: _Value) -> str:
    if isinstance(value, ReferenceContrast) and not value.knows_right:
        return f"{value.name}[instead]"
    return f"{value.name}[{value.metric}]" if isinstance(value, ResponseSimilarity) else value.name


def _shared_margins(targets: Sequence[Target], delta: FloatArray) -> FloatArray:
    """δ ``(n_targets,)`` with both readings of the same words given the larger of their two."""
    words = [(target.kind, target.start, target.end) for target in targets]
    largest = {word: max(d for w, d in zip(words, delta, strict=True) if w == word) for word in words}
    return np.array([largest[word] for word in words])


def _regenerate(
    setup: Setup,
    metered: MeteredEngine,
    value: _Value,
    effects: FloatArray,
    delta: FloatArray,
    *,
    sampling: Sampling,
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
    setup: Setup, metered: MeteredEngine, value: _Value, *, full: FloatArray, closed_book: FloatArray
) -> FloatArray:
    """How far values of one and the same prompt lie apart ``(n_targets,)``; NaN where that was not measured.

    Of what is scored, the largest difference over the direct targets between the prompt in a batch, alone, and alone
    again. Of what is generated, the standard deviation of the unchanged prompt's answers, each held beside the recorded
    one. Of what is judged, how far the judge's repeats differ, too.
    """
    if isinstance(value, Faithfulness):
        return value.noise()
    if isinstance(value, Correctness):
        return value.noise(setup.n_repeats)
    if not setup.n_repeats:
        return np.full(value.n_targets, np.nan)
    if isinstance(value, ResponseSimilarity):
        return np.asarray(np.std(np.concatenate([full[None], value.repeats(setup.n_repeats)]), axis=0, ddof=1))
    kept, removed = _ends(len(setup.columns))
    # What was screened is cheap, so the check must be: it reads the prompt without its segments again.
    is_full = setup.estimator.fidelity == "exact" and value.fits(kept[None])[0]
    prompt = ablate(setup.generation, setup.columns, kept if is_full else removed)
    if isinstance(setup.engine, HoldsPrompts):
        setup.engine.release()  # what is held would be read again, and agree with itself
    again = [metered.score([prompt], setup.response, repeat=repeat + 1)[0] for repeat in range(setup.n_repeats)]
    differences = np.abs(value.read(again) - (full if is_full else closed_book))
    largest = float(np.nanmax(differences)) if np.isfinite(differences).any() else float("nan")
    return np.full(value.n_targets, largest)


def _warnings(
    setup: Setup, whole: Reading | None, regenerated: Sequence[Regeneration], noise: FloatArray, value: _Value
) -> list[str]:
    warnings: list[str] = []
    answered, measured = setup.generation.model, setup.engine.spec
    proxy = answers_for(answered, measured) and (setup.scores or setup.generates)
    if proxy:
        warnings.append(f"{answered} answered; {measured} measured as a proxy: causes are the proxy's")
    if not setup.columns:
        warnings.append("the prompt holds nothing but the question: there is no context to rank")
    mean = float(whole.shown.mean()) if whole else 0.0
    if mean < IMPROBABLE:
        warnings.append(
            f"{measured} finds the response improbable ({np.exp(mean):.1%} a token): effects may not be those of the"
            " model that wrote it"
        )
    unchanged = next((again for again in regenerated if not again.removed), None)
    if unchanged is not None and not unchanged.same and not proxy:
        warnings.append("the unchanged prompt does not reproduce what was recorded")
    if (NOISE_MARGIN * np.nan_to_num(noise) > value.floor).any():
        who, what = "the engine does not reproduce its own numbers", "one prompt's values"
        if setup.generates:
            what = "answers to the unchanged prompt" + ("" if setup.judge is None else ", or verdicts on one answer,")
        elif not setup.scores:
            who, what = "the judge does not repeat its verdicts", "those on one claim"
        warnings.append(f"{who}: {what} differ by {np.nanmax(noise):.2f}; the margin δ was raised to twice that")
    if setup.generates and np.isnan(noise).all():
        warnings.append("how far answers to one prompt differ was not measured: effects may be no more than that")
    return warnings


def answers_for(answered_by: str | None, measured_on: str) -> bool:
    """Whether what measures is another model than the one that answered, and stands for it."""
    return answered_by is not None and _bare(answered_by) != _bare(measured_on)


def _bare(model: str) -> str:
    """A model's name without how it is reached: ``server:URL#m``, ``litellm:openai/m``, ``openai/m`` and ``m``."""
    name = model.rpartition("#")[2] if model.startswith("server:") else model.removeprefix("litellm:")
    return name.removeprefix("openai/").removeprefix("hosted_vllm/")


def _not_said_again(targets: Sequence[Target], full: FloatArray, lost: MaskArray) -> list[str]:
    rows = [row for row in np.flatnonzero(lost).tolist() if targets[row].kind is not TargetKind.RESPONSE or all(lost)]
    if not rows:
        return []
    named = ", ".join(f"{targets[row].text[:40]!r} ({full[row]:.2f})" for row in rows[:3])
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    return [f"the unchanged prompt does not give again {named}{more}: what caused it cannot be measured this way"]


def _of_screen(targets: Sequence[Target], estimate: Estimate) -> list[str]:
    """What to say where hiding segments and deleting them came apart."""
    if estimate.agreement is None:
        return []
    low = np.flatnonzero(estimate.agreement < MIN_AGREEMENT).tolist()
    named = ", ".join(f"{targets[row].text[:40]!r}" for row in low[:3]) + (", …" if len(low) > 3 else "")
    unsure = np.isnan(estimate.error[low]).all(axis=1) if low else np.zeros(0, dtype=np.bool_)
    how = "verdicts there are left open" if unsure.any() else "more segments were deleted there"
    return [f"hiding segments does not stand for deleting them on {named}: {how}"] if low else []


def versions() -> dict[str, str]:
    """Of what measured."""
    found = {"attrkit": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for package in ("numpy", "scikit-learn", "torch", "transformers"):
        if {"scikit-learn": "sklearn"}.get(package, package) in sys.modules:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
    return found
