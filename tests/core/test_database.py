"""The shared SQLite file: made privately, opened by many at once, refused with one clear line."""

import contextlib
import gc
import multiprocessing
import os
import signal
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core._storage import database as _database
from attr_core._storage.database import default_path, escape, execute, insert, open_database, select, unescape
from attr_core._storage.schema import APPLICATION_ID, MIGRATIONS
from attr_core.errors import CacheError, StoreError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "attrkit.db"


def _mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def _one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


def test_default_path_is_the_environments_else_in_the_home_folder(monkeypatch):
    monkeypatch.setenv("ATTRKIT_DB", "~/elsewhere.db")
    assert default_path() == Path("~/elsewhere.db").expanduser()
    monkeypatch.delenv("ATTRKIT_DB")
    assert default_path() == Path("~/.attrkit/attrkit.db").expanduser()


def test_file_and_folder_are_made_for_the_owner_only(path):
    database = open_database(path)
    with database.writing() as db:
        insert(db, "memory", [{"key": "a", "value": "1"}])
    assert _mode(path.parent) == 0o700
    assert {_mode(file) for file in path.parent.iterdir()} == {0o600}
    assert {file.name for file in path.parent.iterdir()} >= {"attrkit.db", "attrkit.db-wal"}
    database.close()


def test_modes_of_an_existing_file_are_left_alone(path):
    path.parent.mkdir()
    path.touch(0o644)
    path.chmod(0o644)
    open_database(path).close()
    assert _mode(path) == 0o644


def test_file_is_in_wal_mode_with_foreign_keys_and_a_version(path):
    database = open_database(path)
    with database.reading() as db:
        read = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "foreign_keys")}
        version, owner = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
    assert read == {"journal_mode": "wal", "foreign_keys": 1}
    assert (version, owner) == (len(MIGRATIONS), APPLICATION_ID)
    database.close()


def test_only_missing_migrations_are_applied_and_what_was_stored_stays(path, monkeypatch):
    monkeypatch.setattr(_database, "MIGRATIONS", MIGRATIONS[:1])
    old = open_database(path)
    with old.writing() as db:
        insert(db, "traces", [{"id": "t", "status": "ok", "started_at": 1.0}])
    old.close()
    monkeypatch.setattr(_database, "MIGRATIONS", MIGRATIONS)
    new = open_database(path)
    with new.reading() as db:
        assert select(db, "SELECT id FROM traces") == [{"id": "t"}]
        assert select(db, "SELECT count(*) AS n FROM measurements") == [{"n": 0}]
    new.close()


def test_failing_migration_leaves_nothing_behind(path, monkeypatch):
    def broken(db):
        db.execute("CREATE TABLE half (a)")
        raise RuntimeError("stop")

    monkeypatch.setattr(_database, "MIGRATIONS", (*MIGRATIONS, broken))
    with pytest.raises(RuntimeError):
        open_database(path)
    monkeypatch.undo()
    database = open_database(path)
    with database.reading() as db:
        assert select(db, "SELECT 1 FROM sqlite_master WHERE name = 'half'") == []
    database.close()


def _open_and_write(path, gate, i):
    gate.wait()
    database = open_database(path)
    with database.writing() as db:
        insert(db, "memory", [{"key": str(i), "value": "1"}])
    database.close()


def test_processes_may_open_a_new_file_at_once(path):
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(6)
    processes = [spawn.Process(target=_open_and_write, args=(path, gate, i)) for i in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 6
    database = open_database(path)
    with database.reading() as db:
        assert select(db, "SELECT count(*) AS n FROM memory") == [{"n": 6}]
    database.close()


@pytest.mark.parametrize("error", [StoreError, CacheError])
def test_file_that_is_not_sqlite_is_refused_and_untouched(tmp_path, error):
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes\n" * 100)
    with pytest.raises(error) as raised:
        open_database(path, error=error)
    assert str(path) in _one_line(raised)
    assert "is not an SQLite database" in str(raised.value)
    assert "ATTRKIT_DB" in str(raised.value)
    assert path.read_text() == "these are my notes\n" * 100


@pytest.mark.parametrize("version", [0, 1, len(MIGRATIONS)])
def test_another_programs_database_is_refused_and_untouched(tmp_path, version):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE messages (id)")
        other.execute(f"PRAGMA user_version = {version}")
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program's database"):
        open_database(path)
    assert path.read_bytes() == before


def test_newer_schema_is_refused(path):
    open_database(path).close()
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    newer.close()
    with pytest.raises(StoreError) as raised:
        open_database(path)
    assert str(path) in _one_line(raised)
    assert "upgrade attrkit" in str(raised.value)


def test_folder_in_the_place_of_the_file_is_refused(tmp_path):
    with pytest.raises(StoreError) as raised:
        open_database(tmp_path)
    assert str(tmp_path) in _one_line(raised)


def test_place_that_cannot_hold_a_file_is_refused(tmp_path):
    blocker = tmp_path / "file"
    blocker.touch()
    with pytest.raises(CacheError) as raised:
        open_database(blocker / "sub" / "attrkit.db", error=CacheError)
    assert str(blocker / "sub" / "attrkit.db") in _one_line(raised)
    assert "ATTRKIT_DB" in str(raised.value)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that even root cannot write to")
def test_folder_that_nobody_can_write_to_is_refused():
    with pytest.raises(StoreError) as raised:
        open_database("/proc/self/attrkit.db")
    assert "/proc/self/attrkit.db" in _one_line(raised)


def test_locked_file_is_said_to_be_locked(path, monkeypatch):
    monkeypatch.setattr(_database, "BUSY_SECONDS", 0.05)
    database = open_database(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked by another process"), database.writing():
        pass
    holder.execute("ROLLBACK")
    holder.close()
    with database.writing() as db:
        insert(db, "memory", [{"key": "a", "value": "1"}])
    database.close()


def test_damaged_file_is_said_to_be_damaged(path):
    database = open_database(path)
    with database.writing() as db:
        insert(db, "memory", [{"key": str(i), "value": '"' + "x" * 500 + '"'} for i in range(500)])
    database.close()
    whole = bytearray(path.read_bytes())
    whole[20_000:] = os.urandom(len(whole) - 20_000)
    path.write_bytes(whole)
    with (
        pytest.raises(StoreError, match="damaged SQLite database"),
        open_database(path).reading() as db,
    ):
        select(db, "SELECT * FROM memory")


def test_failed_transaction_keeps_nothing(path):
    database = open_database(path)

    def write_and_fail():
        with database.writing() as db:
            insert(db, "memory", [{"key": "a", "value": "1"}])
            raise KeyError("stop")

    with pytest.raises(KeyError):
        write_and_fail()
    with database.reading() as db:
        assert select(db, "SELECT * FROM memory") == []
    database.close()


@pytest.mark.parametrize("in_memory", [False, True])
def test_threads_write_at_once_and_lose_nothing(path, in_memory):
    database = open_database(":memory:" if in_memory else path)

    def write(i):
        with database.writing() as db:
            insert(db, "memory", [{"key": str(i), "value": "1"}])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(200)))
    with database.reading() as db:
        assert select(db, "SELECT count(*) AS n FROM memory") == [{"n": 200}]
    database.close()


