"""What deferred attributions spend on each UTC day, over all processes that share a database."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from attr_core._storage.database import Database, insert, select
from attr_core.errors import BudgetExceededError, PostponedError, StoreError
from attr_core.results import UNPRICED, Budget, Cost


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one run may spend at most, and the day that it is counted on, though it may end on the next."""

    day: date
    most: Cost


class Spending:
    """The day's account: the most that a run can cost is reserved before it, and what it did not cost is given back.

    What a killed process had reserved stays spent, so that a cap holds in any case.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, day: date) -> Cost:
        """Calls, tokens and money of that day, what is reserved included."""
        with self._database.reading() as db:
            return _read(db, day)

    def today(self) -> Cost:
        """Those of today."""
        return self.of(_today())

    def reserve(self, most: Cost, *, within: Budget = Budget()) -> Reservation:
        """Set aside what a run may cost at most.

        Raises
        ------
        PostponedError
            It does not fit into what is left of the day's budget.
        BudgetExceededError
            It is more than the budget of a whole day, or the budget is of money and the price is unknown.
        StoreError
            The day's account is damaged, so that no cap could hold; without caps it begins anew.
        """
        if within.usd is not None and math.isnan(most.usd):
            raise BudgetExceededError(UNPRICED)
        most = replace(most, usd=0.0 if math.isnan(most.usd) else most.usd)
        _refuse(most, within, Cost())
        reservation = Reservation(_today(), most)
        with self._database.writing() as db:
            spent = Cost() if within == Budget() and _is_damaged(db, reservation.day) else _read(db, reservation.day)
            _refuse(most, within, spent)
            _write(db, reservation.day, spent + most)
        return reservation

    def settle(self, reservation: Reservation, real: Cost) -> None:
        """Give back what was reserved and not spent."""
        usd = reservation.most.usd if math.isnan(real.usd) else real.usd
        with self._database.writing() as db:
            held, most = _read(db, reservation.day), reservation.most
            left = Cost(
                calls=held.calls - most.calls + real.calls,
                tokens_in=held.tokens_in - _tokens(most) + _tokens(real),
                usd=held.usd - most.usd + usd,
            )
            _write(db, reservation.day, left)


def _today() -> date:
    return datetime.now(UTC).date()


def _tokens(cost: Cost) -> int:
    return cost.tokens_in + cost.tokens_out


def _refuse(most: Cost, within: Budget, spent: Cost) -> None:
    for name, cap, needed, used in (
        ("calls", within.calls, most.calls, spent.calls),
        ("tokens", within.tokens, _tokens(most), spent.tokens_in),
        ("usd", within.usd, most.usd, spent.usd),
    ):
        if cap is not None and needed > cap:
            raise BudgetExceededError(f"this needs up to {needed:g} {name}, the budget of a day is {cap:g}; raise it")
        if cap is not None and used + needed > cap:
            raise PostponedError(
                f"this needs up to {needed:g} {name}, and {max(cap - used, 0):g} of today's {cap:g} are left; "
                "it can be done tomorrow (UTC), or with a larger budget per day"
            )


def _key(day: date) -> str:
    return f"spent:{day.isoformat()}"


def _read(db: sqlite3.Connection, day: date) -> Cost:
    found = select(db, "SELECT value FROM memory WHERE key = ?", [_key(day)])
    if not found:
        return Cost()
    try:
        kept = json.loads(found[0]["value"])
        return Cost(calls=int(kept["calls"]), tokens_in=int(kept["tokens"]), usd=float(kept["usd"]))
    except (KeyError, TypeError, ValueError) as error:  # what was spent is not known, so no cap can hold
        raise StoreError(
            f"what was spent on {day} is damaged; delete row {_key(day)!r} of table memory to count it from nothing"
        ) from error


def _is_damaged(db: sqlite3.Connection, day: date) -> bool:
    try:
        _read(db, day)
    except StoreError:
        return True
    return False


def _write(db: sqlite3.Connection, day: date, cost: Cost) -> None:
    kept = {"calls": max(cost.calls, 0), "tokens": max(_tokens(cost), 0), "usd": max(cost.usd, 0.0)}
    insert(db, "memory", [{"key": _key(day), "value": json.dumps(kept)}], key=("key",))
