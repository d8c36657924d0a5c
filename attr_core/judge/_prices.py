"""What a judge takes for a table of verdicts, before it is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from attr_core.capabilities import price_of
from attr_core.judge.likelihood import LikelihoodJudge
from attr_core.judge.llm import MAX_CELLS, TOKENS_A_CELL, LLMJudge
from attr_core.protocols import Judge
from attr_core.results import Cost
from attr_core.types import Claim, Location, Segment, SegmentKind

__all__ = ["table_cost"]

RETRIES = 2
"""How often a judge asks again about what it could not read."""

TOLD, TOLD_AT_MOST = 450, 2000
"""Tokens of what a judge is told besides what it judges."""

REASONING = 256
"""Tokens of an answer besides its verdicts, at most."""

_LETTER = Segment("a", SegmentKind.ASSISTANT_TURN, "a", (Location(0, 0, 1),))


def table_cost(
    judge: Judge,
    claims: Sequence[Claim],
    segments: Sequence[Segment],
    *,
    question: str | None,
    repeats: int,
    engine: object = None,
) -> tuple[Cost, Cost]:
    """Of ``repeats`` judgements of one table: where every answer can be read, and at most.

    A judge that repeats or remembers itself is asked once; one that does not say how many calls it takes is counted as
    one call a judgement. ``engine`` is what it runs on, if that is known: USD are NaN where its price is not.
    """
    n_cells = len(claims) * len(segments)
    if not n_cells:
        return Cost(), Cost()
    price = price_of(judge if engine is None else engine)
    asked, own, calls, most_calls = _calls(judge, claims, segments, question, repeats)
    row_bytes, column_bytes = _bytes(claims), _bytes(segments)
    is_read = not isinstance(judge, LikelihoodJudge)
    # A segment is sent anew with each group of claims, and alone where it is asked about again.
    n_groups = asked * own * (-(-len(claims) // MAX_CELLS) if is_read else len(claims))

    def cost(n_calls: int, tokens_in: int, tokens_out: int) -> Cost:
        usd = math.nan if price is None else tokens_in * price.token_in + tokens_out * price.token_out
        return Cost(n_calls, tokens_in=tokens_in, tokens_out=tokens_out if is_read else 0, usd=usd if n_calls else 0.0)

    told = TOLD if is_read else 0
    expected = cost(
        calls,
        calls * (told + row_bytes // 4) + n_groups * column_bytes // 4,
        TOKENS_A_CELL * n_cells * asked * own // 2,
    )
    again = RETRIES * asked * own * len(claims)
    most = cost(
        most_calls,
        most_calls * (TOLD_AT_MOST + row_bytes) + (n_groups + again) * column_bytes,
        most_calls * REASONING + (1 + RETRIES) * TOKENS_A_CELL * n_cells * asked * own,
    )
    return expected, most


def _bytes(texts: Sequence[Claim] | Sequence[Segment]) -> int:
    return sum(len(one.text.encode("utf-8", "replace")) for one in texts)


def _calls(
    judge: Any, claims: Sequence[Claim], segments: Sequence[Segment], question: str | None, repeats: int
) -> tuple[int, int, int, int]:
    """How often it is asked, how often it repeats itself then, and the calls of all together, expected and at most."""
    if not hasattr(judge, "n_calls"):
        return repeats, 1, repeats, repeats
    calls = judge.n_calls(claims, segments, question=question)
    if isinstance(judge, LikelihoodJudge):
        return 1, 1, calls, calls
    if not isinstance(judge, LLMJudge):
        return repeats, 1, repeats * calls, repeats * calls
    own = judge.n_calls(claims[:1], [_LETTER], question=question)
    return 1, own, calls, calls + RETRIES * own * len(claims) * len(segments)
