"""From an answer to the facts about it: judged once, then run again under as few interventions as will do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from attr_core.diagnosis.facts import REMEMBERED, UNTRUSTED, Facts, Need, Trials
from attr_core.diagnosis.reruns import Reruns
from attr_core.diagnosis.search import orders_of, prove, smallest_repair
from attr_core.diagnosis.thresholds import Thresholds
from attr_core.errors import AttrkitError
from attr_core.interventions import Intervention
from attr_core.metering import MeteredEngine
from attr_core.outcomes import Outcome, outcome_of
from attr_core.protocols import Judge, Sampling
from attr_core.results import Cost, SupportVerdict
from attr_core.similar import near_duplicates
from attr_core.support.conflicts import conflicts
from attr_core.support.matrix import Judged, judge_answer, verdicts_of
from attr_core.support.outcome import Standard, is_refusal
from attr_core.types import Claim, Document, Generation, Segment, SegmentKind, ToolCall

__all__ = ["OTHER_QUESTION", "Case", "examine", "is_source"]

OTHER_QUESTION = "Thank you, that is all. Please just say hello."
"""Stands in the place of what was asked, to see whether what was said is an answer to it at all."""

_ENTAILS, _CONTRADICTS = SupportVerdict.ENTAILS.value, SupportVerdict.CONTRADICTS.value


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One answer with all that was recorded about it.

    ``sources`` are the segments of the prompt that are neither the question nor the instruction; ``lost`` are documents
    that were retrieved and do not stand in the prompt. ``suspects`` are columns of ``sources``, most suspicious first.
    ``granularity`` is how finely the context was cut, where that was asked for.
    """

    generation: Generation
    sources: tuple[Segment, ...]
    claims: tuple[Claim, ...]
    question: str | None = None
    expected: str | None = None
    expected_chunks: tuple[str, ...] = ()
    retrieved: tuple[Document, ...] = ()
    lost: tuple[Document, ...] = ()
    tool_errors: tuple[ToolCall, ...] = ()
    suspects: tuple[int, ...] = ()
    is_answered_by_other: bool = False
    granularity: str | None = None


def examine(
    case: Case,
    *,
    judge: Judge,
    engine: MeteredEngine | None,
    sampling: Sampling,
    thresholds: Thresholds,
    notes: Sequence[str] = (),
) -> Facts:
    """Judge the answer; where something is wrong with it, run the prompt again under interventions.

    What fails on the way is told in ``trouble``, and what is known until then is kept.

    Parameters
    ----------
    case : Case
    judge : Judge
    engine : MeteredEngine or None
        That generates; without one nothing is run again.
    """
    strategy = "support" if engine is None else "cause"
    blank = Facts(None, Outcome.UNDETERMINED, case.sources, strategy=strategy, notes=tuple(notes))
    blank = replace(blank, tool_errors=case.tool_errors, is_answered_by_other=case.is_answered_by_other)
    try:
        facts = _judged(case, judge, blank)
    except AttrkitError as error:
        return replace(blank, trouble=(f"the judge failed: {error}",))
    if engine is None or facts.trouble or not _is_to_be_run_again(facts):
        return facts
    assert facts.judged is not None  # noqa: S101 - mypy
    reruns = Reruns(
        engine,
        judge,
        generation=case.generation,
        sources=case.sources,
        standard=(standard := _standard(facts.judged, facts)),
        sampling=sampling,
        thresholds=thresholds,
        recorded=facts.outcome if standard.wanted else Outcome.WRONG,
    )
    try:
        facts = _run_again(case, facts, reruns, thresholds)
    except AttrkitError as error:
        facts = replace(facts, trouble=(*facts.trouble, f"the prompt could not be run again: {error}"))
    return replace(facts, n_runs=reruns.n_runs, cost=facts.cost + reruns.judge_cost)


