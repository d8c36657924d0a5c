"""What kind of server an address is, and what it says of its model: asked once, by requests that forward no token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from attr_core.engines._server_http import Endpoint, Malformed, Refused
from attr_core.errors import ConfigurationError, EngineError, ModelNotFoundError

Kind = Literal["vllm", "sglang", "openai"]
Ask = Callable[[Callable[[], Any]], Any]
"""Makes an attempt, and more of them where that may help."""

_NO_SUCH_PAGE = frozenset({400, 401, 403, 404, 405, 422, 501})
_MAKERS: Mapping[str, str] = {
    "llamacpp": "llama.cpp's server returns no prompt log-probabilities (llama.cpp issue 27174)",
    "library": "Ollama returns no prompt log-probabilities",
}
"""What a server names as its models' owner -> why it cannot score."""

_PLAIN = (
    "it is neither vLLM nor SGLang, and others (llama.cpp's server, transformers serve, Ollama) return no prompt "
    "log-probabilities"
)


@dataclass(frozen=True, slots=True)
class Server:
    """What a server told. ``weights`` is all it says about which they are; ``why_not`` why its kind cannot score."""

    kind: Kind
    model: str
    models: tuple[str, ...]
    version: str | None
    weights: tuple[str, ...]
    max_context: int | None
    tokenizer: str | None
    why_not: str | None


def look_at(endpoint: Endpoint, model: str | None, ask: Ask) -> Server:
    """Ask a server what it is, by at most six requests.

    Raises
    ------
    ConfigurationError
        It has several models, and none is named.
    ModelNotFoundError
        It has no model of that name.
    EngineError
        It speaks no OpenAI-compatible protocol.
    """
    cards = _cards(endpoint, ask, is_needed=model is None)
    names = tuple(str(card["id"]) for card in cards)
    named = model or _only(names, endpoint)
    card = next((card for card in cards if card["id"] == named), {})
    owner = str((card or (cards[0] if cards else {})).get("owned_by") or "")
    kind, version, told = _kind(endpoint, ask, owner)
    ignores_names = owner == "llamacpp" or kind == "sglang"
    if named not in names and (kind == "vllm" or (names and ignores_names)):
        raise ModelNotFoundError(unknown_model(named, names, endpoint))
    parent = next((other for other in cards if other["id"] == card.get("parent")), {})
    weights = (card.get("root"), card.get("parent"), told.get("model_path"), told.get("weight_version"))
    return Server(
        kind=kind,
        model=named,
        models=names,
        version=version,
        weights=tuple(str(one) for one in weights if one),
        max_context=_window(card) or _window(parent),
        tokenizer=told.get("tokenizer_path") or told.get("model_path"),
        why_not=_MAKERS.get(owner, _PLAIN) if kind == "openai" else None,
    )


def unknown_model(model: str, models: tuple[str, ...], endpoint: Endpoint) -> str:
    """The sentence for a model that is not there."""
    there = ", ".join(models[:10]) or "none that it tells"
    return f"the server at {endpoint.url} has no model {model!r}; name one it has: {there}"


def _cards(endpoint: Endpoint, ask: Ask, *, is_needed: bool) -> list[Mapping[str, Any]]:
    try:
        answer = ask(lambda: endpoint.get("/v1/models"))
    except Refused as refused:
        if is_needed and refused.status in {404, 405, 501}:
            raise EngineError(
                f"nothing at {endpoint.url} lists models ({refused}); name an OpenAI-compatible server and its model"
            ) from refused
        if refused.status not in {404, 405, 501}:
            raise
        return []
    cards = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(cards, list) or not all(isinstance(card, dict) and "id" in card for card in cards):
        raise EngineError(f"{endpoint.url} answers no list of models; name an OpenAI-compatible server")
    return cards


def _only(names: tuple[str, ...], endpoint: Endpoint) -> str:
    if len(names) == 1:
        return names[0]
    if not names:
        raise ConfigurationError(f"the server at {endpoint.url} lists no model; name it: server:{endpoint.url}#MODEL")
    raise ConfigurationError(
        f"the server at {endpoint.url} has {len(names)} models; name one, as in server:{endpoint.url}#{names[0]}: "
        + ", ".join(names[:10])
    )


def _kind(endpoint: Endpoint, ask: Ask, owner: str) -> tuple[Kind, str | None, Mapping[str, Any]]:
    if owner != "vllm":
        for path in ("/model_info", "/get_model_info"):
            info = _tried(endpoint, ask, path)
            if isinstance(info.get("model_path"), str):
                told = _tried(endpoint, ask, "/server_info") or _tried(endpoint, ask, "/get_server_info")
                return "sglang", _text(told.get("version")), info
    version = _text(_tried(endpoint, ask, "/version").get("version")) if owner not in _MAKERS else None
    return ("openai" if version is None else "vllm"), version, {}


def _tried(endpoint: Endpoint, ask: Ask, path: str) -> Mapping[str, Any]:
    """What a page says that only one kind of server has; empty where it is not there."""
    try:
        answer = ask(lambda: endpoint.get(path))
    except Malformed:
        return {}
    except Refused as refused:
        if refused.status not in _NO_SUCH_PAGE:
            raise
        return {}
    return answer if isinstance(answer, dict) else {}


def _window(card: Mapping[str, Any]) -> int | None:
    told = card.get("max_model_len")
    return told if type(told) is int and told > 0 else None


def _text(told: Any) -> str | None:
    return told if isinstance(told, str) and told else None
