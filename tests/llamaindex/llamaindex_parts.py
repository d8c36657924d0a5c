"""Engines and agents of LlamaIndex's own parts; only what a model says, and how texts are embedded, is scripted."""

import re
from collections.abc import Callable
from typing import Any

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata, ToolCallBlock
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import SentenceSplitter
from pydantic import Field, PrivateAttr, ValidationError

QUESTION = "When did the fair open?"
ANSWER = "The fair opened in 1911."
TEXTS = {
    "fair": "The fair opened in 1911.",
    "parade": "The parade began in 1937.",
    "market": "The market charges four marks.",
}


class WordEmbedding(BaseEmbedding):
    """Texts are near that share words."""

    words: list[str] = Field(default_factory=lambda: ["marks", "market", "opened", "began", "hill", "parade", "fair"])

    def _embed(self, text):
        said = re.findall(r"\w+", text.lower())
        # No two texts are equally near, or the store would choose by its random ids.
        return [1.0 * said.count(word) + 0.01 * place for place, word in enumerate(self.words, start=1)]

    def _get_query_embedding(self, query):
        return self._embed(query)

    async def _aget_query_embedding(self, query):
        return self._embed(query)

    def _get_text_embedding(self, text):
        return self._embed(text)


class ScriptedLLM(CustomLLM):
    """Says what ``say`` makes of the prompt, word by word where it streams; ``asked`` keeps what really reached it."""

    say: Callable[[str], str] = Field(default=lambda prompt: ANSWER, exclude=True)
    is_chat_model: bool = False
    name: str = "scripted"
    _asked: list[str] = PrivateAttr(default_factory=list)

    @property
    def asked(self):
        return self._asked

    @property
    def metadata(self):
        return LLMMetadata(is_chat_model=self.is_chat_model, model_name=self.name)

    def _said(self, prompt):
        self._asked.append(prompt)
        return self.say(prompt)

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=self._said(prompt))

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        def pieces():
            text = ""
            for piece in words_of(self._said(prompt)):
                text += piece
                yield CompletionResponse(text=text, delta=piece)

        return pieces()


class SilentLLM(ScriptedLLM):
    """As somebody's own model may be: no decorator tells LlamaIndex of its calls."""

    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=self._said(prompt))

    def stream_complete(self, prompt, formatted=False, **kwargs):
        def pieces():
            text = ""
            for piece in words_of(self._said(prompt)):
                text += piece
                yield CompletionResponse(text=text, delta=piece)

        return pieces()


class ToolLLM(MockFunctionCallingLLM):
    """LlamaIndex's scripted model that calls tools; ``requests`` keeps the messages that reached it."""

    _requests: list[list[dict[str, Any]]] = PrivateAttr(default_factory=list)

    def __init__(self, *said):
        answers = iter(said)

        def say(messages, **kwargs):
            self._requests.append([message.model_dump() for message in messages])
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        super().__init__(response_generator=say, is_chat_model=True)

    @llm_chat_callback()
    async def astream_chat(self, messages, **kwargs):
        async def pieces():
            message = self.response_generator(messages, **kwargs)
            text = ""
            for piece in words_of(message.content or ""):
                text += piece
                yield ChatResponse(message=says(text), delta=piece)
            if not text:
                yield ChatResponse(message=message, delta="")

        return pieces()

    @property
    def metadata(self):
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True)

    @property
    def requests(self):
        return self._requests


def refusal():
    """An error of a kind that every version's synthesizers swallow."""
    return ValidationError.from_exception_data("quota exceeded", [])


REFUSED = f"ValidationError: {refusal()}"


def words_of(text):
    return re.findall(r"\s*\S+", text)


def says(text):
    return ChatMessage(role="assistant", content=text)


def calls(*asked):
    """A message of the model that calls tools: ``("search", {"query": "fair"}, "c1")``, ..."""
    blocks = [ToolCallBlock(tool_name=name, tool_kwargs=kwargs, tool_call_id=id_) for name, kwargs, id_ in asked]
    return ChatMessage(role="assistant", blocks=blocks)


def documents(texts=TEXTS):
    return [
        Document(text=text, id_=f"doc-{name}", metadata={"file_path": f"{name}.md"}) for name, text in texts.items()
    ]


def index(texts=TEXTS, **options):
    return VectorStoreIndex.from_documents(
        documents(texts),
        embed_model=WordEmbedding(),
        transformations=[SentenceSplitter(chunk_size=64, chunk_overlap=0)],
        **options,
    )


def chat_engine(mode, llm, **options):
    """With a memory that needs no database, whose connections LlamaIndex leaves open."""
    memory = ChatMemoryBuffer.from_defaults(token_limit=3000)
    return index().as_chat_engine(chat_mode=mode, llm=llm, memory=memory, **{"similarity_top_k": 1, **options})


def query_engine(llm=None, **options):
    return index().as_query_engine(llm=llm or ScriptedLLM(), **{"similarity_top_k": 2, **options})
