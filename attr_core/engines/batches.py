"""Engines over another library's model: what one batch gave, as completions, vectors, or one error.

Such an engine calls the model once per prompt; each call has an outcome, an answer or the exception that came instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from attr_core._redact import masked
from attr_core.errors import ConfigurationError, EngineError
from attr_core.protocols import Completion, Sampling
from attr_core.results import FloatArray
from attr_core.types import Generation

__all__ = ["Failed", "all_or_error", "check_sampling", "completion_of", "cut", "failure", "vectors"]

Failed = Callable[[Exception, str, Mapping[int, Completion]], EngineError]
"""An engine's own error: from the first exception, on what it failed, and the completions of the others."""


def check_sampling(sampling: Sampling) -> None:
    """See that a model can generate so.

    Raises
    ------
    ConfigurationError
        It asks for no tokens or a negative temperature.
    """
    if sampling.max_tokens < 1 or sampling.temperature < 0:
        raise ConfigurationError(f"{sampling} asks for no tokens or a negative temperature; correct it")


def completion_of(answer: Generation) -> Completion:
    """What a model wrote, tool calls told as :attr:`attr_core.Generation.written` tells them, and its tokens."""
    return Completion(
        text=answer.written,
        finish_reason=answer.finish_reason,
        tokens_in=answer.usage.get("prompt_tokens"),
        tokens_out=answer.usage.get("completion_tokens"),
    )


def cut(completion: Completion, stop: Sequence[str]) -> Completion:
    """The completion up to the first of the stop strings, for a model that ignores them or includes them.

    Examples
    --------
    >>> cut(Completion("In 1911. END and more", "length"), ["END"])
    Completion(text='In 1911. ', finish_reason='stop', tokens_in=None, tokens_out=None)
    """
    text = completion.text
    end = min((at for one in stop if one and (at := text.find(one)) >= 0), default=None)
    if end is None:
        return completion
    return Completion(text[:end], "stop", completion.tokens_in, completion.tokens_out)


def all_or_error(outcomes: Sequence[Completion | Exception], *, failed: Failed) -> list[Completion]:
    """The completions of a batch, in the order of its prompts.

    Raises
    ------
    EngineError
        Some prompts were not answered: what ``failed`` makes of the first exception, with the others' completions.
    """
    completed = {n: one for n, one in enumerate(outcomes) if isinstance(one, Completion)}
    first = next((one for one in outcomes if isinstance(one, Exception)), None)
    if first is not None:
        what = f"on {len(outcomes) - len(completed)} of {len(outcomes)} prompts"
        raise failed(first, what, completed) from first
    return list(completed.values())


def vectors(
    texts: Sequence[str], embed: Callable[[list[str]], Any], *, by: str, remedy: str, failed: Failed
) -> FloatArray:
    """What ``embed`` makes of texts, ``(n_texts, dim)``; without texts it is not called.

    Parameters
    ----------
    texts : sequence of str
    embed : callable
        Texts -> rows of numbers.
    by : str
        What embeds, for the error.
    remedy : str
        What to do where it gives no vectors.
    failed : callable
        Makes the error where it raises.

    Raises
    ------
    EngineError
        It raised, or gave no table of finite numbers with a row per text.
    """
    if not texts:
        return np.empty((0, 0))
    try:
        table: FloatArray = np.asarray(embed(list(texts)), dtype=np.float64)
    except Exception as error:
        raise failed(error, f"to embed {len(texts)} texts", {}) from error
    if table.ndim != 2 or len(table) != len(texts) or not np.isfinite(table).all():
        raise EngineError(f"{by} gave {table.shape} for {len(texts)} texts; {remedy}")
    return table


def failure(
    error: Exception,
    what: str,
    *,
    remedy: str,
    kind: type[EngineError] = EngineError,
    completed: Mapping[int, Completion] | None = None,
) -> EngineError:
    """An error of one line that says what failed with which reason, without the secrets of the environment.

    Parameters
    ----------
    error : Exception
        The first one.
    what : str
        What failed: the engine's ``spec``, ``failed``, and on what.
    remedy : str
        What to do.
    kind : type
        Of the error.
    completed : mapping, optional
        Index in the batch -> completion, of what did not fail.
    """
    text = masked(str(error).strip(), os.environ)
    reason = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
    return kind(f"{what}, first with {reason}; {remedy}", completed=completed)
