"""The engine for one's own servers, against servers here that speak the documented protocols over a real tiny model."""

import contextlib
import itertools
import json
from collections import deque

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("httpx")
pytest.importorskip("tenacity")

from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_server import KEY, Behaviour, Model, serving

from attr_core.capabilities import offered, probe
from attr_core.engines import _requests
from attr_core.engines._server_http import read_address
from attr_core.engines._server_offsets import spans_of_prefixes, spans_of_strings
from attr_core.engines._tokens import covering
from attr_core.engines.openai_server import Limits, OpenAIServerEngine
from attr_core.errors import (
    ConfigurationError,
    ContextTooLongError,
    EngineError,
    InputError,
    MissingCapabilityError,
    ModelNotFoundError,
)
from attr_core.metering import MeteredEngine
from attr_core.protocols import Capability, CountsTokens, Engine, Generates, Priced, Renders, Sampling, Scores
from attr_core.types import Message, Prompt, ToolCall

KINDS = ["vllm", "sglang"]
RESPONSE = "The tower opened in 1835."
RESPONSES = [RESPONSE, "  Two  spaces\n\nand lines. ", "cafe\u0301 🙂 漢字 שלום 👩🏽‍🚀", "é", "🙂", "\ufffd?"]
TOOL = {"name": "look_up", "description": "Looks up a place.", "parameters": {"type": "object", "properties": {}}}
CALLS = Prompt(
    (
        Message("user", "Who keeps the river market?"),
        Message("assistant", "", tool_calls=(ToolCall("c1", "look_up", {"place": "the market"}),)),
        Message("tool", "Nobody knows.", tool_call_id="c1"),
    ),
    (TOOL,),
)


def user(text):
    return Prompt((Message("user", text),))


PROMPTS = [
    user("Who built the old tower?"),
    Prompt((Message("system", "The city opened in 1835."), Message("user", "When? 🙂"))),
    Prompt((Message("system", ""), Message("user", "When?"))),
    user("The keeper of the river market does. Who?"),
    user("Who built the old tower? The keeper."),
    Prompt((Message("user", "Hi"), Message("assistant", "Yes?"), Message("user", "漢字"))),
]


@pytest.fixture(scope="session")
def tiny(tiny_model, tiny_tokenizer):
    return Model(tiny_model("llama"), tiny_tokenizer)


@pytest.fixture(scope="session")
def reference(tiny_engine):
    return tiny_engine("llama")


@pytest.fixture
def start(tiny):
    """kind, what is special about it -> a server that stops after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda kind, **special: stack.enter_context(serving(tiny, Behaviour(kind, **special)))


@pytest.fixture(autouse=True)
def _no_long_waits_and_no_key(monkeypatch):
    monkeypatch.setattr(_requests, "FIRST_WAIT", 0.01)
    monkeypatch.delenv("ATTRKIT_SERVER_KEY", raising=False)


# Against the same weights in this process


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("response", RESPONSES)
def test_scores_equal_those_of_the_same_weights_in_this_process(start, reference, kind, response):
    engine = OpenAIServerEngine(start(kind).url)
    for ours, theirs in zip(engine.score(PROMPTS, response), reference.score(PROMPTS, response), strict=True):
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)
        assert ours.logprobs.dtype == np.float64
        if "\ufffd" not in response or kind == "vllm":
            np.testing.assert_array_equal(ours.offsets, theirs.offsets)


@pytest.mark.parametrize("response", RESPONSES[:5])
def test_offsets_are_found_without_the_vocabularys_strings_too(start, reference, response):
    engine = OpenAIServerEngine(start("vllm", tells_strings=False).url)
    [ours], [theirs] = engine.score(PROMPTS[:1], response), reference.score(PROMPTS[:1], response)
    np.testing.assert_array_equal(ours.offsets, theirs.offsets)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_rendered_as_in_this_process(start, reference, kind):
    engine = OpenAIServerEngine(start(kind).url)
    for prompt in PROMPTS:
        assert engine.render(prompt).token_ids == reference.render(prompt).token_ids
        assert engine.render(prompt).text == reference.render(prompt).text


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_template_cannot_carry_is_written_as_text_and_noted(start, reference, kind):
    engine = OpenAIServerEngine(start(kind).url)
    ours, theirs = engine.render(CALLS), reference.render(CALLS)
    assert ours.token_ids == theirs.token_ids
    assert ours.notes == theirs.notes
    assert any("tool calls" in note for note in ours.notes)


REFUSING = """{% for message in messages %}{% if message.role == 'system' %}{{ raise_exception('no') }}{% endif %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}<|im_start|>assistant\n"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("template", [None, REFUSING], ids=["none", "without system"])
def test_a_template_that_is_missing_or_refuses_is_helped_out_as_in_this_process(
    start, tiny, tiny_engine, monkeypatch, kind, template
):
    monkeypatch.setattr(tiny.tokenizer, "chat_template", template)
    engine, reference = OpenAIServerEngine(start(kind).url), tiny_engine("llama")
    for prompt in PROMPTS[:2]:
        ours, theirs = engine.render(prompt), reference.render(prompt)
        assert ours.token_ids == theirs.token_ids
        assert len(ours.notes) == len(theirs.notes)
    [ours], [theirs] = engine.score(PROMPTS[1:2], RESPONSE), reference.score(PROMPTS[1:2], RESPONSE)
    np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)


