"""Many calls of a runnable at a time: each has an outcome, an answer or the exception that came instead."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from langchain_core.runnables.config import RunnableConfig, get_executor_for_config

from attr_langchain._quiet import unseen

__all__ = ["ask"]


def ask(
    make: Callable[[], Any],
    inputs: Sequence[Any],
    *,
    limit: int,
    timeout: float | None,
    one_by_one: bool,
    options: Mapping[str, Any],
) -> list[Any]:
    """Outcomes in the order of the inputs; ``limit`` calls at a time of what ``make`` gives, heard by nobody.

    The runnable's own way to do a batch is used, unless it is to be asked ``one_by_one`` or each call has its time.
    """
    config: RunnableConfig = {"callbacks": [], "max_concurrency": limit}

    def all_of_them() -> list[Any]:
        runnable = make()
        if timeout is None and not one_by_one:
            return list(runnable.batch(list(inputs), config, return_exceptions=True, **options))
        one = partial(_outcome, partial(runnable.invoke, config=config, **options), timeout)
        with get_executor_for_config(config) as executor:
            return list(executor.map(one, inputs))

    try:
        outcomes = unseen(all_of_them)
    except Exception as error:
        return [error] * len(inputs)
    if len(outcomes) != len(inputs):
        return [ValueError(f"{len(outcomes)} answers to {len(inputs)} prompts")] * len(inputs)
    return outcomes


def _outcome(call: Callable[[Any], Any], timeout: float | None, given: Any) -> Any:
    try:
        return call(given) if timeout is None else _within(timeout, partial(call, given))
    except Exception as error:
        return error


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """What a call gives; it is left alone, in a thread that keeps no process from ending, where it takes too long."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():
            raise
        raise TimeoutError(f"no answer within {seconds:g} s") from None
