"""The ``attrkit`` command: log, inspect, explain.

Exit codes: 0 done; 1 something broke that should not have; 2 input, option or model that the message says how to mend;
130 interrupted.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from attr_core import __version__
from attr_core.errors import AttrkitError, ConfigurationError, InputError, StoreError

__all__ = ["app", "main"]

app = typer.Typer(
    name="attrkit",
    help="Which piece of the context caused which claim of an LLM's answer.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

DatabaseOption = Annotated[
    Path | None, typer.Option("--db", help="Database file; default $ATTRKIT_DB, else ~/.attrkit/attrkit.db.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
EngineOption = Annotated[
    str | None, typer.Option(help="What measures, e.g. hf:MODEL; default $ATTRKIT_ENGINE, else the packaged model.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before downloading a model.")]

INSPECT_EXAMPLES = """
Examples:

  attrkit inspect last

  attrkit inspect tr_1f0c --claim 2 --span "1997"

  attrkit inspect --file messages.json --engine hf:Qwen/Qwen2.5-0.5B-Instruct

  attrkit inspect last --estimator context-cite --budget calls=40 --json
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code = app(args=arguments, prog_name="attrkit", standalone_mode=False)
    except typer.Abort:
        _complain("stopped")
        return 130
    except typer.TyperException as error:
        _complain(error.format_message())
        return 2
    except AttrkitError as error:
        _complain(str(error))
        return 2
    except KeyboardInterrupt:
        _complain("interrupted; what was measured is kept")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return int(code or 0)


def _complain(message: str) -> None:
    from attr_core.reports.terminal import visible

    print(f"attrkit: {visible(message)}", file=sys.stderr)  # noqa: T201


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"attrkit {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog="Example: attrkit demo && attrkit inspect last")
def demo(
    engine: EngineOption = None, db: DatabaseOption = None, json_: JsonOption = False, yes: YesOption = False
) -> None:
    """Answer a question about an invented fact with a small local model, and show which chunk caused the answer."""
    from attr_core.api import explain
    from attr_core.demo import DOCUMENTS, QUESTION

    measuring = _engine(engine, yes)
    if not json_:
        typer.echo(f"An invented fact, so that no model can know it. {QUESTION}")
        for document in DOCUMENTS:
            typer.echo(f"  {document.id:8s} {document.text}")
        typer.echo("")
    with _progress(quiet=json_) as progress:
        attribution = explain(QUESTION, DOCUMENTS, engine=measuring, db=db, progress=progress)
    _show(attribution, json_, db=db, top=len(DOCUMENTS) + 1)
    if not json_:
        again = "" if db is None else f" --db {db}"
        typer.echo(f"\nStored. Look again, at no cost: attrkit inspect last{again}")


