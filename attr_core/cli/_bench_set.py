"""``attrkit bench-set``: the planted-failure set as files that others can load and cite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attr_core.cli._shared import JsonOption, counted, show_json

EXAMPLES = """
Examples:

  attrkit bench-set -o planted.jsonl

  attrkit bench-set -o small.jsonl --per-label 2 --seed 7 --label flaky --label compound

  attrkit eval planted.jsonl --tag chunk_dominance
"""


def bench_set(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, NAME.jsonl; its card stands beside it.")],
    per_label: Annotated[int, typer.Option(help="Samples of each label.", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="Another seed gives other entities, facts and layouts.")] = 0,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="Only this label; may be repeated; default all.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Write runs with planted failures, and the truth about each; the same seed and version give the same bytes."""
    from attr_core.evaluation.planted.files import card_path, write_set
    from attr_core.evaluation.planted.samples import LABELS

    card = write_set(out, labels=label or LABELS, per_label=per_label, seed=seed)
    if json_:
        show_json(dict(card))
        return
    typer.echo(f"{counted(card['n_samples'], 'sample')} of {counted(len(card['labels']), 'label')} written to {out}")
    typer.echo(f"card: {card_path(out)} (version {card['version']}, seed {seed}, {card['licence']})")
