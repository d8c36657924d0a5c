"""What chains, query engines and pipelines give is read by the adapters' own functions, found by entry point."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

from attr_core.evaluation import answers
from attr_core.evaluation.answers import CONVERTERS, to_trace
from attr_core.evaluation.rows import Row

POINTS = {
    "langchain_core.answer": "attr_langchain.payloads:answer_in",
    "langchain_core.documents": "attr_langchain.payloads:documents_in",
    "langchain_core.document": "attr_langchain.convert:to_document",
    "llama_index.answer": "attr_llamaindex.payloads:answer_in",
    "llama_index.document": "attr_llamaindex.convert:to_document",
    "haystack.answer": "attr_haystack.payloads:answer_in",
    "haystack.documents": "attr_haystack.convert:documents_in",
    "haystack.document": "attr_haystack.convert:to_document",
}
ROW = Row("r", "When did it open?")
FACT = "It opened in 1911."


class Point:
    """An entry point as ``importlib.metadata`` gives it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load(self):
        module, _, function = POINTS[self.name].partition(":")
        return getattr(importlib.import_module(module), function)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """As installed, whichever way this copy was."""
    monkeypatch.setattr(answers, "entry_points", lambda group: [Point(name) for name in POINTS])
    for kept in (answers._packages, answers._converters):
        kept.cache_clear()
    yield
    for kept in (answers._packages, answers._converters):
        kept.cache_clear()


def read(found) -> tuple[str | None, list[tuple[str, str]]]:
    trace = to_trace(found, ROW)
    return trace.answer, [(one.id, one.text) for one in trace.documents]


def test_the_distribution_registers_these_converters() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    found = project.get("entry-points", {}).get(CONVERTERS)
    if found is None:
        pytest.skip("not registered in this copy")
    assert found == POINTS


@pytest.mark.slow
def test_a_message_a_retrieval_chains_dict_and_a_graphs_state() -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.documents import Document
    from langchain_core.messages import AIMessage, HumanMessage

    assert read(AIMessage("In 1911.")) == ("In 1911.", [])
    document = Document(FACT, id="c1", metadata={"source": "a.md"})
    assert read({"input": "When?", "context": [document], "answer": "In 1911."}) == ("In 1911.", [("c1", FACT)])
    state = {"messages": [HumanMessage("When?"), AIMessage("In 1911.")], "documents": [document]}
    assert read(state) == ("In 1911.", [("c1", FACT)])


@pytest.mark.slow
def test_a_query_engines_response_with_its_source_nodes() -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.base.response.schema import Response
    from llama_index.core.schema import NodeWithScore, TextNode

    node = NodeWithScore(node=TextNode(text=FACT, id_="n1"), score=0.5)
    assert read(Response("In 1911.", source_nodes=[node])) == ("In 1911.", [("n1", FACT)])


@pytest.mark.slow
def test_a_pipelines_outputs_with_its_replies_and_documents() -> None:
    pytest.importorskip("haystack")
    from haystack.dataclasses import ChatMessage, Document

    outputs = {
        "llm": {"replies": [ChatMessage.from_assistant("In 1911.")]},
        "retriever": {"documents": [Document(id="c1", content=FACT)]},
    }
    assert read(outputs) == ("In 1911.", [("c1", FACT)])
    assert read({"llm": {"replies": ["In 1911."], "meta": [{}]}})[0] == "In 1911."
