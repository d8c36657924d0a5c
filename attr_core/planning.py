"""Everything that is settled before anything is measured: what will run, on what, and what it costs at most."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attr_core._setup import Options, Setup, Span
from attr_core.algorithms import (
    Algorithm,
    CorrectnessAlgorithm,
    CounterfactualFaithfulness,
    ReferenceAlgorithm,
    SimilarityAlgorithm,
    algorithm_named,
    judged_estimator,
)
from attr_core.budgeting import estimator_for, within_calls, within_tokens, within_usd
from attr_core.capabilities import offered, require
from attr_core.claims import claims_of, values_of
from attr_core.engines import EMBED_VARIABLE, load_embedder, load_engine
from attr_core.errors import (
    ConfigurationError,
    ContextTooLongError,
    InputError,
    MissingCapabilityError,
)
from attr_core.estimators import (
    DebiasedLasso,
)
from attr_core.interventions import sampling_like
from attr_core.judge import load_judge
from attr_core.metrics import METRICS, Metric, metric_named
from attr_core.placebo import with_placebos
from attr_core.pricing import N_REPEATS_GENERATED, on_the_model_itself
from attr_core.prompt import ablate, candidates, count_text, count_tokens
from attr_core.protocols import Capability, Engine, HasNotes, Judge, Price, Renders, Sampling
from attr_core.segmenter import documents_before, partly_located, segment_trace, unlocated
from attr_core.types import Claim, Generation, Message, Prompt, Segment, Target, TargetKind, Trace
from attr_core.values import SCREENS

__all__ = ["MAX_COUNTERFACTUALS", "N_REPEATS", "algorithm_for", "generation_of", "settle"]

MAX_COUNTERFACTUALS = 3
"""Leading segments without which the answer is generated anew."""

MAX_VALUES = 16
"""Most names and argument values of tool calls that are targets without being asked for."""

N_REPEATS = 2
"""Times that one prompt is scored again, alone, to see how far the engine reproduces its numbers."""

MAX_SEED = 2**31

_NOTHING = Price(0.0, 0.0)


def settle(trace: Trace, options: Options) -> Setup:
    """Check the input and decide what will run within the budget; spends nothing.

    Raises
    ------
    InputError
        No such step or generation, one that wrote nothing, or a claim or span that is not in what it wrote.
    MissingCapabilityError, BudgetExceededError, ContextTooLongError
        It cannot be measured on that engine, or within that budget.
    """
    generation = generation_of(trace, options)
    response = generation.written
    if not response:
        raise InputError(f"{_which(trace, generation)} has an empty response and no tool call; nothing to attribute")
    generation = segment_trace(trace, generation, granularity=options.granularity)
    if not isinstance(options.seed, int) or not 0 <= options.seed < MAX_SEED:
        raise ConfigurationError(f"seed {options.seed!r} cannot be used; give a whole number from 0 to {MAX_SEED - 1}")
    if options.placebos:
        generation = with_placebos(generation, options.placebos)
    claims = claims_of(generation)
    chosen = _choose(claims, options.claims)
    wanted = [options.spans] if isinstance(options.spans, str) else options.spans
    spans = tuple(dict.fromkeys(_span(response, claims, span) for span in wanted))
    indices = {claim.index for claim in chosen}
    values = [value for value in values_of(generation) if value.claim in indices]
    algorithm = algorithm_named(options.algorithm) if isinstance(options.algorithm, str) else options.algorithm
    expected = _expected(algorithm, trace)
    if isinstance(algorithm, ReferenceAlgorithm) and _alike(algorithm.instead, trace.reference):
        algorithm = replace(algorithm, instead=None)
    judge, judge_engine = _judge(algorithm)
    engine = load_engine(options.engine) if algorithm.needs else _Nobody(getattr(judge, "spec", "a judge"))
    algorithm = algorithm_for(engine, algorithm)
    metric, embedder = _metric(algorithm)
    is_scored = Capability.SCORE in algorithm.needs
    screen = None if options.screen_with is None else load_engine(options.screen_with)
    if screen is not None and not is_scored:
        does = "generates answers" if algorithm.needs else "asks a judge"
        raise ConfigurationError(
            f"screening hides segments from a response that is scored, and the {algorithm.name} algorithm {does}; "
            "leave out --screen-with"
        )
    if screen is not None:
        require(screen, SCREENS, by="screening for another model")
    columns = candidates(generation.segments)
    if isinstance(algorithm, CounterfactualFaithfulness) and options.estimator is algorithm.estimator is None:
        algorithm = replace(algorithm, estimator=judged_estimator(len(columns)))
    sampling = _sampling(algorithm, generation, response, engine)
    too_long = _too_long(generation, columns, response, engine, room=None if is_scored else sampling.max_tokens)
    later = tuple(claim for claim in chosen if claim.index > 0)
    setup = Setup(
        trace=trace,
        generation=generation,
        response=response,
        columns=columns,
        claims=claims,
        chosen=chosen,
        totals=later if options.totals and columns and algorithm.name == "likelihood" else (),
        spans=spans,
        values=tuple(values[:MAX_VALUES]),
        engine=engine,
        screen=screen,
        algorithm=algorithm,
        estimator=DebiasedLasso(),
        expected=expected,
        metric=metric,
        embedder=embedder,
        sampling=sampling,
        n_repeats=_n_repeats(algorithm),
        n_regenerations=_n_regenerations(
            options, engine, 0 if isinstance(algorithm, CorrectnessAlgorithm) else len(chosen), len(columns)
        ),
        notes=(
            *_how_generated(algorithm, generation, sampling),
            *([f"answers are judged by {getattr(judge, 'spec', 'a judge')}"] if judge and algorithm.needs else []),
            *_notes(trace, generation, engine, n_values=len(values), scored=is_scored),
            *([too_long] if too_long else []),
        ),
        judge=judge,
        judge_engine=judge_engine,
        question=_question(trace, generation),
    )
    setup = replace(setup, estimator=estimator_for(setup, options, None, sample=too_long is not None))
    setup = within_calls(setup, options, sample=too_long is not None)
    setup = within_usd(within_tokens(setup, options), options)
    hint = on_the_model_itself(setup) if options.engine is None else None
    return replace(setup, notes=(*setup.notes, hint)) if hint else setup


def algorithm_for(engine: Engine, algorithm: str | Algorithm) -> Algorithm:
    """The algorithm, once it is sure that the engine offers what it needs.

    Raises
    ------
    MissingCapabilityError
        It does not; the message says what would do.
    ConfigurationError
        There is no such algorithm.
    """
    found = algorithm_named(algorithm) if isinstance(algorithm, str) else algorithm
    try:
        require(engine, found.needs, by=f"the {found.name} algorithm")
    except MissingCapabilityError as error:
        if SimilarityAlgorithm.needs <= offered(engine) and found.name == "likelihood":
            raise MissingCapabilityError(f"{error}, or --algorithm {SimilarityAlgorithm.name}") from None
        raise
    return found


@dataclass(frozen=True, slots=True)
class _Nobody:
    """Stands for the engine where none is needed: only a judge reads."""

    spec: str
    max_context: int | None = None
    price: Price | None = _NOTHING

    @property
    def fingerprint(self) -> str:
        return self.spec


def _expected(algorithm: Algorithm, trace: Trace) -> str | None:
    """The answer that the algorithm contrasts, or holds others against; ``None`` where it does without.

    Raises
    ------
    InputError
        It needs one, and there is none.
    """
    if isinstance(algorithm, ReferenceAlgorithm) and algorithm.instead is not None:
        if not algorithm.instead.strip():
            raise InputError("the other answer is empty; say with --instead what could have been answered")
        return algorithm.instead
    if not algorithm.needs_reference:
        return None
    own = algorithm.expected if isinstance(algorithm, CorrectnessAlgorithm) else None
    found = trace.reference if own is None else own
    if not (found or "").strip():
        raise InputError(
            f"the {algorithm.name} algorithm needs the expected answer, and trace {trace.id} has none; "
            "give one with --expected, or as the trace's reference"
        )
    return found


def _alike(first: str | None, second: str | None) -> bool:
    """Whether both are there and the same, white space and case aside."""
    if first is None or second is None:
        return False
    return " ".join(first.split()).casefold() == " ".join(second.split()).casefold()


def _judge(algorithm: Algorithm) -> tuple[Judge | None, Engine | None]:
    """What gives verdicts, where the algorithm needs some, and its engine, unless it came with an account of its own.

    One that is made here repeats itself as often as is wanted.
    """
    if not isinstance(algorithm, CounterfactualFaithfulness | CorrectnessAlgorithm):
        return None, None
    engines: list[Engine] = []

    def keep(engine: Engine) -> Engine:
        engines.append(engine)
        return engine

    judge = load_judge(algorithm.judge, meter=keep, repeats=algorithm.repeats)
    return judge, engines[0] if engines else None


def _question(trace: Trace, generation: Generation) -> str | None:
    """What the answer answers: what is fixed of the last user turn, else the trace's query."""
    fixed = [segment.text for segment in generation.segments if segment.fixed and segment.text.strip()]
    return fixed[-1] if fixed else trace.query


