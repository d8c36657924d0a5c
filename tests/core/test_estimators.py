"""One contract for every estimator, and each against closed forms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attr_core.errors import ConfigurationError, ContextTooLongError
from attr_core.estimators import (
    ESTIMATORS,
    Banzhaf,
    ContextCite,
    DebiasedLasso,
    LeaveOneOut,
    PathGradients,
    Screened,
    Shapley,
    estimator_named,
)
from attr_core.estimators.context_cite import lasso_effects
from attr_core.protocols import Estimator
from attr_core.results import MaskArray
from attr_core.testing import GameValue, ScreenedGame

FIGURES = json.loads((Path(__file__).parent / "data" / "context_cite_0_0_4.json").read_text())
WEIGHTS = np.array([[6.0, 0.0, -3.0, 1.5, 0.0], [0.0, 2.0, 0.0, 0.0, -4.0]])


GAMES = st.integers(1, 4).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.floats(-9, 9), min_size=2**n, max_size=2**n))
)


Game = GameValue | ScreenedGame


def additive(weights: np.ndarray, estimator: Estimator | None = None) -> Game:
    """A game that offers what the estimator needs."""
    kind = ScreenedGame if isinstance(estimator, PathGradients | Screened) else GameValue
    return kind(lambda mask: list(weights @ mask - 2.0), weights.shape[1], n_targets=len(weights))


@pytest.fixture(params=sorted(ESTIMATORS))
def estimator(request: pytest.FixtureRequest) -> Estimator:
    return estimator_named(request.param)


def tolerance(estimator: Estimator) -> float:
    return 0.05 if isinstance(estimator, ContextCite | DebiasedLasso | Screened) else 1e-9


def test_known_additive_weights_are_recovered(estimator: Estimator) -> None:
    effects = estimator.estimate(additive(WEIGHTS, estimator)).effects
    np.testing.assert_allclose(effects, WEIGHTS, atol=tolerance(estimator))


def test_a_segment_without_effect_gets_zero(estimator: Estimator) -> None:
    effects = estimator.estimate(additive(WEIGHTS, estimator)).effects
    np.testing.assert_allclose(effects[WEIGHTS == 0], 0, atol=tolerance(estimator))


def test_permuting_segments_permutes_effects(estimator: Estimator) -> None:
    order = np.array([3, 0, 4, 2, 1])
    effects = estimator.estimate(additive(WEIGHTS, estimator)).effects
    permuted = estimator.estimate(additive(WEIGHTS[:, order], estimator)).effects
    np.testing.assert_allclose(permuted, effects[:, order], atol=2 * tolerance(estimator))


def test_drops_are_what_single_deletion_takes_away(estimator: Estimator) -> None:
    drops = estimator.estimate(additive(WEIGHTS, estimator)).drops
    measured = np.isfinite(drops)
    assert measured.any(axis=1).all() == (not isinstance(estimator, PathGradients))
    np.testing.assert_allclose(drops[measured], WEIGHTS[measured], atol=1e-9)


def test_no_more_masks_are_measured_than_announced(estimator: Estimator) -> None:
    game = additive(WEIGHTS, estimator)
    estimate = estimator.estimate(game)
    assert len(set(game.measured)) + len(set(getattr(game, "hid", ()))) <= estimator.n_masks(5)
    assert estimate.n_masks <= estimator.n_masks(5)


def test_all_kept_and_all_removed_are_always_measured(estimator: Estimator) -> None:
    game = additive(WEIGHTS, estimator)
    estimator.estimate(game)
    if isinstance(estimator, PathGradients):
        assert not game.measured, "it measures no mask"
        return
    assert (True,) * 5 in game.measured
    assert (False,) * 5 in game.measured


def test_same_seed_same_effects(estimator: Estimator) -> None:
    first, second = (estimator.estimate(additive(WEIGHTS, estimator), seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.effects, second.effects)


@pytest.mark.parametrize("n_segments", [0, 1, 2])
def test_few_segments_give_right_answers(estimator: Estimator, n_segments: int) -> None:
    weights = np.array([[10.0, -5.0]])[:, :n_segments]
    estimate = estimator.estimate(additive(weights, estimator))
    assert estimate.effects.shape == estimate.drops.shape == (1, n_segments)
    np.testing.assert_allclose(estimate.effects, weights, atol=0.05)


def test_undefined_is_nan_never_zero(estimator: Estimator) -> None:
    estimate = estimator.estimate(additive(WEIGHTS, estimator))
    sampled_with_intervals = isinstance(estimator, DebiasedLasso | Screened)
    assert np.isfinite(estimate.low).all() == np.isfinite(estimate.error).all() == sampled_with_intervals
    assert np.isnan(estimate.low).all() == np.isnan(estimate.error).all() == (not sampled_with_intervals)


def test_masks_that_do_not_fit_are_never_measured(estimator: Estimator) -> None:
    game = additive(WEIGHTS, estimator)
    game.max_kept = 3
    if isinstance(estimator, PathGradients | Screened):
        with pytest.raises(ContextTooLongError, match="debiased-lasso"):
            estimator.estimate(game)
        return
    estimator.estimate(game)
    assert max(sum(mask) for mask in game.measured) <= 3


def test_results_are_read_only(estimator: Estimator) -> None:
    estimate = estimator.estimate(additive(WEIGHTS, estimator))
    with pytest.raises(ValueError, match="read-only"):
        estimate.effects[0, 0] = 1.0


def game_of(values: Sequence[float], n_segments: int) -> GameValue:
    def value(mask: MaskArray) -> list[float]:
        return [values[sum(1 << s for s in range(n_segments) if mask[s])]]

    return GameValue(value, n_segments)


@given(GAMES)
def test_shapley_effects_add_up_to_all_minus_none(case: tuple[int, list[float]]) -> None:
    n, values = case
    effects = Shapley().estimate(game_of(values, n)).effects
    assert effects.sum() == pytest.approx(values[-1] - values[0], abs=1e-9)


@given(GAMES)
@settings(max_examples=50)
def test_banzhaf_is_the_least_squares_fit_over_all_subsets(case: tuple[int, list[float]]) -> None:
    n, values = case
    masks = np.array([[row >> s & 1 for s in range(n)] for row in range(2**n)], dtype=float)
    fit = np.linalg.lstsq(np.column_stack([np.ones(2**n), masks]), np.array(values), rcond=None)[0]
    np.testing.assert_allclose(Banzhaf().estimate(game_of(values, n)).effects[0], fit[1:], atol=1e-8)


def test_either_of_two_segments_hides_from_leave_one_out_but_not_from_banzhaf() -> None:
    def either(mask: MaskArray) -> list[float]:
        return [8.0 * float(mask[0] or mask[1])]

    np.testing.assert_allclose(LeaveOneOut().estimate(GameValue(either, 2)).effects, [[0, 0]])
    np.testing.assert_allclose(Banzhaf().estimate(GameValue(either, 2)).effects, [[4, 4]])


def test_exact_effects_and_valid_intervals_decide_and_nothing_else() -> None:
    named = {name: estimator_named(name) for name in ESTIMATORS}
    decisive = {name for name, one in named.items() if one.estimate(additive(WEIGHTS, one)).decisive}
    assert decisive == {"banzhaf", "debiased-lasso", "hierarchical", "screened", "shapley"}


def sparse_game(n_segments: int, seed: int, **options: float) -> tuple[GameValue, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = np.zeros(n_segments)
    weights[:3] = [7.0, -4.0, 3.0]
    noise = {}

    def value(mask: MaskArray) -> list[float]:
        error = noise.setdefault(mask.tobytes(), rng.normal(0, 0.7))
        return [float(weights @ mask + 4.0 * (mask[1] and mask[2]) + error)]

    truth = weights + np.where(np.isin(np.arange(n_segments), [1, 2]), 2.0, 0.0)
    return GameValue(value, n_segments, **options), truth


def test_debiased_intervals_cover_under_noise_and_interaction() -> None:
    covered = []
    for seed in range(12):
        game, truth = sparse_game(20, seed)
        estimate = DebiasedLasso().estimate(game, seed=seed)
        covered += ((estimate.low[0] <= truth) & (truth <= estimate.high[0])).tolist()
    assert 0.9 <= np.mean(covered) <= 0.99


def test_the_number_of_ablations_grows_with_the_segments() -> None:
    assert [DebiasedLasso().n_random(n) for n in (7, 32, 33, 100)] == [64, 64, 66, 200]


def test_every_segment_is_kept_in_half_of_the_ablations() -> None:
    masks, probability, n_unfit = DebiasedLasso().masks(additive(WEIGHTS))
    assert (masks.sum(axis=0) == len(masks) / 2).all()
    assert (probability, n_unfit) == (0.5, 0)


def test_held_out_fit_is_high_for_an_additive_game_and_undefined_for_a_constant_one() -> None:
    fit = DebiasedLasso().estimate(additive(WEIGHTS)).fit
    assert fit is not None
    assert (fit.r2 > 0.99).all()
    assert (fit.lds > 0.95).all()
    constant = DebiasedLasso().estimate(GameValue(lambda mask: [1.0], 9))
    assert constant.fit is not None
    assert np.isnan(constant.fit.r2).all()
    np.testing.assert_allclose(constant.effects, 0, atol=1e-12)


def test_a_game_of_noise_alone_is_not_predicted() -> None:
    rng = np.random.default_rng(3)
    fit = DebiasedLasso().estimate(GameValue(lambda mask: [rng.normal()], 15)).fit
    assert fit is not None
    assert fit.r2[0] < 0.2


def test_where_the_full_prompt_does_not_fit_fewer_segments_are_kept_and_effects_stay_right() -> None:
    game, truth = sparse_game(20, 1, max_kept=9)
    truth[[1, 2]] = [-4.0 + 4.0 * 0.35, 3.0 + 4.0 * 0.35]  # the partner is kept less often
    estimate = DebiasedLasso().estimate(game, seed=1)
    assert estimate.estimand == "banzhaf at 35% kept"
    assert estimate.n_unfit > 0
    assert np.isnan(estimate.drops).all()
    assert ((estimate.low[0] <= truth) & (truth <= estimate.high[0])).mean() >= 0.8


def test_a_segment_that_never_fits_has_no_effect_at_all() -> None:
    class Narrow(GameValue):
        def fits(self, masks: MaskArray) -> MaskArray:
            return ~masks[:, 0]

    for name in ("debiased-lasso", "context-cite"):
        estimate = estimator_named(name).estimate(Narrow(lambda mask: [9.0 * mask[0] + 3.0 * mask[1]], 9))
        assert np.isnan(estimate.effects[0, 0])
        assert estimate.effects[0, 1] == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("max_kept", [7, 5, 3])
def test_intervals_cover_where_few_segments_fit(max_kept: int) -> None:
    covered = []
    for seed in range(15):
        rng = np.random.default_rng(seed)
        weights = np.array([7.0, -4.0, 3.0, *[0.0] * 9])
        game = GameValue(
            lambda mask, rng=rng, weights=weights: [float(weights @ mask + rng.normal(0, 0.5))], 12, max_kept=max_kept
        )
        found = DebiasedLasso().estimate(game, seed=seed)
        covered += ((found.low[0] <= weights) & (weights <= found.high[0])).tolist()
    assert np.mean(covered) >= 0.93


def test_a_fit_without_residual_judges_nothing() -> None:
    rng = np.random.default_rng(0)
    game = GameValue(lambda mask: [6.0 * mask[1] + rng.normal()], 40, max_kept=22)
    estimate = DebiasedLasso(32).estimate(game)
    assert np.isnan(estimate.effects).all()


def test_segments_that_never_fit_do_not_hide_the_others() -> None:
    class Narrow(GameValue):
        def fits(self, masks: MaskArray) -> MaskArray:
            return ~masks[:, :4].any(axis=1)

    estimate = DebiasedLasso().estimate(Narrow(lambda mask: [3.0 * mask[5]], 10))
    assert np.isnan(estimate.effects[0, :4]).all()
    np.testing.assert_allclose(estimate.effects[0, 4:], [0, 3, 0, 0, 0, 0], atol=0.1)


def test_where_hardly_anything_fits_it_is_one_clear_error() -> None:
    with pytest.raises(ContextTooLongError, match="hardly any subset fits"):
        DebiasedLasso().estimate(GameValue(lambda mask: [0.0], 20, max_kept=-1))


def test_too_few_ablations_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="give 16 or more"):
        DebiasedLasso(8)


@pytest.mark.parametrize("case", FIGURES["cases"], ids=lambda case: case["name"])
def test_context_cite_draws_the_masks_of_the_package(case: dict) -> None:
    masks = ContextCite(case["n_masks"]).masks(case["n_segments"], seed=case["seed"])
    np.testing.assert_array_equal(masks.astype(int), case["masks"])


@pytest.mark.parametrize("case", FIGURES["cases"], ids=lambda case: case["name"])
def test_context_cite_gives_the_weights_of_the_package(case: dict) -> None:
    masks, values = np.array(case["masks"], dtype=bool), np.array(case["values"])[:, None]
    effects = lasso_effects(masks, values, np.array([case["n_tokens"]]), alpha=0.01)
    # The package fits float32 columns.
    np.testing.assert_allclose(effects[0], case["weights"], rtol=1e-4, atol=1e-4)


def test_context_cite_refuses_what_cannot_be_fitted() -> None:
    with pytest.raises(ConfigurationError, match="n_ablations >= 2"):
        ContextCite(1)


def test_too_many_segments_to_enumerate_is_one_clear_error() -> None:
    with pytest.raises(ConfigurationError, match="40 segments have 2\\*\\*40 subsets"):
        Banzhaf().estimate(GameValue(lambda mask: [0.0], 40))


def test_an_unknown_estimator_lists_the_known() -> None:
    with pytest.raises(ConfigurationError, match="choose banzhaf, context-cite"):
        estimator_named("lime")
