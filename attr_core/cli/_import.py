"""``attrkit import``: traces that other tools recorded, into the store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from attr_core.cli._shared import DatabaseOption, JsonOption, counted, show_json

EXAMPLES = """
Examples:

  attrkit import phoenix-spans.jsonl

  attrkit import runs.json --format langsmith --dry-run

  attrkit import observations.json --json
"""


def import_(
    file: Annotated[Path, typer.Argument(help="JSON or JSON lines, as the other tool exported them.")],
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            help="openinference (also OpenTelemetry's JSON and Phoenix's exports), langsmith or langfuse; default by "
            "the records' keys."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is there; store nothing.")] = False,
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """Store traces that other tools exported, and say what their records lack; exits with 1 where some cannot be read.

    Importing again writes the same traces again; an expected answer that was given since is kept.
    """
    from attr_core.importing import read_traces

    imported = read_traces(file, format=format)
    if not dry_run and imported.found:
        from attr_core.store import Store

        with Store(db) as store:
            for one in imported.found:
                store.save(_with_what_was_added(one.trace, store))
    if json_:
        show_json(_plain(imported))
    else:
        _show(imported, dry_run=dry_run)
    if imported.failed:
        raise typer.Exit(1)


def _with_what_was_added(trace: Any, store: Any) -> Any:
    from attr_core.errors import StoreError

    with suppress(StoreError):  # none of that id yet, or a damaged one, which is written over
        known = store.get(trace.id)
        return replace(trace, reference=known.reference, expected_chunks=known.expected_chunks)
    return trace


def _show(imported: Any, *, dry_run: bool) -> None:
    from attr_core.reports.terminal import visible

    done = "could be imported" if dry_run else "imported"
    typer.echo(f"{counted(len(imported.found), 'trace')} {done} from {imported.format}")
    for one in imported.found:
        asked = visible(" ".join((one.trace.query or "").split()))[:80]
        typer.echo(f"  {one.trace.id}  {asked}".rstrip())
        _indented([f"note: {visible(note)}" for note in one.notes])
    for name, reason in imported.failed:
        typer.echo(f"  not read: {visible(name)}: {visible(reason)}")
    if imported.found and not dry_run:
        typer.echo(f"next: attrkit inspect {imported.found[-1].trace.id}")


def _indented(lines: Sequence[str]) -> None:
    for line in lines:
        typer.echo(f"    {line}")


def _plain(imported: Any) -> dict[str, Any]:
    return {
        "format": imported.format,
        "traces": [{"id": one.trace.id, "run": one.trace.run_id, "notes": list(one.notes)} for one in imported.found],
        "failed": [{"what": name, "why": reason} for name, reason in imported.failed],
    }
