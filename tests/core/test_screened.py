"""Screened attribution and each of its parts, against closed forms and brute force."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rich.console import Console
from scipy import stats

from attr_core.api import attribute
from attr_core.attribution import Attribution
from attr_core.errors import ConfigurationError, ContextTooLongError, MissingCapabilityError
from attr_core.estimators import MIN_AGREEMENT, Screened
from attr_core.estimators._designs import balanced
from attr_core.estimators._interactions import find_pairs, members_of, pair_columns, redundant
from attr_core.estimators._kriging import (
    ALONE,
    FEW,
    PAIRED,
    RATIOS,
    Surrogate,
    centred,
    fit_towards,
    spread_over,
)
from attr_core.estimators._players import MIN_TIED, Players, tied
from attr_core.estimators._transfer import (
    EXPLAINED,
    PRIOR_DISAGREEMENT,
    PRIOR_ROWS,
    PRIOR_SLOPE,
    PRIOR_TOGETHER,
    UNEXPLAINED,
    Confirmed,
    Transfer,
    transferred,
)
from attr_core.estimators.screened import RANKED
from attr_core.protocols import Engine
from attr_core.reports.compact import compact
from attr_core.reports.terminal import render_attribution
from attr_core.results import Estimate, FloatArray, MaskArray, Pair, RedundancyGroup
from attr_core.testing import GameValue, ScreenedGame
from attr_core.types import Document, TargetKind, Trace
from attr_core.verdicts import adjusted_p_values, margins, weigh


def draw(n_masks: int, n_segments: int, seed: int = 0) -> MaskArray:
    return balanced(n_masks, n_segments, np.random.default_rng(seed))


# Players

PARTITIONS = st.lists(st.integers(0, 4), min_size=1, max_size=9).map(
    lambda owner: Players(
        tuple(sorted(tuple(n for n, one in enumerate(owner) if one == player) for player in set(owner)))
    )
)


@given(PARTITIONS, st.integers(0, 2**16))
def test_masks_over_players_come_back_from_masks_over_segments(players: Players, seed: int) -> None:
    rows = np.random.default_rng(seed).random((5, players.n)) < 0.5
    masks = players.masks(rows)
    assert masks.shape == (5, sum(map(len, players.members)))
    np.testing.assert_array_equal(players.rows(masks), rows)
    for columns, row in zip(players.members, rows.T, strict=True):
        assert (masks[:, list(columns)] == row[:, None]).all()


@given(PARTITIONS, st.integers(0, 2**16))
def test_a_players_sum_is_that_of_its_segments_and_its_value_is_spread_over_all_of_them(
    players: Players, seed: int
) -> None:
    n = sum(map(len, players.members))
    values = np.random.default_rng(seed).normal(size=(3, n))
    summed = players.summed(values)
    np.testing.assert_allclose(
        summed, np.array([values[:, list(columns)].sum(axis=1) for columns in players.members]).T, atol=1e-12
    )
    spread = players.spread(summed)
    for player, columns in enumerate(players.members):
        assert (spread[:, list(columns)] == summed[:, player, None]).all()
    sizes = np.array([len(columns) for columns in players.members])
    np.testing.assert_allclose(players.summed(spread), summed * sizes, atol=1e-12)


@given(PARTITIONS, st.data())
def test_without_a_player_its_segments_stand_alone_and_the_others_stay(players: Players, data: st.DataObject) -> None:
    drilled = data.draw(st.sets(st.integers(0, players.n - 1)))
    after = players.without(drilled)
    assert sorted(column for columns in after.members for column in columns) == list(range(len(players.owner)))
    for player, columns in enumerate(players.members):
        expected = {(column,) for column in columns} if player in drilled else {columns}
        assert expected <= set(after.members)
    assert players.without(range(players.n)) == tied(len(players.owner), [])
    assert players.without([]) == players


def test_only_three_and_more_near_duplicates_are_tied() -> None:
    assert MIN_TIED == 3
    assert tied(6, [(0, 4), (1, 3, 5)]).members == ((0,), (1, 3, 5), (2,), (4,))
    np.testing.assert_array_equal(tied(6, [(5, 1, 3)]).owner, [0, 1, 2, 1, 3, 1])
    assert tied(0, []).n == 0


# Kriging


def ridge(
    likely: FloatArray,
    towards: FloatArray,
    masks: MaskArray,
    values: FloatArray,
    *,
    paired: float,
    noise: float,
    pairs: FloatArray,
) -> tuple[FloatArray, Callable[[MaskArray, FloatArray], FloatArray]]:
    """Penalised least squares written as such: intercept, ``pairs`` and the prior's multiple are free, the rest is not.

    Effects ``(n_segments,)``, and the prediction for other rows.
    """
    both = list(combinations(range(len(likely)), 2)) if paired else []

    def design(rows: MaskArray, columns: FloatArray) -> FloatArray:
        signs = centred(rows)
        products = [signs[:, one] * signs[:, other] for one, other in both]
        return np.column_stack([np.ones(len(rows)), columns, signs @ towards, signs, *products])

    varies = 4 * spread_over(likely, share=FEW)
    of_pairs = [2 * paired * varies[one] * varies[other] for one, other in both]  # each stands in the square twice
    free = 2 + pairs.shape[1]
    matrix = design(masks, pairs)
    penalty = np.diag([0.0] * free + (noise / np.array([*varies, *of_pairs])).tolist())
    found = np.linalg.solve(matrix.T @ matrix + penalty, matrix.T @ values)
    effects = found[free : free + len(likely)] + found[free - 1] * towards
    return effects, lambda rows, columns: design(rows, columns) @ found


@pytest.mark.parametrize("with_pairs", [False, True])
@pytest.mark.parametrize("interaction", [0.0, 6.0])
def test_kriging_is_ridge_regression_with_all_pairs_and_leaves_each_row_out_for_real(
    interaction: float, with_pairs: bool
) -> None:
    rng = np.random.default_rng(1)
    masks, towards = draw(24, 6, 1), rng.normal(size=6)
    values = masks @ rng.normal(size=6) * 3 + interaction * (masks[:, 1] & masks[:, 4]) + rng.normal(size=24)
    pairs = pair_columns(masks, [(0, 3), (2, 5)] if with_pairs else [])

    def best(likely: FloatArray) -> tuple[FloatArray, FloatArray]:
        tried = []
        for paired, ratio in product(PAIRED, RATIOS):
            noise = ratio * (1 + paired)  # over what one row's kernel has with itself
            missed = np.zeros(24)
            for left_out in range(24):
                inside = np.arange(24) != left_out
                told = {"paired": paired, "noise": noise, "pairs": pairs[inside]}
                predict = ridge(likely, towards, masks[inside], values[inside], **told)[1]
                missed[left_out] = values[left_out] - predict(masks[~inside], pairs[~inside])[0]
            effects = ridge(likely, towards, masks, values, paired=paired, noise=noise, pairs=pairs)[0]
            tried.append((float(np.mean(missed**2)), effects, missed))
        return min(tried, key=lambda one: one[0])[1:]

    first, missed = best(towards)
    found = fit_towards(towards, masks, values, pairs=pairs if with_pairs else None)
    np.testing.assert_allclose(found.missed, missed, atol=1e-7)
    np.testing.assert_allclose(found.effects, best(first)[0], atol=1e-7)
    corrections = 4 * centred(masks) * missed[:, None]
    np.testing.assert_allclose(found.debiased, first + corrections.mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(found.error, corrections.std(axis=0, ddof=1) / np.sqrt(24), atol=1e-7)


def test_many_small_pairs_are_noise_to_a_kernel_without_them_and_not_to_one_with_them() -> None:
    rng = np.random.default_rng(5)
    weights, terms = rng.normal(0, 2, 8), rng.normal(0, 1.5, (8, 8))
    masks = draw(96, 8)
    values = masks @ weights + np.einsum("ij,jk,ik->i", centred(masks), np.triu(terms, 1), centred(masks))
    both, alone = (fit_towards(np.zeros(8), masks, values, paired=paired) for paired in (PAIRED, ALONE))
    assert np.mean(both.missed**2) < 0.3 * np.mean(alone.missed**2)
    assert (both.error < alone.error).all()
    assert np.abs(both.effects - weights).mean() < np.abs(alone.effects - weights).mean()


@pytest.mark.parametrize("towards", [[0.0] * 8, [1.0, 1, 1, 1, 0, 0, 0, 0]])
def test_an_additive_game_is_recovered_with_a_poor_prior_or_none(towards: list[float]) -> None:
    weights = np.array([6.0, 0, -3, 0, 1.5, 0, 0, -0.5])
    masks = draw(48, 8)
    found = fit_towards(np.array(towards), masks, masks @ weights - 2.0)
    np.testing.assert_allclose(found.debiased, weights, atol=0.02)
    np.testing.assert_allclose(found.effects, weights, atol=0.05)


@pytest.mark.parametrize("multiple", [0.3, 1.0, 4.0, -2.0])
def test_of_a_perfect_prior_the_multiple_is_found_without_error(multiple: float) -> None:
    towards = np.array([6.0, 0, -3, 0, 1.5, 0, 0, -0.5])
    masks = draw(32, 8)
    found = fit_towards(towards, masks, multiple * (masks @ towards) + 7.0)
    np.testing.assert_allclose(found.effects, multiple * towards, atol=1e-9)
    np.testing.assert_allclose(found.error, 0, atol=1e-9)
    np.testing.assert_allclose(found.missed, 0, atol=1e-9)


def test_a_good_prior_predicts_better_than_none_where_masks_are_few() -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 2, 40)
    masks = draw(32, 40)
    values = masks @ weights + rng.normal(0, 0.3, 32)
    near = fit_towards(weights + rng.normal(0, 0.4, 40), masks, values)
    none = fit_towards(np.zeros(40), masks, values)
    assert np.abs(near.effects - weights).mean() < 0.5 * np.abs(none.effects - weights).mean()
    assert near.error.mean() < none.error.mean()


def test_debiased_effects_are_unbiased_whatever_the_interactions_and_the_prior() -> None:
    weights = np.array([4.0, -2, 0, 0, 1, 0, 0, 0, 0, 0])
    banzhaf = weights + np.array([0, 0, 2.5, 2.5, 0, 0.75, 0.75, 0.75, 0, 0])
    towards = np.array([0.0, 3, 0, 0, 0, 0, 0, 0, 2, 0])
    rng = np.random.default_rng(1)
    found = []
    for seed in range(200):
        masks = draw(32, 10, seed)
        values = masks @ weights + 5.0 * (masks[:, 2] & masks[:, 3]) + 3.0 * masks[:, 5:8].all(axis=1)
        found.append(fit_towards(towards, masks, values + rng.normal(0, 0.5, 32)).debiased)
    error = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - banzhaf) < 4 * error + 0.02).all()


def test_a_pairs_column_takes_its_variance_out_of_what_is_missed() -> None:
    masks = draw(48, 8)
    values = masks @ np.array([4.0, -2, 0, 0, 1, 0, 0, 0]) + 8.0 * (masks[:, 0] & masks[:, 1])
    plain = fit_towards(np.ones(8), masks, values)
    paired = fit_towards(np.ones(8), masks, values, pairs=pair_columns(masks, [(0, 1)]))
    assert np.var(paired.missed) < 0.01 * np.var(plain.missed)
    assert (paired.error < 0.2 * plain.error).all()
    np.testing.assert_allclose(paired.debiased, [8, 2, 0, 0, 1, 0, 0, 0], atol=0.05)


def test_shares_are_equal_without_a_prior_and_larger_for_who_matters_more() -> None:
    np.testing.assert_allclose(spread_over(np.zeros(4)), 0.25)
    shares = spread_over(np.array([0.0, 3.0, -4.0, 0.0]))
    np.testing.assert_allclose(shares, [0.125, 0.125 + 0.18, 0.125 + 0.32, 0.125])
    assert spread_over(np.zeros(0)).shape == (0,)


# From hiding to deleting

HIDDEN = np.array([6.0, -3, 1, 0, 0, 0, 2, 0, 0, 0])
SPREAD = float(np.sqrt((HIDDEN**2).sum()) / 2)
"""Of hidden values over random subsets: each segment's variance is a quarter of its square."""


