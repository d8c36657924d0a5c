"""One row, on this machine or on another: asked, then diagnosed. Plain data in, plain data out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from attr_core._redact import masked
from attr_core.api import diagnose
from attr_core.capture import paused
from attr_core.engines import load_engine
from attr_core.errors import JudgeError
from attr_core.evaluation.answers import PUT_TOGETHER, answer_row, load_app
from attr_core.evaluation.rows import Row
from attr_core.evaluation.segments import segment_uses, spent_idly
from attr_core.protocols import Progress
from attr_core.results import Budget, Diagnosis
from attr_core.types import ATTRKIT_KEY, Trace

__all__ = ["Found", "Settings", "answered", "diagnosed", "said"]

_LONGEST = 2_000
"""Characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How rows are worked on; the options of :func:`attr_core.api.diagnose` are in ``options``."""

    app: str | Callable[[str], Any] | None = None
    judge: Any = None
    engine: Any = None
    strategy: Literal["cause", "support"] = "support"
    diagnose: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """What came of an answer; ``details`` are plain JSON."""

    diagnosis: Diagnosis | None
    details: Mapping[str, Any] = field(default_factory=dict)


def answered(row: Row, settings: Settings) -> tuple[Trace, float]:
    """The application's answer to a row, and how many seconds it took."""
    began = time.monotonic()
    trace = answer_row(None if settings.app is None else load_app(settings.app), row)
    return trace, time.monotonic() - began


def diagnosed(
    trace: Trace,
    row: Row,
    settings: Settings,
    *,
    db: str | None,
    budget: Budget = Budget(),
    progress: Progress | None = None,
) -> Found:
    """The diagnosis of an answer, and what became of each segment.

    Raises
    ------
    AttrkitError
        As for :func:`attr_core.api.diagnose`; also where the judge said nothing at all.
    """
    if not settings.diagnose:
        return Found(None)
    engine = load_engine(settings.engine) if settings.strategy == "cause" else None
    with paused():
        found = diagnose(
            trace,
            judge=settings.judge,
            engine=engine,
            strategy=settings.strategy,
            budget=budget,
            db=db,
            progress=progress,
            **settings.options,
        )
    if found.grid is None:  # nothing was judged: no result, which another try may have
        raise JudgeError("; ".join(found.evidence) or found.headline)
    uses = segment_uses(trace, found, engine)
    told = trace.metadata.get(ATTRKIT_KEY)
    is_put_together = isinstance(told, Mapping) and told.get("prompt") == PUT_TOGETHER
    idle = spent_idly(trace, uses, engine)
    return Found(found, {"segments": uses, "idle": idle, "own_prompt": not is_put_together})


def said(error: BaseException) -> str:
    """An error as it is recorded: without what the environment holds under names of secrets."""
    return masked(f"{type(error).__name__}: {error}", os.environ)[:_LONGEST]
