"""What was deleted, beside what hiding the same gave, and what it took."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from attr_core.estimators._designs import single_deletions
from attr_core.estimators._look import Look
from attr_core.estimators._transfer import Confirmed
from attr_core.protocols import ScreenedValue
from attr_core.results import FloatArray, MaskArray

__all__ = ["Ledger"]

DOUBT = 0.25
"""Chance of so small a disagreement among few random subsets where it is in truth as large as is allowed for."""


@dataclass(slots=True, eq=False)
class Ledger:
    """Subsets that were deleted, what they gave, and what that took; ``full`` and ``hidden_full`` are v(all)."""

    screen: ScreenedValue
    full: FloatArray
    hidden_full: FloatArray
    masks: MaskArray
    exact: FloatArray
    hidden: FloatArray
    is_random: MaskArray
    spent: int = 0

    @classmethod
    def opened(cls, screen: ScreenedValue, full: FloatArray) -> Ledger:
        everything = np.ones((1, screen.n_segments), dtype=np.bool_)
        no_masks, no_values = np.zeros((0, screen.n_segments), dtype=np.bool_), np.zeros((0, screen.n_targets))
        hidden_full = screen.hidden(everything)[0]
        return cls(screen, full, hidden_full, no_masks, no_values, no_values, np.zeros(0, dtype=np.bool_))

    @property
    def n_random(self) -> int:
        """Random subsets among them."""
        return int(self.is_random.sum())

    @property
    def longest(self) -> int:
        """Tokens of a prompt that lacks one segment, and of its response: about those of the full one."""
        n = self.screen.n_segments
        return int(self.screen.prices(single_deletions(n)).max(initial=0)) if n else 0

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
        exact = self.screen.exact(masks)
        self.masks = np.concatenate([self.masks, masks])
        self.is_random = np.concatenate([self.is_random, np.full(len(masks), random)])
        self.exact = np.concatenate([self.exact, exact])
        self.hidden = np.concatenate([self.hidden, self.screen.hidden(masks)])
        return np.asarray(self.full - exact)

    def confirmed(self, look: Look, target: int) -> Confirmed:
        return Confirmed(
            look.players.rows(self.masks),
            exact=self.exact[:, target] - self.full[target],
            hidden=self.hidden[:, target] - self.hidden_full[target],
        )

    def random_rows(self, look: Look, target: int) -> Confirmed:
        """Of the random subsets only."""
        rows = self.confirmed(look, target)
        return Confirmed(rows.masks[self.is_random], rows.exact[self.is_random], rows.hidden[self.is_random])

    def may_disagree(self, look: Look, target: int, least: float) -> bool:
        """Whether the agreement is below ``least``, or may be for all that the random subsets tell."""
        spread = float(look.values[:, target].std())
        if not len(self.masks) or spread <= 0:
            return False
        off = ((self.confirmed(look, target).exact - self.confirmed(look, target).hidden) / spread) ** 2
        if not self.n_random:
            return bool(1 - off.mean() < least)
        doubt = self.n_random / float(stats.chi2.ppf(DOUBT, self.n_random))
        return bool(1 - max(off.mean(), doubt * off[self.is_random].mean()) < least)

    def drops(self) -> FloatArray:
        """Of single deletions ``(n_targets, n_segments)``, NaN where none was made."""
        found = np.full((self.screen.n_targets, self.screen.n_segments), np.nan)
        for mask, values in zip(self.masks, self.exact, strict=True):
            if (~mask).sum() == 1:
                found[:, int(np.flatnonzero(~mask)[0])] = self.full - values
        return found