def confirmed(
    n_rows: int, exact: FloatArray = HIDDEN, *, hidden: FloatArray = HIDDEN, noise: float = 0.0, seed: int = 0
) -> Confirmed:
    """Random subsets of an additive game measured both ways, less all kept."""
    rng = np.random.default_rng(seed)
    masks = draw(n_rows, len(hidden), seed) if n_rows else np.zeros((0, len(hidden)), dtype=bool)
    gone = -(~masks).astype(float)
    return Confirmed(masks, exact=gone @ exact + rng.normal(0, noise, n_rows), hidden=gone @ hidden)


def moved(rows: Confirmed, *, error: float = 0.0, hidden: FloatArray = HIDDEN, spread: float = SPREAD) -> Transfer:
    return transferred(hidden, np.full(len(hidden), error), spread=spread, rows=rows)


@pytest.mark.parametrize("n_rows", [2, 16])
def test_where_hiding_equals_deleting_effects_stay_and_agreement_is_one(n_rows: int) -> None:
    found = moved(confirmed(n_rows))
    np.testing.assert_allclose(found.effects, HIDDEN, atol=1e-12)
    assert found.agreement == 1.0
    assert (found.error < moved(confirmed(0)).error).all()


def test_without_rows_the_error_is_that_of_other_prompts_and_agreement_is_undefined() -> None:
    found = moved(confirmed(0), error=0.3)
    np.testing.assert_array_equal(found.effects, HIDDEN)
    assert np.isnan(found.agreement)
    assert found.dof == PRIOR_ROWS
    unit = PRIOR_DISAGREEMENT * SPREAD
    own = 4 * EXPLAINED * spread_over(HIDDEN) * unit**2
    np.testing.assert_allclose(found.error**2, 0.3**2 + (PRIOR_SLOPE * HIDDEN) ** 2 + own)


