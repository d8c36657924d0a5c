"""What a set will cost to judge, before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence

from attr_core.api import plan_diagnosis
from attr_core.evaluation.answers import answer_row, name_of
from attr_core.evaluation.rows import Row
from attr_core.evaluation.work import Settings
from attr_core.results import Cost, Plan, Step

__all__ = ["planned"]

_TAKEN = ("repeats", "granularity", "thresholds")


def planned(rows: Sequence[Row], settings: Settings) -> tuple[Plan, int]:
    """The sum of the plans of all rows that hold an answer, and how many those are."""
    known = [row for row in rows if row.answer and not row.trouble] if settings.diagnose else []
    options = {name: settings.options[name] for name in _TAKEN if name in settings.options}
    plans = [
        plan_diagnosis(
            answer_row(None, row),
            judge=settings.judge,
            engine=settings.engine,
            strategy=settings.strategy,
            **options,
        )
        for row in known
    ]
    by = plans[0].engine if plans else name_of(settings.judge) or "likelihood"
    names = dict.fromkeys(step.name for plan in plans for step in plan.steps)
    steps = tuple(_summed(name, [step for plan in plans for step in plan.steps if step.name == name]) for name in names)
    return Plan(
        method=f"diagnosing {len(plans)} of {len(rows)} rows, strategy {settings.strategy},",
        engine=by,
        steps=steps,
        calls=sum(plan.calls for plan in plans),
        tokens=sum(plan.tokens for plan in plans),
        usd=sum(plan.usd for plan in plans),
        maximum=sum((plan.maximum for plan in plans), Cost()),
        notes=tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
    ), len(plans)


def _summed(name: str, steps: Sequence[Step]) -> Step:
    return Step(
        name,
        sum(step.calls for step in steps),
        sum(step.tokens for step in steps),
        sum(step.tokens_out for step in steps),
        sum(step.usd for step in steps),
    )