def _judged(case: Case, judge: Judge, blank: Facts) -> Facts:
    """What the judge says of the answer and its sources."""
    judged = judge_answer(
        judge,
        answer=case.generation.written,
        claims=case.claims,
        segments=case.sources,
        question=case.question,
        expected=case.expected,
    )
    found = conflicts(judged, judge)
    cost = judged.support.cost + found.cost
    right = _columns(judged.sources.verdicts, _ENTAILS)
    at_issue = _at_issue(judged)
    states_issue = _columns(judged.support.verdicts[list(at_issue)], _ENTAILS) if at_issue else set()
    wrong = (_columns(judged.sources.verdicts, _CONTRADICTS) | states_issue) - right
    instructed, need, extra = _Instructed(), Need.UNKNOWN, Cost()
    dropped: tuple[Document, ...] = ()
    trouble: tuple[str, ...] = ()
    try:
        instructed = _instructed(case, judged, judge, at_issue)
        need, dropped, extra = _need(case, judged, judge, instructed)
    except AttrkitError as error:
        trouble = (f"the judge failed: {error}",)
    if not judged.wanted:
        at_issue = tuple(row for row in at_issue if row not in instructed.claims)
    return replace(
        blank,
        judged=judged,
        outcome=_outcome(judged, at_issue, instructed.claims),
        need=need,
        dropped=dropped,
        at_issue=at_issue,
        said_by_instruction=bool(instructed.claims & set(at_issue)),
        current=_current(case),
        right=tuple(sorted(right)),
        wrong=tuple(sorted(wrong)),
        units=_units(case.sources, judged, right, wrong),
        conflicts=found.pairs,
        notes=(*blank.notes, *judged.support.notes, *found.notes),
        trouble=trouble,
        cost=cost + instructed.cost + extra,
    )


@dataclass(frozen=True, slots=True)
class _Instructed:
    """What the instruction states: claims of the answer and of the expected one, by row."""

    claims: frozenset[int] = frozenset()
    wanted: frozenset[int] = frozenset()
    cost: Cost = field(default_factory=Cost)


def _instructed(case: Case, judged: Judged, judge: Judge, at_issue: tuple[int, ...]) -> _Instructed:
    """Only of what no source states: an instruction is no source, but what it holds needs no retrieval."""
    texts = [one for one in case.generation.segments if not is_source(one) and not one.fixed and one.text.strip()]
    stated = (judged.sources.verdicts == _ENTAILS).any(axis=1)
    missing = [row for row in range(len(judged.wanted)) if not stated[row]]
    asked = [*(judged.claims[row] for row in at_issue), *(judged.wanted[row] for row in missing)]
    if not texts or not asked:
        return _Instructed()
    found = verdicts_of(judge, asked, texts, question=judged.question)
    states = (found.verdicts == _ENTAILS).any(axis=1).tolist()
    rows = [row for row, is_stated in zip([*at_issue, *missing], states, strict=True) if is_stated]
    n = sum(states[: len(at_issue)])
    return _Instructed(frozenset(rows[:n]), frozenset(rows[n:]), found.cost)


def _current(case: Case) -> frozenset[int]:
    """Columns that stand in the turn with the question and are no document: a context that was pasted into it."""
    asking = {place.message for one in case.generation.segments if one.fixed for place in one.locations}
    return frozenset(
        column
        for column, one in enumerate(case.sources)
        if one.kind is SegmentKind.USER_TURN and asking.issuperset(place.message for place in one.locations)
    )


def _columns(verdicts: NDArray[np.str_], verdict: str) -> set[int]:
    return set(np.flatnonzero((verdicts == verdict).any(axis=0)).tolist())


def _at_issue(judged: Judged) -> tuple[int, ...]:
    """Claims that are wrong by the expected answer; where none is known, those that no segment states."""
    if is_refusal(judged.answer):
        return ()
    supported = (judged.support.verdicts == _ENTAILS).any(axis=1)
    disputed = (judged.support.verdicts == _CONTRADICTS).any(axis=1)
    unclear = (judged.support.verdicts == SupportVerdict.UNDETERMINED.value).any(axis=1) & ~supported
    if judged.wanted:
        bad = (judged.correct == _CONTRADICTS) | (~supported & ~unclear & (judged.correct != _ENTAILS))
    else:
        bad = disputed | (~supported & ~unclear)
    return tuple(row for row, is_bad in enumerate(bad.tolist()) if is_bad)


def _outcome(judged: Judged, at_issue: tuple[int, ...], instructed: frozenset[int]) -> Outcome:
    if is_refusal(judged.answer):
        return Outcome.REFUSED
    if judged.wanted:
        found = outcome_of(judged.recalled.tolist(), is_wanted=True)
        contradicted = bool((judged.correct == _CONTRADICTS).any())
        return Outcome.WRONG if found is Outcome.RIGHT and contradicted else found
    if at_issue:
        return Outcome.WRONG
    stated = (judged.support.verdicts == _ENTAILS).any(axis=1)
    stated[list(instructed)] = True
    return Outcome.RIGHT if stated.all() and judged.claims else Outcome.UNDETERMINED


