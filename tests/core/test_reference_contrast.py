"""Against an expected answer: who leads the model right, who misleads it, and what cannot be told."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from attr_core.algorithms import ReferenceAlgorithm
from attr_core.api import attribute, plan
from attr_core.attribution import Attribution
from attr_core.cli import app
from attr_core.errors import InputError
from attr_core.protocols import Engine
from attr_core.reports.compact import compact
from attr_core.reports.terminal import render_attribution
from attr_core.testing import AdditiveEngine
from attr_core.types import TargetKind, Trace

RIGHT, WRONG, OTHER = "The Aldemoor fair opened in 1911.", "The Aldemoor fair opened in 1937.", "Lamps are sold there."
ANSWER = "It opened in 1937."
EXPECTED = "It opened in 1911."


def trace(expected: str | None = EXPECTED) -> Trace:
    user = "\n\n".join([RIGHT, WRONG, OTHER, "When did the Aldemoor fair open?"])
    return Trace.from_messages(
        [{"role": "user", "content": user}], ANSWER, documents=[RIGHT, WRONG, OTHER], reference=expected
    )


def engine() -> AdditiveEngine:
    return AdditiveEngine({"1911": {RIGHT: 6.0}, "1937": {WRONG: 4.0}}, bias=-2.0)


def columns(found: Attribution) -> list[int]:
    texts = [segment.text for segment in found.segments]
    return [texts.index(text) for text in (RIGHT, WRONG, OTHER)]


def test_effects_are_what_speaks_for_the_expected_answer_less_what_speaks_for_the_recorded_one() -> None:
    found = attribute(trace(), engine=engine(), algorithm="reference", db=":memory:")
    [target] = found.targets
    assert (target.kind, target.text) == (TargetKind.REFERENCE, EXPECTED)
    np.testing.assert_allclose(found.effects[0, columns(found)], [6.0, -4.0, 0.0], atol=1e-9)
    assert [str(found.verdicts[0, column]) for column in columns(found)] == ["helpful", "harmful", "no effect"]
    assert found.full[0] == pytest.approx(2.0)
    assert found.closed_book[0] == pytest.approx(0.0)
    assert not found.is_known(0)


def test_it_comes_back_from_json_and_stands_in_the_compact_form() -> None:
    found = attribute(trace(), engine=engine(), algorithm="reference", db=":memory:")
    again = Attribution.from_dict(found.to_dict())
    np.testing.assert_array_equal(again.effects, found.effects)
    causes = compact(found)["expected"]["causes"]
    assert [cause["verdict"] for cause in causes] == ["helpful", "harmful"]


def test_both_texts_are_paid_for_within_what_the_plan_says() -> None:
    counting = engine()
    planned = plan(trace(), engine=counting, algorithm="reference", regenerations=False)
    spent = attribute(trace(), engine=counting, algorithm="reference", regenerations=False, db=":memory:").cost
    assert spent.calls == counting.calls == planned.calls == 2 * 2**3


@pytest.mark.parametrize("expected", [None, "  "])
def test_without_an_expected_answer_it_says_how_to_give_one(expected: str | None) -> None:
    with pytest.raises(InputError, match="--expected"):
        attribute(trace(expected), engine=engine(), algorithm="reference", db=":memory:")


def test_an_expected_answer_that_was_given_leaves_nothing_to_tell_apart() -> None:
    with pytest.raises(InputError, match="nothing to tell apart"):
        attribute(trace(f" {ANSWER}\n"), engine=engine(), algorithm="reference", db=":memory:")


def test_another_answer_that_nobody_says_is_right_is_driven_or_opposed_never_helped() -> None:
    found = attribute(trace(None), engine=engine(), algorithm=ReferenceAlgorithm(instead=EXPECTED), db=":memory:")
    assert (found.targets[0].text, found.method) == (EXPECTED, "ReferenceContrast[instead] × Banzhaf")
    np.testing.assert_allclose(found.effects[0, columns(found)], [6.0, -4.0, 0.0], atol=1e-9)
    assert [str(found.verdicts[0, column]) for column in columns(found)] == ["drives", "opposes", "no effect"]
    console = Console(width=120, record=True, color_system=None, file=io.StringIO())
    console.print(render_attribution(found))
    assert "instead “It opened in 1911.”" in console.export_text()


def test_another_answer_is_contrasted_whatever_is_expected_and_is_the_expected_one_where_both_are_the_same() -> None:
    other = "It opened in 1950."
    apart = attribute(trace(), engine=engine(), algorithm=ReferenceAlgorithm(instead=other), db=":memory:")
    assert apart.targets[0].text == other
    assert "helpful" not in apart.verdicts
    alike = ReferenceAlgorithm(instead=" it opened  in 1911.")
    same = attribute(trace(), engine=engine(), algorithm=alike, db=":memory:")
    assert [str(same.verdicts[0, column]) for column in columns(same)] == ["helpful", "harmful", "no effect"]


@pytest.mark.parametrize(("instead", "told"), [("  ", "--instead"), (ANSWER, "the other answer is what was answered")])
def test_another_answer_that_is_none_is_refused(instead: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        attribute(trace(), engine=engine(), algorithm=ReferenceAlgorithm(instead=instead), db=":memory:")


def test_from_the_command_line_another_answer_implies_the_contrast(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("attr_core.engines.load_engine", lambda spec, **options: engine())
    file = tmp_path / "messages.json"
    messages = [{"role": "user", "content": f"{RIGHT}\n\n{WRONG}\n\nWhen?"}, {"role": "assistant", "content": ANSWER}]
    file.write_text(json.dumps(messages))
    call = ["inspect", "--file", str(file), "--engine", "hf:any", "--db", str(tmp_path / "a.db"), "--json"]
    call += ["--granularity", "paragraph"]
    told = CliRunner().invoke(app, [*call, "--instead", EXPECTED])
    assert told.exit_code == 0, told.output
    found = Attribution.from_dict(json.loads(told.stdout))
    assert found.targets[0].text == EXPECTED
    assert {"drives", "opposes"} <= set(found.verdicts.ravel().tolist())
    refused = CliRunner().invoke(app, [*call, "--instead", EXPECTED, "--algorithm", "similarity"])
    assert "leave out --algorithm similarity" in str(refused.exception) + refused.output


@pytest.mark.model
def test_on_a_real_model_the_rival_is_what_misleads(small_engine: Engine) -> None:
    asked = trace("The Aldemoor fair opened in 1911.")
    found = attribute(asked, engine=small_engine, algorithm="reference", regenerations=False, db=":memory:")
    right, wrong, _ = columns(found)
    assert found.effects[0, right] > found.delta[0] > 0 > -found.delta[0] > found.effects[0, wrong]
