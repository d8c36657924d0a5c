"""The small local model as a LangChain chat model: the examples need neither a key nor the network."""

import re

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from attr_core.engines import load_engine
from attr_core.protocols import Completion, Engine, Sampling
from attr_core.types import Prompt
from attr_langchain.convert import to_message


class LocalChatModel(BaseChatModel):
    """Any engine that generates, by default the packaged model that attrkit measures with.

    It is too small to call tools: `bind_tools` takes them, so that agents can be built and traces hold the schemas, but
    they are not written into the prompt.
    """

    engine: Engine = Field(default_factory=load_engine, exclude=True, repr=False)
    max_tokens: int = 64
    temperature: float = 0.0
    seed: int = 0

    @property
    def model_name(self) -> str:
        return self.engine.spec

    @property
    def _llm_type(self) -> str:
        return "attrkit-local"

    @property
    def _identifying_params(self) -> dict:
        names = ("model_name", "max_tokens", "temperature", "seed")
        return {name: getattr(self, name) for name in names}

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        completion = self._complete(messages, stop)
        message = AIMessage(completion.text, **self._about(completion))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        completion = self._complete(messages, stop)
        for word in re.findall(r"\s*\S+|\s+$", completion.text):
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        yield ChatGenerationChunk(message=AIMessageChunk("", **self._about(completion)))

    def _complete(self, messages, stop) -> Completion:
        prompt = Prompt(tuple(to_message(message) for message in messages))
        sampling = Sampling(self.max_tokens, self.temperature, self.seed, tuple(stop or ()))
        return self.engine.generate([prompt], sampling)[0]

    def _about(self, completion: Completion) -> dict:
        read, written = completion.tokens_in or 0, completion.tokens_out or 0
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        told = {"model_name": self.model_name, "finish_reason": completion.finish_reason}
        return {"usage_metadata": usage, "response_metadata": told}


if __name__ == "__main__":
    for chunk in LocalChatModel().stream("Name a colour of the sky."):
        print(chunk.content, end="", flush=True)
    print()
