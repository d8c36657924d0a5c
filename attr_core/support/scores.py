"""Scores: a number from 0 to 1, or why there is none, with what it is the mean of and how much of that was left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from attr_core.errors import InputError
from attr_core.judge._words import readable
from attr_core.support.matrix import Judged

__all__ = ["BY_EVIDENCE", "Metric", "Score", "averaged", "mean_of", "not_available"]

BY_EVIDENCE = "by likelihood evidence, no judge has spoken"
"""Stands in the reason of a score that comes of evidence, and of a mean over such scores."""

_SLACK = 1e-9


class Metric(Protocol):
    """Any function of a :class:`~attr_core.support.Judged` that gives a :class:`Score`; it asks no judge."""

    def __call__(self, judged: Judged, /) -> Score: ...


@dataclass(frozen=True, slots=True)
class Score:
    """What a metric says of one answer, or a mean of such over rows.

    ``value`` is from 0 to 1, or NaN where the score is not available (N/A); ``reason`` then says why. ``n`` of ``of``
    ``what`` (claims, segments, rows) were counted, ``reason`` says why the others were not. ``items`` are all of them,
    each with its value, NaN where it was left out; a claim or expected chunk by its text, a segment or document by id.

    Raises
    ------
    InputError
        A value is no number from 0 to 1, more was counted than there was, or N/A is given without a reason.

    Examples
    --------
    >>> print(averaged("faithfulness", [("A.", 1.0), ("B.", 0.0), ("C.", 0.0)], what="claims"))
    faithfulness 0.33 (3 of 3 claims)
    >>> print(not_available("faithfulness", "the answer makes no claim"))
    faithfulness N/A: the answer makes no claim
    """

    name: str
    value: float
    n: int
    of: int
    reason: str = ""
    items: tuple[tuple[str, float], ...] = ()
    what: str = "items"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _checked(self.name, self.value))
        object.__setattr__(self, "items", tuple((str(text), _checked(self.name, each)) for text, each in self.items))
        if not 0 <= self.n <= self.of:
            raise InputError(f"score {self.name!r} counts {self.n} of {self.of} {self.what}; give 0 <= n <= of")
        if self.is_available and not self.n:
            raise InputError(f"score {self.name!r} is {self.value} over no {self.what}; give NaN and a reason")
        if not self.is_available and (self.n or not self.reason.strip()):
            raise InputError(f"score {self.name!r} is NaN; give n=0 and the reason why it is not available")

    def __str__(self) -> str:
        if not self.is_available:
            return f"{self.name} N/A: {self.reason}"
        return f"{self.name} {self.value:.2f} ({self.n} of {self.of} {self.what})"

    @property
    def is_available(self) -> bool:
        """Whether there is a value."""
        return not math.isnan(self.value)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes ``None``."""
        return {
            "name": self.name,
            "value": _or_none(self.value),
            "n": self.n,
            "of": self.of,
            "what": self.what,
            "reason": self.reason,
            "items": [{"text": text, "value": _or_none(value)} for text, value in self.items],
        }


def averaged(name: str, items: Sequence[tuple[str, float]], *, what: str = "items", reason: str = "") -> Score:
    """The mean of the items that have a value; N/A for ``reason`` where none has.

    Raises
    ------
    InputError
        A value is not from 0 to 1, or none is there and no reason is given.
    """
    known = [value for _, value in items if not math.isnan(value)]
    value = math.fsum(known) / len(known) if known else math.nan
    return Score(name, value, len(known), len(items), reason, tuple(items), what)


def not_available(name: str, reason: str, *, items: Sequence[str] = (), what: str = "items") -> Score:
    """A score that is N/A, for ``reason``; ``items`` are those that it would have been the mean of."""
    left_out = tuple((text, math.nan) for text in items)
    return Score(name, math.nan, 0, len(items), readable(reason) or "no reason was given", left_out, what)


def mean_of(scores: Sequence[Score]) -> Score:
    """The mean of one metric over rows: of those that have a value, each counted once, however many items it has.

    ``n`` of ``of`` rows have a value; ``reason`` says why the others have none, so one that failed neither drags the
    mean down nor hides. N/A where none has, or where there is no row.

    Raises
    ------
    InputError
        The scores are of several metrics.

    Examples
    --------
    >>> first, last = averaged("mine", [("A.", 1.0)]), averaged("mine", [("B.", 0.0)])
    >>> mean = mean_of([first, not_available("mine", "the judge failed"), last])
    >>> print(mean, "|", mean.reason)
    mine 0.50 (2 of 3 rows) | 1 left out: the judge failed
    """
    names = list(dict.fromkeys(score.name for score in scores))
    if len(names) > 1:
        raise InputError(f"scores of {', '.join(map(repr, names))} have no common mean; give those of one metric")
    if not names:
        return not_available("mean", "there is no row", what="rows")
    counted = [score for score in scores if score.is_available]
    missing = Counter(score.reason for score in scores if not score.is_available)
    told = [
        f"{count} left out: {reason}" for reason, count in sorted(missing.items(), key=lambda one: (-one[1], one[0]))
    ]
    if in_part := sum(score.n < score.of for score in counted):
        told.append(f"{in_part} counted by a part of their {counted[0].what}")
    if any(BY_EVIDENCE in score.reason for score in counted):
        told.append(BY_EVIDENCE)
    items = [(f"row {number}", score.value) for number, score in enumerate(scores, start=1)]
    return averaged(names[0], items, what="rows", reason="; ".join(told))


def _checked(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"score {name!r} is {type(value).__name__}, no number; give one from 0 to 1, or NaN") from None
    if math.isnan(number):
        return math.nan
    if not -_SLACK <= number <= 1 + _SLACK:
        raise InputError(f"score {name!r} is {number}; give a number from 0 to 1, or NaN with a reason")
    return min(max(number, 0.0), 1.0)


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
