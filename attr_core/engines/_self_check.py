"""Which models can be measured on their cache: those whose attention obeys a mask of ours, found out by trying."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from attr_core.engines._forward import Forward
from attr_core.engines._layer_masks import Windows, layer_windows
from attr_core.engines._prefix import Prefix
from attr_core.protocols import Capability

_TRIED = frozenset({"gemma", "gemma2", "gemma3_text", "llama", "mistral", "qwen2", "qwen3"})
"""Families, as transformers writes them, that the tests hold to the numbers of a plain pass."""

CACHED = frozenset({Capability.SCORE_HIDDEN, Capability.GATE_GRADIENTS})

_N_PREFIX, _N_TAIL = 8, 4
_TOLERANCE = 5e-2
"""Of the largest logit; what half precision may differ by."""


def by_configuration(config: Any) -> bool | None:
    """Whether the configuration shows that the model's cache can be measured on; ``None`` where it must be tried."""
    text = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False) or layer_windows(config) is None:
        return False
    is_causal = not getattr(text, "use_bidirectional_attention", False)
    is_tried = config.model_type in _TRIED and type(config).__module__.startswith("transformers.")
    attention = getattr(config, "_attn_implementation", None)
    return True if is_tried and is_causal and attention in (None, "eager", "sdpa") else None


def by_trying(forward: Forward, windows: Windows) -> frozenset[Capability]:
    """What of ``CACHED`` a loaded model is seen to do; costs passes over 36 tokens in all.

    A few tokens continued from a cached prefix must score as in a plain pass, beside a block of the same tokens that
    may not read part of the prefix and must therefore score otherwise; and the mask must be reached by gradients.
    """
    try:
        return _try(forward, windows)
    except Exception:  # models refuse, each in its own way
        return frozenset()


def _try(forward: Forward, windows: Windows) -> frozenset[Capability]:
    ids = ((forward.n_vocabulary // 3 + 7 * np.arange(_N_PREFIX + _N_TAIL)) % forward.n_vocabulary).tolist()
    prefix = Prefix(forward, windows, memory=1 << 30, max_tokens=_N_PREFIX - 3)
    prefix.hold(ids[:_N_PREFIX])
    added = prefix.visible(2, _N_PREFIX)
    with torch.inference_mode():
        plain = forward.model(torch.tensor([ids], device=added.device), use_cache=False).logits[0, _N_PREFIX:]
        added[1, 2:5] = torch.finfo(added.dtype).min
        kept, hidden = prefix.logits(ids[_N_PREFIX:], added, n_read=_N_TAIL)
        error, change = (float((one - plain).abs().max()) for one in (kept, hidden))
        obeys = error <= _TOLERANCE * float(plain.abs().max()) and change > 2 * error
    if not obeys:
        return frozenset()
    with torch.inference_mode(False), torch.enable_grad():
        gate = prefix.visible(1, _N_PREFIX).requires_grad_()
        likeliest = prefix.logits(ids[_N_PREFIX:], gate, n_read=1).max()
    if not likeliest.requires_grad:
        return frozenset({Capability.SCORE_HIDDEN})
    [slope] = torch.autograd.grad(likeliest, gate, allow_unused=True)
    return CACHED if slope is not None and bool(slope.any()) else frozenset({Capability.SCORE_HIDDEN})
