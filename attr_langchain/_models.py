"""A user's chat model, taken out of what is wrapped around it, in a silent copy; the user's object is never changed."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLanguageModel
from langchain_core.runnables import RunnableBinding
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.config import merge_configs
from langchain_core.runnables.configurable import DynamicRunnable
from langchain_core.runnables.retry import RunnableRetry

from attr_core._plain import plain
from attr_core._redact import without_secrets
from attr_core.errors import ConfigurationError
from attr_core.protocols import Engine, Sampling

__all__ = ["ChatModel", "described", "open_model"]

_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "max_tokens": (
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "max_new_tokens",
        "num_predict",
        "max_tokens_to_sample",
    ),
    "temperature": ("temperature",),
    "seed": ("seed", "random_seed"),
}
"""What a sampling parameter is called by LangChain's integrations."""

_NAMES = ("model", "model_name", "model_id", "deployment_name", "azure_deployment", "repo_id")
_DECIDES_NOTHING = frozenset(
    {"callbacks", "cache", "verbose", "tags", "metadata", "rate_limiter", "custom_get_token_ids", "profile", "name"}
    | {"streaming", "disable_streaming", "stream_usage", "max_retries"}
    | {"timeout", "request_timeout", "default_request_timeout"}
)
_DEEPEST = 4


@dataclass(frozen=True)
class ChatModel:
    """A silent copy of a model, what was bound to it, and the retries around it.

    ``keep`` names sampling parameters that are left as the model has them.
    """

    model: Any
    bound: Mapping[str, Any] = field(default_factory=dict)
    retries: tuple[Any, ...] = ()
    keep: frozenset[str] = frozenset()

    @property
    def name(self) -> str | None:
        """What the provider calls the model."""
        holders = ({"model": self._told("ls_model_name")}, self.bound, _values(self.model))
        names = (holder.get(name) for holder in holders for name in _NAMES)
        return next((name for name in names if isinstance(name, str) and name), None)

    @property
    def provider(self) -> str:
        """Who runs it, else the name of its class."""
        return self._told("ls_provider") or type(self.model).__name__

    @property
    def max_input_tokens(self) -> int | None:
        """As the model's profile states it."""
        limit = self._profile.get("max_input_tokens")
        return limit if isinstance(limit, int) and limit > 0 else None

    @property
    def places(self) -> dict[str, tuple[bool, str]]:
        """Sampling parameter -> whether it is a field of the model or an argument that was bound, and its name there.

        A field rather than an argument of the call, because many integrations refuse arguments they do not know; but
        what the user has bound is known to be taken.
        """
        found: dict[str, tuple[bool, str]] = {}
        fields = type(self.model).model_fields
        for setting, names in _SETTINGS.items():
            if setting in self.keep or (setting == "temperature" and self._profile.get("temperature") is False):
                continue
            places = [(False, name) for name in names if name in self.bound]
            places += [(True, name) for name in names if name in fields]
            if places:
                found[setting] = places[0]
        return found

    def runnable(self, sampling: Sampling, tools: Sequence[Mapping[str, Any]]) -> Any:
        """The model with a sampling and tools, and everything the user had around it."""
        changes: dict[str, Any] = {"n": 1} if (_values(self.model).get("n") or 1) != 1 else {}  # one answer is read
        bound = {**self.bound, "n": 1} if "n" in self.bound else dict(self.bound)
        for setting, (is_field, name) in self.places.items():
            if setting != "seed" or sampling.temperature > 0:  # a seed decides nothing else, and some APIs refuse it
                (changes if is_field else bound)[name] = getattr(sampling, setting)
        runnable = self.model.model_copy(update=changes)
        if tools:
            bound.pop("tools", None)
            runnable = _with_tools(runnable, tools)
        if bound:
            runnable = runnable.bind(**bound)
        for retry in self.retries:
            runnable = retry.model_copy(update={"bound": runnable, "kwargs": {}, "config": {}, "config_factories": []})
        return runnable

    def identity(self) -> dict[str, Any]:
        """All that decides what it answers, save what every call sets anyway; without secrets."""
        is_set = {name for _, name in self.places.values()}
        neutral = self.model.model_copy(update={name: None for is_field, name in self.places.values() if is_field})
        stated: Any = None
        with contextlib.suppress(Exception):
            stated = described(neutral._identifying_params)
        return {
            "model": described(neutral),
            "stated": stated,
            "name": self.name,
            "bound": described({key: value for key, value in self.bound.items() if key not in is_set}),
            "set": sorted(self.places),
        }

    @property
    def _profile(self) -> Mapping[str, Any]:
        with contextlib.suppress(Exception):  # a beta feature, which some versions look up on access
            profile = getattr(self.model, "profile", None)
            if isinstance(profile, Mapping):
                return profile
        return {}

    def _told(self, key: str) -> str | None:
        with contextlib.suppress(Exception):  # every integration computes these on its own
            value = self.model._get_ls_params(**self.bound).get(key)
            return value if isinstance(value, str) and value else None
        return None


