"""What the store costs: `attrkit traces` over 1,000 traces, one save, many writers at once, an agent's history.

The goal is for the command as a user meets it, interpreter start and imports included.

    python benchmarks/store.py [REPEATS]
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from attr_core.store import Store
from attr_core.types import Trace

GOAL_SECONDS = 0.5
N_TRACES = 1000


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as folder:
        _one_after_another(Path(folder) / "attrkit.db", repeats)
        _at_once(Path(folder) / "crowd.db")
        _agent(Path(folder) / "agent.db")


def _one_after_another(path: Path, repeats: int) -> None:
    with Store(path) as store:
        times = [_seconds(store.save, _trace(i)) for i in range(N_TRACES)]
    print(f"one save: median {statistics.median(times) * 1000:.2f} ms, p99 {sorted(times)[-10] * 1000:.2f} ms")
    print(f"{N_TRACES:,} traces take {path.stat().st_size / 1e6:.1f} MB")
    with Store(path) as store:
        print(f"Store.list(limit=None) of them: {_seconds(lambda: store.list(limit=None)) * 1000:.0f} ms")
    for limit in (20, N_TRACES):
        command = [sys.executable, "-m", "attr_core.cli", "traces", "--db", str(path), "--limit", str(limit)]
        times = [_seconds(_run, command) for _ in range(repeats)]
        goal = f"   goal: below {GOAL_SECONDS} s" if limit == 20 else ""
        print(f"attrkit traces --limit {limit}: median {statistics.median(times):.2f} s{goal}")


def _at_once(path: Path) -> None:
    """16 threads and 4 processes, 50 saves each."""
    waits: list[float] = []
    spawn = multiprocessing.get_context("spawn")
    with Store(path) as store:
        workers: list[threading.Thread | multiprocessing.process.BaseProcess] = [
            *(threading.Thread(target=_save_many, args=(store, i, waits)) for i in range(16)),
            *(spawn.Process(target=_save_in_process, args=(path, i)) for i in range(16, 20)),
        ]
        started = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds, stored = time.perf_counter() - started, len(store.list(limit=None))
    print(
        f"16 threads and 4 processes, 50 saves each: {stored:,} stored in {seconds:.1f} s, slowest {max(waits):.2f} s"
    )


def _agent(path: Path) -> None:
    """60 calls, each sent with the whole history before it."""
    history = [{"role": "system", "content": "You are an agent. " * 100}]
    sent = 0
    with Store(path) as store:
        for i in range(60):
            history += [{"role": "user", "content": f"observation {i} " * 60}]
            store.save(Trace.from_messages(history, f"thought {i} " * 60))
            sent += sum(len(message["content"]) for message in history)
            history += [{"role": "assistant", "content": f"thought {i} " * 60}]
    print(f"an agent's 60 calls, {sent / 1e6:.1f} MB of messages, take {path.stat().st_size / 1e6:.1f} MB")


def _save_in_process(path: Path, worker: int) -> None:
    with Store(path) as store:
        _save_many(store, worker, [])


def _save_many(store: Store, worker: int, waits: list[float]) -> None:
    waits += [_seconds(store.save, _trace(worker * 1000 + i)) for i in range(50)]


def _trace(i: int) -> Trace:
    documents = [f"Passage {i}-{j}. " + "The fair opens at noon. " * 20 for j in range(4)]
    content = "\n\n".join([*documents, f"Question {i}: when does the fair open?"])
    messages = [{"role": "system", "content": "Answer from the context."}, {"role": "user", "content": content}]
    return Trace.from_messages(messages, f"At noon ({i}).", documents=documents, model="test:bench")


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _seconds(call: Callable[..., object], *arguments: object) -> float:
    started = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
