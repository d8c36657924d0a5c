"""Errors cross processes whole: workers and test runners pickle them."""

import copy
import inspect
import pickle

import pytest

from attr_core import errors
from attr_core.errors import AttrkitError, EngineError
from attr_core.protocols import Completion

EXTRA = {"MissingDependencyError": {"extra": "hf"}, "DownloadNeededError": {"megabytes": 300}}
KINDS = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, AttrkitError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_comes_back_from_a_pickle_and_a_copy_as_it_was(kind):
    error = kind("said; do that", **EXTRA.get(kind.__name__, {}))
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 (our own)
        assert type(again) is kind
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_what_a_batch_had_completed_comes_along():
    error = EngineError("2 of 3 failed", completed={1: Completion("In 1911.")})
    assert pickle.loads(pickle.dumps(error)).completed == {1: Completion("In 1911.")}  # noqa: S301
    assert EngineError("none").completed == {}
