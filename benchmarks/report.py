"""What the benchmarks found, as a table, JSON and a plot, from the measurements under ``benchmarks/results``.

Of ``quality.py`` and ``price.py``. Intervals are 95 % bootstrap intervals over contexts, paired where two methods are
compared; ratios are of runs that followed each other in one process.

usage: python benchmarks/report.py [--results FOLDER]      writes summary.md, summary.json and, with matplotlib, *.png
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
N_BOOTSTRAP = 10_000
MIN_AGREEMENT = 0.7
"""Agreement from which on hiding stands for deleting; as in ``attr_core.estimators``."""

Row = dict[str, Any]
METHODS = ("Screened", "PathGradients", "ContextCite-32", "ContextCite-64", "ContextCite-256", "leave-one-out")


def interval(values: Sequence[float], of: Callable[[np.ndarray[Any, Any]], Any] = np.mean) -> list[float]:
    """``[estimate, low, high]`` over contexts, each a row that is drawn again as a whole."""
    rows = np.asarray(values, dtype=float)
    if not len(rows):
        return [math.nan] * 3
    draws = np.random.default_rng(0).integers(len(rows), size=(N_BOOTSTRAP, len(rows)))
    low, high = np.percentile([of(rows[draw]) for draw in draws], [2.5, 97.5])
    return [round(float(one), 4) for one in (of(rows), low, high)]


def quality(rows: Sequence[Row]) -> dict[str, Any]:
    """Of planted contexts."""
    wide = [row for row in rows if row["masks"] >= 500]
    found: dict[str, Any] = {
        "contexts": len(rows),
        "with_boilerplate": sum(row["boilerplate"] for row in rows),
        "lds": {name: interval([row["lds"][name] for row in rows]) for name in METHODS},
        "lds_less_context_cite_256": interval(_differences(rows, "Screened", "ContextCite-256")),
        "path_over_context_cite_64": interval(
            [[row["lds"]["PathGradients"], row["lds"]["ContextCite-64"]] for row in rows], _ratio_of_means
        ),
        "drops_over_context_cite_64": {
            f"top-{k}": interval(
                [[row["drops"]["Screened"][n], row["drops"]["ContextCite-64"][n]] for row in rows], _ratio_of_means
            )
            for n, k in enumerate((1, 3, 5))
        },
        "full_prompts": {
            name: round(float(np.median([row["costs"][name]["tokens"] / row["tokens"] for row in rows])), 2)
            for name in ("Screened", "PathGradients", "leave-one-out")
        },
        "covered": {
            name: [*_shares([row["covered"][name][:2] for row in wide]), sum(row["covered"][name][2] for row in wide)]
            for name in ("beyond", "within")
        },
        "covered_contexts": len(wide),
        "recall": {},
    }
    for kind in sorted({row["kind"] for row in rows}):
        some = [row["planted"] for row in rows if row["kind"] == kind]
        found["recall"][kind] = {
            "contexts": len(some),
            "screened": _shares([[one["named"], one["segments"]] for one in some]),
            "leave_one_out": _shares([[one["leave_one_out"], one["segments"]] for one in some]),
        }
    planted = [row["planted"] for row in rows]
    found["placebos_named"] = _shares([[one["placebos_named"], one["placebos"]] for one in planted])
    found["others_named"] = _shares([[one["others_named"], one["others"]] for one in planted])
    return found


def price(rows: Sequence[Row]) -> dict[str, Any]:
    """Of contexts by length, number of segments and claims."""
    found: dict[str, Any] = {}
    for suite in ("2000", "4000", "claims"):
        pairs = _paired([row for row in rows if row["suite"] == suite])
        for name, some in _by_size(pairs).items():
            agreeing = [pair for pair in some if min(pair[0]["agreement"] or [0.0]) >= MIN_AGREEMENT]
            found[f"{suite} {name}".strip()] = {
                "contexts": len(some),
                "agreeing": len(agreeing),
                "tokens": interval([ours["tokens"] / theirs["tokens"] for ours, theirs in agreeing], np.median),
                "seconds": interval([ours["seconds"] / theirs["seconds"] for ours, theirs in agreeing], np.median),
                "others": [
                    round(ours["tokens"] / theirs["tokens"], 3)
                    for ours, theirs in some
                    if (ours, theirs) not in agreeing
                ],
            }
    growth = [row for row in rows if row["suite"] == "growth"]
    found["growth"] = _growth(growth)
    found["short"] = _short([row for row in rows if row["suite"] == "short"])
    known = [row for row in rows if row["suite"] == "known"]
    said = [row for row in known if row["says"]]
    found["known"] = {"contexts": len(known), "said": len(said), "named": _shares([[row["named"], 1] for row in said])}
    return found


def _growth(rows: Sequence[Row]) -> dict[str, Any]:
    """Price in full prompts by segments, at about 4,000 tokens, and the exponent of its growth; by length, at 50."""
    at = {
        n: [row["tokens"] / row["prompt"] for row in rows if row["segments"] == n and row["prompt"] > 3_500]
        for n in sorted({row["segments"] for row in rows})
    }
    medians = {n: round(float(np.median(one)), 3) for n, one in at.items() if one}
    exponent = math.nan
    if len(medians) > 1:
        exponent = float(np.polyfit(np.log(list(medians)), np.log(list(medians.values())), 1)[0])
    lengths: dict[str, list[float]] = {}
    for row in rows:
        if 40 < row["segments"] < 60:
            lengths.setdefault(str(round(row["prompt"], -3)), []).append(row["tokens"] / row["prompt"])
    return {
        "full_prompts_by_segments": medians,
        "exponent": round(exponent, 3),
        "full_prompts_by_length": {
            key: round(float(np.median(one)), 3) for key, one in sorted(lengths.items(), key=lambda item: int(item[0]))
        },
    }


def _short(rows: Sequence[Row]) -> dict[str, Any]:
    """Medians of tokens in full prompts, seconds and peak memory of each method."""
    return {
        method: {
            "full_prompts": round(float(np.median([row["tokens"] / row["prompt"] for row in some])), 2),
            "seconds": round(float(np.median([row["seconds"] for row in some])), 1),
            "peak_megabytes": round(float(np.median([row["peak_megabytes"] or 0 for row in some]))),
        }
        for method in dict.fromkeys(row["method"] for row in rows)
        if (some := [row for row in rows if row["method"] == method])
    }


def _paired(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Screened and ContextCite on the same context."""
    by = {(row["method"], row["kind"], row["seed"], row["prompt"]): row for row in rows}
    return [
        (row, by["ContextCite-64", *key])
        for (method, *key), row in by.items()
        if method == "Screened" and ("ContextCite-64", *key) in by
    ]


