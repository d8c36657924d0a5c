"""Evidence for claims by segments, from a model that scores: no judge, but what there is without one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from attr_core._text.language import guess_language
from attr_core._text.phrases import phrases
from attr_core.capabilities import require
from attr_core.errors import ConfigurationError, ContextTooLongError, EngineError
from attr_core.judge._costs import spent_since
from attr_core.metering import MeteredEngine
from attr_core.pivots import tokens_in
from attr_core.prompt import count_text, count_tokens
from attr_core.protocols import Capability, Engine, Price, TokenScores
from attr_core.reading import log_odds
from attr_core.results import FloatArray, Support, SupportVerdict
from attr_core.types import Claim, Message, Prompt, Segment

__all__ = ["ENTAILS_FROM", "NO_JUDGE", "SURPRISING_BELOW", "LikelihoodJudge"]

ENTAILS_FROM = 1.0
"""Nats of evidence from which a segment is said to entail a claim: that even the least supported word gained."""

SURPRISING_BELOW = -4.0
"""Log-probability without a segment, in nats, below which a word of a claim is one that a segment can account for."""

NO_JUDGE = "no judge has spoken: this is likelihood evidence, not entailment; name a judge in ATTRKIT_JUDGE"
"""Stands in the notes of every result."""

_ASKED = "State one fact."
_PIECE = re.compile(r"\S+")


class LikelihoodJudge:
    """Evidence of a segment for a claim: what the segment adds to the log-odds of the claim's least supported word.

    The claim is scored after a neutral prompt with the segment and after the same prompt without it. Its numbers and
    its other words that are improbable without the segment are looked at one by one: each one's log-odds with the
    segment less those without. The least of these is the evidence, in nats; positive where the segment makes even that
    word more likely. So it does not grow with the claim's length, and no length is divided out.

    The sum over the whole claim would be the likelihood ratio of the segment against none, but it tells the topic, not
    support: on 30 invented facts (SmolLM2-135M), that of a segment with another year, name or price than the claim was
    above that of a paraphrase with the right one in 63 % of comparisons, since all the other words gained.

    Verdicts are ``entails`` from ``threshold`` on, else ``neutral``; never ``contradicts``: a segment that says
    something like it of another thing lowers a word as one does that contradicts, and evidence for the negated claim
    told the two apart worse than chance. :attr:`~attr_core.results.Support.kind` is ``evidence``, and the notes say
    that no judge has spoken.
    Cost: ``n_claims * (n_segments + 1)`` scored prompts.

    Measured with SmolLM2-135M on 30 other invented facts, six segments each, with and without the question given:
    ``entails`` for 30 and 30 of 30 segments that hold the claim word for word, 30 and 19 that paraphrase it, 0 and 0
    that contradict it, 0 and 0 that say the like of another thing, 1 and 2 that say another fact of the same thing, 0
    and 0 others. So give the question.

    Parameters
    ----------
    engine : Engine that scores
        Also a :class:`~attr_core.metering.MeteredEngine` with cache and caps.
    threshold : float, default ``ENTAILS_FROM``
        In nats.
    surprising_below : float, default ``SURPRISING_BELOW``
        In nats; where no word is as improbable, the most improbable one is looked at.

    Raises
    ------
    ConfigurationError
        A threshold is no finite number.
    MissingCapabilityError
        The engine does not score.

    Examples
    --------
    >>> from attr_core.claims import split_claims
    >>> from attr_core.testing import AdditiveEngine
    >>> from attr_core.types import Location, SegmentKind
    >>> engine = AdditiveEngine({"1911": {"opened in 1911": 6.0}}, bias=-5.0)
    >>> segment = Segment("c0", SegmentKind.RETRIEVED, "The fair opened in 1911.", (Location(0, 0, 24),))
    >>> support = LikelihoodJudge(engine).judge(split_claims("It opened in 1911."), [segment])
    >>> support.kind, support.verdicts.tolist(), support.evidence.round(6).tolist()
    ('evidence', [['entails']], [[6.0]])
    """

    reads: ClassVar[bool] = False

    def __init__(
        self, engine: Engine, *, threshold: float = ENTAILS_FROM, surprising_below: float = SURPRISING_BELOW
    ) -> None:
        if not (math.isfinite(threshold) and math.isfinite(surprising_below)):
            raise ConfigurationError(
                f"{threshold=} and {surprising_below=} must be finite numbers of nats; correct them"
            )
        require(engine, {Capability.SCORE}, by="LikelihoodJudge")
        self._engine = engine if isinstance(engine, MeteredEngine) else MeteredEngine(engine)
        self._threshold = threshold
        self._surprising_below = surprising_below

    def __repr__(self) -> str:
        return f"LikelihoodJudge({self._engine.engine!r})"

    @property
    def spec(self) -> str:
        """``likelihood:`` and the engine's."""
        return f"likelihood:{self._engine.spec}"

    @property
    def price(self) -> Price | None:
        """The engine's."""
        return self._engine.price

    @property
    def threshold(self) -> float:
        """Nats from which on a verdict is ``entails``."""
        return self._threshold

    def n_calls(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> int:
        """Prompts that are scored, at most."""
        return len(claims) * (1 + len(segments)) if len(segments) else 0

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        """How much evidence each segment is for each claim.

        Parameters
        ----------
        claims : sequence of Claim, length n_claims
        segments : sequence of Segment, length n_segments
        question : str, optional
            What the claims answer; it stands in both prompts.

        Returns
        -------
        Support
            ``evidence`` ``(n_claims, n_segments)`` in nats; NaN, and ``undetermined`` with the reason, where a prompt
            does not fit the model's window or failed.

        Raises
        ------
        EngineError
            The engine scored nothing at all.
        BudgetExceededError
            A hard cap is reached; what was scored is kept.
        """
        before = self._engine.cost
        shape = (len(claims), len(segments))
        evidence: FloatArray = np.full(shape, np.nan)
        verdicts = np.full(shape, SupportVerdict.UNDETERMINED.value, dtype="<U12")
        rationale = np.full(shape, "", dtype=object)
        failures: list[EngineError] = []
        for row, claim in enumerate(claims if segments else ()):
            scores = self._scores(claim, segments, question, failures)
            for column in range(len(segments)):
                without, with_segment = scores[0], scores[1 + column]
                if isinstance(without, str) or isinstance(with_segment, str):
                    rationale[row, column] = without if isinstance(without, str) else with_segment
                    continue
                evidence[row, column], word = self._evidence(claim.text, without, with_segment)
                rationale[row, column] = f"{evidence[row, column]:+.1f} nats for {word!r}, its least supported word"
                entails = evidence[row, column] >= self._threshold
                verdicts[row, column] = SupportVerdict.ENTAILS if entails else SupportVerdict.NEUTRAL
        if failures and np.isnan(evidence).all():
            raise failures[0]
        return Support(
            verdicts=verdicts,
            rationale=rationale.astype(np.str_),
            cost=spent_since(before, self._engine.cost),
            kind="evidence",
            judge=self.spec,
            repeated=verdicts[None],
            evidence=evidence,
            notes=(NO_JUDGE,),
        )

    def _scores(
        self, claim: Claim, segments: Sequence[Segment], question: str | None, failures: list[EngineError]
    ) -> list[TokenScores | str]:
        """Scores of a claim without and with each segment, or why there are none; asks no more of what fails."""
        if failures and not isinstance(failures[-1], ContextTooLongError):
            return [f"scoring failed: {failures[-1]}"] * (1 + len(segments))
        asked = question.strip() if question and question.strip() else _ASKED
        texts = [asked, *(f"{segment.text}\n\n{asked}" for segment in segments)]
        prompts = [Prompt((Message("user", text),)) for text in texts]
        room = self._room(claim.text)
        fits = [n for n, prompt in enumerate(prompts) if room is None or count_tokens(self._engine, prompt) <= room]
        found: list[TokenScores | str] = ["the claim and the segment do not fit the model's window"] * len(prompts)
        try:
            done = dict(enumerate(self._engine.score([prompts[n] for n in fits], claim.text)))
        except EngineError as error:
            failures.append(error)
            done = dict(error.completed)
            found = [f"scoring failed: {error}"] * len(prompts)
        for place, n in enumerate(fits):
            found[n] = done.get(place, found[n])
        return found

    def _room(self, claim: str) -> int | None:
        limit = self._engine.max_context
        return None if limit is None else limit - count_text(self._engine, claim)

    def _evidence(self, claim: str, without: TokenScores, with_segment: TokenScores) -> tuple[float, str]:
        """The least gain in log-odds among the telling words, and that word."""
        words = [inside for inside in _words(claim) if tokens_in(without.offsets, *inside).any()] or [(0, len(claim))]
        inside = [tokens_in(without.offsets, *span) for span in words]
        before = np.array([without.logprobs[one].sum() for one in inside])
        after = np.array([with_segment.logprobs[one].sum() for one in inside])
        telling = before < self._surprising_below
        telling |= [any(map(str.isdigit, claim[start:end])) for start, end in words]
        if not telling.any():
            telling = before == before.min()
        gains = np.where(telling, log_odds(after) - log_odds(before), np.inf)
        least = int(np.argmin(gains))
        return float(gains[least]), claim[slice(*words[least])]


def _words(claim: str) -> list[tuple[int, int]]:
    """Numbers whole, and the other phrases of a claim word by word."""
    found: list[tuple[int, int]] = []
    for start, end, _ in phrases(claim, 0, len(claim), language=guess_language(claim)):
        is_number = any(map(str.isdigit, claim[start:end]))
        found += [(start, end)] if is_number else [match.span() for match in _PIECE.finditer(claim, start, end)]
    return found
