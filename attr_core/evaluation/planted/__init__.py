"""Runs with planted failures: invented facts, models that fail in a known way, and judges that know the facts.

:func:`planted` writes the set; what was planted is the truth that a diagnosis is held against.
"""

from attr_core.evaluation.planted.judges import ErringJudge, PerfectJudge
from attr_core.evaluation.planted.models import WorldModel
from attr_core.evaluation.planted.planting import planted
from attr_core.evaluation.planted.samples import LABELS, PlantedSample

__all__ = ["LABELS", "ErringJudge", "PerfectJudge", "PlantedSample", "WorldModel", "planted"]
