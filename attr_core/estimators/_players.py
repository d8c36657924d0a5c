"""Who is removed together: segments that say nearly the same in many places count as one player at first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attr_core.results import FloatArray, MaskArray

__all__ = ["MIN_TIED", "Players", "tied"]

MIN_TIED = 3
"""Fewest near-duplicates that are tied: two may be a fact and its rival, many are a header or a footer."""


@dataclass(frozen=True, slots=True)
class Players:
    """Segments of each player, as columns of a mask over segments."""

    members: tuple[tuple[int, ...], ...]

    @property
    def n(self) -> int:
        """How many."""
        return len(self.members)

    @property
    def owner(self) -> NDArray[np.int64]:
        """Each segment's player ``(n_segments,)``."""
        owner = np.zeros(sum(map(len, self.members)), dtype=np.int64)
        for player, columns in enumerate(self.members):
            owner[list(columns)] = player
        return owner

    def masks(self, rows: MaskArray) -> MaskArray:
        """Masks over segments ``(n_masks, n_segments)`` from masks over players."""
        return np.asarray(rows[:, self.owner], dtype=np.bool_)

    def rows(self, masks: MaskArray) -> MaskArray:
        """Masks over players from masks over segments that keep or remove each as one."""
        return np.asarray(masks[:, [columns[0] for columns in self.members]], dtype=np.bool_)

    def summed(self, values: FloatArray) -> FloatArray:
        """Of each player's segments, along the last axis."""
        return np.asarray(values @ (self.owner[:, None] == np.arange(self.n)).astype(np.float64))

    def spread(self, values: FloatArray) -> FloatArray:
        """Each segment has its player's value, along the last axis."""
        return np.asarray(values[..., self.owner])

    def without(self, players: Iterable[int]) -> Players:
        """With those players' segments each on its own."""
        drilled = set(players)
        members: list[tuple[int, ...]] = []
        for player, columns in enumerate(self.members):
            members += [(column,) for column in columns] if player in drilled else [columns]
        return Players(tuple(sorted(members)))


def tied(n_segments: int, alike: Iterable[Sequence[int]]) -> Players:
    """One player for every ``MIN_TIED`` or more near-duplicates, one for each other segment."""
    groups = [tuple(sorted(group)) for group in alike if len(group) >= MIN_TIED]
    inside = {column for group in groups for column in group}
    return Players(tuple(sorted([*groups, *((column,) for column in range(n_segments) if column not in inside)])))
