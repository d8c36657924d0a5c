"""Which segments contradict each other: read off the verdicts, or asked of a judge where these do not tell."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from attr_core.errors import BudgetExceededError, EngineError
from attr_core.judge.likelihood import LikelihoodJudge
from attr_core.results import Cost, Support, SupportVerdict
from attr_core.support.conflicts import MAX_PAIRS, Conflict, against_closed_book, conflicts
from attr_core.support.matrix import Judged, judge_answer
from attr_core.testing import ScriptedEngine, ScriptedJudge
from attr_core.types import Claim, Location, Segment, SegmentKind

ENTAILS, CONTRADICTS, UNDETERMINED = SupportVerdict.ENTAILS, SupportVerdict.CONTRADICTS, SupportVerdict.UNDETERMINED
CLAIM, EXPECTED = "It opened in 1911.", "The fair opened in 1912."
FIRST = "Admission is free. The Aldemoor fair opened in 1911."
SECOND = "The Aldemoor fair opened in 1912. A choir sings."
THIRD = "A bridge crosses the river."


def segments_of(*texts: str) -> tuple[Segment, ...]:
    return tuple(
        Segment(f"c{n}", SegmentKind.RETRIEVED, text, (Location(n, 0, len(text)),)) for n, text in enumerate(texts)
    )


def judged_of(
    texts: Sequence[str], verdicts: Mapping[tuple[str, str], SupportVerdict], *, expected: str | None = None
) -> Judged:
    claims = (Claim(0, 0, len(CLAIM), CLAIM),)
    return judge_answer(
        ScriptedJudge(verdicts), answer=CLAIM, claims=claims, segments=segments_of(*texts), expected=expected
    )


@dataclass
class Asked:
    """A scripted judge that keeps what it was asked, and says why in words that mean something else."""

    verdicts: Mapping[tuple[str, str], SupportVerdict] = field(default_factory=dict)
    seen: list[tuple[list[str], list[str]]] = field(default_factory=list)
    rationale: str = "Both say 1997, 100 %: they contradict each other."

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        self.seen.append(([claim.text for claim in claims], [segment.text for segment in segments]))
        found = ScriptedJudge(self.verdicts).judge(claims, segments, question=question)
        why = np.full(found.verdicts.shape, self.rationale)
        return replace(found, rationale=why, cost=Cost(calls=1))


def test_one_entails_what_another_contradicts_and_no_judge_is_needed() -> None:
    judged = judged_of([THIRD, SECOND, FIRST], {(CLAIM, FIRST): ENTAILS, (CLAIM, SECOND): CONTRADICTS})
    found = conflicts(judged)
    assert found.pairs == (Conflict(2, 1, 0, "matrix", "scripted", ((19, 52), (0, 33))),)
    assert (found.unchecked, found.notes, found.cost) == ((), (), Cost())


def test_an_expected_claim_tells_a_conflict_as_well() -> None:
    judged = judged_of(
        [FIRST, SECOND], {(EXPECTED, SECOND): ENTAILS, (EXPECTED, FIRST): CONTRADICTS}, expected=EXPECTED
    )
    (pair,) = conflicts(judged).pairs
    assert (pair.first, pair.second, pair.claim, pair.wanted, pair.how) == (1, 0, None, 0, "matrix")


def test_a_pair_is_named_once_and_by_the_answers_claim_first() -> None:
    verdicts = {(CLAIM, FIRST): ENTAILS, (CLAIM, SECOND): CONTRADICTS}
    verdicts |= {(EXPECTED, SECOND): ENTAILS, (EXPECTED, FIRST): CONTRADICTS}
    judge = Asked()
    found = conflicts(judged_of([FIRST, SECOND], verdicts, expected=EXPECTED), judge)
    assert [(pair.claim, pair.wanted) for pair in found.pairs] == [(0, None)]
    assert not judge.seen


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The fair opened in 1911.", "The fair opened in 1912."),
        ("The fair opened in nineteen eleven.", "The fair opened in 1912."),
        ("The lease was signed by Weiss.", "The lease was signed by Marten."),
        ("The lease was signed in May.", "The lease was not signed in May."),
        ("The lease is valid.", "The lease isn't valid."),
        ("Long before, it rained. The fair opened in 1911. So it was.", "See below! The fair opened in 1912."),
    ],
)
def test_close_segments_that_differ_in_a_number_a_name_or_a_negation_are_judged_directly(one: str, other: str) -> None:
    judge = Asked()
    found = conflicts(judged_of([one, other, THIRD], {}), judge)
    assert len(judge.seen) == 1
    ((claim,), (segment,)) = judge.seen[0]
    assert claim in one
    assert segment == other
    assert (found.pairs, found.unchecked) == ((), ())  # neutral


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The fair opened in 1911.", "The fair opened in 1911."),
        ("The fair opened in 1911.", "In 1911 the fair opened!"),
        ("The fair opened in 1911.", "The fair opened in 1911, as we know."),
        ("The fair opened in 1911.", "Tickets cost four marks."),
        ("The fair opened in 1911.", "The Fair opened in nineteen eleven."),
    ],
)
def test_segments_that_say_the_same_or_something_else_are_not_asked_about(one: str, other: str) -> None:
    judge = Asked()
    assert conflicts(judged_of([one, other], {}), judge).pairs == ()
    assert judge.seen == []


def test_a_direct_verdict_says_where_both_say_it() -> None:
    sentence = "The Aldemoor fair opened in 1911."
    found = conflicts(judged_of([FIRST, THIRD, SECOND], {}), Asked({(sentence, SECOND): CONTRADICTS}))
    (pair,) = found.pairs
    assert (pair.first, pair.second, pair.claim, pair.how) == (0, 2, None, "direct")
    assert [FIRST[slice(*pair.sentences[0] or ())], SECOND[slice(*pair.sentences[1] or ())]] == [
        sentence,
        "The Aldemoor fair opened in 1912.",
    ]
    assert found.cost.calls == 1


def test_two_that_contradict_the_same_claim_may_contradict_each_other() -> None:
    one, other = "The market moved there in 1935, says Marten.", "By all accounts opening day was in 1940."
    verdicts = {(CLAIM, one): CONTRADICTS, (CLAIM, other): CONTRADICTS}
    judge = Asked({(one, other): CONTRADICTS})
    found = conflicts(judged_of([one, other], verdicts), judge)
    assert [(pair.first, pair.second, pair.claim, pair.how) for pair in found.pairs] == [(0, 1, 0, "direct")]


def test_where_both_entail_the_claim_the_table_has_decided() -> None:
    one, other = "Opened: 1911, with a parade of lanterns.", "In 1911 the gates were opened to visitors."
    judge = Asked()
    conflicts(judged_of([one, other], {(CLAIM, one): ENTAILS, (CLAIM, other): ENTAILS}), judge)
    assert judge.seen == []


def test_a_missing_verdict_beside_a_known_one_is_asked_about() -> None:
    one, other = "Opened: 1911, with a parade of lanterns.", "The gates stayed shut until much later."
    judge = Asked()
    conflicts(judged_of([one, other, THIRD], {(CLAIM, one): ENTAILS, (CLAIM, other): UNDETERMINED}), judge)
    assert judge.seen == [([one], [other])]


@pytest.mark.parametrize("rationale", ["Both say 1997.", "100 % contradiction", "contradicts", ""])
@pytest.mark.parametrize("verdict", [SupportVerdict.NEUTRAL, ENTAILS])
def test_only_the_verdict_is_read_never_the_rationale(rationale: str, verdict: SupportVerdict) -> None:
    sentence = "The Aldemoor fair opened in 1911."
    judge = Asked({(sentence, SECOND): verdict}, rationale=rationale)
    judged = judged_of([FIRST, SECOND], {})
    why = np.full(judged.support.rationale.shape, rationale)
    judged = replace(judged, support=replace(judged.support, rationale=why))
    found = conflicts(judged, judge)
    assert (found.pairs, found.unchecked) == ((), ())
    assert len(judge.seen) == 1


def test_all_pairs_are_asked_about_in_one_table_up_to_the_cap_and_the_rest_is_told() -> None:
    texts = [f"The Aldemoor fair opened in {year}." for year in range(1900, 1905)]  # ten pairs
    judge = Asked()
    found = conflicts(judged_of(texts, {}), judge)
    assert len(judge.seen) == 1
    assert len(found.unchecked) == 10 - MAX_PAIRS
    assert found.notes == ("pairs of segments that may contradict each other and were not judged: 4 (at most 6 are)",)
    rows, columns = judge.seen[0]
    assert len(rows) <= MAX_PAIRS >= len(columns)
    assert len(set(rows)) == len(rows)
    assert conflicts(judged_of(texts, {}), Asked(), max_pairs=20).unchecked == ()


def test_every_direct_verdict_lands_on_its_own_pair() -> None:
    texts = [f"The Aldemoor fair opened in {year}." for year in (1911, 1912, 1913)]
    found = conflicts(judged_of(texts, {}), Asked({(texts[0], texts[2]): CONTRADICTS}))
    assert [(pair.first, pair.second) for pair in found.pairs] == [(0, 2)]


def test_without_a_judge_only_the_table_is_read_and_the_rest_is_told() -> None:
    found = conflicts(judged_of([FIRST, SECOND], {}))
    assert (found.pairs, found.unchecked) == ((), ((0, 1),))
    assert found.notes == (
        "pairs of segments that may contradict each other and were not judged: 1 (no judge was asked)",
    )


def test_a_pair_without_a_verdict_stays_unchecked() -> None:
    sentence = "The Aldemoor fair opened in 1911."
    found = conflicts(judged_of([FIRST, SECOND], {}), Asked({(sentence, SECOND): UNDETERMINED}))
    assert (found.pairs, found.unchecked) == ((), ((0, 1),))
    assert found.notes == ("pairs of segments on which the judge gave no verdict: 1",)


@pytest.mark.parametrize("error", [EngineError("the model is down"), BudgetExceededError("calls=0 is spent")])
def test_a_judge_that_fails_leaves_what_the_table_told(error: Exception) -> None:
    class Failing:
        def judge(self, *_: object, **__: object) -> Support:
            raise error

    texts = [
        FIRST,
        SECOND,
        THIRD.replace("A bridge", "One bridge of 3 arches"),
        "One bridge of 4 arches crosses the river.",
    ]
    judged = judged_of(texts, {(CLAIM, FIRST): ENTAILS, (CLAIM, SECOND): CONTRADICTS})
    found = conflicts(judged, Failing())
    assert [(pair.first, pair.second, pair.how) for pair in found.pairs] == [(0, 1, "matrix")]
    assert found.unchecked == ((2, 3),)
    assert found.notes == (f"pairs of segments could not be judged: {error}",)


def test_likelihood_evidence_cannot_contradict_so_no_conflict_is_claimed() -> None:
    judge = LikelihoodJudge(ScriptedEngine(logprob=lambda prompt, word: -9.0))
    segments = segments_of(FIRST, SECOND)
    judged = judge_answer(judge, answer=CLAIM, claims=(Claim(0, 0, 18, CLAIM),), segments=segments)
    found = conflicts(judged, judge)
    assert (found.pairs, found.unchecked, found.cost) == ((), ((0, 1),), Cost())
    assert found.notes[0].startswith("likelihood evidence cannot contradict")
    forged = np.array([["entails", "contradicts"]])
    assert conflicts(replace(judged, support=replace(judged.support, verdicts=forged))).pairs == ()


def test_a_judge_that_gives_evidence_is_not_asked_about_pairs() -> None:
    engine = ScriptedEngine(logprob=lambda prompt, word: -9.0)
    found = conflicts(judged_of([FIRST, SECOND], {}), LikelihoodJudge(engine))
    assert (found.pairs, found.unchecked, engine.seen) == ((), ((0, 1),), [])
    assert any("cannot contradict" in note for note in found.notes)


def test_no_segments_and_no_claims_have_no_conflicts() -> None:
    blank = judge_answer(ScriptedJudge(), answer=CLAIM, claims=(), segments=segments_of("", " \n", "§"))
    assert conflicts(blank, Asked()).pairs == ()
    assert conflicts(judge_answer(ScriptedJudge(), answer=CLAIM, claims=(), segments=()), Asked()).pairs == ()


def test_thousands_of_sentences_that_are_nearly_the_same_take_seconds_at_most() -> None:
    texts = [" ".join(f"Page {n * 40 + k} was checked on day {k} by the office." for k in range(40)) for n in range(60)]
    judged = judged_of(texts, {})
    started = time.perf_counter()
    found = conflicts(judged, Asked())
    assert time.perf_counter() - started < 15
    assert len(found.unchecked) > 0


CLOSED_BOOK = "The fair opened in 1912. It was in Kiel."


def test_the_closed_book_answer_is_held_against_every_segment() -> None:
    verdicts = {("The fair opened in 1912.", SECOND): ENTAILS, ("The fair opened in 1912.", FIRST): CONTRADICTS}
    judge = Asked({**verdicts, ("It was in Kiel.", FIRST): ENTAILS})
    found = against_closed_book(judge, CLOSED_BOOK, judged_of([FIRST, SECOND, THIRD], {}))
    assert (found.contradicting, found.entailing) == ((0,), (0, 1))
    assert [claim.text for claim in found.claims] == ["The fair opened in 1912.", "It was in Kiel."]
    assert found.support is not None
    assert found.support.verdicts.shape == (2, 3)
    assert len(judge.seen) == found.cost.calls == 1


@pytest.mark.parametrize("answer", ["", " ", "I don't know.", "I'm sorry, I can't find that."])
def test_a_closed_book_answer_that_says_nothing_is_not_judged(answer: str) -> None:
    judge = Asked()
    found = against_closed_book(judge, answer, judged_of([FIRST], {}))
    assert (found.contradicting, found.entailing, found.support, found.cost.calls) == ((), (), None, 0)
    assert judge.seen == []
    assert found.notes == ("without context the model gives no answer; nothing can contradict it",)


def test_evidence_for_the_closed_book_answer_contradicts_nothing_and_says_so() -> None:
    judge = LikelihoodJudge(ScriptedEngine(logprob=lambda prompt, word: -9.0))
    found = against_closed_book(judge, CLOSED_BOOK, judged_of([FIRST, SECOND], {}))
    assert found.contradicting == ()
    assert any("cannot contradict" in note for note in found.notes)
