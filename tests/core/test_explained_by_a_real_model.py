"""What a newcomer relies on, on the real small model: the cause is found, a second look is free, routes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from attr_core.api import attribute, explain
from attr_core.demo import DOCUMENTS, QUESTION
from attr_core.protocols import Engine
from attr_core.store import Store
from attr_core.types import TargetKind

pytestmark = pytest.mark.model


def test_the_supporting_chunk_drives_the_fact_and_the_rival_year_does_not(small_engine: Engine, tmp_path: Path) -> None:
    db = tmp_path / "attrkit.db"
    found = explain(QUESTION, DOCUMENTS, engine=small_engine, db=db)
    assert "1911" in found.response
    assert "1911" not in (found.closed_book_answer or "")
    pivots = found.rows(TargetKind.PIVOT)
    [row] = [row for row in pivots if found.targets[row].text == "1911"]
    names = [segment.id for segment in found.segments]
    assert names[found.ranking(row)[0]] == "lantern"
    assert found.verdicts[row, names.index("lantern")] == "drives"
    assert found.verdicts[row, names.index("torch")] in ("no effect", "opposes")
    assert not found.is_known(row)
    assert found.noise_floor < 1e-3
    with Store(db) as store:
        again = attribute(store.last(), engine=small_engine, db=db)
    assert again.cost.calls == 0


def test_a_repeated_fact_comes_by_way_of_the_claim_that_said_it_first(small_engine: Engine) -> None:
    answer = "The Aldemoor Lantern Festival opened in 1911. So the year in which it opened was 1911."
    found = explain(QUESTION, DOCUMENTS, answer, engine=small_engine, db=":memory:", regenerations=False)
    lantern = [segment.id for segment in found.segments].index("lantern")
    rows = found.rows(TargetKind.PIVOT, claim=1, reading="total")
    [total] = [row for row in rows if found.targets[row].text == "1911"]
    direct = found.direct_row(total)
    assert direct is not None
    assert found.verdicts[total, lantern] == "drives"
    assert found.verdicts[direct, lantern] == "no effect"
    assert [route.claim for route in found.routes if (route.target, route.segment) == (total, lantern)] == [0]
