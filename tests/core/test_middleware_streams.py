"""Streams pass through as they are and are recorded when they end, however they end."""

import asyncio
import collections.abc
import gc
import inspect
import subprocess
import sys
import types

import pytest

from attr_core.middleware import flush_logging, with_logging
from attr_core.store import Store

QUESTION = {"role": "user", "content": "When did the fair open?"}


def chunk(content=None, finish_reason=None, index=0, **delta):
    if content is not None:
        delta["content"] = content
    return {"model": "served", "choices": [{"index": index, "delta": delta, "finish_reason": finish_reason}]}


CHUNKS = [chunk("In "), chunk("1911."), chunk(finish_reason="stop"), {"choices": [], "usage": {"total_tokens": 7}}]


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "attrkit.db") as opened:
        yield opened
        flush_logging()


@pytest.fixture
def stream_of(store):
    """A logged call that gives ``original``."""

    def open_stream(original, **options):
        return with_logging(lambda model, messages: original, store=store, **options)("m", [QUESTION])

    return open_stream


@pytest.fixture
def last(store):
    def read():
        assert flush_logging()
        return store.last()

    return read


def generator(chunks=CHUNKS, error=None):
    yield from chunks
    if error is not None:
        raise error


async def async_generator(chunks=CHUNKS, error=None):
    for each in chunks:
        yield each
    if error is not None:
        raise error


def drained(stream):
    if not hasattr(type(stream), "__anext__"):
        return list(stream)

    async def read():
        return [each async for each in stream]

    return asyncio.run(read())


both = pytest.mark.parametrize("make", [generator, async_generator])


@both
def test_every_chunk_is_the_same_object_in_the_same_order(make, stream_of, last):
    stream = stream_of(make())
    passed = drained(stream)
    assert all(mine is theirs for mine, theirs in zip(passed, CHUNKS, strict=True))
    assert passed == [chunk("In "), chunk("1911."), chunk(finish_reason="stop"), CHUNKS[3]]
    trace = last()
    assert trace.id == stream.attrkit["trace_id"]
    assert (trace.status, trace.answer, trace.error) == ("ok", "In 1911.", None)
    assert (trace.generations[0].finish_reason, trace.generations[0].usage) == ("stop", {"total_tokens": 7})
    assert trace.metadata == {"response_model": "served"}


def test_nothing_is_stored_before_the_stream_ends(stream_of, store):
    stream = stream_of(generator())
    next(stream)
    assert flush_logging()
    assert store.list() == []
    assert stream.attrkit["trace_id"]


@both
def test_a_stream_that_is_let_go_of_is_partial(make, stream_of, last):
    stream = stream_of(make())
    if make is generator:
        next(stream)
    else:
        asyncio.run(_first(stream))
    stream = None
    gc.collect()
    assert (last().status, last().answer, last().error) == ("partial", "In ", None)


async def _first(stream):
    return await anext(stream)


@both
def test_a_closed_stream_is_partial_and_recorded_once(make, stream_of, last, store):
    stream = stream_of(make())
    if make is generator:
        next(stream)
        stream.close()
        stream.close()
    else:

        async def main():
            await anext(stream)
            await stream.aclose()

        asyncio.run(main())
    assert (last().status, last().answer) == ("partial", "In ")
    stream = None
    gc.collect()
    assert flush_logging()
    assert len(store.list()) == 1


def test_a_stream_that_was_never_read_has_no_answer(stream_of, last):
    stream_of(generator()).close()
    assert (last().status, last().answer) == ("partial", None)