@pytest.mark.parametrize("slope", [0.8, 1.25])
def test_a_slope_is_found_with_enough_rows(slope: float) -> None:
    few, many = (moved(confirmed(n_rows, slope * HIDDEN)) for n_rows in (4, 64))
    np.testing.assert_allclose(many.effects, slope * HIDDEN, atol=0.03 * np.abs(HIDDEN).max())
    assert np.abs(many.effects - slope * HIDDEN).sum() < np.abs(few.effects - slope * HIDDEN).sum()
    # It is found for all segments at once: for one that is never removed alone as well.
    assert abs(few.effects[0] - slope * 6) < 0.4 * abs(6 - slope * 6)


def test_what_deleting_takes_of_single_segments_is_found_the_more_the_more_is_deleted() -> None:
    own = np.array([0.0, 0, 0, 1.5, 0, 0, 0, 0, -2.0, 0])
    parts = [moved(confirmed(n_rows, HIDDEN + own, noise=0.2)).effects - HIDDEN for n_rows in (8, 32, 128)]
    left = [np.abs(found - own).max() for found in parts]
    assert left == sorted(left, reverse=True)
    assert left[-1] < 0.25 * np.abs(own).max()
    assert {int(parts[-1].argmax()), int(parts[-1].argmin())} == {3, 8}


def test_what_goes_with_how_much_is_gone_is_no_segments_effect() -> None:
    rows = confirmed(24)
    gone = (~rows.masks).mean(axis=1)
    found = moved(replace(rows, exact=rows.exact - 2.0 * gone))
    np.testing.assert_allclose(found.effects, HIDDEN, atol=0.25)
    assert found.agreement < 1


def test_errors_hold_where_hiding_and_deleting_differ_as_expected() -> None:
    unit, inside = PRIOR_DISAGREEMENT * SPREAD, []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        own = rng.normal(0, unit * np.sqrt(4 * EXPLAINED * spread_over(HIDDEN)))
        exact = (1 + rng.normal(0, PRIOR_SLOPE)) * HIDDEN + own
        found = moved(confirmed(8, exact, noise=unit * np.sqrt(UNEXPLAINED), seed=seed))
        inside += (np.abs(found.effects - exact) <= found.error * stats.t.ppf(0.975, found.dof)).tolist()
    assert 0.92 <= np.mean(inside) <= 0.98


def test_the_error_shrinks_with_rows_and_grows_with_disagreement() -> None:
    own = np.array([0.0, 0, 0, 1.0, 0, 0, 0, 0, -1.0, 0])
    by_rows = [moved(confirmed(n_rows, HIDDEN + own, noise=0.3)).error.mean() for n_rows in (0, 4, 16, 64)]
    assert by_rows == sorted(by_rows, reverse=True)
    by_noise = [moved(confirmed(16, HIDDEN, noise=noise)).error.mean() for noise in (0.0, 0.5, 1.0, 2.0, 4.0)]
    assert by_noise == sorted(by_noise)
    agreements = [moved(confirmed(16, HIDDEN, noise=noise)).agreement for noise in (0.0, 0.5, 1.0, 2.0, 4.0)]
    assert agreements == sorted(agreements, reverse=True)


def test_agreement_is_one_minus_the_squared_difference_over_the_variance() -> None:
    rows = confirmed(8, 1.1 * HIDDEN)
    assert moved(rows).agreement == pytest.approx(1 - np.mean((0.1 * rows.hidden) ** 2) / SPREAD**2)


