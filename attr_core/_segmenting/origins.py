"""Where in its run a text came from: the earlier model call that wrote it, or the tool call that gave it.

Only by texts that are the same or hold one another, never by likeness; what stood in the prompt of the model call
already did not come from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from attr_core.types import Generation, Message, Segment, SegmentKind, ToolCall, Trace

MIN_CONTAINED = 16
"""Characters below which a text that is found inside another proves nothing."""

_ANYONES = (SegmentKind.USER_TURN, SegmentKind.SYSTEM)


@dataclass(frozen=True, slots=True)
class Source:
    """A text that came up in a run.

    ``step`` is the place of the model call that wrote it or asked the tool for it; ``document`` names the document that
    it is, as segments do.
    """

    origin: str
    text: str
    step: int | None
    is_call: bool
    document: str | None = None


def position_of(trace: Trace, generation: Generation) -> int:
    """The place of a generation in its trace, from 0; after the last where it is not one of them."""
    places = (place for place, other in enumerate(trace.generations) if other.id == generation.id)
    return next(places, len(trace.generations))


def steps_of(trace: Trace) -> Iterator[tuple[ToolCall, int | None]]:
    """The run's tool calls, each with the place of the model call that asked for it, where that can be told."""
    places = {generation.id: place for place, generation in enumerate(trace.generations)}
    asked: dict[str, set[int]] = {}
    for place, generation in enumerate(trace.generations):
        for call in generation.tool_calls:
            asked.setdefault(call.id, set()).add(place)
    ran = {call.id for call in trace.tool_calls}
    for call in trace.tool_calls:
        steps = asked.get(call.id, set())  # some servers number each answer's calls anew
        yield call, places.get(call.generation_id or "", next(iter(steps)) if len(steps) == 1 else None)
    for place, generation in enumerate(trace.generations):
        yield from ((call, place) for call in generation.tool_calls if call.id not in ran)


def calls_before(trace: Trace, generation: Generation) -> list[tuple[ToolCall, int | None]]:
    """As :func:`steps_of`, without what this generation or a later one asked for."""
    here = position_of(trace, generation)
    return [(call, step) for call, step in steps_of(trace) if step is None or step < here]


def sources_before(
    trace: Trace, generation: Generation, names: Mapping[tuple[str, str], str] | None = None
) -> list[Source]:
    """What earlier model calls wrote and tool calls gave, the earliest first.

    ``names`` are those that segments give documents, by a document's id and text.
    """
    names = names or {}
    found: list[Source] = []
    for step, other in enumerate(trace.generations[: position_of(trace, generation)]):
        if other.response and other.response.strip():
            found.append(Source(other.id, other.response.strip(), step, is_call=False))
    for call, asked in calls_before(trace, generation):
        texts = [(call.output or "", None), *((d.text, names.get((d.id, d.text.strip()))) for d in call.documents)]
        found += [
            Source(call.id, text.strip(), asked, is_call=True, document=name)
            for text, name in texts
            if call.id and text.strip()
        ]
    return sorted(found, key=lambda source: -1 if source.step is None else source.step)


def carried_in(trace: Trace, generation: Generation, pieces: Sequence[Segment]) -> dict[str, tuple[int, str]]:
    """Text -> number of the step, from 1, and id of the earlier model call that wrote it, where it is to be cut out.

    That is where a prompt template was given it, and where an instruction holds it, which could not be removed with it.
    Not where it is the question, and a short text only where it is all of an argument and stands there once.
    """
    own = [piece for piece in pieces if piece.kind in _ANYONES and not piece.documents]
    contents = [message.content for message in generation.messages if message.role != "assistant"]
    arguments, contexts = (list(_texts(generation.rendered.get(key))) for key in ("arguments", "context"))
    found: dict[str, tuple[int, str]] = {}
    for step, other in enumerate(trace.generations[: position_of(trace, generation)]):
        text = (other.response or "").strip()
        if not text or text in found or any(piece.text.strip() == text for piece in own):
            continue
        times = sum(content.count(text) for content in contents)
        if text in arguments and (times == 1 or (times and len(text) >= MIN_CONTAINED)):
            found[text] = step + 1, other.id
        elif len(text) >= MIN_CONTAINED and not _stood_before(text, trace, step):
            holders = [piece for piece in own if text in piece.text]
            is_given = any(text in context for context in contexts)
            if any(is_given or piece.fixed for piece in holders):
                found[text] = step + 1, other.id
    return found


