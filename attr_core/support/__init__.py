"""What follows from a judge's verdicts: outcomes, metrics, conflicts, citations, and cause beside support."""

from attr_core.outcomes import Outcome
from attr_core.support.citations import Citation, Citations
from attr_core.support.conflicts import ClosedBook, Conflict, Conflicts, against_closed_book
from attr_core.support.grid import Cell, Grid
from attr_core.support.matrix import Judged, judge_answer, verdicts_of
from attr_core.support.metrics import METRICS, score_all
from attr_core.support.outcome import Standard, is_refusal, outcomes
from attr_core.support.scores import Metric, Score, mean_of

__all__ = [
    "METRICS",
    "Cell",
    "Citation",
    "Citations",
    "ClosedBook",
    "Conflict",
    "Conflicts",
    "Grid",
    "Judged",
    "Metric",
    "Outcome",
    "Score",
    "Standard",
    "against_closed_book",
    "is_refusal",
    "judge_answer",
    "mean_of",
    "outcomes",
    "score_all",
    "verdicts_of",
]