@app.command(epilog=INSPECT_EXAMPLES)
def inspect(
    trace: Annotated[str | None, typer.Argument(help="Trace id (its first characters will do) or 'last'.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="A JSON file of messages instead of a stored trace.")
    ] = None,
    engine: EngineOption = None,
    algorithm: Annotated[str, typer.Option(help="What is measured: likelihood.")] = "likelihood",
    estimator: Annotated[
        str | None, typer.Option(help="banzhaf, shapley, leave-one-out or context-cite; default by number of segments.")
    ] = None,
    claim: Annotated[
        list[int] | None, typer.Option("--claim", help="Only this claim (from 1); may be repeated.")
    ] = None,
    span: Annotated[
        list[str] | None, typer.Option("--span", help="Also this phrase of the answer; may be repeated.")
    ] = None,
    budget: Annotated[str, typer.Option(help="Hard caps, e.g. calls=64,tokens=20000.")] = "",
    seed: Annotated[int, typer.Option(help="Of the random ablations.")] = 0,
    top: Annotated[int, typer.Option(help="Segments shown for each target.", min=1)] = 3,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and what it costs; do nothing.")
    ] = False,
    db: DatabaseOption = None,
    json_: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Show for every claim of an answer which piece of the context caused it."""
    from attr_core.api import attribute, plan
    from attr_core.results import Budget

    if (trace is None) == (file is None):
        raise ConfigurationError("name a trace, 'last', or --file messages.json; not both")
    found = _trace(trace, file, db)
    choice: dict[str, Any] = {
        "engine": _engine(engine, yes),
        "algorithm": algorithm,
        "estimator": estimator,
        "claims": [number - 1 for number in claim] if claim else None,
        "spans": span or [],
        "budget": Budget.parse(budget),
    }
    if dry_run:
        _show_plan(plan(found, **choice), json_)
        return
    with _progress(quiet=json_) as progress:
        attribution = attribute(found, seed=seed, db=db, progress=progress, **choice)
    _show(attribution, json_, db=db, top=top)


@app.command(epilog='Examples: attrkit traces --query "festival" --limit 5 · attrkit traces --json')
def traces(
    query: Annotated[str | None, typer.Option(help="Only where question or answer holds this text.")] = None,
    model: Annotated[str | None, typer.Option(help="Only answers of this model.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    status: Annotated[str | None, typer.Option(help="ok, error, interrupted or partial.")] = None,
    since: Annotated[str | None, typer.Option(help="A date (2026-11-30), or an age such as 7d, 12h, 30m.")] = None,
    limit: Annotated[int, typer.Option(help="At most this many, newest first.", min=1)] = 20,
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """List logged calls, newest first."""
    from attr_core.store import Store

    with Store(db) as store:
        found = store.list(limit=limit, query=query, model=model, tag=tag, status=status, since=_since(since))
    if json_:
        typer.echo(json.dumps([_summary(summary) for summary in found], ensure_ascii=False, indent=2))
    elif found:
        _print(_trace_table(found))
    else:
        typer.echo("no traces; log a call with with_logging(), or try: attrkit demo")


def _summary(summary: Any) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name in summary.__dataclass_fields__
        for value in (getattr(summary, name),)
    }


def _trace_table(found: list[Any]) -> Table:
    from attr_core.reports.terminal import visible

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("trace", no_wrap=True, min_width=19)
    table.add_column("started (UTC)", no_wrap=True, min_width=16)
    table.add_column("model", no_wrap=True, max_width=24, overflow="ellipsis")
    table.add_column("status", no_wrap=True, min_width=6)
    table.add_column("question", no_wrap=True, ratio=1, overflow="ellipsis")
    table.add_column("answer", no_wrap=True, ratio=1, overflow="ellipsis")
    for one in found:
        when = f"{one.started:%Y-%m-%d %H:%M}" if one.started else ""
        cells = (one.id, when, one.model or "", one.status, one.query or "", one.answer or "")
        table.add_row(*(Text(visible(cell[:300])) for cell in cells))
    return table


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    if text[:-1].isdigit() and text[-1:] in units:
        return datetime.now(UTC) - timedelta(**{units[text[-1]]: int(text[:-1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(f"--since {text!r} is no date; write 2026-11-30, 7d, 12h or 30m") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _trace(identifier: str | None, file: Path | None, db: Path | None) -> Any:
    from attr_core._files import read_messages
    from attr_core.store import Store

    if file is not None:
        return read_messages(file)
    if identifier is None:
        raise InputError("name a trace or 'last'")
    with Store(db) as store:
        return store.last() if identifier == "last" else store.get(identifier)


def _engine(spec: str | None, yes: bool) -> Any:
    from attr_core.engines import load_engine
    from attr_core.errors import DownloadNeededError

    try:
        return load_engine(spec, download=yes)
    except DownloadNeededError as needed:
        if not sys.stdin.isatty():
            raise
        if not typer.confirm(
            f"No local model is installed. Download {needed.model} (about {needed.megabytes} MB)?", err=True
        ):
            raise
        return load_engine(spec, download=True)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Any]:
    """A progress bar on standard error, where that is a terminal and nobody asked for JSON."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("loading the model", total=None)

        def advance(done: int, planned: int) -> None:
            bar.update(task, description="measuring", completed=done, total=planned)

        yield advance


def _show(attribution: Any, json_: bool, *, db: Path | None, top: int) -> None:
    from attr_core.reports.terminal import render_attribution
    from attr_core.store import Store

    if json_:
        typer.echo(json.dumps(attribution.to_dict(), ensure_ascii=False))
        return
    trace = None
    with Store(db) as store, suppress(StoreError):  # what could not be stored is shown all the same
        trace = store.get(attribution.trace_id)
    _print(render_attribution(attribution, trace, top=top))


def _show_plan(plan: Any, json_: bool) -> None:
    from dataclasses import asdict

    from attr_core.reports.terminal import render_plan

    if json_:
        typer.echo(json.dumps(asdict(plan), ensure_ascii=False))
    else:
        _print(render_plan(plan))


def _print(*shown: RenderableType) -> None:
    """Print to the terminal as wide as it is; elsewhere 120 columns, without blanks at the ends of lines."""
    if sys.stdout.isatty():
        Console(highlight=False).print(*shown)
        return
    console = Console(width=120, highlight=False, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(*shown)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


if __name__ == "__main__":
    main()
