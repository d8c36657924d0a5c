"""What follows from a judge's verdicts: outcomes, metrics, conflicts, citations, and cause beside support."""

from attr_core.support.matrix import Judged, judge_answer
from attr_core.support.outcome import Outcome, Standard, is_refusal, outcomes

__all__ = ["Judged", "Outcome", "Standard", "is_refusal", "judge_answer", "outcomes"]
