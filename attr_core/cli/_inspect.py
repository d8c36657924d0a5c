"""``attrkit demo`` and ``attrkit inspect``: which piece of the context caused which claim."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from attr_core.cli._shared import DatabaseOption, JsonOption, progress_bar, show, show_json
from attr_core.errors import ConfigurationError, InputError, StoreError

EngineOption = Annotated[
    str | None, typer.Option(help="What measures, e.g. hf:MODEL; default $ATTRKIT_ENGINE, else the packaged model.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask before downloading a model, or calling one that costs money.")
]

N_PLACEBOS = 3

DEMO_EXAMPLE = "Example: attrkit demo && attrkit inspect last"
INSPECT_EXAMPLES = """
Examples:

  attrkit inspect last

  attrkit inspect tr_1f0c --claim 2 --span "1997"

  attrkit inspect tr_1f0c --step 2

  attrkit inspect --file messages.json --engine hf:Qwen/Qwen2.5-0.5B-Instruct

  attrkit inspect last --granularity sentence --placebo

  attrkit inspect last --estimator context-cite --budget calls=80 --json

  attrkit inspect last --instead "It opened in 1997."

  attrkit inspect last --algorithm similarity --engine litellm:gpt-4o-mini --budget usd=0.05 --dry-run
"""


def demo(
    engine: EngineOption = None, db: DatabaseOption = None, json_: JsonOption = False, yes: YesOption = False
) -> None:
    """Answer a question about an invented fact with a small local model, and show which chunk caused the answer."""
    from attr_core.api import explain
    from attr_core.demo import DOCUMENTS, QUESTION

    measuring = loaded_engine(engine, yes)
    if not json_:
        typer.echo(f"An invented fact, so that no model can know it. {QUESTION}")
        for document in DOCUMENTS:
            typer.echo(f"  {document.id:8s} {document.text}")
        typer.echo("")
    with progress_bar(quiet=json_) as progress:
        attribution = explain(QUESTION, DOCUMENTS, engine=measuring, db=db, progress=progress)
    _show(attribution, json_, db=db, top=len(DOCUMENTS) + 1)
    if not json_:
        again = "" if db is None else f" --db {db}"
        typer.echo(f"\nStored. Look again, at no cost: attrkit inspect last{again}")


def inspect(
    trace: Annotated[str | None, typer.Argument(help="Trace id (its first characters will do) or 'last'.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="A JSON file of messages instead of a stored trace.")
    ] = None,
    engine: EngineOption = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="What is measured: likelihood (of what was answered), similarity (of answers generated anew), or "
            "reference (the expected answer against it)."
        ),
    ] = "likelihood",
    expected: Annotated[
        str | None, typer.Option("--expected", help="The answer that would have been right; for --algorithm reference.")
    ] = None,
    instead: Annotated[
        str | None,
        typer.Option(
            "--instead",
            help="Another answer to contrast with what was answered, without saying that it is right; implies "
            "--algorithm reference.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", help="How answers are compared: embedding, overlap or numeric; for --algorithm similarity."
        ),
    ] = None,
    embed: Annotated[
        str | None,
        typer.Option(
            "--embed",
            help="What embeds, e.g. st:MODEL: answers that are compared, or segments, to find those that say the same; "
            "default $ATTRKIT_EMBED.",
        ),
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            help="screened, hierarchical, path-gradients, banzhaf, shapley, debiased-lasso, context-cite or "
            "leave-one-out; default by number of segments and engine."
        ),
    ] = None,
    screen_with: Annotated[
        str | None,
        typer.Option("--screen-with", help="A smaller local model that finds who matters, e.g. hf:MODEL."),
    ] = None,
    granularity: Annotated[
        str | None,
        typer.Option(help="How finely the context is cut: message, chunk, paragraph or sentence; default chunk."),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step", help="Which model call of the run, from 1, tool calls included; default the one that answered."
        ),
    ] = None,
    claim: Annotated[
        list[int] | None, typer.Option("--claim", help="Only this claim (from 1); may be repeated.")
    ] = None,
    span: Annotated[
        list[str] | None, typer.Option("--span", help="Also this phrase of the answer; may be repeated.")
    ] = None,
    budget: Annotated[str, typer.Option(help="Hard caps, e.g. calls=64,tokens=20000,usd=0.50.")] = "",
    direct_only: Annotated[
        bool,
        typer.Option(
            "--direct-only", help="Read later claims given the earlier ones only; saves every ablation once a claim."
        ),
    ] = False,
    placebo: Annotated[
        bool,
        typer.Option(
            "--placebo", help="Also put unrelated sentences into the context and see what they do; costs a run."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the random ablations.")] = 0,
    top: Annotated[int, typer.Option(help="Segments shown for each target.", min=1)] = 3,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and what it costs; do nothing.")
    ] = False,
    db: DatabaseOption = None,
    json_: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Show for every claim of an answer, or of another step of a run, which piece of the context caused it."""
    from attr_core.api import attribute, check_placebos, plan
    from attr_core.results import Budget

    if (trace is None) == (file is None):
        raise ConfigurationError("name a trace, 'last', or --file messages.json, and only one of them")
    found = _trace(trace, file, db)
    if expected is not None:
        found = replace(found, reference=expected)
    measuring = loaded_engine(engine, yes)  # asks where a model must be downloaded first
    choice: dict[str, Any] = {
        "engine": measuring if engine else None,  # chosen or not, that is told apart
        "algorithm": _algorithm(algorithm, metric, embed, instead),
        "estimator": estimator,
        "screen_with": loaded_engine(screen_with, yes) if screen_with else None,
        "step": step,
        "claims": [number - 1 for number in claim] if claim else None,
        "spans": span or [],
        "granularity": granularity,
        "totals": not direct_only,
        "budget": Budget.parse(budget),
        "seed": seed,
    }
    plans = [plan(found, **choice)]
    if placebo:
        plans.append(plan(found, **(choice | {"placebos": N_PLACEBOS, "regenerations": False})))
    if dry_run:
        _show_plans(plans, json_)
        return
    _agree(plans, yes)
    try:
        with progress_bar(quiet=json_) as progress:
            attribution = attribute(found, db=db, progress=progress, **choice)
    except KeyboardInterrupt as stopped:
        if (partial := getattr(stopped, "partial", None)) is not None:
            _show(partial, json_, db=db, top=top)
        raise
    check: Any = None
    try:
        if placebo:
            left = choice | {"budget": choice["budget"].less(attribution.cost)}
            with progress_bar(quiet=json_) as progress:
                check = check_placebos(found, n_placebos=N_PLACEBOS, db=db, progress=progress, **left)
    finally:  # what is measured is shown whatever becomes of the check
        _show(attribution, json_, db=db, top=top, check=check)


