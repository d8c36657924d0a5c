"""Results as LangSmith feedback, where the user hands over a client."""

from __future__ import annotations

from typing import Any, Protocol

from attr_core.attribution import Attribution
from attr_core.reports.compact import compact
from attr_core.results import Diagnosis
from attr_core.types import Trace

__all__ = ["DIAGNOSIS_KEY", "FEEDBACK_KEY", "Client", "send_diagnosis", "send_feedback"]

FEEDBACK_KEY = "attrkit.caused_by_context"
"""Score: the share of the answer's claims of which at least one word is driven by a piece of the context."""

DIAGNOSIS_KEY = "attrkit_diagnosis"
"""Value: the label of the diagnosis, such as ``chunk_dominance``."""


class Client(Protocol):
    """What is used of ``langsmith.Client``."""

    def create_feedback(self, run_id: Any = ..., key: str = ..., **details: Any) -> Any: ...


def send_feedback(client: Client, trace: Trace, result: Attribution) -> None:
    """One feedback for the root run: which share of the claims the context caused, and by what.

    There is no score where a claim that nothing drives has segments that could not be told.
    """
    found = compact(result)
    client.create_feedback(
        run_id=trace.run_id,
        key=FEEDBACK_KEY,
        score=_share(found["claims"]),
        value={"trace_id": trace.id, "causes": _causes(found["claims"])},
        comment=f"attrkit, {result.method}, measured on {result.measured_on}",
        source_info={"tool": "attrkit"},
    )


def send_diagnosis(client: Client, trace: Trace, diagnosis: Diagnosis) -> None:
    """One feedback for the root run: which failure its answer is, and the headline that says so."""
    client.create_feedback(
        run_id=trace.run_id,
        key=DIAGNOSIS_KEY,
        value=str(diagnosis.label),
        comment=diagnosis.headline,
        source_info={"tool": "attrkit"},
    )


def _share(claims: list[dict[str, Any]]) -> float | None:
    driven = [any(_drivers(target) for target in claim["targets"]) for claim in claims]
    open_ = [any(target["undetermined"] for target in claim["targets"]) for claim in claims]
    if not claims or any(not is_driven and is_open for is_driven, is_open in zip(driven, open_, strict=True)):
        return None
    return sum(driven) / len(driven)


def _drivers(target: dict[str, Any]) -> list[str]:
    return [cause["segment"] for cause in target["causes"] if cause["verdict"] in ("drives", "helpful")]


def _causes(claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"text": target["text"], "segments": _drivers(target)} for claim in claims for target in claim["targets"]]
