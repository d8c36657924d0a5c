"""What is run again to see whether a cause holds: the prompt as it was, with segments removed, or in another order."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attr_core.errors import SegmentationError
from attr_core.prompt import ablate, ablations
from attr_core.protocols import Completion, Generates, Sampling
from attr_core.results import Regeneration
from attr_core.types import Generation, Location, Prompt, Segment

__all__ = ["Intervention", "prompt_under", "regenerate", "sampling_like"]

MIN_NEW_TOKENS = 32
MAX_NEW_TOKENS = 256

_CALLED = frozenset({"tool_calls", "function_call"})
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Intervention:
    """A change to a recorded prompt; with none, it is the prompt as it was.

    ``removed`` are columns that are deleted. ``question`` stands in the place of what was asked; both go together.
    ``order`` are columns whose texts change places: they stand in it as they are to follow one another.
    """

    removed: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    question: str | None = None

    def to_dict(self, segments: Sequence[Segment]) -> dict[str, Any]:
        """Plain JSON values, with the ids of segments."""
        ids = [segment.id for segment in segments]
        if self.order:
            return {"order": [ids[column] for column in self.order]}
        removed = {"remove": [ids[column] for column in self.removed]}
        if self.question is None:
            return removed
        return {"question": self.question} | (removed if self.removed else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], segments: Sequence[Segment]) -> Intervention:
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        SegmentationError
            A segment is no longer there.
        """
        column = {segment.id: n for n, segment in enumerate(segments)}
        if lost := [one for one in (*data.get("remove", ()), *data.get("order", ())) if one not in column]:
            raise SegmentationError(f"segment {lost[0]!r} is not in the prompt; was it cut in another way?")
        removed, order = (tuple(column[one] for one in data.get(key, ())) for key in ("remove", "order"))
        return cls(removed, order, data.get("question"))


def prompt_under(generation: Generation, segments: Sequence[Segment], intervention: Intervention) -> Prompt:
    """The recorded prompt with one change.

    Raises
    ------
    SegmentationError
        Columns that are to change places stand in several, or there is no question to replace.
    """
    if intervention.order:
        places = sorted(_place(segments[column]) for column in intervention.order)
        texts = [segments[column].text for column in intervention.order]
        return _edited(generation, list(zip(places, texts, strict=True)))
    if intervention.question is not None:
        asked = [segment for segment in generation.segments if segment.fixed and segment.locations]
        if not asked:
            raise SegmentationError(f"generation {generation.id} has no question of its own that could be replaced")
        last = max(asked[-1].locations, key=_sorted_by)
        gone = [(_sorted_by(place), "") for n in intervention.removed for place in segments[n].locations]
        return _edited(generation, [(_sorted_by(last), intervention.question), *gone])
    mask = np.ones(len(segments), dtype=np.bool_)
    mask[list(intervention.removed)] = False
    return ablate(generation, segments, mask)


def _place(segment: Segment) -> tuple[int, int, int]:
    if len(segment.locations) != 1:
        raise SegmentationError(f"segment {segment.id!r} stands in {len(segment.locations)} places and cannot be moved")
    return _sorted_by(segment.locations[0])


def _sorted_by(location: Location) -> tuple[int, int, int]:
    return location.message, location.start, location.end


def _edited(generation: Generation, edits: Sequence[tuple[tuple[int, int, int], str]]) -> Prompt:
    messages = list(generation.messages)
    for (message, start, end), text in sorted(edits, reverse=True):
        content = messages[message].content
        messages[message] = replace(messages[message], content=content[:start] + text + content[end:])
    return Prompt(tuple(messages), generation.tools)


def regenerate(
    engine: Generates,
    generation: Generation,
    *,
    segments: Sequence[Segment],
    removals: Sequence[tuple[int, ...]],
    sampling: Sampling,
) -> tuple[Regeneration, ...]:
    """What the model says when each of ``removals`` (columns of ``segments``) is deleted from its prompt.

    ``same`` compares with what was recorded, white space aside; where either was cut at its limit of tokens, as far
    as both go. A recorded tool call is the same in whatever syntax the model writes it, as long as name and arguments
    stand there as JSON. Where an engine says that tools were called but not how, that is left out.
    Cost: one generation per removal.
    """
    masks = np.ones((len(removals), len(segments)), dtype=np.bool_)
    for row, columns in enumerate(removals):
        masks[row, list(columns)] = False
    completions = engine.generate(ablations(generation, segments, masks), sampling)
    return tuple(
        Regeneration(tuple(columns), completion.text, _is_same(completion, generation))
        for columns, completion in zip(removals, completions, strict=True)
        if not generation.tool_calls or completion.finish_reason not in _CALLED or _calls_in(completion.text)
    )


def _is_same(completion: Completion, generation: Generation) -> bool:
    said, recorded = (" ".join(text.split()) for text in (completion.text, generation.written))
    if completion.finish_reason == "length":
        return bool(said) and recorded.startswith(said)
    if generation.finish_reason == "length":
        return said.startswith(recorded)
    return said == recorded or _calls_alike(completion.text, generation)


def _calls_alike(text: str, generation: Generation) -> bool:
    """Whether ``text`` makes the recorded calls, after what was said before them."""
    recorded = [(call.name, call.arguments or {}) for call in generation.tool_calls]
    before = " ".join((generation.response or "").split())
    return bool(recorded) and _calls_in(text) == recorded and " ".join(text.split()).startswith(before)


def _calls_in(text: str) -> list[tuple[Any, Any]]:
    """Name and arguments of the calls that stand in a text as JSON; anything else in JSON has no name."""
    calls, position = [], text.find("{")
    while position >= 0:
        try:
            found, position = _DECODER.raw_decode(text, position)
            calls.append(_call(found))
        except (ValueError, RecursionError):
            position += 1
        position = text.find("{", position)
    return calls


def _call(found: dict[str, Any]) -> tuple[Any, Any]:
    """Name and arguments, where models write calls as JSON: bare, inside ``function``, or with ``parameters``."""
    function = found.get("function")
    inner = function if isinstance(function, dict) else found
    arguments = inner.get("arguments", inner.get("parameters"))
    if isinstance(arguments, str):
        with contextlib.suppress(ValueError, RecursionError):  # else the model's own words, as recorded
            arguments = json.loads(arguments)
    return inner.get("name"), arguments or {}


def sampling_like(generation: Generation, *, response_tokens: int) -> Sampling:
    """Greedy sampling with the recorded limit of tokens, else half again as much as was said; at most 256."""
    asked = generation.parameters.get("max_tokens")
    if isinstance(asked, int) and asked > 0:
        return Sampling(max_tokens=min(asked, MAX_NEW_TOKENS))
    return Sampling(max_tokens=min(max(response_tokens + response_tokens // 2, MIN_NEW_TOKENS), MAX_NEW_TOKENS))
