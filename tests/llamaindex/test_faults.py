"""Apart from the key ``attrkit``, an application behaves as without attrkit, whatever fails inside it.

Every function, method and class that the instrumentation uses is found by looking, and made to fail in turn: a step
that is added is covered without being named here.
"""

import asyncio
import inspect
import signal
import threading
import types
import warnings
from importlib import import_module

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.memory import ChatMemoryBuffer
from llamaindex_parts import (
    ANSWER,
    QUESTION,
    ScriptedLLM,
    ToolLLM,
    calls,
    index,
    refusal,
    says,
)

from attr_core.capture import guarded
from attr_core.store import Store
from attr_llamaindex import instrument
from attr_llamaindex.events import AttributionEventHandler
from attr_llamaindex.listening import heard
from attr_llamaindex.spans import AttributionSpanHandler

MODULES = (
    *(
        f"attr_llamaindex.{name}"
        for name in (
            *("spans", "events", "runs", "calls", "items", "records", "kinds"),
            *("payloads", "convert", "streams", "stamps", "instrumentation"),
        )
    ),
    "attr_core.capture",
)
MEMBRANE = {
    # What stands between the host and a fault; that it holds is what the tests here show.
    "spans.heard",
    "events.heard",
    "runs.guarded",
    "calls.guarded",
    "streams.safely",
    "streams.contextlib",
    "capture.guarded",
    "capture.safely",
    "capture.functools",
    "capture._complain",
    "capture.contextlib",
    "capture.weakref",
    # What the application's author calls, in their own code.
    *(f"instrumentation.{name}" for name in ("instrument", "current", "Instrumentation", "get_dispatcher", "Runs")),
    *(f"instrumentation.{name}" for name in ("Collector", "AttributionEventHandler", "AttributionSpanHandler")),
    *(
        f"instrumentation.Instrumentation.{name}"
        for name in vars(import_module("attr_llamaindex.instrumentation").Instrumentation)
        if name not in ("_deliver",)
    ),
    "instrumentation._identifier",
    "instrumentation.threading",
    *(f"{place}.__init__" for place in ("spans.AttributionSpanHandler", "events.AttributionEventHandler")),
    *(f"{place}.class_name" for place in ("spans.AttributionSpanHandler", "events.AttributionEventHandler")),
    *(f"{place}.complaints" for place in ("spans.AttributionSpanHandler", "events.AttributionEventHandler")),
    *(f"{place}.complaints" for place in ("runs.Runs", "calls.Calls")),
    *(f"{place}.__init__" for place in ("runs.Runs", "calls.Calls", "capture.RunRecorder")),
    *("runs.RunRecorder", "runs.Calls", "runs.Runs.n_remembered", "calls.Calls.__len__"),
    *("spans.BaseSpanHandler", "spans.BaseSpan", "events.BaseEventHandler", "events.BaseEvent"),
    *("spans.PrivateAttr", "events.PrivateAttr"),
    # What passes tokens on: Python's own machinery and two lines around it.
    *(f"streams._Pieces.{name}" for name in ("__iter__", "__next__", "send", "throw", "close", "_step", "__init__")),
    *("streams._Pieces", "streams._passed_on", "streams._apassed_on", "streams._end_step", "streams._raise"),
}


def steps():
    """(holder, attribute, label) of everything that recording a run may call."""
    for module in map(import_module, MODULES):
        short = module.__name__.rpartition(".")[2]
        for name, value in vars(module).items():
            if name.startswith("__") or not (callable(value) or isinstance(value, types.ModuleType)):
                continue
            if getattr(value, "__module__", "") in ("typing", "dataclasses", "collections.abc") and name != "replace":
                continue  # for annotations and definitions, which are over by now
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from ((value, method, f"{short}.{name}.{method}") for method in methods(value))
            elif not (isinstance(value, type) and issubclass(value, BaseException)):
                yield module, name, f"{short}.{name}"


def methods(kind):
    hidden = ("__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__", "__del__")
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
    made = []

    def fail(*args, **kwargs):
        made.append(1)
        if len(made) > after:
            raise InjectedError(f"call {len(made)}")
        return original(*args, **kwargs)

    return fail


def inject(monkeypatch, holder, name, after):
    raw = inspect.getattr_static(holder, name)
    if isinstance(raw, property):
        replacement = property(broken(raw.fget, after))
    elif isinstance(raw, classmethod | staticmethod):
        replacement = type(raw)(broken(raw.__func__, after))
    elif hasattr(raw, "__wrapped__") and isinstance(holder, type):
        # Inside the guard: that is where a fault of ours would be.
        guard = heard if holder in (AttributionSpanHandler, AttributionEventHandler) else guarded
        replacement = guard(broken(raw.__wrapped__, after))
    else:
        replacement = broken(raw, after)
    monkeypatch.setattr(holder, name, replacement)


# --- what an application does -----------------------------------------------------------------------------------------

BUILT = index()


def ask(llm=None, **options):
    return BUILT.as_query_engine(llm=llm or ScriptedLLM(), similarity_top_k=2, **options)


def talk(mode):
    memory = ChatMemoryBuffer.from_defaults(token_limit=3000)
    return BUILT.as_chat_engine(chat_mode=mode, llm=ScriptedLLM(is_chat_model=True), memory=memory)


def refuse(prompt):
    raise refusal()


def break_down(prompt):
    raise RuntimeError("the net is down")


def query():
    return ask().query(QUESTION)


def aquery():
    return asyncio.run(ask().aquery(QUESTION))


def stream():
    return list(ask(streaming=True).query(QUESTION).response_gen)


