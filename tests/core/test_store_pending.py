"""What waits is found, the oldest first; results come to traces as they are stored; a day's spending is one sum."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core._storage import pending as pending_module
from attr_core._storage import spending
from attr_core.api import attribute
from attr_core.errors import BudgetExceededError, PostponedError, StoreError
from attr_core.results import Budget, Cost
from attr_core.store import PendingTrace, Store
from attr_core.testing import AdditiveEngine
from attr_core.types import Generation, Message, ToolCall, Trace

FACT = "The fair opened in 1911."
START = datetime(2026, 11, 30, tzinfo=UTC)


def a_trace(n=0, **changes):
    content = f"{FACT}\n\nNote {n}.\n\nWhen did it open?"
    trace = Trace.from_messages([{"role": "user", "content": content}], "In 1911.")
    return replace(trace, **{"started": START + timedelta(minutes=n), **changes})


def attributed(trace):
    return attribute(trace, engine=AdditiveEngine({"1911": {FACT: 9.0}}), db=":memory:")


@pytest.fixture
def store():
    with Store(":memory:") as opened:
        yield opened


def ids(store, **filters):
    return [pending.id for pending in store.pending(**filters)]


def test_the_oldest_comes_first_whatever_came_in_first(store):
    traces = [a_trace(n) for n in range(6)]
    for i in (3, 0, 5, 1, 4, 2):
        store.save(traces[i])
    assert ids(store) == [trace.id for trace in traces]


def test_what_is_attributed_or_was_not_sampled_is_left_out(store):
    done, out, kept, other = a_trace(1), a_trace(2, metadata={"attrkit": {"sampled": False}}), a_trace(3), a_trace(4)
    kept = replace(kept, metadata={"attrkit": {"sampled": True}})
    for trace in (done, out, kept, other):
        store.save(trace)
    store.save_attribution(attributed(done))
    assert ids(store) == [kept.id, other.id]


@pytest.mark.parametrize("text", ["\ud800", "\0", "\x1a", "\x1ad800", "'; --"])
def test_a_trace_that_was_not_sampled_is_left_out_whatever_else_its_metadata_holds(store, text):
    store.save(a_trace(1, metadata={"attrkit": {"sampled": False}, "note": text, text: 1}))
    store.save(kept := a_trace(2, metadata={"note": text, "attrkit": {"engine": "hf:m"}}))
    assert list(store.pending()) == [PendingTrace(kept.id, engine="hf:m")]


CALL = ToolCall("c", "search", {"q": "fair"})
MESSAGES = (Message("user", "q"),)
CALLED_BEFORE = (*MESSAGES, Message("assistant", "", tool_calls=(CALL,)))
WROTE = {
    "an answer": (Generation(MESSAGES, "In 1911."), "ok", True),
    "an answer before an error": (Generation(MESSAGES, "In 19"), "error", True),
    "part of an answer": (Generation(MESSAGES, "In 19"), "partial", True),
    "a tool call": (Generation(MESSAGES, None, tool_calls=(CALL,)), "ok", True),
    "a tool call before an error": (Generation(MESSAGES, None, tool_calls=(CALL,)), "error", False),
    "a tool call in the history": (
        Generation((*MESSAGES, Message("assistant", "", tool_calls=(CALL,))), None),
        "ok",
        False,
    ),
    "nothing": (Generation(MESSAGES, None), "interrupted", False),
    "no text": (Generation(MESSAGES, ""), "ok", False),
    "white space": (Generation(MESSAGES, " \n\t"), "ok", False),
}


@pytest.mark.parametrize("what", sorted(WROTE))
def test_where_no_model_wrote_anything_nothing_waits(store, what):
    generation, status, waits = WROTE[what]
    trace = a_trace(generations=(generation,), status=status)
    store.save(trace)
    assert ids(store) == [trace.id] * waits


def test_a_run_without_a_model_call_does_not_wait(store):
    store.save(a_trace(generations=(), tool_calls=(CALL,)))
    assert ids(store) == []


def test_what_a_trace_names_as_its_engine_comes_along(store):
    named = {"spec": "hf:m", "object": {"object": "test:additive"}, "none": None, "nonsense": 3, "empty": {}}
    for n, engine in enumerate(named.values()):
        store.save(a_trace(n, metadata={"attrkit": {"engine": engine}}))
    found = [(pending.engine, pending.object) for pending in store.pending()]
    assert found == [("hf:m", None), (None, "test:additive"), (None, None), (None, None), (None, None)]


@pytest.mark.parametrize("own", [{"engine": "hf:theirs", "sampled": False}, {"attrkit": "text"}, {"attrkit": [1]}])
def test_keys_of_an_applications_own_mean_nothing(store, own):
    """Else a framework's metadata could name the engine that is spent on."""
    store.save(trace := a_trace(1, metadata=own))
    assert list(store.pending()) == [PendingTrace(trace.id)]