def _metric(algorithm: Algorithm) -> tuple[str | Metric | None, Engine | None]:
    """What compares answers, where they are generated, and what embeds; checked, so that it fails here or never.

    Raises
    ------
    ConfigurationError
        The metric is unknown, or needs an embedder and there is none.
    """
    if isinstance(algorithm, CounterfactualFaithfulness | CorrectnessAlgorithm):
        return None, None
    if not isinstance(algorithm, SimilarityAlgorithm):
        named = algorithm.embedder or os.environ.get(EMBED_VARIABLE, "").strip() or None
        finds = None if named is None else load_embedder(named)
        if finds is not None:
            require(finds, {Capability.EMBED}, by="finding segments that say the same")
        return None, finds
    metric = algorithm.metric
    if metric is not None and not isinstance(metric, str):
        return metric, None
    needs = metric is None or metric not in METRICS or METRICS[metric].needs_embedder
    embedder: Any = load_embedder(algorithm.embedder) if needs or algorithm.embedder is not None else None
    metric = metric or ("overlap" if embedder is None else "embedding")
    metric_named(metric, embedder)
    return metric, embedder


def _sampling(algorithm: Algorithm, generation: Generation, response: str, engine: Engine) -> Sampling:
    """How answers are generated: room for the recorded one and half again as much."""
    found = sampling_like(generation, response_tokens=count_text(engine, response))
    if not isinstance(algorithm, SimilarityAlgorithm | CorrectnessAlgorithm):
        return found
    return replace(found, temperature=algorithm.temperature)


