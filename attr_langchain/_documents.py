"""Retrieved documents, wherever LangChain hands them over, and what a tool gave besides."""

from __future__ import annotations

import json
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.documents import Document as LangChainDocument
from langchain_core.messages import BaseMessage, ToolMessage

from attr_core._plain import plain
from attr_core.types import Document
from attr_langchain._contents import text_of

__all__ = ["to_document", "to_tool_result"]

_ID_KEYS = ("id", "_id")
_SCORE_KEYS = ("relevance_score", "score", "_score")
"""Rerankers write the first, retrievers of several stores the second, that of Elasticsearch the third."""

_DEEPEST = 8
_MOST = 5_000
"""Values that are looked at in one output."""


def to_document(document: Any, position: int = 0) -> Document:
    """A document, or a pair of document and score as ``similarity_search_with_score`` gives them.

    The id is the document's, else what its metadata has as ``id``, else made of the position. The score is that of the
    pair, else what a reranker or retriever left in the metadata, in that one's own unit.
    """
    score: Any = None
    if _is_scored(document):
        document, score = document
    text, identifier, found = _read(document)
    metadata = plain(found) if isinstance(found, Mapping) else {}
    # Plain loops: this runs for each document of a run, in the application's thread.
    for key in _ID_KEYS:
        if identifier is None or identifier == "":
            identifier = metadata.get(key)
    for key in _SCORE_KEYS:
        if not _is_number(score):
            score = metadata.get(key)
    return Document(
        id=f"doc{position + 1}" if identifier is None or identifier == "" else str(identifier),
        text=text if isinstance(text, str) else json.dumps(plain(document), ensure_ascii=False),
        score=float(score) if _is_number(score) else None,
        metadata=metadata,
    )


def to_tool_result(output: Any) -> tuple[str | None, str | None, tuple[Document, ...]]:
    """What a tool gave, as (text, error, documents).

    Understands tool messages (documents in ``artifact``), the commands by which LangGraph's tools update a graph's
    state, documents in any nesting of lists and mappings, text, exceptions, and whatever else can be told as JSON.
    """
    documents = tuple(to_document(document, position) for position, document in enumerate(_documents(output)))
    if isinstance(output, BaseException):
        return None, f"{type(output).__name__}: {output}", documents
    messages = _messages(output)
    if not messages:
        return _text(output), None, documents
    told = [(getattr(message, "status", None) == "error", text_of(message)) for message in messages]
    texts, errors = ([text for failed, text in told if failed is wanted] for wanted in (False, True))
    return "\n\n".join(texts) if texts else None, "\n\n".join(errors) if errors else None, documents


def _read(document: Any) -> tuple[Any, Any, Any]:
    """Text, id and metadata of a document, of one that was made JSON, or of a bare text."""
    if isinstance(document, LangChainDocument):
        return document.page_content, document.id, document.metadata
    if isinstance(document, str):
        return document, None, None
    if isinstance(document, Mapping):
        return document.get("page_content"), document.get("id"), document.get("metadata")
    names = ("page_content", "id", "metadata")
    text, identifier, metadata = (getattr(document, name, None) for name in names)
    return text, identifier, metadata


def _documents(value: Any) -> Iterator[Any]:
    """Documents, alone or with their scores, wherever they stand in a tool's output, in order."""
    pending = [(value, 0)]
    for _ in range(_MOST):
        if not pending:
            return
        item, depth = pending.pop()
        if isinstance(item, LangChainDocument) or _is_scored(item):
            yield item
        elif depth < _DEEPEST:
            pending += [(inner, depth + 1) for inner in reversed(_inside(item))]


def _inside(value: Any) -> list[Any]:
    if isinstance(value, BaseMessage):
        return [getattr(value, "artifact", None)]
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    return [value.update] if _is_command(value) else []


def _is_scored(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2 or not isinstance(value[0], LangChainDocument):
        return False
    return isinstance(value, tuple) or _is_number(value[1])


def _is_number(value: Any) -> bool:
    if value is None:
        return False
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_command(value: Any) -> bool:
    return type(value).__name__ == "Command" and not callable(getattr(value, "update", None))


def _messages(output: Any) -> list[BaseMessage]:
    """The messages by which a tool answers the model."""
    if isinstance(output, BaseMessage):
        return [output]
    if _is_command(output):
        update = output.update
        held = dict(update) if isinstance(update, list | tuple) and all(map(_is_pair, update)) else update
        return _messages(held.get("messages")) if isinstance(held, Mapping) else _messages(held)
    if isinstance(output, list | tuple):
        found = [
            message
            for item in output
            if isinstance(item, BaseMessage) or _is_command(item)
            for message in _messages(item)
        ]
        return [message for message in found if isinstance(message, ToolMessage)] or found
    return []


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


def _text(output: Any) -> str | None:
    if output is None or isinstance(output, str):
        return output
    if _is_command(output):
        output = output.update
    items = output if isinstance(output, list | tuple) and not _is_scored(output) else [output]
    bare = [item[0] if _is_scored(item) else item for item in items]
    if bare and all(isinstance(item, LangChainDocument) for item in bare):
        return "\n\n".join(str(item.page_content) for item in bare)
    return json.dumps(plain(output), ensure_ascii=False)
