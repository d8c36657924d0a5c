"""A tracer on a database of its own, which must have nothing left of any run in the end."""

import pytest

pytest.importorskip("haystack")

from haystack import tracing
from haystack.tracing.tracer import NullTracer

from attr_core.store import Store
from attr_haystack import AttributionTracer


@pytest.fixture(autouse=True)
def _no_tracer_of_another():
    tracing.disable_tracing()
    yield
    assert isinstance(tracing.tracer.actual_tracer, NullTracer), "the tracer that was there is enabled again"


@pytest.fixture
def db(tmp_path):
    return tmp_path / "attrkit.db"


@pytest.fixture
def tracer(db):
    with AttributionTracer(store=db) as tracer:
        yield tracer
    assert tracer.recorder.n_open == 0, "every run was handed on"
    assert tracer.recorder.n_remembered == 0, "nothing is left of any run"


@pytest.fixture
def traces(tracer, db):
    """The traces stored so far, the first first."""

    def read():
        assert tracer.flush(10)
        with Store(db) as store:
            return [store.get(summary.id) for summary in reversed(store.list(limit=None))]

    return read
