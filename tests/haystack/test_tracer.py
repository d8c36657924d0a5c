"""Pipelines that nobody rewired: what the tracer records of each, and what it leaves in the replies."""

import asyncio
import copy

import pytest
from haystack import Document, Pipeline, SuperComponent, component, tracing
from haystack.components.builders import AnswerBuilder, ChatPromptBuilder, PromptBuilder
from haystack.components.converters import OutputAdapter
from haystack.components.generators.chat import LLM, MockChatGenerator
from haystack.components.joiners import DocumentJoiner, ListJoiner
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.rankers import LLMRanker, LostInTheMiddleRanker
from haystack.components.writers import DocumentWriter
from haystack.core.errors import BreakpointException, PipelineRuntimeError
from haystack.dataclasses import ChatMessage
from haystack.dataclasses.breakpoints import Breakpoint
from haystack.document_stores.types import DuplicatePolicy
from haystack_parts import (
    ANSWER,
    DOCUMENTS,
    FAIR,
    PARADE,
    QUESTION,
    TEMPLATE,
    Failing,
    asked,
    document_store,
    engine,
    rag,
    retriever,
    said,
)

from attr_core.segmenter import segment_trace
from attr_core.types import SegmentKind
from attr_haystack import AttributionComponent, AttributionTracer


def kinds(trace):
    """The prompt's segments: kind -> texts."""
    found = {}
    for piece in segment_trace(trace).segments:
        found.setdefault(piece.kind, []).append(piece.text)
    return found


def run_streamed(pipeline, data):
    async def run():
        handle = pipeline.stream(data)
        return "".join([chunk.content async for chunk in handle]), handle.result

    return asyncio.run(run())


RUNS = {
    "run": lambda pipeline, data: pipeline.run(data),
    "run_async": lambda pipeline, data: asyncio.run(pipeline.run_async(data)),
    "stream": lambda pipeline, data: run_streamed(pipeline, data)[1],
}


@pytest.mark.parametrize("way", RUNS)
def test_a_run_is_one_trace_with_all_that_it_took(way, tracer, traces):
    outputs = RUNS[way](rag(), asked())
    [trace] = traces()
    assert (trace.query, trace.answer, trace.status, trace.framework) == (QUESTION, ANSWER, "ok", "haystack")
    [retrieval] = trace.retrievals
    assert (retrieval.query, retrieval.name) == (QUESTION, "retriever")
    assert {(d.id, d.text) for d in retrieval.documents} == {(d.id, d.content) for d in DOCUMENTS}
    assert all(document.score is not None for document in retrieval.documents)
    [generation] = trace.generations
    assert [message.role for message in generation.messages] == ["system", "user"]
    assert (generation.response, generation.model, generation.finish_reason) == (ANSWER, "mock-model", "stop")
    assert generation.usage["completion_tokens"] == 5
    assert trace.metadata["components"] == ["retriever", "prompt", "llm"]
    assert outputs["llm"]["replies"][0].meta["attrkit"] == {"trace_id": trace.id}


def test_documents_are_found_in_the_prompt_and_grouped_by_their_source(tracer, traces):
    rag().run(asked())
    [trace] = traces()
    found = [piece for piece in segment_trace(trace).segments if piece.kind is SegmentKind.RETRIEVED]
    groups = {piece.text: piece.group_id for piece in found}
    assert groups == {FAIR: "fairs", "The fair charges four marks.": "fairs", PARADE: "parades"}
    assert {piece.located for piece in found} == {"exact"}
    assert any(QUESTION in text for text in trace.generations[0].rendered["context"])


def test_a_document_that_history_repeats_is_found_where_the_builder_put_it(tracer, traces):
    history = [ChatMessage.from_user(f"Is it true? {FAIR}"), ChatMessage.from_assistant("It is.")]
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever())
    pipeline.add_component("prompt", ChatPromptBuilder(TEMPLATE))
    pipeline.add_component("join", ListJoiner(list[ChatMessage]))
    pipeline.add_component("llm", MockChatGenerator(ANSWER))
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "join.values")
    pipeline.connect("join.values", "llm.messages")
    pipeline.run({**asked(), "join": {"values": history}})
    [trace] = traces()
    [place] = [piece for piece in segment_trace(trace).segments if piece.text == FAIR]
    message = trace.generations[0].messages[place.locations[0].message]
    assert QUESTION in message.content
    assert len(place.locations) == 1


