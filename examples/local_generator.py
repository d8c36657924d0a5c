"""The small local model as a Haystack chat generator: the examples need neither a key nor the network."""

import asyncio
import re

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import (
    ChatMessage,
    ComponentInfo,
    StreamingCallbackT,
    StreamingChunk,
    select_streaming_callback,
)
from haystack.tools import ToolsType

from attr_core.engines import load_engine
from attr_core.protocols import Completion, Sampling
from attr_core.types import Prompt
from attr_haystack.convert import to_messages


@component
class LocalChatGenerator:
    """Any engine that generates, by default the packaged model that attrkit measures with.

    It is too small to call tools: it takes them, so that agents can be built and traces hold the schemas, but they are
    not written into the prompt. The answer is streamed word by word once it is there.
    """

    def __init__(
        self, engine: str | None = None, max_tokens: int = 64, streaming_callback: StreamingCallbackT | None = None
    ):
        self.engine = engine
        self.max_tokens = max_tokens
        self.streaming_callback = streaming_callback
        self.model: str | None = None

    def warm_up(self):
        self.model = load_engine(self.engine).spec

    def to_dict(self):
        return default_to_dict(self, engine=self.engine, max_tokens=self.max_tokens)

    @classmethod
    def from_dict(cls, data):
        return default_from_dict(cls, data)

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict | None = None,
        tools: ToolsType | None = None,
    ):
        tell = select_streaming_callback(self.streaming_callback, streaming_callback, requires_async=False)
        completion = self._complete(messages, generation_kwargs or {})
        for chunk in self._chunks(completion) if tell else ():
            tell(chunk)
        return {"replies": [self._reply(completion)]}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(
        self,
        messages: list[ChatMessage] | str,
        streaming_callback: StreamingCallbackT | None = None,
        generation_kwargs: dict | None = None,
        tools: ToolsType | None = None,
    ):
        tell = select_streaming_callback(self.streaming_callback, streaming_callback, requires_async=True)
        completion = await asyncio.to_thread(self._complete, messages, generation_kwargs or {})
        for chunk in self._chunks(completion) if tell else ():
            await tell(chunk)
        return {"replies": [self._reply(completion)]}

    def _complete(self, messages, options) -> Completion:
        self.warm_up()
        stop = options.get("stop") or ()
        sampling = Sampling(
            max_tokens=options.get("max_tokens", self.max_tokens),
            temperature=options.get("temperature", 0.0),
            seed=options.get("seed", 0),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
        )
        return load_engine(self.engine).generate([Prompt(to_messages(messages))], sampling)[0]

    def _chunks(self, completion):
        words = re.findall(r"\s*\S+|\s+$", completion.text) or [""]
        for place, word in enumerate(words):
            yield StreamingChunk(
                content=word,
                component_info=ComponentInfo.from_component(self),
                index=0,
                start=place == 0,
                finish_reason=completion.finish_reason if place == len(words) - 1 else None,
                meta={"model": self.model},
            )

    def _reply(self, completion):
        read, written = completion.tokens_in or 0, completion.tokens_out or 0
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        meta = {"model": self.model, "index": 0, "finish_reason": completion.finish_reason, "usage": usage}
        return ChatMessage.from_assistant(completion.text, meta=meta)


if __name__ == "__main__":
    LocalChatGenerator(streaming_callback=lambda chunk: print(chunk.content, end="", flush=True)).run(
        "Name a colour of the sky."
    )
    print()
