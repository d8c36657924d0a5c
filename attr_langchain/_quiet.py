"""A place where nobody sees what a model is asked: attrkit's own calls are no runs of the application."""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers import context as tracing

from attr_core.capture import paused

__all__ = ["unseen"]

T = TypeVar("T")


def unseen(call: Callable[[], T]) -> T:
    """Call with no handler, tracer or instrumentation listening, save those that the model itself holds.

    It runs in an empty context: handlers that are inherited, set by a context manager or hooked to a context variable
    are not there. LangSmith, which environment variables switch on, is told to stay off, and so are instrumentations
    that patch classes, where one is loaded. Threads that LangChain starts inherit this.
    """
    return contextvars.Context().run(_call, call)


def _call(call: Callable[[], T]) -> T:
    from langsmith import tracing_context

    for variable, _, _, switch in getattr(tracing, "_configure_hooks", ()):
        # An environment variable may have a handler made, and a variable may have one as its default.
        if switch is not None or _default(variable) is not None:
            variable.set(_deaf)
    with ExitStack() as silence:
        silence.enter_context(paused())
        silence.enter_context(tracing_context(parent=False, enabled=False))
        if (instrumentation := sys.modules.get("opentelemetry.instrumentation.utils")) is not None:
            silence.enter_context(instrumentation.suppress_instrumentation())
        return call()


def _default(variable: contextvars.ContextVar[Any]) -> Any:
    try:
        return variable.get()
    except LookupError:
        return None


class _Deaf(BaseCallbackHandler):
    """Takes the place of a handler and hears nothing."""

    ignore_agent: Any = True
    ignore_chain: Any = True
    ignore_chat_model: Any = True
    ignore_custom_event: Any = True
    ignore_llm: Any = True
    ignore_retriever: Any = True
    ignore_retry: Any = True


_deaf = _Deaf()
