"""A judge over any model that generates: claims against segments, many to a call."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from attr_core.errors import BudgetExceededError, ConfigurationError, ContextTooLongError, EngineError
from attr_core.judge._callables import engine_of
from attr_core.judge._costs import spent_since
from attr_core.judge._rectangles import Cell, Rectangle, rectangles
from attr_core.judge._words import readable
from attr_core.judge.decompose import decompose_claims
from attr_core.judge.parsing import Stated, parse_verdicts
from attr_core.judge.prompts import VERDICTS_SCHEMA, Question, judge_prompt
from attr_core.metering import MeteredEngine
from attr_core.prompt import count_tokens
from attr_core.protocols import Completion, CountsTokens, Engine, Price, Sampling
from attr_core.results import Support, SupportVerdict
from attr_core.types import Claim, Segment

__all__ = ["MAX_CELLS", "LLMJudge"]

MAX_CELLS = 24
"""Claims times segments that are asked about in one call."""

TOKENS_A_CELL = 64
"""Room in an answer for one verdict with its reason."""

_NEUTRAL_EMPTY = Stated(SupportVerdict.NEUTRAL, "the segment is empty")


@dataclass(slots=True)
class _Round:
    """What is known of the cells of one repeat, and why of some nothing is."""

    stated: dict[Cell, Stated] = field(default_factory=dict)
    reasons: dict[Cell, str] = field(default_factory=dict)
    asked_alone: set[Cell] = field(default_factory=set)


class LLMJudge:
    """Verdicts on claims by segments, from a model that reads both; each verdict with the model's reason.

    A call asks about several claims and segments, up to ``max_cells`` pairs; all that is judged stands fenced as data.
    Engines that can are held to a JSON schema, the answers of all are read strictly (:mod:`attr_core.judge.parsing`).
    Pairs without a readable verdict are asked about again, fewer to a call and at last one alone for a single word;
    what is still not stated is ``undetermined``, with the reason as rationale. An empty segment is ``neutral`` to
    every claim, and nobody is asked.
    Cost: ``ceil(pairs / max_cells)`` calls, or more where segments are long, times ``repeats``; more for what is asked
    again. What was judged once is found in the cache of the engine that is given, else for as long as this object
    lives.

    Parameters
    ----------
    engine : str, Engine, callable or object
        A spec (``hf:MODEL``, ``litellm:MODEL``, ``server:URL#MODEL``), an engine that generates, such as a
        :class:`~attr_core.metering.MeteredEngine` with cache and caps, a function ``(prompt, system) -> str``, or an
        object with such a ``complete``.
    max_cells : int, default 24
    max_tokens : int, default 16000
        Tokens of one call at most, prompt and answer; the model's window holds too.
    reasoning_tokens : int, default 256
        Room in an answer for what a model writes before its verdicts; models that reason need thousands.
    retries : int, default 2
        How often what could not be read is asked about again.
    repeats : int, default 1
        Whole judgements. The verdict is that of more than half of them, else ``undetermined``;
        :attr:`~attr_core.results.Support.repeated` has each, from which the judge's noise can be told.
    temperature : float, default 0.0
        Above 0 each repeat has a seed of its own; at 0 repeats differ only where the engine does not reproduce itself.
    seed : int, default 0

    Raises
    ------
    ConfigurationError
        The engine is none, or a number is out of range.
    MissingCapabilityError
        The engine does not generate.

    Examples
    --------
    >>> from attr_core.claims import split_claims
    >>> from attr_core.types import Location, SegmentKind
    >>> segment = Segment("c0", SegmentKind.RETRIEVED, "The fair opened in 1911.", (Location(0, 0, 24),))
    >>> judge = LLMJudge(lambda prompt, system: '{"claim": 1, "segment": 1, "verdict": "entails", "why": "as it says"}')
    >>> support = judge.judge(split_claims("It opened in 1911."), [segment])
    >>> support.verdicts.tolist(), support.rationale.tolist(), support.cost.calls
    ([['entails']], [['as it says']], 1)
    """

    def __init__(
        self,
        engine: str | Engine | Callable[..., Any] | Any,
        *,
        max_cells: int = MAX_CELLS,
        max_tokens: int = 16_000,
        reasoning_tokens: int = 256,
        retries: int = 2,
        repeats: int = 1,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        if min(max_cells, max_tokens, repeats) < 1 or min(retries, reasoning_tokens, temperature) < 0:
            raise ConfigurationError(
                f"{max_cells=}, {max_tokens=}, {repeats=} must be positive and {retries=}, {reasoning_tokens=}, "
                f"{temperature=} not negative; correct them"
            )
        found = engine_of(engine, by="LLMJudge")
        self._engine = found if isinstance(found, MeteredEngine) else MeteredEngine(found)
        self._max_cells = max_cells
        self._max_tokens = max_tokens
        self._reasoning_tokens = reasoning_tokens
        self._retries = retries
        self._repeats = repeats
        self._temperature = temperature
        self._seed = seed

    def __repr__(self) -> str:
        return f"LLMJudge({self._engine.engine!r})"

    @property
    def spec(self) -> str:
        """The engine's."""
        return self._engine.spec

    @property
    def price(self) -> Price | None:
        """The engine's."""
        return self._engine.price

    def decompose(self, claims: Sequence[Claim]) -> tuple[Claim, ...]:
        """Sentences taken apart into atomic claims, by the same engine; see :func:`decompose_claims`."""
        return decompose_claims(self._engine, claims)

    def n_calls(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> int:
        """Calls that judging takes where every answer can be read and nothing is in the cache; asks nobody."""
        cells = _to_ask(claims, segments)
        return self._repeats * len(self._batches(claims, segments, question, cells, self._max_cells)[0])

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        """What each segment says about each claim.

        Parameters
        ----------
        claims : sequence of Claim, length n_claims
        segments : sequence of Segment, length n_segments
        question : str, optional
            What the claims answer, so that "It opened in 1911" can be understood.

        Returns
        -------
        Support
            Arrays ``(n_claims, n_segments)``; calls that failed leave their pairs ``undetermined``.

        Raises
        ------
        EngineError
            The engine answered nothing at all.
        BudgetExceededError
            A hard cap does not allow even the first questions.
        """
        before = self._engine.cost
        rounds = [self._round(claims, segments, question, repeat) for repeat in range(self._repeats)]
        cells = [[(row, column) for column in range(len(segments))] for row in range(len(claims))]
        shape = (len(claims), len(segments))
        verdicts = [[[_verdict(one, cell) for cell in row] for row in cells] for one in rounds]
        pairs = [[_majority(cell, rounds) for cell in row] for row in cells]
        return Support(
            verdicts=np.array([[pair[0] for pair in row] for row in pairs], dtype=np.str_).reshape(shape),
            rationale=np.array([[pair[1] for pair in row] for row in pairs], dtype=np.str_).reshape(shape),
            repeats=self._repeats,
            cost=spent_since(before, self._engine.cost),
            judge=self.spec,
            repeated=np.array(verdicts, dtype=np.str_).reshape(self._repeats, *shape),
        )

    def _round(self, claims: Sequence[Claim], segments: Sequence[Segment], question: str | None, repeat: int) -> _Round:
        known = _Round()
        missing = _to_ask(claims, segments)
        empty = [column for column, segment in enumerate(segments) if not segment.text.strip()]
        known.stated |= {(row, column): _NEUTRAL_EMPTY for row in range(len(claims)) for column in empty}
        most = self._max_cells
        for attempt in range(self._retries + 1):
            batches, too_large = self._batches(claims, segments, question, missing, most, known=known, attempt=attempt)
            known.reasons |= dict.fromkeys(too_large, "the claim and the segment do not fit one call of the judge")
            if not batches:
                break
            try:
                self._ask(batches, known, attempt, repeat)
            except BudgetExceededError as error:
                if attempt == 0:
                    raise
                known.reasons |= dict.fromkeys((cell for one, _ in batches for cell in one.cells), str(error))
                break
            missing = [cell for one, _ in batches for cell in one.cells if cell not in known.stated]
            most = max(1, max(len(one.cells) for one, _ in batches) // 2)
        return known

    def _batches(
        self,
        claims: Sequence[Claim],
        segments: Sequence[Segment],
        question: str | None,
        cells: Sequence[Cell],
        most: int,
        *,
        known: _Round | None = None,
        attempt: int = 0,
    ) -> tuple[list[tuple[Rectangle, Question]], list[Cell]]:
        """What is asked together, with its prompt, and the cells that do not fit."""
        made: dict[Rectangle, Question] = {}

        def fits(one: Rectangle) -> bool:
            asked = judge_prompt(
                [claims[row].text for row in one.rows],
                [segments[column].text for column in one.columns],
                question=question,
                again=attempt > 0,
                one_word=known is not None and _is_alone(one, known),
            )
            made[one] = asked
            limit = min(self._max_tokens, self._engine.max_context or self._max_tokens)
            return self._count(asked) + self._room(len(one.cells)) <= limit

        found, too_large = rectangles(cells, most=most, fits=fits)
        return [(one, made[one]) for one in found], too_large

    def _ask(self, batches: Sequence[tuple[Rectangle, Question]], known: _Round, attempt: int, repeat: int) -> None:
        """Ask, and write down what is stated, and why not of what is not."""
        n_answered, failed = 0, None
        groups: dict[tuple[bool, int], list[tuple[Rectangle, Question]]] = defaultdict(list)
        for one, asked in batches:
            groups[_is_alone(one, known), len(one.cells)].append((one, asked))
        for (is_last_resort, n_cells), group in groups.items():
            sampling = self._sampling(n_cells, None if is_last_resort else VERDICTS_SCHEMA, attempt, repeat)
            answers = self._generate([asked for _, asked in group], sampling, repeat)
            for (one, asked), answer in zip(group, answers, strict=True):
                if isinstance(answer, EngineError):
                    failed = answer
                    known.reasons |= dict.fromkeys(one.cells, readable(f"the judge failed: {answer}"))
                else:
                    n_answered += 1
                    _write_down(one, asked, answer, known)
        can_shrink = isinstance(failed, ContextTooLongError) and any(len(one.cells) > 1 for one, _ in batches)
        if failed is not None and attempt == 0 and not n_answered and not can_shrink:
            raise failed

    def _generate(self, asked: Sequence[Question], sampling: Sampling, repeat: int) -> list[Completion | EngineError]:
        try:
            return list(self._engine.generate([one.prompt for one in asked], sampling, repeat=repeat))
        except EngineError as error:
            return [error.completed.get(number, error) for number in range(len(asked))]

    def _sampling(self, n_cells: int, schema: str | None, attempt: int, repeat: int) -> Sampling:
        is_sampled = self._temperature > 0
        seed = self._seed + attempt + (repeat * (self._retries + 1) if is_sampled else 0)
        return Sampling(self._room(n_cells), float(self._temperature), seed, schema=schema)

    def _room(self, n_cells: int) -> int:
        return self._reasoning_tokens + TOKENS_A_CELL * n_cells

    def _count(self, asked: Question) -> int:
        engine = self._engine.engine
        count = engine.count_tokens if isinstance(engine, CountsTokens) else partial(count_tokens, engine)
        return count(asked.prompt)


def _to_ask(claims: Sequence[Claim], segments: Sequence[Segment]) -> list[Cell]:
    filled = [column for column, segment in enumerate(segments) if segment.text.strip()]
    return [(row, column) for row in range(len(claims)) for column in filled]


def _is_alone(one: Rectangle, known: _Round) -> bool:
    """Whether a pair was asked about alone before, and in vain: then a single word is asked for."""
    return len(one.cells) == 1 and one.cells[0] in known.asked_alone


def _write_down(one: Rectangle, asked: Question, answer: Completion, known: _Round) -> None:
    found = parse_verdicts(
        answer.text,
        len(one.rows),
        len(one.columns),
        fence=asked.fence,
        quoted=asked.data,
        is_cut=answer.finish_reason == "length",
    )
    known.stated |= {(one.rows[row], one.columns[column]): stated for (row, column), stated in found.items()}
    begins = readable(answer.text)[:60]
    unread = f"the judge gave no verdict that can be read; its answer began: {begins!r}" if begins else "no answer"
    known.reasons |= {cell: unread for cell in one.cells if cell not in known.stated}
    known.asked_alone |= set(one.cells if len(one.cells) == 1 else ())


def _verdict(one: _Round, cell: Cell) -> str:
    return str(one.stated[cell].verdict if cell in one.stated else SupportVerdict.UNDETERMINED)


def _majority(cell: Cell, rounds: Sequence[_Round]) -> tuple[str, str]:
    """The verdict of more than half of the repeats, and the first reason given for it."""
    votes = Counter(_verdict(one, cell) for one in rounds)
    verdict, count = votes.most_common(1)[0]
    if 2 * count <= len(rounds):
        told = ", ".join(f"{n} {name}" for name, n in sorted(votes.items()))
        return str(SupportVerdict.UNDETERMINED), f"the judge's repeats disagree: {told}"
    if verdict == SupportVerdict.UNDETERMINED:
        return verdict, next((one.reasons[cell] for one in rounds if cell in one.reasons), "")
    said = (one.stated[cell] for one in rounds if cell in one.stated)
    return verdict, next((one.why for one in said if one.verdict == verdict and one.why), "")
