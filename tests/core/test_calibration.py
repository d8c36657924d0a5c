"""A judge's rates against labels are those of closed forms, and every verdict lands in its own row."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.errors import ConfigurationError, DatasetError, EngineError, InputError
from attr_core.judge import LikelihoodJudge, LLMJudge
from attr_core.judge._pairs import tables_of
from attr_core.judge._rates import cohens_kappa, mcnemar, share
from attr_core.judge.calibration import (
    LabelledRow,
    calibrate_judge,
    compare_judges,
    corrected_rate,
    plan_calibration,
    read_labels,
)
from attr_core.results import Cost, Support, SupportVerdict
from attr_core.testing import AdditiveEngine, ScriptedEngine, ScriptedJudge
from attr_core.types import Claim, Segment

ENTAILS, CONTRADICTS, NEUTRAL, UNDETERMINED = SupportVerdict


def rows_of(*labels: SupportVerdict) -> list[LabelledRow]:
    return [LabelledRow(f"claim {n}", f"segment {n}", label, line=n + 1) for n, label in enumerate(labels)]


def judge_of(rows: Sequence[LabelledRow], verdicts: Sequence[SupportVerdict]) -> ScriptedJudge:
    return ScriptedJudge({(r.claim, r.segment): v for r, v in zip(rows, verdicts, strict=True)})


class PairJudge:
    """Its verdict depends on question, claim and segment; each table costs a call, and USD by its price."""

    spec = "test:pairs"

    def __init__(self, usd: float = 0.0) -> None:
        self.usd, self.asked = usd, list[int]()

    @staticmethod
    def says(question: str | None, claim: str, segment: str) -> SupportVerdict:
        return list(SupportVerdict)[hash((question, claim, segment)) % 4]

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        self.asked.append(len(claims) * len(segments))
        table = [[self.says(question, claim.text, segment.text) for segment in segments] for claim in claims]
        verdicts = np.array(table, dtype=np.str_).reshape(len(claims), len(segments))
        return Support(verdicts, np.full(verdicts.shape, ""), cost=Cost(1, 10, 2, self.usd))


def labels_file(path: Path, *lines: Any, text: str | None = None) -> Path:
    found = path / "human.jsonl"
    content = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) if text is None else text
    found.write_bytes(content.encode())
    return found


ROW = {"claim": "It opened in 1911.", "segment": "The fair opened in 1911.", "label": "entails"}


def test_labels_are_read_with_a_byte_order_mark_odd_separators_blank_lines_and_repetitions(tmp_path: Path) -> None:
    text = "\ufeff" + "\r\n\n".join(
        json.dumps(row, ensure_ascii=False)
        for row in (ROW | {"segment": "a\u2028b\x85c"}, ROW, ROW | {"question": "When?", "by": "Ann"}, ROW)
    )
    rows = read_labels(labels_file(tmp_path, text=text + "\n \n"))
    assert [row.line for row in rows] == [1, 3, 5, 7]
    assert rows[0].segment == "a\u2028b\x85c"
    assert [row.question for row in rows] == [None, None, "When?", None]
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("label", "verdict"),
    [
        ("supported", ENTAILS),
        ("SUPPORTS", ENTAILS),
        (" Entailment ", ENTAILS),
        ("refuted", CONTRADICTS),
        ("REFUTES", CONTRADICTS),
        ("not enough info", NEUTRAL),
        ("NOT_ENOUGH_INFO", NEUTRAL),
        ("Not-Enough-Information", NEUTRAL),
    ],
)
def test_common_names_of_labels_are_understood(tmp_path: Path, label: str, verdict: SupportVerdict) -> None:
    assert read_labels(labels_file(tmp_path, ROW | {"label": label}))[0].label == verdict


@pytest.mark.parametrize("label", ["undetermined", "yes", "", 1, True, None, ["entails"], "entails or neutral", 0.8])
def test_another_label_is_an_error_with_the_line_the_value_and_what_is_allowed(tmp_path: Path, label: Any) -> None:
    with pytest.raises(DatasetError) as caught:
        read_labels(labels_file(tmp_path, ROW, ROW | {"label": label}))
    for part in ("line 2", repr(label), "entails, contradicts or neutral"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no rows"),
        ("\n\n", "no rows"),
        ("{", "line 1 is not JSON"),
        ("[1]", "line 1 is list"),
        ("[" * 100_000, "line 1 is not JSON"),
        (json.dumps({"claim": "a", "label": "neutral"}), "line 1 has no segment"),
        (json.dumps({"claim": "a", "segment": "b"}), "line 1 has no label"),
        (json.dumps(ROW | {"claim": " "}), "line 1 has claim ' '"),
        (json.dumps(ROW | {"segment": 3}), "line 1 has segment 3"),
        (json.dumps(ROW | {"question": 3}), "line 1 has question 3"),
    ],
)
def test_what_is_no_row_is_an_error_that_names_the_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(DatasetError, match=told):
        read_labels(labels_file(tmp_path, text=text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nowhere\.jsonl cannot be read"):
        read_labels(tmp_path / "nowhere.jsonl")
    (tmp_path / "latin.jsonl").write_bytes('{"claim": "é"}'.encode("latin-1"))
    with pytest.raises(DatasetError, match="not UTF-8"):
        read_labels(tmp_path / "latin.jsonl")


PAIRS = st.lists(
    st.tuples(st.sampled_from(["", "q"]), st.sampled_from("abcdefgh"), st.sampled_from("uvwxyz")),
    min_size=1,
    max_size=60,
)


@given(PAIRS, st.integers(1, 30))
def test_tables_hold_every_pair_once_and_no_other(pairs: list[tuple[str, str, str]], most: int) -> None:
    rows = [LabelledRow(claim, segment, NEUTRAL, question or None) for question, claim, segment in pairs]
    tables = tables_of(rows, most=most)
    cells = [(t.question or "", c.text, s.text) for t in tables for c in t.claims for s in t.segments]
    assert sorted(cells) == sorted(set(pairs))
    assert all(len(t.claims) * len(t.segments) <= most for t in tables)


@given(PAIRS)
def test_every_verdict_lands_in_its_own_row(pairs: list[tuple[str, str, str]]) -> None:
    rows = [LabelledRow(claim, segment, NEUTRAL, question or None) for question, claim, segment in pairs]
    found = calibrate_judge(PairJudge(), rows)
    assert list(found.verdicts) == [PairJudge.says(row.question, row.claim, row.segment) for row in rows]


def test_an_answers_claims_and_segments_are_one_call() -> None:
    rows = [LabelledRow(f"c{i}", f"s{j}", NEUTRAL, "When?") for i in range(3) for j in range(5)]
    judge = PairJudge()
    calibrate_judge(judge, rows)
    assert judge.asked == [15]
    assert plan_calibration(LLMJudge(ScriptedEngine()), rows).calls == 1


def test_sensitivity_specificity_and_accuracy_are_shares_with_wilsons_interval() -> None:
    labels = [ENTAILS] * 10 + [CONTRADICTS] * 6 + [NEUTRAL] * 4
    verdicts = [ENTAILS] * 8 + [NEUTRAL, CONTRADICTS] + [CONTRADICTS] * 5 + [ENTAILS] + [NEUTRAL] * 3 + [CONTRADICTS]
    rows = rows_of(*labels)
    found = calibrate_judge(judge_of(rows, verdicts), rows)
    assert found.confusion.tolist() == [[8, 1, 1, 0], [1, 5, 0, 0], [0, 1, 3, 0]]
    assert found.sensitivity["entails"].value == 8 / 10
    assert found.specificity["entails"].value == 9 / 10
    assert found.sensitivity["contradicts"].value == 5 / 6
    assert found.specificity["contradicts"].value == 12 / 14
    assert found.accuracy.value == 16 / 20
    z, p, n = 1.959964, 0.8, 10
    centre, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)
    assert (found.sensitivity["entails"].low, found.sensitivity["entails"].high) == pytest.approx((low, high), abs=1e-6)


def test_undetermined_is_counted_apart_and_in_no_rate() -> None:
    rows = rows_of(ENTAILS, ENTAILS, NEUTRAL, CONTRADICTS)
    found = calibrate_judge(judge_of(rows, [ENTAILS, UNDETERMINED, NEUTRAL, UNDETERMINED]), rows)
    assert (found.n_rows, found.n_undetermined) == (4, 2)
    assert (found.sensitivity["entails"].value, found.sensitivity["entails"].n) == (1.0, 1)
    assert math.isnan(found.sensitivity["contradicts"].value)
    assert "contradicts" in (found.sensitivity["contradicts"].reason or "")
    assert found.confusion[:, 3].tolist() == [1, 1, 0]
    assert (found.accuracy.value, found.accuracy.n) == (1.0, 2)


def test_a_judge_that_never_says_anything_has_no_rates() -> None:
    rows = rows_of(ENTAILS, NEUTRAL)
    found = calibrate_judge(judge_of(rows, [UNDETERMINED] * 2), rows)
    for rate in (found.accuracy, found.kappa, *found.sensitivity.values(), *found.specificity.values()):
        assert math.isnan(rate.value)
        assert rate.reason
    assert math.isnan(found.correct(3, 4).value)


def test_a_table_that_fails_leaves_its_rows_undetermined_and_only_if_all_fail_it_is_an_error() -> None:
    class Half(PairJudge):
        def judge(self, claims: Any, segments: Any, *, question: str | None = None) -> Support:
            if question is None:
                raise EngineError("the endpoint is down; start it")
            return super().judge(claims, segments, question=question)

    rows = [LabelledRow("a", "b", ENTAILS), LabelledRow("a", "b", ENTAILS, "Why?")]
    found = calibrate_judge(Half(), rows)
    assert list(found.verdicts) == [UNDETERMINED, PairJudge.says("Why?", "a", "b")]
    with pytest.raises(EngineError, match="endpoint is down"):
        calibrate_judge(Half(), rows[:1])
    with pytest.raises(InputError, match="no labelled rows"):
        calibrate_judge(Half(), [])


def test_rows_that_repeat_a_pair_are_all_counted_and_said_to_be() -> None:
    rows = [*rows_of(ENTAILS), *rows_of(ENTAILS)]
    found = calibrate_judge(judge_of(rows, [ENTAILS] * 2), rows)
    assert found.n_rows == found.accuracy.n == 2
    assert any("1 of 2 rows repeat" in note for note in found.notes)


def test_kappa_of_a_known_table() -> None:
    assert cohens_kappa(np.array([[20, 5], [10, 15]])).value == pytest.approx(0.4)
    # Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions, table 18.1: 0.68 with standard error 0.087.
    found = cohens_kappa(np.array([[75, 1, 4], [5, 4, 1], [0, 0, 10]]))
    assert found.value == pytest.approx(0.68, abs=0.005)
    assert (found.high - found.low) / 2 / 1.96 == pytest.approx(0.087, abs=0.001)


def test_kappas_interval_is_that_of_the_delta_method() -> None:
    table = np.array([[30, 4, 2], [3, 18, 5], [1, 6, 31]])
    n, p = table.sum(), table / table.sum()

    def kappa(p: Any) -> Any:
        chance = p.sum(axis=1) @ p.sum(axis=0)
        return (np.trace(p) - chance) / (1 - chance)

    slopes = np.zeros_like(p)
    for cell in np.ndindex(*p.shape):
        step = np.zeros_like(p)
        step[cell] = 1e-6
        slopes[cell] = (kappa(p + step) - kappa(p - step)) / 2e-6
    error = math.sqrt(((p * slopes**2).sum() - (p * slopes).sum() ** 2) / n)
    found = cohens_kappa(table)
    assert (found.high - found.low) / 2 == pytest.approx(1.959964 * error, rel=1e-4)


def test_kappa_is_undefined_where_chance_agrees_as_well_and_never_sure_of_few_rows() -> None:
    assert math.isnan(cohens_kappa(np.array([[7, 0], [0, 0]])).value)
    assert math.isnan(cohens_kappa(np.zeros((3, 3), dtype=np.int64)).value)
    few = cohens_kappa(np.array([[2, 0], [0, 2]]))
    assert few.value == few.high == 1.0
    assert few.low == pytest.approx(2 * share(4, 4).low - 1)
    assert cohens_kappa(np.array([[0, 5], [5, 0]])).value == -1.0


def test_a_corrected_rate_is_rogan_and_gladens() -> None:
    found = corrected_rate(0.35, 0.9, 0.8, n=100, n_sensitivity=50, n_specificity=50)
    assert found.value == pytest.approx((0.35 + 0.8 - 1) / (0.9 + 0.8 - 1))
    assert 0 <= found.low < found.value < found.high <= 1
    for rate in (0.0, 0.3, 1.0):
        seen = rate * 0.9 + (1 - rate) * 0.2
        assert corrected_rate(seen, 0.9, 0.8, n=9, n_sensitivity=9, n_specificity=9).value == pytest.approx(rate)


def test_its_interval_is_lang_and_reiczigels_formula() -> None:
    z = 1.959963984540054
    n, n_se, n_sp, p, se, sp = 200, 60, 40, 0.4, 0.9, 0.85
    p_, n_ = (n * p + z * z / 2) / (n + z * z), n + z * z
    se_, sp_ = 55 / 62, 35 / 42
    rate = (p_ + sp_ - 1) / (se_ + sp_ - 1)
    shift = 2 * z * z * (rate * se_ * (1 - se_) / 62 - (1 - rate) * sp_ * (1 - sp_) / 42)
    spread = p_ * (1 - p_) / n_ + rate**2 * se_ * (1 - se_) / 62 + (1 - rate) ** 2 * sp_ * (1 - sp_) / 42
    half = z * math.sqrt(spread) / (se_ + sp_ - 1)
    found = corrected_rate(p, se, sp, n=n, n_sensitivity=n_se, n_specificity=n_sp)
    assert (found.low, found.high) == pytest.approx((rate + shift - half, rate + shift + half))
    larger = corrected_rate(p, se, sp, n=n, n_sensitivity=6000, n_specificity=4000)
    assert larger.high - larger.low < found.high - found.low


def test_a_corrected_rate_is_clipped_and_unknown_where_the_judge_tells_nothing() -> None:
    sizes = {"n": 50, "n_sensitivity": 50, "n_specificity": 50}
    assert corrected_rate(0.05, 0.9, 0.8, **sizes).value == 0.0
    assert corrected_rate(0.99, 0.9, 0.8, **sizes).value == 1.0
    for sensitivity, specificity in ((0.5, 0.5), (0.2, 0.3)):
        found = corrected_rate(0.4, sensitivity, specificity, **sizes)
        assert all(map(math.isnan, (found.value, found.low, found.high)))
        assert "add up to 1 or less" in (found.reason or "")
    assert math.isnan(corrected_rate(math.nan, 0.9, 0.9, **sizes).value)
    with pytest.raises(ConfigurationError, match=r"sensitivity 1\.2"):
        corrected_rate(0.5, 1.2, 0.9, **sizes)
    with pytest.raises(ConfigurationError, match="must be positive"):
        corrected_rate(0.5, 0.9, 0.9, n=0, n_sensitivity=1, n_specificity=1)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(1, 400), st.integers(1, 400), st.integers(1, 400))
def test_whatever_is_observed_a_corrected_rate_is_a_share_or_unknown(
    p: float, se: float, sp: float, n: int, n_se: int, n_sp: int
) -> None:
    found = corrected_rate(p, se, sp, n=n, n_sensitivity=n_se, n_specificity=n_sp)
    assert math.isnan(found.value) == (se + sp <= 1)
    assert math.isnan(found.value) or (0 <= found.low <= found.high <= 1 and 0 <= found.value <= 1)


@pytest.mark.parametrize(("rate", "se", "sp"), [(0.7, 0.9, 0.8), (0.9, 0.8, 0.9), (0.1, 0.85, 0.9)])
def test_the_interval_covers_the_true_rate(rate: float, se: float, sp: float) -> None:
    random, n, n_se, n_sp, covered = np.random.default_rng(3), 150, 60, 60, 0
    for _ in range(500):
        seen = random.binomial(n, rate * se + (1 - rate) * (1 - sp)) / n
        found = corrected_rate(
            seen,
            random.binomial(n_se, se) / n_se,
            random.binomial(n_sp, sp) / n_sp,
            n=n,
            n_sensitivity=n_se,
            n_specificity=n_sp,
        )
        covered += found.low <= rate <= found.high
    assert covered / 500 >= 0.92


def test_a_calibrated_judge_corrects_its_own_rates() -> None:
    rows = rows_of(*[ENTAILS] * 20, *[NEUTRAL] * 20)
    found = calibrate_judge(judge_of(rows, [ENTAILS] * 18 + [NEUTRAL] * 18 + [ENTAILS] * 4), rows)
    direct = corrected_rate(0.75, 0.9, 0.8, n=120, n_sensitivity=20, n_specificity=20)
    assert found.correct(90, 120) == direct
    for bad in ((5, 4), (0, 0), (-1, 3)):
        with pytest.raises(ConfigurationError, match="cannot be corrected"):
            found.correct(*bad)


def test_mcnemars_p_is_exact() -> None:
    assert mcnemar(1, 5) == pytest.approx(2 * (1 + 6) / 2**6)
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(3, 3) == 1.0


class Repeating(PairJudge):
    """The first two rows' repeats differ."""

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        verdicts = np.full((len(claims), len(segments)), "entails", dtype="<U12")
        other = verdicts.copy()
        for i, claim in enumerate(claims):
            if claim.text in ("claim 0", "claim 1"):
                other[i] = "neutral"
        cost = Cost(1, 10, 2, self.usd)
        return Support(verdicts, np.full(verdicts.shape, ""), 3, cost, repeated=np.stack([verdicts, verdicts, other]))


