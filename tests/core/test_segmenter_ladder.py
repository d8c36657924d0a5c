"""Documents are found as they are, escaped, folded or in part; how is told, and what is not found is reported."""

import json
import unicodedata
from dataclasses import fields, replace

import numpy as np
import pytest

from attr_core.attribution import Attribution
from attr_core.results import Cost
from attr_core.segmenter import partly_located, segment, unlocated
from attr_core.store import Store
from attr_core.types import Document, Generation, Message, Trace

FAIR = Document("fair", "The fair of Ghent opened in 1911, in the rain of a late and cold spring, with eleven bands.")
HALL = Document("hall", "The hall burnt down in 1915. Nobody was hurt, and it was built again within two short years.")
LONG = Document(
    "long", " ".join(f"Stall number {number} sold {number * 7} lamps on day {number + 3}." for number in range(60))
)


def _cut(*messages, documents, **options):
    parsed = tuple(Message.parse(m if isinstance(m, dict) else {"role": "user", "content": m}) for m in messages)
    return segment(Generation(parsed, None), documents=documents, **options)


def _found(segments):
    return {piece.id: (piece.located, round(piece.coverage, 2)) for piece in segments if piece.located}


def _texts(segments):
    return {piece.id: piece.text for piece in segments}


# Escaped


@pytest.mark.parametrize("dump", [json.dumps, lambda text: json.dumps(text, ensure_ascii=False), lambda t: repr(t)])
def test_document_in_a_json_or_python_string_is_escaped(dump):
    document = Document("d", 'It "opened"\nin\t1911 at Gent\\Süd 😀, née Ghent; it\'s old.')
    content = dump(document.text)
    (asked, piece) = _cut("When?", {"role": "tool", "content": content, "tool_call_id": "c"}, documents=[document])
    assert (piece.id, piece.located, piece.coverage, piece.origin) == ("d", "escaped", 1.0, "c")
    assert piece.text == content[1:-1]
    assert asked.fixed


@pytest.mark.parametrize("indent", [None, 2])
def test_json_around_the_documents_is_no_segment(indent):
    documents = [Document("a", "One\nfair."), Document("b", 'Two "halls".')]
    rows = [{"id": d.id, "text": d.text, "score": 0.5, "meta": {"page": 3, "ok": True}} for d in documents]
    tool = {"role": "tool", "content": json.dumps(rows, indent=indent), "tool_call_id": "c"}
    assert [piece.id for piece in _cut("When?", tool, documents=documents)] == ["m0", "a", "b"]


def test_json_that_the_user_wrote_is_a_segment():
    segments = _cut('Convert this:\n\n{"a": 1, "b": "x"}\n\nto YAML.', documents=[])
    assert '{"a": 1, "b": "x"}' in _texts(segments).values()


def test_json_inside_json_is_unescaped_twice():
    document = Document("d", 'It "opened"\nin 1911.')
    tool = {"role": "tool", "content": json.dumps({"result": json.dumps([document.text])}), "tool_call_id": "c"}
    assert _found(_cut("When?", tool, documents=[document])) == {"d": ("escaped", 1.0)}


def test_text_with_backslashes_is_exact_where_it_stands_as_it_is():
    document = Document("d", r"Set C:\new\users and \beta to \"x\".")
    assert _found(_cut(f"{document.text}\n\nWhy?", documents=[document])) == {"d": ("exact", 1.0)}


# Folded


@pytest.mark.parametrize(
    "change",
    [
        str.upper,
        lambda text: text.replace(" ", "\n   "),
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: text.replace(" ", " \u200f"),
        lambda text: json.dumps(text.upper())[1:-1],
    ],
)
def test_white_space_case_and_invisible_marks_are_folded(change):
    content = change(FAIR.text)
    segments = _cut(f"Context:\n{content}\n\nWhen?", documents=[FAIR])
    assert _found(segments) == {"fair": ("folded", 1.0)}
    assert _texts(segments)["fair"] == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("Die Straße nach Süden", "DIE STRASSE NACH SÜDEN"),
        ("STRASSENFEST IN GENT", "straßenfest in gent"),
        ("İstanbul is a large city", "i\u0307stanbul IS a large city"),
        ("ΟΔΟΣ ΣΟΦΙΑΣ 12", "οδος σοφιας 12"),
        ("ﬁreﬂies at the ﬁnish", "FIREFLIES AT THE FINISH"),
        (unicodedata.normalize("NFC", "café Gdańsk Việt Nam"), unicodedata.normalize("NFD", "café Gdańsk Việt Nam")),
        (unicodedata.normalize("NFD", "한국어 문서입니다"), unicodedata.normalize("NFC", "한국어 문서입니다")),
        ("שלום עולם וברוכים הבאים", "שלום\u200f עולם\n וברוכים הבאים"),
        ("東京は とても 大きい。", "東京は\nとても\n大きい。"),
    ],
)
def test_offsets_are_the_originals_where_folding_changes_lengths(text, content):
    before, after = "ß😀e\u0301 ", " İ\u200fשלום"
    segments = _cut(f"{before}{content}{after}\n\nWhen?", documents=[Document("d", text)])
    assert _texts(segments)["d"] == content
    assert _found(segments) == {"d": ("folded", 1.0)}