@pytest.mark.parametrize("n_rows", [1, 5, 30])
def test_it_is_the_conjugate_posterior_of_a_linear_regression(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    rows = confirmed(n_rows, 0.9 * HIDDEN + rng.normal(0, 0.7, 10), noise=0.5, seed=n_rows)
    error = rng.uniform(0.1, 0.5, 10)
    found = transferred(HIDDEN, error, spread=SPREAD, rows=rows)
    # In the value's unit: the slope's excess over 1, what each segment takes of its own, and what goes with how many
    # are gone, which is 1 for a half of them; precisions over sigma^2.
    unit2 = (PRIOR_DISAGREEMENT * SPREAD) ** 2
    gone = (~rows.masks).astype(float)
    features = np.column_stack([rows.hidden, -gone, 2 * gone.mean(axis=1)])
    variances = np.concatenate(
        [[PRIOR_SLOPE**2], unit2 * 4 * EXPLAINED * spread_over(HIDDEN), [unit2 * PRIOR_TOGETHER]]
    )
    noise = unit2 * UNEXPLAINED
    missed = rows.exact - rows.hidden
    precision = np.diag(1 / variances) + features.T @ features / noise
    mean = np.linalg.solve(precision, features.T @ missed / noise)
    # Inverse gamma with shape and rate PRIOR_ROWS / 2 before the rows.
    shape = (PRIOR_ROWS + n_rows) / 2
    rate = (PRIOR_ROWS + missed @ missed / noise - mean @ precision @ mean) / 2
    covariance = rate / shape * np.linalg.inv(precision)
    readout = np.column_stack([HIDDEN, np.eye(10), np.zeros(10)])
    assert found.dof == 2 * shape
    np.testing.assert_allclose(found.effects, HIDDEN + readout @ mean, atol=1e-9)
    np.testing.assert_allclose(found.error**2, error**2 + np.diag(readout @ covariance @ readout.T), atol=1e-9)


# Segments that act together


def pairs_of(values: FloatArray, masks: MaskArray, *, floor: float = 1.0) -> list[Pair]:
    fit: Surrogate = fit_towards(np.zeros(masks.shape[1]), masks, values, paired=ALONE)
    return find_pairs(masks, fit.missed, fit.effects, target=2, floor=floor)


def test_either_of_two_is_a_negative_pair_and_both_of_two_a_positive_one() -> None:
    masks = draw(48, 9)
    [either] = pairs_of(8.0 * (masks[:, 1] | masks[:, 4]) + 2.0 * masks[:, 0], masks)
    assert (either.target, either.first, either.second) == (2, 1, 4)
    assert either.effect == pytest.approx(-8, abs=1)
    [both] = pairs_of(8.0 * (masks[:, 1] & masks[:, 4]) + 2.0 * masks[:, 0], masks)
    assert (both.first, both.second) == (1, 4)
    assert both.effect == pytest.approx(8, abs=1)


def test_an_additive_game_has_no_pair_and_under_noise_hardly_any() -> None:
    weights = np.array([7.0, -4, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0])
    n_games, false = 120, 0
    for seed in range(n_games):
        masks, rng = draw(48, 12, seed), np.random.default_rng(seed)
        assert pairs_of(masks @ weights, masks) == []
        false += bool(pairs_of(masks @ weights + rng.normal(0, 1.0, 48), masks))
    assert false / n_games <= 0.05


def test_a_pair_below_the_floor_is_no_pair() -> None:
    masks = draw(48, 9)
    values = 1.5 * (masks[:, 1] | masks[:, 4]) + 2.0 * masks[:, 0]
    assert len(pairs_of(values, masks)) == 1
    assert pairs_of(values, masks, floor=3.0) == []
    assert pairs_of(values[:2], masks[:2]) == []


def test_candidates_are_near_duplicates_and_chains_of_one_targets_negative_pairs() -> None:
    pairs = [Pair(0, 4, 7, -3.0), Pair(0, 2, 3, 5.0), Pair(0, 7, 9, -2.0), Pair(1, 0, 1, -1.0), Pair(1, 7, 8, -1.0)]
    assert members_of([(0, 1), (5, 6)], pairs) == [(0, 1), (5, 6), (4, 7, 9), (7, 8)]
    assert members_of([], []) == []


def drops_of(game: Callable[[MaskArray], float], members: tuple[int, ...], n: int = 6) -> tuple[FloatArray, FloatArray]:
    def without(columns: tuple[int, ...]) -> float:
        mask = np.ones(n, dtype=bool)
        mask[list(columns)] = False
        return game(np.ones(n, dtype=bool)) - game(mask)

    return np.array([without(members)]), np.array([[without((one,)) for one in members]])


@pytest.mark.parametrize("members", [(0, 1), (0, 1, 2)])
def test_a_fact_told_in_several_places_is_redundant(members: tuple[int, ...]) -> None:
    joint, singles = drops_of(lambda mask: 8.0 * mask[list(members)].any() + 2.0 * mask[3], members)
    assert redundant(members, joint, singles, floor=1.0) == [RedundancyGroup(members, 0, 8.0, 0.0)]
    assert redundant(members, joint, singles, floor=9.0) == []


def test_a_fact_and_its_rival_are_not_redundant_though_together_they_take_more() -> None:
    # Deleting the rival helps, and with both gone the rival's words are missed too.
    joint, singles = np.array([9.0]), np.array([[7.0, -1.0]])
    assert joint[0] - singles.sum() > 1.0
    assert redundant((0, 1), joint, singles, floor=1.0) == []


def test_segments_that_add_up_are_not_redundant() -> None:
    joint, singles = drops_of(lambda mask: 3.0 * mask[0] + 3.0 * mask[1], (0, 1))
    assert redundant((0, 1), joint, singles, floor=1.0) == []
    joint, singles = drops_of(lambda mask: 8.0 * mask[:2].all(), (0, 1))
    assert redundant((0, 1), joint, singles, floor=1.0) == []


def test_redundancy_is_said_of_each_target_on_its_own() -> None:
    joint, singles = np.array([8.0, 6.0, 0.0]), np.array([[0.5, 0.5], [3.0, 3.0], [0.0, 0.0]])
    assert [group.target for group in redundant((2, 5), joint, singles, floor=1.0)] == [0]


# All of it


@dataclass
class PlantedGame:
    """Weights per target and segment, pairs on the first target, and noise that is the same whenever asked again.

    Hiding has weights and noise of its own. Gradients are those of its multilinear extension, in closed form, so that
    there may be many segments.
    """

    weights: FloatArray
    hidden_weights: FloatArray | None = None
    pairs: tuple[tuple[int, int, float], ...] = ()
    noise: float = 0.0
    prior_error: float = 0.0
    alike: tuple[tuple[int, ...], ...] = ()
    seed: int = 0
    floor: float = 1.0
    name: str = "PlantedGame"
    unit: str = "nats"
    knows_right: bool = False
    deleted: list[tuple[bool, ...]] = field(default_factory=list)
    hid: list[tuple[bool, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.weights = np.atleast_2d(np.asarray(self.weights, dtype=float))
        self.hidden_weights = np.atleast_2d(self.weights if self.hidden_weights is None else self.hidden_weights)

    @property
    def n_targets(self) -> int:
        return len(self.weights)

    @property
    def n_segments(self) -> int:
        return self.weights.shape[1]

    @property
    def scales(self) -> FloatArray:
        return np.ones(self.n_targets)

    @property
    def truth(self) -> FloatArray:
        """Banzhaf values of deleting."""
        found = self.weights.copy()
        for first, second, size in self.pairs:
            found[0, [first, second]] += size / 2
        return found

    @property
    def tokens(self) -> int:
        """Of the deletions so far, all kept and all removed left out."""
        checks = [mask for mask in self.deleted if any(mask) and not all(mask)]
        return int(self.prices(np.array(checks).reshape(len(checks), self.n_segments)).sum())

    def fits(self, masks: MaskArray) -> MaskArray:
        return np.ones(len(masks), dtype=bool)

    def exact(self, masks: MaskArray) -> FloatArray:
        self.deleted += map(tuple, masks.tolist())
        return self._values(masks, self.weights, 1)

    def hidden(self, masks: MaskArray) -> FloatArray:
        self.hid += map(tuple, masks.tolist())
        return self._values(masks, self.hidden_weights, 2)

    def prices(self, masks: MaskArray) -> NDArray[np.int64]:
        return np.asarray(50 + 20 * masks.sum(axis=1), dtype=np.int64)

    def gradients(self, gates: FloatArray) -> FloatArray:
        found = np.repeat(np.array(self.hidden_weights)[None], len(gates), axis=0)
        for first, second, size in self.pairs:
            found[:, 0, first] += size * gates[:, second]
            found[:, 0, second] += size * gates[:, first]
        return found + np.random.default_rng([self.seed, 3]).normal(0, self.prior_error, found.shape[1:])

    def _values(self, masks: MaskArray, weights: FloatArray | None, salt: int) -> FloatArray:
        values = masks @ np.array(weights).T - 2.0
        for first, second, size in self.pairs:
            values[:, 0] += size * (masks[:, first] & masks[:, second])
        for row, mask in zip(values, masks, strict=True):
            if self.noise and not mask.all():  # both measure the full prompt alike
                rng = np.random.default_rng([self.seed, salt, zlib.crc32(mask.tobytes())])
                row += rng.normal(0, self.noise, len(row))
        return values


def sparse(seed: int, n: int = 20, **options: float) -> PlantedGame:
    weights = np.zeros(n)
    weights[np.random.default_rng(seed).permutation(n)[:3]] = [7.0, -4.0, 3.0]
    return PlantedGame(weights, seed=seed, **options)


def verdicts_of(found: Estimate) -> NDArray[np.str_]:
    delta = margins(found.effects, floor=1.0)
    return weigh(found, delta, adjusted_p_values(found, delta))


def n_random(game: PlantedGame) -> int:
    """Deleted subsets that remove more than one segment and keep one."""
    return sum(1 for mask in game.deleted if 1 < len(mask) - sum(mask) < len(mask))


def with_slope(seed: int) -> PlantedGame:
    game = sparse(seed, noise=0.5, prior_error=1.0)
    return PlantedGame(game.weights, game.weights / 0.8, noise=0.5, prior_error=1.0, seed=seed)


def with_own_parts(seed: int) -> PlantedGame:
    game = sparse(seed)
    own = np.random.default_rng(seed + 1000).normal(0, 0.3, game.weights.shape)
    return PlantedGame(game.weights, game.weights + own, noise=0.5, prior_error=1.0, seed=seed)


def with_a_pair(seed: int) -> PlantedGame:
    game = sparse(seed)
    first, second = np.random.default_rng(seed).permutation(20)[[0, 3]].tolist()
    return PlantedGame(game.weights, pairs=((first, second, 5.0),), noise=0.5, prior_error=1.0, seed=seed)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda seed: sparse(seed, noise=0.7, prior_error=1.0), id="noise"),
        pytest.param(lambda seed: sparse(seed, n=40, noise=0.7, prior_error=1.0), id="many-segments"),
        pytest.param(lambda seed: sparse(seed, noise=0.7, prior_error=4.0), id="misleading-gradients"),
        with_slope,
        with_own_parts,
        with_a_pair,
    ],
)
def test_intervals_cover_planted_effects_and_null_ones_and_no_verdict_is_wrong(
    make: Callable[[int], PlantedGame],
) -> None:
    planted, null, told = [], [], 0
    for seed in range(30):
        game = make(seed)
        found = Screened().estimate(game, seed=seed)
        truth = game.truth[0]
        covered = (found.low[0] <= truth) & (truth <= found.high[0])
        planted += covered[truth != 0].tolist()
        null += covered[truth == 0].tolist()
        verdicts = verdicts_of(found)[0]
        told += int((verdicts == "drives").sum())
        assert not ((verdicts == "drives") & (truth < 1)).any()
        assert not ((verdicts == "opposes") & (truth > -1)).any()
        assert not ((verdicts == "no effect") & (np.abs(truth) > 2)).any()
    assert np.mean(planted) >= 0.9
    assert np.mean(null) >= 0.9
    assert told >= 30, "the leading cause is told in nearly every game"


