"""How close do Screened, PathGradients and ContextCite come to what is true of planted contexts?

Truth is what ``benchmarks/truth.py`` measured: values of random subsets by exact deletion. LDS is over those that no
method has seen (from the 257th on); ContextCite's fits take the first 64 and 256 of its own masks. Coverage is of the
least-squares effects over all subsets, of segments beyond the margin (a fifth of the largest, at least 1 nat) and of
the others. Screened measures anew; what it forwards is counted in full prompts.

usage: python benchmarks/screened.py [--contexts 60] [--masks 352] [--engine SPEC] [--truth benchmarks/results/truth]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from truth import RESULTS, Truth, truths

from attr_core.claims import claims_of
from attr_core.engines import load_engine
from attr_core.estimators import PathGradients, Screened
from attr_core.estimators.context_cite import lasso_effects
from attr_core.metering import MeteredEngine
from attr_core.results import FloatArray
from attr_core.values import ResponseLogOdds

HELD_OUT = 256


def compare(engine: Any, truth: Truth) -> dict[str, Any]:
    """All methods on one context; each figure is a list, of the response first and then of the planted phrases."""
    metered = MeteredEngine(engine)
    value = ResponseLogOdds(
        metered,
        truth.generation,
        segments=truth.segments,
        response=truth.answer,
        targets=truth.targets,
        claims=claims_of(truth.generation),
    )
    found = Screened().estimate(value)
    passes = metered.cost.tokens_in / truth.n_tokens
    path = PathGradients().estimate(value).effects
    masks, held_out = truth.masks, truth.masks[HELD_OUT:]
    fits = {
        f"ContextCite-{n}": lasso_effects(masks[:n], truth.exact[:n], value.scales, alpha=0.01) for n in (64, HELD_OUT)
    }
    fits |= {"Screened": found.effects, "PathGradients": path}
    actual = truth.exact[HELD_OUT:]
    best = np.linalg.lstsq(np.column_stack([np.ones(len(masks)), masks]), truth.exact, rcond=None)[0][1:].T
    margin = np.maximum(1.0, 0.2 * np.abs(best).max(axis=1, keepdims=True))
    inside, matters = (found.low <= best) & (best <= found.high), np.abs(best) > margin
    return {
        "number": truth.number,
        "kind": truth.context.kind,
        "segments": len(truth.segments),
        "tokens": truth.n_tokens,
        "full_prompts": round(passes, 2),
        "agreement": [] if found.agreement is None else found.agreement.round(2).tolist(),
        "lds": {name: _lds(effects, held_out, actual) for name, effects in fits.items()},
        "covered": [int((inside & matters).sum()), int(matters.sum())],
        "covered_null": [int((inside & ~matters).sum()), int((~matters).sum())],
        "half_width": float(np.median((found.high - found.low) / 2).round(2)),
    }


def _lds(effects: FloatArray, masks: Any, actual: FloatArray) -> list[float]:
    return [
        round(float(spearmanr(masks @ row, column).statistic), 3) for row, column in zip(effects, actual.T, strict=True)
    ]


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over contexts, of the response; coverage over all effects."""
    names = list(found[0]["lds"])
    return {
        "contexts": len(found),
        "lds": {name: round(float(np.mean([one["lds"][name][0] for one in found])), 3) for name in names},
        "covered": round(sum(one["covered"][0] for one in found) / sum(one["covered"][1] for one in found), 3),
        "covered_null": round(
            sum(one["covered_null"][0] for one in found) / sum(one["covered_null"][1] for one in found), 3
        ),
        "full_prompts": float(np.median([one["full_prompts"] for one in found])),
    }


def main() -> None:
    """Print a line a context and the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=60)
    parser.add_argument("--masks", type=int, default=352)
    parser.add_argument("--engine", default=None)
    parser.add_argument("--truth", type=Path, default=RESULTS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    engine, found = load_engine(options.engine), []
    for truth in truths(engine, options.truth, n_contexts=options.contexts, n_masks=options.masks):
        found.append(compare(engine, truth))
        if not options.json:
            print(found[-1], flush=True)
    print(json.dumps({"summary": summary(found), "contexts": found}) if options.json else summary(found))


if __name__ == "__main__":
    main()
