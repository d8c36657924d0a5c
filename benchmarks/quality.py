"""How right are Screened, PathGradients, ContextCite and leave-one-out about planted contexts?

Truth is what ``benchmarks/truth.py`` measured: values of random subsets by exact deletion. Of each context, and of the
answer as a whole unless it says otherwise:

* LDS: Spearman of predicted and actual values over subsets that no method has seen (from the 257th on). ContextCite's
  effects are its package's own, fitted to the values of its own first 32, 64 and 256 masks.
* The log-probability that deleting the first 1, 3 and 5 segments of a method takes from the answer.
* Of the planted phrase: the share of planted segments that are called a cause (Screened: ``drives``, or a member of a
  redundancy group; leave-one-out: a drop beyond the margin), and of placebos that are called one.
* Coverage of the least-squares effects over all subsets, fitted beside the pairs of the leading segments, by
  Screened's intervals: of segments beyond the margin (a fifth
  of the largest, at least 1 nat) and of the others.

One file per context, so a run can be stopped and resumed; ``benchmarks/report.py`` sums up.

usage: python benchmarks/quality.py [--first 100] [--contexts 60] [--masks 320] [--truth FOLDER] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from peers import context_cite_on, leave_one_out, metered
from scipy.stats import spearmanr
from truth import RESULTS as TRUTHS
from truth import Truth, truths

from attr_core.claims import claims_of
from attr_core.engines import load_engine
from attr_core.estimators import PathGradients, Screened
from attr_core.metering import MeteredEngine
from attr_core.results import Estimate, FloatArray, MaskArray
from attr_core.values import ResponseLogOdds
from attr_core.verdicts import adjusted_p_values, margins, weigh

HELD_OUT = 256
FITS = (32, 64, HELD_OUT)
TOP = (1, 3, 5)
LEADING = 4
RESULTS = Path(__file__).parent / "results" / "quality"


def compare(engine: Any, truth: Truth) -> dict[str, Any]:
    """All methods on one context."""
    estimates: dict[str, Estimate] = {}
    costs: dict[str, dict[str, float]] = {}
    for estimator in (Screened(), PathGradients()):
        engine.release()
        value = value_over(engine, truth)

        def estimate(value: Any = value, estimator: Any = estimator) -> FloatArray:
            estimates[estimator.name] = estimator.estimate(value)
            return estimates[estimator.name].effects[0]

        costs[estimator.name] = _cost(metered(estimator.name, engine, estimate))
    engine.release()
    alone = leave_one_out(engine, truth.generation, truth.segments, truth.answer, reuse=True)
    costs["leave-one-out"] = _cost(alone)
    found, value = estimates["Screened"], value_over(engine, truth)
    n_tokens = int(value.scales[0])
    effects = {f"ContextCite-{n}": _context_cite(truth, n, n_tokens) for n in FITS}
    effects |= {name: one.effects[0] for name, one in estimates.items()} | {"leave-one-out": alone.effects}
    held_out, actual = truth.masks[HELD_OUT:], truth.exact[HELD_OUT:, 0]
    delta = margins(found.effects, floor=value.floor)
    verdicts = weigh(found, delta, adjusted_p_values(found, delta))
    return {
        "number": truth.number,
        "kind": truth.context.kind,
        "boilerplate": truth.number % 4 == 3,
        "segments": len(truth.segments),
        "tokens": truth.n_tokens,
        "masks": len(truth.exact),
        "costs": costs,
        "agreement": [] if found.agreement is None else found.agreement.round(3).tolist(),
        "lds": {name: _lds(one, held_out, actual) for name, one in effects.items()},
        "drops": _drops(value, _ranked(effects, found)),
        "planted": _planted(truth, found, verdicts, alone.effects),
        "covered": _covered(truth, found),
    }


def value_over(engine: Any, truth: Truth) -> ResponseLogOdds:
    """The answer and the planted phrases, with nothing in the cache."""
    return ResponseLogOdds(
        MeteredEngine(engine),
        truth.generation,
        segments=truth.segments,
        response=truth.answer,
        targets=truth.targets,
        claims=claims_of(truth.generation),
    )


def _cost(ranking: Any) -> dict[str, float]:
    return {"tokens": ranking.tokens, "seconds": round(ranking.seconds, 2)}


def _context_cite(truth: Truth, n: int, n_tokens: int) -> FloatArray:
    return context_cite_on(truth.exact[:n, 0], truth.masks[:n], n_tokens=n_tokens)


def _lds(effects: FloatArray, masks: MaskArray, actual: FloatArray) -> float:
    predicted = masks @ effects
    return round(float(spearmanr(predicted, actual).statistic), 4) if np.ptp(predicted) else 0.0


def _ranked(effects: dict[str, FloatArray], found: Estimate) -> dict[str, list[int]]:
    """Columns by effect; what Screened does not tell from 0, by the middle of its interval."""
    middle = np.nan_to_num((found.low[0] + found.high[0]) / 2)
    ties = {"Screened": middle}
    return {
        name: sorted(range(len(one)), key=lambda s: (-one[s], -ties.get(name, one)[s])) for name, one in effects.items()
    }


def _drops(value: ResponseLogOdds, ranked: dict[str, list[int]]) -> dict[str, list[float]]:
    """Log-odds that deleting the first ``TOP`` takes away, for each method."""
    n = value.n_segments
    masks = np.ones((1 + len(ranked) * len(TOP), n), dtype=np.bool_)
    for row, (order, k) in enumerate(((order, k) for order in ranked.values() for k in TOP), start=1):
        masks[row, order[:k]] = False
    values = value.exact(masks)[:, 0]
    lost = (values[0] - values[1:]).reshape(len(ranked), len(TOP))
    return dict(zip(ranked, lost.round(3).tolist(), strict=True))


def _planted(truth: Truth, found: Estimate, verdicts: Any, alone: FloatArray) -> dict[str, Any]:
    """Planted segments, and how many of them are called causes of the phrase; the same of placebos."""
    column = {document: n for n, segment in enumerate(truth.segments) for document in segment.documents}
    placebos = sorted({column[one] for one in truth.context.placebos})
    wanted = sorted({one for alternatives in truth.causes for cause in alternatives for one in cause})
    rows = range(1, len(truth.targets))
    named = {s for row in rows for s in range(len(truth.segments)) if verdicts[row, s] == "drives"}
    named |= {member for group in found.groups if group.target in rows for member in group.members}
    bar = max(1.0, 0.2 * float(np.abs(alone).max()))
    return {
        "segments": len(wanted),
        "named": len(named & set(wanted)),
        "leave_one_out": int((alone[wanted] > bar).sum()),
        "placebos": len(placebos),
        "placebos_named": len(named & set(placebos)),
        "others": len(truth.segments) - len(wanted) - len(placebos),
        "others_named": len(named - set(wanted) - set(placebos)),
        "groups": len(found.groups),
    }


def _covered(truth: Truth, found: Estimate) -> dict[str, list[int]]:
    """Of ``[covered, all]``, and those without an interval."""
    best = np.array([_best(truth.masks, values) for values in truth.exact.T])
    matters = np.abs(best) > np.maximum(1.0, 0.2 * np.abs(best).max(axis=1, keepdims=True))
    told, inside = np.isfinite(found.low), (found.low <= best) & (best <= found.high)
    return {
        name: [int((inside & told & which).sum()), int((told & which).sum()), int((~told & which).sum())]
        for name, which in (("beyond", matters), ("within", ~matters))
    }


def _best(masks: MaskArray, values: FloatArray) -> FloatArray:
    """Least-squares effects ``(n_segments,)``, with the pairs of the ``LEADING``: left out, they would be its noise."""
    signs = np.where(masks, 0.5, -0.5)
    plain = np.column_stack([np.ones(len(masks)), signs])
    alone = np.linalg.lstsq(plain, values, rcond=None)[0][1:]
    pairs = combinations(np.argsort(-np.abs(alone))[:LEADING], 2)
    design = np.column_stack([plain, *(signs[:, one] * signs[:, other] for one, other in pairs)])
    return np.asarray(np.linalg.lstsq(design, values, rcond=None)[0][1 : 1 + masks.shape[1]])


def main() -> None:
    """Measure what is not there yet, and say of each context what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--contexts", type=int, default=60)
    parser.add_argument("--masks", type=int, default=320)
    parser.add_argument("--engine", default=None)
    parser.add_argument("--truth", type=Path, default=TRUTHS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    engine = load_engine(options.engine)
    for truth in truths(engine, options.truth, n_contexts=options.contexts, n_masks=options.masks, first=options.first):
        path = options.out / f"{truth.number:03d}.json"
        known = json.loads(path.read_text()) if path.exists() else {"masks": 0}
        if known["masks"] < len(truth.exact):
            known = compare(engine, truth)
            path.write_text(json.dumps(known, indent=1) + "\n")
        print(known["number"], known["kind"], known["lds"], known["planted"], known["covered"], flush=True)


if __name__ == "__main__":
    main()
