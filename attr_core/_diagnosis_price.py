"""What a diagnosis takes, before anything is asked: judging, an attribution, running the prompt again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from attr_core.capabilities import price_of
from attr_core.claims import split_claims
from attr_core.diagnosing import sampling_of
from attr_core.diagnosis import Case, Thresholds
from attr_core.diagnosis.examine import is_source
from attr_core.judge._prices import table_cost
from attr_core.metering import MeteredEngine
from attr_core.prompt import count_text, count_tokens, most_tokens
from attr_core.protocols import Judge, Reproduces
from attr_core.results import Cost, Plan, Step
from attr_core.support.conflicts import MAX_PAIRS
from attr_core.support.matrix import reference_text
from attr_core.types import Claim, Segment

__all__ = ["plan_of_diagnosis"]

NAMED = 4
"""Runs that say most: without context, with the right segments alone, without these, without the wrong ones."""

ORDERS, STARTS, PROVED, TIMES = 3, 3, 3, 3


def plan_of_diagnosis(
    case: Case,
    *,
    judge: Judge,
    judge_engine: object,
    engine: MeteredEngine | None,
    attribution: Plan | None,
    thresholds: Thresholds,
) -> Plan:
    """Expected for an answer with one culprit, and at most; as if the cache were empty.

    ``judge_engine`` is what the judge runs on, if that is known.
    """
    wanted = split_claims(case.expected) if case.expected else ()
    question = Claim(0, 0, 0, case.question or "")
    texts = [Segment.quoted("answer", case.generation.written)]
    texts += [Segment.quoted("expected", reference_text(case.question, case.expected))] if case.expected else []
    rows, columns = [*case.claims, *wanted, question], [*case.sources, *texts]
    cost_of = partial(table_cost, judge, question=case.question, repeats=1, engine=judge_engine)
    first, most = cost_of(rows, columns)
    for table in _further(case, wanted):
        most += cost_of(*table)[1]
    steps = [_step("judging the answer", first)]
    if attribution is not None:
        steps.append(Step("causes", attribution.calls, attribution.tokens, usd=attribution.usd))
        most += attribution.maximum
    if engine is not None:
        n, n_most = _runs(case, engine, thresholds)
        read, written = count_tokens(engine.engine, case.generation.prompt), count_text(engine.engine, texts[0].text)
        longest = sampling_of(case.generation, engine, 0).max_tokens
        steps.append(_step("running the prompt again", _cost(engine, n, read, written)))
        most += _cost(engine, n_most, most_tokens(engine.engine, case.generation.prompt), longest)
        standard = wanted or case.claims
        again, _ = cost_of(standard, texts[:1] * max(n // 2, 1))
        long = Segment.quoted("answer", "x" * 4 * longest)
        _, again_most = cost_of(standard, [long] * n_most)
        steps.append(_step("judging what it says", again))
        most += again_most
    specs = [None if engine is None else engine.spec, getattr(judge, "spec", None)]
    expected = sum((Cost(step.calls, step.tokens, 0, step.usd) for step in steps), Cost())
    return Plan(
        method="diagnosis",
        engine=" and ".join(dict.fromkeys(filter(None, specs))),
        steps=tuple(steps),
        calls=expected.calls,
        tokens=expected.tokens_in,
        usd=expected.usd,
        maximum=most,
        notes=("expected for an answer that is wrong, with one culprit; a right one takes no run",),
    )


def _further(case: Case, wanted: Sequence[Claim]) -> Iterator[tuple[Sequence[Claim], Sequence[Segment]]]:
    """Tables that are asked for only where something is missing, at issue or close: at most these."""
    rows = [*case.claims, *wanted]
    yield rows, [one for one in case.generation.segments if not is_source(one)]
    yield wanted, [Segment.quoted(one.id, one.text) for one in case.lost]
    longest = max(case.sources, key=lambda one: len(one.text), default=None)
    if longest is not None:  # sentences of segments against segments, and a belief against all of them
        yield [Claim(0, 0, 0, longest.text)] * MAX_PAIRS, [longest] * MAX_PAIRS
        yield rows, case.sources


def _runs(case: Case, engine: MeteredEngine, limits: Thresholds) -> tuple[int, int]:
    n = len(case.sources)
    singles = min(n, limits.max_singles)
    is_greedy = sampling_of(case.generation, engine, 0).temperature == 0
    if is_greedy and isinstance(engine.engine, Reproduces) and engine.engine.reproduces:
        return 1 + NAMED + singles + 1, 1 + NAMED + singles + ORDERS + STARTS + limits.max_search + 1
    once = limits.n_unchanged + NAMED + singles + 2 * limits.n_confirm + 1
    most = max(4 * limits.n_unchanged, limits.n_unchanged + limits.n_confirm) + NAMED * limits.n_confirm + singles
    return once, most + ORDERS + TIMES * (STARTS + limits.max_search) + 3 * PROVED * limits.n_confirm + 1


def _cost(engine: MeteredEngine, calls: int, read: int, written: int) -> Cost:
    price = price_of(engine.engine)
    usd = math.nan if price is None else calls * (read * price.token_in + written * price.token_out)
    return Cost(calls, calls * read, calls * written, usd)


def _step(name: str, cost: Cost) -> Step:
    return Step(name, cost.calls, cost.tokens_in + cost.tokens_out, tokens_out=cost.tokens_out, usd=cost.usd)
