"""Killed at any moment, under load: what flush() confirmed is stored, and another process finishes the rest."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from attr_core._recording import writer
from attr_core._recording.membrane import Complaints
from attr_core.backlog import Backlog
from attr_core.cache import Cache
from attr_core.middleware import flush_logging
from attr_core.protocols import TokenScores
from attr_core.store import Store
from attr_core.testing import AdditiveEngine
from attr_core.types import Prompt, Trace
from attr_core.worker import Worker

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")

FACT = "The Aldemoor fair opened in 1911."
N_THREADS = 4
N_AT_ONCE = 5
ATTRIBUTED = 4  # one in so many; the others were not sampled, and are only stored


class Engine:
    """The same in every process, and slow enough to be killed while it measures."""

    spec, max_context = "test:under-fire", None

    def __init__(self, pause: float) -> None:
        self.inner, self.pause = AdditiveEngine({"1911": {FACT: 9.0}}, bias=-5.0), pause

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        time.sleep(self.pause)
        return self.inner.score(prompts, continuation)


def a_trace(name: str, number: int) -> Trace:
    """The larger ones need several slices of measurements."""
    documents = [FACT, *(f"{name}: fact {n} is that." for n in range(7 if number % (2 * ATTRIBUTED) == 0 else 1))]
    content = "\n\n".join([*documents, "When did it open?"])
    messages = [{"role": "system", "content": "Be brief. " * 50}, {"role": "user", "content": content}]
    trace = Trace.from_messages(messages, "It opened in 1911.", documents=documents)
    return replace(trace, metadata={} if number % ATTRIBUTED == 0 else {"attrkit": {"sampled": False}})


def serve(path: str, name: str, confirmed: Connection) -> None:
    """An application under load: it stores, attributes, flushes and says what is confirmed, until it is killed."""
    worker, saying = Worker(Engine(0.01), db=path), threading.Lock()

    def handle_requests(thread: int) -> None:
        for i in itertools.count():
            ids = []
            for j in range(N_AT_ONCE):
                trace = replace(a_trace(f"{name} {thread} {i} {j}", i * N_AT_ONCE + j), finished=datetime.now(UTC))
                writer.current().put(trace, path, Complaints())
                if not trace.metadata:
                    worker.submit(trace)
                ids.append(trace.id)
            if flush_logging(30):
                with saying:
                    confirmed.send(ids)

    threads = [threading.Thread(target=handle_requests, args=(thread,)) for thread in range(N_THREADS)]
    for thread in threads:
        thread.start()


class Watch:
    """Another process's view of when each trace is there to be read."""

    def __init__(self, path: Path) -> None:
        self.delays: list[float] = []
        self._stop, self._path = threading.Event(), path
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _look(self) -> None:
        last = 0
        with contextlib.closing(sqlite3.connect(self._path, timeout=10)) as db:
            while not self._stop.wait(0.002):
                rows = db.execute(
                    "SELECT rowid, finished FROM traces WHERE rowid > ? ORDER BY rowid", [last]
                ).fetchall()
                now = time.time()
                for last, finished in rows:  # noqa: B007
                    self.delays.append(now - datetime.fromisoformat(finished).timestamp())


def kill_at_random_moments(path: Path, n_kills: int, within: float) -> set[str]:
    """The ids that were confirmed before each SIGKILL, at any moment ``within`` so many seconds."""
    spawn, confirmed = multiprocessing.get_context("spawn"), set()
    for n in range(n_kills):
        receiver, sender = spawn.Pipe(duplex=False)
        child = spawn.Process(target=serve, args=(str(path), f"life {n}", sender))
        child.start()
        sender.close()
        confirmed.update(receiver.recv())  # it is up; now at any moment
        heard: list[str] = []
        listener = threading.Thread(target=listen, args=(receiver, heard))
        listener.start()
        time.sleep(random.uniform(0, within))  # noqa: S311
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join(60)
        listener.join(60)
        assert child.exitcode == -signal.SIGKILL
        confirmed.update(heard)
    return confirmed


def listen(receiver: Connection, heard: list[str]) -> None:
    with contextlib.suppress(EOFError, OSError):  # killed in mid-sentence
        while True:
            heard += receiver.recv()


def keys(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return {key for (key,) in db.execute("SELECT key FROM measurements")}


@pytest.mark.parametrize(("n_kills", "within"), [(2, 0.2), pytest.param(20, 0.7, marks=pytest.mark.slow)])
def test_a_process_killed_at_random_moments_loses_nothing_confirmed_and_leaves_nothing_to_pay_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_kills: int, within: float
) -> None:
    path = tmp_path / "a.db"
    Store(path).close()
    watch = Watch(path)
    confirmed = kill_at_random_moments(path, n_kills, within)
    watch.end()
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    before, measured = keys(path), watch_puts(monkeypatch)
    with Store(path) as store:
        stored = {summary.id for summary in store.list(limit=None)}
        assert confirmed
        assert confirmed <= stored
        waiting = [pending.id for pending in store.pending()]
        with Backlog(store, engine=(engine := Engine(0))) as backlog:
            outcomes = list(backlog.work_off())
        assert [(outcome.trace_id, outcome.state) for outcome in outcomes] == [(one, "done") for one in waiting]
        assert list(store.pending()) == []
        attributed = {one for one in stored if store.attributions(one)}
        assert attributed == {one for one in stored if not store.get(one).metadata}
    n_again = len(before & set(measured))
    figures = (
        f"{n_kills} kills, {len(stored)} traces stored, {len(confirmed)} confirmed, {len(confirmed - stored)} lost; "
        f"longest delay from a run's end to its being stored: {max(watch.delays) * 1000:.0f} ms; "
        f"{len(waiting)} attributions finished; {n_again} of {len(before)} measurements made again"
    )
    print(figures)  # noqa: T201 - to be read with -s
    assert n_again == 0
    assert len(measured) == len(set(measured)) == engine.inner.calls == len(keys(path)) - len(before)


def watch_puts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of all measurements that are kept from now on in this process."""
    kept: list[str] = []
    put: Callable[..., None] = Cache._put

    def noted(self: Cache, kind: str, values: dict[str, Any], write: Any) -> None:
        kept.extend(values)
        put(self, kind, values, write)

    monkeypatch.setattr(Cache, "_put", noted)
    return kept