def _by_size(pairs: Sequence[tuple[Row, Row]]) -> dict[str, list[tuple[Row, Row]]]:
    found: dict[str, list[tuple[Row, Row]]] = {}
    for pair in pairs:
        claims = pair[0]["claims"]
        name = f"{round(pair[0]['prompt'], -3)} tokens, {claims} claims" if claims > 1 else ""
        found.setdefault(name, []).append(pair)
    return found


def _differences(rows: Sequence[Row], one: str, other: str) -> list[float]:
    return [row["lds"][one] - row["lds"][other] for row in rows]


def _ratio_of_means(rows: np.ndarray[Any, Any]) -> float:
    one, other = rows.mean(axis=0)
    return float(one / other)


def _shares(rows: Sequence[Sequence[int]]) -> list[float]:
    """``[share, found, all]``."""
    found, everything = (sum(row[n] for row in rows) for n in (0, 1))
    return [round(found / everything, 4) if everything else math.nan, found, everything]


def markdown(found: dict[str, Any]) -> str:
    """The tables."""
    lines = ["# What the benchmarks found", "", f"Machine: {found['machine']}.", ""]
    if q := found.get("quality"):
        lines += [
            f"## Quality: {q['contexts']} planted contexts of at most 500 tokens",
            "",
            f"{q['with_boilerplate']} of them with boilerplate in each document.",
            "",
            "| method | LDS [95 %] | full prompts forwarded (median) |",
            "|---|---|---|",
        ]
        for name, (mean, low, high) in q["lds"].items():
            lines.append(f"| {name} | {mean:.3f} [{low:.3f}, {high:.3f}] | {q['full_prompts'].get(name, '')} |")
        lines += ["", *(f"* {name}: {json.dumps(q[name])}" for name in q if name not in ("lds", "full_prompts"))]
    if p := found.get("price"):
        lines += ["", "## Price", "", *(f"* {name}: {json.dumps(value)}" for name, value in p.items())]
    return "\n".join(lines) + "\n"


def plots(found: dict[str, Any], rows: Sequence[Row], folder: Path) -> None:
    """LDS against price, and growth, if matplotlib is there."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("matplotlib is not installed: no plot")
        return
    mpl.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for name in METHODS:
        passes = {"ContextCite-32": 17, "ContextCite-64": 33, "ContextCite-256": 130}.get(name)
        passes = passes or found["quality"]["full_prompts"][name]
        mean, low, high = found["quality"]["lds"][name]
        axes.errorbar([passes], [mean], yerr=[[mean - low], [high - mean]], fmt="o", label=name)
    axes.set(xscale="log", xlabel="full prompts forwarded", ylabel="LDS (mean, 95 % interval)")
    axes.legend()
    figure.savefig(folder / "quality.png", dpi=120, bbox_inches="tight")


def main() -> None:
    """Write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--machine", default="2 CPU cores, SmolLM2-135M in float32")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": options.machine}
    rows = [json.loads(path.read_text()) for path in sorted((options.results / "quality").glob("*.json"))]
    if rows:
        found["quality"] = quality(rows)
    path = options.results / "price.jsonl"
    if path.exists():
        found["price"] = price([json.loads(line) for line in path.read_text().splitlines()])
    (options.results / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.results / "summary.md").write_text(markdown(found))
    if rows:
        plots(found, rows, options.results)
    print(markdown(found))


if __name__ == "__main__":
    main()
