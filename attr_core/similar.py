"""Segments whose texts are nearly the same: what a page's header, or one fact in two chunks, looks like."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

__all__ = ["MAX_COMPARED", "MIN_SHARED", "near_duplicates"]

MIN_SHARED = 0.7
"""Shared words over all distinct words (Jaccard) from which on two texts are nearly the same."""

MIN_CONTAINED = 0.9
"""Or shared words over those of the shorter text, where the longer adds little: "As said, the fair opened in 1911"."""

MIN_LENGTH = 0.5
"""The shorter text's distinct words over the longer's."""

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
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    graph = coo_array((np.ones(len(pairs)), (rows, columns)), shape=(len(words), len(words)))
    members: dict[int, list[int]] = {}
    for n, name in enumerate(connected_components(graph, directed=False)[1].tolist()):
        members.setdefault(name, []).append(n)
    return tuple(sorted(tuple(found) for found in members.values() if len(found) > 1))


def _alike(shorter: frozenset[str], longer: frozenset[str]) -> bool:
    shared = len(shorter & longer)
    return shared >= MIN_SHARED * len(shorter | longer) or shared >= MIN_CONTAINED * len(shorter)
