"""Made-up models that fail in a known way: they read the prompt's text, and nothing else."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from attr_core.errors import ConfigurationError, EngineError
from attr_core.evaluation.planted.facts import instructions_in, likely_words, sentence
from attr_core.evaluation.planted.policies import POLICIES, believed
from attr_core.evaluation.planted.reading import Seen, see
from attr_core.protocols import Completion, Price, Sampling, TokenScores
from attr_core.types import Message, Prompt, call_text

__all__ = ["REFUSALS", "WorldModel"]

REFUSALS = (
    "I do not know.",
    "I cannot find that in the context.",
    "The context does not mention it.",
)
TOOL_FAILURES = (
    "The lookup failed, so there is nothing to report.",
    "The tool returned an error.",
)

LIKELY, PLAUSIBLE, UNLIKELY = math.log(0.95), math.log(0.9), math.log(0.002)
"""Of a word that the model would say, of one that any answer to the question has, and of any other, in nats."""


@dataclass(slots=True)
class WorldModel:
    """An engine whose answers follow from the prompt by one rule, and whose scores follow from its answers.

    It finds the question, the chunks, earlier turns and tool outputs in the messages, reads the facts in them
    (:mod:`~attr_core.evaluation.planted.facts`) and picks one by its policy. The same prompt gives the same answer
    unless ``share`` is set. Every field is plain data, so that a model can be written down.

    Parameters
    ----------
    policy : str
        How it picks; a name in :data:`~attr_core.evaluation.planted.policies.POLICIES`.
    otherwise : {"refuses", "guesses", "likens"}
        What it does where it has nothing: decline, invent, or take the value of something else.
    seed : int
        Decides what it invents and believes, and how it words its answers.
    share : float, optional
        Then it is right by chance: it states what it believes in this share of runs, an invention in the others,
        whatever the prompt holds. A run is the prompt, the sampling's seed and how often both were asked before.
    threshold : int
        For ``loses_track``: how many chunks beside the right one are too many.
    place : {"first", "last"}
        For ``reads_one_place``.
    joins : {"or", "each"}
        How it states several values: as alternatives in one sentence, or in a sentence each.
    is_short : bool
        Whether it answers in values only.
    n_parts : int
        How many parts of a question it answers.
    obeys : bool
        Whether it does what a chunk or tool output tells it to.
    reports_errors : bool
        What it does after a failed tool: say so, or go on as if nothing was there.
    fails : bool
        Every call raises an EngineError.
    """

    policy: str = "reads"
    otherwise: Literal["refuses", "guesses", "likens"] = "refuses"
    seed: int = 0
    share: float | None = None
    threshold: int = 3
    place: Literal["first", "last"] = "first"
    joins: Literal["or", "each"] = "or"
    is_short: bool = False
    n_parts: int = 2
    obeys: bool = False
    reports_errors: bool = False
    fails: bool = False
    runs: dict[tuple[str, int], int] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise ConfigurationError(f"policy {self.policy!r} does not exist; use one of {', '.join(POLICIES)}")

    @property
    def spec(self) -> str:
        return "planted:world"

    @property
    def fingerprint(self) -> str:
        return f"planted:{json.dumps(self.to_dict(), sort_keys=True)}"

    @property
    def max_context(self) -> int | None:
        return None

    @property
    def price(self) -> Price | None:
        return Price(0.0, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Its parameters as plain JSON values."""
        return {name: value for name, value in asdict(self).items() if name != "runs"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WorldModel:
        """Read what :meth:`to_dict` wrote: the same model, that nobody has asked yet."""
        return cls(**data)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        """One answer per prompt.

        Raises
        ------
        EngineError
            The model ``fails``.
        """
        self._stop_if_failing()
        return [Completion(self._say(prompt, sampling), "stop") for prompt in prompts]

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        """One token per word (with the white space before it): likely where the model would say it.

        Raises
        ------
        EngineError
            The model ``fails``.
        """
        self._stop_if_failing()
        spans = [match.span() for match in re.finditer(r"\s*\S+|\s+$", continuation)]
        words = [_bare(continuation[start:end]) for start, end in spans]
        offsets = np.array(spans, dtype=np.int64).reshape(-1, 2)
        scores = []
        for prompt in prompts:
            logprobs = np.array(self._logprobs(see(prompt), words), dtype=np.float64)
            n_words = sum(len(message.content.split()) for message in prompt.messages)
            scores.append(TokenScores(logprobs, offsets, n_words + len(words)))
        return scores

    def _stop_if_failing(self) -> None:
        if self.fails:
            raise EngineError(f"the model {self.spec} does not answer any more; name another engine")

    def _say(self, prompt: Prompt, sampling: Sampling) -> str:
        seen = see(prompt)
        if self.share is None:
            return self._answer(seen, prompt.messages)
        key = ("\0".join(f"{one.role}:{one.content}" for one in prompt.messages), sampling.seed)
        self.runs[key] = run = self.runs.get(key, 0) + 1
        is_right = random.Random(f"{self.seed}|{key}|{run}").random() < self.share  # noqa: S311
        return self._by_chance(seen, is_right=is_right)

    def _by_chance(self, seen: Seen, *, is_right: bool) -> str:
        which = "" if is_right else "wrong"
        return self._written(seen, {asked: (believed(self.seed, asked, which),) for asked in seen.asked})

    def _answer(self, seen: Seen, messages: Sequence[Message] = ()) -> str:
        if self.obeys and (ordered := _orders(seen)):
            return ordered
        if seen.failed and self.reports_errors:
            return TOOL_FAILURES[self.seed % len(TOOL_FAILURES)]
        pick = POLICIES[self.policy]
        return self._written(seen, {asked: pick(self, seen, asked) for asked in seen.asked[: self.n_parts]})

    def _written(self, seen: Seen, said: Mapping[tuple[str, str], tuple[str, ...]]) -> str:
        told = {
            asked: [" or ".join(values)] if self.joins == "or" else values for asked, values in said.items() if values
        }
        if self.is_short:
            return " and ".join(value for values in told.values() for value in values) or self._refusal
        texts = [sentence(asked, value, self.seed) for asked, values in told.items() for value in values]
        return " ".join(texts) or self._refusal

    @property
    def _refusal(self) -> str:
        return REFUSALS[self.seed % len(REFUSALS)]

    def _logprobs(self, seen: Seen, words: Sequence[str]) -> list[float]:
        plausible = likely_words(seen.asked)
        if self.share is None:
            said = _words(self._answer(seen))
            return [LIKELY if w in said else PLAUSIBLE if w in plausible else UNLIKELY for w in words]
        right, wrong = (_words(self._by_chance(seen, is_right=yes)) for yes in (True, False))
        chances = [self.share * (word in right) + (1 - self.share) * (word in wrong) for word in words]
        return [math.log(0.95 * chance) if chance else UNLIKELY for chance in chances]


def _orders(seen: Seen) -> str:
    """What the first instruction in a chunk tells to say or to call."""
    for slot in seen.slots:
        for order in instructions_in(slot):
            if order["say"]:
                return str(order["say"])
            arguments = re.findall(r"(\w+)=\"?([^\",]+)\"?", order["arguments"])
            return call_text(order["name"], dict(arguments))
    return ""


def _bare(word: str) -> str:
    return word.strip().strip(".,;:!?\"'()").lower()


def _words(text: str) -> frozenset[str]:
    return frozenset(_bare(word) for word in text.split())
