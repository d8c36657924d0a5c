"""Each run of an engine is one trace: what was asked, found, used, said and answered."""

import asyncio
import warnings

import pytest
from llama_index.core import (
    Document,
    DocumentSummaryIndex,
    KeywordTableIndex,
    PromptTemplate,
    Settings,
    SummaryIndex,
    TreeIndex,
    VectorStoreIndex,
    get_response_synthesizer,
)
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.extractors import TitleExtractor
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import CustomLLM, MockLLM
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import MetadataReplacementPostProcessor, SimilarityPostprocessor
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine, RouterQueryEngine
from llama_index.core.query_engine import SubQuestionQueryEngine as SubQuestions
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import QueryEngineTool
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from llama_index_instrumentation.dispatcher import instrument_tags
from llamaindex_parts import (
    ANSWER,
    QUESTION,
    REFUSED,
    TEXTS,
    ScriptedLLM,
    SilentLLM,
    WordEmbedding,
    chat_engine,
    documents,
    index,
    query_engine,
    refusal,
)
from pydantic import BaseModel

from attr_core.capture import paused
from attr_core.segmenter import segment_trace, unlocated
from attr_llamaindex import instrument

# --- what a query leaves ------------------------------------------------------------------------------------------


def query(llm):
    return query_engine(llm).query(QUESTION)


def aquery(llm):
    return asyncio.run(query_engine(llm).aquery(QUESTION))


@pytest.mark.parametrize(
    "llm", [ScriptedLLM(), ScriptedLLM(is_chat_model=True), SilentLLM()], ids=["text", "chat", "silent"]
)
@pytest.mark.parametrize("ask", [query, aquery])
def test_a_query_is_one_trace_with_each_call_of_the_model_counted_once(trace, ask, llm):
    llm.asked.clear()
    response = ask(llm)
    found = trace()
    assert (found.query, found.answer, found.status) == (QUESTION, ANSWER, "ok")
    assert found.id == response.metadata["attrkit"]["trace_id"]
    assert len(found.generations) == len(llm.asked) == 1
    assert found.generations[0].response == ANSWER == str(response)
    assert found.framework == "llamaindex"
    assert found.started <= found.finished


def test_nodes_have_scores_positions_metadata_and_the_text_that_the_model_sees(trace):
    response = query(ScriptedLLM())
    (retrieval,) = trace().retrievals
    assert retrieval.query == QUESTION
    assert retrieval.name == "VectorIndexRetriever"
    assert [document.id for document in retrieval.documents] == [node.node_id for node in response.source_nodes]
    first, node = retrieval.documents[0], response.source_nodes[0].node
    assert first.text == node.get_content(metadata_mode=MetadataMode.LLM) == f"file_path: fair.md\n\n{TEXTS['fair']}"
    assert first.score == pytest.approx(response.source_nodes[0].score)
    assert first.metadata == {
        "file_path": "fair.md",
        "ref_doc_id": "doc-fair",
        "start_char_idx": 0,
        "end_char_idx": len(TEXTS["fair"]),
    }


def test_nodes_are_located_in_the_template_arguments_and_grouped_by_their_document(trace):
    query(ScriptedLLM())
    found = trace()
    generation = segment_trace(found)
    pieces = {piece.source["file_path"]: piece for piece in generation.segments if piece.documents}
    assert set(pieces) == {"fair.md", "parade.md"}
    assert {piece.located for piece in pieces.values()} == {"exact"}
    assert pieces["fair.md"].group_id == "doc-fair"
    assert unlocated(found, generation.segments) == ()
    (question,) = (piece for piece in generation.segments if piece.text == QUESTION)
    assert question.fixed


def test_the_template_is_kept_with_its_arguments(trace):
    template = PromptTemplate("Known: {context_str}\nAsked: {query_str}\nStyle: {style}\n", style="short")
    query_engine(text_qa_template=template).query(QUESTION)
    rendered = trace().generations[0].rendered
    assert rendered["template"] == "Known: {context_str}\nAsked: {query_str}\nStyle: {style}\n"
    assert rendered["arguments"] == {"query_str": QUESTION, "style": "short"}
    assert rendered["context_arguments"] == ["context_str"]
    assert TEXTS["fair"] in rendered["context"][0]


