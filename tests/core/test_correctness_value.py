"""Answers generated anew and held against the expected one: who helps, who harms, and what noise does not decide."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from rich.console import Console

from attr_core.algorithms import CorrectnessAlgorithm
from attr_core.api import attribute, plan
from attr_core.attribution import Attribution
from attr_core.claims import split_claims
from attr_core.errors import BudgetExceededError, InputError, MissingCapabilityError
from attr_core.estimators import DebiasedLasso
from attr_core.judge import LLMJudge
from attr_core.protocols import ValueFunction
from attr_core.reports.terminal import render_attribution
from attr_core.results import Budget, Cost, Support, SupportVerdict
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Claim, Generation, Message, Prompt, Segment, Target, TargetKind, Trace
from attr_core.values import Correctness

ENTAILS, CONTRADICTS, NEUTRAL, UNDETERMINED = SupportVerdict

FACT, RIVAL = "The Aldemoor fair opened in 1911.", "The Aldemoor fair opened in 1937."
OTHERS = ("Wool is sold in Corvath.", "The river is cold.", "Trains leave at noon.")
EXPECTED = "It opened in 1911."
WRONG = "It opened in 1937."
REFUSED = "I'm sorry, I can't find that."


@dataclass
class Reads:
    """A judge that says what a function of claim and text says, and keeps which texts it was shown."""

    says: Callable[[str, str], str]
    tables: list[tuple[int, list[str]]] = field(default_factory=list)

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        self.tables.append((len(claims), [segment.text for segment in segments]))
        rows = [[str(self.says(claim.text, segment.text)) for segment in segments] for claim in claims]
        shape = (len(claims), len(segments))
        return Support(np.array(rows).reshape(shape), np.full(shape, "as told"), cost=Cost(calls=1))


def by_year(claim: str, text: str) -> str:
    """Of texts with a year in them: whether it is the right one."""
    if "1911" in text:
        return ENTAILS
    return CONTRADICTS if "1937" in text else NEUTRAL


def sees(prompt: Prompt, text: str) -> bool:
    return any(text in message.content for message in prompt.messages)


def misled(prompt: Prompt) -> str:
    """As a model answers that believes the rival before the fact."""
    if sees(prompt, RIVAL):
        return WRONG
    return EXPECTED if sees(prompt, FACT) else REFUSED


def trace(texts: Sequence[str], *, answer: str = EXPECTED, reference: str | None = EXPECTED) -> Trace:
    content = "\n\n".join([*texts, "When did the Aldemoor fair open?"])
    return Trace.from_messages(
        [{"role": "user", "content": content}], answer, documents=list(texts), reference=reference
    )


def correctness(reply: object, judge: object, *, expected: str = EXPECTED, **options: object) -> Correctness:
    recorded = trace([FACT, RIVAL])
    from attr_core.prompt import candidates
    from attr_core.segmenter import segment_trace

    generation = segment_trace(recorded, recorded.target_generation)
    return Correctness(
        ScriptedEngine(reply),
        generation,
        segments=candidates(generation.segments),
        response=EXPECTED,
        expected=expected,
        judge=judge,
        targets=[Target(TargetKind.REFERENCE, 0, len(expected), expected)],
        **options,
    )


def column(found: Attribution, text: str) -> int:
    return [segment.text for segment in found.segments].index(text)


ALL, FACT_ALONE, NOTHING = [True, True], [True, False], [False, False]


def test_right_is_one_wrong_and_refused_are_nothing_and_which_it_was_is_kept() -> None:
    judge = Reads(by_year)
    value = correctness(misled, judge, repeats=1)
    masks = np.array([ALL, FACT_ALONE, NOTHING])
    np.testing.assert_array_equal(value.exact(masks), [[0], [1], [0]])
    assert value.outcomes(masks) == ["wrong", "right", "refused"]
    assert isinstance(value, ValueFunction)
    assert (value.unit, value.knows_right) == ("share of expected claims stated", True)
    assert judge.tables == [(1, [WRONG, EXPECTED])]  # one table, and a refusal is not judged
    assert any("1 of 3 different answers say nothing" in note for note in value.notes)


def test_an_empty_answer_and_one_that_declines_are_refusals_that_nobody_judges() -> None:
    judge = Reads(by_year)
    value = correctness(lambda prompt: " " if sees(prompt, RIVAL) else REFUSED, judge)
    assert value.exact(np.array([ALL, NOTHING])).tolist() == [[0.0], [0.0]]
    assert value.outcomes(np.array([ALL, NOTHING])) == ["refused", "refused"]
    assert judge.tables == []


def test_a_part_of_what_is_expected_is_its_share_and_a_contradiction_takes_it_all() -> None:
    expected = "It opened in 1911. Lamps are sold there."
    verdicts: Mapping[tuple[str, str], str] = {("It opened in 1911.", "half"): ENTAILS} | {
        (claim.text, "both"): ENTAILS for claim in split_claims(expected)
    }
    verdicts |= {("It opened in 1911.", "torn"): ENTAILS, ("Lamps are sold there.", "torn"): CONTRADICTS}
    said = itertools.cycle(["half", "both", "torn"])
    value = correctness(lambda prompt: next(said), Reads(lambda c, t: verdicts.get((c, t), NEUTRAL)), expected=expected)
    masks = np.array([ALL, FACT_ALONE, NOTHING])
    assert value.exact(masks)[:, 0].tolist() == [0.5, 1.0, 0.0]
    assert value.outcomes(masks) == ["incomplete", "right", "wrong"]


def test_what_the_judge_could_not_say_is_unknown_and_told() -> None:
    value = correctness(misled, Reads(lambda claim, text: UNDETERMINED if text == WRONG else by_year(claim, text)))
    values = value.exact(np.array([ALL, FACT_ALONE]))
    assert np.isnan(values[0, 0])
    assert values[1, 0] == 1
    assert value.outcomes(np.array([ALL])) == ["undetermined"]
    assert "the judge could not say of 1 of 2 answers: as told" in value.notes


def test_the_same_answer_is_judged_once_and_what_is_known_is_not_generated_again() -> None:
    judge = Reads(by_year)
    value = correctness(misled, judge, repeats=1)
    value.exact(np.array([ALL, FACT_ALONE]))
    value.with_targets(value.targets).exact(np.array([[False, True], FACT_ALONE, ALL]))
    assert judge.tables == [(1, [WRONG, EXPECTED])]
    assert len(value._engine.seen) == 3
    assert value.cost.calls == 1


# End to end


def test_the_segment_that_states_the_answer_helps_and_the_rival_harms() -> None:
    texts = [RIVAL, FACT, *OTHERS]
    engine, judge = ScriptedEngine(misled), Reads(by_year)
    recorded = trace(texts, answer=WRONG)
    found = attribute(recorded, engine=engine, algorithm=CorrectnessAlgorithm(judge=judge), db=":memory:")
    [target] = found.targets
    assert (target.kind, target.text) == (TargetKind.REFERENCE, EXPECTED)
    verdicts = {text: str(found.verdicts[0, column(found, text)]) for text in texts}
    assert verdicts == {RIVAL: "harmful", FACT: "helpful"} | dict.fromkeys(OTHERS, "no effect")
    assert found.effects[0, column(found, RIVAL)] == pytest.approx(-0.5)
    assert (found.full[0], found.closed_book[0], found.noise_floor) == (0, 0, 0)
    assert [again.text for again in found.regenerated] == [WRONG, REFUSED]
    console = Console(width=140, record=True, color_system=None, file=io.StringIO())
    console.print(render_attribution(found, recorded))
    assert "share of expected claims stated 0.00 with the context, 0.00 without" in console.export_text()


def test_the_expected_answer_may_be_given_with_the_algorithm_and_is_asked_for_where_nobody_has_it() -> None:
    recorded = trace([FACT], reference=None)
    given = CorrectnessAlgorithm(EXPECTED, judge=Reads(by_year))
    found = attribute(recorded, engine=ScriptedEngine(misled), algorithm=given, db=":memory:")
    assert found.verdicts.tolist() == [["helpful"]]
    with pytest.raises(InputError, match="needs the expected answer"):
        attribute(recorded, engine=ScriptedEngine(misled), algorithm=CorrectnessAlgorithm(judge=Reads(by_year)))


def test_what_could_not_be_judged_only_ranks() -> None:
    def unsure(claim: str, text: str) -> str:
        return UNDETERMINED if text.endswith("?") else by_year(claim, text)

    def reply(prompt: Prompt) -> str:
        said = misled(prompt)
        return f"{said} Or not?" if not sees(prompt, OTHERS[0]) and sees(prompt, FACT) else said

    texts = [FACT, *OTHERS, *(f"Filler number {n}." for n in range(5))]
    for estimator in (None, DebiasedLasso(64)):
        asked = CorrectnessAlgorithm(judge=Reads(unsure), estimator=estimator)
        found = attribute(trace(texts), engine=ScriptedEngine(reply), algorithm=asked, db=":memory:")
        assert set(found.verdicts.ravel().tolist()) == {"undetermined"}
        assert found.ranking(0)[0] == column(found, FACT)
        assert any("only ranks" in warning for warning in found.warnings)


def test_an_engine_that_does_not_generate_is_refused_before_anything_is_asked() -> None:
    class Scores:
        spec = fingerprint = "test:scores"
        max_context = None

        def score(self, prompts: Sequence[Prompt], continuation: str) -> list[object]:
            raise AssertionError("not to be called")

    judge = Reads(by_year)
    with pytest.raises(MissingCapabilityError, match="needs generate"):
        attribute(trace([FACT]), engine=Scores(), algorithm=CorrectnessAlgorithm(judge=judge), db=":memory:")
    assert not judge.tables


# Noise


def test_a_model_that_answers_otherwise_each_time_and_a_judge_that_wavers_raise_the_margin() -> None:
    moods = itertools.cycle([EXPECTED, WRONG, EXPECTED])
    moody = ScriptedEngine(lambda prompt: next(moods))
    found = attribute(
        trace([FACT, *OTHERS]), engine=moody, algorithm=CorrectnessAlgorithm(judge=Reads(by_year)), db=":memory:"
    )
    assert found.noise_floor > 0.3
    assert found.delta[0] >= 2 * found.noise_floor - 1e-12
    assert set(found.verdicts.ravel().tolist()) == {"no effect"}
    votes = itertools.cycle([ENTAILS, NEUTRAL, ENTAILS])
    value = correctness(misled, Reads(lambda claim, text: next(votes)))
    value.exact(np.array([FACT_ALONE]))
    assert value.noise(0)[0] == pytest.approx(np.sqrt(1 / 3))


def test_without_repeats_nothing_is_known_of_the_noise() -> None:
    value = correctness(misled, Reads(by_year), repeats=1)
    assert np.isnan(value.noise(0)).all()
    assert any("gave one judgement" in note for note in value.notes)


class Flips:
    """A judge that gives another verdict than the right one, at random, in a tenth of cases."""

    def __init__(self, seed: int, *, remembers: bool) -> None:
        self._rng = np.random.default_rng(seed)
        self._known: dict[tuple[str, str], str] | None = {} if remembers else None

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        rows = [[self._verdict(claim.text, segment.text) for segment in segments] for claim in claims]
        return Support(np.array(rows), np.full((len(claims), len(segments)), ""))

    def _verdict(self, claim: str, text: str) -> str:
        if self._known is not None and (claim, text) in self._known:
            return self._known[claim, text]
        said = str(by_year(claim, text))
        if self._rng.random() < 0.1:
            said = str(self._rng.choice([str(one) for one in (ENTAILS, CONTRADICTS, NEUTRAL) if one != said]))
        if self._known is not None:
            self._known[claim, text] = said
        return said


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("is_wordy", [False, True])
def test_a_judge_that_errs_in_a_tenth_of_its_verdicts_calls_nothing_harmful_in_perfect_samples(
    is_wordy: bool, remembers: bool
) -> None:
    texts, n_samples, harmed, helped = [FACT, *OTHERS], 60, 0, 0

    def reply(prompt: Prompt) -> str:
        """Right with the fact; worded anew for every subset, so that each has a verdict of its own."""
        said = EXPECTED if sees(prompt, FACT) else "Nobody can say."
        return f"{said} {''.join(str(int(sees(prompt, text))) for text in texts)}" if is_wordy else said

    for seed in range(n_samples):
        algorithm = CorrectnessAlgorithm(judge=Flips(seed, remembers=remembers))
        found = attribute(trace(texts), engine=ScriptedEngine(reply), algorithm=algorithm, db=":memory:")
        harmed += "harmful" in found.verdicts
        helped += found.verdicts[0, column(found, FACT)] == "helpful"
    assert harmed <= 0.05 * n_samples
    assert helped >= 0.5 * n_samples


# What it takes


@pytest.mark.parametrize("own", [True, False])
def test_costs_are_those_of_both_models_and_no_more_than_was_announced(own: bool) -> None:
    asked: list[str] = []

    def model(prompt: str, system: str) -> str:
        asked.append(prompt)
        return "neutral"

    engine = ScriptedEngine(lambda prompt: f"{misled(prompt)} {'so it is said ' * 6}{len(prompt.messages[0].content)}")
    algorithm = CorrectnessAlgorithm(judge=LLMJudge(model, repeats=3) if own else model)
    announced = plan(trace([RIVAL, FACT, *OTHERS]), engine=engine, algorithm=algorithm)
    assert not engine.seen
    assert not asked
    found = attribute(trace([RIVAL, FACT, *OTHERS]), engine=engine, algorithm=algorithm, db=":memory:")
    assert found.cost.calls == len(engine.seen) + len(asked)
    assert found.cost.calls <= announced.maximum.calls
    assert found.cost.tokens_in <= announced.maximum.tokens_in
    assert found.cost.tokens_out <= announced.maximum.tokens_out
    assert {step.name for step in announced.steps} >= {"answers generated under ablations", "answers judged"}


def test_a_budget_of_calls_pays_for_both() -> None:
    judge = Reads(by_year)
    texts = [FACT, *OTHERS]
    algorithm = CorrectnessAlgorithm(judge=judge)
    announced = plan(trace(texts), engine=ScriptedEngine(misled), algorithm=algorithm, budget=Budget(calls=20))
    assert announced.calls <= 20
    assert any("left out" in note for note in announced.notes)
    with pytest.raises(BudgetExceededError):
        plan(trace(texts), engine=ScriptedEngine(misled), algorithm=algorithm, budget=Budget(calls=4))
    assert not judge.tables


def test_an_empty_expected_answer_is_an_error() -> None:
    with pytest.raises(InputError, match="is empty"):
        correctness(misled, Reads(by_year), expected=" ")


def test_scored_additively_engines_generate_too() -> None:
    engine = AdditiveEngine({"1911": {FACT: 6.0}}, bias=-2.0, answer=EXPECTED, otherwise=REFUSED)
    found = attribute(
        trace([FACT, *OTHERS]), engine=engine, algorithm=CorrectnessAlgorithm(judge=Reads(by_year)), db=":memory:"
    )
    assert found.verdicts[0, column(found, FACT)] == "helpful"


def test_a_generation_may_be_given_without_segments() -> None:
    value = Correctness(
        ScriptedEngine(EXPECTED),
        Generation((Message("user", "When?"),), EXPECTED),
        segments=[],
        response=EXPECTED,
        expected=EXPECTED,
        judge=Reads(by_year),
        targets=[Target(TargetKind.REFERENCE, 0, len(EXPECTED), EXPECTED)],
    )
    assert value.exact(np.ones((1, 0), dtype=bool)).tolist() == [[1.0]]
