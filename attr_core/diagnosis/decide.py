"""Facts -> a diagnosis: the first label that applies, the others beside it, and the proof."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attr_core.diagnosis.facts import Facts, Trials
from attr_core.diagnosis.table import Finding, findings
from attr_core.diagnosis.words import FIXES, headline
from attr_core.results import Diagnosis

__all__ = ["decide"]

N_DRAWS = 20_000
MAX_TEXTS = 20


def decide(facts: Facts, **known: Any) -> Diagnosis:
    """The first label of the table that applies, with its proof; costs nothing.

    Parameters
    ----------
    facts : Facts
    **known
        Further fields of the :class:`~attr_core.results.Diagnosis`.
    """
    first, *others = findings(facts)
    notes = list(facts.notes)
    if facts.strategy == "support":
        notes.append("nothing was run again: this is what the judge says, and nothing is said of causes")
    return Diagnosis(
        label=first.label.value,
        headline=headline(first, facts),
        secondary=tuple(dict.fromkeys(other.label.value for other in others if other.label is not first.label)),
        evidence=first.evidence,
        proof=_proof(first, facts),
        fixes=FIXES[first.label],
        confidence=_confidence(first, facts),
        outcome=facts.outcome.value,
        culprits=tuple(facts.sources[column].id for column in first.columns),
        strategy=facts.strategy,
        n_runs=facts.n_runs,
        notes=tuple(dict.fromkeys(notes)),
        **known,
    )


def _proof(finding: Finding, facts: Facts) -> Mapping[str, Any] | None:
    if finding.proof is None or facts.unchanged is None:
        return None
    return {
        "intervention": finding.proof.intervention.to_dict(facts.sources),
        "changed": _runs(finding.proof),
        "unchanged": _runs(facts.unchanged),
        "p_value": None if math.isnan(facts.p_value) else facts.p_value,
        "reproducible": facts.is_reproducible,
    }


def _runs(trials: Trials) -> dict[str, Any]:
    """What was said, each text once."""
    counts: dict[tuple[str, str], int] = {}
    for text, outcome in zip(trials.texts, trials.outcomes, strict=True):
        counts[text, outcome.value] = counts.get((text, outcome.value), 0) + 1
    said = [{"text": text, "outcome": outcome, "runs": n} for (text, outcome), n in counts.items()]
    return {"runs": len(trials.texts), "repaired": trials.n_repaired, "said": said[:MAX_TEXTS]}


def _confidence(finding: Finding, facts: Facts) -> float:
    """Probability that the change repairs more often than nothing does, by Jeffreys' prior on both rates.

    1 where the engine reproduces itself: one run is all runs. NaN where the label does not rest on a repair.
    """
    changed, unchanged = finding.proof, facts.unchanged
    if changed is None or unchanged is None or changed is unchanged or not changed.n_repaired:
        return math.nan
    if facts.is_reproducible:
        return 1.0
    rng = np.random.default_rng(0)
    rates = [rng.beta(0.5 + one.n_repaired, 0.5 + one.n - one.n_repaired, N_DRAWS) for one in (changed, unchanged)]
    return float(np.mean(rates[0] > rates[1]))
