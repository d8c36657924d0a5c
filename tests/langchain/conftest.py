"""A handler on a database of its own, which must have nothing left of any run in the end."""

import pytest

pytest.importorskip("langchain_core")

from attr_core.store import Store
from attr_langchain import AttributionCallbackHandler


@pytest.fixture
def db(tmp_path):
    return tmp_path / "attrkit.db"


@pytest.fixture
def handler(db):
    with AttributionCallbackHandler(store=db) as handler:
        yield handler
        assert handler.recorder.n_open == 0, "every run was handed on"
        assert handler.recorder.n_remembered == 0, "nothing is left of any run"


@pytest.fixture
def traces(handler, db):
    """The traces stored so far, the first first."""

    def read():
        assert handler.flush(10)
        with Store(db) as store:
            return [store.get(summary.id) for summary in reversed(store.list(limit=None))]

    return read