def test_contents_are_recorded_although_haystacks_content_tracing_is_off(tracer, traces):
    assert not tracing.tracer.is_content_tracing_enabled
    rag().run(asked())
    assert traces()[0].generations[0].messages[1].content


def test_the_callers_data_and_documents_are_left_as_they_were(tracer):
    data, pipeline = asked(), rag()
    before = copy.deepcopy(data)
    outputs = pipeline.run(data, include_outputs_from={"retriever", "prompt"})
    assert data == before
    assert all("attrkit" not in document.meta for document in outputs["retriever"]["documents"])
    assert all("attrkit" not in message.meta for message in outputs["prompt"]["prompt"])


def test_a_reply_that_a_cache_keeps_is_not_touched(tracer, traces):
    kept = {"replies": [ChatMessage.from_assistant(ANSWER)]}

    @component
    class Cached:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]):
            return {**kept}

    pipeline = rag(Cached())
    marks = [pipeline.run(asked())["llm"]["replies"][0].meta["attrkit"]["trace_id"] for _ in range(2)]
    assert marks == [trace.id for trace in traces()]
    assert kept["replies"][0].meta == {}


def test_stamping_can_be_switched_off(db):
    with AttributionTracer(store=db, stamp=False):
        assert "attrkit" not in rag().run(asked())["llm"]["replies"][0].meta


def test_inline_the_replies_carry_the_cause(db):
    with AttributionTracer(engine=engine(), mode="inline", store=db) as tracer:
        [reply] = rag().run(asked())["llm"]["replies"]
        found = tracer.last()
    told = reply.meta["attrkit"]
    assert told["trace_id"] == found.trace_id
    [cause] = told["claims"][0]["targets"][0]["causes"]
    assert (cause["group_id"], cause["verdict"], cause["effect"]) == ("fairs", "drives", 6.0)


def test_deferred_the_result_is_there_when_it_is_asked_for(db):
    with AttributionTracer(engine=engine(), store=db) as tracer:
        [reply] = rag().run(asked())["llm"]["replies"]
        assert set(reply.meta["attrkit"]) == {"trace_id"}
        assert tracer.result(reply.meta["attrkit"]["trace_id"], timeout=20).claims[0].text == ANSWER
        assert asyncio.run(tracer.aresult(timeout=20)).claims
        assert tracer.stats.n_done == 1


def test_the_answer_builder_carries_the_traces_id(tracer, traces):
    pipeline = rag()
    pipeline.add_component("answers", AnswerBuilder())
    pipeline.connect("llm.replies", "answers.replies")
    pipeline.connect("retriever.documents", "answers.documents")
    outputs = pipeline.run(asked(answers={"query": QUESTION}))
    [trace] = traces()
    assert trace.answer == ANSWER
    assert outputs["answers"]["answers"][0].meta["attrkit"] == {"trace_id": trace.id}


def test_documents_that_the_caller_hands_in_are_recorded(tracer, traces):
    pipeline = Pipeline()
    pipeline.add_component("prompt", PromptBuilder("{{ documents[0].content }}\n\nQuestion: {{ question }}"))
    pipeline.add_component("llm", MockChatGenerator(ANSWER))
    pipeline.connect("prompt.prompt", "llm.messages")
    pipeline.run({"prompt": {"documents": [DOCUMENTS[0]], "question": QUESTION}})
    [trace] = traces()
    assert [(d.id, d.text) for d in trace.documents] == [(DOCUMENTS[0].id, FAIR)]
    assert kinds(trace)[SegmentKind.RETRIEVED] == [FAIR]
    assert trace.query == QUESTION