def test_generates_what_the_model_says_here(start, reference):
    for kind in KINDS:
        engine = OpenAIServerEngine(start(kind).url)
        ours = engine.generate(PROMPTS[:3], Sampling(max_tokens=5))
        assert ours == reference.generate(PROMPTS[:3], Sampling(max_tokens=5))


def test_an_old_sglang_is_helped_out_by_a_tokenizer_that_lies_here(start, reference, tiny, tmp_path):
    tiny.model.save_pretrained(tmp_path)
    tiny.tokenizer.save_pretrained(tmp_path)
    engine = OpenAIServerEngine(start("sglang", takes_messages=False, tokenizer_path=str(tmp_path)).url)
    for ours, theirs in zip(engine.score(PROMPTS, RESPONSE), reference.score(PROMPTS, RESPONSE), strict=True):
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)
        np.testing.assert_array_equal(ours.offsets, theirs.offsets)


# What a server offers


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_gives_prompt_log_probabilities_scores(start, kind):
    engine = OpenAIServerEngine(start(kind).url)
    assert offered(engine) == {Capability.GENERATE, Capability.SCORE}
    assert engine.why_not_score is None
    assert probe(engine, {}) == {Capability.GENERATE: None, Capability.SCORE: None}


def test_a_plain_server_generates_and_does_not_score(start):
    engine = OpenAIServerEngine(start("openai").url)
    assert offered(engine) == {Capability.GENERATE}
    assert "neither vLLM nor SGLang" in engine.why_not_score
    assert engine.generate(PROMPTS[:2], Sampling(max_tokens=3))[1].tokens_out == 3
    with pytest.raises(MissingCapabilityError, match="cannot score: it is neither vLLM nor SGLang"):
        engine.score(PROMPTS[:1], RESPONSE)
    with pytest.raises(MissingCapabilityError, match="tells no tokens"):
        engine.render(PROMPTS[0])
    assert engine.count_tokens(PROMPTS[0]) > 0


def test_llama_cpp_and_ollama_are_named_as_what_cannot_score(start):
    assert "llama.cpp's server" in OpenAIServerEngine(start("openai", owner="llamacpp").url).why_not_score
    assert "Ollama" in OpenAIServerEngine(start("openai", owner="library").url).why_not_score


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("refused", "this vLLM refuses to give prompt log-probabilities .*prompt_logprobs are not supported"),
        ("none", "this vLLM gives no prompt log-probabilities that can be used"),
        ("nan", "not finite"),
    ],
)
def test_a_vllm_that_gives_none_says_why_it_does_not_score(start, broken, reason):
    engine = OpenAIServerEngine(start("vllm", broken=broken).url)
    assert offered(engine) == {Capability.GENERATE}
    with pytest.raises(MissingCapabilityError, match=reason):
        engine.score(PROMPTS[:1], RESPONSE)


def test_a_vllm_that_gives_no_scores_still_tells_its_tokens(start, reference):
    engine = OpenAIServerEngine(start("vllm", broken="refused").url)
    assert engine.render(PROMPTS[0]).token_ids == reference.render(PROMPTS[0]).token_ids


