"""Which sources hurt or helped over a whole set, and what the rows of a failure have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attr_core._text.language import guess_language, is_common
from attr_core._text.words import words

if TYPE_CHECKING:
    from attr_core.evaluation.results import RowResult

__all__ = ["Blame", "FailureGroup", "blame", "grouped"]

_SHORTEST_TERM = 3
_MOST_TERMS = 20


@dataclass(frozen=True, slots=True)
class Blame:
    """One source over all answers whose context held a part of it; each answer counts once.

    ``n_hurt`` answers it hurt, ``n_proved`` of them proved by running the prompt without it; ``n_helped`` it helped,
    ``n_measured`` of them by a measured effect; ``n_idle`` of ``n_weighed`` answers that were measured it had no
    effect on. ``text`` is the beginning of one of its segments, ``rows`` the ids of the answers it hurt.
    """

    source: str
    n_answers: int
    n_hurt: int
    n_proved: int
    n_helped: int
    n_measured: int
    n_idle: int
    n_weighed: int
    tokens: int
    text: str
    rows: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"rows": list(self.rows)}


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Rows of one label that share something: ``by`` is ``term`` (a word of the question), ``source`` (in the context)
    or ``culprit`` (a source that hurt).

    ``n`` of the ``of`` rows with that label have it, and ``elsewhere`` of the ``of_others`` rows without. What is as
    common among the others explains nothing.
    """

    label: str | None
    by: str
    value: str
    n: int
    of: int
    elsewhere: int
    of_others: int
    rows: tuple[str, ...]

    @property
    def excess(self) -> float:
        """Share among the label's rows less the share among the others."""
        return self.n / self.of - (self.elsewhere / self.of_others if self.of_others else 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"rows": list(self.rows)}


def blame(rows: Iterable[RowResult], *, top_k: int | None = None) -> tuple[Blame, ...]:
    """Sources by how many answers they hurt, then by how many they helped; at most so many."""
    seen: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for use in row.segments:
            seen[use["group"]][row.id].append(use)
    found = [_blame(source, answers) for source, answers in seen.items()]
    found.sort(key=lambda one: (-one.n_hurt, -one.n_proved, -one.n_helped, -one.n_answers, one.source))
    return tuple(found[:top_k])


def _blame(source: str, answers: Mapping[str, Sequence[Mapping[str, Any]]]) -> Blame:
    def number(holds: Any) -> int:
        return sum(bool(holds(uses)) for uses in answers.values())

    weighed = {row: uses for row, uses in answers.items() if all(use["idle"] is not None for use in uses)}
    return Blame(
        source=source,
        n_answers=len(answers),
        n_hurt=number(lambda uses: any(use["hurt"] for use in uses)),
        n_proved=number(lambda uses: any(use["hurt"] == "proved" for use in uses)),
        n_helped=number(lambda uses: any(use["helped"] for use in uses)),
        n_measured=number(lambda uses: any(use["helped"] == "measured" for use in uses)),
        n_idle=sum(all(use["idle"] for use in uses) for uses in weighed.values()),
        n_weighed=len(weighed),
        tokens=sum(use["tokens"] for uses in answers.values() for use in uses),
        text=next(use["text"] for uses in answers.values() for use in uses),
        rows=tuple(row for row, uses in answers.items() if any(use["hurt"] for use in uses)),
    )


def grouped(rows: Sequence[RowResult], label: str | None) -> tuple[FailureGroup, ...]:
    """What at least two rows of the label share, what sets them most apart from the others first.

    Without a label, all rows whose answer is not right. Terms are words of the question that are no function
    words.
    """
    known = [row for row in rows if row.label is not None]
    if label is None:
        chosen = [row for row in known if row.is_right is False]
    else:
        chosen = [row for row in known if row.label == label]
    ids = {row.id for row in chosen}
    others = [row for row in known if row.id not in ids]
    kinds = {"culprit": _culprits, "source": _sources, "term": _terms}
    found = [one for by, values in kinds.items() for one in _groups(by, chosen, others, values, label)]
    found.sort(key=lambda one: (-one.excess, -one.n, one.by, one.value))
    n_terms, kept = 0, []
    for one in found:
        n_terms += one.by == "term"
        if one.excess > 0 and (one.by != "term" or n_terms <= _MOST_TERMS):
            kept.append(one)
    return tuple(kept)


def _groups(
    by: str, chosen: Sequence[RowResult], others: Sequence[RowResult], values: Any, label: str | None
) -> Iterator[FailureGroup]:
    inside, outside = _index(chosen, values), _index(others, values)
    for value, ids in inside.items():
        if len(ids) > 1:
            elsewhere = len(outside.get(value, ()))
            yield FailureGroup(label, by, value, len(ids), len(chosen), elsewhere, len(others), tuple(ids))


def _index(rows: Iterable[RowResult], values: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        for value in dict.fromkeys(values(row)):
            found[value].append(row.id)
    return found


def _culprits(row: RowResult) -> list[str]:
    return [use["group"] for use in row.segments if use["hurt"]]


def _sources(row: RowResult) -> list[str]:
    return [use["group"] for use in row.segments]


def _terms(row: RowResult) -> list[str]:
    language = guess_language(row.query)
    found = (word.casefold() for word in words(row.query))
    return [word for word in found if len(word) >= _SHORTEST_TERM and not is_common(word, language)]
