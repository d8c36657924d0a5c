"""An instrumentation on a database of its own, which must leave nothing of any run, and the dispatcher as it was."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("llama_index.core")

from llama_index_instrumentation import get_dispatcher

from attr_core.store import Store
from attr_llamaindex import instrument
from attr_llamaindex.instrumentation import current


@pytest.fixture(autouse=True)
def _dispatcher_stays_as_it_was():
    root = get_dispatcher()
    before = list(root.span_handlers), list(root.event_handlers)
    yield
    if (left := current()) is not None:
        left.close(10)
    assert (list(root.span_handlers), list(root.event_handlers)) == before


OF_ITS_OWN = (
    ":pydantic.warnings.PydanticDeprecationWarning",
    "is_running called from within a step:DeprecationWarning",
    "Skipping serialization of known unserializable key:Warning",
)
"""What LlamaIndex's agents warn of, whoever runs them."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == Path(__file__).parent:
            for warning in OF_ITS_OWN:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{warning}"))


@pytest.fixture(autouse=True)
def _a_loop_that_is_closed():
    """LlamaIndex runs asynchronous parts of synchronous calls in the thread's loop; its own it leaves open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def db(tmp_path):
    return tmp_path / "attrkit.db"


@pytest.fixture
def instrumentation(db):
    with instrument(store=db) as instrumentation:
        yield instrumentation
        assert instrumentation.runs.recorder.n_open == 0, "every run was handed on"
        assert instrumentation.runs.n_remembered == 0, "nothing is left of any run"
        for complaints in (instrumentation.complaints, instrumentation.runs.complaints):
            assert not complaints._said, "nothing went wrong, and nothing was warned of"


@pytest.fixture
def traces(instrumentation, db):
    """The traces stored so far, the first first."""

    def read():
        assert instrumentation.flush(10)
        with Store(db) as store:
            return [store.get(summary.id) for summary in reversed(store.list(limit=None))]

    return read


@pytest.fixture
def trace(traces):
    """The only trace."""

    def read():
        (only,) = traces()
        return only

    return read
