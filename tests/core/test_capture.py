"""The recorder that all adapters feed: what belongs together is one trace, whatever the order and the threads."""

import asyncio
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.capture import Root, RunRecorder, paused
from attr_core.types import Document, Generation, Message, Retrieval, ToolCall


class Delivered(list):
    """Traces in the order they were handed on, each with whether it was complete."""

    def __call__(self, trace, complete):
        self.append((trace, complete))

    @property
    def complete(self):
        return [trace for trace, complete in self if complete]


def recorder_into(delivered, **options):
    return RunRecorder(delivered, framework="test", **options)


def asked(question, *more):
    return Generation((*more, Message("user", question)), None)


def run_rag(recorder, name, question="When?", document="It opened in 1911.", response="In 1911."):
    recorder.begin(name, about=lambda: Root(query=question))
    recorder.begin(f"{name}/retrieve", name, Retrieval(question, ()))
    recorder.finish(f"{name}/retrieve", documents=(Document("d1", document),))
    recorder.begin(f"{name}/model", name, asked(question))
    recorder.finish(f"{name}/model", response=response)
    recorder.finish(name, output=response)


def test_a_run_and_its_children_become_one_trace():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    run_rag(recorder, "r")
    [(trace, complete)] = delivered
    assert complete
    assert (trace.query, trace.answer, trace.run_id, trace.framework) == ("When?", "In 1911.", "r", "test")
    assert [d.text for d in trace.documents] == ["It opened in 1911."]
    assert [g.response for g in trace.generations] == ["In 1911."]
    assert trace.status == "ok"
    assert trace.started <= trace.finished
    assert (recorder.n_open, recorder.n_remembered) == (0, 0)


def test_being_told_everything_twice_changes_nothing():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    for _ in range(2):
        first = recorder.begin("r", about=lambda: Root(query="When?"))
        assert first == recorder.begin("r", about=lambda: Root(query="another"))
    for _ in range(2):
        recorder.begin("m", "r", asked("When?"))
    for response in ("In 1911.", "In 1937."):
        recorder.finish("m", response=response)
    for _ in range(2):
        recorder.finish("r")
    [(trace, _)] = delivered
    assert trace.query == "When?"
    assert [g.response for g in trace.generations] == ["In 1911."]


def test_a_child_at_work_when_its_root_ends_is_in_the_trace_that_is_complete():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    recorder.begin("m", "r", asked("When?"))
    recorder.finish("r")
    assert [complete for _, complete in delivered] == [False], "stored at once, in case the process is killed"
    recorder.finish("m", response="In 1911.")
    assert [complete for _, complete in delivered] == [False, True]
    early, late = (trace for trace, _ in delivered)
    assert early.id == late.id
    assert (early.answer, late.answer) == (None, "In 1911.")
    assert late.status == "partial", "the application stopped reading"
    assert recorder.n_remembered == 0


