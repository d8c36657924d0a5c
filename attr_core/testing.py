"""Public fakes: engines and judges whose right answers are known in closed form.

They hold no model. Use them to test what is built on attrkit, as attrkit's own tests do.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attr_core.protocols import Completion, Price, Sampling, TokenScores
from attr_core.results import FloatArray, MaskArray, Support, SupportVerdict
from attr_core.types import Claim, Prompt, Segment

NOTHING = Price(0.0, 0.0)

__all__ = ["AdditiveEngine", "GameValue", "ScreenedGame", "ScriptedEngine", "ScriptedJudge"]


@dataclass(slots=True)
class AdditiveEngine:
    """Scores words by which segments stand in the prompt, additively in log-odds.

    ``facts`` maps a word of the response to the weights (in nats) of the texts that speak for or against it: the word's
    log-odds are ``bias`` plus the weights of the texts present. Every other word has probability one, so a target that
    holds one such word has exactly that word's log-odds, and its segments' Banzhaf and Shapley effects are the weights.
    ``pairs`` adds a weight where two texts are both present. ``generate`` says ``answer`` where all words are more
    likely than not, else ``otherwise``.
    """

    facts: Mapping[str, Mapping[str, float]]
    bias: float = -4.0
    pairs: Mapping[str, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    answer: str = "yes"
    otherwise: str = "I do not know."
    max_context: int | None = None
    calls: int = 0
    price: Price | None = NOTHING

    @property
    def spec(self) -> str:
        return "test:additive"

    @property
    def fingerprint(self) -> str:
        return repr((self.spec, self.facts, self.bias, self.pairs, self.answer, self.otherwise))

    def log_odds(self, prompt: Prompt, word: str) -> float:
        """Of ``word`` under ``prompt``, in nats."""
        text = "\n".join(message.content for message in prompt.messages)
        single = sum(weight for piece, weight in self.facts[word].items() if piece in text)
        joint = sum(w for (a, b), w in self.pairs.get(word, {}).items() if a in text and b in text)
        return self.bias + single + joint

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        """One token per word (with the white space before it)."""
        spans = [match.span() for match in re.finditer(r"\s*\S+|\s+$", continuation)]
        return [self._score(prompt, continuation, spans) for prompt in prompts]

    def _score(self, prompt: Prompt, continuation: str, spans: list[tuple[int, int]]) -> TokenScores:
        self.calls += 1
        logprobs = []
        for start, end in spans:
            word = continuation[start:end].strip().strip(".,;:!?\"'()")
            logprobs.append(-np.logaddexp(0, -self.log_odds(prompt, word)) if word in self.facts else 0.0)
        tokens = sum(len(message.content.split()) for message in prompt.messages) + len(spans)
        return TokenScores(np.array(logprobs), np.array(spans, dtype=np.int64).reshape(-1, 2), tokens)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        self.calls += len(prompts)
        likely = [all(self.log_odds(prompt, word) > 0 for word in self.facts) for prompt in prompts]
        return [Completion(self.answer if yes else self.otherwise, "stop") for yes in likely]


@dataclass(slots=True)
class ScriptedEngine:
    """Says what the script says, and fails where it is told to.

    ``reply`` is a fixed text or a function of the prompt; ``logprob`` gives each word's log-probability from prompt and
    word. ``failures`` maps the number of a call (from 1) to the exception it raises. ``seen`` keeps every prompt.
    """

    reply: str | Callable[[Prompt], str] = "yes"
    logprob: Callable[[Prompt, str], float] = lambda prompt, word: -1.0
    failures: Mapping[int, Exception] = field(default_factory=dict)
    max_context: int | None = None
    price: Price | None = NOTHING
    spec: str = "test:scripted"
    fingerprint: str = field(default_factory=lambda: f"test:scripted:{uuid.uuid4().hex}")
    seen: list[Prompt] = field(default_factory=list)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling = Sampling()) -> list[Completion]:
        completions = []
        for prompt in prompts:
            self._note(prompt)
            text = self.reply if isinstance(self.reply, str) else self.reply(prompt)
            completions.append(Completion(text, "stop"))
        return completions

    def score(self, prompts: Sequence[Prompt], continuation: str) -> list[TokenScores]:
        spans = [match.span() for match in re.finditer(r"\s*\S+|\s+$", continuation)]
        scores = []
        for prompt in prompts:
            self._note(prompt)
            logprobs = np.array([self.logprob(prompt, continuation[a:b].strip()) for a, b in spans])
            scores.append(TokenScores(logprobs, np.array(spans, dtype=np.int64).reshape(-1, 2), len(spans)))
        return scores

    def _note(self, prompt: Prompt) -> None:
        self.seen.append(prompt)
        failure = self.failures.get(len(self.seen))
        if failure is not None:
            raise failure


@dataclass(slots=True)
class ScriptedJudge:
    """Gives the verdict written down for (claim text, segment text); ``neutral`` where none is."""

    verdicts: Mapping[tuple[str, str], SupportVerdict] = field(default_factory=dict)
    calls: int = 0

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        self.calls += 1
        table = [
            [str(self.verdicts.get((claim.text, segment.text), SupportVerdict.NEUTRAL)) for segment in segments]
            for claim in claims
        ]
        shape = (len(claims), len(segments))
        verdicts = np.array(table, dtype=np.str_).reshape(shape)
        return Support(verdicts=verdicts, rationale=np.full(shape, "scripted"))


@dataclass(slots=True)
class GameValue:
    """A value function given by a plain function of one mask, for testing estimators against closed forms.

    ``game`` maps a mask ``(n_segments,)`` to the values of all targets ``(n_targets,)``. Masks that keep more than
    ``max_kept`` segments do not fit. ``groups`` are columns of a document each. ``measured`` keeps every mask measured.
    """

    game: Callable[[MaskArray], Sequence[float]]
    n_segments: int
    n_targets: int = 1
    floor: float = 1.0
    name: str = "GameValue"
    unit: str = "nats"
    knows_right: bool = False
    max_kept: float = np.inf
    measured: list[tuple[bool, ...]] = field(default_factory=list)
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def scales(self) -> FloatArray:
        return np.ones(self.n_targets)

    def fits(self, masks: MaskArray) -> MaskArray:
        return np.asarray(masks.sum(axis=1) <= self.max_kept, dtype=np.bool_)

    def exact(self, masks: MaskArray) -> FloatArray:
        fits = self.fits(masks)
        self.measured.extend(tuple(bool(kept) for kept in mask) for mask in masks[fits])
        nothing = [np.nan] * self.n_targets
        values = [list(self.game(mask)) if fit else nothing for mask, fit in zip(masks, fits, strict=True)]
        return np.array(values, dtype=np.float64).reshape(len(masks), self.n_targets)


@dataclass(slots=True)
class ScreenedGame:
    """As :class:`GameValue`, with cheap fidelities: ``hidden_game`` (by default ``game``) is what hiding measures.

    ``gradients`` are those of its multilinear extension, by enumeration: for a dozen segments at most. ``hid`` keeps
    every mask measured so.
    """

    game: Callable[[MaskArray], Sequence[float]]
    n_segments: int
    n_targets: int = 1
    hidden_game: Callable[[MaskArray], Sequence[float]] | None = None
    alike: tuple[tuple[int, ...], ...] = ()
    floor: float = 1.0
    name: str = "ScreenedGame"
    unit: str = "nats"
    knows_right: bool = False
    max_kept: float = np.inf
    measured: list[tuple[bool, ...]] = field(default_factory=list)
    hid: list[tuple[bool, ...]] = field(default_factory=list)
    n_gates: int = 0
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def scales(self) -> FloatArray:
        return np.ones(self.n_targets)

    def fits(self, masks: MaskArray) -> MaskArray:
        return np.asarray(masks.sum(axis=1) <= self.max_kept, dtype=np.bool_)

    def exact(self, masks: MaskArray) -> FloatArray:
        self.measured.extend(tuple(bool(kept) for kept in mask) for mask in masks)
        return self._values(self.game, masks)

    def prices(self, masks: MaskArray) -> NDArray[np.int64]:
        """50 tokens, and 20 for every segment kept."""
        return np.asarray(50 + 20 * masks.sum(axis=1), dtype=np.int64)

    def hidden(self, masks: MaskArray) -> FloatArray:
        self.hid.extend(tuple(bool(kept) for kept in mask) for mask in masks)
        return self._values(self.hidden_game or self.game, masks)

    def gradients(self, gates: FloatArray) -> FloatArray:
        self.n_gates += len(gates)
        n = self.n_segments
        subsets = np.asarray((np.arange(2**n)[:, None] >> np.arange(n)) & 1, dtype=np.bool_)
        values = self._values(self.hidden_game or self.game, subsets)
        slopes = np.zeros((len(gates), self.n_targets, n))
        for row, gate in zip(slopes, gates, strict=True):
            for segment in range(n):
                others = np.arange(n) != segment
                chances = np.where(subsets[:, others], gate[others], 1 - gate[others]).prod(axis=1)
                row[:, segment] = (np.where(subsets[:, segment], chances, -chances)[:, None] * values).sum(axis=0)
        return slopes

    def _values(self, game: Callable[[MaskArray], Sequence[float]], masks: MaskArray) -> FloatArray:
        return np.array([list(game(mask)) for mask in masks], dtype=np.float64).reshape(len(masks), self.n_targets)
