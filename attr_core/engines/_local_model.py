"""A model, its tokenizer and its chat template, each loaded when it is first needed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from attr_core._optional import require
from attr_core.engines import _weights
from attr_core.engines._chat import ChatWriter, Rendered, Template
from attr_core.engines._failures import line, translated
from attr_core.engines._quiet import quiet
from attr_core.engines._tokens import Tokens
from attr_core.errors import ConfigurationError, EngineError
from attr_core.types import Prompt


class LocalModel:
    """What :class:`~attr_core.engines.huggingface.HuggingFaceEngine` runs; its parameters are explained there."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        dtype: Any,
        device: str | None,
        device_map: Any,
        revision: str | None,
        gguf_file: str | None,
        template_options: Mapping[str, Any] | None,
    ) -> None:
        if device is not None and device_map is not None:
            raise ConfigurationError("device and device_map exclude each other; give one")
        self._dtype = _weights.parse_dtype(dtype)
        self._given_tokenizer = tokenizer
        self._options = dict(template_options or {})
        self._device_map = device_map
        self._given: Any = None
        self._source = _weights.Source()
        if isinstance(model, str):
            self.name = f"{model.rstrip('/')}/{gguf_file}" if gguf_file else model
            self._source = _weights.locate(model, revision=revision, gguf_file=gguf_file)
            self.device = device or ("cuda" if require("torch", extra="hf").cuda.is_available() else "cpu")
        else:
            if tokenizer is None or not hasattr(model, "forward"):
                raise ConfigurationError(f"{type(model).__name__} alone is not enough; give a model and its tokenizer")
            if any(option is not None for option in (device, device_map, revision, gguf_file)):
                raise ConfigurationError("a loaded model keeps its place; leave device, revision and gguf_file out")
            self._given = model
            self.name = getattr(model, "name_or_path", "") or type(model).__name__
            self.device = str(model.device)

    def fingerprint(self) -> str:
        """Hash of all that decides what it answers; reads a local folder's weights."""
        given = self._given is not None
        parts: dict[str, Any] = {
            "model": _weights.parameter_identity(self._given) if given else _weights.identity(self._folder),
            "dtype": str(self._given.dtype) if given else str(self._dtype),
            "options": self._options,
        }
        if self._given_tokenizer is not None:
            parts["tokenizer"] = _weights.tokenizer_identity(self._given_tokenizer)
        if not parts["dtype"].endswith(("float32", "float64")):
            parts["device"] = self.device.partition(":")[0]
        return "hf:" + hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    @cached_property
    def max_context(self) -> int | None:
        """Tokens of prompt and response together, as the configuration states them."""
        config = self.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None) or getattr(self.tokenizer, "model_max_length", None)
        # Tokenizers say 1e30 where they do not know.
        return int(limit) if limit and limit < 1 << 40 else None

    def encode(self, prompt: Prompt) -> tuple[Rendered, list[int]]:
        """A prompt as text and token ids."""
        rendered = self.writer.write(prompt)
        return rendered, self.tokens.encode_pieces(rendered.pieces)

    def decode(self, ids: Sequence[int]) -> str:
        """Token ids as text, without control tokens."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    @cached_property
    def config(self) -> Any:
        """The model's configuration."""
        return self._given.config if self._given is not None else self._load("AutoConfig")

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of transformers."""
        return self._load("AutoTokenizer") if self._given_tokenizer is None else self._given_tokenizer

    @cached_property
    def tokens(self) -> Tokens:
        """The tokenizer as attrkit uses it."""
        return Tokens(self.tokenizer)

    @cached_property
    def writer(self) -> ChatWriter:
        """Prompts through the chat template."""
        tokenizer = self.tokenizer
        source = json.dumps(getattr(tokenizer, "chat_template", None))
        first = tokenizer("x", verbose=False)["input_ids"][:1]
        adds_start = tokenizer.bos_token_id is not None and first == [tokenizer.bos_token_id]
        return ChatWriter(
            None if source == "null" else _template(tokenizer, self._options),
            self.tokens.control,
            opening=tokenizer.bos_token if adds_start else "",
            developer="developer" in source,
        )

    @cached_property
    def forward(self) -> Any:
        """The weights, ready to run (a :class:`~attr_core.engines._forward.Forward`)."""
        from attr_core.engines._forward import Forward

        if self._given is not None:
            return Forward(self._given)
        place = {} if self._device_map is None else {"device_map": self._device_map}
        model = self._load("AutoModelForCausalLM", dtype=self._dtype, **place)
        model.requires_grad_(False)  # it is nobody else's, and gradients of weights are never asked for
        with translated(self.name):
            return Forward(model if place else model.to(self.device))

    @cached_property
    def ends(self) -> list[int]:
        """Tokens that end an answer: the model's own, and the one that ends a turn in its template."""
        stated = getattr(self.forward.model.generation_config, "eos_token_id", None)
        ends = [*(stated if isinstance(stated, list | tuple) else [stated]), self.tokenizer.eos_token_id]
        closing = self.writer.closing()
        ends += self.tokens.encode(closing)[:1] if closing else []
        return list(dict.fromkeys(int(end) for end in ends if end is not None))

    @cached_property
    def _folder(self) -> Any:
        return self._source.fetch()

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
                f"{self.name} could not be loaded: {line(error)}; name a causal model that transformers knows"
            ) from error


def _template(tokenizer: Any, options: Mapping[str, Any]) -> Template:
    def apply(chat: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        text: str = tokenizer.apply_chat_template(
            chat, tools=tools or None, tokenize=False, add_generation_prompt=True, **options
        )
        return text

    return apply
