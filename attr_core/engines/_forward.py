"""Batches through a causal language model: log-probabilities of given tokens, and generation.

A batch is our own left-padded tensors with attention mask and positions, so a tokenizer's padding side or missing pad
token never matters.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from attr_core._optional import require
from attr_core.errors import EngineError
from attr_core.protocols import Sampling
from attr_core.results import FloatArray

_LOGITS_AT_ONCE = 1 << 26  # floats of one batch's logits: 256 MB


def batches(lengths: Sequence[int], *, budget: int, n_max: int | None = None) -> Iterator[list[int]]:
    """Indices in batches of similar length whose padded size is within ``budget`` tokens (one alone may pass it)."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        # Sorted upwards, so the newest is the longest and sets the padded size.
        if batch and ((len(batch) + 1) * lengths[index] > budget or len(batch) == n_max):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class Forward:
    """One loaded model, ready to run."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._accepted = set(inspect.signature(inner.forward).parameters)
        self.keeps_logits = "logits_to_keep" in self._accepted
        self.n_vocabulary = int(getattr(model.config.get_text_config(), "vocab_size", 1 << 16))

    def score(self, prompts: Sequence[Sequence[int]], continuation: Sequence[int]) -> FloatArray:
        """Log-probability of each continuation token after each prompt, ``(n_prompts, n_tokens)`` in nats."""
        n = len(continuation)
        # The last token predicts nothing that is asked for, so it is not fed.
        inputs = self._padded([[*prompt, *continuation[:-1]] for prompt in prompts])
        if self.keeps_logits:
            inputs["logits_to_keep"] = n
        with torch.inference_mode():
            logits = self.model(**inputs, use_cache=False).logits[:, -n:]
            return measured(token_logprobs(logits, continuation))

    def continued(
        self, cache: Any, ids: torch.Tensor, masks: Any, *, positions: torch.Tensor, read: torch.Tensor
    ) -> torch.Tensor:
        """Logits ``(n_read, n_vocabulary)`` of the tokens at ``read`` of one row of tokens that continues ``cache``."""
        inputs = {"input_ids": ids[None], "position_ids": positions[None], "attention_mask": masks}
        # Renamed between versions of transformers.
        inputs["cache" if "cache" in self._accepted else "past_key_values"] = cache
        if self.keeps_logits:
            return self.model(**inputs, logits_to_keep=read, use_cache=True).logits[0]
        return self.model(**inputs, use_cache=True).logits[0, read]

    def rows_at_once(self, n_scored: int) -> int:
        """How many rows' logits fit into memory at once."""
        return max(1, _LOGITS_AT_ONCE // (self.n_vocabulary * n_scored))

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, *, ends: Sequence[int], decode: Callable[..., str]
    ) -> list[Generated]:
        """Continue each prompt until a token of ``ends``, a stop string, or ``sampling.max_tokens``."""
        inputs = self._padded(prompts)
        start = inputs["input_ids"].shape[1]
        settings = require("transformers", extra="hf").GenerationConfig(
            do_sample=False,
            num_beams=1,
            max_new_tokens=sampling.max_tokens,
            eos_token_id=list(ends) or None,
            pad_token_id=ends[0] if ends else 0,
        )
        # On a copy that shares the weights: the model's own sampling defaults must neither apply nor be changed.
        model = copy.copy(self.model)
        model.generation_config = settings
        stops = _Stops(sampling.stop, decode, start, len(prompts))
        inputs.pop("position_ids", None)  # generate derives the same from the mask, and extends them
        rows = model.generate(
            **inputs,
            generation_config=settings,
            logits_processor=[_gumbel_noise(sampling)] if sampling.temperature > 0 else [],
            stopping_criteria=[stops] if sampling.stop else [],
        )
        return [_cut(row, set(ends), hit) for row, hit in zip(rows[:, start:].tolist(), stops.hits, strict=True)]

    def _padded(self, rows: Sequence[Sequence[int]]) -> dict[str, Any]:
        longest = max(map(len, rows))
        ids = torch.zeros((len(rows), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for n, row in enumerate(rows):
            ids[n, longest - len(row) :] = torch.tensor(row, dtype=torch.long)
            mask[n, longest - len(row) :] = 1
        inputs = {"input_ids": ids, "attention_mask": mask}
        if "position_ids" in self._accepted:
            inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        return {name: tensor.to(self.model.device) for name, tensor in inputs.items()}


def token_logprobs(logits: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Log-probability ``(..., n_tokens)`` of each of ``ids`` under ``logits`` ``(..., n_tokens, n_vocabulary)``."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    index = torch.tensor(ids, device=logits.device).expand(logits.shape[:-1]).unsqueeze(-1)
    chosen = logits.gather(-1, index).squeeze(-1)
    # log p loses all precision near p = 1; the log-odds, chosen against the sum of all others, do not.
    others = logits.scatter(-1, index, -torch.inf).logsumexp(-1)
    return torch.nn.functional.logsigmoid((chosen - others).double())


def measured(numbers: torch.Tensor) -> FloatArray:
    """The numbers as an array; NaN is an error, never a measurement."""
    array: FloatArray = numbers.detach().cpu().numpy()
    if np.isnan(array).any():
        raise EngineError("the model gave NaN for some tokens; load it in float32")
    return array


@dataclass(frozen=True, slots=True)
class Generated:
    """Token ids without the one that ended them; ``n_tokens`` counts it."""

    ids: list[int]
    n_tokens: int
    finish_reason: str


class _Stops:
    """Marks rows whose text holds a stop string."""

    def __init__(self, strings: Sequence[str], decode: Callable[..., str], start: int, n_rows: int) -> None:
        self._strings = strings
        self._decode = decode
        self._start = start
        self._tail = 4 * max(map(len, strings), default=0) + 8  # a character takes at most four tokens
        self.hits: list[int | None] = [None] * n_rows

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        new = input_ids[:, self._start :]
        for n, row in enumerate(new[:, -self._tail :].tolist()):
            if self.hits[n] is None and any(stop in self._decode(row) for stop in self._strings):
                self.hits[n] = new.shape[1]
        return torch.tensor([hit is not None for hit in self.hits], device=input_ids.device)


def _gumbel_noise(sampling: Sampling) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Sampling as the best of noisy scores, with the same noise for every row.

    A row's sample depends on seed and prompt, not on what shares its batch, and ablations of one prompt differ by their
    prompt alone.
    """
    generator = torch.Generator().manual_seed(sampling.seed)

    def add(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        exponential = torch.empty(scores.shape[-1]).exponential_(generator=generator)
        return scores.float() / sampling.temperature - exponential.log().to(scores.device)

    return add


def _cut(row: list[int], ends: set[int], hit: int | None) -> Generated:
    length = next((n for n, token in enumerate(row) if token in ends), None)
    if hit is not None and (length is None or hit <= length):
        return Generated(row[:hit], hit, "stop")
    if length is not None:
        return Generated(row[:length], length + 1, "stop")
    return Generated(row, len(row), "length")
