"""The recorded call, run again under interventions: what the model says then, and what that amounts to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attr_core._text.language import guess_language
from attr_core.diagnosis.facts import Trials
from attr_core.diagnosis.thresholds import Thresholds
from attr_core.engines.batches import failure
from attr_core.errors import AttrkitError, SegmentationError
from attr_core.interventions import Intervention, prompt_under
from attr_core.metering import MeteredEngine
from attr_core.metrics import token_overlap
from attr_core.outcomes import Outcome
from attr_core.protocols import Judge, Reproduces, Sampling
from attr_core.results import Cost
from attr_core.support._sentences import said
from attr_core.support.outcome import Standard, outcomes
from attr_core.types import Generation, Segment

__all__ = ["Reruns"]

_WRONG = frozenset({Outcome.WRONG, Outcome.INCOMPLETE})


class Reruns:
    """Runs a generation again, with the same sampling, and holds what comes out against a standard.

    Every (intervention, run) is generated once; all answers of one call are judged together, each distinct text once.

    Parameters
    ----------
    engine : MeteredEngine
        That generates.
    judge : Judge
    generation : Generation
    sources : sequence of Segment
        The columns that interventions count in.
    standard : Standard
    sampling : Sampling
    thresholds : Thresholds
    recorded : Outcome
        What the recorded answer amounts to: the same text again is not judged anew.
    """

    def __init__(
        self,
        engine: MeteredEngine,
        judge: Judge,
        *,
        generation: Generation,
        sources: Sequence[Segment],
        standard: Standard,
        sampling: Sampling,
        thresholds: Thresholds,
        recorded: Outcome,
    ) -> None:
        self._engine = engine
        self._judge = judge
        self._generation = generation
        self._sources = sources
        self._standard = standard
        self._sampling = sampling
        self._alike = thresholds.alike
        self._said = [generation.written]
        self._known: dict[Intervention, Trials] = {}
        self._recorded = recorded
        self._outcomes: dict[str, Outcome] = {}
        self.judge_cost = Cost()
        self.n_runs = 0

    @property
    def is_reproducible(self) -> bool:
        """Whether the same prompt always gets the same answer: greedy, from an engine that says so of itself."""
        engine = self._engine.engine
        return self._sampling.temperature == 0 and isinstance(engine, Reproduces) and engine.reproduces

    def run(self, interventions: Sequence[Intervention], *, times: int = 1) -> list[Trials]:
        """``times`` runs of each, on top of none; what was run before is not run again. In order.

        Raises
        ------
        EngineError, BudgetExceededError
            The engine or the judge answered nothing at all.
        """
        times = 1 if self.is_reproducible else times
        wanted = list(dict.fromkeys(interventions))
        texts: dict[Intervention, list[str]] = {one: list(self._texts(one)) for one in wanted}
        while missing := [one for one in wanted if len(texts[one]) < times]:
            by_run: dict[int, list[Intervention]] = {}
            for one in missing:
                by_run.setdefault(len(texts[one]), []).append(one)
            for run, group in by_run.items():
                for one, text in zip(group, self._generate(group, run), strict=True):
                    texts[one].append(text)
        self._judge_texts([text for found in texts.values() for text in found])
        for one, answers in texts.items():
            self._known[one] = Trials(
                one, tuple(answers), tuple(self._outcomes[text] for text in answers), tuple(map(self._is_same, answers))
            )
        return [self._known[one] for one in interventions]

    def hold_against(self, unchanged: Trials) -> Trials:
        """Take what the unchanged prompt gets now as said too, where more than half of its runs agree on it.

        A model that stands in words its wrong answer in another way, or gives another wrong one: what a change does
        shows against that one only. Returns the same runs, compared anew; runs nothing.
        """
        for text in (one for one in dict.fromkeys(unchanged.texts) if self._outcomes[one] in _WRONG):
            if sum(self._is_alike(one, text) for one in unchanged.texts) > len(unchanged.texts) / 2:
                self._said.append(text)
                break
        self._known = {
            one: replace(trials, same=tuple(map(self._is_same, trials.texts))) for one, trials in self._known.items()
        }
        return self._known[unchanged.intervention]

    def can_run(self, intervention: Intervention) -> bool:
        """Whether the prompt can be changed in that way; runs nothing."""
        try:
            prompt_under(self._generation, self._sources, intervention)
        except SegmentationError:
            return False
        return True

    def _texts(self, intervention: Intervention) -> tuple[str, ...]:
        return self._known[intervention].texts if intervention in self._known else ()

    def _generate(self, interventions: Sequence[Intervention], run: int) -> list[str]:
        prompts = [prompt_under(self._generation, self._sources, one) for one in interventions]
        seed = self._sampling.seed + (run if self._sampling.temperature > 0 else 0)
        try:
            found = self._engine.generate(prompts, replace(self._sampling, seed=seed), repeat=run)
        except AttrkitError:
            raise
        except Exception as error:
            spec = self._engine.spec
            raise failure(error, f"{spec} failed", remedy="correct that engine, or name another one") from error
        self.n_runs += len(found)
        return [completion.text for completion in found]

    def _judge_texts(self, texts: Sequence[str]) -> None:
        again = [text for text in texts if text.split() == self._generation.written.split()]
        self._outcomes |= dict.fromkeys(again, self._recorded)
        new = [text for text in dict.fromkeys(texts) if text not in self._outcomes]
        found, cost = outcomes(self._judge, self._standard, new)
        self._outcomes |= dict(zip(new, found, strict=True))
        self.judge_cost += cost

    def _is_same(self, text: str) -> bool:
        return any(self._is_alike(text, said) for said in self._said)

    def _is_alike(self, text: str, other: str) -> bool:
        """In the same words, or in nearly the same ones with the same names and numbers."""
        now, then = (" ".join(one.split()) for one in (text, other))
        if now == then:
            return True
        language = guess_language(then)
        new, old = said(now, language), said(then, language)
        telling = (new.names, new.quantities, new.denies) == (old.names, old.quantities, old.denies)
        return telling and token_overlap(then, now) >= self._alike
