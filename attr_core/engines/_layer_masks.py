"""What each kind of attention layer may read: causal, sliding windows, blocks side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_FULL, _SLIDING = "full_attention", "sliding_attention"

Windows = Mapping[str, int | None]
"""Kind of layer -> how many tokens, itself included, a token reads back; ``None`` for all."""


def layer_windows(config: Any) -> Windows | None:
    """The kinds of attention layer that a model's configuration names; ``None`` where it names one not known here."""
    config = config.get_text_config()
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        slides = window is not None and getattr(config, "use_sliding_window", True)
        kinds = [_SLIDING if slides else _FULL]
    found = {kind: window if kind == _SLIDING else None for kind in sorted(set(kinds))}
    is_known = set(found) <= {_FULL, _SLIDING} and isinstance(found.get(_SLIDING, 1), int)
    return found if is_known else None


def attention_masks(windows: Windows, prefix: torch.Tensor, n_tail: int) -> torch.Tensor | dict[str, torch.Tensor]:
    """What is added to the attention logits of tails packed side by side behind one prefix, per kind of layer.

    Parameters
    ----------
    windows : mapping
    prefix : tensor, shape (n_rows, n_prefix)
        What each tail adds to the logits of the prefix's tokens.
    n_tail : int
        Tokens of one tail.

    Returns
    -------
    tensor or dict of tensors, shape (1, 1, n_rows * n_tail, n_prefix + n_rows * n_tail)
        One where all layers are of one kind, as models without kinds take no more.
    """
    n_read = prefix.shape[1] + n_tail
    # Windows that hold everything make no difference, so that such layers share one mask.
    reach = {kind: None if window is None or window >= n_read else window for kind, window in windows.items()}
    made = {window: _mask(prefix, n_tail, window) for window in set(reach.values())}
    if len(reach) == 1:
        return made[next(iter(reach.values()))]
    return {kind: made[window] for kind, window in reach.items()}


def _mask(prefix: torch.Tensor, n_tail: int, window: int | None) -> torch.Tensor:
    n_rows, n_prefix = prefix.shape
    low = torch.finfo(prefix.dtype).min  # not -inf, of which a row without any other makes NaN
    place = torch.arange(n_prefix + n_tail, device=prefix.device)
    tail, distance = place[n_prefix:], place[n_prefix:, None] - place
    is_hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    before = prefix[:, None].expand(n_rows, n_tail, n_prefix).masked_fill(is_hidden[:, :n_prefix], low)
    block = prefix.new_zeros((n_tail, n_tail)).masked_fill(is_hidden[:, n_prefix:], low)
    among = prefix.new_full((n_rows, n_tail, n_rows, n_tail), low)
    own = torch.arange(n_rows, device=prefix.device)
    among[own, :, own] = block
    size = n_rows * len(tail)
    return torch.cat([before.reshape(size, n_prefix), among.reshape(size, size)], dim=1)[None, None]
