"""What is run again to see whether a cause holds: the unchanged prompt, no context, one segment removed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attr_core.prompt import ablations
from attr_core.protocols import Completion, Generates, Sampling
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

    ``same`` compares with the recorded response, white space aside; where either was cut at its limit of tokens, as far
    as both go. Cost: one generation per removal.
    """
    masks = np.ones((len(removals), len(segments)), dtype=np.bool_)
    for row, columns in enumerate(removals):
        masks[row, list(columns)] = False
    completions = engine.generate(ablations(generation, segments, masks), sampling)
    return tuple(
        Regeneration(tuple(columns), completion.text, _is_same(completion, generation))
        for columns, completion in zip(removals, completions, strict=True)
    )


def _is_same(completion: Completion, generation: Generation) -> bool:
    said, recorded = (" ".join(text.split()) for text in (completion.text, generation.response or ""))
    if completion.finish_reason == "length":
        return bool(said) and recorded.startswith(said)
    if generation.finish_reason == "length":
        return said.startswith(recorded)
    return said == recorded


def sampling_like(generation: Generation, *, response_tokens: int) -> Sampling:
    """Greedy sampling with the recorded limit of tokens, else half again as much as was said; at most 256."""
    asked = generation.parameters.get("max_tokens")
    if isinstance(asked, int) and asked > 0:
        return Sampling(max_tokens=min(asked, MAX_NEW_TOKENS))
    return Sampling(max_tokens=min(max(response_tokens + response_tokens // 2, MIN_NEW_TOKENS), MAX_NEW_TOKENS))
