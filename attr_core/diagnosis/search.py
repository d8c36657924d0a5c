"""Which change repairs an answer: proved against the unchanged prompt, and the smallest that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from attr_core.diagnosis.facts import Facts, Trials, repair_p_value
from attr_core.diagnosis.reruns import Reruns
from attr_core.diagnosis.thresholds import Thresholds
from attr_core.interventions import Intervention
from attr_core.types import Segment, SegmentKind

__all__ = ["orders_of", "prove", "smallest_repair"]

MAX_PROVED = 3
"""Changes that are confirmed, of those that repaired once."""

RUNS_IN_SEARCH = 3
"""Runs of each set in the search, where the engine does not reproduce itself."""

MOVABLE = frozenset({SegmentKind.RETRIEVED, SegmentKind.TOOL_OUTPUT})


def orders_of(sources: Sequence[Segment], right: Sequence[int]) -> list[Intervention]:
    """The right columns first, last, and all in reverse, as far as that is another order than the recorded one."""
    movable = [n for n, one in enumerate(sources) if one.kind in MOVABLE and len(one.locations) == 1]
    movable.sort(key=lambda n: (sources[n].locations[0].message, sources[n].locations[0].start))
    stated = [n for n in movable if n in right]
    rest = [n for n in movable if n not in right]
    wanted = ([*stated, *rest], [*rest, *stated], movable[::-1])
    found = [Intervention(order=tuple(order)) for order in wanted if order != movable and len(order) > 1]
    return list(dict.fromkeys(found))


def prove(facts: Facts, repaired: Sequence[Trials], reruns: Reruns, thresholds: Thresholds) -> Facts:
    """The first of those that repaired which is told apart from the unchanged prompt; the others are unproved.

    On an engine that reproduces itself one run is proof. Else each is run anew, and Fisher's test, by Bonferroni over
    how many are confirmed, and were before in vain, decides; what it did before does not count, since it was chosen
    for that.
    """
    if reruns.is_reproducible:
        return replace(facts, repair=repaired[0]) if repaired else facts
    chosen = list(repaired[:MAX_PROVED])
    confirmed: list[tuple[float, int, Trials]] = []
    for number, one in enumerate(chosen):
        before = len(one.outcomes)
        [again] = reruns.run([one.intervention], times=before + thresholds.n_confirm)
        fresh = Trials(one.intervention, again.texts[before:], again.outcomes[before:], again.same[before:])
        [unchanged] = reruns.run([Intervention()], times=thresholds.n_unchanged + thresholds.n_confirm)
        confirmed.append((repair_p_value(fresh, unchanged), number, fresh))
    n_tests = len(chosen) + len(facts.unproved)
    best = min(confirmed, default=None)
    if best is not None and best[0] * n_tests <= thresholds.alpha:
        return replace(facts, repair=best[2], p_value=min(1.0, best[0] * n_tests))
    return replace(facts, unproved=(*facts.unproved, *(one for _, _, one in confirmed)))


def smallest_repair(facts: Facts, reruns: Reruns, thresholds: Thresholds) -> Facts:
    """A set of units whose removal repairs while leaving any of them in does not; none is found where all fails.

    Starts from the smallest of: the wrong units, the irrelevant ones, all but the right ones.
    """
    times = 1 if reruns.is_reproducible else RUNS_IN_SEARCH
    others = [unit for unit in facts.units if not set(unit) & set(facts.right)]
    wrong = [unit for unit in others if set(unit) & set(facts.wrong)]
    irrelevant = [unit for unit in others if unit not in wrong]
    starts = [start for start in (wrong, irrelevant, others) if len(start) > 1]
    kept: list[tuple[int, ...]] | None = None
    for start in dict.fromkeys(map(tuple, starts)):
        if reruns.run([_removal(start)], times=times)[0].repairs:
            kept = list(start)
            break
    if kept is None:
        return facts
    untried = kept[: -thresholds.max_search] if thresholds.max_search else kept
    for unit in list(reversed(kept[len(untried) :])):
        smaller = [one for one in kept if one != unit]
        if smaller and reruns.run([_removal(smaller)], times=times)[0].repairs:
            kept = smaller
    [found] = reruns.run([_removal(kept)], times=times)
    proved = prove(replace(facts, repair=None), [found], reruns, thresholds)
    if proved.repair is None:
        return proved
    told = f"{len(untried)} of the removed were not put back one by one (max_search): fewer may do"
    return replace(
        proved, of_units=len(kept), notes=(*proved.notes, *([told] if untried else [])), is_smallest=not untried
    )


def _removal(units: Sequence[tuple[int, ...]]) -> Intervention:
    return Intervention(tuple(sorted(chain.from_iterable(units))))
