"""Which failure an answer is, what proves it, and what to do: cause beside support, decided by a table."""

from attr_core.diagnosis.decide import decide
from attr_core.diagnosis.examine import Case, examine
from attr_core.diagnosis.facts import Facts, Need, Trials
from attr_core.diagnosis.table import Finding, Label, findings
from attr_core.diagnosis.thresholds import Thresholds

__all__ = ["Case", "Facts", "Finding", "Label", "Need", "Thresholds", "Trials", "decide", "examine", "findings"]
