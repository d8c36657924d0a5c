"""Metrics: what the verdicts on an answer amount to, each a plain function of a :class:`~attr_core.support.Judged`.

They ask no judge and cost nothing. Four rules hold for all.

* What a metric cannot say is N/A with the reason: of an answer that declines or makes no claim, without context,
  expected answer or question, and where no verdict was given.
* A mean leaves out what was not judged, and tells it.
* An undetermined verdict more never raises a score: what no verdict says does not count as said.
* Where no judge has spoken but likelihoods (``support.kind`` is ``evidence``), metrics that rest on contradiction or
  relevance are N/A; the others say so in their reason.

*Supported*, here, is 1 where some segment entails the claim, left out where none was judged, else 0. Such a 0 may hang
on verdicts that are missing. It counts all the same and is told: supported claims need one verdict to stay in the mean
and the others all, so leaving those out would raise it. Where nothing but such is there, the score is N/A.

RAGChecker is Ru et al., NeurIPS 2024 (arXiv:2408.08067), section 3.3, and its ``ragchecker/computation.py``; RAGAS is
Es et al., EACL 2024 (arXiv:2309.15217), and its release 0.4. What is N/A here is 0 in the former, NaN in the latter.
Metrics against an expected answer are in :mod:`attr_core.support.expected`, those of retrieval alone, which read no
verdicts, in :mod:`attr_core.support.retrieval`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from attr_core.support._rows import (
    a_context,
    a_judge,
    a_question,
    an_answer,
    an_expected_answer,
    backing,
    filled,
    holds,
    lacks,
    mean_over,
    supported,
)
from attr_core.support.expected import (
    claim_recall,
    context_utilisation,
    correctness,
    hallucination,
    noise_sensitivity,
    self_knowledge,
)
from attr_core.support.matrix import Judged
from attr_core.support.retrieval import retrieval_precision, retrieval_recall
from attr_core.support.scores import Metric, Score, averaged, mean_of, not_available
from attr_core.types import Claim

__all__ = [
    "METRICS",
    "Metric",
    "Score",
    "answer_relevance",
    "averaged",
    "claim_recall",
    "context_precision",
    "context_relevance",
    "context_utilisation",
    "correctness",
    "faithfulness",
    "hallucination",
    "mean_of",
    "noise_sensitivity",
    "not_available",
    "retrieval_precision",
    "retrieval_recall",
    "score_all",
    "self_knowledge",
    "unfaithful_claims",
]


def faithfulness(judged: Judged) -> Score:
    """Share of the answer's claims that some segment entails: supported claims / claims judged.

    A claim that is contradicted, or that no segment bears out, counts against; one that a segment contradicts and
    another entails is supported (the conflict is another matter). N/A: refusal, no claim, empty context, no verdict.

    References
    ----------
    RAGAS paper, section 3, F = |V| / |S|, and RAGChecker, section 3.3.3. We ask of each segment alone, RAGAS of all
    contexts joined; so a claim that only two segments together bear out is not supported.

    Examples
    --------
    >>> from attr_core.claims import split_claims
    >>> from attr_core.results import SupportVerdict
    >>> from attr_core.support import judge_answer
    >>> from attr_core.types import Segment
    >>> from attr_core.testing import ScriptedJudge
    >>> judge = ScriptedJudge({("It opened in 1911.", "The fair opened in 1911."): SupportVerdict.ENTAILS})
    >>> answer = "It opened in 1911. Ann opened it."
    >>> segments = [Segment.quoted("c0", "The fair opened in 1911.")]
    >>> judged = judge_answer(judge, answer=answer, claims=split_claims(answer), segments=segments)
    >>> print(faithfulness(judged))
    faithfulness 0.50 (2 of 2 claims)
    """
    if reason := lacks(judged, an_answer, a_context):
        return not_available("faithfulness", reason, items=_texts(judged), what="claims")
    values, is_open = supported(judged)
    return mean_over(
        "faithfulness", judged, _texts(judged), values, what="claims", found=judged.support, is_open=is_open
    )


def unfaithful_claims(judged: Judged) -> tuple[Claim, ...]:
    """The answer's claims that count against :func:`faithfulness` whatever the missing verdicts are.

    Empty where faithfulness is N/A for want of an answer or a context.
    """
    if lacks(judged, an_answer, a_context):
        return ()
    values, is_open = supported(judged)
    is_unfaithful = (values == 0) & ~is_open
    return tuple(claim for claim, counts in zip(judged.claims, is_unfaithful, strict=True) if counts)


def answer_relevance(judged: Judged) -> Score:
    """Whether the answer states something that helps to answer the question: 1 or 0.

    N/A: refusal, no claim, no question, evidence only, no verdict.

    References
    ----------
    RAGAS paper, section 3, which takes the mean cosine of the question with questions generated from the answer, and 0
    for a noncommittal one. We take the judge's one verdict, which costs no call more, needs no embeddings and does not
    depend on the language; a refusal is N/A.
    """
    items = ["the answer"]
    if reason := lacks(judged, an_answer, a_question, a_judge):
        return not_available("answer_relevance", reason, items=items, what="answers")
    return mean_over("answer_relevance", judged, items, holds(np.array([judged.responsive])), what="answers")


def context_relevance(judged: Judged) -> Score:
    """Share of the segments that state something that helps to answer the question; their order does not matter.

    Says something of a refusal too. N/A: no or empty context, no question, evidence only, no verdict.

    References
    ----------
    RAGAS paper, section 3, takes the share of the context's sentences that are extracted as needed. Ours is by segment,
    so a long one that helps with one sentence counts as one that helps. An empty segment is left out.
    """
    name, items = "context_relevance", [segment.id for segment in judged.segments]
    if reason := lacks(judged, a_context, a_question, a_judge):
        return not_available(name, reason, items=items, what="segments")
    is_filled = filled(judged)
    values = np.where(is_filled, holds(judged.relevant), np.nan)
    return mean_over(name, judged, items, values, what="segments", empty=~is_filled)


def context_precision(judged: Judged) -> Score:
    """Average precision over the segments in their order: AP = Σ_k P@k · v_k / Σ_k v_k, or 0 where no segment counts.

    ``v_k`` is 1 where segment k entails a claim of the expected answer; where no answer is expected, where it states
    something that helps to answer the question. ``P@k`` is the mean of ``v`` up to k. Segments without a verdict leave
    the list, as do empty ones, and those after them move up. Says something of a refusal too. N/A: no or empty context,
    no verdict; without an expected answer also no question or evidence only.

    References
    ----------
    RAGAS 0.4, ``LLMContextPrecisionWithReference``, without the 1e-10 in its denominator. Leaving unjudged items out is
    the condensed list of Sakai, "Alternatives to Bpref", SIGIR 2007. RAGChecker's context precision is the mean of
    ``v``, whatever the order.
    """
    name, items = "context_precision", [segment.id for segment in judged.segments]
    by_question = bool(an_expected_answer(judged))
    if reason := lacks(judged, a_context, *((a_question, a_judge) if by_question else ())):
        return not_available(name, reason, items=items, what="segments")
    is_filled = filled(judged)
    values, is_open = backing(judged.relevant[:, None] if by_question else judged.sources.verdicts.T)
    values, is_open = np.where(is_filled, values, np.nan), is_open & is_filled
    found = None if by_question else judged.sources
    score = mean_over(name, judged, items, values, what="segments", found=found, is_open=is_open, empty=~is_filled)
    if not score.is_available:
        return score
    v = values[~np.isnan(values)]
    precision = np.cumsum(v) / np.arange(1, len(v) + 1)
    return replace(score, value=float((precision * v).sum() / v.sum()) if v.any() else 0.0)


def score_all(judged: Judged, metrics: Mapping[str, Metric] | None = None) -> tuple[Score, ...]:
    """Every metric's score of one answer, in order, each under its name in ``metrics``.

    A metric that raises, or gives no :class:`Score`, is N/A with the error as its reason; the others are kept.

    Parameters
    ----------
    judged : Judged
    metrics : mapping of str to Metric, optional
        By default :data:`METRICS`; ``{**METRICS, "mine": mine}`` adds a function of your own.
    """
    wanted = METRICS if metrics is None else metrics
    return tuple(_scored(name, metric, judged) for name, metric in wanted.items())


def _scored(name: str, metric: Metric, judged: Judged) -> Score:
    try:
        score = metric(judged)
    except Exception as error:
        return not_available(name, f"the metric failed: {type(error).__name__}: {error}")
    if not isinstance(score, Score):
        return not_available(name, f"the metric gave {type(score).__name__}, no Score")
    return replace(score, name=name)


def _texts(judged: Judged) -> list[str]:
    return [claim.text for claim in judged.claims]


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        "faithfulness": faithfulness,
        "answer_relevance": answer_relevance,
        "correctness": correctness,
        "context_relevance": context_relevance,
        "context_precision": context_precision,
        "claim_recall": claim_recall,
        "context_utilisation": context_utilisation,
        "noise_sensitivity": noise_sensitivity,
        "noise_sensitivity_relevant": functools.partial(noise_sensitivity, sources="relevant"),
        "noise_sensitivity_irrelevant": functools.partial(noise_sensitivity, sources="irrelevant"),
        "self_knowledge": self_knowledge,
        "hallucination": hallucination,
    }
)
"""Metrics that take a :class:`~attr_core.support.Judged` alone, by name."""
