"""Many writers at once, full disks, read-only places, cut files, killed processes: one clear line, nothing lost."""

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attr_core._storage import database as _database
from attr_core.api import attribute
from attr_core.cache import Cache
from attr_core.errors import CacheError, StoreError
from attr_core.metering import MeteredEngine
from attr_core.protocols import Completion
from attr_core.store import Store
from attr_core.testing import AdditiveEngine
from attr_core.types import Message, Prompt, Trace

NOBODY = 65534
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX permissions, limits and signals")


def make_trace(tag, length=20):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{tag} " * length}]
    trace = Trace.from_messages(messages, f"answer to {tag}", documents=[f"about {tag}"], query=tag)
    return replace(trace, id=f"tr_{tag}")


def same(read, tag, length=20):
    expected = make_trace(tag, length)
    (one,), (other,) = read.generations, expected.generations
    return (
        (read.id, read.query, read.answer) == (expected.id, expected.query, expected.answer)
        and (one.messages, one.response) == (other.messages, other.response)
        and [document.text for document in read.documents] == [f"about {tag}"]
    )


def save_many(path, name, n, store=None):
    with contextlib.nullcontext(store) if store else Store(path) as opened:
        for i in range(n):
            opened.save(make_trace(f"{name}-{i}"))


def one_line(raised, path):
    text = str(raised.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text


def test_sixteen_threads_and_four_processes_store_fifty_traces_each(tmp_path):
    path, failures = tmp_path / "attrkit.db", []

    def work(i):
        try:
            save_many(path, f"thread{i}", 50, store if i % 2 else None)  # half of them share one store
        except BaseException as error:
            failures.append(error)

    spawn = multiprocessing.get_context("spawn")
    with Store(path) as store:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        processes = [spawn.Process(target=save_many, args=(path, f"process{i}", 50)) for i in range(4)]
        for worker in [*threads, *processes]:
            worker.start()
        for worker in [*threads, *processes]:
            worker.join(120)
        assert failures == []
        assert [process.exitcode for process in processes] == [0] * 4
        names = [f"thread{i}" for i in range(16)] + [f"process{i}" for i in range(4)]
        tags = [f"{name}-{i}" for name in names for i in range(50)]
        assert {summary.query for summary in store.list(limit=None)} == set(tags)
        assert all(same(store.get(f"tr_{tag}"), tag) for tag in tags)
        store.check()


@contextlib.contextmanager
def small_disk(kilobytes):
    """A real file system that is soon full."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder]
        try:
            mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            mounted = False
        if not mounted:
            pytest.skip("needs the right to mount a small file system")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)  # noqa: S607


def fill(store):
    """Save until the store fails; how many were stored, and the failure."""
    for i in range(10_000):
        try:
            store.save(make_trace(str(i), 400))
        except StoreError as error:
            return i, str(error)
    raise AssertionError("never full")


def test_a_full_disk_says_so_and_keeps_what_is_stored():
    with small_disk(600) as folder:
        path = folder / "attrkit.db"
        with Store(path) as store:
            n, message = fill(store)
            assert message == f"{path} cannot grow because the disk is full; free some space"
            assert n > 5
            assert all(same(store.get(f"tr_{i}"), str(i), 400) for i in range(n))
        with Store(path) as store:
            assert len(store.list(limit=None)) == n
            store.check()
        with pytest.raises(StoreError, match="disk is full"):
            Store(folder / "another.db")


def test_a_file_that_may_not_grow_keeps_what_is_stored_and_goes_on_when_it_may(tmp_path):
    with Store(tmp_path / "attrkit.db") as store:
        store.save(make_trace("first", 400))
        with store._database.reading() as db:
            db.execute("PRAGMA max_page_count = 60")
        n, message = fill(store)
        assert "cannot grow because the disk is full" in message
        assert same(store.get("tr_first"), "first", 400)
        assert all(same(store.get(f"tr_{i}"), str(i), 400) for i in range(n))
        with store._database.reading() as db:
            db.execute("PRAGMA max_page_count = 100000")
        store.save(make_trace("later"))
        assert len(store.list(limit=None)) == n + 2


@posix
def test_a_process_at_its_file_size_limit_keeps_what_is_stored(tmp_path):
    path = tmp_path / "attrkit.db"
    program = f"""
import resource
from attr_core.store import Store
from attr_core.types import Trace
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
with Store({str(path)!r}) as store:
    try:
        for i in range(10_000):
            store.save(Trace.from_messages([{{"role": "user", "content": f"{{i}} " * 4000}}], str(i)))
    except Exception as error:
        print(i, type(error).__name__, error, sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    n, kind, message = done.stdout.splitlines()
    assert kind == "StoreError"
    assert message.startswith(f"{path} could not be read or written")
    with Store(path) as store:
        assert [summary.answer for summary in store.list(limit=None)] == [str(i) for i in reversed(range(int(n)))]


def prompts(n):
    return [Prompt((Message("user", f"{i} {'fair ' * 40}"),)) for i in range(n)]


def test_measuring_goes_on_from_memory_when_the_disk_is_full():
    engine = AdditiveEngine({"1911": {"fair": 3.0}})
    answer = "It opened in 1911, " + "they say, " * 40
    with small_disk(300) as folder, Cache(folder / "attrkit.db") as cache:
        with pytest.warns(RuntimeWarning, match="stay in memory: .* disk is full"):
            first = MeteredEngine(engine, cache=cache).score(prompts(300), answer)
        again = MeteredEngine(engine, cache=cache)
        assert [s.logprobs.tobytes() for s in again.score(prompts(300), answer)] == [
            s.logprobs.tobytes() for s in first
        ]
        assert (again.cost.calls, engine.calls) == (0, 300)
        assert 0 < cache.stats().n_entries < 300
        assert "disk is full" in cache.trouble


def test_an_attribution_is_measured_and_told_though_the_disk_is_full():
    fact, engine = "The fair opened in 1911.", AdditiveEngine({"1911": {"The fair opened in 1911.": 9.0}}, bias=-5.0)
    trace = Trace.from_messages([{"role": "user", "content": f"{fact}\n\nWhen did it open?"}], "It opened in 1911.")
    with small_disk(400) as folder:
        path = folder / "attrkit.db"
        with Store(path) as store:
            n, _ = fill(store)
        with pytest.warns(RuntimeWarning, match="stay in memory"):
            found = attribute(trace, engine=engine, db=path)
        assert "drives" in found.verdicts
        assert any("was not stored" in warning and "disk is full" in warning for warning in found.warnings)
        with Store(path) as store:
            assert len(store.list(limit=None)) == n


@contextlib.contextmanager
def without_privileges(folder):
    """Give the folder away and be nobody, where we are root: root may write anywhere."""
    if not IS_ROOT:
        yield
        return
    for place in (folder, *folder.iterdir()):
        os.chown(place, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@posix
@pytest.mark.parametrize(
    ("what", "modes"), [("folder", (0o555, 0o644)), ("file", (0o755, 0o444)), ("both", (0o555, 0o444))]
)
def test_a_read_only_place_is_refused_in_one_line_and_stays_as_it_was(what, modes):
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "attrkit.db"
        with Store(path) as store:
            store.save(make_trace("kept"))
        before = path.read_bytes()
        path.chmod(modes[1])
        folder.chmod(modes[0])
        with without_privileges(folder):
            with (
                pytest.raises(StoreError, match="cannot be written; make it and its folder writable") as raised,
                Store(path) as store,
            ):
                store.save(make_trace("new"))
            one_line(raised, path)
            if what == "folder":
                with pytest.raises(CacheError, match="cannot be written"):
                    Cache(path)
                with pytest.raises(StoreError, match=r"other\.db cannot be created"):
                    Store(folder / "other.db")
        folder.chmod(0o755)
        assert path.read_bytes() == before
        path.chmod(0o644)
        with Store(path) as store:
            assert [summary.query for summary in store.list()] == ["kept"]


@pytest.mark.parametrize("share", [0.001, 0.05, 0.3, 0.6, 0.9, 0.98])
def test_a_cut_file_gives_what_is_whole_or_one_clear_line(tmp_path, share):
    path = tmp_path / "attrkit.db"
    tags = [str(i) for i in range(60)]
    with Store(path) as store:
        for tag in tags:
            store.save(make_trace(tag, 200))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(StoreError, match="damaged SQLite database") as raised, Store(path) as store:
        store.check()
    one_line(raised, path)
    readable = 0
    for tag in tags:
        with contextlib.suppress(StoreError), Store(path) as store:
            assert same(store.get(f"tr_{tag}"), tag, 200)
            readable += 1
    assert readable < len(tags)


def test_a_file_deleted_or_replaced_while_open_is_said_not_written_into_the_void(tmp_path):
    path = tmp_path / "attrkit.db"
    with Store(path) as store:
        store.save(make_trace("old"))
        path.unlink()
        with pytest.raises(StoreError, match="moved, replaced or deleted while it was open; open it again") as raised:
            store.save(make_trace("new"))
        one_line(raised, path)
    with Store(path) as store:
        store.save(make_trace("new"))
        assert [summary.query for summary in store.list()] == ["new"]


@posix
def test_a_process_killed_while_writing_loses_nothing_that_it_had_stored(tmp_path):
    path = tmp_path / "attrkit.db"
    program = f"""
import itertools
from attr_core.store import Store
from attr_core.types import Trace
with Store({str(path)!r}) as store:
    for i in itertools.count():
        print(store.save(Trace.from_messages([{{"role": "user", "content": f"{{i}} " * 2000}}], str(i))), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        seen = [process.stdout.readline().strip() for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        seen += process.stdout.read().split("\n")[:-1]
    with Store(path) as store:
        assert [store.get(identifier).answer for identifier in seen] == [str(i) for i in range(len(seen))]
        store.check()


def test_a_writer_that_never_gets_its_turn_says_that_the_file_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(_database, "BUSY_SECONDS", 0.05)
    path = tmp_path / "attrkit.db"
    inside, leave = threading.Event(), threading.Event()
    with Store(path) as store, Store(path) as other:

        def hold():
            with store._database.writing():
                inside.set()
                leave.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        inside.wait(30)
        with pytest.raises(StoreError, match="locked by other threads"):
            other.save(make_trace("new"))
        assert other.list() == []  # reading goes on
        leave.set()
        holder.join()
        other.save(make_trace("new"))


def agent(n):
    """An agent's calls, each with the whole history before it."""
    history, traces = [{"role": "system", "content": "You are an agent. " * 50}], []
    for i in range(n):
        history += [
            {"role": "user", "content": f"step {i} " * 100},
            {"role": "assistant", "content": f"done {i} " * 100},
        ]
        traces.append(Trace.from_messages(history[:-1], history[-1]["content"]))
    return traces


def test_a_repeated_history_takes_space_once(tmp_path):
    sizes = {}
    for n in (10, 40):
        path = tmp_path / f"{n}.db"
        with Store(path) as store:
            traces = agent(n)
            for trace in traces:
                store.save(trace)
            assert [store.get(trace.id) for trace in traces] == traces
        with contextlib.closing(sqlite3.connect(path)) as db:
            (sizes[n],) = db.execute("SELECT sum(length(text)) FROM texts").fetchone()
            assert db.execute("SELECT count(*) FROM texts").fetchone() == (2 * n,)
            assert db.execute("SELECT count(*) FROM messages WHERE content IS NULL").fetchone() == (0,)
    assert sizes[40] < 5 * sizes[10]


def test_a_shared_text_goes_with_the_last_trace_that_holds_it(tmp_path):
    path = tmp_path / "attrkit.db"
    first, second = agent(2)
    with Store(path) as store, contextlib.closing(sqlite3.connect(path)) as db:
        store.save(first)
        store.save(second)
        store.delete(first.id)
        assert store.get(second.id) == second
        store.delete(second.id)
        assert db.execute("SELECT count(*) FROM texts").fetchone() == (0,)


def test_a_damaged_cache_row_costs_that_value_only(tmp_path):
    path = tmp_path / "attrkit.db"
    with Cache(path) as cache:
        cache.put_completions({"a": Completion("1"), "b": Completion("2")})
        cache.put_vectors({"v": np.ones(3)})
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE measurements SET value = x'00' WHERE key = 'a'")
    with Cache(path) as cache:
        assert cache.get_completions("ab") == {"b": Completion("2")}
        assert set(cache.get_vectors("v")) == {"v"}
