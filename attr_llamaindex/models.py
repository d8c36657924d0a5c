"""A user's model in a silent copy, with a sampling set where it has a place for it; the user's object never changes."""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools.types import AsyncBaseTool, ToolMetadata, ToolOutput

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.capture import paused
from attr_core.protocols import Sampling

__all__ = ["SETTINGS", "described", "given_tools", "name_of_model", "places", "silent", "unseen", "with_sampling"]

T = TypeVar("T")

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict"),
    "temperature": ("temperature",),
    "seed": ("seed", "random_seed"),
    "stop": ("stop", "stop_sequences"),
}
"""What a sampling parameter is called by LlamaIndex's integrations."""

_DECIDES_NOTHING = frozenset(
    {"callback_manager", "rate_limiter", "max_retries", "timeout", "request_timeout", "embed_batch_size", "num_workers"}
)


def unseen(call: Callable[[], T]) -> T:
    """Call where attrkit records nothing and no run of the application is around; nor does OpenTelemetry, if loaded."""

    def alone() -> T:
        with ExitStack() as silence:
            silence.enter_context(paused())
            if (instrumentation := sys.modules.get("opentelemetry.instrumentation.utils")) is not None:
                silence.enter_context(instrumentation.suppress_instrumentation())
            return call()

    return contextvars.Context().run(alone)


def silent(model: Any) -> Any:
    """A copy without callbacks."""
    return model.model_copy(update={"callback_manager": CallbackManager([])})


def places(llm: BaseLLM, keep: Collection[str]) -> dict[str, str]:
    """Sampling parameter -> the model's field that holds it; missing where it has none, or is to be kept."""
    fields = type(llm).model_fields
    found = {
        setting: next((name for name in names if name in fields), None)
        for setting, names in SETTINGS.items()
        if setting not in keep
    }
    return {setting: name for setting, name in found.items() if name is not None}


def with_sampling(llm: BaseLLM, sampling: Sampling, keep: Collection[str]) -> BaseLLM:
    """A copy of the model with the sampling's values in its fields."""
    values = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        # A seed decides nothing else, and some APIs refuse it.
        **({"seed": sampling.seed} if sampling.temperature > 0 else {}),
        **({"stop": list(sampling.stop)} if sampling.stop else {}),
    }
    fields = places(llm, keep)
    return llm.model_copy(update={fields[setting]: value for setting, value in values.items() if setting in fields})


def name_of_model(model: Any) -> str | None:
    """The name by which its provider knows it, where it has one."""
    with contextlib.suppress(Exception):  # an integration may ask its server
        name = model.metadata.model_name if isinstance(model, BaseLLM) else model.model_name
        if isinstance(name, str) and name and name != "unknown":
            return name
    return None


def described(model: Any, *, without: Collection[str] = ()) -> Any:
    """All of a model that may decide what it answers, as plain JSON and without secrets."""
    if model is None:
        return None
    cls = type(model)
    hidden = {*_DECIDES_NOTHING, *without}
    fields = {name: getattr(model, name, None) for name in cls.model_fields if name not in hidden}
    functions = {name: told for name, value in fields.items() if (told := _function_name(value)) is not None}
    return {"class": f"{cls.__module__}.{cls.__qualname__}", **plain(without_secrets(fields)), **functions}


def given_tools(llm: BaseLLM, schemas: Sequence[Mapping[str, Any]]) -> list[AsyncBaseTool]:
    """Tools that have their schemas only, for a model that calls tools; none for another."""
    if not isinstance(llm, FunctionCallingLLM) or not llm.metadata.is_function_calling_model:
        return []
    return [_GivenTool(schema.get("function", schema)) for schema in schemas]


@dataclass
class _GivenMetadata(ToolMetadata):
    parameters: Mapping[str, Any] | None = None

    def get_parameters_dict(self) -> dict[str, Any]:
        return dict(self.parameters or {"type": "object", "properties": {}})


class _GivenTool(AsyncBaseTool):
    """A measured prompt is only answered; no tool is called for it."""

    def __init__(self, function: Mapping[str, Any]) -> None:
        self._metadata = _GivenMetadata(
            description=str(function.get("description") or ""),
            name=str(function.get("name") or "tool"),
            parameters=function.get("parameters"),
        )

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        raise NotImplementedError("this tool has a schema only")

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        raise NotImplementedError("this tool has a schema only")


def _function_name(value: Any) -> str | None:
    name = getattr(value, "__qualname__", None) if callable(value) else None
    return None if name is None else f"{getattr(value, '__module__', '')}.{name}"
