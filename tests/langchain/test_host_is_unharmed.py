"""Apart from the key ``attrkit``, an application behaves as without the handler, whatever fails inside it.

Every function, method and class that the handler uses is found by looking, and made to fail in turn: a step that is
added is covered without being named here.
"""

import asyncio
import copy
import inspect
import threading
import types
import warnings
from importlib import import_module

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_parts import DOCUMENTS, asks, rag, retriever, scripted

from attr_core.store import Store
from attr_langchain import AttributionCallbackHandler

MODULES = (
    "attr_langchain.handler",
    "attr_langchain.payloads",
    "attr_langchain.convert",
    "attr_core.capture",
    "attr_core.collector",
)
MEMBRANE = {
    # What stands between the host and a fault; that it holds is what the tests here show.
    "capture.guarded",
    "capture.safely",
    "capture.functools",
    "capture._complain",
    "capture.contextlib",
    # What the application's author calls, in their own code.
    *(
        f"handler.AttributionCallbackHandler.{name}"
        for name in ("__init__", "result", "last", "aresult", "trace", "flush", "close", "__enter__", "__exit__")
    ),
    *(f"handler.AttributionCallbackHandler.{name}" for name in ("stats", "complaints", "__copy__", "__deepcopy__")),
    *(f"collector.Collector.{name}" for name in ("__init__", "flush", "close", "__enter__", "__exit__")),
    "capture.RunRecorder.__init__",
    "handler.RunRecorder",
    "handler.Collector",
    "collector.Worker",
    "collector.WorkerStats",
    "collector.check_rate",
    "collector._named",
    "collector._absolute",
    "collector.safely",
    "capture.weakref",
    "collector.get_args",
}


def steps():
    """(holder, attribute, label) of everything that recording a run may call."""
    for module in map(import_module, MODULES):
        short = module.__name__.rpartition(".")[2]
        for name, value in vars(module).items():
            if name.startswith("__") or not (callable(value) or isinstance(value, types.ModuleType)):
                continue
            if getattr(value, "__module__", "") in ("typing", "dataclasses") and name != "replace":
                continue  # for annotations and definitions, which are over by now
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from ((value, method, f"{short}.{name}.{method}") for method in methods(value))
            elif not (isinstance(value, type) and issubclass(value, BaseException)):
                yield module, name, f"{short}.{name}"


