"""Screened attribution: gradients and hidden-cache masks find who matters, a few exact deletions confirm and scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attr_core.errors import ConfigurationError
from attr_core.estimators._designs import balanced, check_whole_fits, kept, removed, screened
from attr_core.estimators._interactions import members_of, redundant
from attr_core.estimators._ledger import Ledger
from attr_core.estimators._look import Look
from attr_core.estimators._players import Players, tied
from attr_core.estimators._transfer import Transfer, corrected, transferred
from attr_core.estimators.debiased_lasso import held_out_fit
from attr_core.estimators.path_gradients import GATES, equal_gates, path_effects
from attr_core.protocols import ScreenedValue, ValueFunction
from attr_core.results import Estimate, FloatArray, MaskArray, RedundancyGroup
from attr_core.verdicts import margins

__all__ = ["MIN_AGREEMENT", "Screened"]

MIN_AGREEMENT = 0.7
"""Share of the hidden values' variance that must be left when what hiding and deleting differ by is taken off."""

MATTERS = 0.1
"""Effect over the margin from which on tied segments are looked at one by one, if it may be beyond the margin."""

ROUND = 16
"""Hidden masks between two looks at the verdicts."""

EXACT_ROUND = 4
"""Exact random masks between two looks."""

ENOUGH = 16
"""Exact random masks that make an interval valid even where hiding says little about deleting."""

RANKED = 48
"""Exact random masks that rank segments as well as they can be ranked, where they are cheap."""

SHORT = 1_500
"""Tokens of a prompt below which deletions are cheap: those of one half as long may forward twice as many."""

MAX_LEADERS = 12
"""Leading segments, over all targets, that are deleted alone."""

MAX_MEMBERS = 6
"""Most members of a group that is looked at: more are a header, not a fact that is told twice."""

MAX_GROUPS = 2
"""Redundancy candidates that are deleted, one by one and together."""


