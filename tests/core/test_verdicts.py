"""A verdict needs a margin."""

from __future__ import annotations

import numpy as np

from attr_core.results import Estimate, FloatArray
from attr_core.verdicts import adjusted_p_values, margins, weigh


def estimate(effects: FloatArray, *, half_width: float | None = None, decisive: bool = True) -> Estimate:
    nothing = np.full_like(effects, np.nan)
    exact = half_width is None
    return Estimate(
        effects=effects,
        low=nothing if exact else effects - half_width,
        high=nothing if exact else effects + half_width,
        error=nothing if exact else np.full_like(effects, half_width / 2),
        dof=63,
        level=0.95,
        drops=nothing,
        exact=exact,
        decisive=decisive,
        n_masks=8,
    )


def verdicts_of(found: Estimate, delta: FloatArray, *, knows_right: bool = False) -> list[list[str]]:
    return weigh(found, delta, adjusted_p_values(found, delta), knows_right=knows_right).tolist()


def test_the_margin_is_a_fifth_of_the_largest_effect_but_not_below_the_floor() -> None:
    effects = np.array([[10.0, -1.0], [-20.0, 3.0], [0.5, 0.1]])
    np.testing.assert_allclose(margins(effects, floor=1.0), [2, 4, 1])


def test_no_segments_leave_the_floor() -> None:
    np.testing.assert_allclose(margins(np.empty((2, 0)), floor=1.0), [1, 1])


def test_exact_effects_are_weighed_by_themselves() -> None:
    effects = np.array([[10.0, -3.0, 1.9, -0.5]])
    verdicts = verdicts_of(estimate(effects), margins(effects, floor=1.0))
    assert verdicts == [["drives", "opposes", "no effect", "no effect"]]


def test_sampled_effects_are_weighed_by_their_interval() -> None:
    effects = np.array([[10.0, -8.0, 2.5, 0.1]])
    verdicts = verdicts_of(estimate(effects, half_width=1.0), np.array([2.0]))
    assert verdicts == [["drives", "opposes", "undetermined", "no effect"]]


def test_an_interval_wider_than_the_margin_is_undetermined_around_zero() -> None:
    assert verdicts_of(estimate(np.array([[0.0]]), half_width=3.0), np.array([2.0])) == [["undetermined"]]


def test_an_estimator_that_only_ranks_decides_nothing() -> None:
    verdicts = verdicts_of(estimate(np.array([[100.0]]), decisive=False), np.array([1.0]))
    assert verdicts == [["undetermined"]]


def test_nan_is_undetermined() -> None:
    assert verdicts_of(estimate(np.array([[np.nan]])), np.array([1.0])) == [["undetermined"]]


def test_helpful_and_harmful_are_for_values_that_know_what_is_right() -> None:
    effects = np.array([[5.0, -5.0]])
    verdicts = verdicts_of(estimate(effects), np.array([1.0]), knows_right=True)
    assert verdicts == [["helpful", "harmful"]]


def test_p_values_are_against_the_margin() -> None:
    found = estimate(np.array([[2.0, 3.0, 12.0]]), half_width=1.0)
    p_values = adjusted_p_values(found, np.array([2.0]))
    assert p_values[0, 0] >= 0.5
    assert p_values[0, 0] > p_values[0, 1] > p_values[0, 2]
    assert p_values[0, 2] < 1e-6


def test_p_values_are_adjusted_over_the_whole_matrix() -> None:
    effects = np.zeros((40, 25))
    effects[0, 0] = 3.4
    alone, among_many = estimate(effects[:1, :1], half_width=1.0), estimate(effects, half_width=1.0)
    assert verdicts_of(alone, np.array([2.0])) == [["drives"]]
    assert verdicts_of(among_many, np.full(40, 2.0))[0][0] == "undetermined"


def test_nothing_sampled_has_no_p_value() -> None:
    assert np.isnan(adjusted_p_values(estimate(np.array([[5.0]])), np.array([1.0]))).all()
