"""One thread per process stores what is recorded: from many threads and processes, over forks, to the very end."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings

import pytest

from attr_core._recording import writer as writer_module
from attr_core._recording.membrane import Complaints
from attr_core._recording.writer import Writer
from attr_core.errors import StoreError
from attr_core.middleware import flush_logging, with_logging
from attr_core.store import Store
from attr_core.types import Trace

N_CALLS = 50


def complete(model, messages, **options):
    return {"choices": [{"message": {"content": f"answer to {messages[-1]['content']}"}}]}


def ask(logged, name):
    """One thread's worth of calls; the ids that they were stamped with, by question."""
    stamped = {}
    for i in range(N_CALLS):
        question = f"question {name}.{i}"
        response = logged("m", [{"role": "user", "content": question}], documents=[f"document of {question}"])
        stamped[question] = response["attrkit"]["trace_id"]
    return stamped


def ask_in_a_child(path, name):
    ask(with_logging(complete, db=path), name)


def trace():
    return Trace.from_messages([{"role": "user", "content": "q"}], "a")


class Slow:
    """Saves nothing before it is let go."""

    def __init__(self):
        self.gate, self.saved, self.entered = threading.Event(), [], threading.Event()

    def save(self, trace):
        self.entered.set()
        self.gate.wait(30)
        self.saved.append(trace.id)
        return trace.id


class Broken:
    def __init__(self, error):
        self.error = error

    def save(self, trace):
        raise self.error


@pytest.fixture
def writer():
    made = Writer(limit=3)
    yield made
    made.close(10)


