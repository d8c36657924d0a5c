"""What does an attribution cost as contexts grow, in tokens, seconds and memory, beside the other packages?

One-claim answers (the planted one, so that the tail does not vary), one target, attrkit's defaults, exact confirmation
included; and three claims, each with its phrase. All methods run one after the other on the same loaded model, their
tokens counted by hooks. One line of JSON per run in ``results/price.jsonl``, so that a run can be stopped and resumed.

usage: python benchmarks/price.py [SUITE ...] [--engine SPEC] [--out FILE]

Suites: ``short`` (500 tokens, all peers), ``2000``, ``4000``, ``growth`` (4,000 tokens, 10 to 200 segments),
``claims`` (three claims, 2,000 and 4,000 tokens), ``known`` (facts that the model has without the context).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from contexts import Context, Kind, make
from peers import Ranking, context_cite, larpie, leave_one_out, metered

from attr_core.claims import claims_of
from attr_core.engines import load_engine
from attr_core.estimators import PathGradients, Screened
from attr_core.metering import MeteredEngine
from attr_core.prompt import candidates
from attr_core.results import Estimate
from attr_core.segmenter import segment_trace
from attr_core.types import Generation, Segment, Target, TargetKind
from attr_core.values import ResponseLogOdds

SUITES = ("short", "2000", "4000", "growth", "claims", "known")
KINDS: tuple[Kind, ...] = ("single", "contradiction", "duplicate", "placebo", "two-hop")
LONG = {"2000": (40, 1_950), "4000": (50, 4_500)}
"""Segments, and what to ask ``contexts.make`` for so that prompts have a little more tokens than that."""

RESULTS = Path(__file__).parent / "results" / "price.jsonl"


@dataclass(frozen=True)
class Case:
    """One run to be made: a context and a method."""

    suite: str
    method: str
    kind: Kind
    seed: int
    n_segments: int
    n_tokens: int
    n_claims: int = 1

    @property
    def key(self) -> str:
        return f"{self.suite} {self.method} {self.kind} {self.seed} {self.n_segments} {self.n_tokens} {self.n_claims}"

    @property
    def context(self) -> Context:
        return make(
            self.kind, seed=self.seed, n_segments=self.n_segments, n_tokens=self.n_tokens, n_claims=self.n_claims
        )


def cases(suite: str) -> Iterator[Case]:
    """Of one suite; methods of one context follow each other, so that a busy machine slows them alike."""
    if suite == "short":
        for seed, kind in enumerate(KINDS):
            for method in (
                "Screened",
                "PathGradients",
                "ContextCite-64",
                "larpie",
                "leave-one-out",
                "leave-one-out, reuse",
            ):
                yield Case(suite, method, kind, seed, 20, 450)
    if suite in ("2000", "4000"):
        for seed, kind in enumerate(KINDS):
            for method in ("Screened", "PathGradients", "ContextCite-64"):
                yield Case(suite, method, kind, seed, *LONG[suite])
    if suite == "growth":
        for n_segments, n_tokens in ((10, 5_000), (50, 4_500), (200, 3_950), (50, 950), (50, 1_950)):
            for seed in range(3):
                yield Case(suite, "Screened", "single", seed, n_segments, n_tokens)
    if suite == "claims":
        for shape in LONG.values():
            for seed in range(3):
                for method in ("Screened", "ContextCite-64"):
                    yield Case(suite, method, "single", seed, *shape, 3)


def run(engine: Any, case: Case) -> dict[str, Any]:
    """Measure one case."""
    context = case.context
    generation = segment_trace(context.trace())
    segments = candidates(generation.segments)
    found: dict[str, Estimate] = {}
    work = _methods(engine, generation, segments, context, found)[case.method]
    engine.release()
    ranking = work()
    full = len(engine.render(generation.prompt).token_ids)
    tail = engine.tail_size(generation.prompt, segments, context.answer).tail
    screened = found.get("Screened")
    agreement = None if screened is None or screened.agreement is None else screened.agreement.round(3).tolist()
    return {
        "key": case.key,
        "suite": case.suite,
        "method": case.method,
        "kind": case.kind,
        "seed": case.seed,
        "segments": len(segments),
        "claims": case.n_claims,
        "prompt": full,
        "tail": tail,
        "tokens": ranking.tokens,
        "seconds": round(ranking.seconds, 2),
        "peak_megabytes": None if ranking.peak_bytes is None else round(ranking.peak_bytes / 1e6),
        "agreement": agreement,
        "first": int(np.argmax(ranking.effects)),
    }


def _methods(
    engine: Any, generation: Generation, segments: tuple[Segment, ...], context: Context, found: dict[str, Estimate]
) -> dict[str, Callable[[], Ranking]]:
    answer = context.answer
    whole = Target(TargetKind.RESPONSE, 0, len(answer), answer)
    phrases = [answer.index(phrase) for phrase in context.phrases]
    spans = [Target(TargetKind.SPAN, at, at + len(p), p) for at, p in zip(phrases, context.phrases, strict=True)]
    targets = [whole] if len(spans) == 1 else spans

    def ours(estimator: Any) -> Ranking:
        value = ResponseLogOdds(
            MeteredEngine(engine),
            generation,
            segments=segments,
            response=answer,
            targets=targets,
            claims=claims_of(generation),
        )

        def estimate() -> Any:
            found[estimator.name] = estimator.estimate(value)
            return found[estimator.name].effects[0]

        return metered(estimator.name, engine, estimate)

    case = (engine, generation, segments, answer)
    return {
        "Screened": lambda: ours(Screened()),
        "PathGradients": lambda: ours(PathGradients()),
        "ContextCite-64": lambda: context_cite(*case, n_ablations=64),
        "larpie": lambda: larpie(*case),
        "leave-one-out": lambda: leave_one_out(*case),
        "leave-one-out, reuse": lambda: leave_one_out(*case, reuse=True),
    }


def known(engine: Any, seed: int) -> dict[str, Any]:
    """Whether words that the model says without the context too are named as such."""
    from attr_core.api import attribute
    from attr_core.protocols import Sampling

    context = make("known", seed=seed, n_segments=12, n_tokens=200)
    prompt = context.trace("?").target_generation.prompt
    answer = engine.generate([prompt], Sampling(max_tokens=30))[0].text
    phrase = context.phrases[0]
    says = phrase in answer
    if not says:
        return {"key": f"known {seed}", "suite": "known", "seed": seed, "says": False, "named": False}
    found = attribute(context.trace(answer), engine=engine, spans=[phrase], db=":memory:", regenerations=True)
    [row] = [n for n, target in enumerate(found.targets) if target.text == phrase][:1]
    return {"key": f"known {seed}", "suite": "known", "seed": seed, "says": True, "named": bool(found.is_known(row))}


def main() -> None:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", default=list(SUITES), metavar="SUITE")
    parser.add_argument("--engine", default=None)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["key"] for line in options.out.read_text().splitlines()} if options.out.exists() else set()
    engine = load_engine(options.engine)
    for suite in options.suites:
        work: list[tuple[str, Callable[[], dict[str, Any]]]] = [
            (case.key, lambda case=case: run(engine, case)) for case in cases(suite)
        ]
        if suite == "known":
            work = [(f"known {seed}", lambda seed=seed: known(engine, seed)) for seed in range(20)]
        for key, measure in work:
            if key not in done:
                line = json.dumps(measure())
                with options.out.open("a") as file:
                    file.write(line + "\n")
                print(line, flush=True)


if __name__ == "__main__":
    main()
