"""The engine that runs a model in this process with Hugging Face transformers.

Past 400 lines because every public method says what it costs and keeps; how each works stands in modules of its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attr_core._optional import require
from attr_core.capabilities import require as require_capabilities
from attr_core.engines._failures import translated
from attr_core.engines._layout import Layout, lay_out
from attr_core.engines._local_model import LocalModel
from attr_core.engines._quiet import quiet
from attr_core.engines._shared import Terms, forwarded, is_position_fixed, share
from attr_core.engines.batches import check_sampling, cut
from attr_core.errors import ConfigurationError, ContextTooLongError, InputError, SegmentationError
from attr_core.protocols import Capability, Completion, GateScores, Price, Rendering, Sampling, TailSize, TokenScores
from attr_core.reading import tokens_of
from attr_core.results import FloatArray, MaskArray
from attr_core.types import Prompt, Segment, Target

__all__ = ["HIDDEN_MEMORY", "HuggingFaceEngine"]

HIDDEN_MEMORY = 2 << 30
"""Bytes that measuring on a prompt's cache may take beside the weights, unless an engine is told otherwise."""

_PLAIN_STOP = "\n\nUser:\n"  # where a model without a chat template begins the next turn itself


class HuggingFaceEngine:
    """A causal language model that runs here: generates, and scores a given response.

    Nothing is loaded until it is needed. Calls may come from several threads; they take turns.

    Parameters
    ----------
    model : str or transformers.PreTrainedModel
        A folder, a ``.gguf`` file, the file name of an installed packaged model, a hub name (downloaded where the local
        cache lacks it), or a loaded model, which must then not change any more.
    tokenizer : transformers tokenizer, optional
        Of a loaded model; else the one that comes with the model.
    dtype : str or torch.dtype, default "float32"
        ``"auto"`` takes what the weights are stored in. Below float32 effects carry noise of up to 0.3 nats.
    device : str, optional
        Default: the first CUDA device where there is one, else the CPU.
    device_map : str or dict, optional
        Spread over several devices, by accelerate; instead of ``device``.
    revision : str, optional
        Of a hub model.
    gguf_file : str, optional
        The file to take from a folder or hub repository.
    max_batch_tokens : int, optional
        Padded tokens forwarded at once; lower it where memory runs out. Default: 2048 on a CPU, else 16384.
    hidden_memory : int, default HIDDEN_MEMORY
        Bytes that :meth:`score_hidden` may take beside the weights: the prompt's cache, which is kept for the next call
        until another prompt or :meth:`release`, and one pass, into which as many masks are packed as fit (at least
        one). :meth:`score` keeps a prompt within it, or none. :mod:`attr_core.engines._memory` has the formula.
    template_options : mapping, optional
        Further variables for the chat template, such as ``{"enable_thinking": False}``.

    Raises
    ------
    MissingDependencyError
        torch or transformers is not installed.
    ModelNotFoundError
        The model is not on this machine and may not be downloaded.
    ConfigurationError
        The options do not fit together.
    """

    reproduces: ClassVar[bool] = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        dtype: Any = "float32",
        device: str | None = None,
        device_map: Any = None,
        revision: str | None = None,
        gguf_file: str | None = None,
        max_batch_tokens: int | None = None,
        hidden_memory: int = HIDDEN_MEMORY,
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        for module in ("torch", "transformers"):
            require(module, extra="hf")
        if max_batch_tokens is not None and max_batch_tokens < 1:
            raise ConfigurationError(f"max_batch_tokens={max_batch_tokens} is not positive; give a number of tokens")
        if hidden_memory < 1:
            raise ConfigurationError(f"hidden_memory={hidden_memory} is not positive; give a number of bytes")
        self._lock = threading.RLock()
        self._model = LocalModel(
            model,
            tokenizer,
            dtype=dtype,
            device=device,
            device_map=device_map,
            revision=revision,
            gguf_file=gguf_file,
            template_options=template_options,
        )
        is_cpu = self._model.device == "cpu"
        self._budget = max_batch_tokens or (2048 if is_cpu else 16384)
        # Packing more tokens than this only adds attention between tails that must not read each other.
        self._packed = min(self._budget, 512 if is_cpu else 4096)
        self._hidden_memory = hidden_memory

    def __repr__(self) -> str:
        return f"HuggingFaceEngine({self._model.name!r})"

    @property
    def spec(self) -> str:
        """``hf:`` and the model's name as it was given."""
        return f"hf:{self._model.name}"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights' identity, tokenizer, template, dtype and, below float32, the kind of device.

        Equal for equal weights wherever they lie. The first call reads a local folder's weights once.
        """
        with self._lock:
            return self._model.fingerprint()

    @property
    def max_context(self) -> int | None:
        """Tokens of prompt and response together, as the model's configuration states them."""
        return self._model.max_context

    @property
    def price(self) -> Price:
        """Nothing: it runs here."""
        return Price(0.0, 0.0)

    @cached_property
    def capabilities(self) -> frozenset[Capability]:
        """``generate`` and ``score``; ``score_hidden`` and ``gate_gradients`` where the model's attention allows it.

        It does in decoders whose layers take a mask. Where the configuration does not settle it, a few tokens are
        tried, for which the model is loaded.
        """
        from attr_core.engines._layer_masks import layer_windows
        from attr_core.engines._self_check import CACHED, by_configuration, by_trying

        with self._lock:
            on_cache = by_configuration(self._model.config)
            if on_cache is None:
                found = by_trying(self._model.forward, layer_windows(self._model.config) or {})
            else:
                found = CACHED if on_cache else frozenset()
        return frozenset({Capability.GENERATE, Capability.SCORE}) | found

    def render(self, prompt: Prompt) -> Rendering:
        """The prompt as text and token ids; ``notes`` says what the chat template could not carry.

        Raises
        ------
        InputError
            There are no messages, or the template fails on them.
        """
        with self._lock:
            rendered, ids = self._model.encode(prompt)
        return Rendering(rendered.text, tuple(ids), rendered.notes)

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        """Log-probability of each token of ``continuation`` after each prompt; one forward pass per prompt at most.

        The continuation is tokenised once, without special tokens, and what ends the turn is not scored.

        A prompt that begins with tokens whose cache is kept forwards only what follows them, which gives the same
        numbers up to rounding; one of the prompts is kept first where that saves more than it costs. A prompt that
        lacks one segment of a kept one so costs the tokens behind that segment. What :meth:`score_hidden` keeps gives
        way only to a saving above what it would cost again, or once a batch had no use for it.

        Returns
        -------
        list of TokenScores, one per prompt
            ``tokens_in`` counts the tokens forwarded; those of a prompt that is kept first, for the first result that
            needed them.

        Raises
        ------
        InputError
            The continuation is empty, or a prompt cannot be rendered.
        ContextTooLongError
            A prompt and the continuation do not fit the model's window.
        EngineError
            The model failed.
        """
        if not prompts:
            return []
        with self._lock:
            ids, offsets = self._model.tokens.encode_continuation(continuation)
            rows = [self._model.encode(prompt)[1] for prompt in prompts]
            for n, row in enumerate(rows):
                self._check_fits(n, len(row), f"{len(ids)} of the response", len(ids))
            lengths = [len(row) + len(ids) for row in rows]
            with translated(self._model.name, memory="hidden_memory"):
                found = self._score_shared(rows, ids)
            rest = [n for n in range(len(rows)) if n not in found]
            with translated(self._model.name):
                n_max = self._model.forward.rows_at_once(len(ids))
                for places in self._batches([lengths[n] for n in rest], n_max):
                    batch = [rest[place] for place in places]
                    logprobs = self._model.forward.score([rows[n] for n in batch], ids)
                    found |= {n: (row, lengths[n]) for n, row in zip(batch, logprobs, strict=True)}
        return [TokenScores(logprobs, offsets, n) for logprobs, n in map(found.__getitem__, range(len(rows)))]

    def score_sizes(
        self, batches: Sequence[Sequence[Prompt]], continuation: str, *, held: Prompt | None = None
    ) -> list[int]:
        """Tokens that :meth:`score` would forward for each batch, one after the other, with a prompt held at first.

        Forwards nothing.
        """
        with self._lock:
            ids, _ = self._model.tokens.encode_continuation(continuation)
            rows = [[self._model.encode(prompt)[1] for prompt in prompts] for prompts in batches]
            before = () if held is None else self._model.encode(held)[1][:-1]
            return forwarded(rows, self._terms(len(ids)), held=before)

    def score_hidden(
        self, prompt: Prompt, segments: Sequence[Segment], masks: MaskArray, continuation: str
    ) -> list[TokenScores]:
        """As :meth:`score` of one prompt, with the segments that a mask removes hidden instead of deleted.

        The prompt is forwarded once, up to the end of the last segment; each mask then forwards the rest of it and the
        continuation only, which may read the cached entries of the segments that are kept. Those entries still carry
        traces of the hidden ones. A token that shares a character with a hidden segment is hidden; the prompt's first
        and last tokens always stay.

        Parameters
        ----------
        prompt : Prompt
        segments : sequence of Segment, length n_segments
        masks : array of bool, shape (n_masks, n_segments)
            True keeps.
        continuation : str

        Returns
        -------
        list of TokenScores, one per mask
            ``tokens_in`` counts the tokens forwarded; the prompt's own, if they were not held, for the first mask.

        Raises
        ------
        MissingCapabilityError
            The model cannot (see :attr:`capabilities`).
        SegmentationError
            Masks or locations do not fit, or the template rewrites a segment's text.
        InputError, ContextTooLongError, EngineError
            As :meth:`score`.
        """
        from attr_core.engines._hidden import score_hidden

        masks = np.asarray(masks, dtype=np.bool_)
        self._check_columns(masks, segments, "masks")
        with self._on_cache(Capability.SCORE_HIDDEN):
            layout, ids, offsets = self._lay_out(prompt, segments, continuation)
            if not len(masks):
                return []
            rows, n_tokens = score_hidden(self._prefix, layout, masks, ids)
        return [TokenScores(row, offsets, n) for row, n in zip(rows, n_tokens, strict=True)]

    def gate_gradients(
        self,
        prompt: Prompt,
        segments: Sequence[Segment],
        gates: FloatArray,
        continuation: str,
        targets: Sequence[Target],
    ) -> list[GateScores]:
        """Log-odds of each target and their gradients by a gate on each segment, one result per row of gates.

        A gate scales the attention weight that the segment's cached tokens receive from the rest of the prompt and from
        the continuation, against all other weights; at 1 nothing changes, towards 0 the segment is hidden. A token
        in two segments has both gates. A target is read as log-odds of the product of its tokens' probabilities.
        Cost: as one mask of :meth:`score_hidden` per row, and twice that per target. Memory grows with layers, prompt
        and rest of the prompt, as for any backward pass.

        Parameters
        ----------
        prompt : Prompt
        segments : sequence of Segment, length n_segments
        gates : array, shape (n_gates, n_segments)
            In (0, 1].
        continuation : str
        targets : sequence of Target
            Spans count in ``continuation``, whatever the reading.

        Raises
        ------
        InputError
            A gate lies outside (0, 1], or a target holds no token.
        MissingCapabilityError, SegmentationError, ContextTooLongError, EngineError
            As :meth:`score_hidden`.
        """
        from attr_core.engines._gates import gate_gradients

        gates = np.asarray(gates, dtype=np.float64)
        self._check_columns(gates, segments, "gates")
        if not ((gates > 0) & (gates <= 1)).all():
            raise InputError("a gate is not above 0 and at most 1; give such numbers, small ones to hide a segment")
        with self._on_cache(Capability.GATE_GRADIENTS):
            layout, ids, offsets = self._lay_out(prompt, segments, continuation)
            inside = np.array([tokens_of(target, offsets) for target in targets]).reshape(len(targets), len(ids))
            return gate_gradients(self._prefix, layout, gates, ids, inside=inside) if len(gates) else []

    def tail_size(self, prompt: Prompt, segments: Sequence[Segment], continuation: str) -> TailSize:
        """Tokens that measuring on this prompt's cache forwards once and each time; forwards none itself."""
        with self._lock:
            layout, ids, _ = self._lay_out(prompt, segments, continuation)
            n_held = self._prefix.shares(layout.prefix) if "_prefix" in vars(self) else 0
        return TailSize(len(layout.prefix), len(layout.tail) + len(ids), n_held == len(layout.prefix))

    def release(self) -> None:
        """Free the memory of the prompt's cache that is kept for further masks and gates."""
        with self._lock:
            vars(self).pop("_prefix", None)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        """One answer per prompt; the model's own sampling defaults do not apply.

        A sample depends on its prompt and the seed alone, whatever else is in the batch; prompts of one seed share
        their randomness, so that they differ by what they say only. Fewer than ``max_tokens`` are made where the window
        ends.

        Raises
        ------
        ContextTooLongError
            A prompt leaves no room for an answer.
        EngineError
            The model failed.
        """
        check_sampling(sampling)
        if not prompts:
            return []
        with self._lock:
            encoded = [self._model.encode(prompt) for prompt in prompts]
            rows = [ids for _, ids in encoded]
            for n, row in enumerate(rows):
                self._check_fits(n, len(row), "at least 1 of an answer", 1)
            is_plain = any(rendered.is_plain for rendered, _ in encoded)
            stop = tuple(filter(None, (*sampling.stop, _PLAIN_STOP if is_plain else "")))
            completions: dict[int, Completion] = {}
            with translated(self._model.name), quiet():
                for batch in self._batches([len(row) + sampling.max_tokens for row in rows]):
                    for members, n_tokens in self._rooms(batch, rows, sampling.max_tokens):
                        wanted = Sampling(n_tokens, sampling.temperature, sampling.seed, stop)
                        completions |= self._generate(members, rows, wanted)
        return [completions[n] for n in range(len(prompts))]

    def _score_shared(
        self, rows: Sequence[Sequence[int]], continuation: Sequence[int]
    ) -> dict[int, tuple[FloatArray, int]]:
        """Log-probabilities and tokens forwarded of the rows that are cheaper behind a beginning forwarded once."""
        from attr_core.engines._rests import score_rests

        held = vars(self).get("_prefix")  # not made where nothing is shared: not every model can
        if held is None and len(rows) == 1:
            return {}
        terms = self._terms(len(continuation))
        sharing = share(rows, held.held, terms, is_wanted=held.is_wanted) if held else share(rows, (), terms)
        if held is not None:
            held.is_wanted = bool(sharing.shared)
        return score_rests(self._prefix, rows, continuation, sharing) if sharing.shared else {}

    def _terms(self, n_read: int) -> Terms:
        return Terms(
            n_read,
            max_tokens=self._packed,
            # On one core a pass of SmolLM2-135M was seen to cost 80 ms, and 2.3 ms for each token.
            pass_tokens=self._packed // 16,
            padded=lambda lengths: self._batches(lengths, self._model.forward.rows_at_once(n_read)),
            fits=lambda n_tokens, n_rows, n_held: (
                self._is_exact_on_cache and self._prefix.fits(1, n_tokens, n_held, n_read=n_read * n_rows)
            ),
        )

    @cached_property
    def _is_exact_on_cache(self) -> bool:
        return Capability.SCORE_HIDDEN in self.capabilities and is_position_fixed(self._model.config)

    def _generate(self, batch: list[int], rows: Sequence[list[int]], sampling: Sampling) -> dict[int, Completion]:
        made = self._model.forward.generate(
            [rows[n] for n in batch], sampling, ends=self._model.ends, decode=self._model.decode
        )
        completions = {}
        for n, one in zip(batch, made, strict=True):
            text = self._model.decode(one.ids)
            completions[n] = cut(Completion(text, one.finish_reason, len(rows[n]), one.n_tokens), sampling.stop)
        return completions

    def _rooms(self, batch: list[int], rows: Sequence[list[int]], wanted: int) -> list[tuple[list[int], int]]:
        """The batch, and alone each row whose window ends before ``wanted`` tokens."""
        limit = self.max_context
        rooms = {n: wanted if limit is None else min(wanted, limit - len(rows[n])) for n in batch}
        together = [n for n in batch if rooms[n] == wanted]
        alone = [([n], rooms[n]) for n in batch if rooms[n] < wanted]
        return ([(together, wanted)] if together else []) + alone

    @contextlib.contextmanager
    def _on_cache(self, capability: Capability) -> Iterator[None]:
        require_capabilities(self, {capability}, by=capability.value)
        with self._lock, translated(self._model.name, memory="hidden_memory"):
            yield

    def _lay_out(
        self, prompt: Prompt, segments: Sequence[Segment], continuation: str
    ) -> tuple[Layout, list[int], NDArray[np.int64]]:
        ids, offsets = self._model.tokens.encode_continuation(continuation)
        layout = lay_out(self._model.writer, self._model.tokens, prompt, segments)
        self._check_fits(0, len(layout.prefix) + len(layout.tail), f"{len(ids)} of the response", len(ids))
        return layout, ids, offsets

    def _check_columns(self, rows: NDArray[Any], segments: Sequence[Segment], name: str) -> None:
        if rows.ndim != 2 or rows.shape[1] != len(segments):
            raise SegmentationError(f"{name} of shape {rows.shape} do not fit {len(segments)} segments")

    def _check_fits(self, index: int, n_prompt: int, rest: str, n_rest: int) -> None:
        if self.max_context is not None and n_prompt + n_rest > self.max_context:
            raise ContextTooLongError(
                f"prompt {index} of {n_prompt} tokens and {rest} do not fit the window of {self.max_context} "
                f"tokens of {self.spec}; shorten the prompt or use a model with a larger window"
            )

    def _batches(self, lengths: Sequence[int], n_max: int | None = None) -> list[list[int]]:
        from attr_core.engines._forward import batches

        return list(batches(lengths, budget=self._budget, n_max=n_max))

    @cached_property
    def _prefix(self) -> Any:
        from attr_core.engines._layer_masks import layer_windows
        from attr_core.engines._prefix import Prefix

        windows = layer_windows(self._model.config) or {}
        return Prefix(self._model.forward, windows, memory=self._hidden_memory, max_tokens=self._packed)
