"""explain, attribute and plan, on an engine whose right answers are known."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from attr_core.api import aexplain, attribute, check_placebos, explain, plan
from attr_core.attribution import Attribution
from attr_core.errors import (
    BudgetExceededError,
    ContextTooLongError,
    EngineError,
    InputError,
    MissingCapabilityError,
)
from attr_core.estimators import ESTIMATORS
from attr_core.placebo import SENTENCES
from attr_core.protocols import Completion, TokenScores
from attr_core.results import Budget, Route
from attr_core.store import Store
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Prompt, TargetKind, Trace

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


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_estimator_plans_and_measures_a_prompt_without_context(name: str) -> None:
    trace = Trace.from_messages([{"role": "user", "content": "When did it open?"}], ANSWER)
    if name in ("path-gradients", "screened"):
        with pytest.raises(MissingCapabilityError, match="score_hidden"):
            plan(trace, engine=engine(), estimator=name)
        return
    assert plan(trace, engine=engine(), estimator=name).calls >= 1
    found = attribute(trace, engine=engine(), estimator=name, db=":memory:")
    assert found.effects.shape == (len(found.targets), 0)


def test_what_is_expected_is_no_more_than_the_most() -> None:
    user = "\n\n".join([FACT, RIVAL, *(f"Filler number {n}." for n in range(5)), "When did it open?"])
    trace = Trace.from_messages([{"role": "user", "content": user}], ANSWER)
    planned = plan(trace, engine=engine())
    spent = attribute(trace, engine=engine(), db=":memory:").cost.calls
    assert spent <= planned.maximum.calls
    assert planned.calls == pytest.approx(spent, rel=0.2)


def test_many_segments_are_sampled_with_intervals_and_verdicts() -> None:
    found = explained([FACT, RIVAL, *(f"Filler number {n}." for n in range(8))])
    [row] = found.rows(TargetKind.PIVOT)
    assert (found.exact, found.level) == (False, 0.95)
    assert found.segments[found.ranking(row)[0]].text == FACT
    verdicts = {segment.text: found.verdicts[row, s] for s, segment in enumerate(found.segments)}
    assert verdicts.pop(FACT) == "drives"
    assert verdicts.pop(RIVAL) == "opposes"
    assert set(verdicts.values()) == {"no effect"}
    assert found.drops[row, column(found, FACT)] == pytest.approx(9)
    assert (found.low <= found.effects).all()
    assert found.p_values[row, column(found, FACT)] < 0.01
    assert found.fit is not None
    assert found.fit.r2[row] > 0.95


def test_an_estimator_that_only_ranks_leaves_verdicts_undetermined() -> None:
    found = explained([FACT, NOISE], estimator="context-cite")
    [row] = found.rows(TargetKind.PIVOT)
    assert found.segments[found.ranking(row)[0]].text == FACT
    assert set(found.verdicts.ravel()) == {"undetermined"}
    assert np.isnan(found.low).all()
    assert np.isnan(found.p_values).all()


@dataclass
class RepeatingEngine:
    """Gives 1911 by the fact; once the answer has said it, certainly, whatever the context."""

    inner: AdditiveEngine
    spec: str = "test:repeating"
    fingerprint: str = "test:repeating"
    max_context: int | None = None

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        scores = self.inner.score(prompts, continuation)
        for score in scores:
            words = [continuation[a:b].strip(" .") for a, b in score.offsets]
            later = [place for place, word in enumerate(words) if word == "1911" and "1911" in words[:place]]
            score.logprobs[later] = -1e-3
        return scores


def test_a_repeated_fact_is_driven_in_total_and_by_way_of_the_first_claim_given_it() -> None:
    answer = "It opened in 1911. So 1911 was the year."
    found = explained([FACT, NOISE], answer=answer, engine=RepeatingEngine(engine()))
    fact = column(found, FACT)
    [total] = found.rows(TargetKind.CLAIM, claim=1, reading="total")
    direct = found.direct_row(total)
    assert direct is not None
    assert found.verdicts[total, fact] == "drives"
    assert found.effects[total, fact] == pytest.approx(9)
    assert found.verdicts[direct, fact] == "no effect"
    assert Route(total, fact, 0) in found.routes
    [pivot] = found.rows(TargetKind.PIVOT, claim=1, reading="total")
    assert found.targets[pivot].text == "1911"


def test_the_first_claim_has_one_reading_and_later_ones_two() -> None:
    found = explained([FACT], answer="It opened in 1911. It was fine.")
    assert found.rows(claim=0, reading="total") == []
    assert len(found.rows(TargetKind.CLAIM, claim=1)) == 2
    single = explained([FACT], answer="It opened in 1911. It was fine.", totals=False)
    assert len(single.rows(TargetKind.CLAIM, claim=1)) == 1
    assert single.cost.calls < found.cost.calls


def test_how_far_the_engine_reproduces_itself_is_measured() -> None:
    assert explained([FACT]).noise_floor == 0
    draws = np.random.default_rng(0)
    shaky = ScriptedEngine(logprob=lambda prompt, word: -1.0 - 3 * draws.random())
    found = explained([FACT], engine=shaky)
    assert found.noise_floor > 1
    assert any("does not reproduce its own numbers" in warning for warning in found.warnings)


def test_a_prompt_beyond_the_window_is_measured_on_subsets_that_fit() -> None:
    filler = [f"Filler sentence number {n} goes on for a while." for n in range(12)]
    narrow = engine(max_context=620)
    found = explained([FACT, RIVAL, *filler], engine=narrow)
    [row] = found.rows(TargetKind.PIVOT)
    assert found.targets[row].text == "1911"
    assert np.isnan(found.full).all()
    assert np.isfinite(found.closed_book).all()
    assert found.segments[found.ranking(row)[0]].text == FACT
    assert found.verdicts[row, column(found, FACT)] == "drives"
    assert found.n_unfit > 0
    assert any("the baseline with the full context is missing" in warning for warning in found.warnings)


def test_a_question_beyond_the_window_is_an_error_before_anything_is_spent() -> None:
    narrow = engine(max_context=20)
    with pytest.raises(ContextTooLongError, match="even without context, the window of test:additive has 20"):
        explained([FACT, RIVAL], engine=narrow)
    assert narrow.calls == 0


def test_unrelated_sentences_stay_within_the_margin() -> None:
    user = {"role": "user", "content": f"{FACT}\n\n{NOISE}\n\nWhen did it open?"}
    trace = Trace.from_messages([user], ANSWER)
    check = check_placebos(trace, engine=engine(), db=":memory:")
    assert check.effects.shape == (len(check.targets), 3)
    assert check.beyond == 0
    assert check.largest == pytest.approx(0, abs=1e-9)
    moved = AdditiveEngine({"1911": {SENTENCES[0]: 5.0, FACT: 9.0}}, bias=-5.0)
    assert check_placebos(trace, engine=moved, db=":memory:").beyond > 0


@pytest.mark.parametrize("granularity", ["message", "paragraph", "sentence"])
def test_the_context_can_be_cut_more_or_less_finely(granularity: str) -> None:
    found = explained([f"{FACT} It was cold.\n\n{NOISE}", RIVAL], granularity=granularity)
    sizes = {"message": 2, "paragraph": 4, "sentence": 5}
    assert len(found.segments) == sizes[granularity]


def test_a_result_is_not_lost_for_what_cannot_be_generated() -> None:
    class Mute(AdditiveEngine):
        def generate(self, prompts: Sequence[Prompt], sampling: object = None) -> list[Completion]:
            raise EngineError("it went away")

    found = explained([FACT, NOISE], engine=Mute({"1911": {FACT: 9.0}}))
    assert found.regenerated == ()
    assert any("could not be generated anew: it went away" in warning for warning in found.warnings)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_numbers_that_are_none_are_an_error_and_never_kept(bad: float, tmp_path: Path) -> None:
    healthy = ScriptedEngine()
    broken = ScriptedEngine(logprob=lambda prompt, word: bad, fingerprint=healthy.fingerprint)
    with pytest.raises(EngineError, match="not finite"):
        explained([FACT], engine=broken, db=tmp_path / "a.db")
    assert np.isfinite(explained([FACT], engine=healthy, db=tmp_path / "a.db").full).all()


def test_exact_effects_of_an_engine_that_makes_them_up_are_rarely_called() -> None:
    called = 0
    for seed in range(20):
        draws = np.random.default_rng(seed)
        made_up = ScriptedEngine(logprob=lambda prompt, word, draws=draws: -abs(draws.normal(3, 3)) - 1e-3)
        found = explained([FACT, NOISE], engine=made_up, answer="1911", regenerations=False)
        called += bool({"drives", "opposes"} & set(found.verdicts[0]))
    assert called <= 3


def test_caps_hold_before_anything_is_sent() -> None:
    for budget in (Budget(calls=0), Budget(tokens=30)):
        capped = engine()
        with pytest.raises(BudgetExceededError):
            explained([FACT, NOISE], engine=capped, answer=None, budget=budget)
        assert capped.calls == 0
    needy = engine()
    with pytest.raises(BudgetExceededError, match="needs up to"):
        explained([FACT, NOISE], engine=needy, budget=Budget(tokens=200))
    assert needy.calls == 0


def test_a_single_document_or_span_need_not_be_a_list() -> None:
    found = explained(FACT, spans="1911")  # type: ignore[arg-type]
    assert [segment.text for segment in found.segments] == ["Answer.", FACT]
    assert len(found.rows(TargetKind.SPAN)) == 1


def test_a_finer_look_does_not_change_the_stored_trace(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    explained([f"{FACT} {NOISE}"], db=db, granularity="sentence")
    with Store(db) as store:
        again = attribute(store.last(), engine=engine(), db=db)
    assert len(again.segments) == 2


def test_a_word_in_the_closed_book_answer_is_known() -> None:
    found = explained([FACT], engine=engine(otherwise="It opened in 1911, I think."))
    [row] = found.rows(TargetKind.PIVOT)
    assert found.is_known(row)


def test_a_part_of_a_word_in_the_closed_book_answer_is_not_known() -> None:
    found = explained([FACT], engine=engine(otherwise="It opened in 21911."))
    [row] = found.rows(TargetKind.PIVOT)
    assert not found.is_known(row)


def test_too_small_a_budget_for_a_prompt_beyond_the_window_is_refused() -> None:
    narrow = engine(max_context=620)
    filler = [f"Filler sentence number {n} goes on for a while." for n in range(12)]
    with pytest.raises(BudgetExceededError, match="do not fit the model's window together need at least 34 calls"):
        explained([FACT, RIVAL, *filler], engine=narrow, budget=Budget(calls=20))
    assert narrow.calls == 0


def test_a_direct_reading_cannot_tell_what_was_known() -> None:
    found = explained([FACT], answer="It opened in 1911. Fine.", totals=False)
    assert not any(found.is_known(row) for row in found.rows(claim=1))


def test_two_segments_that_pull_a_word_apart_make_it_a_pivot() -> None:
    torn = engine(facts={"1911": {FACT: 6.0, RIVAL: -6.0}}, bias=0.0)
    found = explained([FACT, RIVAL], engine=torn)
    [row] = found.rows(TargetKind.PIVOT)
    assert found.targets[row].text == "1911"
    assert found.verdicts[row, column(found, RIVAL)] == "opposes"


def test_async_callers_get_the_same() -> None:
    found = asyncio.run(aexplain("When did it open?", [FACT], ANSWER, engine=engine(), db=":memory:"))
    assert found.response == ANSWER


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
    assert planned.calls == 2**2 + 2 + 3


def test_the_budget_decides_the_estimator_and_holds() -> None:
    documents = [FACT, RIVAL, *(f"Filler number {n}." for n in range(8))]
    for calls in (13, 35, 50, 200):
        assert explained(documents, budget=Budget(calls=calls)).cost.calls <= calls
    with pytest.raises(BudgetExceededError, match="11 segments need at least 13 calls, the budget allows 5"):
        explained(documents, budget=Budget(calls=5))


def test_a_named_estimator_that_the_budget_cannot_pay_is_an_error() -> None:
    with pytest.raises(BudgetExceededError, match="Banzhaf over 3 segments needs up to 8 calls, the budget leaves 7"):
        explained([FACT, NOISE], estimator="banzhaf", budget=Budget(calls=7))


def test_regenerations_left_out_for_the_budget_are_said() -> None:
    found = explained([FACT, NOISE], budget=Budget(calls=8))
    assert found.regenerated == ()
    assert any("checks and regenerations left out" in warning for warning in found.warnings)


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


def test_a_version_of_the_trace_that_was_stored_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    old = Trace.from_messages([{"role": "user", "content": f"{FACT}\n\nWhen did it open?"}], "In 1911.")
    newer = replace(old, tags=("seen",))
    with Store(tmp_path / "a.db") as store:
        store.save(newer)
        found = attribute(old, engine=AdditiveEngine({"1911": {FACT: 9.0}}), db=tmp_path / "a.db")
        kept = store.get(old.id)
        assert kept.tags == ("seen",)
        assert kept.generations[0].segments, "the prompt is still the one that was cut"
        assert [one.trace_id for one in store.attributions(old.id)] == [found.trace_id]