def _how_generated(algorithm: Algorithm, generation: Generation, sampling: Sampling) -> list[str]:
    """How answers are generated, where they are, and that the recorded one was not."""
    if not isinstance(algorithm, SimilarityAlgorithm | CorrectnessAlgorithm):
        return []
    recorded = generation.parameters.get("temperature")
    differs = isinstance(recorded, int | float) and recorded != sampling.temperature
    other = f"; the recorded one was at {recorded:g}" if differs else ""
    return [
        f"answers are generated at temperature {sampling.temperature:g}, of {sampling.max_tokens} tokens at most{other}"
    ]


def _n_repeats(algorithm: Algorithm) -> int:
    if Capability.GENERATE in algorithm.needs:
        return N_REPEATS_GENERATED
    return N_REPEATS if algorithm.name == "likelihood" else 0


def generation_of(trace: Trace, options: Options) -> Generation:
    """The model call that is looked into: the named one, else the one that gave the answer.

    Raises
    ------
    ConfigurationError, InputError
        Two are named, or there is none of that name or number.
    """
    step, identifier = options.step, options.generation
    if step is not None and identifier is not None:
        raise ConfigurationError(f"step {step} and generation {identifier!r} both name a model call; give one of them")
    if step is not None:
        n = len(trace.generations)
        if not isinstance(step, int) or not 1 <= step <= n:
            raise InputError(f"step {step} does not exist; trace {trace.id} has {n} model call{'s' * (n != 1)}")
        return trace.generations[step - 1]
    if identifier is None:
        return trace.target_generation
    for generation in trace.generations:
        if generation.id == identifier:
            return generation
    known = ", ".join(generation.id for generation in trace.generations)
    raise InputError(f"trace {trace.id} has no generation {identifier!r}; it has {known or 'none'}")


