"""explain, attribute and plan, on an engine whose right answers are known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from attr_core.api import attribute, explain, plan
from attr_core.errors import BudgetExceededError, InputError, MissingCapabilityError
from attr_core.results import Attribution, Budget
from attr_core.store import Store
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import TargetKind, Trace

FACT = "The Aldemoor fair opened in 1911."
RIVAL = "The Corvath parade opened in 1937."
NOISE = "Fees are four silver marks."
ANSWER = "It opened in 1911."


def engine(**changes: object) -> AdditiveEngine:
    options: dict = {"facts": {"1911": {FACT: 9.0, RIVAL: -2.0}}, "bias": -5.0, "answer": ANSWER}
    return AdditiveEngine(**{**options, **changes})


def explained(documents: list[str], **options: object) -> Attribution:
    settings: dict = {"engine": engine(), "db": ":memory:", "instruction": "Answer.", **options}
    return explain("When did the Aldemoor fair open?", documents, settings.pop("answer", ANSWER), **settings)


def column(attribution: Attribution, text: str) -> int:
    return next(s for s, segment in enumerate(attribution.segments) if segment.text == text)


def test_each_segment_gets_its_effect_on_the_pivot() -> None:
    found = explained([FACT, RIVAL, NOISE])
    [row] = found.rows(TargetKind.PIVOT)
    assert found.targets[row].text == "1911"
    effects = {found.segments[s].text: found.effects[row, s] for s in range(len(found.segments))}
    assert effects == pytest.approx({"Answer.": 0, FACT: 9, RIVAL: -2, NOISE: 0})
    assert found.verdicts[row, column(found, FACT)] == "drives"
    assert found.verdicts[row, column(found, RIVAL)] == "opposes"
    assert found.verdicts[row, column(found, NOISE)] == "no effect"


def test_it_answers_itself_when_no_answer_is_given() -> None:
    found = explained([FACT, NOISE], answer=None)
    assert found.response == ANSWER
    assert found.answered_by == found.measured_on == "test:additive"


def test_the_closed_book_score_is_always_reported() -> None:
    found = explained([FACT, RIVAL])
    np.testing.assert_allclose(found.closed_book, -5.0, atol=1e-9)
    np.testing.assert_allclose(found.full, 2.0, atol=1e-9)
    assert not any(found.is_known(row) for row in range(len(found.targets)))


def test_an_answer_the_model_knew_anyway_is_named_as_such() -> None:
    found = explained([NOISE], engine=engine(bias=4.0))
    assert all(found.is_known(row) for row in range(len(found.targets)))
    assert found.rows(TargetKind.PIVOT) == []


def test_the_leading_segment_is_removed_and_the_answer_generated_anew() -> None:
    found = explained([FACT, NOISE])
    texts = {again.removed: (again.text, again.same) for again in found.regenerated}
    lead = column(found, FACT)
    assert texts == {
        (): (ANSWER, True),
        (0, 1, 2): ("I do not know.", False),
        (lead,): ("I do not know.", False),
    }


def test_a_prompt_that_does_not_reproduce_the_answer_is_warned_of() -> None:
    found = explained([FACT], answer=None, engine=engine())
    assert not any("reproduce" in warning for warning in found.warnings)
    other = explained([FACT], engine=engine(answer="It opened in spring."))
    assert any("does not reproduce" in warning for warning in other.warnings)


def test_a_named_phrase_is_a_target() -> None:
    found = explained([FACT], spans=["opened in 1911"])
    [row] = found.rows(TargetKind.SPAN)
    assert found.effects[row, column(found, FACT)] == pytest.approx(9)


@pytest.mark.parametrize(
    ("span", "message"),
    [("1999", "'1999' does not stand in the response"), (" ", "does not stand"), ((3, 99), "outside the response")],
)
def test_a_span_that_is_not_in_the_response_is_an_error(span: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        explained([FACT], spans=[span])


def test_one_claim_can_be_chosen() -> None:
    found = explained([FACT, NOISE], answer="It opened in 1911. It was fine.", claims=[1])
    assert {found.targets[row].claim for row in found.rows(TargetKind.CLAIM)} == {1}
    with pytest.raises(InputError, match="claim 3 does not exist; the response has 2"):
        explained([FACT], answer="It opened in 1911. It was fine.", claims=[2])


@pytest.mark.parametrize("documents", [[], [FACT], [FACT, NOISE]])
def test_few_segments_give_right_answers(documents: list[str]) -> None:
    found = explained(documents)
    rows = found.rows(TargetKind.RESPONSE)
    assert found.effects.shape == (len(found.targets), len(documents) + 1)
    for text in documents:
        assert found.effects[rows[0], column(found, text)] == pytest.approx(9.0 if text == FACT else 0.0, abs=1e-9)


def test_nothing_but_the_question_gives_an_empty_ranking_and_says_so() -> None:
    trace = Trace.from_messages([{"role": "user", "content": "When did it open?"}], ANSWER)
    found = attribute(trace, engine=engine(), db=":memory:")
    assert found.effects.shape == (len(found.targets), 0)
    np.testing.assert_array_equal(found.full, found.closed_book)
    assert any("no context to rank" in warning for warning in found.warnings)


def test_many_segments_are_sampled_and_only_ranked() -> None:
    found = explained([FACT, RIVAL, *(f"Filler number {n}." for n in range(8))])
    [row] = found.rows(TargetKind.PIVOT)
    assert not found.exact
    assert found.segments[found.ranking(row)[0]].text == FACT
    assert set(found.verdicts.ravel()) == {"undetermined"}
    assert found.drops[row, column(found, FACT)] == pytest.approx(9)
    assert np.isnan(found.low).all()


def test_a_second_look_makes_no_call(tmp_path: Path) -> None:
    db, measuring = tmp_path / "a.db", engine()
    first = explained([FACT, RIVAL], engine=measuring, db=db)
    with Store(db) as store:
        again = attribute(store.last(), engine=measuring, db=db)
    assert first.cost.calls > 0
    assert again.cost.calls == 0
    assert again.cost.cache_hits > 0
    np.testing.assert_array_equal(first.effects, again.effects)
    assert [one.text for one in first.regenerated] == [one.text for one in again.regenerated]


def test_trace_and_result_are_stored(tmp_path: Path) -> None:
    found = explained([FACT, RIVAL], db=tmp_path / "a.db")
    with Store(tmp_path / "a.db") as store:
        assert store.get(found.trace_id).answer == ANSWER
        [kept] = store.attributions(found.trace_id)
    np.testing.assert_array_equal(kept.effects, found.effects)
    assert kept.targets == found.targets


def test_the_plan_is_what_runs() -> None:
    trace = Trace.from_messages([{"role": "user", "content": f"{FACT}\n\n{NOISE}\n\nWhen did it open?"}], ANSWER)
    measuring = engine()
    planned = plan(trace, engine=measuring)
    assert measuring.calls == 0
    found = attribute(trace, engine=measuring, db=":memory:")
    assert found.cost.calls <= planned.maximum.calls
    assert planned.calls == 2**2 + 3


def test_the_budget_decides_the_estimator_and_holds() -> None:
    documents = [FACT, RIVAL, *(f"Filler number {n}." for n in range(8))]
    for calls in (13, 30, 50, 200):
        assert explained(documents, budget=Budget(calls=calls)).cost.calls <= calls
    with pytest.raises(BudgetExceededError, match="11 segments need at least 13 calls, the budget allows 5"):
        explained(documents, budget=Budget(calls=5))


def test_a_named_estimator_that_the_budget_cannot_pay_is_an_error() -> None:
    with pytest.raises(BudgetExceededError, match="Banzhaf over 3 segments needs up to 8 calls"):
        explained([FACT, NOISE], estimator="banzhaf", budget=Budget(calls=7))


def test_regenerations_left_out_for_the_budget_are_said() -> None:
    found = explained([FACT, NOISE], budget=Budget(calls=8))
    assert found.regenerated == ()
    assert any("regenerations left out" in warning for warning in found.warnings)


def test_a_proxy_is_named_as_one() -> None:
    trace = Trace.from_messages([{"role": "user", "content": f"{FACT}\n\nWhen?"}], ANSWER, model="gpt-x")
    found = attribute(trace, engine=engine(), db=":memory:")
    assert (found.answered_by, found.measured_on) == ("gpt-x", "test:additive")
    assert any("gpt-x answered; test:additive measured as a proxy" in warning for warning in found.warnings)


def test_an_improbable_answer_is_warned_of() -> None:
    unlikely = ScriptedEngine(logprob=lambda prompt, word: -6.0)
    found = explained([FACT], engine=unlikely)
    assert any("finds the response improbable" in warning for warning in found.warnings)


@pytest.mark.parametrize("answer", ["", " \n\t"])
def test_an_empty_response_is_an_error(answer: str) -> None:
    with pytest.raises(InputError, match="empty response"):
        explained([FACT], answer=answer)


def test_an_empty_question_is_an_error() -> None:
    with pytest.raises(InputError, match="question is empty"):
        explain(" ", [FACT], engine=engine(), db=":memory:")


def test_an_empty_message_list_is_an_error() -> None:
    with pytest.raises(InputError, match="message list is empty"):
        Trace.from_messages([], ANSWER)


def test_an_engine_that_cannot_score_is_refused_before_anything_is_spent() -> None:
    class OnlyGenerates:
        spec = fingerprint = "test:generates"
        max_context = None

        def generate(self, prompts: object, sampling: object = None) -> list:
            raise AssertionError

    with pytest.raises(MissingCapabilityError, match="likelihood algorithm needs score"):
        explained([FACT], engine=OnlyGenerates())


def test_results_survive_json() -> None:
    found = explained([FACT, RIVAL], spans=["1911"])
    text = json.dumps(found.to_dict(), allow_nan=False)
    back = Attribution.from_dict(json.loads(text))
    np.testing.assert_array_equal(back.effects, found.effects)
    np.testing.assert_array_equal(back.low, found.low)
    assert back.segments == found.segments
    assert back.regenerated == found.regenerated
    assert math.isnan(back.level)


def test_results_show_as_a_data_frame() -> None:
    frame = explained([FACT, RIVAL]).to_pandas()
    best = frame[frame.target_kind == "pivot"].sort_values("effect").iloc[-1]
    assert best.verdict == "drives"
    assert best.effect == pytest.approx(9)


def test_hostile_text_stays_text_in_html() -> None:
    found = explained(["<script>alert(1)</script>", FACT])
    assert "<script>" not in found._repr_html_()
    assert "&lt;script&gt;" in found._repr_html_()
