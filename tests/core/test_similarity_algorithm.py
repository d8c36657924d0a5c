"""Answers generated anew under ablations, end to end: effects, the noise floor, money, interruptions."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from attr_core.algorithms import SimilarityAlgorithm
from attr_core.api import attribute, explain, plan
from attr_core.errors import (
    BudgetExceededError,
    ConfigurationError,
    ContextTooLongError,
    InputError,
    MissingCapabilityError,
)
from attr_core.estimators import DebiasedLasso
from attr_core.measuring import MeasuringInterrupted
from attr_core.protocols import Completion, Price, Sampling
from attr_core.reports.compact import compact
from attr_core.reports.terminal import render_attribution
from attr_core.results import Budget
from attr_core.store import Store
from attr_core.testing import ScriptedEngine
from attr_core.types import Document, Prompt, TargetKind, Trace

FACT = "The Aldemoor fair opened in 1911."
OTHERS = ("Wool is sold in Corvath.", "The river is cold.", "Trains leave at noon.")
ANSWER = "It opened in 1911."
UNSURE = "Nobody can say."
OVERLAP = SimilarityAlgorithm(metric="overlap")


def says(prompt: Prompt) -> str:
    return ANSWER if any(FACT in message.content for message in prompt.messages) else UNSURE


PRICE = Price(1e-4, 1e-3)


class Generates:
    """A model that generates and does not score, with a price."""

    spec = fingerprint = "test:hosted"
    max_context = None

    def __init__(self, *, price: Price | None = PRICE, reply: Any = says, stop_at: int | None = None) -> None:
        self.price, self.reply, self.stop_at = price, reply, stop_at
        self.calls = 0

    def count_tokens(self, prompt: Prompt) -> int:
        return sum(len(message.content.split()) + 4 for message in prompt.messages)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        found = []
        for prompt in prompts:
            self.calls += 1
            if self.calls == self.stop_at:
                raise KeyboardInterrupt
            text = self.reply(prompt)
            found.append(Completion(text, "stop", self.count_tokens(prompt), len(text.split())))
        return found


def trace(others: Sequence[str] = OTHERS, *, answer: str = ANSWER, model: str | None = None) -> Trace:
    texts = [FACT, *others]
    documents = [Document(f"d{n}", text) for n, text in enumerate(texts)]
    content = "\n".join(texts) + "\n\nWhen did the Aldemoor fair open?"
    return Trace.from_messages([{"role": "user", "content": content}], answer, documents=documents, model=model)


def shown(attribution: Any) -> str:
    console = Console(width=160, record=True, color_system=None, file=io.StringIO())
    console.print(render_attribution(attribution))
    return console.export_text()


def test_the_segment_whose_removal_changes_the_answer_drives_and_no_other() -> None:
    found = attribute(trace(), engine=Generates(), algorithm=OVERLAP, db=":memory:")
    [row] = found.rows(TargetKind.RESPONSE)
    np.testing.assert_allclose(found.effects[row], [1, 0, 0, 0], atol=1e-9)
    assert found.verdicts[row].tolist() == ["drives", "no effect", "no effect", "no effect"]
    assert (found.unit, found.full[row], found.closed_book[row]) == ("similarity", 1, 0)
    assert found.noise_floor == 0
    assert found.method == "ResponseSimilarity[token_overlap] × Banzhaf"
    text = shown(found)
    assert "similarity 1.00 with the context, 0.00 without" in text
    assert "nats" not in text
    assert "answers to the same prompt differ by 0 similarity" in text
    assert compact(found)["claims"][0]["targets"][0]["causes"][0]["segment"] == found.segments[0].id


def test_claims_are_attributed_each_on_its_own_and_have_no_second_reading() -> None:
    found = attribute(
        trace(answer="It opened in 1911. Wool is sold there."),
        engine=Generates(reply=lambda prompt: f"{says(prompt)} Wool is sold there."),
        algorithm=OVERLAP,
        db=":memory:",
    )
    first, second = found.rows(TargetKind.CLAIM)
    assert {target.reading for target in found.targets} == {"direct"}
    assert found.verdicts[first, 0] == "drives"
    assert set(found.verdicts[second].tolist()) == {"no effect"}


def test_an_effect_is_called_only_when_it_clears_what_answers_to_one_prompt_differ_by() -> None:
    turns = itertools.cycle(["It opened in 1911.", "The year was 1911 then.", "Well, 1911 it was."])
    moody = Generates(reply=lambda prompt: next(turns))
    found = attribute(trace(), engine=moody, algorithm=OVERLAP, db=":memory:")
    [row] = found.rows(TargetKind.RESPONSE)
    assert found.noise_floor > 0.1
    assert found.delta[row] >= 2 * found.noise_floor - 1e-12
    assert "drives" not in found.verdicts
    assert any("does not reproduce its own numbers" in warning for warning in found.warnings)


def test_a_second_look_with_another_metric_calls_nothing(tmp_path: Path) -> None:
    engine = Generates()
    recorded = trace()
    attribute(recorded, engine=engine, algorithm=OVERLAP, db=tmp_path / "a.db")
    calls = engine.calls
    found = attribute(recorded, engine=engine, algorithm=SimilarityAlgorithm(metric="numeric"), db=tmp_path / "a.db")
    assert engine.calls == calls
    assert (found.cost.calls, found.cost.usd) == (0, 0)
    assert "numeric" in found.method


def test_a_fixed_design_lands_near_what_was_expected_and_below_what_was_announced() -> None:
    engine, recorded = Generates(), trace([f"Filler sentence number {n}." for n in range(9)])
    announced = plan(recorded, engine=engine, algorithm=OVERLAP)
    assert engine.calls == 0
    found = attribute(recorded, engine=engine, algorithm=OVERLAP, db=":memory:")
    assert found.cost.calls == engine.calls
    assert found.cost.calls == pytest.approx(announced.calls, rel=0.2)
    assert found.cost.tokens_in + found.cost.tokens_out == pytest.approx(announced.tokens, rel=0.2)
    assert found.cost.usd == pytest.approx(announced.usd, rel=0.2)
    most = announced.maximum
    assert found.cost.calls <= most.calls
    assert found.cost.tokens_in <= most.tokens_in
    assert found.cost.tokens_out <= most.tokens_out
    assert found.cost.usd <= most.usd


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 1.5])
def test_a_budget_in_usd_is_never_exceeded(share: float) -> None:
    recorded = trace([f"Filler sentence number {n}." for n in range(9)])
    usd = share * plan(recorded, engine=Generates(), algorithm=OVERLAP).usd
    engine = Generates()
    try:
        found = attribute(recorded, engine=engine, algorithm=OVERLAP, budget=Budget(usd=usd), db=":memory:")
    except BudgetExceededError:
        assert engine.calls == 0
    else:
        assert 0 < found.cost.usd <= usd
        assert found.warnings or share > 1


def test_a_price_nobody_knows_is_said_and_no_budget_in_usd_is_accepted() -> None:
    unpriced = Generates(price=None)
    assert math.isnan(plan(trace(), engine=unpriced, algorithm=OVERLAP).usd)
    with pytest.raises(BudgetExceededError, match="price is unknown"):
        attribute(trace(), engine=unpriced, algorithm=OVERLAP, budget=Budget(usd=9.0), db=":memory:")
    assert unpriced.calls == 0
    assert math.isnan(attribute(trace(), engine=unpriced, algorithm=OVERLAP, db=":memory:").cost.usd)


def test_likelihood_on_a_model_that_only_generates_is_refused_before_anything_is_paid() -> None:
    engine = Generates()
    with pytest.raises(MissingCapabilityError, match="or --algorithm similarity"):
        explain("When did it open?", [FACT], engine=engine, db=":memory:")
    assert engine.calls == 0


def test_metrics_and_embedders_are_checked_before_anything_is_paid() -> None:
    engine = Generates()
    with pytest.raises(ConfigurationError, match="choose embedding, overlap, numeric"):
        attribute(trace(), engine=engine, algorithm=SimilarityAlgorithm(metric="vibes"), db=":memory:")
    with pytest.raises(MissingCapabilityError, match="embed"):
        attribute(trace(), engine=engine, algorithm=SimilarityAlgorithm(metric="embedding", embedder=ScriptedEngine()))
    assert engine.calls == 0


class Embedder:
    spec = fingerprint = "test:letters"
    max_context = None
    price = Price(1e-6, 0.0)
    calls = 0

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        self.calls += len(texts)
        return np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz0123456789"] for text in texts])


def test_what_embeds_is_planned_metered_and_cached_too(tmp_path: Path) -> None:
    embedder, recorded = Embedder(), trace()
    algorithm = SimilarityAlgorithm(metric="embedding", embedder=embedder)
    announced = plan(recorded, engine=Generates(), algorithm=algorithm)
    assert any(step.name == "texts embedded" and step.usd > 0 for step in announced.steps)
    first = attribute(recorded, engine=Generates(), algorithm=algorithm, db=tmp_path / "a.db")
    calls = embedder.calls
    assert calls > 0
    assert first.cost.calls <= announced.maximum.calls
    again = attribute(recorded, engine=Generates(), algorithm=algorithm, db=tmp_path / "a.db")
    assert (again.cost.calls, embedder.calls) == (0, calls)


def test_any_function_of_two_texts_is_a_metric() -> None:
    def same(original: str, regenerated: str) -> float:
        return float(original == regenerated)

    found = attribute(trace(), engine=Generates(), algorithm=SimilarityAlgorithm(metric=same), db=":memory:")
    assert "[same]" in found.method
    assert found.verdicts[-1, 0] == "drives"


def test_an_interrupted_run_leaves_a_partial_result_and_the_next_one_goes_on_from_there(tmp_path: Path) -> None:
    recorded, db = trace([f"Filler sentence number {n}." for n in range(9)]), tmp_path / "a.db"
    whole = attribute(recorded, engine=Generates(), algorithm=OVERLAP, db=":memory:")
    with pytest.raises(MeasuringInterrupted) as stopped:
        attribute(recorded, engine=Generates(stop_at=50), algorithm=OVERLAP, db=db)
    partial = stopped.value.partial
    assert partial.partial
    assert set(partial.verdicts.ravel().tolist()) == {"undetermined"}
    assert np.isnan(partial.low).all()
    assert partial.ranking(partial.rows(TargetKind.RESPONSE)[0])[0] == 0
    assert "PARTIAL" in shown(partial)
    with Store(db) as store:
        assert [one.partial for one in store.attributions(recorded.id)] == [True]
    rest = Generates()
    resumed = attribute(recorded, engine=rest, algorithm=OVERLAP, db=db)
    assert not resumed.partial
    np.testing.assert_array_equal(resumed.effects, whole.effects)
    assert rest.calls + 34 == whole.cost.calls  # both ends, and two slices of 16, were kept


def test_an_interrupt_before_anything_can_be_said_is_an_ordinary_one(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as stopped:
        attribute(trace(), engine=Generates(stop_at=1), algorithm=OVERLAP, db=tmp_path / "a.db")
    assert not hasattr(stopped.value, "partial")


def test_an_interrupted_likelihood_run_is_partial_too(tmp_path: Path) -> None:
    seen = itertools.count(1)

    def logprob(prompt: Prompt, word: str) -> float:
        if next(seen) == 150:
            raise KeyboardInterrupt
        return -0.1 if any(FACT in message.content for message in prompt.messages) else -4.0

    recorded = trace([f"Filler sentence number {n}." for n in range(9)])
    with pytest.raises(MeasuringInterrupted) as stopped:
        attribute(recorded, engine=ScriptedEngine(logprob=logprob), estimator=DebiasedLasso(), db=tmp_path / "a.db")
    assert stopped.value.partial.ranking(stopped.value.partial.rows(TargetKind.RESPONSE)[0])[0] == 0


def test_where_a_proxy_measures_a_hosted_answer_the_result_says_how_to_measure_the_model_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if find_spec("litellm") is None:
        pytest.skip("prices come with litellm")
    monkeypatch.setattr("attr_core.planning.load_engine", lambda spec: ScriptedEngine() if spec is None else spec)
    recorded = trace(model="gpt-4o-mini")
    found = attribute(recorded, db=":memory:")
    [hint] = [warning for warning in found.warnings if "litellm:gpt-4o-mini" in warning]
    assert f"attrkit inspect {recorded.id} --algorithm similarity" in hint
    assert "USD 0.0" in hint
    chosen = attribute(recorded, engine=ScriptedEngine(), db=":memory:")
    assert not any("litellm:" in warning for warning in chosen.warnings)
    hostile = attribute(trace(model="gpt-4o; rm -rf ~"), db=":memory:")
    assert not any("attrkit inspect" in warning for warning in hostile.warnings)


def test_what_the_model_no_longer_says_is_left_open_and_named() -> None:
    found = attribute(
        trace(answer="It opened in 1911. Wool costs four marks."), engine=Generates(), algorithm=OVERLAP, db=":memory:"
    )
    first, second = found.rows(TargetKind.CLAIM)
    assert found.verdicts[first, 0] == "drives"
    assert set(found.verdicts[second].tolist()) == {"undetermined"}
    assert any("does not give again 'Wool costs four marks.'" in warning for warning in found.warnings)


def test_a_span_counts_as_said_where_its_words_stand_in_the_new_answer() -> None:
    found = attribute(trace(), engine=Generates(), algorithm=OVERLAP, spans=["1911"], db=":memory:")
    [row] = found.rows(TargetKind.SPAN)
    assert (found.full[row], found.closed_book[row]) == (1, 0)
    assert found.verdicts[row, 0] == "drives"


def test_nothing_is_called_known_that_only_the_context_gave_and_what_is_said_without_it_is() -> None:
    found = attribute(trace(), engine=Generates(), algorithm=OVERLAP, db=":memory:")
    assert not any(found.is_known(row) for row in range(len(found.targets)))
    always = attribute(trace(), engine=Generates(reply=lambda prompt: ANSWER), algorithm=OVERLAP, db=":memory:")
    assert all(always.is_known(row) for row in range(len(always.targets)))


def test_the_short_displays_show_similarities_and_no_probabilities() -> None:
    found = attribute(trace(), engine=Generates(), algorithm=OVERLAP, db=":memory:")
    for text in (str(found), found._repr_html_()):
        assert "similarity 1.00" in text
        assert "likely" not in text
        assert "%" not in text


def test_the_same_model_reached_in_another_way_is_no_proxy() -> None:
    same = Generates()
    same.spec = "server:http://127.0.0.1:8000#smol"
    found = attribute(trace(model="openai/smol"), engine=same, algorithm=OVERLAP, db=":memory:")
    assert not any("proxy" in warning for warning in found.warnings)
    other = attribute(trace(model="openai/large"), engine=same, algorithm=OVERLAP, db=":memory:")
    assert any("proxy" in warning for warning in other.warnings)


def test_a_metric_that_fails_is_named_and_what_was_generated_is_kept(tmp_path: Path) -> None:
    engine, recorded = Generates(), trace()

    def broken(original: str, regenerated: str) -> float:
        return 1 / 0

    with pytest.raises(InputError, match="metric 'broken' failed: ZeroDivisionError"):
        attribute(recorded, engine=engine, algorithm=SimilarityAlgorithm(metric=broken), db=tmp_path / "a.db")
    calls = engine.calls
    attribute(recorded, engine=engine, algorithm=OVERLAP, db=tmp_path / "a.db")
    assert engine.calls - calls < calls


def test_an_engine_that_could_hide_segments_is_not_asked_to_where_answers_are_generated(tiny_engine: Any) -> None:
    recorded, tiny = trace([f"Filler sentence number {n}." for n in range(7)]), tiny_engine("llama")
    assert "DebiasedLasso" in plan(recorded, engine=tiny, algorithm=OVERLAP).method
    for choice in ({"estimator": "screened"}, {"estimator": "path-gradients"}, {"screen_with": tiny}):
        with pytest.raises(ConfigurationError, match="generates answers"):
            plan(recorded, engine=Generates(), algorithm=OVERLAP, **choice)


@pytest.mark.parametrize("n_others", [0, 2, 5])
def test_two_subsets_alone_are_no_partial_result(n_others: int, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as stopped:
        attribute(
            trace([f"Filler {n}." for n in range(n_others)]),
            engine=Generates(stop_at=3),
            algorithm=OVERLAP,
            db=tmp_path / "a.db",
        )
    assert not hasattr(stopped.value, "partial")


def test_a_free_embedder_embeds_for_a_partial_result_too(tmp_path: Path) -> None:
    embedder = Embedder()
    embedder.price = Price(0.0, 0.0)
    with pytest.raises(MeasuringInterrupted) as stopped:
        attribute(
            trace([f"Filler sentence number {n}." for n in range(9)]),
            engine=Generates(stop_at=50),
            algorithm=SimilarityAlgorithm(metric="embedding", embedder=embedder),
            db=tmp_path / "a.db",
        )
    partial = stopped.value.partial
    assert any("34 of 66 subsets" in warning or "subsets were measured" in warning for warning in partial.warnings)
    assert partial.cost.calls == 34  # what embeds here for nothing is no call


def test_a_window_without_room_for_an_answer_is_refused_or_measured_where_it_fits() -> None:
    recorded, engine = trace([f"Filler sentence number {n}." for n in range(9)]), Generates()
    full = engine.count_tokens(recorded.target_generation.prompt)
    engine.max_context = full + 20  # answers may take 32
    found = attribute(recorded, engine=engine, algorithm=OVERLAP, db=":memory:")
    assert any("only subsets that fit" in warning for warning in found.warnings)
    assert np.isfinite(found.effects).all()
    engine.max_context = 36
    with pytest.raises(ContextTooLongError):
        attribute(recorded, engine=engine, algorithm=OVERLAP, db=":memory:")


def test_a_hostile_trace_id_stands_in_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attr_core.planning.load_engine", lambda spec: ScriptedEngine() if spec is None else spec)
    hostile = replace(trace(model="gpt-4o-mini"), id="x; rm -rf ~")
    assert not any("attrkit inspect" in note for note in plan(hostile).notes)


def test_how_answers_were_generated_is_said_and_where_the_recorded_one_was_made_otherwise() -> None:
    warm = replace(trace().target_generation, parameters={"temperature": 1.0})
    recorded = replace(trace(), generations=(warm,))
    found = attribute(recorded, engine=Generates(), algorithm=OVERLAP, db=":memory:")
    assert any("at temperature 0, of 32 tokens at most; the recorded one was at 1" in one for one in found.warnings)
