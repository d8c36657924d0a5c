"""A diagnosis as text for a terminal: the headline, what was seen, the proof, what to do; all as inert text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attr_core.reports._words import cropped, quoted, visible
from attr_core.reports.costs import render_cost
from attr_core.results import Diagnosis

__all__ = ["render_diagnosis", "render_replay"]

QUESTION_WIDTH = 300
CLAIM_WIDTH = 70
MAX_SAID = 3
"""Different answers that are shown of each side of a proof."""

_GOOD = frozenset({"ok", "correct_abstention"})


def render_diagnosis(diagnosis: Diagnosis) -> RenderableType:
    """What happened, to whom it is due, how that was proved, and what it cost."""
    style = (
        "bold green" if diagnosis.label in _GOOD else "bold yellow" if diagnosis.label == "inconclusive" else "bold red"
    )
    parts: list[RenderableType] = [Text(f"{diagnosis.label}: {visible(diagnosis.headline)}", style=style), Text()]
    parts += [Text(line) for line in _said(diagnosis)]
    parts += [Text(), Text("evidence", style="bold")]
    parts += [_indented(visible(line)) for line in diagnosis.evidence]
    parts += [Text(f"confidence {_share(diagnosis)}")] if math.isfinite(diagnosis.confidence) else []
    if diagnosis.proof is not None:
        parts += [Text(), Text("proof", style="bold"), *(_indented(line) for line in _proof(diagnosis.proof))]
    if diagnosis.fixes:
        parts += [Text(), Text("what to do", style="bold"), *(_indented(fix) for fix in diagnosis.fixes)]
    if diagnosis.secondary:
        parts.append(Text(f"also applies: {', '.join(diagnosis.secondary)}"))
    if rows := list(_cells(diagnosis.grid)):
        parts += [Text(), _table(rows)]
    if conflicts := list(_conflicts(diagnosis)):
        parts += [Text(), Text("conflicts", style="bold"), *(_indented(line) for line in conflicts)]
    if diagnosis.scores:
        parts += [Text(), Text("metrics", style="bold"), *map(_indented, _metrics(diagnosis))]
    parts += [Text(f"note: {visible(note)}", style="yellow") for note in diagnosis.notes]
    parts.append(Text(_foot(diagnosis), style="dim"))
    return Group(*parts)


def render_replay(replay: Any) -> RenderableType:
    """Whether a proof still holds, and what was said now."""
    verdict = "holds" if replay.holds else "does not hold any more"
    lines: list[RenderableType] = [
        Text(f"{replay.diagnosis.label}: the proof {verdict}", style="bold green" if replay.holds else "bold red")
    ]
    for name, trials in (("changed", replay.changed), ("unchanged", replay.unchanged)):
        lines.append(Text(f"{name} prompt: right in {trials.n_repaired} of {trials.n} runs"))
        lines += [
            _indented(quoted(cropped(visible(text), QUESTION_WIDTH))) for text in dict.fromkeys(trials.texts[:MAX_SAID])
        ]
    return Group(*lines, Text(f"cost: {render_cost(replay.cost)}", style="dim"))


def _said(diagnosis: Diagnosis) -> Iterator[str]:
    pairs = (("question", diagnosis.question), ("answer", diagnosis.answer), ("expected", diagnosis.expected))
    for name, text in pairs:
        if text:
            yield f"{name:10s}{cropped(visible(' '.join(text.split())), QUESTION_WIDTH)}"
    yield f"{'outcome':10s}{diagnosis.outcome}"


def _proof(proof: Mapping[str, Any]) -> Iterator[str]:
    change = proof["intervention"]
    if removed := change.get("remove"):
        yield f"without {', '.join(visible(one) for one in removed)}:"
    elif "order" in change:
        yield f"in the order {', '.join(visible(one) for one in change['order'])}:"
    elif change.get("question"):
        yield f"asked {quoted(visible(change['question']))} instead:"
    else:
        yield "the unchanged prompt, run again:"
    sides = ("changed", "unchanged") if change != {"remove": []} else ("unchanged",)
    for side in sides:
        runs = proof[side]
        if side == "unchanged" and len(sides) > 1:
            yield "with the unchanged prompt:"
        for said in runs["said"][:MAX_SAID]:
            text = quoted(cropped(visible(" ".join(said["text"].split())), QUESTION_WIDTH))
            yield f"  {said['outcome']} in {said['runs']} of {runs['runs']}: {text}"
    if proof.get("p_value") is not None:
        yield f"p = {proof['p_value']:.4f} if the change made no difference"
    elif proof.get("reproducible"):
        yield "the engine reproduces itself: one run is all runs"


def _share(diagnosis: Diagnosis) -> str:
    """Two digits, and no certainty where an engine was only asked some times."""
    is_sure = bool((diagnosis.proof or {}).get("reproducible"))
    return "> 0.99" if diagnosis.confidence > 0.99 and not is_sure else f"{diagnosis.confidence:.2f}"


def _cells(grid: Mapping[str, Any] | None) -> Iterator[tuple[str, str, str, str]]:
    for row in (grid or {}).get("rows", ()):
        if row["cell"] == "neither":
            continue
        cited = "post-hoc" if row.get("post_hoc") else "cited" if row.get("cited") else ""
        yield visible(row["claim"]), visible(row["segment"]), row["cell"], cited


def _table(rows: list[tuple[str, str, str, str]]) -> Table:
    table = Table("claim", "segment", "cause × support", "citation", box=None, pad_edge=False, title_justify="left")
    for claim, segment, cell, cited in rows:
        table.add_row(Text(cropped(claim, CLAIM_WIDTH)), Text(segment), Text(cell), Text(cited))
    return table


def _conflicts(diagnosis: Diagnosis) -> Iterator[str]:
    for one in diagnosis.conflicts:
        yield f"{visible(one['first'])} and {visible(one['second'])} contradict each other"


def _metrics(diagnosis: Diagnosis) -> Iterator[str]:
    """Those with a value, then the names of the others by their reason."""
    missing: dict[str, list[str]] = {}
    for score in diagnosis.scores:
        if score["value"] is None:
            missing.setdefault(score["reason"], []).append(score["name"])
        else:
            yield f"{score['name']}: {score['value']:.2f} ({score['n']} of {score['of']} judged)"
    for reason, names in missing.items():
        yield f"N/A, {visible(reason)}: {', '.join(names)}"


def _foot(diagnosis: Diagnosis) -> str:
    judge = diagnosis.judge or "nobody"
    spoke = f"judged by {judge}" if diagnosis.judged_by == "judged" else f"no judge has spoken; evidence from {judge}"
    ran = f"; {diagnosis.n_runs} runs of the prompt on {diagnosis.measured_on}" if diagnosis.n_runs else ""
    return f"trace {diagnosis.trace_id}; {spoke}{ran}; cost: {render_cost(diagnosis.cost)}"


def _indented(line: str) -> Padding:
    return Padding(Text(line), (0, 0, 0, 2))
