"""A real vLLM over the packaged SmolLM2: what it measures equals the same weights in this process.

Skipped unless ``ATTRKIT_VLLM`` names the ``vllm`` command; ``make test-servers`` installs one and runs this.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.request

import numpy as np
import pytest

from attr_core.api import explain
from attr_core.capabilities import offered, probe
from attr_core.demo import DOCUMENTS, QUESTION
from attr_core.engines.local_models import convert_gguf, find_packaged
from attr_core.engines.openai_server import OpenAIServerEngine
from attr_core.errors import ContextTooLongError, EngineError, ModelNotFoundError
from attr_core.estimators import DebiasedLasso
from attr_core.protocols import Capability, Sampling
from attr_core.types import Message, Prompt, ToolCall

COMMAND = os.environ.get("ATTRKIT_VLLM", "")
pytestmark = [
    pytest.mark.servers,
    pytest.mark.model,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not COMMAND, reason="ATTRKIT_VLLM names no vllm command"),
]

KEY = "sk-local-0123456789"
WINDOW = 2048
SECONDS_TO_START = 400
RESPONSES = ["The Aldemoor Lantern Festival opened in 1911.", " Two  spaces\n\nand lines. ", "cafe\u0301 🙂 漢字 שלום"]
PROMPTS = [
    Prompt((Message("user", "When did the fair open?"),)),
    Prompt((Message("system", "It opened in 1911."), Message("user", "When did the fair open? 🙂"))),
    Prompt((Message("system", ""), Message("user", "When?"))),
    Prompt((Message("user", "Hi"), Message("assistant", "Yes?"), Message("user", "漢字"))),
]
TOOLS = ({"name": "look_up", "description": "Looks up a place.", "parameters": {"type": "object", "properties": {}}},)
CALLS = Prompt(
    (
        Message("user", "Who keeps the market?"),
        Message("assistant", "", tool_calls=(ToolCall("c1", "look_up", {"place": "the market"}),)),
        Message("tool", "Nobody knows.", tool_call_id="c1"),
    ),
    TOOLS,
)
PLACES = ("Corvath", "Dunmere", "Farrow", "Gildern", "Jaspen", "Kestrel")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A vLLM on this machine that asks for a key."""
    gguf = find_packaged("SmolLM2-135M-Instruct.Q4_1.gguf")
    if gguf is None:
        pytest.skip("the package that ships SmolLM2-135M-Instruct is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "log"
    command = [COMMAND, "serve", str(convert_gguf(gguf)), "--served-model-name", "smol", "--dtype", "float32"]
    command += ["--max-model-len", str(WINDOW), "--enforce-eager", "--host", "127.0.0.1", "--port", str(port)]
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "VLLM_API_KEY": KEY}
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "2", **quiet}
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        _wait(server, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        _stop(server)


@pytest.fixture(scope="module")
def engine(url):
    return OpenAIServerEngine(url, api_key=KEY)


def _wait(server, address, log):
    until = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < until and server.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310
            if answer.status == 200:
                return
        time.sleep(0.5)
    pytest.fail("vLLM did not start:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-40:]))


def _stop(server):
    """The server and what it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(30)
            return


def test_it_generates_and_scores(engine):
    assert offered(engine) == {Capability.GENERATE, Capability.SCORE}
    assert probe(engine, {}) == {Capability.GENERATE: None, Capability.SCORE: None}
    assert engine.spec.endswith("#smol")
    assert engine.max_context == WINDOW - 1


@pytest.mark.parametrize("response", RESPONSES)
def test_token_scores_and_offsets_equal_those_of_the_same_weights_here(engine, small_engine, response):
    for ours, theirs in zip(engine.score(PROMPTS, response), small_engine.score(PROMPTS, response), strict=True):
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-3)
        np.testing.assert_array_equal(ours.offsets, theirs.offsets)


def test_prompts_are_rendered_as_here_and_what_the_template_cannot_carry_is_written_as_text(engine, small_engine):
    for prompt in [*PROMPTS, CALLS]:
        ours, theirs = engine.render(prompt), small_engine.render(prompt)
        assert (ours.text, ours.token_ids, ours.notes) == (theirs.text, theirs.token_ids, theirs.notes)


def test_greedy_answers_are_the_same_text(engine, small_engine):
    sampling = Sampling(max_tokens=24)
    ours, theirs = engine.generate([*PROMPTS, CALLS], sampling), small_engine.generate([*PROMPTS, CALLS], sampling)
    assert [one.text for one in ours] == [one.text for one in theirs]
    assert [one.tokens_in for one in ours] == [one.tokens_in for one in theirs]


def test_attribution_through_the_server_equals_that_of_the_same_weights_here(engine, small_engine):
    noise = [f"The {place} market sells wool and lamps on the first Tuesday of every month." for place in PLACES]
    ours, theirs = (
        explain(
            QUESTION,
            [*DOCUMENTS, *noise],
            "The Aldemoor Lantern Festival opened in 1911.",
            engine=one,
            estimator=DebiasedLasso(n_ablations=64),
            regenerations=False,
            db=":memory:",
        )
        for one in (engine, small_engine)
    )
    assert [target.text for target in ours.targets] == [target.text for target in theirs.targets]
    np.testing.assert_allclose(ours.effects, theirs.effects, atol=1e-2)
    np.testing.assert_array_equal(ours.verdicts, theirs.verdicts)
    for row in range(len(ours.targets)):
        assert ours.ranking(row)[0] == theirs.ranking(row)[0]
        order = ours.effects[row][theirs.ranking(row)]  # the same ranking, but for what is tied within the tolerance
        assert (np.diff(order) < 2e-2).all()


def test_what_does_not_fit_is_not_sent(engine):
    with pytest.raises(ContextTooLongError, match=f"window of {WINDOW - 1} tokens"):
        engine.score([Prompt((Message("user", "word " * WINDOW),))], "yes")


def test_a_wrong_key_and_a_wrong_model_are_told(url):
    with pytest.raises(EngineError, match="refuses the key"):
        OpenAIServerEngine(url, api_key="sk-wrong-9876543210").generate(PROMPTS[:1])
    with pytest.raises(ModelNotFoundError, match="no model 'big'; name one it has: smol"):
        OpenAIServerEngine(url, "big", api_key=KEY).generate(PROMPTS[:1])