def test_a_node_is_found_where_its_copy_stands_in_the_history(trace):
    history = [ChatMessage(role="user", content=f"Is it so? file_path: fair.md\n\n{TEXTS['fair']}")]
    engine = chat_engine("context", ScriptedLLM(is_chat_model=True))
    engine.chat(QUESTION, chat_history=history)
    generation = segment_trace(trace())
    (piece,) = (piece for piece in generation.segments if piece.documents)
    assert generation.messages[piece.locations[0].message].role == "system"


def test_messages_are_those_that_were_finally_sent(trace):
    llm = ScriptedLLM(is_chat_model=True, system_prompt="Be brief.")
    query(llm)
    (generation,) = trace().generations
    assert [message.role for message in generation.messages] == ["system", "system", "user"]
    assert generation.messages[0].content == "Be brief."
    assert TEXTS["fair"] in generation.messages[2].content
    assert generation.model == "scripted"


class Answer(BaseModel):
    """What is asked for."""

    year: int


def test_a_structured_answer_is_kept_as_json(trace):
    llm = ScriptedLLM(say=lambda prompt: '{"year": 1911}')
    response = index().as_query_engine(llm=llm.as_structured_llm(Answer)).query(QUESTION)
    found = trace()
    assert response.year == 1911
    assert found.answer == '{"year":1911}'
    assert len(found.generations) == len(llm.asked) == 1
    assert found.generations[0].messages[-1].content in llm.asked[0]


MODES = [mode for mode in ResponseMode if mode not in (ResponseMode.NO_TEXT, ResponseMode.CONTEXT_ONLY)]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_in_every_mode_all_calls_are_kept_in_order(trace, mode, is_async):
    count = iter(range(100))
    llm = ScriptedLLM(say=lambda prompt: f"Draft number {next(count)} of the answer.")
    helper = PromptHelper(context_window=3000, num_output=20, chunk_overlap_ratio=0.0, chunk_size_limit=30)
    synthesizer = get_response_synthesizer(llm=llm, response_mode=mode, prompt_helper=helper)
    engine = RetrieverQueryEngine(index().as_retriever(similarity_top_k=3), synthesizer)
    response = asyncio.run(engine.aquery(QUESTION)) if is_async else engine.query(QUESTION)
    found = trace()
    assert found.status == "ok"
    assert found.answer == str(response)
    assert [generation.messages[0].content for generation in found.generations] == llm.asked
    assert [len(retrieval.documents) for retrieval in found.retrievals] == [3]


@pytest.mark.parametrize("mode", [ResponseMode.NO_TEXT, ResponseMode.CONTEXT_ONLY])
def test_modes_that_ask_no_model_leave_what_was_retrieved(trace, monkeypatch, mode):
    monkeypatch.setattr(Settings, "_llm", MockLLM())
    index().as_query_engine(llm=MockLLM(), response_mode=mode, similarity_top_k=2).query(QUESTION)
    found = trace()
    assert found.generations == ()
    assert len(found.retrievals[0].documents) == 2


# --- what was found and what was used ---------------------------------------------------------------------------------


def test_what_a_postprocessor_leaves_is_the_last_stage(trace):
    with paused():
        scores = [node.score for node in index().as_retriever(similarity_top_k=3).retrieve(QUESTION)]
    postprocessor = SimilarityPostprocessor(similarity_cutoff=(scores[0] + scores[1]) / 2)
    response = query_engine(similarity_top_k=3, node_postprocessors=[postprocessor]).query(QUESTION)
    first, last = trace().retrievals
    assert (first.metadata["stage"], last.metadata["stage"]) == ("retriever", "postprocessor")
    assert last.name == "SimilarityPostprocessor"
    assert len(first.documents) == 3
    assert [document.id for document in last.documents] == [node.node_id for node in response.source_nodes]
    assert len(last.documents) == 1


def test_a_postprocessor_that_changes_nothing_adds_no_stage(trace):
    query_engine(node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.0)]).query(QUESTION)
    assert len(trace().retrievals) == 1


