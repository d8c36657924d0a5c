"""``attrkit capabilities``: what each kind of engine offers, and which algorithms that allows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from attr_core.cli._shared import DatabaseOption, JsonOption, show, show_json

EXAMPLES = (
    "Examples: attrkit capabilities · attrkit capabilities --engine server:http://localhost:8000#qwen --probe · "
    "attrkit capabilities --json"
)


def capabilities(
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", help="This engine instead of the kinds, e.g. hf:MODEL; may be repeated."),
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Make one tiny call per capability and say which answer; may cost money.")
    ] = False,
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """Print what engines offer, and which algorithms that allows. Without --engine or --probe nothing is loaded."""
    from attr_core.algorithms import allowed
    from attr_core.capabilities import ENGINES, offered
    from attr_core.capabilities import probe as ask
    from attr_core.engines import load_engine
    from attr_core.store import Store

    rows: list[dict[str, Any]] = []
    for kind, offers in {} if engine else ENGINES.items():
        rows.append(_row(kind, offers, allowed(offers), {}))
    for spec in engine or ():
        found = load_engine(spec)
        failed: dict[Any, str | None] = {}
        if probe:
            with Store(db) as store:
                failed = ask(found, store.memory)
        offers = frozenset(one for one in offered(found) if failed.get(one) is None)
        reasons = {str(one): reason for one, reason in failed.items() if reason is not None}
        reasons |= {"score": why} if (why := getattr(found, "why_not_score", None)) else {}
        rows.append(_row(found.spec, offers, allowed(offers), reasons))
    if json_:
        show_json(rows)
    else:
        _show(rows, are_kinds=not engine)


def _row(name: str, offers: Any, algorithms: Any, reasons: dict[str, str]) -> dict[str, Any]:
    return {"engine": name, "offers": sorted(offers), "algorithms": list(algorithms), "reasons": reasons}


def _show(rows: list[dict[str, Any]], *, are_kinds: bool) -> None:
    from rich.table import Table

    from attr_core.protocols import Capability
    from attr_core.reports.terminal import visible

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("engine")
    for capability in Capability:
        table.add_column(str(capability), justify="center")
    table.add_column("algorithms")
    for row in rows:
        marks = ["yes" if capability in row["offers"] else "-" for capability in Capability]
        table.add_row(visible(row["engine"]), *marks, ", ".join(row["algorithms"]) or "none")
    show(table)
    for row in rows:
        for capability, reason in row["reasons"].items():
            typer.echo(f"{visible(row['engine'])} offers no {capability}: {visible(reason)}")
    if are_kinds:
        typer.echo(
            "The most that each kind offers; a server or model may lack some: attrkit capabilities --engine SPEC."
        )
