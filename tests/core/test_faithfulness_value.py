"""What the context supports of a fixed answer, from one table of verdicts: alone, together, and where nobody knows."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from rich.console import Console

from attr_core.algorithms import CounterfactualFaithfulness
from attr_core.api import attribute, plan
from attr_core.attribution import Attribution
from attr_core.claims import split_claims
from attr_core.errors import BudgetExceededError, ConfigurationError, InputError
from attr_core.estimators import Banzhaf, LeaveOneOut
from attr_core.estimators._designs import all_subsets
from attr_core.judge import LikelihoodJudge, LLMJudge
from attr_core.protocols import ValueFunction
from attr_core.reports.compact import compact
from attr_core.reports.terminal import render_attribution
from attr_core.results import Budget, Cost, Support, SupportVerdict
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Claim, Generation, Location, Message, Segment, SegmentKind, Target, TargetKind, Trace
from attr_core.values import Faithfulness

ENTAILS, CONTRADICTS, NEUTRAL, UNDETERMINED = SupportVerdict

OPENED, AGAIN, LAMPS = "The fair opened in 1911.", "As guides say, the fair opened in 1911.", "Lamps are sold there."
FIRST, SECOND = "It opened in 1911.", "Lamps are sold."
HOP_ONE, HOP_TWO = "The fair was founded by Ilse Vex.", "Ilse Vex was born in Lorwyn."
BORN = "Its founder was born in Lorwyn."


@dataclass
class Reads:
    """A judge that says what a function of claim and text says, and counts what it was asked."""

    says: Callable[[str, str], SupportVerdict]
    tables: list[tuple[int, int]] = field(default_factory=list)

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        self.tables.append((len(claims), len(segments)))
        rows = [[str(self.says(claim.text, segment.text)) for segment in segments] for claim in claims]
        shape = (len(claims), len(segments))
        cost = Cost(calls=1, tokens_in=100, tokens_out=10)
        return Support(np.array(rows).reshape(shape), np.full(shape, "as told"), cost=cost)


def by_cell(verdicts: Mapping[tuple[str, str], SupportVerdict]) -> Reads:
    return Reads(lambda claim, text: verdicts.get((claim, text), NEUTRAL))


def needs_both(claim: str, text: str) -> SupportVerdict:
    return ENTAILS if "founded by Ilse Vex" in text and "born in Lorwyn" in text else NEUTRAL


def segments_of(texts: Sequence[str]) -> list[Segment]:
    return [Segment(f"c{n}", SegmentKind.RETRIEVED, t, (Location(0, 0, len(t)),)) for n, t in enumerate(texts)]


def faithfulness(judge: object, texts: Sequence[str], answer: str, **options: object) -> Faithfulness:
    claims = split_claims(answer)
    targets = [Target(TargetKind.CLAIM, one.start, one.end, one.text, one.index) for one in claims]
    return Faithfulness(
        judge,
        Generation((Message("user", "\n".join(texts)),), answer),
        segments=segments_of(texts),
        response=answer,
        targets=[*targets, Target(TargetKind.RESPONSE, 0, len(answer), answer)],
        claims=claims,
        **options,
    )


def trace(texts: Sequence[str], answer: str, **options: object) -> Trace:
    content = "\n\n".join([*texts, "What of the fair?"])
    return Trace.from_messages([{"role": "user", "content": content}], answer, documents=list(texts), **options)


def column(found: Attribution, text: str) -> int:
    return [segment.text for segment in found.segments].index(text)


def test_a_claim_is_supported_while_one_segment_that_entails_it_is_kept() -> None:
    judge = by_cell({(FIRST, OPENED): ENTAILS, (FIRST, AGAIN): ENTAILS, (SECOND, LAMPS): ENTAILS})
    value = faithfulness(judge, [OPENED, AGAIN, LAMPS], f"{FIRST} {SECOND}")
    masks = all_subsets(3)
    first, second = masks[:, :2].any(axis=1), masks[:, 2]
    np.testing.assert_array_equal(value.exact(masks), np.column_stack([first, second, (first + second * 1.0) / 2]))
    assert isinstance(value, ValueFunction)
    assert judge.tables == [(2, 3)] * 3  # no call per subset; three judgements of one table


def test_two_that_say_the_same_are_a_group_and_each_alone_takes_nothing_away() -> None:
    judge = by_cell({(FIRST, OPENED): ENTAILS, (FIRST, AGAIN): ENTAILS})
    value = faithfulness(judge, [OPENED, AGAIN, LAMPS], FIRST)
    np.testing.assert_array_equal(LeaveOneOut().estimate(value).drops, np.zeros((2, 3)))
    np.testing.assert_array_equal(Banzhaf().estimate(value).effects[0], [0.5, 0.5, 0.0])
    group = value.redundancy()[0]
    assert (group.members, group.target, group.joint_drop, group.summed_drops) == ((0, 1), 0, 1.0, 0.0)


def test_an_attribution_says_supports_and_names_the_group_without_calling_a_model(monkeypatch) -> None:
    def refuses(spec: object, **options: object) -> None:
        raise AssertionError("no model is needed")

    monkeypatch.setattr("attr_core.planning.load_engine", refuses)
    judge = by_cell({(FIRST, OPENED): ENTAILS, (FIRST, AGAIN): ENTAILS, (SECOND, LAMPS): ENTAILS})
    recorded = trace([OPENED, AGAIN, LAMPS], f"{FIRST} {SECOND}", model="somebody")
    found = attribute(recorded, algorithm=CounterfactualFaithfulness(judge), db=":memory:")
    first, second, whole = found.targets
    assert [first.text, second.text, whole.kind] == [FIRST, SECOND, TargetKind.RESPONSE]
    columns = [column(found, text) for text in (OPENED, AGAIN, LAMPS)]
    assert found.verdicts[0, columns].tolist() == ["supports", "supports", "no effect"]
    assert found.verdicts[1, columns].tolist() == ["no effect", "no effect", "supports"]
    assert {group.members for group in found.groups} == {tuple(sorted(columns[:2]))}
    assert (found.unit, found.full.tolist(), found.closed_book.tolist()) == (
        "share of claims supported",
        [1, 1, 1],
        [0, 0, 0],
    )
    assert not any("proxy" in warning for warning in found.warnings)
    assert found.regenerated == ()
    np.testing.assert_array_equal(Attribution.from_dict(found.to_dict()).effects, found.effects)
    console = Console(width=120, record=True, color_system=None, file=io.StringIO())
    console.print(render_attribution(found, recorded))
    text = console.export_text()
    assert "support   [1] from" in text
    assert "causes" not in text
    assert compact(found)["claims"][1]["targets"][0]["causes"][0]["verdict"] == "supports"


def test_a_misleading_segment_supports_the_wrong_answer_it_caused_and_is_never_helpful() -> None:
    wrong = "It opened in 1937."
    judge = by_cell({(wrong, "The fair opened in 1937."): ENTAILS, (wrong, OPENED): CONTRADICTS})
    recorded = trace(["The fair opened in 1937.", OPENED], wrong, reference=FIRST)
    found = attribute(recorded, algorithm=CounterfactualFaithfulness(judge), db=":memory:")
    assert found.verdicts[0, column(found, "The fair opened in 1937.")] == "supports"
    assert not {"helpful", "harmful", "drives", "opposes"} & set(found.verdicts.ravel().tolist())


# Together


def test_two_hops_support_only_together_and_each_is_needed() -> None:
    judge = Reads(needs_both)
    value = faithfulness(judge, [HOP_ONE, LAMPS, HOP_TWO], BORN, repeats=1)
    masks = all_subsets(3)
    np.testing.assert_array_equal(value.exact(masks)[:, 0], masks[:, 0] & masks[:, 2])
    np.testing.assert_array_equal(value.exact(masks)[:, 1], masks[:, 0] & masks[:, 2])
    np.testing.assert_array_equal(LeaveOneOut().estimate(value).drops[0], [1, 0, 1])
    assert judge.tables == [(1, 3), (1, 1), (1, 3)]


def test_what_together_is_enough_is_asked_once_where_deletions_leave_it_open() -> None:
    judge = Reads(needs_both)
    value = faithfulness(judge, [HOP_ONE, LAMPS, HOP_TWO, "It rains."], BORN, repeats=1)
    masks = all_subsets(4)
    np.testing.assert_array_equal(value.exact(masks)[:, 0], masks[:, 0] & masks[:, 2])
    assert judge.tables == [(1, 4), (1, 1), (1, 4), (1, 1)]


def test_together_is_not_asked_where_it_is_not_wanted_or_one_alone_touches_the_claim() -> None:
    judge = Reads(needs_both)
    value = faithfulness(judge, [HOP_ONE, LAMPS, HOP_TWO], BORN, repeats=1, joint=False)
    assert value.exact(all_subsets(3))[:, 0].sum() == 0
    touched = by_cell({(BORN, HOP_TWO): CONTRADICTS})
    assert faithfulness(touched, [HOP_ONE, LAMPS, HOP_TWO], BORN, repeats=1).exact(all_subsets(3)).sum() == 0
    assert judge.tables == touched.tables == [(1, 3)]


def test_a_hop_that_stands_twice_leaves_what_was_not_asked_unknown_and_the_verdicts_open() -> None:
    recorded = trace([HOP_ONE, f"It is said: {HOP_ONE}", HOP_TWO, LAMPS], BORN)
    found = attribute(recorded, algorithm=CounterfactualFaithfulness(Reads(needs_both)), db=":memory:")
    assert set(found.verdicts.ravel().tolist()) == {"undetermined"}
    assert any("could not be judged under every subset" in warning for warning in found.warnings)


# What the judge could not say


def test_what_the_judge_could_not_say_is_unknown_only_where_it_matters() -> None:
    judge = by_cell({(FIRST, OPENED): ENTAILS, (FIRST, LAMPS): UNDETERMINED, (SECOND, LAMPS): ENTAILS})
    value = faithfulness(judge, [OPENED, LAMPS], f"{FIRST} {SECOND}")
    masks = np.array([[1, 1], [1, 0], [0, 1], [0, 0]], dtype=bool)
    np.testing.assert_array_equal(value.exact(masks)[:, 0], [1, 1, np.nan, 0])
    np.testing.assert_array_equal(value.exact(masks)[:, 1], [1, 0, 1, 0])
    np.testing.assert_array_equal(value.exact(masks)[:, 2], [1, 0, 1, 0])  # the share of the claim that is known
    assert "1 of 4 verdicts are undetermined: as told" in value.notes


@pytest.mark.parametrize("n_others", [1, 14])
def test_verdicts_are_open_where_the_judge_could_not_say_and_stand_elsewhere(n_others: int) -> None:
    others = [f"Filler number {n}." for n in range(n_others)]
    judge = by_cell({(FIRST, OPENED): ENTAILS, (FIRST, LAMPS): UNDETERMINED, (SECOND, LAMPS): ENTAILS})
    recorded = trace([OPENED, LAMPS, *others], f"{FIRST} {SECOND}")
    found = attribute(recorded, algorithm=CounterfactualFaithfulness(judge), db=":memory:")
    assert set(found.verdicts[0].tolist()) == {"undetermined"}
    assert found.verdicts[1, column(found, LAMPS)] == "supports"
    assert found.ranking(0)[0] == column(found, OPENED)
    assert any("only ranks" in warning for warning in found.warnings)


def test_with_no_known_claim_the_response_has_no_share() -> None:
    value = faithfulness(Reads(lambda claim, text: UNDETERMINED), [OPENED, LAMPS], FIRST)
    assert np.isnan(value.exact(np.ones((1, 2), dtype=bool))).all()


# The judge's noise


def turns(*tables: Mapping[tuple[str, str], SupportVerdict]) -> Reads:
    judge = Reads(lambda claim, text: NEUTRAL)
    judge.says = lambda claim, text: tables[len(judge.tables) - 1].get((claim, text), NEUTRAL)
    return judge


def test_the_majority_of_judgements_counts_and_their_disagreement_is_the_noise() -> None:
    steady = {(FIRST, OPENED): ENTAILS}
    value = faithfulness(turns(steady, {**steady, (FIRST, LAMPS): ENTAILS}, steady), [OPENED, LAMPS], FIRST)
    np.testing.assert_array_equal(value.exact(np.array([[False, True], [True, False]]))[:, 0], [0, 1])
    # Of three pairs of judgements two differ on one of two segments.
    np.testing.assert_allclose(value.noise(), [1 / 3, 1 / 3])


def test_effects_within_what_repeats_differ_by_are_not_named() -> None:
    steady = {(FIRST, OPENED): ENTAILS, (FIRST, AGAIN): ENTAILS}
    judge = turns(steady, {(FIRST, OPENED): ENTAILS}, {(FIRST, AGAIN): ENTAILS, (FIRST, LAMPS): ENTAILS})
    found = attribute(trace([OPENED, AGAIN, LAMPS], FIRST), algorithm=CounterfactualFaithfulness(judge), db=":memory:")
    assert found.delta[0] == pytest.approx(2 * found.noise_floor)
    assert found.delta[0] > 0.5
    assert "supports" not in found.verdicts
    assert any("the judge does not repeat its verdicts" in warning for warning in found.warnings)


def test_a_judge_that_remembers_gives_one_judgement_and_it_is_said_that_nothing_is_known_of_its_noise() -> None:
    calls: list[str] = []

    def model(prompt: str, system: str) -> str:
        calls.append(prompt)
        return "entails"

    value = faithfulness(LLMJudge(model), [OPENED], FIRST)
    assert value.exact(np.ones((1, 1), dtype=bool)).tolist() == [[1.0, 1.0]]
    assert len(calls) == value.cost.calls
    assert np.isnan(value.noise()).all()
    assert any("gave one judgement" in note for note in value.notes)


def test_a_judge_that_repeats_itself_is_asked_once() -> None:
    calls: list[str] = []

    def model(prompt: str, system: str) -> str:
        calls.append(prompt)
        return "entails"

    value = faithfulness(LLMJudge(model, repeats=3), [OPENED], FIRST)
    value.exact(np.ones((1, 1), dtype=bool))
    n_calls = len(calls)
    np.testing.assert_array_equal(value.noise(), [0, 0])
    value.with_targets(value.targets).exact(np.zeros((1, 1), dtype=bool))
    assert len(calls) == n_calls == value.cost.calls


# What it takes


def says_both(prompt: str, system: str) -> str:
    """As a model would answer, in JSON, of every pair asked about."""
    n_segments = 3
    return "\n".join(
        f'{{"claim": 1, "segment": {n}, "verdict": "neutral", "why": "no"}}' for n in range(1, n_segments + 1)
    )


@pytest.mark.parametrize("own", [True, False])
def test_the_cost_is_what_the_judge_was_asked_and_no_more_than_was_announced(own: bool) -> None:
    calls: list[str] = []

    def model(prompt: str, system: str) -> str:
        calls.append(prompt)
        return says_both(prompt, system)

    recorded = trace([HOP_ONE, LAMPS, HOP_TWO], BORN)
    algorithm = CounterfactualFaithfulness(LLMJudge(model, repeats=3) if own else model)
    announced = plan(recorded, algorithm=algorithm)
    assert not calls
    found = attribute(recorded, algorithm=algorithm, db=":memory:")
    assert found.cost.calls == len(calls)
    assert announced.calls <= found.cost.calls <= announced.maximum.calls
    spent, most = found.cost, announced.maximum
    assert spent.tokens_in <= most.tokens_in
    assert spent.tokens_out <= most.tokens_out


def test_looking_again_costs_nothing_where_the_judge_is_on_the_runs_account(tmp_path) -> None:
    model = ScriptedEngine("entails")
    recorded, algorithm = trace([OPENED], FIRST), CounterfactualFaithfulness(model)
    first = attribute(recorded, algorithm=algorithm, db=tmp_path / "a.db")
    asked = len(model.seen)
    again = attribute(recorded, algorithm=algorithm, db=tmp_path / "a.db")
    assert (first.cost.calls, again.cost.calls, len(model.seen)) == (asked, 0, asked)
    assert (first.cost.usd, plan(recorded, algorithm=algorithm).usd) == (0, 0)


def test_a_budget_that_cannot_pay_the_judge_is_refused_before_it_is_asked() -> None:
    judge = by_cell({})
    with pytest.raises(BudgetExceededError, match="the judge needs about 3 calls"):
        attribute(
            trace([OPENED, LAMPS], FIRST),
            algorithm=CounterfactualFaithfulness(judge),
            budget=Budget(calls=2),
            db=":memory:",
        )
    assert not judge.tables


def test_a_cap_holds_while_the_judge_asks() -> None:
    calls: list[str] = []

    def model(prompt: str, system: str) -> str:
        calls.append(prompt)
        return "I would rather not say."

    algorithm = CounterfactualFaithfulness(model, repeats=1)
    found = attribute(trace([OPENED, LAMPS], FIRST), algorithm=algorithm, budget=Budget(calls=2), db=":memory:")
    assert len(calls) <= 2
    assert set(found.verdicts.ravel().tolist()) == {"undetermined"}


def test_where_likelihoods_stand_for_a_judge_it_says_that_no_judge_has_spoken() -> None:
    engine = AdditiveEngine({"1911": {OPENED: 6.0}}, bias=-5.0)
    recorded, algorithm = trace([OPENED, LAMPS], FIRST), CounterfactualFaithfulness(LikelihoodJudge(engine))
    announced = plan(recorded, algorithm=algorithm)
    found = attribute(recorded, algorithm=algorithm, db=":memory:")
    assert any("no judge has spoken" in warning for warning in found.warnings)
    assert found.verdicts[0, column(found, OPENED)] == "supports"
    assert found.cost.calls == engine.calls == announced.calls


# What is refused


def test_hiding_segments_and_a_screen_make_no_sense_of_a_judge() -> None:
    judge = by_cell({})
    with pytest.raises(ConfigurationError, match="asks a judge"):
        attribute(trace([OPENED], FIRST), algorithm=CounterfactualFaithfulness(judge), estimator="screened")
    assert not judge.tables


@pytest.mark.parametrize(
    ("options", "error"), [({"repeats": 0}, ConfigurationError), ({"targets": "reference"}, InputError)]
)
def test_what_cannot_be_judged_is_an_error(options: dict[str, object], error: type[Exception]) -> None:
    if options.get("targets"):
        options = {"targets": [Target(TargetKind.REFERENCE, 0, 1, "a")]}
    generation = Generation((Message("user", OPENED),), FIRST)
    with pytest.raises(error):
        Faithfulness(by_cell({}), generation, segments=segments_of([OPENED]), response=FIRST, **options)


def test_an_empty_response_is_an_error() -> None:
    with pytest.raises(InputError, match="empty response"):
        Faithfulness(by_cell({}), Generation((Message("user", OPENED),), " "), segments=[], response=" ")


def test_without_segments_nothing_is_asked_and_nothing_supported() -> None:
    judge = by_cell({})
    value = faithfulness(judge, [], FIRST)
    assert value.exact(np.ones((1, 0), dtype=bool)).tolist() == [[0.0, 0.0]]
    assert not judge.tables


def test_a_span_has_the_share_of_the_claims_it_lies_in() -> None:
    answer = f"{FIRST} {SECOND}"
    value = faithfulness(by_cell({(FIRST, OPENED): ENTAILS}), [OPENED], answer, joint=False)
    start = answer.index("1911. Lamps")
    spans = [Target(TargetKind.SPAN, start, start + 4, "1911", 0), Target(TargetKind.SPAN, start, start + 11, "both")]
    np.testing.assert_array_equal(value.with_targets(spans).exact(np.ones((1, 1), dtype=bool)), [[1.0, 0.5]])