class Always(PairJudge):
    def __init__(self, rows: Sequence[LabelledRow], usd: float) -> None:
        super().__init__(usd)
        self.scripted = judge_of(rows, [row.label for row in rows])

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        found = self.scripted.judge(claims, segments)
        return Support(found.verdicts, found.rationale, cost=Cost(1, 100, 20, self.usd))


def test_a_cascade_asks_the_expensive_judge_where_repeats_of_the_cheap_one_differ_and_says_what_that_saves() -> None:
    rows = rows_of(NEUTRAL, NEUTRAL, ENTAILS, ENTAILS, CONTRADICTS, *[ENTAILS] * 5)
    found = compare_judges(Repeating(usd=0.01), Always(rows, usd=0.1), rows)
    cascade = found.cascade
    assert (cascade.escalated.value, cascade.escalated.n) == (0.2, 10)
    assert found.agreement.value == 0.7
    assert cascade.agreement.value == cascade.accuracy.value == 0.9
    assert (found.cheap.cost.calls, found.expensive.cost.calls, cascade.cost.calls) == (10, 10, 12)
    assert cascade.cost.usd == pytest.approx(0.1 + 0.2)
    assert cascade.cost.tokens_in == 10 * 10 + 2 * 100
    assert cascade.usd_saved.value == pytest.approx(0.7)
    assert cascade.calls_saved.value == pytest.approx(0.8)
    assert (found.only_cheap_right, found.only_expensive_right) == (0, 3)
    assert found.p_value == 0.25
    assert [one.line for one in found.differences] == [1, 2, 5]
    assert (found.differences[2].cheap, found.differences[2].expensive) == (ENTAILS, CONTRADICTS)
    assert json.loads(json.dumps(found.to_dict()))["cascade"]["near"] == 1.0


