"""``attrkit calibrate`` says what it will cost, asks before it pays, and prints what was found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from attr_core import engines
from attr_core.cli import _calibrate
from attr_core.errors import ConfigurationError, DatasetError
from attr_core.protocols import Completion, Price, Sampling
from attr_core.types import Prompt

ROWS = [
    {"claim": "It opened in 1911.", "segment": "The fair opened in 1911.", "label": "supported", "question": "When?"},
    {"claim": "It opened in 1911.", "segment": "The fair opened in 1920.", "label": "refuted", "question": "When?"},
    {"claim": "It opened in 1911.", "segment": "The sea is cold.", "label": "not enough info", "question": "When?"},
    {"claim": "It closed.", "segment": "The fair closed.", "label": "entails"},
]


class Reading:
    """Judges by whether the segment holds the claim's last word; ``wrong`` is what it says of the sea."""

    fingerprint = "test:reading"
    max_context = None

    def __init__(self, spec: str, price: Price | None, wrong: str = "neutral") -> None:
        self.spec, self.price, self.wrong, self.calls = spec, price, wrong, 0
        self.fingerprint = spec

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        self.calls += len(prompts)
        return [Completion(self._answer(prompt.messages[-1].content), "stop", 300, 30) for prompt in prompts]

    def _answer(self, asked: str) -> str:
        segments = asked.split("Segment ")[1:]
        says = [self.wrong if "sea" in text else "contradicts" if "1920" in text else "entails" for text in segments]
        entries = [{"claim": 1, "segment": n, "verdict": one, "why": "so"} for n, one in enumerate(says, start=1)]
        return json.dumps({"verdicts": entries})


@pytest.fixture
def judges(monkeypatch: pytest.MonkeyPatch) -> dict[str, Reading]:
    found = {
        "litellm:cheap": Reading("litellm:cheap", Price(1e-6, 1e-6), wrong="entails"),
        "litellm:dear": Reading("litellm:dear", Price(1e-4, 1e-3)),
        "litellm:unpriced": Reading("litellm:unpriced", None),
        "hf:local": Reading("hf:local", Price(0.0, 0.0)),
    }
    for spec, engine in found.items():
        monkeypatch.setitem(engines._loaded, spec, engine)
    return found


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "human.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return path


def run(*arguments: Any, says: str | None = None) -> Result:
    app = typer.Typer()
    app.command(epilog=_calibrate.EXAMPLES)(_calibrate.calibrate)
    return CliRunner().invoke(app, list(map(str, arguments)), input=says)


def test_a_dry_run_says_how_many_calls_and_makes_none(labels: Path, judges: dict[str, Reading]) -> None:
    found = run("--labels", labels, "--judge", "litellm:cheap", "--against", "litellm:dear", "--dry-run")
    assert found.exit_code == 0
    assert "4 labelled rows" in found.output
    assert found.output.count("4 pairs judged: 2 calls") == 2
    found = run("--labels", labels, "--judge", "litellm:dear", "--dry-run", "--json")
    plan = json.loads(found.output)["plans"][0]
    assert (plan["calls"], plan["engine"]) == (2, "litellm:dear")
    assert 0 < plan["usd"] <= plan["maximum"]["usd"]
    assert sum(judge.calls for judge in judges.values()) == 0


@pytest.mark.parametrize(
    ("spec", "price"), [("litellm:dear", "about USD 0."), ("litellm:unpriced", "nobody here knows")]
)
def test_what_costs_money_is_not_asked_before_somebody_agrees(
    labels: Path, judges: dict[str, Reading], spec: str, price: str
) -> None:
    found = run("--labels", labels, "--judge", spec)
    assert isinstance(found.exception, ConfigurationError)
    for part in (f"{spec} may cost money: about 2 calls", price, "--yes", "--dry-run"):
        assert part in str(found.exception)
    found = run("--labels", labels, "--judge", "hf:local", "--against", spec)
    assert isinstance(found.exception, ConfigurationError)
    assert sum(judge.calls for judge in judges.values()) == 0
    assert run("--labels", labels, "--judge", spec, "--yes").exit_code == 0
    assert judges[spec].calls == 2


def test_a_judge_on_this_machine_is_asked_at_once_and_its_rates_are_printed(
    labels: Path, judges: dict[str, Reading]
) -> None:
    found = run("--labels", labels, "--judge", "hf:local", "--correct", "90/120")
    assert found.exit_code == 0, found.exception
    for part in ("hf:local against 4 labelled rows", "sensitivity, entails", "specificity, contradicts", "kappa"):
        assert part in found.output
    assert "undetermined: 0 of 4" in found.output
    assert "90 of 120 observed entails (0.75), corrected" in found.output
    assert judges["hf:local"].calls == 2


def test_json_has_every_number_and_nothing_else(labels: Path, judges: dict[str, Reading]) -> None:
    found = json.loads(run("--labels", labels, "--judge", "hf:local", "--correct", "3/4", "--json").output)
    assert found["confusion"]["contradicts"] == {"entails": 0, "contradicts": 1, "neutral": 0, "undetermined": 0}
    assert found["accuracy"]["value"] == found["kappa"]["value"] == 1.0
    assert found["corrected"]["value"] == 0.75
    assert found["rows"] == 4


def test_two_judges_are_compared_with_the_cascade_and_its_cost(labels: Path, judges: dict[str, Reading]) -> None:
    choice = ("--labels", labels, "--judge", "litellm:cheap", "--against", "litellm:dear", "--yes")
    found = run(*choice)
    assert found.exit_code == 0, found.exception
    for part in ("agree: 0.75", "McNemar's exact p = 1", "line 3: label neutral, entails against neutral", "escalates"):
        assert part in found.output
    told = json.loads(run(*choice, "--repeats", "3", "--json").output)
    assert told["agreement"]["value"] == 0.75
    assert [one["line"] for one in told["differences"]] == [3]
    assert told["cheap"]["cost"]["calls"] == 6
    assert told["expensive"]["cost"]["calls"] == 2
    assert told["cascade"]["escalated"]["value"] == 0.0
    assert told["cascade"]["usd_saved"]["value"] > 0.9


def test_a_budget_holds_for_both_judges_together(labels: Path, judges: dict[str, Reading]) -> None:
    run("--labels", labels, "--judge", "litellm:cheap", "--against", "litellm:dear", "--yes", "--budget", "calls=3")
    assert judges["litellm:cheap"].calls + judges["litellm:dear"].calls <= 3


@pytest.mark.parametrize("text", ["3", "5/4", "0/0", "-1/4", "a/b", "1/2/3"])
def test_a_rate_that_is_none_is_refused_before_anything_is_asked(
    labels: Path, judges: dict[str, Reading], text: str
) -> None:
    found = run("--labels", labels, "--judge", "hf:local", f"--correct={text}")
    assert isinstance(found.exception, ConfigurationError)
    assert text in str(found.exception)
    assert judges["hf:local"].calls == 0


def test_a_bad_row_is_named(labels: Path, judges: dict[str, Reading]) -> None:
    labels.write_text(json.dumps(ROWS[0]) + "\n" + json.dumps(ROWS[0] | {"label": "maybe"}), encoding="utf-8")
    found = run("--labels", labels, "--judge", "hf:local")
    assert isinstance(found.exception, DatasetError)
    assert "line 2 has label 'maybe'" in str(found.exception)
