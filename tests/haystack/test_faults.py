"""Whatever of attrkit's fails, the application has what it would have without it; each part is made to fail in turn."""

import asyncio
import inspect
import itertools
import warnings
from collections.abc import Mapping

import pytest
from haystack.dataclasses import ChatMessage
from haystack_parts import ANSWER, Failing, agent, asked, broken, engine, opening, rag, said

from attr_core._recording import writer
from attr_core.capture import RunRecorder
from attr_core.collector import Collector
from attr_haystack import AttributionComponent, AttributionTracer, attributing, convert, payloads, spans, tracer

TRACING = (tracer, spans, payloads, convert)
RUNNING = (attributing, convert)
NOT_OURS = {"contextmanager", "dataclass", "field", "require"}
NEEDED = {
    "attributed",  # is the component's guard
    "_span_for",  # unwraps a parent for the tracer that was there: three lines that nothing could stand in for
    "guarded",  # is the guard
}


def functions(*modules):
    """Every function of ours that the modules call, by module and name."""
    for module in modules:
        for name, value in sorted(vars(module).items()):
            is_ours = inspect.isfunction(value) and (value.__module__ or "").startswith(("attr_", "dataclasses"))
            if is_ours and name not in NOT_OURS | NEEDED:
                yield pytest.param(module, name, id=f"{module.__name__}.{name}")


def methods(*classes):
    """Every method by which the adapter hands something on."""
    for kind in classes:
        for name, value in sorted(vars(kind).items()):
            if inspect.isfunction(value) and not name.startswith("__"):
                yield pytest.param(kind, name, id=f"{kind.__name__}.{name}")


def fails(*args, **kwargs):
    raise RuntimeError("a fault of attrkit's own")


def run_agent():
    generator = said([("opening", {"name": "fair"}, "c1"), ("broken", {"name": "fair"}, "c2")], ANSWER)
    outputs = agent(generator, opening, broken).run(messages=[ChatMessage.from_user("When?")])
    return [(message.role, message.text) for message in outputs["messages"]]


def run_stream():
    async def run():
        handle = rag().stream(asked())
        return [chunk.content async for chunk in handle], handle.result["llm"]["replies"][0].text

    return asyncio.run(run())


RUNS = {
    "run": lambda: rag().run(asked(), include_outputs_from={"retriever"})["llm"]["replies"][0].text,
    "run_async": lambda: asyncio.run(rag().run_async(asked()))["llm"]["replies"][0].text,
    "stream": run_stream,
    "failing": lambda: rag(Failing()).run(asked()),
    "agent": run_agent,
}


def outcomes():
    """What an application has of each way to run something."""
    found = {}
    for name, run in RUNS.items():
        try:
            found[name] = run()
        except Exception as error:
            found[name] = (type(error), str(error))
    return found


@pytest.fixture(scope="module")
def expected():
    return outcomes()


@pytest.mark.parametrize(
    ("place", "name"),
    [
        *functions(*TRACING),
        *methods(RunRecorder),
        pytest.param(Collector, "deliver", id="Collector.deliver"),
        *(pytest.param(AttributionTracer, name, id=name) for name in ("_leave", "_deliver")),
        pytest.param(tracer.Note, "__init__", id="Note"),
    ],
)
def test_a_fault_in_the_tracer_reaches_nobody(place, name, expected, monkeypatch, db):
    with AttributionTracer(engine=engine(), mode="inline", store=db), monkeypatch.context() as patched:
        patched.setattr(place, name, fails)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert outcomes() == expected
    assert outcomes() == expected


def test_a_fault_is_told_once_and_by_a_warning(monkeypatch, db):
    with AttributionTracer(store=db), monkeypatch.context() as patched:
        patched.setattr(spans, "to_generation", fails)
        with pytest.warns(RuntimeWarning, match="a fault of attrkit's own"):
            rag().run(asked())
        rag().run(asked())  # where warnings are errors, as in these tests, a second one would be told here


def test_warnings_made_errors_do_not_reach_the_application(monkeypatch, db):
    with AttributionTracer(store=db), monkeypatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("error")
        patched.setattr(spans, "to_generation", fails)
        assert rag().run(asked())["llm"]["replies"][0].text == ANSWER


def test_what_went_wrong_once_leaves_the_next_run_whole(monkeypatch, db):
    with AttributionTracer(store=db) as watching:
        with monkeypatch.context() as patched:
            patched.setattr(spans, "to_answer", fails)
            with pytest.warns(RuntimeWarning, match="could not be recorded"):
                rag().run(asked())
        rag().run(asked())
        assert watching.recorder.n_remembered == 0
        assert watching.recorded().answer == ANSWER
        assert len(watching.recorded().generations) == 1


def test_keyboard_interrupts_are_the_applications(monkeypatch, db):
    def interrupts(*args, **kwargs):
        raise KeyboardInterrupt

    with AttributionTracer(store=db), monkeypatch.context() as patched:
        patched.setattr(spans, "to_answer", interrupts)
        with pytest.raises(KeyboardInterrupt):
            rag().run(asked())


class _Hostile(Mapping):
    """Raises whatever is done with it, as an application's lazy objects may."""

    def _raise(self, *arguments):
        raise RuntimeError("not to be had")

    __getitem__ = __iter__ = __len__ = __contains__ = __eq__ = __hash__ = __bool__ = __repr__ = items = values = _raise

    def __deepcopy__(self, memo):
        return self


ODD = {
    "hostile": _Hostile,
    "hostile inside": lambda: {"replies": [_Hostile()]},
    "bytes": lambda: b"\xff",
    "endless": lambda: itertools.count(),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_inputs_are_the_applications_own(odd, db):
    with AttributionTracer(store=db), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        outputs = rag().run(asked(prompt={"question": "When?", "template_variables": {"odd": ODD[odd]()}}))
    assert outputs["llm"]["replies"][0].text == ANSWER


@pytest.mark.parametrize(
    ("place", "name"),
    [
        *functions(*RUNNING),
        pytest.param(Collector, "deliver", id="Collector.deliver"),
        pytest.param(Collector, "result", id="Collector.result"),
    ],
)
def test_a_fault_in_the_component_costs_the_cause_and_not_the_answer(place, name, monkeypatch, db):
    component = AttributionComponent(engine(), store=db)
    with monkeypatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        patched.setattr(place, name, fails)
        for outputs in (
            rag(attribution=component).run(asked()),
            asyncio.run(rag(attribution=AttributionComponent(engine(), store=db)).run_async(asked())),
        ):
            found = outputs["attribution"]
            assert found["replies"][0].text == ANSWER
            assert len(found["documents"]) == 3
            assert isinstance(found["attribution"], dict)


def test_a_store_that_cannot_be_written_costs_the_trace_and_not_the_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_current", writer.Writer())  # which counts what is lost until the process ends
    (tmp_path / "file").write_text("not a folder")
    with AttributionTracer(store=tmp_path / "file" / "attrkit.db") as watching:
        assert rag().run(asked())["llm"]["replies"][0].text == ANSWER
        assert not watching.flush(10)


def test_every_fault_was_looked_for():
    assert {"opened", "begun", "contents", "finished", "failed"} <= {p.values[1] for p in functions(spans)}
    assert {"begin", "finish", "fail"} <= {p.values[1] for p in methods(RunRecorder)}
    assert {"to_trace", "stamped", "_scored"} <= {p.values[1] for p in functions(attributing)}
