"""A verdict needs a margin."""

from __future__ import annotations

import numpy as np

from attr_core.results import Estimate, FloatArray
from attr_core.verdicts import margins, weigh


def estimate(effects: FloatArray, *, half_width: float | None = None, decisive: bool = True) -> Estimate:
    nothing = np.full_like(effects, np.nan)
    exact = half_width is None
    return Estimate(
        effects=effects,
        low=nothing if exact else effects - half_width,
        high=nothing if exact else effects + half_width,
        p_values=nothing,
        drops=nothing,
        exact=exact,
        decisive=decisive,
        n_masks=8,
    )


def test_the_margin_is_a_fifth_of_the_largest_effect_but_not_below_the_floor() -> None:
    effects = np.array([[10.0, -1.0], [-20.0, 3.0], [0.5, 0.1]])
    np.testing.assert_allclose(margins(effects, floor=1.0), [2, 4, 1])


def test_no_segments_leave_the_floor() -> None:
    np.testing.assert_allclose(margins(np.empty((2, 0)), floor=1.0), [1, 1])


def test_exact_effects_are_weighed_by_themselves() -> None:
    effects = np.array([[10.0, -3.0, 1.9, -0.5]])
    verdicts = weigh(estimate(effects), margins(effects, floor=1.0))
    assert verdicts.tolist() == [["drives", "opposes", "no effect", "no effect"]]


def test_sampled_effects_are_weighed_by_their_interval() -> None:
    effects = np.array([[10.0, -8.0, 2.5, 0.1]])
    verdicts = weigh(estimate(effects, half_width=1.0), np.array([2.0]))
    assert verdicts.tolist() == [["drives", "opposes", "undetermined", "no effect"]]


def test_an_interval_wider_than_the_margin_is_undetermined_around_zero() -> None:
    assert weigh(estimate(np.array([[0.0]]), half_width=3.0), np.array([2.0])).tolist() == [["undetermined"]]


def test_an_estimator_that_only_ranks_decides_nothing() -> None:
    verdicts = weigh(estimate(np.array([[100.0]]), decisive=False), np.array([1.0]))
    assert verdicts.tolist() == [["undetermined"]]


def test_nan_is_undetermined() -> None:
    assert weigh(estimate(np.array([[np.nan]])), np.array([1.0])).tolist() == [["undetermined"]]


def test_helpful_and_harmful_are_for_values_that_know_what_is_right() -> None:
    effects = np.array([[5.0, -5.0]])
    verdicts = weigh(estimate(effects), np.array([1.0]), knows_right=True)
    assert verdicts.tolist() == [["helpful", "harmful"]]