def test_an_open_stream_is_recorded_when_the_program_ends(tmp_path):
    program = f"""
from attr_core import with_logging
stream = with_logging(lambda model, messages: iter([{CHUNKS[0]}, {CHUNKS[1]}]), db={str(tmp_path / "a.db")!r})(
    "m", [{QUESTION}]
)
next(stream)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    with Store(tmp_path / "a.db") as store:
        assert (store.last().status, store.last().answer) == ("partial", "In ")


def test_a_host_that_stops_at_the_finish_reason_has_the_whole_answer(stream_of, last):
    stream = stream_of(generator())
    for each in stream:
        if each["choices"][0]["finish_reason"]:
            break
    stream.close()
    assert (last().status, last().answer) == ("ok", "In 1911.")


@both
def test_an_error_in_mid_stream_reaches_the_host_as_the_same_object(make, stream_of, last):
    mine = ValueError("cut off")
    with pytest.raises(ValueError, match="cut off") as raised:
        drained(stream_of(make(CHUNKS[:1], mine)))
    assert raised.value is mine
    assert mine.__context__ is None
    assert (last().status, last().answer, last().error) == ("error", "In ", "ValueError: cut off")


def test_an_interrupted_stream_is_recorded_as_such(stream_of, last):
    stream = stream_of(generator(CHUNKS[:1], KeyboardInterrupt()))
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    stream = None
    gc.collect()
    assert (last().status, last().answer) == ("interrupted", "In ")


def test_a_cancelled_read_does_not_end_a_stream_that_goes_on(stream_of, last):
    class Slow:
        n = 0

        def __aiter__(self):
            return self

        async def __anext__(self):
            await asyncio.sleep(0.02)
            if self.n == len(CHUNKS):
                raise StopAsyncIteration
            self.n += 1
            return CHUNKS[self.n - 1]

    async def main():
        stream = stream_of(Slow())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.001)
        return [each async for each in stream]

    assert asyncio.run(main()) == CHUNKS
    assert (last().status, last().answer) == ("ok", "In 1911.")


def test_a_generator_stays_one_in_every_respect(stream_of, last):
    def echo():
        try:
            got = yield chunk("a")
            yield chunk(got)
        except ValueError:
            yield chunk("caught")
        return "result"

    stream = stream_of(echo())
    assert inspect.isgenerator(stream)
    assert isinstance(stream, collections.abc.Generator)
    assert (type(iter(stream)), iter(stream) is stream) == (type(stream), True)
    assert next(stream) == chunk("a")
    assert stream.gi_frame is not None
    assert stream.send("b") == chunk("b")
    assert stream.throw(ValueError()) == chunk("caught")
    with pytest.raises(StopIteration) as stopped:
        next(stream)
    assert stopped.value.value == "result"
    assert last().answer == "abcaught"


class Client(collections.abc.Iterator):
    """A stream with manners of its own."""

    label = "original"

    def __init__(self):
        self.chunks = iter(CHUNKS)
        self.events = []

    def __next__(self):
        return next(self.chunks)

    def __iter__(self):
        return (each for each in self.chunks)

    def __enter__(self):
        self.events.append("enter")
        return self

    def __exit__(self, *exception):
        self.events.append(exception[0])
        return True

    def __len__(self):
        return 4

    def __repr__(self):
        return "<client's stream>"

    def __getitem__(self, key):
        return key * 2


def test_attributes_operators_and_context_management_are_the_originals(stream_of, last):
    original = Client()
    stream = stream_of(original)
    assert isinstance(stream, Client)
    assert not isinstance(stream, types.GeneratorType)
    assert (stream.label, len(stream), repr(stream), stream[3]) == ("original", 4, "<client's stream>", 6)
    stream.label = "changed"
    assert original.label == "changed"
    del stream.label
    assert original.label == "original"
    assert not hasattr(stream, "aclose")
    assert not hasattr(stream, "__anext__")
    assert dir(stream) == dir(original)
    with stream as entered:
        assert entered is stream
        assert next(entered) is CHUNKS[0]
        raise ValueError("of the host")  # which this stream's __exit__ swallows
    assert original.events == ["enter", ValueError]
    assert (last().status, last().answer) == ("partial", "In ")


def test_what_a_streams_own_iterator_gives_is_recorded_too(stream_of, last):
    stream = stream_of(Client())
    for each in stream:
        assert each is CHUNKS[0]
        break
    assert list(stream) == CHUNKS[1:]
    assert (last().status, last().answer) == ("ok", "In 1911.")


def test_stamping_can_be_switched_off(stream_of, last):
    stream = stream_of(generator(), stamp=False)
    assert not hasattr(stream, "attrkit")
    assert list(stream) == CHUNKS
    assert last().answer == "In 1911."


@pytest.mark.parametrize("response", [[1, 2], {"a": 1}, "text", (1,), range(3)], ids=repr)
def test_what_can_be_iterated_but_is_no_stream_is_not_wrapped(stream_of, response):
    assert stream_of(response, stamp=False) is response


def call_piece(index, identifier, name, arguments):
    return {"index": index, "id": identifier, "function": {"name": name, "arguments": arguments}}


def call_delta(*piece):
    return chunk(tool_calls=[call_piece(*piece)])


@pytest.mark.parametrize(
    "deltas",
    [
        [call_delta(0, "a", "f", '{"x"'), call_delta(0, None, None, ": 1}"), call_delta(1, "b", "g", "{}")],
        [call_delta(0, "a", "f", '{"x": 1}'), call_delta(0, "b", "g", "{}")],
        [call_delta(None, "a", "f", '{"x": '), call_delta(None, None, None, "1}"), call_delta(None, "b", "g", "{}")],
        [chunk(tool_calls=[call_piece(None, "a", "f", '{"x": 1}'), call_piece(None, "b", "g", "{}")])],
        [call_delta(0, "a", "f", ""), call_delta(1, "b", "g", "{}"), call_delta(0, None, None, '{"x": 1}')],
    ],
    ids=["numbered", "all numbered 0", "not numbered", "at once", "interleaved"],
)  # fmt: skip
def test_pieces_of_tool_calls_are_put_together(stream_of, last, deltas):
    list(stream_of(generator([*deltas, chunk(finish_reason="tool_calls")])))
    calls = last().generations[0].tool_calls
    assert [(call.id, call.name, call.arguments) for call in calls] == [("a", "f", {"x": 1}), ("b", "g", {})]
    assert last().answer is None


def test_of_several_choices_the_first_is_recorded(stream_of, last):
    list(stream_of(generator([chunk("no", index=1), chunk("yes"), chunk("no", index=1)])))
    assert last().answer == "yes"


def test_reasoning_refusals_legacy_calls_and_plain_text_are_put_together(stream_of, last):
    list(stream_of(generator([chunk(reasoning_content="be"), chunk(reasoning="cause"), chunk(refusal="No.")])))
    assert (last().generations[0].reasoning, last().answer) == ("because", "No.")
    pieces = [{"name": "f", "arguments": '{"x'}, {"arguments": '": 1}'}]
    list(stream_of(generator([chunk(function_call=piece) for piece in pieces])))
    assert last().generations[0].tool_calls[0].arguments == {"x": 1}
    list(stream_of(iter(["In ", "1911."])))
    assert last().answer == "In 1911."


def event(kind, **fields):
    return {"type": f"response.{kind}", **fields}


def test_events_without_a_last_one_are_put_together_as_far_as_they_go(stream_of, last):
    events = [
        event("created", response={"id": "r", "model": "served"}),
        event("output_item.added", output_index=0, item={"type": "reasoning", "id": "t"}),
        event("reasoning_summary_text.delta", output_index=0, delta="Look"),
        event("output_item.added", output_index=1, item={"type": "custom_tool_call", "call_id": "c", "name": "sql"}),
        event("custom_tool_call_input.delta", output_index=1, delta="SELECT 1"),
        event("output_item.added", output_index=2, item={"type": "message", "content": []}),
        event("output_text.delta", output_index=2, delta="In "),
        event("output_item.done", output_index=3, item={"type": "function_call", "call_id": "d", "name": "f"}),
        event("output_item.added", output_index=4, item={"type": "message", "content": []}),
        event("refusal.delta", output_index=4, delta="No."),
    ]
    list(stream_of(generator(events)))
    generation = last().generations[0]
    assert (last().status, last().answer, generation.reasoning) == ("partial", "In ", "Look")
    assert [(call.id, call.name, call.arguments) for call in generation.tool_calls] == [
        ("c", "sql", "SELECT 1"),
        ("d", "f", {}),
    ]
    assert last().metadata == {"response_id": "r", "response_model": "served"}


@pytest.mark.parametrize(
    ("kind", "status", "finish_reason"),
    [("completed", "ok", "completed"), ("incomplete", "ok", "max_output_tokens"), ("failed", "error", "failed")],
)
def test_the_last_event_says_how_it_ended(stream_of, last, kind, status, finish_reason):
    whole = {"id": "r", "status": kind, "output": [{"type": "message", "content": [{"text": "In 1911."}]}]}
    whole |= {"incomplete_details": {"reason": "max_output_tokens"}} if kind == "incomplete" else {}
    whole |= {"error": {"code": "server_error", "message": "broken"}} if kind == "failed" else {}
    list(stream_of(generator([event(kind, response=whole)])))
    trace = last()
    assert (trace.status, trace.answer) == (status, "In 1911.")
    assert trace.generations[0].finish_reason == finish_reason
    assert trace.error == ("broken" if kind == "failed" else None)


def test_a_chunk_that_cannot_be_read_passes_and_the_trace_says_so(stream_of, last):
    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError("hostile")

    odd = Hostile()
    stream = stream_of(iter([CHUNKS[0], odd, *CHUNKS[1:]]))
    with pytest.warns(RuntimeWarning, match="hostile"):
        passed = list(stream)
    assert passed[1] is odd
    assert (last().status, last().answer) == ("partial", "In 1911.")
    assert last().error == "a chunk could not be read (RuntimeError)"