def test_filters_are_those_of_the_listing(store):
    old, tagged, chain = a_trace(0), a_trace(10, tags=("shop", "x")), a_trace(20, framework="langchain")
    for trace in (old, tagged, chain):
        store.save(trace)
    assert ids(store, tag="shop") == [tagged.id]
    assert ids(store, framework="langchain") == [chain.id]
    assert ids(store, since=START + timedelta(minutes=10)) == [tagged.id, chain.id]
    assert ids(store, since=(START + timedelta(minutes=10)).replace(tzinfo=None), tag="shop") == [tagged.id]
    assert ids(store, tag="x", framework="langchain") == []


@pytest.mark.parametrize("column", ["metadata", "id"])
def test_a_damaged_row_hides_no_other(store, column):
    damaged, whole = a_trace(1), a_trace(2)
    store.save(damaged)
    store.save(whole)
    with store._database.writing() as db:
        db.execute("PRAGMA defer_foreign_keys = ON")
        if column == "id":
            for table in ("traces", "generations", "turns"):
                name = "id" if table == "traces" else "trace_id"
                db.execute(f"UPDATE {table} SET {name} = CAST(x'74725fff' AS TEXT) WHERE {name} = ?", [damaged.id])  # noqa: S608
        else:
            db.execute("UPDATE traces SET metadata = '{' WHERE id = ?", [damaged.id])
    assert ids(store)[-1] == whole.id
    assert len(ids(store)) == 2


def test_pages_cover_everything_once_while_the_store_changes(store, monkeypatch):
    monkeypatch.setattr(pending_module, "PAGE", 3)
    same_time = [replace(a_trace(), started=START) for _ in range(8)]
    for trace in same_time:
        store.save(trace)
    seen = []
    for pending in store.pending():
        seen.append(pending.id)
        store.save_attribution(attributed(store.get(pending.id)))  # as a worker does
        if len(seen) == 4:
            store.save(late := a_trace(30))
    assert sorted(seen[:8]) == sorted(trace.id for trace in same_time)
    assert seen[8:] == [late.id]
    assert ids(store) == []


@given(st.lists(st.booleans(), max_size=30))
def test_what_waits_is_what_has_no_attribution(flags):
    with Store(":memory:") as store:
        waits = []
        for n, done in enumerate(flags):
            store.save(trace := a_trace(n))
            if done:
                store.save_attribution(replace(_ANY, trace_id=trace.id, generation_id=trace.generations[0].id))
            else:
                waits.append(trace.id)
        assert ids(store) == waits


_ANY = attributed(a_trace())


def test_a_trace_is_added_once_and_never_over_another(store):
    trace = a_trace(metadata={"version": 1})
    assert store.add(trace)
    assert not store.add(replace(trace, metadata={"version": 2}))
    assert store.get(trace.id) == trace
    assert trace.id in store
    assert "tr_absent" not in store
    assert None not in store


