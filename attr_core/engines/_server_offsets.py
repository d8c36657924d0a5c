"""Which characters of a text each of its tokens holds, from what a server tells of the tokens.

As :class:`attr_core.engines._tokens.Tokens` has it: a token that holds part of a character gets the whole character.
"""

from __future__ import annotations

from collections.abc import Sequence

Spans = list[tuple[int, int]]

_SPACE_MARK = "\u2581"


def spans_of_strings(strings: Sequence[str], text: str) -> Spans | None:
    """Characters of each token, from the vocabulary's own strings; ``None`` where they do not add up to the text.

    They are read as byte-level vocabularies write bytes, then as SentencePiece writes words, then as they stand.

    Examples
    --------
    >>> spans_of_strings(["A", "\u0120\u00c3", "\u00a9"], "A \u00e9")
    [(0, 1), (1, 3), (2, 3)]
    """
    whole = text.encode()
    for read in (_byte_level, _sentence_piece, str.encode):
        pieces = [read(string) for string in strings]
        if None in pieces:
            continue
        joined = b"".join(piece for piece in pieces if piece is not None)
        n_added = 1 if joined == b" " + whole else 0  # the space that such vocabularies put before a text
        if joined[n_added:] == whole:
            return _spans_of_bytes([len(piece or b"") for piece in pieces], text, n_added)
    return None


def spans_of_prefixes(prefixes: Sequence[str], text: str) -> Spans | None:
    """Characters of each token, from what its and all earlier tokens decode to; ``None`` where that is not the text.

    White space that decoding trims belongs to the token behind it.

    Examples
    --------
    >>> spans_of_prefixes(["A", "A \ufffd", "A \u00e9"], "A \u00e9")
    [(0, 1), (1, 3), (2, 3)]
    """
    spans: Spans = []
    begin = 0
    for prefix in prefixes:
        complete, is_partial = _reach(prefix, text)
        complete = max(complete, begin)
        spans.append((begin, min(complete + is_partial, len(text))))
        begin = complete
    return spans if not text[begin:].strip() else None


def _byte_level(string: str) -> bytes | None:
    try:
        return bytes(_BYTES[character] for character in string)
    except KeyError:
        return None


def _sentence_piece(string: str) -> bytes:
    is_byte = len(string) == 6 and string.startswith("<0x") and string.endswith(">")
    try:
        return bytes([int(string[3:5], 16)]) if is_byte else string.replace(_SPACE_MARK, " ").encode()
    except ValueError:
        return string.encode()


def _spans_of_bytes(lengths: Sequence[int], text: str, n_added: int) -> Spans:
    characters = [n for n, character in enumerate(text) for _ in character.encode()]
    spans: Spans = []
    end = -n_added
    for length in lengths:
        begin, end = end, end + length
        first = characters[max(begin, 0)] if max(begin, 0) < len(characters) else len(text)
        spans.append((first, characters[end - 1] + 1 if end > max(begin, 0) else first))
    return spans


def _reach(decoded: str, text: str) -> tuple[int, bool]:
    """How many characters of the text are there whole, and whether more follows that is not."""
    here = there = 0
    while here < len(decoded):
        at = there
        while at < len(text) and text[at] != decoded[here] and text[at].isspace():
            at += 1
        if at == len(text) or text[at] != decoded[here]:
            break
        here, there = here + 1, at + 1
    return there, here < len(decoded)


def _byte_alphabet() -> dict[str, int]:
    # As GPT-2 has it: bytes that can be printed stand for themselves, the others for what follows U+0100.
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_alphabet()
