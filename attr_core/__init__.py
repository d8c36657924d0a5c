"""attrkit's framework-neutral core: which piece of the context caused which claim of an answer.

Everything listed in ``__all__`` is the supported API; it is imported on first use, so that ``import attr_core``
is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attr_core.types import Document as Document
    from attr_core.types import Message as Message
    from attr_core.types import Segment as Segment
    from attr_core.types import Trace as Trace

__version__ = "0.1.0"

_HOMES = {
    "Document": "types",
    "Message": "types",
    "Segment": "types",
    "Trace": "types",
}

__all__ = ["Document", "Message", "Segment", "Trace", "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'attr_core' has no attribute {name!r}")
    return getattr(importlib.import_module(f"attr_core.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
