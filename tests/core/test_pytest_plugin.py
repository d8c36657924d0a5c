"""The pytest plugin: tests fail, pass or are undetermined by what was measured, and suites without it see nothing."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from attr_core._asserting import wilson
from attr_core._storage.sharing import copy_measurements
from attr_core.cache import Cache
from attr_core.errors import ConfigurationError
from attr_core.evaluation.planted import ErringJudge, PerfectJudge, PlantedSample, planted
from attr_core.protocols import Completion
from attr_core.pytest_plugin import (
    AttrkitFixture,
    DiagnosisFailedError,
    UndeterminedError,
    UndeterminedWarning,
    assert_diagnosis,
)
from attr_core.results import Diagnosis, Support
from attr_core.store import Store
from attr_core.testing import ScriptedEngine
from attr_core.types import Claim, Segment

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
IS_INSTALLED = any(one.name == "attrkit" for one in importlib.metadata.entry_points(group="pytest11"))
PLUGIN = "attrkit" if IS_INSTALLED else "attr_core.pytest_plugin"


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A suite of somebody else's, in a process of its own, with no plugin but those that are named."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return pytester


def files_of(suite: pytest.Pytester) -> set[str]:
    return {path.name for path in suite.path.iterdir() if not path.name.startswith("runpytest")}


def sample_of(label: str) -> PlantedSample:
    return planted([label], per_label=1)[0]


def diagnosis(label: str = "ok", **scores: tuple[float | None, int, int]) -> Diagnosis:
    """With metrics of (value, n, of)."""
    held = [
        {"name": name, "value": value, "n": n, "of": of, "what": "claims", "reason": "" if n else "no context"}
        for name, (value, n, of) in scores.items()
    ]
    told = {"headline": "so it is", "evidence": ("as was seen",), "fixes": ("mend it",)}
    return Diagnosis(label=label, scores=tuple(held), **told)  # type: ignore[arg-type]


def test_the_expected_label_passes_and_gives_the_diagnosis() -> None:
    sample = sample_of("chunk_dominance")
    (found,) = assert_diagnosis(
        sample.trace, "chunk_dominance", expected=sample.expected, judge=PerfectJudge(), engine=sample.model
    )
    assert found.culprits == tuple(sorted(*sample.culprits))


def test_another_label_fails_with_headline_evidence_proof_and_remedy() -> None:
    sample = sample_of("chunk_dominance")
    with pytest.raises(DiagnosisFailedError) as failed:
        assert_diagnosis(sample.trace, expected=sample.expected, judge=PerfectJudge(), engine=sample.model)
    told = str(failed.value)
    for part in ("label: chunk_dominance, not ok", "misled the model", "evidence", "proof", "what to do", "re-rank"):
        assert part in told
    assert "\x1b" not in told


def test_one_of_several_labels_or_any_will_do() -> None:
    assert_diagnosis(diagnosis("flaky"), {"ok", "flaky"})
    assert_diagnosis(diagnosis("compound"), None)
    with pytest.raises(DiagnosisFailedError, match="not flaky or ok"):
        assert_diagnosis(diagnosis("compound"), ["ok", "flaky"])


def test_an_inconclusive_diagnosis_is_undetermined_and_says_what_would_decide() -> None:
    with pytest.raises(UndeterminedError, match=r"inconclusive(.|\n)*name a judge \(judge=\) or the engine"):
        assert_diagnosis(diagnosis("inconclusive"))
    assert_diagnosis(diagnosis("inconclusive"), "inconclusive")


def test_a_threshold_inside_the_interval_is_undetermined_on_either_side_of_the_mean() -> None:
    for value in (1.0, 0.75, 0.7):
        with pytest.raises(UndeterminedError, match=r"faithfulness: .* at least 0.8 is undetermined"):
            assert_diagnosis(diagnosis(faithfulness=(value, 4, 4)), at_least={"faithfulness": 0.8})


def test_what_is_undetermined_says_how_many_verdicts_would_decide() -> None:
    with pytest.raises(UndeterminedError, match=r"about 16 verdicts .* give more rows .*, or a larger repeats="):
        assert_diagnosis(diagnosis(faithfulness=(1.0, 4, 4)), at_least={"faithfulness": 0.8})
    with pytest.raises(UndeterminedError, match="many more verdicts"):
        assert_diagnosis(diagnosis(faithfulness=(0.8, 5, 5)), at_least={"faithfulness": 0.8})


def test_a_threshold_beside_the_interval_passes_or_fails() -> None:
    assert_diagnosis(diagnosis(faithfulness=(1.0, 16, 16)), at_least={"faithfulness": 0.8})
    assert_diagnosis(diagnosis(hallucination=(0.0, 16, 16)), at_most={"hallucination": 0.2})
    with pytest.raises(DiagnosisFailedError, match=r"at least 0\.8 does not hold"):
        assert_diagnosis(diagnosis(faithfulness=(0.0, 4, 4)), at_least={"faithfulness": 0.8})
    with pytest.raises(DiagnosisFailedError, match=r"at most 0\.2 does not hold"):
        assert_diagnosis(diagnosis(hallucination=(1.0, 4, 4)), at_most={"hallucination": 0.2})


def test_several_rows_are_taken_together_and_decide_what_one_cannot() -> None:
    one = diagnosis(faithfulness=(1.0, 4, 4))
    assert len(assert_diagnosis([one] * 4, at_least={"faithfulness": 0.8})) == 4


def test_verdicts_that_are_missing_count_against_and_in_favour() -> None:
    with pytest.raises(UndeterminedError, match=r"16 of 20 verdicts"):
        assert_diagnosis(diagnosis(faithfulness=(1.0, 16, 20)), at_least={"faithfulness": 0.8})
    with pytest.raises(UndeterminedError):
        assert_diagnosis(diagnosis(faithfulness=(0.0, 4, 20)), at_least={"faithfulness": 0.8})


def test_a_metric_that_is_not_available_is_undetermined_for_its_reason() -> None:
    with pytest.raises(UndeterminedError, match=r"faithfulness: N/A, .* no context"):
        assert_diagnosis(diagnosis(faithfulness=(None, 0, 3)), at_least={"faithfulness": 0.8})


def test_at_level_0_the_mean_is_taken_for_the_truth() -> None:
    assert_diagnosis(diagnosis(faithfulness=(0.85, 4, 4)), at_least={"faithfulness": 0.8}, level=0)
    with pytest.raises(DiagnosisFailedError):
        assert_diagnosis(diagnosis(faithfulness=(0.75, 4, 4)), at_least={"faithfulness": 0.8}, level=0)


def test_what_fails_is_not_hidden_by_what_is_undetermined() -> None:
    with pytest.raises(DiagnosisFailedError, match=r"failed: label(.|\n)*undetermined: faithfulness"):
        assert_diagnosis(diagnosis("flaky", faithfulness=(1.0, 2, 2)), at_least={"faithfulness": 0.8})


def test_undetermined_can_skip_or_warn_instead() -> None:
    with pytest.raises(pytest.skip.Exception, match="undetermined"):
        assert_diagnosis(diagnosis("inconclusive"), on_undetermined="skip")
    with pytest.warns(UndeterminedWarning, match="undetermined"):
        assert len(assert_diagnosis(diagnosis("inconclusive"), on_undetermined="warn")) == 1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"at_least": {"fathfulness": 0.8}}, "known are faithfulness"),
        ({"at_least": {"faithfulness": 80}}, "not from 0 to 1"),
        ({"on_undetermined": "pass"}, "fail, skip, warn"),
        ({"level": 1}, "level"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        assert_diagnosis(diagnosis(faithfulness=(1.0, 16, 16)), **options)


@pytest.mark.parametrize("rows", [[], ["tr_1f0c"], [diagnosis(), diagnosis()]])
def test_rows_that_cannot_be_meant_are_refused(rows: list[Any]) -> None:
    with pytest.raises(ConfigurationError):
        assert_diagnosis(rows, expected="It opened in 1911." if len(rows) != 1 else None)


@pytest.mark.parametrize(("successes", "n"), [(0, 4), (3, 4), (9, 10), (50, 60)])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_interval_is_wilsons(successes: int, n: int, level: float) -> None:
    known = stats.binomtest(successes, n).proportion_ci(level, method="wilson")
    assert wilson(successes, n, level) == pytest.approx((known.low, known.high))


def test_repeats_of_the_judge_count_as_verdicts_of_their_own() -> None:
    sample = sample_of("ok")
    known: dict[str, Any] = {"expected": sample.expected, "engine": sample.model, "strategy": "support"}
    with pytest.raises(UndeterminedError, match=r"1 of 1 verdicts"):
        assert_diagnosis(sample.trace, judge=PerfectJudge(), at_least={"faithfulness": 0.8}, **known)
    judge = ErringJudge(PerfectJudge(), rate=0.0, repeats=16)
    assert_diagnosis(sample.trace, judge=judge, repeats=16, at_least={"faithfulness": 0.8}, **known)


class HalfTheTime:
    """Says of every second repeat that nothing supports anything."""

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        true = ErringJudge(PerfectJudge(), rate=0.0, repeats=5).judge(claims, segments, question=question)
        assert true.repeated is not None
        repeated = true.repeated.copy()
        repeated[1::2] = "neutral"
        return Support(true.verdicts, true.rationale, repeats=5, repeated=repeated, judge="half")


def test_repeats_that_disagree_are_told_even_where_most_of_them_say_yes() -> None:
    sample = sample_of("ok")
    with pytest.raises(UndeterminedError, match=r"faithfulness: 0.60 \(5 of 5 verdicts"):
        assert_diagnosis(
            sample.trace,
            expected=sample.expected,
            judge=HalfTheTime(),
            repeats=5,
            strategy="support",
            at_least={"faithfulness": 0.5},
        )


def test_repeats_of_a_model_that_judges_are_read_from_the_cache_and_not_asked_again() -> None:
    sample, judge = sample_of("ok"), ScriptedEngine('{"claim": 1, "segment": 1, "verdict": "entails", "why": "x"}')
    known: dict[str, Any] = {"expected": sample.expected, "strategy": "support", "judge": judge, "repeats": 3}
    assert_diagnosis(sample.trace, None, **known)
    n_alone = len(judge.seen)
    judge.seen.clear()
    with pytest.raises(AssertionError, match="verdicts"):
        assert_diagnosis(sample.trace, None, at_least={"claim_recall": 0.9}, **known)
    assert len(judge.seen) == n_alone


def test_each_test_has_a_database_of_its_own_and_measured_values_go_from_one_to_the_next(tmp_path: Path) -> None:
    sample, measured = sample_of("chunk_dominance"), tmp_path / "measured.db"
    costs = []
    for name in ("a", "b"):
        fixture = AttrkitFixture(tmp_path / f"{name}.db", measured)
        found = fixture.diagnose(sample.trace, expected=sample.expected, judge=PerfectJudge(), engine=sample.model)
        costs.append(found.cost.calls)
        fixture._hand_on()
        with Store(fixture.db) as store:
            assert len(store.list()) == 1
            assert len(store.diagnoses(sample.trace.id)) == 1
    assert costs[0] > 0
    assert costs[1] == 0
    with Store(measured) as store:
        assert store.list() == []


def test_measured_values_that_cannot_be_shared_are_measured_again(tmp_path: Path) -> None:
    broken = tmp_path / "measured.db"
    broken.write_text("no database")
    assert copy_measurements(broken, tmp_path / "a.db") == 0
    assert copy_measurements(tmp_path / "none.db", tmp_path / "a.db") == 0
    with Cache(tmp_path / "a.db") as cache:
        cache.put_completions({"k": Completion("x")})
    assert copy_measurements(tmp_path / "a.db", broken) == 0
    assert copy_measurements(tmp_path / "a.db", tmp_path / "b.db") == 1
    assert broken.read_text() == "no database"


def test_a_suite_that_does_not_use_the_plugin_sees_no_output_and_no_import(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        """
        import sys
        def pytest_sessionfinish(session):
            mine = sorted(name for name in sys.modules if name.split(".")[0] == "attr_core")
            heavy = {"numpy", "scipy", "sklearn", "sqlite3", "rich", "typer", "jinja2"} & set(sys.modules)
            with open("loaded.txt", "w") as file:
                file.write(" ".join(mine) + "|" + " ".join(sorted(heavy)))
        """
    )
    suite.makepyfile("def test_something(): assert True")
    without = suite.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    before = files_of(suite)
    ran = suite.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-p", PLUGIN)
    assert ran.ret == without.ret == 0
    assert [line.split(" in ")[0] for line in ran.outlines] == [line.split(" in ")[0] for line in without.outlines]
    assert ran.errlines == without.errlines
    assert files_of(suite) == before
    mine, _, heavy = (suite.path / "loaded.txt").read_text().partition("|")
    assert set(mine.split()) == {"attr_core", "attr_core._asserting", "attr_core.errors", "attr_core.pytest_plugin"}
    assert heavy == ""


def test_each_test_of_two_workers_gets_its_own_result(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest
        from attr_core.evaluation.planted import PerfectJudge, planted
        from attr_core.store import Store

        KNOWN = {"judge": PerfectJudge(), "strategy": "support"}

        @pytest.mark.parametrize("label", ("ok", "correct_abstention", "retrieval_miss", "incomplete_answer"))
        def test_its_own(attrkit, label):
            sample = planted([label], per_label=1)[0]
            (found,) = attrkit.assert_diagnosis(sample.trace, label, expected=sample.expected, **KNOWN)
            assert found.trace_id == sample.trace.id
            with Store(attrkit.db) as store:
                assert [one.id for one in store.list()] == [sample.trace.id]

        def test_wrong(attrkit):
            sample = planted(["retrieval_miss"], per_label=2)[1]
            attrkit.assert_diagnosis(sample.trace, "ok", expected=sample.expected, **KNOWN)

        def test_straddling(attrkit):
            sample = planted(["ok"], per_label=2)[1]
            limits = {"faithfulness": 0.8}
            attrkit.assert_diagnosis(sample.trace, "ok", expected=sample.expected, at_least=limits, **KNOWN)
        """
    )
    ran = suite.runpytest_subprocess("-p", "xdist", "-n", "2", "-q", "-p", "no:cacheprovider", "-p", PLUGIN)
    ran.assert_outcomes(passed=4, failed=2)
    out = ran.stdout.str()
    assert "label: retrieval_miss, not ok" in out
    assert "at least 0.8 is undetermined" in out
    assert "UndeterminedError" in out