def open_model(runnable: Any, *, keep: Collection[str] = ()) -> ChatModel:
    """The chat model in a runnable, in a silent copy.

    Bound arguments and retries stay around it; handlers, tags and other configuration go, configurable fields are
    settled as the configuration around them says.

    Raises
    ------
    ConfigurationError
        It is no chat model, or several.
    """
    given = runnable
    bound: dict[str, Any] = {}
    retries: list[Any] = []
    config: Any = {}
    while not isinstance(runnable, BaseChatModel):
        if isinstance(runnable, RunnableBinding | RunnableRetry):
            if isinstance(runnable, RunnableRetry):
                retries.insert(0, runnable)
            bound = {**runnable.kwargs, **bound}
            config = merge_configs(runnable.config, config)
            runnable = runnable.bound
        elif isinstance(runnable, DynamicRunnable):
            runnable, config = runnable.prepare({"configurable": config.get("configurable") or {}})
        else:
            runnable = _settled(runnable, given, config)
    return ChatModel(_silent(runnable), bound, tuple(retries), frozenset(keep))


def described(value: Any, depth: int = 0) -> Any:
    """``value`` as plain JSON that is equal for what behaves alike: objects that are no data become their class."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return without_secrets({"": value})[""]
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if depth >= _DEEPEST or "Secret" in type(value).__name__:
        return name
    if isinstance(value, Mapping):
        kept = without_secrets(dict.fromkeys(value))
        return {str(key): described(item, depth + 1) for key, item in value.items() if str(key) in kept}
    if isinstance(value, list | tuple):
        return [described(item, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(str(described(item, depth + 1)) for item in value)
    if isinstance(value, Engine):
        return str(value.fingerprint)
    fields = {key: item for key, item in _values(value).items() if key not in _DECIDES_NOTHING}
    return {"class": name, **described(fields, depth)} if fields else name


def _settled(runnable: Any, given: Any, config: Mapping[str, Any]) -> Any:
    """The model that ``init_chat_model`` makes on the call only, where it says which."""
    kind = type(runnable).__name__
    with contextlib.suppress(AttributeError):
        model = runnable.model_copy()
        if isinstance(model, BaseChatModel | RunnableBinding):
            if config.get("configurable"):
                raise ConfigurationError(f"{kind} is configured from outside; use its own with_config, first of all")
            return model
    remedy = {
        "RunnableSequence": "pass the model of the chain alone",
        "RunnableWithFallbacks": "pass one of its models, since answers of several cannot be compared",
        "str": "pass the model that init_chat_model makes of it",
        "_ConfigurableModel": "give init_chat_model a model",
    }.get(kind, "pass a BaseChatModel, with bind or with_retry around it if need be")
    where = "" if runnable is given else f" in {type(given).__name__}"
    raise ConfigurationError(f"{kind}{where} is no chat model; {remedy}")


def _silent(runnable: Any) -> Any:
    """A copy without handlers and cache, down to the models that it holds."""
    if isinstance(runnable, BaseLanguageModel):
        changes: dict[str, Any] = {"callbacks": None, "tags": None, "metadata": None, "verbose": False, "cache": False}
        held = (BaseLanguageModel, RunnableBindingBase)
        changes |= {name: _silent(value) for name, value in _values(runnable).items() if isinstance(value, held)}
        return runnable.model_copy(update=changes)
    if isinstance(runnable, RunnableBindingBase):
        config = {key: value for key, value in runnable.config.items() if key != "callbacks"}
        changes = {"bound": _silent(runnable.bound), "config": config, "config_factories": []}
        return runnable.model_copy(update=changes)
    return runnable


def _values(model: Any) -> dict[str, Any]:
    """The fields of a pydantic model."""
    names = getattr(type(model), "model_fields", None)
    return {name: getattr(model, name, None) for name in names} if isinstance(names, Mapping) else {}


def _with_tools(model: Any, tools: Sequence[Mapping[str, Any]]) -> Any:
    schemas = [plain(tool) for tool in tools]
    try:
        return model.bind_tools(schemas)
    except NotImplementedError:  # then the application, too, can only have bound them as an argument
        return model.bind(tools=schemas)