def test_a_text_that_a_postprocessor_puts_in_is_the_one_that_is_located(trace):
    nodes = [
        TextNode(
            text="A fair, in short.",
            id_="n1",
            metadata={"window": TEXTS["fair"]},
            excluded_llm_metadata_keys=["window"],
        )
    ]
    engine = VectorStoreIndex(nodes, embed_model=WordEmbedding()).as_query_engine(
        llm=ScriptedLLM(), node_postprocessors=[MetadataReplacementPostProcessor(target_metadata_key="window")]
    )
    engine.query(QUESTION)
    found = trace()
    (piece,) = (piece for piece in segment_trace(found).segments if piece.documents)
    assert piece.text == TEXTS["fair"]
    assert [document.text for document in unlocated(found, segment_trace(found).segments)] == ["A fair, in short."]


def test_a_retriever_of_retrievers_and_its_parts_are_all_kept(trace):
    parts = [index({"fair": TEXTS["fair"]}).as_retriever(), index({"parade": TEXTS["parade"]}).as_retriever()]
    fused = QueryFusionRetriever(parts, num_queries=1, use_async=False, llm=ScriptedLLM())
    RetrieverQueryEngine.from_args(fused, llm=ScriptedLLM()).query(QUESTION)
    names = [(retrieval.name, len(retrieval.documents)) for retrieval in trace().retrievals]
    assert names == [("QueryFusionRetriever", 2), ("VectorIndexRetriever", 1), ("VectorIndexRetriever", 1)]


class FailingRetriever(BaseRetriever):
    """Its store is down."""

    def _retrieve(self, query_bundle):
        raise ConnectionError("the store is down")


def test_a_retriever_that_fails_is_an_error(trace):
    engine = RetrieverQueryEngine.from_args(FailingRetriever(), llm=ScriptedLLM())
    with pytest.raises(ConnectionError, match="the store is down"):
        engine.query(QUESTION)
    found = trace()
    assert (found.status, found.error, found.query) == ("error", "ConnectionError: the store is down", QUESTION)
    assert found.retrievals[0].documents == ()


# --- roots ----------------------------------------------------------------------------------------------------------


def test_a_retriever_alone_is_a_run(trace):
    index().as_retriever(similarity_top_k=1).retrieve(QUESTION)
    found = trace()
    assert (found.query, found.generations) == (QUESTION, ())
    assert len(found.retrievals[0].documents) == 1


def test_a_synthesizer_alone_is_a_run_with_the_nodes_it_was_given(trace):
    nodes = [NodeWithScore(node=TextNode(text=TEXTS["fair"], id_="n1"), score=0.5)]
    get_response_synthesizer(llm=ScriptedLLM()).synthesize(QUESTION, nodes)
    found = trace()
    assert (found.query, found.answer) == (QUESTION, ANSWER)
    (retrieval,) = found.retrievals
    assert [(document.id, document.score) for document in retrieval.documents] == [("n1", 0.5)]
    assert retrieval.metadata["stage"] == "synthesizer"


def test_a_model_alone_is_a_run(trace):
    history = [ChatMessage(role="user", content="Hello."), ChatMessage(role="assistant", content="Hello!")]
    ScriptedLLM().chat([*history, ChatMessage(role="user", content=QUESTION)])
    found = trace()
    assert (found.query, found.answer, len(found.generations)) == (QUESTION, ANSWER, 1)
    assert [message.role for message in found.generations[0].messages] == ["user", "assistant", "user"]
    assert not any(message.metadata.get("memory") for message in found.generations[0].messages)


def test_a_template_that_is_filled_for_a_model_is_a_run(trace):
    ScriptedLLM().predict(PromptTemplate("{context_str}\n{query_str}"), context_str=TEXTS["fair"], query_str=QUESTION)
    found = trace()
    assert (found.query, found.answer) == (QUESTION, ANSWER)
    assert found.generations[0].rendered["context"] == [TEXTS["fair"]]


