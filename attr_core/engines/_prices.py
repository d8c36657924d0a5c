"""What hosted models cost and hold, from the price list that is packaged with litellm, read without importing it."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attr_core.protocols import Price

__all__ = ["embeds", "max_input_tokens", "provider_of", "token_price"]

_FILE = "model_prices_and_context_window_backup.json"
_LOCAL = frozenset({"ollama", "ollama_chat", "lemonade", "lm_studio", "llamafile"})
"""Providers that run on the user's machine; elsewhere a price of nothing says that nobody filled it in."""

_EMBEDS = re.compile(r"embed|(^|/)(bge|e5|gte)-", re.IGNORECASE)


def token_price(model: str) -> Price | None:
    """USD per token read and written; of an embedding model, per token read.

    Parameters
    ----------
    model : str
        As litellm names it, with or without the provider: ``openai/gpt-4o``, ``gpt-4o``.

    Returns
    -------
    Price or None
        ``None`` where the list does not say, or litellm is not installed.
    """
    entry = _entry(model)
    is_local = model.partition("/")[0] in _LOCAL and not model.endswith("-cloud")
    paid_in = _number(entry.get("input_cost_per_token"))
    paid_out = 0.0 if entry.get("mode") == "embedding" else _number(entry.get("output_cost_per_token"))
    if paid_in is None or paid_out is None or (paid_in + paid_out == 0 and not is_local):
        return None
    return Price(paid_in, paid_out)


def max_input_tokens(model: str) -> int | None:
    """Tokens that a model reads at most; ``None`` where the list does not say."""
    count = _number(_entry(model).get("max_input_tokens"))
    return int(count) if count else None


def embeds(model: str) -> bool:
    """Whether it is an embedding model: as the list says, else as its name does."""
    mode = _entry(model).get("mode")
    return mode == "embedding" if mode is not None else _EMBEDS.search(model) is not None


def provider_of(model: str) -> str:
    """Whose model it is; OpenAI's where neither the name nor the list says."""
    provider, slash, _ = model.partition("/")
    return provider if slash else str(_entry(model).get("litellm_provider") or "openai")


def _entry(model: str) -> Mapping[str, Any]:
    prices = _price_list()
    model = re.sub(r"^ollama_chat/", "ollama/", model)
    if (exact := prices.get(model)) is not None:
        return exact
    provider, _, name = model.partition("/")
    entry = prices.get(name, {})  # some stand there without their provider
    found = str(entry.get("litellm_provider", ""))
    return entry if found == provider or re.match(rf"{re.escape(provider)}[_-]", found) else {}


@cache
def _price_list() -> Mapping[str, Mapping[str, Any]]:
    try:
        spec = importlib.util.find_spec("litellm")
        folders = (spec.submodule_search_locations if spec is not None else None) or []
        entries = json.loads(Path(next(iter(folders)), _FILE).read_text(encoding="utf-8"))
    except (StopIteration, OSError, ValueError):  # not installed, or packaged in another way
        return {}
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict) and name != "sample_spec"}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) and value >= 0 else None
