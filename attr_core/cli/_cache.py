"""``attrkit cache``: how much is kept of what was measured, and less of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attr_core.cli._shared import DatabaseOption, DeleteOption, JsonOption, confirm_deletion, counted, show_json, size

app = typer.Typer(
    help="Measured values, kept so that looking again costs nothing.",
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog="Example: attrkit cache stats --json")
def stats(db: DatabaseOption = None, json_: JsonOption = False) -> None:
    """Say how many values are kept, of which kind, and how much space they take."""
    with _opened(db) as cache:
        found = cache.stats()
        path = cache.path
    if json_:
        show_json(
            {
                "path": path,
                "entries": found.n_entries,
                "bytes": found.n_bytes,
                "max_bytes": found.max_bytes,
                "kinds": dict(found.kinds),
            }
        )
        return
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in found.kinds.items())
    typer.echo(f"{counted(found.n_entries, 'value')}{f' ({kinds})' if kinds else ''} in {path}")
    typer.echo(f"{size(found.n_bytes)} of at most {size(found.max_bytes)} (ATTRKIT_CACHE_MAX_BYTES)")


@app.command(epilog="Example: attrkit cache clear --yes")
def clear(yes: DeleteOption = False, db: DatabaseOption = None, json_: JsonOption = False) -> None:
    """Delete all measured values; traces and their attributions stay."""
    with _opened(db) as cache:
        n_entries = cache.stats().n_entries
        if n_entries:
            confirm_deletion(f"Delete {counted(n_entries, 'measured value')}? Measuring again costs again.", yes=yes)
        n_removed = cache.clear()
        left = cache.stats()
    _report(n_removed, left, json_)


@app.command(epilog="Example: attrkit cache prune --max-bytes 100000000 --yes")
def prune(
    max_bytes: Annotated[
        int | None, typer.Option(help="Keep so many bytes; default $ATTRKIT_CACHE_MAX_BYTES, else 1 GB.", min=0)
    ] = None,
    yes: DeleteOption = False,
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """Delete the least recently used values until the rest fits."""
    with _opened(db) as cache:
        target, kept = cache.max_bytes if max_bytes is None else max_bytes, cache.stats().n_bytes
        if kept > target:
            confirm_deletion(f"Delete measured values to get from {size(kept)} to {size(target)}?", yes=yes)
        n_removed = cache.prune(max_bytes=target)
        left = cache.stats()
    _report(n_removed, left, json_)


def _opened(db: Any) -> Any:
    from attr_core.cache import Cache

    return Cache(db)


def _report(n_removed: int, left: Any, json_: bool) -> None:
    if json_:
        show_json({"removed": n_removed, "entries": left.n_entries, "bytes": left.n_bytes})
    else:
        removed, kept = counted(n_removed, "measured value"), counted(left.n_entries, "value")
        typer.echo(f"deleted {removed}; {kept} of {size(left.n_bytes)} left")