def _trace(identifier: str | None, file: Path | None, db: Path | None) -> Any:
    from attr_core._files import read_messages

    if file is not None:
        return read_messages(file)
    if identifier is None:
        raise InputError("name a trace or 'last'")
    return stored_trace(identifier, db)


def stored_trace(identifier: str, db: Path | None) -> Any:
    """The stored trace of that id, or the last one."""
    from attr_core.store import Store

    with Store(db) as store:
        return store.last() if identifier == "last" else store.get(identifier)


def loaded_engine(spec: str | None, yes: bool) -> Any:
    """The engine that a spec names; asks before a model is downloaded."""
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


def _algorithm(name: str, metric: str | None, embed: str | None, instead: str | None) -> Any:
    from attr_core.algorithms import ReferenceAlgorithm, SimilarityAlgorithm, algorithm_named

    found: Any = replace(algorithm_named(name), embedder=embed)
    if instead is not None:
        if isinstance(found, SimilarityAlgorithm):
            raise ConfigurationError("--instead contrasts answers that are scored; leave out --algorithm similarity")
        found = ReferenceAlgorithm(embedder=embed, instead=instead)
    if metric is not None and not isinstance(found, SimilarityAlgorithm):
        raise ConfigurationError("--metric compares answers; add --algorithm similarity, or leave it out")
    return found if metric is None else replace(found, metric=metric)


def _agree(plans: list[Any], yes: bool) -> None:
    """Ask before anything is paid; where nobody can answer that is an error, and nothing is sent."""
    usd, most = sum(plan.usd for plan in plans), sum(plan.maximum.usd for plan in plans)
    if yes or usd == 0:
        return
    price = "at a price nobody here knows" if math.isnan(usd) else f"about USD {usd:.4f}, at most {most:.4f}"
    calls = sum(plan.calls for plan in plans)
    question = f"{plans[0].engine} may cost money: about {calls:,} calls, {price}."
    if not sys.stdin.isatty():
        cap = "calls=…" if math.isnan(usd) else "usd=…"
        raise ConfigurationError(f"{question} Add --yes to go on, --dry-run to look, --budget {cap} to cap it")
    typer.confirm(f"{question} Go on?", abort=True, err=True)


def _show(attribution: Any, json_: bool, *, db: Path | None, top: int, check: Any = None) -> None:
    from attr_core.reports.terminal import render_attribution, render_placebos
    from attr_core.store import Store

    if json_:
        show_json(attribution.to_dict() | ({"placebo": check.to_dict()} if check is not None else {}))
        return
    trace, others = None, []
    with suppress(StoreError), Store(db) as store:  # what could not be stored is shown all the same
        trace = store.get(attribution.trace_id)
        others = store.attributions(attribution.trace_id, skip_damaged=True)
    show(render_attribution(attribution, trace, top=top, others=others))
    if check is not None:
        show(render_placebos(check))


def _show_plans(plans: list[Any], json_: bool) -> None:
    """The run's, and the placebo check's if there is one."""
    from dataclasses import asdict

    from attr_core.reports.costs import render_plan

    run, *others = plans
    if json_:
        show_json(asdict(run) | ({"placebo": asdict(others[0])} if others else {}))
        return
    show(render_plan(run))
    for other in others:
        typer.echo("and for the placebo check:")
        show(render_plan(other))