def test_rows_without_a_verdict_are_escalated_and_in_no_agreement() -> None:
    rows = rows_of(ENTAILS, NEUTRAL, NEUTRAL)
    cheap = judge_of(rows, [ENTAILS, UNDETERMINED, NEUTRAL])
    expensive = judge_of(rows, [ENTAILS, NEUTRAL, UNDETERMINED])
    found = compare_judges(cheap, expensive, rows)
    assert (found.agreement.value, found.agreement.n) == (1.0, 1)
    assert (found.cascade.escalated.value, found.cascade.agreement.n) == (1 / 3, 2)
    assert [one.line for one in found.differences] == [2, 3]


def test_what_is_saved_is_unknown_where_a_price_is_or_nothing_was_paid() -> None:
    rows = rows_of(ENTAILS, NEUTRAL)
    unknown = compare_judges(Repeating(), Always(rows, usd=math.nan), rows).cascade.usd_saved
    assert math.isnan(unknown.value)
    assert "price" in (unknown.reason or "")
    free = compare_judges(Repeating(), Always(rows, usd=0.0), rows).cascade.usd_saved
    assert math.isnan(free.value)
    assert "took no money" in (free.reason or "")


def test_a_likelihood_judge_is_unsure_near_its_threshold() -> None:
    weights = {"far": 9.0, "near": 1.5, "under": 0.5, "low": -4.0}
    engine = AdditiveEngine({"1911": weights}, bias=-5.0)
    rows = [LabelledRow("It opened in 1911.", text, ENTAILS) for text in weights]
    for near, expected in ((1.0, 0.5), (0.25, 0.0), (100.0, 1.0)):
        found = compare_judges(LikelihoodJudge(engine), Always(rows, usd=1.0), rows, near=near)
        assert found.cascade.escalated.value == expected
    assert any("no judge has spoken" in note for note in found.cheap.notes)


def test_a_plan_counts_calls_and_asks_nobody() -> None:
    rows = rows_of(*[ENTAILS] * 7)
    engine = ScriptedEngine()
    plan = plan_calibration(LLMJudge(engine), rows, engine=engine)
    assert (plan.calls, plan.usd, engine.seen) == (7, 0.0, [])
    assert 0 < plan.tokens <= plan.maximum.tokens_in + plan.maximum.tokens_out
