"""Servers on this machine that speak the documented protocols of vLLM, SGLang and plain OpenAI over a real small model.

Log-probabilities are computed here with transformers directly, not by attrkit.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-local-0123456789"


class Status(Exception):  # noqa: N818
    """An answer that is no success."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


@dataclass
class Behaviour:
    """What the server is and what is wrong with it; may be changed while it runs.

    ``faults`` are met by the requests to ``faulty`` one after another: a status, ``drop`` or ``malformed``. ``broken``
    names how log-probabilities are wrong. ``takes_messages`` is whether SGLang's ``/tokenize`` knows conversations, and
    ``tells_strings`` whether vLLM's gives the vocabulary's strings.
    """

    kind: str
    names: tuple[str, ...] = ("tiny",)
    window: int | None = 512
    key: str | None = None
    owner: str | None = None
    broken: str | None = None
    faults: deque[str | int] = field(default_factory=deque)
    faulty: str = "/v1/completions"
    delay: float = 0.0
    takes_messages: bool = True
    tells_strings: bool = True
    tokenizer_path: str = "nowhere/tokenizer"


class Model:
    """A model and its tokenizer, one request at a time."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.lock = threading.Lock()

    def chat_ids(self, messages: list[Any], tools: Any = None) -> list[int]:
        chat = [dict(message) for message in messages]
        for message in chat:
            for call in message.get("tool_calls") or ():
                try:
                    arguments = json.loads(call["function"]["arguments"])
                except ValueError as error:
                    raise Status(400, f"arguments are no JSON: {error}") from error
                call["function"] = {**call["function"], "arguments": arguments}
        try:
            with self.lock:
                text = self.tokenizer.apply_chat_template(chat, tools=tools, tokenize=False, add_generation_prompt=True)
        except Exception as error:
            raise Status(400, str(error)) from error
        return self.ids(text)

    def ids(self, text: str) -> list[int]:
        with self.lock:
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def text(self, ids: list[int], *, skip: bool = False) -> str:
        with self.lock:
            return str(self.tokenizer.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False))

    def strings(self, ids: list[int]) -> list[str]:
        with self.lock:
            return list(self.tokenizer.convert_ids_to_tokens(ids))

    def logprobs(self, ids: list[int]) -> list[float | None]:
        """Of each token but the first, after those before it."""
        import torch

        with self.lock, torch.no_grad():
            logits = self.model(torch.tensor([ids])).logits[0].float()
            found = torch.log_softmax(logits, -1)[range(len(ids) - 1), ids[1:]]
        return [None, *found.tolist()]

    def answer(self, ids: list[int], n_most: int) -> tuple[list[int], str]:
        """Greedy."""
        import torch

        made: list[int] = []
        with self.lock, torch.no_grad():
            while len(made) < n_most:
                token = int(self.model(torch.tensor([[*ids, *made]])).logits[0, -1].argmax())
                if token == self.tokenizer.eos_token_id:
                    return made, "stop"
                made.append(token)
        return made, "length"


class Server(ThreadingHTTPServer):
    """Remembers what it was asked and how much at a time."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, model: Model, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self.behaviour = behaviour
        self.asked: list[tuple[str, Any, dict[str, str]]] = []
        self.most_at_a_time = 0
        self.under_way = 0
        self.count = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def bodies(self, path: str) -> list[Any]:
        """What was asked of a page."""
        return [body for one, body, _ in self.asked if one == path]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news."""


@contextlib.contextmanager
def serving(model: Model, behaviour: Behaviour) -> Iterator[Server]:
    """A server while the block runs."""
    with Server(model, behaviour) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _answer(self, body: Any) -> None:
        server, behaviour = self.server, self.server.behaviour
        with server.count:
            server.asked.append((self.path, body, dict(self.headers)))
            fault = behaviour.faults.popleft() if behaviour.faults and self.path == behaviour.faulty else None
            server.under_way += 1
            server.most_at_a_time = max(server.most_at_a_time, server.under_way)
        try:
            if fault == "drop":
                self.close_connection = True
                return
            if fault == "malformed":
                self._write(200, b'{"choices": [')
                return
            if isinstance(fault, int):
                raise Status(fault, f"no, and no key {behaviour.key}", {"Retry-After": "0.01"} if fault == 429 else {})
            if body is not None:
                time.sleep(behaviour.delay)
            if behaviour.key and self.headers.get("Authorization") != f"Bearer {behaviour.key}":
                raise Status(401, f"invalid key {self.headers.get('Authorization')}")
            self._write(200, json.dumps(_page(server, self.path, body)).encode())
        except Status as status:
            self._write(status.status, json.dumps({"error": {"message": str(status)}}).encode(), status.headers)
        finally:
            with server.count:
                server.under_way -= 1

    def _write(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _page(server: Server, path: str, body: Any) -> Any:
    behaviour = server.behaviour
    pages = {"/v1/models": _models, "/v1/chat/completions": _chat}
    if behaviour.kind == "vllm":
        pages |= {"/version": _version, "/tokenize": _tokenize, "/detokenize": _detokenize}
        pages |= {"/v1/completions": _completions}
    elif behaviour.kind == "sglang":
        pages |= {"/get_model_info": _model_info, "/server_info": _version, "/tokenize": _sglang_tokenize}
        pages |= {"/detokenize": _sglang_detokenize, "/generate": _sglang_generate}
    if path not in pages:
        raise Status(404, "Not Found")
    if body and behaviour.kind != "sglang" and body.get("model") not in behaviour.names:
        raise Status(404, f"The model `{body.get('model')}` does not exist.")
    return pages[path](server, body)


def _models(server: Server, _: Any) -> Any:
    behaviour = server.behaviour
    owner = behaviour.owner or {"openai": "somebody"}.get(behaviour.kind, behaviour.kind)
    cards = [
        {"id": name, "object": "model", "owned_by": owner, "root": "/models/tiny", "max_model_len": behaviour.window}
        for name in behaviour.names
    ]
    return {"object": "list", "data": cards}


def _version(server: Server, _: Any) -> Any:
    return {"version": "0.32.0"}


def _tokenize(server: Server, body: Any) -> Any:
    model = server.model
    ids = model.chat_ids(body["messages"], body.get("tools")) if "messages" in body else model.ids(body["prompt"])
    strings = model.strings(ids) if body.get("return_token_strs") and server.behaviour.tells_strings else None
    return {"count": len(ids), "max_model_len": server.behaviour.window, "tokens": ids, "token_strs": strings}


def _detokenize(server: Server, body: Any) -> Any:
    return {"prompt": server.model.text(body["tokens"])}


def _completions(server: Server, body: Any) -> Any:
    behaviour, choices = server.behaviour, []
    if behaviour.broken == "refused":
        raise Status(400, "prompt_logprobs are not supported")
    for n, ids in enumerate(body["prompt"]):
        if behaviour.window is not None and len(ids) + body["max_tokens"] > behaviour.window:
            raise Status(400, f"This model's maximum context length is {behaviour.window} tokens.")
        entries: list[Any] = [
            None if number is None else {str(token): {"logprob": number, "rank": 1, "decoded_token": "?"}}
            for token, number in zip(ids, server.model.logprobs(ids), strict=True)
        ]
        wrong = {"null": None, "nan": float("nan"), "above": 0.5, "impossible": -9999.0, "text": "-1"}
        if behaviour.broken in wrong:
            entries[-1][str(ids[-1])]["logprob"] = wrong[behaviour.broken]
        entries = entries[:-1] if behaviour.broken == "short" else entries
        told = None if behaviour.broken == "none" else entries
        choices.append({"index": n, "text": "?", "finish_reason": "length", "prompt_logprobs": told})
    choices = choices[1:] if behaviour.broken == "lost" else choices
    return {"object": "text_completion", "choices": choices[::-1]}  # the index tells the order, not the place


def _chat(server: Server, body: Any) -> Any:
    model = server.model
    ids = model.chat_ids(body["messages"], body.get("tools"))
    made, reason = model.answer(ids, body["max_tokens"])
    message = {"role": "assistant", "content": model.text(made, skip=True)}
    usage = {"prompt_tokens": len(ids), "completion_tokens": len(made), "total_tokens": len(ids) + len(made)}
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage}


def _model_info(server: Server, _: Any) -> Any:
    path = server.behaviour.tokenizer_path
    return {"model_path": path, "tokenizer_path": path, "is_generation": True, "weight_version": "default"}


def _sglang_tokenize(server: Server, body: Any) -> Any:
    if "prompt" not in body and not server.behaviour.takes_messages:
        raise Status(422, "[{'type': 'missing', 'loc': ('body', 'prompt'), 'msg': 'Field required'}]")
    model = server.model
    ids = model.ids(body["prompt"]) if "prompt" in body else model.chat_ids(body["messages"], body.get("tools"))
    return {"tokens": ids, "count": len(ids), "max_model_len": 1 << 60}


def _sglang_detokenize(server: Server, body: Any) -> Any:
    return {"text": [server.model.text(ids, skip=body["skip_special_tokens"]) for ids in body["tokens"]]}


def _sglang_generate(server: Server, body: Any) -> Any:
    if not body["return_logprob"]:
        raise Status(400, "this server is here for log-probabilities")
    answers, broken = [], server.behaviour.broken
    for ids, start in zip(body["input_ids"], body["logprob_start_len"], strict=True):
        found: list[Any] = server.model.logprobs(ids)[start:]
        found[0] = None  # it has no log-probability, since what came before it was not asked for
        found[-1] = {"null": None, "nan": float("nan"), "above": 0.5}.get(broken or "", found[-1])
        entries = [[number, token, None] for number, token in zip(found, ids[start:], strict=True)]
        entries = entries[:-1] if broken == "short" else entries
        if broken == "other":
            entries[-1][1] += 1
        told = {} if broken == "none" else {"input_token_logprobs": entries}
        answers.append({"text": "", "meta_info": {"prompt_tokens": len(ids), **told}})
    return answers[1:] if broken == "lost" else answers
