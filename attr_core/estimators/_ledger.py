"""What was deleted, beside what hiding the same gave, and what it took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attr_core.estimators._look import Look
from attr_core.estimators._transfer import Confirmed
from attr_core.protocols import ScreenedValue
from attr_core.results import FloatArray, MaskArray

__all__ = ["Ledger"]


@dataclass(slots=True, eq=False)
class Ledger:
    """Subsets that were deleted, what they gave, and what that took; ``full`` and ``hidden_full`` are v(all)."""

    screen: ScreenedValue
    full: FloatArray
    hidden_full: FloatArray
    masks: MaskArray
    exact: FloatArray
    hidden: FloatArray
    spent: int = 0
    n_random: int = 0

    @classmethod
    def opened(cls, screen: ScreenedValue, full: FloatArray) -> Ledger:
        nothing = np.zeros((0, screen.n_targets))
        everything = np.ones((1, screen.n_segments), dtype=np.bool_)
        return cls(
            screen,
            full,
            screen.hidden(everything)[0],
            np.zeros((0, screen.n_segments), dtype=np.bool_),
            nothing,
            nothing,
        )

    def has(self, mask: MaskArray) -> bool:
        return bool((self.masks == mask).all(axis=1).any())

    def affords(self, masks: MaskArray, tokens: int) -> bool:
        return bool(self.spent + self.screen.prices(masks).sum() <= tokens)

    def hidden_drops(self, masks: MaskArray) -> FloatArray:
        """v(all) less what is left, ``(n_masks, n_targets)``."""
        return self.hidden_full - self.screen.hidden(masks)

    def delete(self, masks: MaskArray, *, random: bool = False) -> FloatArray:
        """Measure both ways; the exact drops ``(n_masks, n_targets)``."""
        self.spent += int(self.screen.prices(masks).sum())
        self.n_random += len(masks) if random else 0
        exact = self.screen.exact(masks)
        self.masks = np.concatenate([self.masks, masks])
        self.exact = np.concatenate([self.exact, exact])
        self.hidden = np.concatenate([self.hidden, self.screen.hidden(masks)])
        return np.asarray(self.full - exact)

    def confirmed(self, look: Look, target: int) -> Confirmed:
        return Confirmed(
            look.players.rows(self.masks),
            exact=self.exact[:, target] - self.full[target],
            hidden=self.hidden[:, target] - self.hidden_full[target],
        )

    def drops(self) -> FloatArray:
        """Of single deletions ``(n_targets, n_segments)``, NaN where none was made."""
        found = np.full((self.screen.n_targets, self.screen.n_segments), np.nan)
        for mask, values in zip(self.masks, self.exact, strict=True):
            if (~mask).sum() == 1:
                found[:, int(np.flatnonzero(~mask)[0])] = self.full - values
        return found