def test_where_hiding_points_at_the_wrong_segment_more_is_deleted_or_left_open_and_it_never_drives() -> None:
    weights, hidden, n_told = np.zeros(12), np.zeros(12), 0
    weights[5] = hidden[3] = 6.0
    for seed in range(10):
        game = PlantedGame(weights, hidden, noise=0.3, seed=seed)
        found = Screened().estimate(game, seed=seed)
        assert found.agreement is not None
        assert found.agreement[0] < MIN_AGREEMENT
        told = verdicts_of(found)[0]
        assert told[3] != "drives"
        assert found.drops[0, 3] == pytest.approx(0, abs=1.5)
        if n_random(game) < 16:
            assert (told == "undetermined").all()
            continue
        n_told += told[5] == "drives"
        assert found.effects[0].argmax() == 5
        assert np.abs(np.delete(found.effects[0], 5)).max() < 2
    assert n_told >= 8


@pytest.mark.parametrize("options", [{"max_exact": 0}, {"max_exact": 0, "n_drops": 1, "n_hidden": 48}])
def test_where_it_may_not_delete_more_such_verdicts_stay_open(options: dict[str, int]) -> None:
    weights, hidden = np.zeros(12), np.zeros(12)
    weights[5] = hidden[3] = 6.0
    found = Screened(**options).estimate(PlantedGame(weights, hidden, noise=0.3))
    assert np.isnan(found.low).all()
    assert np.isnan(found.high).all()
    assert np.isnan(found.error).all()
    assert (verdicts_of(found) == "undetermined").all()


def test_one_target_can_be_open_and_another_told() -> None:
    weights = np.zeros((2, 12))
    weights[0, 1] = weights[1, 5] = 6.0
    hidden = np.zeros((2, 12))
    hidden[0, 1] = hidden[1, 3] = 6.0
    found = Screened(max_exact=0).estimate(PlantedGame(weights, hidden, noise=0.1))
    assert found.agreement is not None
    assert found.agreement[0] > MIN_AGREEMENT > found.agreement[1]
    told = verdicts_of(found)
    assert told[0, 1] == "drives"
    assert (told[1] == "undetermined").all()


