"""``attrkit diagnose`` and ``attrkit prove``: which failure an answer is, and the proof of it, run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from attr_core.cli._inspect import EngineOption, YesOption, loaded_engine, stored_trace
from attr_core.cli._shared import DatabaseOption, JsonOption, progress_bar, show, show_json
from attr_core.errors import BudgetExceededError, ConfigurationError, InputError

JudgeOption = Annotated[
    str | None,
    typer.Option(
        help="Who judges, e.g. litellm:nvidia_nim/meta/llama-3.1-70b-instruct or hf:MODEL; default $ATTRKIT_JUDGE, "
        "else likelihoods of the local model, and no judge has spoken."
    ),
]

DIAGNOSE_EXAMPLES = """
Examples:

  attrkit diagnose last --expected "It opened in 1911."

  attrkit diagnose tr_1f0c --judge litellm:nvidia_nim/meta/llama-3.1-70b-instruct --budget usd=0.20

  attrkit diagnose last --instead "1997"

  attrkit diagnose last --strategy support --json
"""

PROVE_EXAMPLES = """
Examples:

  attrkit prove last

  attrkit prove tr_1f0c --fresh

  attrkit prove last --pytest -o tests/test_lantern.py
"""


def diagnose(
    trace: Annotated[str, typer.Argument(help="Trace id (its first characters will do) or 'last'.")],
    expected: Annotated[
        str | None, typer.Option("--expected", help="The answer that would have been right; kept with the trace.")
    ] = None,
    instead: Annotated[
        str | None, typer.Option("--instead", help="An answer to hold against the one given; not kept.")
    ] = None,
    judge: JudgeOption = None,
    engine: EngineOption = None,
    strategy: Annotated[
        str,
        typer.Option(help="cause (run the prompt again), or support (ask the judge alone; says nothing of causes)."),
    ] = "cause",
    step: Annotated[int | None, typer.Option("--step", help="Which model call of the run, from 1.")] = None,
    granularity: Annotated[
        str | None,
        typer.Option(help="How finely the context is cut: message, chunk, paragraph or sentence; default chunk."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Times that the judge judges; more tell its noise.", min=1)] = 1,
    decompose: Annotated[
        bool, typer.Option("--decompose", help="Have the judge take sentences apart into atomic claims first.")
    ] = False,
    budget: Annotated[str, typer.Option(help="Hard caps, e.g. calls=64,tokens=20000,usd=0.50.")] = "",
    seed: Annotated[int, typer.Option(help="Of the runs, where the application samples.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would cost; ask and send nothing.")] = False,
    db: DatabaseOption = None,
    json_: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Say which failure an answer is, which piece of the context is to blame, what proves it, and what to do."""
    from attr_core.api import diagnose as run
    from attr_core.reports.diagnosis import render_diagnosis
    from attr_core.results import Budget

    caps = Budget.parse(budget)
    chosen: Any = {"strategy": strategy, "granularity": granularity}
    found = stored_trace(trace, db)
    running = loaded_engine(engine, yes) if strategy == "cause" else None
    judging = named_judge(judge, yes)
    if dry_run:
        _show_plan(found, expected or instead, judging, running, step, repeats, json_, chosen)
        return
    _agree([running, judging], budget, yes)
    with progress_bar(quiet=json_) as progress:
        diagnosis = run(
            found,
            expected=expected,
            instead=instead,
            judge=judging,
            engine=running,
            step=step,
            repeats=repeats,
            decompose=decompose,
            budget=caps,
            seed=seed,
            db=db,
            progress=progress,
            **chosen,
        )
    if json_:
        show_json(diagnosis.to_dict())
    else:
        show(render_diagnosis(diagnosis))


