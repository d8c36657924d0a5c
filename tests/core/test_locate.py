"""Offsets of views and of what is found in them, over any text."""

import json
import unicodedata
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from attr_core._segmenting.locate import Haystack, Taken, locate, occurrences
from attr_core._text.views import fold, folded, gaps, plain, unescaped

_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=40),
    st.text("aB \n\tßİΣςe\u0301ệ\u0323\u200f\u200dשם👨😀ﬁ今\\\"'un0", max_size=40),
)


def _check_offsets(view, original):
    assert len(view.text) == len(view.starts) == len(view.ends)
    for offsets in (view.starts, view.ends):
        assert all(first <= second for first, second in pairwise(offsets))
    for start, end in zip(view.starts, view.ends, strict=True):
        assert 0 <= start < end <= len(original)


@given(_TEXT)
def test_folding_keeps_the_way_back(text):
    view = folded(plain(text))
    _check_offsets(view, text)
    for position, character in enumerate(view.text):
        made_of = text[view.starts[position] : view.ends[position]]
        assert (character == " ") == made_of[0].isspace() or character in folded(plain(made_of)).text


@given(_TEXT)
def test_folding_drops_nothing_but_invisible_characters(text):
    view = folded(plain(text))
    kept = {position for start, end in zip(view.starts, view.ends, strict=True) for position in range(start, end)}
    assert all(unicodedata.category(text[position]) == "Cf" for position in set(range(len(text))) - kept)


@given(_TEXT)
@example("È\u200b\u0316")  # an invisible character between two marks
def test_folding_ignores_case_white_space_and_form(text):
    assert fold(fold(text)) == fold(text)
    assert fold(unicodedata.normalize("NFC", text)) == fold(unicodedata.normalize("NFD", text))
    assert fold("\n ".join(text.split(" "))) == fold(text)


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=40), st.booleans())
def test_unescaping_undoes_json(text, ascii_only):
    escaped = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    view = unescaped(plain(escaped))
    if view is None:
        assert escaped == text
    else:
        _check_offsets(view, escaped)
        assert view.text == text


@given(_TEXT)
def test_unescaping_anything_keeps_the_way_back(text):
    view = unescaped(plain(text))
    if view is not None:
        _check_offsets(view, text)
        _check_offsets(folded(view), text)


def _levels(said):
    view = plain(said)
    while view is not None:
        yield view
        view = unescaped(view)


@given(st.lists(_TEXT, max_size=4), st.lists(st.one_of(_TEXT, st.integers(0, 3)), max_size=6))
def test_what_is_found_reads_as_the_text_and_never_overlaps(texts, parts):
    content = " ".join(texts[part % len(texts)] if isinstance(part, int) and texts else str(part) for part in parts)
    haystack = Haystack(content, message=0, rank=0)
    found, _ = locate(dict.fromkeys(text.strip() for text in texts), [haystack], taken=Taken())
    places = sorted((one.location.start, one.location.end) for ones in found.values() for one in ones)
    assert all(before[1] <= after[0] for before, after in pairwise(places))
    for text, ones in found.items():
        for one in ones:
            said = content[one.location.start : one.location.end]
            if one.rung == "exact":
                assert said == text
            elif one.rung == "escaped":
                assert text in {view.text for view in _levels(said)}
            elif one.rung == "folded":
                assert fold(text) in {fold(view.text) for view in _levels(said)}
            elif one.rung == "partial":
                assert 0 < one.coverage <= 1


@given(_TEXT.filter(bool), _TEXT, _TEXT)
def test_every_long_copy_is_found_where_it_stands(text, before, after):
    text = f"Copy: {text.strip()} <- of a text longer than any word."
    content = before + text + after
    places = list(occurrences(text, plain(content), message=3, taken=Taken()))
    assert [(place.message, content[place.start : place.end]) for place in places] == [(3, text)]


@given(st.integers(0, 30), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6))
def test_gaps_are_what_spans_leave(length, pairs):
    spans = [(start, start + size) for start, size in pairs]
    covered = {position for start, end in spans for position in range(start, end)}
    left = [position for start, end in gaps(length, spans) for position in range(start, end)]
    assert left == [position for position in range(length) if position not in covered]
