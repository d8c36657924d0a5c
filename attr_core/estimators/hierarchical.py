"""Hierarchical attribution: documents first, then the segments of those that matter, all on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import ConfigurationError
from attr_core.estimators._designs import kept
from attr_core.estimators._players import Players
from attr_core.estimators.banzhaf import Banzhaf
from attr_core.estimators.debiased_lasso import DebiasedLasso
from attr_core.estimators.screened import Screened
from attr_core.protocols import Estimator, ScreenedValue, ValueFunction
from attr_core.results import Estimate, FloatArray, MaskArray
from attr_core.verdicts import margins

__all__ = ["MAX_MASKS", "Hierarchical"]

MAX_MASKS = 448
"""Least default budget: a small screen of the groups (at most 151 masks) and a whole one (at most 311) of what is left
to tell apart, since the first seldom takes half of its most; without a screen, 20 groups and then some 100 players."""

ENUMERATED = 6
"""Most players whose subsets are enumerated without being asked for."""

FEWEST = 34
"""Least budget: 32 random masks and the two plain rows."""

_SCREENS = (Screened(), Screened(max_exact=16), Screened(n_hidden=48, max_exact=0, n_drops=1))
"""What is tried in turn where the value function offers its fidelities."""


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Banzhaf values of whole documents, and of the single segments of those documents that matter.

    Groups are those of the value function (``groups``: the segments of one document); without any this is the inner
    estimator. At first each group is one player. Groups that matter, whose interval reaches beyond the margin δ on some
    target (the effect itself, where it is computed or only ranks; an undefined one always does), are drilled: each of
    their segments becomes a player, the other groups stay players, and all are estimated anew; and again, while the
    effect of a group lies beyond the margin of the new effects. So everything comes from the last round, on one scale:
    a segment's effect is its average contribution while the others, and the other groups as wholes, are kept with
    probability one half. A group that is left is ``tied``: each column has the effect of all of it, and its resolution
    says ``group``. A group whose segments pull in opposite directions as much does not matter. Unit: the value's;
    positive when the segment supports the target.

    Cost: per round what the inner estimator takes for so many players; all rounds together ``max_masks`` different
    masks, which holds. The first round takes half of it at most, if any estimator does with that. Where not all groups
    that matter can be drilled, the largest are, and the result is ``partial``. ``n_masks`` says the most; up to six
    segments are enumerated at once.

    Parameters
    ----------
    inner : Estimator, optional
        What estimates the players. By default all subsets where they are at most 64, else
        :class:`~attr_core.estimators.Screened` where the value function offers its fidelities, else
        :class:`~attr_core.estimators.DebiasedLasso`; that too where the full prompt exceeds the model's window.
        ``estimand`` is the inner estimator's, and so is ``fidelity``. By default the latter is ``exact``, since a
        default screen is not known before the value function is; ``ablations`` then are deleted ones only.
    max_masks : int, optional
        Most different masks, hidden and deleted ones counted apart; gates are not masks. By default the larger of 448
        and the number of segments.

    Raises
    ------
    ConfigurationError
        Fewer than 34 masks. From ``estimate``, before anything is measured: ``inner`` needs more than ``max_masks`` for
        the groups alone, or the value function's groups do not hold every segment once.

    References
    ----------
    Liu, Kandpal and Raffel, AttriBoT: A Bag of Tricks for Efficiently Approximating Leave-One-Out Context Attribution,
    ICLR 2025 (arXiv:2411.15102): paragraphs first, then the sentences of the leading ones. Monteiro Paes et al.,
    Multi-Level Explanations for Generative Language Models, ACL 2025 (arXiv:2403.14459): coarse units, then fine ones.
    AttriBoT drops the other paragraphs from the prompt and scores its sentences by leave-one-out; here the others stay
    players, and which are drilled goes by interval and margin, not by a number of leading ones.

    Examples
    --------
    >>> from attr_core.testing import GameValue
    >>> documents = tuple((n, n + 1) for n in range(0, 12, 2))
    >>> game = GameValue(lambda mask: [6.0 * mask[1] - 0.2 * mask[4] - 0.1 * mask[5]], n_segments=12, groups=documents)
    >>> found = Hierarchical().estimate(game)
    >>> found.effects[0, :6].round(1) + 0.0, found.tied[:2]
    (array([ 0. ,  6. ,  0. ,  0. , -0.3, -0.3]), ((2, 3), (4, 5)))
    """

    inner: Estimator | None = None
    max_masks: int | None = None

    name: ClassVar[str] = "Hierarchical"

    def __post_init__(self) -> None:
        if self.max_masks is not None and self.max_masks < FEWEST:
            raise ConfigurationError(f"max_masks={self.max_masks} is too few to sample; give {FEWEST} or more")

    @property
    def estimand(self) -> str:
        """The inner estimator's."""
        return "banzhaf" if self.inner is None else self.inner.estimand

    @property
    def fidelity(self) -> Literal["exact", "hidden"]:
        """That of ``ablations``."""
        return "exact" if self.inner is None else self.inner.fidelity

    def n_masks(self, n_segments: int) -> int:
        """At most, over all rounds."""
        most = max(MAX_MASKS, n_segments) if self.max_masks is None else self.max_masks
        return min(most, int(2**n_segments)) if self.inner is None and n_segments <= ENUMERATED else most

    def ablations(self, value: ValueFunction, *, seed: int = 0) -> MaskArray:
        """The masks of the first round; none where that is a screen of its own choice."""
        players = self._players(value)
        inner = self._first(value, players, self._choices(value))
        if inner.fidelity != self.fidelity:
            return np.zeros((0, value.n_segments), dtype=np.bool_)
        return players.masks(inner.ablations(_Grouped(value, players, set()), seed=seed))

    def estimate(self, value: ValueFunction, *, seed: int = 0) -> Estimate:
        """Estimate the groups, then drill into those that matter while the masks last."""
        players, choices = self._players(value), self._choices(value)
        inner: Estimator | None = self._first(value, players, choices)
        seen: set[tuple[str, bytes]] = set()
        is_first, is_cut = True, False
        while inner is not None:
            found = inner.estimate(_Grouped(value, players, seen), seed=seed)
            maybe = _mattering(found, players, floor=value.floor, surely=False)
            # Looking closer makes no interval narrower, so one that is merely wide is a reason once only.
            matter = maybe if is_first else _mattering(found, players, floor=value.floor, surely=True)
            drilled, inner = self._drilled(players, matter, choices, left=self.n_masks(value.n_segments) - len(seen))
            is_cut |= drilled.n < players.without(matter).n
            is_first = False
            if inner is not None:
                players = drilled
        return _of_segments(found, players, partial=is_cut and bool(maybe), n_masks=len(seen))

    def _players(self, value: ValueFunction) -> Players:
        """One for each group; one for each segment where there are none, or so few that all subsets are measured."""
        n = value.n_segments
        groups: Sequence[Sequence[int]] = getattr(value, "groups", ())
        if not groups or (self.inner is None and n <= ENUMERATED and 2**n <= self.n_masks(n)):
            return Players(tuple((column,) for column in range(n)))
        if sorted(column for group in groups for column in group) != list(range(n)) or not all(groups):
            raise ConfigurationError(
                f"the groups of {value.name} do not hold each of {n} segments once; give every column one group"
            )
        players = Players(tuple(sorted(tuple(sorted(group)) for group in groups)))
        if value.fits(kept(n))[0]:
            return players
        # What does not even fit alone could never be measured as a whole, its segments may be.
        alone = value.fits(players.masks(np.eye(players.n, dtype=np.bool_)))
        return players.without(np.flatnonzero(~alone).tolist())

    def _choices(self, value: ValueFunction) -> tuple[Estimator, ...]:
        """Inner estimators, the first that fits the budget to be taken."""
        if self.inner is not None:
            return (self.inner,)
        sampled = (DebiasedLasso(), DebiasedLasso(n_drops=0))
        if not value.fits(kept(value.n_segments))[0]:
            return sampled
        return (Banzhaf(), *(_SCREENS if isinstance(value, ScreenedValue) else sampled))

    def _fitting(self, n_players: int, choices: Sequence[Estimator], most: int) -> Estimator | None:
        for one in choices:
            unasked = self.inner is None and isinstance(one, Banzhaf) and n_players > ENUMERATED
            if not unasked and _takes(one, n_players) <= most:
                return one
        return None

    def _first(self, value: ValueFunction, players: Players, choices: Sequence[Estimator]) -> Estimator:
        """What estimates the groups."""
        most = self.n_masks(value.n_segments)
        share = most // 2 if players.n < value.n_segments else most
        inner = self._fitting(players.n, choices, share) or self._fitting(players.n, choices, most)
        if inner is not None:
            return inner
        if self.inner is None:  # what does not fit now will not fit for more players, so nothing need be left over
            return DebiasedLasso(min(most - 2, DebiasedLasso().n_random(players.n)), n_drops=0)
        raise ConfigurationError(
            f"{self.inner.name} over {players.n} groups needs up to {self.inner.n_masks(players.n)} masks, max_masks "
            f"allows {most}; raise it, or leave the inner estimator to attrkit"
        )

    def _drilled(
        self, players: Players, matter: Sequence[int], choices: Sequence[Estimator], *, left: int
    ) -> tuple[Players, Estimator | None]:
        """With the segments of as many groups as ``left`` masks allow on their own, and what estimates that."""
        for n_drilled in range(len(matter), 0, -1):
            finer = players.without(matter[:n_drilled])
            if (inner := self._fitting(finer.n, choices, left)) is not None:
                return finer, inner
        return players, None


