"""One table of verdicts that metrics, conflicts and diagnoses are read off: claims against segments, in few calls."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attr_core._redact import masked
from attr_core.claims import split_claims
from attr_core.errors import AttrkitError, InputError, JudgeError
from attr_core.protocols import Judge
from attr_core.results import Support, SupportVerdict, freeze_arrays
from attr_core.types import Claim, Segment

__all__ = ["Judged", "judge_answer", "reference_text", "verdicts_of"]

_HELPS = "The text states something that helps to answer the question"


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """What a judge said of one answer; every array holds values of :class:`~attr_core.results.SupportVerdict`.

    ``claims`` are the answer's, ``wanted`` the expected answer's (empty where none is known), ``segments`` the columns.

    ``support`` ``(n_claims, n_segments)`` says what each segment says of each claim, ``sources`` ``(n_wanted,
    n_segments)`` of each expected claim. ``correct`` ``(n_claims,)`` is what the expected answer says of each claim,
    ``recalled`` ``(n_wanted,)`` what the answer says of each expected claim; where no answer is expected, the first is
    ``undetermined`` and the second empty. ``relevant`` ``(n_segments,)`` is ``entails`` for a segment that states
    something that helps to answer, ``responsive`` the same of the answer; both ``undetermined`` where there is no
    question, or no judge has spoken (``support.kind`` is then ``evidence``).
    """

    question: str | None
    answer: str
    expected: str | None
    claims: tuple[Claim, ...]
    wanted: tuple[Claim, ...]
    segments: tuple[Segment, ...]
    support: Support
    sources: Support
    correct: NDArray[np.str_]
    recalled: NDArray[np.str_]
    relevant: NDArray[np.str_]
    responsive: str

    def __post_init__(self) -> None:
        freeze_arrays(self)


def judge_answer(
    judge: Judge,
    *,
    answer: str,
    claims: Sequence[Claim],
    segments: Sequence[Segment],
    question: str | None = None,
    expected: str | None = None,
    wanted: Sequence[Claim] | None = None,
) -> Judged:
    """Every verdict on an answer, asked of the judge as one table.

    Rows are the answer's claims, the expected answer's and, where there is a question and the judge reads, whether a
    text helps to answer it; columns are the segments, the answer and the expected answer.
    Cost: one table of ``(n_claims + n_wanted + 1) * (n_segments + 2)`` cells, which
    :class:`~attr_core.judge.LLMJudge` asks in calls of 24; a :class:`~attr_core.judge.LikelihoodJudge` is not asked
    about relevance.

    Parameters
    ----------
    judge : Judge
    answer : str
    claims : sequence of Claim, length n_claims
    segments : sequence of Segment, length n_segments
        What the model was given; the question being answered is no source.
    question : str, optional
    expected : str, optional
        The answer that would have been right.
    wanted : sequence of Claim, optional
        What has to be said of it; by default its sentences.

    Raises
    ------
    InputError
        The answer is empty.
    EngineError, BudgetExceededError
        The judge answered nothing at all.
    """
    if not answer.strip():
        raise InputError("the answer is empty; there is nothing to judge")
    asked = tuple(split_claims(expected) if wanted is None and expected else wanted or ())
    reads = getattr(judge, "reads", True)
    rows = [*claims, *asked]
    helps = bool(question) and reads
    if helps:
        rows.append(Claim(len(rows), 0, 0, f"{_HELPS}: {question}"))
    texts = [Segment.quoted("answer", answer)]
    if expected:
        texts.append(Segment.quoted("expected", reference_text(question, expected)))
    found = verdicts_of(judge, rows, [*segments, *texts], question=question or None)
    n, m, columns = len(claims), len(asked), len(segments)
    verdicts = found.verdicts.reshape(len(rows), columns + len(texts))
    unknown = np.full(max(n, columns), SupportVerdict.UNDETERMINED.value)
    return Judged(
        question=question or None,
        answer=answer,
        expected=expected or None,
        claims=tuple(claims),
        wanted=asked,
        segments=tuple(segments),
        support=_part(found, slice(0, n), columns),
        sources=_part(found, slice(n, n + m), columns),
        correct=verdicts[:n, columns + 1] if expected else unknown[:n],
        recalled=verdicts[n : n + m, columns],
        relevant=verdicts[n + m, :columns] if helps else unknown[:columns],
        responsive=str(verdicts[n + m, columns]) if helps else SupportVerdict.UNDETERMINED.value,
    )


def verdicts_of(
    judge: Judge, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None
) -> Support:
    """What a judge says, made sure to be one verdict for each claim and segment.

    Raises
    ------
    EngineError, BudgetExceededError
        The judge answered nothing at all.
    JudgeError
        It failed in a way of its own, or what it gave is no such table.
    """
    name = str(getattr(judge, "spec", None) or type(judge).__name__)
    try:
        found = judge.judge(claims, segments, question=question)
    except AttrkitError:
        raise
    except Exception as error:
        told = masked(" ".join(str(error).split())[:300], os.environ)
        raise JudgeError(f"{name} failed with {type(error).__name__}: {told}; correct that judge") from error
    if not isinstance(found, Support):
        raise JudgeError(f"{name} gave {type(found).__name__}; let its judge() return a Support")
    shapes = [found.verdicts.shape, found.rationale.shape]
    if any(shape != (len(claims), len(segments)) for shape in shapes):
        raise JudgeError(
            f"{name} gave verdicts and reasons of the shapes {shapes} on {len(claims)} claims and {len(segments)} "
            "segments; let it return one of each for every pair"
        )
    if unknown := sorted(set(map(str, found.verdicts.flat)) - set(SupportVerdict)):
        raise JudgeError(f"{name} gave the verdict {unknown[0][:40]!r}; let it say one of {', '.join(SupportVerdict)}")
    return found


def reference_text(question: str | None, expected: str) -> str:
    """The expected answer with its question: "1911" alone says nothing that a claim could be held against."""
    return f"Question: {question}\nRight answer: {expected}" if question else expected


def _part(found: Support, rows: slice, n_columns: int) -> Support:
    """Some rows of the table, for the segments only; the cost stays with the first part."""
    columns = slice(0, n_columns)
    return replace(
        found,
        verdicts=found.verdicts[rows, columns],
        rationale=found.rationale[rows, columns],
        repeated=None if found.repeated is None else found.repeated[:, rows, columns],
        evidence=None if found.evidence is None else found.evidence[rows, columns],
        cost=found.cost if rows.start == 0 else type(found.cost)(),
    )