def test_an_old_sglang_without_a_tokenizer_here_says_why_it_does_not_score(start):
    engine = OpenAIServerEngine(start("sglang", takes_messages=False).url)
    assert "applies no chat template" in engine.why_not_score
    assert "nowhere/tokenizer is not on this machine" in engine.why_not_score


def test_what_a_server_offers_is_asked_once_and_not_before_it_is_needed(start):
    server = start("vllm")
    engine = OpenAIServerEngine(server.url)
    assert repr(engine) == f"OpenAIServerEngine({server.url!r})"
    assert server.asked == []
    assert isinstance(engine, Engine | Generates | Scores | Renders | Priced | CountsTokens)
    offered(engine)
    n_asked = len(server.asked)
    offered(engine)
    assert engine.max_context == 511
    assert len(server.asked) == n_asked


def test_a_server_that_was_down_is_asked_again(start):
    server = start("vllm", faulty="/v1/models", faults=deque([500] * 3))
    engine = OpenAIServerEngine(server.url, limits=Limits(retries=2))
    with pytest.raises(EngineError, match="500"):
        offered(engine)
    assert Capability.SCORE in offered(engine)


def test_it_costs_nothing(start):
    price = OpenAIServerEngine(start("openai").url).price
    assert (price.token_in, price.token_out) == (0.0, 0.0)


# Names


@pytest.mark.parametrize(
    ("address", "read"),
    [
        ("http://localhost:8000", ("http://localhost:8000", None)),
        ("http://localhost:8000/", ("http://localhost:8000", None)),
        ("https://host/v1#org/name", ("https://host", "org/name")),
        ("host:1/deep/v1/#m", ("http://host:1/deep", "m")),
    ],
)
def test_an_address_may_have_v1_and_a_model(address, read):
    assert read_address(address) == read


