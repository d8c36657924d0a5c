"""What a model wrote -> its claims (sentences, list items, tool calls), and the values of its calls."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attr_core._text.sentences import sentence_spans
from attr_core._text.views import Span
from attr_core.errors import InputError
from attr_core.types import Claim, Generation, Target, TargetKind, call_text

__all__ = ["claims_of", "split_claims", "values_of"]

# A string, and whether it is a key; or a number, true, false or null.
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"(:)?|[^\s{}\[\],:"]+')


def split_claims(response: str, *, language: str | None = None) -> tuple[Claim, ...]:
    """Cut a response into claims, in order.

    A claim is a sentence; a list item is cut like prose and its marker belongs to its first claim. A fenced code block
    or a Markdown table is one claim. A heading belongs to the claim after it, a piece without a letter or digit (a
    rule, an emoji) to the one before it, so that neither is ever judged alone. Every character is in a claim or is
    white space between two.

    Parameters
    ----------
    response : str
        The model's answer.
    language : str, optional
        ISO 639 code for the sentence rules, which know its abbreviations; by default the one that the response's script
        and, for Latin script, its commonest words suggest.

    Returns
    -------
    tuple of Claim
        At least one; ``response[claim.start:claim.end] == claim.text``, without white space at either end.

    Raises
    ------
    InputError
        The response is empty or only white space.

    Examples
    --------
    >>> [claim.text for claim in split_claims("Dr. Smith paid $3.50. He left.")]
    ['Dr. Smith paid $3.50.', 'He left.']
    """
    if not response.strip():
        raise InputError("the response is empty; give the text that the model answered")
    spans = sentence_spans(response, language)
    return tuple(Claim(index, start, end, response[start:end]) for index, (start, end) in enumerate(spans))


def claims_of(generation: Generation, *, language: str | None = None) -> tuple[Claim, ...]:
    """Cut what a model call wrote into claims: those of its text, then one for each tool call.

    Parameters
    ----------
    generation : Generation
    language : str, optional
        As for :func:`split_claims`.

    Returns
    -------
    tuple of Claim
        At least one; ``generation.written[claim.start:claim.end] == claim.text``.

    Raises
    ------
    InputError
        The model wrote neither text nor a tool call.

    Examples
    --------
    >>> from attr_core.types import ToolCall
    >>> step = Generation((), "I will look. One moment.", tool_calls=(ToolCall("c1", "search", {"query": "fair"}),))
    >>> [claim.text for claim in claims_of(step)]
    ['I will look.', 'One moment.', 'Tool call: {"arguments": {"query": "fair"}, "name": "search"}']
    """
    written, calls = generation.written, _call_spans(generation)
    said = written[: calls[0][0]] if calls else written
    claims = split_claims(said, language=language) if said.strip() or not calls else ()
    called = (Claim(len(claims) + n, start, end, written[start:end]) for n, (start, end) in enumerate(calls))
    return (*claims, *called)


def values_of(generation: Generation) -> tuple[Target, ...]:
    """The name of each tool call and every value among its arguments, as they stand in ``generation.written``.

    A value is a string (without its quotes), a number, ``true``, ``false`` or ``null``; empty ones are left out, and of
    values alike in one call the later.

    Returns
    -------
    tuple of Target
        Spans, each with the index of its call's claim; per call the name first.

    Examples
    --------
    >>> from attr_core.types import ToolCall
    >>> step = Generation((), None, tool_calls=(ToolCall("c1", "search", {"query": "fair", "limit": 3}),))
    >>> [target.text for target in values_of(step)]
    ['search', '3', 'fair']
    """
    calls = _call_spans(generation)
    if not calls:
        return ()
    written, first = generation.written, len(claims_of(generation)) - len(calls)
    found: list[Target] = []
    for claim, (start, end) in enumerate(calls, start=first):
        *arguments, name = _values(written, written.index("{", start), end)
        distinct: dict[str, Span] = {}
        for span in arguments:
            distinct.setdefault(written[slice(*span)], span)
        spans = (name, *distinct.values())
        values = (Target(TargetKind.SPAN, *span, written[slice(*span)], claim) for span in spans)
        found += (value for value in values if value.text.strip())
    return tuple(found)


def _call_spans(generation: Generation) -> list[Span]:
    """Where the lines of the tool calls stand in what was written."""
    spans: list[Span] = []
    end = len(generation.written)
    for call in reversed(generation.tool_calls):
        start = end - len(call_text(call.name, call.arguments))
        spans.insert(0, (start, end))
        end = start - 1
    return spans


def _values(written: str, start: int, end: int) -> Iterator[Span]:
    """The values of a call's JSON, its name last."""
    for token in _TOKEN.finditer(written, start, end):
        if token[2] is None:
            yield token.span(0 if token[1] is None else 1)
