"""Servers that tests share: one that speaks the OpenAI protocol, and a proxy before such a one that has faults."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import http.client
import inspect
import json
import random
import re
import socket
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@contextlib.contextmanager
def event_loop() -> Any:
    """The main thread's while litellm is used: without one, litellm makes one and leaves it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        for task in (tasks := asyncio.all_tasks(loop)):
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        asyncio.set_event_loop(None)


def close_clients(litellm: Any) -> None:
    """Close what litellm keeps open, and what it has let go of: threads that make a client at once lose all but one."""
    for client in list(litellm.in_memory_llm_clients_cache.cache_dict.values()):
        if not inspect.iscoroutinefunction(getattr(client, "close", None)):
            client.close()
    litellm.in_memory_llm_clients_cache.flush_cache()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


FAULTS = ("429", "429 with Retry-After", "500", "stall", "drop", "malformed", "wrong type")
REACH_UPSTREAM = frozenset({"malformed"})
"""Faults of an answer that was made, and paid for."""


@dataclass(frozen=True)
class Plan:
    """Which fault an attempt meets: drawn by seed from the request's body and how often it came, not from the clock.

    ``shares`` are probabilities per fault; from attempt number ``most`` on a body meets none, so whoever tries often
    enough gets through. ``never_passes`` names, by a part of their body, requests that always meet a 500.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    most: int = 3
    retry_after: str = "0.05"
    stall_seconds: float = 2.0
    never_passes: bytes | None = None

    def fault(self, body: bytes, attempt: int) -> str | None:
        if self.never_passes is not None and self.never_passes in body:
            return "500"
        if attempt >= self.most:
            return None
        draw = random.Random(f"{self.seed} {hashlib.sha256(body).hexdigest()} {attempt}").random()  # noqa: S311
        for name, share in self.shares.items():
            draw -= share
            if draw < 0:
                return name
        return None


class _Server(ThreadingHTTPServer):
    """Counts requests, and how many are under way at a time."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.lock = threading.Lock()
        self.n_requests = 0
        self.under_way = self.most_under_way = 0
        self.stopped = threading.Event()

    def __enter__(self) -> Any:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopped.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is what is tested."""

    @contextlib.contextmanager
    def counted(self) -> Any:
        with self.lock:
            self.n_requests += 1
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            yield
        finally:
            with self.lock:
                self.under_way -= 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def answer(
        self,
        status: int,
        payload: Any,
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> None:
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.send_response(status)
        for name, value in {"content-type": content_type, "content-length": str(len(raw)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def log_message(self, *args: Any) -> None:
        pass


def upper(request: Mapping[str, Any]) -> dict[str, Any]:
    """The last message's text in capitals."""
    return {"role": "assistant", "content": request["messages"][-1]["content"].upper()}


def vector_of(text: str) -> list[float]:
    """How often words occur, each at a place that its hash gives: texts that share words are near each other."""
    row = [0.0] * 64
    for word in re.findall(r"\w+", text.lower()):
        row[hashlib.sha256(word.encode()).digest()[0] % 64] += 1.0
    return row


class Endpoint(_Server):
    """Speaks the OpenAI protocol; what it answers depends on the prompt only.

    ``refuse`` may give (status, payload, headers) instead of an answer. ``requests`` are the bodies that came,
    ``keys`` the authorisations that came with them.
    """

    def __init__(
        self,
        *,
        message: Callable[[Mapping[str, Any]], Mapping[str, Any]] = upper,
        refuse: Callable[[Mapping[str, Any]], tuple[int, Any, Mapping[str, str]] | None] = lambda request: None,
        models: tuple[str, ...] = ("m",),
        seconds: float = 0.0,
    ) -> None:
        super().__init__(_EndpointHandler)
        self.message = message
        self.refuse = refuse
        self.models = models
        self.seconds = seconds
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []


