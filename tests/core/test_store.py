"""Traces come back as they went in, are found again, and one damaged row hides no other."""

import sqlite3
import string
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attr_core.attribution import Attribution
from attr_core.capabilities import probe
from attr_core.errors import ConfigurationError, StoreError, TraceNotFoundError
from attr_core.protocols import Capability
from attr_core.results import Cost
from attr_core.store import Pruned, Store
from attr_core.testing import ScriptedEngine
from attr_core.types import (
    Document,
    Generation,
    Location,
    Message,
    Retrieval,
    Segment,
    SegmentKind,
    Target,
    TargetKind,
    ToolCall,
    Trace,
)

ANY_TEXT = st.text(st.characters(codec=None), max_size=12) | st.sampled_from(
    [
        "",
        "\0",
        "a\0b",
        "\ud800",
        "\ud83d\ude00",
        "😀",
        "\x1ad800",
        "'; DROP TABLE traces; --",
        "<script>",
        "\u2028",
        "null",
    ]
)
MAYBE = st.none() | ANY_TEXT
NUMBERS = st.none() | st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(ANY_TEXT, JSON, max_size=2)
ZONES = st.none() | st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.none() | st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES)  # noqa: DTZ001


def tuples(inner, size=2):
    return st.lists(inner, max_size=size).map(tuple)


