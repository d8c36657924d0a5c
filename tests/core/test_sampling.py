"""A sample is decided by the id alone: alike everywhere, monotone in the rate, of about the size asked for."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.errors import ConfigurationError
from attr_core.sampling import is_sampled
from attr_core.types import Trace

ANY_TEXT = st.text(st.characters(codec=None), max_size=12)
RATES = st.floats(0, 1)


@given(ANY_TEXT, RATES, RATES)
def test_a_run_in_a_small_sample_is_in_every_larger_one(identifier, one, other):
    low, high = sorted([one, other])
    assert is_sampled(identifier, low) <= is_sampled(identifier, high)
    assert is_sampled(identifier, one) == is_sampled(identifier, one)


@given(ANY_TEXT)
def test_all_and_none(identifier):
    assert is_sampled(identifier, 1.0)
    assert is_sampled(identifier, 1)
    assert not is_sampled(identifier, 0.0)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_a_sample_has_the_size_asked_for(rate):
    n = 20_000
    found = sum(is_sampled(f"tr_{i:016x}", rate) for i in range(n))
    assert abs(found - n * rate) < 5 * math.sqrt(n * rate * (1 - rate))


def test_ids_as_traces_have_them_are_sampled_too():
    ids = [Trace.from_messages([{"role": "user", "content": "q"}], "a").id for _ in range(200)]
    assert 0 < sum(is_sampled(identifier, 0.5) for identifier in ids) < 200


def test_what_one_version_decides_the_next_decides_too():
    assert [is_sampled(f"tr_{i}", 0.5) for i in range(8)] == [True, False, True, True, True, False, False, True]


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, math.inf, True, "0.5", None])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(ConfigurationError, match="give a share from 0 to 1"):
        is_sampled("tr_1", rate)
