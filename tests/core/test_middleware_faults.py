"""Whatever fails inside the recording, the host sees what it would have seen without it.

Every function, method, class and module that the recording uses is found by looking, and made to fail in turn: a step
that is added is covered without being named here.
"""

import asyncio
import contextlib
import copy
import inspect
import pkgutil
import types
import warnings
from importlib import import_module

import pytest

import attr_core._recording
from attr_core import _redact, middleware
from attr_core._recording import membrane, recorder, streams, writer
from attr_core.store import Store
from attr_core.types import Document, Generation, Message, Trace

MEMBRANE = {
    # What stands between the host and a fault; that these hold is what the other tests here show.
    "membrane.safely",
    "streams.safely",
    "streams._step.step",
    "streams._ended",
    "recorder.safely",
    "writer.safely",
    "middleware.safely",
    "middleware.with_logging",
    "streams.inspect",  # decides between a close() that is awaited and one that is not
    "middleware.functools",
    "middleware.inspect",
    "recorder.Recorder.awaited",  # a coroutine function: it fails where it is awaited, as the host's own
    # Methods through which the host itself reaches a stream that was already handed out.
    *(f"streams._Proxy.{name}" for name in vars(streams._Proxy)),
    *(f"streams.{name}" for name in ("_step", "_async_step", "_end", "_async_end", "_view", "_async_view")),
}


def modules():
    found = [
        import_module(info.name)
        for info in pkgutil.iter_modules(attr_core._recording.__path__, "attr_core._recording.")
    ]
    return [*found, _redact, middleware]


def steps():
    """(holder, attribute, name) of everything a recording may call, in its own modules and in what those import."""
    for module in modules():
        short = module.__name__.rpartition(".")[2]
        for name, value in vars(module).items():
            if name.startswith("__") or not (callable(value) or isinstance(value, types.ModuleType)):
                continue
            if getattr(value, "__module__", "") in ("typing", "dataclasses") and name != "replace":
                continue  # for annotations and definitions, which are over by now
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from ((value, method, f"{short}.{name}.{method}") for method in methods(value))
            else:
                yield module, name, f"{short}.{name}"
    for shared in (Message, Document, Generation, Trace, Store):
        yield from ((shared, method, f"{shared.__name__}.{method}") for method in methods(shared))


def methods(kind):
    return [
        name
        for name, value in vars(kind).items()
        if isinstance(value, types.FunctionType | classmethod | staticmethod | property)
        and name not in ("__repr__", "__eq__", "__hash__", "__dir__", "__del__", "__setattr__", "__delattr__")
        and (
            kind.__module__.endswith(("_recording", "_redact"))
            or "_recording." in kind.__module__
            or not name.startswith("__")
        )
    ]


STEPS = [pytest.param(holder, name, id=label) for holder, name, label in steps() if label not in MEMBRANE]


class InjectedError(Exception):
    """Ours, made on purpose."""


class BrokenModule:
    def __getattr__(self, name):
        raise InjectedError(name)


def broken(original, after):
    """``original`` with every call from the ``after``-th on failing."""
    if isinstance(original, types.ModuleType):
        return BrokenModule()
    n_calls = 0

    def fail(*args, **kwargs):
        nonlocal n_calls
        n_calls += 1
        if n_calls > after:
            raise InjectedError(f"call {n_calls}")
        return original(*args, **kwargs)

    return fail


def inject(monkeypatch, holder, name, after):
    raw = inspect.getattr_static(holder, name)
    if isinstance(raw, property):
        replacement = property(broken(raw.fget, after))
    elif isinstance(raw, classmethod):
        replacement = classmethod(broken(raw.__func__, after))
    elif isinstance(raw, staticmethod):
        replacement = staticmethod(broken(raw.__func__, after))
    else:
        replacement = broken(raw, after)
    monkeypatch.setattr(holder, name, replacement)


