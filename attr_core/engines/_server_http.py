"""HTTP with one server: JSON there and back, and what went wrong, without anybody's key in it."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from attr_core._optional import require
from attr_core._redact import masked
from attr_core.engines._requests import Failure, failure_of_status, retry_after
from attr_core.engines._tokens import whole_characters
from attr_core.errors import ConfigurationError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_CONNECT_SECONDS = 10.0
_MOST_SAID = 300


class Refused(Exception):  # noqa: N818 - an answer, which may be expected
    """The server answered with a status that is no success; ``said`` is its reason."""

    def __init__(self, path: str, status: int, said: str, *, wait: float | None = None) -> None:
        super().__init__(f"{path} answered {status}: {said}" if said else f"{path} answered {status}")
        self.status = status
        self.said = said
        self.wait = wait


class Malformed(Exception):  # noqa: N818 - an answer, which may be expected
    """The server answered something that its protocol does not know."""


class Nonsense(Exception):  # noqa: N818 - an answer
    """The server answered by its protocol, but what cannot be right; it says what the server did."""


def read_address(address: str) -> tuple[str, str | None]:
    """``URL#MODEL`` as the server's root, without ``/v1``, and the model's name if there is one.

    Raises
    ------
    ConfigurationError
        It is no such address.

    Examples
    --------
    >>> read_address("localhost:8000/v1#Qwen/Qwen3-8B")
    ('http://localhost:8000', 'Qwen/Qwen3-8B')
    """
    url, _, model = address.strip().partition("#")
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.query and parts.port != 0
    except ValueError:
        good = False
    if not good:
        shown = url.rpartition("@")[2].partition("?")[0]
        raise ConfigurationError(f"{shown!r} is no server's address; write http://HOST:PORT#MODEL, without a query")
    root = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1').rstrip('/')}"
    return root, model or None


class Endpoint:
    """One server. Each method makes a single attempt; a lost connection is what ``httpx`` raises.

    Fit for threads and for forked children, which get connections of their own.
    """

    def __init__(self, root: str, *, api_key: str | None, timeout: float) -> None:
        parts = urlsplit(root)
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._auth = (unquote(parts.username or ""), unquote(parts.password or "")) if "@" in parts.netloc else None
        self._is_here = parts.hostname in _LOOPBACK
        self._key = api_key
        self._timeout = timeout
        self._made: tuple[int, Any] | None = None

    def get(self, path: str) -> Any:
        """What the server answers to GET."""
        return self._send("GET", path)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """What the server answers to POST."""
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        content = None if body is None else whole_characters(json.dumps(body, ensure_ascii=False)).encode()
        response = self._client().request(method, self.url + path, content=content)
        if not response.is_success:
            said = self._without_secrets(_said(response.content))
            raise Refused(path, response.status_code, said, wait=retry_after(response.headers))
        try:
            return json.loads(response.content)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{path} answered no JSON") from error

    def _client(self) -> Any:
        if self._made is None or self._made[0] != os.getpid():
            httpx = require("httpx", extra="openai")
            headers = {"Content-Type": "application/json"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            client = httpx.Client(
                headers=headers,
                auth=self._auth if not self._key else None,
                timeout=httpx.Timeout(self._timeout, connect=min(self._timeout, _CONNECT_SECONDS)),
                trust_env=not self._is_here,  # a proxy does not know this machine's servers
            )
            weakref.finalize(self, _close, client, os.getpid())
            self._made = (os.getpid(), client)
        return self._made[1]

    def _without_secrets(self, text: str) -> str:
        password = self._auth[1] if self._auth else ""
        known = {"api_key": [self._key or "", password, quote(password, safe="")]}
        return masked(text, known, os.environ)


def judge(error: Exception) -> Failure:
    """How a failed attempt is to be taken."""
    if isinstance(error, Refused):
        return failure_of_status(error.status, wait=error.wait)
    return Failure(passing=isinstance(error, Malformed) or is_transport(error))


def judge_first(error: Exception) -> Failure:
    """The same while a server is being got to know: where none listens, or what it says is strange, waiting is vain."""
    if is_unreachable(error):
        return Failure(passing=False, hopeless=True)
    return Failure(passing=False) if isinstance(error, Malformed) else judge(error)


def is_transport(error: Exception) -> bool:
    """Whether the connection failed, in whatever way."""
    return isinstance(error, require("httpx", extra="openai").TransportError)


def is_unreachable(error: Exception) -> bool:
    """Whether no connection came about."""
    httpx = require("httpx", extra="openai")
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol)


def _said(content: bytes) -> str:
    """The reason in an error's body, in the shapes that servers give it."""
    text = content.decode("utf-8", "replace")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = text
    for key in ("error", "message", "detail"):
        if isinstance(told, dict) and told.get(key):
            told = told[key]
    text = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
    lines = text.strip().splitlines()
    return lines[0][:_MOST_SAID] if lines else ""


def _close(client: Any, process: int) -> None:
    if process == os.getpid():  # what a child inherited is its parent's
        client.close()
