"""Diagnoses of runs whose failure was planted, by judges that know the facts, err, or fail; and what is proved."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from attr_core import diagnose
from attr_core.api import prove
from attr_core.diagnosis import Label, Thresholds
from attr_core.errors import ConfigurationError, EngineError, InputError, MissingCapabilityError
from attr_core.evaluation.planted import LABELS, ErringJudge, PerfectJudge, PlantedSample, planted
from attr_core.judge import LLMJudge
from attr_core.results import Budget, Diagnosis, Support
from attr_core.store import Store
from attr_core.testing import ScriptedEngine, ScriptedJudge
from attr_core.types import Claim, Segment, SegmentKind, Trace

CAUSAL = frozenset(
    {
        *("context_conflict", "chunk_dominance", "distraction", "memory_override", "parametric_answer"),
        *("generation_ignore", "misreading", "position", "compound", "instruction_injection"),
    }
)
BLAMES = frozenset(
    {"context_conflict", "chunk_dominance", "distraction", "memory_override", "compound", "instruction_injection"}
)


def _diagnosis(sample: PlantedSample, judge: object = None, **options: object) -> Diagnosis:
    engine = options.pop("engine", _WithoutScores(sample.model))
    chosen: dict = {"db": ":memory:", "expected": sample.expected, "judge": judge or PerfectJudge(), **options}
    return diagnose(sample.trace, engine=engine, **chosen)


class _WithoutScores:
    """A model behind an API that only generates."""

    max_context = None
    price = ScriptedEngine().price

    def __init__(self, model: object) -> None:
        self.spec, self.fingerprint, self.generate = model.spec, model.fingerprint, model.generate


def _sample(label: str, variant: str = "", seed: int = 0) -> PlantedSample:
    found = planted(labels=(label,), per_label=10, seed=seed)
    return next(sample for sample in found if variant in sample.variant)


def test_the_labels_of_the_table_are_those_that_are_planted_and_documented() -> None:
    assert tuple(label.value for label in Label) == LABELS


def test_planted_failures_get_their_label_from_a_judge_that_knows_the_facts() -> None:
    samples = planted(per_label=10)
    table = Counter((sample.label, _diagnosis(sample).label) for sample in samples)
    right = sum(n for (label, found), n in table.items() if label == found)
    assert right / len(samples) >= 0.95, {pair: n for pair, n in table.items() if pair[0] != pair[1]}


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_failures_that_no_context_has_a_hand_in_get_no_cause(share: float) -> None:
    samples = [replace(one, model=_of_share(one, share)) for one in planted(labels=("flaky",), per_label=34, seed=7)]
    found = Counter(_diagnosis(sample).label for sample in samples)
    assert sum(found[label] for label in CAUSAL) <= 0.05 * len(samples), found
    assert found["flaky"] > 0.8 * len(samples)


def _of_share(sample: PlantedSample, share: float) -> object:
    return replace(sample.model, share=share)


def test_a_judge_that_errs_in_a_tenth_of_its_verdicts_blames_no_chunk_of_perfect_answers() -> None:
    samples = planted(labels=("ok",), per_label=100, seed=3)
    found = Counter(_diagnosis(one, ErringJudge(PerfectJudge(), rate=0.1, seed=5)).label for one in samples)
    assert sum(found[label] for label in BLAMES) <= 0.05 * len(samples), found


def test_a_misleading_chunk_is_named_with_the_proof_that_removing_it_changes_the_answer() -> None:
    sample = _sample("chunk_dominance")
    found = _diagnosis(sample)
    assert set(found.culprits) in map(set, sample.culprits)
    assert found.proof is not None
    assert found.proof["intervention"] == {"remove": list(found.culprits)}
    assert {said["outcome"] for said in found.proof["changed"]["said"]} == {"right"}
    assert {said["outcome"] for said in found.proof["unchanged"]["said"]} == {"wrong"}
    assert found.confidence > 0.95
    assert "misled the model" in found.headline


def test_a_poisoned_chunk_that_stands_twice_is_found_as_a_group() -> None:
    sample = next(one for one in planted(labels=("chunk_dominance",), per_label=20) if len(one.culprits[0]) > 1)
    found = _diagnosis(sample)
    assert found.label == "chunk_dominance"
    assert set(found.culprits) == set(sample.culprits[0])


def test_the_smallest_set_that_repairs_is_named() -> None:
    sample = _sample("compound")
    found = _diagnosis(sample)
    assert set(found.culprits) == {name for cause in sample.culprits for name in cause}


def test_an_engine_that_reproduces_itself_is_run_once_for_each_change() -> None:
    sample = _sample("chunk_dominance")
    engine = _WithoutScores(sample.model)
    engine.reproduces = True
    found = _diagnosis(sample, engine=engine)
    assert (found.label, found.confidence) == ("chunk_dominance", 1.0)
    assert found.n_runs <= 2 + 3 + len(sample.trace.documents)


def test_without_running_again_only_what_the_judge_says_is_told() -> None:
    found = _diagnosis(_sample("chunk_dominance"), strategy="support")
    assert found.label == "inconclusive"
    assert found.n_runs == 0
    assert any("nothing is said of causes" in note for note in found.notes)
    assert _diagnosis(_sample("retrieval_miss"), strategy="support").label == "retrieval_miss"
    assert _diagnosis(_sample("ok"), strategy="support").label == "ok"


def test_what_fails_on_the_way_is_inconclusive_and_says_why() -> None:
    sample = _sample("chunk_dominance")
    engine = ScriptedEngine(failures={1: EngineError("the server is down")})
    found = _diagnosis(sample, engine=_WithoutScores(engine))
    assert found.label == "inconclusive"
    assert "the server is down" in found.evidence[0]
    assert found.scores, "what the judge said is kept"


class _FailingJudge:
    def judge(self, claims, segments, *, question=None):
        raise EngineError("the judge is out")


def test_a_judge_that_fails_is_told_and_nothing_is_run_again() -> None:
    found = _diagnosis(_sample("ok"), judge=_FailingJudge())
    assert (found.label, found.n_runs, found.scores) == ("inconclusive", 0, ())
    assert "the judge is out" in found.headline


def test_a_judge_that_says_nothing_of_the_answer_decides_nothing() -> None:
    found = _diagnosis(_sample("ok"), judge=_SilentJudge())
    assert found.label == "inconclusive"
    assert all(score["value"] is None for score in found.scores)


class _SilentJudge:
    def judge(self, claims, segments, *, question=None):
        shape = (len(claims), len(segments))
        return Support(verdicts=np.full(shape, "undetermined", dtype="<U12"), rationale=np.full(shape, "", dtype="<U1"))


def test_an_answer_whose_claims_stand_in_the_context_is_ok_though_nobody_expects_anything() -> None:
    sample = _sample("ok")
    found = diagnose(
        replace(sample.trace, reference=None), engine=_WithoutScores(sample.model), judge=PerfectJudge(), db=":memory:"
    )
    assert found.label == "ok"
    assert "whether it is right was not asked" in found.headline


def test_a_call_that_needs_scores_only_is_refused_before_anything_is_spent() -> None:
    judge = ScriptedJudge()

    class ScoresOnly:
        spec, fingerprint, max_context, price = "test:scores", "f", None, ScriptedEngine().price

        def score(self, prompts, continuation):
            raise AssertionError

    with pytest.raises(MissingCapabilityError, match="strategy cause"):
        _diagnosis(_sample("ok"), judge=judge, engine=ScoresOnly())
    assert judge.calls == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expected": "a", "instead": "b"}, "give one of them"),
        ({"strategy": "guess"}, "'cause' or 'support'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    sample = _sample("ok")
    with pytest.raises(ConfigurationError, match=message):
        _diagnosis(sample, **options)


def test_thresholds_that_run_nothing_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        Thresholds(n_confirm=0)


def test_an_empty_answer_is_refused() -> None:
    trace = Trace.from_messages([{"role": "user", "content": "When?"}], " ", query="When?")
    with pytest.raises(InputError, match="nothing to diagnose"):
        diagnose(trace, engine=ScriptedEngine(), judge=PerfectJudge(), db=":memory:")


def test_a_diagnosis_is_stored_with_what_was_expected_and_proved_again_at_no_cost(tmp_path) -> None:
    db, sample = tmp_path / "a.db", _sample("chunk_dominance")
    engine = _WithoutScores(sample.model)
    trace = replace(sample.trace, reference=None)
    found = diagnose(trace, expected=sample.expected, engine=engine, judge=PerfectJudge(), db=db)
    with Store(db) as store:
        stored = store.get(trace.id)
        assert stored.reference == sample.expected
        [kept] = store.diagnoses(trace.id)
    assert kept.to_dict() == found.to_dict() == Diagnosis.from_dict(json.loads(json.dumps(found.to_dict()))).to_dict()
    again = prove(stored, judge=PerfectJudge(), engine=engine, db=db)
    assert again.holds
    assert again.cost.calls == 0
    fresh = prove(stored, judge=PerfectJudge(), engine=engine, db=db, fresh=True)
    assert fresh.holds
    assert fresh.cost.calls > 0


def test_a_proof_that_no_longer_holds_says_so(tmp_path) -> None:
    db, sample = tmp_path / "a.db", _sample("chunk_dominance")
    diagnose(sample.trace, expected=sample.expected, engine=_WithoutScores(sample.model), judge=PerfectJudge(), db=db)
    with Store(db) as store:
        trace = store.get(sample.trace.id)
    stubborn = ScriptedEngine(sample.trace.answer or "")
    assert not prove(trace, judge=PerfectJudge(), engine=_WithoutScores(stubborn), db=db).holds


def test_a_trace_without_a_diagnosis_cannot_be_proved(tmp_path) -> None:
    sample = _sample("ok")
    with Store(tmp_path / "a.db") as store:
        store.save(sample.trace)
    with pytest.raises(InputError, match="no diagnosis yet"):
        prove(sample.trace, judge=PerfectJudge(), engine=sample.model, db=tmp_path / "a.db")


def test_what_is_run_again_stays_within_the_budget() -> None:
    sample = _sample("chunk_dominance")
    found = _diagnosis(sample, budget=Budget(calls=8))
    assert found.cost.calls <= 8
    assert found.label == "inconclusive"
    assert "could not be run again" in found.evidence[0]


def test_the_same_diagnosis_again_makes_no_call(tmp_path) -> None:
    sample = _sample("memory_override")
    options = {"db": tmp_path / "a.db", "engine": _WithoutScores(sample.model)}
    first, again = _diagnosis(sample, **options), _diagnosis(sample, **options)
    assert first.cost.calls > 0
    assert again.cost.calls == 0
    assert (first.label, first.proof) == (again.label, again.proof)


def test_causes_stand_beside_support_where_the_engine_scores() -> None:
    sample = _sample("chunk_dominance")
    found = _diagnosis(sample, engine=sample.model)
    cells = {(row["segment"], row["cell"]) for row in found.grid["rows"]}
    assert any(segment in found.culprits and cell == "used and supported" for segment, cell in cells), cells


def test_another_model_than_the_one_that_answered_is_named() -> None:
    sample = _sample("chunk_dominance")
    asked = sample.trace.generations[-1]
    trace = sample.trace.with_generation(replace(asked, model="gpt-4o-mini"))
    found = diagnose(
        trace, expected=sample.expected, engine=_WithoutScores(sample.model), judge=PerfectJudge(), db=":memory:"
    )
    assert any("gpt-4o-mini answered" in note for note in found.notes)


def test_a_model_that_stands_for_another_and_answers_rightly_finds_no_cause() -> None:
    sample = _sample("chunk_dominance")
    asked = sample.trace.generations[-1]
    trace = sample.trace.with_generation(replace(asked, model="gpt-4o-mini"))
    wise = _WithoutScores(ScriptedEngine(sample.expected or ""))
    found = diagnose(trace, expected=sample.expected, engine=wise, judge=PerfectJudge(), db=":memory:")
    assert found.label == "inconclusive"
    assert "measure on the model that answered" in found.evidence[0]


def test_the_judge_can_take_sentences_apart_first() -> None:
    def judge(prompt: str, system: str) -> str:
        if "atomic" in system:
            parts = [{"sentence": 1, "claim": part} for part in ("The fair opened in 1911.", "The fair has gates.")]
            return json.dumps({"claims": parts})
        return "neutral"

    trace = Trace.from_messages(
        [{"role": "user", "content": "Tell me of the fair."}],
        "The fair opened in 1911 and has gates.",
        query="The fair?",
    )
    found = diagnose(trace, judge=judge, strategy="support", decompose=True, db=":memory:")
    [faithful] = [score for score in found.scores if score["name"] == "hallucination"]
    assert faithful["of"] == 2
    with pytest.raises(ConfigurationError, match="a judge that reads"):
        diagnose(trace, judge=PerfectJudge(), strategy="support", decompose=True, db=":memory:")


@pytest.mark.parametrize("label", ["ok", "chunk_dominance", "compound", "distraction", "generation_ignore", "flaky"])
def test_what_is_planned_at_most_is_not_exceeded(label: str) -> None:
    from attr_core.api import plan_diagnosis

    sample = _sample(label)
    engine = _WithoutScores(sample.model)
    judge = LLMJudge(_reader())
    planned = plan_diagnosis(sample.trace, expected=sample.expected, engine=engine, judge=judge)
    found = diagnose(sample.trace, expected=sample.expected, engine=engine, judge=judge, db=":memory:")
    assert 0 < found.cost.calls <= planned.maximum.calls
    assert found.cost.tokens_in + found.cost.tokens_out <= planned.maximum.tokens_in + planned.maximum.tokens_out
    assert planned.calls <= planned.maximum.calls


def _reader() -> ScriptedEngine:
    """A model that judges by what a perfect judge says of the texts in its prompt."""

    def answer(prompt) -> str:
        said = prompt.messages[-1].content
        texts = {
            kind: [text for _, text in re.findall(rf"{kind} \d+:\n<(data\w+)>\n(.*?)\n</\1>", said, re.DOTALL)]
            for kind in ("Claim", "Segment")
        }
        question = re.search(r"this question:\n<(data\w+)>\n(.*?)\n</\1>", said, re.DOTALL)
        claims = [Claim(n, 0, len(text), text) for n, text in enumerate(texts["Claim"])]
        segments = [Segment(f"c{n}", SegmentKind.RETRIEVED, text, ()) for n, text in enumerate(texts["Segment"])]
        found = PerfectJudge().judge(claims, segments, question=question[2] if question else None)
        rows = [
            {"claim": i + 1, "segment": j + 1, "verdict": found.verdicts[i, j], "why": ""}
            for i in range(len(claims))
            for j in range(len(segments))
        ]
        return json.dumps({"verdicts": rows})

    return ScriptedEngine(answer)


def test_segments_that_contradict_what_the_model_believes_are_named() -> None:
    sample = _sample("parametric_answer")
    found = _diagnosis(sample)
    against = [one for one in found.conflicts if one["second"] == "the model's own belief"]
    assert {one["first"] for one in against} >= set(sample.right)


def test_a_right_answer_that_says_too_much_is_right_whatever_makes_it_say_less() -> None:
    sample = next(one for one in planted(labels=("ok",), per_label=10) if one.expected and one.irrelevant)
    asked = sample.trace.generations[-1]
    said = f"{sample.trace.answer} The Corvath Stone Theatre opened in 1999."
    chunk = next(one.text for one in sample.trace.documents if one.id in sample.irrelevant)

    def answers(prompt) -> str:
        told = " ".join(message.content for message in prompt.messages)
        return "Hello." if "say hello" in told else said if chunk in told else sample.trace.answer or ""

    engine = ScriptedEngine(answers)
    trace = replace(sample.trace.with_generation(replace(asked, response=said)), answer=said)
    found = diagnose(
        trace, expected=sample.expected, engine=_WithoutScores(engine), judge=PerfectJudge(), db=":memory:"
    )
    assert (found.label, found.secondary) == ("ok", ())


@pytest.mark.parametrize("label", ["parametric_answer", "generation_ignore", "misreading"])
def test_a_label_that_rests_on_no_repair_has_no_confidence_in_one(label: str) -> None:
    sample = _sample(label)
    engine = _WithoutScores(sample.model)
    engine.reproduces = True
    found = _diagnosis(sample, engine=engine)
    assert found.label == label
    assert math.isnan(found.confidence)


def test_what_the_search_left_out_is_told_and_nothing_is_called_the_smallest() -> None:
    sample = _sample("compound")
    found = _diagnosis(sample, thresholds=Thresholds(max_singles=1, max_search=0))
    assert any("were not removed one by one" in note for note in found.notes)
    assert any("fewer may do" in note for note in found.notes)
    assert not any("leaving any" in told for told in found.evidence)
    assert any("leaving any" in told for told in _diagnosis(sample).evidence)