def test_16_threads_and_4_processes_store_1000_traces_and_mix_none(tmp_path):
    path = tmp_path / "attrkit.db"
    Store(path).close()
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=ask_in_a_child, args=(path, f"process{i}")) for i in range(4)]
    for child in children:
        child.start()
    logged = with_logging(complete, db=path)
    threads = [threading.Thread(target=ask, args=(logged, f"thread{i}")) for i in range(16)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert flush_logging(60)
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * 4
    with Store(path) as store:
        summaries = store.list(limit=None)
        assert len({summary.id for summary in summaries}) == 1000
        names = [f"process{i}" for i in range(4)] + [f"thread{i}" for i in range(16)]
        assert {summary.query for summary in summaries} == {
            f"question {name}.{i}" for name in names for i in range(N_CALLS)
        }
        for summary in summaries:
            found = store.get(summary.id)
            assert found.answer == f"answer to {found.query}"
            assert found.generations[0].messages[0].content == found.query
            assert [document.text for document in found.documents] == [f"document of {found.query}"]


def test_the_id_in_the_response_is_the_stored_traces(tmp_path):
    stamped = ask(with_logging(complete, db=tmp_path / "a.db"), "x")
    assert flush_logging()
    with Store(tmp_path / "a.db") as store:
        assert all(store.get(identifier).query == question for question, identifier in stamped.items())


def test_a_full_queue_drops_counts_and_warns_once_and_never_waits(writer):
    slow, complaints = Slow(), Complaints()
    assert writer.put(trace(), slow, complaints)
    assert slow.entered.wait(10)
    start = time.perf_counter()
    with pytest.warns(RuntimeWarning, match="3 traces wait to be stored") as caught:
        taken = [writer.put(trace(), slow, complaints) for _ in range(8)]
    assert time.perf_counter() - start < 1
    assert (taken, len(caught)) == ([True] * 3 + [False] * 5, 1)
    assert (writer.n_waiting, writer.n_lost) == (4, 5)
    slow.gate.set()
    assert not writer.flush(10), "five are lost"
    assert writer.flush(10)
    assert (len(slow.saved), writer.n_waiting) == (4, 0)


def test_a_host_whose_trace_was_dropped_gets_no_stamp(writer, monkeypatch):
    monkeypatch.setattr(writer_module, "_current", writer)
    slow = Slow()
    logged = with_logging(complete, store=slow)
    with pytest.warns(RuntimeWarning, match="wait to be stored"):
        responses = [logged("m", [{"role": "user", "content": "q"}]) for _ in range(6)]
    assert {"attrkit" in response for response in responses} == {True, False}
    slow.gate.set()


@pytest.mark.parametrize("error", [RuntimeError("down"), StoreError("full"), SystemExit(1), KeyboardInterrupt()])
def test_a_store_that_fails_is_told_of_once_and_the_next_trace_is_stored(writer, error):
    saved, complaints = Slow(), Complaints()
    saved.gate.set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for target in (Broken(error), Broken(error), saved):
            writer.put(trace(), target, complaints)
        assert not writer.flush(10)
    (told,) = caught
    assert f"could not be stored ({type(error).__name__}" in str(told.message)
    assert (len(saved.saved), writer.n_lost) == (1, 2)


def test_flush_says_in_time_that_it_could_not_wait(writer):
    slow = Slow()
    writer.put(trace(), slow, Complaints())
    start = time.perf_counter()
    assert not writer.flush(0.05)
    assert time.perf_counter() - start < 5
    slow.gate.set()
    assert writer.flush(10)


def test_flush_without_anything_recorded_starts_no_thread():
    writer = Writer()
    assert writer.flush(10)
    assert writer._thread is None


def test_a_store_that_flushes_while_it_saves_does_not_wait_for_itself(writer):
    class Flushing:
        def save(self, trace):
            self.flushed = writer.flush(30)

    target = Flushing()
    writer.put(trace(), target, Complaints())
    assert writer.flush(10)
    assert not target.flushed


def test_a_thread_that_died_is_replaced(writer, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_handle", lambda self, entry: sys.exit("dead"))
        writer.put(trace(), Slow(), Complaints())
        writer._thread.join(10)
    saved = Slow()
    saved.gate.set()
    writer.put(trace(), saved, Complaints())
    assert writer.flush(10)
    assert len(saved.saved) == 1


def test_without_a_thread_to_be_had_a_flush_stores_by_itself(writer, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    saved = Slow()
    saved.gate.set()
    assert writer.put(trace(), saved, Complaints())
    assert saved.saved == []
    assert writer.flush(10)
    assert len(saved.saved) == 1


def test_a_closed_writer_starts_anew(writer, tmp_path):
    for name in ("a", "b"):
        writer.put(trace(), str(tmp_path / name), Complaints())
        assert writer.close(10)
        assert not writer._thread.is_alive()
        assert writer._stores == {}
        with Store(tmp_path / name) as store:
            assert len(store.list()) == 1


def test_few_files_stay_open_and_a_deleted_one_is_made_again(writer, tmp_path):
    for i in range(12):
        writer.put(trace(), str(tmp_path / f"{i}.db"), Complaints())
        assert writer.flush(10)
    assert len(writer._stores) == 8
    for file in tmp_path.glob("11.db*"):
        file.unlink()
    writer.put(trace(), str(tmp_path / "11.db"), Complaints())
    assert writer.flush(10)
    with Store(tmp_path / "11.db") as store:
        assert len(store.list()) == 1


def test_an_abandoned_stream_may_be_collected_inside_the_writers_own_lock(writer):
    class Abandoned:
        def __init__(self):
            self.itself = self

        def __del__(self):
            writer.put(trace(), saved, Complaints())

    saved = Slow()
    saved.gate.set()
    with writer._starting, writer._counting:
        Abandoned()
        gc.collect()
    assert writer.flush(10)
    assert len(saved.saved) == 1


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


@needs_fork
def test_a_forked_child_stores_its_own_calls_and_none_of_its_parents(tmp_path):
    program = f"""
import os, threading
from attr_core import flush_logging, with_logging

def complete(model, messages):
    return {{"choices": [{{"message": {{"content": messages[0]["content"]}}}}]}}

logged = with_logging(complete, db={str(tmp_path / "a.db")!r})
say = lambda text: logged("m", [{{"role": "user", "content": text}}])
for i in range(20):
    say(f"parent before {{i}}")
    child = os.fork() == 0
    assert threading.active_count() == 1
    if child:
        for j in range(5):
            say(f"child {{i}} {{j}}")
        os._exit(0 if flush_logging() else 1)
    say(f"parent after {{i}}")
codes = [os.wait()[1] for _ in range(20)]
assert codes == [0] * 20, codes
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")
    with Store(tmp_path / "a.db") as store:
        queries = [summary.query for summary in store.list(limit=None)]
    expected = [f"parent {when} {i}" for when in ("before", "after") for i in range(20)]
    expected += [f"child {i} {j}" for i in range(20) for j in range(5)]
    assert sorted(queries) == sorted(expected)


@needs_fork
def test_a_forked_childs_copy_of_an_open_stream_is_not_recorded(tmp_path):
    program = f"""
import os, time
from attr_core import flush_logging, with_logging
stream = with_logging(lambda model, messages: iter(["In ", "1911."]), db={str(tmp_path / "a.db")!r})("m", [])
next(stream)
if os.fork() == 0:
    time.sleep(0.2)
    raise SystemExit
next(stream)
next(stream, None)
flush_logging()
os.wait()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    with Store(tmp_path / "a.db") as store:
        (summary,) = store.list()
        assert (summary.status, summary.answer) == ("ok", "In 1911.")


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_multiprocessing_child_flushes_when_it_ends(tmp_path):
    ask(with_logging(complete, db=tmp_path / "a.db"), "parent")
    child = multiprocessing.get_context("fork").Process(target=ask_in_a_child, args=(tmp_path / "a.db", "child"))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert flush_logging()
    with Store(tmp_path / "a.db") as store:
        assert len(store.list(limit=None)) == 2 * N_CALLS


def test_a_program_that_ends_stores_what_is_left(tmp_path):
    program = f"""
import atexit
atexit.register(lambda: say("from the last exit function"))
from attr_core import with_logging
logged = with_logging(lambda model, messages: "a", db={str(tmp_path / "a.db")!r})
say = lambda text: logged("m", [{{"role": "user", "content": text}}])
atexit.register(lambda: say("from an exit function"))
for i in range(300):
    say(str(i))
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    with Store(tmp_path / "a.db") as store:
        assert len(store.list(limit=None)) >= 301


def test_a_program_whose_store_hangs_ends_and_says_how_much_was_not_stored(tmp_path):
    program = """
import time
from attr_core import with_logging
from attr_core._recording import writer
writer.EXIT_SECONDS = 0.2

class Hanging:
    def save(self, trace):
        time.sleep(600)

logged = with_logging(lambda model, messages: "a", store=Hanging())
for i in range(7):
    logged("m", [{"role": "user", "content": "q"}])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0
    assert "attrkit: 7 recorded calls of this process were not stored (7 still waited)" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_host_does_not_wait_for_a_slow_store():
    slow = Slow()
    logged = with_logging(complete, store=slow)
    start = time.perf_counter()
    for _ in range(20):
        logged("m", [{"role": "user", "content": "q"}])
    assert time.perf_counter() - start < 2
    slow.gate.set()
    assert flush_logging(30)
    assert len(slow.saved) == 20