def _need(case: Case, judged: Judged, judge: Judge, instructed: _Instructed) -> tuple[Need, tuple[Document, ...], Cost]:
    """Whether what is expected stands in the prompt, was retrieved and left out, or neither."""
    verdicts = judged.sources.verdicts
    if not judged.wanted:
        helps = (judged.relevant == _ENTAILS).any() or instructed.claims
        unknown = (judged.relevant == SupportVerdict.UNDETERMINED.value).any()
        return (Need.THERE if helps else Need.UNKNOWN if unknown else Need.MISSING), (), Cost()
    stated = (verdicts == _ENTAILS).any(axis=1)
    stated[list(instructed.wanted)] = True
    unclear = (verdicts == SupportVerdict.UNDETERMINED.value).any(axis=1) & ~stated
    if stated.all():
        return Need.THERE, (), Cost()
    cost, dropped = Cost(), [one for one in case.lost if one.id in case.expected_chunks]
    if case.lost:
        missing = [claim for claim, is_there in zip(judged.wanted, stated.tolist(), strict=True) if not is_there]
        columns = [Segment.quoted(one.id, one.text) for one in case.lost]
        found = verdicts_of(judge, missing, columns, question=judged.question)
        cost = found.cost
        dropped += [case.lost[column] for column in sorted(_columns(found.verdicts, _ENTAILS))]
    if dropped:
        return Need.DROPPED, tuple({one.id: one for one in dropped}.values()), cost
    return (Need.UNKNOWN if unclear.any() else Need.MISSING), (), cost


def _units(sources: Sequence[Segment], judged: Judged, right: set[int], wrong: set[int]) -> tuple[tuple[int, ...], ...]:
    """Columns that are taken together: near-duplicates, and wrong ones that state the same claims; the others alone."""
    unit = {column: column for column in range(len(sources))}

    def join(columns: Sequence[int]) -> None:
        first = min(unit[column] for column in columns)
        joined = {unit[column] for column in columns}
        unit.update({column: first for column in unit if unit[column] in joined})

    for group in near_duplicates([source.text for source in sources]):
        for side in (right, wrong, set(unit) - right - wrong):
            for members in _apart([column for column in group if column in side], sources):
                if len(members) > 1 and _agree(members, judged):
                    join(members)
    for row in judged.support.verdicts:
        for members in _apart([column for column in sorted(wrong) if row[column] == _ENTAILS], sources):
            if len(members) > 1:
                join(members)
    groups: dict[int, list[int]] = {}
    for column, first in unit.items():
        groups.setdefault(first, []).append(column)
    return tuple(tuple(members) for members in groups.values())


def _apart(columns: Sequence[int], sources: Sequence[Segment]) -> tuple[list[int], list[int]]:
    """What is remembered apart from what is not: which of the two it was is what a label says."""
    remembered = [column for column in columns if sources[column].kind in REMEMBERED]
    return remembered, [column for column in columns if column not in remembered]


def _agree(columns: Sequence[int], judged: Judged) -> bool:
    """Whether the judge says the same of all: "opened in 1997" and "opened in 1979" are nearly the same text."""
    tables = (judged.support.verdicts, judged.sources.verdicts)
    return all((table[:, list(columns)] == table[:, [columns[0]]]).all() for table in tables)


def _is_to_be_run_again(facts: Facts) -> bool:
    if facts.outcome in (Outcome.UNDETERMINED, Outcome.CHANGED):
        return False
    return facts.outcome is not Outcome.RIGHT or bool(facts.at_issue)


def _standard(judged: Judged, facts: Facts) -> Standard:
    """What must be said; where that is unknown, or all of it is said, the claims at issue that must not."""
    if judged.wanted and facts.outcome is not Outcome.RIGHT:
        return Standard(wanted=judged.wanted, question=judged.question)
    at_issue = tuple(judged.claims[row] for row in facts.at_issue)
    return Standard(unwanted=at_issue, question=judged.question)