def prove(
    trace: Annotated[str, typer.Argument(help="Trace id (its first characters will do) or 'last'.")],
    judge: Annotated[str | None, typer.Option(help="Who judges; default the judge of the diagnosis.")] = None,
    engine: Annotated[str | None, typer.Option(help="What runs it; default the engine of the diagnosis.")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Generate and judge anew instead of reading the cache.")
    ] = False,
    pytest_: Annotated[
        bool, typer.Option("--pytest", help="Write a regression test that replays what was recorded, offline.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write it; for --pytest.")] = None,
    budget: Annotated[str, typer.Option(help="Hard caps, e.g. calls=64,tokens=20000,usd=0.50.")] = "",
    db: DatabaseOption = None,
    json_: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Run the proof of a trace's last diagnosis again; exits with 1 where it does not hold."""
    from attr_core.api import prove as run
    from attr_core.reports.diagnosis import render_replay
    from attr_core.results import Budget

    caps = Budget.parse(budget)
    found = stored_trace(trace, db)
    running = loaded_engine(engine, yes) if engine else None
    judging = named_judge(judge, yes) if judge else None
    if pytest_:
        from attr_core.regression import write_regression_test

        made = write_regression_test(found, judge=judging, engine=running, out=out, db=db)
        told = f"{made.n_answers} answers and {made.n_verdicts} verdicts in {made.recorded.name}"
        typer.echo(f"{made.test} written, with {told}")
        return
    diagnosis = _last_diagnosis(found, db)
    running = running or _as_then(diagnosis.measured_on, "--engine", yes)
    judging = judging or _as_then(diagnosis.judge, "--judge", yes)
    if fresh:
        _agree([running, judging], budget, yes)
    unasked = not (fresh or yes or budget) and bool(_paid([running, judging]))
    with progress_bar(quiet=json_) as progress, _told_what_it_takes([running, judging], unasked):
        replay = run(
            found,
            diagnosis,
            judge=judging,
            engine=running,
            fresh=fresh,
            budget=Budget(calls=0) if unasked else caps,
            db=db,
            progress=progress,
        )
    if json_:
        show_json(replay.to_dict())
    else:
        show(render_replay(replay))
    if not replay.holds:
        raise typer.Exit(1)


def _last_diagnosis(trace: Any, db: Any) -> Any:
    """The last stored diagnosis of a trace that can be read, if it has a proof."""
    from attr_core.store import Store

    with Store(db) as store:
        known = store.diagnoses(trace.id, skip_damaged=True)
    if not known:
        raise InputError(f"trace {trace.id} has no diagnosis yet; run attrkit diagnose {trace.id}")
    if known[-1].proof is None:
        label = known[-1].label
        raise InputError(f"the diagnosis {label!r} rests on the judge alone; there is nothing to run again")
    return known[-1]


def _as_then(spec: str | None, option: str, yes: bool) -> Any:
    """What a diagnosis was made with, as far as its name tells."""
    if spec is None or ":" not in spec or spec.startswith("likelihood"):
        return spec
    try:
        return loaded_engine(spec, yes)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"the diagnosis was made with {spec!r}, which no name loads; name one with {option}, or prove it in Python"
        ) from error


@contextmanager
def _told_what_it_takes(engines: list[Any], unasked: bool) -> Iterator[None]:
    """What is in the cache costs nothing and is not asked for; where more is needed, nothing is sent unasked."""
    try:
        yield
    except BudgetExceededError as error:
        if not unasked:
            raise
        names = " and ".join(dict.fromkeys(one.spec for one in _paid(engines)))
        raise ConfigurationError(
            f"not all of the proof is in the cache, and {names} may cost money. Add --yes, or --budget usd=… to cap it"
        ) from error


def _show_plan(
    trace: Any, expected: str | None, judge: Any, engine: Any, step: int | None, repeats: int, json_: bool, chosen: Any
) -> None:
    from dataclasses import asdict

    from attr_core.api import plan_diagnosis
    from attr_core.reports.costs import render_plan

    plan = plan_diagnosis(trace, expected=expected, judge=judge, engine=engine, step=step, repeats=repeats, **chosen)
    if json_:
        show_json(asdict(plan))
    else:
        show(render_plan(plan))


def named_judge(spec: str | None, yes: bool) -> Any:
    """What a judge's spec names, loaded here so that whether it costs can be asked; ``None`` stays the default."""
    import os

    from attr_core.judge import JUDGE_VARIABLE

    name = (spec or os.environ.get(JUDGE_VARIABLE, "")).strip()
    return None if not name else name if name.startswith("likelihood") else loaded_engine(name, yes)


def _agree(engines: list[Any], budget: str, yes: bool) -> None:
    """Ask before anything is paid; where nobody can answer that is an error, and nothing is sent."""
    import sys

    paid = _paid(engines)
    if yes or not paid:
        return
    names = " and ".join(dict.fromkeys(one.spec for one in paid))
    capped = f"within {budget}" if budget else "with no cap"
    if not sys.stdin.isatty():
        raise ConfigurationError(f"{names} may cost money, {capped}. Add --yes to go on, --budget usd=… to cap it")
    typer.confirm(f"{names} may cost money, {capped}. Go on?", abort=True, err=True)


def _paid(engines: list[Any]) -> list[Any]:
    from attr_core.capabilities import is_free

    return [one for one in engines if one is not None and not isinstance(one, str) and not is_free(one)]
