"""An application, called with a question -> the trace of its answer, whatever shape it gives that in."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from attr_core.errors import ConfigurationError, InputError
from attr_core.evaluation.rows import Row, text_id
from attr_core.types import ATTRKIT_KEY, Document, Generation, Message, Retrieval, Trace

__all__ = ["CONVERTERS", "INSTRUCTION", "PUT_TOGETHER", "answer_row", "load_app", "name_of", "to_trace"]

CONVERTERS = "attrkit.converters"
"""Entry points ``PACKAGE.answer``, ``.documents`` and ``.document``: how a framework's results are read."""

INSTRUCTION = "Answer the question, using only the context."
"""System message of a prompt that is put together, where the application's own is not known."""

PUT_TOGETHER = "put together"
"""What a trace's metadata says of such a prompt."""

_ANSWERS = ("answer", "response", "output", "result", "text")
_CONTEXTS = (
    "contexts",
    "chunks",
    "documents",
    "context",
    "retrieved_contexts",
    "source_documents",
    "retrieval_context",
)
_CONTEXT_WORDS = ("context", "chunk", "passage", "document", "docs", "retriev", "evidence", "source", "snippet", "node")
_DEEPEST = 4
_MOST = 2_000


def load_app(app: str | Callable[[str], Any]) -> Callable[[str], Any]:
    """The function that ``module:function`` names; the working directory counts as a place of modules.

    Raises
    ------
    ConfigurationError
        There is no such module or function, or it cannot be called.
    """
    if not isinstance(app, str):
        if not callable(app):
            raise ConfigurationError(f"app {app!r:.80} cannot be called; give a function of the question")
        return app
    module, colon, name = app.partition(":")
    if not colon or not module or not name:
        raise ConfigurationError(f"app {app!r} is not module:function; write for example my_app:answer")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(f"app {app!r} cannot be imported ({error}); run where {module} can be") from error
    for part in name.split("."):
        if (found := getattr(found, part, None)) is None:
            raise ConfigurationError(f"app {app!r} is not there: {module} has no {name}")
    if not callable(found):
        raise ConfigurationError(f"app {app!r} cannot be called; name a function of the question")
    return found  # type: ignore[no-any-return]


def name_of(thing: Any) -> str | None:
    """What an application, engine or judge is called in results."""
    if thing is None or isinstance(thing, str):
        return thing
    if isinstance(spec := getattr(thing, "spec", None), str):
        return spec
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


def answer_row(app: Callable[[str], Any] | None, row: Row) -> Trace:
    """Ask the application, or take the answer that the row has already, as a trace.

    Raises
    ------
    InputError
        No answer can be read in what came, or there is neither an application nor an answer.
    """
    started = datetime.now(UTC)
    if app is None:
        if row.answer is None:
            raise InputError("the row has no answer, and no application is named that gives one")
        if row.trace is not None:
            return to_trace(row.trace, row)
        found: Any = row.answer if row.contexts is None else (row.answer, row.contexts)
    else:
        found = app(row.query)
        if inspect.isawaitable(found):
            found = asyncio.run(_awaited(found))
    return replace(to_trace(found, row), started=started, finished=datetime.now(UTC))


def to_trace(found: Any, row: Row) -> Trace:
    """What an application gave -> a trace that knows what was expected.

    A prompt that is not in it is put together from the question and the documents, and ``metadata`` says so.

    Parameters
    ----------
    found : str, (answer, documents), mapping, Trace or object of a framework
    row : Row

    Raises
    ------
    InputError
        No answer can be read in it; the message names what was seen.
    """
    if isinstance(found, Trace):
        return replace(
            found,
            query=found.query or row.query,
            reference=found.reference or row.expected_answer,
            expected_chunks=found.expected_chunks or row.expected_chunks,
            tags=tuple(dict.fromkeys((*found.tags, *row.tags))),
        )
    if isinstance(found, str):
        return _built(row, found, None)
    if isinstance(found, tuple) and len(found) == 2:
        answer, documents = found
        text = answer if isinstance(answer, str) else _by_framework(answer)[0]
        if text is not None and (isinstance(documents, Iterable) or documents is None):
            return _built(row, text, None if documents is None else _documents(documents))
        raise InputError(f"the application gave a pair of {_kinds(found)}; give (answer, documents)")
    if isinstance(found, Mapping) and (trace := _of_mapping(found, row)) is not None:
        return trace
    text, documents = _by_framework(found)
    if text is None:
        seen = f"the fields {', '.join(map(str, found))}" if isinstance(found, Mapping) else type(found).__name__
        raise InputError(
            f"the application gave {seen:.200}, in which no answer is known; give a text, (answer, documents), or "
            "{'answer': …, 'contexts': […]}"
        )
    return _built(row, text, documents)