CALL = {"id": "c", "function": {"name": "f", "arguments": '{"x": 1}'}}
WHOLE = {
    "choices": [{"message": {"content": "a", "tool_calls": [CALL]}, "finish_reason": "stop"}],
    "usage": {"total_tokens": 3},
}
ITEMS = {
    "id": "r",
    "status": "completed",
    "output": [{"type": "message", "content": [{"text": "a"}]}, {"type": "x_call"}],
}
CHUNKS = [
    {"choices": [{"delta": {"content": "a", "tool_calls": [{"index": 0, **CALL}]}}]},
    {"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]},
]
EVENTS = [
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message"}},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "a"},
    {"type": "response.completed", "response": ITEMS},
]
MESSAGES = [
    {"role": "user", "content": "q", "metadata": {"group_id": "g"}},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "out", "tool_call_id": "c"},
]
INPUT = ["q", {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]
INPUT += [{"type": "function_call_output", "call_id": "c", "output": "out"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
MINE = ValueError("of the provider")


class Host:
    """Applications of all kinds; ``log`` may give its function back as it is. Each says all that it has seen."""

    def __init__(self, log):
        self.log = log

    def plain(self):
        return self._call(copy.deepcopy(WHOLE))

    def responses(self):
        return self._call(copy.deepcopy(ITEMS), input=INPUT, instructions="i", tools=TOOLS)

    def error(self):
        return self._call(MINE)

    def stream(self):
        return self._read(self._stream(CHUNKS))

    def events(self):
        return self._read(self._stream(EVENTS))

    def closed_stream(self):
        stream = self._stream(CHUNKS)
        first = next(stream)
        return first is CHUNKS[0], stream.close(), self._read(stream)

    def dropped_stream(self):
        first = next(self._stream(CHUNKS))
        return first is CHUNKS[0]

    def broken_stream(self):
        return self._read(self._stream([CHUNKS[0], MINE]))

    def managed_stream(self):
        with self._stream(CHUNKS, Managed) as stream:
            return self._read(stream), stream.label, isinstance(stream, Managed)

    def coroutine(self):
        async def complete(model, messages, **options):
            return copy.deepcopy(WHOLE)

        async def main():
            return bare(await self.log(complete)("m", MESSAGES, tools=TOOLS))

        return asyncio.run(main())

    def late_coroutine(self):
        async def later():
            raise MINE

        async def main():
            return await self.log(lambda model, messages: later())("m", MESSAGES)

        return outcome(lambda: asyncio.run(main()))

    def async_stream(self):
        async def chunks():
            for chunk in CHUNKS:
                yield chunk

        async def complete(model, messages):
            return chunks()

        async def main():
            stream = await self.log(complete)("m", MESSAGES)
            first = await anext(stream)
            rest = [chunk async for chunk in stream]
            await stream.aclose()
            return [chunk is mine for chunk, mine in zip([first, *rest], CHUNKS, strict=True)]

        return asyncio.run(main())

    def _call(self, result, **options):
        seen = []

        def complete(**given):
            seen.append(given)
            if isinstance(result, Exception):
                raise result
            return result

        logged = self.log(complete)
        options = options or {"messages": MESSAGES, "tools": TOOLS, "api_key": "secret-key", "stop": ["x"]}
        found = outcome(lambda: logged(model="m", **options))
        return bare(found), found is result, [sorted(given) for given in seen], seen[0].get("tools") is TOOLS

    def _stream(self, results, kind=None):
        def chunks():
            for result in results:
                if isinstance(result, Exception):
                    raise result
                yield result

        return self.log(lambda model, messages: kind(chunks()) if kind else chunks())("m", MESSAGES)

    @staticmethod
    def _read(stream):
        seen = []
        with contextlib.suppress(ValueError):
            while True:
                try:
                    seen.append(id(next(stream)))
                except StopIteration:
                    break
        return seen, [CHUNKS[0] is chunk for chunk in stream]


class Managed:
    label = "managed"

    def __init__(self, chunks):
        self.chunks = chunks

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.chunks.close()

    def __iter__(self):
        return iter(self.chunks)

    def __next__(self):
        return next(self.chunks)


def outcome(call):
    try:
        return call()
    except ValueError as error:
        return error, error is MINE, error.__context__


def bare(response):
    return (
        {key: value for key, value in response.items() if key != "attrkit"} if isinstance(response, dict) else response
    )


HOSTS = [name for name in vars(Host) if not name.startswith("_")]


def seen_by_all(log):
    host = Host(log)
    return {name: getattr(host, name)() for name in HOSTS}


def test_the_steps_were_found_and_the_hosts_run_them(monkeypatch, tmp_path):
    """The list is only worth something if it is long, and if what is on it is run."""
    names = {parameter.id for parameter in STEPS}
    assert len(names) > 120
    assert {"responses.read_answer", "requests.Message", "writer.Writer.put", "_redact.masked"} <= names
    assert {"recorder._now", "chunks.Assembly.add", "recorder._leave", "Store.save", "writer.threading"} <= names
    used = set()
    for parameter in STEPS:
        holder, name = parameter.values
        if isinstance(inspect.getattr_static(holder, name), types.FunctionType):
            count(monkeypatch, used, holder, name, parameter.id)
    monkeypatch.setattr(writer, "_current", writer.Writer())
    seen_by_all(lambda call: middleware.with_logging(call, db=tmp_path / "a.db", redact=str.upper))
    assert writer.current().close(10)
    assert len(used) > 100, sorted(names - used)


def count(monkeypatch, used, holder, name, label):
    original = getattr(holder, name)

    def counted(*args, **kwargs):
        used.add(label)
        return original(*args, **kwargs)

    monkeypatch.setattr(holder, name, counted)


@pytest.fixture(scope="module")
def expected():
    return seen_by_all(lambda call: call)


@pytest.mark.parametrize(("holder", "name"), STEPS)
def test_a_fault_at_any_step_changes_nothing_that_the_host_sees(monkeypatch, tmp_path, expected, holder, name):
    for after in (0, 2):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            assert seen_with_fault(monkeypatch, tmp_path / "a.db", holder, name, after) == expected


def seen_with_fault(monkeypatch, path, holder, name, after):
    """What the hosts see while the step fails; wrapping itself is setting up, and is done before."""
    own, seen = writer.Writer(), {}
    for each in HOSTS:
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_current", own)

            def log(call, patch=patch):
                wrapped = middleware.with_logging(call, db=path, redact=str.upper)
                inject(patch, holder, name, after)
                return wrapped

            seen[each] = getattr(Host(log), each)()
    own.close(0.5)
    return seen


def test_a_fault_while_wrapping_leaves_a_function_that_works(monkeypatch, tmp_path):
    def complete(model, messages):
        return WHOLE

    for holder, name in ((recorder, "call_site"), (middleware, "import_what_makes_a_database")):
        with monkeypatch.context() as patch:
            inject(patch, holder, name, 0)
            with pytest.warns(RuntimeWarning, match="attrkit"):
                logged = middleware.with_logging(complete, db=tmp_path / f"{name}.db", stamp=False)
        assert logged("m", MESSAGES) is WHOLE
    assert middleware.flush_logging()


def test_even_a_warning_that_cannot_be_given_does_not_reach_the_host(monkeypatch, tmp_path):
    inject(monkeypatch, membrane.Complaints, "say", 0)
    inject(monkeypatch, recorder, "read_request", 0)
    assert seen_by_all(lambda call: middleware.with_logging(call, db=tmp_path / "a.db")) == seen_by_all(
        lambda call: call
    )


def test_a_fault_that_is_an_interrupt_is_the_hosts(monkeypatch, tmp_path):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "read_answer", interrupt)
    with pytest.raises(KeyboardInterrupt):
        middleware.with_logging(lambda model, messages: WHOLE, db=tmp_path / "a.db")("m", MESSAGES)
