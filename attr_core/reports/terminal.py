"""An attribution as text for a terminal, by rich; everything a model or document wrote is shown as inert text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attr_core.attribution import Attribution, probability
from attr_core.carried import Way, carried
from attr_core.reports._rows import Rows
from attr_core.reports._together import shares_of, together_lines
from attr_core.reports._ways import way_lines
from attr_core.reports._words import (
    cropped,
    is_answer,
    is_call,
    made_of,
    origins_of,
    place_name,
    quoted,
    segment_name,
    step_shown,
    value_name,
    visible,
)
from attr_core.reports.costs import render_cost
from attr_core.results import PlaceboCheck, Verdict
from attr_core.types import Claim, TargetKind, Trace

__all__ = ["render_attribution", "render_placebos", "visible"]

_FOR = frozenset({Verdict.DRIVES.value, Verdict.HELPFUL.value, Verdict.SUPPORTS.value})
_AGAINST = frozenset({Verdict.OPPOSES.value, Verdict.HARMFUL.value, Verdict.UNDERMINES.value})

HEADING_WIDTH = 10

QUESTION_WIDTH = 300
"""Characters of the question that are shown."""

TINY = -6.9
"""Log-odds of a probability of 0.1 %."""

MAX_NAMED = 5
"""Most segments that the overview names for one target."""

MAX_TOLD = 6
"""Most targets of one claim that the overview names."""

TARGET_WIDTH = 80
"""Characters of a target's text in the overview."""


def render_attribution(
    attribution: Attribution, trace: Trace | None = None, *, top: int = 3, others: Sequence[Attribution] = ()
) -> RenderableType:
    """The answer with its claims numbered, what caused each, and what it cost.

    Parameters
    ----------
    attribution : Attribution
    trace : Trace, optional
        For the question, the time, which step of the run this is, and where segments came from.
    top : int, default 3
        Segments shown for each target, besides all that drive or oppose it.
    others : sequence of Attribution
        Of other steps of the run, for what drove the texts that came from there.
    """
    ways = () if trace is None else carried(attribution, trace, others)
    view = _View(attribution, origins_of(attribution, trace), is_answer(attribution, trace), top, ways)
    parts: list[RenderableType] = [*_head(attribution, trace), _answer(view), *_causes(view), Text()]
    for claim in attribution.claims:
        rows = attribution.rows(claim=claim.index)
        if rows:
            parts += _claim(view, claim.index, rows)
    for row in attribution.rows(TargetKind.SPAN):
        target = attribution.targets[row]
        is_shown = target.claim is not None and is_call(attribution.claims[target.claim])
        if not is_shown and (target.reading == "total" or not _has_total(attribution, row)):
            parts += [*_target(view, row, f"span {quoted(target.text)}"), Text()]
    for row in attribution.rows(TargetKind.REFERENCE):
        parts += [*_contrast(view, row), Text()]
    if len(attribution.claims) > 1:
        for row in attribution.rows(TargetKind.RESPONSE):
            parts += [*_target(view, row, "the whole response"), Text()]
    parts += _said(view)
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


@dataclass(frozen=True, slots=True)
class _View:
    """An attribution and how it is to be shown: where segments, by id, came from, and whether it is the answer's."""

    attribution: Attribution
    origins: Mapping[str, str]
    is_answer: bool
    top: int
    ways: tuple[Way, ...]


def _head(attribution: Attribution, trace: Trace | None) -> Iterator[RenderableType]:
    if attribution.partial:
        yield Text("PARTIAL: the run was interrupted; run it again, and it goes on from here", style="bold yellow")
    when = f"  {trace.started:%Y-%m-%d %H:%M} UTC" if trace is not None and trace.started is not None else ""
    yield Text(f"trace {visible(attribution.trace_id)}{when}", style="dim")
    if trace is not None and (question := _question(attribution, trace)):
        yield _headed("question", question)
    if context := made_of(attribution.segments):
        yield _headed("context", context)
    if shown := step_shown(attribution, trace):
        yield Text.assemble((f"{shown[0]}: ", "bold"), shown[1])


def _question(attribution: Attribution, trace: Trace) -> str:
    """What is fixed of the last user turn, else the trace's query; cropped."""
    generation = next((g for g in trace.generations if g.id == attribution.generation_id), None)
    fixed = [] if generation is None else [s.text for s in generation.segments if s.fixed]
    return cropped(fixed[-1] if fixed else trace.query or "", QUESTION_WIDTH)


