"""What several commands take and do alike."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from attr_core.errors import ConfigurationError

INTERRUPTED = 130
"""Exit code of what was stopped by a signal."""

DatabaseOption = Annotated[
    Path | None, typer.Option("--db", help="Database file; default $ATTRKIT_DB, else ~/.attrkit/attrkit.db.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
DeleteOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting.")]


def show(*shown: RenderableType) -> None:
    """Print to the terminal as wide as it is; elsewhere 120 columns, without blanks at the ends of lines."""
    if sys.stdout.isatty():
        Console(highlight=False).print(*shown)
        return
    console = Console(width=120, highlight=False, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(*shown)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_json(value: Any, *, indent: int | None = None) -> None:
    """Print JSON, text of any script as it is where the output can say it."""
    value = _finite(value)
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a lone surrogate, or a narrow encoding
        text = json.dumps(value, indent=indent)
    typer.echo(text)


def _finite(value: Any) -> Any:
    """The value with ``null`` for what JSON cannot say: NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Any]:
    """A progress bar on standard error, where that is a terminal and nobody asked for JSON."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def advance(done: int, planned: int) -> None:
            bar.update(task, description="measuring", completed=done, total=planned)

        yield advance


def confirm_deletion(question: str, *, yes: bool) -> None:
    """Ask, unless ``--yes`` was given; where nobody can answer that is an error, and nothing is deleted."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(f"nobody can be asked here: {question} Add --yes to delete, --dry-run to look")
    typer.confirm(question, abort=True, err=True)


def moment(text: str, *, option: str) -> datetime:
    """A date, or so long ago (``7d``)."""
    units = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    try:
        if text[:-1].isdigit() and text[-1:] in units:
            return datetime.now(UTC) - timedelta(**{units[text[-1]]: int(text[:-1])})
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{option} {text!r} is no date; write 2026-11-30, 7d, 12h or 30m") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def counted(number: int, noun: str) -> str:
    """``1 trace``, ``1,200 traces``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(n_bytes: int) -> str:
    """Bytes in the unit that suits them, of 1000."""
    value, units = float(n_bytes), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} {units[0]}" if units[0] == "bytes" or value >= 100 else f"{value:.1f} {units[0]}"
