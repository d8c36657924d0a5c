"""A diagnosis on a span, as OpenTelemetry's own exporter gives it back."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from report_samples import diagnosis_of, run

from attr_core.errors import MissingDependencyError
from attr_core.reports.opentelemetry import EVENT, evaluation_attributes, evaluation_events, record_diagnosis


@pytest.fixture
def tracing() -> tuple[Any, Any]:
    """A provider of its own and the exporter that its spans end in."""
    export = pytest.importorskip("opentelemetry.sdk.trace.export", reason="opentelemetry-sdk is not installed")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    return provider, exporter


def test_the_applications_own_span_gets_an_event_and_attributes_for_each_evaluation(tracing: tuple[Any, Any]) -> None:
    provider, exporter = tracing
    with provider.get_tracer("app").start_as_current_span("chain") as span:
        record_diagnosis(diagnosis_of(run()), span)
    (done,) = exporter.get_finished_spans()
    assert [event.name for event in done.events] == [EVENT] * 3
    label, faithfulness, relevance = (dict(event.attributes) for event in done.events)
    assert label == {
        "gen_ai.evaluation.name": "attrkit.diagnosis",
        "gen_ai.evaluation.score.label": "chunk_dominance",
        "gen_ai.evaluation.explanation": "chunk c1 misled the model: without it the answer is right",
    }
    assert faithfulness["gen_ai.evaluation.score.value"] == 0.5
    assert faithfulness["gen_ai.evaluation.explanation"] == "2 of 2 claims"
    assert "gen_ai.evaluation.score.value" not in relevance, "what is not available is no 0"
    assert relevance["gen_ai.evaluation.score.label"] == "not_available"
    assert "the judge gave no verdict" in relevance["gen_ai.evaluation.explanation"]
    assert done.attributes["evaluations.0.evaluation.label"] == "chunk_dominance"
    assert done.attributes["evaluations.1.evaluation.name"] == "faithfulness"
    assert done.attributes["evaluations.1.evaluation.score"] == 0.5
    assert done.attributes["evaluations.1.evaluation.annotator_kind"] == "LLM"
    assert "evaluations.2.evaluation.score" not in done.attributes
    assert done.attributes["attrkit.trace_id"] == "tr_1"


def test_a_span_of_its_own_stands_below_the_current_one(tracing: tuple[Any, Any]) -> None:
    provider, exporter = tracing
    with provider.get_tracer("app").start_as_current_span("chain"):
        record_diagnosis(diagnosis_of(run()), tracer_provider=provider)
    own, chain = exporter.get_finished_spans()
    assert (own.name, own.parent.span_id) == ("attrkit.diagnose", chain.context.span_id)
    assert own.attributes["openinference.span.kind"] == "EVALUATOR"
    assert len(own.events) == 3
    assert not chain.events


def test_every_value_is_of_a_kind_that_spans_take_and_texts_are_inert() -> None:
    diagnosis = diagnosis_of(run(), headline="\x1b[31m" + "x" * 5_000, judge=None)
    for attributes in (evaluation_attributes(diagnosis), *evaluation_events(diagnosis)):
        for value in attributes.values():
            assert isinstance(value, str | float | bool)
            assert "\x1b" not in str(value)
            assert len(str(value)) <= 1_000


def test_without_opentelemetry_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingDependencyError, match=r"attrkit\[otel\]"):
        record_diagnosis(diagnosis_of(run()))
