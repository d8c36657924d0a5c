"""Segments that act together on a target, in a line each: facts that are told twice, and pairs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attr_core.attribution import Attribution
from attr_core.reports._words import listed, segment_name
from attr_core.results import FloatArray

MAX_NAMED = 6
"""Most members that are named."""


def together_lines(attribution: Attribution, row: int) -> Iterator[str]:
    """``a and b say the same: without both −11.6 nats, one by one −3.5``; pairs that are in no such group follow."""
    unit, inside = attribution.unit, set()
    for group in attribution.groups:
        if group.target == row:
            inside.add(frozenset(group.members))
            names = listed([segment_name(attribution.segments[column]) for column in group.members], MAX_NAMED)
            yield (
                f"{names} each do without the other{'s' * (len(group.members) > 2)}: deleting all takes "
                f"{group.joint_drop:.1f} {unit}, their single drops add up to {group.summed_drops:.1f}"
            )
    for pair in attribution.pairs:
        if pair.target == row and not any({pair.first, pair.second} <= members for members in inside):
            first, second = (segment_name(attribution.segments[column]) for column in (pair.first, pair.second))
            how = "each counts for more with the other" if pair.effect > 0 else "each counts for less with the other"
            yield f"{first} and {second} act together ({pair.effect:+.1f} {unit}): {how}"


def alike_name(attribution: Attribution, column: int) -> str:
    """``+11 alike`` for a segment that was removed with eleven others; nothing for one that was removed alone."""
    return f"+{n} alike" if (n := attribution.n_alike(column)) else ""


def shares_of(agreement: FloatArray) -> str:
    """The least and the largest, as far as they differ."""
    ends = sorted(
        {f"{max(value, 0.0):.0%}" for value in (np.nanmin(agreement), np.nanmax(agreement))}, key=lambda s: int(s[:-1])
    )
    return " to ".join(ends)
