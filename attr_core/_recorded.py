"""What an engine and a judge said, kept beside a test, and said again without them.

A completion is known by its prompt and the number of the run; a verdict by claim, text and question. What was not
recorded is an error, never a guess.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from attr_core.errors import EngineError, InputError
from attr_core.protocols import Completion, Judge, Reproduces, Sampling
from attr_core.results import Support, SupportVerdict
from attr_core.types import Claim, Prompt, Segment

__all__ = ["NotedEngine", "NotedJudge", "RecordedEngine", "RecordedJudge"]

_VERDICTS = frozenset(one.value for one in SupportVerdict)
_Cell = tuple[str, str, str]
"""Question, claim and text."""


class RepeatingEngine(Protocol):
    """What reruns ask of a metered engine."""

    engine: Any

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling = ..., *, repeat: int = ...
    ) -> list[Completion]: ...


@dataclass(slots=True)
class NotedEngine:
    """Passes on to a metered engine and notes what it said."""

    metered: RepeatingEngine
    said: dict[tuple[str, int], str] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    @property
    def engine(self) -> Any:
        return self.metered.engine

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling = Sampling(), *, repeat: int = 0
    ) -> list[Completion]:
        try:
            found = self.metered.generate(prompts, sampling, repeat=repeat)
        except EngineError as error:
            self.missed.append(str(error))
            raise
        for prompt, one in zip(prompts, found, strict=True):
            self.said[_digest(prompt), repeat] = one.text
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: each text once, with the prompts and runs in which it was said."""
        runs: dict[str, dict[str, list[int]]] = {}
        for (digest, repeat), text in self.said.items():
            runs.setdefault(text, {}).setdefault(digest, []).append(repeat)
        engine = self.engine
        reproduces = bool(isinstance(engine, Reproduces) and engine.reproduces)
        return {"reproduces": reproduces, "said": [{"text": text, "runs": found} for text, found in runs.items()]}


@dataclass(frozen=True, slots=True)
class RecordedEngine:
    """Says what was recorded; sends nothing.

    Raises
    ------
    InputError
        The record has another shape.
    """

    record: Mapping[str, Any]
    said: Mapping[tuple[str, int], str] = field(init=False)

    def __post_init__(self) -> None:
        try:
            said = {
                (digest, int(run)): str(one["text"])
                for one in self.record["said"]
                for digest, runs in one["runs"].items()
                for run in runs
            }
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"the recorded answers cannot be read: {error!r}; record the test again") from error
        object.__setattr__(self, "said", said)

    @property
    def engine(self) -> RecordedEngine:
        return self

    @property
    def reproduces(self) -> bool:
        return bool(self.record.get("reproduces"))

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling = Sampling(), *, repeat: int = 0
    ) -> list[Completion]:
        keys = [(_digest(prompt), repeat) for prompt in prompts]
        if missing := sum(key not in self.said for key in keys):
            raise EngineError(f"{missing} of these prompts have no recorded answer; record the test again")
        return [Completion(self.said[key], "stop") for key in keys]


@dataclass(slots=True)
class NotedJudge:
    """Passes on to a judge and notes its verdicts, cell by cell, as often as each was asked about."""

    of: Judge
    cells: dict[_Cell, list[dict[str, Any]]] = field(default_factory=dict)
    kind: str = "judged"
    name: str | None = None
    notes: tuple[str, ...] = ()
    missed: list[str] = field(default_factory=list)

    @property
    def reads(self) -> bool:
        return bool(getattr(self.of, "reads", True))

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        try:
            found = self.of.judge(claims, segments, question=question)
        except EngineError as error:
            self.missed.append(str(error))
            raise
        self.kind, self.name, self.notes = found.kind, found.judge, found.notes
        for row, claim in enumerate(claims):
            for column, segment in enumerate(segments):
                said = str(found.verdicts[row, column]), str(found.rationale[row, column])
                cell: dict[str, Any] = dict(zip(("verdict", "why"), said, strict=True))
                if found.evidence is not None:
                    nats = float(found.evidence[row, column])
                    cell["nats"] = nats if math.isfinite(nats) else None
                self.cells.setdefault((question or "", claim.text, segment.text), []).append(cell)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; a cell that was always judged alike stands once."""
        verdicts = [
            {"question": question, "claim": claim, "text": text, **cell}
            for (question, claim, text), said in self.cells.items()
            for cell in (said if any(one != said[0] for one in said) else said[:1])
        ]
        about = {"name": self.name, "kind": self.kind, "reads": self.reads, "notes": list(self.notes)}
        return {**about, "verdicts": verdicts}


@dataclass(slots=True)
class RecordedJudge:
    """Gives the verdicts that were recorded, in their order where a cell was judged in several ways; asks nobody.

    Raises
    ------
    InputError
        The record has another shape.
    """

    record: Mapping[str, Any]
    cells: dict[_Cell, list[Mapping[str, Any]]] = field(default_factory=dict, init=False)
    n_asked: Counter[_Cell] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        try:
            for one in self.record["verdicts"]:
                if one["verdict"] not in _VERDICTS or not isinstance(one["why"], str):
                    raise ValueError(f"verdict {one['verdict']!r}")
                self.cells.setdefault((one["question"], one["claim"], one["text"]), []).append(one)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"the recorded verdicts cannot be read: {error!r}; record the test again") from error

    @property
    def reads(self) -> bool:
        return bool(self.record.get("reads", True))

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        shape = (len(claims), len(segments))
        keys = [(question or "", claim.text, segment.text) for claim in claims for segment in segments]
        if missing := sum(key not in self.cells for key in keys):
            raise EngineError(f"{missing} of these verdicts were not recorded; record the test again")
        cells = [self._next(key) for key in keys]
        evidence = None
        if self.record.get("kind") == "evidence":
            nats = [math.nan if cell.get("nats") is None else float(cell["nats"]) for cell in cells]
            evidence = np.array(nats, dtype=np.float64).reshape(shape)
        return Support(
            np.array([cell["verdict"] for cell in cells], dtype=np.str_).reshape(shape),
            np.array([cell["why"] for cell in cells], dtype=np.str_).reshape(shape),
            kind="evidence" if evidence is not None else "judged",
            judge=self.record.get("name"),
            evidence=evidence,
            notes=tuple(self.record.get("notes", ())),
        )

    def _next(self, key: _Cell) -> Mapping[str, Any]:
        said = self.cells[key]
        self.n_asked[key] += 1
        return said[min(self.n_asked[key], len(said)) - 1]


def _digest(prompt: Prompt) -> str:
    sent = json.dumps([prompt.to_chat(), list(prompt.tools)], sort_keys=True, default=str)
    return hashlib.sha256(sent.encode("utf-8", "surrogatepass")).hexdigest()[:32]
