"""What is done with each row, and where it is stored: asked, stored, diagnosed, stored, each row by itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from attr_core._storage.evaluations import Evaluations, StoredRun
from attr_core.errors import StoreError
from attr_core.evaluation.purse import Purse
from attr_core.evaluation.rows import Row
from attr_core.evaluation.work import Found, Settings, answered, diagnosed, said
from attr_core.protocols import Progress
from attr_core.results import Budget
from attr_core.types import Trace

__all__ = ["Begun", "Steps", "run_in_threads"]


class _Stopped(BaseException):
    """Raised in a row's thread where the evaluation is to stop; what was measured is kept."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that is under way: where it is stored, and which rows are left, with the trace of those answered."""

    run: StoredRun
    store: Evaluations
    left: tuple[tuple[int, Row, str | None], ...]
    n_before: int
    """Rows that were there before."""


class Steps:
    """What is done with one row, and where it is stored; one for all threads of a run."""

    def __init__(
        self, begun: Begun, settings: Settings, *, purse: Purse, budget: Budget, progress: Progress | None
    ) -> None:
        self.begun, self.settings, self.budget = begun, settings, budget
        self.stopping = threading.Event()
        self._purse, self._progress = purse, progress
        self._counting = threading.Lock()
        self._n_rows = len(begun.left) + begun.n_before
        self.n_left = len(begun.left)

    @property
    def why_stopped(self) -> str | None:
        """The cap that ended the run, if one did."""
        refused = self._purse.refused
        return None if refused is None or not self.n_left else str(refused)

    @property
    def db(self) -> str:
        """The file of measured values."""
        return self.begun.store.path

    def ask(self, position: int, row: Row, trace_id: str | None) -> Trace | None:
        """The row's answer, stored; the stored one where it was asked before, ``None`` where it failed."""
        if row.trouble:
            self.fail(position, row, row.trouble)
            return None
        if trace_id is not None:
            with contextlib.suppress(StoreError):
                return self.begun.store.trace(trace_id)
        try:
            trace, seconds = answered(row, self.settings)
        except (Exception, SystemExit) as error:  # of an application that is not ours
            self.fail(position, row, said(error))
            return None
        self.keep_answer(position, row, trace, seconds)
        return trace

    def judge(self, position: int, row: Row, trace: Trace) -> None:
        """The row's diagnosis, stored."""
        began = time.monotonic()
        try:
            found = diagnosed(
                trace, row, self.settings, db=self.db, budget=self.budget, progress=self._stop_where_asked
            )
        except (Exception, SystemExit) as error:
            if self._purse.refused is None:
                self.fail(position, row, said(error), trace_id=trace.id)
            return
        if self._purse.refused is None:
            self.keep(position, row, trace, found, time.monotonic() - began)

    def keep_answer(self, position: int, row: Row, trace: Trace, seconds: float) -> None:
        """Store what the application answered."""
        self.begun.store.answered(self.begun.run.id, _line(position, row, seconds=seconds), trace)

    def keep(self, position: int, row: Row, trace: Trace, found: Found, seconds: float) -> None:
        """Store what was found about it; the row is done."""
        line = _line(position, row, seconds=seconds, details=found.details)
        self.begun.store.done(self.begun.run.id, line, trace, found.diagnosis)
        self._count()

    def fail(self, position: int, row: Row, error: str, *, trace_id: str | None = None) -> None:
        """Store why the row has no result."""
        self.begun.store.failed(self.begun.run.id, _line(position, row), error, trace_id=trace_id)
        self._count()

    @property
    def is_over(self) -> bool:
        """Whether no further row is to be begun."""
        return self.stopping.is_set() or self._purse.refused is not None

    def tell(self) -> None:
        """Tell how far it is."""
        if self._progress is not None:
            self._progress(self._n_rows - self.n_left, self._n_rows)

    def _count(self) -> None:
        with self._counting:
            self.n_left -= 1
        self.tell()

    def _stop_where_asked(self, done: int, planned: int) -> None:
        if self.stopping.is_set():
            raise _Stopped


def _line(position: int, row: Row, **more: Any) -> dict[str, Any]:
    return {
        "row_id": row.id,
        "digest": row.digest,
        "position": position,
        "query": row.query,
        "tags": list(row.tags),
        **more,
    }


def run_in_threads(steps: Steps, *, concurrency: int) -> None:
    """A few rows at a time; the first interrupt, of whomever, ends all at their next slice."""

    def work(position: int, row: Row, trace_id: str | None) -> None:
        if steps.is_over:
            return
        trace = steps.ask(position, row, trace_id)
        if trace is not None and not steps.is_over:
            with contextlib.suppress(_Stopped):
                steps.judge(position, row, trace)

    steps.tell()
    if not steps.begun.left:
        return
    with ThreadPoolExecutor(min(concurrency, len(steps.begun.left)), thread_name_prefix="attrkit-eval") as pool:
        try:
            waiting = {pool.submit(copy_context().run, partial(work, *row)) for row in steps.begun.left}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                _raise_first(done)
        except BaseException:
            steps.stopping.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _raise_first(done: Iterable[Future[None]]) -> None:
    for future in done:
        future.result()
