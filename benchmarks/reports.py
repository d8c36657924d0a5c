"""How long the report of a stored evaluation of 1,000 rows takes, and `attrkit traces` beside it?

Plants failures, diagnoses them with a judge that knows the facts, running prompts again on the model that failed, and
stores each trace with its diagnosis as a row of an evaluation run in a temporary database; every twentieth row failed
instead. Where there are more rows than plantings, plantings are stored again under other ids. Prints, asserts nothing.

    python benchmarks/reports.py [--rows 1000] [--per-label 6] [--repeats 5] [--out FILE]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from diagnosis import GeneratesOnly

from attr_core import Diagnosis, Trace, diagnose
from attr_core._storage.evaluations import Evaluations, StoredRun
from attr_core.evaluation.planted import PerfectJudge, planted
from attr_core.evaluation.results import open_run
from attr_core.evaluation.segments import segment_uses
from attr_core.reports.set_formats import csv_set_report, json_set_report, markdown_set_report
from attr_core.reports.set_html import html_set_report
from attr_core.store import Store

Planted = tuple[Trace, Diagnosis, list[dict[str, Any]]]

REPORT_SECONDS, REPORT_BYTES, TRACES_SECONDS = 10, 5_000_000, 0.5
"""Goals, for the page and for the command."""

NAME = "planted"


def main() -> None:
    """Plant, store, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--per-label", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None, help="keep the page here")
    options = parser.parse_args()
    known, seconds = timed(lambda: list(diagnosed(options.per_label)))
    print(f"{len(known)} plantings diagnosed in {seconds:.1f} s")
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "attrkit.db"
        _, seconds = timed(lambda: store(db, known, options.rows))
        print(f"{options.rows:,} rows stored in {seconds:.1f} s, {db.stat().st_size / 1e6:.1f} MB")
        _report(db, options.out)
        _traces(db, options.repeats)


def diagnosed(per_label: int) -> Iterator[Planted]:
    """Each planting with its diagnosis and what became of its segments."""
    judge = PerfectJudge()
    for sample in planted(per_label=per_label, seed=0):
        engine: Any = GeneratesOnly(sample.model)
        found = diagnose(sample.trace, expected=sample.expected, judge=judge, engine=engine, db=":memory:")
        uses = [] if found.grid is None else segment_uses(sample.trace, found)
        yield replace(sample.trace, tags=(sample.label,)), found, uses


def store(db: Path, known: Sequence[Planted], n_rows: int) -> None:
    """As rows of one run, under ids of their own."""
    with Evaluations(db) as kept:
        kept.begin(StoredRun("ev_bench", NAME, "benchmark", n_rows, time.time(), None, {"judge": "perfect"}))
        for n, (trace, found, uses) in enumerate(islice(cycle(known), n_rows)):
            own = replace(trace, id=f"tr_{n:05d}")
            line = {"row_id": f"row-{n}", "position": n, "query": own.query, "tags": [*own.tags, f"week {n % 8}"]}
            if n % 20 == 0:
                kept.failed("ev_bench", line, "RuntimeError: the index is away")
                with Store(db) as traces:
                    traces.save(own)
                continue
            line["details"] = {"segments": uses, "own_prompt": True}
            kept.done("ev_bench", line, own, replace(found, trace_id=own.id))
        kept.finish("ev_bench")


def _report(db: Path, out: Path | None) -> None:
    run, reading = timed(lambda: open_run(NAME, db=db))
    print(f"\nthe run read from the store: {reading:.2f} s")
    page, seconds = timed(lambda: html_set_report(run))
    size = len(page.encode())
    print(f"set report, HTML: {seconds:.2f} s, {size / 1e6:.2f} MB   goal: {REPORT_SECONDS} s, {REPORT_BYTES / 1e6} MB")
    for name, write in (("JSON", json_set_report), ("CSV", csv_set_report), ("Markdown", markdown_set_report)):
        text, seconds = timed(lambda write=write: write(run))
        print(f"set report, {name}: {seconds:.2f} s, {len(text.encode()) / 1e6:.2f} MB")
    if out is not None:
        out.write_text(page, encoding="utf-8")
    path = db.parent / "set.html"
    command = [sys.executable, "-m", "attr_core.cli", "report", NAME, "--db", str(db), "-o", str(path)]
    print(f"attrkit report {NAME}, the whole command: {timed(lambda: _run(command))[1]:.2f} s")


def _traces(db: Path, repeats: int) -> None:
    with Store(db) as kept:
        n = len(kept.list(limit=None))
        for limit in (20, None):
            times = [timed(lambda limit=limit: kept.list(limit=limit))[1] for _ in range(repeats)]
            print(f"Store.list(limit={limit}) of {n:,}: median {statistics.median(times) * 1_000:.1f} ms")
    command = [sys.executable, "-m", "attr_core.cli", "traces", "--db", str(db)]
    times = [timed(lambda: _run(command))[1] for _ in range(repeats)]
    print(f"attrkit traces, the whole command: median {statistics.median(times):.2f} s   goal: {TRACES_SECONDS} s")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and how many seconds it took."""
    began = time.perf_counter()
    found = call()
    return found, time.perf_counter() - began


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
