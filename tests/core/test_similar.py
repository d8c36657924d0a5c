"""Which texts are taken for near-duplicates, and that the answer depends on nothing else."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.engines import load_embedder
from attr_core.similar import near_duplicates, paraphrases

OPENED = "The Aldemoor Lantern Festival opened in 1911."
UNRELATED = ("Tickets cost four silver marks.", "A choir sings on the bridge.", "The roof was repaired after a storm.")
NOTICE = "Archive notice: this page was checked by the county records office on a {}."

VOCABULARY = ["the", "fair", "opened", "in", "1911", "1937", "market", "bridge", "As", "said,", "closed", "of", "and"]
TEXTS = st.lists(st.lists(st.sampled_from(VOCABULARY), max_size=7).map(" ".join), max_size=9)


@pytest.mark.parametrize(
    "again",
    [
        OPENED,
        OPENED.upper(),
        "In 1911, the Aldemoor Lantern Festival opened!",
        "As every guide says, the Aldemoor Lantern Festival opened in 1911.",
    ],
)
def test_a_fact_told_twice_is_found_whatever_its_case_order_and_trimmings(again: str) -> None:
    assert near_duplicates([UNRELATED[0], OPENED, UNRELATED[1], again, UNRELATED[2]]) == ((1, 3),)


def test_a_header_with_another_weekday_each_time_is_one_group() -> None:
    texts = [NOTICE.format(day) for day in ("Monday", "Tuesday", "Friday")]
    mixed = [text for pair in zip(texts, UNRELATED, strict=True) for text in pair]
    assert near_duplicates(mixed) == ((0, 2, 4),)


def test_a_rival_is_a_candidate_too_even_in_a_longer_sentence() -> None:
    rival = OPENED.replace("1911", "1937")
    longer = "In the old guide, the Aldemoor Lantern Festival opened in 1911, or so."
    assert near_duplicates([OPENED, rival]) == ((0, 1),)
    assert near_duplicates([longer, *UNRELATED, OPENED]) == ((0, 4),)


@pytest.mark.parametrize(
    "other",
    [
        "The Corvath Torch Parade opened in 1937.",
        "Aldemoor lies an hour by rail from Corvath, and the Lantern Festival is held in the autumn.",
        "A longer account of the Aldemoor Lantern Festival, opened in 1911, tells of lamps, a choir and a mill pond.",
    ],
)
def test_what_shares_some_words_only_is_no_duplicate(other: str) -> None:
    assert near_duplicates([OPENED, other]) == ()


def test_unrelated_texts_make_no_group() -> None:
    assert near_duplicates([OPENED, *UNRELATED]) == ()


def test_a_chain_of_duplicates_is_one_group() -> None:
    chain = ["a b c d e f g", "a b c d e f g h i", "c d e f g h i j", "zebra"]
    assert near_duplicates([chain[0], chain[2]]) == ()
    assert near_duplicates(chain) == ((0, 1, 2),)


@pytest.mark.parametrize("texts", [[], [""], ["", ""], ["...", "…", "!?", " \n"], ["", OPENED, "---"]])
def test_texts_without_a_word_are_alike_to_nothing(texts: list[str]) -> None:
    assert near_duplicates(texts) == ()


def test_words_of_any_script_count() -> None:
    assert near_duplicates(["Фестиваль открылся в 1911 году", "фестиваль ОТКРЫЛСЯ в 1911 году", "祭りは1911年"]) == (
        (0, 1),
    )


@given(TEXTS)
def test_groups_are_disjoint_sorted_and_never_of_one(texts: list[str]) -> None:
    groups = near_duplicates(texts)
    members = [column for group in groups for column in group]
    assert len(members) == len(set(members))
    assert all(0 <= column < len(texts) for column in members)
    assert all(len(group) > 1 and list(group) == sorted(group) for group in groups)
    assert list(groups) == sorted(groups)
    assert near_duplicates(texts) == groups


@given(TEXTS.flatmap(lambda texts: st.tuples(st.just(texts), st.permutations(range(len(texts))))))
def test_the_order_of_the_texts_changes_nothing_but_their_numbers(case: tuple[list[str], list[int]]) -> None:
    texts, order = case
    permuted = near_duplicates([texts[column] for column in order])
    assert {frozenset(order[column] for column in group) for group in permuted} == {
        frozenset(group) for group in near_duplicates(texts)
    }


@given(TEXTS)
def test_equal_words_are_always_together(texts: list[str]) -> None:
    groups = near_duplicates([*texts, OPENED, OPENED])
    assert any({len(texts), len(texts) + 1} <= set(group) for group in groups)


def test_hundreds_of_different_texts_take_a_second_or_two() -> None:
    began = time.process_time()
    assert near_duplicates([f"Sentence {n} tells of thing{n} and place{n} in {1000 + n}" for n in range(500)]) == ()
    assert time.process_time() - began < 5


def test_texts_beyond_the_most_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attr_core.similar.MAX_COMPARED", 3)
    assert near_duplicates([OPENED, UNRELATED[0], OPENED, OPENED, UNRELATED[0]]) == ((0, 2),)


def test_hundreds_of_equal_texts_are_one_group_in_a_second_or_two() -> None:
    began = time.process_time()
    assert near_duplicates([OPENED] * 600) == (tuple(range(600)),)
    assert time.process_time() - began < 2


def test_texts_whose_embeddings_point_the_same_way_may_be_paraphrases() -> None:
    vectors = np.array([[3.0, 0, 0], [0, 1, 0], [5, 0.5, 0], [0, 0, 0], [0, -1, 0]])
    assert paraphrases(vectors) == ((0, 2),)
    assert paraphrases(np.empty((0, 0))) == ()


@pytest.mark.model
def test_the_packaged_embedder_finds_a_fact_in_other_words() -> None:
    embedder = load_embedder()
    if embedder is None:
        pytest.skip("no packaged embedder is installed")
    told = ["The Corvath Tide Gauge opened in 1953.", "It was in 1953 that the Tide Gauge of Corvath first opened."]
    assert paraphrases(embedder.embed([told[0], "Wool is sold in Farrow.", told[1]])) == ((0, 2),)
