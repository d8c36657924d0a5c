"""Do the intervals hold what they promise? DebiasedLasso beside bootstrapped LASSOs, on games with known effects.

Each game has 8 to 60 segments (all beyond enumeration): one to four with effects of 2 to 10 nats, for or against, some
with small ones, and measurement noise; in every second game up to three pairs interact. The default budget of
ablations; the estimand is the Banzhaf value, which is known exactly. Planted: an effect of at least 1 nat; null: less.

usage: python benchmarks/coverage.py [--games 300] [--json]
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from attr_core.estimators import DebiasedLasso
from attr_core.estimators.context_cite import lasso_effects
from attr_core.results import Estimate, FloatArray, MaskArray
from attr_core.testing import GameValue
from attr_core.verdicts import adjusted_p_values, margins, weigh

N_BOOTSTRAPS = 100
N_TOKENS = 25
"""Tokens of a response: ContextCite's recipe fits the value per token, which makes its penalty that much stronger."""


@dataclass(frozen=True)
class Game:
    """A value function with noise and the Banzhaf value of each of its segments."""

    value: GameValue
    truth: FloatArray
    has_pairs: bool


def games(n_games: int) -> Iterator[Game]:
    """The seeded games."""
    for seed in range(n_games):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(8, 61))
        weights = np.where(rng.random(n) < 0.3, rng.normal(0, 0.3, n), 0.0)
        planted = rng.choice(n, int(rng.integers(1, 5)), replace=False)
        weights[planted] = rng.choice([-1, 1], len(planted), p=[0.25, 0.75]) * rng.uniform(2, 10, len(planted))
        pairs = np.zeros((n, n))
        for _ in range(int(rng.integers(1, 4)) if seed % 2 else 0):
            first, second = rng.choice(n, 2, replace=False)
            pairs[first, second] = rng.choice([-1, 1]) * rng.uniform(2, 8)
        noise = rng.uniform(0.2, 2.0)
        value = GameValue(_noisy(weights, pairs, noise, rng), n)
        yield Game(value, weights + (pairs.sum(axis=0) + pairs.sum(axis=1)) / 2, bool(pairs.any()))


def _noisy(
    weights: FloatArray, pairs: FloatArray, noise: float, rng: np.random.Generator
) -> Callable[[MaskArray], list[float]]:
    return lambda mask: [float(weights @ mask + mask @ pairs @ mask + rng.normal(0, noise))]


def bootstrapped_lasso(value: GameValue, seed: int, *, n_tokens: int) -> Estimate:
    """Percentile intervals of a LASSO (α = 0.01 on the value per token) over resampled rows of as many masks."""
    rng = np.random.default_rng(seed)
    masks = rng.random((DebiasedLasso().n_random(value.n_segments), value.n_segments)) < 0.5
    values = value.exact(masks)
    draws = np.empty((N_BOOTSTRAPS, value.n_segments))
    for draw in range(N_BOOTSTRAPS):
        rows = rng.integers(0, len(masks), len(masks))
        draws[draw] = lasso_effects(masks[rows], values[rows], np.array([n_tokens]), alpha=0.01)[0]
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    return Estimate(
        effects=draws.mean(axis=0)[None],
        low=low[None],
        high=high[None],
        error=draws.std(axis=0)[None],
        drops=np.full((1, value.n_segments), np.nan),
        exact=False,
        decisive=True,
        n_masks=len(masks),
        dof=len(masks) - 1,
        level=0.95,
    )


def report(name: str, estimate: Callable[[Game, int], Estimate], n_games: int) -> dict[str, float | str]:
    """Coverage in all, in the planted and in the null stratum; widths; verdicts of null segments; power."""
    covered, planted, width, verdicts, has_pairs = [], [], [], [], []
    for seed, game in enumerate(games(n_games)):
        found = estimate(game, seed)
        covered.append((found.low[0] <= game.truth) & (game.truth <= found.high[0]))
        planted.append(np.abs(game.truth) >= 1)
        width.append(found.high[0] - found.low[0])
        delta = margins(found.effects, floor=game.value.floor)
        verdicts.append(weigh(found, delta, adjusted_p_values(found, delta))[0])
        has_pairs.append(np.full(len(game.truth), game.has_pairs))
    inside, real, paired = np.concatenate(covered), np.concatenate(planted), np.concatenate(has_pairs)
    said = np.isin(np.concatenate(verdicts), ["drives", "opposes"])
    return {
        "method": name,
        "coverage": round(float(inside.mean()), 3),
        "planted": round(float(inside[real].mean()), 3),
        "null": round(float(inside[~real].mean()), 3),
        "additive games": round(float(inside[~paired].mean()), 3),
        "games with pairs": round(float(inside[paired].mean()), 3),
        "median width, nats": round(float(np.median(np.concatenate(width))), 2),
        "null segments with a verdict": round(float(said[~real].mean()), 4),
        "planted segments with a verdict": round(float(said[real].mean()), 3),
    }


def main() -> None:
    """Print one row a method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # a LASSO that has not fully converged is good enough for both
    rows = [
        report(
            "DebiasedLasso", lambda game, seed: DebiasedLasso(n_drops=0).estimate(game.value, seed=seed), options.games
        ),
        report(
            "bootstrap, per token",
            lambda game, seed: bootstrapped_lasso(game.value, seed, n_tokens=N_TOKENS),
            options.games,
        ),
        report("bootstrap, raw", lambda game, seed: bootstrapped_lasso(game.value, seed, n_tokens=1), options.games),
    ]
    if options.json:
        print(json.dumps(rows))
        return
    for key in rows[0]:
        print(f"{key:32s}" + "".join(f"{row[key]!s:>22s}" for row in rows))


if __name__ == "__main__":
    main()
