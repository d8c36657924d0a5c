"""What a newcomer relies on, on the real small model: the cause is found, a second look is free, routes are named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from attr_core.api import attribute, explain
from attr_core.demo import DOCUMENTS, QUESTION
from attr_core.errors import ContextTooLongError
from attr_core.estimators import DebiasedLasso
from attr_core.protocols import Engine, TokenScores
from attr_core.store import Store
from attr_core.types import Prompt, TargetKind

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


def test_a_prompt_beyond_a_real_models_window_is_measured_on_subsets_that_fit(small_engine: Engine) -> None:
    narrow = _NarrowEngine(small_engine, max_context=230)
    places = ("Corvath", "Dunmere", "Farrow", "Gildern", "Jaspen", "Kestrel", "Lorwyn", "Pellam")
    noise = [f"The {place} market sells wool and lamps on the first Tuesday of every month." for place in places]
    found = explain(
        QUESTION,
        [DOCUMENTS[1].text, *noise],
        "The Aldemoor Lantern Festival opened in 1911.",
        engine=narrow,
        db=":memory:",
        estimator=DebiasedLasso(32),
        regenerations=False,
    )
    [row] = [row for row in found.rows(TargetKind.PIVOT) if "1911" in found.targets[row].text]
    assert found.n_unfit > 0
    assert math.isnan(found.full[row])
    assert found.segments[found.ranking(row)[0]].text == DOCUMENTS[1].text
    assert found.verdicts[row, found.ranking(row)[0]] == "drives"
    assert any("the baseline with the full context is missing" in warning for warning in found.warnings)


class _NarrowEngine:
    """A real engine that refuses, as a model of a smaller window would, what does not fit."""

    def __init__(self, engine: Engine, *, max_context: int) -> None:
        self._engine = engine
        self.max_context = max_context
        self.spec, self.fingerprint, self.render = engine.spec, engine.fingerprint, engine.render

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        scores = self._engine.score(prompts, continuation)
        for prompt, score in zip(prompts, scores, strict=True):
            if len(self.render(prompt).token_ids) + len(score.logprobs) > self.max_context:
                raise ContextTooLongError("too long")
        return scores
