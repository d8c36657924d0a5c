"""Citation objects of Anthropic, Cohere and OpenAI, as they come and as frameworks pass them on -> one shape."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attr_core._text.views import Span

__all__ = ["Given", "provider_citations"]

_LISTS = ("citations", "annotations")
_ANTHROPIC = re.compile(r"(?:char|page|content_block|search_result|web_search_result)_location\Z")
_OPENAI = frozenset({"url_citation", "file_citation", "container_file_citation", "file_path"})
_COHERE_NUMBER = re.compile(r"doc(?:ument)?[-_:](\d{1,4})(?::\d{1,4})?\Z")
_DEEPEST = 6
"""Levels of lists and objects that are looked into."""


@dataclass(frozen=True, slots=True)
class Given:
    """A provider's citation of one source: ``span`` of the answer, ``None`` where it is not told.

    ``is_marker`` says that the span is the marker itself, not the words that are cited for. The source is one of
    ``names``, or the document of that ``index``, counted from 0; ``quoted`` is its text, as the provider gives it.
    """

    form: str
    span: Span | None
    is_marker: bool
    names: tuple[str, ...]
    index: int | None
    quoted: str | None


def provider_citations(answer: str, given: Any) -> Iterator[Given]:
    """The citations among objects of any nesting: citations, content blocks that carry them, a message, its metadata.

    What is none is passed over.
    """
    yield from _Reader(answer).read(given, 0)


class _Reader:
    """Follows the answer's text blocks, so that what is cited for a block is found in the answer."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._position = 0

    def read(self, given: Any, depth: int, block: Span | None = None) -> Iterator[Given]:
        if depth > _DEEPEST or given is None or isinstance(given, str | bytes | int | float):
            return
        if isinstance(given, Sequence):
            for one in given:
                yield from self.read(one, depth + 1, block)
            return
        fields = _fields(given)
        if fields is None:
            return
        if found := list(self._citation(fields, block)):
            yield from found
            return
        own = self._block(fields) or block
        for key, value in fields.items():
            if key in (*_LISTS, "content", "provider_specific_fields", "message", "additional_kwargs", "metadata"):
                yield from self.read(value, depth + 1, own if key in _LISTS else block)

    def _block(self, fields: Mapping[str, Any]) -> Span | None:
        """Where the text of a block that has citations stands: behind that of the last."""
        text = fields.get("text")
        if not isinstance(text, str) or not text.strip() or fields.get("type") not in (None, "text", "output_text"):
            return None
        start = self._answer.find(text, self._position)
        if start < 0:
            return None
        self._position = start + len(text)
        return start, start + len(text)

    def _citation(self, fields: Mapping[str, Any], block: Span | None) -> Iterator[Given]:
        kind = fields.get("type")
        if isinstance(kind, str) and _ANTHROPIC.match(kind):
            yield self._anthropic(fields, block)
        elif isinstance(kind, str) and kind in _OPENAI:
            yield self._openai(kind, fields, block)
        elif _is_cohere(fields):
            yield from self._cohere(fields)
        elif kind == "citation":  # as LangChain passes them on
            span = self._span(fields.get("start_index"), fields.get("end_index"), block) or block
            names = _texts(fields, "url", "title", "source", "id")
            yield Given("annotation", span, False, names, None, _text(fields.get("cited_text")))

    def _anthropic(self, fields: Mapping[str, Any], block: Span | None) -> Given:
        index = fields.get("search_result_index", fields.get("document_index"))
        names = _texts(fields, "source", "url", "document_title", "title", "file_id")
        said = fields.get("supported_text")
        if block is None and isinstance(said, str) and said.strip():
            block = self._block({"text": said})
        return Given("anthropic", block, False, names, _index(index), _text(fields.get("cited_text")))

    def _openai(self, kind: str, fields: Mapping[str, Any], block: Span | None) -> Given:
        inner = _fields(fields.get(kind)) or {}
        merged = {**inner, **{key: value for key, value in fields.items() if value is not None}}
        start, end = merged.get("start_index"), merged.get("end_index")
        if start is None and kind == "file_citation":
            start = end = merged.get("index")
        names = _texts(merged, "url", "filename", "file_id", "title")
        return Given("openai", self._span(start, end, block), True, names, None, _text(merged.get("quote")))

    def _cohere(self, fields: Mapping[str, Any]) -> Iterator[Given]:
        span = self._span(fields.get("start"), fields.get("end"), None)
        for one in (*_listed(fields.get("sources")), *_listed(fields.get("document_ids"))):
            source = {"id": one} if isinstance(one, str) else _fields(one) or {}
            document = _fields(source.get("document")) or {}
            names = (*_texts(source, "id"), *_texts(document, "id", "title", "url", "source"))
            number = next((match[1] for name in names[:1] if (match := _COHERE_NUMBER.match(name))), None)
            quoted = _text(document.get("text") or document.get("snippet"))
            yield Given("cohere", span, False, names, None if number is None else int(number), quoted)

    def _span(self, start: Any, end: Any, block: Span | None) -> Span | None:
        """Characters of the answer, counted in a block where there is one; ``None`` where they are none."""
        first, last = _index(start), _index(end)
        if first is None or last is None or last < first:
            return None
        offset, limit = block or (0, len(self._answer))
        return (offset + first, offset + last) if offset + last <= limit else None


def _is_cohere(fields: Mapping[str, Any]) -> bool:
    return "start" in fields and "end" in fields and ("sources" in fields or "document_ids" in fields)


def _fields(given: Any) -> Mapping[str, Any] | None:
    if isinstance(given, Mapping):
        return given
    dump = getattr(given, "model_dump", None)
    try:
        found = dump() if callable(dump) else vars(given)
    except Exception:  # an object of someone else's that cannot be read is no citation
        return None
    return found if isinstance(found, Mapping) else None


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else ()


def _index(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _texts(fields: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    return tuple(text for key in keys if (text := _text(fields.get(key))))
