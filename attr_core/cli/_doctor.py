"""``attrkit doctor``: what is here, what works, and the command that mends the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from attr_core.cli._shared import DatabaseOption, JsonOption, counted, show_json, size

EXAMPLES = (
    "Examples: attrkit doctor · attrkit doctor --engine hf:Qwen/Qwen2.5-0.5B-Instruct · attrkit doctor --no-probe"
)


def doctor(
    engine: Annotated[
        list[str] | None, typer.Option("--engine", help="Try this engine too, e.g. hf:MODEL; may be repeated.")
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe/--no-probe", help="Ask each engine for a few tokens, which loads a local model.")
    ] = True,
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """Say what is installed, what works, and which command mends the rest. Downloads nothing; exit code 2 if broken."""
    from attr_core.doctor import examine

    report = examine(engines=engine or (), db=db, ask=probe)
    if json_:
        extras = [asdict(extra) | {"remedy": extra.remedy} for extra in report.extras]
        show_json(asdict(report) | {"extras": extras, "ok": report.ok}, indent=2)
    else:
        for line in _lines(report):
            typer.echo(line)
    if not report.ok:
        raise typer.Exit(2)


def _lines(report: Any) -> Iterator[str]:
    from attr_core.reports.terminal import visible

    for title, rows in (
        ("versions", _versions(report)),
        ("extras", _extras(report)),
        ("models", _models(report)),
        ("database", _database(report.database)),
        ("engines", _engines(report)),
        ("settings", [f"{s.name}={s.value}  ({s.meaning})" for s in report.settings] or ["none"]),
    ):
        for row, label in zip(rows, [title, *[""] * len(rows)], strict=False):
            yield f"{label:9} {visible(row)}"
    yield ""
    for problem in report.problems:
        yield f"{'broken' if problem.fatal else 'note'}: {visible(problem.what)}"
        yield f"  mend it: {visible(problem.remedy)}"
    if report.ok:
        asked = any(state.answers for state in report.engines)
        yield "all that is needed works" if asked else "nothing needed is missing; no engine was asked"


def _versions(report: Any) -> list[str]:
    here = [f"{name} {version}" for name, version in report.versions.items() if version]
    return [", ".join(here[first : first + 6]) for first in range(0, len(here), 6)]


def _extras(report: Any) -> list[str]:
    rows = []
    for extra in report.extras:
        faults = [f"lacks {package}" for package in extra.missing]
        faults += [f"{package} is {found}" for package, found in extra.outdated.items()]
        state = f"{', '.join(faults)}: {extra.remedy}" if faults else "here"
        rows.append(f"{extra.name:11} {state}")
    return rows or ["unknown, since attrkit is not installed as a package"]


def _models(report: Any) -> list[str]:
    return [f"{model.kind:9} {model.spec} ({model.where})" for model in report.models] or ["none"]


def _database(state: Any) -> list[str]:
    if not state.exists:
        return [f"{state.path}, made when it is first needed"]
    rows = [f"{state.path}, mode {state.mode}"]
    if state.n_traces is not None:
        held = f"{counted(state.n_traces, 'trace')}, {counted(state.n_attributions, 'attribution')}"
        rows.append(f"{held}, {size(state.n_bytes)}, schema {state.schema}")
    if state.cache_entries is not None:
        values = f"{counted(state.cache_entries, 'measured value')}, {size(state.cache_bytes)}"
        rows.append(f"{values} of at most {size(state.cache_max_bytes)}")
    return rows


def _engines(report: Any) -> list[str]:
    rows = []
    for state in report.engines:
        name = f"{state.spec}{' (the default)' if state.is_default else ''}"
        if state.problem is not None:
            rows.append(f"{name}: does not work, see below")
        elif not state.answers:
            rows.append(f"{name}: found, not asked")
        else:
            window = "unknown window" if state.max_context is None else f"window of {state.max_context:,} tokens"
            rows.append(f"{name}: answers to {', '.join(state.answers)}; {window}; {state.seconds:.1f} s")
    return rows
