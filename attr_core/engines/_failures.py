"""What torch and transformers raise, as errors of one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from attr_core.errors import AttrkitError, EngineError


@contextlib.contextmanager
def translated(name: str, *, memory: str = "max_batch_tokens") -> Iterator[None]:
    """Turns what they raise into an EngineError; ``memory`` is the option to lower where memory runs out."""
    try:
        yield
    except AttrkitError:
        raise
    except Exception as error:
        remedy = f"lower {memory}" if "memory" in str(error).lower() else "try another model or dtype"
        raise EngineError(f"{name} failed: {line(error)}; {remedy}") from error


def line(error: BaseException) -> str:
    """The first line of what it says."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
