"""A trace -> its diagnosis, and a diagnosis -> its proof run again; wiring below :mod:`attr_core.api`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attr_core._setup import Options
from attr_core.attribution import Attribution
from attr_core.claims import claims_of, split_claims
from attr_core.diagnosis import Case, Facts, Thresholds, Trials, decide, examine
from attr_core.diagnosis.examine import is_source
from attr_core.diagnosis.reruns import Reruns
from attr_core.errors import AttrkitError, InputError
from attr_core.interventions import Intervention, sampling_like
from attr_core.measuring import answers_for, versions
from attr_core.metering import MeteredEngine
from attr_core.planning import generation_of
from attr_core.prompt import candidates, count_text
from attr_core.protocols import Judge, Sampling
from attr_core.results import Cost, Diagnosis
from attr_core.segmenter import documents_before, segment_trace, unlocated
from attr_core.support.citations import citations
from attr_core.support.conflicts import against_closed_book
from attr_core.support.grid import grid
from attr_core.support.matrix import Judged
from attr_core.support.metrics import score_all
from attr_core.support.outcome import Standard
from attr_core.support.retrieval import retrieval_precision, retrieval_recall
from attr_core.types import Generation, SegmentKind, ToolCall, Trace

__all__ = ["Replay", "case_of", "diagnosed", "replayed", "sampling_of"]

CLOSED_BOOK = "the model's own belief"
"""Stands in the place of a segment where a conflict is with what the model says without context."""

_SAYS_ERROR = re.compile(r"\s*(?:\w*(?:error|exception)\b|traceback\b|failed\b)\s*[:(]?", re.IGNORECASE)


def case_of(trace: Trace, options: Options, *, expected: str | None) -> Case:
    """What was recorded of the answer, cut into segments; measures nothing.

    Raises
    ------
    InputError
        No such step or generation, or one that wrote nothing.
    """
    generation = generation_of(trace, options)
    if not generation.written:
        raise InputError(f"trace {trace.id} has an empty response and no tool call; nothing to diagnose")
    generation = segment_trace(trace, generation, granularity=options.granularity)
    sources = tuple(segment for segment in candidates(generation.segments) if is_source(segment))
    documents = documents_before(trace, generation)
    return Case(
        generation=generation,
        sources=sources,
        claims=claims_of(generation),
        question=_question(trace, generation),
        expected=expected,
        expected_chunks=trace.expected_chunks,
        retrieved=documents,
        lost=unlocated(documents, generation.segments),
        tool_errors=_failed(trace),
    )


def diagnosed(
    case: Case,
    trace: Trace,
    *,
    judge: Judge,
    engine: MeteredEngine | None,
    attribution: Attribution | None,
    thresholds: Thresholds,
    seed: int,
    notes: Sequence[str] = (),
) -> Diagnosis:
    """Examine the case and decide; ``engine`` runs the prompt again, without one only the judge speaks."""
    told = list(notes)
    if engine is not None:
        case = replace(case, is_answered_by_other=answers_for(case.generation.model, engine.spec))
        told += _how_run(case, engine)
    if attribution is not None:
        case = replace(case, suspects=_suspects(case, attribution))
    facts = examine(
        case,
        judge=judge,
        engine=engine,
        sampling=Sampling() if engine is None else sampling_of(case.generation, engine, seed),
        thresholds=thresholds,
        notes=told,
    )
    judged = facts.judged
    against_belief, spent, unsaid = _against_belief(facts, judge)
    return decide(
        replace(facts, notes=(*facts.notes, *unsaid)),
        trace_id=trace.id,
        generation_id=case.generation.id,
        question=case.question,
        answer=case.generation.written,
        expected=case.expected,
        scores=() if judged is None else _scores(case, trace, judged),
        grid=None if judged is None else _grid(case, trace, judged, attribution),
        conflicts=(*_conflicts(facts), *against_belief),
        judge=None if judged is None else judged.support.judge,
        judged_by="judged" if judged is None else judged.support.kind,
        measured_on=None if engine is None else engine.spec,
        seed=seed,
        cost=facts.cost + spent,
        versions=versions(),
    )


def _against_belief(facts: Facts, judge: Judge) -> tuple[list[dict[str, Any]], Cost, tuple[str, ...]]:
    """Segments that contradict what the model says without any of them, where that was asked."""
    if facts.nothing is None or facts.judged is None:
        return [], Cost(), ()
    try:
        found = against_closed_book(judge, facts.nothing.texts[0], facts.judged)
    except AttrkitError as error:
        return [], Cost(), (f"the answer without context was not held against the segments: {error}",)
    ids = [source.id for source in facts.sources]
    contrary = [
        {"first": ids[column], "second": CLOSED_BOOK, "how": "direct", "why": found.answer}
        for column in found.contradicting
    ]
    return contrary, found.cost, ()


@dataclass(frozen=True, slots=True)
class Replay:
    """A proof that was run again: ``holds`` where the change still repairs in more runs than nothing does.

    For a label whose proof is that a change does *not* help (``parametric_answer``, ``generation_ignore``,
    ``misreading``), it holds where outcomes are what they were.
    """

    diagnosis: Diagnosis
    changed: Trials
    unchanged: Trials
    holds: bool
    cost: Cost = field(default_factory=Cost)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        sides = {"changed": self.changed, "unchanged": self.unchanged}
        said = {
            name: {"runs": len(one.texts), "repaired": one.n_repaired, "texts": one.texts}
            for name, one in sides.items()
        }
        return {
            "trace_id": self.diagnosis.trace_id,
            "label": self.diagnosis.label,
            "holds": self.holds,
            **said,
            "calls": self.cost.calls,
        }


def replayed(
    case: Case,
    diagnosis: Diagnosis,
    *,
    judge: Judge,
    engine: MeteredEngine,
    thresholds: Thresholds,
) -> Replay:
    """The intervention of a diagnosis and the unchanged prompt, run again and judged: what comes out now.

    Raises
    ------
    InputError
        The diagnosis has no proof.
    SegmentationError
        The prompt is cut in another way than when it was diagnosed.
    """
    if diagnosis.proof is None:
        raise InputError(f"the diagnosis {diagnosis.label!r} rests on the judge alone; there is nothing to run again")
    change = Intervention.from_dict(diagnosis.proof["intervention"], case.sources)
    wanted = tuple(split_claims(diagnosis.expected)) if diagnosis.expected else ()
    reruns = Reruns(
        engine,
        judge,
        generation=case.generation,
        sources=case.sources,
        standard=Standard(wanted, () if wanted else case.claims, case.question),
        sampling=sampling_of(case.generation, engine, diagnosis.seed),
        thresholds=thresholds,
    )
    times = [int(diagnosis.proof[name]["runs"]) for name in ("changed", "unchanged")]
    [changed] = reruns.run([change], times=times[0])
    [unchanged] = reruns.run([Intervention()], times=times[1])
    was = [int(diagnosis.proof[name]["repaired"]) > 0 for name in ("changed", "unchanged")]
    as_then = [one.n_repaired > 0 for one in (changed, unchanged)] == was
    repaired = changed.n_repaired * max(unchanged.n, 1) > unchanged.n_repaired * max(changed.n, 1)
    return Replay(diagnosis, changed, unchanged, repaired if was == [True, False] else as_then, reruns.judge_cost)


def sampling_of(generation: Generation, engine: MeteredEngine, seed: int) -> Sampling:
    """As the application sampled, where that was recorded; else greedily."""
    found = sampling_like(generation, response_tokens=count_text(engine.engine, generation.written))
    recorded = generation.parameters.get("temperature")
    temperature = float(recorded) if isinstance(recorded, int | float) and recorded > 0 else 0.0
    return replace(found, temperature=temperature, seed=seed)


def _how_run(case: Case, engine: MeteredEngine) -> list[str]:
    told = []
    if "temperature" not in case.generation.parameters:
        told.append("the application's temperature was not recorded: the prompt is run again at 0")
    if case.is_answered_by_other:
        told.append(f"{case.generation.model} answered; the prompt is run again on {engine.spec}, which stands for it")
    return told


def _question(trace: Trace, generation: Generation) -> str | None:
    if trace.query:
        return trace.query
    asked = [one.text for one in generation.segments if one.fixed and one.kind is SegmentKind.USER_TURN]
    return asked[-1].strip() if asked else None


def _failed(trace: Trace) -> tuple[ToolCall, ...]:
    """Tool calls that failed and were not made again with success."""
    calls = [*trace.tool_calls, *(call for generation in trace.generations for call in generation.tool_calls)]
    failed: dict[str, ToolCall] = {}
    for call in calls:
        says_error = isinstance(call.output, str) and _SAYS_ERROR.match(call.output) is not None
        if call.error or says_error:
            failed[call.name] = call
        elif call.output is not None:
            failed.pop(call.name, None)
    return tuple(failed.values())


def _suspects(case: Case, attribution: Attribution) -> tuple[int, ...]:
    """Columns of the case by their largest effect on anything that was said."""
    largest = dict(zip([one.id for one in attribution.segments], _largest(attribution), strict=True))
    known = [n for n, source in enumerate(case.sources) if source.id in largest]
    return tuple(sorted(known, key=lambda n: -largest[case.sources[n].id]))


def _largest(attribution: Attribution) -> list[float]:
    effects = np.nan_to_num(attribution.effects, nan=-np.inf)
    return [float(column.max(initial=-np.inf)) for column in effects.T]


def _scores(case: Case, trace: Trace, judged: Judged) -> tuple[dict[str, Any], ...]:
    found = list(score_all(judged))
    if trace.expected_chunks:
        found += [retrieval_recall(trace), retrieval_precision(trace)]
    return tuple(one.to_dict() for one in found)


def _grid(case: Case, trace: Trace, judged: Judged, attribution: Attribution | None) -> dict[str, Any]:
    provider = trace.metadata.get("citations")
    cited = citations(judged.answer, case.claims, case.sources, case.generation, provider=provider)
    return grid(judged, attribution, cited).to_dict()


def _conflicts(facts: Facts) -> list[dict[str, Any]]:
    ids = [source.id for source in facts.sources]
    return [
        {"first": ids[one.first], "second": ids[one.second], "how": one.how, "why": one.rationale}
        for one in facts.conflicts
    ]
