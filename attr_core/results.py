"""What was measured about a run: attributions, support, diagnoses, plans and what they cost.

Frozen, slotted dataclasses; arrays are read-only and classes that hold arrays compare by identity. Undefined is NaN (or
``undetermined``), never 0. Apart from :mod:`attr_core.types` because these change with the methods, those with the
frameworks.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import ConfigurationError
from attr_core.types import Claim, Location, Segment, SegmentKind, Target, TargetKind

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Attribution",
    "Budget",
    "Cost",
    "Diagnosis",
    "Estimate",
    "Fit",
    "FloatArray",
    "MaskArray",
    "Pair",
    "Plan",
    "RedundancyGroup",
    "Regeneration",
    "Step",
    "Support",
    "SupportVerdict",
    "Verdict",
]

FloatArray = NDArray[np.float64]
MaskArray = NDArray[np.bool_]
"""Masks over segments; True keeps the segment."""

SCHEMA_VERSION = 1
"""Of :meth:`Attribution.to_dict`."""


class Verdict(StrEnum):
    """What an effect amounts to, given the margin δ and, where it was sampled, its interval."""

    DRIVES = "drives"
    OPPOSES = "opposes"
    NO_EFFECT = "no effect"
    UNDETERMINED = "undetermined"
    HELPFUL = "helpful"
    HARMFUL = "harmful"


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
            try:
                caps[name] = float(value) if name == "usd" else int(value)
            except ValueError:
                raise ConfigurationError(f"budget {part!r} is not a number; write for example {name}=64") from None
        return cls(**caps)


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a plan."""

    name: str
    calls: int
    tokens: int


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
class Regeneration:
    """What the model says when the segments of these columns are removed; none removed is the prompt as it was."""

    removed: tuple[int, ...]
    text: str
    same: bool


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """What an estimator returns; arrays are ``(n_targets, n_segments)`` in the value's unit.

    ``exact`` says that the estimand was computed, not sampled: there is no sampling interval then, and ``low``,
    ``high`` and ``p_values`` are NaN. ``decisive`` says that verdicts may be drawn, from exact effects or valid
    intervals. ``drops`` is NaN where single deletion was not measured.
    """

    effects: FloatArray
    low: FloatArray
    high: FloatArray
    p_values: FloatArray
    drops: FloatArray
    exact: bool
    decisive: bool
    n_masks: int
    level: float = math.nan
    fit: Fit | None = None
    pairs: tuple[Pair, ...] = ()
    groups: tuple[RedundancyGroup, ...] = ()
    agreement: FloatArray | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        _freeze(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attribution:
    """Which segment caused which part of a response.

    ``effects[t, s]`` is what keeping segment ``s`` adds to target ``t``'s value, averaged as ``estimand`` says, in
    ``unit``; positive when the segment supports the target. ``drops[t, s]`` is what deleting ``s`` alone takes away
    from the full context. ``low`` and ``high`` bound the effects at ``level``; they are NaN where nothing was sampled
    (``exact``) or the estimator has no valid interval. ``verdicts`` weigh effects against ``delta`` ``(n_targets,)``.
    ``full`` and ``closed_book`` ``(n_targets,)`` are the values with every segment and with none.
    """

    method: str
    estimand: str
    unit: str
    trace_id: str
    generation_id: str
    response: str
    segments: tuple[Segment, ...]
    claims: tuple[Claim, ...]
    targets: tuple[Target, ...]
    effects: FloatArray
    low: FloatArray
    high: FloatArray
    p_values: FloatArray
    verdicts: NDArray[np.str_]
    drops: FloatArray
    delta: FloatArray
    full: FloatArray
    closed_book: FloatArray
    token_offsets: NDArray[np.int64]
    token_full: FloatArray
    token_closed_book: FloatArray
    exact: bool
    cost: Cost
    seed: int
    versions: Mapping[str, str]
    answered_by: str | None = None
    measured_on: str | None = None
    level: float = math.nan
    groups: tuple[RedundancyGroup, ...] = ()
    pairs: tuple[Pair, ...] = ()
    noise_floor: float = math.nan
    fit: Fit | None = None
    agreement: FloatArray | None = None
    resolution: tuple[str, ...] = ()
    regenerated: tuple[Regeneration, ...] = ()
    warnings: tuple[str, ...] = ()
    partial: bool = False

    def __post_init__(self) -> None:
        _freeze(self)

    def ranking(self, target: int) -> list[int]:
        """Columns of that row from the largest effect down; NaN last."""
        row = self.effects[target]
        return sorted(range(len(self.segments)), key=lambda s: (math.isnan(row[s]), -row[s], s))

    def rows(self, kind: TargetKind | None = None, *, claim: int | None = None) -> list[int]:
        """Rows of that kind and claim."""
        return [
            row
            for row, target in enumerate(self.targets)
            if (kind is None or target.kind == kind) and (claim is None or target.claim == claim)
        ]

    def closed_book_probability(self, target: int) -> float:
        """Probability of the target's text, given what precedes it, when every segment is removed."""
        return _sigmoid(self.closed_book[target])

    def is_known(self, target: int) -> bool:
        """Whether the model gives this text without the context too: at closed book it is more likely than not."""
        return bool(self.closed_book[target] >= 0)

    @property
    def closed_book_answer(self) -> str | None:
        """What the model says without any of the segments; ``None`` where that was not generated."""
        everything = tuple(range(len(self.segments)))
        return next((again.text for again in self.regenerated if again.removed == everything), None)

    def to_pandas(self) -> pd.DataFrame:
        """One row per target and segment.

        Raises
        ------
        MissingDependencyError
            pandas is not installed.
        """
        from attr_core._optional import require

        pandas: Any = require("pandas", extra="pandas")
        return pandas.DataFrame(list(self._cells()))

    def _cells(self) -> Iterator[dict[str, Any]]:
        for t, target in enumerate(self.targets):
            for s, segment in enumerate(self.segments):
                yield {
                    "target": target.text,
                    "target_kind": target.kind.value,
                    "claim": target.claim,
                    "segment": segment.id,
                    "segment_kind": segment.kind.value,
                    "group_id": segment.group_id,
                    "effect": float(self.effects[t, s]),
                    "low": float(self.low[t, s]),
                    "high": float(self.high[t, s]),
                    "p_value": float(self.p_values[t, s]),
                    "drop": float(self.drops[t, s]),
                    "verdict": str(self.verdicts[t, s]),
                }

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; NaN becomes ``None``. :meth:`from_dict` reads it back."""
        plain = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}
        return {"schema": SCHEMA_VERSION, **plain}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Attribution:
        """Read what :meth:`to_dict` wrote.

        Raises
        ------
        ConfigurationError
            Written by a newer attrkit.
        """
        if data.get("schema") != SCHEMA_VERSION:
            raise ConfigurationError(
                f"attribution schema {data.get('schema')!r} is not {SCHEMA_VERSION}; upgrade attrkit"
            )
        values = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        n_targets, n_segments = len(values["targets"]), len(values["segments"])
        for name in ("effects", "low", "high", "p_values", "drops"):
            values[name] = _floats(values[name]).reshape(n_targets, n_segments)
        for name in ("delta", "full", "closed_book", "token_full", "token_closed_book"):
            values[name] = _floats(values[name])
        values["verdicts"] = np.array(values["verdicts"], dtype=np.str_).reshape(n_targets, n_segments)
        values["token_offsets"] = np.array(values["token_offsets"], dtype=np.int64).reshape(-1, 2)
        if values.get("agreement") is not None:
            values["agreement"] = _floats(values["agreement"])
        if (fit := values.get("fit")) is not None:
            values["fit"] = Fit(_floats(fit["r2"]), _floats(fit["lds"]), fit["n_held_out"])
        values["segments"] = tuple(_segment(segment) for segment in values["segments"])
        values["claims"] = tuple(Claim(**claim) for claim in values["claims"])
        values["targets"] = tuple(Target(**{**t, "kind": TargetKind(t["kind"])}) for t in values["targets"])
        values["cost"] = Cost(**{**values["cost"], "usd": _float(values["cost"]["usd"])})
        values["pairs"] = tuple(Pair(**pair) for pair in values.get("pairs", ()))
        values["groups"] = tuple(
            RedundancyGroup(**{**group, "members": tuple(group["members"])}) for group in values.get("groups", ())
        )
        values["regenerated"] = tuple(
            Regeneration(**{**r, "removed": tuple(r["removed"])}) for r in values.get("regenerated", ())
        )
        for name in ("resolution", "warnings"):
            values[name] = tuple(values.get(name, ()))
        for name in ("level", "noise_floor"):
            values[name] = _float(values.get(name))
        return cls(**values)

    def __repr__(self) -> str:
        shape = f"{len(self.targets)} targets x {len(self.segments)} segments"
        return f"<Attribution of {self.trace_id}: {self.method}, {shape}>"

    def __str__(self) -> str:
        lines = ["answer: " + "".join(char if char.isprintable() else " " for char in self.response)]
        for t, target in enumerate(self.targets):
            if target.kind is TargetKind.RESPONSE and len(self.claims) == 1:
                continue  # the claim says it already
            full, closed_book = _sigmoid(self.full[t]), self.closed_book_probability(t)
            lines.append(f"{target.kind} {target.text!r}: probability {full:.3f}, without any context {closed_book:.3f}")
            for s in self.ranking(t)[:3]:
                segment = self.segments[s]
                lines.append(f"  {self.effects[t, s]:+6.2f} {self.verdicts[t, s]:<12} {segment.id}: {segment.text[:60]!r}")
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])

    def _repr_html_(self) -> str:
        head = "<tr><th>target</th><th>segment</th><th>effect</th><th>verdict</th><th>text</th></tr>"
        body = "".join(
            f"<tr><td>{html.escape(target.text)}</td><td>{html.escape(self.segments[s].id)}</td>"
            f"<td>{self.effects[t, s]:+.2f}</td><td>{html.escape(str(self.verdicts[t, s]))}</td>"
            f"<td>{html.escape(self.segments[s].text[:120])}</td></tr>"
            for t, target in enumerate(self.targets)
            for s in self.ranking(t)[:3]
        )
        caption = html.escape(f"{self.method}, {self.estimand} effects in {self.unit}; {self.cost.calls} calls")
        return f"<table><caption>{caption}</caption><thead>{head}</thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """What each segment says about each claim; arrays are ``(n_claims, n_segments)``."""

    verdicts: NDArray[np.str_]
    rationale: NDArray[np.str_]
    repeats: int = 1
    cost: Cost = field(default_factory=Cost)

    def __post_init__(self) -> None:
        _freeze(self)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A named failure with its evidence, the intervention that proves it and what to do."""

    label: str
    headline: str
    secondary: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    proof: Mapping[str, Any] | None = None
    fixes: tuple[str, ...] = ()
    confidence: float = math.nan


def _freeze(holder: Any) -> None:
    for f in fields(holder):
        if isinstance(array := getattr(holder, f.name), np.ndarray):
            frozen = array.copy()
            frozen.setflags(write=False)
            object.__setattr__(holder, f.name, frozen)


def _sigmoid(log_odds: float) -> float:
    return float(1 / (1 + np.exp(-log_odds))) if log_odds >= 0 else float(np.exp(log_odds) / (1 + np.exp(log_odds)))


def _floats(values: Any) -> FloatArray:
    return np.array(_nan_for_none(values), dtype=np.float64)


def _float(value: float | None) -> float:
    return math.nan if value is None else value


def _nan_for_none(values: Any) -> Any:
    if isinstance(values, list):
        return [_nan_for_none(value) for value in values]
    return math.nan if values is None else values


def _segment(data: Mapping[str, Any]) -> Segment:
    locations = tuple(Location(**location) for location in data["locations"])
    return Segment(**{**data, "kind": SegmentKind(data["kind"]), "locations": locations})


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return str(value)
