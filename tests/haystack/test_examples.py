"""The examples run as a user runs them, on the real small model."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from haystack import Pipeline
from haystack.dataclasses import ChatMessage
from local_generator import LocalChatGenerator

from attr_core.protocols import Sampling
from attr_core.store import Store
from attr_core.types import Message, Prompt
from attr_haystack import AttributionTracer, HaystackEngine

pytestmark = pytest.mark.model

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = "hf:SmolLM2-135M-Instruct.Q4_1.gguf"


def printed(name, tmp_path):
    environment = {**os.environ, "ATTRKIT_DB": str(tmp_path / "attrkit.db")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, env=environment, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_pipeline_names_the_document_that_its_answer_came_from(small_engine, tmp_path):
    answer, *lines = printed("haystack_pipeline.py", tmp_path).splitlines()
    assert "1911" in answer
    [year] = [line for line in lines if line.startswith("'1911'")]
    assert year.startswith("'1911': drives lantern ")
    assert "torch" not in year, "the other year is no cause"
    scores = dict(line.split(": ", 1) for line in lines if not line.startswith("'"))
    assert {name for name, score in scores.items() if score.endswith("drives")} == {"lantern"}
    assert set(scores) == {"lantern", "torch", "guild", "river"}


@pytest.mark.slow
def test_the_agents_answer_came_from_a_tool_and_its_call_from_an_earlier_turn(small_engine, tmp_path):
    said = printed("haystack_agent.py", tmp_path)
    answer, calls = said.split("step 1 of 2: ")
    assert "from tool `opening_year`, step 1" in answer
    assert "event «Aldemoor Lantern Festival» from m1 (user_turn)" in calls


def test_the_local_generator_streams_what_it_answers(small_engine):
    chunks = []
    generator = LocalChatGenerator(SMALL, max_tokens=8, streaming_callback=chunks.append)
    [reply] = generator.run([ChatMessage.from_user("Name a colour of the sky.")])["replies"]
    assert reply.text
    assert "".join(chunk.content for chunk in chunks) == reply.text
    assert reply.meta["usage"]["completion_tokens"] > 0


def test_a_streamed_pipeline_with_the_local_generator_is_recorded(small_engine, tmp_path):
    pipeline = Pipeline()
    pipeline.add_component("llm", LocalChatGenerator(SMALL, max_tokens=8))

    async def run():
        handle = pipeline.stream({"llm": {"messages": [ChatMessage.from_user("Name a colour of the sky.")]}})
        return "".join([chunk.content async for chunk in handle])

    with AttributionTracer(store=tmp_path / "attrkit.db"):
        text = asyncio.run(run())
    with Store(tmp_path / "attrkit.db") as store:
        assert (store.last().answer, store.last().generations[0].model) == (text, SMALL)


def test_the_local_generator_is_an_engine_that_says_what_its_model_says(small_engine):
    prompts = [Prompt((Message("user", f"Name a colour of the {thing}."),)) for thing in ("sky", "sea")]
    sampling = Sampling(max_tokens=8)
    said = HaystackEngine(LocalChatGenerator(SMALL)).generate(prompts, sampling)
    assert said == small_engine.generate(prompts, sampling)
