"""What every method stands behind that LlamaIndex calls: no fault of attrkit's gets out, no interruption is lost."""

from __future__ import annotations

import _thread
import functools
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from attr_core.capture import guarded

__all__ = ["heard"]

_AFTER_SECONDS = 0.01

_Method = TypeVar("_Method", bound=Callable[..., Any])


def heard(method: _Method) -> _Method:
    """A method that the dispatcher calls.

    The dispatcher swallows whatever a handler raises, without a word. So faults are warned of here; and where the user
    interrupts the program while attrkit is at work, it is interrupted again as soon as the dispatcher is done with it.
    """
    safe = guarded(method)

    @functools.wraps(method)
    def listening(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return safe(self, *args, **kwargs)
        except KeyboardInterrupt:
            threading.Timer(_AFTER_SECONDS, _interrupt).start()
            raise

    return cast(_Method, listening)


def _interrupt() -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # also out of a system call
    else:
        _thread.interrupt_main()
