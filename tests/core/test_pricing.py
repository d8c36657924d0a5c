"""What a screened run is said to cost, before it runs, against what it then costs."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attr_core._setup import Options
from attr_core.api import attribute, plan
from attr_core.errors import BudgetExceededError, MissingCapabilityError
from attr_core.estimators import Banzhaf, ContextCite, DebiasedLasso, LeaveOneOut, PathGradients, Screened
from attr_core.estimators.screened import RANKED
from attr_core.planning import settle
from attr_core.pricing import LIKELY_DELETED, gate_calls
from attr_core.results import Budget, Plan
from attr_core.testing import AdditiveEngine
from attr_core.types import Document, Trace

PLACES = ("Corvath", "Dunmere", "Farrow", "Gildern", "Jaspen", "Kestrel", "Lorwyn", "Pellam", "Ristone")
FACT = "The Aldemoor fair opened in 1911."
ANSWER = "The fair opened in 1911."
QUESTION = "When did the Aldemoor fair open?"


def trace(n_documents: int = 9, answer: str = ANSWER) -> Trace:
    texts = [FACT, *(f"{place} sells wool." for place in PLACES)][:n_documents]
    documents = [Document(f"d{n}", text) for n, text in enumerate(texts)]
    content = "\n".join(texts) + f"\n\n{QUESTION}"
    return Trace.from_messages([{"role": "user", "content": content}], answer, documents=documents)


@pytest.fixture(scope="module")
def tiny(tiny_engine: Any) -> Any:
    return tiny_engine("llama")


def most(estimator: Screened, n_segments: int = 9) -> int:
    """Calls of the estimate, for one claim and its three pivots in two readings, and the response."""
    return estimator.n_masks(n_segments) + gate_calls(2 * 3 + 1 + 1)


def chosen(engine: Any, calls: int | None, **options: Any) -> Any:
    return settle(trace(), Options(engine=engine, budget=Budget(calls=calls), **options)).estimator


def test_more_than_six_segments_are_screened_where_the_engine_can_and_fewer_enumerated(tiny: Any) -> None:
    assert chosen(tiny, None) == Screened()
    assert settle(trace(6), Options(engine=tiny)).estimator == Banzhaf()
    assert settle(trace(7), Options(engine=tiny)).estimator == Screened()
    assert chosen(AdditiveEngine({"1911": {}}), None) == DebiasedLasso()


def test_a_small_budget_takes_a_smaller_screen_and_then_exact_ablations(tiny: Any) -> None:
    middle, small = Screened(max_exact=16), Screened(n_hidden=48, max_exact=0, n_drops=1)
    assert chosen(tiny, most(Screened())) == Screened()
    assert chosen(tiny, most(Screened()) - 1) == middle
    assert chosen(tiny, most(middle) - 1) == small
    assert chosen(tiny, most(small)) == small
    assert chosen(tiny, most(small) - 1) == DebiasedLasso()
    assert chosen(tiny, DebiasedLasso().n_masks(9) - 1) == DebiasedLasso(64, n_drops=0)
    assert isinstance(chosen(tiny, 20), LeaveOneOut)
    with pytest.raises(BudgetExceededError, match="at least"):
        chosen(tiny, 5)


def test_a_screen_that_was_asked_for_is_not_made_smaller_but_refused(tiny: Any) -> None:
    wanted = Screened(n_hidden=96)
    assert chosen(tiny, most(wanted), estimator=wanted) == wanted
    with pytest.raises(BudgetExceededError, match=f"needs up to {most(wanted)} calls"):
        chosen(tiny, most(wanted) - 1, estimator=wanted)
    with pytest.raises(BudgetExceededError, match="PathGradients"):
        chosen(tiny, 10, estimator="path-gradients")


@pytest.mark.parametrize("name", ["screened", "path-gradients"])
def test_an_engine_that_cannot_hide_is_not_asked_to(name: str) -> None:
    with pytest.raises(MissingCapabilityError, match="score_hidden"):
        chosen(AdditiveEngine({"1911": {}}), None, estimator=name)


def test_the_plan_says_that_exact_ablations_are_used_where_segments_cannot_be_hidden(tiny: Any) -> None:
    plain = AdditiveEngine({"1911": {FACT: 9.0}})
    said = "test:additive cannot hide segments in a cached prompt: exact ablations are used"
    assert said in plan(trace(), engine=plain).notes
    assert said not in plan(trace(), engine=plain, estimator="leave-one-out").notes
    assert said not in plan(trace(), engine=plain, screen_with=tiny).notes
    assert plan(trace(), engine=tiny).notes == ()


def test_a_plan_spends_nothing_and_names_its_steps(tiny: Any) -> None:
    planned = plan(trace(), engine=tiny)
    assert planned.method == "likelihood × Screened"
    assert [step.name for step in planned.steps] == [
        "gates differentiated behind the cached prompt",
        "ablations hidden in the cached prompt",
        "ablations scored",
        "the same prompt scored again",
        "answers generated anew",
    ]
    assert (planned.calls, planned.tokens) == (
        sum(step.calls for step in planned.steps),
        sum(step.tokens for step in planned.steps),
    )
    assert planned.calls <= planned.maximum.calls
    assert planned.tokens <= planned.maximum.tokens_in
    assert vars(tiny).get("_prefix") is None, "the prompt is not forwarded for a plan"
    gates_only = plan(trace(), engine=tiny, estimator="path-gradients", regenerations=False)
    assert [step.calls for step in gates_only.steps][1:] == [1, 2]


def test_screening_with_few_deletions_is_planned_at_a_fraction_of_the_tokens_of_exact_ablations(tiny: Any) -> None:
    screened = plan(trace(), engine=tiny, regenerations=False, estimator=Screened(exact_tokens=100))
    exact = plan(trace(), engine=tiny, estimator=DebiasedLasso(), regenerations=False)
    assert screened.tokens < exact.tokens


def test_the_deletions_that_are_likely_made_of_a_short_prompt_are_planned(tiny: Any) -> None:
    many, few = (
        plan(trace(), engine=tiny, regenerations=False, estimator=estimator)
        for estimator in (Screened(), Screened(exact_tokens=100))
    )
    deleted = [next(step.calls for step in one.steps if step.name == "ablations scored") for one in (many, few)]
    assert deleted == [1 + RANKED, 1 + LIKELY_DELETED]
    assert few.tokens < many.tokens


@pytest.mark.parametrize("estimator", [None, PathGradients(), Screened(n_hidden=48, max_exact=4)])
def test_what_is_spent_is_no_more_than_the_most(tiny: Any, estimator: Any) -> None:
    options: dict[str, Any] = {"engine": tiny, "estimator": estimator, "regenerations": False}
    two = trace(answer="The fair opened in 1911. It sells wool.")
    planned = plan(two, **options)
    spent = attribute(two, db=":memory:", **options).cost
    assert 0 < spent.calls <= planned.maximum.calls
    assert 0 < spent.tokens_in <= planned.maximum.tokens_in


def test_a_budget_that_pays_the_most_is_never_passed_and_is_enough(tiny: Any) -> None:
    small = Screened(n_hidden=48, max_exact=0, n_drops=1)
    budget = Budget(calls=most(small) + 2)
    found = attribute(trace(), engine=tiny, regenerations=False, budget=budget, db=":memory:")
    assert found.method == "ResponseLogOdds × Screened"
    assert found.cost.calls <= most(small) + 2
    tokens = plan(trace(), engine=tiny, regenerations=False, estimator=small).maximum.tokens_in
    options: dict[str, Any] = {"engine": tiny, "regenerations": False, "estimator": small}
    again = attribute(trace(), budget=Budget(tokens=tokens), db=":memory:", **options)
    assert again.cost.tokens_in <= tokens
    np.testing.assert_allclose(again.effects, found.effects)


def test_totals_and_checks_are_left_out_first_and_said(tiny: Any) -> None:
    two = trace(answer="The fair opened in 1911. It sells wool.")
    whole = settle(two, Options(engine=tiny))
    assert (len(whole.totals), whole.n_repeats, whole.n_regenerations) == (1, 2, 4)
    calls = plan(two, engine=tiny).maximum.calls
    tight = settle(two, Options(engine=tiny, budget=Budget(calls=calls - 1)))
    assert (len(tight.totals), tight.n_repeats, tight.n_regenerations) == (1, 2, 3)
    half = settle(two, Options(engine=tiny, budget=Budget(calls=calls // 2)))
    assert half.totals == ()
    assert any("later claims are read given the earlier ones only" in note for note in half.notes)


def test_a_model_that_screens_for_another_is_planned_and_paid_together(tiny: Any) -> None:
    engine = AdditiveEngine({"1911": {FACT: 9.0}}, bias=-4.0)
    options: dict[str, Any] = {"engine": engine, "screen_with": tiny, "regenerations": False}
    planned = plan(trace(), **options)
    assert planned.method == "likelihood × Screened"
    assert planned.engine == "test:additive"
    found = attribute(trace(), db=":memory:", **options)
    assert found.measured_on == "test:additive"
    assert engine.calls < found.cost.calls <= planned.maximum.calls
    leading = found.ranking(found.rows(claim=0)[0])[0]
    assert found.segments[leading].text == FACT
    with pytest.raises(MissingCapabilityError, match="screening for another model"):
        plan(trace(), engine=tiny, screen_with=engine)


@pytest.mark.parametrize("estimator", [None, "debiased-lasso"])
def test_a_template_in_which_nothing_can_be_hidden_is_attributed_by_deleting(
    tiny_model: Any, tiny_tokenizer: Any, estimator: str | None
) -> None:
    from attr_core.engines.huggingface import HuggingFaceEngine

    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.content.startswith('The ') %}!{% endif %}{{ m.content }}{% endfor %}"
    )
    engine = HuggingFaceEngine(tiny_model("llama"), tokenizer)
    options: dict[str, Any] = {"engine": engine, "estimator": estimator, "regenerations": False}
    planned = plan(trace(), **options)
    found = attribute(trace(), db=":memory:", **options)
    assert planned.method.endswith("DebiasedLasso")
    assert found.method == "ResponseLogOdds × DebiasedLasso"
    assert found.cost.calls <= planned.maximum.calls


def within_a_factor(planned: Plan, calls: int, tokens: int, *, factor: float) -> None:
    assert planned.calls / factor <= calls <= planned.calls * factor
    assert planned.tokens / factor <= tokens <= planned.tokens * factor


@pytest.mark.model
def test_a_real_run_is_within_the_most_and_within_twice_of_what_is_expected(small_engine: Any) -> None:
    asked = trace(answer="The Aldemoor fair opened in 1911.")
    planned = plan(asked, engine=small_engine, regenerations=False)
    spent = attribute(asked, engine=small_engine, regenerations=False, db=":memory:").cost
    assert spent.calls <= planned.maximum.calls
    assert spent.tokens_in <= planned.maximum.tokens_in
    within_a_factor(planned, spent.calls, spent.tokens_in, factor=2.0)


@pytest.mark.parametrize("algorithm", ["likelihood", "reference"])
def test_path_gradients_stay_within_what_was_announced(tiny: Any, algorithm: str) -> None:
    recorded = replace(trace(), reference="The fair opened in 1937.")
    announced = plan(recorded, engine=tiny, algorithm=algorithm, estimator="path-gradients")
    found = attribute(recorded, engine=tiny, algorithm=algorithm, estimator="path-gradients", db=":memory:")
    assert found.cost.calls <= announced.maximum.calls
    assert found.cost.tokens_in + found.cost.tokens_out <= announced.maximum.tokens_in + announced.maximum.tokens_out


@pytest.mark.parametrize("estimator", [LeaveOneOut(), DebiasedLasso(), ContextCite()])
def test_fixed_designs_land_near_what_was_expected_though_prompts_share_their_beginnings(
    tiny: Any, estimator: Any
) -> None:
    announced = plan(trace(), engine=tiny, estimator=estimator, regenerations=False)
    found = attribute(trace(), engine=tiny, estimator=estimator, regenerations=False, db=":memory:")
    assert found.cost.calls == pytest.approx(announced.calls, rel=0.2)
    assert found.cost.tokens_in == pytest.approx(announced.tokens, rel=0.2)


def test_the_noise_check_forwards_the_prompt_anew(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forwarded, plain = [], type(tiny).score

    def score(self: Any, prompts: Any, continuation: str) -> Any:
        found = plain(self, prompts, continuation)
        forwarded.append([one.tokens_in for one in found])
        return found

    monkeypatch.setattr(type(tiny), "score", score)
    full = len(tiny.render(trace(4).target_generation.prompt).token_ids)
    attribute(trace(4), engine=tiny, estimator=Banzhaf(), regenerations=False, db=":memory:")
    assert forwarded[-2][0] > full
