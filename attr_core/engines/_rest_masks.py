"""What rests of different prompts may read that are packed side by side, each behind its own part of one prefix."""

from __future__ import annotations

import torch

from attr_core.engines._layer_masks import Windows


def rest_masks(
    windows: Windows, starts: torch.Tensor, owners: torch.Tensor, places: torch.Tensor, *, dtype: torch.dtype
) -> torch.Tensor | dict[str, torch.Tensor]:
    """What is added to the attention logits, per kind of layer.

    Parameters
    ----------
    windows : mapping
    starts : tensor of int, shape (n_rests,)
        How many tokens of the prefix each rest continues; the largest is the prefix's length.
    owners : tensor of int, shape (n_packed,)
        Whose each packed token is.
    places : tensor of int, shape (n_packed,)
        Its position in its own prompt.
    dtype : torch.dtype

    Returns
    -------
    tensor or dict of tensors, shape (1, 1, n_packed, n_prefix + n_packed)
        One where all layers are of one kind, as models without kinds take no more.
    """
    prefix = torch.arange(int(starts.max()), device=places.device)
    is_read = torch.cat(
        [
            prefix < starts[owners, None],
            (owners[:, None] == owners) & (places[:, None] >= places),
        ],
        dim=1,
    )
    keys = torch.cat([prefix, places])
    low = torch.finfo(dtype).min  # not -inf, of which a row without any other makes NaN
    made: dict[int | None, torch.Tensor] = {}
    for window in set(windows.values()):
        seen = is_read if window is None else is_read & (keys > (places - window)[:, None])
        made[window] = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, low)[None, None]
    if len(windows) == 1:
        return made[next(iter(windows.values()))]
    return {kind: made[window] for kind, window in windows.items()}
