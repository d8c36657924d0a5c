"""A diagnosis on an OpenTelemetry span: GenAI evaluation events, and OpenInference's evaluation attributes.

Both conventions are under development; names are those of the GenAI semantic conventions (``gen_ai.evaluation.result``)
and of OpenInference (``evaluations.{i}.evaluation.*``). Events are span events, which every tracing backend shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from attr_core._optional import require
from attr_core.reports._words import cropped
from attr_core.results import Diagnosis

__all__ = ["EVENT", "evaluation_attributes", "evaluation_events", "record_diagnosis"]

EVENT = "gen_ai.evaluation.result"
"""Name of the events."""

LABEL_NAME = "attrkit.diagnosis"
"""Name of the evaluation that is the diagnosis' label."""

NOT_AVAILABLE = "not_available"
"""Label of a metric that has no value; its explanation says why."""

EXPLANATION_WIDTH = 1_000

_OPENINFERENCE = {"score.value": "score", "score.label": "label"}

Attributes = dict[str, str | float | bool]


def record_diagnosis(diagnosis: Diagnosis, span: Any = None, *, tracer_provider: Any = None) -> None:
    """Put the label and the metrics of a diagnosis on a span, as events and as attributes.

    Parameters
    ----------
    diagnosis : Diagnosis
    span : opentelemetry.trace.Span, optional
        One that has not ended, for instance the application's own; by default a span of its own, ``attrkit.diagnose``,
        below the current one, of the kind ``EVALUATOR``.
    tracer_provider : optional
        For a span of its own; by default the global one.

    Raises
    ------
    MissingDependencyError
        A span of its own is wanted and opentelemetry is not installed.

    Examples
    --------
    >>> class Span:
    ...     def set_attributes(self, attributes): print(attributes["evaluations.0.evaluation.label"])
    ...     def add_event(self, name, attributes): print(name, attributes["gen_ai.evaluation.score.label"])
    >>> record_diagnosis(Diagnosis("ok", "the answer is right"), Span())
    ok
    gen_ai.evaluation.result ok
    """
    if span is not None:
        _put(diagnosis, span)
        return
    tracing: Any = require("opentelemetry.trace", extra="otel")
    tracer = tracing.get_tracer("attrkit", tracer_provider=tracer_provider)
    with tracer.start_as_current_span("attrkit.diagnose") as own:
        own.set_attributes({"openinference.span.kind": "EVALUATOR"})
        _put(diagnosis, own)


def evaluation_events(diagnosis: Diagnosis) -> list[Attributes]:
    """Attributes of one event for the label and one for each metric; a metric that is N/A has no ``score.value``."""
    return [{f"gen_ai.evaluation.{name}": value for name, value in told.items()} for _, told in _evaluations(diagnosis)]


def evaluation_attributes(diagnosis: Diagnosis) -> Attributes:
    """OpenInference's attributes of the same evaluations, and which trace of attrkit's they are of."""
    found: Attributes = {"attrkit.trace_id": diagnosis.trace_id, "attrkit.generation_id": diagnosis.generation_id}
    for number, (kind, told) in enumerate(_evaluations(diagnosis)):
        for name, value in told.items():
            found[f"evaluations.{number}.evaluation.{_OPENINFERENCE.get(name, name)}"] = value
        found[f"evaluations.{number}.evaluation.annotator_kind"] = kind
        if diagnosis.judge:
            found[f"evaluations.{number}.evaluation.identifier"] = cropped(diagnosis.judge, EXPLANATION_WIDTH)
    return found


def _put(diagnosis: Diagnosis, span: Any) -> None:
    span.set_attributes(evaluation_attributes(diagnosis))
    for attributes in evaluation_events(diagnosis):
        span.add_event(EVENT, attributes=attributes)


def _evaluations(diagnosis: Diagnosis) -> Iterator[tuple[str, Attributes]]:
    """Who annotated, and the evaluation; the label follows from rules, a metric from verdicts."""
    label: Attributes = {"name": LABEL_NAME, "score.label": str(diagnosis.label)}
    yield "CODE", {**label, "explanation": cropped(diagnosis.headline, EXPLANATION_WIDTH)}
    kind = "LLM" if diagnosis.judged_by == "judged" else "CODE"
    for score in diagnosis.scores:
        told: Attributes = {"name": str(score["name"])}
        value = score["value"]
        if value is None or math.isnan(value):
            told["score.label"] = NOT_AVAILABLE
        else:
            told["score.value"] = float(value)
        counted = f"{score['n']} of {score['of']} {score.get('what', 'items')}"
        explanation = "; ".join(filter(None, (counted, score.get("reason") or "")))
        yield kind, {**told, "explanation": cropped(explanation, EXPLANATION_WIDTH)}