def test_the_same_question_asked_twice_in_a_run_is_two_calls(trace):
    llm = ScriptedLLM()

    class Twice(CustomQueryEngine):
        def custom_query(self, query_str):
            return f"{llm.complete(query_str)} {llm.complete(query_str)}"

    Twice().query(QUESTION)
    found = trace()
    assert len(found.generations) == len(llm.asked) == 2
    assert found.answer == f"{ANSWER} {ANSWER}"


class Fallback(CustomLLM):
    """A model around models: the first that answers."""

    models: list[ScriptedLLM]

    @property
    def metadata(self):
        return self.models[0].metadata

    def complete(self, prompt, formatted=False, **kwargs):
        for model in self.models[:-1]:
            try:
                return model.complete(prompt)
            except ConnectionError:
                continue
        return self.models[-1].complete(prompt)

    def stream_complete(self, prompt, formatted=False, **kwargs):
        yield from self.models[-1].stream_complete(prompt)


def failing(error):
    def fail(prompt):
        raise error

    return fail


def test_of_a_model_around_models_those_are_the_calls(trace):
    down = ScriptedLLM(say=failing(ConnectionError("down")), name="first")
    query(Fallback(models=[down, ScriptedLLM(name="second")]))
    found = trace()
    assert [(generation.model, generation.response) for generation in found.generations] == [
        ("first", None),
        ("second", ANSWER),
    ]
    assert found.generations[0].error == "ConnectionError: down"
    assert (found.status, found.error) == ("ok", None), "what failed was made good"


def test_a_router_and_the_engine_it_chooses_are_one_run(trace):
    chosen = '[{"choice": 1, "reason": "it is about fairs"}]'
    llm = ScriptedLLM(say=lambda prompt: chosen if "choices" in prompt else ANSWER)
    tools = [
        QueryEngineTool.from_defaults(query_engine(llm), name=name, description=name) for name in ("fairs", "markets")
    ]
    router = RouterQueryEngine.from_defaults(tools, llm=llm, selector=LLMSingleSelector.from_defaults(llm=llm))
    response = router.query(QUESTION)
    found = trace()
    assert found.id == response.metadata["attrkit"]["trace_id"]
    assert found.metadata["name"] == "RouterQueryEngine.query"
    assert [generation.response for generation in found.generations] == [chosen, ANSWER]
    assert len(found.retrievals) == 1


@pytest.mark.parametrize("use_async", [False, True])
def test_sub_questions_are_steps_of_one_run_and_their_answers_carried(trace, use_async):
    asked = (
        '```json\n{"items": [{"sub_question": "When did the fair open?", "tool_name": "fairs"},'
        ' {"sub_question": "When did the parade begin?", "tool_name": "fairs"}]}\n```'
    )

    def say(prompt):
        if "Sub question:" in prompt:
            return "The fair in 1911, the parade in 1937."
        if "sub_question" in prompt:
            return asked
        return "The parade began in 1937." if "When did the parade begin?" in prompt else "It opened in the year 1911."

    llm = ScriptedLLM(say=say)
    tools = [QueryEngineTool.from_defaults(query_engine(llm), name="fairs", description="fairs")]
    engine = SubQuestions.from_defaults(
        tools,
        llm=llm,
        question_gen=LLMQuestionGenerator.from_defaults(llm=llm),
        response_synthesizer=get_response_synthesizer(llm=llm),
        use_async=use_async,
        verbose=False,
    )
    engine.query("When did both open?")
    found = trace()
    assert len(found.generations) == len(llm.asked) == 4
    assert found.answer == "The fair in 1911, the parade in 1937."
    origins = {piece.origin for piece in segment_trace(found).segments if piece.documents}
    assert origins <= {generation.id for generation in found.generations[1:3]}
    assert origins


class Retrieving(Workflow):
    """A user's own: retrieves in one step, asks in another."""

    @step
    async def run_all(self, ev: StartEvent) -> StopEvent:
        nodes = await index().as_retriever(similarity_top_k=1).aretrieve(ev.query)
        prompt = f"{nodes[0].get_content(metadata_mode=MetadataMode.LLM)}\n\nQuestion: {ev.query}"
        answer = await ScriptedLLM().acomplete(prompt)
        return StopEvent(result=answer.text)


