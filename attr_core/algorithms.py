"""The useful pairs of value function and estimator, by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from attr_core.errors import BudgetExceededError, ConfigurationError
from attr_core.estimators import Banzhaf, DebiasedLasso, LeaveOneOut, Screened
from attr_core.metrics import Metric, token_overlap
from attr_core.protocols import Capability, Embeds, Engine, Estimator, Judge, Sampling, ScoringEngine
from attr_core.types import Claim, Generation, Segment
from attr_core.values import Correctness, Faithfulness, ReferenceContrast, ResponseLogOdds, ResponseSimilarity

__all__ = [
    "ALGORITHMS",
    "DEFAULT_MASKS",
    "Algorithm",
    "CorrectnessAlgorithm",
    "CounterfactualFaithfulness",
    "LikelihoodAlgorithm",
    "NamedAlgorithm",
    "ReferenceAlgorithm",
    "SimilarityAlgorithm",
    "Subject",
    "algorithm_named",
    "allowed",
    "default_estimator",
    "judged_estimator",
]

DEFAULT_MASKS = 64
"""The default budget of masks: up to six segments are enumerated within it."""

MAX_ENUMERATED = 12
"""Most segments whose subsets are all looked at where a subset costs nothing."""

JUDGED_ABLATIONS = 1024
"""Random subsets of more segments there."""

MIN_ABLATIONS = 32
"""Fewest random ablations that the default samples."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: the response of one generation, whose prompt is cut into ``segments``.

    ``screen`` is another engine that hides segments; ``embedder`` finds those that say the same; ``expected`` is the
    expected answer, or any other to contrast; ``metric`` compares texts, and ``sampling`` says how they are generated.
    ``judge`` gives verdicts, on what answers ``question``.
    """

    generation: Generation
    segments: tuple[Segment, ...]
    response: str
    claims: tuple[Claim, ...] = ()
    screen: Engine | None = None
    embedder: Embeds | None = None
    expected: str | None = None
    metric: Metric = token_overlap
    sampling: Sampling = Sampling()
    judge: Judge | None = None
    question: str | None = None


@dataclass(frozen=True, slots=True)
class LikelihoodAlgorithm:
    """How likely the recorded response stays as context is removed: :class:`ResponseLogOdds` and an estimator.

    Parameters
    ----------
    estimator : Estimator, optional
        By default what :func:`default_estimator` says.
    embedder : str or Engine, optional
        What finds segments that say the same in other words, as candidates for redundancy groups. By default
        ``ATTRKIT_EMBED``, else nothing: near-duplicates are found by their words.
    """

    estimator: Estimator | None = None
    embedder: str | Engine | None = None

    name: ClassVar[str] = "likelihood"
    needs: ClassVar[frozenset[Capability]] = ResponseLogOdds.needs
    needs_reference: ClassVar[bool] = False

    def value(self, engine: ScoringEngine, subject: Subject) -> ResponseLogOdds:
        """The value function, without targets yet."""
        return ResponseLogOdds(
            engine,
            subject.generation,
            segments=subject.segments,
            response=subject.response,
            claims=subject.claims,
            screen=subject.screen,
            embedder=subject.embedder,
        )


@dataclass(frozen=True, slots=True)
class ReferenceAlgorithm:
    """Which segments speak for the expected answer and which mislead: :class:`ReferenceContrast` and an estimator.

    Or for any other answer, which nobody says is right: segments ``drive`` or ``oppose`` it then. Where that one is the
    trace's reference, it is the expected one.

    Parameters
    ----------
    instead : str, optional
        The other answer, in the words that the model would use; by default the trace's reference.
    estimator : Estimator, optional
        By default what :func:`default_estimator` says.
    embedder : str or Engine, optional
        What finds segments that say the same in other words, as candidates for redundancy groups. By default
        ``ATTRKIT_EMBED``, else nothing: near-duplicates are found by their words.
    """

    estimator: Estimator | None = None
    embedder: str | Engine | None = None
    instead: str | None = None

    name: ClassVar[str] = "reference"
    needs: ClassVar[frozenset[Capability]] = ReferenceContrast.needs
    needs_reference: ClassVar[bool] = True

    def value(self, engine: ScoringEngine, subject: Subject) -> ReferenceContrast:
        """The value function, without targets yet."""
        return ReferenceContrast(
            engine,
            subject.generation,
            segments=subject.segments,
            response=subject.response,
            expected=subject.expected or "",
            knows_right=self.instead is None,
            claims=subject.claims,
            screen=subject.screen,
            embedder=subject.embedder,
        )


@dataclass(frozen=True, slots=True)
class SimilarityAlgorithm:
    """How like the recorded response the answer stays as context is removed: :class:`ResponseSimilarity`.

    For models that generate but do not score: hosted ones. Every ablation is an answer that is generated, and paid.

    Parameters
    ----------
    estimator : Estimator, optional
        By default what :func:`default_estimator` says.
    metric : str or Metric, optional
        ``"embedding"``, ``"overlap"``, ``"numeric"``, or any ``(original, regenerated) -> [0, 1]``. By default
        ``"embedding"`` where an embedder is at hand, else ``"overlap"``; results name it.
    embedder : str or Engine, optional
        What embeds, for metrics that need it. By default ``ATTRKIT_EMBED``, else the packaged model if it is installed.
    temperature : float, default 0
        Of the answers that are generated.

    Examples
    --------
    >>> SimilarityAlgorithm(metric="numeric").metric
    'numeric'
    """

    estimator: Estimator | None = None
    metric: str | Metric | None = None
    embedder: str | Engine | None = None
    temperature: float = 0.0

    name: ClassVar[str] = "similarity"
    needs: ClassVar[frozenset[Capability]] = ResponseSimilarity.needs
    needs_reference: ClassVar[bool] = False

    def value(self, engine: Engine, subject: Subject) -> ResponseSimilarity:
        """The value function, without targets yet."""
        return ResponseSimilarity(
            engine,
            subject.generation,
            segments=subject.segments,
            response=subject.response,
            claims=subject.claims,
            metric=subject.metric,
            sampling=subject.sampling,
        )


@dataclass(frozen=True, slots=True)
class CounterfactualFaithfulness:
    """What the context supports of the recorded answer as parts of it are removed: :class:`Faithfulness`.

    No model is run again: a judge reads claims and segments once, and all subsets follow from its verdicts. It says
    ``supports``, never that a segment helped: a misleading one supports the wrong answer that it caused.

    Parameters
    ----------
    judge : str, Judge, callable or object, optional
        As for :func:`attr_core.judge.load_judge`. What a judge is made from here spends within the run's caps and
        cache; one that is given ready has an account of its own, which the cost of the result includes.
    estimator : Estimator, optional
        By default all subsets of up to 12 segments, else 1024 random ones; neither takes a call.
    repeats : int, default 3
        Judgements of every pair: how far they differ is the margin. A judge that is given as an object and remembers
        what it said gives one; let it repeat itself.
    joint : bool, default True
        Whether to ask about segments together where none supports a claim alone.

    Examples
    --------
    >>> CounterfactualFaithfulness("litellm:gpt-4o-mini").repeats
    3
    """

    judge: str | Judge | Callable[..., object] | object | None = None
    estimator: Estimator | None = None
    repeats: int = 3
    joint: bool = True

    name: ClassVar[str] = "faithfulness"
    needs: ClassVar[frozenset[Capability]] = Faithfulness.needs
    needs_reference: ClassVar[bool] = False

    def value(self, engine: Engine, subject: Subject) -> Faithfulness:
        """The value function, without targets yet."""
        return Faithfulness(
            _judge_of(self, subject),
            subject.generation,
            segments=subject.segments,
            response=subject.response,
            claims=subject.claims,
            question=subject.question,
            repeats=self.repeats,
            joint=self.joint,
        )


@dataclass(frozen=True, slots=True)
class CorrectnessAlgorithm:
    """How right the model answers as context is removed: :class:`Correctness`, each answer generated and judged.

    Parameters
    ----------
    expected : str, optional
        What should be answered; by default the trace's reference.
    judge : str, Judge, callable or object, optional
        As for :func:`attr_core.judge.load_judge`. What a judge is made from here spends within the run's caps and
        cache; one that is given ready has an account of its own, which the cost of the result includes.
    estimator : Estimator, optional
        By default what :func:`default_estimator` says.
    repeats : int, default 3
        Judgements of every answer, as for :class:`CounterfactualFaithfulness`.
    temperature : float, default 0
        Of the answers that are generated.

    Examples
    --------
    >>> CorrectnessAlgorithm("It opened in 1911.").needs_reference
    True
    """

    expected: str | None = None
    judge: str | Judge | Callable[..., object] | object | None = None
    estimator: Estimator | None = None
    repeats: int = 3
    temperature: float = 0.0

    name: ClassVar[str] = "correctness"
    needs: ClassVar[frozenset[Capability]] = Correctness.needs
    needs_reference: ClassVar[bool] = True

    def value(self, engine: Engine, subject: Subject) -> Correctness:
        """The value function, without targets yet."""
        return Correctness(
            engine,
            subject.generation,
            segments=subject.segments,
            response=subject.response,
            expected=subject.expected or "",
            judge=_judge_of(self, subject),
            claims=subject.claims,
            question=subject.question,
            sampling=subject.sampling,
            repeats=self.repeats,
        )


NamedAlgorithm = LikelihoodAlgorithm | ReferenceAlgorithm | SimilarityAlgorithm
Algorithm = NamedAlgorithm | CounterfactualFaithfulness | CorrectnessAlgorithm

ALGORITHMS: Mapping[str, type[NamedAlgorithm]] = {
    "likelihood": LikelihoodAlgorithm,
    "reference": ReferenceAlgorithm,
    "similarity": SimilarityAlgorithm,
}
"""Those that can be had by name: the others want a judge, which is to be chosen."""


def allowed(offers: Collection[Capability]) -> list[str]:
    """Names of the algorithms that an engine with these capabilities can run."""
    return [name for name, algorithm in ALGORITHMS.items() if algorithm.needs <= frozenset(offers)]


def algorithm_named(name: str) -> NamedAlgorithm:
    """The algorithm of that name with its defaults.

    Raises
    ------
    ConfigurationError
        There is none; the message lists them.
    """
    if name not in ALGORITHMS:
        raise ConfigurationError(f"algorithm {name!r} is unknown; choose {', '.join(sorted(ALGORITHMS))}")
    return ALGORITHMS[name]()


_SCREENS = (Screened(), Screened(max_exact=16), Screened(n_hidden=48, max_exact=0, n_drops=1))
"""What is tried in turn where a budget is small."""


def judged_estimator(n_segments: int) -> Estimator:
    """What to estimate by where a subset costs nothing: all of them, or many."""
    if n_segments <= MAX_ENUMERATED:
        return Banzhaf()
    return DebiasedLasso(JUDGED_ABLATIONS, n_drops=n_segments)


def _judge_of(algorithm: CounterfactualFaithfulness | CorrectnessAlgorithm, subject: Subject) -> Judge:
    judge = algorithm.judge if subject.judge is None else subject.judge
    if isinstance(judge, Judge):
        return judge
    raise ConfigurationError(f"the {algorithm.name} algorithm needs a judge; give one, or run it by attribute()")


def default_estimator(
    n_segments: int, max_masks: int | None = None, *, sample: bool = False, gates: int | None = None
) -> Estimator:
    """The estimator for that many segments within ``max_masks`` (by default no cap beyond the estimator's own).

    All subsets where they are at most 64, unless ``sample`` forbids it (since not all can be measured); else
    Screened, where ``gates`` says how many calls its gradients take at most (``None``: the engine has none); else
    DebiasedLasso with max(64, 2n) ablations, or as many as the budget leaves down to 32 (2n with ``sample``); else
    leave-one-out.

    Raises
    ------
    BudgetExceededError
        Not even leave-one-out fits.
    """
    most = max_masks if max_masks is not None else DebiasedLasso().n_masks(n_segments)
    if not sample and 2**n_segments <= min(DEFAULT_MASKS, most if max_masks is not None else DEFAULT_MASKS):
        return Banzhaf()
    for screen in _SCREENS if gates is not None and not sample else ():
        if max_masks is None or screen.n_masks(n_segments) + (gates or 0) <= max_masks:
            return screen
    if DebiasedLasso().n_masks(n_segments) <= most:
        return DebiasedLasso()
    fewest = max(MIN_ABLATIONS, 2 * n_segments) if sample else MIN_ABLATIONS
    if most - 2 >= fewest:
        return DebiasedLasso(min(most - 2, DebiasedLasso().n_random(n_segments)), n_drops=0)
    if sample:
        raise BudgetExceededError(
            f"{n_segments} segments that do not fit the model's window together need at least {fewest + 2} calls, the "
            f"budget allows {max_masks}; raise it"
        )
    if LeaveOneOut().n_masks(n_segments) <= most:
        return LeaveOneOut()
    raise BudgetExceededError(
        f"{n_segments} segments need at least {LeaveOneOut().n_masks(n_segments)} calls, the budget allows {max_masks};"
        " raise it, or cut the context more coarsely"
    )
