"""Does a judge say the same of many pairs in one call as of each pair alone, and how often is it right?

Pairs are the answers' claims and the segments of planted runs: invented facts, so that the truth is known by rule. Each
run's table is judged in calls of 24 pairs and then pair by pair. What cannot be read is not asked again. Prints their
agreement, the accuracy of both, how many stayed undetermined, and the balance of the classes: a judge that always says
"neutral" agrees with itself too.

usage: python benchmarks/judge_batching.py [--judge SPEC] [--samples 6] [--seed 0]
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import numpy as np

from attr_core._setup import Options
from attr_core.diagnosing import case_of
from attr_core.engines import load_engine
from attr_core.evaluation.planted import PerfectJudge, planted
from attr_core.judge import LLMJudge

SHOWN = ("entails", "contradicts", "neutral", "undetermined")


def verdicts(engine: Any, samples: int, seed: int) -> dict[str, list[str]]:
    """Of all pairs: by rule, many to a call, and one to a call."""
    short = {"reasoning_tokens": 32, "retries": 0}  # small models fill whatever room they have
    judges = {
        "rule": PerfectJudge(),
        "batched": LLMJudge(engine, **short),
        "single": LLMJudge(engine, max_cells=1, **short),
    }
    found: dict[str, list[str]] = {name: [] for name in judges}
    labels = ("ok", "context_conflict", "chunk_dominance", "misreading", "incomplete_answer", "memory_override")
    per_label = -(-samples // len(labels))
    for sample in planted(labels=labels, per_label=per_label, seed=seed)[:samples]:
        case = case_of(sample.trace, Options(), expected=None)
        for name, judge in judges.items():
            support = judge.judge(case.claims, case.sources, question=case.question)
            found[name] += support.verdicts.ravel().tolist()
    return found


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", default=None, help="an engine's spec; default the packaged model")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    engine = load_engine(options.judge)
    found = {name: np.array(one) for name, one in verdicts(engine, options.samples, options.seed).items()}
    n = len(found["rule"])
    agree = float(np.mean(found["batched"] == found["single"]))
    print(f"{engine.spec}: {n} pairs; batched and single verdicts agree on {agree:.1%}")
    for name, one in found.items():
        counts = Counter(one.tolist())
        right = float(np.mean(one == found["rule"]))
        balance = ", ".join(f"{verdict} {counts[verdict]}" for verdict in SHOWN)
        print(f"  {name:8s} right {right:6.1%}  {balance}")


if __name__ == "__main__":
    main()
