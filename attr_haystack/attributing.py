"""What the pipeline component does with one run: the trace of what it was given, and what it puts out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from haystack.dataclasses import ChatMessage
from haystack.dataclasses import Document as HaystackDocument

from attr_core._plain import plain
from attr_core.attribution import Attribution
from attr_core.collector import Collector
from attr_core.errors import InputError
from attr_core.reports.compact import telling_rows
from attr_core.results import Verdict
from attr_core.types import Retrieval, Trace
from attr_haystack.convert import stamped, stamped_document, to_answer, to_document, to_generation

__all__ = ["Given", "attributed", "document_scores", "to_trace"]

_UNDECIDED = (Verdict.NO_EFFECT.value, Verdict.UNDETERMINED.value)


@dataclass(frozen=True, slots=True)
class Given:
    """What a model was sent and answered, as pipelines have it."""

    replies: Sequence[ChatMessage]
    messages: Sequence[ChatMessage] | None = None
    prompt: str | None = None
    documents: Sequence[HaystackDocument] = ()
    query: str | None = None


def attributed(collector: Collector, given: Given) -> dict[str, Any]:
    """What the component puts out; it never raises, since the answer must not be lost for want of its cause."""
    try:
        found = [_measured(collector, given, reply) for reply in given.replies]
        first, result = found[0] if found else ({}, None)
        return {
            "replies": [stamped(reply, plain(told)) for reply, (told, _) in zip(given.replies, found, strict=True)],
            "attribution": first,
            "documents": list(_scored(given.documents, first, result)),
        }
    except Exception as error:
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, InputError) else str(error)
        collector.complaints.say("component", f"replies could not be attributed ({reason}); they are passed on")
        return {
            "replies": list(given.replies),
            "attribution": {"error": reason},
            "documents": list(given.documents),
        }


def to_trace(given: Given, reply: ChatMessage) -> Trace:
    """The model call and the retrieval that a component was told of, as one run.

    Raises
    ------
    InputError
        Neither messages nor a prompt, so that nothing is there to be cut into segments.
    """
    messages = given.prompt if given.messages is None else _before(given.messages, reply)
    if not messages:
        raise InputError("there are no messages; connect what the chat generator was sent to messages (or prompt)")
    generation = replace(to_generation({"messages": messages}), **to_answer([reply]))
    documents = tuple(to_document(document, position) for position, document in enumerate(given.documents))
    now = datetime.now(UTC)
    asked = [message.content for message in reversed(generation.messages) if message.role == "user"]
    return Trace(
        query=given.query if given.query is not None else next(iter(asked), None),
        generations=(generation,),
        answer=generation.response,
        retrievals=(Retrieval(query=given.query, documents=documents),) if documents else (),
        framework="haystack",
        started=now,
        finished=now,
    )


def document_scores(attribution: Attribution) -> dict[str, dict[str, Any]]:
    """Document id -> its strongest effect on what the answer says, as plain JSON.

    Of a document's effects on the targets (each claim's pivots and the phrases named in it, or where there are none the
    claim itself) a decided one comes first, then the largest. A document that is nowhere in the messages is missing.
    """
    rows = [row for claim in attribution.claims for row in telling_rows(attribution, claim.index)]
    scores: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for segment in attribution.segments for name in segment.documents):
        columns = [column for column, segment in enumerate(attribution.segments) if name in segment.documents]
        cells = [(row, column) for row in rows for column in columns]
        if not cells:
            continue
        row, column = max(cells, key=lambda cell: _weight(attribution, *cell))
        effect, segment = float(attribution.effects[row, column]), attribution.segments[column]
        scores[name] = {
            "effect": None if math.isnan(effect) else round(effect, 3),
            "unit": attribution.unit,
            "verdict": str(attribution.verdicts[row, column]),
            "target": attribution.targets[row].text,
            "located": segment.located,
        }
    return scores


def _measured(collector: Collector, given: Given, reply: ChatMessage) -> tuple[dict[str, Any], Attribution | None]:
    """What is told of one reply, as plain JSON, and the result where it was there in time."""
    trace = to_trace(given, reply)
    told: dict[str, Any] = {"trace_id": trace.id}
    result = collector.deliver(trace, into=told)
    if collector.mode == "inline":
        told.update(_trouble(collector, told))
    return told, result


def _trouble(collector: Collector, told: Mapping[str, Any]) -> dict[str, Any]:
    """Why a result that was to be waited for is not there; it may also not be wanted, as for a run not sampled."""
    limit = f"within {collector.time_limit:g} s; it goes on in a thread of its own"
    if collector.attributes and "claims" not in told:
        return _why(collector.result, told["trace_id"], f"not measured {limit}")
    if collector.diagnoses and "diagnosis" not in told:
        why = _why(collector.diagnosis, told["trace_id"], f"not diagnosed {limit}")
        return {"diagnosis": why} if why else {}
    return {}


def _why(read: Callable[..., Any], trace_id: str, late: str) -> dict[str, Any]:
    try:
        read(trace_id, timeout=0)
    except TimeoutError:
        return {"error": late}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def _scored(
    documents: Sequence[HaystackDocument], told: dict[str, Any], result: Attribution | None
) -> Iterator[HaystackDocument]:
    scores = {} if result is None else document_scores(result)
    unmeasured = {} if result is None else {"effect": None, "verdict": None, "target": None, "located": None}
    stamp = {"trace_id": told["trace_id"]} if "trace_id" in told else {}
    for document in documents:
        yield stamped_document(document, {**stamp, **scores.get(document.id, unmeasured)})


def _before(messages: Sequence[ChatMessage], reply: ChatMessage) -> list[ChatMessage]:
    """Messages without the reply at their end, as an agent gives them."""
    sent, said = list(messages), (reply.role, reply.texts, reply.tool_calls)
    if sent and (sent[-1].role, sent[-1].texts, sent[-1].tool_calls) == said:
        sent.pop()
    return sent


def _weight(attribution: Attribution, row: int, column: int) -> tuple[bool, float]:
    effect = float(attribution.effects[row, column])
    is_decided = str(attribution.verdicts[row, column]) not in _UNDECIDED
    return is_decided, -1.0 if math.isnan(effect) else abs(effect)
