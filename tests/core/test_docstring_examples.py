"""Every example in a docstring runs and prints what it says."""

import doctest
import importlib
import pkgutil

import pytest

import attr_core

MODULES = sorted(info.name for info in pkgutil.walk_packages(attr_core.__path__, "attr_core."))
EXAMPLES = {
    example.name: example
    for name in MODULES
    for example in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    if example.examples
}


def test_there_are_examples():
    assert "attr_core.types.Trace.from_messages" in EXAMPLES


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_prints_what_it_says(name):
    printed = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(EXAMPLES[name], out=printed.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(printed)