@dataclass(frozen=True, slots=True)
class Screened:
    """Banzhaf values of deletion, found by hiding segments in the prompt's cache and confirmed by deleting a few.

    Three stages, of which the first two forward the whole prompt once, between them, and then its tail only. (1)
    :class:`~attr_core.estimators.PathGradients` give every segment's effect roughly. (2) Balanced random subsets,
    hidden, correct that: effects shrink towards it as far as leaving a subset out says they should, until two looks
    in a row come to the same verdicts. (3) The leading segments of each target are deleted from the real prompt,
    alone and with those they are redundant with, and then some of the same random subsets, as ``exact_tokens``
    allows: a few, or 48 of short prompts, where they are cheap. What hiding and deleting differ by there, beside how
    far they differ on other prompts, turns the hidden effects into those of deletion; intervals have the sampling of
    stage 2 and the disagreement of stage 3 in them.
    ``agreement`` is one minus that difference, squared, over the variance of the hidden values. Where it may be
    below ``MIN_AGREEMENT``, for all that the random subsets tell, more of them are deleted, up to ``max_exact``;
    from 16 on they alone make the interval, which is then right however little hiding says. With fewer, and low
    agreement, the target has no interval and its verdicts are ``undetermined``. On long prompts little more than
    the leading segments is deleted: that hiding would have shown the others rests on other prompts there.

    Effects are shrunk: posterior means under a prior by which few segments of many matter and pairs of those that do
    interact. While fewer than 32 random subsets are deleted, an effect that is neither beyond the margin nor told apart
    from 0 by its interval reads 0, as in a LASSO: many small estimates of what has no effect would predict worse than
    none.

    Near-duplicates in three or more places (headers, boilerplate) are removed as one at first, and one by one where
    they matter; what stays tied has the effect of all of it, and its resolution says ``group``. Near-duplicates and
    segments whose pair term is strongly negative are deleted alone and together: ``groups`` has those where
    together takes more than the sum. ``fit`` is of hidden values. Unit: the value's; positive when the segment
    supports the target.

    Cost: for T tokens of prompt and a tail of t (question and response), T once; 3 gates, each t forward and 2t
    backward per target; 48 to ``n_hidden`` masks of t; deletions of up to T each, one at least, further ones within
    ``exact_tokens``.

    Parameters
    ----------
    n_hidden : int, default 96
        Most hidden masks; the first look is at 32.
    exact_tokens : int, default 4800
        Tokens that deletions may forward, per distinct continuation, of a prompt of 1,500 tokens or more; of one half
        as long twice as many, and so on. The first one, and those of redundancy groups, are made whatever they take.
    max_exact : int, default 64
        Most random subsets that are deleted; more than ``exact_tokens`` allows only where the agreement is low.
    n_drops : int, default 3
        Leading segments of each target whose single deletion is measured, as far as ``exact_tokens`` goes.
    level : float, default 0.95
        Nominal coverage of each interval.

    Raises
    ------
    MissingCapabilityError
        From ``estimate``: the value function offers no hidden masks or gradients.
    ContextTooLongError
        From ``estimate``: the full prompt does not fit the model's window.

    References
    ----------
    Kennedy and O'Hagan, Biometrika 2000, for estimating a costly code from a cheap one; the two codes, and their joint
    use for context attribution, are ours. ``benchmarks/results`` has what it was measured to do.

    Examples
    --------
    >>> from attr_core.testing import ScreenedGame
    >>> found = Screened().estimate(ScreenedGame(lambda mask: [6.0 * mask[1] - 3.0 * mask[4]], n_segments=9))
    >>> found.effects[0].round(1) + 0.0
    array([ 0.,  6.,  0.,  0., -3.,  0.,  0.,  0.,  0.])
    """

    n_hidden: int = 96
    exact_tokens: int = 4_800
    max_exact: int = 64
    n_drops: int = 3
    level: float = 0.95

    name: ClassVar[str] = "Screened"
    estimand: ClassVar[str] = "banzhaf"
    fidelity: ClassVar[Literal["exact", "hidden"]] = "hidden"

    def __post_init__(self) -> None:
        if self.n_hidden < 3 * ROUND or self.exact_tokens < 0 or self.max_exact < 0 or self.n_drops < 1:
            raise ConfigurationError(
                f"{self} cannot be fitted; give n_hidden >= {3 * ROUND}, n_drops >= 1, none below 0"
            )
        if not 0 < self.level < 1:
            raise ConfigurationError(f"level {self.level} is no coverage; give one between 0 and 1")

    def n_masks(self, n_segments: int) -> int:
        """At most: hidden subsets (twice, where tied segments turn out to matter), and what is deleted, hidden too."""
        return 2 * self.n_hidden + 3 + self.most_deleted(n_segments) + self._most_checked(n_segments)

    def most_deleted(self, n_segments: int) -> int:
        """At most: random subsets, leading segments, groups and their members."""
        return self.max_exact + self._most_checked(n_segments)

    def budget(self, n_tokens: int) -> int:
        """Tokens that deletions of a prompt of ``n_tokens`` may forward, per distinct continuation."""
        return round(self.exact_tokens * max(1.0, SHORT / max(n_tokens, 1)))

    def likely_deleted(self, n_tokens: int, n_left: int) -> int:
        """Random subsets that are likely deleted of a prompt of ``n_tokens`` where each leaves ``n_left`` of them."""
        return min(RANKED, self.max_exact, self.budget(n_tokens) // max(n_left, 1))

    def _most_checked(self, n_segments: int) -> int:
        return min(n_segments, MAX_LEADERS) + MAX_GROUPS * (1 + min(n_segments, MAX_MEMBERS))

    def ablations(self, value: ValueFunction, *, seed: int = 0) -> MaskArray:
        """The masks of the first look, which are hidden."""
        screen = screened(value, by=self.name)
        players = tied(screen.n_segments, screen.alike)
        return players.masks(balanced(2 * ROUND, players.n, np.random.default_rng(seed)))

    def estimate(self, value: ValueFunction, *, seed: int = 0) -> Estimate:
        """Screen with masks drawn from ``seed``, then confirm."""
        screen = screened(value, by=self.name)
        n = screen.n_segments
        check_whole_fits(screen, by=self.name)
        full, _ = screen.exact(np.concatenate([kept(n), removed(n)]))
        prior = path_effects(screen.gradients(equal_gates(GATES, n)), GATES)
        look = self._look(screen, prior, seed)
        ledger = Ledger.opened(screen, full)
        groups = self._groups(look, ledger)
        most = self.budget(ledger.longest)
        self._delete_leaders(look, ledger, most)
        transfers = self._confirm(look, ledger, most)
        return self._estimate(look, ledger, transfers, groups)

    def _look(self, screen: ScreenedValue, prior: FloatArray, seed: int) -> Look:
        """Stage 2; once more with whoever was tied and turns out to matter."""
        players = tied(screen.n_segments, screen.alike)
        look = self._hide(screen, players, prior, seed)
        beyond = np.abs(look.effects) + look.half_width(self.level) > look.delta[:, None]
        matter = _tied_among(players, beyond & (np.abs(look.effects) > MATTERS * look.delta[:, None]))
        return self._hide(screen, players.without(matter), prior, seed) if matter else look

    def _hide(self, screen: ScreenedValue, players: Players, prior: FloatArray, seed: int) -> Look:
        """Hidden masks until two looks in a row come to the same verdicts."""
        rng = np.random.default_rng(seed)
        rows = np.zeros((0, players.n), dtype=np.bool_)
        values = np.zeros((0, screen.n_targets))
        before: NDArray[np.int8] | None = None
        while True:
            new = balanced(ROUND if len(rows) else 2 * ROUND, players.n, rng)
            rows, values = np.concatenate([rows, new]), np.concatenate([values, screen.hidden(players.masks(new))])
            look = Look.at(players, rows, values, prior, floor=screen.floor)
            now = look.verdicts(look.effects, look.half_width(self.level))
            if (before is not None and np.array_equal(now, before)) or len(rows) + ROUND > self.n_hidden:
                return look
            before = now

    def _groups(self, look: Look, ledger: Ledger) -> list[RedundancyGroup]:
        """Near-duplicates and negative pairs, deleted alone and together where hiding them says that is worth it."""
        found: list[RedundancyGroup] = []
        supports = look.players.spread(look.effects) > 0
        both = [pair for pair in look.pairs if supports[pair.target, [pair.first, pair.second]].all()]
        alike = (*ledger.screen.alike, *getattr(ledger.screen, "paraphrases", ()))
        candidates = members_of(alike, both)
        single = {columns[0] for columns in look.players.members if len(columns) == 1}
        size = {members: look.weight(members) for members in candidates if single.issuperset(members)}
        worth = [one for one in size if size[one] > 1 and len(one) <= MAX_MEMBERS]
        for members in sorted(worth, key=lambda one: -size[one])[:MAX_GROUPS]:
            masks = _without(ledger.screen.n_segments, [members, *((column,) for column in members)])
            told, floor = np.asarray(supports[:, list(members)].all(axis=1)), ledger.screen.floor
            if redundant(members, *_joint_and_singles(ledger.hidden_drops(masks)), told=told, floor=floor):
                found += redundant(members, *_joint_and_singles(ledger.delete(masks)), told=told, floor=floor)
        return found

    def _delete_leaders(self, look: Look, ledger: Ledger, tokens: int) -> None:
        """Single deletions of leading segments, the most telling first; one whatever it takes."""
        for members in look.leaders(self.n_drops)[:MAX_LEADERS]:
            [mask] = _without(ledger.screen.n_segments, [members])
            if not ledger.has(mask) and (not len(ledger.masks) or ledger.affords(mask[None], tokens)):
                ledger.delete(mask[None])

    def _confirm(self, look: Look, ledger: Ledger, tokens: int) -> list[Transfer]:
        """Random subsets deleted until they rank and two looks in a row agree on the verdicts, or tokens are spent."""
        masks = look.players.masks(look.rows)
        before: NDArray[np.int8] | None = None
        while True:
            transfers = [_transfer(look, ledger, target) for target in range(len(look.fits))]
            effects, half_width = _stacked(transfers, self.level)
            now = look.verdicts(effects, half_width)
            low = any(ledger.may_disagree(look, target, MIN_AGREEMENT) for target in range(len(transfers)))
            settled = before is not None and np.array_equal(now, before)
            new = masks[ledger.n_random : ledger.n_random + EXACT_ROUND]
            affordable = ledger.affords(new, tokens)
            if not len(new) or ledger.n_random + len(new) > min(self.max_exact, len(masks)):
                return transfers
            if not affordable and not low:
                return transfers
            if settled and ledger.n_random >= (RANKED if affordable else ENOUGH):
                return transfers
            ledger.delete(new, random=True)
            before = now

    def _estimate(
        self, look: Look, ledger: Ledger, transfers: list[Transfer], groups: list[RedundancyGroup]
    ) -> Estimate:
        effects, half_width = _stacked(transfers, self.level)
        width = half_width.copy()
        agreement = np.array([one.agreement for one in transfers])
        error = np.array([one.error for one in transfers]).reshape(effects.shape)
        if ledger.n_random < ENOUGH:
            error[agreement < MIN_AGREEMENT] = half_width[agreement < MIN_AGREEMENT] = np.nan
        spread = look.players.spread
        reported = effects if ledger.n_random >= 2 * ROUND else _told_apart(effects, width, floor=look.floor)
        return Estimate(
            effects=spread(reported),
            low=spread(effects - half_width),
            high=spread(effects + half_width),
            error=spread(error),
            dof=transfers[0].dof if transfers else np.nan,
            drops=ledger.drops(),
            exact=False,
            decisive=True,
            n_masks=len(look.rows) + len(ledger.masks) + 2,
            level=self.level,
            fit=held_out_fit(look.values - look.missed, look.values),
            pairs=look.pairs,
            groups=tuple(groups),
            agreement=agreement,
            tied=tuple(columns for columns in look.players.members if len(columns) > 1),
        )


def _transfer(look: Look, ledger: Ledger, target: int) -> Transfer:
    """By the random subsets alone where they are enough, else by whatever was deleted and by other prompts."""
    fit, spread = look.fits[target], float(look.values[:, target].std())
    if ledger.n_random >= ENOUGH:
        return corrected(fit.effects, fit.error, spread=spread, rows=ledger.random_rows(look, target))
    return transferred(fit.effects, fit.error, spread=spread, rows=ledger.confirmed(look, target))


def _told_apart(effects: FloatArray, half_width: FloatArray, *, floor: float) -> FloatArray:
    """Effects, 0 where one is neither beyond the margin nor has 0 outside its interval: their order is noise."""
    small = np.abs(effects) <= np.minimum(half_width, margins(effects, floor=floor)[:, None])
    return np.where(small, 0.0, effects)


def _tied_among(players: Players, matters: MaskArray) -> list[int]:
    """Players of several segments that matter to some target; ``matters`` is ``(n_targets, n_players)``."""
    return [player for player, columns in enumerate(players.members) if len(columns) > 1 and matters[:, player].any()]


def _without(n_segments: int, removals: list[tuple[int, ...]]) -> MaskArray:
    masks = np.ones((len(removals), n_segments), dtype=np.bool_)
    for mask, columns in zip(masks, removals, strict=True):
        mask[list(columns)] = False
    return masks


def _joint_and_singles(drops: FloatArray) -> tuple[FloatArray, FloatArray]:
    return drops[0], drops[1:].T


def _stacked(transfers: list[Transfer], level: float) -> tuple[FloatArray, FloatArray]:
    """Effects and half widths ``(n_targets, n_players)``."""
    effects = np.array([one.effects for one in transfers])
    widths = [one.error * stats.t.ppf((1 + level) / 2, one.dof) for one in transfers]
    return effects, np.array(widths).reshape(effects.shape)
