"""The pipeline component's parameters: as objects, as what a collector takes, and as what YAML can hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from haystack.utils import Secret, serialize_callable

from attr_core.collector import Collector
from attr_core.engines import load_engine
from attr_core.errors import ConfigurationError
from attr_core.judge import load_judge
from attr_core.results import Budget

__all__ = ["budget_of", "budget_text", "collector_for", "load", "serializable"]

_PRIMITIVES = (str, int, float, bool, type(None))


def collector_for(component: Any) -> Collector:
    """What stores and attributes for a component.

    Raises
    ------
    ConfigurationError
        See :class:`attr_core.collector.Collector`; or a ``Secret`` that holds nothing.
    """
    return Collector(
        mode=component.mode,
        engine=_revealed(component.engine, "engine"),
        algorithm=component.algorithm,
        store=_revealed(component.store, "store"),
        sample_rate=component.sample_rate,
        redact=component.redact,
        budget=budget_of(component.budget),
        budget_per_day=budget_of(component.budget_per_day),
        time_limit=component.time_limit,
        diagnose=component.diagnose,
        judge=_revealed(component.judge, "judge"),
        strategy=component.strategy,
        **component.options,
    )


def load(component: Any) -> None:
    """Load what measures and who judges for a component, and find out what they are.

    Raises
    ------
    AttrkitError
        There is no such engine, judge or model.
    """
    if component.collector.attributes:
        _ = load_engine(_revealed(component.engine, "engine")).fingerprint
    if component.diagnose:
        load_judge(_revealed(component.judge, "judge"))


def serializable(component: Any) -> dict[str, Any]:
    """A component's parameters as primitives and ``Secret``.

    Raises
    ------
    ConfigurationError
        A parameter is an object that no text can stand for.
    """
    parameters: dict[str, Any] = {
        "engine": _named(component.engine, "engine", "a spec such as hf:MODEL"),
        "mode": component.mode,
        "algorithm": _named(component.algorithm, "algorithm", "its name"),
        "store": _named(component.store, "store", "a path"),
        "sample_rate": component.sample_rate,
        "redact": None if component.redact is None else serialize_callable(component.redact),
        "budget": component.budget,
        "budget_per_day": component.budget_per_day,
        "time_limit": component.time_limit,
    }
    if component.diagnose:
        judge = _named(component.judge, "judge", "a spec such as litellm:MODEL")
        parameters.update(diagnose=True, judge=judge, strategy=component.strategy)
    for name, value in component.options.items():
        if not _is_plain(value):
            raise ConfigurationError(f"option {name}={value!r} cannot be written to YAML; give a name or a number")
    return {**parameters, **component.options}


def budget_text(budget: Budget | str | None) -> str | None:
    """A budget as text, such as ``calls=64,usd=0.5``; ``None`` where there is no cap.

    Raises
    ------
    ConfigurationError
        A text that cannot be read.
    """
    if budget is None:
        return None
    caps = Budget.parse(budget) if isinstance(budget, str) else budget
    told = ((cap.name, getattr(caps, cap.name)) for cap in fields(caps))
    return ",".join(f"{name}={value}" for name, value in told if value is not None) or None


def budget_of(text: str | None) -> Budget:
    """The caps that a text names."""
    return Budget() if text is None else Budget.parse(text)


def _revealed(value: Any, name: str) -> Any:
    if not isinstance(value, Secret):
        return value
    secret = value.resolve_value()
    if not secret:
        raise ConfigurationError(f"the secret that holds the {name} is empty; set it, or leave {name} out")
    return secret


def _named(value: Any, name: str, remedy: str) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, str | Secret):
        return value
    raise ConfigurationError(f"{name}={value!r} is an object, which cannot be written to YAML; give {remedy}")


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return isinstance(value, _PRIMITIVES)
