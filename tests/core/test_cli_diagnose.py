"""``attrkit diagnose`` and ``attrkit prove``: what is printed, what is asked first, and how it ends."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from attr_core import cli
from attr_core.evaluation.planted import PerfectJudge, planted
from attr_core.store import Store
from attr_core.testing import ScriptedEngine


@pytest.fixture
def sample(tmp_path, monkeypatch):
    """A stored wrong answer; specs ``test:model`` and ``test:judge`` name the model that gave it, and a judge."""
    found = planted(labels=("chunk_dominance",), per_label=1)[0]
    db = tmp_path / "a.db"
    with Store(db) as store:
        store.save(replace(found.trace, reference=None))
    monkeypatch.setenv("ATTRKIT_DB", str(db))
    engines = {"test:model": found.model, "test:paid": _paid()}

    def load(spec, **_):
        return engines[spec] if isinstance(spec, str) else spec

    for module in ("attr_core.engines", "attr_core.api", "attr_core.planning"):
        monkeypatch.setattr(f"{module}.load_engine", load)
    monkeypatch.setattr("attr_core.api.load_judge", lambda *_, **__: PerfectJudge())
    return found


def _paid():
    from attr_core.protocols import Price

    return ScriptedEngine("x", price=Price(1e-6, 1e-6), spec="test:paid")


def _out(capsys, *arguments: str) -> tuple[int, str, str]:
    code = cli._run(list(arguments))
    found = capsys.readouterr()
    return code, found.out, found.err


def test_a_diagnosis_is_shown_with_its_culprit_proof_and_remedy(sample, capsys) -> None:
    code, out, _ = _out(capsys, "diagnose", "last", "--engine", "test:model", "--expected", sample.expected)
    assert code == 0
    assert out.startswith("chunk_dominance: chunk ")
    for part in ("misled the model", "evidence", "proof", "what to do", "re-rank or drop", "metrics", "cost:"):
        assert part in out


def test_json_is_the_whole_diagnosis_and_nothing_else(sample, capsys) -> None:
    code, out, _ = _out(capsys, "diagnose", "last", "--engine", "test:model", "--expected", sample.expected, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["label"] == "chunk_dominance"
    assert {found["schema"], found["trace_id"]} == {1, sample.trace.id}


def test_a_proof_is_run_again_without_a_call(sample, capsys) -> None:
    _out(capsys, "diagnose", "last", "--engine", "test:model", "--expected", sample.expected)
    code, out, _ = _out(capsys, "prove", "last", "--engine", "test:model")
    assert code == 0
    assert "the proof holds" in out
    assert "0 model calls" in out


def test_proving_before_diagnosing_says_what_to_do(sample, capsys) -> None:
    code, _, err = _out(capsys, "prove", "last", "--engine", "test:model")
    assert code == 2
    assert "run attrkit diagnose" in err


def test_expected_and_instead_together_are_refused(sample, capsys) -> None:
    code, _, err = _out(capsys, "diagnose", "last", "--engine", "test:model", "--expected", "a", "--instead", "b")
    assert code == 2
    assert "give one of them" in err


def test_an_answer_held_instead_is_not_kept(sample, capsys) -> None:
    _out(capsys, "diagnose", "last", "--engine", "test:model", "--instead", sample.expected)
    with Store() as store:
        assert store.get(sample.trace.id).reference is None


def test_what_costs_money_asks_first(sample, capsys) -> None:
    code, _, err = _out(capsys, "diagnose", "last", "--engine", "test:paid")
    assert code == 2
    assert "may cost money" in err
    assert "--yes" in err


def test_an_unknown_strategy_says_which_there_are(sample, capsys) -> None:
    code, _, err = _out(capsys, "diagnose", "last", "--engine", "test:model", "--strategy", "guess")
    assert code == 2
    assert "'cause' or 'support'" in err


def test_what_a_document_says_is_shown_as_inert_text(sample, capsys) -> None:
    trace = replace(sample.trace, query="\x1b[31mWhen\u202e?", reference=None)
    with Store() as store:
        store.save(trace)
    _, out, _ = _out(capsys, "diagnose", "last", "--engine", "test:model", "--expected", sample.expected)
    assert "\x1b" not in out
    assert "\u202e" not in out
