"""A key/value cache of a prompt's beginning that any number of passes can continue without changing it."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class PrefixLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values of every token of the prefix.

    The layers that transformers makes grow with each pass, and those of sliding windows forget what lies outside; this
    one keeps all (the mask tells what is in the window) and, unless ``is_recording``, hands a pass its new entries
    without keeping them.
    """

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = False
        self.length = 0
        self.room = 0
        self.is_recording = False

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Make room for the prefix, with the sizes, type and place of the first entries."""
        self.keys = key_states.new_empty((*key_states.shape[:-2], self.room, key_states.shape[-1]))
        self.values = value_states.new_empty((*value_states.shape[:-2], self.room, value_states.shape[-1]))
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The prefix's entries and the new ones, ``(1, n_heads, n_tokens, dim)``."""
        if not self.is_recording and not self.length:
            return key_states, value_states
        if not self.is_recording:
            keys, values = self.keys[:, :, : self.length], self.values[:, :, : self.length]
            return torch.cat([keys, key_states], dim=-2), torch.cat([values, value_states], dim=-2)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        begin, self.length = self.length, self.length + key_states.shape[-2]
        self.keys[:, :, begin : self.length] = key_states
        self.values[:, :, begin : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def reserve(self, room: int, *, keep: int) -> None:
        """Make room for ``room`` tokens, the first ``keep`` of which are those that are there."""
        self.room = room
        if self.is_initialized:
            keys, values = self.keys[:, :, :keep], self.values[:, :, :keep]
            self.lazy_initialization(keys, values)
            self.keys[:, :, :keep] = keys
            self.values[:, :, :keep] = values

    def get_seq_length(self, *_: Any) -> int:
        """Tokens of the prefix."""
        return self.length

    def get_mask_sizes(self, query: Any) -> tuple[int, int]:
        """Entries that a pass of ``query`` new tokens reads, and where they begin."""
        n_new = query if isinstance(query, int) else len(query)  # older versions of transformers give positions
        return self.length + n_new, 0

    def get_max_length(self) -> int:
        """No limit."""
        return -1

    get_max_cache_shape = get_max_length  # its name in older versions of transformers


class PrefixCache(Cache):  # type: ignore[misc]
    """The layers of one prefix."""

    layers: list[PrefixLayer]

    def __init__(self, n_layers: int) -> None:
        super().__init__(layers=[PrefixLayer() for _ in range(n_layers)])

    def at(self, length: int, *, recording: bool = False) -> PrefixCache:
        """Itself, set to be continued after the first ``length`` tokens; ``recording`` keeps what the pass adds."""
        for layer in self.layers:
            layer.length, layer.is_recording = length, recording
        return self

    def reserve(self, room: int, *, keep: int) -> None:
        """Make room for ``room`` tokens, the first ``keep`` of which are those that are there."""
        for layer in self.layers:
            layer.reserve(room, keep=keep)
