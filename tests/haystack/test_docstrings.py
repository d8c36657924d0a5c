"""The examples in the adapter's docstrings run and print what they say."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["attr_haystack.engine", "haystack_integrations.components.attribution"])
def test_examples_print_what_they_say(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