def _which(trace: Trace, generation: Generation) -> str:
    if len(trace.generations) == 1:
        return f"trace {trace.id}"
    step = next(n for n, other in enumerate(trace.generations, start=1) if other.id == generation.id)
    return f"step {step} of trace {trace.id}"


def _choose(claims: tuple[Claim, ...], wanted: Sequence[int] | None) -> tuple[Claim, ...]:
    if wanted is None:
        return claims
    for index in wanted:
        if not 0 <= index < len(claims):
            raise InputError(f"claim {index + 1} does not exist; the response has {len(claims)}")
    return tuple(claims[index] for index in sorted(set(wanted)))


def _span(response: str, claims: Sequence[Claim], span: Span) -> Target:
    if isinstance(span, str):
        start = response.find(span) if span.strip() else -1
        if start < 0:
            raise InputError(f"span {span!r} does not stand in the response; quote it as it is written there")
        start, end = start, start + len(span)
    else:
        start, end = span
    if not 0 <= start < end <= len(response):
        raise InputError(f"span {start}:{end} lies outside the response of {len(response)} characters")
    inside = next((claim.index for claim in claims if claim.start <= start and end <= claim.end), None)
    return Target(TargetKind.SPAN, start, end, response[start:end], inside)


def _n_regenerations(options: Options, engine: Engine, n_claims: int, n_segments: int) -> int:
    if not options.regenerations or Capability.GENERATE not in offered(engine):
        return 0
    return 2 + min(n_claims, n_segments, MAX_COUNTERFACTUALS) if n_segments else 1


def _too_long(
    generation: Generation, columns: Sequence[Segment], response: str, engine: Engine, *, room: int | None
) -> str | None:
    """What to say where the full prompt exceeds the model's window; ``None`` where it does not.

    ``room`` are tokens that an answer may take; by default those of the recorded one.
    """
    limit = engine.max_context
    if limit is None:
        return None
    answer = count_tokens(engine, Prompt((Message("user", response),))) if room is None else room
    full = count_tokens(engine, generation.prompt) + answer
    if full <= limit:
        return None
    nothing = ablate(generation, columns, np.zeros(len(columns), dtype=np.bool_))
    least = count_tokens(engine, nothing) + answer
    if least > limit or not columns:
        raise ContextTooLongError(
            f"prompt and response take {least} tokens even without context, the window of {engine.spec} has {limit}; "
            "use a model with a larger one"
        )
    return (
        f"prompt and response take {full} tokens, the window of {engine.spec} has {limit}: only subsets that fit were "
        "measured, the baseline with the full context is missing, and effects are relative to the mean of those subsets"
    )


def _notes(trace: Trace, generation: Generation, engine: Engine, *, n_values: int, scored: bool) -> list[str]:
    notes = []
    if lost := unlocated(documents_before(trace, generation), generation.segments):
        names = ", ".join(document.id for document in lost[:5])
        notes.append(f"{len(lost)} of the retrieved documents were not found in the prompt: {names}")
    if parts := partly_located(generation.segments):
        shares = ", ".join(f"{name} ({share:.0%})" for name, share in list(parts.items())[:5])
        notes.append(f"{len(parts)} of the retrieved documents were found only in part: {shares}")
    with suppress(MissingCapabilityError):  # a server says so only once it was asked
        notes += engine.render(generation.prompt).notes if isinstance(engine, Renders) else ()
    if generation.tool_calls and scored:
        notes.append("tool calls were scored as JSON text, not in the call syntax of the model that wrote them")
    notes += engine.notes if isinstance(engine, HasNotes) else ()
    if n_values > MAX_VALUES and scored:
        notes.append(f"the tool calls hold {n_values} values, the first {MAX_VALUES} are targets; name others as spans")
    return notes
