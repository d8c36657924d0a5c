"""Pivots: the phrases whose log-probability the context changes most."""

from __future__ import annotations

import numpy as np

from attr_core.pivots import MAX_PIVOTS, find_pivots
from attr_core.types import Claim


def pivots(response: str, changed: dict[str, float], *, claims: tuple[Claim, ...] | None = None) -> list[str]:
    """One token per character; each character of a changed text carries an equal part of its change."""
    offsets = np.array([[i, i + 1] for i in range(len(response))])
    full = np.full(len(response), -0.1)
    closed_book = full.copy()
    for text, change in changed.items():
        start = response.index(text)
        closed_book[start : start + len(text)] -= change / len(text)
    claims = claims or (Claim(0, 0, len(response), response),)
    return [t.text for t in find_pivots(response, claims, offsets, full=full, closed_book=closed_book)]


def test_the_word_that_the_context_decides_is_the_pivot() -> None:
    assert pivots("The fair opened in 1911.", {"1911": 6.0}) == ["1911"]


def test_numbers_come_out_whole() -> None:
    assert pivots("It costs $1,250.50 now.", {"250": 5.0}) == ["$1,250.50"]
    assert pivots("About 12.5% of it.", {"12": 5.0}) == ["12.5%"]
    assert pivots("It was on 2024-05-01 or so.", {"05": 5.0}) == ["2024-05-01"]


def test_a_name_comes_out_whole() -> None:
    assert pivots("It was founded by Mira Thorne there.", {"Thorne": 5.0}) == ["Mira Thorne"]


def test_the_capital_that_opens_a_claim_is_not_taken_for_a_name() -> None:
    assert pivots("The Corvath tower is old.", {"Corvath": 5.0}) == ["Corvath"]


def test_a_claim_may_have_several_in_the_order_of_the_text() -> None:
    assert pivots("Vex built it in 1931.", {"1931": 6.0, "Vex": 4.0}) == ["Vex", "1931"]


def test_small_changes_beside_a_large_one_are_no_pivots() -> None:
    assert pivots("Vex built it in 1931.", {"1931": 12.0, "Vex": 2.0}) == ["1931"]


def test_a_word_that_the_context_makes_less_likely_counts_too() -> None:
    assert pivots("It opened in 1911.", {"1911": -6.0}) == ["1911"]


def test_no_change_no_pivot() -> None:
    assert pivots("Paris is in France.", {"Paris": 0.2}) == []


def test_there_are_never_more_than_the_most() -> None:
    words = "alpha beta gamma delta epsilon"
    assert len(pivots(words, dict.fromkeys(words.split(), 5.0))) == MAX_PIVOTS


def test_each_claim_has_its_own() -> None:
    response = "It opened in 1911. It closed in 1950."
    claims = (Claim(0, 0, 18, response[:18]), Claim(1, 19, 37, response[19:]))
    assert pivots(response, {"1911": 9.0, "1950": 2.0}, claims=claims) == ["1911", "1950"]
