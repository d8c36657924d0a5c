"""Deferred attribution: one thread measures what the application did, while the application goes on.

A host only ever appends to a queue, without waiting: where the queue is full, the attribution is dropped and counted,
never the trace, and `attrkit worker` makes up for it. A forked child starts with an empty queue; what its parent had
queued, the parent does. When the program ends, what is under way has a few seconds; what is left is said.

Longer than a module should be, since what a thread, a fork and the end of a process do to a queue is one story.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import shlex
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from attr_core._job import Found, Job, Strategy, Submission
from attr_core._lane import Lane, is_interpreter_ending
from attr_core._recording import writer
from attr_core._recording.membrane import Complaints, safely
from attr_core._storage.at_work import AtWork
from attr_core._storage.database import MEMORY, default_path, import_what_makes_a_database
from attr_core.algorithms import Algorithm
from attr_core.attribution import Attribution
from attr_core.cache import Cache
from attr_core.engines import load_engine
from attr_core.errors import ConfigurationError, EngineError, PostponedError
from attr_core.protocols import Engine, Judge
from attr_core.results import Budget
from attr_core.store import Store
from attr_core.types import Trace

__all__ = ["EXIT_SECONDS", "QUEUE_LIMIT", "Submission", "Worker", "WorkerStats"]

QUEUE_LIMIT = 256
"""Traces that may wait for their attribution at a time."""

EXIT_SECONDS = 5.0
"""How long a process that ends waits for attributions under way."""

_RETRY_SECONDS = 60.0  # an engine that could not be loaded is not tried again at once, for each trace that waits


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """What became of the traces submitted so far.

    ``n_pending`` wait or are under way, those included that a worker was closed on; ``n_postponed`` did not fit into
    the day's budget. ``attrkit worker`` attributes these two and what was dropped. Where diagnoses are asked for too, a
    trace is done with both; where only the diagnosis failed, it is done as well.
    """

    n_done: int = 0
    n_failed: int = 0
    n_dropped: int = 0
    n_pending: int = 0
    n_postponed: int = 0


class _Stopped(BaseException):
    """Raised in the worker's thread where it is to leave a trace half done; what was measured is kept."""


class _RefusedError(Exception):
    """The executor takes nothing."""


@dataclass(slots=True, eq=False)
class _Task:
    trace: Trace
    store: Store | str
    submission: Submission


