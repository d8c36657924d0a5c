"""What is told of a run beside its claims: the proof, metrics, answers under changes, how it was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attr_core.attribution import Attribution
from attr_core.reports._together import shares_of
from attr_core.reports._words import listed, segment_name
from attr_core.reports.costs import render_cost
from attr_core.results import Diagnosis
from attr_core.types import Trace

MAX_NAMED = 8
"""Most segments that the proof's change names."""

GOOD = frozenset({"ok", "correct_abstention"})


@dataclass(frozen=True, slots=True)
class Side:
    """One prompt of a proof, and the different answers to it."""

    name: str
    told: str
    said: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Proof:
    """The intervention in words, what was said with and without it, and how sure that is."""

    change: str
    sides: tuple[Side, ...]
    certainty: str


@dataclass(frozen=True, slots=True)
class Metric:
    """A score as it is shown; ``value`` is N/A where there is none, ``share`` of 100 is ``None`` then."""

    name: str
    value: str
    share: float | None
    coverage: str
    reason: str


def tone_of_label(label: str) -> str:
    """The name of a label's style."""
    return "good" if label in GOOD else "open" if label == "inconclusive" else "bad"


def confidence_of(diagnosis: Diagnosis) -> str:
    """Two digits, and no certainty where an engine was only asked some times; empty where nothing was run."""
    if math.isnan(diagnosis.confidence):
        return ""
    is_sure = bool((diagnosis.proof or {}).get("reproducible"))
    return "> 0.99" if diagnosis.confidence > 0.99 and not is_sure else f"{diagnosis.confidence:.2f}"


def proof_of(diagnosis: Diagnosis) -> Proof | None:
    """The proof in words; ``None`` where the label has none."""
    proof = diagnosis.proof
    if proof is None:
        return None
    change = proof["intervention"]
    if removed := change.get("remove"):
        told = f"without {listed(list(removed), MAX_NAMED)}"
    elif "order" in change:
        told = f"in the order {listed(list(change['order']), MAX_NAMED)}"
    elif change.get("question"):
        told = f"asked instead: {change['question']}"
    else:
        told = ""
    unchanged = _side("the unchanged prompt", proof["unchanged"])
    sides = (unchanged, _side(told, proof["changed"])) if told else (unchanged,)
    certainty = ""
    if proof.get("p_value") is not None:
        certainty = f"p = {proof['p_value']:.4f} if the change made no difference"
    elif proof.get("reproducible"):
        certainty = "the engine reproduces itself: one run is all runs"
    return Proof(told or "the unchanged prompt, run again", sides, certainty)


def _side(name: str, runs: Mapping[str, Any]) -> Side:
    return Side(name, f"right in {runs['repaired']} of {runs['runs']} runs", runs["said"])


def metrics_of(diagnosis: Diagnosis) -> Iterator[Metric]:
    """Each score with what it counts, and why it is not available where it is not."""
    for score in diagnosis.scores:
        value, what = score["value"], score.get("what", "items")
        yield Metric(
            name=str(score["name"]).replace("_", " "),
            value="N/A" if value is None else f"{value:.2f}",
            share=None if value is None else round(100 * float(value), 1),
            coverage=f"{score['n']} of {score['of']} {what}",
            reason=score.get("reason") or "",
        )


def said_under_changes(attribution: Attribution) -> Iterator[tuple[str, str, bool]]:
    """Which change of the prompt, what the model then says, and whether that is the same answer."""
    for again in attribution.regenerated:
        if not again.removed:
            what = "with the unchanged prompt"
        elif len(again.removed) == len(attribution.segments):
            what = "without any context"
        else:
            what = f"without {listed([segment_name(attribution.segments[c]) for c in again.removed], MAX_NAMED)}"
        yield what, again.text, again.same


def method_of(attribution: Attribution) -> Iterator[tuple[str, str]]:
    """How an attribution was measured, as names and values."""
    yield "method", attribution.method
    yield "estimand", f"{attribution.estimand} effects in {attribution.unit}, {_how(attribution)}"
    yield "margin δ", _range(attribution.delta, attribution.unit)
    yield "measured on", attribution.measured_on or "an unnamed engine"
    if attribution.answered_by:
        yield "answered by", attribution.answered_by
    yield from _quality(attribution)
    yield "seed", str(attribution.seed)
    yield "cost", render_cost(attribution.cost)
    yield "versions", _versions(attribution.versions)


def examination_of(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """How a diagnosis was made, as names and values."""
    spoke = "judged by" if diagnosis.judged_by == "judged" else "no judge has spoken; evidence from"
    yield spoke, diagnosis.judge or "nobody"
    yield "strategy", diagnosis.strategy
    if diagnosis.n_runs:
        yield "runs of the prompt", f"{diagnosis.n_runs} on {diagnosis.measured_on or 'an unnamed engine'}"
    yield "seed", str(diagnosis.seed)
    yield "cost", render_cost(diagnosis.cost)
    yield "versions", _versions(diagnosis.versions)


def run_of(trace: Trace) -> Iterator[tuple[str, str]]:
    """Who ran what and when."""
    yield "trace", trace.id
    if trace.generations and (model := trace.target_generation.model):
        yield "model", model
    if trace.framework:
        yield "framework", trace.framework
    if trace.started is not None:
        yield "started", f"{trace.started:%Y-%m-%d %H:%M} UTC"
    if trace.status != "ok":
        yield "status", trace.status
    if trace.tags:
        yield "tags", ", ".join(trace.tags)


def _how(attribution: Attribution) -> str:
    if attribution.estimand == "drop":
        return "exact single deletions; ranks only, no verdicts"
    if attribution.exact:
        return "exact over all subsets, so without sampling intervals"
    if math.isnan(attribution.level):
        return "sampled; ranks only, no verdicts"
    return f"sampled, {attribution.level:.0%} intervals"


def _quality(attribution: Attribution) -> Iterator[tuple[str, str]]:
    fit = attribution.fit
    if fit is not None and np.isfinite(fit.r2).any() and np.isfinite(fit.lds).any():
        told = f"R² {np.nanmedian(fit.r2):.2f}, LDS {np.nanmedian(fit.lds):.2f} over {fit.n_held_out} ablations"
        yield "held-out fit (medians)", told
    if attribution.agreement is not None and np.isfinite(attribution.agreement).any():
        yield "hiding stands for deleting", f"by {shares_of(attribution.agreement)}"
    if math.isfinite(attribution.noise_floor):
        yield "noise floor", f"{attribution.noise_floor:.2g} {attribution.unit}"
    if attribution.n_unfit:
        yield "too long for the window", f"{attribution.n_unfit} ablations"


def _range(values: Any, unit: str) -> str:
    known = values[np.isfinite(values)]
    if not known.size:
        return "none"
    least, most = f"{known.min():.2f}", f"{known.max():.2f}"
    return f"{least} {unit}" if least == most else f"{least} to {most} {unit}"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or "unknown"
