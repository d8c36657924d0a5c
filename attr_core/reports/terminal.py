"""An attribution as text for a terminal, by rich; everything a model or document wrote is shown as inert text."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attr_core.attribution import Attribution, probability
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

_FOR = frozenset({Verdict.DRIVES.value, Verdict.HELPFUL.value})
_AGAINST = frozenset({Verdict.OPPOSES.value, Verdict.HARMFUL.value})

QUESTION_WIDTH = 300
"""Characters of the question that are shown."""

TINY = -6.9
"""Log-odds of a probability of 0.1 %."""

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
    parts: list[RenderableType] = [*_head(attribution, trace), _answer(attribution), *_causes(attribution), Text()]
    for claim in attribution.claims:
        rows = attribution.rows(claim=claim.index)
        if rows:
            parts += _claim(attribution, claim.index, rows, top)
    for row in attribution.rows(TargetKind.SPAN):
        if attribution.targets[row].reading == "total" or not _has_total(attribution, row):
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
    if trace is not None and (question := _question(attribution, trace)):
        yield Text.assemble(("question  ", "bold"), question)


def _question(attribution: Attribution, trace: Trace) -> str:
    """What is fixed of the last user turn, else the trace's query; cropped."""
    generation = next((g for g in trace.generations if g.id == attribution.generation_id), None)
    fixed = [] if generation is None else [s.text for s in generation.segments if s.fixed]
    text = visible(fixed[-1] if fixed else trace.query or "")
    return text if len(text) <= QUESTION_WIDTH else text[: QUESTION_WIDTH - 1] + "…"


def _causes(attribution: Attribution) -> Iterator[Text]:
    """A line a claim: which segments drive, and which oppose, each of its pivots (the claim itself if it has none)."""
    heading = "causes    "
    for claim in attribution.claims:
        rows = attribution.rows(claim=claim.index, reading="total") or attribution.rows(claim=claim.index)
        pivots = [row for row in rows if attribution.targets[row].kind is TargetKind.PIVOT]
        claims = [row for row in rows if attribution.targets[row].kind is TargetKind.CLAIM]
        if attribution.segments and claims:
            told = " · ".join(_cause(attribution, row) for row in pivots or claims)
            yield Text.assemble((heading, "bold"), (f"[{claim.index + 1}] ", "cyan"), told)
            heading = " " * len(heading)


def _cause(attribution: Attribution, row: int) -> str:
    target = attribution.targets[row]
    name = f"«{visible(target.text)}» " if target.kind is TargetKind.PIVOT else ""
    driving, opposing = (_named(attribution, row, verdicts) for verdicts in (_FOR, _AGAINST))
    parts = [*([f"from {driving}"] if driving else []), *([f"against {opposing}"] if opposing else [])]
    if not parts and Verdict.UNDETERMINED.value in attribution.verdicts[row]:
        first = attribution.ranking(row)[0]
        is_ranked = not math.isnan(attribution.effects[row, first])
        parts = [f"undetermined{f', {visible(attribution.segments[first].id)} ranks first' if is_ranked else ''}"]
    return name + (", ".join(parts) or "from none in particular")


def _named(attribution: Attribution, row: int, verdicts: frozenset[str]) -> str:
    found = np.flatnonzero(np.isin(attribution.verdicts[row], list(verdicts)))
    return ", ".join(visible(attribution.segments[column].id) for column in found)


def _has_total(attribution: Attribution, row: int) -> bool:
    return replace(attribution.targets[row], reading="total") in attribution.targets


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
            if not pivots and attribution.is_known(row) and not _named(attribution, row, _FOR | _AGAINST):
                yield _indent(Text("the context changes none of its words by much: the model says this anyway"))
    yield Text()


def _target(attribution: Attribution, row: int, name: str, top: int) -> Iterator[RenderableType]:
    line = Text.assemble((name, "bold"), f"  {_likely(attribution.full[row], attribution.closed_book[row])}")
    if attribution.is_known(row):
        line.append("  (the model knew it anyway)", style="yellow")
    yield _indent(line)
    if attribution.segments:
        yield _indent(_table(attribution, row, top), 4)


def _table(attribution: Attribution, row: int, top: int) -> Table:
    direct = attribution.direct_row(row) if attribution.targets[row].reading == "total" else None
    ways = {route.segment: route.claim for route in attribution.routes if route.target == row}
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    sampled = bool(np.isfinite(attribution.low[row]).any())
    for heading, width in (("effect", 7), *([("interval", 14)] if sampled else []), ("drop", 7)):
        table.add_column(heading, justify="right", width=width, no_wrap=True)
    table.add_column("verdict", width=12, no_wrap=True)
    if direct is not None:
        table.add_column("given earlier", width=18, no_wrap=True)
    table.add_column("source", max_width=22, no_wrap=True, overflow="ellipsis")
    table.add_column("text", ratio=1, no_wrap=True, overflow="ellipsis")
    for place, column in enumerate(attribution.ranking(row)):
        verdict = Verdict(str(attribution.verdicts[row, column]))
        if place >= top and verdict in (Verdict.NO_EFFECT, Verdict.UNDETERMINED):
            continue
        segment = attribution.segments[column]
        way = f" by way [{ways[column] + 1}]" if column in ways else ""
        table.add_row(
            _signed(attribution.effects[row, column]),
            *([_interval(attribution, row, column)] if sampled else []),
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
        f"{attribution.method}: {attribution.estimand.capitalize()} effects in {attribution.unit}, {_how(attribution)}",
        f"margin δ {margin}; measured on {engine}; seed {attribution.seed}",
        *_quality(attribution),
        f"cost: {render_cost(attribution.cost)}",
    ]
    return Text("\n".join(lines), style="dim")


def _how(attribution: Attribution) -> str:
    if attribution.estimand == "drop":
        return "exact single deletions; ranks only, no verdicts"
    if attribution.exact:
        return "exact over all subsets"
    if math.isnan(attribution.level):
        return "sampled; ranks only, no verdicts"
    return f"sampled, {attribution.level:.0%} intervals"


def _quality(attribution: Attribution) -> Iterator[str]:
    """How well the effects predict and the engine reproduces, where that was measured."""
    parts = []
    if attribution.fit is not None and np.isfinite(attribution.fit.r2).any() and np.isfinite(attribution.fit.lds).any():
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
        return "–"
    return f"{low:+.1f} to {high:+.1f}"


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.2f}"


def _likely(full: float, closed_book: float) -> str:
    """Both probabilities, or where both are tiny (long texts are) the difference in nats."""
    if max(full, closed_book) < TINY and math.isfinite(full):
        return f"{full - closed_book:+.1f} nats of log-odds with the context"
    if math.isnan(full):
        return f"unmeasured with all of the context, {_percent(closed_book)} likely without"
    return f"{_percent(full)} likely with the context, {_percent(closed_book)} without"


def _percent(log_odds: float) -> str:
    share = 100 * probability(log_odds)
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
