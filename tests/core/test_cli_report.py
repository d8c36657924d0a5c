"""``attrkit report``: which results of a run are written, in which format, and where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from report_samples import attribution_of, diagnosis_of, run
from typer.testing import CliRunner

from attr_core.cli._report import report
from attr_core.errors import ConfigurationError, InputError
from attr_core.store import Store
from attr_core.types import Trace

_app = typer.Typer()
_app.command()(report)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    trace = run()
    db = tmp_path / "a.db"
    monkeypatch.setenv("ATTRKIT_DB", str(db))
    with Store(db) as store:
        store.save(trace)
        store.save_attribution(attribution_of(trace))
        store.save_diagnosis(diagnosis_of(trace))
    return trace


def _run(*arguments: str) -> tuple[int, str, str, BaseException | None]:
    result = CliRunner().invoke(_app, list(arguments))
    return result.exit_code, result.stdout, result.stderr, result.exception


@pytest.mark.parametrize(
    ("name", "begins"),
    [("r.html", "<!DOCTYPE html>"), ("r.json", "{\n"), ("r.csv", "target,target_kind"), ("r.md", "# attrkit report")],
)
def test_the_files_name_tells_the_format(stored: Trace, tmp_path: Path, name: str, begins: str) -> None:
    path = tmp_path / name
    code, out, err, _ = _run("last", "-o", str(path))
    assert (code, err) == (0, "")
    assert out.startswith(f"wrote {path} (")
    assert path.read_text(encoding="utf-8").startswith(begins)


def test_without_a_file_the_report_goes_to_standard_output_alone(stored: Trace) -> None:
    code, out, _, _ = _run(stored.id[:4], "--format", "json")
    assert code == 0
    found = json.loads(out)
    assert found["diagnosis"]["label"] == "chunk_dominance"
    assert len(found["attribution"]["segments"]) == 6
    assert _run("last")[1].startswith("<!DOCTYPE html>")


def test_the_last_result_that_has_claims_is_shown(stored: Trace) -> None:
    first = attribution_of(stored, method="ResponseLogOdds × A", seed=1)
    whole = replace(
        attribution_of(stored, method="ReferenceContrast × B", seed=2),
        targets=tuple(replace(target, claim=None) for target in first.targets),
    )
    with Store() as store:
        store.save_attribution(first)
        store.save_attribution(whole)
    assert json.loads(_run("last", "--format", "json")[1])["attribution"]["method"] == "ResponseLogOdds × A"


def test_a_run_of_which_nothing_is_known_is_reported_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "b.db"))
    with Store() as store:
        store.save(run())
    code, out, err, _ = _run("last", "-o", str(tmp_path / "r.html"))
    assert code == 0
    assert "nothing was measured of tr_1 yet: attrkit inspect tr_1" in err
    assert out.startswith("wrote ")


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (("-o", "r.xlsx"), ConfigurationError, "'r.xlsx' does not tell the format"),
        (("--format", "pdf"), ConfigurationError, "format 'pdf' is unknown; choose html, json, csv, markdown"),
        (("--step", "3"), InputError, "step 3 does not exist; trace tr_1 has 1 model call"),
        (("-o", "missing/r.html"), ConfigurationError, "cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    stored: Trace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    kind: type[Exception],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    error = _run("last", *arguments)[3]
    assert isinstance(error, kind)
    assert message in str(error)
