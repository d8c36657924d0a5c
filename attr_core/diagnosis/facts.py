"""What was found out about an answer: the material that a diagnosis is decided on, plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from scipy import stats

from attr_core.interventions import Intervention
from attr_core.outcomes import Outcome
from attr_core.results import Cost, SupportVerdict
from attr_core.support.conflicts import Conflict
from attr_core.support.matrix import Judged
from attr_core.types import Document, Segment, SegmentKind, ToolCall

__all__ = ["Facts", "Need", "Trials", "repair_p_value"]

REPAIRED = frozenset({Outcome.RIGHT, Outcome.CHANGED})
"""Outcomes with which nothing is wrong any more, as far as that is known."""

UNTRUSTED = frozenset({SegmentKind.RETRIEVED, SegmentKind.TOOL_OUTPUT, SegmentKind.MEMORY})
REMEMBERED = frozenset({SegmentKind.MEMORY, SegmentKind.USER_TURN, SegmentKind.ASSISTANT_TURN})


class Need(StrEnum):
    """Whether the prompt holds what a right answer needs."""

    THERE = "there"
    DROPPED = "dropped"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Trials:
    """What the model said under one intervention, run by run.

    ``same`` tells of each run whether it is still the recorded answer, in these or in other words.
    """

    intervention: Intervention
    texts: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    same: tuple[bool, ...]

    @property
    def n(self) -> int:
        """Runs whose outcome is known."""
        return sum(outcome is not Outcome.UNDETERMINED for outcome in self.outcomes)

    @property
    def n_repaired(self) -> int:
        """Runs with which nothing is wrong."""
        return sum(outcome in REPAIRED for outcome in self.outcomes)

    @property
    def repairs(self) -> bool:
        """Whether more than half of the runs are repaired."""
        return self.n_repaired > self.n / 2

    @property
    def stays(self) -> bool:
        """Whether more than half of the runs say what was recorded."""
        return sum(self.same) > len(self.same) / 2

    def __add__(self, other: Trials) -> Trials:
        return Trials(
            self.intervention, self.texts + other.texts, self.outcomes + other.outcomes, self.same + other.same
        )


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """All that is known of one answer; columns count in ``sources``, the segments that are not the instruction.

    ``units`` are groups of columns that say the same and are taken together. ``right`` are columns that state a
    part of what is expected, ``wrong`` those that contradict it or state a claim at issue, ``at_issue`` the claims (by
    index) that are wrong or that nothing supports; ``said_by_instruction`` tells that the instruction states one.
    ``current`` are columns of the turn that asks, such as a context that was pasted into it. ``unchanged`` are the runs
    of the prompt as it was, ``nothing`` without any source, ``only_right`` with the right columns alone,
    ``without_right`` without those, ``reordered`` in the order that repaired, if one did. ``repair`` is the smallest
    removal that was found to repair, ``of_units`` how many units it takes, ``is_smallest`` whether none of them can
    stay. ``other_question`` are the runs with another question in place of the user's, ``other_without`` those without
    the culprits too. What was not run is ``None``. ``trouble`` says why nothing, or not all, could be measured.
    """

    judged: Judged | None
    outcome: Outcome
    sources: tuple[Segment, ...]
    need: Need = Need.UNKNOWN
    dropped: tuple[Document, ...] = ()
    at_issue: tuple[int, ...] = ()
    said_by_instruction: bool = False
    current: frozenset[int] = frozenset()
    right: tuple[int, ...] = ()
    wrong: tuple[int, ...] = ()
    units: tuple[tuple[int, ...], ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    tool_errors: tuple[ToolCall, ...] = ()
    is_answered_by_other: bool = False
    is_reproducible: bool = False
    unchanged: Trials | None = None
    nothing: Trials | None = None
    only_right: Trials | None = None
    without_right: Trials | None = None
    without_wrong: Trials | None = None
    other_question: Trials | None = None
    other_without: Trials | None = None
    repair: Trials | None = None
    of_units: int = 0
    is_smallest: bool = True
    reordered: Trials | None = None
    unproved: tuple[Trials, ...] = ()
    p_value: float = math.nan
    n_runs: int = 0
    strategy: str = "cause"
    trouble: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cost: Cost = field(default_factory=Cost)

    @property
    def has_expected(self) -> bool:
        """Whether it is known what would have been right."""
        return self.judged is not None and bool(self.judged.wanted)

    @property
    def culprits(self) -> tuple[int, ...]:
        """Columns of the smallest removal that repairs."""
        return () if self.repair is None else self.repair.intervention.removed

    @property
    def against(self) -> tuple[int, ...]:
        """Columns that contradict a claim at issue."""
        if self.judged is None or not self.at_issue:
            return ()
        verdicts = self.judged.support.verdicts[list(self.at_issue)]
        return tuple(np.flatnonzero((verdicts == SupportVerdict.CONTRADICTS.value).any(axis=0)).tolist())

    def kinds(self, columns: Sequence[int]) -> set[SegmentKind]:
        """Kinds of those columns."""
        return {self.sources[column].kind for column in columns}

    def are_given(self, columns: Sequence[int]) -> bool:
        """Whether all of them came with the question: retrieved, from a tool, or pasted into the turn that asks."""
        return all(column in self.current or self.sources[column].kind in UNTRUSTED - REMEMBERED for column in columns)

    def are_remembered(self, columns: Sequence[int]) -> bool:
        """Whether all of them are memory or earlier turns."""
        return all(column not in self.current and self.sources[column].kind in REMEMBERED for column in columns)


def repair_p_value(changed: Trials, unchanged: Trials) -> float:
    """One-sided p-value that a change repairs no more often than the unchanged prompt repairs itself.

    Fisher's exact test on the numbers of runs.
    """
    table = [
        [changed.n_repaired, changed.n - changed.n_repaired],
        [unchanged.n_repaired, unchanged.n - unchanged.n_repaired],
    ]
    return float(stats.fisher_exact(table, alternative="greater").pvalue)
