"""What the model says when parts of its prompt are removed, each asked for once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attr_core.errors import EngineError
from attr_core.metering import MeteredEngine
from attr_core.prompt import ablations, count_tokens
from attr_core.protocols import Completion, Engine, Generates, Sampling
from attr_core.results import MaskArray
from attr_core.types import Generation, Segment

__all__ = ["Regenerations"]

_CALLED = frozenset({"tool_calls", "function_call"})


class Regenerations:
    """Answers to one prompt under masks ``(n_masks, n_segments)``, kept for as long as this object lives."""

    def __init__(self, engine: Engine, generation: Generation, segments: Sequence[Segment], sampling: Sampling) -> None:
        self._engine: Any = engine
        self._generation = generation
        self._segments = tuple(segments)
        self._sampling = sampling
        self._said: dict[bytes, str] = {}

    @property
    def n_segments(self) -> int:
        """Columns of a mask."""
        return len(self._segments)

    def fits(self, masks: MaskArray) -> MaskArray:
        """Which masks ``(n_masks,)`` leave a prompt that fits the model's window with room for an answer."""
        limit = self._engine.max_context
        if limit is None:
            return np.ones(len(masks), dtype=np.bool_)
        room = limit - self._sampling.max_tokens
        if count_tokens(self._engine, self._generation.prompt) <= room:
            return np.ones(len(masks), dtype=np.bool_)
        prompts = ablations(self._generation, self._segments, masks)
        return np.array([count_tokens(self._engine, prompt) <= room for prompt in prompts], dtype=np.bool_)

    def texts(self, masks: MaskArray) -> list[str]:
        """What the model says under each mask; one generation for each mask that was not asked for before."""
        keys = [np.asarray(mask, dtype=np.bool_).tobytes() for mask in masks]
        new = {key: mask for key, mask in zip(keys, masks, strict=True) if key not in self._said}
        if new:
            prompts = ablations(self._generation, self._segments, np.array(list(new.values())))
            generates: Generates = self._engine
            made = generates.generate(prompts, self._sampling)
            self._said |= {key: self._text_of(one) for key, one in zip(new, made, strict=True)}
        return [self._said[key] for key in keys]

    def again(self, n: int) -> list[str]:
        """``n`` further answers to the prompt with every segment; none where it does not fit.

        Above temperature 0 each has a seed of its own; at 0 they differ only where the engine does not reproduce
        itself.
        """
        whole = np.ones((1, self.n_segments), dtype=np.bool_)
        if n < 1 or not self.fits(whole)[0]:
            return []
        return [self._text_of(self._repeat(number)) for number in range(1, n + 1)]

    def _repeat(self, number: int) -> Completion:
        is_sampled = self._sampling.temperature > 0
        sampling = replace(self._sampling, seed=self._sampling.seed + number) if is_sampled else self._sampling
        # Only what keeps measurements has to be told that another is wanted.
        numbered = {"repeat": number} if isinstance(self._engine, MeteredEngine) else {}
        found: list[Completion] = self._engine.generate([self._generation.prompt], sampling, **numbered)
        return found[0]

    def _text_of(self, completion: Completion) -> str:
        said = completion.text
        if not said.strip() and completion.finish_reason in _CALLED and self._generation.tool_calls:
            raise EngineError(
                f"{self._engine.spec} called tools but does not tell which, so they cannot be compared with those that "
                "were recorded; use an engine that writes its calls, or a likelihood method"
            )
        return said
