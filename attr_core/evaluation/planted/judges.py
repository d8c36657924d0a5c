"""Judges of invented facts: one that is always right, and one that errs as often as it is told to."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from attr_core.errors import ConfigurationError
from attr_core.evaluation.planted.facts import SEALED, Asked, Fact, asked_in, facts_in, short_facts
from attr_core.protocols import Judge
from attr_core.results import Support, SupportVerdict
from attr_core.types import Claim, Segment

__all__ = ["ErringJudge", "PerfectJudge", "verdict_on"]

_HELPS: Final = re.compile(r"The text states something that helps to answer the question: (?P<question>.*)", re.DOTALL)
_REFERENCE: Final = re.compile(r"Question: (?P<question>.*)\nRight answer: (?P<answer>.*)", re.DOTALL)
_ENTAILS, _CONTRADICTS = SupportVerdict.ENTAILS, SupportVerdict.CONTRADICTS
_NEUTRAL, _UNDETERMINED = SupportVerdict.NEUTRAL, SupportVerdict.UNDETERMINED


@dataclass(frozen=True, slots=True)
class PerfectJudge:
    """Verdicts by rule: it reads the invented facts in both texts and compares them.

    A segment entails a claim where it states all of its facts, and contradicts it where it gives another value of the
    same attribute of the same entity. Two values in one segment, only one of them the claim's, contradict it; a claim
    of alternatives ("1911 or 1979") is entailed by either. Values alone ("1911") are read as answers to the question.
    Refusals and instructions state nothing. What stands in a sealed register cannot be judged: ``undetermined``.

    Examples
    --------
    >>> from attr_core.types import Segment
    >>> claims = [Claim(0, 0, 38, "The Lorwyn Copper Mill opened in 1911.")]
    >>> text = Segment.quoted("d1", "The Lorwyn Copper Mill received its first guests in 1979.")
    >>> PerfectJudge().judge(claims, [text]).verdicts.tolist()
    [['contradicts']]
    """

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        """Every claim against every segment; costs nothing."""
        table = [[verdict_on(claim.text, one.text, question).value for one in segments] for claim in claims]
        return _support(table, len(claims), len(segments), judge="perfect")


@dataclass(frozen=True, slots=True)
class ErringJudge:
    """Another judge's verdicts, of which a share is replaced by a wrong one, each by itself.

    Whether a verdict is wrong, and which it is instead, follows from the texts, the question, the repeat and the seed:
    asked again, it errs again.

    Parameters
    ----------
    of : Judge
        Whose verdicts.
    rate : float
        Share of wrong verdicts.
    seed : int
    repeats : int
        Verdicts per cell; what more than half of them say holds, else ``undetermined``.
    """

    of: Judge
    rate: float = 0.1
    seed: int = 0
    repeats: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1 or self.repeats < 1:
            raise ConfigurationError(f"rate={self.rate} must lie from 0 to 1 and repeats={self.repeats} be positive")

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        """Every claim against every segment, as the other judge sees it or wrongly."""
        true = self.of.judge(claims, segments, question=question).verdicts
        rounds = [
            [
                [
                    self._said(str(true[row, column]), f"{claim.text}|{segment.text}|{question}|{repeat}")
                    for column, segment in enumerate(segments)
                ]
                for row, claim in enumerate(claims)
            ]
            for repeat in range(self.repeats)
        ]
        table = [
            [_most([r[row][column] for r in rounds]) for column in range(len(segments))] for row in range(len(claims))
        ]
        found = _support(table, len(claims), len(segments), judge=f"wrong in {self.rate:.0%}")
        repeated = np.array(rounds, dtype=np.str_).reshape(self.repeats, len(claims), len(segments))
        return Support(found.verdicts, found.rationale, repeats=self.repeats, judge=found.judge, repeated=repeated)

    def _said(self, truth: str, cell: str) -> str:
        rng = random.Random(f"{self.seed}|{cell}")  # noqa: S311
        if rng.random() >= self.rate:
            return truth
        return rng.choice([one.value for one in (_ENTAILS, _CONTRADICTS, _NEUTRAL) if one.value != truth])


def verdict_on(claim: str, text: str, question: str | None = None) -> SupportVerdict:
    """What a text says of a claim."""
    reference = _REFERENCE.fullmatch(text)
    if reference:
        text, question = reference["answer"], reference["question"]
    asked = asked_in(question or "")
    if helps := _HELPS.fullmatch(claim):
        wanted = asked_in(helps["question"])
        return _ENTAILS if any(fact.asked in wanted for fact in _read(text, wanted)) else _NEUTRAL
    stated = _read(text, asked)
    verdicts = {_on_fact(fact, stated) for fact in _read(claim, asked)}
    if verdicts & {_CONTRADICTS, _UNDETERMINED}:
        return _CONTRADICTS if _CONTRADICTS in verdicts else _UNDETERMINED
    return _ENTAILS if verdicts == {_ENTAILS} else _NEUTRAL


def _read(text: str, asked: tuple[Asked, ...]) -> tuple[Fact, ...]:
    return facts_in(text) or short_facts(text, asked)


def _on_fact(fact: Fact, stated: Sequence[Fact]) -> SupportVerdict:
    given = [one.values for one in stated if one.asked == fact.asked]
    if SEALED in fact.values.union(*given) and given:
        return _UNDETERMINED
    if any(not values & fact.values for values in given):
        return _CONTRADICTS
    return _ENTAILS if any(values <= fact.values for values in given) else _NEUTRAL


def _most(said: Sequence[str]) -> str:
    verdict, times = Counter(said).most_common(1)[0]
    return verdict if times * 2 > len(said) else _UNDETERMINED.value


def _support(table: Sequence[Sequence[str]], n_claims: int, n_segments: int, *, judge: str) -> Support:
    shape = (n_claims, n_segments)
    verdicts = np.array(table, dtype=np.str_).reshape(shape)
    return Support(verdicts, np.full(shape, "by rule"), judge=judge)
