"""``attrkit report``: what was found about a run, or a whole evaluation set, as a file for others to read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from attr_core.cli._shared import DatabaseOption, size
from attr_core.errors import ConfigurationError, InputError, StoreError, TraceNotFoundError

EXAMPLES = """
Examples:

  attrkit report last -o report.html

  attrkit report tr_1f0c --format markdown

  attrkit report last -o effects.csv

  attrkit report nightly -o set.html        (a run of attrkit eval, by its name or id)
"""

FORMATS = {
    "html": (".html", ".htm"),
    "json": (".json",),
    "csv": (".csv",),
    "markdown": (".md", ".markdown"),
}
"""Each with the ends of file names that mean it."""


class _Subject(Protocol):
    """What a report is of."""

    @property
    def untold(self) -> str:
        """What is missing and how to get it; empty where nothing is."""

    def written(self, form: str) -> str:
        """The report in that format."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A stored run with the results that a report is of."""

    trace: Any
    attribution: Any
    diagnosis: Any
    others: tuple[Any, ...]

    @property
    def untold(self) -> str:
        """Nothing, where anything was measured."""
        if self.attribution is not None or self.diagnosis is not None:
            return ""
        name = self.trace.id
        return f"nothing was measured of {name} yet: attrkit inspect {name}, attrkit diagnose {name}"

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


@dataclass(frozen=True, slots=True)
class _Set:
    """A stored run over an evaluation set."""

    run: Any

    @property
    def untold(self) -> str:
        """Nothing, where any answer was judged."""
        if any(row.diagnosis is not None for row in self.run.rows):
            return ""
        told = "attrkit eval with the same settings goes on, with --retry-failed at rows that failed too"
        return f"no answer of run {self.run.name} was judged yet: {told}"

    def written(self, form: str) -> str:
        """The report in that format."""
        if form == "html":
            from attr_core.reports.set_html import html_set_report

            return html_set_report(self.run)
        from attr_core.reports import set_formats

        write = {
            "json": set_formats.json_set_report,
            "csv": set_formats.csv_set_report,
            "markdown": set_formats.markdown_set_report,
        }[form]
        return write(self.run)


def report(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="TRACE|RUN",
            help="Trace id or 'last', or name or id of a run of attrkit eval; an id's first characters will do.",
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; default standard output.")] = None,
    format_: Annotated[
        str | None, typer.Option("--format", help="html, json, csv or markdown; default by the file's name, else html.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", help="Which model call of the run, from 1; default the one that answered.")
    ] = None,
    db: DatabaseOption = None,
) -> None:
    """Write what was found about a run or an evaluation: one HTML file that needs no network, JSON, CSV or Markdown."""
    form = _format(format_, out)
    if out is None and form == "html" and sys.stdout.isatty():
        raise ConfigurationError("HTML is for a browser, not a terminal; add -o report.html, or --format markdown")
    found = _subject(subject, db, step=step)
    _write(found.written(form), out)
    if out is not None:
        typer.echo(f"wrote {out} ({size(out.stat().st_size)})")
    if found.untold:
        _note(found.untold)


def _subject(name: str, db: Path | None, *, step: int | None) -> _Subject:
    """What the name is of: the trace of that id, the run of that name or id, or what alone begins so."""
    from attr_core.store import Store

    with Store(db) as store:
        if name == "last":
            return _run_of(store, store.last(), step)
        run, why_none = _stored_run(name, db)
        is_named = run is not None and name in (run.name, run.id)
        try:
            trace = store.get(name)
        except TraceNotFoundError as error:
            if run is None:
                raise TraceNotFoundError(f"{error}; {why_none}") from error
            return _set_of(run, db, step)
        except StoreError:
            if not is_named:
                raise
            return _set_of(run, db, step)
        if run is None or trace.id == name:
            if is_named:
                _note(f"a run of attrkit eval has that name too: attrkit report {run.id}")
            return _run_of(store, trace, step)
        if not is_named:
            told = f"{name!r} begins ids of trace {trace.id} and of run {run.id}"
            raise InputError(f"{told}; give more of its characters")
        _note(f"the id of a trace begins so too: attrkit report {trace.id}")
        return _set_of(run, db, step)


def _stored_run(name: str, db: Path | None) -> tuple[Any, str]:
    """The run of that name or id, or of the only id that begins so; else ``None`` and why."""
    from attr_core._storage.evaluations import Evaluations

    with Evaluations(db) as store:
        try:
            return store.find(name), ""
        except StoreError as error:
            return None, str(error)


def _set_of(run: Any, db: Path | None, step: int | None) -> _Set:
    from attr_core._storage.evaluations import Evaluations
    from attr_core.evaluation.results import load_run

    if step is not None:
        raise ConfigurationError(f"{run.name!r} is a whole evaluation, which has no step; leave --step out")
    with Evaluations(db) as store:
        return _Set(load_run(store, run.id))


def _run_of(store: Any, trace: Any, step: int | None) -> _Run:
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


def _note(text: str) -> None:
    from attr_core.reports.terminal import visible

    typer.echo(visible(f"note: {text}"), err=True)
