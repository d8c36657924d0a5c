"""A real server that speaks the OpenAI protocol, ``transformers serve`` with the packaged model, and real clients."""

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import warnings
from pathlib import Path

import pytest
from faulty_proxy import FaultyProxy, Plan, close_clients, event_loop

from attr_core.engines import _requests
from attr_core.engines._litellm_calls import load_litellm
from attr_core.engines.litellm import Limits, LiteLLMEngine
from attr_core.engines.local_models import convert_gguf, find_packaged
from attr_core.errors import EngineError
from attr_core.metering import MeteredEngine
from attr_core.middleware import flush_logging, with_logging
from attr_core.protocols import Sampling
from attr_core.results import Budget
from attr_core.store import Store
from attr_core.types import Message, Prompt

pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
for needed in ("litellm", "openai", "transformers", "fastapi", "uvicorn"):
    if importlib.util.find_spec(needed) is None:  # importing them takes seconds, which collecting need not
        pytest.skip(f"{needed} is not installed", allow_module_level=True)

PACKAGED = "SmolLM2-135M-Instruct.Q4_1.gguf"
KEY = "sk-very-secret-key"
READY_SECONDS = 120
LIMITS = Limits(timeout=60.0, concurrency=2)
QUESTION = {"role": "user", "content": "The fair opened in 1911. In which year did it open? Answer with the year."}
PROMPTS = [Prompt((Message("user", f"Name the number {n}."),)) for n in range(4)]
SHORT = Sampling(max_tokens=3)


class Server:
    def __init__(self, port, folder):
        self.url = f"http://127.0.0.1:{port}/v1"
        self.model = str(folder)

    def engine(self, url=None, **options):
        options = {"limits": LIMITS, "api_key": KEY, **options}
        return LiteLLMEngine(f"openai/{self.model}", api_base=url or self.url, **options)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    command = shutil.which("transformers", path=str(Path(sys.executable).parent)) or shutil.which("transformers")
    if command is None:
        pytest.skip("the command transformers is not installed")
    gguf = find_packaged(PACKAGED)
    if gguf is None:
        pytest.skip(f"the package that ships {PACKAGED} is not installed")
    folder = convert_gguf(gguf)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [command, "serve", str(folder), *options], stdout=file, stderr=subprocess.STDOUT, env=environment
        )
    try:
        _wait_until_ready(process, port, log)
        yield Server(port, folder)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _wait_until_ready(process, port, log):
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer,
        ):
            if answer.status == 200:
                return
        time.sleep(0.2)
    pytest.fail(f"transformers serve is not ready: {log.read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="module")
def loop():
    with event_loop() as opened:
        yield opened


@pytest.fixture(scope="module")
def litellm(loop):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        module = load_litellm()
        yield module
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop.run_until_complete(module.close_litellm_async_clients())
        close_clients(module)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(_requests, "FIRST_WAIT", 0.05)
    monkeypatch.setattr(_requests, "LONGEST_WAIT", 0.2)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "attrkit.db") as opened:
        yield opened
        flush_logging()


def recorded(store, response):
    assert flush_logging()
    trace = store.get(response.attrkit["trace_id"])
    assert trace.status == "ok"
    assert trace.query == QUESTION["content"]
    assert trace.answer
    return trace


@pytest.fixture
def client(server):
    import openai

    with openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0) as opened:
        yield opened


def test_the_engine_answers_as_the_server_does(server, litellm):
    engine = server.engine()
    first, second = engine.generate(PROMPTS[:2], SHORT), engine.generate(PROMPTS[:2], SHORT)
    assert first == second, "greedy"
    assert all(one.text and one.finish_reason for one in first)
    assert (engine.price, engine.max_context) == (None, None)


def test_the_metered_engine_holds_its_budget_and_asks_once(server, litellm):
    metered = MeteredEngine(server.engine(), budget=Budget(calls=3))
    answers = metered.generate(PROMPTS[:3], SHORT)
    assert metered.generate(PROMPTS[:3], SHORT) == answers
    assert metered.cost.calls == 3


