"""attrkit's framework-neutral core: which piece of the context caused which claim of an answer.

Everything listed in ``__all__`` is the supported API; it is imported on first use, so that ``import attr_core``
is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attr_core.api import attribute as attribute
    from attr_core.api import diagnose as diagnose
    from attr_core.api import explain as explain
    from attr_core.api import plan as plan
    from attr_core.api import prove as prove
    from attr_core.attribution import Attribution as Attribution
    from attr_core.cache import Cache as Cache
    from attr_core.engines import load_engine as load_engine
    from attr_core.errors import AttrkitError as AttrkitError
    from attr_core.judge import load_judge as load_judge
    from attr_core.middleware import flush_logging as flush_logging
    from attr_core.middleware import log_call as log_call
    from attr_core.middleware import with_logging as with_logging
    from attr_core.results import Budget as Budget
    from attr_core.results import Cost as Cost
    from attr_core.results import Diagnosis as Diagnosis
    from attr_core.results import Plan as Plan
    from attr_core.results import Verdict as Verdict
    from attr_core.store import Store as Store
    from attr_core.types import Claim as Claim
    from attr_core.types import Document as Document
    from attr_core.types import Generation as Generation
    from attr_core.types import Message as Message
    from attr_core.types import Segment as Segment
    from attr_core.types import Target as Target
    from attr_core.types import Trace as Trace

__version__ = "0.1.0"

_HOMES = {
    "Attribution": "attribution",
    "AttrkitError": "errors",
    "Budget": "results",
    "Cache": "cache",
    "Claim": "types",
    "Cost": "results",
    "Diagnosis": "results",
    "Document": "types",
    "Generation": "types",
    "Message": "types",
    "Plan": "results",
    "Segment": "types",
    "Store": "store",
    "Target": "types",
    "Trace": "types",
    "Verdict": "results",
    "attribute": "api",
    "diagnose": "api",
    "explain": "api",
    "flush_logging": "middleware",
    "load_engine": "engines",
    "load_judge": "judge",
    "log_call": "middleware",
    "plan": "api",
    "prove": "api",
    "with_logging": "middleware",
}

__all__ = [
    "Attribution",
    "AttrkitError",
    "Budget",
    "Cache",
    "Claim",
    "Cost",
    "Diagnosis",
    "Document",
    "Generation",
    "Message",
    "Plan",
    "Segment",
    "Store",
    "Target",
    "Trace",
    "Verdict",
    "__version__",
    "attribute",
    "diagnose",
    "explain",
    "flush_logging",
    "load_engine",
    "load_judge",
    "log_call",
    "plan",
    "prove",
    "with_logging",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'attr_core' has no attribute {name!r}")
    return getattr(importlib.import_module(f"attr_core.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
