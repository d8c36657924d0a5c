"""``attrkit traces``: list, delete and prune what was logged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attr_core.cli._shared import (
    DatabaseOption,
    DeleteOption,
    JsonOption,
    confirm_deletion,
    counted,
    moment,
    show,
    show_json,
)
from attr_core.errors import ConfigurationError

EXAMPLES = 'Examples: attrkit traces --query "festival" --limit 5 · attrkit traces --json'

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def traces(
    context: typer.Context,
    query: Annotated[str | None, typer.Option(help="Only where question or answer holds this text.")] = None,
    model: Annotated[str | None, typer.Option(help="Only answers of this model.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    status: Annotated[str | None, typer.Option(help="ok, error, interrupted or partial.")] = None,
    since: Annotated[str | None, typer.Option(help="A date (2026-11-30), or an age such as 7d, 12h, 30m.")] = None,
    limit: Annotated[int, typer.Option(help="At most this many, newest first.", min=1)] = 20,
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """List logged calls, newest first; show one, or delete some."""
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        return
    from attr_core.store import Store

    earliest = None if since is None else moment(since, option="--since")
    with Store(db) as store:
        found = store.list(limit=limit, query=query, model=model, tag=tag, status=status, since=earliest)
    if json_:
        show_json([_summary(summary) for summary in found], indent=2)
    elif found:
        show(_table(found))
    else:
        filtered = any(chosen is not None for chosen in (query, model, tag, status, since))
        hint = "see all with: attrkit traces" if filtered else "log a call with with_logging(), or try: attrkit demo"
        typer.echo(f"{'no trace matches' if filtered else 'no traces'}; {hint}")


@app.command(name="show", epilog="Examples: attrkit traces show last · attrkit traces show tr_1f0c --json > call.json")
def show_one(
    trace: Annotated[str, typer.Argument(help="Trace id (its first characters will do) or 'last'.")],
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """Show what was logged of a call; with --json in the shape that inspect --file reads."""
    from attr_core.store import Store

    with Store(db) as store:
        found = store.last() if trace == "last" else store.get(trace)
    if json_:
        show_json(_record(found), indent=2)
    else:
        show(Group(*_transcript(found)))


@app.command(
    epilog="Examples: attrkit traces prune --older-than 30d --dry-run · attrkit traces prune --older-than 1w -y"
)
def prune(
    older_than: Annotated[str, typer.Option(help="An age such as 30d, 12h, 4w, or a date (2026-11-30).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted; delete nothing.")] = False,
    yes: DeleteOption = False,
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """Delete old traces with their attributions; measured values stay in the cache."""
    from attr_core.store import Store

    before = moment(older_than, option="--older-than")
    with Store(db) as store:
        pruned = store.prune(before=before, dry_run=True)
        if not dry_run and pruned.n_traces:
            confirm_deletion(f"Delete {_what(pruned)}, started before {before:%Y-%m-%d %H:%M} UTC?", yes=yes)
            pruned = store.prune(before=before)
    if json_:
        traces, attributions = pruned.n_traces, pruned.n_attributions
        show_json(
            {"traces": traces, "attributions": attributions, "before": before.isoformat(), "deleted": not dry_run}
        )
    else:
        typer.echo(f"{'would delete' if dry_run else 'deleted'} {_what(pruned)}")


@app.command(epilog="Example: attrkit traces delete tr_3690ce817f604172")
def delete(
    trace: Annotated[str, typer.Argument(help="The whole trace id.")],
    yes: DeleteOption = False,
    db: DatabaseOption = None,
) -> None:
    """Delete one trace with its attributions, a damaged one too."""
    from attr_core.store import Store

    with Store(db) as store:
        confirm_deletion(f"Delete trace {trace} and its attributions?", yes=yes)
        store.delete(trace)
    typer.echo(f"deleted {trace}")


def _record(trace: Any) -> dict[str, Any]:
    target = trace.target_generation
    known = {"query": trace.query, "model": target.model, "reference": trace.reference}
    return {
        "id": trace.id,
        "messages": [message.to_chat() for message in target.messages],
        "response": target.response,
        "documents": [asdict(document) for document in trace.documents],
        "tools": list(target.tools),
        **{name: value for name, value in known.items() if value is not None},
    }


def _transcript(trace: Any) -> Iterator[RenderableType]:
    from attr_core.reports.terminal import visible

    target = trace.target_generation
    when = f"{trace.started:%Y-%m-%d %H:%M} UTC" if trace.started else ""
    yield Text("  ".join(filter(None, (trace.id, when, visible(target.model or ""), trace.status))), style="dim")
    if trace.error:
        yield _titled("error", trace.error)
    for message in target.messages:
        yield _titled(message.role, message.content)
        for call in message.tool_calls:
            yield _titled("tool call", f"{call.name} {call.arguments}")
    yield _titled("answer", target.response or "(none)")
    for document in trace.documents:
        yield _titled(f"document {document.id}", document.text)


def _titled(title: str, text: str) -> Group:
    from attr_core.reports.terminal import visible

    lines = "\n".join(map(visible, text.splitlines()))
    return Group(Text(visible(title), style="bold"), Padding(Text(lines), (0, 0, 0, 2)))


def _what(pruned: Any) -> str:
    return f"{counted(pruned.n_traces, 'trace')} and {counted(pruned.n_attributions, 'attribution')}"


def _refuse_options_before(context: typer.Context) -> None:
    """``traces --db FILE prune`` must not prune another file."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            command = context.invoked_subcommand
            raise ConfigurationError(f"options go after {command!r}: attrkit traces {command} ...")


def _summary(summary: Any) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name in summary.__dataclass_fields__
        for value in (getattr(summary, name),)
    }


def _table(found: list[Any]) -> Table:
    from attr_core.reports.terminal import visible

    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("trace", no_wrap=True, width=19)
    table.add_column("started (UTC)", no_wrap=True, width=16)
    table.add_column("model", no_wrap=True, max_width=16, overflow="ellipsis")
    table.add_column("status", no_wrap=True, width=7)
    table.add_column("question", no_wrap=True, ratio=1, overflow="ellipsis")
    table.add_column("answer", no_wrap=True, ratio=1, overflow="ellipsis")
    for one in found:
        when = f"{one.started:%Y-%m-%d %H:%M}" if one.started else ""
        cells = (one.id, when, one.model or "", one.status, one.query or "", one.answer or "")
        table.add_row(*(Text(visible(cell[:300])) for cell in cells))
    return table
