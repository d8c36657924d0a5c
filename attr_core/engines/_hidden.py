"""Log-probabilities of a continuation with parts of the cached prompt hidden, many masks to a pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from attr_core.engines._forward import measured, token_logprobs
from attr_core.engines._layout import Layout
from attr_core.engines._prefix import Prefix
from attr_core.results import FloatArray, MaskArray


def score_hidden(
    prefix: Prefix, layout: Layout, masks: MaskArray, continuation: Sequence[int]
) -> tuple[FloatArray, list[int]]:
    """Log-probability of each continuation token under each mask ``(n_masks, n_tokens)``, and the tokens forwarded.

    ``masks`` ``(n_masks, n_segments)``. The prefix's own tokens count for the first mask, unless they were held.
    """
    n_new = prefix.hold(layout.prefix)
    # The last token predicts nothing that is asked for, so it is not fed, but counts as it does where it is scored.
    tail = (*layout.tail, *continuation[:-1])
    n_read = len(continuation)
    n_packs = -(-len(masks) // prefix.rows_at_once(len(tail), len(layout.prefix), n_read=n_read))
    rows: list[FloatArray] = []
    for pack in np.array_split(layout.hidden(masks), n_packs):
        added = prefix.visible(len(pack), len(layout.prefix))
        added.masked_fill_(torch.from_numpy(pack).to(added.device), torch.finfo(added.dtype).min)
        with torch.inference_mode():
            logits = prefix.logits(tail, added, n_read=n_read)
            # Row by row, so that one row's logits at a time stand in float32.
            rows += [measured(token_logprobs(row, continuation)) for row in logits]
    n_tokens = [len(layout.tail) + len(continuation)] * len(masks)
    n_tokens[0] += n_new
    return np.array(rows), n_tokens
