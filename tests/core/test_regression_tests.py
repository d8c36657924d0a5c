"""A proved diagnosis becomes a test that runs offline, and fails where what was recorded is decided otherwise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attr_core import diagnose
from attr_core._trace_json import trace_from_json, trace_to_json
from attr_core.cache import Cache
from attr_core.errors import ConfigurationError, InputError
from attr_core.evaluation.planted import LABELS, ErringJudge, PerfectJudge, PlantedSample, planted
from attr_core.regression import DecisionChangedError, RegressionTest, check_recorded, redecide, write_regression_test
from attr_core.testing import ScriptedEngine

Write = Callable[..., RegressionTest]


def sample_of(label: str) -> PlantedSample:
    return planted([label], per_label=1)[0]


def written(folder: Path, label: str = "chunk_dominance", **changes: Any) -> RegressionTest:
    """The test of a planted sample's diagnosis."""
    sample, db = sample_of(label), folder / "a.db"
    used: dict[str, Any] = {"judge": PerfectJudge(), "engine": sample.model, "db": db}
    diagnose(sample.trace, expected=sample.expected, **used)
    return write_regression_test(sample.trace, **{"out": folder / "test_answer.py", **used, **changes})


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> RegressionTest:
    """Written once for all tests; copied by those that edit it."""
    return written(tmp_path_factory.mktemp("once"))


def copied(made: RegressionTest, folder: Path) -> RegressionTest:
    test, recorded = (Path(shutil.copy(one, folder)) for one in (made.test, made.recorded))
    return replace(made, test=test, recorded=recorded)


def edited(recorded: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    data = json.loads(recorded.read_text())
    edit(data)
    recorded.write_text(json.dumps(data))
    return recorded


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    """In a process that may neither reach a network nor load a model."""
    (folder / "conftest.py").write_text(
        "import sys\n"
        "def refuse(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo'):\n"
        "        raise OSError('no network here')\n"
        "sys.addaudithook(refuse)\n"
        "def pytest_sessionfinish(session):\n"
        "    loaded = {'torch', 'transformers', 'litellm', 'openai'} & set(sys.modules)\n"
        "    assert not loaded, loaded\n"
    )
    told = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    told["ATTRKIT_DB"] = str(folder / "none.db")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **told}, capture_output=True, text=True, check=False, timeout=120
    )


def test_the_written_test_passes_without_network_or_model_and_fails_once_its_outcome_is_tampered_with(
    tmp_path: Path, once: RegressionTest
) -> None:
    made = copied(once, tmp_path)
    copy = tmp_path / "test_tampered.py"
    copy.write_text(made.test.read_text().replace("test_answer.json", "test_tampered.json"))
    copy.with_suffix(".json").write_text(made.recorded.read_text())
    edited(copy.with_suffix(".json"), _wrong_where_it_was_right)
    ran = run_pytest(tmp_path)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "FAILED test_tampered.py" in ran.stdout
    assert "are decided otherwise now" in ran.stdout
    assert "then: chunk_dominance" in ran.stdout
    assert not (tmp_path / "none.db").exists()


def _wrong_where_it_was_right(data: dict[str, Any]) -> None:
    """As if the answer without the culprit had been the wrong one too."""
    for one in data["engine"]["said"]:
        one["text"] = data["diagnosis"]["answer"]


def _another_label(data: dict[str, Any]) -> None:
    data["diagnosis"]["label"] = "ok"


def _another_culprit(data: dict[str, Any]) -> None:
    data["diagnosis"]["culprits"] = ["c0"]


def _fewer_repaired(data: dict[str, Any]) -> None:
    data["diagnosis"]["proof"]["changed"]["repaired"] = 1


def _verdicts_turned(data: dict[str, Any]) -> None:
    for one in data["judge"]["verdicts"]:
        one["verdict"] = "neutral"


def _answers_lost(data: dict[str, Any]) -> None:
    data["engine"]["said"] = []


@pytest.mark.parametrize(
    "edit",
    [_another_label, _another_culprit, _fewer_repaired, _verdicts_turned, _answers_lost, _wrong_where_it_was_right],
)
def test_a_record_that_is_edited_is_decided_otherwise(
    tmp_path: Path, once: RegressionTest, edit: Callable[[dict[str, Any]], None]
) -> None:
    made = copied(once, tmp_path)
    check_recorded(made.recorded)
    with pytest.raises(DecisionChangedError, match="decided otherwise now"):
        check_recorded(edited(made.recorded, edit))


QUICK = ("flaky", "over_refusal", "dropped_from_prompt", "position")


@pytest.mark.parametrize(
    "label",
    [
        pytest.param(label, marks=() if label in QUICK else pytest.mark.slow)
        for label in LABELS
        if label != "inconclusive"
    ],
)
def test_every_label_is_decided_again_as_it_was(tmp_path: Path, label: str) -> None:
    made = written(tmp_path, label)
    then, now = redecide(made.recorded)
    assert (now.label, now.outcome, now.culprits) == (then.label, then.outcome, then.culprits)
    assert now.proof == then.proof


