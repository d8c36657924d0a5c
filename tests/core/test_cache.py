"""What was measured is found again by exactly what was sent, and nothing damaged or foreign is."""

import sqlite3
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attr_core import cache as cache_module
from attr_core._storage import measurements
from attr_core.cache import DEFAULT_MAX_BYTES, Cache, cache_key
from attr_core.errors import CacheError, ConfigurationError, InputError
from attr_core.protocols import Completion, GateScores, Sampling, TokenScores
from attr_core.store import Store
from attr_core.types import Message, Prompt, ToolCall, Trace

PROMPT = Prompt(
    (Message("system", "Be brief."), Message("user", "When?")), ({"type": "function", "function": {"a": 1}},)
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "attrkit.db"


@pytest.fixture(params=["file", "memory"])
def cache(request, path):
    with Cache(path if request.param == "file" else ":memory:") as opened:
        yield opened


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def __call__(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(cache_module, "_now", clock)
    return clock


def scores(n=3, seed=0):
    rng = np.random.default_rng(seed)
    ends = np.arange(1, n + 1)
    return TokenScores(-rng.exponential(size=n), np.stack([ends - 1, ends], axis=1), tokens_in=17)


def same(one, other):
    return (
        one.logprobs.tobytes() == other.logprobs.tobytes()
        and np.array_equal(one.offsets, other.offsets)
        and (one.offsets.dtype, one.tokens_in) == (np.int64, other.tokens_in)
    )


def key_of(**changes):
    values = {"kind": "score", "fingerprint": "hf:m", "prompt": PROMPT, "continuation": "In 1911.", **changes}
    return cache_key(values.pop("kind"), values.pop("fingerprint"), values.pop("prompt"), **values)


def vandalise(path, sql, *parameters):
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(sql, parameters).rowcount > 0
    connection.close()


def test_key_is_a_sha256_that_stays_the_same_between_versions():
    assert key_of() == key_of()
    assert cache_key("embed", "st:m", "text") == "74567b212e8dd4c75c8f7eef7c7ad02e43fc7ceb4854e304ab1e9741e1d34049"


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "generate"},
        {"fingerprint": "hf:other"},
        {"continuation": "In 1912."},
        {"continuation": ""},
        {"continuation": None},
        {"repeat": 1},
        {"sampling": Sampling()},
        {"sampling": Sampling(max_tokens=1)},
        {"sampling": Sampling(temperature=1.0)},
        {"sampling": Sampling(seed=1)},
        {"sampling": Sampling(stop=("x",))},
        {"prompt": replace(PROMPT, tools=())},
        {"prompt": replace(PROMPT, messages=PROMPT.messages[:1])},
        {"prompt": replace(PROMPT, messages=PROMPT.messages[::-1])},
        {"prompt": replace(PROMPT, messages=(Message("system", "Be brief.When?"), Message("user", "")))},
        {"prompt": replace(PROMPT, messages=(PROMPT.messages[0], Message("user", "When?", name="Ann")))},
        {"prompt": replace(PROMPT, messages=(PROMPT.messages[0], Message("tool", "When?", tool_call_id="c")))},
        {
            "prompt": replace(
                PROMPT, messages=(*PROMPT.messages, Message("assistant", "", tool_calls=(ToolCall("c", "f"),)))
            )
        },
        {"prompt": "When?"},
    ],
)
def test_whatever_is_sent_differently_has_another_key(changes):
    assert key_of(**changes) != key_of()


def test_a_lone_surrogate_pair_is_not_the_character_it_would_encode():
    assert cache_key("embed", "f", "\ud83d\ude00") != cache_key("embed", "f", "😀")


def test_the_order_of_a_tool_schema_is_part_of_what_is_sent():
    one, other = {"b": 1, "a": 2}, {"a": 2, "b": 1}
    assert key_of(prompt=replace(PROMPT, tools=(one,))) != key_of(prompt=replace(PROMPT, tools=(other,)))


def test_metadata_and_identity_are_not_part_of_the_key():
    marked = tuple(replace(message, metadata={"rag_chunk_id": "1"}) for message in PROMPT.messages)
    assert key_of(prompt=replace(PROMPT, messages=marked)) == key_of()
    assert key_of(sampling=Sampling(temperature=0)) == key_of(sampling=Sampling(temperature=0.0))


