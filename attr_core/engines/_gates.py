"""Gradients of targets' log-odds by gates on the attention that a tail pays to each segment of its prompt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from attr_core.engines._forward import measured, token_logprobs
from attr_core.engines._layout import Layout
from attr_core.engines._prefix import Prefix
from attr_core.protocols import GateScores
from attr_core.reading import log_odds, log_odds_slope
from attr_core.results import FloatArray, MaskArray


def gate_gradients(
    prefix: Prefix, layout: Layout, gates: FloatArray, continuation: Sequence[int], *, inside: MaskArray
) -> list[GateScores]:
    """One result per row of ``gates`` ``(n_gates, n_segments)``.

    ``inside`` ``(n_targets, n_tokens)`` says which tokens of the continuation each target sums over. A gate adds its
    logarithm to the attention logits of its segment's tokens, so that it scales their weight against all others.
    """
    n_new = prefix.hold(layout.prefix)
    n_tail = len(layout.tail) + len(continuation)
    n_passes = 1 + 2 * len(inside)  # a backward pass costs two forward ones
    return [
        _gradients(prefix, layout, row, continuation, inside=inside, n_tokens=n_tail * n_passes + (0 if n else n_new))
        for n, row in enumerate(gates)
    ]


def _gradients(
    prefix: Prefix,
    layout: Layout,
    row: FloatArray,
    continuation: Sequence[int],
    *,
    inside: MaskArray,
    n_tokens: int,
) -> GateScores:
    with torch.inference_mode(False), torch.enable_grad():  # whatever the caller has set
        visible = prefix.visible(1, len(layout.prefix))
        gate = torch.tensor(row, dtype=torch.float64, device=visible.device, requires_grad=True)
        members = torch.from_numpy(layout.members).to(gate)
        added = visible + (gate.log() @ members).to(visible.dtype)
        tail = (*layout.tail, *continuation[:-1])
        logprobs = token_logprobs(prefix.logits(tail, added, n_read=len(continuation))[0], continuation)
        sums = torch.from_numpy(inside).to(logprobs.device, logprobs.dtype) @ logprobs
        # One after another: batched by vmap they were no faster, and took the memory of all at once.
        slopes = [torch.autograd.grad(one, gate, retain_graph=n + 1 < len(sums))[0] for n, one in enumerate(sums)]
    read = measured(sums)
    of_sums = measured(torch.stack(slopes)) if slopes else np.zeros((0, len(row)))
    return GateScores(log_odds(read), log_odds_slope(read)[:, None] * of_sums, n_tokens)
