"""The engine that runs a model in this process with Hugging Face transformers."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from attr_core._optional import require
from attr_core.engines import _weights
from attr_core.engines._chat import ChatWriter, Rendered, Template
from attr_core.engines._quiet import quiet
from attr_core.engines._tokens import Tokens
from attr_core.errors import AttrkitError, ConfigurationError, ContextTooLongError, EngineError
from attr_core.protocols import Completion, Rendering, Sampling, TokenScores
from attr_core.types import Prompt

__all__ = ["HuggingFaceEngine"]

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
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        for module in ("torch", "transformers"):
            require(module, extra="hf")
        if max_batch_tokens is not None and max_batch_tokens < 1:
            raise ConfigurationError(f"max_batch_tokens={max_batch_tokens} is not positive; give a number of tokens")
        if device is not None and device_map is not None:
            raise ConfigurationError("device and device_map exclude each other; give one")
        self._dtype = _dtype(dtype)
        self._lock = threading.RLock()
        self._given_tokenizer = tokenizer
        self._options = dict(template_options or {})
        self._device_map = device_map
        self._given: Any = None
        self._source = _weights.Source()
        if isinstance(model, str):
            self._name = f"{model.rstrip('/')}/{gguf_file}" if gguf_file else model
            self._source = _weights.locate(model, revision=revision, gguf_file=gguf_file)
            self._device = device or ("cuda" if require("torch", extra="hf").cuda.is_available() else "cpu")
        else:
            if tokenizer is None or not hasattr(model, "forward"):
                raise ConfigurationError(f"{type(model).__name__} alone is not enough; give a model and its tokenizer")
            if any(option is not None for option in (device, device_map, revision, gguf_file)):
                raise ConfigurationError("a loaded model keeps its place; leave device, revision and gguf_file out")
            self._given = model
            self._name = getattr(model, "name_or_path", "") or type(model).__name__
            self._device = str(model.device)
        self._budget = max_batch_tokens or (2048 if self._device == "cpu" else 16384)

    def __repr__(self) -> str:
        return f"HuggingFaceEngine({self._name!r})"

    @property
    def spec(self) -> str:
        """``hf:`` and the model's name as it was given."""
        return f"hf:{self._name}"

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights' identity, tokenizer, template, dtype and, below float32, the kind of device.

        Equal for equal weights wherever they lie. The first call reads a local folder's weights once.
        """
        with self._lock:
            given = self._given is not None
            parts: dict[str, Any] = {
                "model": _weights.parameter_identity(self._given) if given else _weights.identity(self._folder),
                "dtype": str(self._given.dtype) if given else str(self._dtype),
                "options": self._options,
            }
            if self._given_tokenizer is not None:
                parts["tokenizer"] = _tokenizer_identity(self._given_tokenizer)
            if not parts["dtype"].endswith(("float32", "float64")):
                parts["device"] = self._device.partition(":")[0]
        return "hf:" + hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    @cached_property
    def max_context(self) -> int | None:
        """Tokens of prompt and response together, as the model's configuration states them."""
        config = self._config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None) or getattr(self._tokenizer, "model_max_length", None)
        # Tokenizers say 1e30 where they do not know.
        return int(limit) if limit and limit < 1 << 40 else None

    def render(self, prompt: Prompt) -> Rendering:
        """The prompt as text and token ids; ``notes`` says what the chat template could not carry.

        Raises
        ------
        InputError
            There are no messages, or the template fails on them.
        """
        with self._lock:
            rendered, ids = self._encode(prompt)
        return Rendering(rendered.text, tuple(ids), rendered.notes)

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        """Log-probability of each token of ``continuation`` after each prompt; one forward pass per prompt.

        The continuation is tokenised once, without special tokens, and what ends the turn is not scored.

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
            ids, offsets = self._tokens.encode_continuation(continuation)
            rows = [self._encode(prompt)[1] for prompt in prompts]
            for n, row in enumerate(rows):
                self._check_fits(n, len(row), f"{len(ids)} of the response", len(ids))
            lengths = [len(row) + len(ids) for row in rows]
            scores: dict[int, TokenScores] = {}
            with _translated(self._name):
                n_max = self._forward.rows_at_once(len(ids))
                for batch in self._batches(lengths, n_max):
                    logprobs = self._forward.score([rows[n] for n in batch], ids)
                    scores |= {n: TokenScores(row, offsets, lengths[n]) for n, row in zip(batch, logprobs, strict=True)}
        return [scores[n] for n in range(len(prompts))]

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
        if sampling.max_tokens < 1 or sampling.temperature < 0:
            raise ConfigurationError(f"{sampling} asks for no tokens or a negative temperature; correct it")
        if not prompts:
            return []
        with self._lock:
            encoded = [self._encode(prompt) for prompt in prompts]
            rows = [ids for _, ids in encoded]
            for n, row in enumerate(rows):
                self._check_fits(n, len(row), "at least 1 of an answer", 1)
            is_plain = any(rendered.is_plain for rendered, _ in encoded)
            stop = tuple(filter(None, (*sampling.stop, _PLAIN_STOP if is_plain else "")))
            completions: dict[int, Completion] = {}
            with _translated(self._name), quiet():
                for batch in self._batches([len(row) + sampling.max_tokens for row in rows]):
                    for members, n_tokens in self._rooms(batch, rows, sampling.max_tokens):
                        wanted = Sampling(n_tokens, sampling.temperature, sampling.seed, stop)
                        completions |= self._generate(members, rows, wanted)
        return [completions[n] for n in range(len(prompts))]

    def _generate(self, batch: list[int], rows: Sequence[list[int]], sampling: Sampling) -> dict[int, Completion]:
        made = self._forward.generate([rows[n] for n in batch], sampling, ends=self._ends, decode=self._decode)
        completions = {}
        for n, one in zip(batch, made, strict=True):
            text = self._decode(one.ids)
            end = min((at for stop in sampling.stop if (at := text.find(stop)) >= 0), default=len(text))
            completions[n] = Completion(text[:end], one.finish_reason, len(rows[n]), one.n_tokens)
        return completions

    def _rooms(self, batch: list[int], rows: Sequence[list[int]], wanted: int) -> list[tuple[list[int], int]]:
        """The batch, and alone each row whose window ends before ``wanted`` tokens."""
        limit = self.max_context
        rooms = {n: wanted if limit is None else min(wanted, limit - len(rows[n])) for n in batch}
        together = [n for n in batch if rooms[n] == wanted]
        alone = [([n], rooms[n]) for n in batch if rooms[n] < wanted]
        return ([(together, wanted)] if together else []) + alone

    def _check_fits(self, index: int, n_prompt: int, rest: str, n_rest: int) -> None:
        if self.max_context is not None and n_prompt + n_rest > self.max_context:
            raise ContextTooLongError(
                f"prompt {index} of {n_prompt} tokens and {rest} do not fit the window of {self.max_context} "
                f"tokens of {self.spec}; shorten the prompt or use a model with a larger window"
            )

    def _batches(self, lengths: Sequence[int], n_max: int | None = None) -> list[list[int]]:
        from attr_core.engines._forward import batches

        return list(batches(lengths, budget=self._budget, n_max=n_max))

    def _encode(self, prompt: Prompt) -> tuple[Rendered, list[int]]:
        rendered = self._writer.write(prompt)
        return rendered, self._tokens.encode_pieces(rendered.pieces)

    def _decode(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    @cached_property
    def _folder(self) -> Any:
        return self._source.fetch()

    @cached_property
    def _config(self) -> Any:
        return self._given.config if self._given is not None else self._load("AutoConfig")

    @cached_property
    def _tokenizer(self) -> Any:
        return self._load("AutoTokenizer") if self._given_tokenizer is None else self._given_tokenizer

    @cached_property
    def _tokens(self) -> Tokens:
        return Tokens(self._tokenizer)

    @cached_property
    def _writer(self) -> ChatWriter:
        tokenizer = self._tokenizer
        source = json.dumps(getattr(tokenizer, "chat_template", None))
        first = tokenizer("x", verbose=False)["input_ids"][:1]
        adds_start = tokenizer.bos_token_id is not None and first == [tokenizer.bos_token_id]
        return ChatWriter(
            None if source == "null" else _template(tokenizer, self._options),
            self._tokens.control,
            opening=tokenizer.bos_token if adds_start else "",
            developer="developer" in source,
        )

    @cached_property
    def _forward(self) -> Any:
        from attr_core.engines._forward import Forward

        if self._given is not None:
            return Forward(self._given)
        place = {} if self._device_map is None else {"device_map": self._device_map}
        model = self._load("AutoModelForCausalLM", dtype=self._dtype, **place)
        with _translated(self._name):
            return Forward(model if place else model.to(self._device))

    @cached_property
    def _ends(self) -> list[int]:
        """Tokens that end an answer: the model's own, and the one that ends a turn in its template."""
        stated = getattr(self._forward.model.generation_config, "eos_token_id", None)
        ends = [*(stated if isinstance(stated, list | tuple) else [stated]), self._tokenizer.eos_token_id]
        closing = self._writer.closing()
        ends += self._tokens.encode(closing)[:1] if closing else []
        return list(dict.fromkeys(int(end) for end in ends if end is not None))

    def _load(self, loader: str, **options: Any) -> Any:
        transformers = require("transformers", extra="hf")
        folder = str(self._folder)
        try:
            with quiet():
                return getattr(transformers, loader).from_pretrained(
                    folder, local_files_only=True, trust_remote_code=False, **options
                )
        except Exception as error:
            raise EngineError(
                f"{self._name} could not be loaded: {_line(error)}; name a causal model that transformers knows"
            ) from error


class _translated:  # noqa: N801 - reads as a phrase where it is used
    """Turns what torch and transformers raise into an EngineError of one line."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, AttrkitError):
            return
        memory = "memory" in str(error).lower()
        remedy = "lower max_batch_tokens" if memory else "try another model or dtype"
        raise EngineError(f"{self._name} failed: {_line(error)}; {remedy}") from error


def _template(tokenizer: Any, options: Mapping[str, Any]) -> Template:
    def apply(chat: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        text: str = tokenizer.apply_chat_template(
            chat, tools=tools or None, tokenize=False, add_generation_prompt=True, **options
        )
        return text

    return apply


def _tokenizer_identity(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    inner = json.dumps(tokenizer.get_vocab(), sort_keys=True) if backend is None else backend.to_str()
    template = json.dumps(getattr(tokenizer, "chat_template", None), sort_keys=True)
    return hashlib.sha256(f"{inner}\0{template}\0{tokenizer.special_tokens_map}".encode()).hexdigest()


def _dtype(dtype: Any) -> Any:
    if dtype == "auto":
        return dtype
    torch = require("torch", extra="hf")
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ConfigurationError(f"dtype {dtype!r} is unknown; give 'float32', 'auto' or a torch.dtype")
    return found


def _line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