DOCUMENTS = tuples(st.builds(Document, id=ANY_TEXT, text=ANY_TEXT, score=NUMBERS, metadata=OBJECTS))
TOOL_CALLS = tuples(
    st.builds(
        ToolCall,
        id=ANY_TEXT,
        name=ANY_TEXT,
        arguments=JSON,
        output=MAYBE,
        error=MAYBE,
        generation_id=MAYBE,
        documents=DOCUMENTS,
        metadata=OBJECTS,
    )
)
MESSAGES = tuples(
    st.builds(
        Message,
        role=ANY_TEXT,
        content=ANY_TEXT,
        name=MAYBE,
        tool_calls=TOOL_CALLS,
        tool_call_id=MAYBE,
        metadata=OBJECTS,
    )
)
SEGMENTS = tuples(
    st.builds(
        Segment,
        id=ANY_TEXT,
        kind=st.sampled_from(SegmentKind),
        text=ANY_TEXT,
        locations=tuples(st.builds(Location, *[st.integers(0, 99)] * 3)),
        group_id=MAYBE,
        source=OBJECTS,
        origin=MAYBE,
        fixed=st.booleans(),
    )
)
GENERATIONS = tuples(
    st.builds(
        Generation,
        messages=MESSAGES,
        response=MAYBE,
        id=ANY_TEXT,
        parent=MAYBE,
        tools=tuples(OBJECTS),
        segments=SEGMENTS,
        reasoning=MAYBE,
        tool_calls=TOOL_CALLS,
        finish_reason=MAYBE,
        model=MAYBE,
        parameters=OBJECTS,
        usage=OBJECTS,
        rendered=OBJECTS,
        error=MAYBE,
    )
)
TRACES = st.builds(
    Trace,
    query=MAYBE,
    generations=GENERATIONS,
    answer=MAYBE,
    id=ANY_TEXT,
    retrievals=tuples(
        st.builds(Retrieval, query=MAYBE, documents=DOCUMENTS, id=ANY_TEXT, name=MAYBE, metadata=OBJECTS)
    ),
    tool_calls=TOOL_CALLS,
    reference=MAYBE,
    expected_chunks=tuples(ANY_TEXT),
    tags=tuples(ANY_TEXT),
    framework=MAYBE,
    run_id=MAYBE,
    session_id=MAYBE,
    status=st.sampled_from(["ok", "error", "interrupted", "partial"]),
    error=MAYBE,
    started=TIMES,
    finished=TIMES,
    metadata=OBJECTS,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "attrkit.db"


@pytest.fixture
def store(path):
    with Store(path) as opened:
        yield opened


def make_trace(question="When did it open?", answer="In 1911.", *, model="m", documents=(), **fields):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    return replace(Trace.from_messages(messages, answer, documents=documents, model=model), **fields)


def make_attribution(trace, effect=1.5, **fields):
    segment = Segment("s1", SegmentKind.RETRIEVED, "The fair opened in 1911.", (Location(1, 0, 24),), source={"p": 1})
    cell, row = np.array([[effect]]), np.array([0.5])
    values = {
        "method": "test",
        "estimand": "banzhaf",
        "unit": "nats",
        "trace_id": trace.id,
        "generation_id": trace.generations[0].id,
        "response": "In 1911.\ud800",
        "segments": (segment,),
        "claims": (),
        "targets": (Target(TargetKind.RESPONSE, 0, 8, "In 1911."),),
        "effects": cell,
        "low": cell * np.nan,
        "high": cell * np.nan,
        "p_values": cell * np.nan,
        "verdicts": np.array([["drives"]]),
        "drops": cell,
        "delta": row,
        "full": row,
        "closed_book": row,
        "token_offsets": np.array([[0, 8]]),
        "token_full": row,
        "token_closed_book": row,
        "exact": True,
        "cost": Cost(calls=2),
        "seed": 0,
        "versions": {"attrkit": "0"},
    }
    return Attribution(**{**values, **fields})


def vandalise(path, sql, *parameters):
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(sql, parameters).rowcount > 0
    connection.close()


@settings(max_examples=150, deadline=None)
@given(TRACES)
def test_every_field_of_any_trace_comes_back_exactly(trace):
    with Store(":memory:") as store:
        assert store.save(trace) == trace.id
        assert store.get(trace.id) == trace
        assert [summary.id for summary in store.list()] == [trace.id]


def test_the_time_zone_comes_back_too(store):
    started = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    read = store.get(store.save(make_trace(started=started, finished=None))).started
    assert read == started
    assert read.utcoffset() == timedelta(hours=5, minutes=30)


def test_a_score_that_is_nan_does_not_become_missing(store):
    trace = make_trace(documents=[Document("d", "text", score=float("nan"))])
    assert np.isnan(store.get(store.save(trace)).documents[0].score)


def test_metadata_that_json_cannot_say_becomes_its_repr_and_never_an_error(store):
    class Odd:
        def __repr__(self):
            raise RuntimeError("no")

    class Colour(Enum):
        RED = 1

    circular = {}
    circular["self"] = circular
    metadata = {
        "set": {1},
        "odd": Odd(),
        "bytes": b"a",
        "score": np.float32(0.5),
        "rank": np.int64(3),
        "colour": Colour,
    }
    metadata |= {"tuple": (1, 2), 5: "five", "huge": 10**5000, "circular": circular}
    read = store.get(store.save(make_trace(metadata=metadata))).metadata
    assert read["set"] == "{1}"
    assert "Odd" in read["odd"]
    assert read["bytes"] == "b'a'"
    assert (read["score"], read["rank"]) == (0.5, 3)
    assert read["colour"] == repr(Colour)
    assert read["tuple"] == [1, 2]
    assert read["5"] == "five"
    assert int(read["huge"], 16) == 10**5000
    assert "circular" in read


def test_tables_can_be_read_with_plain_sql(store, path):
    call = ToolCall("c1", "search", {"q": "fair"})
    trace = make_trace(documents=["The fair opened in 1911."], tags=("demo", "x"))
    generation = replace(trace.generations[0], tool_calls=(call,), usage={"prompt_tokens": 12})
    store.save(trace.with_generation(generation))
    connection = sqlite3.connect(path)
    read = connection.execute(
        """SELECT t.answer, g.model, json_extract(g.usage, '$.prompt_tokens'), m.role, m.content, d.text, tag, c.name,
            json_extract(c.arguments, '$.q')
        FROM traces t JOIN generations g ON g.trace_id = t.id
            JOIN messages m ON m.trace_id = t.id AND m.generation = g.position
            JOIN documents d ON d.trace_id = t.id JOIN tags ON tags.trace_id = t.id
            JOIN tool_calls c ON c.trace_id = t.id AND c.generation = g.position
        WHERE m.role = 'user' ORDER BY tags.position"""
    ).fetchall()
    assert read == [
        ("In 1911.", "m", 12, "user", "When did it open?", "The fair opened in 1911.", tag, "search", "fair")
        for tag in ("demo", "x")
    ]
    assert connection.execute("SELECT id, model, n_documents FROM trace_summaries").fetchall() == [(trace.id, "m", 1)]
    connection.close()


def test_saving_again_replaces_the_trace_and_keeps_its_attributions(store):
    trace = make_trace(documents=["a", "b"], tags=("x",))
    store.save(trace)
    store.save_attribution(make_attribution(trace))
    shorter = replace(trace, answer="Later.", retrievals=(), tags=("y",))
    assert store.save(shorter) == trace.id
    assert store.get(trace.id) == shorter
    assert len(store.attributions(trace.id)) == 1
    assert len(store.list()) == 1


def test_failing_save_leaves_the_old_trace_whole(store, path):
    trace = make_trace(documents=["a"])
    store.save(trace)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TRIGGER stop BEFORE INSERT ON tags BEGIN SELECT RAISE(ABORT, 'stop'); END")
    connection.close()
    with pytest.raises(StoreError, match=r"attrkit\.db"):
        store.save(replace(trace, answer="Other.", tags=("new",)))
    assert store.get(trace.id) == trace


def test_a_trace_is_found_by_a_unique_beginning_of_its_id(store):
    for identifier in ("tr_abcd1", "tr_abcd2", "tr_xyz", "tr_abcd"):
        store.save(make_trace(id=identifier))
    assert store.get("tr_x").id == "tr_xyz"
    assert store.get("tr_abcd").id == "tr_abcd"
    with pytest.raises(StoreError, match=r"'tr_a' is ambiguous \(tr_abcd, tr_abcd1, tr_abcd2\)"):
        store.get("tr_a")
    for absent in ("tr_", "", "tr_nothing", "tr%x", "tr_____"):
        with pytest.raises(TraceNotFoundError, match="run `attrkit traces`") as raised:
            store.get(absent)
        assert repr(absent) in str(raised.value)
        assert isinstance(raised.value, LookupError)


def test_last_is_the_most_recently_started_and_says_so_when_there_is_none(store):
    with pytest.raises(TraceNotFoundError, match="holds no trace yet"):
        store.last()
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    late = make_trace(started=datetime(2026, 3, 1, 8, tzinfo=timezone(timedelta(hours=-6))))  # 14:00 UTC
    store.save(late)
    store.save(make_trace(started=noon))
    assert store.last().id == late.id
    unknown = make_trace(started=None)
    store.save(unknown)
    assert store.last().id == unknown.id  # it was saved after 2026-03-01
    assert store.get(unknown.id).started is None


def test_saving_again_does_not_make_a_trace_without_a_start_the_newest(store):
    first, second = make_trace(started=None), make_trace(started=None)
    store.save(first)
    store.save(second)
    store.save(first)
    assert [summary.id for summary in store.list()] == [second.id, first.id]


def test_list_says_what_a_trace_is_about(store):
    trace = make_trace(documents=["a", "b"], framework="litellm")
    store.save(trace)
    store.save_attribution(make_attribution(trace))
    (summary,) = store.list()
    assert (summary.query, summary.answer, summary.model) == ("When did it open?", "In 1911.", "m")
    assert (summary.framework, summary.status, summary.started) == ("litellm", "ok", trace.started)
    assert (summary.n_generations, summary.n_documents, summary.n_attributions) == (1, 2, 1)


def test_list_filters(store):
    start = datetime(2026, 3, 1, tzinfo=UTC)
    store.save(make_trace("Was ist Öl?", id="a", model="openai/gpt", tags=("eval",), started=start))
    store.save(make_trace("100% sure_?", id="b", model="other", status="error", started=start + timedelta(days=1)))
    store.save(make_trace("Why?", id="c", model="m[1]", framework="haystack", started=start + timedelta(days=2)))

    def ids(**filters):
        return "".join(summary.id for summary in store.list(**filters))

    assert ids() == "cba"
    assert ids(limit=2) == "cb"
    assert ids(limit=0) == ""
    assert ids(limit=None) == "cba"
    assert ids(query="öL") == "a"
    assert ids(query="0% sure_") == "b"
    assert ids(query="%") == "b"
    assert ids(model="openai/gpt") == "a"
    assert ids(model="openai/*") == "a"
    assert ids(model="gpt") == ""
    assert ids(model="m[1]") == "c"
    assert ids(tag="eval") == "a"
    assert ids(status="error") == "b"
    assert ids(framework="haystack") == "c"
    assert ids(since=start + timedelta(days=1)) == "cb"
    assert ids(since=datetime(2026, 3, 2)) == "cb"  # noqa: DTZ001
    assert ids(query="Why", status="error") == ""
    with pytest.raises(ConfigurationError, match="limit=-1"):
        store.list(limit=-1)


def test_the_summary_names_the_model_that_answered(store):
    first = Generation((Message("user", "q"),), "answer", model="answering")
    last = Generation((Message("user", "q"),), None, model="failing")
    store.save(Trace("q", (first, last), "answer"))
    assert store.list()[0].model == "answering"


def test_attributions_come_back_in_order_and_once(store):
    trace = make_trace()
    store.save(trace)
    results = [make_attribution(trace, effect) for effect in (1.0, 2.0)]
    for result in (*results, results[0]):
        store.save_attribution(result)
    read = store.attributions(trace.id[:8])
    assert [attribution.to_dict() for attribution in read] == [result.to_dict() for result in results]


def test_attribution_of_an_unknown_trace_is_refused(store):
    with pytest.raises(TraceNotFoundError, match="save the trace before"):
        store.save_attribution(make_attribution(make_trace()))
    with pytest.raises(TraceNotFoundError):
        store.attributions("tr_nothing")


def test_delete_takes_everything_of_one_trace_and_nothing_of_another(store, path):
    kept, gone = make_trace(documents=["a"], tags=("x",)), make_trace(documents=["a"], tags=("x",))
    for trace in (kept, gone):
        store.save(trace)
        store.save_attribution(make_attribution(trace))
    with pytest.raises(TraceNotFoundError):
        store.delete(gone.id[:6])
    store.delete(gone.id)
    with pytest.raises(TraceNotFoundError):
        store.get(gone.id)
    assert store.get(kept.id) == kept
    connection = sqlite3.connect(path)
    for table in ("tags", "generations", "messages", "documents", "retrievals", "attributions"):
        assert connection.execute(f"SELECT DISTINCT trace_id FROM {table}").fetchall() == [(kept.id,)]  # noqa: S608
    connection.close()


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("generations", "usage", "{broken"),
        ("generations", "usage", "[]"),
        ("generations", "segments", '[{"id": 1}]'),
        ("generations", "response", b"\x00\x01"),
        ("documents", "score", "high"),
        ("traces", "started", "yesterday"),
        ("traces", "metadata", None),
    ],
)
def test_a_damaged_row_is_named_and_the_others_stay_readable(store, path, table, column, value):
    good, bad = make_trace(documents=["a"]), make_trace(documents=["a"])
    store.save(good)
    store.save(bad)
    key = "id" if table == "traces" else "trace_id"
    vandalise(path, f"UPDATE {table} SET {column} = ? WHERE {key} = ?", value, bad.id)  # noqa: S608
    with pytest.raises(StoreError) as raised:
        store.get(bad.id)
    assert table in str(raised.value)
    assert bad.id in str(raised.value)
    assert column in str(raised.value)
    assert "\n" not in str(raised.value)
    assert store.get(good.id) == good
    assert {summary.id for summary in store.list()} == {good.id, bad.id}


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("UPDATE turns SET role = NULL WHERE trace_id = ?", "role"),
        ("UPDATE turns SET digest = NULL WHERE trace_id = ?", "content"),
        ("UPDATE texts SET text = x'00ff' WHERE text LIKE '%?' AND ? <> ''", "content"),
        ("DELETE FROM texts WHERE text LIKE '%?' AND ? <> ''", "content"),
    ],
)
def test_a_damaged_message_is_named_and_saving_it_again_mends_it(store, path, sql, column):
    good, bad = make_trace("Another question"), make_trace("When did it open?")
    store.save(good)
    store.save(bad)
    vandalise(path, sql, bad.id)
    with pytest.raises(StoreError, match=rf"^table messages, trace {bad.id} is damaged: {column}"):
        store.get(bad.id)
    assert store.get(good.id) == good
    assert {summary.id for summary in store.list()} == {good.id, bad.id}
    store.save(bad)
    assert store.get(bad.id) == bad


