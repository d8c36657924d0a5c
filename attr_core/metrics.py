"""How alike two texts are, from 0 to 1: by their words, by a model of meaning, and by their numbers first."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from attr_core._text.quantities import quantities
from attr_core._text.words import words
from attr_core.capabilities import require
from attr_core.errors import AttrkitError, ConfigurationError, EngineError, InputError
from attr_core.protocols import Capability, Embeds
from attr_core.results import FloatArray

__all__ = [
    "METRICS",
    "ComparesMany",
    "Metric",
    "MetricKind",
    "embedding_similarity",
    "metric_name",
    "metric_named",
    "numeric_aware",
    "similarities",
    "token_overlap",
]

_KEPT_VECTORS = 4096
_TOLERANCE = 1e-6


class Metric(Protocol):
    """Similarity of a regenerated text to the original: 1 for the same, 0 for nothing in common.

    Any function of two texts is one. A ``name`` attribute says in results what it is; without, its ``__name__`` does.
    """

    def __call__(self, original: str, regenerated: str, /) -> float: ...


@runtime_checkable
class ComparesMany(Protocol):
    """A metric that is cheaper for many texts at once."""

    def many(self, original: str, texts: Sequence[str]) -> Sequence[float]: ...


def token_overlap(original: str, regenerated: str) -> float:
    """F1 of the two texts' words, each counted as often as it stands there; in [0, 1]. Costs no call.

    Case, Unicode form and punctuation do not count, nor does order. A character of a script without spaces is a word.
    Two texts without anything but white space are the same (1); one such text has nothing in common with another (0).

    References
    ----------
    The F1 of Rajpurkar et al., SQuAD, EMNLP 2016 (arXiv:1606.05250), section 6.1, without leaving out articles.

    Examples
    --------
    >>> token_overlap("The fair opened in 1911.", "In 1911 the fair closed.")
    0.8
    """
    first, second = Counter(words(original)), Counter(words(regenerated))
    n_words = first.total() + second.total()
    return 2 * (first & second).total() / n_words if n_words else 1.0


def numeric_aware(metric: Metric = token_overlap, *, may_add: bool = False) -> Metric:
    """A metric that gives 0 where the two texts' quantities differ in any way, else what ``metric`` gives.

    Overlap and embeddings hardly tell "40 mg" from "80 mg"; this does. Quantities are values with the unit right behind
    them, as often as they stand there and in any order, however they are written: "1,000", "1 000" and "one thousand"
    are one, as are "50 %" and "fifty percent", "1st" and "first", "1.0" and "1"; a different unit is a different
    quantity. Names with a digit in them (B2B, v1.2, COVID-19) and dates in digits are compared as texts.
    So a text that leaves one number out has nothing in common with the original: that is what it is for, and it suits
    single claims better than long answers. Number words are known in English only.
    It costs what ``metric`` does, for the texts whose quantities are the same.

    Parameters
    ----------
    metric : Metric, default token_overlap
        What compares texts with the same quantities.
    may_add : bool, default False
        Let the regenerated text have further quantities: for claims, where a new sentence may say two of them at once.

    Examples
    --------
    >>> safe = numeric_aware()
    >>> safe("Take 40 mg daily.", "Take 80 mg daily."), safe("Take 40 mg daily.", "Take forty mg daily.")
    (0.0, 0.75)
    """
    return _NumericAware(metric, may_add=may_add)


def embedding_similarity(embedder: Embeds) -> Metric:
    """Cosine of the two texts' embeddings, and 0 where it is negative; in [0, 1].

    A cosine about 0 is what texts on different things have, and a negative one does not mean the contrary: so both are
    nothing in common, and (1 + cos) / 2 would put them at one half. Equal texts are 1, an empty text has nothing in
    common with another; neither is embedded. What a model cuts off a long text is not compared.
    Cost: one text embedded for each that differs from the original and from those before; vectors of the last few
    thousand texts are kept, and ``many`` embeds all that are new in one call.

    Parameters
    ----------
    embedder : Embeds
        An engine that embeds, such as ``st:all-MiniLM-L6-v2``.

    Raises
    ------
    MissingCapabilityError
        It does not embed.
    """
    require(embedder, {Capability.EMBED}, by="embedding similarity")
    return _EmbeddingSimilarity(embedder)


class MetricKind(NamedTuple):
    """How a named metric is made, from an embedder or ``None``, and whether it cannot do without one."""

    make: Callable[[Embeds | None], Metric]
    needs_embedder: bool


def metric_named(name: str, embedder: Embeds | None = None) -> Metric:
    """The metric of that name (see ``METRICS``).

    Raises
    ------
    ConfigurationError
        There is none, and the message lists them; or it needs an embedder and none is given.
    MissingCapabilityError
        What is given does not embed.

    Examples
    --------
    >>> metric_named("overlap")("It is warm.", "It is cold.") == 2 / 3
    True
    """
    kind = METRICS.get(name)
    if kind is None:
        raise ConfigurationError(f"metric {name!r} is unknown; choose {', '.join(METRICS)}")
    if kind.needs_embedder and embedder is None:
        others = ", ".join(other for other, found in METRICS.items() if not found.needs_embedder)
        raise ConfigurationError(f"metric {name!r} needs an embedder; give one such as st:MODEL, or choose {others}")
    return kind.make(embedder)


def metric_name(metric: Metric) -> str:
    """What a metric is called in results."""
    named = getattr(metric, "name", None) or getattr(metric, "__name__", None)
    return named if isinstance(named, str) else type(metric).__name__


def similarities(metric: Metric, original: str, texts: Sequence[str]) -> FloatArray:
    """Similarity ``(n_texts,)`` of each text to the original, each distinct text compared once.

    Raises
    ------
    InputError
        The metric gave something else than a number from 0 to 1 for each text.
    """
    distinct = list(dict.fromkeys(texts))
    try:
        if isinstance(metric, ComparesMany):
            given: Sequence[Any] = metric.many(original, distinct) if distinct else []
        else:
            given = [metric(original, text) for text in distinct]
    except AttrkitError:
        raise
    except Exception as error:
        raise InputError(f"metric {metric_name(metric)!r} failed: {type(error).__name__}; correct it") from error
    try:
        found = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != (len(distinct),) or not ((found >= -_TOLERANCE) & (found <= 1 + _TOLERANCE)).all():
        raise InputError(
            f"metric {metric_name(metric)!r} gave something else than one number from 0 to 1 for each text; correct it"
        )
    by_text = dict(zip(distinct, np.clip(found, 0.0, 1.0).tolist(), strict=True))
    return np.array([by_text[text] for text in texts], dtype=np.float64)


class _NumericAware:
    """What :func:`numeric_aware` returns."""

    def __init__(self, metric: Metric, *, may_add: bool) -> None:
        self._metric, self._may_add = metric, may_add
        self.name = f"numeric_aware({metric_name(metric)}{', may_add' if may_add else ''})"

    def __call__(self, original: str, regenerated: str, /) -> float:
        return self.many(original, [regenerated])[0]

    def many(self, original: str, texts: Sequence[str]) -> list[float]:
        said = Counter(quantities(original))
        found = [Counter(quantities(text)) for text in texts]
        agrees = [said <= one if self._may_add else said == one for one in found]
        alike = iter(similarities(self._metric, original, list(compress(texts, agrees))).tolist())
        return [next(alike) if one else 0.0 for one in agrees]


class _EmbeddingSimilarity:
    """What :func:`embedding_similarity` returns; may be called from several threads."""

    def __init__(self, embedder: Embeds) -> None:
        self._embedder = embedder
        self._vectors: OrderedDict[str, FloatArray] = OrderedDict()
        self._lock = threading.Lock()
        self.name = f"embedding({getattr(embedder, 'spec', type(embedder).__name__)})"

    def __call__(self, original: str, regenerated: str, /) -> float:
        return self.many(original, [regenerated])[0]

    def many(self, original: str, texts: Sequence[str]) -> list[float]:
        other = {text for text in texts if text.strip() and text != original} if original.strip() else set()
        vectors = self._embed([original, *(text for text in texts if text in other)]) if other else {}
        return [
            max(0.0, min(1.0, float(vectors[original] @ vectors[text])))
            if text in other
            else float(text == original or not (text.strip() or original.strip()))
            for text in texts
        ]

    def _embed(self, texts: Sequence[str]) -> dict[str, FloatArray]:
        """Unit vectors by text."""
        with self._lock:
            found = {text: self._vectors[text] for text in dict.fromkeys(texts) if text in self._vectors}
        new = [text for text in dict.fromkeys(texts) if text not in found]
        if new:
            found |= dict(zip(new, self._unit(new), strict=True))
        with self._lock:
            for text, vector in found.items():
                self._vectors[text] = vector
                self._vectors.move_to_end(text)
            while len(self._vectors) > _KEPT_VECTORS:
                self._vectors.popitem(last=False)
        return found

    def _unit(self, texts: list[str]) -> FloatArray:
        table = np.asarray(self._embedder.embed(texts), dtype=np.float64)
        lengths = np.linalg.norm(table, axis=-1) if table.ndim == 2 else np.empty(0)
        if lengths.shape != (len(texts),) or not (np.isfinite(lengths) & (lengths > 0)).all():
            raise EngineError(f"{self.name} got no direction for some of {len(texts)} texts; use another embedder")
        return np.asarray(table / lengths[:, None], dtype=np.float64)


METRICS: Mapping[str, MetricKind] = {
    "embedding": MetricKind(lambda embedder: embedding_similarity(_given(embedder)), needs_embedder=True),
    "overlap": MetricKind(lambda embedder: token_overlap, needs_embedder=False),
    "numeric": MetricKind(
        lambda embedder: numeric_aware(token_overlap if embedder is None else embedding_similarity(embedder)),
        needs_embedder=False,
    ),
}
"""Name -> metric: ``numeric`` compares numbers first, then embeddings where an embedder is given, else words."""


def _given(embedder: Embeds | None) -> Embeds:
    if embedder is None:
        raise ConfigurationError("embedding similarity needs an embedder; give one such as st:MODEL")
    return embedder
