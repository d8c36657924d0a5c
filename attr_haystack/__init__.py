"""attrkit for Haystack: a pipeline component, a tracer, and chat generators and embedders as engines.

``pipeline.add_component("attribution", AttributionComponent(engine="hf:MODEL"))``, or, for pipelines that nobody wants
to rewire, ``AttributionTracer(engine="hf:MODEL").install()``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attr_core._optional import require

if TYPE_CHECKING:
    from attr_haystack.engine import HaystackEngine
    from attr_haystack.tracer import AttributionTracer
    from haystack_integrations.components.attribution import AttributionComponent

__all__ = ["AttributionComponent", "AttributionTracer", "HaystackEngine"]

require("haystack", extra="haystack")

_HOMES = {
    "AttributionComponent": "haystack_integrations.components.attribution",
    "AttributionTracer": "attr_haystack.tracer",
    "HaystackEngine": "attr_haystack.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
