"""Evaluation sets: an application's answers to many questions, diagnosed, stored, summed up and compared.

:class:`Evaluation` runs a set, :func:`open_run` reads a stored run; :mod:`attr_core.evaluation.planted` makes runs with
planted failures.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attr_core.evaluation.results import EvaluationRun, RowResult, open_run
    from attr_core.evaluation.rows import EvaluationSet, Row, read_rows
    from attr_core.evaluation.runner import Evaluation

__all__ = ["Evaluation", "EvaluationRun", "EvaluationSet", "Row", "RowResult", "open_run", "read_rows"]

_HOMES = {
    "Evaluation": "runner",
    "EvaluationRun": "results",
    "EvaluationSet": "rows",
    "Row": "rows",
    "RowResult": "results",
    "open_run": "results",
    "read_rows": "rows",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"attr_core.evaluation.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
