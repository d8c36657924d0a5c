"""What `kill -9` costs: an application that stores and attributes under load is killed at random moments.

Then `attrkit worker --once`, another process with the same small model, finishes what it left. A trigger in the
database counts the measurements that it makes again although they were there.

    python benchmarks/kill_under_load.py [KILLS [SPEC]]
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from attr_core import Store, Trace, flush_logging, load_engine
from attr_core._recording import writer
from attr_core._recording.membrane import Complaints
from attr_core.worker import Worker

N_THREADS = 4
N_AT_ONCE = 5
ATTRIBUTED = 400  # one in so many; the others were not sampled, and are only stored
LIFE_SECONDS = 3.0
DOCUMENTS = [
    "The Aldemoor fair opened in 1911.",
    "The Corvath parade opened in 1937.",
]


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        _serve(*sys.argv[2:])
        return
    n_kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    spec = sys.argv[2] if len(sys.argv) > 2 else load_engine().spec
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "attrkit.db"
        Store(path).close()
        delays, stop = [], threading.Event()
        watch = threading.Thread(target=_watch, args=(path, delays, stop))
        watch.start()
        confirmed = {name for n in range(n_kills) for name in _one_life(path, spec, n)}
        stop.set()
        watch.join()
        _report(path, confirmed, delays, n_kills)


def _serve(path: str, spec: str, name: str) -> None:
    worker, saying = Worker(spec, db=path), threading.Lock()

    def store(trace: Trace) -> None:
        writer.current().put(replace(trace, finished=datetime.now(UTC)), path, Complaints())

    def handle_requests(thread: int) -> None:
        for i in itertools.count():
            traces = [_trace(f"{name} {thread} {i} {j}", spec, i * N_AT_ONCE + j) for j in range(N_AT_ONCE)]
            for trace in traces:
                store(trace)
                if "sampled" not in trace.metadata["attrkit"]:
                    worker.submit(trace)
            if flush_logging(30):
                with saying:
                    print(*(trace.id for trace in traces), flush=True)

    store(first := _trace(name, spec, 0))
    job = worker.submit(first)
    assert job is not None
    job.result()  # from here on the model is loaded
    for thread in range(N_THREADS):
        threading.Thread(target=handle_requests, args=(thread,)).start()


def _trace(name: str, spec: str, number: int) -> Trace:
    content = "\n\n".join([*DOCUMENTS, f"({name})", "When did the Aldemoor fair open?"])
    trace = Trace.from_messages([{"role": "user", "content": content}], "It opened in 1911.", documents=DOCUMENTS)
    sampled = {} if number % ATTRIBUTED == 0 else {"sampled": False}
    return replace(trace, metadata={"attrkit": {"engine": spec, **sampled}})


def _one_life(path: Path, spec: str, number: int) -> list[str]:
    """The ids confirmed until it was killed."""
    command = [sys.executable, __file__, "serve", str(path), spec, f"life {number}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()  # it is up
        killer = threading.Timer(random.uniform(0, LIFE_SECONDS), process.kill)  # noqa: S311
        killer.start()
        *whole, _ = (first + process.stdout.read()).split("\n")  # the last may be cut
        return [name for line in whole for name in line.split()]


def _watch(path: Path, delays: list[float], stop: threading.Event) -> None:
    """Another process's view: how long after its end each run could be read."""
    last = 0
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as db:
        while not stop.wait(0.002):
            sql = "SELECT rowid, finished FROM traces WHERE rowid > ? ORDER BY rowid"
            rows, now = db.execute(sql, [last]).fetchall(), time.time()
            delays += [now - datetime.fromisoformat(finished).timestamp() for _, finished in rows]
            last = rows[-1][0] if rows else last


def _report(path: Path, confirmed: set[str], delays: list[float], n_kills: int) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        [[intact]] = db.execute("PRAGMA integrity_check")
        [[n_before]] = db.execute("SELECT count(*) FROM measurements")
        db.execute("CREATE TABLE made_again (key)")
        noted = "INSERT INTO made_again VALUES (old.key)"
        db.execute(f"CREATE TRIGGER again AFTER UPDATE OF value ON measurements BEGIN {noted}; END")
    with Store(path) as store:
        stored = {summary.id for summary in store.list(limit=None)}
        n_waiting = sum(1 for _ in store.pending())
    print(f"{n_kills} kills at random moments; integrity of the database: {intact}")
    print(
        f"{len(stored):,} traces stored; {len(confirmed):,} confirmed by flush, {len(confirmed - stored)} of these lost"
    )
    print(f"longest delay from a run's end to its being stored: {max(delays) * 1000:.0f} ms", flush=True)
    started = time.perf_counter()
    command = [sys.executable, "-m", "attr_core.cli", "worker", "--once", "--json", "--db", str(path)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, done = time.perf_counter() - started, json.loads(ran.stdout.splitlines()[-1])["summary"]
    with contextlib.closing(sqlite3.connect(path)) as db:
        [[n_again]] = db.execute("SELECT count(*) FROM made_again")
        [[n_after]] = db.execute("SELECT count(*) FROM measurements")
    with Store(path) as store:
        n_left = sum(1 for _ in store.pending())
    print(f"attrkit worker --once: {done['done']} of {n_waiting} attributions finished, {n_left} left, {seconds:.0f} s")
    print(
        f"{n_before} measurements were in the cache: {done['cache_hits']} of them used, {n_again} made again; "
        f"{n_after - n_before} new ones for {done['calls']} calls"
    )


if __name__ == "__main__":
    main()
