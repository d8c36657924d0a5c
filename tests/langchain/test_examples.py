"""The examples run as a user runs them, on the real small model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model

EXAMPLES = Path(__file__).parents[2] / "examples"


def printed(name, small_engine, tmp_path):
    """What an example prints; ``small_engine`` skips the test where the model is not installed."""
    environment = {**os.environ, "ATTRKIT_DB": str(tmp_path / "attrkit.db")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, env=environment, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_chain_names_the_chunk_that_its_answer_came_from(small_engine, tmp_path):
    said = printed("langchain_rag.py", small_engine, tmp_path)
    lines = said.splitlines()
    assert "1911" in lines[0]
    (pivot,) = (i for i, line in enumerate(lines) if line.startswith("pivot '1911'"))
    assert " drives       lantern: " in lines[pivot + 1]
    assert not any("drives       torch" in line for line in lines)


@pytest.mark.slow
def test_the_agents_answer_came_from_a_tool_and_its_call_from_an_earlier_turn(small_engine, tmp_path):
    pytest.importorskip("langgraph")
    said = printed("langgraph_agent.py", small_engine, tmp_path)
    answer, calls = said.split("step 1 of 2: ")
    assert "from tool `opening_year`, step 1" in answer
    assert "event «Aldemoor Lantern Festival» from m0 (user_turn)" in calls
