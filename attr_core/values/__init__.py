"""Value functions: the numbers that contexts with parts removed are measured by, one per file."""

from __future__ import annotations

from attr_core.reading import log_odds
from attr_core.values.response_log_odds import ResponseLogOdds

__all__ = ["ResponseLogOdds", "log_odds"]