def test_a_result_brings_its_segments_and_nothing_else(store):
    engine = AdditiveEngine({"1911": {FACT: 9.0}})
    trace = a_trace(metadata={"version": 1})
    found = attribute(trace, engine=engine, db=":memory:")
    cut = replace(trace.generations[0], segments=found.segments, response="another answer")
    store.save(newer := replace(trace, metadata={"version": 2}))
    store.save_attribution(found, cut=cut)
    kept = store.get(trace.id)
    assert kept.generations[0].segments == found.segments
    assert kept.with_generation(replace(kept.generations[0], segments=())) == newer
    changed = replace(trace.generations[0], messages=(Message("user", "another"),))
    store.save(trace.with_generation(changed))
    store.save_attribution(found, cut=cut)
    assert store.get(trace.id).generations[0] == changed


def day(n):
    return (START + timedelta(days=n)).date()


def test_a_reservation_counts_until_it_is_settled(store, monkeypatch):
    monkeypatch.setattr(spending, "_today", lambda: day(0))
    account, within = store.spending, Budget(calls=10, tokens=1000, usd=1.0)
    first = account.reserve(Cost(calls=6, tokens_in=600, usd=0.5), within=within)
    for most in (Cost(calls=5), Cost(tokens_in=401), Cost(usd=0.51)):
        with pytest.raises(PostponedError, match="it can be done tomorrow"):
            account.reserve(most, within=within)
    account.settle(first, Cost(calls=2, tokens_in=90, tokens_out=10, usd=0.125))
    assert account.today() == Cost(calls=2, tokens_in=100, usd=0.125)
    account.reserve(Cost(calls=8, tokens_in=900, usd=0.875), within=within)
    assert account.today() == Cost(calls=10, tokens_in=1000, usd=1.0)


def test_each_day_has_an_account_of_its_own_and_a_run_belongs_to_the_day_it_began(store, monkeypatch):
    monkeypatch.setattr(spending, "_today", lambda: day(0))
    overnight = store.spending.reserve(Cost(calls=9), within=Budget(calls=10))
    monkeypatch.setattr(spending, "_today", lambda: day(1))
    store.spending.reserve(Cost(calls=10), within=Budget(calls=10))
    store.spending.settle(overnight, Cost(calls=1))
    assert [store.spending.of(day(n)).calls for n in range(3)] == [1, 10, 0]


def test_what_a_whole_day_could_not_pay_is_refused_not_postponed(store):
    for most, message in (
        (Cost(calls=11), "11 calls, the budget of a day is 10"),
        (Cost(usd=float("nan")), "price is unknown"),
    ):
        with pytest.raises(BudgetExceededError, match=message) as raised:
            store.spending.reserve(most, within=Budget(calls=10, usd=5.0))
        assert not isinstance(raised.value, PostponedError)
    store.spending.reserve(Cost(calls=1, usd=float("nan")), within=Budget(calls=10))
    assert store.spending.today() == Cost(calls=1)


@pytest.mark.parametrize("damaged", ["nonsense", [1], {"calls": "many"}, {}])
def test_no_cap_is_said_to_hold_where_the_days_account_is_damaged(store, damaged):
    store.memory[f"spent:{spending._today().isoformat()}"] = damaged
    with pytest.raises(StoreError, match="of table memory to count it from nothing"):
        store.spending.today()
    with pytest.raises(StoreError, match="is damaged"):
        store.spending.reserve(Cost(calls=1), within=Budget(calls=10))
    store.spending.reserve(Cost(calls=1))
    assert store.spending.today() == Cost(calls=1), "without caps there is nothing to break, and it begins anew"


def test_a_cap_holds_over_many_threads_and_connections(tmp_path):
    path = tmp_path / "a.db"
    taken = []

    def reserve(store):
        for _ in range(20):
            try:
                taken.append(store.spending.reserve(Cost(calls=3), within=Budget(calls=100)))
            except PostponedError:
                return

    with Store(path) as one, Store(path) as other:
        threads = [threading.Thread(target=reserve, args=(store,)) for store in (one, other) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert (len(taken), one.spending.today().calls) == (33, 99)
        for reservation in taken:
            other.spending.settle(reservation, Cost(calls=1))
        assert one.spending.today() == Cost(calls=33)