@pytest.mark.parametrize("address", ["", "ftp://host", "http://", "http://host?key=1", "http://host:x", "#m"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ConfigurationError, match="no server's address"):
        OpenAIServerEngine(address)


def test_the_spec_names_address_and_model(start):
    url = start("vllm", names=("tiny", "other")).url
    assert OpenAIServerEngine(f"{url}/v1#other").spec == f"server:{url}#other"
    assert OpenAIServerEngine(url, "tiny").spec == f"server:{url}#tiny"
    assert OpenAIServerEngine(start("vllm").url).spec.endswith("#tiny")


def test_without_a_name_the_only_model_is_taken_and_several_are_listed(start):
    with pytest.raises(ConfigurationError, match=r"2 models; name one, as in server:http.*#one: one, two"):
        OpenAIServerEngine(start("vllm", names=("one", "two")).url).spec  # noqa: B018


def test_two_names_for_one_model_are_refused():
    with pytest.raises(ConfigurationError, match="name it once"):
        OpenAIServerEngine("http://localhost:1#one", "two")


@pytest.mark.parametrize("kind", [*KINDS, "openai"])
def test_an_unknown_model_is_answered_by_those_that_there_are(start, kind):
    with pytest.raises(ModelNotFoundError, match="no model 'big'; name one it has: tiny, small"):
        OpenAIServerEngine(start(kind, names=("tiny", "small")).url, "big").generate(PROMPTS[:1])


def test_the_fingerprint_is_of_what_answers(start):
    same = {OpenAIServerEngine(start("vllm").url).fingerprint for _ in range(1)}
    server = start("vllm", names=("tiny", "small"))
    first, again = (OpenAIServerEngine(server.url, "tiny").fingerprint for _ in range(2))
    assert first == again
    assert {first, OpenAIServerEngine(server.url, "small").fingerprint, *same}.__len__() == 3


def test_the_fingerprint_changes_with_the_template(start, tiny, monkeypatch):
    server = start("vllm")
    before = OpenAIServerEngine(server.url).fingerprint
    monkeypatch.setattr(tiny.tokenizer, "chat_template", tiny.tokenizer.chat_template.replace("im_start", "im_end"))
    assert OpenAIServerEngine(server.url).fingerprint != before


# Keys


@pytest.mark.parametrize("kind", [*KINDS, "openai"])
def test_the_key_goes_into_the_header_only(start, kind, monkeypatch):
    server = start(kind, key=KEY)
    monkeypatch.setenv("ATTRKIT_SERVER_KEY", KEY)
    engine = OpenAIServerEngine(server.url)
    engine.generate(PROMPTS[:1], Sampling(max_tokens=2))
    shown = [
        engine.spec,
        engine.fingerprint,
        repr(engine),
        json.dumps([(path, body) for path, body, _ in server.asked]),
    ]
    assert not any(KEY in text for text in shown)
    assert all(headers["Authorization"] == f"Bearer {KEY}" for _, _, headers in server.asked)


def test_a_refused_key_is_not_shown_even_where_the_server_repeats_it(start):
    wrong = "sk-wrong-9876543210"
    with pytest.raises(EngineError, match=r"refuses the key.*ATTRKIT_SERVER_KEY") as caught:
        OpenAIServerEngine(start("vllm", key=KEY).url, api_key=wrong).spec  # noqa: B018
    assert wrong not in str(caught.value)


def test_the_servers_reason_is_told_without_the_key(start):
    server = start("vllm", key=KEY, faults=deque([400]), faulty="/v1/chat/completions")
    with pytest.raises(EngineError, match=r"no, and no key \*\*\*"):
        OpenAIServerEngine(server.url, api_key=KEY).generate(PROMPTS[:1])


def test_credentials_in_the_address_are_sent_and_not_shown(start):
    server = start("openai")
    engine = OpenAIServerEngine(server.url.replace("://", "://me:pass-word-1@"))
    assert "pass-word-1" not in engine.spec + repr(engine) + engine.fingerprint
    assert server.asked[0][2]["Authorization"].startswith("Basic ")


# Faults


def quick(url, **options):
    return OpenAIServerEngine(url, limits=Limits(**{"retries": 3, "concurrency": 1, **options}))


@pytest.mark.parametrize("fault", ["drop", "malformed", 429, 500, 503])
@pytest.mark.parametrize(("kind", "page"), [("vllm", "/v1/completions"), ("sglang", "/generate")])
def test_a_passing_fault_leaves_no_trace_in_the_scores(start, kind, page, fault):
    server = start(kind, faulty=page)
    engine = quick(server.url)
    good = engine.score(PROMPTS, RESPONSE)
    server.behaviour.faults.extend([fault, fault])
    for there, here in zip(good, engine.score(PROMPTS, RESPONSE), strict=True):
        np.testing.assert_array_equal(there.logprobs, here.logprobs)


def test_what_did_not_fail_comes_with_the_error(start):
    server = start("vllm")
    engine = quick(server.url)
    good = engine.score(PROMPTS, RESPONSE)
    server.behaviour.faults.extend([400])
    with pytest.raises(
        EngineError, match=r"failed on 4 of 6 prompts, first because /v1/completions answered 400"
    ) as caught:
        engine.score(PROMPTS, RESPONSE)
    assert sorted(caught.value.completed) == [4, 5]
    np.testing.assert_array_equal(caught.value.completed[5].logprobs, good[5].logprobs)


def test_answers_that_did_not_fail_come_with_the_error(start):
    server = start("openai", faulty="/v1/chat/completions", faults=deque([400]))
    with pytest.raises(EngineError, match="failed on 1 of 3 prompts") as caught:
        quick(server.url).generate(PROMPTS[:3], Sampling(max_tokens=2))
    assert sorted(caught.value.completed) == [1, 2]


@pytest.mark.parametrize("broken", ["null", "nan", "above", "short", "none", "lost", "impossible", "text"])
def test_numbers_that_are_none_are_refused_on_vllm(start, broken):
    server = start("vllm")
    engine = quick(server.url)
    engine.score(PROMPTS[:1], RESPONSE)
    server.behaviour.broken = broken
    with pytest.raises(
        EngineError, match=r"the server at http.* gave|the server at http.* answered .*it is at fault"
    ) as caught:
        engine.score(PROMPTS[:4], RESPONSE)
    assert not caught.value.completed


@pytest.mark.parametrize("broken", ["null", "nan", "above", "short", "none", "lost", "other"])
def test_numbers_that_are_none_are_refused_on_sglang(start, broken):
    server = start("sglang")
    engine = quick(server.url)
    engine.score(PROMPTS[:1], RESPONSE)
    server.behaviour.broken = broken
    with pytest.raises(EngineError, match="it is at fault"):
        engine.score(PROMPTS[:4], RESPONSE)


def test_a_refused_connection_names_the_address_and_what_to_start(start):
    with pytest.raises(EngineError, match=r"no server answers at http://127.0.0.1:9 .*start one.*vllm serve"):
        OpenAIServerEngine("http://127.0.0.1:9", "m").generate(PROMPTS[:1])


def test_a_page_that_is_no_server_is_told(start):
    with pytest.raises(EngineError, match=r"answers no list of models|lists models"):
        OpenAIServerEngine(f"{start('openai').url}/elsewhere").spec  # noqa: B018


def test_a_prompt_that_does_not_fit_is_not_sent(start):
    server = start("vllm", window=64)
    engine = OpenAIServerEngine(server.url)
    offered(engine)
    n_asked = len(server.bodies("/v1/completions"))
    with pytest.raises(ContextTooLongError, match=r"prompt 1 of .* do not fit the window of 63 tokens"):
        engine.score([PROMPTS[0], user("tower " * 40)], RESPONSE)
    with pytest.raises(ContextTooLongError, match="at least 1 of an answer"):
        engine.generate([user("tower " * 60)])
    assert len(server.bodies("/v1/completions")) == n_asked


def test_the_largest_prompt_that_fits_is_scored_and_answered(start):
    engine = OpenAIServerEngine(start("vllm", window=64).url)
    n_response = len(engine.score(PROMPTS[:1], RESPONSE)[0].logprobs)
    fitting = [n for n in range(60) if len(engine.render(user("x" * n)).token_ids) + n_response <= engine.max_context]
    engine.score([user("x" * fitting[-1])], RESPONSE)
    assert engine.generate([user("x" * fitting[-1])])[0].tokens_out <= n_response


def test_a_window_that_the_server_keeps_to_itself_is_found_out(start):
    server = start("vllm", window=None)
    engine = OpenAIServerEngine(server.url)
    offered(engine)
    server.behaviour.window = 30
    assert engine.max_context is None
    with pytest.raises(ContextTooLongError, match="maximum context length is 30"):
        engine.score(PROMPTS[:1], RESPONSE)


def test_nothing_to_score_and_nothing_to_answer_are_refused(start):
    engine = OpenAIServerEngine(start("vllm").url)
    with pytest.raises(InputError, match="response is empty"):
        engine.score(PROMPTS[:1], "")
    with pytest.raises(InputError, match="no messages"):
        engine.score([Prompt(())], RESPONSE)
    with pytest.raises(ConfigurationError):
        engine.generate(PROMPTS[:1], Sampling(max_tokens=0))


def test_broken_surrogates_are_sent_as_what_they_are_shown_as(start, reference):
    engine = OpenAIServerEngine(start("vllm").url)
    [ours], [theirs] = (one.score([user("a\ud83d")], "b\ud83dc") for one in (engine, reference))
    np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)
    np.testing.assert_array_equal(ours.offsets, theirs.offsets)


