"""A tracer that was there before: it receives everything it did, and misbehaves as it would without this one."""

import asyncio
import contextlib
import logging
import re

import pytest
from haystack import tracing
from haystack.core.errors import PipelineRuntimeError
from haystack.tracing.tracer import NullTracer
from haystack_parts import ANSWER, QUESTION, Failing, SeeingTracer, SeenSpan, agent, asked, broken, opening, rag, said

from attr_core.errors import ConfigurationError
from attr_core.store import Store
from attr_haystack import AttributionTracer

_STAMP = re.compile(r"(, )?'attrkit': \{'trace_id': 'tr_\w+'\}")


def run_failing():
    with contextlib.suppress(PipelineRuntimeError):
        rag(Failing()).run(asked())


def run_agent():
    generator = said([("opening", {"name": "fair"}, "c1"), ("broken", {"name": "fair"}, "c2")], ANSWER)
    agent(generator, opening, broken, tool_concurrency_limit=1, raise_on_tool_invocation_failure=False).run(
        messages=[], streaming_callback=None
    )


def run_stream():
    async def run():
        async for _ in rag().stream(asked()):
            pass

    asyncio.run(run())


STORIES = {
    "run": lambda: rag().run(asked()),
    "run_async": lambda: asyncio.run(rag().run_async(asked())),
    "stream": run_stream,
    "failing": run_failing,
    "agent": run_agent,
}


def unstamped(story):
    """Without the one key that is left in replies, which later spans are shown."""
    return [
        (name, parent, tags, [(key, _STAMP.sub("", text)) for key, text in contents], error)
        for name, parent, tags, contents, error in story
    ]


@pytest.fixture
def existing():
    tracer = SeeingTracer()
    tracing.enable_tracing(tracer)
    yield tracer
    assert tracing.tracer.actual_tracer is tracer
    tracing.disable_tracing()


@pytest.mark.parametrize("what", STORIES)
@pytest.mark.filterwarnings("ignore:All messages provided")
def test_a_tracer_that_was_there_receives_what_it_did_before(what, existing, db):
    STORIES[what]()
    before, existing.spans = existing.story(), []
    with AttributionTracer(store=db, stamp=False) as tracer:
        STORIES[what]()
        assert existing.story() == before
        existing.spans = []
        tracer._is_stamping = True
        STORIES[what]()
        assert unstamped(existing.story()) == unstamped(before)
        assert tracer.flush(10)
    assert all(span.is_over for span in existing.spans)
    with Store(db) as store:
        assert len(store.list()) == 2


def test_what_it_offers_besides_is_still_reached(existing, db):
    with AttributionTracer(store=db):
        assert tracing.tracer.actual_tracer.trace_url() == "https://tracing.example/1"
        with tracing.tracer.trace("request", tags={"a": 1}) as span:
            span.set_tags({"b": 2})
            assert span.raw_span() == "raw request"
            assert span.get_correlation_data_for_logs() == {"span": "request"}
            assert span.tags == {"a": 1, "b": 2}
            assert tracing.tracer.current_span().raw_span() == "raw request"
        with pytest.raises(AttributeError):
            _ = span.nonsense
    assert existing.spans[0].tags == {"a": 1, "b": 2}


def test_it_is_given_its_own_spans_as_parents(existing, db):
    # SeeingTracer asserts it of every span.
    with AttributionTracer(store=db), tracing.tracer.trace("outer") as outer:
        with tracing.tracer.trace("inner", parent_span=outer):
            pass
        with tracing.tracer.trace("other", parent_span=tracing.tracer.current_span()):
            pass
    assert [(s.name, s.parent and s.parent.name) for s in existing.spans] == [
        ("outer", None),
        ("inner", "outer"),
        ("other", "outer"),
    ]


def test_logs_are_correlated_as_before(existing, db, caplog):
    with AttributionTracer(store=db), caplog.at_level(logging.DEBUG):
        rag().run(asked())
    assert existing.spans


class _Odd(SeeingTracer):
    """Misbehaves at one point."""

    def __init__(self, point):
        super().__init__()
        self.point = point

    def at(self, point):
        if self.point == point:
            raise RuntimeError(f"the backend is down at {point}")

    @contextlib.contextmanager
    def trace(self, operation_name, tags=None, parent_span=None):
        self.at("enter")
        with super().trace(operation_name, tags, parent_span) as span:
            span.__class__ = type("OddSpan", (SeenSpan,), {"odd": self, **_ODD_SPAN})
            yield None if self.point == "no span" else span
        self.at("exit")

    def current_span(self):
        self.at("current_span")
        return None if self.point == "no current span" else super().current_span()


def _set_tag(self, key, value):
    self.odd.at("set_tag")
    SeenSpan.set_tag(self, key, value)


