"""How much memory a pass over cached tokens takes, so that passes can be packed within a stated budget."""

from __future__ import annotations

from dataclasses import dataclass

from attr_core.engines._forward import Forward
from attr_core.engines._layer_masks import Windows


@dataclass(frozen=True, slots=True)
class Footprint:
    """The sizes of a model that decide it: ``masks`` are its kinds of layer, ``tiled`` attention keeps no weights."""

    layers: int
    heads: int
    cached_heads: int
    head_size: int
    width: int
    vocabulary: int
    item: int
    masks: int
    tiled: bool
    keeps_logits: bool

    @classmethod
    def of(cls, forward: Forward, windows: Windows) -> Footprint:
        """A loaded model's."""
        config = forward.model.config.get_text_config()
        heads = config.num_attention_heads
        return cls(
            layers=config.num_hidden_layers,
            heads=heads,
            cached_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
            width=max(4 * config.hidden_size, getattr(config, "intermediate_size", None) or 0),
            vocabulary=forward.n_vocabulary,
            item=forward.model.dtype.itemsize,
            masks=len(windows),
            tiled=getattr(forward.model.config, "_attn_implementation", None) == "sdpa",
            keeps_logits=forward.keeps_logits,
        )

    def of_cache(self, n_tokens: int) -> int:
        """Bytes of the cached keys and values."""
        return 2 * self.layers * self.cached_heads * self.head_size * n_tokens * self.item

    def of_pass(self, n_rows: int, n_tail: int, n_prefix: int, *, n_read: int) -> int:
        """Bytes that one pass takes beside the weights and the cache.

        Per packed or cached token: its keys and values, joined into one tensor, and once more for each head that shares
        them. Per packed token and token that it may read: a mask for each kind of layer, and one being made; where
        attention is not tiled, its weights three times. Per packed token: four times the widest layer. Per token read
        off: its logits twice, and in float32, for one row at a time, three times.
        """
        n_packed = n_rows * n_tail
        n_keys = n_prefix + n_packed
        joined = 2 * n_keys * self.head_size * (self.cached_heads + self.heads) * self.item
        weights = 0 if self.tiled else 3 * self.heads * max(self.item, 4)
        pairs = n_packed * n_keys * (self.item * (self.masks + 1) + weights)
        layer = 4 * n_packed * self.width * self.item
        n_logits = n_rows * n_read if self.keeps_logits else n_packed
        logits = self.vocabulary * (2 * n_logits * self.item + 12 * n_read)
        return joined + pairs + max(layer, logits)

    def in_all(self, n_rows: int, n_tail: int, n_prefix: int, *, n_read: int) -> int:
        """Bytes that a process needs for one pass and the cache: half as much again as its tensors take.

        That is what an allocator was seen to lose in gaps, at worst, over many passes.
        """
        return 3 * (self.of_cache(n_prefix) + self.of_pass(n_rows, n_tail, n_prefix, n_read=n_read)) // 2