def _causes(view: _View) -> Iterator[RenderableType]:
    """A line a claim: which segments drive, and which oppose, each of its pivots (the claim itself if it has none).

    Of a tool call, each of its values.
    """
    attribution, heading = view.attribution, "support" if _is_support(view.attribution) else "causes"
    for claim in attribution.claims:
        rows = attribution.rows(claim=claim.index, reading="total") or attribution.rows(claim=claim.index)
        claims = [row for row in rows if attribution.targets[row].kind is TargetKind.CLAIM]
        if attribution.segments and claims:
            parts = _parts(attribution, claim, rows) or claims
            told = [(_part_name(attribution, row, TARGET_WIDTH), _cause(view, row)) for row in parts]
            more = [f"and {len(told) - MAX_TOLD} more"] if len(told) > MAX_TOLD else []
            alike = groupby(told[:MAX_TOLD], key=lambda pair: pair[1])
            causes = [f"{', '.join(name for name, _ in run)} {cause}".lstrip() for cause, run in alike]
            line = " · ".join([*causes, *more])
            yield _headed(heading, Text.assemble((f"[{claim.index + 1}] ", "cyan"), line))
            heading = ""


def _is_support(attribution: Attribution) -> bool:
    """Whether it says what the context supports, and nothing of causes."""
    return attribution.method.startswith("Faithfulness ")


def _parts(attribution: Attribution, claim: Claim, rows: Sequence[int]) -> list[int]:
    """Of a claim's rows those of its pivots, or of a tool call's values where it has any."""
    values, pivots = (
        [row for row in rows if attribution.targets[row].kind is kind] for kind in (TargetKind.SPAN, TargetKind.PIVOT)
    )
    return (values if is_call(claim) else []) or pivots


def _cause(view: _View, row: int) -> str:
    attribution = view.attribution
    driving, opposing = (_named(view, row, verdicts) for verdicts in (_FOR, _AGAINST))
    parts = [*([f"from {driving}"] if driving else []), *([f"against {opposing}"] if opposing else [])]
    if not parts and Verdict.UNDETERMINED.value in attribution.verdicts[row]:
        first = attribution.ranking(row)[0]
        is_ranked = not math.isnan(attribution.effects[row, first])
        parts = [f"undetermined{f', {segment_name(attribution.segments[first])} ranks first' if is_ranked else ''}"]
    return ", ".join(parts) or "from none in particular"


def _part_name(attribution: Attribution, row: int, width: int) -> str:
    """A pivot in quotes, a tool call's value with its key; nothing for the claim as a whole."""
    target = attribution.targets[row]
    if target.kind is TargetKind.CLAIM:
        return ""
    key = f"{value_name(attribution, target)} " if target.kind is TargetKind.SPAN else ""
    return f"{key}«{cropped(target.text, width)}»"


def _named(view: _View, row: int, verdicts: frozenset[str]) -> str:
    """The segments of those verdicts, the largest effect first; neighbours from one place share its mention."""
    attribution = view.attribution
    found = np.flatnonzero(np.isin(attribution.verdicts[row], list(verdicts))).tolist()
    found.sort(key=lambda column: -abs(attribution.effects[row, column]))
    named = [attribution.segments[column] for column in found[:MAX_NAMED]]
    parts = []
    for place, run in groupby(named, key=lambda segment: place_name(segment, view.origins.get(segment.id, ""))):
        names = ", ".join(segment_name(segment) for segment in run)
        parts.append(f"{names} ({place})" if place else names)
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return ", ".join(parts) + more


def _has_total(attribution: Attribution, row: int) -> bool:
    return replace(attribution.targets[row], reading="total") in attribution.targets


def _answer(view: _View) -> RenderableType:
    attribution, line = view.attribution, Text()
    for claim in attribution.claims:
        if is_call(claim) and claim.index:
            line.append("\n")
        line.append(f"[{claim.index + 1}] ", style="cyan")
        line.append_text(_marked(attribution, claim.index))
        line.append(" ")
    return _headed("answer" if view.is_answer else "wrote", line)


def _marked(attribution: Attribution, claim_index: int) -> Text:
    claim = attribution.claims[claim_index]
    rows = _parts(attribution, claim, attribution.rows(claim=claim_index, reading="direct"))
    text, position = Text(), claim.start
    for part in sorted((attribution.targets[row] for row in rows), key=lambda part: (part.start, -part.end)):
        if part.start >= position:  # a span that was named may lie in a value
            text.append(_piece(attribution.response[position : part.start]))
            text.append(f"«{visible(part.text)}»", style="bold")
            position = part.end
    text.append(_piece(attribution.response[position : claim.end]))
    return text


def _piece(text: str) -> str:
    # Keeps the blanks at a piece's ends, which visible() would eat.
    inner = visible(text)
    return (" " if text[:1].isspace() and inner else "") + inner + (" " if text[-1:].isspace() else "")


def _claim(view: _View, index: int, rows: Sequence[int]) -> Iterator[RenderableType]:
    attribution, is_called = view.attribution, is_call(view.attribution.claims[index])
    yield Text.assemble((f"[{index + 1}] ", "bold cyan"), _marked(attribution, index))
    shown = [row for row in rows if attribution.targets[row].reading == "total"] or list(rows)
    pivots = [row for row in shown if attribution.targets[row].kind is TargetKind.PIVOT]
    for row in _in_order(attribution, shown) if is_called else pivots:
        yield from _target(view, row, _part_name(attribution, row, QUESTION_WIDTH), is_brief=is_called)
    for row in shown:
        if attribution.targets[row].kind is TargetKind.CLAIM:
            name = "the call as a whole" if is_called else "the claim as a whole"
            yield from _target(view, row, name, is_brief=is_called)
            is_known = attribution.is_known(row) and not _named(view, row, _FOR | _AGAINST)
            if is_known and not pivots and not is_called:
                yield _indent(Text("the context changes none of its words by much: the model says this anyway"))
    yield Text()