class _EndpointHandler(_Handler):
    def do_GET(self) -> None:
        if self.path.endswith("/models"):
            listed = [{"id": name, "object": "model"} for name in self.server.models]
            return self.answer(200, {"object": "list", "data": listed})
        return self.answer(404, {"error": {"message": "no such page"}})

    def do_POST(self) -> None:
        request = json.loads(self.body())
        with self.server.counted():
            with self.server.lock:
                self.server.requests.append(request)
                self.server.keys.append(self.headers.get("authorization"))
            time.sleep(self.server.seconds)
            if (refusal := self.server.refuse(request)) is not None:
                return self.answer(*refusal)
            return self.answer(200, self._vectors(request) if "input" in request else self._completion(request))

    def _completion(self, request: Mapping[str, Any]) -> dict[str, Any]:
        message = dict(self.server.message(request))
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        n_in, n_out = len(json.dumps(request["messages"])) // 4, len(message["content"] or "") // 4 + 1
        return {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": request["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out},
        }

    def _vectors(self, request: Mapping[str, Any]) -> dict[str, Any]:
        rows = [
            {"object": "embedding", "index": n, "embedding": vector_of(text)} for n, text in enumerate(request["input"])
        ]
        usage = {"prompt_tokens": 3, "total_tokens": 3}
        # The order of items is nobody's promise: they have an index.
        return {"object": "list", "model": request["model"], "data": rows[::-1], "usage": usage}


class FaultyProxy(_Server):
    """Passes requests on to ``upstream``, save those that meet a fault of the plan.

    ``faults`` counts them by kind; ``reached`` are the bodies that came to the upstream, in order.
    """

    def __init__(self, upstream: str, plan: Plan) -> None:
        super().__init__(_ProxyHandler)
        parts = urlsplit(upstream)
        self.upstream = (parts.hostname, parts.port)
        self.plan = plan
        self.faults: Counter[str] = Counter()
        self.reached: list[bytes] = []
        self._attempts: Counter[bytes] = Counter()

    def next_fault(self, body: bytes) -> str | None:
        with self.lock:
            attempt, self._attempts[body] = self._attempts[body], self._attempts[body] + 1
            fault = self.plan.fault(body, attempt)
            if fault is not None:
                self.faults[fault] += 1
            if fault is None or fault in REACH_UPSTREAM:
                self.reached.append(body)
            return fault


class _ProxyHandler(_Handler):
    def do_GET(self) -> None:
        self._pass_on(b"")

    def do_POST(self) -> None:
        body = self.body()
        with self.server.counted():
            fault = self.server.next_fault(body)
            match fault:
                case None | "malformed":
                    self._pass_on(body, spoil=fault is not None)
                case "429" | "429 with Retry-After":
                    asked = {"retry-after": self.server.plan.retry_after} if fault != "429" else {}
                    self.answer(429, {"error": {"message": "slow down", "type": "rate_limit"}}, asked)
                case "500":
                    self.answer(500, {"error": {"message": "out of order", "type": "server_error"}})
                case "wrong type":
                    self.answer(200, b"<html><body>Please log in.</body></html>", content_type="text/html")
                case "stall":
                    self.server.stopped.wait(self.server.plan.stall_seconds)
                    self._hang_up()
                case "drop":
                    self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, body: bytes, *, spoil: bool = False) -> None:
        host, port = self.server.upstream
        upstream = http.client.HTTPConnection(host, port, timeout=120)
        kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        try:
            upstream.request(self.command, self.path, body or None, kept)
            response = upstream.getresponse()
            if response.getheader("content-length") is None:
                return self._pass_on_stream(response)
            raw = response.read()
            content_type = response.getheader("content-type", "application/json")
            return self.answer(response.status, raw[: len(raw) // 2] if spoil else raw, content_type=content_type)
        finally:
            upstream.close()

    def _pass_on_stream(self, response: http.client.HTTPResponse) -> None:
        self.close_connection = True
        self.send_response(response.status)
        self.send_header("content-type", response.getheader("content-type", "text/event-stream"))
        self.send_header("connection", "close")
        self.end_headers()
        while piece := response.read1(65536):
            self.wfile.write(piece)
