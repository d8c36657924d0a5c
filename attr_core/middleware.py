"""Records the calls an application makes through ``litellm``, an openai client, or a function like theirs.

The host comes first: nothing here raises into it, waits, or changes what it passes or gets. A call is read in the
host's thread and stored by another; ``docs/logging.md`` says what can be lost in between.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from attr_core._recording.membrane import Complaints, safely
from attr_core._recording.recorder import Recorder, answered_trace
from attr_core._recording.responses import read_answer
from attr_core._recording.writer import SavesTraces, current
from attr_core._redact import redacted
from attr_core._storage.database import import_what_makes_a_database
from attr_core.errors import ConfigurationError
from attr_core.store import Store
from attr_core.types import Trace

__all__ = ["SavesTraces", "flush_logging", "log_call", "with_logging"]


def with_logging(
    call: Callable[..., Any],
    *,
    db: str | os.PathLike[str] | None = None,
    store: SavesTraces | None = None,
    framework: str | None = None,
    stamp: bool = True,
    redact: Callable[[str], str] | None = None,
) -> Callable[..., Any]:
    """Wrap a completion function so that each call is recorded as a trace.

    The wrapped function takes one more keyword, ``documents``: the retrieved chunks (strings, dicts or objects with
    text) that stand in the messages. A message may carry ``metadata`` (``rag_chunk_id``, ``tool_call_id``,
    ``group_id``, ``memory``). Neither is sent to the provider; messages without metadata are passed on as they are.

    Recorded are messages, tools, parameters without secrets (keys, tokens, headers), and the answer with its tool calls
    and token counts. A stream is recorded when it is exhausted, closed or let go of; its chunks are the provider's own
    objects. A trace's status is ``ok``; ``partial`` where the host stopped reading early or the answer has an unknown
    shape; ``error`` where the provider failed, also in mid-stream; ``interrupted`` where the call was cancelled.
    Exceptions reach the host unchanged.

    Traces are stored by one thread per process, within milliseconds. :func:`flush_logging` waits for it; the end of the
    process does so for five seconds. Lost, each with one warning, is what cannot be stored (the database is locked for
    more than five seconds, the disk is full), what is recorded while 2,000 traces wait, and what cannot be read. Lost
    without a warning is what waits when a process is killed or left by ``os._exit``.

    Parameters
    ----------
    call : callable
        ``litellm.completion`` or ``acompletion``, an openai client's ``chat.completions.create`` or
        ``responses.create``, synchronous or not, or what takes ``model`` and ``messages`` (or ``input``) as they do.
    db : path, optional
        The database; by default ``ATTRKIT_DB``, else ``~/.attrkit/attrkit.db``.
    store : object with ``save(trace)``, optional
        Where traces go instead. It is called by the writer's thread.
    framework : str, optional
        Recorded with each trace; by default the package that ``call`` comes from.
    stamp : bool
        Leave ``{"trace_id": ...}`` in the response, under ``attrkit`` (an attribute, or a key of a dict). A stream has
        it as an attribute from the start; its chunks are left alone.
    redact : callable, optional
        Text -> text, applied to every text of a trace before it is queued, in the thread of the call. Where it fails,
        a marker is stored instead of the text. Ids, names, roles and keys are not texts. The trace says so:
        ``metadata["redacted"]`` is true.

    Raises
    ------
    ConfigurationError
        Both ``db`` and ``store`` are given, or ``call`` or ``redact`` cannot be called.

    Examples
    --------
    >>> from attr_core.store import Store
    >>> def complete(model, messages):
    ...     return {"choices": [{"message": {"role": "assistant", "content": "In 1911."}}]}
    >>> with Store(":memory:") as store:
    ...     logged = with_logging(complete, store=store)
    ...     response = logged("some-model", [{"role": "user", "content": "When did it open?"}])
    ...     flush_logging(), store.get(response["attrkit"]["trace_id"]).answer
    (True, 'In 1911.')
    """
    if not callable(call):
        raise ConfigurationError(f"{call!r} cannot be called; pass the function itself, such as litellm.completion")
    if db is not None and store is not None:
        raise ConfigurationError("both db and store are given; give one of them")
    _check(redact)
    recorder = Recorder(call, db=db, store=store, framework=framework, stamp=stamp, redact=redact)
    complaints = recorder.complaints
    if store is None:
        safely(complaints, import_what_makes_a_database, db)

    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def logged_later(*args: Any, documents: Iterable[Any] | None = (), **kwargs: Any) -> Any:
            pending = safely(complaints, recorder.begin, args, kwargs, documents)
            args, kwargs = safely(complaints, recorder.for_provider, args, kwargs, default=(args, kwargs))
            try:
                response = await call(*args, **kwargs)
            except BaseException as error:
                safely(complaints, recorder.failed, pending, error)
                raise
            return safely(complaints, recorder.answered, pending, response, default=response)

        return logged_later

    @functools.wraps(call)
    def logged(*args: Any, documents: Iterable[Any] | None = (), **kwargs: Any) -> Any:
        pending = safely(complaints, recorder.begin, args, kwargs, documents)
        args, kwargs = safely(complaints, recorder.for_provider, args, kwargs, default=(args, kwargs))
        try:
            response = call(*args, **kwargs)
        except BaseException as error:
            safely(complaints, recorder.failed, pending, error)
            raise
        return safely(complaints, recorder.answered, pending, response, default=response)

    return logged


def flush_logging(timeout: float | None = 10.0) -> bool:
    """Wait until the calls recorded so far in this process are stored.

    Call it before reading, in the same process, what was just logged, and before a process is left by ``os._exit``.

    Parameters
    ----------
    timeout : float or None
        Seconds to wait at most; ``None`` for no end.

    Returns
    -------
    bool
        Whether everything recorded since the last flush is stored. ``False`` when time ran out or traces were lost;
        a warning has said why.
    """
    return current().flush(timeout)


def log_call(
    messages: Iterable[Any],
    response: Any,
    *,
    documents: Iterable[Any] = (),
    model: str | None = None,
    db: str | os.PathLike[str] | None = None,
    store: SavesTraces | None = None,
    redact: Callable[[str], str] | None = None,
    **details: Any,
) -> str:
    """Record a call that was made elsewhere, at once.

    Parameters
    ----------
    messages, documents
        As for :meth:`attr_core.types.Trace.from_messages`.
    response : str, response object or None
        What the model answered: a chat completion or a response of ``responses.create``.
    model : str, optional
        Who answered; by default what the response says.
    db, store, redact
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
    ConfigurationError
        ``redact`` cannot be called.
    """
    _check(redact)
    answer = read_answer(response)
    trace = Trace.from_messages(messages, answer.response, documents=documents, model=model, **details)
    if trace.query is None:
        texts = [message.content for message in trace.generations[0].messages if message.role == "user"]
        trace = replace(trace, query=texts[-1] if texts else None)
    trace = answered_trace(trace, answer)
    if redact is not None:
        complaints = Complaints()
        text = "the redactor failed; what it was given is not stored"
        trace = redacted(
            trace, redact, failed=lambda error: complaints.say("redact", f"{text} ({type(error).__name__})")
        )
    if store is not None:
        return store.save(trace)
    with Store(db) as opened:
        return opened.save(trace)


def _check(redact: Any) -> None:
    if redact is not None and not callable(redact):
        raise ConfigurationError(f"redact={redact!r} cannot be called; pass a function from text to text")
