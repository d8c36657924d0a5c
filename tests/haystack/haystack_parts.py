"""Pipelines and agents of Haystack's own parts; only what a model says is scripted."""

import contextlib
import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

from haystack import Document, Pipeline, component, tracing
from haystack.components.agents import Agent
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import MockChatGenerator
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import tool

from attr_core.testing import AdditiveEngine

FAIR = "The fair opened in 1911."
PARADE = "The parade opened in 1937."
QUESTION = "When did the fair open?"
ANSWER = "The fair opened in 1911."

DOCUMENTS = (
    Document(content=FAIR, meta={"source": "fairs.md", "source_id": "fairs", "split_id": 0}),
    Document(content=PARADE, meta={"source": "parades.md", "source_id": "parades"}),
    Document(content="The fair charges four marks.", meta={"source": "fairs.md", "source_id": "fairs", "split_id": 1}),
)

TEMPLATE = [
    ChatMessage.from_system("Answer from the documents."),
    ChatMessage.from_user(
        "{% for d in documents %}[{{ loop.index }}] {{ d.content }}\n{% endfor %}\nQuestion: {{ question }}"
    ),
]


_THREADS = ThreadPoolExecutor(4)


def engine():
    """Knows that 1911 comes from the one document and nothing else."""
    return AdditiveEngine({"1911": {FAIR: 6.0}})


def retriever(documents=DOCUMENTS):
    store = document_store()
    store.write_documents(list(documents))
    return InMemoryBM25Retriever(store, top_k=3)


def document_store():
    # One with threads of its own waits for them when it is collected, for ever where a thread is just being started.
    return InMemoryDocumentStore(async_executor=_THREADS)


def rag(generator=None, *, attribution=None, documents=DOCUMENTS):
    """Retrieve, write the prompt, ask; with ``attribution`` also say what caused the answer."""
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever(documents))
    pipeline.add_component("prompt", ChatPromptBuilder(template=TEMPLATE))
    pipeline.add_component("llm", generator or MockChatGenerator(ANSWER))
    pipeline.connect("retriever.documents", "prompt.documents")
    pipeline.connect("prompt.prompt", "llm.messages")
    if attribution is not None:
        pipeline.add_component("attribution", attribution)
        pipeline.connect("retriever.documents", "attribution.documents")
        pipeline.connect("prompt.prompt", "attribution.messages")
        pipeline.connect("llm.replies", "attribution.replies")
    return pipeline


def asked(question=QUESTION, **more):
    return {"retriever": {"query": question}, "prompt": {"question": question}, **more}


def said(*replies):
    """A scripted model: texts, or lists of ``(name, arguments, id)`` for the tools that it calls."""
    return MockChatGenerator([reply if isinstance(reply, str) else calls(*reply) for reply in replies])


def calls(*asked_for):
    return ChatMessage.from_assistant(
        tool_calls=[ToolCall(tool_name=name, arguments=arguments, id=id_) for name, arguments, id_ in asked_for]
    )


@tool
def opening(name: str) -> str:
    """When something opened."""
    return f"The {name} opened in 1911."


@tool
def price(name: str) -> dict:
    """What something costs, with the documents that say so."""
    return {"price": 4, "documents": [Document(content=f"The {name} charges four marks.", meta={"source_id": "fees"})]}


@tool
def broken(name: str) -> str:
    """Fails."""
    raise ValueError(f"no such thing: {name}")


def agent(generator, *tools, **options):
    return Agent(chat_generator=generator, tools=list(tools or (opening, price)), **options)


@component
class Failing:
    """Fails where a generator would answer."""

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]):
        raise ValueError("the model is not there")


class SeenSpan(tracing.Span):
    """What a tracing backend keeps of a span."""

    def __init__(self, name, tags, parent):
        self.name, self.tags, self.parent, self.contents = name, dict(tags or {}), parent, []
        self.error, self.is_over = None, False

    def set_tag(self, key, value):
        self.tags[key] = value

    def set_content_tag(self, key, value):
        self.contents.append((key, re.sub("0x[0-9a-f]+", "0x", repr(value))))

    def raw_span(self):
        return f"raw {self.name}"

    def get_correlation_data_for_logs(self):
        return {"span": self.name}


class SeeingTracer(tracing.Tracer):
    """A tracing backend that keeps every span; as strict about its own spans as backends are."""

    def __init__(self):
        self.spans, self.current = [], ContextVar("current", default=None)
        self.numbers = itertools.count()

    @contextlib.contextmanager
    def trace(self, operation_name, tags=None, parent_span=None):
        assert parent_span is None or type(parent_span) is SeenSpan, "a span that this backend did not make"
        span = SeenSpan(operation_name, tags, parent_span or self.current.get())
        self.spans.append(span)
        token = self.current.set(span)
        try:
            yield span
        except BaseException as error:
            span.error = error
            raise
        finally:
            span.is_over = True
            with contextlib.suppress(ValueError):
                self.current.reset(token)

    def current_span(self):
        return self.current.get()

    def trace_url(self):
        return "https://tracing.example/1"

    def story(self):
        """All that was seen, comparable between runs."""
        return [
            (
                span.name,
                None if span.parent is None else span.parent.name,
                sorted((key, str(type(value))) for key, value in span.tags.items()),
                span.contents,
                str(span.error),
            )
            for span in self.spans
        ]