class _Grouped:
    """A value function whose segments are players. ``seen`` takes up every mask that is measured.

    The cheap fidelities are there where the value function has them.
    """

    def __init__(self, value: ValueFunction, players: Players, seen: set[tuple[str, bytes]]) -> None:
        self._value = value
        self._players = players
        self._seen = seen
        self.name, self.unit, self.floor, self.knows_right = value.name, value.unit, value.floor, value.knows_right
        self.n_segments, self.n_targets = players.n, value.n_targets
        if isinstance(value, ScreenedValue):
            self._screen: ScreenedValue = value
            self.alike = self._alike(value.alike)
            self.prices = self._prices
            self.hidden = self._hidden
            self.gradients = self._gradients

    @property
    def scales(self) -> FloatArray:
        return self._value.scales

    def fits(self, masks: MaskArray) -> MaskArray:
        return self._value.fits(self._players.masks(masks))

    def exact(self, masks: MaskArray) -> FloatArray:
        return self._value.exact(self._measured("exact", masks))

    def _hidden(self, masks: MaskArray) -> FloatArray:
        return self._screen.hidden(self._measured("hidden", masks))

    def _gradients(self, gates: FloatArray) -> FloatArray:
        return self._players.summed(self._screen.gradients(self._players.spread(gates)))

    def _prices(self, masks: MaskArray) -> NDArray[np.int64]:
        return self._screen.prices(self._players.masks(masks))

    def _measured(self, how: str, masks: MaskArray) -> MaskArray:
        whole = self._players.masks(masks)
        self._seen.update((how, mask.tobytes()) for mask in whole)
        return whole

    def _alike(self, groups: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Of the near-duplicates those that are players of their own."""
        alone = {columns[0]: player for player, columns in enumerate(self._players.members) if len(columns) == 1}
        found = (tuple(alone[column] for column in group if column in alone) for group in groups)
        return tuple(players for players in found if len(players) > 1)


def _takes(estimator: Estimator, n_players: int) -> float:
    try:
        return estimator.n_masks(n_players)
    except ConfigurationError:  # more than it can enumerate
        return np.inf


def _mattering(found: Estimate, players: Players, *, floor: float, surely: bool) -> list[int]:
    """Groups of several segments that reach beyond the margin on some target, the largest effect first.

    The effect itself must where ``surely``, or where it is computed or only ranks; else the interval. What is undefined
    may be anything.
    """
    delta = margins(found.effects, floor=floor)[:, None]
    size = np.abs(found.effects)
    is_sampled = found.decisive and not found.exact
    reach = np.maximum(np.abs(found.low), np.abs(found.high)) if is_sampled and not surely else size
    beyond = np.any(np.isnan(reach) | np.isnan(size) | (reach > delta), axis=0, keepdims=True)[0]
    largest = np.nan_to_num(size / delta).max(axis=0, initial=0.0)
    groups = [player for player, columns in enumerate(players.members) if len(columns) > 1 and beyond[player]]
    return sorted(groups, key=lambda player: -largest[player])


def _of_segments(found: Estimate, players: Players, *, partial: bool, n_masks: int) -> Estimate:
    """What was found of players, in columns of segments; drops, pairs and redundancy only of players of one."""
    members, spread = players.members, players.spread
    alone = {player: columns[0] for player, columns in enumerate(members) if len(columns) == 1}
    is_alone = np.array([player in alone for player in range(players.n)], dtype=np.bool_)
    tied = [tuple(sorted(column for player in one for column in members[player])) for one in found.tied]
    inside = {player for one in found.tied for player in one}
    whole = [columns for player, columns in enumerate(members) if len(columns) > 1 and player not in inside]
    return replace(
        found,
        effects=spread(found.effects),
        low=spread(found.low),
        high=spread(found.high),
        error=spread(found.error),
        drops=spread(np.where(is_alone, found.drops, np.nan)),
        n_masks=n_masks,
        pairs=tuple(
            replace(pair, first=alone[pair.first], second=alone[pair.second])
            for pair in found.pairs
            if pair.first in alone and pair.second in alone
        ),
        groups=tuple(
            replace(group, members=tuple(alone[player] for player in group.members))
            for group in found.groups
            if alone.keys() >= set(group.members)
        ),
        tied=tuple(sorted([*tied, *whole])),
        partial=partial or found.partial,
    )