def test_where_hiding_takes_a_quarter_more_the_effects_are_those_of_deleting() -> None:
    weights = np.array([6.0, 0, -4, 2, 0, 0, 0, 0, 3, 0])
    found = Screened().estimate(ScreenedGame(lambda m: [weights @ m], 10, hidden_game=lambda m: [1.25 * weights @ m]))
    np.testing.assert_allclose(found.effects[0], weights, atol=0.4)
    assert ((found.low[0] <= weights) & (weights <= found.high[0])).all()


def test_two_places_that_say_the_same_are_one_group_with_what_deleting_both_takes() -> None:
    def either(mask: MaskArray) -> list[float]:
        return [8.0 * float(mask[2] or mask[6]) + 2.0 * mask[0]]

    for alike in [((2, 6),), ()]:  # the pair's term finds it where the words do not
        game = ScreenedGame(either, 10, alike=alike)
        found = Screened().estimate(game)
        assert found.groups == (RedundancyGroup((2, 6), 0, 8.0, 0.0),)
        [pair] = found.pairs
        assert (pair.first, pair.second) == (2, 6)
        assert pair.effect < -6
        np.testing.assert_allclose(found.effects[0, [2, 6]], 4, atol=0.6)
        assert tuple(column not in (2, 6) for column in range(10)) in game.measured


def test_near_duplicates_that_say_the_opposite_or_add_up_are_no_group() -> None:
    for game in (lambda m: [6.0 * m[2] - 2.0 * m[6]], lambda m: [3.0 * m[2] + 3.0 * m[6]]):
        assert Screened().estimate(ScreenedGame(game, 10, alike=((2, 6),))).groups == ()


def test_two_targets_told_in_overlapping_places_have_a_group_each() -> None:
    def game(mask: MaskArray) -> list[float]:
        return [8.0 * float(mask[1] or mask[4]), 8.0 * float(mask[4] or mask[7])]

    found = Screened().estimate(ScreenedGame(game, 10, n_targets=2))
    assert {(group.target, group.members) for group in found.groups} == {(0, (1, 4)), (1, (4, 7))}


def test_a_target_that_never_changes_has_no_effect_from_any_segment() -> None:
    found = Screened().estimate(ScreenedGame(lambda mask: [6.0 * mask[1], -1.3], 9, n_targets=2))
    np.testing.assert_allclose(found.effects[1], 0, atol=1e-9)
    assert (verdicts_of(found)[1] == "no effect").all()
    assert verdicts_of(found)[0, 1] == "drives"


def test_once_sixteen_random_subsets_are_deleted_intervals_cover_what_hiding_missed() -> None:
    covered = []
    for seed in range(30):
        weights, hidden = np.zeros(20), np.zeros(20)
        missed, misled = np.random.default_rng(seed).permutation(20)[:2]
        weights[missed] = hidden[misled] = 6.0
        game = PlantedGame(weights, hidden, noise=0.5, seed=seed)
        found = Screened().estimate(game, seed=seed)
        if n_random(game) >= 16:
            covered += ((found.low[0] <= weights) & (weights <= found.high[0])).tolist()
    assert len(covered) >= 20 * 20
    assert np.mean(covered) >= 0.87


HEADER = tuple(range(3, 15))


def test_boilerplate_that_does_not_matter_stays_tied_and_costs_nothing() -> None:
    weights = np.zeros(15)
    weights[[0, 2]] = [6.0, -3.0]
    game = PlantedGame(weights, noise=0.05, alike=(HEADER,))
    found = Screened().estimate(game)
    assert found.tied == (HEADER,)
    assert len(np.unique(found.effects[0, list(HEADER)])) == 1
    assert (verdicts_of(found)[0, list(HEADER)] == "no effect").all()
    without = PlantedGame(weights[:4], noise=0.05)
    Screened().estimate(without)
    assert len(game.hid) == len(without.hid)
    assert all(len({mask[column] for column in HEADER}) == 1 for mask in game.hid)


def test_of_boilerplate_that_matters_each_piece_is_removed_on_its_own() -> None:
    weights = np.zeros(15)
    weights[[0, 2, 7]] = [6.0, -3.0, 4.0]
    game = PlantedGame(weights, noise=0.05, alike=(HEADER,))
    found = Screened().estimate(game)
    assert found.tied == ()
    np.testing.assert_allclose(found.effects[0], weights, atol=0.5)
    told = verdicts_of(found)[0]
    assert [column for column in range(15) if told[column] == "drives"] == [0, 7]


def test_boilerplate_whose_gradient_is_silent_is_drilled_once_hiding_shows_that_it_matters() -> None:
    weights = np.zeros(15)
    weights[[0, 7]] = [6.0, 4.0]

    class Silent(PlantedGame):
        def gradients(self, gates: FloatArray) -> FloatArray:
            found = super().gradients(gates)
            found[..., list(HEADER)] = 0.0
            return found

    game = Silent(weights, noise=0.05, alike=(HEADER,))
    found = Screened().estimate(game)
    assert found.tied == ()
    np.testing.assert_allclose(found.effects[0], weights, atol=0.6)
    assert len(set(game.hid)) + len(set(game.deleted)) <= Screened().n_masks(15)


def test_no_deletion_parts_segments_that_are_tied_even_where_they_lead() -> None:
    weights = np.full(15, 0.0)
    weights[1], weights[list(HEADER)] = 0.2, 0.06

    class Silent(PlantedGame):
        def gradients(self, gates: FloatArray) -> FloatArray:
            found = super().gradients(gates)
            found[..., list(HEADER)] = 0.0
            return found

    game = Silent(weights, alike=(HEADER,))
    assert Screened().estimate(game).tied == (HEADER,)
    assert all(len({mask[column] for column in HEADER}) == 1 for mask in game.deleted)


