"""An attribution as text for a terminal, by rich; everything a model or document wrote is shown as inert text."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attr_core.attribution import Attribution
from attr_core.results import Cost, PlaceboCheck, Plan, Verdict
from attr_core.types import Segment, TargetKind, Trace

__all__ = ["render_attribution", "render_cost", "render_placebos", "render_plan", "visible"]

_STYLES = {
    Verdict.DRIVES: "bold green",
    Verdict.HELPFUL: "bold green",
    Verdict.OPPOSES: "bold red",
    Verdict.HARMFUL: "bold red",
    Verdict.NO_EFFECT: "dim",
    Verdict.UNDETERMINED: "yellow",
}

_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")

TEXT_WIDTH = 400
"""Characters of a segment's text handed to the table, which cuts them to its width."""


def render_attribution(attribution: Attribution, trace: Trace | None = None, *, top: int = 3) -> RenderableType:
    """The answer with its claims numbered, what caused each, and what it cost.

    Parameters
    ----------
    attribution : Attribution
    trace : Trace, optional
        For the question and the time.
    top : int, default 3
        Segments shown for each target, besides all that drive or oppose it.
    """
    parts: list[RenderableType] = [*_head(attribution, trace), _answer(attribution), Text()]
    for claim in attribution.claims:
        rows = attribution.rows(claim=claim.index)
        if rows:
            parts += _claim(attribution, claim.index, rows, top)
    for row in attribution.rows(TargetKind.SPAN):
        parts += [*_target(attribution, row, f"span {_quote(attribution.targets[row].text)}", top), Text()]
    if len(attribution.claims) > 1:
        for row in attribution.rows(TargetKind.RESPONSE):
            parts += [*_target(attribution, row, "the whole response", top), Text()]
    parts += _said(attribution)
    parts += [Text(f"warning: {visible(warning)}", style="yellow") for warning in attribution.warnings]
    parts.append(_foot(attribution))
    return Group(*parts)


def render_placebos(check: PlaceboCheck) -> RenderableType:
    """Whether unrelated sentences stayed within the margin, and what was measured."""
    if check.beyond == 0:
        found = f"all stay within δ; the largest effect is {check.largest:.2f} {check.unit}"
    else:
        found = f"{check.beyond} effects exceed δ, the largest is {check.largest:.2f} {check.unit}: widen the margin"
    n = len(check.sentences)
    lines = [
        Text(f"placebo check: {n} unrelated sentences, {len(check.targets)} targets: {found}"),
        Text(f"cost: {render_cost(check.cost)}", style="dim"),
    ]
    return Group(*lines)


def render_plan(plan: Plan) -> RenderableType:
    """What a run will do and cost."""
    lines = [Text(f"{plan.method} on {visible(plan.engine)}")]
    lines += [Text(f"  {step.name}: {step.calls:,} calls, about {step.tokens:,} tokens") for step in plan.steps]
    lines.append(Text(f"  in all {plan.calls:,} calls, at most {plan.maximum.calls:,}; USD {_money(plan.usd)}"))
    lines += [Text(f"  {visible(note)}") for note in plan.notes]
    return Group(*lines)


def render_cost(cost: Cost) -> str:
    """One line: calls, cache hits, tokens, money, time."""
    money = "" if cost.usd == 0 else f", USD {_money(cost.usd)}"
    return (
        f"{cost.calls:,} model calls, {cost.cache_hits:,} from the cache, "
        f"{cost.tokens_in + cost.tokens_out:,} tokens{money}, {cost.seconds:.1f} s"
    )


def visible(text: str) -> str:
    """``text`` on one line, with control characters, lone surrogates and bidi overrides replaced by U+FFFD."""
    flat = " ".join(text.split())
    return "".join(
        "\ufffd" if char in _BIDI_CONTROLS or unicodedata.category(char) in ("Cc", "Cs") else char for char in flat
    )