def test_a_tool_schema_that_is_not_json_is_refused():
    with pytest.raises(InputError, match="plain values"):
        key_of(prompt=replace(PROMPT, tools=({"a": {1}},)))


FLOATS = hnp.arrays(np.float64, st.integers(0, 6), elements=st.floats(width=64))


@settings(deadline=None)
@given(FLOATS, st.integers(0, 2**40), st.data())
def test_scores_come_back_to_the_bit(logprobs, tokens, data):
    spans = st.integers(0, 2**62)
    offsets = data.draw(hnp.arrays(np.int64, (len(logprobs), 2), elements=spans))
    with Cache(":memory:") as cache:
        put = TokenScores(logprobs, offsets, tokens)
        cache.put_scores({"k": put})
        assert same(cache.get_scores(["k"])["k"], put)


@settings(deadline=None)
@given(FLOATS | hnp.arrays(np.float32, st.integers(0, 6), elements=st.floats(width=32)))
def test_vectors_come_back_to_the_bit_as_float64(vector):
    with Cache(":memory:") as cache:
        cache.put_vectors({"k": vector})
        read = cache.get_vectors(["k"])["k"]
        assert read.dtype == np.float64
        assert read.tobytes() == vector.astype(np.float64).tobytes()


COUNTS = st.none() | st.integers(0, 2**40)


@settings(deadline=None)
@given(
    st.builds(
        Completion,
        text=st.text(st.characters(codec=None)),
        finish_reason=st.none() | st.text(),
        tokens_in=COUNTS,
        tokens_out=COUNTS,
    )
)
def test_completions_come_back_exactly(completion):
    with Cache(":memory:") as cache:
        cache.put_completions({"k": completion})
        assert cache.get_completions(["k"]) == {"k": completion}


def test_float32_vectors_take_half_the_space(path):
    vector = np.random.default_rng(0).normal(size=384)
    with Cache(path) as cache:
        cache.put_vectors({"wide": vector, "narrow": vector.astype(np.float32).astype(np.float64)})
    connection = sqlite3.connect(path)
    sizes = dict(connection.execute("SELECT key, length(value) FROM measurements"))
    connection.close()
    assert sizes["narrow"] < 384 * 4 + 100 < 384 * 8 <= sizes["wide"]


def test_only_what_is_known_is_returned(cache):
    cache.put_completions({"a": Completion("1")})
    assert cache.get_completions(["a", "b", "a"]) == {"a": Completion("1")}
    assert cache.get_completions([]) == {}
    assert cache.get_scores(["a"]) == {}
    cache.put_completions({})


def test_putting_again_overwrites(cache):
    cache.put_completions({"a": Completion("1")})
    cache.put_completions({"a": Completion("2")})
    assert cache.get_completions(["a"]) == {"a": Completion("2")}
    assert cache.stats().n_entries == 1


def test_more_keys_than_sqlite_has_variables(cache):
    many = {f"k{i}": Completion(str(i)) for i in range(40_000)}
    cache.put_completions(many)
    assert cache.get_completions(iter(many)) == many


def test_measured_values_outlive_the_process_and_share_the_file_of_the_traces(path):
    trace = Trace.from_messages([{"role": "user", "content": "q"}], "a")
    with Store(path) as store, Cache(path) as cache:
        store.save(trace)
        cache.put_scores({"k": scores()})
    with Store(path) as store, Cache(path) as cache:
        assert same(cache.get_scores(["k"])["k"], scores())
        assert cache.clear() == 1
        assert store.get(trace.id) == trace


def test_default_file_is_the_stores(tmp_path, monkeypatch):
    monkeypatch.setenv("ATTRKIT_DB", str(tmp_path / "env.db"))
    with Store() as store, Cache() as cache:
        assert cache.path == store.path == str(tmp_path / "env.db")


