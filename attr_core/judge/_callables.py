"""A function ``(prompt, system) -> str``, or an object that completes, as an engine that generates."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attr_core.capabilities import require
from attr_core.engines import load_engine
from attr_core.engines.batches import all_or_error, check_sampling, cut, failure
from attr_core.errors import ConfigurationError, EngineError
from attr_core.protocols import Capability, Completion, Engine, Sampling
from attr_core.types import Prompt

_REMEDY = "see that it takes (prompt, system) and gives text"
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class CallableEngine:
    """Generates by calling a function, one prompt after the other.

    A function that takes no system prompt is given it before the prompt. What it costs nobody knows, and no sampling
    reaches it. What it answered is found again only through the same object.
    """

    price = None
    max_context: int | None = None
    capabilities = frozenset({Capability.GENERATE})

    def __init__(self, function: Callable[..., Any], *, name: str) -> None:
        self._ask = _with_system(function)
        self.spec = f"callable:{name}"
        self.fingerprint = f"{self.spec}:{uuid.uuid4().hex}"

    def __repr__(self) -> str:
        return f"CallableEngine({self.spec!r})"

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        """What the function says to each prompt.

        Raises
        ------
        EngineError
            It raised, or gave no text; ``completed`` has the answers to the other prompts.
        """
        check_sampling(sampling)
        return all_or_error([self._one(prompt, sampling) for prompt in prompts], failed=self._failure)

    def _one(self, prompt: Prompt, sampling: Sampling) -> Completion | Exception:
        system = "\n\n".join(one.content for one in prompt.messages if one.role == "system")
        user = "\n\n".join(one.content for one in prompt.messages if one.role != "system")
        try:
            return cut(Completion(_text_of(self._ask(user, system))), sampling.stop)
        except Exception as error:
            return error

    def _failure(self, error: Exception, what: str, completed: Mapping[int, Completion]) -> EngineError:
        return failure(error, f"{self.spec} failed {what}", remedy=_REMEDY, completed=completed)


def engine_of(judge: Any, *, by: str) -> Engine:
    """The engine that ``judge`` is or names: a spec, an engine, an object with ``complete``, or a function.

    Raises
    ------
    ConfigurationError
        It is none of these.
    MissingCapabilityError
        The engine does not generate.
    """
    if isinstance(judge, str):
        engine: Engine = load_engine(judge)
    elif _is_engine(judge):
        engine = judge
    elif callable(complete := getattr(judge, "complete", None)):
        engine = CallableEngine(complete, name=_name(judge))
    elif callable(judge) and not isinstance(judge, type):
        engine = CallableEngine(judge, name=_name(judge))
    else:
        raise ConfigurationError(
            f"{type(judge).__name__} cannot judge; give a spec such as hf:MODEL, an engine, or a function of "
            "(prompt, system)"
        )
    require(engine, {Capability.GENERATE}, by=by)
    return engine


def _is_engine(judge: Any) -> bool:
    # Looked up statically: reading a fingerprint may hash a model's weights.
    missing = object()
    names = ("spec", "fingerprint", "max_context")
    return all(inspect.getattr_static(judge, name, missing) is not missing for name in names)


def _name(judge: Any) -> str:
    return str(getattr(judge, "__name__", type(judge).__name__))


def _with_system(function: Callable[..., Any]) -> Callable[[str, str], Any]:
    """The function as one of (prompt, system), by its signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return function
    named = next((one.name for one in parameters if one.name in ("system", "system_prompt")), None)
    if named is not None and all(one.kind is not inspect.Parameter.POSITIONAL_ONLY for one in parameters):
        return lambda prompt, system: function(prompt, **{named: system})
    required = [one for one in parameters if one.kind in _POSITIONAL and one.default is inspect.Parameter.empty]
    takes_any = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in parameters)
    if len(required) == 2 or (takes_any and len(required) < 2):
        return function
    return lambda prompt, system: function(f"{system}\n\n{prompt}" if system else prompt)


def _text_of(answer: Any) -> str:
    if inspect.iscoroutine(answer):
        answer.close()
        raise TypeError("it is a coroutine function, and judging is synchronous")
    for name in ("text", "content"):
        if not isinstance(answer, str) and isinstance(getattr(answer, name, None), str):
            answer = getattr(answer, name)
    if not isinstance(answer, str):
        raise TypeError(f"it gave {type(answer).__name__}, no text")
    return answer