CASES: dict[str, Callable[[], PlantedGame]] = {
    "clear": lambda: sparse(0),
    "noisy": lambda: sparse(1, noise=2.0, prior_error=3.0),
    "many": lambda: sparse(2, n=60, noise=1.0),
    "none": lambda: PlantedGame(np.zeros((1, 0))),
    "one": lambda: PlantedGame([5.0]),
    "wrong": lambda: PlantedGame([6.0, *[0.0] * 8], [0.0, 6, *[0.0] * 7], noise=0.4),
    "redundant": lambda: PlantedGame(
        [8.0, 8, 8, 5, 5, *[0.0] * 7],
        pairs=((0, 1, -8), (0, 2, -8), (1, 2, -8), (3, 4, -5)),
        alike=((0, 1), (3, 4)),
        noise=0.3,
    ),
    "tied-and-wrong": lambda: PlantedGame(
        [6.0, *[0.0] * 5, 4, *[0.0] * 7], [0.0, 6, *[0.0] * 12], alike=(tuple(range(4, 14)),), noise=1.0
    ),
    "three-targets": lambda: PlantedGame(np.random.default_rng(4).normal(0, 2, (3, 14)), noise=0.8, prior_error=1.0),
}


@pytest.mark.parametrize("options", [{}, {"n_hidden": 48, "max_exact": 0, "n_drops": 1}, {"exact_tokens": 100_000}])
@pytest.mark.parametrize("case", CASES)
def test_it_never_measures_more_than_it_announces(case: str, options: dict[str, int]) -> None:
    game, estimator = CASES[case](), Screened(**options)
    found = estimator.estimate(game)
    assert len(set(game.hid)) + len(set(game.deleted)) <= estimator.n_masks(game.n_segments)
    checks = [mask for mask in set(game.deleted) if any(mask) and not all(mask)]
    assert len(checks) <= estimator.most_deleted(game.n_segments)
    assert found.n_masks <= estimator.n_masks(game.n_segments)
    assert found.effects.shape == game.weights.shape


@pytest.mark.parametrize("tokens", [0, 900, 2400, 6000])
def test_deletions_stay_within_their_tokens_where_hiding_agrees(tokens: int) -> None:
    for seed in range(5):
        game = sparse(seed, noise=0.3, prior_error=0.5)
        found = Screened(exact_tokens=tokens).estimate(game, seed=seed)
        assert found.agreement is not None
        assert found.agreement[0] > MIN_AGREEMENT
        most = Screened(exact_tokens=tokens).budget(50 + 20 * 19)
        assert game.tokens <= max(most, 50 + 20 * 19)
        assert game.tokens > 0, "one deletion is made whatever it takes"