class Counting(Workflow):
    """A user's own that has nothing to do with models."""

    @step
    async def count(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=3)


def test_a_workflow_of_the_users_own_is_one_run(trace):
    async def run():
        return await Retrieving().run(query=QUESTION)

    assert asyncio.run(run()) == ANSWER
    found = trace()
    assert (found.query, found.answer, found.status) == (QUESTION, ANSWER, "ok")
    assert (len(found.retrievals), len(found.generations)) == (1, 1)
    assert any(piece.documents for piece in segment_trace(found).segments)


def test_a_workflow_in_which_nothing_is_asked_or_found_leaves_no_trace(traces):
    async def run():
        return await Counting().run()

    assert asyncio.run(run()) == 3
    assert traces() == []


# --- chats ----------------------------------------------------------------------------------------------------------

CHATS = ["simple", "context", "condense_question", "condense_plus_context"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("mode", CHATS)
def test_each_turn_of_a_chat_is_a_run(traces, mode, is_async):
    llm = ScriptedLLM(is_chat_model=True)
    engine = chat_engine(mode, llm)

    async def turns():
        return [await engine.achat(QUESTION), await engine.achat("And is it open now?")]

    responses = asyncio.run(turns()) if is_async else [engine.chat(QUESTION), engine.chat("And is it open now?")]
    found = traces()
    assert [one.query for one in found] == [QUESTION, "And is it open now?"]
    assert [one.id for one in found] == [response.metadata["attrkit"]["trace_id"] for response in responses]
    assert [one.answer for one in found] == [ANSWER, ANSWER]
    assert sum(len(one.generations) for one in found) == len(llm.asked)
    assert [len(one.retrievals) for one in found] == ([0, 0] if mode == "simple" else [1, 1])


@pytest.mark.parametrize("mode", ["simple", "context", "condense_plus_context"])
def test_earlier_turns_of_a_chat_are_memory(traces, mode):
    count = iter(range(100))
    engine = chat_engine(mode, ScriptedLLM(is_chat_model=True, say=lambda prompt: f"Answer {next(count)}."))
    engine.chat("Hello there.")
    engine.chat(QUESTION)
    messages = traces()[1].generations[-1].messages
    memory = [message.content for message in messages if message.metadata.get("memory")]
    assert memory == ["Hello there.", "Answer 0."]


def test_a_system_prompt_and_examples_of_a_chat_are_no_memory(trace):
    examples = [
        ChatMessage(role="user", content="When did the parade begin?"),
        ChatMessage(role="assistant", content="In 1937."),
    ]
    engine = SimpleChatEngine.from_defaults(
        llm=ScriptedLLM(is_chat_model=True),
        memory=ChatMemoryBuffer.from_defaults(token_limit=3000),
        prefix_messages=[ChatMessage(role="system", content="Brief."), *examples],
    )
    engine.chat(QUESTION)
    assert not any(message.metadata.get("memory") for message in trace().generations[0].messages)


def test_examples_in_a_query_engines_template_are_no_memory(trace):
    template = ChatPromptTemplate(
        message_templates=[
            ChatMessage(role="user", content="When did the parade begin?"),
            ChatMessage(role="assistant", content="In 1937."),
            ChatMessage(role="user", content="{context_str}\n\nQuestion: {query_str}"),
        ]
    )
    query_engine(ScriptedLLM(is_chat_model=True), text_qa_template=template).query(QUESTION)
    assert not any(message.metadata.get("memory") for message in trace().generations[0].messages)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("quota exceeded"), refusal()], ids=["value", "validation"])
@pytest.mark.parametrize("ask", [query, aquery])
def test_an_error_that_a_synthesizer_swallows_is_the_traces(trace, ask, error):
    llm = ScriptedLLM(say=failing(error))
    try:
        with paused():
            ask(llm)
    except ValueError:
        pytest.skip("this version of LlamaIndex lets it through")
    assert str(ask(llm)) == "Empty Response"
    found = trace()
    assert (found.status, found.error) == ("error", f"{type(error).__name__}: {error}")
    assert found.answer == "Empty Response", "what the application was given all the same"
    assert found.generations[0].error == found.error