def test_what_a_formatter_makes_of_documents_is_searched_first(tracer, traces):
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever())
    pipeline.add_component("format", OutputAdapter("{{ documents | map(attribute='content') | join('; ') }}", str))
    pipeline.add_component("prompt", PromptBuilder("Context: {{ context }}\n\nQuestion: {{ question }}"))
    pipeline.add_component("llm", MockChatGenerator(ANSWER))
    pipeline.connect("retriever.documents", "format.documents")
    pipeline.connect("format.output", "prompt.context")
    pipeline.connect("prompt.prompt", "llm.messages")
    pipeline.run(asked())
    [trace] = traces()
    [context] = trace.generations[0].rendered["context"]
    assert context == "; ".join(document.text for document in trace.documents)
    assert sorted(kinds(trace)[SegmentKind.RETRIEVED]) == sorted(document.content for document in DOCUMENTS)


def test_a_ranker_and_a_joiner_bring_nothing_new(tracer, traces):
    pipeline = Pipeline()
    pipeline.add_component("one", retriever(DOCUMENTS[:2]))
    pipeline.add_component("two", retriever(DOCUMENTS[1:]))
    pipeline.add_component("join", DocumentJoiner())
    pipeline.add_component("rank", LostInTheMiddleRanker())
    pipeline.connect("one.documents", "join.documents")
    pipeline.connect("two.documents", "join.documents")
    pipeline.connect("join.documents", "rank.documents")
    pipeline.run({"one": {"query": QUESTION}, "two": {"query": QUESTION}})
    [trace] = traces()
    assert [retrieval.name for retrieval in trace.retrievals] == ["one", "two"]
    assert len(trace.documents) == 4


