"""Value functions: the numbers that contexts with parts removed are measured by, one per file."""

from __future__ import annotations

from attr_core.reading import log_odds
from attr_core.values.correctness import Correctness
from attr_core.values.faithfulness import Faithfulness
from attr_core.values.reference_contrast import ReferenceContrast, reference_target
from attr_core.values.response_log_odds import SCREENS, ResponseLogOdds, can_hide
from attr_core.values.response_similarity import ResponseSimilarity

__all__ = [
    "SCREENS",
    "Correctness",
    "Faithfulness",
    "ReferenceContrast",
    "ResponseLogOdds",
    "ResponseSimilarity",
    "can_hide",
    "log_odds",
    "reference_target",
]