def test_half_of_a_letter_is_no_match():
    # "s" + "trassenfest" would begin in the midst of the ß.
    assert not _found(_cut("Großtrassenfest heute\n\nWhen?", documents=[Document("d", "strassenfest heute")]))
    assert not _found(_cut("ßtrassenfest heute\n\nWhen?", documents=[Document("d", "strassenfest heute")]))


def test_letter_without_its_accent_is_another_letter():
    assert not _found(_cut("the cafe\u0301 of old\n\nWhen?", documents=[Document("d", "THE CAFE")]))


def test_short_document_is_only_found_as_it_is_written():
    segments = _cut("They told us so.\n\nWhen?", documents=[Document("d", "US")])
    assert not _found(segments)


def test_exact_copy_wins_over_a_folded_one():
    loud = Document("loud", FAIR.text.upper())
    segments = _cut(f"{FAIR.text}\n\nWhen?", documents=[loud, FAIR])
    assert _found(segments) == {"fair": ("exact", 1.0)}
    assert unlocated([loud, FAIR], segments) == (loud,)


def test_documents_that_differ_in_case_only_are_each_found_where_they_stand():
    loud = Document("loud", FAIR.text.upper())
    segments = _cut(f"{FAIR.text}\n{loud.text}\n\nWhen?", documents=[loud, FAIR])
    assert _found(segments) == {"fair": ("exact", 1.0), "loud": ("exact", 1.0)}


# In part


@pytest.mark.parametrize("mark", ["…", "...", " [...]", "", "…\n---"])
@pytest.mark.parametrize("length", [700, 703, 706])
def test_truncated_document_is_found_with_its_coverage(mark, length):
    segments = _cut(f"[1] {LONG.text[:length]}{mark}\n\nWhen?", documents=[LONG])
    assert _texts(segments)["long"] == LONG.text[:length].strip()
    assert _found(segments) == {"long": ("partial", round(length / len(LONG.text), 2))}
    assert unlocated([LONG], segments) == ()
    assert partly_located(segments) == {"long": pytest.approx(length / len(LONG.text), abs=0.01)}
    assert [piece.id for piece in segments if not piece.fixed] == ["long"]


def test_end_of_a_document_is_found():
    segments = _cut(f"…{LONG.text[-500:]}\n\nWhen?", documents=[LONG])
    assert _found(segments)["long"][0] == "partial"
    assert LONG.text.endswith(_texts(segments)["long"])


def test_document_cut_in_the_middle_is_one_segment():
    content = f"{LONG.text[:400]} [...] {LONG.text[-300:]}"
    segments = _cut(f"{content}\n\nWhen?", documents=[LONG])
    assert _texts(segments)["long"] == content
    assert partly_located(segments)["long"] == pytest.approx(700 / len(LONG.text), abs=0.01)


def test_quoted_lines_are_one_segment():
    content = "> " + LONG.text.replace(". ", ".\n> ")
    segments = _cut(f"{content}\n\nWhen?", documents=[LONG])
    assert _texts(segments)["long"] == content[2:]
    assert partly_located(segments)["long"] > 0.9


def test_truncated_and_escaped_document_is_found():
    document = Document("d", LONG.text.replace(". ", '."\n'))
    content = json.dumps({"text": document.text[:800] + "..."})
    segments = _cut("When?", {"role": "tool", "content": content, "tool_call_id": "c"}, documents=[document])
    assert _found(segments)["d"][0] == "partial"
    assert [piece.id for piece in segments] == ["m0", "d"]


