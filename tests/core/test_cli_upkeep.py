"""Old traces and measured values are deleted on request, never by surprise."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from attr_core import cli, engines
from attr_core._files import read_messages
from attr_core.cache import Cache
from attr_core.protocols import Completion
from attr_core.store import Store
from attr_core.testing import AdditiveEngine
from attr_core.types import Trace

FACT = "The Aldemoor fair opened in 1911."
ANSWER = "It opened in 1911."


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = AdditiveEngine({"1911": {FACT: 9.0}}, bias=-5.0, answer=ANSWER)
    monkeypatch.setitem(engines._loaded, "hf:known", known)
    monkeypatch.setenv("ATTRKIT_ENGINE", "hf:known")


def stored(days: float) -> Trace:
    """A trace that was started so many days ago."""
    trace = Trace.from_messages([{"role": "user", "content": f"{FACT}\n\nWhen did it open?"}], ANSWER)
    trace = replace(trace, started=datetime.now(UTC) - timedelta(days=days))
    with Store() as store:
        store.save(trace)
    return trace


def kept() -> set[str]:
    with Store() as store:
        return {summary.id for summary in store.list(limit=None)}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli._run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


class Terminal(io.StringIO):
    """Somebody who types what they are told to."""

    def isatty(self) -> bool:
        return True


def test_old_traces_go_with_their_attributions_and_new_ones_stay(capsys: pytest.CaptureFixture[str]) -> None:
    new, _, oldest = stored(1), stored(31), stored(400)
    for trace in (new, oldest):
        assert run(capsys, "inspect", trace.id)[0] == 0
    arguments = ("traces", "prune", "--older-than", "30d")
    assert run(capsys, *arguments, "--dry-run")[1] == "would delete 2 traces and 1 attribution\n"
    assert len(kept()) == 3
    assert run(capsys, *arguments, "--yes")[1] == "deleted 2 traces and 1 attribution\n"
    assert kept() == {new.id}
    assert run(capsys, *arguments, "--yes")[1] == "deleted 0 traces and 0 attributions\n"
    with Store() as store:
        assert len(store.attributions(new.id)) == 1
    with Cache() as cache:
        assert cache.stats().n_entries > 0  # what was paid for is not a trace's


def test_a_date_is_an_age_too_and_json_says_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    stored(10)
    day = f"{datetime.now(UTC) - timedelta(days=5):%Y-%m-%d}"
    code, out, err = run(capsys, "traces", "prune", "--older-than", day, "--yes", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["traces"], found["attributions"], found["deleted"]) == (1, 0, True)
    assert found["before"].startswith(day)
    assert json.loads(run(capsys, "traces", "prune", "--older-than", day, "--dry-run", "--json")[1])["deleted"] is False


def test_one_trace_is_deleted_by_its_whole_id_even_if_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = stored(1), stored(2)
    with Store() as store, store._database.writing() as db:
        db.execute("UPDATE traces SET metadata = '{' WHERE id = ?", [one.id])
    code, _, err = run(capsys, "inspect", one.id)
    assert code == 2
    assert "attrkit traces delete" in err
    assert run(capsys, "traces", "delete", one.id[:8], "--yes")[0] == 2
    assert run(capsys, "traces", "delete", one.id, "--yes")[:2] == (0, f"deleted {one.id}\n")
    assert kept() == {other.id}


def test_a_trace_is_shown_and_its_json_can_be_inspected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hostile = "\x1b[2Jred \u202e [bold]"
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"q": "fair"}'}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": f"{FACT}\n\nWhen did it open? {hostile}"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "a\ud800b"},
    ]
    trace = Trace.from_messages(messages, ANSWER, documents=[{"id": "fair", "text": FACT}], model="m")
    with Store() as store:
        store.save(trace)
    code, out, _ = run(capsys, "traces", "show", "last")
    assert code == 0
    for part in (trace.id, f"user\n  {FACT}\n", "search", f"answer\n  {ANSWER}\n", "document fair", "[bold]"):
        assert part in out
    assert not set(out) & {"\x1b", "\u202e"}
    code, out, _ = run(capsys, "traces", "show", trace.id[:8], "--json")
    found = json.loads(out)
    assert (code, found["messages"][2]["content"], found["model"]) == (0, "a\ud800b", "m")
    file = tmp_path / "call.json"
    file.write_text(out)
    read = read_messages(file)
    assert read.generations[0].messages == trace.generations[0].messages
    assert (read.answer, read.documents) == (ANSWER, trace.documents)
    assert run(capsys, "traces", "show", "tr_absent")[0] == 2


DELETIONS = {
    "traces prune": ["traces", "prune", "--older-than", "30d"],
    "traces delete": ["traces", "delete", "ID"],
    "cache clear": ["cache", "clear"],
    "cache prune": ["cache", "prune", "--max-bytes", "0"],
}


@pytest.mark.parametrize("name", sorted(DELETIONS))
def test_nothing_is_deleted_without_a_yes(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = stored(60)
    with Cache() as cache:
        cache.put_completions({"k": Completion("text")})
    arguments = [argument.replace("ID", trace.id) for argument in DELETIONS[name]]

    def left() -> tuple[int, int]:
        with Cache() as cache:
            return len(kept()), cache.stats().n_entries

    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))  # a pipe, not a person
    code, out, err = run(capsys, *arguments)
    assert (code, out, left()) == (2, "", (1, 1))
    assert "Add --yes to delete" in err
    assert len(err.splitlines()) == 1
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert run(capsys, *arguments)[0] == 130
    assert left() == (1, 1)
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    code, out, err = run(capsys, *arguments)
    assert (code, "deleted" in out, "Delete" in err) == (0, True, True)
    assert sum(left()) == 1


def test_the_cache_is_counted_cleared_and_pruned(capsys: pytest.CaptureFixture[str]) -> None:
    with Cache() as cache:
        cache.put_completions({str(i): Completion("x" * 1000) for i in range(10)})
    code, out, _ = run(capsys, "cache", "stats")
    assert code == 0
    assert out.startswith("10 values (10 completions) in ")
    found = json.loads(run(capsys, "cache", "stats", "--json")[1])
    assert (found["entries"], found["kinds"], found["max_bytes"]) == (10, {"completions": 10}, 1_000_000_000)
    _, out, _ = run(capsys, "cache", "prune", "--max-bytes", str(found["bytes"] // 2), "--yes")
    assert out.startswith("deleted 5 measured values; 5 values of ")
    assert json.loads(run(capsys, "cache", "clear", "--yes", "--json")[1]) == {"removed": 5, "entries": 0, "bytes": 0}
    assert run(capsys, "cache", "clear")[1].startswith("deleted 0")  # nothing to ask about
    assert run(capsys, "cache", "prune")[1].startswith("deleted 0")


def test_the_cap_of_the_environment_is_what_prune_keeps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cache() as cache:
        cache.put_completions({str(i): Completion("x" * 1000) for i in range(10)})
    monkeypatch.setenv("ATTRKIT_CACHE_MAX_BYTES", "3000")
    assert run(capsys, "cache", "prune", "--yes")[1].startswith("deleted 8 measured values; 2 values of ")


def test_pruning_another_file_than_the_one_named_is_impossible(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stored(60)
    arguments = ("--db", str(tmp_path / "other.db"), "prune", "--older-than", "30d", "--yes")
    code, _, err = run(capsys, "traces", *arguments)
    assert code == 2
    assert "options go after 'prune'" in err
    assert len(kept()) == 1


@pytest.mark.parametrize("age", ["yore", "-3d", "30", "30y", "99999999999999999d", "d", "٣x", ""])
def test_an_age_that_is_none_is_refused(age: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "traces", "prune", f"--older-than={age}", "--yes")
    assert (code, out) == (2, "")
    assert err == f"attrkit: --older-than {age!r} is no date; write 2026-11-30, 7d, 12h or 30m\n"


@pytest.mark.parametrize("command", [["traces"], ["traces", "prune"], ["traces", "delete"], ["cache"], ["doctor"]])
def test_help_is_there(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *command, "--help")
    assert (code, f"attrkit {' '.join(command)}" in out) == (0, True)


def test_cache_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "cache")
    assert (code, "prune" in out) == (0, True)


def test_a_database_that_cannot_be_used_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "text.db"
    path.write_text("this is a text file, not a database " * 40)
    for arguments in (["cache", "stats"], ["cache", "clear", "-y"], ["traces", "prune", "--older-than", "1d", "-y"]):
        code, out, err = run(capsys, *arguments, "--db", str(path))
        assert (code, out) == (2, "")
        assert f"{path} is not an SQLite database" in err
        assert len(err.splitlines()) == 1
