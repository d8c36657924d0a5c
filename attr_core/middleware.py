"""Records the calls an application makes through ``litellm.completion`` or a client like it.

The host comes first: nothing here raises into it, changes what it passes or gets, or fails its call. What cannot be
recorded is said once per wrapped callable, as a :class:`RuntimeWarning`.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import os
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from attr_core._redact import masked, without_secrets
from attr_core.errors import ConfigurationError, InputError
from attr_core.store import Store
from attr_core.types import ATTRKIT_KEY, Document, Generation, Message, Retrieval, Trace

__all__ = ["SavesTraces", "log_call", "with_logging"]

_NOT_PARAMETERS = frozenset({"model", "messages", "tools", "metadata", "client"})
_OURS = frozenset({"metadata", ATTRKIT_KEY})
_PACKAGES = frozenset({"litellm", "openai"})
_USAGE = {
    "prompt_tokens": ("prompt_tokens",),
    "completion_tokens": ("completion_tokens",),
    "total_tokens": ("total_tokens",),
    "cached_tokens": ("prompt_tokens_details", "cached_tokens"),
    "reasoning_tokens": ("completion_tokens_details", "reasoning_tokens"),
}


class SavesTraces(Protocol):
    """Where traces go; :class:`attr_core.store.Store` is one."""

    def save(self, trace: Trace) -> str: ...


def with_logging(
    call: Callable[..., Any],
    *,
    db: str | os.PathLike[str] | None = None,
    store: SavesTraces | None = None,
    framework: str | None = None,
    stamp: bool = True,
) -> Callable[..., Any]:
    """Wrap a completion function so that each call is recorded as a trace.

    The wrapped function takes one more keyword, ``documents``: the retrieved chunks (strings, dicts or objects with
    text) that stand in the messages. A message may carry ``metadata`` (``rag_chunk_id``, ``tool_call_id``,
    ``group_id``, ``memory``). Neither is sent to the provider; messages without metadata are passed on as they are.
    Parameters are recorded without secrets (keys, tokens, headers). A call that the provider fails is recorded with
    status ``error``, and its exception raised unchanged. Asynchronous calls and streams pass through without being
    recorded.

    Parameters
    ----------
    call : callable
        ``litellm.completion``, ``client.chat.completions.create``, or what takes ``model`` and ``messages`` as they do.
    db : path, optional
        The database; by default ``ATTRKIT_DB``, else ``~/.attrkit/attrkit.db``.
    store : object with ``save(trace)``, optional
        Where traces go instead.
    framework : str, optional
        Recorded with each trace; by default the package that ``call`` comes from.
    stamp : bool
        Leave ``{"trace_id": ...}`` in the response, under ``attrkit`` (an attribute, or a key of a dict).

    Raises
    ------
    ConfigurationError
        Both ``db`` and ``store`` are given, or ``call`` cannot be called.

    Examples
    --------
    >>> from attr_core.store import Store
    >>> def complete(model, messages):
    ...     return {"choices": [{"message": {"role": "assistant", "content": "In 1911."}}]}
    >>> with Store(":memory:") as store:
    ...     logged = with_logging(complete, store=store)
    ...     response = logged("some-model", [{"role": "user", "content": "When did it open?"}])
    ...     store.get(response["attrkit"]["trace_id"]).answer
    'In 1911.'
    """
    if not callable(call):
        raise ConfigurationError(f"{call!r} cannot be called; pass the function itself, such as litellm.completion")
    if db is not None and store is not None:
        raise ConfigurationError("both db and store are given; give one of them")
    recorder = _Recorder(call, db=db, store=store, framework=framework, stamp=stamp)

    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def passed_on(*args: Any, documents: Iterable[Any] = (), **kwargs: Any) -> Any:
            recorder.warn("unrecorded", "asynchronous calls are not recorded yet")
            args, kwargs = recorder.for_provider(args, kwargs)
            return await call(*args, **kwargs)

        return passed_on

    @functools.wraps(call)
    def logged(*args: Any, documents: Iterable[Any] = (), **kwargs: Any) -> Any:
        pending = recorder.begin(args, kwargs, documents)
        args, kwargs = recorder.for_provider(args, kwargs)
        try:
            response = call(*args, **kwargs)
        except BaseException as error:
            recorder.failed(pending, error)
            raise
        recorder.answered(pending, response)
        return response

    return logged


def log_call(
    messages: Iterable[Any],
    response: Any,
    *,
    documents: Iterable[Any] = (),
    model: str | None = None,
    db: str | os.PathLike[str] | None = None,
    store: SavesTraces | None = None,
    **details: Any,
) -> str:
    """Record a call that was made elsewhere.

    Parameters
    ----------
    messages, documents
        As for :meth:`attr_core.types.Trace.from_messages`.
    response : str, response object or None
        What the model answered.
    model : str, optional
        Who answered; by default what the response says.
    db, store
        As for :func:`with_logging`.
    **details
        Further arguments of :meth:`~attr_core.types.Trace.from_messages`: ``query``, ``tags``, ``reference``, ...

    Returns
    -------
    str
        The trace's id.

    Raises
    ------
    InputError
        The messages, a document or the response cannot be read.
    StoreError
        The database cannot be written.
    """
    read = _read_response(response)
    answer, said = read.pop("response"), read.pop("model")
    trace = Trace.from_messages(messages, answer, documents=documents, model=model or said, **details)
    generation = replace(trace.generations[0], **read)
    query = trace.query if trace.query is not None else _last_user_text(generation.messages)
    trace = replace(trace, query=query, generations=(generation,))
    if store is not None:
        return store.save(trace)
    with Store(db) as opened:
        return opened.save(trace)


@dataclass(frozen=True, slots=True)
class _Pending:
    """What is known of a call before it is made, since the host may change its messages afterwards."""

    generation: Generation
    documents: tuple[Document, ...]
    options: Mapping[str, Any]
    started: datetime


class _Recorder:
    """Everything that may go wrong beside the host's own call."""

    def __init__(
        self,
        call: Callable[..., Any],
        *,
        db: str | os.PathLike[str] | None,
        store: SavesTraces | None,
        framework: str | None,
        stamp: bool,
    ) -> None:
        package = (getattr(call, "__module__", None) or "").partition(".")[0]
        self._names = _positional_names(call)
        self._framework = framework or (package if package in _PACKAGES else None)
        self._db, self._store, self._stamp = db, store, stamp
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        if store is None:
            with self._guarded():
                importlib.import_module("sqlite_utils")  # takes a while; better now than in the host's first call

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], documents: Iterable[Any]) -> _Pending | None:
        """Note what is sent; ``None`` where that cannot be read."""
        with self._guarded():
            options = {**dict(zip(self._names, args, strict=False)), **kwargs}
            parameters = {key: value for key, value in options.items() if key not in _NOT_PARAMETERS}
            model = options.get("model")
            generation = Generation(
                messages=tuple(Message.parse(message) for message in options.get("messages") or ()),
                response=None,
                model=None if model is None else str(model),
                tools=tuple(_tool(tool) for tool in options.get("tools") or ()),
                parameters=without_secrets(parameters),
            )
            found = tuple(Document.parse(document, i) for i, document in enumerate(documents or ()))
            return _Pending(generation, found, options, datetime.now(UTC))
        return None

    def for_provider(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments without message metadata; whatever has none is the caller's own object."""
        with self._guarded():
            if "messages" in kwargs:
                return args, {**kwargs, "messages": _bare_messages(kwargs["messages"])}
            position = self._names.index("messages")
            if position < len(args):
                return (*args[:position], _bare_messages(args[position]), *args[position + 1 :]), kwargs
        return args, kwargs

    def answered(self, pending: _Pending | None, response: Any) -> None:
        """Record an answer and stamp it."""
        if isinstance(response, Awaitable | AsyncIterator | Iterator):
            self.warn("unrecorded", "asynchronous calls and streams are not recorded yet")
            return
        if pending is None:
            return
        with self._guarded():
            try:
                read = _read_response(response)
            except InputError as error:
                self._save(pending, pending.generation, status="partial", error=str(error))
                return
            said = read.pop("model")
            generation = replace(pending.generation, **read, model=pending.generation.model or said)
            metadata = {"response_model": said} if said not in (None, generation.model) else {}
            trace_id = self._save(pending, generation, metadata=metadata)
            if self._stamp:
                _leave(response, {"trace_id": trace_id})

    def failed(self, pending: _Pending | None, error: BaseException) -> None:
        """Record that the provider failed, or that the call was interrupted."""
        if pending is None:
            return
        with self._guarded():
            text = masked(f"{type(error).__name__}: {error}", pending.options)
            status = "error" if isinstance(error, Exception) else "interrupted"
            self._save(pending, replace(pending.generation, error=text), status=status, error=text)

    def warn(self, kind: str, text: str) -> None:
        """Say it once per kind; a warning that is an error for the host must not reach it."""
        with self._lock:
            if kind in self._warned:
                return
            self._warned.add(kind)
        with contextlib.suppress(Warning):
            warnings.warn(f"attrkit: {text}", RuntimeWarning, stacklevel=4)

    def _save(self, pending: _Pending, generation: Generation, **fields: Any) -> str:
        trace = Trace(
            query=_last_user_text(generation.messages),
            generations=(generation,),
            answer=generation.response,
            retrievals=(Retrieval(query=None, documents=pending.documents),) if pending.documents else (),
            framework=self._framework,
            started=pending.started,
            finished=datetime.now(UTC),
            **fields,
        )
        return self._opened().save(trace)

    def _opened(self) -> SavesTraces:
        with self._lock:
            if self._store is None:
                self._store = Store(self._db)
            return self._store

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            with contextlib.suppress(Exception):  # even an exception's text can fail
                reason = f"{type(error).__name__}: {error}"
                self.warn("failure", f"a call could not be recorded ({reason}); the call itself is not affected")


def _positional_names(call: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the positional parameters; those of ``litellm.completion`` where the callable does not tell."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return ("model", "messages")
    names = tuple(parameter.name for parameter in parameters if parameter.kind in kinds)
    return names if "messages" in names else ("model", "messages")


def _bare_messages(messages: Any) -> Any:
    if not isinstance(messages, list | tuple):
        return messages
    bare = [_bare_message(message) for message in messages]
    if all(new is old for new, old in zip(bare, messages, strict=True)):
        return messages
    return tuple(bare) if isinstance(messages, tuple) else bare


def _bare_message(message: Any) -> Any:
    if isinstance(message, Message):
        return message.to_chat()
    if isinstance(message, Mapping):
        if _OURS.isdisjoint(message):
            return message
        return {key: value for key, value in message.items() if key not in _OURS}
    if hasattr(message, "model_dump") and any(getattr(message, name, None) is not None for name in _OURS):
        return {"content": None, **message.model_dump(exclude=set(_OURS), exclude_none=True)}
    return message


def _tool(tool: Any) -> dict[str, Any]:
    plain: dict[str, Any] = tool.model_dump() if hasattr(tool, "model_dump") else dict(tool)
    # A function's parameters may well be named "token"; only the provider's own tools (MCP) carry headers.
    return copy.deepcopy(plain) if "function" in plain else without_secrets(plain)


def _last_user_text(messages: Iterable[Message]) -> str | None:
    texts = [message.content for message in messages if message.role == "user"]
    return texts[-1] if texts else None


def _get(holder: Any, *names: str) -> Any:
    for name in names:
        holder = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return holder


def _read_response(response: Any) -> dict[str, Any]:
    """Fields of a :class:`Generation`; of several choices the first."""
    if response is None or isinstance(response, str):
        return {"response": response, "model": None}
    choices = _get(response, "choices")
    if not isinstance(choices, list | tuple) or not choices:
        raise InputError(f"a response of type {type(response).__name__} has no choices; its answer was not read")
    message = _get(choices[0], "message")
    if message is None:
        raise InputError(f"a response of type {type(response).__name__} has no message; its answer was not read")
    content = _get(message, "content")
    parsed = Message.parse({"role": "assistant", "content": content, "tool_calls": _get(message, "tool_calls")})
    usage = {name: _get(response, "usage", *path) for name, path in _USAGE.items()}
    return {
        "response": None if content is None else parsed.content,
        "reasoning": _text_or_none(_get(message, "reasoning_content")),
        "tool_calls": parsed.tool_calls,
        "finish_reason": _text_or_none(_get(choices[0], "finish_reason")),
        "usage": {name: count for name, count in usage.items() if isinstance(count, int)},
        "model": _text_or_none(_get(response, "model")),
    }


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _leave(response: Any, stamp: dict[str, Any]) -> None:
    with contextlib.suppress(Exception):  # some responses take no further attribute
        if isinstance(response, dict):
            response[ATTRKIT_KEY] = stamp
        elif response is not None and not isinstance(response, str):
            setattr(response, ATTRKIT_KEY, stamp)