def _head(attribution: Attribution, trace: Trace | None) -> Iterator[Text]:
    when = f"  {trace.started:%Y-%m-%d %H:%M} UTC" if trace is not None and trace.started is not None else ""
    yield Text(f"trace {attribution.trace_id}{when}", style="dim")
    if trace is not None and trace.query:
        yield Text.assemble(("question  ", "bold"), visible(trace.query))


def _answer(attribution: Attribution) -> Text:
    line = Text.assemble(("answer    ", "bold"))
    for claim in attribution.claims:
        line.append(f"[{claim.index + 1}] ", style="cyan")
        line.append_text(_marked(attribution, claim.index))
        line.append(" ")
    return line


def _marked(attribution: Attribution, claim_index: int) -> Text:
    claim = attribution.claims[claim_index]
    text, position = Text(), claim.start
    for row in attribution.rows(TargetKind.PIVOT, claim=claim_index, reading="direct"):
        pivot = attribution.targets[row]
        text.append(_piece(attribution.response[position : pivot.start]))
        text.append(f"«{visible(pivot.text)}»", style="bold")
        position = pivot.end
    text.append(_piece(attribution.response[position : claim.end]))
    return text


def _piece(text: str) -> str:
    # Keeps the blanks at a piece's ends, which visible() would eat.
    inner = visible(text)
    return (" " if text[:1].isspace() and inner else "") + inner + (" " if text[-1:].isspace() else "")


def _claim(attribution: Attribution, index: int, rows: Sequence[int], top: int) -> Iterator[RenderableType]:
    yield Text.assemble((f"[{index + 1}] ", "bold cyan"), _marked(attribution, index))
    shown = [row for row in rows if attribution.targets[row].reading == "total"] or list(rows)
    pivots = [row for row in shown if attribution.targets[row].kind is TargetKind.PIVOT]
    for row in pivots:
        yield from _target(attribution, row, f"«{visible(attribution.targets[row].text)}»", top)
    for row in shown:
        if attribution.targets[row].kind is TargetKind.CLAIM:
            yield from _target(attribution, row, "the claim as a whole", top)
            if not pivots:
                yield _indent(Text("the context changes none of its words by much: the model says this anyway"))
    yield Text()


def _target(attribution: Attribution, row: int, name: str, top: int) -> Iterator[RenderableType]:
    full, closed = _percent(attribution.full[row]), _percent(attribution.closed_book[row])
    line = Text.assemble((name, "bold"), f"  {full} likely with the context, {closed} without")
    if attribution.is_known(row):
        line.append("  (the model knew it anyway)", style="yellow")
    yield _indent(line)
    if attribution.segments:
        yield _indent(_table(attribution, row, top), 4)


def _table(attribution: Attribution, row: int, top: int) -> Table:
    direct = attribution.direct_row(row) if attribution.targets[row].reading == "total" else None
    ways = {route.segment: route.claim for route in attribution.routes if route.target == row}
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for heading, width in (("effect", 7), ("interval", 14), ("drop", 7)):
        table.add_column(heading, justify="right", width=width, no_wrap=True)
    table.add_column("verdict", width=12, no_wrap=True)
    if direct is not None:
        table.add_column("given earlier claims", width=20, no_wrap=True)
    table.add_column("source", max_width=22, no_wrap=True, overflow="ellipsis")
    table.add_column("text", ratio=1, no_wrap=True, overflow="ellipsis")
    for place, column in enumerate(attribution.ranking(row)):
        verdict = Verdict(str(attribution.verdicts[row, column]))
        if place >= top and verdict in (Verdict.NO_EFFECT, Verdict.UNDETERMINED):
            continue
        segment = attribution.segments[column]
        way = f" by way of [{ways[column] + 1}]" if column in ways else ""
        table.add_row(
            _signed(attribution.effects[row, column]),
            _interval(attribution, row, column),
            _signed(attribution.drops[row, column]),
            Text(verdict.value, style=_STYLES[verdict]),
            *([] if direct is None else [Text(_signed(attribution.effects[direct, column]) + way)]),
            Text(_source(segment)),
            Text(visible(segment.text[:TEXT_WIDTH])),
        )
    return table


