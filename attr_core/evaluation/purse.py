"""Caps over a whole evaluation: one account under all rows, whichever thread they are in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from attr_core.cache import Cache
from attr_core.errors import BudgetExceededError
from attr_core.metering import MeteredEngine
from attr_core.protocols import Engine
from attr_core.results import Budget

__all__ = ["CappedEngine", "Purse"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _noting(method: _Method) -> _Method:
    """The method, that tells the purse where a cap was reached: who asked may go on without the measurement."""

    @functools.wraps(method)
    def noted(self: CappedEngine, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except BudgetExceededError as error:
            self.purse.refused = self.purse.refused or error
            raise

    return noted  # type: ignore[return-value]


class CappedEngine(MeteredEngine):
    """An engine whose spending counts towards the caps of its purse."""

    purse: Purse

    score = _noting(MeteredEngine.score)
    generate = _noting(MeteredEngine.generate)
    score_hidden = _noting(MeteredEngine.score_hidden)
    gate_gradients = _noting(MeteredEngine.gate_gradients)
    embed = _noting(MeteredEngine.embed)


class Purse:
    """What an evaluation may spend on measuring and judging; what the application itself spends nobody here knows.

    ``refused`` is the error of the first call that would have passed a cap.
    """

    def __init__(self, budget: Budget, *, db: str) -> None:
        self.refused: BudgetExceededError | None = None
        self.is_open = budget == Budget()
        self._budget, self._cache = budget, Cache(db)
        self._first: MeteredEngine | None = None

    def close(self) -> None:
        """Close its cache."""
        self._cache.close()

    def capped(self, engine: Engine) -> Engine:
        """The engine under the caps; as it is where there are none."""
        if self.is_open:
            return engine
        new = CappedEngine(engine, cache=self._cache, budget=self._budget)
        new.purse = self
        if self._first is None:
            self._first = new
        new._account = self._first._account
        return new