def test_text_that_is_not_utf8_is_damage_in_one_row_only(store, path):
    good, bad = make_trace(), make_trace()
    store.save(good)
    store.save(bad)
    vandalise(path, "UPDATE traces SET answer = CAST(? AS TEXT) WHERE id = ?", b"\xff\xfe", bad.id)
    with pytest.raises(StoreError, match="traces"):
        store.get(bad.id)
    assert store.get(good.id) == good
    assert len(store.list()) == 2


def test_damaged_and_newer_attributions_are_named(store, path):
    trace = make_trace()
    store.save(trace)
    store.save_attribution(make_attribution(trace))
    for damage in ("{broken", "{}", '{"schema": 99}', "[]"):
        vandalise(path, "UPDATE attributions SET result = ?", damage)
        with pytest.raises(StoreError, match="table attributions, row at_"):
            store.attributions(trace.id)


def test_memory_is_a_mapping_that_outlives_the_store(path):
    with Store(path) as store:
        memory = store.memory
        memory["a"] = {"error": None, "at": 1.5}
        memory["a"] = {"error": "down", "at": 2.5}
        memory["\ud800"] = [1]
        with pytest.raises(KeyError):
            del memory["absent"]
    with Store(path) as store:
        assert dict(store.memory) == {"a": {"error": "down", "at": 2.5}, "\ud800": [1]}
        assert len(store.memory) == 2
        del store.memory["a"]
        assert store.memory.get("a") is None


