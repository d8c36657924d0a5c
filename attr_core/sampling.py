"""Which runs are attributed where not all are: decided by the run's id alone, so that every process decides alike."""

from __future__ import annotations

import hashlib
from numbers import Real

from attr_core.errors import ConfigurationError

__all__ = ["check_rate", "is_sampled"]

_BITS = 53  # what a float holds exactly


def check_rate(rate: float) -> None:
    """See that a sampling rate can be used.

    Raises
    ------
    ConfigurationError
        It is no number from 0 to 1.
    """
    if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= rate <= 1:
        raise ConfigurationError(f"sampling rate {rate!r} cannot be used; give a share from 0 to 1, such as 0.1")


def is_sampled(trace_id: str, rate: float) -> bool:
    """Whether the run of that id is among the share ``rate`` of all runs.

    The same id is decided alike everywhere, and a run that is in a small share is in every larger one.

    Raises
    ------
    ConfigurationError
        ``rate`` is no number from 0 to 1.

    Examples
    --------
    >>> is_sampled("tr_1f0c", 1.0), is_sampled("tr_1f0c", 0.0)
    (True, False)
    """
    check_rate(rate)
    digest = hashlib.sha256(trace_id.encode("utf-8", "surrogatepass")).digest()
    return bool(int.from_bytes(digest[:8]) >> (64 - _BITS) < rate * 2**_BITS)
