"""An attribution: which segment caused which part of a response, and its JSON form."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attr_core.errors import ConfigurationError
from attr_core.results import (
    Cost,
    Fit,
    FloatArray,
    MaskArray,
    Pair,
    RedundancyGroup,
    Regeneration,
    Route,
    freeze_arrays,
)
from attr_core.types import Claim, Location, Reading, Segment, SegmentKind, Target, TargetKind

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA_VERSION", "Attribution", "probability"]

_COLUMNS = (
    *("target", "target_kind", "claim", "reading", "segment", "segment_kind", "group_id", "origin", "text"),
    *("effect", "low", "high", "p_value", "drop", "delta", "verdict", "resolution", "full", "closed_book"),
)

SCHEMA_VERSION = 1
"""Of :meth:`Attribution.to_dict`."""


REPRODUCED = 0.5
"""Similarity to the recorded answer from which on the unchanged prompt is said to give it again."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attribution:
    """Which segment caused which part of a response.

    ``effects[t, s]`` is what keeping segment ``s`` adds to target ``t``'s value, averaged as ``estimand`` says, in
    ``unit``; positive when the segment supports the target. ``drops[t, s]`` is what deleting ``s`` alone takes away
    from the full context. ``low`` and ``high`` bound the effects at ``level``; they are NaN where nothing was sampled
    (``exact``) or the estimator has no valid interval. ``verdicts`` weigh effects against ``delta`` ``(n_targets,)``.
    ``full`` and ``closed_book`` ``(n_targets,)`` are the values with every segment and with none; ``full`` is NaN where
    the full prompt exceeds the model's window. ``p_values`` are against |effect| <= δ, adjusted over all targets and
    segments. ``noise_floor`` is the largest difference, over the targets, between values of one and the same prompt
    scored in a batch, alone and alone again. ``tied`` are columns that were only removed together: each of them has
    the effect of all, and its ``resolution`` is ``group``, else ``individual``. ``agreement`` ``(n_targets,)`` is how
    far what hiding segments gave stands for what deleting them gives, 1 at best; ``None`` where nothing was hidden.
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
    routes: tuple[Route, ...] = ()
    n_unfit: int = 0
    noise_floor: float = math.nan
    fit: Fit | None = None
    agreement: FloatArray | None = None
    resolution: tuple[str, ...] = ()
    tied: tuple[tuple[int, ...], ...] = ()
    regenerated: tuple[Regeneration, ...] = ()
    warnings: tuple[str, ...] = ()
    partial: bool = False

    def __post_init__(self) -> None:
        freeze_arrays(self)

    def predicted(self, masks: MaskArray) -> FloatArray:
        """Values ``(n_masks, n_targets)`` that the effects and pairs predict for other subsets, in ``unit``.

        ``masks`` ``(n_masks, n_segments)``, True keeps. Relative to an unknown mean: compare rows, as LDS does. Of
        segments that were removed as one, the share that is kept counts.
        """
        signs = np.where(masks, 0.5, -0.5)
        shares = np.ones(len(self.segments))
        for columns in self.tied:
            shares[list(columns)] = 1 / len(columns)
        values = signs @ (self.effects * shares).T
        for pair in self.pairs:
            values[:, pair.target] += pair.effect * signs[:, pair.first] * signs[:, pair.second]
        return np.asarray(values, dtype=np.float64)

    def ranking(self, target: int) -> list[int]:
        """Columns of that row from the largest effect down; NaN last."""
        row = self.effects[target]
        return sorted(range(len(self.segments)), key=lambda s: (math.isnan(row[s]), -row[s], s))

    def rows(
        self, kind: TargetKind | None = None, *, claim: int | None = None, reading: Reading | None = None
    ) -> list[int]:
        """Rows of that kind, claim and reading."""
        return [
            row
            for row, target in enumerate(self.targets)
            if (kind is None or target.kind == kind)
            and (claim is None or target.claim == claim)
            and (reading is None or target.reading == reading)
        ]

    def direct_row(self, row: int) -> int | None:
        """The row that reads the same words as ``row`` given the earlier claims; ``None`` where there is none."""
        direct = replace(self.targets[row], reading="direct")
        return self.targets.index(direct) if direct in self.targets else None

    def closed_book_probability(self, target: int) -> float:
        """Probability of the target's text, given what precedes it, when every segment is removed."""
        return probability(self.closed_book[target])

    def is_known(self, target: int) -> bool:
        """Whether the model gives this text without the context too.

        At closed book it is more likely than not, or it stands in the closed-book answer; where answers are compared,
        the one without the context is as like the recorded one. Not to be told from a direct reading of a later claim,
        which is given the earlier ones.
        """
        row = self.targets[target]
        if row.kind is TargetKind.REFERENCE:
            return False  # a contrast is no text that the model could know
        if row.claim not in (None, 0) and row.reading == "direct":
            return False
        if self.unit != "nats":  # an answer as like the recorded one without the context as with it
            full, closed_book = self.full[target], self.closed_book[target]
            return bool(full >= REPRODUCED and closed_book > full - self.delta[target])
        if self.closed_book[target] >= 0:
            return True
        word = rf"(?<!\w){re.escape(row.text)}(?!\w)"
        is_phrase = row.kind in (TargetKind.PIVOT, TargetKind.SPAN)
        return is_phrase and re.search(word, self.closed_book_answer or "") is not None

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
        return pandas.DataFrame(list(self._cells()), columns=list(_COLUMNS))

    def _cells(self) -> Iterator[dict[str, Any]]:
        for t, target in enumerate(self.targets):
            for s, segment in enumerate(self.segments):
                yield {
                    "target": target.text,
                    "target_kind": target.kind.value,
                    "claim": target.claim,
                    "reading": target.reading,
                    "segment": segment.id,
                    "segment_kind": segment.kind.value,
                    "group_id": segment.group_id,
                    "origin": segment.origin,
                    "text": segment.text,
                    "effect": float(self.effects[t, s]),
                    "low": float(self.low[t, s]),
                    "high": float(self.high[t, s]),
                    "p_value": float(self.p_values[t, s]),
                    "drop": float(self.drops[t, s]),
                    "delta": float(self.delta[t]),
                    "verdict": str(self.verdicts[t, s]),
                    "resolution": self.resolution[s] if self.resolution else "individual",
                    "full": float(self.full[t]),
                    "closed_book": float(self.closed_book[t]),
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
        values["routes"] = tuple(Route(**route) for route in values.get("routes", ()))
        values["groups"] = tuple(
            RedundancyGroup(**{**group, "members": tuple(group["members"])}) for group in values.get("groups", ())
        )
        values["regenerated"] = tuple(
            Regeneration(**{**r, "removed": tuple(r["removed"])}) for r in values.get("regenerated", ())
        )
        for name in ("resolution", "warnings"):
            values[name] = tuple(values.get(name, ()))
        values["tied"] = tuple(map(tuple, values.get("tied", ())))
        for name in ("level", "noise_floor"):
            values[name] = _float(values.get(name))
        return cls(**values)

    def __repr__(self) -> str:
        shape = f"{len(self.targets)} targets x {len(self.segments)} segments"
        return f"<Attribution of {self.trace_id}: {self.method}, {shape}>"

    def __str__(self) -> str:
        lines = [f"answer: {_inert(self.response)}"]
        for t in self._shown():
            target, (full, closed_book) = self.targets[t], self._told(t)
            likely = "unmeasured with all of the context" if math.isnan(self.full[t]) else full
            lines.append(f"{target.kind} {target.text!r}: {likely}, {closed_book} without context")
            for s in self.ranking(t)[:3]:
                segment, effect = self.segments[s], self.effects[t, s]
                name = _inert(segment.id) + self._beside(s)
                lines.append(f"  {effect:+6.2f} {self.verdicts[t, s]:<12} {name}: {segment.text[:60]!r}")
        return "\n".join([*lines, *(f"warning: {_inert(warning)}" for warning in self.warnings)])

    def _repr_html_(self) -> str:
        head = "".join(
            f"<th>{name}</th>" for name in ("target", "with / without", "effect", "verdict", "segment", "text")
        )
        body = "".join(self._html_row(t, s) for t in self._shown() for s in self.ranking(t)[:3])
        caption = html.escape(f"{self.method}: {self.estimand} effects in {self.unit}; {self.cost.calls} calls")
        notes = "".join(f"<p>{html.escape(warning)}</p>" for warning in self.warnings)
        return (
            f"<p>{html.escape(self.response)}</p><table><caption>{caption}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"
        )

    def _html_row(self, t: int, s: int) -> str:
        segment = self.segments[s]
        cells = (
            self.targets[t].text,
            " / ".join(self._told(t)).replace(" likely", "").replace("nan%", "unmeasured").replace("nan", "unmeasured"),
            f"{self.effects[t, s]:+.2f}",
            str(self.verdicts[t, s]),
            segment.id + self._beside(s),
            segment.text[:120],
        )
        return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"

    def _told(self, t: int) -> tuple[str, str]:
        """The value with the whole context and with none: probabilities, or what else the unit is."""
        if self.unit == "nats":
            return f"{probability(self.full[t]):.1%} likely", f"{self.closed_book_probability(t):.1%}"
        return f"{self.unit} {self.full[t]:.2f}", f"{self.closed_book[t]:.2f}"

    def n_alike(self, column: int) -> int:
        """How many segments were only removed together with this one."""
        return len(next((columns for columns in self.tied if column in columns), (column,))) - 1

    def _beside(self, column: int) -> str:
        return f" +{n} alike" if (n := self.n_alike(column)) else ""

    def _shown(self) -> list[int]:
        """Rows worth a reader's first look: one reading of each, and not the response where a claim says it all."""
        rows = []
        for t, target in enumerate(self.targets):
            is_repeated = target.kind is TargetKind.RESPONSE and len(self.claims) == 1
            if not is_repeated and (target.reading == "total" or replace(target, reading="total") not in self.targets):
                rows.append(t)
        return rows


def _inert(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def probability(log_odds: float) -> float:
    """Of log-odds in nats; NaN stays NaN."""
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
    told = {"kind": SegmentKind(data["kind"]), "locations": locations, "documents": tuple(data.get("documents", ()))}
    return Segment(**{**data, **told})


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
