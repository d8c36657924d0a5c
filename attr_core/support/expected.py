"""Metrics that hold an answer or its context against the answer that was expected.

What is said in :mod:`attr_core.support.metrics` holds here too. *Right* is a claim that the expected answer entails,
*wrong* one that it contradicts; of the rest it says nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from attr_core.errors import ConfigurationError
from attr_core.judge._words import readable
from attr_core.results import FloatArray
from attr_core.support._rows import (
    CONTRADICTS,
    ENTAILS,
    Backing,
    a_context,
    a_judge,
    an_answer,
    an_expected_answer,
    backing,
    both,
    filled,
    given,
    holds,
    its_text,
    lacks,
    mean_over,
    noted,
    supported,
    undecided,
)
from attr_core.support.matrix import Judged
from attr_core.support.scores import Score, averaged, not_available

__all__ = [
    "claim_recall",
    "context_utilisation",
    "correctness",
    "hallucination",
    "noise_sensitivity",
    "self_knowledge",
]

_MOST_QUOTED = 3
_QUOTED_WIDTH = 80


def correctness(judged: Judged) -> Score:
    """F1 of the answer's claims against the expected answer's: 2PR / (P + R), 0 where either is 0.

    Recall R is the share of the expected claims that the answer entails. Precision P is the share of right claims among
    the answer's: one that is wrong counts against, and one on which the expected answer is silent counts against where
    no segment entails it, else it is left out: true detail from the context is no error, detail from nowhere is. Where
    that leaves no claim, the score is R. What is contradicted, on either side, is named in ``reason``; ``items`` are
    the answer's claims, then the expected ones. Needs no context.
    N/A: refusal of either side, no claim, no expected answer, evidence only, no verdict on either side's claims.

    References
    ----------
    RAGChecker, section 3.3.1 (precision, recall, F1), where every claim that the expected answer does not entail counts
    against. A short expected answer ("1911") would make every other true sentence an error.
    """
    texts = [claim.text for claim in (*judged.claims, *judged.wanted)]
    if reason := lacks(judged, an_answer, an_expected_answer, its_text, a_judge):
        return not_available("correctness", reason, items=texts, what="claims")
    is_right, is_recalled = holds(judged.correct), holds(judged.recalled)
    is_extra = (is_right == 0) & (judged.correct != CONTRADICTS) & (supported(judged)[0] == 1)
    counted = np.where(is_extra, np.nan, is_right)
    precision, recall = _mean(counted), _mean(is_recalled)
    if math.isnan(precision) and is_extra.all():
        precision = recall  # and so is F1
    if math.isnan(precision) or math.isnan(recall):
        return not_available("correctness", undecided(), items=texts, what="claims")
    told = _quoted(judged)
    if n_extra := int(is_extra.sum()):
        told.append(f"{n_extra} left out: not in the expected answer, but in the context")
    if n_unknown := int(np.isnan(is_right).sum() + np.isnan(is_recalled).sum()):
        told.append(f"{n_unknown} left out: {undecided()}")
    items = list(zip(texts, [*counted.tolist(), *is_recalled.tolist()], strict=True))
    score = averaged("correctness", items, what="claims", reason=noted(judged, told))
    return replace(score, value=2 * precision * recall / (precision + recall) if precision and recall else 0.0)


def claim_recall(judged: Judged) -> Score:
    """Share of the expected answer's claims that some segment entails: whether what is needed was there.

    Says something of a refusal too. N/A: no or empty context, no expected answer, no verdict.

    References
    ----------
    RAGChecker, section 3.3.2 (claim recall); with the expected answer's sentences as statements also RAGAS 0.4,
    ``LLMContextRecall``, which joins the contexts.
    """
    texts = [claim.text for claim in judged.wanted]
    if reason := lacks(judged, a_context, an_expected_answer):
        return not_available("claim_recall", reason, items=texts, what="expected claims")
    values, is_open = _sourced(judged)
    return mean_over(
        "claim_recall", judged, texts, values, what="expected claims", found=judged.sources, is_open=is_open
    )


def context_utilisation(judged: Judged) -> Score:
    """Share of what the context offered that the answer used: recalled claims in the answer / recalled claims.

    Recalled are the expected claims that some segment entails. N/A: refusal, no claim, no or empty context, no expected
    answer, no expected claim in the context, no verdict.

    References
    ----------
    RAGChecker, section 3.3.3 (context utilization), which gives 0 where nothing is recalled. An answer that leaves
    irrelevant segments unused loses nothing.
    """
    name = "context_utilisation"
    if reason := lacks(judged, an_answer, a_context, an_expected_answer):
        return not_available(name, reason, what="recalled claims")
    values, is_open = _sourced(judged)
    is_recalled = values == 1
    if not is_recalled.any():
        is_unknown = (np.isnan(values) | is_open).any()
        reason = undecided(judged.sources) if is_unknown else "no segment holds a claim of the expected answer"
        return not_available(name, reason, what="recalled claims")
    texts = [claim.text for claim, counts in zip(judged.wanted, is_recalled, strict=True) if counts]
    return mean_over(name, judged, texts, holds(judged.recalled[is_recalled]), what="recalled claims")


def noise_sensitivity(judged: Judged, *, sources: Literal["all", "relevant", "irrelevant"] = "all") -> Score:
    """Share of the answer's claims that are wrong and that a segment entails: errors taken from the context.

    Lower is better. ``relevant`` counts those that a relevant segment entails, one that entails a claim of the expected
    answer; ``irrelevant`` those that only others do. With every verdict given, the two add up to ``all``.
    N/A: refusal, no claim, no or empty context, no expected answer, evidence only, no verdict.

    Parameters
    ----------
    judged : Judged
    sources : {"all", "relevant", "irrelevant"}, default "all"

    Raises
    ------
    ConfigurationError
        ``sources`` is none of these.

    References
    ----------
    RAGChecker, section 3.3.3 (relevant and irrelevant noise sensitivity), and RAGAS 0.4, ``NoiseSensitivity``. There a
    claim is incorrect unless the expected answer entails it; here it must contradict it.
    """
    if sources not in ("all", "relevant", "irrelevant"):
        raise ConfigurationError(f"sources={sources!r} is unknown; give 'all', 'relevant' or 'irrelevant'")
    name = "noise_sensitivity" if sources == "all" else f"noise_sensitivity_{sources}"
    texts = [claim.text for claim in judged.claims]
    if reason := lacks(judged, an_answer, a_context, an_expected_answer, its_text, a_judge):
        return not_available(name, reason, items=texts, what="claims")
    is_wrong = np.where(given(judged.correct), (judged.correct == CONTRADICTS).astype(np.float64), np.nan)
    values, is_open = supported(judged) if sources == "all" else _supported_by(judged, sources)
    return mean_over(
        name,
        judged,
        texts,
        both(is_wrong, values),
        what="claims",
        found=judged.support,
        is_open=is_open & (is_wrong == 1),
    )


def self_knowledge(judged: Judged) -> Score:
    """Share of the answer's claims that are right although no segment entails them: what the model knew by itself.

    A claim counts as unsupported only where every segment was judged. N/A: refusal, no claim, no or empty context, no
    expected answer, no verdict.

    References
    ----------
    RAGChecker, section 3.3.3 (self-knowledge). With every verdict given, faithfulness, self-knowledge and hallucination
    add up to 1.
    """
    return _unsupported("self_knowledge", judged, is_right=True)


def hallucination(judged: Judged) -> Score:
    """Share of the answer's claims that no segment and not the expected answer entails: what comes from nowhere.

    Lower is better. A claim counts as unsupported only where every segment was judged. N/A as for
    :func:`self_knowledge`.

    References
    ----------
    RAGChecker, section 3.3.3 (hallucination). Other tools give the name to other things: contradicted contexts in
    DeepEval's ``HallucinationMetric``.
    """
    return _unsupported("hallucination", judged, is_right=False)


def _unsupported(name: str, judged: Judged, *, is_right: bool) -> Score:
    texts = [claim.text for claim in judged.claims]
    if reason := lacks(judged, an_answer, a_context, an_expected_answer, its_text):
        return not_available(name, reason, items=texts, what="claims")
    values, is_open = supported(judged)
    is_unsupported = 1 - np.where(is_open, np.nan, values)
    right = holds(judged.correct)
    is_counted = both(is_unsupported, right if is_right else 1 - right)
    return mean_over(name, judged, texts, is_counted, what="claims", found=judged.support)


def _sourced(judged: Judged) -> Backing:
    """The expected claims by the segments."""
    return backing(judged.sources.verdicts[:, filled(judged)])


def _supported_by(judged: Judged, sources: Literal["relevant", "irrelevant"]) -> Backing:
    """Of relevant segments, or of irrelevant ones only; a segment's relevance may be unknown."""
    is_filled = filled(judged)
    entailed = (judged.support.verdicts == ENTAILS)[:, is_filled]
    expected = judged.sources.verdicts[:, is_filled]
    is_relevant = (expected == ENTAILS).any(axis=0)
    is_unknown = ~is_relevant & ~given(expected).all(axis=0)
    by_relevant = entailed[:, is_relevant].any(axis=1)
    values, is_open = supported(judged)
    if sources == "relevant":
        is_missing = ~given(judged.support.verdicts[:, is_filled][:, is_relevant]).all(axis=1)
        return np.where(by_relevant | np.isnan(values), values, 0.0), ~by_relevant & is_missing
    values = np.where(by_relevant, 0.0, values)
    return np.where(entailed[:, is_unknown].any(axis=1) & ~by_relevant, np.nan, values), is_open


def _quoted(judged: Judged) -> list[str]:
    """What is contradicted, as a part of a reason."""
    said = [claim.text for claim, verdict in zip(judged.claims, judged.correct, strict=True) if verdict == CONTRADICTS]
    missed = [
        claim.text for claim, verdict in zip(judged.wanted, judged.recalled, strict=True) if verdict == CONTRADICTS
    ]
    return [
        f"{label}: {', '.join(repr(readable(text)[:_QUOTED_WIDTH]) for text in texts[:_MOST_QUOTED])}"
        + (f" and {len(texts) - _MOST_QUOTED} more" if len(texts) > _MOST_QUOTED else "")
        for label, texts in (("contradicted by the expected answer", said), ("expected but contradicted", missed))
        if texts
    ]


def _mean(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
