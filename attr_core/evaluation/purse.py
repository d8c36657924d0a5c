"""Caps over a whole evaluation: one account under all rows, whichever thread they are in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attr_core.errors import BudgetExceededError
from attr_core.metering import MeteredEngine
from attr_core.protocols import Engine
from attr_core.results import Budget

__all__ = ["CappedEngine", "Purse"]


class Purse:
    """What an evaluation may spend on measuring and judging; what the application itself spends nobody here knows.

    ``refused`` is the error of the first call that would have passed a cap: whoever asked may have gone on without it.
    """

    def __init__(self, budget: Budget) -> None:
        self.refused: BudgetExceededError | None = None
        self._budget = budget
        self._first: CappedEngine | None = None

    def capped(self, engine: Engine) -> Engine:
        """The engine under the caps; as it is where there are none."""
        if self._budget == Budget():
            return engine
        new = CappedEngine(engine, purse=self, budget=self._budget)
        self._first = self._first or new
        new.share(self._first)
        return new


class CappedEngine(MeteredEngine):
    """An engine whose spending counts towards a purse; it keeps nothing, since those above it do.

    What was measured before a cap was reached goes up with the error, so that it is kept and paid once.
    """

    def __init__(self, engine: Engine, *, purse: Purse, budget: Budget) -> None:
        super().__init__(engine, budget=budget)
        self._purse = purse

    def share(self, other: CappedEngine) -> None:
        """Count on the other's account."""
        self._account = other._account

    def _measure(self, sent: Sequence[Any], keys: Sequence[str], **how: Any) -> list[Any]:
        kept: dict[str, Any] = {}

        def keep(measured: Mapping[str, Any]) -> None:
            kept.update(measured)

        try:
            return super()._measure(sent, keys, **{**how, "look_up": lambda _: {}, "keep": keep})
        except BudgetExceededError as error:
            self._purse.refused = self._purse.refused or error
            error.completed = {n: kept[key] for n, key in enumerate(keys) if key in kept}  # type: ignore[attr-defined]
            raise
