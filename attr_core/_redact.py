"""What of a call may be kept: options without anything that opens a door, texts as the host's redactor leaves them."""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from attr_core.types import Document, Generation, Message, ToolCall, Trace

UNREDACTED = "[not stored: the redactor failed]"
"""Stands where a redactor failed."""

_TIES = frozenset(
    {"id", "type", "role", "name", "group_id", "rag_chunk_id", "tool_call_id", "call_id", "response_model"}
    | {"response_id", "previous_response_id", "unread_items"}
)
"""Keys whose values tie parts of a trace together or tell their kind; they are not texts."""

_SECRET = re.compile(
    r"(^|_)((api|access|secret|private)?_?keys?|token(?!_ids?($|_))|secrets?|passw(or)?ds?|passphrase|username"
    r"|credentials?|authorization|auth|headers?|cookies?|connection_string)($|_)"
)
_VERBATIM = frozenset({"functions", "response_format"})  # schemas, whose fields may well be named "token"
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ADDRESS = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SHORTEST_SECRET = 8  # shorter values would blank ordinary words of an error message


def without_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options whose names are no secret's, at any depth; objects, functions and classes are left out.

    Addresses lose user, password and query.
    """
    return {
        str(key): copy.deepcopy(value) if key in _VERBATIM else _clean(value)
        for key, value in options.items()
        if _is_kept(key, value)
    }


def masked(text: str, *options: Mapping[str, Any]) -> str:
    """``text`` with the values of secret options blanked."""
    secrets = {secret for mapping in options for secret in _secrets(mapping)}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def redacted(trace: Trace, redact: Callable[[str], str], *, failed: Callable[[Exception], None]) -> Trace:
    """The trace with every text passed through ``redact``, and ``metadata["redacted"]`` set.

    Texts are those of messages, tools, arguments, outputs, documents, parameters and metadata, the query, response,
    reasoning and errors. Ids, names, roles, models and keys are kept, since they tie the trace together.

    Parameters
    ----------
    redact : callable
        Text -> text. Where it raises, or gives something else, :data:`UNREDACTED` is kept instead of the text.
    failed : callable
        Told each such failure.
    """

    def clean(text: str) -> str:
        try:
            result = redact(text)
            if isinstance(result, str):
                return result
            raise TypeError(f"the redactor gave {type(result).__name__}; it must give text")
        except Exception as error:
            failed(error)
            return UNREDACTED

    hide = _Hiding(clean)
    return replace(
        trace,
        query=hide.text(trace.query),
        answer=hide.text(trace.answer),
        reference=hide.text(trace.reference),
        error=hide.text(trace.error),
        generations=tuple(hide.generation(generation) for generation in trace.generations),
        retrievals=tuple(
            replace(
                retrieval,
                query=hide.text(retrieval.query),
                documents=tuple(hide.document(document) for document in retrieval.documents),
                metadata=hide.inside(retrieval.metadata),
            )
            for retrieval in trace.retrievals
        ),
        tool_calls=tuple(hide.call(call) for call in trace.tool_calls),
        metadata={**hide.inside(trace.metadata), "redacted": True},
    )


class _Hiding:
    """One redactor over all shapes that text has in a trace; what was seen once is not redacted twice."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._seen: dict[str, str] = {}

    def text(self, text: str | None) -> str | None:
        return None if text is None else self._known(text)

    def inside(self, value: Any, key: str = "") -> Any:
        """A copy of plain JSON with its texts redacted."""
        if isinstance(value, str):
            return value if key in _TIES else self._known(value)
        if isinstance(value, Mapping):
            return {name: self.inside(item, str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.inside(item, key) for item in value]
        return value

    def generation(self, generation: Generation) -> Generation:
        return replace(
            generation,
            messages=tuple(self._message(message) for message in generation.messages),
            response=self.text(generation.response),
            reasoning=self.text(generation.reasoning),
            error=self.text(generation.error),
            tools=tuple(self.inside(tool) for tool in generation.tools),
            tool_calls=tuple(self.call(call) for call in generation.tool_calls),
            parameters=self.inside(generation.parameters),
            rendered=self.inside(generation.rendered),
        )

    def document(self, document: Document) -> Document:
        return replace(document, text=self._known(document.text), metadata=self.inside(document.metadata))

    def call(self, call: ToolCall) -> ToolCall:
        return replace(
            call,
            arguments=self._arguments(call.arguments),
            output=self.text(call.output),
            error=self.text(call.error),
            documents=tuple(self.document(document) for document in call.documents),
            metadata=self.inside(call.metadata),
        )

    def _message(self, message: Message) -> Message:
        return replace(
            message,
            content=self._known(message.content),
            tool_calls=tuple(self.call(call) for call in message.tool_calls),
            metadata=self.inside(message.metadata),
        )

    def _arguments(self, value: Any) -> Any:
        """Of arguments, unlike metadata, everything is content, whatever its key says."""
        if isinstance(value, Mapping):
            return {name: self._arguments(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._arguments(item) for item in value]
        return self._known(value) if isinstance(value, str) else value

    def _known(self, text: str) -> str:
        if text not in self._seen:
            self._seen[text] = self._clean(text)
        return self._seen[text]


def _is_kept(name: Any, value: Any) -> bool:
    return not is_secret(str(name)) and isinstance(value, int | float | str | list | tuple | Mapping | None)


def is_secret(name: str) -> bool:
    """Whether an option of that name holds a secret (``max_tokens`` does not, ``hf_token`` does)."""
    return _SECRET.search(_WORD_START.sub("_", name).lower().replace("-", "_")) is not None


def _clean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value)
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value if _is_kept("", item)]
    if isinstance(value, str) and _ADDRESS.match(value):
        return _bare_address(value)
    return value


def _bare_address(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return "***"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _secrets(value: Any, secret: bool = False) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, secret or is_secret(str(key)))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, secret)
    elif isinstance(value, str) and _ADDRESS.match(value):
        yield from _secrets_of_address(value)
    elif secret and isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
        yield value


def _secrets_of_address(address: str) -> Iterator[str]:
    """User and password, as they are and as a server is told them, and the values of the query."""
    try:
        parts = urlsplit(address)
        user = parts.netloc.rpartition("@")[0]
        found = [*user.partition(":")[::2], *(value for _, value in parse_qsl(parts.query))]
    except ValueError:
        return
    if user:
        found.append(base64.b64encode(unquote(user).encode("utf-8", "replace")).decode())
    for one in found:
        for written in {one, unquote(one), quote(one, safe="")}:
            if len(written) >= _SHORTEST_SECRET:
                yield written
