"""What was spent within which caps, for all threads and engines that share it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from attr_core.errors import BudgetExceededError
from attr_core.results import UNPRICED, Budget, Cost

__all__ = ["Account"]

_REMEDY = " raise it: what was measured is kept"


class Account:
    """What was spent, and what those calls that are under way can come to; one for all threads and engines."""

    def __init__(self, budget: Budget) -> None:
        self.cost = Cost()
        self._held = Cost()
        self._budget = budget
        self._lock = threading.Lock()

    def reserve(self, most: Callable[[], Cost], *, calls: int) -> Cost:
        """Hold what the next calls can come to.

        Raises
        ------
        BudgetExceededError
            That could pass a cap, or the price is unknown and a cap is in USD.
        """
        budget = self._budget
        asked = Cost(calls=calls) if budget.tokens is None and budget.usd is None else most()
        with self._lock:
            spent = self.cost + self._held
            self._check_calls(spent, calls)
            tokens, more = spent.tokens_in + spent.tokens_out, asked.tokens_in + asked.tokens_out
            if budget.tokens is not None and tokens + more > budget.tokens:
                raise BudgetExceededError(
                    f"up to {more} more tokens after {tokens} could pass the budget of {budget.tokens} tokens;{_REMEDY}"
                )
            if budget.usd is not None and math.isnan(asked.usd):
                raise BudgetExceededError(UNPRICED)
            if budget.usd is not None and spent.usd + asked.usd > budget.usd:
                raise BudgetExceededError(
                    f"up to USD {asked.usd:.4f} more after {spent.usd:.4f} could pass the budget of USD {budget.usd};"
                    f"{_REMEDY}"
                )
            self._held += asked
        return asked

    def check_calls(self, calls: int) -> None:
        """See that so many more calls are allowed; how many there will be is known before the first is sent."""
        with self._lock:
            self._check_calls(self.cost + self._held, calls)

    def _check_calls(self, spent: Cost, calls: int) -> None:
        if self._budget.calls is not None and spent.calls + calls > self._budget.calls:
            raise BudgetExceededError(
                f"{calls} more calls after {spent.calls} would pass the budget of {self._budget.calls} calls;{_REMEDY}"
            )

    def settle(self, reserved: Cost, spent: Cost) -> None:
        """Give back what was held, and count what it came to."""
        with self._lock:
            self._held += Cost(-reserved.calls, -reserved.tokens_in, -reserved.tokens_out, -reserved.usd)
            self.cost += spent

    def hit(self, n: int) -> None:
        """Count what was found in the cache."""
        with self._lock:
            self.cost += Cost(cache_hits=n)
