"""The planted-failure set as files: the same bytes for the same seed, read back as written, refused where damaged."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attr_core.cli import _bench_set
from attr_core.errors import ConfigurationError, DatasetError
from attr_core.evaluation.planted import LABELS, planted
from attr_core.evaluation.planted.files import LICENCE, SET_VERSION, card_path, read_set, write_set
from attr_core.evaluation.rows import read_rows

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "benchmarks" / "data" / "planted-sample.jsonl"


def written(folder: Path, **options: Any) -> Path:
    path = folder / "set.jsonl"
    write_set(path, **{"labels": ("ok", "flaky"), "per_label": 2, **options})
    return path


def test_the_same_seed_gives_the_same_bytes_in_another_process_too(tmp_path: Path) -> None:
    first = written(tmp_path / "a")
    program = (
        "from attr_core.evaluation.planted.files import write_set; import sys; "
        "write_set(sys.argv[1], labels=('ok', 'flaky'), per_label=2)"
    )
    second = tmp_path / "b" / "set.jsonl"
    subprocess.run([sys.executable, "-c", program, str(second)], check=True, env={"PYTHONHASHSEED": "7"}, cwd=ROOT)
    assert second.read_bytes() == first.read_bytes()
    assert card_path(second).read_bytes() == card_path(first).read_bytes()


def test_another_seed_gives_another_set_of_the_same_labels(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a"), written(tmp_path / "b", seed=1)
    assert first.read_bytes() != second.read_bytes()
    assert read_set(first).card["labels"] == read_set(second).card["labels"] == {"ok": 2, "flaky": 2}


def test_the_sample_that_is_shipped_is_what_this_version_writes(tmp_path: Path) -> None:
    # Where this fails because the generator was changed on purpose: raise SET_VERSION, and write the sample again.
    path = tmp_path / "planted-sample.jsonl"
    write_set(path, per_label=2)
    assert path.read_bytes() == SHIPPED.read_bytes()
    assert card_path(path).read_bytes() == card_path(SHIPPED).read_bytes()


def test_what_was_written_is_read_back_as_it_was(tmp_path: Path) -> None:
    found = read_set(SHIPPED)
    assert found.samples == planted(per_label=2)
    assert found.card["version"] == SET_VERSION
    assert found.card["sha256"] == hashlib.sha256(SHIPPED.read_bytes()).hexdigest()
    assert found.card["labels"] == dict.fromkeys(LABELS, 2)


def test_a_set_is_an_evaluation_set_that_needs_no_option_and_no_app() -> None:
    rows = read_rows(SHIPPED)
    assert rows.has_answers
    assert Counter(row.tags[0] for row in rows.rows) == dict.fromkeys(LABELS, 2)
    assert not [row.id for row in rows.rows if row.trouble]
    by_id = {one.id: one for one in planted(per_label=2)}
    for row in rows.rows:
        sample = by_id[row.id]
        assert (row.query, row.expected_answer) == (sample.trace.query, sample.expected)
        assert row.answer == sample.trace.target_generation.written


def test_contexts_of_a_row_are_those_that_stand_in_the_prompt() -> None:
    rows = {row.id: row for row in read_rows(SHIPPED).rows}
    for sample in planted(("dropped_from_prompt",), per_label=2):
        held = {one.id for one in rows[sample.id].contexts or ()}
        assert held
        assert not held & set(sample.right)


def test_a_set_without_its_card_is_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    card_path(path).unlink()
    assert (len(read_set(path).samples), read_set(path).card) == (4, {})


def _other_schema(row: dict[str, Any]) -> None:
    row["planted"]["schema"] = "attrkit.planted/9"


def _no_sample(row: dict[str, Any]) -> None:
    del row["planted"]


def _no_messages(row: dict[str, Any]) -> None:
    del row["planted"]["messages"]


def _odd_model(row: dict[str, Any]) -> None:
    row["planted"]["model"]["policy"] = "guesses well"


def _odd_messages(row: dict[str, Any]) -> None:
    row["planted"]["messages"] = 7


@pytest.mark.parametrize("edit", [_other_schema, _no_sample, _no_messages, _odd_model, _odd_messages])
def test_a_damaged_line_is_named_by_its_number(tmp_path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    path = written(tmp_path)
    card_path(path).unlink()
    lines = path.read_text().splitlines()
    row = json.loads(lines[2])
    edit(row)
    path.write_text("\n".join([*lines[:2], json.dumps(row), *lines[3:]]))
    with pytest.raises(DatasetError, match=r"set\.jsonl:3"):
        read_set(path)


def test_rows_that_are_not_those_of_the_card_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("opened", "closed", 1) + "\n")
    with pytest.raises(DatasetError, match="sha256 differs"):
        read_set(path)


@pytest.mark.parametrize(
    ("text", "why"), [("", "holds no sample"), ("{", "is not JSON"), ("[1]", "holds no planted sample")]
)
def test_a_file_that_is_no_set_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(text)
    with pytest.raises(DatasetError, match=why):
        read_set(path)
    with pytest.raises(DatasetError, match="cannot be read"):
        read_set(tmp_path / "none.jsonl")


def test_a_card_that_is_none_and_a_sample_that_stands_twice_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    card_path(path).write_text('{"schema": "other/1"}')
    with pytest.raises(DatasetError, match="other/1"):
        read_set(path)
    card_path(path).unlink()
    path.write_text(path.read_text() * 2)
    with pytest.raises(DatasetError, match="twice"):
        read_set(path)


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for options in ({"labels": ("no_such",)}, {"per_label": 0}, {"labels": ()}):
        with pytest.raises(ConfigurationError):
            written(tmp_path, **options)
    with pytest.raises(ConfigurationError, match=r"end with \.jsonl"):
        write_set(tmp_path / "set.csv")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_set(tmp_path / "file" / "set.jsonl", per_label=1, labels=("ok",))


def test_the_command_writes_the_set_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "set.jsonl"
    _bench_set.bench_set(out=path, per_label=1, label=["ok"])
    out = capsys.readouterr().out
    assert "1 sample of 1 label written" in out
    assert "set.card.json" in out
    _bench_set.bench_set(out=path, per_label=1, label=["ok"], json_=True)
    assert json.loads(capsys.readouterr().out)["licence"] == LICENCE


def test_the_datasheet_names_every_label_the_version_and_the_licence() -> None:
    told = (ROOT / "docs" / "bench-set.md").read_text()
    assert not [label for label in LABELS if f"`{label}`" not in told]
    assert re.search(rf"version {re.escape(SET_VERSION)}, seed 0", told)
    assert LICENCE in told


def test_the_example_of_the_datasheet_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "bench-set.md").read_text(), re.DOTALL)
    exec(compile(block, "bench-set.md", "exec"), {})  # noqa: S102
