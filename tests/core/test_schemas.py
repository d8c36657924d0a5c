"""A sampling's schema reaches those endpoints that are known to keep to one, and no others."""

import importlib.util
import json

import pytest
from faulty_proxy import Endpoint, close_clients, event_loop

from attr_core.engines.litellm import Limits, LiteLLMEngine
from attr_core.errors import ConfigurationError
from attr_core.protocols import Sampling
from attr_core.types import Message, Prompt

# As litellm's own models and clients give them; see test_litellm_engine.py.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*`ReadOnly` qualifier:UserWarning"),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

SCHEMA = {"type": "object", "properties": {"verdict": {"type": "string"}}, "required": ["verdict"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
PROMPTS = [Prompt((Message("user", "When?"),))]
HELD = Sampling(max_tokens=4, schema=json.dumps(SCHEMA))
FREE = Sampling(max_tokens=4)


@pytest.fixture(scope="module")
def litellm():
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("litellm is not installed")
    from attr_core.engines._litellm_calls import load_litellm

    with event_loop():
        module = load_litellm()
        yield module
        close_clients(module)


@pytest.fixture
def hosted(litellm, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Endpoint() as endpoint:

        def ask(model, sampling, **parameters):
            engine = LiteLLMEngine(model, api_base=endpoint.url, api_key="sk", limits=Limits(timeout=5.0), **parameters)
            engine.generate(PROMPTS, sampling)
            return endpoint.requests[-1].get("response_format")

        yield ask


def test_a_hosted_model_that_keeps_to_schemas_is_sent_it(hosted):
    assert hosted("openai/gpt-4o-mini", HELD) == FORMAT
    assert hosted("openai/gpt-4o-mini", FREE) is None


def test_a_hosted_model_of_which_that_is_not_known_is_not(hosted):
    assert hosted("openai/some-model", HELD) is None


def test_a_format_that_the_engine_was_given_stays(hosted):
    plain = {"type": "json_object"}
    assert hosted("openai/gpt-4o-mini", HELD, response_format=plain) == plain


def test_what_is_no_schema_is_refused(hosted):
    with pytest.raises(ConfigurationError, match="no JSON object"):
        hosted("openai/gpt-4o-mini", Sampling(schema="verdict"))


@pytest.mark.parametrize(("kind", "is_sent"), [("vllm", True), ("sglang", True), ("openai", False)])
def test_a_server_of_ones_own_is_sent_it_where_its_kind_enforces_schemas(kind, is_sent, tiny_model, tiny_tokenizer):
    pytest.importorskip("httpx")
    from protocol_server import Behaviour, Model, serving

    from attr_core.engines.openai_server import OpenAIServerEngine

    with serving(Model(tiny_model("llama"), tiny_tokenizer), Behaviour(kind)) as server:
        engine = OpenAIServerEngine(server.url)
        for sampling, expected in ((HELD, FORMAT if is_sent else None), (FREE, None)):
            engine.generate(PROMPTS, sampling)
            assert server.bodies("/v1/chat/completions")[-1].get("response_format") == expected
