"""Rows on a Ray cluster (extra ``ray``): each a task, results as on one machine, and stored by the one that asked.

A row is two tasks, so that its answer is stored before it is diagnosed. Where a worker dies, what it was at is given to
another one; the application is asked again only if it was answering just then.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attr_core._optional import require
from attr_core._storage.database import MEMORY
from attr_core.errors import ConfigurationError
from attr_core.evaluation.rows import Row
from attr_core.evaluation.steps import Steps
from attr_core.evaluation.work import Found, Settings, answered, diagnosed, said
from attr_core.results import Budget
from attr_core.types import Trace

__all__ = ["MOST_TRIES", "run_on_ray"]

MOST_TRIES = 4
"""Workers that a task may take with it before its row is recorded as failed."""


@dataclass(slots=True)
class _Task:
    position: int
    row: Row
    trace_id: str | None
    trace: Trace | None = None
    tries: int = 0


def run_on_ray(steps: Steps, *, concurrency: int) -> None:
    """Work on the rows that are left, so many at a time; on the cluster that Ray is connected to, else a local one.

    An interrupt waits for answers that are under way, and leaves diagnoses.

    Raises
    ------
    MissingDependencyError
        Ray is not installed.
    ConfigurationError
        Application, judge or engine cannot be sent to another process.
    """
    ray: Any = require("ray", extra="ray")
    if not ray.is_initialized():
        paths = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
        ray.init(
            log_to_driver=False,
            include_dashboard=False,
            logging_level="ERROR",
            runtime_env={"env_vars": {"PYTHONPATH": paths}},  # where an application that is named can be found
        )
    where = (ray.get_runtime_context().get_node_id(), steps.db)
    ask, judge = (ray.remote(max_retries=0, num_cpus=1)(work) for work in (_ask, _judge))
    try:
        settings = ray.put(steps.settings)
    except TypeError as error:
        raise ConfigurationError(
            f"app, judge or engine cannot be sent to other processes ({error}); name them: module:function, hf:MODEL"
        ) from error
    waiting = deque(_Task(position, row, trace_id) for position, row, trace_id in steps.begun.left)
    running: dict[Any, _Task] = {}
    steps.tell()
    try:
        while waiting or running:
            while waiting and len(running) < concurrency:
                task = waiting.popleft()
                if (coming := _sent(task, steps, settings, where, ask, judge)) is not None:
                    running[coming] = task
            if running:
                done, _ = ray.wait(list(running))
                for reference in done:
                    task = running.pop(reference)
                    if not _taken(ray, reference, task, steps):
                        waiting.appendleft(task)
    except BaseException:
        for reference, task in running.items():
            if task.trace is not None:
                ray.cancel(reference, force=True)
        for reference, task in running.items():
            if task.trace is None:  # what the application is answering is worth waiting for
                _taken(ray, reference, task, steps)
        raise


def _sent(task: _Task, steps: Steps, settings: Any, where: Any, ask: Any, judge: Any) -> Any:
    """The task's next step, under way; ``None`` where there is none."""
    if task.trace is None and (task.row.trouble or task.trace_id is not None):
        task.trace = steps.ask(task.position, task.row, task.trace_id)  # stored already, or failed: nothing to be sent
        if task.trace is None:
            return None
    if task.trace is None:
        return ask.remote(task.row, settings)
    return judge.remote(task.trace, task.row, settings, where, steps.budget)


def _taken(ray: Any, reference: Any, task: _Task, steps: Steps) -> bool:
    """Store what a task gave; ``False`` where there is a step to be done, this one again or the next."""
    try:
        found, seconds, error = ray.get(reference)
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as lost:
        task.tries += 1
        if task.tries < MOST_TRIES:
            return False
        found, seconds, error = None, 0.0, f"{task.tries} workers died at it: {type(lost).__name__}"
    except ray.exceptions.RayTaskError as failed:
        found, seconds, error = None, 0.0, said(failed)
    if error is not None:
        steps.fail(task.position, task.row, error, trace_id=None if task.trace is None else task.trace.id)
        return True
    if task.trace is None:
        task.trace, task.tries = found, 0
        steps.keep_answer(task.position, task.row, found, seconds)
        return False
    steps.keep(task.position, task.row, task.trace, found, seconds)
    return True


def _ask(row: Row, settings: Settings) -> tuple[Trace | None, float, str | None]:
    return _outcome(lambda: answered(row, settings)[0])


def _judge(
    trace: Trace, row: Row, settings: Settings, where: tuple[str, str], budget: Budget
) -> tuple[Found | None, float, str | None]:
    """With the driver's own file of measured values where this is its machine."""
    ray: Any = require("ray", extra="ray")
    node, db = where
    is_here = ray.get_runtime_context().get_node_id() == node
    return _outcome(lambda: diagnosed(trace, row, settings, db=db if is_here else MEMORY, budget=budget))


def _outcome(work: Callable[[], Any]) -> tuple[Any, float, str | None]:
    began = time.monotonic()
    try:
        return work(), time.monotonic() - began, None
    except (Exception, SystemExit) as error:
        return None, time.monotonic() - began, said(error)
