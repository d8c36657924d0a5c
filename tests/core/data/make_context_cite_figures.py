"""Writes context_cite_0_0_4.json: the masks and weights that the package context-cite 0.0.4 itself gives.

Run in an environment of its own: pip install context-cite==0.0.4, then python make_context_cite_figures.py
"""

import json
from pathlib import Path

import numpy as np
from context_cite.solver import LassoRegression
from context_cite.utils import _create_mask

CASES = [("few", 9, 64, 12, 0), ("default", 20, 64, 40, 0), ("many", 50, 64, 25, 100), ("paper", 14, 32, 7, 3)]


def figures(name: str, n_segments: int, n_masks: int, n_tokens: int, seed: int) -> dict:
    masks = np.array([_create_mask(n_segments, 0.5, seed + row) for row in range(n_masks)])
    rng = np.random.default_rng(seed)
    effects = np.where(rng.random(n_segments) < 0.3, rng.normal(0, 12, n_segments), 0.0)
    values = masks @ effects - 9 + 5 * (masks[:, 0] & masks[:, 1]) + rng.normal(0, 1.5, n_masks)
    weights, _ = LassoRegression(lasso_alpha=0.01).fit(masks, values, n_tokens)
    return {
        "name": name,
        "n_segments": n_segments,
        "n_masks": n_masks,
        "n_tokens": n_tokens,
        "seed": seed,
        "masks": masks.astype(int).tolist(),
        "values": [round(float(value), 6) for value in values],
        "weights": [float(weight) for weight in weights],
    }


if __name__ == "__main__":
    cases = [figures(*case) for case in CASES]
    written = {"how": "make_context_cite_figures.py with context-cite 0.0.4", "cases": cases}
    Path(__file__).with_name("context_cite_0_0_4.json").write_text(json.dumps(written))