def test_what_a_judge_alone_said_is_recorded_without_an_answer(tmp_path: Path) -> None:
    sample = sample_of("ok")
    known: dict[str, Any] = {"judge": PerfectJudge(), "db": tmp_path / "a.db"}
    diagnose(sample.trace, expected=sample.expected, strategy="support", **known)
    made = write_regression_test(sample.trace, out=tmp_path / "test_a.py", **known)
    assert made.n_answers == 0
    assert check_recorded(made.recorded).label == "ok"


def test_verdicts_of_a_judge_that_errs_are_kept_as_they_were(tmp_path: Path) -> None:
    sample = sample_of("chunk_dominance")
    judge = ErringJudge(PerfectJudge(), rate=0.2, seed=3)
    known: dict[str, Any] = {"judge": judge, "engine": sample.model, "db": tmp_path / "a.db"}
    found = diagnose(sample.trace, expected=sample.expected, **known)
    made = write_regression_test(sample.trace, out=tmp_path / "test_a.py", **known)
    assert check_recorded(made.recorded).label == found.label


def test_a_model_that_judged_is_not_asked_again_and_may_have_said_two_things_of_the_same_text(tmp_path: Path) -> None:
    sample = sample_of("ok")
    judge = ScriptedEngine('{"claim": 1, "segment": 1, "verdict": "entails", "why": "x"}')
    known: dict[str, Any] = {"judge": judge, "repeats": 3, "db": tmp_path / "a.db"}
    found = diagnose(sample.trace, expected=sample.expected, strategy="support", **known)
    n_seen = len(judge.seen)
    made = write_regression_test(sample.trace, out=tmp_path / "test_a.py", **known)
    assert len(judge.seen) == n_seen
    assert check_recorded(made.recorded).label == found.label


def test_writing_sends_nothing_and_names_what_is_missing(tmp_path: Path) -> None:
    made = written(tmp_path)
    assert made.n_answers > 0
    with Cache(tmp_path / "a.db") as cache:
        cache.clear()
    sample = sample_of("chunk_dominance")
    with pytest.raises(InputError, match=r"were not measured by planted:world; run attrkit diagnose again"):
        write_regression_test(
            sample.trace, judge=PerfectJudge(), engine=sample.model, db=tmp_path / "a.db", out=tmp_path / "test_b.py"
        )
    assert not (tmp_path / "test_b.py").exists()


def test_another_engine_than_the_one_that_was_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be recorded"):
        written(tmp_path, engine=ScriptedEngine("It opened in 1911."))


def test_an_inconclusive_diagnosis_and_none_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to hold on to"):
        written(tmp_path, "inconclusive")
    with pytest.raises(InputError, match="run attrkit diagnose"):
        write_regression_test(sample_of("ok").trace, db=tmp_path / "b.db")


@pytest.mark.parametrize("name", ["test_answer.txt", 'test_"quoted".py'])
def test_a_file_that_is_no_python_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError):
        written(tmp_path, "ok", out=tmp_path / name)


def test_what_models_and_users_wrote_never_becomes_code(tmp_path: Path) -> None:
    sample, db = sample_of("chunk_dominance"), tmp_path / "a.db"
    trace = replace(sample.trace, id='tr_"""\nraise SystemExit(1)\n"""')
    used: dict[str, Any] = {"judge": PerfectJudge(), "engine": sample.model, "db": db}
    diagnose(trace, expected=sample.expected, **used)
    made = write_regression_test(trace, out=tmp_path / "test_answer.py", **used)
    compile(made.test.read_text(), "test", "exec")
    assert "SystemExit(1)" not in made.test.read_text()


def test_the_same_diagnosis_is_written_the_same(tmp_path: Path) -> None:
    first, sample = written(tmp_path), sample_of("chunk_dominance")
    again = write_regression_test(
        sample.trace, judge=PerfectJudge(), engine=sample.model, db=tmp_path / "a.db", out=tmp_path / "test_b.py"
    )
    assert again.recorded.read_bytes() == first.recorded.read_bytes()


def test_a_file_of_another_schema_or_shape_is_refused(tmp_path: Path, once: RegressionTest) -> None:
    made = copied(once, tmp_path)
    text = made.recorded.read_text()
    broken: tuple[Callable[[dict[str, Any]], None], ...] = (
        lambda data: data.update(schema="attrkit.regression/0"),
        lambda data: data.pop("judge"),
        lambda data: data["judge"]["verdicts"][0].update(verdict="maybe"),
        lambda data: data["engine"].update(said=[{"text": "x"}]),
        lambda data: data["trace"].pop("generations"),
        lambda data: data.update(thresholds={"n_unchanged": 0}),
    )
    for edit in broken:
        made.recorded.write_text(text)
        with pytest.raises(InputError, match=r"record the test again|write it again"):
            redecide(edited(made.recorded, edit))
    made.recorded.write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        redecide(made.recorded)
    with pytest.raises(InputError, match="cannot be read"):
        redecide(tmp_path / "none.json")


@pytest.mark.parametrize("label", ["tool_error", "memory_override", "dropped_from_prompt"])
def test_a_trace_survives_json(label: str) -> None:
    trace = sample_of(label).trace
    held: Mapping[str, Any] = json.loads(json.dumps(trace_to_json(trace)))
    assert trace_from_json(held) == trace
