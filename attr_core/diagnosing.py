"""A trace -> its diagnosis, and a diagnosis -> its proof run again; wiring below :mod:`attr_core.api`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attr_core._setup import Options
from attr_core.attribution import Attribution
from attr_core.claims import claims_of, split_claims
from attr_core.diagnosis import Case, Facts, Label, Thresholds, Trials, decide, examine
from attr_core.diagnosis.examine import is_source
from attr_core.diagnosis.facts import repair_p_value
from attr_core.diagnosis.reruns import Reruns
from attr_core.errors import AttrkitError, InputError
from attr_core.interventions import Intervention, sampling_like
from attr_core.measuring import answers_for, versions
from attr_core.metering import MeteredEngine
from attr_core.outcomes import Outcome
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

_STAYS = {
    Label.PARAMETRIC_ANSWER.value: True,
    Label.GENERATION_IGNORE.value: True,
    Label.MISREADING.value: False,
}
"""Whether the answer stays under the change that proves a label which rests on no repair."""

__all__ = ["Replay", "case_of", "diagnosed", "replayed", "sampling_of"]

CLOSED_BOOK = "the model's own belief"
"""Stands in the place of a segment where a conflict is with what the model says without context."""

LONGEST_ERROR = 20_000
"""Characters of a tool's output up to which it is read as JSON, to see whether that is an error."""

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
    if expected and not any(character.isalnum() for character in expected):
        raise InputError(f"the expected answer {expected[:40]!r} of trace {trace.id} says nothing; give one that does")
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
        granularity=options.granularity,
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
    found = decide(
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
    if found.proof is None or case.granularity is None:
        return found
    return replace(found, proof={**found.proof, "granularity": str(case.granularity)})


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

    On an engine that does not reproduce itself, by Fisher's exact test at ``alpha``, as in the diagnosis.

    For a label whose proof is that a change does *not* help, it holds where the answer is still the same under it
    (``parametric_answer``, ``generation_ignore``), or another one (``misreading``). Where nothing could be judged it
    does not hold.
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
    change, times = _read(diagnosis, case)
    wanted = tuple(split_claims(diagnosis.expected)) if diagnosis.expected else ()
    reruns = Reruns(
        engine,
        judge,
        generation=case.generation,
        sources=case.sources,
        standard=Standard(wanted, () if wanted else case.claims, case.question),
        sampling=sampling_of(case.generation, engine, diagnosis.seed),
        thresholds=thresholds,
        recorded=Outcome(diagnosis.outcome) if wanted else Outcome.WRONG,
    )
    if not reruns.is_reproducible:  # it may have been, on another engine
        least = (thresholds.n_confirm, thresholds.n_unchanged + thresholds.n_confirm)
        times = [max(pair) for pair in zip(times, least, strict=True)]
    [unchanged] = reruns.run([Intervention()], times=times[1])
    if not unchanged.stays:
        unchanged = reruns.hold_against(unchanged)
    [changed] = reruns.run([change], times=times[0])
    most = 1.0 if reruns.is_reproducible else thresholds.alpha
    return Replay(diagnosis, changed, unchanged, _holds(diagnosis, changed, unchanged, most), reruns.judge_cost)


def _read(diagnosis: Diagnosis, case: Case) -> tuple[Intervention, list[int]]:
    """The change of a proof, and how often it and the unchanged prompt were run."""
    proof: Any = diagnosis.proof
    try:
        times = [int(proof[name]["runs"]) for name in ("changed", "unchanged")]
        [int(proof[name]["repaired"]) for name in ("changed", "unchanged")]
        return Intervention.from_dict(proof["intervention"], case.sources), times
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, AttrkitError):
            raise
        raise InputError(
            f"the proof of trace {diagnosis.trace_id} cannot be read ({error!r}); diagnose again"
        ) from error


def _holds(diagnosis: Diagnosis, changed: Trials, unchanged: Trials, most: float) -> bool:
    """Also whether chance is ruled out: ``most`` is the largest p-value of a repair that does."""
    proof: Any = diagnosis.proof
    was = [int(proof[name]["repaired"]) > 0 for name in ("changed", "unchanged")]
    stays = _STAYS.get(diagnosis.label)
    if stays is not None and not any(was):
        return changed.stays is stays and not changed.repairs and not unchanged.repairs
    if not changed.n or not unchanged.n:
        return False
    if was == [True, False]:
        is_more = changed.n_repaired * unchanged.n > unchanged.n_repaired * changed.n
        return is_more and repair_p_value(changed, unchanged) <= most
    return [one.n_repaired > 0 for one in (changed, unchanged)] == was


def sampling_of(generation: Generation, engine: MeteredEngine, seed: int) -> Sampling:
    """As the application sampled, where that was recorded; else greedily."""
    found = sampling_like(generation, response_tokens=count_text(engine.engine, generation.written))
    return replace(found, temperature=_temperature(generation) or 0.0, seed=seed)


def _temperature(generation: Generation) -> float | None:
    """As recorded, also as text; ``None`` where that is no number from 0 on."""
    recorded = generation.parameters.get("temperature")
    if isinstance(recorded, bool) or not isinstance(recorded, int | float | str):
        return None
    try:
        temperature = float(recorded)
    except (ValueError, OverflowError):
        return None
    return temperature if math.isfinite(temperature) and temperature >= 0 else None


def _how_run(case: Case, engine: MeteredEngine) -> list[str]:
    told = []
    if _temperature(case.generation) is None:
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
        if call.error or (isinstance(call.output, str) and _says_error(call.output)):
            failed[call.name] = call
        elif call.output is not None:
            failed.pop(call.name, None)
    return tuple(failed.values())


def _says_error(output: str) -> bool:
    """By its first word, or as a JSON object with an ``error`` that is not empty, or marked as one."""
    if _SAYS_ERROR.match(output):
        return True
    if not output.lstrip().startswith("{") or len(output) > LONGEST_ERROR:
        return False
    try:
        found = json.loads(output)
    except (ValueError, RecursionError):
        return False
    marked = any(found.get(name) is True for name in ("isError", "is_error"))
    return marked or bool(found.get("error")) or found.get("status") in ("error", "failed")


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
