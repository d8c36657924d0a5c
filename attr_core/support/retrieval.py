"""Whether the chunks that were expected were retrieved; reads ids and texts, asks nobody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from attr_core.support.scores import Score, averaged, not_available
from attr_core.types import Document, Trace

__all__ = ["retrieval_precision", "retrieval_recall"]

_SHORTEST_TEXT = 8
"""A single word shorter than this, found in a text, may as well be the id of a chunk that was not retrieved."""


def retrieval_recall(retrieved: Trace | Iterable[Any], expected_chunks: Sequence[str] | None = None) -> Score:
    """Share of the expected chunks that were retrieved.

    An expected chunk is retrieved where a document has it as its id or, if none has, where a document's text contains
    it; runs of white space are one space. Where a retrieval is on record that returned nothing, recall is 0.
    N/A: no chunk is expected, one is empty or ambiguous, nothing tells what was retrieved. Ambiguous are an id that
    documents of different texts share, and a single word of fewer than 8 characters that is no document's id but stands
    in a text, such as ``1911``: give a longer piece. (Where another expected chunk is a document's id, it is an id.)

    Parameters
    ----------
    retrieved : Trace or iterable of documents
        Documents in any shape that :meth:`attr_core.types.Document.parse` reads.
    expected_chunks : sequence of str, optional
        Ids or pieces of text; by default the trace's.

    Raises
    ------
    InputError
        A document has no text.

    References
    ----------
    Recall over the retrieved set, as RAGAS 0.4's ``IDBasedContextRecall``, which takes ids only and is NaN where none
    is expected.

    Examples
    --------
    >>> print(retrieval_recall([{"id": "c0", "text": "The fair  opened in 1911."}], ["fair opened in 1911", "c7"]))
    retrieval_recall 0.50 (2 of 2 expected chunks)
    """
    documents, expected, is_known = _read(retrieved, expected_chunks)
    what = "expected chunks"
    if reason := _why_not(documents, expected, is_known=is_known):
        return not_available("retrieval_recall", reason, items=expected, what=what)
    found = [(chunk, float(bool(_matches(chunk, documents)))) for chunk in expected]
    return averaged("retrieval_recall", found, what=what)


def retrieval_precision(retrieved: Trace | Iterable[Any], expected_chunks: Sequence[str] | None = None) -> Score:
    """Share of the retrieved documents that are expected chunks, each document counted once.

    Matched as in :func:`retrieval_recall`; a text that stands in several documents matches them all. N/A as there, and
    where nothing was retrieved.

    Parameters
    ----------
    retrieved : Trace or iterable of documents
    expected_chunks : sequence of str, optional

    Raises
    ------
    InputError
        A document has no text.

    References
    ----------
    Precision over the retrieved set, as RAGAS 0.4's ``IDBasedContextPrecision``, which takes ids only.
    """
    documents, expected, is_known = _read(retrieved, expected_chunks)
    ids = [document.id for document in documents]
    if reason := _why_not(documents, expected, is_known=is_known) or ("" if documents else "nothing was retrieved"):
        return not_available("retrieval_precision", reason, items=ids, what="documents")
    hit = {position for chunk in expected for position in _matches(chunk, documents)}
    items = [(identifier, float(position in hit)) for position, identifier in enumerate(ids)]
    return averaged("retrieval_precision", items, what="documents")


def _read(
    retrieved: Trace | Iterable[Any], expected_chunks: Sequence[str] | None
) -> tuple[list[Document], list[str], bool]:
    """Distinct documents, distinct expected chunks, and whether it is known what was retrieved."""
    expected: Sequence[str] = () if expected_chunks is None else expected_chunks
    if isinstance(retrieved, Trace):
        documents, is_known = retrieved.documents, bool(retrieved.retrievals)
        expected = retrieved.expected_chunks if expected_chunks is None else expected_chunks
    else:
        documents = Document.parse_all(retrieved)
        is_known = bool(documents)
    distinct = {(document.id, _spaced(document.text)): document for document in documents}
    chunks = [expected] if isinstance(expected, str) else map(str, expected)
    return list(distinct.values()), list(dict.fromkeys(chunks)), is_known


def _why_not(documents: Sequence[Document], expected: Sequence[str], *, is_known: bool) -> str:
    if not expected:
        return "no chunk is expected"
    if not all(chunk.strip() for chunk in expected):
        return "an expected chunk is empty"
    if not is_known:
        return "no retrieval is on record"
    ids = [document.id for document in documents]
    if shared := next((chunk for chunk in expected if ids.count(chunk) > 1), None):
        return f"the expected chunk {shared!r} is the id of {ids.count(shared)} different documents"
    if any(chunk in ids for chunk in expected):
        return ""
    if unclear := next((chunk for chunk in expected if _is_short(chunk) and _containing(chunk, documents)), None):
        return f"the expected chunk {unclear!r} may be an id or a text; give the id, or a longer piece of the text"
    return ""


def _matches(chunk: str, documents: Sequence[Document]) -> list[int]:
    by_id = [position for position, document in enumerate(documents) if document.id == chunk]
    return by_id or ([] if _is_short(chunk) else _containing(chunk, documents))


def _containing(chunk: str, documents: Sequence[Document]) -> list[int]:
    return [position for position, document in enumerate(documents) if _spaced(chunk) in _spaced(document.text)]


def _is_short(chunk: str) -> bool:
    return len(chunk.split()) == 1 and len(chunk.strip()) < _SHORTEST_TEXT


def _spaced(text: str) -> str:
    return " ".join(text.split())