def test_each_thread_has_its_own_connection_that_ends_with_it(path):
    database = open_database(path)
    seen = []

    def look():
        with database.reading() as db:
            seen.append(db)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    look()
    gc.collect()
    assert len({id(connection) for connection in seen}) == 4
    for connection in seen[:3]:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
    database.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        seen[3].execute("SELECT 1")


def test_closed_database_says_so(path):
    database = open_database(path)
    database.close()
    database.close()
    with pytest.raises(StoreError, match="was closed"), database.reading():
        pass


def test_forgotten_database_closes_its_connections(path):
    database = open_database(path)
    with database.reading() as db:
        connection = db
    del database, db
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_opens_its_own_connection(path):
    database = open_database(path)
    child = os.fork()
    if child == 0:
        try:
            with database.writing() as db:
                insert(db, "memory", [{"key": "child", "value": "1"}])
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with database.writing() as db:
        assert execute(db, "DELETE FROM memory WHERE key = ?", ["child"]) == 1
    database.close()


@given(st.text(st.characters(codec=None)))
def test_any_text_is_stored_exactly(text):
    stored = escape(text)
    stored.encode()
    assert "\0" not in stored
    assert unescape(stored) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\x1a")))
def test_ordinary_text_is_stored_as_it_is(text):
    assert escape(text) == text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_happens_between_transactions_and_its_child_waits_for_no_lock(tmp_path):
    stop = threading.Event()
    databases = [open_database(tmp_path / "a.db"), open_database(":memory:")]

    def work(database):
        while not stop.is_set():
            with database.writing() as db:
                db.execute("INSERT OR REPLACE INTO memory VALUES ('k', 'v')")
            with database.reading() as db:
                db.execute("SELECT * FROM memory").fetchall()

    threads = [threading.Thread(target=work, args=(database,)) for database in databases for _ in range(2)]
    for thread in threads:
        thread.start()
    codes = []
    for _ in range(20):
        if (child := os.fork()) == 0:
            signal.alarm(20)  # ends the child where it waits for a lock that nobody will release
            for database in databases:
                with database.writing() as db:
                    db.execute("INSERT OR REPLACE INTO memory VALUES ('child', 'v')")
            os._exit(0)
        codes.append(os.waitpid(child, 0)[1])
    stop.set()
    for thread in threads:
        thread.join(60)
    for database in databases:
        database.close()
    assert codes == [0] * 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_inside_a_transaction_waits_a_moment_and_hurts_nobody(tmp_path):
    with contextlib.closing(open_database(tmp_path / "a.db")) as database:
        with database.writing() as db:
            db.execute("INSERT INTO memory VALUES ('k', 'v')")
            if (child := os.fork()) == 0:
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        with database.reading() as db:
            assert db.execute("SELECT value FROM memory").fetchall() == [("v",)]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_database_that_another_thread_makes_meanwhile_is_not_another_programs(path, after):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    asked = []

    class Interrupted:
        def execute(self, statement):
            (row,) = connection.execute(statement).fetchall()
            asked.append(statement)
            if len(asked) == after:
                open_database(path, error=StoreError)
            return SimpleNamespace(fetchone=lambda: row)

    assert _database._check_owner(Interrupted(), str(path), StoreError) in (0, len(MIGRATIONS))
    assert len(asked) == 3
    connection.close()
