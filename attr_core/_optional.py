"""Import of what an extra brings, with an error that names the extra."""

from __future__ import annotations

import importlib
from types import ModuleType

from attr_core.errors import MissingDependencyError


def require(module: str, *, extra: str) -> ModuleType:
    """Import ``module``.

    Raises
    ------
    MissingDependencyError
        It is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.split(".")[0] == error.name.split(".")[0]:
            raise MissingDependencyError(error.name, extra=extra) from error
        raise
