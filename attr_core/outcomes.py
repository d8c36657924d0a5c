"""What an answer amounts to, from what it says of the claims that it is held against."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from attr_core.results import SupportVerdict

__all__ = ["Outcome", "outcome_of"]


class Outcome(StrEnum):
    """What an answer amounts to.

    ``right``: it states everything that is expected, and nothing that is not to be said. ``incomplete``: a part of what
    is expected, nothing against it. ``wrong``: something against it, or nothing of it. ``refused``: it declines to
    answer. ``changed``: no answer is expected, and it no longer says what was at issue. ``undetermined``: the judge did
    not say.
    """

    RIGHT = "right"
    INCOMPLETE = "incomplete"
    WRONG = "wrong"
    REFUSED = "refused"
    CHANGED = "changed"
    UNDETERMINED = "undetermined"


def outcome_of(verdicts: Sequence[str], *, is_wanted: bool) -> Outcome:
    """Of what an answer says of each expected claim; or, without ``is_wanted``, of each claim at issue."""
    says = {SupportVerdict(verdict) for verdict in verdicts}
    if not is_wanted:
        if SupportVerdict.ENTAILS in says:
            return Outcome.WRONG
        return Outcome.UNDETERMINED if SupportVerdict.UNDETERMINED in says or not says else Outcome.CHANGED
    if SupportVerdict.CONTRADICTS in says:
        return Outcome.WRONG
    if SupportVerdict.UNDETERMINED in says or not says:
        return Outcome.UNDETERMINED
    if says == {SupportVerdict.ENTAILS}:
        return Outcome.RIGHT
    return Outcome.INCOMPLETE if SupportVerdict.ENTAILS in says else Outcome.WRONG