def _source(segment: Segment) -> str:
    named = segment.group_id if segment.group_id and segment.group_id != segment.id else None
    label = f"{segment.id} ({named})" if named else segment.id
    return visible(label if segment.kind.value == "retrieved" else f"{label} {segment.kind.value}")


def _said(attribution: Attribution) -> Iterator[Text]:
    for again in attribution.regenerated:
        if not again.removed:
            said = "gives this answer again" if again.same else f"says {_quote(again.text)}"
            yield Text(f"the unchanged prompt {said}")
        elif len(again.removed) == len(attribution.segments):
            yield Text(f"without any context the model says {_quote(again.text)}")
        else:
            names = ", ".join(visible(attribution.segments[column].id) for column in again.removed)
            said = "still gives this answer" if again.same else f"says {_quote(again.text)}"
            yield Text.assemble(f"without {names} ", (f"the model {said}", "bold"))


def _foot(attribution: Attribution) -> Text:
    deltas = sorted({f"{delta:.2g}" for delta in attribution.delta}, key=float)
    margin = deltas[0] if len(deltas) == 1 else f"{deltas[0]} to {deltas[-1]}"
    engine = visible(attribution.measured_on or "an unnamed engine")
    lines = [
        f"{attribution.method}: {attribution.estimand} effects in {attribution.unit}, {_how(attribution)}",
        f"margin δ {margin}; measured on {engine}; seed {attribution.seed}",
        *_quality(attribution),
        f"cost: {render_cost(attribution.cost)}",
    ]
    return Text("\n".join(lines), style="dim")


def _how(attribution: Attribution) -> str:
    if attribution.estimand == "drop":
        return "exact single deletions"
    if attribution.exact:
        return "exact over all subsets"
    return "sampled" if math.isnan(attribution.level) else f"sampled, {attribution.level:.0%} intervals"


def _quality(attribution: Attribution) -> Iterator[str]:
    """How well the effects predict and the engine reproduces, where that was measured."""
    parts = []
    if attribution.fit is not None and np.isfinite(attribution.fit.r2).any():
        r2, lds = np.nanmedian(attribution.fit.r2), np.nanmedian(attribution.fit.lds)
        parts.append(f"held-out fit over {attribution.fit.n_held_out} ablations: R² {r2:.2f}, LDS {lds:.2f} (medians)")
    if math.isfinite(attribution.noise_floor):
        parts.append(
            f"one prompt scored alone and in a batch differs by {attribution.noise_floor:.1g} {attribution.unit}"
        )
    if attribution.n_unfit:
        parts.append(f"{attribution.n_unfit} ablations were too long for the window")
    if parts:
        yield "; ".join(parts)


def _interval(attribution: Attribution, row: int, column: int) -> str:
    low, high = attribution.low[row, column], attribution.high[row, column]
    if math.isnan(low) or math.isnan(high):
        return "exact" if attribution.exact else "none"
    return f"{low:+.1f} to {high:+.1f}"


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.2f}"


def _percent(log_odds: float) -> str:
    if math.isnan(log_odds):
        return "unmeasured"
    share = 100 / (1 + math.exp(-log_odds))
    if share < 0.1:
        return "<0.1 %"
    return ">99.9 %" if share > 99.9 else f"{share:.1f} %"


def _money(usd: float) -> str:
    return "price unknown" if math.isnan(usd) else f"{usd:.4f}"


def _quote(text: str) -> str:
    flat = visible(text)
    return f"“{flat if len(flat) <= 200 else flat[:199] + '…'}”"


def _indent(renderable: RenderableType, by: int = 2) -> Padding:
    return Padding(renderable, (0, 0, 0, by))