class Worker:
    """Attributes traces in a thread of its own, or a caller's executor: one at a time, in the order they came.

    The engine is loaded there too, with the first trace. Each trace is attributed in an empty context, where adapters
    record nothing, so that no model call of the worker's own comes back as a run of the application. What fails is
    counted, kept on the trace's future, and warned of once a kind.

    Parameters
    ----------
    engine : str or Engine
        What measures. Nothing is ever measured on an engine that was not named. ``None`` where only a judge is asked.
    db : path, optional
        Where results and measurements are kept; by default ``ATTRKIT_DB``, else ``~/.attrkit/attrkit.db``. A trace
        that is there already is left as it is; one that is not is added.
    store : Store, optional
        The same, opened by the caller, who keeps it open.
    algorithm : str or algorithm
    budget : Budget
        Caps for each trace.
    budget_per_day : Budget
        Caps for all deferred attributions of a UTC day on that database, whichever process makes them. What does not
        fit is postponed.
    queue_limit : int
        Traces that may wait; what comes then is dropped.
    executor : Executor, optional
        Where to attribute instead, one trace at a time. It must share this process's memory, as a
        ``ThreadPoolExecutor`` does. A program that ends waits for its executors, and so for a trace under way there.
    options : mapping, optional
        Further ones of :func:`attr_core.api.attribute`: ``granularity``, ``estimator``, ``totals``, ...
    diagnose : bool, default False
        Whether each trace is diagnosed as well, for what its attribution leaves of ``budget``.
    judge : str, Judge, callable or object, optional
        As for :func:`attr_core.judge.load_judge`. A ``Judge`` keeps an account of its own, which no cap holds.
    strategy : {"cause", "support"}, default "cause"
        ``support`` asks the judge alone: it needs no engine, and nothing is attributed.

    Raises
    ------
    ConfigurationError
        No engine, ``db`` and ``store`` at once, an unknown option, a limit below 1, or diagnoses with caps for a day
        and none for a run.

    Examples
    --------
    >>> from attr_core.testing import AdditiveEngine
    >>> fact = "The fair opened in 1911."
    >>> trace = Trace.from_messages([{"role": "user", "content": f"{fact}\\n\\nWhen did it open?"}], "In 1911.")
    >>> with Store(":memory:") as store, Worker(AdditiveEngine({"1911": {fact: 9.0}}), store=store) as worker:
    ...     future = worker.submit(trace)
    ...     worker.flush(), len(store.attributions(trace.id)), worker.stats.n_done
    (True, 1, 1)
    """

    def __init__(
        self,
        engine: str | Engine | None,
        *,
        db: str | os.PathLike[str] | None = None,
        store: Store | None = None,
        algorithm: str | Algorithm = "likelihood",
        budget: Budget = Budget(),
        budget_per_day: Budget = Budget(),
        queue_limit: int = QUEUE_LIMIT,
        executor: Executor | None = None,
        options: Mapping[str, Any] | None = None,
        diagnose: bool = False,
        judge: str | Judge | Any | None = None,
        strategy: Strategy = "cause",
    ) -> None:
        self._job = Job(
            algorithm=algorithm,
            budget=budget,
            budget_per_day=budget_per_day,
            options=options,
            diagnose=diagnose,
            judge=judge,
            strategy=strategy,
        )
        if self._job.attributes and (engine is None or (isinstance(engine, str) and not engine.strip())):
            raise ConfigurationError("no engine is given; name what measures, such as hf:MODEL")
        if db is not None and store is not None:
            raise ConfigurationError("both db and store are given; give one of them")
        if queue_limit < 1:
            raise ConfigurationError(f"queue_limit={queue_limit} leaves no room; give at least 1")
        self._engine: str | Engine | None = engine.strip() if isinstance(engine, str) else engine
        if engine is not None and not isinstance(engine, str):
            load_engine(engine)  # refuses what is no engine
        if db is not None and str(db) == MEMORY:
            store = Store(MEMORY)
        self._store, self._db = store, None if db is None else str(Path(db).expanduser().absolute())
        self._limit, self._executor = queue_limit, executor
        self._complaints = Complaints()
        if store is None:
            safely(self._complaints, import_what_makes_a_database, db)
        self._closed = False
        self._not_loaded: tuple[float, Exception] | None = None
        self._start_over()
        _workers.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.close(None if kind is None else EXIT_SECONDS)

    @property
    def stats(self) -> WorkerStats:
        """Counts so far, in this process."""
        with self._counting:
            n = dict(self._counts)
        n_pending = n["taken"] - n["done"] - n["failed"] - n["postponed"] - n["withdrawn"]
        return WorkerStats(n["done"], n["failed"], n["refused"] + n["withdrawn"], n_pending, n["postponed"])

    def submit(self, trace: Trace) -> Future[Attribution] | None:
        """Queue a trace without waiting; never raises.

        Returns
        -------
        Future or None
            Of the attribution. Its callbacks are called in the worker's thread; it is cancelled where the worker ends
            before. ``None`` where the trace was dropped: the queue is full, or the worker was closed; and where
            nothing is to be attributed.
        """
        submission = self.queue(trace)
        return None if submission is None else submission.attribution

    def queue(self, trace: Trace) -> Submission | None:
        """:meth:`submit`, for the futures of all that is asked for: of the attribution and of the diagnosis."""
        return safely(self._complaints, self._take, trace)  # type: ignore[no-any-return]

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until every trace submitted before is done with: attributed, failed or postponed.

        Returns
        -------
        bool
            ``False`` when ``timeout`` seconds were not enough, when traces were given up, or where it is asked in the
            worker's own thread, which would wait for itself.
        """
        return not self._is_here() and self._lane.wait(timeout) and not self._has_left

    def close(self, timeout: float | None = None) -> bool:
        """Flush, and take no trace any more; whether all was done with in ``timeout`` seconds.

        What is left then is given up, with a warning that says how to finish it. The trace under way is left at the
        next slice of measurements, which are kept.
        """
        self._closed = True
        if self._is_here():
            return False
        flushed = self.flush(timeout)
        if not flushed:
            self._give_up()
            _say_what_is_left([self])
        self._lane.end()
        return flushed

    def _start_over(self) -> None:
        """As new, and in a forked child: with an empty queue, no thread, and no lock that another thread may hold."""
        self._lane: Lane[_Task] = Lane(
            self._handle, name="attrkit-worker", on_start=writer.flush_where_atexit_is_skipped
        )
        self._counting = threading.RLock()  # the garbage collector may submit in a thread that counts already
        self._counts = dict.fromkeys(("taken", "refused", "done", "failed", "postponed", "withdrawn"), 0)
        self._n_told = 0
        self._stopping = self._has_left = False
        self._measuring: int | None = None
        self._cache: Cache | None = None

    def _is_here(self) -> bool:
        return self._lane.is_here or self._measuring == threading.get_ident()

    def _give_up(self) -> None:
        """Take back what waits, and have what is under way stop where it can."""
        self._stopping = self._has_left = True
        for task in self._lane.take_back():
            task.submission.withdraw()

    def _take(self, trace: Trace) -> Submission | None:
        if trouble := self._refusal():
            self._count("refused")
            self._complaints.say(*trouble)
            return None
        submission = Submission(Future() if self._job.attributes else None, Future() if self._job.diagnoses else None)
        self._count("taken")
        self._lane.put(_Task(trace, self._store or self._db or str(default_path().absolute()), submission))
        return submission

    def _refusal(self) -> tuple[str, str] | None:
        if self._closed:
            return "closed", "a worker was closed; what is submitted to it now is not attributed"
        if self._measuring == threading.get_ident():
            return "inside", "an engine submitted its own call for attribution, which would never end; it is dropped"
        if self._lane.n_waiting >= self._limit:
            return "full", f"{self._limit} traces wait for attribution; runs go without it until the worker catches up"
        return None

    def _count(self, what: str) -> None:
        with self._counting:
            self._counts[what] += 1

    # What follows runs in the worker's thread.

    def _handle(self, task: _Task) -> None:
        if not task.submission.begin():
            self._count("withdrawn")
            return
        try:
            found = self._attributed(task)
        except BaseException as error:  # of an engine that is not ours, even SystemExit
            task.submission.fail(self._failed(error))
        else:
            self._count("done")
            if found.trouble is not None:
                self._say_undiagnosed(found.trouble)
            task.submission.conclude(found)

    def _say_undiagnosed(self, error: Exception) -> None:
        kind, reason = type(error).__name__, f"{type(error).__name__}: {error}"
        what = f"a run could not be diagnosed ({reason}); its attribution and the run itself are not affected"
        self._complaints.say(f"undiagnosed {kind}", what)

    def _failed(self, error: BaseException) -> Exception:
        """Count a failure and tell of it; what the trace's future is to say."""
        if isinstance(error, PostponedError):
            kind, what = "postponed", "an attribution was postponed"
        elif self._stopping or is_interpreter_ending():
            self._has_left = True
            return CancelledError("the worker ended before; `attrkit worker` attributes the trace")
        elif isinstance(error, CancelledError | _RefusedError):
            kind, what = "withdrawn", "the executor takes no attribution any more"
        else:
            kind, what = "failed", f"a run could not be {'attributed' if self._job.attributes else 'diagnosed'}"
        self._count(kind)
        reason = f"{type(error).__name__}: {error}"
        self._complaints.say(f"{kind} {type(error).__name__}", f"{what} ({reason}); the run itself is not affected")
        return error if isinstance(error, Exception) else EngineError(f"the engine left by {reason}")

    def _attributed(self, task: _Task) -> Found:
        context = contextvars.Context()
        if self._executor is None:
            return context.run(self._attribute, task)
        try:
            coming = self._executor.submit(context.run, self._attribute, task)
        except Exception as error:
            raise _RefusedError(str(error)) from error
        return coming.result()

    def _attribute(self, task: _Task) -> Found:
        self._measuring = threading.get_ident()
        try:
            with contextlib.ExitStack() as opened:
                store = task.store if isinstance(task.store, Store) else opened.enter_context(Store(task.store))
                cache = self._own_cache() if store.path == MEMORY else opened.enter_context(Cache(store.path))
                opened.enter_context(AtWork(store.path).on(task.trace.id))
                return self._job.run(
                    task.trace,
                    self._loaded() if self._job.attributes else None,
                    store=store,
                    cache=cache,
                    progress=self._heed,
                    tell=task.submission.tell,
                )
        finally:
            self._measuring = None

    def _own_cache(self) -> Cache:
        """What was measured for a store in memory, for as long as the worker is there."""
        self._cache = self._cache or Cache(MEMORY)
        return self._cache

    def _loaded(self) -> Engine:
        if self._not_loaded is not None and time.monotonic() - self._not_loaded[0] < _RETRY_SECONDS:
            raise self._not_loaded[1].with_traceback(None)
        try:
            return load_engine(self._engine)
        except Exception as error:
            self._not_loaded = (time.monotonic(), error)
            raise

    def _heed(self, done: int, planned: int) -> None:
        if self._stopping:
            raise _Stopped

    def _way_to_finish(self) -> str:
        place = self._store.path if self._store is not None else self._db
        if place == MEMORY:
            return "they go with the store in memory"
        file = "" if place in (None, str(default_path().absolute())) else f" --db {shlex.quote(str(place))}"
        command = f"attrkit worker --once{self._job.arguments}"
        if not self._job.attributes:
            return f"finish them with: {command}{file}"
        if isinstance(self._engine, str):
            return f"finish them with: {command} --engine {shlex.quote(self._engine)}{file}"
        name = getattr(self._engine, "spec", type(self._engine).__name__)
        return (
            f"their engine was an object ({name}), which another process cannot load; name one that it can: "
            f"{command} --engine SPEC{file}"
        )