@pytest.mark.parametrize("ask", [query, aquery])
def test_an_error_that_reaches_the_application_is_the_traces(trace, ask):
    with pytest.raises(RuntimeError, match="the net is down"):
        ask(ScriptedLLM(say=failing(RuntimeError("the net is down"))))
    found = trace()
    assert (found.status, found.error) == ("error", "RuntimeError: the net is down")
    assert found.generations[0].error == "RuntimeError: the net is down"


def test_an_error_in_one_of_several_calls_is_the_traces(trace):
    count = iter(range(100))
    llm = ScriptedLLM(say=lambda prompt: failing(refusal())(prompt) if next(count) == 1 else "A draft.")
    helper = PromptHelper(context_window=3000, num_output=20, chunk_overlap_ratio=0.0, chunk_size_limit=30)
    synthesizer = get_response_synthesizer(llm=llm, response_mode="refine", prompt_helper=helper)
    RetrieverQueryEngine(index().as_retriever(similarity_top_k=3), synthesizer).query(QUESTION)
    found = trace()
    assert (found.status, found.error) == ("error", REFUSED)
    assert [generation.error for generation in found.generations] == [None, REFUSED, None]


def test_a_call_that_is_made_good_by_asking_again_is_no_error_of_the_run(trace):
    count = iter(range(100))
    llm = ScriptedLLM(say=lambda prompt: failing(ConnectionError("reset"))(prompt) if next(count) == 0 else ANSWER)

    class Patient(CustomQueryEngine):
        def custom_query(self, query_str):
            try:
                return str(llm.complete(query_str))
            except ConnectionError:
                return str(llm.complete(query_str))

    Patient().query(QUESTION)
    found = trace()
    assert (found.status, found.error) == ("ok", None)
    assert [generation.error for generation in found.generations] == ["ConnectionError: reset", None]


