"""Which label do planted failures get, from a judge that knows the facts, one that errs, and likelihoods alone?

Truth is what was planted (:mod:`attr_core.evaluation.planted`): invented facts, and models that fail in a known way.
The prompt is run again on the model that failed. Prints a confusion table per judge, and of the ``ok`` samples how many
get a label that blames a segment. Resumable: one line per sample and judge in ``results/diagnosis.jsonl``.

With ``--engine`` a real model answers the planted prompts instead. What it does with them nobody planted, so only those
count in which its answer is as wrong (or right) as planted and, where a change was planted to repair, that change does
repair its answer when it is run; the others are told.

usage: python benchmarks/diagnosis.py [--judges perfect erring likelihood] [--per-label 10] [--rate 0.1] [--judge SPEC]
       [--engine hf:MODEL] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from attr_core import Trace, diagnose, load_engine
from attr_core._setup import Options
from attr_core.claims import split_claims
from attr_core.diagnosing import case_of
from attr_core.evaluation.planted import LABELS, ErringJudge, PerfectJudge, PlantedSample, planted
from attr_core.interventions import Intervention, prompt_under
from attr_core.judge import load_judge
from attr_core.protocols import Sampling
from attr_core.support import Outcome, Standard, outcomes

RESULTS = Path(__file__).parent / "results" / "diagnosis.jsonl"
REAL = (
    "ok",
    "retrieval_miss",
    "chunk_dominance",
    "distraction",
    "memory_override",
    "position",
    "compound",
    "misreading",
)
"""Labels that a small real model can be expected to fail by, of its own."""

BLAMES = (
    *("context_conflict", "chunk_dominance", "distraction", "memory_override", "compound", "instruction_injection"),
)


class GeneratesOnly:
    """The model that failed, as behind an API: causes are told from what it answers."""

    max_context = None
    price = None

    def __init__(self, model: Any) -> None:
        own = replace(model, runs={})
        self.spec, self.fingerprint, self.generate = own.spec, own.fingerprint, own.generate


def judges(options: argparse.Namespace) -> dict[str, Any]:
    """By name."""
    known = {
        "perfect": PerfectJudge(),
        "erring": ErringJudge(PerfectJudge(), rate=options.rate, seed=0),
        "likelihood": None,
    }
    found = {name: known[name] for name in options.judges}
    return found | ({options.judge: load_judge(options.judge)} if options.judge else {})


def answered(engine: Any, sample: PlantedSample) -> Trace | None:
    """The sample's run with the real model's answer, where that fails as planted and is repaired as planted."""
    asked = sample.trace.target_generation
    room = Sampling(max_tokens=40)
    said = engine.generate([asked.prompt], room)[0].text
    generation = replace(asked, response=said, model=engine.spec, parameters={"max_tokens": 40, "temperature": 0.0})
    trace = replace(sample.trace.with_generation(generation), answer=said)
    case = case_of(trace, Options(), expected=sample.expected)
    changed = [Intervention.from_dict(one, case.sources) for one in sample.repairs if "add" not in one]
    prompts = [prompt_under(case.generation, case.sources, one) for one in changed]
    texts = [said, *(one.text for one in (engine.generate(prompts, room) if prompts else []))]
    standard = Standard(tuple(split_claims(sample.expected)), question=case.question)
    [first, *others], _ = outcomes(PerfectJudge(), standard, texts)
    as_planted = Outcome.RIGHT if sample.label == "ok" else Outcome.WRONG
    return trace if first is as_planted and all(one is Outcome.RIGHT for one in others) else None


def rows(
    name: str, judge: Any, samples: tuple[PlantedSample, ...], known: set[tuple[str, str]], real: Any = None
) -> Iterator[dict]:
    """What is not known yet."""
    for sample in samples:
        if (name, sample.id) in known or (real is not None and not (sample.expected and sample.label in REAL)):
            continue
        trace = sample.trace if real is None else answered(real, sample)
        if trace is None:
            yield {"judge": name, "id": sample.id, "label": sample.label, "found": None}
            continue
        if judge is None:
            judge = load_judge("likelihood")
        engine: Any = GeneratesOnly(sample.model) if real is None else real
        found = diagnose(trace, expected=sample.expected, engine=engine, judge=judge, db=":memory:")
        yield {
            "judge": name,
            "id": sample.id,
            "label": sample.label,
            "found": found.label,
            "secondary": list(found.secondary),
            "runs": found.n_runs,
            "calls": found.cost.calls,
        }


def table(found: list[dict], name: str) -> str:
    """Accuracy, and per label what was found."""
    others = sum(row["judge"] == name and row["found"] is None for row in found)
    own = [row for row in found if row["judge"] == name and row["found"] is not None]
    right = sum(row["label"] == row["found"] for row in own)
    lines = [
        f"\n## {name}: {right} of {len(own)} ({right / max(len(own), 1):.1%})",
        "",
        "| planted | found |",
        "|---|---|",
    ]
    for label in LABELS:
        counts = Counter(row["found"] for row in own if row["label"] == label)
        if counts:
            lines.append(f"| {label} | {', '.join(f'{found} {n}' for found, n in counts.most_common())} |")
    fine = [row for row in own if row["label"] == "ok"]
    blamed = sum(row["found"] in BLAMES for row in fine)
    lines += [f"\n{others} others were not answered as planted"] if others else []
    return "\n".join([*lines, "", f"of {len(fine)} right answers {blamed} got a label that blames a segment"])


def main() -> None:
    """Diagnose what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--judges", nargs="*", default=["perfect", "erring"], choices=["perfect", "erring", "likelihood"]
    )
    parser.add_argument("--judge", default=None)
    parser.add_argument("--per-label", type=int, default=10)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--engine", default=None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    found = [json.loads(line) for line in lines]
    samples = planted(per_label=options.per_label)
    with options.out.open("a") as file:
        real = load_engine(options.engine) if options.engine else None
        for judge_name, judge in judges(options).items():
            name = judge_name if real is None else f"{judge_name}, {real.spec}"
            for row in rows(name, judge, samples, {(row["judge"], row["id"]) for row in found}, real):
                found.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
    for name in dict.fromkeys(row["judge"] for row in found):
        print(table(found, name))


if __name__ == "__main__":
    main()