def closed_stream():
    response = ask(streaming=True).query(QUESTION)
    heard_so_far = [next(response.response_gen), next(response.response_gen)]
    response.response_gen.close()
    return heard_so_far


def astream():
    async def read():
        response = await ask(streaming=True).aquery(QUESTION)
        return [piece async for piece in response.async_response_gen()]

    return asyncio.run(read())


def chat():
    engine = talk("condense_plus_context")
    return [engine.chat(QUESTION), engine.chat("And now?")]


def stream_chat():
    return list(talk("context").stream_chat(QUESTION).response_gen)


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


def agent():
    async def go():
        asked = calls(("add", {"a": 2, "b": 3}, "c1"))
        return await FunctionAgent(llm=ToolLLM(asked, says(ANSWER)), tools=[add]).run(QUESTION)

    return asyncio.run(go())


def model():
    return ScriptedLLM().chat([ChatMessage(role="user", content=QUESTION)])


def swallowed():
    return ask(ScriptedLLM(say=refuse)).query(QUESTION)


def error():
    return ask(ScriptedLLM(say=break_down)).query(QUESTION)


SCENARIOS = (
    *(query, aquery, stream, closed_stream, astream, chat, stream_chat),
    *(agent, model, swallowed, error),
)


def outcome(scenario):
    """What the application sees: what is returned or raised, without the key ``attrkit`` and random ids."""
    try:
        return plainly(scenario())
    except InjectedError as fault:
        raise AssertionError(f"a fault of attrkit's reached the application: {fault}") from fault
    except Exception as failure:
        return type(failure), str(failure)


def plainly(value):
    if isinstance(value, list):
        return [plainly(item) for item in value]
    nodes = [node.get_content() for node in getattr(value, "source_nodes", ())]
    if isinstance(value, ChatResponse):
        extra = {key: item for key, item in value.message.additional_kwargs.items() if key != "attrkit"}
        return type(value), value.message.content, extra
    return type(value), str(value), nodes


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    EXPECTED = {scenario.__name__: outcome(scenario) for scenario in SCENARIOS}


def check_all():
    for scenario in SCENARIOS:
        assert outcome(scenario) == EXPECTED[scenario.__name__], scenario.__name__


def test_the_scenarios_can_fail():
    assert EXPECTED["query"][1] == ANSWER
    assert EXPECTED["error"] == (RuntimeError, "the net is down")
    assert len(EXPECTED["closed_stream"]) == 2
    assert EXPECTED["swallowed"][1] == "Empty Response"


def test_all_methods_that_llamaindex_calls_are_among_the_steps():
    own = {label for _, _, label in steps()}
    for handler, base, short in (
        (AttributionSpanHandler, BaseSpanHandler, "spans"),
        (AttributionEventHandler, BaseEventHandler, "events"),
    ):
        mine = {name for name, value in vars(handler).items() if inspect.isfunction(value)}
        called = {name for name in mine if hasattr(base, name) and not name.startswith(("__", "model_"))}
        assert called >= {"new_span", "prepare_to_exit_span", "prepare_to_drop_span"} or called >= {"handle"}
        for name in called:
            assert f"{short}.{handler.__name__}.{name}" in own
            assert hasattr(vars(handler)[name], "__wrapped__"), f"{name} stands behind no guard"


def test_with_an_instrumentation_that_works_the_application_sees_the_same(instrumentation, traces):
    check_all()
    assert len(traces()) == len(SCENARIOS) + 1  # a chat has two turns


@pytest.mark.parametrize("after", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("holder", "name"), STEPS)
def test_a_fault_at_any_step_changes_nothing_for_the_application(monkeypatch, tmp_path, holder, name, after):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fault is complained of, once a kind
        instrumentation = instrument(store=tmp_path / "attrkit.db")
        inject(monkeypatch, holder, name, after)
        check_all()
        monkeypatch.undo()
        instrumentation.runs.hand_on_all()
        instrumentation.close(10)


class Raising:
    def save(self, trace):
        raise OSError("disk full")


class Hanging:
    def __init__(self):
        self.release = threading.Event()

    def save(self, trace):
        self.release.wait(30)
        return trace.id


def test_whatever_a_store_does_the_application_sees_the_same():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with instrument(store=Raising()):
            check_all()


def test_a_store_that_hangs_holds_nobody_up():
    store = Hanging()
    instrumentation = instrument(store=store)
    check_all()
    store.release.set()
    instrumentation.close(10)


def test_a_redactor_that_fails_harms_nothing(tmp_path):
    def redact(text):
        raise ValueError(text)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with instrument(store=tmp_path / "attrkit.db", redact=redact):
            check_all()
    with Store(tmp_path / "attrkit.db") as store:
        assert ANSWER not in repr([store.get(summary.id) for summary in store.list(limit=None)])


def test_a_fault_is_warned_of_since_llamaindex_says_nothing(monkeypatch, tmp_path):
    with instrument(store=tmp_path / "attrkit.db"):
        monkeypatch.setattr("attr_llamaindex.runs.kind_of", broken(None, 0))
        with pytest.warns(RuntimeWarning, match="a run could not be recorded in full"):
            ask().query(QUESTION)


def test_a_user_who_interrupts_while_attrkit_is_at_work_is_heard(monkeypatch, instrumentation):
    """LlamaIndex swallows even that, where a handler raises it."""

    def interrupt(*args, **kwargs):
        monkeypatch.undo()
        raise KeyboardInterrupt

    class Patient(ScriptedLLM):
        def _said(self, prompt):
            signal.pause()  # until a signal comes, as somebody's request may take

    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(20)
    monkeypatch.setattr("attr_llamaindex.items.retrieval", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ask(Patient()).query(QUESTION)
    signal.alarm(0)