def methods(kind):
    hidden = ("__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__")
    return [
        name
        for name, value in vars(kind).items()
        if isinstance(value, types.FunctionType | classmethod | staticmethod | property) and name not in hidden
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
    calls = []

    def fail(*args, **kwargs):
        calls.append(1)
        if len(calls) > after:
            raise InjectedError(f"call {len(calls)}")
        return original(*args, **kwargs)

    return fail


def inject(monkeypatch, holder, name, after):
    raw = inspect.getattr_static(holder, name)
    if isinstance(raw, property):
        replacement = property(broken(raw.fget, after))
    elif isinstance(raw, classmethod | staticmethod):
        replacement = type(raw)(broken(raw.__func__, after))
    elif hasattr(raw, "__wrapped__") and name.startswith(("on_", "begin", "finish", "fail", "add_", "deliver")):
        # Inside the guard: that is where a fault of ours would be.
        guard = import_module("attr_core.capture").guarded
        replacement = guard(broken(raw.__wrapped__, after))
    else:
        replacement = broken(raw, after)
    monkeypatch.setattr(holder, name, replacement)


# --- what an application does ------------------------------------------------------------------------------------


def searched():
    return retriever()


def failing(_):
    raise LookupError("no such page")


def invoke(config):
    return rag().invoke("When?", config)


def message(config):
    return rag(scripted("In 1911."), parse=False).invoke("When?", config)


def batch(config):
    return sorted(rag().batch(["a", "b", "c"], {**config, "max_concurrency": 3}))


def stream(config):
    return list(rag().stream("When?", config))


def closed_stream(config):
    found = rag(parse=False).stream("When?", config)
    heard = [next(found), next(found)]
    found.close()
    return heard


def ainvoke(config):
    return asyncio.run(rag().ainvoke("When?", config))


def astream(config):
    async def read():
        return [chunk async for chunk in rag(scripted("In 1911."), parse=False).astream("When?", config)]

    return asyncio.run(read())


def error(config):
    return rag(RunnableLambda(failing)).invoke("When?", config)


def tools(config):
    model = scripted(asks(("search", {"query": "fair"}, "c1")))
    return model.invoke("When?", config)


def documents(config):
    """A function's documents reach the next one as the objects they are."""
    mine = [Document("one", id="1", metadata={"a": [1]})]
    kept = RunnableLambda(lambda _: mine) | RunnableLambda(lambda found: (found, found is mine or found == mine))
    return kept.invoke("x", config)


SCENARIOS = (invoke, message, batch, stream, closed_stream, ainvoke, astream, error, tools, documents)


def outcome(scenario, callbacks):
    """What the application sees: what is returned or raised, without the key ``attrkit`` and random ids."""
    try:
        return plainly(scenario({"callbacks": callbacks}))
    except InjectedError as fault:
        raise AssertionError(f"a fault of attrkit's reached the application: {fault}") from fault
    except Exception as failure:
        return type(failure), str(failure)


def plainly(value):
    if isinstance(value, BaseMessage):
        metadata = {key: item for key, item in value.response_metadata.items() if key != "attrkit"}
        calls = getattr(value, "tool_calls", None)
        return type(value), value.content, metadata, value.additional_kwargs, calls
    if isinstance(value, list | tuple):
        return [plainly(item) for item in value]
    return value


EXPECTED = {scenario.__name__: outcome(scenario, []) for scenario in SCENARIOS}


def check_all(callbacks):
    for scenario in SCENARIOS:
        assert outcome(scenario, callbacks) == EXPECTED[scenario.__name__], scenario.__name__


def test_the_scenarios_can_fail():
    assert EXPECTED["invoke"] == "It opened in 1911."
    assert EXPECTED["error"] == (LookupError, "no such page")
    assert len(EXPECTED["closed_stream"]) == 2


def test_with_a_handler_that_works_the_application_sees_the_same(handler):
    check_all([handler])


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize(("holder", "name"), STEPS)
def test_a_fault_at_any_step_changes_nothing_for_the_application(monkeypatch, tmp_path, holder, name, after):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fault is complained of, once a kind
        handler = AttributionCallbackHandler(store=tmp_path / "attrkit.db")
        inject(monkeypatch, holder, name, after)
        check_all([handler])
        monkeypatch.undo()
        handler.recorder.hand_on_all()
        handler.close(10)


class Raising:
    def save(self, trace):
        raise OSError("disk full")


class Nonsense:
    def save(self, trace):
        return object()


class Hanging:
    def __init__(self):
        self.release = threading.Event()

    def save(self, trace):
        self.release.wait(30)
        return trace.id


@pytest.mark.parametrize("store", [Raising(), Nonsense()], ids=["raises", "returns nonsense"])
def test_whatever_a_store_does_the_application_sees_the_same(store):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        handler = AttributionCallbackHandler(store=store)
        check_all([handler])
        handler.flush(10)


def test_a_store_that_hangs_holds_nobody_up():
    store = Hanging()
    handler = AttributionCallbackHandler(store=store)
    check_all([handler])
    assert not handler.flush(0.05)
    store.release.set()
    assert handler.flush(30)


class Engine:
    """Offers everything and does nothing well."""

    spec, fingerprint, max_context = "fake:bad", "fake:bad", None

    def __init__(self, act):
        self.score = self.generate = lambda *args, **kwargs: act()


def _raise():
    raise RuntimeError("out of memory")


@pytest.mark.parametrize("act", [_raise, lambda: object(), list], ids=["raises", "nonsense", "nothing"])
def test_whatever_an_engine_does_in_deferred_mode_the_application_sees_the_same(act, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        handler = AttributionCallbackHandler(engine=Engine(act), store=tmp_path / "attrkit.db")
        check_all([handler])
        handler.close(30)
    assert handler.stats.n_done == 0
    with Store(tmp_path / "attrkit.db") as store:
        assert len(store.list(limit=None)) == 12, "every run is stored all the same"


def test_an_engine_that_hangs_holds_nobody_up(tmp_path):
    release = threading.Event()
    handler = AttributionCallbackHandler(engine=Engine(lambda: release.wait(30)), store=tmp_path / "attrkit.db")
    check_all([handler])
    assert not handler.flush(0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release.set()
        handler.close(60)


def test_the_applications_objects_are_the_same_afterwards(handler):
    mine = [document.model_copy(deep=True) for document in DOCUMENTS]
    before = copy.deepcopy(mine)
    history = [AIMessage("Noted.", id="m1")]
    rag(FakeListChatModel(responses=["x"]), find=RunnableLambda(lambda _: mine)).invoke(
        "When?", {"callbacks": [handler]}
    )
    FakeListChatModel(responses=["x"]).invoke([*history, ("human", "When?")], {"callbacks": [handler]})
    assert mine == before
    assert history == [AIMessage("Noted.", id="m1")]


def test_a_configuration_that_holds_the_handler_can_be_copied(handler):
    config = {"callbacks": [handler], "metadata": {"a": 1}}
    assert copy.deepcopy(config)["callbacks"][0] is handler
    assert copy.copy(handler) is handler


def test_warnings_as_errors_do_not_let_a_fault_through(monkeypatch, handler):
    monkeypatch.setattr("attr_langchain.handler.to_document", lambda *_: _raise())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rag().invoke("When?", {"callbacks": [handler]}) == "It opened in 1911."
    handler.recorder.hand_on_all()
