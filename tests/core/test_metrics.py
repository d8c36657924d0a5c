"""Which texts the metrics take for alike, and that numbers are told apart however they are written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from attr_core._text.number_words import spelled_number
from attr_core._text.quantities import Quantity, quantities
from attr_core._text.words import words
from attr_core.errors import ConfigurationError, EngineError, InputError, MissingCapabilityError
from attr_core.metrics import (
    METRICS,
    embedding_similarity,
    metric_name,
    metric_named,
    numeric_aware,
    similarities,
    token_overlap,
)
from attr_core.testing import ScriptedEngine

TEXTS = st.text(max_size=60)
SPACES = ("\u0020", "\u00a0", "\u2009", "\u202f", "\u2007")


class Axes:
    """Embeds a text as the counts of its letters; keeps what it was asked."""

    spec = "test:axes"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.asked.append(list(texts))
        return np.array([[text.count(letter) for letter in "abc"] for text in texts], dtype=float)


# Words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The fair, in ALDEMOOR!", ["the", "fair", "in", "aldemoor"]),
        ("Don’t stop", ["don't", "stop"]),
        ("'quoted' words'", ["quoted", "words"]),
        ("$1,000.50, and 3.", ["1,000.50", "and", "3"]),
        ("東京は大きい", ["東", "京", "は", "大", "き", "い"]),
        ("Größe GRÖSSE", ["gro\u0308sse", "gro\u0308sse"]),
        ("ﬁne ５", ["fine", "5"]),
        ("서울은 크다", [*words("서울은"), *words("크다")]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("!?", ["!", "?"]),
        ("👍 👎", ["👍", "👎"]),
        (" \n", []),
    ],
)
def test_a_word_is_what_its_script_makes_it(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_hangul_has_spaces_so_its_words_are_whole() -> None:
    assert len(words("서울은 크다")) == 2


# Overlap


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("", "", 1),
        (" \n", "", 1),
        ("", "fair", 0),
        ("fair", "", 0),
        ("The fair.", "the FAIR", 1),
        ("a b", "b a", 1),
        ("a a", "a", 2 / 3),
        ("a b c d", "c d e f", 1 / 2),
        ("a", "b", 0),
        ("東京", "京都", 1 / 2),
        ("STRASSE", "straße", 1),
        ("caf\u00e9", "cafe\u0301", 1),
        ("👍", "👎", 0),
    ],
)
def test_overlap_is_the_f1_of_the_words(one: str, other: str, expected: float) -> None:
    assert token_overlap(one, other) == pytest.approx(expected)


@given(TEXTS, TEXTS)
def test_overlap_is_symmetric_within_bounds_and_one_for_the_same(one: str, other: str) -> None:
    assert 0 <= token_overlap(one, other) <= 1
    assert token_overlap(one, other) == token_overlap(other, one)
    assert token_overlap(one, one) == 1


# Quantities

SAME = [
    ("1,000", "1000"),
    *[("1000", f"1{space}000") for space in SPACES],
    ("1000", "1'000"),
    ("1000", "1’000"),
    ("1,000", "one thousand"),
    ("1000", "a thousand"),
    ("1,234,567.5", "1 234 567,5"),
    ("1.000,5", "1000.5"),
    ("1.000.000", "1,000,000"),
    ("1,5", "1.5"),
    ("0,125", "0.125"),
    ("5", "five"),
    ("5", "Five"),
    ("5", "５"),
    ("5", "٥"),
    ("1.0", "1"),
    ("0.50", "0.5"),
    (".5", "0.5"),
    ("007", "7"),
    ("50 %", "50%"),
    ("50%", "50 percent"),
    ("50%", "fifty percent"),
    ("50%", "fifty per cent"),
    ("50%", "50\u202f%"),
    ("50%", "50％"),
    ("40 mg", "40mg"),
    ("40 mg", "forty milligrams"),
    ("40 mg", "40-mg"),
    ("20 °C", "20 degrees Celsius"),
    ("5 km/h", "five kilometres per hour"),
    ("75 mph", "75 miles per hour"),
    ("a 30-second pause", "a pause of thirty seconds"),
    ("a 19-year-old", "is 19 years old"),
    ("-3", "−3"),
    ("-3", "minus three"),
    ("-3 °C", "negative 3 °C"),
    ("+3", "3"),
    ("1/2", "0.5"),
    ("1/2", "½"),
    ("2 1/2", "2½"),
    ("2.5", "two and a half"),
    ("two thirds", "2/3"),
    ("one-third", "⅓"),
    ("1st", "first"),
    ("21st", "twenty-first"),
    ("in 1984", "in nineteen eighty-four"),
    ("in 2021", "in twenty twenty-one"),
    ("in 1905", "in nineteen oh five"),
    ("in 1900", "in nineteen hundred"),
    ("1.2 million", "1,200,000"),
    ("2,500,000", "two and a half million"),
    ("24", "two dozen"),
    ("$4,200", "4,200 dollars"),
    ("$4,200", "USD 4200"),
    ("$4.2 million", "$4.2m"),
    ("-$5", "$-5"),
    ("€5", "five euros"),
    ("3.14e-5", "0.0000314"),
    ("2024-05-01", "2024-5-1"),
    ("at 09:30", "at 9:30"),
    ("5 pm", "5 p.m."),
    ("May 1st, 2024", "1 May 2024"),
    ("the first of May", "May 1"),
    ("5–10 mg", "5 mg to 10 mg"),
    ("1990-1995", "from 1990 to 1995"),
    ("B2B", "b2b"),
    ("COVID-19", "Covid-19"),
    ("one apple", "1 apple"),
    ("公元1911年", "the year 1911"),
    ("It opened [1].", "It opened."),
    ("1. Red\n2. Blue", "- Red\n- Blue"),
]
DIFFERENT = [
    ("40 mg", "80 mg"),
    ("40 mg", "40 g"),
    ("40 mg", "40"),
    ("5 MW", "5 mW"),
    ("50%", "50"),
    ("50%", "50 percentage points"),
    ("0.5", "5"),
    ("-3", "3"),
    ("1,000", "1.000"),
    ("$4,200", "$2,400"),
    ("$5", "€5"),
    ("1911", "1937"),
    ("1990s", "1990"),
    ("1st", "1"),
    ("1st", "2nd"),
    ("1 h", "60 min"),
    ("5", "5 5"),
    ("5 and 6", "5"),
    ("10/10", "1"),
    ("2024-05-01", "2024-01-05"),
    ("17:30", "17:00"),
    ("v1.2", "v1.3"),
    ("v1.10", "v1.1"),
    ("COVID-19", "COVID-20"),
    ("192.168.0.1", "192.168.0.2"),
    ("10²", "10³"),
    ("1e5", "1e6"),
    ("1" + "0" * 400, "1" + "0" * 401),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_quantities_written_in_two_ways_are_the_same(one: str, other: str) -> None:
    assert sorted(map(str, quantities(one))) == sorted(map(str, quantities(other)))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_quantities_are_not_the_same(one: str, other: str) -> None:
    assert sorted(map(str, quantities(one))) != sorted(map(str, quantities(other)))


@pytest.mark.parametrize(
    "text",
    [
        "No one came.",
        "It is one of the largest.",
        "This is the one that burnt.",
        "Wait a second.",
        "Second, it is cheap.",
        "At first it was cold.",
        "First of all, it rained.",
        "Hundreds of people came.",
        "A minus was noted.",
        "As said before [1], and again [2, 3].",
        "Half of it.",
        "",
    ],
)
def test_these_words_are_no_quantities(text: str) -> None:
    assert quantities(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two hundred and three hundred", [200, 300]),
        ("one hundred and five thousand", [105_000]),
        ("two thousand and three thousand", [2000, 3000]),
        ("one, two, three", [1, 2, 3]),
        ("five minus three", [5, 3]),
        ("pages 1,5,7", [1, 5, 7]),
        ("in 2020 100 people", [2020, 100]),
        ("chapter 3.", [3]),
        ("(-5)", [-5]),
        ("3-5", [3, 5]),
        ("In 1911 J. R. Weiss", [1911]),
        ("mid-1990", [1990]),
    ],
)
def test_numbers_side_by_side_are_parted_where_a_reader_parts_them(text: str, expected: list[int]) -> None:
    assert quantities(text) == [Quantity(Fraction(value)) for value in expected]


@pytest.mark.parametrize("text", ["B2B", "v1.2.3", "COVID-19", "GPT-4", "3D", "1080p", "a1b2-c3", "x_5"])
def test_a_number_inside_an_identifier_is_a_part_of_its_text(text: str) -> None:
    assert quantities(f"The {text}.") == [Quantity(text.lower())]


def in_words(number: int) -> str:
    """The English name of a number, written here apart from the parser."""
    if number < 20:
        names = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
        return [*names.split(), "seventeen", "eighteen", "nineteen"][number]
    if number < 100:
        tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()[number // 10 - 2]  # noqa: SIM905
        return tens + (f"-{in_words(number % 10)}" if number % 10 else "")
    scale, name = max((s, n) for s, n in SCALES if s <= number)
    rest = number % scale
    return f"{in_words(number // scale)} {name}" + (f" {'and ' * (rest < 100)}{in_words(rest)}" if rest else "")


SCALES = [(100, "hundred"), (1000, "thousand"), (10**6, "million"), (10**9, "billion"), (10**12, "trillion")]


@given(st.one_of(st.integers(0, 10**15 - 1), st.integers(0, 9999)))
def test_every_number_in_words_has_its_value(number: int) -> None:
    found = spelled_number(in_words(number), 0)
    assert found is not None
    assert (found.value, found.end) == (number, len(in_words(number)))
    assert quantities(f"It took {in_words(number)} steps.") == [Quantity(Fraction(number))]


@given(st.integers(0, 10**12), st.sampled_from([",", "'", *SPACES]), st.sampled_from(["", "-", "−"]))
def test_grouping_changes_no_number(number: int, mark: str, sign: str) -> None:
    grouped = sign + f"{number:,}".replace(",", mark)
    assert quantities(f"about {grouped} of them") == quantities(f"about {sign}{number} of them")


@given(st.decimals(-(10**9), 10**9, places=4, allow_nan=False, allow_infinity=False))
def test_a_decimal_is_its_value_with_any_zeros_behind(number: object) -> None:
    assume(f"{number}" != "-0.0000")
    assert quantities(f"= {number}") == quantities(f"= {number}000") == [Quantity(Fraction(str(number)))]


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from(["", " mg", "%", " years", " USD"]))
def test_two_numbers_are_told_apart(one: int, other: int, unit: str) -> None:
    assume(one != other)
    metric = numeric_aware()
    assert metric(f"It is {one}{unit}, they say.", f"It is {other}{unit}, they say.") == 0
    assert metric(f"It is {one}{unit}, they say.", f"They say it is {one:,}{unit}.") > 0


HOSTILE = st.text(st.sampled_from("0123456789.,'/-–: $€%½²eEkmgonest\n[]v_年"), max_size=40)


@given(st.one_of(TEXTS, HOSTILE))
def test_any_text_has_quantities_and_the_same_as_itself(text: str) -> None:
    found = quantities(text)
    assert all(isinstance(value, Fraction) or value for value, _ in found)
    assert numeric_aware()(text, text) == 1


@given(st.lists(st.sampled_from([one for one, _ in DIFFERENT if ":" not in one]), max_size=4), st.randoms())
def test_order_does_not_count(texts: list[str], random: object) -> None:
    shuffled = list(texts)
    random.shuffle(shuffled)
    first, second = ("; ".join(one) + "." for one in (texts, shuffled))
    assert sorted(map(str, quantities(first))) == sorted(map(str, quantities(second)))


@pytest.mark.parametrize(
    "piece",
    ["1", "1,111,", "1.1.", "one ", "a ", "a-", "-", "$", "1/", "[1,", "1:11:", "minus ", "\n1", "one hundred and "],
)
def test_reading_takes_time_in_proportion_to_the_text(piece: str) -> None:
    def seconds(n: int) -> float:
        started = time.process_time()
        quantities(piece * n)
        return time.process_time() - started

    assert seconds(4000) < 20 * max(seconds(1000), 0.005)


# Numeric


def test_numbers_come_first_and_then_the_inner_metric() -> None:
    metric = numeric_aware()
    assert metric("Take 40 mg.", "Take 80 mg.") == 0
    assert metric("Take 40 mg.", "Take 40 mg.") == 1
    assert metric("Take 40 mg.", "Swallow 40 mg.") == pytest.approx(2 / 3)
    assert metric("No numbers here.", "No figures here.") == pytest.approx(2 / 3)


def test_where_it_may_add_further_numbers_are_let_be_and_none_may_lack() -> None:
    metric = numeric_aware(may_add=True)
    assert metric("It costs 4 marks.", "In 1911 it costs 4 marks.") > 0
    assert metric("In 1911 it costs 4 marks.", "It costs 4 marks.") == 0
    assert metric("It costs 4 marks.", "It costs 5 marks.") == 0
    assert metric_name(metric) == "numeric_aware(token_overlap, may_add)"


def test_the_inner_metric_sees_only_texts_with_the_same_numbers() -> None:
    embedder = Axes()
    metric = numeric_aware(embedding_similarity(embedder))
    texts = ["a 5", "b 5", "ab 5", "b 5"]
    found = similarities(metric, "a 6", texts)
    assert embedder.asked == []
    np.testing.assert_array_equal(found, 0)
    np.testing.assert_allclose(similarities(metric, "aa 5", [*texts, "a 6"]), [1, 0, np.sqrt(0.5), 0, 0])
    assert len(embedder.asked) == 1


# Embeddings


def test_cosine_counts_from_zero_up() -> None:
    metric = embedding_similarity(Axes())
    assert metric("a", "aa") == pytest.approx(1)
    assert metric("a", "b") == 0
    assert metric("ab", "bc") == pytest.approx(1 / 2)


def test_opposite_vectors_have_nothing_in_common() -> None:
    class Signed:
        def embed(self, texts: Sequence[str]) -> np.ndarray:
            return np.array([[-1.0 if "not" in text else 1.0] for text in texts])

    assert embedding_similarity(Signed())("safe", "not safe") == 0


@pytest.mark.parametrize(
    ("one", "other", "expected"), [("", "", 1), ("", " ", 1), ("a", "", 0), ("", "a", 0), ("a", "a", 1)]
)
def test_empty_and_equal_texts_need_no_embedding(one: str, other: str, expected: float) -> None:
    embedder = Axes()
    assert embedding_similarity(embedder)(one, other) == expected
    assert embedder.asked == []


def test_all_new_texts_are_embedded_in_one_call_and_known_ones_in_none() -> None:
    embedder = Axes()
    metric = embedding_similarity(embedder)
    first = similarities(metric, "abc", ["a", "b", "a", "abc", ""])
    assert embedder.asked == [["abc", "a", "b"]]
    np.testing.assert_allclose(first, [3**-0.5, 3**-0.5, 3**-0.5, 1, 0])
    similarities(metric, "abc", ["b", "c"])
    assert embedder.asked[1:] == [["c"]]


def test_one_by_one_and_together_is_the_same() -> None:
    texts = ["a", "ab", "abc", "", "bb"]
    for metric in (embedding_similarity(Axes()), numeric_aware(), token_overlap):
        together = similarities(metric, "abc", texts)
        np.testing.assert_allclose(together, [metric("abc", text) for text in texts])


def test_a_vector_without_direction_is_an_error_not_a_zero() -> None:
    with pytest.raises(EngineError, match=r"embedding\(test:axes\) got no direction for some of 2 texts"):
        embedding_similarity(Axes())("a", "xyz")


def test_what_does_not_embed_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(MissingCapabilityError, match="embedding similarity needs embed, which test:scripted"):
        embedding_similarity(ScriptedEngine())


# Names


@pytest.mark.parametrize(
    ("name", "embedder", "expected"),
    [
        ("overlap", None, "token_overlap"),
        ("overlap", Axes(), "token_overlap"),
        ("embedding", Axes(), "embedding(test:axes)"),
        ("numeric", None, "numeric_aware(token_overlap)"),
        ("numeric", Axes(), "numeric_aware(embedding(test:axes))"),
    ],
)
def test_a_metrics_name_says_what_it_is(name: str, embedder: Axes | None, expected: str) -> None:
    assert metric_name(metric_named(name, embedder)) == expected


def test_a_users_own_function_is_a_metric_under_its_own_name() -> None:
    def same_length(original: str, regenerated: str) -> float:
        return float(len(original) == len(regenerated))

    assert metric_name(same_length) == "same_length"
    np.testing.assert_array_equal(similarities(same_length, "ab", ["xy", "x"]), [1, 0])


def test_an_unknown_metric_lists_the_known() -> None:
    with pytest.raises(ConfigurationError, match="metric 'bleu' is unknown; choose embedding, overlap, numeric"):
        metric_named("bleu")


def test_a_metric_that_needs_an_embedder_says_so() -> None:
    assert [name for name, kind in METRICS.items() if kind.needs_embedder] == ["embedding"]
    with pytest.raises(ConfigurationError, match=r"'embedding' needs an embedder; .* or choose overlap, numeric"):
        metric_named("embedding")


@pytest.mark.parametrize("given_back", [1.5, -1.0, float("nan"), "much", None, [0.5, 0.5]])
def test_a_metric_that_gives_no_similarity_is_refused(given_back: object) -> None:
    def broken(original: str, regenerated: str) -> object:
        return given_back

    with pytest.raises(InputError, match="metric 'broken' gave something else than one number from 0 to 1"):
        similarities(broken, "a", ["b"])


def test_a_similarity_that_is_beyond_one_by_rounding_is_one() -> None:
    assert similarities(lambda one, other: 1 + 1e-9, "a", ["b"]).tolist() == [1.0]


@pytest.mark.parametrize(
    "texts", [("The fair first opened in 1944.", "The fair opened in 1944."), ("1944", "It was first held in 1944.")]
)
def test_first_as_an_adverb_is_no_quantity(texts: tuple[str, str]) -> None:
    assert quantities(texts[0]) == quantities(texts[1])
    assert quantities("the first fair") == quantities("the 1st fair")
