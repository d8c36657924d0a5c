"""A recorded run with a failure that was planted in it, the truth about it, and the model that fails so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from attr_core.evaluation.planted.facts import Asked
from attr_core.evaluation.planted.models import WorldModel
from attr_core.types import Trace

__all__ = ["LABELS", "PlantedSample"]

LABELS: Final = (
    "inconclusive",
    "flaky",
    "tool_error",
    "correct_abstention",
    "over_refusal",
    "ok",
    "retrieval_miss",
    "dropped_from_prompt",
    "context_conflict",
    "chunk_dominance",
    "distraction",
    "memory_override",
    "parametric_answer",
    "generation_ignore",
    "misreading",
    "position",
    "compound",
    "instruction_injection",
    "incomplete_answer",
)
"""What can be planted, in the order in which a run that fits several is named."""


@dataclass(frozen=True, slots=True)
class PlantedSample:
    """One run, and the truth about it.

    Parameters
    ----------
    id : str
    label : str
        What was planted; one of ``LABELS``.
    variant : str
        In which form.
    trace : Trace
        The run as an application would have recorded it.
    expected : str or None
        The right answer, where it is to be known.
    asked : tuple of (entity, attribute)
        What the question asks.
    truth : tuple of str
        The right value of each part.
    right, wrong, irrelevant : tuple of str
        Ids of documents: those that state what was asked rightly (also where they never reached the prompt), those that
        state it wrongly or give an order, and those that do not state it.
    culprits : tuple of frozenset of str
        What makes the answer what it is: sets of document ids, or of segment ids where it is memory (``m1``), an
        earlier turn or a tool's output. Each set is one cause and has to go as a whole.
    repairs : tuple of dict
        Changes to the prompt after which the answer is right, each by itself: ``{"remove": ids}`` and
        ``{"order": ids}`` with ids of segments, ``{"add": {"id", "text"}}`` with a document put last in the context.
    model : WorldModel
        Gives the recorded answer to the recorded prompt, for the planted reason.
    notes : tuple of str
        What else is to be known, in words.
    """

    id: str
    label: str
    variant: str
    trace: Trace
    expected: str | None
    asked: tuple[Asked, ...]
    truth: tuple[str, ...]
    model: WorldModel
    right: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    irrelevant: tuple[str, ...] = ()
    culprits: tuple[frozenset[str], ...] = ()
    repairs: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = field(default=())
