"""One run as Markdown, for an issue or a chat; texts of models and documents stay text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from attr_core.attribution import Attribution
from attr_core.reports._html import facts
from attr_core.reports._html.causes import ShownTarget, Sources, shown_target, target_rows
from attr_core.reports._html.claims import claims_shown
from attr_core.reports._words import cropped, origins_of
from attr_core.results import Diagnosis
from attr_core.types import Trace

__all__ = ["as_text", "markdown_report", "markdown_table"]

TEXT_WIDTH = 1_000
"""Characters of a text that are shown."""

CELL_WIDTH = 160

_SPECIAL = re.compile(r"([\\`*_\[\]|~#!$])")
_LEADING = re.compile(r"^(\d+)?(?=[-+=]|(?<=\d)[.)](?:\s|$))")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"})


def markdown_report(trace: Trace, attribution: Attribution | None = None, diagnosis: Diagnosis | None = None) -> str:
    """Question, answer, diagnosis with its proof, a table of causes for each target, metrics, how it was measured.

    Texts are on one line each and cropped; HTML, links, images, mentions and tables in them are shown as written.
    """
    lines = [*_head(trace, attribution, diagnosis)]
    if diagnosis is not None:
        lines += _diagnosed(diagnosis)
    if attribution is not None or diagnosis is not None:
        lines += _claims(trace, attribution, diagnosis)
    if diagnosis is not None and diagnosis.scores:
        rows = [(m.name, m.value, m.coverage, m.reason) for m in facts.metrics_of(diagnosis)]
        lines += ["## Metrics", "", *markdown_table(("metric", "value", "counted", "why"), rows), ""]
    lines += _measured(attribution, diagnosis)
    return "\n".join(lines).rstrip() + "\n"


def as_text(text: str, width: int = TEXT_WIDTH) -> str:
    """``text`` on one line, with every character that Markdown or HTML would act on escaped, at its start too."""
    return _LEADING.sub(r"\g<0>\\", _inline(text, width))


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table of texts, each cropped and escaped."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(_inline(cell, CELL_WIDTH) for cell in row)} |"


def _inline(text: str, width: int) -> str:
    return _SPECIAL.sub(r"\\\1", cropped(text[: 4 * width], width)).translate(_ENTITIES)


def _head(trace: Trace, attribution: Attribution | None, diagnosis: Diagnosis | None) -> Iterator[str]:
    answer = attribution.response if attribution is not None else (diagnosis.answer if diagnosis else trace.answer)
    question = (diagnosis.question if diagnosis else None) or trace.query
    expected = (diagnosis.expected if diagnosis else None) or trace.reference
    yield f"# attrkit report: {as_text(trace.id)}"
    yield ""
    for name, text in (("Question", question), ("Answer", answer), ("Expected", expected)):
        if text:
            yield f"**{name}:** {as_text(text)}"
            yield ""


def _diagnosed(diagnosis: Diagnosis) -> Iterator[str]:
    yield f"## {as_text(diagnosis.label)}: {as_text(diagnosis.headline)}"
    yield ""
    confidence = facts.confidence_of(diagnosis)
    yield f"Outcome: {as_text(diagnosis.outcome)}" + (f"; confidence {as_text(confidence)}" if confidence else "")
    yield ""
    for heading, told in (
        ("Evidence", diagnosis.evidence),
        ("What to do", diagnosis.fixes),
        ("Also applies", diagnosis.secondary),
        ("Conflicts", [f"{one['first']} and {one['second']} contradict each other" for one in diagnosis.conflicts]),
    ):
        if told:
            yield f"**{heading}**"
            yield ""
            yield from (f"- {as_text(line)}" for line in told)
            yield ""
    if (proof := facts.proof_of(diagnosis)) is not None:
        yield f"**Proof** {as_text(proof.certainty)}".rstrip()
        yield ""
        for side in proof.sides:
            yield f"- {as_text(side.name)}: {side.told}"
            yield from (
                f"  - {as_text(one['outcome'])} in {one['runs']}: “{as_text(one['text'])}”" for one in side.said
            )
        yield ""


def _claims(trace: Trace, attribution: Attribution | None, diagnosis: Diagnosis | None) -> Iterator[str]:
    answer = attribution.response if attribution is not None else diagnosis.answer if diagnosis is not None else ""
    sources = None if attribution is None else Sources(attribution, origins_of(attribution, trace))
    for claim in claims_shown(answer, attribution, diagnosis):
        yield f"## Claim {claim.number}: {as_text(claim.text, 300)}"
        yield ""
        if sources is not None and claim.index is not None:
            for row in target_rows(sources.attribution, claim.index):
                yield from _target(shown_target(sources, row))
        for statement in claim.statements:
            told = [
                (segment, row["cell"], row["support"], "cited" if row.get("cited") else "")
                for segment, row in statement.rows.items()
                if row["cell"] != "neither" or row["support"] != "neutral" or row.get("cited")
            ]
            if told:
                if statement.text != claim.text:
                    yield f"Of “{as_text(statement.text, 300)}”:"
                    yield ""
                yield from markdown_table(("segment", "cause × support", "support", "citation"), told)
                yield ""


def _target(target: ShownTarget) -> Iterator[str]:
    name = f"{target.name} “{target.quote}”".strip() if target.quote else target.name
    yield f"**{as_text(name, 300)}**: {as_text(target.value)}" + (" (the model knew it anyway)" * target.is_known)
    yield ""
    rows = [(cause.name, cause.effect, cause.interval or "–", cause.drop, cause.verdict) for cause in target.causes]
    if rows:
        yield from markdown_table(("segment", "effect", "interval", "drop", "verdict"), rows)
        yield ""
    for line in target.lines:
        yield as_text(line)
        yield ""


def _measured(attribution: Attribution | None, diagnosis: Diagnosis | None) -> Iterator[str]:
    told = [
        *(() if attribution is None else facts.method_of(attribution)),
        *(() if diagnosis is None else facts.examination_of(diagnosis)),
        *(("warning", warning) for warning in (() if attribution is None else attribution.warnings)),
        *(("note", note) for note in (() if diagnosis is None else diagnosis.notes)),
    ]
    yield "## How it was measured"
    yield ""
    yield from (f"- {name}: {as_text(value)}" for name, value in told or [("measured", "nothing yet")])
