"""``attrkit calibrate``: how far a judge can be believed, and what a cheaper one would do."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from attr_core.cli._shared import JsonOption, counted, progress_bar, show, show_json
from attr_core.errors import ConfigurationError

EXAMPLES = """
Examples:

  attrkit calibrate --labels human.jsonl --judge litellm:gpt-4o-mini --dry-run

  attrkit calibrate --labels human.jsonl --judge litellm:gpt-4o-mini --correct 90/120

  attrkit calibrate --labels human.jsonl --judge litellm:gpt-4o-mini --repeats 3 --against litellm:gpt-4o --json
"""

_SHOWN = 20
"""Rows that two judges differ on which are printed; JSON has all."""


def calibrate(
    labels: Annotated[
        Path, typer.Option("--labels", help="A JSON object a line: claim, segment, label, perhaps question.")
    ],
    judge: Annotated[
        str | None,
        typer.Option("--judge", help="Who is calibrated, e.g. litellm:MODEL; default $ATTRKIT_JUDGE, else likelihood."),
    ] = None,
    against: Annotated[str | None, typer.Option("--against", help="A more expensive judge to compare it with.")] = None,
    correct: Annotated[
        str | None,
        typer.Option(
            "--correct", help="A rate of this judge's to correct, e.g. 90/120: claims supported of all judged."
        ),
    ] = None,
    repeats: Annotated[
        int,
        typer.Option("--repeats", help="Times the judge is asked; where it contradicts itself it is unsure.", min=1),
    ] = 1,
    near: Annotated[
        float, typer.Option("--near", help="Nats about its threshold within which a likelihood judge is unsure.", min=0)
    ] = 1.0,
    budget: Annotated[str, typer.Option(help="Hard caps, e.g. calls=64,tokens=20000,usd=0.50.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost; ask nobody.")] = False,
    json_: JsonOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before calling what costs money.")] = False,
) -> None:
    """Hold a judge's verdicts against people's labels: sensitivity, specificity, kappa, and rates corrected by them."""
    from attr_core.judge.calibration import calibrate_judge, compare_judges, plan_calibration, read_labels

    observed = _counts(correct)
    rows = read_labels(labels)
    load = _loader(budget, yes)
    judges = [load(judge, repeats)] + ([load(against, 1)] if against else [])
    plans = [plan_calibration(one, rows, engine=engine) for one, engine in judges]
    if dry_run:
        _show_plans(plans, len(rows), json_)
        return
    _agree(plans, yes)
    with progress_bar(quiet=json_) as progress:
        if against:
            found: Any = compare_judges(judges[0][0], judges[1][0], rows, near=near, progress=progress)
        else:
            found = calibrate_judge(judges[0][0], rows, progress=progress)
    calibrated = found.cheap if against else found
    corrected = calibrated.correct(*observed) if observed else None
    if json_:
        show_json(found.to_dict() | ({"corrected": asdict(corrected)} if corrected else {}))
        return
    for one in (found.cheap, found.expensive) if against else (found,):
        _show_calibration(one)
    if corrected is not None and observed is not None:
        k, n = observed
        typer.echo(f"{k} of {n} observed entails ({k / n:.2f}), corrected for the judge's errors: {_rate(corrected)}")
    if against:
        _show_comparison(found)


def _counts(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,9})\s*/\s*(\d{1,9})\s*", text, re.ASCII)
    if not found or not 0 <= int(found[1]) <= int(found[2]) or int(found[2]) < 1:
        raise ConfigurationError(f"--correct {text!r} is no part of a whole; write for example 90/120")
    return int(found[1]), int(found[2])


def _loader(budget: str, yes: bool) -> Callable[[str | None, int], tuple[Any, Any]]:
    """Spec and repeats -> judge and its engine; all of them on one account, so that the caps hold for all together."""
    from attr_core.judge import load_judge
    from attr_core.metering import MeteredEngine
    from attr_core.results import Budget

    caps, engines = Budget.parse(budget), list[MeteredEngine]()

    def meter(engine: Any) -> Any:
        engines.append(engines[0].alongside(engine) if engines else MeteredEngine(engine, budget=caps))
        return engines[-1]

    def load(spec: str | None, repeats: int) -> tuple[Any, Any]:
        return load_judge(spec, download=yes, meter=meter, repeats=repeats), engines[-1]

    return load


def _agree(plans: list[Any], yes: bool) -> None:
    """Ask before anything is paid; where nobody can answer that is an error, and nothing is sent."""
    usd, most = sum(plan.usd for plan in plans), sum(plan.maximum.usd for plan in plans)
    if yes or usd == 0:
        return
    price = "at a price nobody here knows" if math.isnan(usd) else f"about USD {usd:.4f}, at most {most:.4f}"
    names = " and ".join(dict.fromkeys(plan.engine for plan in plans if plan.usd != 0))
    calls = sum(plan.calls for plan in plans)
    question = f"{names} may cost money: about {calls:,} calls, {price}."
    if not sys.stdin.isatty():
        cap = "calls=…" if math.isnan(usd) else "usd=…"
        raise ConfigurationError(f"{question} Add --yes to go on, --dry-run to look, --budget {cap} to cap it")
    typer.confirm(f"{question} Go on?", abort=True, err=True)


def _show_plans(plans: list[Any], n_rows: int, json_: bool) -> None:
    from attr_core.reports.costs import render_plan

    if json_:
        show_json({"rows": n_rows, "plans": [asdict(plan) for plan in plans]})
        return
    typer.echo(counted(n_rows, "labelled row"))
    for plan in plans:
        show(render_plan(replace(plan, method="judging labelled rows")))


def _show_calibration(found: Any) -> None:
    from attr_core.reports.costs import render_cost
    from attr_core.reports.terminal import visible

    typer.echo(f"{visible(found.judge or 'the judge')} against {counted(found.n_rows, 'labelled row')}")
    rates = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
    for name in ("", "rate", "95 % interval", "rows"):
        rates.add_column(name)
    for verdict in found.sensitivity:
        rates.add_row(f"sensitivity, {verdict}", *_cells(found.sensitivity[verdict]))
        rates.add_row(f"specificity, {verdict}", *_cells(found.specificity[verdict]))
    rates.add_row("accuracy", *_cells(found.accuracy))
    rates.add_row("Cohen's kappa, 3 classes", *_cells(found.kappa))
    show(rates)
    typer.echo(f"  undetermined: {found.n_undetermined} of {found.n_rows}, in no rate above")
    table = found.to_dict()["confusion"]
    confusion = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
    for name in ("label \\ verdict", *table["entails"]):
        confusion.add_column(name)
    for label, counts in table.items():
        confusion.add_row(label, *map(str, counts.values()))
    show(confusion)
    for note in found.notes:
        typer.echo(f"  {visible(note)}")
    typer.echo(f"  {render_cost(found.cost)}\n")


def _show_comparison(found: Any) -> None:
    from attr_core.reports.costs import render_cost
    from attr_core.reports.terminal import visible

    cascade = found.cascade
    names = [visible(one.judge or other) for one, other in ((found.cheap, "cheap"), (found.expensive, "expensive"))]
    typer.echo(f"{names[0]} and {names[1]} agree: {_rate(found.agreement)}")
    typer.echo(
        f"  right alone: {found.only_cheap_right} and {found.only_expensive_right} rows, "
        f"McNemar's exact p = {found.p_value:.3g}"
    )
    for one in found.differences[:_SHOWN]:
        told = f"label {one.label}, {one.cheap} against {one.expensive}: {visible(one.claim[:80])}"
        typer.echo(f"  line {one.line}: {told}")
    if len(found.differences) > _SHOWN:
        typer.echo(f"  … and {len(found.differences) - _SHOWN} more; --json has all")
    typer.echo(f"{names[0]} first, {names[1]} where it is unsure (no verdict, repeats that differ, or evidence within")
    typer.echo(f"{cascade.near:g} nats of the threshold): escalates {_rate(cascade.escalated)}")
    typer.echo(f"  agrees with {names[1]}: {_rate(cascade.agreement)}")
    typer.echo(f"  accuracy: {_rate(cascade.accuracy)}")
    costs = ((names[0], found.cheap.cost), (names[1], found.expensive.cost), ("cascade", cascade.cost))
    for name, cost in costs:
        typer.echo(f"  {name}: {render_cost(cost)}")
    typer.echo(f"  saved at least, of {names[1]}: {_saved(cascade.usd_saved)} of its USD, ", nl=False)
    typer.echo(f"{_saved(cascade.calls_saved)} of its calls")


def _saved(rate: Any) -> str:
    return f"unknown ({rate.reason})" if math.isnan(rate.value) else f"{rate.value:.0%}"


def _rate(rate: Any) -> str:
    if math.isnan(rate.value):
        return f"N/A ({rate.reason})"
    return f"{rate.value:.2f} ({rate.low:.2f} to {rate.high:.2f}, {counted(rate.n, 'row')})"


def _cells(rate: Any) -> tuple[str, str, str]:
    if math.isnan(rate.value):
        return "N/A", rate.reason or "", str(rate.n)
    return f"{rate.value:.3f}", f"{rate.low:.3f} to {rate.high:.3f}", str(rate.n)
