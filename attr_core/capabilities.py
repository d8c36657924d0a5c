"""What an engine offers and what a method needs, settled before anything is spent."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from attr_core.errors import AttrkitError, MissingCapabilityError
from attr_core.protocols import (
    Capability,
    Embeds,
    GatesGradients,
    Generates,
    Price,
    Priced,
    Sampling,
    Scores,
    ScoresHidden,
)
from attr_core.types import Location, Message, Prompt, Segment, SegmentKind, Target, TargetKind

__all__ = ["ENGINES", "FAILURE_MEMORY_SECONDS", "is_free", "missing", "offered", "price_of", "probe", "require"]

_PROTOCOLS: Mapping[Capability, type] = {
    Capability.GENERATE: Generates,
    Capability.SCORE: Scores,
    Capability.SCORE_HIDDEN: ScoresHidden,
    Capability.GATE_GRADIENTS: GatesGradients,
    Capability.EMBED: Embeds,
}

ENGINES: Mapping[str, frozenset[Capability]] = {
    "hf:MODEL": frozenset({Capability.GENERATE, Capability.SCORE, Capability.SCORE_HIDDEN, Capability.GATE_GRADIENTS}),
    "server:URL#MODEL": frozenset({Capability.GENERATE, Capability.SCORE}),
    "litellm:MODEL": frozenset({Capability.GENERATE, Capability.EMBED}),
    "st:MODEL": frozenset({Capability.EMBED}),
}
"""How an engine is named -> the most that its kind offers, for the message that says who could do it."""

FAILURE_MEMORY_SECONDS = 300
"""How long a failed probe is remembered; a success is kept until the memory is cleared."""


def offered(engine: object) -> frozenset[Capability]:
    """Capabilities of an engine: its own ``capabilities`` where it declares them, else those whose methods it has."""
    declared = getattr(engine, "capabilities", None)
    if declared is not None:
        return frozenset(Capability(capability) for capability in declared)
    return frozenset(capability for capability, protocol in _PROTOCOLS.items() if isinstance(engine, protocol))


def price_of(engine: object) -> Price | None:
    """What the engine takes for a token; ``None`` where it does not say, or what it says is no price."""
    price = engine.price if isinstance(engine, Priced) else None
    return price if price is not None and min(price.token_in, price.token_out) >= 0 else None


def is_free(engine: object) -> bool:
    """Whether the engine takes nothing: it runs on the user's machines."""
    price = price_of(engine)
    return price is not None and price.token_in == price.token_out == 0


def missing(engine: object, needed: Iterable[Capability]) -> list[Capability]:
    """What of ``needed`` the engine lacks, in the order of :class:`Capability`."""
    lacking = frozenset(needed) - offered(engine)
    return [capability for capability in Capability if capability in lacking]


def require(engine: object, needed: Iterable[Capability], *, by: str) -> None:
    """Check that ``engine`` offers all of ``needed``; costs nothing.

    Raises
    ------
    MissingCapabilityError
        It does not. The message names the engines that could do it.
    """
    needed = frozenset(needed)
    lacking = missing(engine, needed)
    if not lacking:
        return
    able = [spec for spec, capabilities in ENGINES.items() if needed <= capabilities]
    able = [f"{spec} of vLLM or SGLang" if "URL" in spec and Capability.SCORE in needed else spec for spec in able]
    name = getattr(engine, "spec", type(engine).__name__)
    remedy = f"use {' or '.join(able)}" if able else "no engine of this version offers it"
    raise MissingCapabilityError(f"{by} needs {', '.join(lacking)}, which {name} does not offer; {remedy}")


def probe(engine: Any, memory: MutableMapping[str, Any]) -> dict[Capability, str | None]:
    """Make one tiny call per offered capability and say which answer.

    Parameters
    ----------
    engine : Engine
        The engine to try; at most one call of a few tokens per capability is made.
    memory : mutable mapping of str to JSON
        Where outcomes are kept, by the engine's fingerprint; a failure only for ``FAILURE_MEMORY_SECONDS``.

    Returns
    -------
    dict
        Capability -> ``None`` where it answered, else the reason why not.
    """
    outcome: dict[Capability, str | None] = {}
    for capability in Capability:
        if capability not in offered(engine):
            continue
        key = f"probe:{engine.fingerprint}:{capability}"
        kept = memory.get(key)
        if kept is not None and (kept["error"] is None or time.time() - kept["at"] < FAILURE_MEMORY_SECONDS):
            outcome[capability] = kept["error"]
            continue
        try:
            _tiny_call(engine, capability)
            outcome[capability] = None
        except AttrkitError as error:
            outcome[capability] = str(error)
        memory[key] = {"error": outcome[capability], "at": time.time()}
    return outcome


def _tiny_call(engine: Any, capability: Capability) -> None:
    import numpy as np

    prompt = Prompt((Message("user", "Say yes."),))
    segment = Segment("probe", SegmentKind.USER_TURN, "Say", (Location(0, 0, 3),))
    match capability:
        case Capability.GENERATE:
            engine.generate([prompt], Sampling(max_tokens=1))
        case Capability.SCORE:
            engine.score([prompt], "yes")
        case Capability.SCORE_HIDDEN:
            engine.score_hidden(prompt, [segment], np.array([[True]]), "yes")
        case Capability.GATE_GRADIENTS:
            target = Target(TargetKind.RESPONSE, 0, 3, "yes")
            engine.gate_gradients(prompt, [segment], np.array([[1.0]]), "yes", [target])
        case Capability.EMBED:
            engine.embed(["yes"])
