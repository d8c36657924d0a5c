"""What hidden masks say of every target, and what would be made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attr_core.estimators._interactions import find_pairs, pair_columns
from attr_core.estimators._kriging import ALONE, Surrogate, fit_towards
from attr_core.estimators._players import Players
from attr_core.results import FloatArray, MaskArray, Pair
from attr_core.verdicts import margins

__all__ = ["Look"]


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What hiding says: ``rows`` over players, ``values`` ``(n_masks, n_targets)``, and a fit per target."""

    players: Players
    rows: MaskArray
    values: FloatArray
    fits: tuple[Surrogate, ...]
    pairs: tuple[Pair, ...]
    floor: float

    @classmethod
    def at(cls, players: Players, rows: MaskArray, values: FloatArray, prior: FloatArray, *, floor: float) -> Look:
        """Fit each target, shrunk towards its row of ``prior`` ``(n_targets, n_segments)``; again with its pairs."""
        fits: list[Surrogate] = []
        pairs: list[Pair] = []
        for target, (towards, column) in enumerate(zip(players.summed(prior), values.T, strict=True)):
            added = fit_towards(towards, rows, column, paired=ALONE)
            delta = float(margins(added.effects[None], floor=floor)[0])
            found = find_pairs(rows, added.missed, added.effects, target=target, floor=delta)
            columns = pair_columns(rows, [(pair.first, pair.second) for pair in found])
            fits.append(fit_towards(towards, rows, column, pairs=columns))
            pairs += found
        return cls(players, rows, values, tuple(fits), tuple(_of_segments(pairs, players)), floor)

    @property
    def effects(self) -> FloatArray:
        return np.array([fit.effects for fit in self.fits]).reshape(len(self.fits), self.players.n)

    @property
    def missed(self) -> FloatArray:
        return np.array([fit.missed for fit in self.fits]).reshape(len(self.fits), len(self.rows)).T

    @property
    def delta(self) -> FloatArray:
        return margins(self.effects, floor=self.floor)

    def half_width(self, level: float) -> FloatArray:
        """Of the sampling interval of the hidden effects."""
        error = np.array([fit.error for fit in self.fits]).reshape(len(self.fits), self.players.n)
        return np.asarray(error * stats.t.ppf((1 + level) / 2, len(self.rows) - 1))

    def verdicts(self, effects: FloatArray, half_width: FloatArray) -> NDArray[np.int8]:
        """1 beyond the margin, -1 beyond it below, 0 within it, 2 open."""
        margin = margins(effects, floor=self.floor)[:, None]
        found = np.full(effects.shape, 2, dtype=np.int8)
        found[effects - half_width > margin] = 1
        found[effects + half_width < -margin] = -1
        found[np.abs(effects) + half_width <= margin] = 0
        return found

    def weight(self, members: tuple[int, ...]) -> float:
        """Largest summed effect of these segments on a target, over its margin."""
        of_segments = np.abs(self.players.spread(self.effects))[:, list(members)].sum(axis=1)
        return float((of_segments / self.delta).max(initial=0.0))

    def leaders(self, n_each: int) -> list[tuple[int, ...]]:
        """Players beyond the margin, by size: first the leading one of each target, then the second, and so on."""
        effects = np.abs(self.effects)
        order = np.argsort(-effects, axis=1, kind="stable")[:, :n_each]
        beyond = np.take_along_axis(effects, order, axis=1) - self.delta[:, None]
        found = [
            (place, -beyond[target, place], int(order[target, place]))
            for target in range(len(order))
            for place in range(order.shape[1])
            if beyond[target, place] > 0 or place == 0
        ]
        return [self.players.members[player] for player in dict.fromkeys(player for *_, player in sorted(found))]


def _of_segments(pairs: Iterable[Pair], players: Players) -> list[Pair]:
    """In columns of segments; only of players that are one segment."""
    members = players.members
    return [
        replace(pair, first=members[pair.first][0], second=members[pair.second][0])
        for pair in pairs
        if len(members[pair.first]) == len(members[pair.second]) == 1
    ]
