"""``attrkit report``: what was found about a run, as a file for others to read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from attr_core.cli._shared import DatabaseOption, size
from attr_core.errors import ConfigurationError, InputError

EXAMPLES = """
Examples:

  attrkit report last -o report.html

  attrkit report tr_1f0c --format markdown

  attrkit report last -o effects.csv
"""

FORMATS = {
    "html": (".html", ".htm"),
    "json": (".json",),
    "csv": (".csv",),
    "markdown": (".md", ".markdown"),
}
"""Each with the ends of file names that mean it."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A stored run with the results that a report is of."""

    trace: Any
    attribution: Any
    diagnosis: Any
    others: tuple[Any, ...]

    def written(self, form: str) -> str:
        """The report in that format."""
        if form == "html":
            from attr_core.reports.html import html_report

            return html_report(self.trace, self.attribution, self.diagnosis, others=self.others)
        if form == "json":
            from attr_core.reports.json import json_report

            return json_report(self.trace, self.attribution, self.diagnosis)
        if form == "csv":
            from attr_core.reports.csv import csv_report

            return csv_report(self.attribution, self.diagnosis)
        from attr_core.reports.markdown import markdown_report

        return markdown_report(self.trace, self.attribution, self.diagnosis)


def report(
    trace: Annotated[str, typer.Argument(help="Trace id (its first characters will do) or 'last'.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; default standard output.")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="html, json, csv or markdown; default by the file's name, else html.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", help="Which model call of the run, from 1; default the one that answered.")
    ] = None,
    db: DatabaseOption = None,
) -> None:
    """Write what was found about a run: one HTML file that needs no network, or JSON, CSV or Markdown."""
    form = _format(format_, out)
    if out is None and form == "html" and sys.stdout.isatty():
        raise ConfigurationError("HTML is for a browser, not a terminal; add -o report.html, or --format markdown")
    found = _subject(trace, db, step=step)
    _write(found.written(form), out)
    if out is not None:
        typer.echo(f"wrote {out} ({size(out.stat().st_size)})")
    if found.attribution is None and found.diagnosis is None:
        name = found.trace.id
        typer.echo(f"nothing was measured of {name} yet: attrkit inspect {name}, attrkit diagnose {name}", err=True)


def _subject(identifier: str, db: Path | None, *, step: int | None) -> _Run:
    """What the identifier names; a run of an evaluation set is to be looked for here too, before a trace."""
    from attr_core.store import Store

    with Store(db) as store:
        trace = store.last() if identifier == "last" else store.get(identifier)
        attributions = store.attributions(trace.id, skip_damaged=True)
        diagnoses = store.diagnoses(trace.id, skip_damaged=True)
    wanted = _generation(
        trace, step, [*(one.generation_id for one in attributions), *(one.generation_id for one in diagnoses)]
    )
    mine = [one for one in attributions if one.generation_id == wanted]
    of_claims = [one for one in mine if any(target.claim is not None for target in one.targets)]
    diagnosis = next((one for one in reversed(diagnoses) if one.generation_id == wanted), None)
    attribution = next(iter([*reversed(of_claims), *reversed(mine)]), None)
    others = tuple(one for one in attributions if one.generation_id != wanted)
    return _Run(trace, attribution, diagnosis, others)


def _generation(trace: Any, step: int | None, known: list[str]) -> Any:
    """Id of the model call: the step's, else the answer's, or where nothing is known of that, the last looked at."""
    n = len(trace.generations)
    if step is not None:
        if not 1 <= step <= n:
            raise InputError(f"step {step} does not exist; trace {trace.id} has {n} model call{'s' * (n != 1)}")
        return str(trace.generations[step - 1].id)
    answered = trace.target_generation.id if n else None
    return answered if answered in known or not known else known[-1]


def _format(name: str | None, out: Path | None) -> str:
    if name is not None:
        if name not in FORMATS:
            raise ConfigurationError(f"format {name!r} is unknown; choose {', '.join(FORMATS)}")
        return name
    if out is None or not out.suffix:
        return "html"
    found = next((form for form, suffixes in FORMATS.items() if out.suffix.lower() in suffixes), None)
    if found is None:
        raise ConfigurationError(f"{out.name!r} does not tell the format; add --format with {', '.join(FORMATS)}")
    return found


def _write(text: str, out: Path | None) -> None:
    data = text.encode("utf-8", errors="replace")
    if out is None:
        typer.get_binary_stream("stdout").write(data)
        return
    try:
        out.write_bytes(data)
    except OSError as error:
        raise ConfigurationError(f"{str(out)!r} cannot be written: {error.strerror}; name another file") from error