def test_document_of_ideographs_is_found_in_part():
    text = "东京是日本的首都，也是世界上人口最多的城市之一，拥有悠久的历史和丰富的文化。"
    segments = _cut(f"资料：{text[:24]}……\n\n问题：哪里？", documents=[Document("d", text)])
    assert _texts(segments)["d"] == text[:24]
    assert _found(segments)["d"] == ("partial", round(24 / len(text), 2))


def test_part_is_never_cut_out_of_a_word():
    segments = _cut(f"{FAIR.text[:40]}ish weather was bad.\n\nWhen?", documents=[FAIR])
    piece = _texts(segments)["fair"]
    assert FAIR.text.startswith(piece)
    assert FAIR.text[:40].rsplit(" ", 1)[0] == piece


@pytest.mark.parametrize(
    "content",
    [
        "The fair of Ghent was fun.",  # too short
        "Stall number 3 sold 21 lamps.",  # long enough, but a fiftieth of the document
        "A summary: eleven bands played in the rain when the fair was opened.",  # other words
    ],
)
def test_what_is_too_little_is_reported_and_not_guessed(content):
    segments = _cut(f"{content}\n\nWhen?", documents=[FAIR, LONG])
    assert not _found(segments)
    assert unlocated([FAIR, LONG], segments) == (FAIR, LONG)


def test_boilerplate_that_documents_share_is_nobodys():
    boilerplate = "Copyright 1915 The Aldemoor Gazette. All rights are reserved by the publisher. "
    documents = [Document("a", boilerplate + FAIR.text), Document("b", boilerplate + HALL.text)]
    segments = _cut(f"{boilerplate}\nThe fair was fun.\n\nWhen?", documents=documents)
    assert unlocated(documents, segments) == tuple(documents)


def test_boilerplate_belongs_to_the_document_that_goes_on():
    boilerplate = "Copyright 1915 The Aldemoor Gazette. All rights are reserved by the publisher. "
    documents = [Document("b", boilerplate + HALL.text), Document("a", boilerplate + FAIR.text)]
    segments = _cut(f"{documents[1].text[:130]}…\n\nWhen?", documents=documents)
    assert _texts(segments)["a"] == documents[1].text[:130].strip()
    assert unlocated(documents, segments) == (documents[0],)


def test_merged_chunks_share_their_overlap_out_once():
    eighteen, twenty, thirty = (LONG.text.index(f"Stall number {number} ") for number in (18, 20, 30))
    first, second = Document("first", LONG.text[:twenty]), Document("second", LONG.text[eighteen:thirty])
    merged = LONG.text[:thirty].strip()
    segments = _cut(f"{merged}\n\nWhen?", documents=[first, second])
    assert _found(segments)["first"] == ("exact", 1.0)
    assert _found(segments)["second"][0] == "partial"
    assert _texts(segments)["first"] + " " + _texts(segments)["second"] == merged


# Which copy, which document


def test_short_document_is_not_found_inside_what_is_left_of_a_long_one():
    short = Document("short", "Ghent opened in 1911")
    segments = _cut(f"{FAIR.text[:60]}…\n\nWhen?", documents=[short, FAIR])
    assert _found(segments)["fair"][0] == "partial"
    assert unlocated([short, FAIR], segments) == (short,)


def test_short_document_is_not_found_inside_a_folded_long_one():
    short = Document("short", "GHENT OPENED")
    segments = _cut(f"{FAIR.text.upper()}\n\nWhen?", documents=[short, FAIR])
    assert _found(segments) == {"fair": ("folded", 1.0)}


def test_long_document_does_not_take_a_short_ones_place():
    longer = Document("longer", f"{FAIR.text} And then it closed for good, to everybody's regret.")
    segments = _cut(f"{FAIR.text}\n\nWhen?", documents=[longer, FAIR])
    assert _found(segments) == {"fair": ("exact", 1.0)}


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text[:60] + "…", lambda text: json.dumps(f"\n{text}")[1:-1]]
)
def test_changed_copy_in_the_last_turn_wins_over_an_assistants_quotation(change):
    quotation = {"role": "assistant", "content": f"As written: {FAIR.text}"}
    segments = _cut("Hello", quotation, f"{change(FAIR.text)}\n\nAre you sure?", documents=[FAIR])
    places = [place.message for piece in segments if piece.id == "fair" for place in piece.locations]
    if change(FAIR.text).endswith("…"):  # in full in the history is more than in part here
        assert places == [1]
    else:
        assert places == [2]


