"""A response -> its claims: sentences and list items with exact spans."""

from __future__ import annotations

from attr_core._text.sentences import sentence_spans
from attr_core.errors import InputError
from attr_core.types import Claim

__all__ = ["split_claims"]


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