def is_carried_only(text: str, carried: Collection[str], generation: Generation) -> bool:
    """Whether a document's text stands in a prompt because an earlier call said just that, not among the documents."""
    contexts = _texts(generation.rendered.get("context"))
    return text in carried and not any(text in context for context in contexts)


def _texts(held: object) -> Iterator[str]:
    values = held.values() if isinstance(held, Mapping) else held if isinstance(held, list | tuple) else (held,)
    yield from (value.strip() for value in values if isinstance(value, str))


def origin_of(piece: Segment, generation: Generation, trace: Trace, sources: Sequence[Source]) -> str | None:
    """The id of what the piece's text came from: of what it equals, else of what it shares most with; the earliest."""
    whole = generation.messages[piece.locations[0].message].content.strip()
    text = piece.text.strip()
    kin = ((_kinship(piece, text, whole, source), source) for source in sources)
    alike = [(kinship, source) for kinship, source in kin if kinship and not _stood_before(text, trace, source.step)]
    return max(alike, key=lambda pair: pair[0])[1].origin if alike else None


def _kinship(piece: Segment, text: str, whole: str, source: Source) -> tuple[bool, int] | None:
    """Whether they are equal, and how many characters they share; ``None`` where that proves nothing."""
    told = source.text
    if piece.kind is SegmentKind.RETRIEVED and source.document in piece.documents:
        return True, len(text)
    if told in (text, whole):
        # People and prompts say "yes" and "42" of their own accord.
        is_chance = source.is_call and len(told) < MIN_CONTAINED and piece.kind in _ANYONES
        return None if is_chance else (True, len(text))
    if len(told) >= MIN_CONTAINED and told in text:
        return False, len(told)
    stands = len(told) >= MIN_CONTAINED and told in whole
    if text in told and (stands or len(text) >= MIN_CONTAINED):
        return False, len(text)
    return None


def _stood_before(text: str, trace: Trace, step: int | None) -> bool:
    contents = [] if step is None else [message.content for message in trace.generations[step].messages]
    if len(text) < MIN_CONTAINED:  # "42" may stand in any number
        return any(text == content.strip() for content in contents)
    return any(text in content for content in contents)


def producer(trace: Trace, generation: Generation, piece: Segment) -> tuple[str | None, int | None] | None:
    """Name of the tool (``None`` for a model call) and number of the step, from 1, that a piece's origin stands for.

    ``None`` where the trace does not know the origin. The number is ``None`` where it cannot be told.
    """
    for number, other in enumerate(trace.generations[: position_of(trace, generation)], start=1):
        if other.id == piece.origin:
            return None, number
    calls = [(call, step) for call, step in calls_before(trace, generation) if call.id == piece.origin]
    if len(calls) > 1:  # an id that is used again: those that gave this text, if any
        text = piece.text.strip()
        calls = [(call, step) for call, step in calls if text in (call.output or "")] or calls
    names, steps = {call.name for call, _ in calls}, {step for _, step in calls}
    name = names.pop() if len(names) == 1 else _name_in(generation.messages[: piece.locations[0].message], piece.origin)
    step = steps.pop() if len(steps) == 1 else None
    return (name, None if step is None else step + 1) if name else None


def _name_in(messages: Sequence[Message], identifier: str | None) -> str | None:
    """Of the tool last called under that id."""
    calls = (call for message in reversed(messages) for call in message.tool_calls if call.id == identifier)
    return next((call.name for call in calls), None)
