"""What attrkit leaves in an answer: the trace's id at once, in ``inline`` mode with the compact result."""

import asyncio
import json
import uuid

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import HumanMessage
from langchain_parts import rag, scripted

from attr_core.capture import paused
from attr_core.errors import ConfigurationError, TraceNotFoundError
from attr_core.store import Store
from attr_core.testing import AdditiveEngine, ScriptedEngine
from attr_core.types import Message, Prompt
from attr_langchain import AttributionCallbackHandler, LangChainEngine

STAMP = "attrkit"


def answer(handler, model=None):
    return rag(model or scripted("It opened in 1911."), parse=False).invoke("When?", {"callbacks": [handler]})


def test_a_message_carries_the_trace_id_at_once(handler, traces):
    found = answer(handler)
    [trace] = traces()
    assert found.response_metadata[STAMP] == {"trace_id": trace.id}
    json.dumps(found.response_metadata[STAMP])


def test_the_first_chunk_of_a_stream_carries_it_and_so_does_their_sum(handler, traces):
    chunks = list(rag(scripted("It opened in 1911."), parse=False).stream("When?", {"callbacks": [handler]}))
    [trace] = traces()
    assert [STAMP in chunk.response_metadata for chunk in chunks] == [True, *[False] * (len(chunks) - 1)]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert whole.response_metadata[STAMP] == {"trace_id": trace.id}
    assert whole.content == "It opened in 1911."


def test_it_can_be_switched_off(db):
    with AttributionCallbackHandler(store=db, stamp=False) as handler:
        assert STAMP not in answer(handler).response_metadata


def test_it_is_not_recorded_as_part_of_the_next_prompt(handler, traces):
    first = answer(handler)
    scripted("Yes.").invoke([HumanMessage("When?"), first, HumanMessage("Sure?")], {"callbacks": [handler]})
    assert STAMP not in str(traces()[-1].generations[0].messages)


def test_an_answer_that_came_from_a_cache_does_not_change_the_one_given_before(handler, traces):
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    set_llm_cache(InMemoryCache())
    try:
        model = FakeListChatModel(responses=["In 1911."])
        first = model.invoke("When?", {"callbacks": [handler]})
        before = dict(first.response_metadata[STAMP])
        second = model.invoke("When?", {"callbacks": [handler]})
    finally:
        set_llm_cache(None)
    assert first.response_metadata[STAMP] == before
    assert second.content == "In 1911."


FACTS = AdditiveEngine(
    facts={"1911": {"The fair opened in 1911.": 9.0, "The parade opened in 1937.": -1.0}},
    answer="It opened in 1911.",
)


def test_in_inline_mode_the_result_is_in_the_answer_when_the_run_returns(db):
    with AttributionCallbackHandler(mode="inline", engine=FACTS, store=db) as handler:
        found = answer(handler).response_metadata[STAMP]
        assert found["trace_id"] == handler.trace().id
        [target] = found["claims"][0]["targets"]
        assert target["text"] == "1911"
        assert [(c["segment"], c["group_id"], c["verdict"]) for c in target["causes"]] == [
            ("lantern", "fairs.md", "drives")
        ]
        json.dumps(found)
        assert handler.last().trace_id == found["trace_id"]


def test_in_deferred_mode_the_result_is_there_by_the_id_of_the_run(db):
    run_id = uuid.uuid4()
    with AttributionCallbackHandler(engine=FACTS, store=db) as handler:
        rag().invoke("When?", {"callbacks": [handler], "run_id": run_id})
        result = handler.result(run_id, timeout=60)
        assert asyncio.run(handler.aresult(str(run_id))).trace_id == result.trace_id
        assert handler.result(result.trace_id) is result
    with Store(db) as store:
        assert [a.trace_id for a in store.attributions(result.trace_id)] == [result.trace_id]


def test_results_of_an_earlier_process_are_found_in_the_store(db):
    run_id = uuid.uuid4()
    with AttributionCallbackHandler(engine=FACTS, store=db) as handler:
        rag().invoke("When?", {"callbacks": [handler], "run_id": run_id})
    with AttributionCallbackHandler(store=db) as another:
        assert another.result(run_id).response == "It opened in 1911."
        assert another.last().response == "It opened in 1911."
        with pytest.raises(TraceNotFoundError):
            another.result("no such run")


def test_attribution_never_records_its_own_calls_even_of_the_very_model(db):
    model = scripted(*["It opened in 1911."] * 50)
    handler = AttributionCallbackHandler(store=db)
    model = model.model_copy(update={"callbacks": [handler]})
    engine = LangChainEngine(model)
    with paused():
        rag(model).invoke("When?")
    engine.generate([Prompt((Message("user", "When?"),))])
    handler.flush(10)
    with Store(db) as store:
        assert store.list() == []
    handler.close(10)


def test_a_sampled_share_is_attributed_and_everything_is_stored(db):
    with AttributionCallbackHandler(engine=FACTS, store=db, sample_rate=0.5) as handler:
        rag().batch([f"q{n}" for n in range(30)], {"callbacks": [handler]})
        handler.flush(60)
        done = handler.stats.n_done
    with Store(db) as store:
        summaries = store.list(limit=None)
        sampled = [store.get(s.id).metadata.get("attrkit", {}).get("sampled", True) for s in summaries]
    assert len(summaries) == 30
    assert sum(sampled) == done == sum(s.n_attributions for s in summaries)
    assert 3 <= done <= 27


def test_a_redacted_text_is_neither_stored_nor_measured(db):
    engine = ScriptedEngine()
    hide = lambda text: text.replace("1911", "[year]")  # noqa: E731
    with AttributionCallbackHandler(engine=engine, store=db, redact=hide, regenerations=False) as handler:
        assert rag().invoke("When?", {"callbacks": [handler]}) == "It opened in 1911."
        assert "1911" not in handler.result(timeout=60).response
        assert "1911" not in str(handler.trace())
    assert engine.seen
    assert not any("1911" in message.content for prompt in engine.seen for message in prompt.messages)


class Feedback:
    def __init__(self):
        self.sent = []

    def create_feedback(self, run_id=None, key="unnamed", **details):
        self.sent.append({"run_id": run_id, "key": key, **details})


def test_results_go_to_langsmith_by_the_id_of_the_run_where_a_client_is_given(db):
    client, run_id = Feedback(), uuid.uuid4()
    with AttributionCallbackHandler(engine=FACTS, store=db, langsmith=client) as handler:
        rag().invoke("When?", {"callbacks": [handler], "run_id": run_id})
        handler.flush(60)
    [sent] = client.sent
    assert (sent["run_id"], sent["key"], sent["score"]) == (str(run_id), "attrkit.caused_by_context", 1.0)
    assert sent["value"]["causes"] == [{"text": "1911", "segments": ["lantern"]}]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "eager"}, "use capture, deferred, inline"),
        ({"mode": "inline"}, "no engine is given"),
        ({"sample_rate": 2}, "share from 0 to 1"),
        ({"redact": "yes"}, "cannot be called"),
        ({"engine": FACTS, "store": object()}, "takes no results"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(options, says):
    with pytest.raises(ConfigurationError, match=says):
        AttributionCallbackHandler(**options)