def test_secrets_of_the_environment_are_blanked_in_errors(trace, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789abcdef")
    with pytest.raises(RuntimeError):
        query(ScriptedLLM(say=failing(RuntimeError("bad key sk-0123456789abcdef"))))
    assert trace().error == "RuntimeError: bad key ***"


def test_a_cancelled_query_is_interrupted(trace):
    class Slow(ScriptedLLM):
        async def acomplete(self, prompt, formatted=False, **kwargs):
            await asyncio.sleep(30)

    async def cancel():
        task = asyncio.create_task(query_engine(Slow()).aquery(QUESTION))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    found = trace()
    assert (found.status, found.error) == ("interrupted", None)


# --- what is no run ---------------------------------------------------------------------------------------------------


def build_with_an_extractor():
    VectorStoreIndex.from_documents(
        documents(),
        embed_model=WordEmbedding(),
        transformations=[SentenceSplitter(), TitleExtractor(llm=ScriptedLLM(), nodes=1)],
    )


def ingest():
    IngestionPipeline(transformations=[SentenceSplitter(), TitleExtractor(llm=ScriptedLLM()), WordEmbedding()]).run(
        documents=documents()
    )


def build_summaries():
    llm = ScriptedLLM()
    DocumentSummaryIndex.from_documents(
        documents(), llm=llm, embed_model=WordEmbedding(), response_synthesizer=get_response_synthesizer(llm=llm)
    )


def build_keywords():
    KeywordTableIndex.from_documents(documents(), llm=ScriptedLLM(say=lambda prompt: "KEYWORDS: fair, parade"))


def build_a_tree():
    TreeIndex.from_documents(documents(), llm=ScriptedLLM(), num_children=2)


def insert():
    built = index()
    built.insert(Document(text="The hill is high."))
    built.refresh_ref_docs([Document(text="The hill is low.", id_="doc-hill")])


def build_summaries_later():
    SummaryIndex.from_documents(documents()).insert(Document(text="The hill is high."))


@pytest.mark.parametrize(
    "build",
    [
        build_with_an_extractor,
        ingest,
        build_summaries,
        build_keywords,
        build_a_tree,
        insert,
        build_summaries_later,
    ],
)
def test_building_an_index_makes_no_trace(traces, monkeypatch, build):
    monkeypatch.setattr(Settings, "_embed_model", WordEmbedding())
    monkeypatch.setattr(Settings, "_llm", ScriptedLLM())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LlamaIndex's own
        build()
    assert traces() == []


def test_attrkits_own_calls_make_no_trace(traces):
    with paused():
        query(ScriptedLLM())
    assert traces() == []


def test_an_embedding_alone_is_no_run(traces):
    WordEmbedding().get_query_embedding(QUESTION)
    assert traces() == []


# --- the instrumentation itself ------------------------------------------------------------------------------------


def test_tags_of_the_application_are_metadata_and_name_the_session(trace):
    with instrument_tags({"tenant": "north", "session_id": "s7", "api_key": "sk-1"}):
        query(ScriptedLLM())
    found = trace()
    assert found.session_id == "s7"
    assert found.metadata == {"tenant": "north", "session_id": "s7", "name": "RetrieverQueryEngine.query"}


def test_instrumenting_again_in_the_same_way_changes_nothing(db, instrumentation, traces):
    assert instrument(store=db) is instrumentation
    query(ScriptedLLM())
    assert len(traces()) == 1


def test_instrumenting_in_another_way_takes_the_first_ones_place(db, tmp_path):
    first = instrument(store=db)
    second = instrument(store=tmp_path / "other.db", stamp=False)
    assert (first.is_active, second.is_active) == (False, True)
    response = query(ScriptedLLM())
    assert "attrkit" not in response.metadata
    assert second.trace().query == QUESTION
    first.uninstrument()
    assert second.is_active
    second.close()


def test_after_uninstrumenting_nothing_is_recorded(instrumentation, traces):
    query(ScriptedLLM())
    instrumentation.uninstrument()
    instrumentation.uninstrument()
    assert "attrkit" not in query(ScriptedLLM()).metadata
    assert len(traces()) == 1


def test_a_stream_that_is_open_then_is_stored_as_it_stands_and_read_to_its_end(instrumentation, traces):
    response = query_engine(streaming=True).query(QUESTION)
    pieces = [next(response.response_gen)]
    instrumentation.uninstrument()
    (found,) = traces()
    assert (found.status, len(found.generations)) == ("partial", 1)
    assert "".join([*pieces, *response.response_gen]) == ANSWER
    assert len(traces()) == 1


def test_results_and_runs_are_found_by_response_trace_or_span(instrumentation):
    response = query(ScriptedLLM())
    trace_id = response.metadata["attrkit"]["trace_id"]
    by_response = instrumentation.trace(response)
    assert by_response.id == trace_id
    assert instrumentation.trace(by_response.run_id).id == trace_id
    assert instrumentation.trace(trace_id).id == trace_id
    assert by_response.run_id.startswith("RetrieverQueryEngine.query-")
    assert instrumentation.result(response) is None, "it was only captured"


def test_what_is_stored_can_be_redacted(db):
    with instrument(store=db, redact=lambda text: text.replace("1911", "####")) as instrumentation:
        query(ScriptedLLM())
        found = instrumentation.trace()
    assert "1911" not in repr(found)
    assert found.answer == "The fair opened in ####."


def test_what_was_recorded_shares_nothing_with_the_application(trace):
    response = query(ScriptedLLM())
    before = trace()
    response.source_nodes[0].node.metadata["file_path"] = "changed"
    response.source_nodes[0].node.set_content("changed")
    response.metadata["attrkit"]["trace_id"] = "changed"
    assert trace() == before


def test_a_message_that_a_model_gives_and_others_change_is_kept_as_it_was(trace):
    class Reused(ScriptedLLM):
        @llm_chat_callback()
        def chat(self, messages, **kwargs):
            return ChatResponse(message=ChatMessage(role="assistant", content=ANSWER))

    answer = Reused(is_chat_model=True).chat([ChatMessage(role="user", content=QUESTION)])
    answer.message.blocks[0].text = "changed"
    assert trace().answer == ANSWER
