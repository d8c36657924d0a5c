"""attrkit for LlamaIndex."""

from __future__ import annotations

from attr_core._optional import require

__all__: list[str] = []

require("llama_index.core", extra="llamaindex")
