"""Estimators: which subsets to measure and how to turn their values into effects, one published method per file."""

from __future__ import annotations

from collections.abc import Mapping

from attr_core.errors import ConfigurationError
from attr_core.estimators._partial import ranked_from
from attr_core.estimators.banzhaf import Banzhaf
from attr_core.estimators.context_cite import ContextCite
from attr_core.estimators.debiased_lasso import DebiasedLasso
from attr_core.estimators.hierarchical import Hierarchical
from attr_core.estimators.leave_one_out import LeaveOneOut
from attr_core.estimators.path_gradients import PathGradients
from attr_core.estimators.screened import MIN_AGREEMENT, Screened
from attr_core.estimators.shapley import Shapley
from attr_core.protocols import Estimator

__all__ = [
    "ESTIMATORS",
    "MIN_AGREEMENT",
    "Banzhaf",
    "ContextCite",
    "DebiasedLasso",
    "Hierarchical",
    "LeaveOneOut",
    "PathGradients",
    "Screened",
    "Shapley",
    "estimator_named",
    "ranked_from",
]

ESTIMATORS: Mapping[str, type[Estimator]] = {
    "banzhaf": Banzhaf,
    "context-cite": ContextCite,
    "debiased-lasso": DebiasedLasso,
    "hierarchical": Hierarchical,
    "leave-one-out": LeaveOneOut,
    "path-gradients": PathGradients,
    "screened": Screened,
    "shapley": Shapley,
}


def estimator_named(name: str) -> Estimator:
    """The estimator of that name with its defaults.

    Raises
    ------
    ConfigurationError
        There is none; the message lists them.
    """
    if name not in ESTIMATORS:
        raise ConfigurationError(f"estimator {name!r} is unknown; choose {', '.join(sorted(ESTIMATORS))}")
    return ESTIMATORS[name]()