def test_a_child_that_begins_after_its_root_ended_is_a_run_of_its_own_that_names_its_parent():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    run_rag(recorder, "r")
    recorder.begin("late", "r", asked("And then?"))
    recorder.finish("late", response="Rain.")
    first, second = delivered.complete
    assert second.answer == "Rain."
    assert second.metadata["parent_run_id"] == "r"
    assert len(first.generations) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("no such model"), "error"),
        (GeneratorExit(), "partial"),
        (asyncio.CancelledError(), "interrupted"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_how_a_run_ended_is_told_apart(error, status):
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    recorder.fail("r", error)
    [(trace, _)] = delivered
    assert trace.status == status
    assert trace.error == ("ValueError: no such model" if status == "error" else None)


def test_a_failed_attempt_is_kept_beside_the_one_that_answered():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    recorder.begin("m1", "r", asked("When?"))
    recorder.fail("m1", TimeoutError("too slow"))
    recorder.begin("m2", "r", asked("When?"))
    recorder.finish("m2", response="In 1911.")
    recorder.finish("r")
    [(trace, _)] = delivered
    assert trace.status == "ok"
    assert [(g.response, g.error) for g in trace.generations] == [
        (None, "TimeoutError: too slow"),
        ("In 1911.", None),
    ]
    assert trace.target_generation.response == "In 1911."


def test_what_had_come_before_a_model_failed_is_kept():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("m", None, asked("When?"))
    recorder.fail("m", GeneratorExit(), response="In 19")
    [(trace, _)] = delivered
    assert (trace.answer, trace.status, trace.generations[0].error) == ("In 19", "partial", None)


def test_a_child_that_is_told_to_be_interrupted_makes_the_run_so_and_a_cancelled_one_does_not():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    for name, status in (("asks", "interrupted"), ("cancels", None)):
        recorder.begin(name)
        recorder.begin(f"{name}/node", name)
        recorder.fail(f"{name}/node", asyncio.CancelledError(), status=status)
        recorder.finish(name)
    assert [trace.status for trace, _ in delivered] == ["interrupted", "ok"]


def test_secrets_of_the_environment_are_not_in_an_error(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789")
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    recorder.fail("r", PermissionError("key sk-0123456789 is refused"))
    assert delivered[0][0].error == "PermissionError: key *** is refused"


def test_a_run_without_an_end_is_handed_on_after_a_while_and_counted():
    now = [0.0]
    delivered = Delivered()
    recorder = recorder_into(delivered, max_age=10, clock=lambda: now[0])
    recorder.begin("lost")
    recorder.begin("m", "lost", asked("When?"))
    now[0] = 9.0
    recorder.begin("alive")
    now[0] = 15.0
    recorder.begin("new")
    assert [trace.run_id for trace in delivered.complete] == ["lost"]
    assert delivered[0][0].status == "partial"
    assert "no end of this run" in delivered[0][0].error
    assert (recorder.n_evicted, recorder.n_open) == (1, 2)
    recorder.finish("m", response="too late")
    assert len(delivered) == 1


def test_an_event_keeps_a_run_young():
    now = [0.0]
    delivered = Delivered()
    recorder = recorder_into(delivered, max_age=10, clock=lambda: now[0])
    recorder.begin("r")
    for step in range(5):
        now[0] += 8.0
        recorder.begin(step, "r")
        recorder.begin(f"other {step}")
        recorder.finish(f"other {step}")
    assert recorder.n_evicted == 0


def test_of_too_many_open_runs_the_oldest_is_handed_on():
    delivered = Delivered()
    recorder = recorder_into(delivered, max_runs=3)
    for name in range(5):
        recorder.begin(name)
    assert [trace.run_id for trace in delivered.complete] == ["0", "1"]
    assert (recorder.n_evicted, recorder.n_open, recorder.n_remembered) == (2, 3, 3)


def test_what_is_open_can_be_handed_on_at_the_end():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    recorder.begin("m", "r", asked("When?"))
    recorder.hand_on_all()
    assert len(delivered.complete) == 1
    assert recorder.n_remembered == 0


def test_nothing_is_recorded_of_what_begins_while_paused():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    with paused():
        assert recorder.begin("ours") is None
        recorder.finish("ours")
    recorder.begin("theirs")
    recorder.finish("theirs")
    assert [trace.run_id for trace, _ in delivered] == ["theirs"]


def _raise(*_):
    raise RuntimeError("boom")


@pytest.mark.parametrize("where", ["item", "about", "deliver"])
def test_nothing_is_raised_into_the_application(where):
    recorder = recorder_into(_raise if where == "deliver" else Delivered())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recorder.begin("r", None, _raise if where == "item" else None, about=_raise if where == "about" else Root)
        recorder.finish("r", no_such_field=1)
        recorder.begin("s")
        recorder.finish("s")
    [said] = caught
    assert "could not be recorded in full (RuntimeError: boom)" in str(said.message)
    assert recorder.n_remembered == 0


def test_a_warning_that_is_an_error_does_not_reach_the_application_either():
    recorder = recorder_into(_raise)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder.begin("r")
        recorder.finish("r")


def test_documents_that_no_retriever_gave_are_a_retrieval_and_known_ones_are_not_repeated():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    recorder.begin("retrieve", "r", Retrieval("When?", ()))
    recorder.finish("retrieve", documents=(Document("a", "one"), Document("b", "two")))
    recorder.begin("function", "r")
    assert recorder.is_new("function", "three")
    assert not recorder.is_new("function", "two")
    recorder.finish("function", documents=(Document("b", "two"), Document("c", "three")))
    recorder.finish("r")
    [(trace, _)] = delivered
    assert [[d.id for d in r.documents] for r in trace.retrievals] == [["a", "b"], ["c"]]


def test_a_tool_call_is_tied_to_the_generation_that_asked_for_it():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    recorder.begin("m", "r", asked("When?"))
    recorder.finish("m", response="", tool_calls=(ToolCall("c1", "search", {"q": "fair"}),))
    recorder.begin("t", "r", ToolCall("c1", "search", {"q": "fair"}))
    recorder.finish("t", output="It opened in 1911.", documents=(Document("d", "It opened in 1911."),))
    recorder.finish("r")
    [(trace, _)] = delivered
    [call] = trace.tool_calls
    assert call.generation_id == trace.generations[0].id
    assert (call.output, call.documents[0].id) == ("It opened in 1911.", "d")


def memory_of(generation):
    return [message.content for message in generation.messages if message.metadata.get("memory")]


def recorded(messages, **about):
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r", about=lambda: Root(**about))
    recorder.begin("m", "r", Generation(tuple(messages), None))
    recorder.finish("m", response="yes")
    recorder.finish("r")
    return delivered[0][0].generations[0]


HISTORY = (
    Message("system", "Be brief."),
    Message("user", "I live in Aldemoor."),
    Message("assistant", "Noted."),
    Message("user", "Where do I live?"),
)


def test_history_that_did_not_come_in_with_the_input_is_memory():
    found = recorded(HISTORY, given=frozenset({"Where do I live?"}))
    assert memory_of(found) == ["I live in Aldemoor.", "Noted."]


def test_history_that_the_caller_passed_in_is_no_memory():
    found = recorded(HISTORY, given=frozenset(message.content for message in HISTORY))
    assert memory_of(found) == []


def test_what_a_template_itself_says_is_no_memory():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r", about=lambda: Root(given=frozenset({"Where do I live?"})))
    recorder.begin("prompt", "r")
    recorder.add_variables("prompt", frozenset({"Where do I live?", "Noted."}))
    recorder.finish("prompt")
    recorder.begin("m", "r", Generation(HISTORY, None))
    recorder.finish("m", response="yes")
    recorder.finish("r")
    assert memory_of(delivered[0][0].generations[0]) == ["Noted."], "the other turn is an example of the template's"


def test_what_this_run_said_and_found_is_no_memory():
    call = ToolCall("c1", "search", {"q": "home"})
    earlier = ToolCall("c0", "search", {"q": "weather"})
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r", about=lambda: Root(given=frozenset({"Where do I live?"})))
    recorder.begin("m1", "r", Generation((Message("user", "Where do I live?"),), None))
    recorder.finish("m1", response="I look it up.", tool_calls=(call,))
    recorder.begin("t", "r", call)
    recorder.finish("t", output="Aldemoor")
    recorder.begin(
        "m2",
        "r",
        Generation(
            (
                Message("assistant", "", tool_calls=(earlier,)),
                Message("tool", "It rains.", tool_call_id="c0"),
                Message("assistant", "I look it up.", tool_calls=(call,)),
                Message("tool", "Aldemoor", tool_call_id="c1"),
                Message("user", "Where do I live?"),
            ),
            None,
        ),
    )
    recorder.finish("m2", response="In Aldemoor.")
    recorder.finish("r")
    second = delivered[0][0].generations[1]
    assert [m.metadata.get("memory", False) for m in second.messages] == [True, True, False, False, False]


def test_what_the_application_made_of_documents_is_kept_where_it_stands_in_the_prompt():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    for name, formats, text in (("f", True, "[1] one\n[2] two"), ("g", True, "elsewhere"), ("p", False, "Context")):
        recorder.begin(name, "r", formats=formats)
        recorder.finish(name, contexts=[text])
    recorder.begin("m", "r", asked("Context: [1] one\n[2] two\nWhich?"))
    recorder.finish("m", response="one")
    recorder.finish("r")
    assert delivered[0][0].generations[0].rendered == {"context": ["[1] one\n[2] two"]}


def test_many_threads_at_once_get_their_own_documents_each():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    with ThreadPoolExecutor(16) as pool:
        for n in range(400):
            pool.submit(run_rag, recorder, f"r{n}", f"question {n}", f"document {n}", f"answer {n}")
    assert len(delivered) == 400
    for trace, complete in delivered:
        number = trace.run_id[1:]
        assert complete
        assert trace.query == f"question {number}"
        assert [d.text for d in trace.documents] == [f"document {number}"]
        assert trace.answer == f"answer {number}"
    assert recorder.n_remembered == 0


def test_children_that_end_in_many_threads_make_one_complete_trace():
    for seed in range(30):
        delivered = Delivered()
        recorder = recorder_into(delivered)
        recorder.begin("r")
        for n in range(8):
            recorder.begin(n, "r", asked("When?"))
        names = [*range(8), "r"]
        Random(seed).shuffle(names)  # noqa: S311
        threads = [
            threading.Thread(
                target=recorder.finish, args=(name,), kwargs={} if name == "r" else {"response": f"answer {name}"}
            )
            for name in names
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(delivered.complete) == 1
        final = delivered[-1][0]
        assert sorted(g.response for g in final.generations) == [f"answer {n}" for n in range(8)]
        assert recorder.n_remembered == 0


@given(st.data())
def test_whatever_the_order_each_root_is_complete_once_and_nothing_is_left(data):
    delivered = Delivered()
    recorder = recorder_into(delivered)
    parents = {}
    n_roots = data.draw(st.integers(1, 3))
    for root in range(n_roots):
        parents[f"r{root}"] = None
    for child in range(data.draw(st.integers(0, 8))):
        parents[f"c{child}"] = data.draw(st.sampled_from(sorted(parents)))

    def root_of(name):
        return name if parents[name] is None else root_of(parents[name])

    for name, parent in parents.items():
        recorder.begin(name, parent, None if parent is None else asked(name))
    for name in data.draw(st.permutations(sorted(parents))):
        if data.draw(st.booleans()):
            recorder.fail(name, ValueError(name))
        else:
            recorder.finish(name, **({} if parents[name] is None else {"response": f"{name}!"}))
    assert sorted(trace.run_id for trace in delivered.complete) == [f"r{n}" for n in range(n_roots)]
    for trace in delivered.complete:
        mine = {name for name in parents if parents[name] is not None and root_of(name) == trace.run_id}
        assert {g.messages[0].content for g in trace.generations} == mine
        assert all(g.response == f"{g.messages[0].content}!" or g.error for g in trace.generations)
    assert (recorder.n_open, recorder.n_remembered) == (0, 0)


def test_the_answer_of_a_stream_that_was_cut_is_the_models_own_to_the_last_piece():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    recorder.begin("m", "r", asked("When?"))
    recorder.finish("r", output="In 1")
    recorder.fail("m", GeneratorExit(), response="In 19")
    assert delivered.complete[0].answer == "In 19"


def test_a_run_that_turns_out_to_be_made_of_others_is_no_call_itself():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r", item=asked("When?"))
    recorder.withdraw("r")
    recorder.begin("m", "r", asked("When, please?"))
    recorder.finish("m", response="In 1911.")
    recorder.finish("r", output="In 1911.", response="In 1911.")
    [trace] = delivered.complete
    assert [g.messages[0].content for g in trace.generations] == ["When, please?"]
    assert (trace.answer, trace.status) == ("In 1911.", "ok")


def test_an_error_that_the_application_passed_over_is_the_runs_beside_its_answer():
    delivered = Delivered()
    recorder = recorder_into(delivered)
    recorder.begin("r")
    recorder.begin("m", "r", asked("When?"))
    recorder.fail("m", ValueError("quota"))
    recorder.finish("r", output="Empty Response", swallowed="ValueError: quota")
    [trace] = delivered.complete
    assert (trace.status, trace.error, trace.answer) == ("error", "ValueError: quota", "Empty Response")


def test_the_root_of_an_open_run_is_told():
    recorder = recorder_into(Delivered())
    recorder.begin("r")
    recorder.begin("a", "r")
    recorder.begin("b", "a")
    assert [recorder.root_id(name) for name in ("r", "b", "none")] == ["r", "r", None]
    recorder.hand_on_all()
    assert recorder.root_id("b") is None
