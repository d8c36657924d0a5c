"""One run as JSON: what was asked and answered, its attribution and its diagnosis."""

from __future__ import annotations

import json
from typing import Any

from attr_core.attribution import Attribution
from attr_core.results import Diagnosis
from attr_core.types import Trace

__all__ = ["REPORT_SCHEMA", "json_report"]

REPORT_SCHEMA = 1
"""Of what :func:`json_report` writes; attribution and diagnosis have schema numbers of their own."""


def json_report(trace: Trace, attribution: Attribution | None = None, diagnosis: Diagnosis | None = None) -> str:
    """A JSON object with ``schema``, ``trace``, ``attribution`` and ``diagnosis``; what there is not is ``null``.

    The latter two are read back by :meth:`Attribution.from_dict` and :meth:`Diagnosis.from_dict`. Characters beyond
    ASCII are written as they are, but for texts that UTF-8 cannot say.
    """
    report = {
        "schema": REPORT_SCHEMA,
        "trace": _run(trace),
        "attribution": None if attribution is None else attribution.to_dict(),
        "diagnosis": None if diagnosis is None else diagnosis.to_dict(),
    }
    text = json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        text = json.dumps(report, indent=2, allow_nan=False)
    return text + "\n"


def _run(trace: Trace) -> dict[str, Any]:
    return {
        "id": trace.id,
        "query": trace.query,
        "answer": trace.answer,
        "reference": trace.reference,
        "model": trace.target_generation.model if trace.generations else None,
        "framework": trace.framework,
        "status": trace.status,
        "tags": list(trace.tags),
        "started": None if trace.started is None else trace.started.isoformat(),
    }
