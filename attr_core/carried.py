"""What drove an answer by way of earlier model calls of its run: drafts refined or summed up, a tool that asks a model.

A segment of the last prompt may be an earlier call's text (``Segment.origin``). What drove that text is another
attribution's matter, on other words and in another prompt, so effects are never multiplied along the way: a path says
which segments drive at each end, each by its own verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from attr_core._segmenting.origins import position_of
from attr_core.attribution import Attribution
from attr_core.results import Verdict
from attr_core.types import Generation, Segment, TargetKind, Trace

__all__ = ["Way", "carried"]

_FOR = (Verdict.DRIVES.value, Verdict.HELPFUL.value)


@dataclass(frozen=True, slots=True)
class Way:
    """By way of which earlier calls something drives a target.

    ``target`` and ``column`` are row and column of the attribution that is explained: a segment that drives the target
    and that an earlier model call wrote. ``steps`` are the numbers of the calls passed, from 1, the latest first.
    ``segment`` is what drives the text in the last of them; ``None`` where nothing in particular does, or where
    ``is_known`` is false: that call has not been attributed.
    """

    target: int
    column: int
    steps: tuple[int, ...]
    segment: Segment | None
    is_known: bool = True


def carried(attribution: Attribution, trace: Trace, others: Iterable[Attribution]) -> tuple[Way, ...]:
    """By way of which earlier calls the segments of other prompts drive this one's targets.

    Parameters
    ----------
    attribution : Attribution
        Of the call to explain, usually the one that gave the answer.
    trace : Trace
        Its run.
    others : iterable of Attribution
        Of other calls of the run; of several for one call the last counts.

    Returns
    -------
    tuple of Way
        For each target and each segment that drives it and is an earlier call's text, the segments that drive, there,
        the same words where these are a target, else the claims that stand in what was carried. Costs nothing.
    """
    known = {other.generation_id: other for other in others if other.trace_id == trace.id}
    generation = _generation(trace, attribution.generation_id)
    found: dict[tuple[Any, ...], Way] = {}
    for row, target in enumerate(attribution.targets if generation is not None else ()):
        for column in _driving(attribution, row):
            segment = attribution.segments[column]
            for steps, last, is_known in _ways(trace, generation, segment, target.text, known):
                if steps:
                    key = (row, column, steps, None if last is None else last.id)
                    found.setdefault(key, Way(row, column, steps, last, is_known))
    return tuple(found.values())


_Back = tuple[tuple[int, ...], Segment | None, bool]


def _ways(
    trace: Trace, generation: Generation | None, segment: Segment, words: str, known: Mapping[str, Attribution]
) -> Iterator[_Back]:
    """From a segment back: the steps passed, what drives there, and whether the last of them is known."""
    writer = None if generation is None else _writer(trace, generation, segment)
    if writer is None:
        yield (), segment, True
        return
    step = position_of(trace, writer) + 1
    attribution = known.get(writer.id)
    if attribution is None:
        yield (step,), None, False
        return
    rows = _rows(attribution, segment.text, words)
    drivers = list(dict.fromkeys(column for row in rows for column in _driving(attribution, row)))
    if not drivers:
        yield (step,), None, True
    for column in drivers:
        for steps, last, is_known in _ways(trace, writer, attribution.segments[column], words, known):
            yield (step, *steps), last, is_known


def _writer(trace: Trace, generation: Generation, segment: Segment) -> Generation | None:
    """The earlier call that wrote a segment's text; also one within a tool, where its answer is all that gave."""
    before = trace.generations[: position_of(trace, generation)]
    if segment.origin is None:
        return None
    if (found := next((one for one in before if one.id == segment.origin), None)) is not None:
        return found
    outputs = {(call.output or "").strip() for call in trace.tool_calls if call.id == segment.origin} - {""}
    return next((one for one in reversed(before) if (one.response or "").strip() in outputs), None)


def _rows(attribution: Attribution, text: str, words: str) -> list[int]:
    """The targets of an earlier call that are these words, else its claims in what was carried, else all its claims."""
    rows = [row for row, target in enumerate(attribution.targets) if target.kind is not TargetKind.RESPONSE]
    same = [row for row in rows if attribution.targets[row].text.strip().casefold() == words.strip().casefold()]
    claims = [row for row in rows if attribution.targets[row].kind is TargetKind.CLAIM]
    inside = [row for row in claims if attribution.targets[row].text.strip() in text]
    return same or inside or claims


def _driving(attribution: Attribution, row: int) -> list[int]:
    """Columns that drive a target, the largest effect first."""
    return [column for column in attribution.ranking(row) if str(attribution.verdicts[row, column]) in _FOR]


def _generation(trace: Trace, identifier: str) -> Generation | None:
    return next((one for one in trace.generations if one.id == identifier), None)