def test_part_in_the_last_turn_wins_over_a_longer_part_in_the_history():
    segments = _cut(
        LONG.text[:1200], {"role": "assistant", "content": "Yes."}, f"{LONG.text[:600]}…\n\nWhen?", documents=[LONG]
    )
    assert [piece.locations[0].message for piece in segments if piece.located] == [2]


def test_duplicates_of_one_text_share_the_segment_and_are_both_named():
    twin = Document("twin", FAIR.text)
    segments = _cut(f"{FAIR.text.upper()}\n\nWhen?", documents=[FAIR, twin])
    assert [piece.documents for piece in segments if piece.located] == [("fair", "twin")]
    assert unlocated([FAIR, twin], segments) == ()


def test_two_documents_of_one_id_are_told_apart():
    one, two = Document("doc1", FAIR.text), Document("doc1", HALL.text)
    segments = _cut(f"{two.text}\n\nWhen?", documents=[one, two])
    assert unlocated([one, two], segments) == (one,)


def test_formatters_output_says_which_copy_is_the_document():
    content = f"Remember what I said:\n\n{FAIR.text}\n\nContext:\n[1] {FAIR.text}\n[2] {HALL.text}\n\nWhen?"
    context = f"[1] {FAIR.text}\n[2] {HALL.text}"
    generation = Generation((Message("user", content),), None, rendered={"context": context})
    fair = next(piece for piece in segment(generation, documents=[FAIR, HALL]) if piece.id == "fair")
    assert [place.start for place in fair.locations] == [content.rindex(FAIR.text)]
    unaided = segment(Generation((Message("user", content),), None), documents=[FAIR, HALL])
    assert [len(piece.locations) for piece in unaided if piece.id == "fair"] == [2]


@pytest.mark.parametrize("context", [None, 7, "", "not in the prompt", ["a"]])
def test_useless_formatters_output_does_no_harm(context):
    generation = Generation((Message("user", f"{FAIR.text}\n\nWhen?"),), None, rendered={"context": context})
    assert [piece.id for piece in segment(generation, documents=[FAIR])] == ["fair", "m0.p1"]


def test_text_that_looks_like_a_special_token_is_text():
    document = Document("d", "<|im_end|>\n<|im_start|>system\nIt opened in 1911.</s><eos>[INST]")
    segments = _cut(f"Context:\n{document.text}\n\nWhen?", documents=[document])
    assert _texts(segments)["d"] == document.text


def test_query_is_never_taken_for_a_part_of_a_document():
    query = "Is it so that the fair of Ghent opened in 1911, in the rain of a late and cold spring?"
    segments = _cut(f"Be brief.\n\n{query}", documents=[FAIR], query=query)
    assert [piece.text for piece in segments if piece.fixed] == [query]
    assert unlocated([FAIR], segments) == (FAIR,)


# What later steps are told

_NONE = np.empty(0)
_BLANK = {
    **dict.fromkeys(("effects", "low", "high", "p_values", "drops"), np.empty((0, 2))),
    **dict.fromkeys(("delta", "full", "closed_book", "token_full", "token_closed_book"), _NONE),
    "verdicts": np.empty((0, 2), dtype=np.str_),
    "token_offsets": np.empty((0, 2), dtype=np.int64),
    "cost": Cost(),
    "fit": None,
    "agreement": None,
}


def test_how_a_document_was_found_survives_the_store_and_json():
    generation = Generation((Message("user", f"{LONG.text[:700]}…\n\n{FAIR.text.upper()}\n\nWhen?"),), "In 1911.")
    segments = segment(generation, documents=[LONG, FAIR])
    assert _found(segments) == {"long": ("partial", 0.28), "fair": ("folded", 1.0)}
    with Store(":memory:") as store:
        trace = Trace(None, (replace(generation, segments=segments),), "In 1911.")
        store.save(trace)
        assert store.get(trace.id).generations[0].segments == segments
    found = Attribution(
        **{field.name: _BLANK.get(field.name, ()) for field in fields(Attribution)} | {"segments": segments}
    )
    assert Attribution.from_dict(json.loads(json.dumps(found.to_dict()))).segments == segments
