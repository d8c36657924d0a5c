"""What a run will cost and has cost, as text for a terminal."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from attr_core.reports._words import visible
from attr_core.results import Cost, Plan

__all__ = ["render_cost", "render_plan"]


def render_plan(plan: Plan) -> RenderableType:
    """What a run will do and cost."""
    lines = [Text(f"{plan.method} on {visible(plan.engine)}")]
    lines += [Text(f"  {step.name}: {step.calls:,} calls, about {step.tokens:,} tokens") for step in plan.steps]
    most = plan.maximum
    lines.append(Text(f"  expected: {_spending(plan.calls, plan.tokens, plan.usd)}"))
    lines.append(Text(f"  at most:  {_spending(most.calls, most.tokens_in + most.tokens_out, most.usd)}"))
    lines.append(Text("  (were nothing in the cache: what was measured before is not measured again)", style="dim"))
    lines += [Text(f"  {visible(note)}") for note in plan.notes]
    return Group(*lines)


def render_cost(cost: Cost) -> str:
    """One line: calls, cache hits, tokens, money, time."""
    money = "" if cost.usd == 0 else f", USD {_money(cost.usd)}"
    return (
        f"{cost.calls:,} model calls, {cost.cache_hits:,} from the cache, "
        f"{cost.tokens_in + cost.tokens_out:,} tokens{money}, {cost.seconds:.1f} s"
    )


def _spending(calls: int, tokens: int, usd: float) -> str:
    return f"{calls:,} calls, {tokens:,} tokens, USD {_money(usd)}"


def _money(usd: float) -> str:
    return "price unknown" if math.isnan(usd) else f"{usd:.4f}"
