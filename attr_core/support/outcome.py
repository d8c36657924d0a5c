"""Whether an answer is right: what it must say, what it must not say, and whether it says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attr_core._text.refusals import declines
from attr_core.outcomes import Outcome, outcome_of
from attr_core.protocols import Judge
from attr_core.results import Cost
from attr_core.support.matrix import verdicts_of
from attr_core.types import Claim, Segment

__all__ = ["Standard", "is_refusal", "outcomes"]


@dataclass(frozen=True, slots=True)
class Standard:
    """What answers are held against: claims that they must state, and, where none is known, claims at issue."""

    wanted: tuple[Claim, ...] = ()
    unwanted: tuple[Claim, ...] = ()
    question: str | None = None


def is_refusal(answer: str) -> bool:
    """Whether an answer declines to answer, by the words that it begins with.

    "I'm sorry, I can't find that.", "The context does not mention it.", "Unknown." A sentence that denies something of
    the matter itself ("The fair did not open in 1911.", "We do not provide dental insurance.") is an answer, so is one
    that declines a part and then says something ("The context gives no day, but it opened in 1911.").

    A wrong "refused" is worse than a missed one, so it is silent where words do not tell: refusals of more than 2,000
    characters, behind an introduction, inside JSON, by changing the subject or asking back in other words than the
    usual; the commonest forms only in German, French, Spanish, Italian, Portuguese, Japanese and Chinese, none in other
    languages. Time does not depend on the answer's length.
    """
    return declines(answer)


def outcomes(judge: Judge, standard: Standard, texts: Sequence[str]) -> tuple[tuple[Outcome, ...], Cost]:
    """What each of several answers to one question amounts to; all of them are judged together.

    Cost: one table of ``(n_wanted + n_unwanted) * n_distinct_texts`` cells; refusals are not judged.

    Returns
    -------
    outcomes : tuple of Outcome, length n_texts
    cost : Cost

    Raises
    ------
    EngineError, BudgetExceededError
        The judge answered nothing at all.
    """
    asked = [text for text in dict.fromkeys(texts) if text.strip() and not is_refusal(text)]
    rows = [*(standard.wanted or standard.unwanted)]
    known: dict[str, Outcome] = {}
    cost = Cost()
    if asked and rows:
        found = verdicts_of(
            judge, rows, [Segment.quoted(f"a{n}", text) for n, text in enumerate(asked)], question=standard.question
        )
        cost = found.cost
        for column, text in enumerate(asked):
            known[text] = outcome_of(found.verdicts[:, column].tolist(), is_wanted=bool(standard.wanted))
    return tuple(_outcome(text, known) for text in texts), cost


def _outcome(text: str, known: dict[str, Outcome]) -> Outcome:
    if not text.strip() or is_refusal(text):
        return Outcome.REFUSED
    return known.get(text, Outcome.UNDETERMINED)