def _set_content_tag(self, key, value):
    self.odd.at("set_content_tag")
    if self.odd.point == "mutates" and isinstance(value, dict):
        value["replies" if "replies" in value else "extra"] = []
    SeenSpan.set_content_tag(self, key, value)


_ODD_SPAN = {"set_tag": _set_tag, "set_content_tag": _set_content_tag}
POINTS = (
    "enter",
    "exit",
    "set_tag",
    "set_content_tag",
    "current_span",
    "no span",
    "no current span",
    "mutates",
    "none",
)


class _Swallows(SeeingTracer):
    @contextlib.contextmanager
    def trace(self, operation_name, tags=None, parent_span=None):
        with contextlib.suppress(Exception), super().trace(operation_name, tags, parent_span) as span:
            yield span


class _Old(NullTracer):
    @contextlib.contextmanager
    def trace(self, operation_name, tags=None):  # as before tracers knew of parents
        yield None


def outcome(run):
    """What an application has of a run: its output or its exception."""
    try:
        outputs = run()
    except Exception as error:
        return type(error), str(error)
    if outputs is None:
        return None
    replies = outputs.get("llm", outputs).get("replies", outputs.get("messages", []))
    return [reply.text for reply in replies], sorted(outputs)


@pytest.mark.parametrize(
    "make", [*(lambda p=p: _Odd(p) for p in POINTS), _Swallows, _Old], ids=[*POINTS, "swallows", "old"]
)
@pytest.mark.parametrize(
    "run",
    [
        lambda: rag().run(asked()),
        lambda: asyncio.run(rag().run_async(asked())),
        lambda: rag(Failing()).run(asked()),
        lambda: agent(said([("opening", {"name": "fair"}, "c1")], ANSWER)).run(messages=[]),
    ],
    ids=["run", "run_async", "failing", "agent"],
)
@pytest.mark.filterwarnings("ignore:All messages provided")
def test_a_failing_or_odd_tracer_behaves_as_it_would_without(make, run, db):
    try:
        tracing.enable_tracing(make())
        before = outcome(run)
        with AttributionTracer(store=db) as tracer:
            assert outcome(run) == before
        assert tracer.recorder.n_remembered == 0
    finally:
        tracing.disable_tracing()


def test_uninstalling_enables_what_was_there_and_records_no_more(existing, db):
    tracer = AttributionTracer(store=db).install()
    assert tracer.install() is tracer, "twice is once"
    tracer.uninstall()
    assert tracing.tracer.actual_tracer is existing
    rag().run(asked())
    assert tracer.flush(10)
    with Store(db) as store:
        assert store.list() == []


def test_a_tracer_enabled_later_is_not_undone(db):
    tracer, later = AttributionTracer(store=db).install(), SeeingTracer()
    tracing.enable_tracing(later)
    tracer.uninstall()
    assert tracing.tracer.actual_tracer is later
    tracing.disable_tracing()


def test_two_of_attrkits_tracers_both_record_and_cannot_be_tied_in_a_knot(existing, tmp_path):
    first, second = (AttributionTracer(store=tmp_path / name) for name in ("a.db", "b.db"))
    with first, second:
        with pytest.raises(ConfigurationError, match="behind"):
            first.install()
        [reply] = rag().run(asked())["llm"]["replies"]
        agent(said([("opening", {"name": "fair"}, "c1")], ANSWER)).run(
            messages=rag().run(asked(), include_outputs_from={"prompt"})["prompt"]["prompt"]
        )
    for name in ("a.db", "b.db"):
        with Store(tmp_path / name) as store:
            found = [store.get(summary.id) for summary in reversed(store.list())]
            assert [len(trace.generations) for trace in found] == [1, 1, 2]
            assert [len(trace.tool_calls) for trace in found] == [0, 0, 1]
            if name == "b.db":
                assert reply.meta["attrkit"] == {"trace_id": found[0].id}
    assert len({id(span) for span in existing.spans}) == len(existing.spans)


def test_a_span_that_outlives_the_tracer_still_reaches_the_backend(existing, db):
    tracer = AttributionTracer(store=db).install()
    with tracing.tracer.trace("request") as request:
        tracer.uninstall()
        request.set_tag("late", True)
        with tracing.tracer.trace("child", parent_span=request):
            assert tracing.tracer.current_span() is existing.spans[1]
    assert tracing.tracer.actual_tracer is existing, "once nothing holds a span of the other any more"
    assert existing.spans[0].tags == {"late": True}
    assert existing.spans[1].parent is existing.spans[0]


def test_a_question_goes_unchanged_through_all_of_it(existing, db):
    with AttributionTracer(store=db):
        assert rag().run(asked(QUESTION))["llm"]["replies"][0].text == ANSWER