def _of_mapping(found: Mapping[Any, Any], row: Row) -> Trace | None:
    answers = [key for key in _ANSWERS if isinstance(found.get(key), str)]
    if not answers:
        return None
    contexts = [key for key in _CONTEXTS if found.get(key) is not None]
    fields = ", ".join(map(str, found))
    for several, what in ((answers, "the answer"), (contexts, "the context")):
        if len(several) > 1:
            raise InputError(f"the application gave {' and '.join(several)}, which may both be {what}; leave one out")
    if not contexts and (unknown := [key for key in map(str, found) if _is_context_like(key, found[key])]):
        raise InputError(
            f"the application gave {unknown[0]!r}, which may be the context and is not known; its fields are {fields}; "
            "name it contexts"
        )
    documents = _documents(found[contexts[0]]) if contexts else None
    trace = _built(row, found[answers[0]], documents)
    messages = found.get("messages")
    if not isinstance(messages, list | tuple) or not messages:
        return trace
    sent = Trace.from_messages(messages, trace.answer, documents=documents or (), query=row.query)
    told = found.get("model")
    generation = replace(sent.generations[0], model=told if isinstance(told, str) else None)
    return replace(trace, generations=(generation,), metadata={})


def _is_context_like(key: str, value: Any) -> bool:
    return isinstance(value, list | tuple | str) and any(word in key.casefold() for word in _CONTEXT_WORDS)


def _built(row: Row, answer: str, documents: Sequence[Document] | None) -> Trace:
    context = "\n\n".join(one.text for one in documents or ())
    user = f"Context:\n{context}\n\nQuestion: {row.query}" if documents else row.query
    messages = (*([Message("system", INSTRUCTION)] if documents else []), Message("user", user))
    return Trace(
        query=row.query,
        generations=(Generation(messages=messages, response=answer),),
        answer=answer,
        retrievals=() if documents is None else (Retrieval(row.query, tuple(documents)),),
        reference=row.expected_answer,
        expected_chunks=row.expected_chunks,
        tags=row.tags,
        framework="evaluation",
        metadata={ATTRKIT_KEY: {"prompt": PUT_TOGETHER}},
    )


def _documents(raw: Any) -> tuple[Document, ...]:
    items = [raw] if isinstance(raw, str | Mapping | Document) else list(raw)
    return tuple(_document(item) for item in items)


def _document(item: Any) -> Document:
    readers = _converters(package) if (package := _package_of(item)) else {}
    parsed = readers["document"](item) if "document" in readers else Document.parse(item)
    if not isinstance(parsed, Document):
        parsed = Document.parse(parsed)
    is_placed = parsed.id == "doc1" and (isinstance(item, str) or _own_id(item) is None)
    return replace(parsed, id=text_id(parsed.text)) if is_placed else parsed


def _own_id(item: Any) -> Any:
    return item.get("id") if isinstance(item, Mapping) else getattr(item, "id", None)


def _by_framework(found: Any) -> tuple[str | None, tuple[Document, ...] | None]:
    """Answer and documents as the framework's own converter reads them; ``None`` where none does."""
    packages = list(dict.fromkeys(filter(None, map(_package_of, _inside(found)))))
    if not packages:  # a pipeline's outputs may be plain; whose they are, its own converter knows
        packages = [one for one in _packages() if one in sys.modules and isinstance(found, Mapping)]
    for package in packages:
        readers = _converters(package)
        text = readers["answer"](found) if "answer" in readers else None
        if isinstance(text, str):
            return text, _retrieved(found, readers)
    return None, None


def _retrieved(found: Any, readers: Mapping[str, Callable[..., Any]]) -> tuple[Document, ...] | None:
    nodes = getattr(found, "source_nodes", None)
    if nodes is None and "documents" in readers:
        nodes = list(readers["documents"](found)) or None
    return None if nodes is None else _documents(nodes)


def _inside(value: Any) -> Iterator[Any]:
    """A value and what mappings and lists in it hold."""
    pending, n = [(value, 0)], 0
    while pending and n < _MOST:
        item, depth = pending.pop(0)
        n += 1
        yield item
        if depth < _DEEPEST and isinstance(item, Mapping | list | tuple):
            inner = item.values() if isinstance(item, Mapping) else item
            pending += [(one, depth + 1) for one in inner]


def _package_of(item: Any) -> str | None:
    """The framework that a value's class is of, or derives from, if it has a converter."""
    known = _packages()
    roots = (kind.__module__.partition(".")[0] for kind in type(item).__mro__)
    return next((root for root in roots if root in known), None)


@functools.cache
def _packages() -> list[str]:
    return list(dict.fromkeys(point.name.partition(".")[0] for point in entry_points(group=CONVERTERS)))


@functools.cache
def _converters(package: str) -> dict[str, Callable[..., Any]]:
    points = [point for point in entry_points(group=CONVERTERS) if point.name.partition(".")[0] == package]
    return {point.name.partition(".")[2]: point.load() for point in points}


async def _awaited(found: Any) -> Any:
    return await found


def _kinds(values: Iterable[Any]) -> str:
    return " and ".join(type(value).__name__ for value in values)