DAMAGE = {
    "cut short": "UPDATE measurements SET value = substr(value, 1, length(value) - 1)",
    "too long": "UPDATE measurements SET value = CAST(value || x'00' AS BLOB)",
    "empty": "UPDATE measurements SET value = x''",
    "text": "UPDATE measurements SET value = 'text'",
    "another row's": "UPDATE measurements SET key = 'k' || key",
    "one bit": "UPDATE measurements SET value = CAST(substr(value, 1, length(value) - 1) || x'55' AS BLOB)",
}


@pytest.mark.parametrize("sql", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("kind", ["scores", "completions", "vectors", "gates"])
def test_a_damaged_row_counts_as_absent_and_can_be_measured_again(path, sql, kind):
    values = {"scores": scores(), "completions": Completion("text"), "vectors": np.ones(3)}
    value = {**values, "gates": GateScores(np.ones(2), np.ones((2, 3)), 5)}[kind]
    with Cache(path) as cache:
        put, get = getattr(cache, f"put_{kind}"), getattr(cache, f"get_{kind}")
        put({"k": value})
        vandalise(path, sql)
        assert get(["k", "kk"]) == {}
        put({"k": value, "other": value})
        assert set(get(["k", "other"])) == {"k", "other"}


@pytest.mark.parametrize(
    "blob",
    [
        measurements.pack({"tokens_in": 1}, [np.zeros(3), np.zeros((2, 2), dtype=np.int64)]),
        measurements.pack({"tokens_in": 1}, [np.zeros(3), np.zeros((3, 2))]),
        measurements.pack({"tokens_in": 1}, [np.zeros(3, dtype=np.int32), np.zeros((3, 2), dtype=np.int64)]),
        measurements.pack({"tokens_in": 1}, [np.zeros(3)]),
        measurements.pack({}, [np.zeros(3), np.zeros((3, 2), dtype=np.int64)]),
        b'{"arrays": [["O", [1]]]}\n12345678',
        b'{"arrays": [["<f8", [-1]]]}\n',
        b'{"arrays": 5}\n',
        b"[]\n",
        b"\xff\n",
    ],
)
def test_arrays_of_another_type_or_shape_count_as_absent_though_their_checksum_is_right(path, blob):
    with Cache(path) as cache:
        cache.put_scores({"k": scores()})
        vandalise(path, "UPDATE measurements SET value = ?, checksum = ?", blob, cache_module._checksum("k", blob))
        assert cache.get_scores(["k"]) == {}


def test_least_recently_used_go_first(clock):
    text = "x" * 1000
    with Cache(":memory:", max_bytes=7_000) as cache:
        for name in "abcde":
            clock.now += 100
            cache.put_completions({name: Completion(text)})
        clock.now += 100
        cache.get_completions(["a"])
        clock.now += 100
        cache.put_completions({"f": Completion(text)})
        assert set(cache.get_completions("abcdef")) == set("acdef")
        assert cache.stats().n_bytes <= 7_000


def test_the_size_never_passes_the_cap(clock):
    with Cache(":memory:", max_bytes=50_000) as cache:
        for i in range(200):
            clock.now += 1
            cache.put_completions({f"{i}-{j}": Completion("x" * 200 * j) for j in range(4)})
            assert cache.stats().n_bytes <= 50_000
        assert cache.stats().n_bytes > 25_000


def test_a_value_larger_than_the_cap_is_not_kept():
    with Cache(":memory:", max_bytes=1000) as cache:
        cache.put_completions({"a": Completion("x" * 2000)})
        assert cache.get_completions(["a"]) == {}


def test_pruning_gives_space_back_to_the_file_system(path):
    with Cache(path) as cache:
        cache.put_completions({str(i): Completion("x" * 10_000) for i in range(300)})
    full = path.stat().st_size
    with Cache(path) as cache:
        assert cache.prune() == 0
        assert cache.prune(max_bytes=cache.stats().n_bytes // 2) == 150
    assert path.stat().st_size < 0.7 * full


def test_stats_count_by_kind(cache):
    cache.put_completions({"a": Completion("1"), "b": Completion("2")})
    cache.put_vectors({"c": np.ones(2)})
    stats = cache.stats()
    assert stats.n_entries == 3
    assert stats.kinds == {"completions": 2, "vectors": 1}
    assert 0 < stats.n_bytes < stats.max_bytes == DEFAULT_MAX_BYTES
    assert cache.clear() == 3
    assert cache.stats().n_bytes == 0


def test_size_cap_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("ATTRKIT_CACHE_MAX_BYTES", "12345")
    with Cache(":memory:") as cache:
        assert cache.max_bytes == 12345
    with Cache(":memory:", max_bytes=0) as cache:
        assert cache.max_bytes == 0
    for wrong in ("1GB", "-1", "1.5"):
        monkeypatch.setenv("ATTRKIT_CACHE_MAX_BYTES", wrong)
        with pytest.raises(ConfigurationError, match=f"'{wrong}'"):
            Cache(":memory:")


def test_reading_succeeds_while_another_process_holds_the_write_lock(path, clock, monkeypatch):
    monkeypatch.setattr("attr_core._storage.database.BUSY_SECONDS", 0.05)
    with Cache(path) as cache:
        cache.put_completions({"a": Completion("1")})
        clock.now += 1e6
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        assert cache.get_completions(["a"]) == {"a": Completion("1")}
        holder.execute("ROLLBACK")
        holder.close()


def test_what_a_locked_file_does_not_take_is_kept_found_and_written_later(path, monkeypatch):
    monkeypatch.setattr("attr_core._storage.database.BUSY_SECONDS", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    with Cache(path) as cache:
        cache.put_completions({"a": Completion("1")})
        holder.execute("BEGIN IMMEDIATE")
        with pytest.warns(RuntimeWarning, match="stay in memory: .* is locked"):
            cache.put_completions({"b": Completion("2")})
        cache.put_scores({"c": scores()})  # which warns no second time
        assert "locked" in cache.trouble
        assert cache.get_completions("abc") == {"a": Completion("1"), "b": Completion("2")}
        assert same(cache.get_scores(["c"])["c"], scores())
        holder.execute("ROLLBACK")
        cache.put_completions({"d": Completion("4")})
        assert cache.trouble is None
    holder.close()
    with Cache(path) as cache:
        assert cache.stats().n_entries == 4


def test_what_a_locked_file_did_not_take_is_tried_again_on_closing(path, monkeypatch):
    monkeypatch.setattr("attr_core._storage.database.BUSY_SECONDS", 0.05)
    cache, holder = Cache(path), sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.warns(RuntimeWarning, match="locked"):
        cache.put_completions({"a": Completion("1")})
    holder.execute("ROLLBACK")
    holder.close()
    cache.close()
    with Cache(path) as cache:
        assert cache.get_completions(["a"]) == {"a": Completion("1")}


def test_a_warning_that_is_an_error_does_not_stop_the_measuring(path, monkeypatch):
    monkeypatch.setattr("attr_core._storage.database.BUSY_SECONDS", 0.05)
    with Cache(path) as cache, warnings.catch_warnings():
        warnings.simplefilter("error")
        path.unlink()
        cache.put_completions({"a": Completion("1")})
        assert cache.get_completions(["a"]) == {"a": Completion("1")}
        assert "moved, replaced or deleted" in cache.trouble


def test_a_file_that_is_damaged_underneath_costs_the_old_values_only(path):
    with Cache(path) as cache:
        cache.put_completions({str(i): Completion("x" * 2_000) for i in range(100)})
    with Cache(path) as cache:
        cache.stats()
        path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 300_000)
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert cache.get_completions(["5"]) == {}
        cache.put_completions({"new": Completion("2")})
        assert cache.get_completions(["new"]) == {"new": Completion("2")}


def test_a_closed_cache_says_so_and_takes_nothing(path):
    cache = Cache(path)
    cache.close()
    with pytest.raises(CacheError, match="was closed"):
        cache.put_completions({"a": Completion("1")})
    with pytest.raises(CacheError, match="was closed"):
        cache.get_completions(["a"])


def test_threads_share_a_cache(cache):
    def work(i):
        for j in range(20):
            cache.put_completions({f"{i}-{j}": Completion(f"{i}-{j}")})
            assert cache.get_completions([f"{i}-{j}"])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.stats().n_entries == 80


def test_file_that_is_no_database_is_a_cache_error(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("notes" * 1000)
    with pytest.raises(CacheError, match=r"notes\.txt is not an SQLite database"):
        Cache(path)