def test_through_faults_the_engine_gives_the_same_answers(server, litellm):
    shares = {"429": 0.15, "429 with Retry-After": 0.15, "500": 0.1, "drop": 0.1, "malformed": 0.15, "wrong type": 0.1}
    straight = server.engine().generate(PROMPTS, SHORT)
    with FaultyProxy(server.url, Plan(shares, seed=1)) as proxy:
        assert server.engine(proxy.url).generate(PROMPTS, SHORT) == straight
        assert len(proxy.reached) == len(PROMPTS) + proxy.faults["malformed"]
        assert sum(proxy.faults.values()) >= 3


def test_a_model_that_the_server_does_not_have_fails_with_its_name(server, litellm):
    engine = LiteLLMEngine("openai/no/such-model", api_base=server.url, api_key=KEY, limits=Limits(retries=0))
    with pytest.raises(EngineError, match="litellm:openai/no/such-model failed on 1 of 1") as caught:
        engine.generate(PROMPTS[:1], SHORT)
    assert "Error code: 400: " in str(caught.value), "what the server says is told"


def test_litellm_called_plainly_is_recorded(server, litellm, store):
    complete = with_logging(litellm.completion, store=store)
    options = {"api_base": server.url, "api_key": KEY, "max_retries": 0, "max_tokens": 4, "temperature": 0}
    response = complete(f"openai/{server.model}", [QUESTION], **options)
    trace = recorded(store, response)
    assert trace.answer == response.choices[0].message.content
    assert trace.generations[0].usage["prompt_tokens"] > 10


def test_litellm_streaming_is_recorded(server, litellm, store):
    complete = with_logging(litellm.completion, store=store)
    options = {"api_base": server.url, "api_key": KEY, "max_retries": 0, "max_tokens": 4, "temperature": 0}
    stream = complete(f"openai/{server.model}", [QUESTION], stream=True, **options)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert recorded(store, stream).answer == said


def test_litellm_called_asynchronously_is_recorded(server, litellm, loop, store):
    complete = with_logging(litellm.acompletion, store=store)
    options = {"api_base": server.url, "api_key": KEY, "max_retries": 0, "max_tokens": 4, "temperature": 0}
    response = loop.run_until_complete(complete(model=f"openai/{server.model}", messages=[QUESTION], **options))
    assert recorded(store, response).answer == response.choices[0].message.content


def test_an_openai_client_is_recorded(server, client, store):
    create = with_logging(client.chat.completions.create, store=store)
    response = create(model=server.model, messages=[QUESTION], max_tokens=4, temperature=0)
    assert recorded(store, response).answer == response.choices[0].message.content


def test_a_streaming_openai_client_is_recorded(server, client, store):
    create = with_logging(client.chat.completions.create, store=store)
    stream = create(model=server.model, messages=[QUESTION], max_tokens=4, temperature=0, stream=True)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert recorded(store, stream).answer == said


def test_an_asynchronous_openai_client_is_recorded_whole_and_streamed(server, loop, store):
    import openai

    async def ask():
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            create = with_logging(client.chat.completions.create, store=store)
            asked = {"model": server.model, "messages": [QUESTION], "max_tokens": 4, "temperature": 0}
            whole, stream, said = await create(**asked), await create(**asked, stream=True), ""
            async for chunk in stream:
                said += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            return whole, stream, said

    whole, stream, said = loop.run_until_complete(ask())
    assert recorded(store, whole).answer == recorded(store, stream).answer == said


def test_a_client_that_meets_faults_is_recorded_with_what_it_got(server, store):
    import openai

    with (
        FaultyProxy(server.url, Plan({"500": 1.0}, most=2)) as proxy,
        openai.OpenAI(base_url=proxy.url, api_key=KEY, max_retries=0) as client,
    ):
        create = with_logging(client.chat.completions.create, store=store)
        asked = {"model": server.model, "messages": [QUESTION], "max_tokens": 4, "temperature": 0}
        for _ in range(2):
            with pytest.raises(openai.InternalServerError):
                create(**asked)
        recorded(store, create(**asked))
    assert sorted(trace.status for trace in store.list()) == ["error", "error", "ok"]
