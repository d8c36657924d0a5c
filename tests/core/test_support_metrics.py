"""What metrics say of a judge's verdicts, and that they say nothing where there is nothing to say."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.errors import ConfigurationError, EngineError, InputError
from attr_core.judge import LikelihoodJudge, LLMJudge
from attr_core.results import SupportVerdict
from attr_core.support.matrix import Judged, judge_answer, reference_text
from attr_core.support.metrics import (
    METRICS,
    Score,
    answer_relevance,
    averaged,
    claim_recall,
    context_precision,
    context_relevance,
    context_utilisation,
    correctness,
    faithfulness,
    hallucination,
    mean_of,
    noise_sensitivity,
    not_available,
    retrieval_precision,
    retrieval_recall,
    score_all,
    self_knowledge,
    unfaithful_claims,
)
from attr_core.testing import AdditiveEngine, ScriptedJudge
from attr_core.types import Claim, Document, Retrieval, Segment, Trace

VERDICTS = {
    "e": SupportVerdict.ENTAILS,
    "c": SupportVerdict.CONTRADICTS,
    "n": SupportVerdict.NEUTRAL,
    "u": SupportVerdict.UNDETERMINED,
}
QUESTION, EXPECTED = "When did the fair open?", "In 1911."
HELPS = f"The text states something that helps to answer the question: {QUESTION}"
OF_THE_CONTEXT = ["context_relevance", "context_precision", "claim_recall"]
OF_THE_ANSWER = [name for name in METRICS if name not in OF_THE_CONTEXT]


def claims_of(letter: str, n_claims: int) -> tuple[Claim, ...]:
    return tuple(Claim(n, 0, 3, f"{letter}{n}.") for n in range(n_claims))


def judged_of(
    support: Sequence[str] = (),
    *,
    sources: Sequence[str] = (),
    correct: str = "",
    recalled: str = "",
    relevant: str = "",
    responsive: str = "e",
    texts: Sequence[str] | None = None,
    answer: str | None = None,
    question: str | None = QUESTION,
    expected: str | None = EXPECTED,
) -> Judged:
    """Verdicts as letters: ``support`` and ``sources`` a word per claim and a letter per segment, the rest a word."""
    claims, wanted = claims_of("A", len(support)), claims_of("W", len(sources))
    n_segments = max(map(len, (*support, *sources, relevant)), default=0)
    texts = [f"Segment {n}." for n in range(n_segments)] if texts is None else texts
    answer = "Answer." if answer is None else answer
    table: dict[tuple[str, str], str] = {}
    for rows, words in ((claims, support), (wanted, sources)):
        for claim, word in zip(rows, words, strict=True):
            table |= {(claim.text, text): letter for text, letter in zip(texts, word, strict=False)}
    reference = reference_text(question, expected or "")
    table |= {(claim.text, reference): letter for claim, letter in zip(claims, correct or "n" * 99, strict=False)}
    table |= {(claim.text, answer): letter for claim, letter in zip(wanted, recalled or "n" * 99, strict=False)}
    table |= {(HELPS, text): letter for text, letter in zip(texts, relevant or "n" * 99, strict=False)}
    table[HELPS, answer] = responsive
    return judge_answer(
        ScriptedJudge({cell: VERDICTS[letter] for cell, letter in table.items()}),
        answer=answer,
        claims=claims,
        segments=[Segment.quoted(f"c{n}", text) for n, text in enumerate(texts)],
        question=question,
        expected=expected,
        wanted=wanted,
    )


def values_of(judged: Judged) -> dict[str, float]:
    return {score.name: score.value for score in score_all(judged)}


# --- one metric after the other


def test_faithfulness_is_the_share_of_claims_that_some_segment_entails() -> None:
    score = faithfulness(judged_of(["ne", "nn", "cn", "ec"]))
    assert (score.value, score.n, score.of) == (0.5, 4, 4)
    assert score.items == (("A0.", 1.0), ("A1.", 0.0), ("A2.", 0.0), ("A3.", 1.0))
    assert str(score) == "faithfulness 0.50 (4 of 4 claims)"


def test_a_claim_that_was_not_judged_is_left_out_of_the_mean_and_told() -> None:
    score = faithfulness(judged_of(["en", "nn", "uu"]))
    assert (score.value, score.n, score.of) == (0.5, 2, 3)
    assert score.reason == "1 left out: the judge gave no verdict (scripted)"
    assert math.isnan(score.items[2][1])


def test_a_claim_judged_in_part_counts_against_and_is_told_unless_nothing_else_is_decided() -> None:
    score = faithfulness(judged_of(["en", "nu"]))
    assert (score.value, score.n, score.reason) == (0.5, 2, "1 judged in part: some of their verdicts are missing")
    alone = faithfulness(judged_of(["nu", "un"]))
    assert math.isnan(alone.value)
    assert alone.reason.startswith("the judge gave no verdict")
    assert faithfulness(judged_of(["cu"])).value == 0.0


def test_unfaithful_claims_are_those_that_no_missing_verdict_could_save() -> None:
    judged = judged_of(["en", "nn", "nu", "cn", "uu", "cu"])
    assert [claim.text for claim in unfaithful_claims(judged)] == ["A1.", "A3.", "A5."]
    assert unfaithful_claims(judged_of(["n"], texts=[" "])) == ()
    assert unfaithful_claims(judged_of(["n"], answer="I don't know.")) == ()


def test_context_relevance_is_the_share_of_segments_that_help() -> None:
    score = context_relevance(judged_of(["nnnn"], relevant="enuc"))
    assert (score.value, score.n, score.of) == (pytest.approx(1 / 3), 3, 4)
    assert [name for name, _ in score.items] == ["c0", "c1", "c2", "c3"]


@pytest.mark.parametrize(
    ("relevant", "value"),
    [("enn", 1.0), ("nne", 1 / 3), ("ene", (1 + 2 / 3) / 2), ("nen", 0.5), ("eee", 1.0), ("nnn", 0.0), ("une", 0.5)],
)
def test_context_precision_is_average_precision_in_order(relevant: str, value: float) -> None:
    by_question = judged_of(["nnn"], relevant=relevant, expected=None)
    assert context_precision(by_question).value == pytest.approx(value)
    by_expected = judged_of(["nnn"], sources=[relevant, "nnn" if "u" not in relevant else "unn"])
    assert context_precision(by_expected).value == pytest.approx(value)


def test_with_an_expected_answer_context_precision_goes_by_its_claims_not_by_relevance() -> None:
    assert context_precision(judged_of(["nn"], sources=["ne"], relevant="en")).value == 0.5
    assert context_precision(judged_of(["nn"], sources=["ne"], relevant="en", expected="I don't know.")).value == 1.0


def test_answer_relevance_is_the_verdict_on_the_answer() -> None:
    assert [answer_relevance(judged_of(["e"], responsive=one)).value for one in "enc"] == [1.0, 0.0, 0.0]
    assert str(answer_relevance(judged_of(["e"], responsive="u"))) == "answer_relevance N/A: the judge gave no verdict"


def test_correctness_is_the_f1_of_right_and_of_recalled_claims() -> None:
    score = correctness(judged_of(["n", "n", "n"], sources=["n", "n"], correct="ecn", recalled="en"))
    precision, recall = 1 / 3, 1 / 2
    assert score.value == pytest.approx(2 * precision * recall / (precision + recall))
    assert (score.n, score.of) == (5, 5)
    assert [value for _, value in score.items] == [1, 0, 0, 1, 0]
    assert score.reason == "contradicted by the expected answer: 'A1.'"


def test_detail_from_the_context_is_no_error_and_detail_from_nowhere_is() -> None:
    from_context = correctness(judged_of(["e", "e"], sources=["e"], correct="en", recalled="e"))
    assert (from_context.value, from_context.n, from_context.of) == (1.0, 2, 3)
    assert from_context.reason == "1 left out: not in the expected answer, but in the context"
    assert correctness(judged_of(["e", "n"], sources=["e"], correct="en", recalled="e")).value == pytest.approx(2 / 3)


def test_where_only_detail_is_left_correctness_is_recall() -> None:
    assert correctness(judged_of(["e"], sources=["e", "e"], correct="n", recalled="en")).value == 0.5
    assert correctness(judged_of(["e"], sources=["e"], correct="n", recalled="n")).value == 0.0
    assert math.isnan(correctness(judged_of(["e", "e"], sources=["e"], correct="nu", recalled="e")).value)


def test_what_is_contradicted_is_quoted_on_one_line_and_not_at_any_length() -> None:
    judged = judged_of(["n"] * 5, sources=["n"], correct="ccccc", recalled="c")
    hostile = replace(judged, claims=tuple(replace(one, text="bad\x1b[31m\n" + "x" * 999) for one in judged.claims))
    reason = correctness(hostile).reason
    assert "\x1b" not in reason
    assert "\n" not in reason
    assert "and 2 more" in reason
    assert "expected but contradicted: 'W0.'" in reason
    assert len(reason) < 500


def test_claim_recall_is_the_share_of_expected_claims_in_the_context() -> None:
    score = claim_recall(judged_of(["nn"], sources=["ne", "nn", "uu"]))
    assert (score.value, score.n, score.of, score.what) == (0.5, 2, 3, "expected claims")


def test_context_utilisation_is_over_what_the_context_offered() -> None:
    score = context_utilisation(judged_of(["e"], sources=["e", "e", "n"], recalled="ene"))
    assert (score.value, score.n, score.of) == (0.5, 2, 2)
    nothing = context_utilisation(judged_of(["e"], sources=["n"], recalled="e"))
    assert nothing.reason == "no segment holds a claim of the expected answer"
    unknown = context_utilisation(judged_of(["e"], sources=["u"], recalled="e"))
    assert unknown.reason.startswith("the judge gave no verdict")


def test_noise_is_what_is_wrong_and_stands_in_the_context_by_the_relevance_of_where_it_stands() -> None:
    # Segment 0 is relevant. Claims: wrong from both, wrong from 1 only, wrong from nowhere, right, silent.
    judged = judged_of(["ee", "ne", "nn", "ee", "en"], sources=["en"], correct="cccen")
    assert noise_sensitivity(judged).value == pytest.approx(2 / 5)
    assert noise_sensitivity(judged, sources="relevant").value == pytest.approx(1 / 5)
    assert noise_sensitivity(judged, sources="irrelevant").value == pytest.approx(1 / 5)
    with pytest.raises(ConfigurationError, match="sources='some' is unknown"):
        noise_sensitivity(judged, sources="some")  # type: ignore[arg-type]


def test_a_source_whose_relevance_is_unknown_is_not_called_irrelevant() -> None:
    judged = judged_of(["ne", "nn", "ee"], sources=["eu"], correct="cec")
    assert noise_sensitivity(judged).value == pytest.approx(2 / 3)
    irrelevant = noise_sensitivity(judged, sources="irrelevant")
    assert [value for _, value in irrelevant.items] == pytest.approx([math.nan, 0.0, 0.0], nan_ok=True)


def test_unsupported_claims_are_knowledge_where_right_and_hallucination_elsewhere() -> None:
    judged = judged_of(["e", "n", "n", "n", "u"], sources=["n"], correct="nencn")
    assert (self_knowledge(judged).value, hallucination(judged).value) == (0.2, 0.5)
    # The last claim, on which no segment was judged, is not right: no knowledge in any case, but perhaps invented.
    assert (self_knowledge(judged).n, hallucination(judged).n) == (5, 4)


def test_no_claim_is_called_invented_while_a_verdict_on_it_is_missing() -> None:
    judged = judged_of(["nu", "en"], sources=["nn"], correct="nn")
    assert hallucination(judged).value == 0.0
    assert hallucination(judged).n == 1
    assert math.isnan(hallucination(judged_of(["nu"], sources=["nn"], correct="n")).value)


# --- where there is nothing to say


@pytest.mark.parametrize("answer", ["I'm sorry, I can't find that.", "The context does not mention it.", "Unknown."])
def test_a_refusal_has_no_score_of_the_answer_and_keeps_those_of_the_context(answer: str) -> None:
    judged = judged_of(["n"], sources=["e"], correct="n", recalled="n", relevant="e", answer=answer)
    scores = {score.name: score for score in score_all(judged)}
    assert {name: scores[name].reason for name in OF_THE_ANSWER} == dict.fromkeys(
        OF_THE_ANSWER, "the answer declines to answer"
    )
    assert [scores[name].value for name in OF_THE_CONTEXT] == [1.0, 1.0, 1.0]
    assert all(math.isnan(scores[name].value) for name in OF_THE_ANSWER)


def test_with_zero_claims_all_metrics_of_the_answer_agree() -> None:
    scores = {score.name: score for score in score_all(judged_of([], sources=["e"], relevant="e", recalled="e"))}
    assert {str(scores[name]) for name in OF_THE_ANSWER} == {
        f"{name} N/A: the answer makes no claim" for name in OF_THE_ANSWER
    }


@pytest.mark.parametrize(("texts", "reason"), [([], "there is no context"), (["", " \n"], "the context is empty")])
def test_an_invented_answer_without_context_is_not_scored_against_it(texts: list[str], reason: str) -> None:
    # The judge is wrong on top: it says that the empty segment entails all.
    judged = judged_of(["ee"], sources=["ee"], correct="n", recalled="n", relevant="ee", texts=texts)
    scores = {score.name: score for score in score_all(judged)}
    needing = {name for name, score in scores.items() if score.reason == reason}
    assert needing == {*OF_THE_ANSWER, *OF_THE_CONTEXT} - {"answer_relevance", "correctness"}
    assert all(math.isnan(scores[name].value) for name in needing)
    assert (scores["answer_relevance"].value, scores["correctness"].value) == (1.0, 0.0)


def test_no_verdict_on_an_empty_segment_counts() -> None:
    judged = judged_of(["en", "ne"], sources=["en"], relevant="en", texts=["", "Text."])
    assert faithfulness(judged).value == 0.5
    assert claim_recall(judged).value == 0.0
    relevance = context_relevance(judged)
    assert (relevance.value, relevance.n, relevance.of, relevance.reason) == (0.0, 1, 2, "1 left out: empty")


def test_without_expected_answer_or_question_what_needs_them_is_not_available() -> None:
    bare = judged_of(["e"], expected=None, question=None)
    reasons = {score.name: score.reason for score in score_all(bare) if not score.is_available}
    unasked = {"answer_relevance", "context_relevance", "context_precision"}
    assert {name for name, reason in reasons.items() if reason == "no question is known"} == unasked
    assert {reasons[name] for name in reasons.keys() - unasked} == {"no answer is expected"}
    assert faithfulness(bare).value == 1.0


def test_an_expected_answer_without_claims_or_that_declines_is_no_measure() -> None:
    nothing = judged_of(["e"], expected="Yes.")
    assert correctness(nothing).reason == claim_recall(nothing).reason == "the expected answer makes no claim"
    declines = judged_of(["e"], sources=["n"], expected="The documents do not mention it.")
    assert correctness(declines).reason == hallucination(declines).reason == "the expected answer declines to answer"


def test_expected_claims_without_their_text_allow_recall_and_nothing_about_the_answers_claims() -> None:
    judged = judged_of(["e"], sources=["e"], recalled="e", expected=None)
    assert claim_recall(judged).value == context_utilisation(judged).value == 1.0
    assert hallucination(judged).reason == "the expected answer is known by its claims only"


def test_a_judge_that_says_nothing_gives_no_number() -> None:
    judged = judged_of(["uu"], sources=["uu"], correct="u", recalled="u", relevant="uu", responsive="u")
    assert all(math.isnan(value) for value in values_of(judged).values())
    assert all(score.reason.startswith("the judge gave no verdict") for score in score_all(judged))


def test_evidence_says_nothing_that_needs_contradiction_or_relevance_and_is_called_evidence() -> None:
    engine = AdditiveEngine({"1911": {"opened in 1911": 6.0}}, bias=-5.0)
    answer = "It opened in 1911."
    judged = judge_answer(
        LikelihoodJudge(engine),
        answer=answer,
        claims=[Claim(0, 0, len(answer), answer)],
        segments=[Segment.quoted("c0", "The fair opened in 1911."), Segment.quoted("c1", "It rained.")],
        question=QUESTION,
        expected="It opened in 1911, they say.",
    )
    scores = {score.name: score for score in score_all(judged)}
    silent = {name for name, score in scores.items() if score.reason.startswith("no judge has spoken, and")}
    assert silent == {
        *(name for name in METRICS if name.startswith("noise")),
        *("answer_relevance", "context_relevance", "correctness"),
    }
    assert scores["faithfulness"].value == 1.0
    assert all("no judge has spoken" in score.reason for score in scores.values())
    assert "no judge has spoken" in mean_of([scores["faithfulness"]] * 2).reason


# --- what other tools got wrong


def test_missing_verdicts_are_not_counted_as_supported() -> None:
    def seven(prompt: str, system: str) -> str:
        said = [
            {"claim": n, "segment": 1, "verdict": "entails" if n < 6 else "neutral", "why": ""} for n in range(1, 8)
        ]
        return json.dumps({"verdicts": said})

    judged = judge_answer(
        LLMJudge(seven, retries=0, max_cells=100),
        answer="Answer.",
        claims=claims_of("A", 20),
        segments=[Segment.quoted("c0", "Segment 0.")],
    )
    score = faithfulness(judged)
    assert (score.value, score.n, score.of) == (pytest.approx(5 / 7), 7, 20)
    assert score.reason.startswith("13 left out: the judge gave no verdict")
    assert str(score) == "faithfulness 0.71 (7 of 20 claims)"


def test_an_off_topic_answer_is_neither_faithful_nor_relevant() -> None:
    judged = judged_of(["nn", "nn"], sources=["en"], correct="nn", recalled="n", relevant="en", responsive="n")
    values = values_of(judged)
    assert values["faithfulness"] == values["answer_relevance"] == values["correctness"] == 0.0
    assert values["hallucination"] == 1.0


def test_a_true_answer_that_uses_one_of_ten_chunks_is_not_penalised() -> None:
    judged = judged_of(["e" + "n" * 9], sources=["e" + "n" * 9], correct="e", recalled="e", relevant="e" + "n" * 9)
    values = values_of(judged)
    full = ("faithfulness", "answer_relevance", "correctness", "context_precision", "context_utilisation")
    assert [values[name] for name in full] == [1.0] * 5
    assert values["hallucination"] == values["noise_sensitivity"] == 0.0
    assert values["context_relevance"] == pytest.approx(0.1)  # that is the retriever's


def test_a_wrong_answer_from_a_misleading_segment_is_faithful_and_wrong() -> None:
    values = values_of(judged_of(["ne", "en"], sources=["en"], correct="ce", recalled="e"))
    assert (values["faithfulness"], values["noise_sensitivity_irrelevant"]) == (1.0, 0.5)
    assert values["correctness"] == pytest.approx(2 / 3)


def test_invented_facts_are_found() -> None:
    values = values_of(judged_of(["e", "n"], sources=["e"], correct="en", recalled="e"))
    assert (values["faithfulness"], values["hallucination"]) == (0.5, 0.5)


def test_a_row_that_fails_does_not_poison_the_mean() -> None:
    class Failing(ScriptedJudge):
        def judge(self, *args: object, **options: object) -> object:  # type: ignore[override]
            raise EngineError("the endpoint is down")

    def row(judge: ScriptedJudge, verdict: str) -> Score:
        judge.verdicts = {("A0.", "Segment."): VERDICTS[verdict]}
        segments = [Segment.quoted("c0", "Segment.")]
        try:
            return faithfulness(judge_answer(judge, answer="Yes.", claims=claims_of("A", 1), segments=segments))
        except EngineError as error:
            return not_available("faithfulness", str(error))

    mean = mean_of([row(ScriptedJudge(), "e"), row(Failing(), "e"), row(ScriptedJudge(), "n")])
    assert str(mean) == "faithfulness 0.50 (2 of 3 rows)"
    assert mean.reason == "1 left out: the endpoint is down"
    assert math.isnan(mean.items[1][1])


# --- means, scores and metrics of one's own


def test_a_mean_over_rows_counts_each_row_once_and_tells_what_is_missing() -> None:
    scores = [
        averaged("mine", [("a", 1.0)] * 9),
        averaged("mine", [("a", 0.0), ("b", math.nan)]),
        not_available("mine", "the answer makes no claim"),
        not_available("mine", "the judge failed"),
        not_available("mine", "the judge failed"),
    ]
    mean = mean_of(scores)
    assert (mean.value, mean.n, mean.of, mean.what) == (0.5, 2, 5, "rows")
    assert mean.reason == (
        "2 left out: the judge failed; 1 left out: the answer makes no claim; 1 counted by a part of their items"
    )
    turned = mean_of(scores[::-1])
    assert (turned.value, turned.reason) == (mean.value, mean.reason)


def test_a_mean_over_nothing_is_not_available() -> None:
    assert str(mean_of([])) == "mean N/A: there is no row"
    assert str(mean_of([not_available("mine", "why not")] * 2)) == "mine N/A: 2 left out: why not"


def test_scores_of_several_metrics_have_no_mean() -> None:
    with pytest.raises(InputError, match="'a', 'b' have no common mean"):
        mean_of([averaged("a", [("x", 1.0)]), averaged("b", [("x", 1.0)])])


def test_a_score_is_plain_json_without_nan() -> None:
    told = faithfulness(judged_of(["e", "u"])).to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["items"] == [{"text": "A0.", "value": 1.0}, {"text": "A1.", "value": None}]
    assert not_available("mine", "why").to_dict()["value"] is None


@pytest.mark.parametrize(
    ("value", "n", "of", "reason", "message"),
    [
        (1.5, 1, 1, "", "is 1.5; give a number from 0 to 1"),
        (-0.1, 1, 1, "", "is -0.1"),
        (math.inf, 1, 1, "", "is inf"),
        ("high", 1, 1, "", "is str, no number"),
        (None, 1, 1, "", "is NoneType, no number"),
        (math.nan, 0, 1, " ", "the reason why"),
        (math.nan, 1, 1, "why", "give n=0"),
        (0.0, 0, 3, "", "over no claims"),
        (0.5, 4, 3, "", "counts 4 of 3"),
    ],
)
def test_a_score_outside_what_scores_are_is_refused(value: float, n: int, of: int, reason: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Score("mine", value, n, of, reason, what="claims")


def test_an_item_outside_what_scores_are_is_refused() -> None:
    with pytest.raises(InputError, match=r"is 2\.0"):
        Score("mine", 1.0, 1, 1, items=(("a", 2.0),))


def test_numbers_of_other_libraries_become_plain() -> None:
    score = Score("mine", np.float32(1.0), 1, 1, items=[("a", np.float64("nan"))])  # type: ignore[arg-type]
    assert type(score.value) is float
    assert type(score.items[0][1]) is float


def test_a_metric_of_ones_own_stands_beside_the_others_and_its_failure_is_its_own() -> None:
    def short(judged: Judged) -> Score:
        return averaged("any", [("the answer", float(len(judged.answer) < 80))], what="answers")

    def broken(judged: Judged) -> Score:
        raise ZeroDivisionError("no\nluck")

    def outside(judged: Judged) -> Score:
        return Score("outside", 7.0, 1, 1)

    def number(judged: Judged) -> Score:
        return 0.5  # type: ignore[return-value]

    remedy = "give a number from 0 to 1, or NaN with a reason"
    own = {"short": short, "broken": broken, "outside": outside, "number": number}
    scores = score_all(judged_of(["e"]), {"faithfulness": faithfulness, **own})
    assert [str(score) for score in scores] == [
        "faithfulness 1.00 (1 of 1 claims)",
        "short 1.00 (1 of 1 answers)",
        "broken N/A: the metric failed: ZeroDivisionError: no luck",
        f"outside N/A: the metric failed: InputError: score 'outside' is 7.0; {remedy}",
        "number N/A: the metric gave float, no Score",
    ]


def test_every_metric_is_named_as_it_is_registered() -> None:
    judged = judged_of(["ee"], sources=["ee"], correct="e", recalled="e", relevant="ee")
    assert [metric(judged).name for metric in METRICS.values()] == list(METRICS)
    assert len(OF_THE_ANSWER) == 9


# --- retrieval

FAIR = Document("c0", "The fair\n  opened in 1911.")
RAIN = Document("c1", "It rained in 1912.")


def trace_of(*documents: Document, expected: Sequence[str] = (), is_recorded: bool = True) -> Trace:
    retrievals = (Retrieval(None, documents),) if is_recorded else ()
    return Trace("?", (), "!", retrievals=retrievals, expected_chunks=tuple(expected))


def test_expected_chunks_are_found_by_id_or_by_their_text_whatever_the_white_space() -> None:
    trace = trace_of(FAIR, RAIN, expected=["c1", "The fair opened  in 1911", "It snowed."])
    assert retrieval_recall(trace).value == pytest.approx(2 / 3)
    assert retrieval_precision(trace).value == 1.0
    assert retrieval_precision([FAIR, RAIN], ["c1"]).items == (("c0", 0.0), ("c1", 1.0))
    assert retrieval_recall(trace, "c0").value == 1.0


def test_an_id_is_not_looked_for_in_texts_once_a_document_has_it() -> None:
    noting = Document("c7", "See c0 and c8 for more.")
    assert retrieval_precision([FAIR, noting], ["c0"]).items == (("c0", 1.0), ("c7", 0.0))
    assert retrieval_recall([FAIR, noting], ["c0", "c8"]).value == 0.5


def test_what_may_be_an_id_or_a_text_is_ambiguous() -> None:
    for score in (retrieval_recall, retrieval_precision):
        found = score([Document("7", "It opened in 1911."), Document("8", "No.")], ["1", "2"])
        assert math.isnan(found.value)
        assert "'1' may be an id or a text" in found.reason
    assert retrieval_recall([FAIR], ["c9"]).value == 0.0
    assert retrieval_recall([FAIR], ["opened in 1911"]).value == 1.0


def test_an_id_of_two_different_documents_is_ambiguous_and_of_the_same_one_twice_is_not() -> None:
    other = Document("c0", "Another text.")
    assert "'c0' is the id of 2 different documents" in retrieval_recall([FAIR, other], ["c0"]).reason
    twice = retrieval_precision([FAIR, RAIN, FAIR], ["c0"])
    assert (twice.value, twice.of) == (0.5, 2)


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        (trace_of(FAIR), "no chunk is expected"),
        (trace_of(FAIR, expected=["c0", " "]), "an expected chunk is empty"),
        (trace_of(expected=["c0"], is_recorded=False), "no retrieval is on record"),
    ],
)
def test_without_something_to_compare_retrieval_has_no_score(trace: Trace, reason: str) -> None:
    assert retrieval_recall(trace).reason == retrieval_precision(trace).reason == reason
    assert math.isnan(retrieval_recall(trace).value)


def test_a_retriever_that_is_known_to_have_returned_nothing_missed_it_all() -> None:
    trace = trace_of(expected=["c0"])
    assert retrieval_recall(trace).value == 0.0
    assert retrieval_precision(trace).reason == "nothing was retrieved"
    assert retrieval_recall([], ["c0"]).reason == "no retrieval is on record"


# --- whatever the verdicts


@st.composite
def tables(draw: st.DrawFn, letters: str = "ecnu", least: int = 0) -> dict[str, object]:
    n_claims, n_wanted, n_segments = (draw(st.integers(least, 4)) for _ in range(3))

    def word(length: int) -> str:
        return "".join(draw(st.lists(st.sampled_from(letters), min_size=length, max_size=length)))

    return {
        "support": [word(n_segments) for _ in range(n_claims)],
        "sources": [word(n_segments) for _ in range(n_wanted)],
        "correct": word(n_claims),
        "recalled": word(n_wanted),
        "relevant": word(n_segments),
        "responsive": word(1),
    }


@given(tables())
def test_every_value_is_from_0_to_1_or_there_is_a_reason_why_not(table: dict[str, object]) -> None:
    for score in score_all(judged_of(**table)):  # type: ignore[arg-type]
        assert 0 <= score.value <= 1 or (math.isnan(score.value) and score.reason and score.n == 0)
        assert not score.reason.startswith("the metric failed")
        counted = [value for _, value in score.items if not math.isnan(value)]
        if score.is_available:
            assert len(counted) == score.n <= score.of == len(score.items)
        else:
            assert counted == []


def permuted(judged: Judged, rows: Sequence[int], wanted: Sequence[int], columns: Sequence[int]) -> Judged:
    def table(found: object, order: Sequence[int]) -> object:
        cells = np.ix_(order, columns)
        return replace(found, verdicts=found.verdicts[cells], rationale=found.rationale[cells], repeated=None)

    return replace(
        judged,
        claims=tuple(judged.claims[n] for n in rows),
        wanted=tuple(judged.wanted[n] for n in wanted),
        segments=tuple(judged.segments[n] for n in columns),
        support=table(judged.support, rows),
        sources=table(judged.sources, wanted),
        correct=judged.correct[list(rows)],
        recalled=judged.recalled[list(wanted)],
        relevant=judged.relevant[list(columns)],
    )


@given(tables(least=1), st.randoms(use_true_random=False))
def test_the_order_of_claims_and_segments_changes_nothing_but_precision(table: dict[str, object], random) -> None:
    judged = judged_of(**table)  # type: ignore[arg-type]
    rows, wanted, columns = (list(range(len(one))) for one in (judged.claims, judged.wanted, judged.segments))
    for order in (rows, wanted, columns):
        random.shuffle(order)
    before, after = values_of(judged), values_of(permuted(judged, rows, wanted, columns))
    if columns != sorted(columns):
        del before["context_precision"], after["context_precision"]
    assert before == pytest.approx(after, nan_ok=True)


@given(tables(least=1), st.sampled_from(["claim", "expected claim", "segment"]))
def test_an_undetermined_verdict_more_never_raises_a_score(table: dict[str, object], which: str) -> None:
    more = dict(table)
    n_segments = len(table["relevant"])  # type: ignore[arg-type]
    if which == "claim":
        more |= {"support": [*table["support"], "u" * n_segments], "correct": table["correct"] + "u"}  # type: ignore
    elif which == "expected claim":
        more |= {"sources": [*table["sources"], "u" * n_segments], "recalled": table["recalled"] + "u"}  # type: ignore
    else:
        more |= {name: [word + "u" for word in table[name]] for name in ("support", "sources")}  # type: ignore
        more["relevant"] = table["relevant"] + "u"  # type: ignore[operator]
    before, after = values_of(judged_of(**table)), values_of(judged_of(**more))  # type: ignore[arg-type]
    for name, value in after.items():
        assert math.isnan(value) or value <= before[name] + 1e-12, name


@given(tables(letters="ecn", least=1))
def test_with_every_verdict_given_the_shares_add_up(table: dict[str, object]) -> None:
    values = values_of(judged_of(**table))  # type: ignore[arg-type]
    assert values["faithfulness"] + values["self_knowledge"] + values["hallucination"] == pytest.approx(1)
    split = values["noise_sensitivity_relevant"] + values["noise_sensitivity_irrelevant"]
    assert split == pytest.approx(values["noise_sensitivity"])


@given(tables(letters="ecn", least=1))
def test_with_every_verdict_given_recall_and_use_are_ragcheckers(table: dict[str, object]) -> None:
    judged = judged_of(**table)  # type: ignore[arg-type]
    entailed = judged.sources.verdicts == "entails"
    recalled, said = entailed.any(axis=1), judged.recalled == "entails"
    assert claim_recall(judged).value == pytest.approx(recalled.mean())
    used = (recalled & said).sum() / recalled.sum() if recalled.any() else math.nan
    assert context_utilisation(judged).value == pytest.approx(used, nan_ok=True)
