"""What attrkit leaves in an application's objects leads to the run, and never comes back in a prompt."""

import asyncio
import gc
import json

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.base.response.schema import PydanticResponse
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import IndexNode, NodeWithScore
from llama_index_instrumentation import get_dispatcher
from llamaindex_parts import (
    ANSWER,
    QUESTION,
    TEXTS,
    ScriptedLLM,
    ToolLLM,
    chat_engine,
    index,
    query_engine,
    says,
)
from pydantic import BaseModel, PrivateAttr

from attr_core.reports.compact import compact
from attr_core.testing import AdditiveEngine
from attr_llamaindex import AttributionReady, instrument


def measuring():
    return AdditiveEngine({"1911": {TEXTS["fair"]: 9.0, TEXTS["parade"]: -1.5}}, answer=ANSWER)


async def run_agent(agent, *args, **kwargs):
    return await agent.run(*args, **kwargs)


# --- where it is left -------------------------------------------------------------------------------------------------


def test_a_response_keeps_its_own_metadata_beside_the_stamp(trace):
    response = query_engine().query(QUESTION)
    nodes = {node.node_id for node in response.source_nodes}
    assert set(response.metadata) == {*nodes, "attrkit"}
    assert response.metadata["attrkit"] == {"trace_id": trace().id}
    json.dumps(response.metadata["attrkit"])


class Answer(BaseModel):
    """What is asked for."""

    year: int


def test_a_structured_response_is_stamped_too(trace):
    llm = ScriptedLLM(say=lambda prompt: '{"year": 1911}').as_structured_llm(Answer)
    response = index().as_query_engine(llm=llm).query(QUESTION)
    assert type(response) is PydanticResponse
    assert response.metadata["attrkit"]["trace_id"] == trace().id


def test_a_models_own_response_is_stamped_outside_its_message(trace):
    response = ScriptedLLM().chat([ChatMessage(role="user", content=QUESTION)])
    assert response.additional_kwargs["attrkit"] == {"trace_id": trace().id}
    assert response.message.additional_kwargs == {}


def test_stamping_can_be_switched_off(db):
    with instrument(store=db, stamp=False) as instrumentation:
        response = query_engine().query(QUESTION)
        chat = chat_engine("context", ScriptedLLM(is_chat_model=True)).chat(QUESTION)
        agent = asyncio.run(run_agent(FunctionAgent(llm=ToolLLM(says(ANSWER)), streaming=False), QUESTION))
        assert instrumentation.trace().query == QUESTION
    assert "attrkit" not in response.metadata
    assert chat.metadata is None
    assert agent.response.additional_kwargs == {}


def test_an_engine_within_an_engine_is_not_stamped(instrumentation):
    inner = query_engine()
    seen = []

    class Outer(CustomQueryEngine):
        def custom_query(self, query_str):
            seen.append(inner.query(query_str))
            return str(seen[0])

    assert "attrkit" in Outer().query(QUESTION).metadata
    assert "attrkit" not in seen[0].metadata


# --- that it does not leak ------------------------------------------------------------------------------------------


def test_nodes_are_never_touched_and_no_prompt_speaks_of_attrkit(db):
    with instrument(store=db, engine=measuring(), mode="inline"):
        llm = ScriptedLLM()
        engine = index().as_query_engine(llm=llm, similarity_top_k=3)
        for _ in range(3):
            response = engine.query(QUESTION)
            assert all("attrkit" not in node.node.metadata for node in response.source_nodes)
        assert not any("attrkit" in prompt for prompt in llm.asked)


def test_a_node_that_an_engine_answers_for_carries_no_stamp_into_the_prompt(instrumentation):
    """LlamaIndex puts the metadata of such an engine's response into a node, and so into the prompt."""
    llm, inner = ScriptedLLM(), query_engine()

    class Objects(BaseRetriever):
        def _retrieve(self, query_bundle):
            return [NodeWithScore(node=IndexNode(text="fairs", index_id="fairs", obj=inner), score=1.0)]

    RetrieverQueryEngine.from_args(Objects(), llm=llm).query(QUESTION)
    assert ANSWER in llm.asked[0]
    assert "attrkit" not in llm.asked[0]


def test_an_agents_final_message_is_stamped_and_its_memory_is_not(trace):
    memory = ChatMemoryBuffer.from_defaults(token_limit=3000)
    result = asyncio.run(run_agent(FunctionAgent(llm=ToolLLM(says(ANSWER)), streaming=False), QUESTION, memory=memory))
    assert result.response.additional_kwargs["attrkit"] == {"trace_id": trace().id}
    assert [message.content for message in memory.get()] == [QUESTION, ANSWER]
    assert all(message.additional_kwargs == {} for message in memory.get())


@pytest.mark.parametrize("streaming", [False, True])
def test_an_agents_next_request_carries_no_stamp(instrumentation, streaming):
    llm = ToolLLM(says(ANSWER), says("Yes."), says("Still."))
    agent = FunctionAgent(llm=llm, streaming=streaming)
    memory = ChatMemoryBuffer.from_defaults(token_limit=3000)

    async def talk():
        first = await agent.run(QUESTION, memory=memory)
        assert "attrkit" in first.response.additional_kwargs
        await agent.run("Is it open?", memory=memory)
        # As applications do that keep the history themselves.
        await agent.run("Now too?", chat_history=[ChatMessage(role="user", content=QUESTION), first.response])

    asyncio.run(talk())
    assert len(llm.requests) == 3
    assert ANSWER in json.dumps(llm.requests[2])
    assert "attrkit" not in json.dumps(llm.requests)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_nor_does_it_out_of_a_memory_in_a_database(instrumentation):
    llm = ToolLLM(says(ANSWER), says("Yes."))

    async def talk():
        memory = Memory.from_defaults(session_id="s")
        agent = FunctionAgent(llm=llm, streaming=False)
        first = await agent.run(QUESTION, memory=memory)
        await memory.aput(first.response)
        await agent.run("Is it open?", memory=memory)

    asyncio.run(talk())
    gc.collect()  # here, where the warning about its open connection is expected
    assert json.dumps(llm.requests[1]).count(ANSWER) == 2
    assert "attrkit" not in json.dumps(llm.requests)


