"""attrkit for LangChain."""

from __future__ import annotations

from attr_core._optional import require

__all__: list[str] = []

require("langchain_core", extra="langchain")