def test_of_a_short_prompt_so_many_subsets_are_deleted_that_small_effects_are_told_and_of_a_long_one_few() -> None:
    assert [Screened().budget(tokens) for tokens in (6000, 1500, 750, 375)] == [4800, 4800, 9600, 19_200]
    assert [Screened().likely_deleted(tokens, tokens // 2) for tokens in (6000, 1500, 750, 375)] == [1, 6, 25, RANKED]
    assert Screened(max_exact=4).likely_deleted(375, 190) == 4
    weights = np.array([8.0, -4, 3, *np.linspace(0.3, 0.8, 17)])
    for seed in range(3):
        short, long = (PlantedGame(weights, noise=0.05, prior_error=0.5, seed=seed) for _ in range(2))
        short_found, long_found = (
            Screened(exact_tokens=tokens).estimate(game, seed=seed) for game, tokens in ((short, 4800), (long, 1000))
        )
        assert n_random(short) == RANKED
        assert n_random(long) < 16
        assert stats.spearmanr(short_found.effects[0], weights).statistic > 0.9
        assert (long_found.effects[0, 3:] == 0).any()


def test_the_first_deletion_is_that_of_the_leading_segment() -> None:
    game = sparse(3)
    found = Screened(exact_tokens=0).estimate(game)
    leading = int(game.weights[0].argmax())
    assert [mask for mask in game.deleted if any(mask) and not all(mask)] == [
        tuple(column != leading for column in range(20))
    ]
    assert found.drops[0, leading] == pytest.approx(7)
    assert np.isnan(np.delete(found.drops[0], leading)).all()


def test_low_agreement_deletes_beyond_the_tokens_but_not_beyond_the_most() -> None:
    weights, hidden = np.zeros(12), np.zeros(12)
    weights[5] = hidden[3] = 6.0
    for most in (8, 20):
        game = PlantedGame(weights, hidden, noise=0.3)
        Screened(exact_tokens=0, max_exact=most).estimate(game)
        assert n_random(game) == most


def test_every_deleted_subset_was_hidden_too() -> None:
    for case in ("noisy", "wrong", "redundant", "three-targets"):
        game = CASES[case]()
        Screened().estimate(game)
        assert {mask for mask in game.deleted if any(mask)} <= set(game.hid)


def test_the_same_seed_gives_the_same_and_another_seed_nearly() -> None:
    one, again, other = (Screened().estimate(sparse(3, noise=0.4, prior_error=1.0), seed=seed) for seed in (7, 7, 8))
    for name in ("effects", "low", "high", "error", "drops"):
        np.testing.assert_array_equal(getattr(one, name), getattr(again, name))
    assert (one.pairs, one.groups, one.tied) == (again.pairs, again.groups, again.tied)
    assert not np.array_equal(one.effects, other.effects)
    np.testing.assert_allclose(one.effects, other.effects, atol=1.5)


def test_a_clear_game_is_settled_at_the_second_look_and_a_murky_one_goes_on() -> None:
    clear = Screened().estimate(sparse(0))
    murky = Screened().estimate(sparse(0, noise=3.0, prior_error=3.0))
    assert clear.fit is not None
    assert murky.fit is not None
    assert clear.fit.n_held_out == 48
    assert 48 < murky.fit.n_held_out <= 96
    assert Screened(n_hidden=48).estimate(sparse(0, noise=3.0, prior_error=3.0)).fit.n_held_out == 48


def test_the_first_masks_are_announced_and_are_of_players() -> None:
    game = PlantedGame([6.0, 0, 0, *[0.0] * 12], alike=(HEADER,))
    announced = Screened().ablations(game, seed=5)
    assert announced.shape == (32, 15)
    assert (announced.sum(axis=0) == 16).all()
    assert (announced[:, list(HEADER)] == announced[:, [3]]).all()
    assert game.hid == []
    Screened().estimate(game, seed=5)
    np.testing.assert_array_equal(np.array(game.hid[:32]), announced)


def test_a_higher_level_has_wider_intervals_around_the_same_effects() -> None:
    narrow, wide = (Screened(level=level).estimate(sparse(1, noise=0.5)) for level in (0.8, 0.99))
    np.testing.assert_allclose(narrow.effects, wide.effects, atol=0.3)
    assert np.mean(wide.high - wide.low) > 1.5 * np.mean(narrow.high - narrow.low)
    assert (narrow.level, wide.level) == (0.8, 0.99)


@pytest.mark.parametrize(
    "options",
    [
        {"n_hidden": 47},
        {"n_hidden": -1},
        {"exact_tokens": -1},
        {"max_exact": -1},
        {"n_drops": 0},
        {"level": 0.0},
        {"level": 1.0},
        {"level": float("nan")},
    ],
)
def test_parameters_that_cannot_be_used_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Screened(**options)  # type: ignore[arg-type]


def test_what_cannot_be_screened_or_does_not_fit_is_refused() -> None:
    with pytest.raises(MissingCapabilityError, match="Screened needs hidden masks and gradients"):
        Screened().estimate(GameValue(lambda mask: [0.0], 4))
    with pytest.raises(MissingCapabilityError, match="debiased-lasso"):
        Screened().ablations(GameValue(lambda mask: [0.0], 4))
    with pytest.raises(ContextTooLongError, match="debiased-lasso"):
        Screened().estimate(ScreenedGame(lambda mask: [0.0], 4, max_kept=3))


# End to end on the real small model

QUESTION = "In which year did the Aldemoor Lantern Festival open?"
ANSWER = "The Aldemoor Lantern Festival opened in 1911."
CHUNKS = (
    ("fees", "Visitors to the Aldemoor market pay four silver marks at the gate."),
    ("torch", "The Corvath Torch Parade opened in 1937."),
    ("lantern", "The Aldemoor Lantern Festival opened in 1911."),
    ("guild", "The lamp makers of Aldemoor formed a guild near the bridge."),
    ("pond", "The mill pond of Dunmere freezes in most winters."),
    ("clock", "The Gildern Clock Museum keeps a collection of 84 drawings."),
    ("roof", "The roof of the Kestrel Glass Library was repaired in 1956."),
    ("ferry", "In spring the ferry to Saltmere is closed for nine days."),
)
AGAIN = ("guide", "As every guide says, the Aldemoor Lantern Festival opened in 1911.")


def asked(chunks: tuple[tuple[str, str], ...]) -> Trace:
    content = "Context:\n" + "\n".join(text for _, text in chunks) + f"\n\nQuestion: {QUESTION}"
    documents = [Document(name, text) for name, text in chunks]
    return Trace.from_messages([{"role": "user", "content": content}], ANSWER, documents=documents)


@pytest.fixture(scope="module")
def looked(small_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Attribution, Path]:
    """The fact in two of nine chunks, by the default estimator."""
    db = tmp_path_factory.mktemp("screened") / "attrkit.db"
    trace = asked((*CHUNKS[:5], AGAIN, *CHUNKS[5:]))
    return trace, attribute(trace, engine=small_engine, db=db, regenerations=False), db


def year_of(found: Attribution) -> int:
    [row] = [row for row in found.rows(TargetKind.PIVOT) if found.targets[row].text == "1911"]
    return row


@pytest.mark.slow
@pytest.mark.model
def test_on_a_real_model_the_planted_chunk_alone_drives_the_year(small_engine: Engine) -> None:
    found = attribute(asked(CHUNKS), engine=small_engine, db=":memory:", regenerations=False)
    assert found.method == "ResponseLogOdds × Screened"
    row, names = year_of(found), [segment.id for segment in found.segments]
    assert names[found.ranking(row)[0]] == "lantern"
    assert [name for name, verdict in zip(names, found.verdicts[row], strict=True) if verdict == "drives"] == [
        "lantern"
    ]
    assert found.drops[row, names.index("lantern")] > found.delta[row]
    assert found.groups == ()
    assert found.agreement is not None
    assert found.agreement[row] > MIN_AGREEMENT
    assert found.level == 0.95
    assert found.noise_floor < 1e-3


@pytest.mark.model
def test_on_a_real_model_a_fact_told_twice_is_a_group_and_both_drive(
    looked: tuple[Trace, Attribution, Path],
) -> None:
    _, found, _ = looked
    row, names = year_of(found), [segment.id for segment in found.segments]
    groups = {tuple(names[column] for column in group.members): group for group in found.groups if group.target == row}
    group = groups["lantern", "guide"]
    assert group.joint_drop > 2 * abs(group.summed_drops)
    assert {name for name, verdict in zip(names, found.verdicts[row], strict=True) if verdict == "drives"} == {
        "lantern",
        "guide",
    }


@pytest.mark.model
def test_on_a_real_model_the_group_is_told_wherever_the_result_is_shown(
    looked: tuple[Trace, Attribution, Path],
) -> None:
    trace, found, _ = looked
    back = Attribution.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert (back.groups, back.pairs, back.tied, back.resolution) == (
        found.groups,
        found.pairs,
        found.tied,
        found.resolution,
    )
    for one in (found, back):
        console = Console(width=120, file=io.StringIO(), color_system=None)
        console.print(render_attribution(one, trace))
        assert "lantern, guide each do without the other: deleting all takes" in console.file.getvalue()  # type: ignore[attr-defined]
        [claim] = compact(one)["claims"]
        [target] = [target for target in claim["targets"] if target["text"] == "1911"]
        assert ["lantern", "guide"] in [group["segments"] for group in target["groups"]]
        assert {cause["segment"] for cause in target["causes"] if cause["verdict"] == "drives"} == {"lantern", "guide"}


@pytest.mark.model
def test_on_a_real_model_a_second_look_costs_no_call_and_says_the_same(
    looked: tuple[Trace, Attribution, Path], small_engine: Engine
) -> None:
    trace, found, db = looked
    again = attribute(trace, engine=small_engine, db=db, regenerations=False)
    assert (again.cost.calls, again.cost.tokens_in, again.cost.tokens_out) == (0, 0, 0)
    assert again.cost.cache_hits == found.cost.calls - 3 * 2 * n_distinct(found)
    np.testing.assert_array_equal(again.effects, found.effects)
    np.testing.assert_array_equal(again.verdicts, found.verdicts)


def n_distinct(found: Attribution) -> int:
    """Targets that read other characters: what a row of gates is differentiated by."""
    return len({(target.start, target.end) for target in found.targets if target.reading == "direct"})
