"""Pivots: the phrases whose log-probability the context changes most."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core._text.phrases import phrases
from attr_core.claims import split_claims
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


@pytest.mark.parametrize(
    ("response", "changed", "whole"),
    [
        ("He took 40 mg of it.", "40", "40 mg"),
        ("He took 40mg of it.", "40", "40mg"),
        ("It made $1.2 million then.", "1.2", "$1.2 million"),
        ("It made USD 5.5bn then.", "5.5", "USD 5.5bn"),
        ("It costs €1\u202f250\u202f000 now.", "250", "€1\u202f250\u202f000"),
        ("It fell by 12 % then.", "12", "12 %"),
        ("It was -5 °C there.", "5", "-5 °C"),
        ("It was 3.5 ± 0.2 kg then.", "0.2", "3.5 ± 0.2 kg"),
        ("On 3 May 1997 it opened.", "May", "3 May 1997"),
        ("On May 3rd, 1997 it opened.", "3rd", "May 3rd, 1997"),
        ("It was the 5th of May 1997.", "5th", "5th of May 1997"),
        ("Es kam am 3. Mai 1911 an.", "Mai", "3. Mai 1911"),
        ("Elle a ouvert le 3 mai 1911.", "mai", "3 mai 1911"),
        ("Abrió el 3 de mayo de 1911 aquí.", "mayo", "3 de mayo de 1911"),
        ("It ran 1911–1915 there.", "1915", "1911–1915"),
        ("It is 5 to 10 km long.", "10", "5 to 10 km"),
        ("It opens at 14:30 today.", "14", "14:30"),
        ("It opens at 2:30 p.m. today.", "30", "2:30 p.m."),
        ("See No. 5 of it.", "5", "No. 5"),
        ("See § 12 of it.", "12", "§ 12"),
        ("Use v3.11.2-rc1 of it.", "11", "v3.11.2-rc1"),
        ("In the 1990s it was new.", "1990", "1990s"),
        ("She is a 20-year-old lamp maker.", "20", "20-year-old"),
        ("It is made by B12 there.", "B12", "B12"),
        ("この塔は1958年12月23日に開業した。", "1958", "1958年12月23日"),
    ],
)
def test_numbers_have_their_unit_and_dates_their_month(response: str, changed: str, whole: str) -> None:
    assert pivots(response, {changed: 5.0}) == [whole]


@pytest.mark.parametrize(
    ("response", "changed", "whole"),
    [
        ("It was written by Ludwig van Beethoven there.", "Beethoven", "Ludwig van Beethoven"),
        ("Mira Thorne built it.", "Thorne", "Mira Thorne"),
        ("Mira Thorne built it.", "Mira", "Mira Thorne"),
        ("She leads the University of Aldemoor now.", "Aldemoor", "University of Aldemoor"),
        ("He met Charles de la Tour there.", "Tour", "Charles de la Tour"),
        ("She read the Lord of the Rings there.", "Rings", "Lord of the Rings"),
        ("He met J. R. R. Weiss there.", "Weiss", "J. R. R. Weiss"),
        ("He met Jean-Luc O'Neill there.", "Luc", "Jean-Luc O'Neill"),
        ("It runs on NASA iPhones there.", "iPhones", "NASA iPhones"),
        ("It is made by AttrKit there.", "Kit", "AttrKit"),
        ("It is made by GPT-4 there.", "4", "GPT-4"),
        ("Он встретил Ивана Петрова там.", "Петрова", "Ивана Петрова"),
        ("In Paris the Aldemoor fair opened.", "Aldemoor", "Aldemoor"),
        ("When Mira came it closed.", "Mira", "Mira"),
        ("THE FAIR OPENED IN ALDEMOOR.", "ALDEMOOR", "ALDEMOOR"),
        ("- **The Corvath tower** is old.", "Corvath", "Corvath"),
    ],
)
def test_names_of_several_words_come_out_whole(response: str, changed: str, whole: str) -> None:
    assert pivots(response, {changed: 5.0}) == [whole]


@pytest.mark.parametrize(
    ("response", "changed", "whole"),
    [
        ("It did not open then.", "not", "did not open"),
        ("It never opened there.", "never", "never opened"),
        ("It is no longer open.", "longer", "is no longer open"),
        ("It is not a fair.", "not", "is not"),
        ("It isn't the fair.", "n't", "isn't"),
        ("They cannot come.", "cannot", "cannot come"),
        ("There were no visitors then.", "no", "no visitors"),
        ("Sie wurde nicht geöffnet.", "nicht", "wurde nicht geöffnet"),
        ("Elle n'a pas ouvert.", "pas", "n'a pas ouvert"),
        ("La feria no abrió en Gante.", "no", "no abrió"),
        ("Ярмарка не открылась там.", "не", "не открылась"),
        ("It was nothing but a knot.", "knot", "knot"),
    ],
)
def test_negations_come_out_whole(response: str, changed: str, whole: str) -> None:
    assert pivots(response, {changed: 5.0}) == [whole]


@pytest.mark.parametrize(
    ("response", "changed", "whole"),
    [
        ("这座塔位于东京附近。", "东京", "东京"),
        ("塔の名前はランタン祭です。", "ランタン", "ランタン"),
        ("أسسها يوسف الحداد هنا.", "يوسف الحداد", "يوسف الحداد"),
        ("मेला गया में खुला।", "गया", "गया"),
        ("ตลาดเปิดที่เชียงใหม่ในปีนั้น", "เชียงใหม่", "เชียงใหม่"),
    ],
)
def test_neighbours_that_change_together_are_one_pivot_without_spaces_or_capitals(
    response: str, changed: str, whole: str
) -> None:
    assert pivots(response, {changed: 8.0}) == [whole]


def test_neighbours_that_change_apart_are_two() -> None:
    assert pivots("他于东京出生。", {"东京": 6.0, "出生": -6.0}) == ["东京", "出生"]


def test_a_character_of_several_tokens_and_a_token_of_several_characters_are_whole() -> None:
    response = "塔在东京。"
    offsets = np.array([[0, 1], [1, 2], [2, 4], [4, 5], [4, 5]])
    full = np.full(5, -0.1)
    closed_book = np.array([-0.1, -0.1, -7.0, -0.1, -0.1])
    claims = (Claim(0, 0, 5, response),)
    found = find_pivots(response, claims, offsets, full=full, closed_book=closed_book)
    assert [target.text for target in found] == ["东京"]


def test_a_word_of_several_tokens_has_the_change_of_all() -> None:
    response = "It is Aldemoor."
    offsets = np.array([[0, 2], [2, 5], [5, 8], [8, 11], [11, 14], [14, 15]])
    closed_book = np.array([-0.1, -0.1, -0.5, -0.5, -0.5, -0.1])
    claims = (Claim(0, 0, len(response), response),)
    found = find_pivots(response, claims, offsets, full=np.full(6, -0.1), closed_book=closed_book)
    assert [target.text for target in found] == ["Aldemoor"]


_RESPONSES = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=60),
    st.lists(
        st.sampled_from(
            (
                *("Mira ", "Thorne ", "van ", "of ", "the ", "did not ", "open ", "no ", "n'a pas ", "A.", "No. "),
                *("3 ", "May ", "1997", "$", "12 %", "–", "-", "'", ". ", "\n", "e\u0301", "😀", "\u200d"),
                *("東", "京", "タワー", "は", "गया ", "غنت ", "สวัสดี"),
            )
        ),
        max_size=20,
    ).map("".join),
).filter(str.strip)


@given(_RESPONSES, st.data())
def test_pivots_are_spans_of_their_claims_in_order_and_apart(response: str, data: st.DataObject) -> None:
    claims = split_claims(response)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(response)), max_size=20)) | {len(response)})
    offsets = np.array([[start, end] for start, end in zip([0, *cuts], cuts, strict=False)])
    change = np.array(data.draw(st.lists(st.floats(-20, 20), min_size=len(cuts), max_size=len(cuts))))
    found = find_pivots(response, claims, offsets, full=np.zeros(len(cuts)), closed_book=-change)
    for target in found:
        assert target.claim is not None
        claim = claims[target.claim]
        assert claim.start <= target.start < target.end <= claim.end
        assert response[target.start : target.end] == target.text == target.text.strip()
    for claim in claims:
        own = [(target.start, target.end) for target in found if target.claim == claim.index]
        assert own == sorted(own)
        assert len(own) <= MAX_PIVOTS
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(own))


@given(_RESPONSES)
def test_every_letter_and_digit_is_in_one_phrase(response: str) -> None:
    found = phrases(response, 0, len(response), language="en")
    covered = [position for phrase in found for position in range(phrase.start, phrase.end)]
    assert len(covered) == len(set(covered))
    assert {position for position, character in enumerate(response) if character.isalnum()} <= set(covered)


@pytest.mark.parametrize(
    "unit", ["1 000 ", "1.1.", "a'", "Ab of the ", "1-", "n'", "not ", "東", "1 to ", "A. ", "\u0301", "$"]
)
def test_long_hostile_claims_take_no_time(unit: str) -> None:
    assert phrases(unit * 10_000 + "x", 0, len(unit) * 10_000 + 1, language="en")


def test_a_number_counts_however_much_more_another_word_changes() -> None:
    assert pivots("Hold the button for 10 seconds.", {"10 seconds": 2.0, "button": 20.0}) == ["button", "10 seconds"]


def test_a_phrase_that_two_segments_pull_apart_is_a_pivot_though_its_sum_stays() -> None:
    response = "It lasts 5 years."
    offsets = np.array([[0, 2], [2, 8], [8, 16], [16, 17]])
    level = np.full(4, -0.5)
    ablated = np.array([[-0.5, -0.5, shift, -0.5] for shift in (-0.5, -4.0, -0.5, -4.0)])
    claim = Claim(0, 0, len(response), response)
    found = find_pivots(response, [claim], offsets, full=level, closed_book=level, ablated=ablated)
    assert [target.text for target in found] == ["5 years"]
