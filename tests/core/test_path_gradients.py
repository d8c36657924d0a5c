"""Path gradients against the multilinear extension's integral, written out by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.errors import ConfigurationError, ContextTooLongError, MissingCapabilityError
from attr_core.estimators import PathGradients
from attr_core.estimators.path_gradients import GATES, equal_gates, path_effects
from attr_core.results import MaskArray
from attr_core.testing import GameValue, ScreenedGame

WEIGHTS = np.array([[6.0, 0.0, -3.0, 1.5], [0.0, 2.0, 0.0, -4.0]])
FINE = tuple(np.linspace(0.005, 1.0, 200).tolist())


def additive(mask: MaskArray) -> list[float]:
    return list(WEIGHTS @ mask - 2.0)


def product(members: tuple[int, ...], size: float = 6.0):
    return lambda mask: [size * float(mask[list(members)].all())]


def by_hand(slope, gates: tuple[float, ...]) -> float:
    """The rule in the docstring: constant to the smallest gate and from the largest, straight lines between."""
    grid = np.linspace(0, 1, 200_001)
    points = np.sort(gates)
    return float(np.trapezoid(np.interp(grid, points, [slope(point) for point in points]), grid))


@pytest.mark.parametrize("gates", [GATES, (1.0,), (0.3,), (0.2, 0.9), FINE])
def test_of_an_additive_game_any_path_gives_the_weights(gates: tuple[float, ...]) -> None:
    found = PathGradients(gates).estimate(ScreenedGame(additive, 4, n_targets=2))
    np.testing.assert_allclose(found.effects, WEIGHTS, atol=1e-9)


@pytest.mark.parametrize("gates", [GATES, (0.9, 0.1), (0.5,)])
@pytest.mark.parametrize("members", [(0, 1), (1, 2, 4)])
def test_of_a_product_each_factor_has_the_rule_of_its_derivative(
    members: tuple[int, ...], gates: tuple[float, ...]
) -> None:
    # The multilinear extension is 6 g^k along equal gates; by one factor's own gate its derivative is 6 g^(k - 1).
    k = len(members)
    expected = by_hand(lambda gate: 6.0 * gate ** (k - 1), gates)
    found = PathGradients(gates).estimate(ScreenedGame(product(members), 5)).effects[0]
    np.testing.assert_allclose(found[list(members)], expected, atol=1e-6)
    np.testing.assert_allclose(np.delete(found, members), 0, atol=1e-12)


def test_with_many_points_a_product_is_shared_equally_among_its_factors() -> None:
    found = PathGradients(FINE).estimate(ScreenedGame(product((0, 2, 3)), 4)).effects[0]
    np.testing.assert_allclose(found, [2, 0, 2, 2], atol=1e-3)


def test_either_of_two_is_worth_half_with_many_points_and_more_near_the_closed_gate() -> None:
    game = ScreenedGame(lambda mask: [8.0 * float(mask[0] or mask[1])], 3)
    np.testing.assert_allclose(PathGradients(FINE).estimate(game).effects, [[4, 4, 0]], atol=1e-3)
    np.testing.assert_allclose(PathGradients((0.25,)).estimate(game).effects, [[6, 6, 0]], atol=1e-9)


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.floats(-9, 9), min_size=2**n, max_size=2**n)))
def test_with_many_points_effects_are_shapleys_and_add_up_to_all_minus_none(values: list[float]) -> None:
    n = len(values).bit_length() - 1

    def game(mask: MaskArray) -> list[float]:
        return [values[sum(1 << column for column in range(n) if mask[column])]]

    found = PathGradients(FINE).estimate(ScreenedGame(game, n)).effects[0]
    assert found.sum() == pytest.approx(values[-1] - values[0], abs=0.02)
    # Owen 1972: the diagonal's integral is the Shapley value.
    np.testing.assert_allclose(found, shapley(values, n), atol=0.02)


def shapley(values: list[float], n: int) -> list[float]:
    found = []
    for own in range(n):
        others = [column for column in range(n) if column != own]
        shares = []
        for size in range(n):
            joined = [sum(1 << column for column in members) for members in combinations(others, size)]
            shares.append(np.mean([values[one | 1 << own] - values[one] for one in joined]))
        found.append(float(np.mean(shares)))
    return found


def test_more_points_come_nearer_to_all_minus_none() -> None:
    def game(mask: MaskArray) -> list[float]:
        return [10.0 / (1.0 + np.exp(-(3.0 * mask[0] + 2.0 * mask[1] * mask[2] - mask[3])))]

    whole = game(np.ones(4, dtype=bool))[0] - game(np.zeros(4, dtype=bool))[0]
    off = []
    for n_points in (2, 8, 32):
        gates = tuple(((np.arange(n_points) + 0.5) / n_points).tolist())
        off.append(abs(PathGradients(gates).estimate(ScreenedGame(game, 4)).effects.sum() - whole))
    assert off[0] > off[1] > off[2]
    assert off[2] < 1e-3 * abs(whole)


def test_the_order_in_which_gates_are_given_changes_nothing() -> None:
    game = ScreenedGame(product((0, 1)), 3)
    one, other = (PathGradients(gates).estimate(game).effects for gates in (GATES, GATES[::-1]))
    np.testing.assert_array_equal(one, other)


def test_what_is_hidden_is_differentiated_and_nothing_is_deleted() -> None:
    game = ScreenedGame(lambda mask: [5.0 * mask[0]], 3, hidden_game=lambda mask: [4.0 * mask[1]])
    np.testing.assert_allclose(PathGradients().estimate(game).effects, [[0, 4, 0]], atol=1e-9)
    assert (game.measured, game.hid, game.n_gates) == ([], [], len(GATES))


def test_it_ranks_and_decides_nothing() -> None:
    found = PathGradients().estimate(ScreenedGame(additive, 4, n_targets=2))
    assert (found.decisive, found.exact, found.n_masks, found.agreement) == (False, False, 0, None)
    assert np.isnan([found.low, found.high, found.error, found.drops]).all()


def test_gates_are_equal_in_a_row_and_gradients_of_no_segment_are_none() -> None:
    np.testing.assert_array_equal(equal_gates((0.5, 0.1), 3), [[0.5] * 3, [0.1] * 3])
    assert path_effects(np.zeros((2, 1, 0)), (0.5, 0.1)).shape == (1, 0)


@pytest.mark.parametrize("gates", [(), (0.0, 0.5), (1.1,), (-0.1,), (0.5, 0.5), (float("nan"),)])
def test_gates_that_make_no_path_are_refused(gates: tuple[float, ...]) -> None:
    with pytest.raises(ConfigurationError, match="make no path"):
        PathGradients(gates)


def test_what_offers_no_gradients_or_does_not_fit_is_refused() -> None:
    with pytest.raises(MissingCapabilityError, match="PathGradients needs hidden masks and gradients"):
        PathGradients().estimate(GameValue(additive, 4))
    with pytest.raises(ContextTooLongError, match="PathGradients needs the full prompt"):
        PathGradients().estimate(ScreenedGame(additive, 4, n_targets=2, max_kept=3))