# How it is sent


def test_prompts_are_scored_a_few_at_a_time(start):
    server = start("vllm")
    engine = OpenAIServerEngine(server.url)
    offered(engine)
    server.asked.clear()
    engine.score([user(f"tower {n}") for n in range(10)], RESPONSE)
    assert sorted(len(body["prompt"]) for body in server.bodies("/v1/completions")) == [2, 4, 4]


def test_prompts_that_share_a_beginning_follow_each_other_on_sglang(start):
    server = start("sglang")
    engine = quick(server.url)
    engine.score([PROMPTS[n] for n in (0, 3, 1, 4, 2, 5)], RESPONSE)
    sent = [row for body in server.bodies("/generate")[1:] for row in body["input_ids"]]
    assert sent == sorted(sent)


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_requests_are_under_way_than_allowed(start, kind):
    server = start(kind, delay=0.01)
    engine = OpenAIServerEngine(server.url, limits=Limits(concurrency=3))
    engine.score([user(f"tower {n}") for n in range(16)], RESPONSE)
    engine.generate([user(f"tower {n}") for n in range(6)], Sampling(max_tokens=1))
    assert 2 <= server.most_at_a_time <= 3


def test_the_models_own_sampling_is_overruled_where_the_server_has_words_for_it(start):
    sampling = Sampling(max_tokens=2, temperature=0.5, seed=7, stop=("x",))
    for kind, has in (("vllm", True), ("sglang", True), ("openai", False)):
        server = start(kind)
        OpenAIServerEngine(server.url).generate(PROMPTS[:1], sampling)
        [body] = server.bodies("/v1/chat/completions")
        assert (body["temperature"], body["seed"], body["max_tokens"], body["stop"]) == (0.5, 7, 2, ["x"])
        assert ("repetition_penalty" in body) == has


