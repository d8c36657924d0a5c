"""Segments whose texts are nearly the same: what a page's header, or one fact in two chunks, looks like."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from attr_core.results import FloatArray

__all__ = ["MAX_COMPARED", "MIN_COSINE", "MIN_SHARED", "near_duplicates", "paraphrases"]

MIN_SHARED = 0.7
"""Shared words over all distinct words (Jaccard) from which on two texts are nearly the same."""

MIN_CONTAINED = 0.9
"""Or shared words over those of the shorter text, where the longer adds little: "As said, the fair opened in 1911"."""

MIN_LENGTH = 0.5
"""The shorter text's distinct words over the longer's."""

MIN_COSINE = 0.8
"""Cosine of two texts' embeddings from which on they may say the same in other words."""

MAX_COMPARED = 2_000
"""Most segments that are compared; comparing takes their number squared."""

_WORD = re.compile(r"\w+")


def near_duplicates(texts: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Groups of texts that are nearly the same, as indices; each text in one group at most, none alone.

    Only candidates: "opened in 1997" and "opened in 1979" are nearly the same too, and say the opposite. Words are
    compared without case, each once, whatever their order; texts are in one group where a chain of such pairs joins
    them. Beyond ``MAX_COMPARED`` texts, only the first so many are looked at.

    Examples
    --------
    >>> near_duplicates(["The fair opened in 1911.", "Tickets cost four marks.", "As said, the fair opened in 1911."])
    ((0, 2),)
    """
    words = [frozenset(_WORD.findall(text.lower())) for text in texts[:MAX_COMPARED]]
    pairs: list[tuple[int, int]] = []
    order = sorted((n for n in range(len(words)) if words[n]), key=lambda n: len(words[n]))
    for at, first in enumerate(order):
        for second in order[at + 1 :]:
            if len(words[first]) < MIN_LENGTH * len(words[second]):
                break  # those that follow are longer still
            if _alike(words[first], words[second]):
                pairs.append((first, second))
    return _joined(np.array(pairs, dtype=np.int64).reshape(-1, 2), len(words))


def paraphrases(vectors: FloatArray) -> tuple[tuple[int, ...], ...]:
    """Groups of texts that may say the same in other words, by their embeddings ``(n_texts, dim)``; as indices.

    Candidates, as :func:`near_duplicates`; joined by chains too, and only the first ``MAX_COMPARED`` are looked at.
    """
    some = vectors[:MAX_COMPARED]
    if not len(some):
        return ()
    lengths = np.maximum(np.linalg.norm(some, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    cosines = (some / lengths) @ (some / lengths).T
    return _joined(np.argwhere(np.triu(cosines >= MIN_COSINE, k=1)), len(some))


def _joined(pairs: NDArray[np.int64], n: int) -> tuple[tuple[int, ...], ...]:
    """What chains of pairs join, but nothing alone."""
    rows, columns = pairs.T
    graph = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(n, n))
    members: dict[int, list[int]] = {}
    for one, name in enumerate(connected_components(graph, directed=False)[1].tolist()):
        members.setdefault(name, []).append(one)
    return tuple(sorted(tuple(found) for found in members.values() if len(found) > 1))


def _alike(shorter: frozenset[str], longer: frozenset[str]) -> bool:
    shared = len(shorter & longer)
    return shared >= MIN_SHARED * len(shorter | longer) or shared >= MIN_CONTAINED * len(shorter)
