"""The beginning of one prompt, forwarded once, and passes that continue it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from attr_core.engines._cache_layers import PrefixCache
from attr_core.engines._forward import Forward
from attr_core.engines._layer_masks import Windows, attention_masks
from attr_core.engines._memory import Footprint
from attr_core.engines._rest_masks import rest_masks
from attr_core.engines._tokens import n_alike

_SMALLEST_CHUNK = 32


class Prefix:
    """The key/value cache of the prompt seen last, of which a further prompt reuses what they share.

    Parameters
    ----------
    forward : Forward
    windows : mapping
        The model's kinds of attention layer.
    memory : int
        Bytes that the cache and one pass may take together; one row, or a few tokens of the prefix, may pass it.
    max_tokens : int
        Most tokens of one pass.

    Attributes
    ----------
    is_wanted : bool
        Whether what is held was of use when it was last offered; :meth:`hold` sets it, who offers may clear it.
    """

    def __init__(self, forward: Forward, windows: Windows, *, memory: int, max_tokens: int) -> None:
        self.forward = forward
        self.windows = windows
        self._footprint = Footprint.of(forward, windows)
        self._memory = memory
        self._max_tokens = max_tokens
        self._ids: tuple[int, ...] = ()
        self._cache = PrefixCache(self._footprint.layers)
        self.is_wanted = False

    @property
    def held(self) -> tuple[int, ...]:
        """The tokens whose entries are cached."""
        return self._ids

    def shares(self, ids: Sequence[int]) -> int:
        """How many of the first tokens are held."""
        return n_alike(self._ids, ids)

    def hold(self, ids: Sequence[int]) -> int:
        """Forward what of ``ids`` is not held; how many tokens that were."""
        self.is_wanted = True
        n_shared = self.shares(ids)
        if n_shared == len(ids):
            return 0
        if n_shared == 0:
            self._cache = PrefixCache(self._footprint.layers)
        self._ids = tuple(ids[:n_shared])
        self._cache.reserve(len(ids), keep=n_shared)
        # A small chunk comes first, in which all layers make room: room made between the large tensors of a large one
        # leaves gaps that the process keeps.
        n_chunk = min(_SMALLEST_CHUNK, self._max_tokens)
        # Not inference mode, the caller's neither: gradients pass through what reads these entries.
        with torch.inference_mode(False), torch.no_grad():
            while len(self._ids) < len(ids):
                chunk = tuple(ids[len(self._ids) : len(self._ids) + n_chunk])
                self._run(chunk, self.visible(1, len(self._ids)), n_read=1, recording=True)
                self._ids += chunk
                n_chunk = self._chunk(len(ids))
        return len(ids) - n_shared

    def visible(self, n_rows: int, n_prefix: int) -> torch.Tensor:
        """Nothing hidden: zeros ``(n_rows, n_prefix)`` to add to attention logits."""
        model = self.forward.model
        return torch.zeros((n_rows, n_prefix), dtype=model.dtype, device=model.device)

    def logits(self, tail: Sequence[int], added: torch.Tensor, *, n_read: int) -> torch.Tensor:
        """Logits ``(n_rows, n_read, n_vocabulary)`` of the tail's last tokens, once per row of ``added``, in one pass.

        ``added`` ``(n_rows, n_prefix)`` is what is added to the attention logits of the prefix's tokens, as
        :meth:`visible` makes it.
        """
        return self._run(tail, added, n_read=n_read, recording=False)

    def rests(self, starts: Sequence[int], tails: Sequence[Sequence[int]], *, n_read: int) -> torch.Tensor:
        """Logits ``(n_tails, n_read, n_vocabulary)`` of each tail's last tokens, all tails in one pass.

        Each continues the prefix after as many tokens of its own as ``starts`` says, with nothing hidden.
        """
        model = self.forward.model
        sizes = torch.tensor([len(tail) for tail in tails], device=model.device)
        owners = torch.arange(len(tails), device=model.device).repeat_interleave(sizes)
        ends = sizes.cumsum(0)
        begins = torch.tensor(starts, device=model.device)
        places = torch.arange(len(owners), device=model.device) + (begins - ends + sizes)[owners]
        read = ends[:, None] + torch.arange(-n_read, 0, device=model.device)
        logits = self.forward.continued(
            self._cache.at(max(starts), recording=False),
            torch.tensor([token for tail in tails for token in tail], device=model.device),
            rest_masks(self.windows, begins, owners, places, dtype=model.dtype),
            positions=places,
            read=read.flatten(),
        )
        return logits.unflatten(0, (len(tails), n_read))

    def rows_at_once(self, n_tail: int, n_prefix: int, *, n_read: int) -> int:
        """How many rows one pass takes: as many as fit into the memory, at least one."""
        n_rows = max(1, self._max_tokens // n_tail)
        while n_rows > 1 and not self.fits(n_rows, n_tail, n_prefix, n_read=n_read):
            n_rows -= 1
        return n_rows

    def fits(self, n_rows: int, n_tail: int, n_prefix: int, *, n_read: int) -> bool:
        """Whether the memory takes a pass of rows of ``n_tail`` tokens, and the cache."""
        return self._footprint.in_all(n_rows, n_tail, n_prefix, n_read=n_read) <= self._memory

    def _chunk(self, n_prefix: int) -> int:
        n_chunk = self._max_tokens
        while n_chunk > _SMALLEST_CHUNK and not self.fits(1, n_chunk, n_prefix, n_read=1):
            n_chunk //= 2
        return n_chunk

    def _run(self, tail: Sequence[int], added: torch.Tensor, *, n_read: int, recording: bool) -> torch.Tensor:
        n_rows, n_prefix = added.shape
        n_tail = len(tail)
        place = torch.arange(n_tail, device=added.device)
        starts = n_tail * torch.arange(n_rows, device=added.device)[:, None]
        logits = self.forward.continued(
            self._cache.at(n_prefix, recording=recording),
            torch.tensor(tail, device=added.device).repeat(n_rows),
            attention_masks(self.windows, added, n_tail),
            positions=(n_prefix + place).repeat(n_rows),
            read=(starts + place[n_tail - n_read :]).flatten(),
        )
        return logits.unflatten(0, (n_rows, n_read))
