"""``attrkit eval`` and ``attrkit compare``: a whole set of questions, and two runs over one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from attr_core.cli._diagnose import JudgeOption, _agree, named_judge
from attr_core.cli._inspect import EngineOption, YesOption, loaded_engine
from attr_core.cli._shared import DatabaseOption, JsonOption, counted, progress_bar, show, show_json
from attr_core.errors import ConfigurationError

EVAL_EXAMPLES = """
Examples:

  attrkit eval questions.jsonl --app my_app:answer --judge litellm:nvidia_nim/meta/llama-3.1-70b-instruct

  attrkit eval answered.csv --field query=Question --field contexts=Passages --dry-run

  attrkit eval questions.jsonl --app my_app:answer --engine server:http://localhost:8000/v1#MODEL --strategy cause

  attrkit eval questions.jsonl --app my_app:answer --tag billing --limit 50 --name before --csv before.csv
"""

COMPARE_EXAMPLES = """
Examples:

  attrkit compare before after

  attrkit compare ev_1f0c last --json
"""

BUDGET_STOPPED = 2
MOST_SHOWN = 5


def evaluate(
    dataset: Annotated[Path, typer.Argument(help="Questions: .jsonl, .json, .csv or .tsv.")],
    app: Annotated[
        str | None,
        typer.Option("--app", help="module:function of the question; not needed where rows have answers."),
    ] = None,
    judge: JudgeOption = None,
    engine: EngineOption = None,
    strategy: Annotated[
        str,
        typer.Option(help="support (ask the judge alone; says nothing of causes), or cause (run prompts again)."),
    ] = "support",
    concurrency: Annotated[int, typer.Option(help="Rows at a time.", min=1)] = 4,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", help="What a column is, e.g. query=Question; may be repeated."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the run; one of that name goes on.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first rows.", min=1)] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Only rows with this tag; may be repeated.")] = None,
    no_diagnose: Annotated[bool, typer.Option("--no-diagnose", help="Gather answers only; judge nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try rows that failed before again.")] = False,
    repeats: Annotated[int, typer.Option(help="Times that the judge judges.", min=1)] = 1,
    budget: Annotated[str, typer.Option(help="Hard caps over all rows, e.g. calls=640,usd=5.")] = "",
    budget_per_row: Annotated[str, typer.Option("--budget-per-row", help="Hard caps for each row.")] = "",
    runner: Annotated[str, typer.Option(help="local, or ray (rows run on a Ray cluster).")] = "local",
    csv: Annotated[Path | None, typer.Option("--csv", help="Also write one line per row to this file.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; do nothing.")] = False,
    db: DatabaseOption = None,
    json_: JsonOption = False,
    yes: YesOption = False,
) -> None:
    """Ask an application a set of questions, judge its answers, and say what goes wrong with them, and why.

    Interrupted, the same command goes on where it was: nothing that is stored is asked or paid again.
    """
    from attr_core.evaluation.runner import Evaluation
    from attr_core.results import Budget

    if strategy == "support" and engine is not None:
        raise ConfigurationError("--engine runs prompts again, which strategy support does not; add --strategy cause")
    chosen: Any = {"strategy": strategy, "runner": runner}
    evaluation = Evaluation(
        app,
        dataset,
        judge=judge,
        engine=engine,
        concurrency=concurrency,
        budget=Budget.parse(budget),
        budget_per_row=Budget.parse(budget_per_row),
        db=db,
        name=name,
        diagnose=not no_diagnose,
        fields=field or [],
        limit=limit,
        tags=tag or [],
        retry_failed=retry_failed,
        options={"repeats": repeats} if repeats > 1 else {},
        **chosen,
    )
    data = evaluation.rows()  # a wrong file is told before a model is loaded
    evaluation = _loaded(evaluation, yes)
    if dry_run:
        _show_dry_run(evaluation, data, json_)
        return
    _agree([evaluation.judge, evaluation.engine], budget or budget_per_row, yes)
    if runner == "ray":  # each machine loads its own
        evaluation = replace(evaluation, judge=judge, engine=engine)
    with progress_bar(quiet=json_) as progress:
        run = evaluation.run(progress=progress, told=lambda line: typer.echo(_inert(line), err=True))
    if csv is not None:
        run.to_csv(csv)
    if json_:
        show_json(run.to_dict())
    else:
        from attr_core.reports.evaluation import render_run

        show(render_run(run))
    _exit(run)


def compare(
    first: Annotated[str, typer.Argument(help="Run: its name, its id (its first characters will do) or 'last'.")],
    second: Annotated[str, typer.Argument(help="The run to compare it with.")],
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """Compare two runs over the same rows: differences of means with paired intervals, and labels that changed."""
    from attr_core.evaluation.results import open_run
    from attr_core.reports.evaluation import render_comparison

    found = open_run(first, db=db).compare(open_run(second, db=db))
    if json_:
        show_json(found.to_dict())
    else:
        show(render_comparison(found))


def _loaded(evaluation: Any, yes: bool) -> Any:
    """With its models loaded; a cluster's machines load them from their names, and get these."""
    if not evaluation.diagnose:
        return evaluation
    running = loaded_engine(evaluation.engine, yes) if evaluation.strategy == "cause" else None
    judging = named_judge(evaluation.judge, yes)
    if judging is None:
        loaded_engine(None, yes)  # likelihoods are of the local model, which may have to be downloaded
    return replace(evaluation, judge=judging, engine=running)


def _show_dry_run(evaluation: Any, data: Any, json_: bool) -> None:
    from dataclasses import asdict

    from attr_core.evaluation.answers import name_of
    from attr_core.reports.costs import render_plan

    troubles = [row.trouble for row in data.rows if row.trouble]
    plan, _ = replace(evaluation, runner="local").plan()
    has = {
        "answer": sum(row.answer is not None for row in data.rows),
        "contexts": sum(row.contexts is not None for row in data.rows),
        "expected answer": sum(row.expected_answer is not None for row in data.rows),
    }
    n_asked = 0 if evaluation.app is None else len(data.rows) - len(troubles)
    if json_:
        told = {"rows": len(data.rows), "fields": str(data.fields), "with": has, "unusable": troubles}
        show_json({**told, "app": name_of(evaluation.app), "app_calls": n_asked, "plan": asdict(plan)}, indent=2)
        return
    typer.echo(f"{counted(len(data.rows), 'row')}, {_inert(str(data.fields))}")
    typer.echo(f"  {', '.join(f'{n} with {name}' for name, n in has.items())}")
    for trouble in troubles[:MOST_SHOWN]:
        typer.echo(f"  unusable: {_inert(trouble)}")
    if n_asked:
        typer.echo(f"  {counted(n_asked, 'call')} of {name_of(evaluation.app)}; judging its answers is in no plan")
    show(render_plan(plan))


def _exit(run: Any) -> None:
    """2 where a cap ended it, 1 where no row has a result."""
    if run.stopped:
        typer.echo(f"attrkit: {_inert(run.stopped)}; the same command with a larger budget goes on", err=True)
        raise typer.Exit(BUDGET_STOPPED)
    if not run.summary().n_done:
        raise typer.Exit(1)


def _inert(text: str) -> str:
    from attr_core.reports.terminal import visible

    return visible(text)
