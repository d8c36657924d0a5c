"""Text to token ids with character offsets, where text that looks like a control token stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import InputError

Piece = tuple[str, bool]
"""A stretch of a rendered prompt, and whether it is a message's own text that must not be read as control tokens."""

_ANCHOR = "\ue000"  # private use: no vocabulary merges it with a neighbour


class Tokens:
    """A tokenizer that adds nothing and lets no text pose as a control token."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        added = [token for token in tokenizer.added_tokens_decoder.values() if token.special and token.content]
        known = {token.content for token in added}
        texts = sorted(known | {str(text) for text in tokenizer.all_special_tokens if text}, key=len, reverse=True)
        self.control = re.compile("|".join(map(re.escape, texts)) if texts else r"(?!)")
        strips = {token.content: (token.lstrip, token.rstrip) for token in added}
        padded = (
            (r"\s*" if strips.get(text, (False, False))[0] else "")
            + re.escape(text)
            + (r"\s*" if strips.get(text, (False, False))[1] else "")
            for text in texts
        )
        # Some control tokens swallow the white space beside them, and do so in the tokenizer too.
        self._control_run = re.compile("|".join(padded) if texts else r"(?!)")
        self._needs_anchor = bool(texts) and self._marks_beginnings(texts[-1])

    def encode(self, text: str, *, literal: bool = False) -> list[int]:
        """Ids of ``text``; ``literal`` reads control tokens' texts as plain characters."""
        encoded = self.tokenizer(text, add_special_tokens=False, split_special_tokens=literal, verbose=False)
        return list(encoded["input_ids"])

    def encode_pieces(self, pieces: Sequence[Piece]) -> list[int]:
        """Ids of a rendered prompt whose literal pieces hold control tokens' texts.

        Tokenizers cut at control tokens before anything else, so the runs between the real ones can be encoded apart,
        literally, and give what encoding the whole would give.
        """
        if not any(is_literal for _, is_literal in pieces):
            return self.encode("".join(text for text, _ in pieces))
        return self.encode_apart(pieces)

    def encode_apart(self, pieces: Sequence[Piece]) -> list[int]:
        """As :meth:`encode_pieces`, always run by run."""
        ids: list[int] = []
        for run, is_control in self._runs(pieces):
            ids += self.encode(run) if is_control else self._encode_run(run, is_first=not ids)
        return ids

    def encode_with_offsets(self, pieces: Sequence[Piece]) -> tuple[list[int], NDArray[np.int64]]:
        """As :meth:`encode_pieces`, with each token's half-open characters ``(n_tokens, 2)``, as for a response."""
        is_apart = any(is_literal for _, is_literal in pieces)
        text = "".join(text for text, _ in pieces)
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        begin = 0
        for run, is_control in self._runs(pieces) if is_apart else [(text, True)]:
            if not run:
                continue
            anchor = _ANCHOR if ids and not is_control and self._needs_anchor else ""
            new, places = self._encode_with_spans(anchor + run, literal=not is_control)
            skipped = len(self.encode(anchor, literal=True)) if anchor else 0
            ids += new[skipped:]
            spans += [(begin + start - len(anchor), begin + end - len(anchor)) for start, end in places[skipped:]]
            begin += len(run)
        return ids, covering(spans, len(text))

    def encode_continuation(self, text: str) -> tuple[list[int], NDArray[np.int64]]:
        """Ids of a response and each token's half-open characters ``(n_tokens, 2)``, together covering the text.

        Tokens that hold part of a character get the whole character.

        Raises
        ------
        InputError
            The text is empty or gives no token.
        """
        if not text:
            raise InputError("the response is empty; there is nothing to score")
        text = whole_characters(text)
        ids, spans = self._encode_with_spans(text, literal=True)
        if not ids:
            raise InputError(f"the response {text[:40]!r} gives no tokens; there is nothing to score")
        return ids, covering(spans, len(text))

    def _runs(self, pieces: Sequence[Piece]) -> Iterator[tuple[str, bool]]:
        """The text cut at real control tokens, each a run of its own, and whether a run is one."""
        run = ""
        for text, is_literal in pieces:
            position = 0
            for match in () if is_literal else self._control_run.finditer(text):
                yield run + text[position : match.start()], False
                yield match.group(), True
                run, position = "", match.end()
            run += text[position:]
        yield run, False

    def _encode_with_spans(self, text: str, *, literal: bool) -> tuple[list[int], list[tuple[int, int]]]:
        if not self.tokenizer.is_fast:
            ids = self.encode(text, literal=literal)
            return ids, self._spans_by_decoding(ids, text)
        encoded = self.tokenizer(
            text,
            add_special_tokens=False,
            split_special_tokens=literal,
            return_offsets_mapping=True,
            verbose=False,
        )
        return list(encoded["input_ids"]), list(encoded["offset_mapping"])

    def _encode_run(self, text: str, *, is_first: bool) -> list[int]:
        if not text:
            return []
        if is_first or not self._needs_anchor:
            return self.encode(text, literal=True)
        return self.encode(_ANCHOR + text, literal=True)[len(self.encode(_ANCHOR, literal=True)) :]

    def _marks_beginnings(self, control: str) -> bool:
        # SentencePiece vocabularies put a space before a text's first word, and only there.
        return self.encode(f"{control}x")[len(self.encode(control)) :] != self.encode("x", literal=True)

    def _spans_by_decoding(self, ids: Sequence[int], text: str) -> list[tuple[int, int]]:
        """Spans where the tokenizer keeps no offsets: how far each prefix of the ids decodes to the text."""
        spans: list[tuple[int, int]] = []
        begin = 0
        for n in range(1, len(ids) + 1):
            decoded = self.tokenizer.decode(ids[:n], skip_special_tokens=False, clean_up_tokenization_spaces=False)
            end = n_alike(decoded, text)
            # A token that completes nothing holds part of the next character.
            spans.append((begin, end) if end > begin else (begin, min(begin + 1, len(text))))
            begin = max(begin, end)
        return spans


def covering(spans: Sequence[tuple[int, int]], length: int) -> NDArray[np.int64]:
    """Spans in order without gaps: what no token claims goes to the next one, the rest to the last.

    Some tokenizers trim the space before a word from its offsets, or give a bare word-start mark no width.
    """
    offsets: list[list[int]] = []
    reached = 0
    for start, end in spans:
        start = min(start, reached)
        offsets.append([start, max(end, start)])
        reached = max(reached, end)
    if offsets:
        offsets[-1][1] = length
    for here, following in zip(reversed(offsets[:-1]), reversed(offsets[1:]), strict=True):
        if here[0] == here[1]:
            here[:] = [here[0], max(following[1], here[0])]
    return np.array(offsets, dtype=np.int64).reshape(-1, 2)


def whole_characters(text: str) -> str:
    """``text`` with each half of a broken surrogate pair, which no tokenizer takes, replaced by U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def n_alike(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many of the first items are the same in both."""
    n = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        n += 1
    return n
