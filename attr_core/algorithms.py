"""The useful pairs of value function and estimator, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from attr_core.errors import BudgetExceededError, ConfigurationError
from attr_core.estimators import Banzhaf, ContextCite, LeaveOneOut
from attr_core.protocols import Capability, Estimator, Scores
from attr_core.types import Generation, Segment, Target
from attr_core.values import ResponseLogOdds

__all__ = ["ALGORITHMS", "DEFAULT_MASKS", "LikelihoodAlgorithm", "algorithm_named", "default_estimator"]

DEFAULT_MASKS = 64
"""The default budget of masks: up to six segments are enumerated within it."""

MIN_ABLATIONS = 16


@dataclass(frozen=True, slots=True)
class LikelihoodAlgorithm:
    """How likely the recorded response stays as context is removed: :class:`ResponseLogOdds` and an estimator.

    Parameters
    ----------
    estimator : Estimator, optional
        By default all subsets where they are at most 64, else ContextCite.
    """

    estimator: Estimator | None = None

    name: ClassVar[str] = "likelihood"
    needs: ClassVar[frozenset[Capability]] = ResponseLogOdds.needs

    def value(
        self,
        engine: Scores,
        generation: Generation,
        *,
        segments: Sequence[Segment],
        response: str,
        targets: Sequence[Target],
    ) -> ResponseLogOdds:
        """The value function over one generation."""
        return ResponseLogOdds(engine, generation, segments=segments, response=response, targets=targets)


ALGORITHMS: Mapping[str, type[LikelihoodAlgorithm]] = {"likelihood": LikelihoodAlgorithm}


def algorithm_named(name: str) -> LikelihoodAlgorithm:
    """The algorithm of that name with its defaults.

    Raises
    ------
    ConfigurationError
        There is none; the message lists them.
    """
    if name not in ALGORITHMS:
        raise ConfigurationError(f"algorithm {name!r} is unknown; choose {', '.join(sorted(ALGORITHMS))}")
    return ALGORITHMS[name]()


def default_estimator(n_segments: int, max_masks: int | None = None) -> Estimator:
    """The estimator for that many segments within ``max_masks`` (by default no cap beyond the estimator's own).

    Raises
    ------
    BudgetExceededError
        Not even leave-one-out fits.
    """
    if 2**n_segments <= min(DEFAULT_MASKS, max_masks if max_masks is not None else DEFAULT_MASKS):
        return Banzhaf()
    full = ContextCite(DEFAULT_MASKS)
    if max_masks is None or full.n_masks(n_segments) <= max_masks:
        return full
    ablations = max_masks - 2
    if ablations >= max(MIN_ABLATIONS, 2 * n_segments):
        return ContextCite(min(ablations, DEFAULT_MASKS), n_drops=0)
    if LeaveOneOut().n_masks(n_segments) <= max_masks:
        return LeaveOneOut()
    raise BudgetExceededError(
        f"{n_segments} segments need at least {LeaveOneOut().n_masks(n_segments)} calls, the budget allows {max_masks};"
        " raise it, or attribute fewer segments"
    )