def _run_again(case: Case, facts: Facts, reruns: Reruns, thresholds: Thresholds) -> Facts:
    """Interventions in the order in which they can decide; whatever is decided, later ones are left out."""
    facts = replace(facts, is_reproducible=reruns.is_reproducible)
    asis = Intervention()
    [unchanged] = reruns.run([asis], times=thresholds.n_unchanged)
    if not unchanged.stays:
        unchanged = reruns.hold_against(unchanged)
        facts = replace(facts, notes=(*facts.notes, *_other_answer(unchanged)))
    facts = replace(facts, unchanged=unchanged)
    if unchanged.repairs or (facts.outcome is Outcome.RIGHT and unchanged.n_repaired):
        return facts
    if not case.sources or facts.need in (Need.MISSING, Need.DROPPED) or facts.tool_errors:
        return facts
    every, others = tuple(range(len(case.sources))), _others(facts)
    units = _suspicious(facts, case.suspects)
    singles = [Intervention(unit) for unit in units[: thresholds.max_singles]]
    if left := len(units) - len(singles):
        told = f"{left} of {len(units)} segments were not removed one by one (max_singles), the least suspicious ones"
        facts = replace(facts, notes=(*facts.notes, told))
    named = {
        "nothing": Intervention(every),
        "only_right": Intervention(others),
        "without_right": Intervention(facts.right),
        "without_wrong": Intervention(facts.wrong),
    }
    named = {name: one for name, one in named.items() if one.removed}
    reruns.run([*singles, *named.values()])
    facts = replace(facts, **dict(zip(named, reruns.run(list(named.values())), strict=True)))  # type: ignore[arg-type]
    facts = prove(facts, [one for one in reruns.run(singles) if one.repairs], reruns, thresholds)
    if facts.repair is None:
        facts = _reordered(facts, reruns, thresholds)
        facts = smallest_repair(facts, reruns, thresholds)
    if facts.repair is not None and facts.kinds(facts.culprits) <= UNTRUSTED:
        other = Intervention(question=OTHER_QUESTION)
        if reruns.can_run(other):
            obeyed, otherwise = reruns.run([other, replace(other, removed=facts.culprits)])
            facts = replace(facts, other_question=obeyed, other_without=otherwise)
    if facts.repair is None and facts.reordered is None and not reruns.is_reproducible:
        facts = _look_again(facts, named, singles, reruns, thresholds)
    return replace(facts, unchanged=reruns.run([asis])[0])


def _other_answer(unchanged: Trials) -> tuple[str, ...]:
    if not unchanged.stays or unchanged.repairs:
        return ()
    now = next(text for text, is_same in zip(unchanged.texts, unchanged.same, strict=True) if is_same)
    told = " ".join(now.split())[:200]
    return (f"run again, the unchanged prompt gets another answer than the recorded one, also wrong: {told!r}",)


def _reordered(facts: Facts, reruns: Reruns, thresholds: Thresholds) -> Facts:
    """Whether another order of the same segments repairs."""
    orders = [one for one in orders_of(facts.sources, facts.right) if reruns.can_run(one)]
    by_order = [one for one in reruns.run(orders) if one.repairs]
    proved = prove(facts, by_order, reruns, thresholds)
    return replace(facts, reordered=proved.repair, unproved=proved.unproved, p_value=proved.p_value)


def _look_again(
    facts: Facts,
    named: dict[str, Intervention],
    singles: Sequence[Intervention],
    reruns: Reruns,
    thresholds: Thresholds,
) -> Facts:
    """Nothing was proved: are those that repaired by chance the unchanged prompt's own doing?"""
    times = thresholds.n_confirm
    found = dict(zip(named, reruns.run(list(named.values()), times=times), strict=True))
    by_chance = [one for one in (*reruns.run(singles), *found.values()) if one.n_repaired]
    reruns.run([Intervention()], times=4 * thresholds.n_unchanged)
    unproved = {one.intervention: one for one in (*facts.unproved, *by_chance)}
    return replace(facts, unproved=tuple(unproved.values()), **found)  # type: ignore[arg-type]


def _others(facts: Facts) -> tuple[int, ...]:
    return tuple(column for column in range(len(facts.sources)) if column not in facts.right)


def _suspicious(facts: Facts, suspects: Sequence[int]) -> list[tuple[int, ...]]:
    """Units but the right ones: wrong ones first, then as suspected."""
    place = {column: n for n, column in enumerate(suspects)}
    last = len(place)

    def key(unit: tuple[int, ...]) -> tuple[bool, int, int]:
        return not set(unit) & set(facts.wrong), min(place.get(column, last) for column in unit), unit[0]

    return sorted((unit for unit in facts.units if not set(unit) & set(facts.right)), key=key)


def is_source(segment: Segment) -> bool:
    """Whether a segment is what the model was told to answer from or heard before, not how to answer."""
    return segment.kind is not SegmentKind.SYSTEM
