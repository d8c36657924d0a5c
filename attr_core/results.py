"""What was measured about a run: attributions, support, diagnoses, plans and what they cost.

Frozen, slotted dataclasses; arrays are read-only and classes that hold arrays compare by identity. Undefined is NaN (or
``undetermined``), never 0. Apart from :mod:`attr_core.types` because these change with the methods, those with the
frameworks. Past 400 lines because a diagnosis reads, writes and shows itself, and stands with what it is made of.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import ConfigurationError
from attr_core.types import Target

if TYPE_CHECKING:
    pass

__all__ = [
    "UNPRICED",
    "Budget",
    "Cost",
    "Diagnosis",
    "Estimate",
    "Fit",
    "FloatArray",
    "MaskArray",
    "Pair",
    "PlaceboCheck",
    "Plan",
    "RedundancyGroup",
    "Regeneration",
    "Route",
    "Step",
    "Support",
    "SupportVerdict",
    "Verdict",
    "freeze_arrays",
]

DIAGNOSIS_SCHEMA = 1
"""Of :meth:`Diagnosis.to_dict`."""

FloatArray = NDArray[np.float64]
MaskArray = NDArray[np.bool_]
"""Masks over segments; True keeps the segment."""


class Verdict(StrEnum):
    """What an effect amounts to, given the margin δ and, where it was sampled, its interval."""

    DRIVES = "drives"
    OPPOSES = "opposes"
    NO_EFFECT = "no effect"
    UNDETERMINED = "undetermined"
    HELPFUL = "helpful"
    HARMFUL = "harmful"
    SUPPORTS = "supports"
    UNDERMINES = "undermines"


class SupportVerdict(StrEnum):
    """What a segment says about a claim."""

    ENTAILS = "entails"
    CONTRADICTS = "contradicts"
    NEUTRAL = "neutral"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True)
class Cost:
    """What was spent. A call is one prompt scored, generated or embedded; a backward pass counts as two forward.

    ``usd`` is NaN where a price is unknown. ``cache_hits`` are measurements that had been paid for before.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    cache_hits: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


UNPRICED = "the price is unknown, so that no budget of usd can hold; cap calls or tokens"
"""Said where a cap in USD is asked for on an engine whose price nobody knows."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Hard caps; ``None`` is no cap. They hold to the call: what would pass them is not sent."""

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        for cap in fields(self):
            value = getattr(self, cap.name)
            if value is not None and (math.isnan(value) or value < 0):
                raise ConfigurationError(f"budget {cap.name}={value} is not a non-negative number")

    def less(self, cost: Cost) -> Budget:
        """What is left after ``cost``; at least nothing."""
        return Budget(
            None if self.calls is None else max(self.calls - cost.calls, 0),
            None if self.tokens is None else max(self.tokens - cost.tokens_in - cost.tokens_out, 0),
            None if self.usd is None else max(self.usd - cost.usd, 0.0),
        )

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Read ``"calls=64,usd=0.50"``.

        Raises
        ------
        ConfigurationError
            An unknown cap, or a value that is not a non-negative number.
        """
        caps: dict[str, Any] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, _, value = part.partition("=")
            if name not in ("calls", "tokens", "usd"):
                raise ConfigurationError(f"budget {part!r} is unknown; write calls=64, tokens=20000 or usd=0.50")
            if name in caps:
                raise ConfigurationError(f"budget {text!r} caps {name} twice; give it once")
            try:
                if not re.fullmatch(r"[\d.eE+-]+", value.strip(), re.ASCII):
                    raise ValueError
                caps[name] = float(value) if name == "usd" else int(value)
            except ValueError:
                raise ConfigurationError(
                    f"budget {part!r} is not a number; write for example {name}=64, and a comma between caps"
                ) from None
        return cls(**caps)


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a plan: ``tokens`` in all, ``tokens_out`` of which are written."""

    name: str
    calls: int
    tokens: int
    tokens_out: int = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will cost, before anything runs.

    ``calls``, ``tokens`` and ``usd`` are what is expected, ``maximum`` the most it can be. Neither assumes that the
    cache holds anything. ``notes`` says what was left out for the budget's sake.
    """

    method: str
    engine: str
    steps: tuple[Step, ...]
    calls: int
    tokens: int
    usd: float
    maximum: Cost
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fit:
    """How well the fitted effects predict what they were not fitted on; NaN where nothing was held out.

    ``r2`` and ``lds`` (Spearman of predicted and actual value) are over ``n_held_out`` masks.
    """

    r2: FloatArray
    lds: FloatArray
    n_held_out: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """An interaction of two segments on one target, in the value's unit; negative means that either will do."""

    target: int
    first: int
    second: int
    effect: float