def test_pieces_that_a_splitter_makes_of_what_was_retrieved_are_documents_too(tracer, traces):
    whole = Document(content="The fair opened in 1911.\fThe fair closed in 1937.", meta={"file_path": "fairs.pdf"})
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever([whole]))
    pipeline.add_component("split", DocumentSplitter(split_by="page", split_length=1))
    pipeline.add_component(
        "prompt", PromptBuilder("{% for d in documents %}- {{ d.content }}{% endfor %}\n{{ question }}")
    )
    pipeline.add_component("llm", MockChatGenerator(ANSWER))
    pipeline.connect("retriever.documents", "split.documents")
    pipeline.connect("split.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "llm.messages")
    pipeline.run(asked())
    [trace] = traces()
    pieces = [d for d in trace.documents if d.text != whole.content]
    assert [piece.text.strip() for piece in pieces] == ["The fair opened in 1911.", "The fair closed in 1937."]
    assert {piece.metadata["source_id"] for piece in pieces} == {whole.id}


def test_a_memorys_messages_are_told_from_the_templates_and_the_callers(tracer, traces):
    @component
    class Memory:
        @component.output_types(messages=list[ChatMessage])
        def run(self, session_id: str):
            return {"messages": [ChatMessage.from_user("I like fairs."), ChatMessage.from_assistant("Noted.")]}

    pipeline = Pipeline()
    pipeline.add_component("memory", Memory())
    pipeline.add_component(
        "prompt",
        ChatPromptBuilder(
            [
                ChatMessage.from_user("An example?"),
                ChatMessage.from_assistant("Like so."),
                ChatMessage.from_user("{{ q }}"),
            ]
        ),
    )
    pipeline.add_component("join", ListJoiner(list[ChatMessage]))
    pipeline.add_component("llm", MockChatGenerator(ANSWER))
    pipeline.connect("memory.messages", "join.values")
    pipeline.connect("prompt.prompt", "join.values")
    pipeline.connect("join.values", "llm.messages")
    given = [ChatMessage.from_user("Hello."), ChatMessage.from_assistant("Hello!")]
    pipeline.run({"memory": {"session_id": "s1"}, "prompt": {"q": QUESTION}, "join": {"values": given}})
    [trace] = traces()
    assert kinds(trace)[SegmentKind.MEMORY] == ["I like fairs.", "Noted."]
    assert trace.session_id == "s1"


def test_a_text_generators_prompt_and_replies_are_a_model_call(tracer, traces):
    @component
    class Generator:
        @component.output_types(replies=list[str], meta=list[dict])
        def run(self, prompt: str):
            return {"replies": [ANSWER], "meta": [{}]}

    pipeline = Pipeline()
    pipeline.add_component("prompt", PromptBuilder("{{ question }}"))
    pipeline.add_component("llm", Generator())
    pipeline.connect("prompt.prompt", "llm.prompt")
    assert pipeline.run({"prompt": {"question": QUESTION}})["llm"]["replies"] == [ANSWER]
    [trace] = traces()
    assert (trace.generations[0].messages[0].content, trace.answer) == (QUESTION, ANSWER)


def test_a_super_component_is_part_of_the_run_around_it(tracer, traces):
    inner = SuperComponent(
        rag(),
        input_mapping={"query": ["retriever.query", "prompt.question"]},
        output_mapping={"llm.replies": "replies", "retriever.documents": "documents"},
    )
    pipeline = Pipeline()
    pipeline.add_component("qa", inner)
    pipeline.add_component("answers", AnswerBuilder())
    pipeline.connect("qa.replies", "answers.replies")
    outputs = pipeline.run({"qa": {"query": QUESTION}, "answers": {"query": QUESTION}})
    [trace] = traces()
    assert (len(trace.generations), len(trace.retrievals), trace.answer) == (1, 1, ANSWER)
    assert trace.metadata["components"] == ["qa", "retriever", "prompt", "llm", "answers"]
    assert outputs["answers"]["answers"][0].meta["attrkit"] == {"trace_id": trace.id}


def test_a_super_component_that_looks_like_a_model_is_none(tracer, traces):
    llm = Pipeline()
    llm.add_component("llm", MockChatGenerator(ANSWER))
    wrapped = SuperComponent(
        llm, input_mapping={"messages": ["llm.messages"]}, output_mapping={"llm.replies": "replies"}
    )
    rag(wrapped).run(asked())
    [trace] = traces()
    assert [generation.response for generation in trace.generations] == [ANSWER]


@pytest.mark.parametrize("way", RUNS)
def test_the_llm_component_is_a_model_call(way, tracer, traces):
    pipeline = Pipeline()
    pipeline.add_component("llm", LLM(chat_generator=MockChatGenerator(ANSWER), user_prompt="{{ question }}"))
    outputs = RUNS[way](pipeline, {"llm": {"question": QUESTION}})
    [trace] = traces()
    assert (trace.query, trace.answer, len(trace.generations)) == (QUESTION, ANSWER, 1)
    assert outputs["llm"]["last_message"].meta["attrkit"] == {"trace_id": trace.id}


def test_a_model_inside_another_component_is_recorded(tracer, traces):
    judge = MockChatGenerator('{"documents": [{"index": 2}, {"index": 1}]}')
    pipeline = rag()
    pipeline.add_component("rank", LLMRanker(chat_generator=judge))
    pipeline.connect("retriever.documents", "rank.documents")
    pipeline.run(asked(rank={"query": QUESTION}))
    [trace] = traces()
    assert len(trace.generations) == 2
    assert trace.answer == ANSWER


def test_a_component_used_alone_that_asks_a_model_is_a_run(tracer, traces):
    judge = MockChatGenerator('{"documents": [{"index": 2}, {"index": 1}]}')
    LLMRanker(chat_generator=judge).run(query=QUESTION, documents=list(DOCUMENTS[:2]))
    [trace] = traces()
    assert len(trace.generations) == 1


def test_indexing_is_not_a_run_to_be_explained(tracer, traces):
    pipeline = Pipeline()
    pipeline.add_component("split", DocumentSplitter(split_by="word", split_length=2))
    pipeline.add_component("write", DocumentWriter(document_store(), policy=DuplicatePolicy.OVERWRITE))
    pipeline.connect("split.documents", "write.documents")
    pipeline.run({"split": {"documents": list(DOCUMENTS)}})
    assert traces() == []


def test_runs_in_a_span_of_the_applications_own_are_one_run(tracer, traces):
    with tracing.tracer.trace("request"):
        rag(said("The year?")).run(asked("Which year?"))
        rag().run(asked())
    [trace] = traces()
    assert [generation.response for generation in trace.generations] == ["The year?", ANSWER]
    assert trace.query == "Which year?"
    assert trace.answer == ANSWER


def test_a_run_that_fails_is_the_applications_own_error_and_in_the_trace(tracer, traces):
    tracer.uninstall()
    with pytest.raises(PipelineRuntimeError) as without:
        rag(Failing()).run(asked())
    tracer.install()
    with pytest.raises(PipelineRuntimeError) as raised:
        rag(Failing()).run(asked())
    assert str(raised.value) == str(without.value)
    assert isinstance(raised.value.__cause__, ValueError)
    [trace] = traces()
    assert (trace.status, trace.error) == ("error", "ValueError: the model is not there")
    assert trace.generations[0].error == "ValueError: the model is not there"
    assert len(trace.documents) == 3, "what was there before it failed is kept"


def test_a_run_that_fails_before_it_asked_anything_is_in_the_trace(tracer, traces):
    pipeline = Pipeline()
    pipeline.add_component("prompt", PromptBuilder("{{ question.missing.deep }}"))
    with pytest.raises(PipelineRuntimeError):
        pipeline.run({"prompt": {"question": QUESTION}})
    [trace] = traces()
    assert trace.status == "error"
    assert "UndefinedError" in trace.error


def test_secrets_of_the_environment_are_not_in_an_errors_text(tracer, traces, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")

    @component
    class Leaking:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]):
            raise ValueError("bad key sk-very-secret")

    with pytest.raises(PipelineRuntimeError):
        rag(Leaking()).run(asked())
    assert "sk-very-secret" not in traces()[0].error


