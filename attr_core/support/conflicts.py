"""Segments that contradict each other, and segments that contradict what the model says without them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attr_core._text.views import Span
from attr_core.claims import split_claims
from attr_core.errors import BudgetExceededError, EngineError
from attr_core.protocols import Judge
from attr_core.results import Cost, Support, SupportVerdict
from attr_core.similar import near_duplicates
from attr_core.support._sentences import Sentence, differ, frame, sentences_of, shared, supporting_sentence
from attr_core.support.matrix import Judged
from attr_core.support.outcome import is_refusal
from attr_core.types import Claim

__all__ = ["MAX_PAIRS", "ClosedBook", "Conflict", "Conflicts", "against_closed_book", "conflicts"]

MAX_PAIRS = 6
"""Pairs of segments that a judge is asked about directly; all in one table."""

MAX_TOLD = 1_000
"""Sentences of all segments that are compared; comparing takes their number squared."""

MAX_ALIKE = 50
"""Of those that are nearly the same, so many are looked at closer; one of each segment first."""

_ENTAILS, _CONTRADICTS = SupportVerdict.ENTAILS.value, SupportVerdict.CONTRADICTS.value
_UNDETERMINED = SupportVerdict.UNDETERMINED.value
_NO_CONTRADICTION = (
    "likelihood evidence cannot contradict: no conflict is read off it and none is ruled out; name a judge"
)

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two segments (columns) that cannot both be right.

    ``how`` is ``matrix`` where ``first`` entails a claim that ``second`` contradicts: ``claim`` is its index among the
    answer's claims, or ``wanted`` among the expected answer's. It is ``direct`` where a sentence of ``first`` was
    judged against ``second``; ``claim`` is then the answer's claim that both touch, if any. ``rationale`` is the
    judge's, for whoever reads it; nothing is decided by it. ``sentences`` are where the two say it, characters of each
    segment's text, ``None`` where no sentence shares a word with the claim.
    """

    first: int
    second: int
    claim: int | None
    how: Literal["matrix", "direct"]
    rationale: str
    sentences: tuple[Span | None, Span | None]
    wanted: int | None = None