@pytest.mark.parametrize("is_chat_model", [False, True])
@pytest.mark.parametrize("mode", ["simple", "context", "condense_question", "condense_plus_context"])
def test_a_chat_that_is_given_a_stamped_message_sends_no_stamp(instrumentation, mode, is_chat_model):
    """A model that completes text is shown all of a message's ``additional_kwargs`` by LlamaIndex."""
    result = asyncio.run(run_agent(FunctionAgent(llm=ToolLLM(says(ANSWER)), streaming=False), QUESTION))
    history = [ChatMessage(role="user", content=QUESTION), result.response]
    llm = ScriptedLLM(is_chat_model=is_chat_model)
    engine = chat_engine(mode, llm)
    engine.chat("Is it open?", chat_history=history)
    engine.chat("Now too?")
    assert any(ANSWER in prompt for prompt in llm.asked)
    assert not any("attrkit" in prompt for prompt in llm.asked)


# --- results ----------------------------------------------------------------------------------------------------------


def test_in_deferred_mode_a_response_leads_to_its_result(db):
    with instrument(store=db, engine=measuring()) as instrumentation:
        responses = [query_engine().query(QUESTION) for _ in range(3)]
        found = [instrumentation.result(response, timeout=30) for response in responses]
        assert [one.trace_id for one in found] == [one.metadata["attrkit"]["trace_id"] for one in responses]
        assert instrumentation.last(timeout=30).trace_id == found[2].trace_id

        async def later():
            return await instrumentation.aresult(responses[0], timeout=30)

        assert asyncio.run(later()).trace_id == found[0].trace_id
        row = next(row for row, target in enumerate(found[0].targets) if target.text == "1911")
        leading = found[0].segments[found[0].ranking(row)[0]]
        assert TEXTS["fair"] in leading.text
        assert found[0].verdicts[row, found[0].ranking(row)[0]] == "drives"
    assert instrumentation.stats.n_done == 3


def test_in_inline_mode_the_response_carries_the_result(db):
    with instrument(store=db, engine=measuring(), mode="inline") as instrumentation:
        response = query_engine().query(QUESTION)
        stamp = response.metadata["attrkit"]
        assert stamp == compact(instrumentation.result(response))
        (claim,) = stamp["claims"]
        assert [cause["verdict"] for target in claim["targets"] for cause in target["causes"]] == ["drives"]
        json.dumps(stamp)


def test_in_inline_mode_a_stream_carries_the_result_once_it_is_read(db):
    with instrument(store=db, engine=measuring(), mode="inline") as instrumentation:
        response = query_engine(streaming=True).query(QUESTION)
        assert set(response.metadata["attrkit"]) == {"trace_id"}
        assert str(response) == ANSWER
        assert response.metadata["attrkit"] == compact(instrumentation.result(response))


def test_in_inline_mode_an_agents_message_carries_the_result(db):
    with instrument(store=db, engine=measuring(), mode="inline") as instrumentation:
        agent = FunctionAgent(llm=ToolLLM(says(ANSWER)), streaming=False, system_prompt=TEXTS["fair"])
        result = asyncio.run(run_agent(agent, QUESTION))
        assert result.response.additional_kwargs["attrkit"] == compact(instrumentation.result(result))


class Listening(BaseEventHandler):
    """A user's own event handler."""

    _heard: list = PrivateAttr(default_factory=list)

    @classmethod
    def class_name(cls):
        return "Listening"

    def handle(self, event, **kwargs):
        if isinstance(event, AttributionReady):
            self._heard.append(event)


def test_an_event_says_that_a_result_is_there(db):
    listening = Listening()
    root = get_dispatcher()
    root.add_event_handler(listening)
    try:
        with instrument(store=db, engine=measuring()) as instrumentation:
            response = query_engine().query(QUESTION)
            result = instrumentation.result(response, timeout=30)
            instrumentation.flush(30)
        (event,) = listening._heard
    finally:
        root.event_handlers = [handler for handler in root.event_handlers if handler is not listening]
    assert event.class_name() == "AttributionReady"
    assert event.trace_id == response.metadata["attrkit"]["trace_id"]
    assert event.run_id == event.span_id == instrumentation.trace(response).run_id
    assert event.attribution == compact(result)
    json.dumps(event.attribution)


def test_a_users_handler_that_fails_on_the_event_harms_nothing(db):
    class Failing(Listening):
        def handle(self, event, **kwargs):
            raise ValueError("mine")

    failing, root = Failing(), get_dispatcher()
    root.add_event_handler(failing)
    try:
        with instrument(store=db, engine=measuring()) as instrumentation:
            response = query_engine().query(QUESTION)
            assert instrumentation.result(response, timeout=30) is not None
    finally:
        root.event_handlers = [handler for handler in root.event_handlers if handler is not failing]
