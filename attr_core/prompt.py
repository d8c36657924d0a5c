"""A generation and a mask -> the messages that are sent: spans are deleted from the real prompt, messages stay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from attr_core.errors import MissingCapabilityError, SegmentationError
from attr_core.protocols import CountsTokens, Renders
from attr_core.results import MaskArray
from attr_core.types import Generation, Message, Prompt, Segment

__all__ = ["ablate", "ablations", "candidates", "count_text", "count_tokens", "most_tokens"]


def candidates(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """The segments that may be removed: the columns of every mask."""
    return tuple(segment for segment in segments if not segment.fixed)


def ablate(generation: Generation, segments: Sequence[Segment], mask: MaskArray) -> Prompt:
    """The prompt with the segments whose mask is False deleted.

    A message stays with its role, tool calls and ids while its content shrinks, to nothing if need be, so that no chat
    template inserts a default and no tool result is orphaned. Separators and labels around a segment stay too.

    Parameters
    ----------
    generation : Generation
        Whose messages are cut.
    segments : sequence of Segment, length n_segments
        The columns of the mask.
    mask : array of bool, shape (n_segments,)
        True keeps.

    Raises
    ------
    SegmentationError
        The mask does not fit the segments, or a location lies outside its message.
    """
    if np.shape(mask) != (len(segments),):
        raise SegmentationError(f"a mask of shape {np.shape(mask)} does not fit {len(segments)} segments")
    cuts: dict[int, list[tuple[int, int]]] = {}
    for segment, kept in zip(segments, mask, strict=True):
        if not kept:
            for location in segment.locations:
                cuts.setdefault(location.message, []).append((location.start, location.end))
    messages = list(generation.messages)
    for index, spans in cuts.items():
        if not 0 <= index < len(messages):
            raise SegmentationError(f"a segment points at message {index}, but there are {len(messages)}")
        messages[index] = replace(messages[index], content=_without(messages[index].content, spans, index))
    return Prompt(tuple(messages), generation.tools)


def ablations(generation: Generation, segments: Sequence[Segment], masks: MaskArray) -> list[Prompt]:
    """:func:`ablate` for each row of ``masks`` ``(n_masks, n_segments)``."""
    return [ablate(generation, segments, mask) for mask in masks]


def count_tokens(engine: object, prompt: Prompt) -> int:
    """Tokens of the rendered prompt; where the engine can only count, about as many; else :func:`most_tokens`."""
    if (rendered := _rendered_tokens(engine, prompt)) is not None:
        return rendered
    return engine.count_tokens(prompt) if isinstance(engine, CountsTokens) else most_tokens(engine, prompt)


def count_text(engine: object, text: str) -> int:
    """Tokens that a text adds to a prompt, counted as :func:`count_tokens` counts; at least 1."""
    with_text, without = (count_tokens(engine, Prompt((Message("user", one),))) for one in (text, ""))
    return max(with_text - without, 1)


def most_tokens(engine: object, prompt: Prompt) -> int:
    """Tokens of the rendered prompt; where the engine cannot render, more than any tokenizer makes: bytes and a few."""
    if (rendered := _rendered_tokens(engine, prompt)) is not None:
        return rendered
    extra = [dict(tool) for tool in prompt.tools]
    extra += [sent for sent in prompt.to_chat() if set(sent) - {"role", "content"}]  # calls, their ids, names
    told = json.dumps(extra, ensure_ascii=False, default=_plain) if extra else ""
    texts = [told, *(message.content for message in prompt.messages)]
    return sum(len(text.encode("utf-8", "replace")) for text in texts) + 16 * len(prompt.messages)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _rendered_tokens(engine: object, prompt: Prompt) -> int | None:
    with suppress(MissingCapabilityError):  # a server says so only once it was asked
        return len(engine.render(prompt).token_ids) if isinstance(engine, Renders) else None
    return None


def _without(text: str, spans: list[tuple[int, int]], message: int) -> str:
    kept, position = [], 0
    for start, end in sorted(spans):
        if not 0 <= start <= end <= len(text):
            raise SegmentationError(f"span {start}:{end} lies outside message {message} of {len(text)} characters")
        kept.append(text[position : max(start, position)])
        position = max(position, end)
    return "".join(kept) + text[position:]
