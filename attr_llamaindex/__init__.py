"""attrkit for LlamaIndex: one call instruments every query engine, chat engine and agent, and a model is an engine.

``attr_llamaindex.instrument(engine="hf:MODEL")``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attr_core._optional import require

if TYPE_CHECKING:
    from attr_llamaindex.engine import LlamaIndexEngine
    from attr_llamaindex.events import AttributionReady, DiagnosisReady
    from attr_llamaindex.instrumentation import Instrumentation, instrument

__all__ = ["AttributionReady", "DiagnosisReady", "Instrumentation", "LlamaIndexEngine", "instrument"]

require("llama_index.core", extra="llamaindex")

_HOMES = {
    "AttributionReady": "attr_llamaindex.events",
    "DiagnosisReady": "attr_llamaindex.events",
    "Instrumentation": "attr_llamaindex.instrumentation",
    "LlamaIndexEngine": "attr_llamaindex.engine",
    "instrument": "attr_llamaindex.instrumentation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
