"""Cause beside support: a cell says both, or that one of them is not known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attr_core.attribution import Attribution
from attr_core.errors import InputError
from attr_core.results import Cost, RedundancyGroup, Support, SupportVerdict
from attr_core.support.citations import Citation, Citations, citations
from attr_core.support.grid import Cell, Grid, grid
from attr_core.support.matrix import Judged, judge_answer
from attr_core.testing import ScriptedJudge
from attr_core.types import Claim, Location, Segment, SegmentKind, Target, TargetKind

ANSWER = "The fair opened in 1911 [1]. Tickets cost four marks."
CLAIMS = (Claim(0, 0, 28, ANSWER[:28]), Claim(1, 29, 53, ANSWER[29:]))
TEXTS = ("It rains. The fair opened in 1911.", "Tickets cost four marks.", "A bridge.")
SEGMENTS = tuple(
    Segment(f"c{n}", SegmentKind.RETRIEVED, text, (Location(0, 50 * n, 50 * n + len(text)),))
    for n, text in enumerate(TEXTS)
)
DRIVES, OPPOSES, NO_EFFECT, OPEN = "drives", "opposes", "no effect", "undetermined"


def target(
    kind: str, claim: int, *, reading: Any = "direct", start: int | None = None, end: int | None = None
) -> Target:
    whole = CLAIMS[claim]
    start, end = whole.start if start is None else start, whole.end if end is None else end
    return Target(TargetKind(kind), start, end, ANSWER[start:end], claim, reading)


def attribution_of(
    rows: Sequence[tuple[Target, Sequence[str]]], *, segments: Sequence[Segment] = SEGMENTS, **fields: Any
) -> Attribution:
    """``rows`` are targets with a verdict per segment; effects are 10 where it drives, -5 where it opposes."""
    verdicts = np.array([row for _, row in rows], dtype=np.str_).reshape(len(rows), len(segments))
    effects = np.select([verdicts == DRIVES, verdicts == OPPOSES], [10.0, -5.0], 0.1)
    effects = effects + np.arange(len(rows))[:, None]
    blank = np.full(len(rows), np.nan)
    values: dict[str, Any] = {
        "method": "test", "estimand": "banzhaf", "unit": "nats", "trace_id": "t", "generation_id": "g",
        "response": ANSWER, "segments": tuple(segments), "claims": CLAIMS,
        "targets": tuple(one for one, _ in rows), "effects": effects, "low": effects - 1, "high": effects + 1,
        "p_values": np.zeros_like(effects), "verdicts": verdicts, "drops": effects, "delta": np.ones(len(rows)),
        "full": blank, "closed_book": blank, "token_offsets": np.zeros((0, 2), dtype=np.int64),
        "token_full": np.zeros(0), "token_closed_book": np.zeros(0), "exact": False, "cost": Cost(), "seed": 0,
        "versions": {},
    }  # fmt: skip
    return Attribution(**{**values, **fields})


def judged_of(
    verdicts: Mapping[tuple[int, int], str] = {}, *, claims: Sequence[Claim] = CLAIMS, segments: Any = SEGMENTS
) -> Judged:
    table = {
        (claims[row].text, segments[column].text): SupportVerdict(verdict)
        for (row, column), verdict in verdicts.items()
    }
    return judge_answer(ScriptedJudge(table), answer=ANSWER, claims=claims, segments=segments)


def cell(found: Grid, row: int, column: int) -> str:
    return str(found.cells[row, column])


@pytest.mark.parametrize(
    ("cause", "support", "expected"),
    [
        (DRIVES, "entails", Cell.USED_AND_SUPPORTED),
        (NO_EFFECT, "entails", Cell.SUPPORTED_NOT_USED),
        (OPPOSES, "entails", Cell.SUPPORTED_NOT_USED),
        (DRIVES, "neutral", Cell.USED_NOT_SUPPORTED),
        (DRIVES, "contradicts", Cell.USED_NOT_SUPPORTED),
        (NO_EFFECT, "neutral", Cell.NEITHER),
        (OPPOSES, "contradicts", Cell.NEITHER),
        (OPEN, "entails", Cell.UNDETERMINED),
        (OPEN, "neutral", Cell.UNDETERMINED),
        (DRIVES, "undetermined", Cell.UNDETERMINED),
        (NO_EFFECT, "undetermined", Cell.UNDETERMINED),
        ("helpful", "entails", Cell.UNDETERMINED),
    ],
)
def test_a_cell_says_cause_and_support(cause: str, support: str, expected: Cell) -> None:
    attribution = attribution_of([(target("claim", 0), [cause, NO_EFFECT, NO_EFFECT])])
    assert cell(grid(judged_of({(0, 0): support}), attribution), 0, 0) == expected


def test_a_claim_uses_what_drives_one_of_its_pivots() -> None:
    rows = [
        (target("pivot", 0, start=19, end=23), [DRIVES, NO_EFFECT, OPEN]),
        (target("claim", 0), [NO_EFFECT, NO_EFFECT, NO_EFFECT]),
    ]
    found = grid(judged_of(), attribution_of(rows))
    assert found.used[0].tolist()[:2] == [1, 0]
    assert math.isnan(found.used[0, 2])  # undetermined on one row, without effect on the other
    assert (found.words[0][0], found.effects[0, 0]) == ("1911", 10)


def test_the_total_reading_counts_where_there_is_one() -> None:
    rows = [
        (target("claim", 1, reading="total"), [NO_EFFECT, DRIVES, NO_EFFECT]),
        (target("claim", 1), [DRIVES, NO_EFFECT, NO_EFFECT]),
        (target("pivot", 1, start=42, end=46), [NO_EFFECT, NO_EFFECT, DRIVES]),
    ]
    assert grid(judged_of(), attribution_of(rows)).used[1].tolist() == [0, 1, 1]


def test_a_member_of_a_redundancy_group_is_used_though_alone_it_has_no_effect() -> None:
    rows = [
        (target("claim", 0, reading="total"), [NO_EFFECT, NO_EFFECT, NO_EFFECT]),
        (target("claim", 0), [NO_EFFECT] * 3),
    ]
    groups = (RedundancyGroup((0, 1), 0, 9.0, 0.5), RedundancyGroup((1, 2), 1, 9.0, 0.5))
    assert grid(judged_of(), attribution_of(rows, groups=groups)).used[0].tolist() == [1, 1, 0]


def test_a_claim_that_was_not_measured_is_undetermined_and_has_no_effect() -> None:
    found = grid(judged_of({(1, 1): "entails"}), attribution_of([(target("claim", 0), [DRIVES] * 3)]))
    assert cell(found, 1, 1) == Cell.UNDETERMINED
    assert np.isnan(found.effects[1]).all()


def test_without_an_attribution_support_is_shown_and_cause_is_not_known() -> None:
    found = grid(judged_of({(0, 0): "entails"}))
    assert set(found.cells.flat) == {Cell.UNDETERMINED.value}
    assert found.support[0, 0] == "entails"
    assert {row["used"] for row in found.rows()} == {None}


def test_the_only_claim_is_the_response() -> None:
    whole = Target(TargetKind.RESPONSE, 0, 28, ANSWER[:28])
    attribution = attribution_of([(whole, [DRIVES, NO_EFFECT, NO_EFFECT])], claims=CLAIMS[:1])
    assert grid(judged_of(claims=CLAIMS[:1]), attribution).used[0].tolist() == [1, 0, 0]
    both = grid(judged_of(), attribution_of([(whole, [DRIVES, NO_EFFECT, NO_EFFECT])]))
    assert np.isnan(both.used).all()


def test_claims_taken_out_of_one_sentence_share_its_cause_and_its_citations() -> None:
    finer = [Claim(0, 0, 28, "There is a fair."), Claim(1, 0, 28, "It opened in 1911."), replace(CLAIMS[1], index=2)]
    rows = [(target("claim", 0), [DRIVES, NO_EFFECT, OPEN]), (target("claim", 1), [NO_EFFECT, DRIVES, OPEN])]
    cited = citations(ANSWER, finer, SEGMENTS)
    found = grid(judged_of({(1, 0): "entails"}, claims=finer), attribution_of(rows), cited)
    assert found.used[:, :2].tolist() == [[1, 0], [1, 0], [0, 1]]
    assert found.cited.tolist() == [[True, False, False], [True, False, False], [False, False, False]]
    assert [cell(found, row, 0) for row in range(2)] == [Cell.USED_NOT_SUPPORTED, Cell.USED_AND_SUPPORTED]


def test_segments_are_matched_by_id_whatever_their_order() -> None:
    others = (SEGMENTS[2], Segment("new", SegmentKind.RETRIEVED, "New.", ()), SEGMENTS[0])
    attribution = attribution_of([(target("claim", 0), [DRIVES, OPPOSES, NO_EFFECT])])
    found = grid(judged_of(segments=others), attribution)
    assert found.used[0, [0, 2]].tolist() == [0, 1]
    assert math.isnan(found.used[0, 1])


def test_a_citation_that_supports_what_it_did_not_cause_is_post_hoc() -> None:
    rows = [(target("claim", 0), [NO_EFFECT, NO_EFFECT, NO_EFFECT]), (target("claim", 1), [OPEN, DRIVES, NO_EFFECT])]
    cited = Citations(
        (
            Citation(24, 27, 0, (0, 2), "bracket", "order"),
            Citation(24, 27, 1, (0, 1), "bracket", "order"),
            Citation(24, 27, None, (2,), "anthropic", "order"),
            Citation(24, 27, 0, (), "bracket", "none", ("9",)),
        ),
        ("1 citations name no segment: 9",),
    )
    verdicts = {(0, 0): "entails", (0, 1): "entails", (1, 0): "entails", (1, 1): "entails"}
    found = grid(judged_of(verdicts), attribution_of(rows), cited)
    assert found.cited.tolist() == [[True, False, True], [True, True, False]]
    assert np.argwhere(found.post_hoc).tolist() == [[0, 0]]  # not cited, not entailed, not measured, used: are not
    assert found.notes == ("1 citations name no segment: 9",)


@pytest.mark.parametrize(("claim", "segments"), [(5, (0,)), (0, (3,)), (0, (-1,))])
def test_a_citation_of_something_else_is_refused(claim: int, segments: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="read the citations with the claims and segments that were judged"):
        grid(judged_of(), None, Citations((Citation(0, 1, claim, segments, "bracket", "order"),)))


def test_a_bare_table_of_verdicts_is_of_the_attributions_claims_and_segments() -> None:
    attribution = attribution_of([(target("claim", 0), [DRIVES, NO_EFFECT, NO_EFFECT])])
    support = Support(np.full((2, 3), "entails"), np.full((2, 3), ""))
    assert cell(grid(support, attribution), 0, 0) == Cell.USED_AND_SUPPORTED
    with pytest.raises(InputError, match=r"the verdicts are \(1, 3\), the attribution has 2 claims and 3 segments"):
        grid(Support(np.full((1, 3), "entails"), np.full((1, 3), "")), attribution)
    with pytest.raises(InputError, match="give the attribution"):
        grid(support)


def test_a_row_holds_what_is_shown_of_a_cell() -> None:
    attribution = attribution_of([(target("claim", 0), [DRIVES, NO_EFFECT, NO_EFFECT])])
    found = grid(judged_of({(0, 0): "entails"}), attribution, citations(ANSWER, CLAIMS, SEGMENTS))
    first, *others = found.rows()
    assert first == {
        "claim": ANSWER[:28], "claim_index": 0, "span": [0, 28], "segment": "c0", "used": True, "support": "entails",
        "cell": "used and supported", "cited": True, "post_hoc": False, "sentence": (10, 34), "effect": 10.0,
        "low": 9.0, "high": 11.0, "words": ANSWER[:28],
    }  # fmt: skip
    assert TEXTS[0][10:34] == "The fair opened in 1911."
    assert len(others) == 5


def test_a_grid_is_plain_json_without_nan() -> None:
    attribution = attribution_of([(target("claim", 0), [DRIVES, NO_EFFECT, OPEN])])
    found = grid(judged_of({(0, 0): "entails"}), attribution).to_dict()
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again == found
    assert (found["unit"], found["kind"], len(found["rows"])) == ("nats", "judged", 6)
    assert found["rows"][3]["effect"] is None


def test_evidence_is_said_to_be_no_judgement() -> None:
    judged = judged_of({(0, 0): "entails"})
    assert grid(replace(judged, support=replace(judged.support, kind="evidence"))).kind == "evidence"


def test_nothing_to_show_is_an_empty_grid() -> None:
    empty = judge_answer(ScriptedJudge(), answer=ANSWER, claims=(), segments=())
    assert grid(empty, attribution_of([])).to_dict()["rows"] == []
    assert list(grid(judged_of(segments=())).rows()) == []
