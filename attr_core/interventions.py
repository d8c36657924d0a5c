"""What is run again to see whether a cause holds: the unchanged prompt, no context, one segment removed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attr_core.prompt import ablations
from attr_core.protocols import Generates, Sampling
from attr_core.results import Regeneration
from attr_core.types import Generation, Segment

__all__ = ["regenerate", "sampling_like"]

MIN_NEW_TOKENS = 32
MAX_NEW_TOKENS = 256


def regenerate(
    engine: Generates,
    generation: Generation,
    *,
    segments: Sequence[Segment],
    removals: Sequence[tuple[int, ...]],
    sampling: Sampling,
) -> tuple[Regeneration, ...]:
    """What the model says when each of ``removals`` (columns of ``segments``) is deleted from its prompt.

    ``same`` compares with the recorded response, white space aside. Cost: one generation per removal.
    """
    masks = np.ones((len(removals), len(segments)), dtype=np.bool_)
    for row, columns in enumerate(removals):
        masks[row, list(columns)] = False
    completions = engine.generate(ablations(generation, segments, masks), sampling)
    recorded = " ".join((generation.response or "").split())
    return tuple(
        Regeneration(tuple(columns), completion.text, " ".join(completion.text.split()) == recorded)
        for columns, completion in zip(removals, completions, strict=True)
    )


def sampling_like(generation: Generation, *, response_tokens: int) -> Sampling:
    """Greedy sampling that can say as much as the recorded response and half again, within 32 to 256 tokens."""
    asked = generation.parameters.get("max_tokens")
    length = asked if isinstance(asked, int) and asked > 0 else response_tokens + response_tokens // 2
    return Sampling(max_tokens=min(max(length, MIN_NEW_TOKENS), MAX_NEW_TOKENS))
