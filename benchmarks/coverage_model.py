"""Do the intervals hold on a real model? Nine segments, answered and measured by the packaged small model.

The reference is the Banzhaf value itself, computed from all 512 subsets; the intervals are those of the default budget
of 64 ablations.

usage: python benchmarks/coverage_model.py [--contexts 20] [--db coverage.db] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from planted_facts import invent

from attr_core.cache import Cache
from attr_core.claims import split_claims
from attr_core.engines import load_engine
from attr_core.estimators import Banzhaf, DebiasedLasso
from attr_core.metering import MeteredEngine
from attr_core.prompt import candidates
from attr_core.protocols import Engine, Sampling
from attr_core.segmenter import segment_trace
from attr_core.types import Target, TargetKind, Trace
from attr_core.values import ResponseLogOdds


@dataclass(frozen=True)
class Outcome:
    """One context: how many of its effects the intervals cover, by claim and segment, and how wide they are."""

    seed: int
    n_segments: int
    n_effects: int
    covered: int
    median_width: float
    largest_effect: float
    r2: float
    answer: str


def context(seed: int, engine: MeteredEngine) -> Trace:
    """A question over the eight chunks of two invented facts, answered by the model."""
    facts = [invent(1000 * (seed + 1) + number) for number in range(2)]
    documents = [document.text for fact in facts for document in fact.documents]
    user = "Context:\n" + "\n\n".join(documents) + f"\n\nQuestion: {facts[0].question}"
    messages = [{"role": "system", "content": "Answer in one short sentence."}, {"role": "user", "content": user}]
    trace = Trace.from_messages(messages, None, documents=documents, query=facts[0].question)
    answer = engine.generate([trace.generations[0].prompt], Sampling(max_tokens=40))[0].text
    return Trace.from_messages(messages, answer, documents=documents, query=facts[0].question)


def outcomes(engine: Engine, *, n_contexts: int, db: Path) -> Iterator[Outcome]:
    """Measure the contexts one after another; what a stopped run measured is kept in ``db``."""
    with Cache(db) as cache:
        for seed in range(n_contexts):
            metered = MeteredEngine(engine, cache=cache)
            generation = segment_trace(context(seed, metered))
            response = generation.response or ""
            columns = candidates(generation.segments)
            claims = split_claims(response)
            targets = [Target(TargetKind.CLAIM, c.start, c.end, c.text, c.index) for c in claims]
            value = ResponseLogOdds(metered, generation, segments=columns, response=response, targets=targets)
            found = DebiasedLasso(n_drops=0).estimate(value)
            truth = Banzhaf().estimate(value).effects
            yield Outcome(
                seed=seed,
                n_segments=len(columns),
                n_effects=truth.size,
                covered=int(((found.low <= truth) & (truth <= found.high)).sum()),
                median_width=round(float(np.median(found.high - found.low)), 2),
                largest_effect=round(float(truth.max()), 2),
                r2=round(float(np.nanmedian(found.fit.r2 if found.fit else np.nan)), 2),
                answer=response,
            )


def main() -> None:
    """Print one line a context and the coverage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=20)
    parser.add_argument("--db", type=Path, default=Path("coverage.db"))
    parser.add_argument("--engine", default=None)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    engine = load_engine(options.engine)
    for one in outcomes(engine, n_contexts=options.contexts, db=options.db):
        found.append(one)
        if not options.json:
            print(one)
            sys.stdout.flush()
    total = sum(one.n_effects for one in found)
    covered = sum(one.covered for one in found)
    result = {"contexts": len(found), "effects": total, "coverage": round(covered / total, 3)}
    print(json.dumps({"summary": result, "outcomes": [asdict(one) for one in found]}) if options.json else result)


if __name__ == "__main__":
    main()
