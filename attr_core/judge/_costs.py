"""What one judgement cost, on an account that others spend from too."""

from __future__ import annotations

from dataclasses import fields

from attr_core.results import Cost


def spent_since(before: Cost, after: Cost) -> Cost:
    """The difference of two states of an account."""
    return Cost(*(getattr(after, one.name) - getattr(before, one.name) for one in fields(Cost)))