@pytest.mark.parametrize("kind", KINDS)
def test_options_of_the_template_go_wherever_it_is_applied(start, kind):
    server = start(kind)
    engine = OpenAIServerEngine(server.url, template_options={"enable_thinking": False})
    engine.render(PROMPTS[0])
    engine.generate(PROMPTS[:1], Sampling(max_tokens=1))
    sent = [body for page in ("/tokenize", "/v1/chat/completions") for body in server.bodies(page)]
    chats = [body for body in sent if "messages" in body]
    assert len(chats) > 2
    assert all(body["chat_template_kwargs"] == {"enable_thinking": False} for body in chats)


def test_tools_are_sent_as_they_were_given_where_nobody_knows_the_template(start):
    server = start("openai")
    OpenAIServerEngine(server.url).generate([Prompt(PROMPTS[0].messages, (TOOL,))], Sampling(max_tokens=1))
    assert server.bodies("/v1/chat/completions")[0]["tools"] == [{"type": "function", "function": TOOL}]


def test_tokens_in_counts_prompt_and_response(start):
    engine = OpenAIServerEngine(start("vllm").url)
    [score] = engine.score(PROMPTS[:1], RESPONSE)
    assert score.tokens_in == len(engine.render(PROMPTS[0]).token_ids) + len(score.logprobs)


def test_what_was_measured_once_is_not_sent_again(start):
    server = start("vllm")
    engine = MeteredEngine(OpenAIServerEngine(server.url))
    engine.score(PROMPTS, RESPONSE)
    n_asked = len(server.asked)
    engine.score(PROMPTS[::-1], RESPONSE)
    assert len(server.asked) == n_asked
    assert engine.cost.calls == len(PROMPTS)


# Which characters a token holds


@settings(max_examples=150)
@given(text=st.text(min_size=1, max_size=12), cuts=st.sets(st.integers(1, 40), max_size=12))
def test_tokens_cover_the_text_however_it_is_cut_into_bytes(text, cuts):
    from attr_core.engines._server_offsets import _BYTES

    whole = text.encode()
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    parts = [whole[a:b] for a, b in itertools.pairwise(places)]
    letters = {byte: letter for letter, byte in _BYTES.items()}
    spans = spans_of_strings(["".join(letters[byte] for byte in part) for part in parts], text)
    for part, (begin, end) in zip(parts, spans, strict=True):
        assert part in text[begin:end].encode()
        assert len(text[begin:end].encode()) - len(part) <= 6
    offsets = covering(spans, len(text))
    assert {at for begin, end in offsets for at in range(begin, end)} == set(range(len(text)))


@settings(max_examples=100)
@given(strings=st.lists(st.text(max_size=4), max_size=6), text=st.text(max_size=8))
def test_strings_and_prefixes_of_any_kind_are_read_or_given_up(strings, text):
    for spans in (spans_of_strings(strings, text), spans_of_prefixes(strings, text)):
        assert spans is None or all(0 <= begin <= end <= len(text) for begin, end in spans)


def test_sentencepieces_words_and_bytes_are_read():
    strings = ["\u2581Hi", "\u2581", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>"]
    assert spans_of_strings(strings, "Hi 🙂") == [(0, 2), (2, 3), (3, 4), (3, 4), (3, 4), (3, 4)]


def test_what_decodes_to_another_text_is_given_up():
    assert spans_of_strings(["a", "b"], "ac") is None
    assert spans_of_prefixes(["a", "ab"], "ac") is None
