"""Where a prompt's segments stand among its tokens, and where its tail begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attr_core.engines._chat import ChatWriter
from attr_core.engines._tokens import Tokens, n_alike, whole_characters
from attr_core.errors import SegmentationError
from attr_core.results import MaskArray
from attr_core.types import Location, Prompt, Segment

_Span = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A prompt's tokens: a prefix that ends with the last segment, and the tail after it.

    ``members`` ``(n_segments, n_prefix)`` says which tokens of the prefix share a character with which segment; a token
    across a boundary belongs to both sides, so that no character of a hidden segment is read. The prompt's first token,
    on which attention rests, and its last one, from which the model answers, belong to none.
    """

    prefix: tuple[int, ...]
    tail: tuple[int, ...]
    members: MaskArray

    def hidden(self, masks: MaskArray) -> MaskArray:
        """Which tokens of the prefix ``(n_masks, n_prefix)`` the masks ``(n_masks, n_segments)`` hide."""
        removed = (~masks).astype(np.float32) @ self.members.astype(np.float32)
        return np.asarray(removed > 0, dtype=np.bool_)


def lay_out(writer: ChatWriter, tokens: Tokens, prompt: Prompt, segments: Sequence[Segment]) -> Layout:
    """Find the tokens of each segment in the prompt as the model reads it.

    Places are those in the rendered text, after the template's own trimming; what the template leaves out has none, nor
    has a segment of white space alone.

    Raises
    ------
    SegmentationError
        A location lies outside the prompt, or the template rewrites a segment's text.
    """
    plain = writer.write(prompt)
    spans = _rendered_spans(writer, prompt, segments, plain.text)
    ids, offsets = tokens.encode_with_offsets(plain.pieces)
    members = np.zeros((len(segments), len(ids)), dtype=np.bool_)
    for row, places in zip(members, spans, strict=True):
        for start, end in places:
            row |= (offsets[:, 0] < end) & (offsets[:, 1] > start)
    members[:, :1] = False
    members[:, -1:] = False
    inside = np.flatnonzero(members.any(axis=0))
    n_prefix = int(inside[-1]) + 1 if len(inside) else len(ids) - 1
    return Layout(tuple(ids[:n_prefix]), tuple(ids[n_prefix:]), members[:, :n_prefix])


def _rendered_spans(writer: ChatWriter, prompt: Prompt, segments: Sequence[Segment], text: str) -> list[list[_Span]]:
    """Where each segment stands in ``text``, the rendered prompt."""
    contents = [whole_characters(message.content) for message in prompt.messages]
    controls = [writer.controls(content) for content in contents]
    located: list[tuple[int, Location, _Span]] = []
    for number, segment in enumerate(segments):
        for location in segment.locations:
            _check(location, contents)
            inner = _visible(location, contents[location.message], controls[location.message])
            located += [(number, location, inner)] if inner[0] < inner[1] else []
    cuts = [(location.message, at) for _, location, inner in located for at in inner]
    rendered = writer.write(prompt, cuts)
    if rendered.text != text:
        raise SegmentationError("the chat template depends on the texts it writes; segments cannot be hidden in it")
    spans: list[list[_Span]] = [[] for _ in segments]
    for n, (number, location, inner) in enumerate(located):
        content = contents[location.message]
        starts, ends = rendered.cuts.get(2 * n, ()), rendered.cuts.get(2 * n + 1, ())
        for place in _paired(starts, ends, content[slice(*inner)], text):
            spans[number].append(_widened(place, inner, location, content, text))
    return spans


def _check(location: Location, contents: Sequence[str]) -> None:
    if not 0 <= location.message < len(contents):
        raise SegmentationError(f"a segment points at message {location.message}, but there are {len(contents)}")
    length = len(contents[location.message])
    if not 0 <= location.start <= location.end <= length:
        raise SegmentationError(
            f"span {location.start}:{location.end} lies outside message {location.message} of {length} characters"
        )


def _visible(location: Location, content: str, controls: Sequence[_Span]) -> _Span:
    """The location without white space at its ends, which templates trim, and with whole control tokens' texts."""
    inside = content[location.start : location.end]
    start = location.start + len(inside) - len(inside.lstrip())
    end = location.start + len(inside.rstrip())
    for first, last in controls if start < end else ():
        start = first if first < start < last else start
        end = last if first < end < last else end
    return start, end


def _paired(starts: Sequence[int], ends: Sequence[int], original: str, text: str) -> list[_Span]:
    """Spans in the rendered text; where the template cut one side off, as far as the text agrees with the original."""
    if len(starts) == len(ends):
        return list(zip(starts, ends, strict=True))
    if not starts:
        return [(end - n_alike(original[::-1], text[:end][::-1]), end) for end in ends]
    if not ends:
        return [(start, start + n_alike(original, text[start:])) for start in starts]
    raise SegmentationError(f"the chat template writes {original[:40]!r} in parts; it cannot be hidden as one")


def _widened(place: _Span, inner: _Span, location: Location, content: str, text: str) -> _Span:
    """``place`` with the white space at the location's ends that the template left."""
    (start, end), (first, last) = place, inner
    while first > location.start and start > 0 and text[start - 1] == content[first - 1]:
        start, first = start - 1, first - 1
    while last < location.end and end < len(text) and text[end] == content[last]:
        end, last = end + 1, last + 1
    return start, end
