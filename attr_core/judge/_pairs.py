"""Single pairs of a claim and a segment -> tables that a judge can be asked, and each verdict back to its row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from attr_core.errors import AttrkitError
from attr_core.judge._labels import LabelledRow
from attr_core.judge._words import readable
from attr_core.judge.likelihood import ENTAILS_FROM
from attr_core.judge.llm import MAX_CELLS
from attr_core.protocols import Judge
from attr_core.results import Cost, Support, SupportVerdict
from attr_core.types import Claim, Segment, SegmentKind

NEAR_THRESHOLD = 1.0
"""Nats about a likelihood judge's threshold within which its evidence is called unsure."""


@dataclass(frozen=True, slots=True)
class Table:
    """Claims and segments all of whose pairs are asked for, under one question."""

    question: str | None
    claims: tuple[Claim, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """What a judge said of one row, why, and whether it is ``unsure``; ``table`` is the number of the call's table."""

    verdict: SupportVerdict
    why: str
    unsure: bool
    table: int


@dataclass(frozen=True, slots=True)
class Judgements:
    """What a judge said of all rows, in their order, and what each table cost."""

    said: tuple[Said, ...]
    costs: tuple[Cost, ...]
    judge: str | None
    notes: tuple[str, ...]

    @property
    def cost(self) -> Cost:
        """Of all tables."""
        return sum(self.costs, Cost())


def tables_of(rows: Sequence[LabelledRow], *, most: int = MAX_CELLS) -> list[Table]:
    """Tables of at most ``most`` pairs that hold every pair of the rows once, and no other pair.

    Claims that are asked with the same segments stand together, or segments with the same claims, whichever makes
    fewer tables.
    """
    by_question: dict[str | None, list[tuple[str, str]]] = defaultdict(list)
    for row in rows:
        by_question[row.question].append((row.claim, row.segment))
    found = []
    for question, pairs in by_question.items():
        turned = [(segment, claim) for claim, segment in pairs]
        by_claim, by_segment = list(_blocks(pairs, most)), [(b, a) for a, b in _blocks(turned, most)]
        for claims, segments in min(by_segment, by_claim, key=len):
            found.append(Table(question, _claims(claims), _segments(segments)))
    return found


def _blocks(pairs: Sequence[tuple[str, str]], most: int) -> Iterator[tuple[list[str], list[str]]]:
    others: dict[str, dict[str, None]] = defaultdict(dict)
    for one, other in pairs:
        others[one][other] = None
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for one, found_with in others.items():
        alike[tuple(sorted(found_with))].append(one)
    for found, ones in alike.items():
        width = min(len(found), most)
        height = max(1, most // width)
        for left in range(0, len(found), width):
            for top in range(0, len(ones), height):
                yield ones[top : top + height], list(found[left : left + width])


def _claims(texts: Sequence[str]) -> tuple[Claim, ...]:
    return tuple(Claim(index, 0, len(text), text) for index, text in enumerate(texts))


def _segments(texts: Sequence[str]) -> tuple[Segment, ...]:
    return tuple(Segment(f"s{index}", SegmentKind.RETRIEVED, text, ()) for index, text in enumerate(texts))


def judge_pairs(
    judge: Judge, rows: Sequence[LabelledRow], *, near: float, progress: Callable[[int, int], None] | None = None
) -> Judgements:
    """What the judge says of every row; a table that fails leaves its rows ``undetermined`` with the reason.

    Raises
    ------
    AttrkitError
        The first failure, where every table failed.
    """
    tables, failures = tables_of(rows), list[AttrkitError]()
    known: dict[tuple[str | None, str, str], Said] = {}
    costs: list[Cost] = []
    notes: dict[str, None] = {}
    for number, table in enumerate(tables):
        support = None
        try:
            support = judge.judge(table.claims, table.segments, question=table.question)
        except AttrkitError as error:
            failures.append(error)
        costs.append(Cost() if support is None else support.cost)
        notes |= dict.fromkeys(() if support is None else support.notes)
        for i, claim in enumerate(table.claims):
            for j, segment in enumerate(table.segments):
                key = (table.question, claim.text, segment.text)
                if support is None:
                    why = readable(f"the judge failed: {failures[-1]}")
                    known[key] = Said(SupportVerdict.UNDETERMINED, why, True, number)
                else:
                    verdict = SupportVerdict(str(support.verdicts[i, j]))
                    unsure = _is_unsure(judge, support, i, j, near)
                    known[key] = Said(verdict, str(support.rationale[i, j]), unsure, number)
        if progress is not None:
            progress(number + 1, len(tables))
    if failures and len(failures) == len(tables):
        raise failures[0]
    said = tuple(known[row.question, row.claim, row.segment] for row in rows)
    return Judgements(said, tuple(costs), getattr(judge, "spec", None), tuple(notes))


def _is_unsure(judge: Judge, support: Support, claim: int, segment: int, near: float) -> bool:
    """No verdict, repeats that differ, or evidence near the threshold."""
    if support.verdicts[claim, segment] == SupportVerdict.UNDETERMINED:
        return True
    if support.repeated is not None and len(set(support.repeated[:, claim, segment].tolist())) > 1:
        return True
    if support.evidence is None:
        return False
    threshold = getattr(judge, "threshold", getattr(judge, "_threshold", ENTAILS_FROM))
    return bool(abs(support.evidence[claim, segment] - threshold) < near)
