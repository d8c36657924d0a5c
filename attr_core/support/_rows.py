"""Verdicts as numbers, 1, 0 or NaN, and the reasons for which a metric has nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from attr_core.judge._words import readable
from attr_core.results import FloatArray, MaskArray, Support, SupportVerdict
from attr_core.support.matrix import Judged
from attr_core.support.outcome import is_refusal
from attr_core.support.scores import BY_EVIDENCE, Score, averaged, not_available

ENTAILS = SupportVerdict.ENTAILS.value
CONTRADICTS = SupportVerdict.CONTRADICTS.value
_GIVEN = (ENTAILS, CONTRADICTS, SupportVerdict.NEUTRAL.value)

Backing = tuple[FloatArray, MaskArray]
"""Per row 1 where a column entails it, NaN where no verdict was given, else 0; and which 0s hang on missing ones."""


def lacks(judged: Judged, *needs: Callable[[Judged], str]) -> str:
    """The first reason why one of the needs is not met; empty where all are."""
    return next((reason for need in needs if (reason := need(judged))), "")


def an_answer(judged: Judged) -> str:
    if is_refusal(judged.answer):
        return "the answer declines to answer"
    return "" if judged.claims else "the answer makes no claim"


def a_context(judged: Judged) -> str:
    if not judged.segments:
        return "there is no context"
    return "" if filled(judged).any() else "the context is empty"


def a_question(judged: Judged) -> str:
    return "" if judged.question else "no question is known"


def an_expected_answer(judged: Judged) -> str:
    if not judged.expected and not judged.wanted:
        return "no answer is expected"
    if judged.expected and is_refusal(judged.expected):
        return "the expected answer declines to answer"
    return "" if judged.wanted else "the expected answer makes no claim"


def its_text(judged: Judged) -> str:
    """The expected answer's own text, which claims are held against; expected claims alone are none."""
    return "" if judged.expected else "the expected answer is known by its claims only"


def a_judge(judged: Judged) -> str:
    return "no judge has spoken, and likelihood evidence cannot tell" if judged.support.kind == "evidence" else ""


def filled(judged: Judged) -> MaskArray:
    """Which segments hold more than white space; no verdict on the others counts."""
    return np.array([bool(segment.text.strip()) for segment in judged.segments], dtype=np.bool_)


def given(verdicts: NDArray[np.str_]) -> MaskArray:
    return np.isin(verdicts, _GIVEN)


def holds(verdicts: NDArray[np.str_]) -> FloatArray:
    """1 where it entails, NaN where no verdict was given, else 0."""
    return np.where(given(verdicts), (verdicts == ENTAILS).astype(np.float64), np.nan)


def backing(verdicts: NDArray[np.str_]) -> Backing:
    shown = (verdicts == ENTAILS).any(axis=1)
    known = given(verdicts)
    values = np.where(shown, 1.0, np.where(known.any(axis=1), 0.0, np.nan))
    return values, ~shown & known.any(axis=1) & ~known.all(axis=1)


def supported(judged: Judged) -> Backing:
    """The answer's claims by the segments; one that is contradicted hangs on nothing more."""
    verdicts = judged.support.verdicts[:, filled(judged)]
    values, is_open = backing(verdicts)
    return values, is_open & ~(verdicts == CONTRADICTS).any(axis=1)


def both(first: FloatArray, second: FloatArray) -> FloatArray:
    """Kleene's *and*: 0 where either is, else NaN where either is, else 1."""
    unknown = np.isnan(first) | np.isnan(second)
    return np.where((first == 0) | (second == 0), 0.0, np.where(unknown, np.nan, 1.0))


def mean_over(
    name: str,
    judged: Judged,
    items: Sequence[str],
    values: FloatArray,
    *,
    what: str,
    found: Support | None = None,
    is_open: MaskArray | None = None,
    empty: MaskArray | None = None,
) -> Score:
    """The mean of the values, telling what was left out; N/A where nothing is decided.

    ``found`` has the judge's reasons for verdicts that are missing, ``is_open`` marks 0s that hang on such, ``empty``
    items that hold no text.
    """
    is_unknown = np.isnan(values)
    hanging = np.zeros_like(is_unknown) if is_open is None else is_open
    without = np.zeros_like(is_unknown) if empty is None else empty
    if (is_unknown | hanging).all():
        return not_available(name, undecided(found), items=items, what=what)
    told = []
    if n_unknown := int((is_unknown & ~without).sum()):
        told.append(f"{n_unknown} left out: {undecided(found)}")
    if without.any():
        told.append(f"{int(without.sum())} left out: empty")
    if hanging.any():
        told.append(f"{int(hanging.sum())} judged in part: some of their verdicts are missing")
    return averaged(name, list(zip(items, values.tolist(), strict=True)), what=what, reason=noted(judged, told))


def undecided(found: Support | None = None) -> str:
    """That the judge gave no verdict, with its first reason where there is one."""
    reasons = found.rationale[~given(found.verdicts)].tolist() if found is not None else []
    why = next((readable(str(reason)) for reason in reasons if str(reason).strip()), "")
    return f"the judge gave no verdict{f' ({why})' if why else ''}"


def noted(judged: Judged, told: Sequence[str]) -> str:
    """A reason of these parts, with the note that no judge has spoken where that is so."""
    return "; ".join([*told, *([BY_EVIDENCE] if judged.support.kind == "evidence" else [])])