@dataclass(frozen=True, slots=True)
class Conflicts:
    """The conflicts found, and the pairs of columns that may be one and that nobody has judged."""

    pairs: tuple[Conflict, ...]
    unchecked: tuple[Pair, ...] = ()
    cost: Cost = field(default_factory=Cost)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ClosedBook:
    """What the segments say of the answer that the model gives without them.

    ``support`` is ``(n_claims, n_segments)`` of that answer's ``claims``. A column is in ``contradicting`` (or
    ``entailing``) where it contradicts (entails) at least one of them; it can be in both.
    """

    answer: str
    claims: tuple[Claim, ...]
    support: Support | None
    contradicting: tuple[int, ...] = ()
    entailing: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def cost(self) -> Cost:
        """Nothing where nothing was judged."""
        return Cost() if self.support is None else self.support.cost


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A pair to be judged directly: a sentence of the first column against the second column."""

    first: int
    second: int
    sentence: Span
    other: Span | None
    claim: int | None = None


def conflicts(judged: Judged, judge: Judge | None = None, *, max_pairs: int = MAX_PAIRS) -> Conflicts:
    """Pairs of segments that contradict each other, each pair once.

    The table of verdicts is read first, for nothing: one segment entails a claim, of the answer or of the expected one,
    that another contradicts. Where it does not decide, a judge is asked about pairs that both contradict the same
    claim, that are close (a sentence of each is nearly the same but for a number, a name or a negation), or
    of which one speaks of a claim and the other's verdict on it is undetermined; in that order. Only verdicts count,
    never what a rationale says.
    Cost: nothing from the table; then one table of at most ``max_pairs`` sentences and as many segments.

    Parameters
    ----------
    judged : Judged
        Columns count in its segments.
    judge : Judge, optional
        Without one, or with one that gives evidence only, no pair is judged directly.
    max_pairs : int, default 6
        Further pairs are ``unchecked``, and the notes say so.

    Returns
    -------
    Conflicts
        A judge that fails leaves its pairs ``unchecked``, with a note; what the table tells stands.
    """
    found, notes = _from_matrix(judged), list[str]()
    known = {frozenset((one.first, one.second)) for one in found}
    candidates = [one for one in _candidates(judged) if frozenset((one.first, one.second)) not in known]
    reads = judge is not None and getattr(judge, "reads", True)
    if judged.support.kind == "evidence" or (judge is not None and not reads):
        notes.append(_NO_CONTRADICTION)
    asked, left = candidates[:max_pairs] if reads else [], candidates[max_pairs if reads else 0 :]
    if left:
        why = f"at most {max_pairs} are" if reads else "no judge was asked"
        notes.append(f"pairs of segments that may contradict each other and were not judged: {len(left)} ({why})")
    if judge is None or not asked:
        return Conflicts(tuple(found), _pairs(left), notes=tuple(notes))
    direct, unread, cost, told = _direct(judge, judged, asked)
    notes += (note for note in told if note not in notes)
    return Conflicts((*found, *direct), _pairs([*unread, *left]), cost, tuple(notes))


def against_closed_book(judge: Judge, closed_book_answer: str, judged: Judged) -> ClosedBook:
    """Which segments contradict or entail what the model says without any context.

    Cost: one table of ``n_claims * n_segments`` cells; nothing where that answer is a refusal or empty.

    Raises
    ------
    EngineError, BudgetExceededError
        The judge answered nothing at all.
    """
    if not closed_book_answer.strip() or is_refusal(closed_book_answer):
        note = "without context the model gives no answer; nothing can contradict it"
        return ClosedBook(closed_book_answer, (), None, notes=(note,))
    claims = split_claims(closed_book_answer)
    found = judge.judge(claims, judged.segments, question=judged.question)
    is_evidence = found.kind == "evidence"
    return ClosedBook(
        closed_book_answer,
        claims,
        found,
        contradicting=() if is_evidence else _columns(found.verdicts, _CONTRADICTS),
        entailing=_columns(found.verdicts, _ENTAILS),
        notes=(*found.notes, *([_NO_CONTRADICTION] if is_evidence else [])),
    )


def _columns(verdicts: NDArray[np.str_], verdict: str) -> tuple[int, ...]:
    return tuple(np.flatnonzero((verdicts == verdict).any(axis=0)).tolist())


def _pairs(candidates: Sequence[_Candidate]) -> tuple[Pair, ...]:
    return tuple((one.first, one.second) for one in candidates)


def _from_matrix(judged: Judged) -> list[Conflict]:
    found: dict[frozenset[int], Conflict] = {}
    for claims, support, is_wanted in _tables(judged):
        for row, claim in enumerate(claims):
            for first, second in _opposed(support.verdicts[row]):
                found.setdefault(
                    frozenset((first, second)),
                    Conflict(
                        first,
                        second,
                        claim=None if is_wanted else row,
                        wanted=row if is_wanted else None,
                        how="matrix",
                        rationale=str(support.rationale[row, second]),
                        sentences=(_where(judged, first, claim), _where(judged, second, claim)),
                    ),
                )
    return list(found.values())


def _tables(judged: Judged) -> Iterator[tuple[tuple[Claim, ...], Support, bool]]:
    """The claims with their verdicts: of the answer, and of the expected one; evidence contradicts nothing."""
    if judged.support.kind != "evidence":
        yield judged.claims, judged.support, False
        yield judged.wanted, judged.sources, True


def _opposed(verdicts: NDArray[np.str_]) -> Iterator[Pair]:
    for first in np.flatnonzero(verdicts == _ENTAILS).tolist():
        for second in np.flatnonzero(verdicts == _CONTRADICTS).tolist():
            yield first, second


def _where(judged: Judged, column: int, claim: Claim) -> Span | None:
    return supporting_sentence(claim.text, judged.segments[column].text)


def _candidates(judged: Judged) -> list[_Candidate]:
    """Pairs worth asking about, the likeliest first, each once."""
    found: dict[Pair, _Candidate] = {}
    for one in (*_touching(judged, (_CONTRADICTS,)), *_close(judged), *_touching(judged, (_UNDETERMINED,))):
        pair = (min(one.first, one.second), max(one.first, one.second))
        found.setdefault(pair, one)
    return list(found.values())


def _touching(judged: Judged, others: tuple[str, ...]) -> Iterator[_Candidate]:
    """Pairs that speak of one claim: ``others`` are what the second may say of it."""
    speaks = (_CONTRADICTS,) if _CONTRADICTS in others else (_CONTRADICTS, _ENTAILS)
    for claims, support, is_wanted in _tables(judged):
        for row, claim in enumerate(claims):
            verdicts = support.verdicts[row]
            for first in np.flatnonzero(np.isin(verdicts, speaks)).tolist():
                sentence = _where(judged, first, claim) or (0, len(judged.segments[first].text))
                for second in np.flatnonzero(np.isin(verdicts, others)).tolist():
                    is_told = _CONTRADICTS in others and second <= first
                    if second != first and not is_told:
                        where = _where(judged, second, claim)
                        yield _Candidate(first, second, sentence, where, None if is_wanted else row)


def _close(judged: Judged) -> Iterator[_Candidate]:
    """Pairs with a sentence each that are nearly the same and yet differ; of several, the two that share most."""
    every = ((column, one) for column, segment in enumerate(judged.segments) for one in sentences_of(segment.text))
    told = list(islice(every, MAX_TOLD))
    best: dict[Pair, tuple[int, Sentence, Sentence]] = {}
    for members in near_duplicates([frame(one) for _, one in told]):
        for (first, one), (second, other) in combinations(_first_of_each([told[member] for member in members]), 2):
            if first != second and differ(one, other):
                n = shared(one, other)
                if n > best.get((first, second), (0, one, other))[0]:
                    best[first, second] = (n, one, other)
    for (first, second), (_, one, other) in sorted(best.items(), key=lambda item: (-item[1][0], item[0])):
        yield _Candidate(first, second, (one.start, one.end), (other.start, other.end))


def _first_of_each(told: Sequence[tuple[int, Sentence]]) -> list[tuple[int, Sentence]]:
    """At most so many, in order; the second of a segment only where there is room."""
    before: Counter[int] = Counter()
    ranked = []
    for n, (column, _) in enumerate(told):
        ranked.append((before[column], n))
        before[column] += 1
    return [told[n] for n in sorted(n for _, n in sorted(ranked)[:MAX_ALIKE])]


def _direct(
    judge: Judge, judged: Judged, asked: Sequence[_Candidate]
) -> tuple[list[Conflict], list[_Candidate], Cost, list[str]]:
    """What a judge says of the candidates: conflicts, those without a verdict, the cost, and notes."""
    texts = [judged.segments[one.first].text[slice(*one.sentence)] for one in asked]
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    columns = {column: n for n, column in enumerate(dict.fromkeys(one.second for one in asked))}
    claims = [Claim(row, 0, len(text), text) for text, row in rows.items()]
    try:
        said = judge.judge(claims, [judged.segments[column] for column in columns], question=judged.question)
    except (EngineError, BudgetExceededError) as error:
        return [], list(asked), Cost(), [f"pairs of segments could not be judged: {error}"]
    if said.kind == "evidence":
        return [], list(asked), said.cost, [*said.notes, _NO_CONTRADICTION]
    found: list[Conflict] = []
    unread: list[_Candidate] = []
    for one, text in zip(asked, texts, strict=True):
        cell = rows[text], columns[one.second]
        if said.verdicts[cell] == _CONTRADICTS:
            where = (one.sentence, one.other)
            found.append(Conflict(one.first, one.second, one.claim, "direct", str(said.rationale[cell]), where))
        elif said.verdicts[cell] == _UNDETERMINED:
            unread.append(one)
    notes = [f"pairs of segments on which the judge gave no verdict: {len(unread)}"] if unread else []
    return found, unread, said.cost, [*said.notes, *notes]
