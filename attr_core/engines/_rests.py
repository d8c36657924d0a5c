"""Log-probabilities of a continuation after prompts whose beginnings are held, several to a pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from attr_core.engines._forward import measured, token_logprobs
from attr_core.engines._prefix import Prefix
from attr_core.engines._shared import Sharing
from attr_core.results import FloatArray


def score_rests(
    prefix: Prefix, rows: Sequence[Sequence[int]], continuation: Sequence[int], sharing: Sharing
) -> dict[int, tuple[FloatArray, int]]:
    """For each row that shares, log-probabilities ``(n_tokens,)`` in nats, and the tokens forwarded.

    What had to be held first counts for the first of them.
    """
    n_new = 0 if sharing.hold is None else prefix.hold(rows[sharing.hold][:-1])
    n_read = len(continuation)
    first = min(sharing.shared)
    found: dict[int, tuple[FloatArray, int]] = {}
    for pack in sharing.packs:
        starts = [sharing.shared[n] for n in pack]
        # The last token predicts nothing that is asked for, so it is not fed, but counts as it does in a plain pass.
        tails = [[*rows[n][start:], *continuation[:-1]] for n, start in zip(pack, starts, strict=True)]
        with torch.inference_mode():
            logits = prefix.rests(starts, tails, n_read=n_read)
            # Row by row, so that one row's logits at a time stand in float32.
            for n, start, row in zip(pack, starts, logits, strict=True):
                n_tokens = len(rows[n]) - start + n_read + (n_new if n == first else 0)
                found[n] = measured(token_logprobs(row, continuation)), n_tokens
    return found
