"""The metrics of every whole judgement of a judge that repeats itself: what its noise does to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attr_core._setup import Options
from attr_core.diagnosing import case_of
from attr_core.protocols import Judge
from attr_core.results import Diagnosis, Support
from attr_core.support.matrix import judge_answer
from attr_core.support.metrics import score_all
from attr_core.types import Claim, Segment, Trace

__all__ = ["scores_of_repeats"]


def scores_of_repeats(trace: Trace, found: Diagnosis, judge: Judge) -> list[Mapping[str, Any]]:
    """Every metric of every repeat, as plain JSON; empty where the judge does not repeat, or was cut another way.

    Cost: one table of verdicts, asked again of ``judge``; nothing where they are in its cache.
    """
    case = case_of(trace, Options(generation=found.generation_id), expected=found.expected)
    listening = _Listening(judge)

    def judged(by: Judge) -> Any:
        return judge_answer(
            by,
            answer=case.generation.written,
            claims=case.claims,
            segments=case.sources,
            question=case.question,
            expected=case.expected,
        )

    judged(listening)
    whole = listening.found
    if whole is None or whole.repeated is None:
        return []
    scores: list[Mapping[str, Any]] = []
    for verdicts in whole.repeated:
        one = replace(whole, verdicts=verdicts, repeated=None, repeats=1)
        scores += [score.to_dict() for score in score_all(judged(_Saying(one, listening.reads)))]
    return scores


@dataclass(slots=True)
class _Listening:
    """Passes on, and keeps the table."""

    of: Judge
    found: Support | None = None

    @property
    def reads(self) -> bool:
        return bool(getattr(self.of, "reads", True))

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        self.found = self.of.judge(claims, segments, question=question)
        return self.found


@dataclass(frozen=True, slots=True)
class _Saying:
    """Says one table."""

    table: Support
    reads: bool

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        return self.table
