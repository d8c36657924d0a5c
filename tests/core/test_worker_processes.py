"""What becomes of deferred attributions when a process forks or ends: nothing hangs, and what is left is said."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from attr_core._recording import writer
from attr_core._storage.at_work import AtWork
from attr_core.store import Store
from attr_core.testing import AdditiveEngine
from attr_core.types import Trace
from attr_core.worker import Worker

FACT = "The fair opened in 1911."
PREAMBLE = f"""
import os, sys, threading, time
from attr_core import worker as worker_module
from attr_core.store import Store
from attr_core.testing import AdditiveEngine
from attr_core.types import Trace
from attr_core.worker import Worker

FACT = {FACT!r}

def a_trace(n=0):
    content = f"{{FACT}}\\n\\nNote {{n}}.\\n\\nWhen did it open?"
    return Trace.from_messages([{{"role": "user", "content": content}}], "In 1911.")

class Scoring:
    spec, max_context = "test:scoring", None
    def __init__(self, first=lambda: None):
        self.inner, self.first = AdditiveEngine({{"1911": {{FACT: 9.0}}}}), first
        self.fingerprint = self.inner.fingerprint
    def score(self, prompts, continuation):
        self.first()
        return self.inner.score(prompts, continuation)
"""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def a_trace(n: int = 0) -> Trace:
    return Trace.from_messages([{"role": "user", "content": f"{FACT}\n\nNote {n}.\n\nWhen did it open?"}], "In 1911.")


def run(program: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PREAMBLE + program]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, env={**os.environ, **environment}
    )


def attributed(path: Path) -> int:
    with Store(path) as store:
        return store.stats().n_attributions


@needs_fork
def test_a_forked_child_has_an_empty_queue_and_a_thread_of_its_own(tmp_path: Path) -> None:
    program = f"""
gate = threading.Event()
worker = Worker(Scoring(lambda: gate.wait(60)), db={str(tmp_path / "a.db")!r})
for n in range(3):
    worker.submit(a_trace(n))
for i in range(10):
    if os.fork() == 0:
        assert threading.active_count() == 1
        assert worker.stats == worker_module.WorkerStats(), worker.stats
        gate.set()
        worker.submit(a_trace(100 + i))
        os._exit(0 if worker.flush(60) and worker.stats.n_done == 1 else 1)
codes = [os.wait()[1] for _ in range(10)]
assert codes == [0] * 10, codes
assert worker.stats.n_pending == 3, worker.stats
gate.set()
assert worker.flush(60) and worker.stats.n_done == 3, worker.stats
"""
    ran = run(program, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert attributed(tmp_path / "a.db") == 13


@needs_fork
def test_a_child_forked_while_a_thread_was_inside_sqlite_is_told_so_and_does_not_hang(tmp_path: Path) -> None:
    program = f"""
import signal
from attr_core._storage import forks
from attr_core.errors import StoreError
forks.SECONDS = 0.05
store = Store({str(tmp_path / "a.db")!r})
inside, leave = threading.Event(), threading.Event()
def use():
    with store._database.writing():
        inside.set()
        leave.wait(30)