def _in_order(attribution: Attribution, rows: Sequence[int]) -> list[int]:
    """Each value of a tool call and then the pivots in it."""
    values = [row for row in rows if attribution.targets[row].kind is TargetKind.SPAN]
    pivots = [row for row in rows if attribution.targets[row].kind is TargetKind.PIVOT]
    ordered: list[int] = []
    for row in values:
        value = attribution.targets[row]
        inside = [p for p in pivots if value.start <= attribution.targets[p].start < value.end and p not in ordered]
        ordered += [row, *inside]
    return [*ordered, *(pivot for pivot in pivots if pivot not in ordered)]


def _target(view: _View, row: int, name: str, *, is_brief: bool = False) -> Iterator[RenderableType]:
    """A target and its segments, or with ``is_brief`` that none has an effect where none has."""
    attribution = view.attribution
    line = Text.assemble((name, "bold"), f"  {_value(attribution, row)}")
    if attribution.is_known(row):
        line.append("  (the model knew it anyway)", style="yellow")
    yield _indent(line)
    if is_brief and attribution.segments and (attribution.verdicts[row] == Verdict.NO_EFFECT.value).all():
        yield _indent(Text("no segment has an effect beyond δ", style="dim"), 4)
    elif attribution.segments:
        yield _indent(Rows(attribution, row, view.top, view.origins), 4)
        for told in (*together_lines(attribution, row), *way_lines(attribution, view.ways, row)):
            yield _indent(Text(told), 4)


def _contrast(view: _View, row: int) -> Iterator[RenderableType]:
    """The expected answer, or another, against the recorded one: how far the context leads to it, and each segment."""
    attribution = view.attribution
    full, empty = attribution.full[row], attribution.closed_book[row]
    told = f"{full:+.1f} {attribution.unit} over what was answered with the context, {empty:+.1f} without"
    told = told if attribution.unit == "nats" else _value(attribution, row)
    name = "instead " if "[instead]" in attribution.method else "expected "
    yield Text.assemble((name, "bold"), f"{quoted(attribution.targets[row].text)}  {told}")
    if attribution.segments:
        yield _indent(Rows(attribution, row, view.top, view.origins), 4)
        for told in together_lines(attribution, row):
            yield _indent(Text(told), 4)


def _said(view: _View) -> Iterator[Text]:
    attribution, what = view.attribution, "this answer" if view.is_answer else "this"
    for again in attribution.regenerated:
        if not again.removed:
            said = f"gives {what} again" if again.same else f"says {quoted(again.text)}"
            yield Text(f"the unchanged prompt {said}")
        elif len(again.removed) == len(attribution.segments):
            yield Text(f"without any context the model says {quoted(again.text)}")
        else:
            names = ", ".join(segment_name(attribution.segments[column]) for column in again.removed)
            said = f"still gives {what}" if again.same else f"says {quoted(again.text)}"
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
    if attribution.agreement is not None and np.isfinite(attribution.agreement).any():
        parts.append(f"hiding stands for deleting by {shares_of(attribution.agreement)}")
    if math.isfinite(attribution.noise_floor):
        is_scored = attribution.unit == "nats"
        again = "one prompt scored alone and in a batch differs" if is_scored else "answers to the same prompt differ"
        again = "the judge's repeats differ" if _is_support(attribution) else again
        parts.append(f"{again} by {attribution.noise_floor:.1g} {attribution.unit}")
    if attribution.n_unfit:
        parts.append(f"{attribution.n_unfit} ablations were too long for the window")
    if parts:
        yield "; ".join(parts)


def _value(attribution: Attribution, row: int) -> str:
    """What the target's value is with the whole context and with none."""
    full, closed_book = attribution.full[row], attribution.closed_book[row]
    if attribution.unit == "nats":
        return _likely(full, closed_book)
    told = "unmeasured" if math.isnan(full) else f"{full:.2f}"
    return f"{attribution.unit} {told} with the context, {closed_book:.2f} without"


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


def _headed(heading: str, text: str | Text) -> Table:
    """``text`` beside a heading, its further lines too."""
    grid = Table.grid(expand=True)
    grid.add_column(width=HEADING_WIDTH, style="bold")
    grid.add_column(ratio=1)
    grid.add_row(heading, Text(text) if isinstance(text, str) else text)
    return grid


def _indent(renderable: RenderableType, by: int = 2) -> Padding:
    return Padding(renderable, (0, 0, 0, by))