def test_a_breakpoint_is_no_failure_and_the_resumed_run_is_whole(tracer, traces):
    pipeline = rag()
    with pytest.raises(BreakpointException) as stopped:
        pipeline.run(asked(), break_point=Breakpoint("prompt"))
    pipeline.run({}, pipeline_snapshot=stopped.value.pipeline_snapshot)
    first, second = traces()
    assert (first.status, first.error) == ("interrupted", None)
    assert len(first.documents) == 3
    assert (second.status, second.answer, second.query) == ("ok", ANSWER, QUESTION)
    assert len(second.documents) == 3, "what was retrieved before the breakpoint goes into the prompt now"


def test_a_stream_that_is_let_go_of_is_a_partial_or_interrupted_run(tracer, traces):
    async def run():
        async for _ in rag().stream(asked()):
            break
        await asyncio.sleep(0.01)

    asyncio.run(run())
    [trace] = traces()
    assert trace.query == QUESTION


def test_a_cancelled_run_says_so(tracer, traces):
    started = asyncio.Event()

    @component
    class Endless:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage]):
            raise NotImplementedError

        @component.output_types(replies=list[ChatMessage])
        async def run_async(self, messages: list[ChatMessage]):
            started.set()
            await asyncio.sleep(60)

    async def run():
        running = asyncio.create_task(rag(Endless()).run_async(asked()))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(run())
    [trace] = traces()
    assert (trace.status, trace.error) == ("interrupted", None)


def test_the_component_is_no_model_call_of_the_run(tracer, traces, db):
    rag(attribution=AttributionComponent(engine(), store=db)).run(asked())
    seen = [trace for trace in traces() if "components" in trace.metadata]
    assert len(seen) == 1
    assert len(seen[0].generations) == 1


def test_what_the_tracer_is_asked_before_anything_ran():
    tracer = AttributionTracer()
    assert tracer.complaints is tracer.collector.complaints
    assert tracer.stats.n_done == 0
    with pytest.raises(AttributeError, match="nonsense"):
        _ = tracer.nonsense
