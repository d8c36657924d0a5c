"""What is kept of spans, model calls and root runs while they are open."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from attr_llamaindex.kinds import Kind

__all__ = ["Call", "Run", "Span"]


@dataclass(slots=True, eq=False)
class Run:
    """A root run.

    ``stages`` are the sets of nodes seen so far; ``asked`` says which generation asked for which tool call;
    ``failed`` are generations that failed, with the tools around each, and ``told`` the tools that said so.
    """

    id: str
    kind: Kind
    trace_id: str = ""
    stamp: dict[str, Any] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    streams: list[Call] = field(default_factory=list)
    stages: list[list[tuple[str, str, dict[str, Any]]]] = field(default_factory=list)
    asked: dict[str, str] = field(default_factory=dict)
    failed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    last_generation: str | None = None
    last_text: str | None = None
    output: str | None = None
    is_held: bool = False
    """Its span has ended, and a stream of a model goes on."""
    is_read: bool = False
    """Its response is a stream that somebody reads."""
    response: weakref.ref[Any] | None = None


@dataclass(slots=True, eq=False)
class Span:
    """A span of a run."""

    id: str
    kind: Kind
    run: Run
    parent: Span | None = None
    instance: Any = None
    rendered: Mapping[str, Any] = field(default_factory=dict)
    call: Call | None = None

    def around(self) -> Iterator[Span]:
        """The spans around it, the nearest first."""
        here = self.parent
        while here is not None:
            yield here
            here = here.parent


@dataclass(slots=True, eq=False)
class Call:
    """One call of a model, however many spans it makes: ``acomplete`` may call ``complete``.

    ``voice`` is the span whose events tell how a stream goes on, ``tools`` are those of the tools around the call.
    """

    id: str
    run: Run
    instance: Any
    generation_id: str
    spans: list[str]
    tools: tuple[str, ...] = ()
    voice: str | None = None
    is_stream: bool = False
    stream: weakref.ref[Any] | None = None
    pieces: list[str] = field(default_factory=list)
    last: Any = None
    is_over: bool = False