thread = threading.Thread(target=use)
thread.start()
inside.wait(30)
if (child := os.fork()) == 0:
    signal.alarm(20)
    try:
        Store({str(tmp_path / "a.db")!r})
    except StoreError as error:
        os._exit(0 if "was forked while a thread was using SQLite" in str(error) else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
leave.set()
thread.join()
assert store.list(limit=1) == []
"""
    ran = run(program, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert (ran.returncode, ran.stderr) == (0, "")


# Thirty forks beside a writing thread; on a starved machine a fork may not wait long enough for it.
@pytest.mark.slow
@needs_fork
def test_a_fork_in_the_midst_of_writing_leaves_the_child_no_lock(tmp_path: Path) -> None:
    program = f"""
import signal
store = Store(":memory:")
workers = [Worker(Scoring(), store=store), Worker(Scoring(), db={str(tmp_path / "a.db")!r})]
hung = []
for i in range(30):
    for worker in workers:
        worker.submit(a_trace(i))
    time.sleep(0.002 * (i % 7))
    if (child := os.fork()) == 0:
        signal.alarm(20)
        with Store({str(tmp_path / "a.db")!r}) as opened:
            opened.list(limit=1)
        store.list(limit=1)
        os._exit(0)
    hung.append(os.waitpid(child, 0)[1])
assert hung == [0] * 30, hung
assert all(worker.flush(60) for worker in workers)
"""
    ran = run(program, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert (ran.returncode, ran.stderr) == (0, "")


@needs_fork
def test_a_thread_with_nothing_to_do_is_no_reason_to_warn_of_a_fork(tmp_path: Path) -> None:
    program = f"""
worker = Worker(Scoring(), db={str(tmp_path / "a.db")!r})
for n in range(3):
    worker.submit(a_trace(n))
    assert worker.flush(60)
    assert threading.active_count() == 2
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    assert threading.active_count() == 1
"""
    ran = run(program)
    assert (ran.returncode, ran.stderr) == (0, "")


@needs_fork
def test_an_executor_does_not_come_along_into_a_child(tmp_path: Path) -> None:
    program = f"""
from concurrent.futures import ThreadPoolExecutor
worker = Worker(Scoring(), db={str(tmp_path / "a.db")!r}, executor=ThreadPoolExecutor(1))
worker.submit(a_trace()).result(60)
if os.fork() == 0:
    worker.submit(a_trace(1))
    os._exit(0 if worker.flush(60) else 1)
assert os.wait()[1] == 0
"""
    ran = run(program, PYTHONWARNINGS="ignore::DeprecationWarning")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert attributed(tmp_path / "a.db") == 2


def work_in_a_child(path: Path) -> None:
    worker = Worker(AdditiveEngine({"1911": {FACT: 9.0}}), db=path)
    for n in range(5):
        trace = a_trace(n)
        writer.current().put(trace, str(path), worker._complaints)
        worker.submit(trace)


def test_a_child_of_multiprocessing_attributes_what_is_left_when_it_ends(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=work_in_a_child, args=(tmp_path / "a.db",))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert attributed(tmp_path / "a.db") == 5


def test_a_program_that_ends_attributes_what_is_left(tmp_path: Path) -> None:
    program = f"""
import atexit
atexit.register(lambda: worker.submit(a_trace(99)))
worker = Worker(Scoring(), db={str(tmp_path / "a.db")!r})
for n in range(20):
    worker.submit(a_trace(n))
"""
    ran = run(program)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert attributed(tmp_path / "a.db") == 21


ENDING = """
worker_module.EXIT_SECONDS = 0.3
hanging = Scoring(lambda: time.sleep(600))
"""


def test_a_program_whose_engine_hangs_ends_and_says_how_to_finish(tmp_path: Path) -> None:
    program = f"""{ENDING}
worker_module.load_engine = lambda spec: hanging
worker = Worker("hf:org/some model", db={str(tmp_path / "a.db")!r})
for n in range(7):
    worker.submit(a_trace(n))
"""
    ran = run(program)
    assert ran.returncode == 0
    told = "attrkit: 7 attributions are pending that this process did not make; finish them with: "
    command = f"attrkit worker --once --engine 'hf:org/some model' --db {tmp_path / 'a.db'}"
    assert ran.stderr.count("RuntimeWarning") == 1
    assert told + command in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_default_database_needs_no_naming(tmp_path: Path) -> None:
    program = f"""{ENDING}
worker_module.load_engine = lambda spec: hanging
worker = Worker("hf:m")
worker.submit(a_trace())
"""
    ran = run(program, ATTRKIT_DB=str(tmp_path / "a.db"))
    assert ran.returncode == 0
    told = "attrkit: 1 attribution is pending that this process did not make; finish them with: "
    assert f"{told}attrkit worker --once --engine hf:m\n" in ran.stderr


def test_an_engine_that_was_an_object_needs_a_spec_and_a_store_in_memory_is_gone(tmp_path: Path) -> None:
    program = f"""{ENDING}
workers = [Worker(hanging, db={str(tmp_path / "a.db")!r}), Worker(hanging, store=Store(":memory:"))]
for worker in workers:
    worker.submit(a_trace())
"""
    ran = run(program)
    assert ran.returncode == 0
    assert ran.stderr.count("RuntimeWarning") == 1
    assert "attrkit: 2 attributions are pending" in ran.stderr
    assert "their engine was an object (test:scoring), which another process cannot load; name one" in ran.stderr
    assert f"attrkit worker --once --engine SPEC --db {tmp_path / 'a.db'}" in ran.stderr
    assert "they go with the store in memory" in ran.stderr


@pytest.mark.parametrize("executor", ["None", "ThreadPoolExecutor(1)"])
def test_what_fails_since_the_interpreter_ends_is_pending_not_failed(tmp_path: Path, executor: str) -> None:
    program = f"""
import atexit
from concurrent.futures import ThreadPoolExecutor

def in_threads():  # as frameworks do for batches and for asynchronous calls
    time.sleep(0.05)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()

worker = Worker(Scoring(in_threads), db={str(tmp_path / "a.db")!r}, executor={executor})
for n in range(40):
    worker.submit(a_trace(n))
atexit.register(lambda: (worker.flush(60), print(worker.stats.n_done, worker.stats.n_failed, worker.stats.n_pending)))
time.sleep(0.5)
"""
    ran = run(program)
    assert ran.returncode == 0
    n_done, n_failed, n_pending = map(int, ran.stdout.split())
    assert (n_failed, n_done + n_pending) == (0, 40)
    assert n_pending > 0
    assert f"attrkit: {n_pending} attributions are pending" in ran.stderr
    assert ran.stderr.count("RuntimeWarning") == 1
    assert attributed(tmp_path / "a.db") == n_done


def test_a_person_who_does_not_want_to_wait_at_the_end_need_not(tmp_path: Path) -> None:
    program = f"""
import signal
worker = Worker(Scoring(lambda: time.sleep(600)), db={str(tmp_path / "a.db")!r})
worker.submit(a_trace())
worker_module.EXIT_SECONDS = 600
threading.Thread(target=lambda: (time.sleep(1), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
"""
    ran = run(program)
    assert ran.returncode == 0
    assert "attrkit: 1 attribution is pending" in ran.stderr


@pytest.mark.model
def test_a_program_that_ends_while_a_real_model_measures_ends_well(tmp_path: Path, small_engine: object) -> None:
    # torch takes a process down whose interpreter ends while one of its threads is inside it.
    program = f"""
worker_module.EXIT_SECONDS = 0.2
worker = Worker("hf:SmolLM2-135M-Instruct.Q4_1.gguf", db={str(tmp_path / "a.db")!r})
worker.submit(a_trace()).result(240)
for n in range(1, 9):
    worker.submit(Trace.from_messages([{{"role": "user", "content": f"{{n}} {{FACT}} " * 30}}], "In 1911."))
time.sleep(0.5)
"""
    ran = run(program, timeout=280)
    assert ran.returncode == 0, ran.stderr
    assert "attributions are pending" in ran.stderr
    assert "terminate called" not in ran.stderr
    assert attributed(tmp_path / "a.db") >= 1


def at_work_in_a_child(path: str, begun: threading.Event, end: threading.Event) -> None:
    with AtWork(path).on("tr_1") as is_mine:
        assert is_mine
        begun.set()
        end.wait(60)


@pytest.mark.skipif(os.name != "posix", reason="POSIX locks")
def test_a_process_at_work_is_seen_by_others_until_it_ends_or_is_killed(tmp_path: Path) -> None:
    path, spawn = str(tmp_path / "a.db"), multiprocessing.get_context("spawn")
    for is_killed in (False, True):
        begun, end = spawn.Event(), spawn.Event()
        child = spawn.Process(target=at_work_in_a_child, args=(path, begun, end))
        child.start()
        assert begun.wait(60)
        with AtWork(path).on("tr_1") as is_mine, AtWork(path).on("tr_2") as is_free:
            assert (is_mine, is_free) == (False, True)
        (child.kill if is_killed else end.set)()
        child.join(60)
        with AtWork(path).on("tr_1") as is_mine:
            assert is_mine


def test_where_no_file_can_be_made_nobody_is_kept_from_working(tmp_path: Path) -> None:
    for path in (":memory:", str(tmp_path / "absent" / "a.db")):
        with AtWork(path).on("tr_1") as is_mine:
            assert is_mine
    assert list(tmp_path.iterdir()) == []