def test_probe_asks_an_engine_once_when_its_memory_is_a_store(path):
    engine = ScriptedEngine(fingerprint="same")
    for _ in range(2):
        with Store(path) as store:
            assert probe(engine, store.memory) == {Capability.GENERATE: None, Capability.SCORE: None}
    assert len(engine.seen) == 2


def test_one_store_serves_many_threads(store):
    traces = [make_trace(string.ascii_letters[i]) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.save, traces))
        assert list(pool.map(store.get, [trace.id for trace in traces])) == traces


def test_store_uses_the_environments_path(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "env.db"))
    with Store() as store:
        assert store.path == str(tmp_path / "env.db")


def test_results_beside_a_damaged_one_can_still_be_read(store, path):
    trace = make_trace()
    store.save(trace)
    good, bad = make_attribution(trace, 1.0), make_attribution(trace, 2.0)
    store.save_attribution(good)
    store.save_attribution(bad)
    vandalise(path, "UPDATE attributions SET result = '{' WHERE rowid = 2")
    with pytest.raises(StoreError, match=r"table attributions, row at_.* is damaged .*skip_damaged=True"):
        store.attributions(trace.id)
    (read,) = store.attributions(trace.id, skip_damaged=True)
    assert read.to_dict() == good.to_dict()


def test_prune_takes_what_started_earlier_and_counts_it(store):
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    old, new, unknown = (
        make_trace(started=noon),
        make_trace(started=noon + timedelta(hours=1)),
        make_trace(started=None),
    )
    for trace in (old, new, unknown):
        store.save(trace)
        store.save_attribution(make_attribution(trace))
    before = datetime(2026, 3, 1, 13)  # noqa: DTZ001 - taken as UTC, and the moment itself is kept
    assert store.prune(before=before, dry_run=True) == Pruned(1, 1)
    assert store.stats().n_traces == 3
    assert store.prune(before=before) == Pruned(1, 1)
    assert store.prune(before=before) == Pruned(0, 0)
    assert {summary.id for summary in store.list()} == {new.id, unknown.id}
    assert (store.stats().n_traces, store.stats().n_attributions) == (2, 2)
    assert store.get(new.id) == new
