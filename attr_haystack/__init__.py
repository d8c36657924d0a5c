"""attrkit for Haystack."""

from __future__ import annotations

from attr_core._optional import require

__all__: list[str] = []

require("haystack", extra="haystack")