@dataclass(frozen=True, slots=True)
class RedundancyGroup:
    """Segments that say the same: deleting them together takes more than their single drops add up to."""

    members: tuple[int, ...]
    target: int
    joint_drop: float
    summed_drops: float


@dataclass(frozen=True, slots=True)
class Route:
    """A segment (column) that drives a claim by way of an earlier one.

    On ``target``, a row of total reading, the segment drives; given the earlier claims less than half of its effect is
    left, and claim ``claim`` is the first of those that it drives itself.
    """

    target: int
    segment: int
    claim: int


@dataclass(frozen=True, slots=True)
class Regeneration:
    """What the model says when the segments of these columns are removed; none removed is the prompt as it was."""

    removed: tuple[int, ...]
    text: str
    same: bool


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """What an estimator returns; arrays are ``(n_targets, n_segments)`` in the value's unit.

    ``exact`` says that the estimand was computed, not sampled: there is no sampling interval then, and ``low``,
    ``high`` and ``error`` (the standard error, with ``dof`` degrees of freedom) are NaN. ``decisive`` says that
    verdicts may be drawn, from exact effects or valid intervals. ``drops`` is NaN where single deletion was not
    measured. ``n_unfit`` masks were drawn but not measured, since their prompt exceeds the model's window; where that
    changed what is estimated, ``estimand`` names it. ``tied`` are segments that were only removed together: each has
    the effect of all.
    """

    effects: FloatArray
    low: FloatArray
    high: FloatArray
    error: FloatArray
    drops: FloatArray
    exact: bool
    decisive: bool
    n_masks: int
    dof: float = math.nan
    level: float = math.nan
    n_unfit: int = 0
    estimand: str | None = None
    fit: Fit | None = None
    pairs: tuple[Pair, ...] = ()
    groups: tuple[RedundancyGroup, ...] = ()
    agreement: FloatArray | None = None
    tied: tuple[tuple[int, ...], ...] = ()
    partial: bool = False

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, slots=True, eq=False)
class PlaceboCheck:
    """Effects of unrelated sentences ``(n_targets, n_placebos)``, to hold beside the margin δ ``(n_targets,)``.

    ``beyond`` counts those whose absolute effect exceeds δ: then δ is too small for that target on that prompt.
    """

    sentences: tuple[str, ...]
    targets: tuple[Target, ...]
    effects: FloatArray
    delta: FloatArray
    unit: str
    cost: Cost

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes ``None``."""
        return {
            "sentences": list(self.sentences),
            "targets": [target.text for target in self.targets],
            "effects": [[value if math.isfinite(value) else None for value in row] for row in self.effects.tolist()],
            "delta": self.delta.tolist(),
            "unit": self.unit,
            "beyond": self.beyond,
            "calls": self.cost.calls,
        }

    @property
    def beyond(self) -> int:
        """Placebo effects whose size exceeds δ."""
        return int((np.abs(self.effects) > self.delta[:, None]).sum())

    @property
    def largest(self) -> float:
        """The largest absolute placebo effect; NaN where none was measured."""
        sizes = np.abs(self.effects)
        return float(np.nanmax(sizes)) if np.isfinite(sizes).any() else math.nan


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """What each segment says about each claim; arrays are ``(n_claims, n_segments)``.

    ``kind`` is ``judged`` where a judge read both, and ``evidence`` where no judge has spoken: then ``evidence`` holds
    nats, NaN where none were measured, and a verdict is what they amount to past a threshold. ``repeated``
    ``(repeats, n_claims, n_segments)`` are the verdicts of each repeat. ``judge`` names who judged or measured;
    ``notes`` are to be shown with the verdicts.
    """

    verdicts: NDArray[np.str_]
    rationale: NDArray[np.str_]
    repeats: int = 1
    cost: Cost = field(default_factory=Cost)
    kind: Literal["judged", "evidence"] = "judged"
    judge: str | None = None
    repeated: NDArray[np.str_] | None = None
    evidence: FloatArray | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        freeze_arrays(self)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A named failure with its evidence, the intervention that proves it and what to do.

    ``label`` is one of :class:`attr_core.diagnosis.Label`; ``secondary`` are further labels that apply, in their order.
    ``outcome`` is what the answer amounts to (:class:`attr_core.support.Outcome`). ``culprits`` are ids of segments
    that the label is about. ``proof`` is the intervention that changes the outcome with what was said in each run, as
    plain JSON (:func:`attr_core.api.prove` runs it again); ``None`` where the label rests on the judge alone.
    ``confidence`` is the probability that the intervention repairs more often than the unchanged prompt, given these
    runs; NaN where nothing was run. ``strategy`` is ``cause``, or ``support`` where nothing was run again: then nothing
    is said of causes. ``scores`` are metrics, ``grid`` is cause beside support for each claim and segment, and
    ``conflicts`` are segments that contradict each other, all as plain JSON. ``judge`` is who judged;
    ``judged_by`` is ``evidence`` where no judge has spoken.
    """

    label: str
    headline: str
    secondary: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    proof: Mapping[str, Any] | None = None
    fixes: tuple[str, ...] = ()
    confidence: float = math.nan
    trace_id: str = ""
    generation_id: str = ""
    outcome: str = "undetermined"
    question: str | None = None
    answer: str = ""
    expected: str | None = None
    culprits: tuple[str, ...] = ()
    strategy: str = "cause"
    scores: tuple[Mapping[str, Any], ...] = ()
    grid: Mapping[str, Any] | None = None
    conflicts: tuple[Mapping[str, Any], ...] = ()
    judge: str | None = None
    judged_by: str = "judged"
    measured_on: str | None = None
    n_runs: int = 0
    seed: int = 0
    cost: Cost = field(default_factory=Cost)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The headline, what was seen, and what to do."""
        lines = [f"{self.label}: {self.headline}", *(f"  {told}" for told in self.evidence)]
        lines += [f"fix: {fix}" for fix in self.fixes]
        lines += [f"also applies: {', '.join(self.secondary)}"] if self.secondary else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        names = ("outcome", "evidence", "to blame", "what to do", "also applies", "confidence", "note")
        is_sure = bool((self.proof or {}).get("reproducible"))
        told = "> 0.99" if self.confidence > 0.99 and not is_sure else f"{self.confidence:.2f}"
        sure = () if math.isnan(self.confidence) else (told,)
        values = ((self.outcome,), self.evidence, self.culprits, self.fixes, self.secondary, sure, self.notes)
        body = "".join(
            f"<tr><th>{name}</th><td>{'<br>'.join(html.escape(str(line)) for line in lines)}</td></tr>"
            for name, lines in zip(names, values, strict=True)
            if lines
        )
        caption = html.escape(f"{self.label}: {self.headline}")
        return f"<p>{html.escape(self.answer)}</p><table><caption>{caption}</caption><tbody>{body}</tbody></table>"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes ``None``. :meth:`from_dict` reads it back."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
        spent = {f.name: getattr(self.cost, f.name) for f in fields(self.cost)}
        known = {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in spent.items()
        }
        unsure = math.isnan(self.confidence)
        return {"schema": DIAGNOSIS_SCHEMA, **plain, "confidence": None if unsure else self.confidence, "cost": known}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Diagnosis:
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        ConfigurationError
            Written by a newer attrkit.
        """
        if data.get("schema") != DIAGNOSIS_SCHEMA:
            raise ConfigurationError(
                f"diagnosis schema {data.get('schema')!r} is not {DIAGNOSIS_SCHEMA}; upgrade attrkit"
            )
        values = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        values["confidence"] = math.nan if values["confidence"] is None else values["confidence"]
        spent: dict[str, Any] = {name: math.nan if value is None else value for name, value in values["cost"].items()}
        values["cost"] = Cost(**spent)
        return cls(**values)


def freeze_arrays(holder: Any) -> None:
    """Replace the arrays of a frozen dataclass by read-only copies."""
    for f in fields(holder):
        if isinstance(array := getattr(holder, f.name), np.ndarray):
            frozen = array.copy()
            frozen.setflags(write=False)
            object.__setattr__(holder, f.name, frozen)
