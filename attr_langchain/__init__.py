"""attrkit for LangChain and LangGraph: one callback handler, and a chat model as an engine.

``chain.invoke(question, config={"callbacks": [AttributionCallbackHandler(engine="hf:MODEL")]})``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attr_core._optional import require

if TYPE_CHECKING:
    from attr_langchain.engine import LangChainEngine
    from attr_langchain.handler import AttributionCallbackHandler
    from attr_langchain.middleware import AttributionMiddleware

__all__ = ["AttributionCallbackHandler", "AttributionMiddleware", "LangChainEngine"]

require("langchain_core", extra="langchain")

_HOMES = {
    "AttributionCallbackHandler": "attr_langchain.handler",
    "AttributionMiddleware": "attr_langchain.middleware",  # needs langchain and langgraph themselves
    "LangChainEngine": "attr_langchain.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "AttributionMiddleware":
        require("langchain", extra="langgraph")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
