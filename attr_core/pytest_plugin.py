"""A pytest plugin: the fixture ``attrkit`` and :func:`assert_diagnosis`.

Nothing is loaded, printed or written in suites that do not use it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from attr_core._asserting import DiagnosisFailedError, UndeterminedError, UndeterminedWarning, assert_diagnosis

if TYPE_CHECKING:
    from attr_core.attribution import Attribution
    from attr_core.results import Diagnosis
    from attr_core.types import Trace

__all__ = [
    "AttrkitFixture",
    "DiagnosisFailedError",
    "UndeterminedError",
    "UndeterminedWarning",
    "assert_diagnosis",
    "attrkit",
]

_WORKER = "PYTEST_XDIST_WORKER"


class AttrkitFixture:
    """attrkit's functions with a database of this test's own; what is measured is shared by all tests of a session.

    Parameters
    ----------
    db : path
        Holds this test's traces and results.
    measured : path
        Measured values of the session. Where it cannot be used, values are measured again.
    """

    def __init__(self, db: Path, measured: Path) -> None:
        self.db = db
        self._measured = measured
        self._is_used = False

    def attribute(self, trace: Trace, **options: Any) -> Attribution:
        """:func:`attr_core.attribute`, in this test's database."""
        from attr_core.api import attribute

        return attribute(trace, **self._with_db(options))

    def diagnose(self, trace: Trace, **options: Any) -> Diagnosis:
        """:func:`attr_core.diagnose`, in this test's database."""
        from attr_core.api import diagnose

        return diagnose(trace, **self._with_db(options))

    def explain(self, question: str, documents: Any, answer: str | None = None, **options: Any) -> Attribution:
        """:func:`attr_core.explain`, in this test's database."""
        from attr_core.api import explain

        return explain(question, documents, answer, **self._with_db(options))

    def assert_diagnosis(self, trace: Any, label: Any = "ok", **options: Any) -> tuple[Diagnosis, ...]:
        """:func:`assert_diagnosis`, in this test's database."""
        __tracebackhide__ = True
        return assert_diagnosis(trace, label, **self._with_db(options))

    def _with_db(self, options: dict[str, Any]) -> dict[str, Any]:
        """On first use with what other tests have measured."""
        if not self._is_used:
            from attr_core._storage.sharing import copy_measurements

            self._is_used = True
            copy_measurements(self._measured, self.db)
        return {"db": self.db, **options}

    def _hand_on(self) -> None:
        """Give the session what this test has measured."""
        if self._is_used:
            from attr_core._storage.sharing import copy_measurements

            copy_measurements(self.db, self._measured)


@pytest.fixture
def attrkit(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttrkitFixture]:
    """attrkit's functions with a database of this test's own; see :class:`AttrkitFixture`."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get(_WORKER):  # the workers of one session share the folder above
        shared = shared.parent
    fixture = AttrkitFixture(tmp_path / "attrkit.db", shared / "attrkit-measured.db")
    yield fixture
    fixture._hand_on()
