"""Sentences -> atomic claims, by a model that takes them apart; each claim keeps its sentence's span."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attr_core._text.language import guess_language, is_common
from attr_core._text.words import words
from attr_core.errors import ConfigurationError
from attr_core.judge._callables import engine_of
from attr_core.judge.parsing import json_entries
from attr_core.judge.prompts import CLAIMS_SCHEMA, decompose_prompt
from attr_core.protocols import Completion, Engine, Generates, Sampling
from attr_core.types import Claim

__all__ = ["MAX_SENTENCES", "decompose_claims"]

MAX_SENTENCES = 12
"""Sentences that are taken apart in one call."""

_TOKENS_A_WORD = 4
_TOKENS_A_CLAIM = 32
_DENYING = (
    "not no never none nobody nothing neither nor without cannot nicht kein keine keinen keiner nie ne pas jamais nunca"
    " non não nem niet geen nooit ikke inte aldrig не нет"
)
_NEGATIONS = frozenset(_DENYING.split())


def decompose_claims(
    engine: str | Engine | Callable[..., Any] | Any,
    claims: Sequence[Claim],
    *,
    max_sentences: int = MAX_SENTENCES,
    reasoning_tokens: int = 256,
) -> tuple[Claim, ...]:
    """The atomic claims of sentences, in order, numbered anew.

    ``start`` and ``end`` of a claim are those of its sentence, so that it can be shown there; its ``text`` is what the
    model made of it. A model's claim is kept only where its content words and negations stand in the sentence. Where
    the claims that are kept leave out any of the sentence's words, and so could hide what is false in it, or where no
    claim can be read, the sentence stays as it is. Words that are put together in a new way are not noticed: "Ann
    built the mill and Bob the bridge" can become "Ann built the bridge".
    Cost: a call for each ``max_sentences`` sentences.

    Parameters
    ----------
    engine : str, Engine, callable or object
        As for :class:`~attr_core.judge.LLMJudge`.
    claims : sequence of Claim
        Sentences, as :func:`~attr_core.claims.split_claims` gives them.
    max_sentences : int, default 12
    reasoning_tokens : int, default 256
        Room in an answer for what a model writes before its claims.

    Raises
    ------
    ConfigurationError
        The engine is none, or a number is out of range.
    EngineError
        The engine failed.

    Examples
    --------
    >>> from attr_core.claims import split_claims
    >>> sentences = split_claims("The fair opened in 1911 and closed in 1920.")
    >>> answer = '{"claims": [{"sentence": 1, "claim": "The fair opened in 1911."}, ' \\
    ...     '{"sentence": 1, "claim": "The fair closed in 1920."}]}'
    >>> [claim.text for claim in decompose_claims(lambda prompt, system: answer, sentences)]
    ['The fair opened in 1911.', 'The fair closed in 1920.']
    """
    if max_sentences < 1 or reasoning_tokens < 0:
        raise ConfigurationError(f"{max_sentences=} and {reasoning_tokens=} must be positive; correct them")
    generates: Any = engine_of(engine, by="decomposing claims")
    batches = [claims[start : start + max_sentences] for start in range(0, len(claims), max_sentences)]
    asked = [decompose_prompt([claim.text for claim in batch]) for batch in batches]
    answers = _answers(generates, [one.prompt for one in asked], batches, reasoning_tokens) if asked else []
    texts = [
        (claim, text)
        for batch, one, answer in zip(batches, asked, answers, strict=True)
        for number, claim in enumerate(batch, start=1)
        for text in _checked(claim.text, _parts(answer, one.fence, number)) or [claim.text]
    ]
    return tuple(Claim(index, claim.start, claim.end, text) for index, (claim, text) in enumerate(texts))


def _answers(
    engine: Generates, prompts: Sequence[Any], batches: Sequence[Sequence[Claim]], reasoning_tokens: int
) -> list[Completion]:
    longest = max(
        sum(_TOKENS_A_CLAIM + _TOKENS_A_WORD * len(words(claim.text)) for claim in batch) for batch in batches
    )
    return engine.generate(prompts, Sampling(reasoning_tokens + longest, schema=CLAIMS_SCHEMA))


def _parts(answer: Completion, fence: str, number: int) -> list[str]:
    """What an answer says of one sentence."""
    entries = json_entries(answer.text, fence=fence)
    of_it = [
        entry.get("claim") for entry in entries if type(entry.get("sentence")) is int and entry["sentence"] == number
    ]
    return [" ".join(text.split()) for text in of_it if isinstance(text, str) and text.strip()]


def _checked(sentence: str, parts: Sequence[str]) -> list[str]:
    """The parts that only say what the sentence says; none where they do not say all of it."""
    language = guess_language(sentence)
    said = set(_content(sentence, language))
    kept = [part for part in dict.fromkeys(parts) if (found := set(_content(part, language))) and found <= said]
    covered = {word for part in kept for word in _content(part, language)}
    return kept if covered == said else []


def _content(text: str, language: str) -> Iterator[str]:
    """The words that carry what is said: all but function words, and every negation."""
    for word in words(text):
        is_negation = word in _NEGATIONS or word.endswith("n't")
        if is_negation or not is_common(word, language):
            yield word