def _say_what_is_left(workers: Iterable[Worker]) -> None:
    """One warning for all of them, and only of what was not told of before."""
    left: dict[str, int] = {}
    for worker in workers:
        n_pending = worker.stats.n_pending
        if n_new := n_pending - worker._n_told:
            worker._n_told = n_pending
            way = worker._way_to_finish()
            left[way] = left.get(way, 0) + n_new
    if left:
        total = sum(left.values())
        what = f"{total} attribution{' is' if total == 1 else 's are'} pending that this process did not make"
        with contextlib.suppress(Exception):  # a host may have turned warnings into errors
            warnings.warn(f"attrkit: {what}; {'; '.join(left)}", RuntimeWarning, stacklevel=3)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


def _at_exit() -> None:
    workers, deadline = list(_workers), time.monotonic() + EXIT_SECONDS
    try:
        for worker in workers:
            worker.flush(max(deadline - time.monotonic(), 0))
    except KeyboardInterrupt:  # somebody does not want to wait
        pass
    for worker in workers:
        if worker.stats.n_pending:
            worker._give_up()
    for worker in workers:
        if worker._executor is None:
            worker._lane.interrupt(_Stopped)
    _say_what_is_left(workers)


def _before_fork() -> None:
    """Python warns a program that forks while it has threads: those with nothing to do end first."""
    for worker in list(_workers):
        worker._lane.rest()


def _in_child() -> None:
    for worker in list(_workers):
        worker._start_over()
        worker._executor = None  # its threads do not live here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)

writer.after_last_flush(_at_exit)
