"""Everything that is settled before anything is measured: what will run, on what, and what it costs at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attr_core._setup import Options, Setup, Span
from attr_core.algorithms import algorithm_named, default_estimator
from attr_core.capabilities import offered, require
from attr_core.claims import claims_of, values_of
from attr_core.engines import load_engine
from attr_core.errors import BudgetExceededError, ConfigurationError, ContextTooLongError, InputError
from attr_core.estimators import ContextCite, DebiasedLasso, Hierarchical, PathGradients, Screened, estimator_named
from attr_core.placebo import with_placebos
from attr_core.pricing import most_gate_calls, plan_of
from attr_core.prompt import ablate, candidates, count_tokens
from attr_core.protocols import Capability, Engine, Estimator, Renders
from attr_core.segmenter import documents_before, partly_located, segment_trace, unlocated
from attr_core.types import Claim, Generation, Message, Prompt, Segment, Target, TargetKind, Trace
from attr_core.values import SCREENS, can_hide

__all__ = ["MAX_COUNTERFACTUALS", "N_REPEATS", "settle"]

MAX_COUNTERFACTUALS = 3
"""Leading segments without which the answer is generated anew."""

MAX_VALUES = 16
"""Most names and argument values of tool calls that are targets without being asked for."""

N_REPEATS = 2
"""Times that one prompt is scored again, alone, to see how far the engine reproduces its numbers."""

MAX_SEED = 2**31


def settle(trace: Trace, options: Options) -> Setup:
    """Check the input and decide what will run within the budget; spends nothing.

    Raises
    ------
    InputError
        No such step or generation, one that wrote nothing, or a claim or span that is not in what it wrote.
    MissingCapabilityError, BudgetExceededError, ContextTooLongError
        It cannot be measured on that engine, or within that budget.
    """
    generation = _generation(trace, options)
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
    engine = load_engine(options.engine)
    require(engine, algorithm.needs, by=f"the {algorithm.name} algorithm")
    if algorithm.needs_reference and not (trace.reference or "").strip():
        raise InputError(
            f"the {algorithm.name} algorithm needs the expected answer, and trace {trace.id} has none; "
            "give one with --expected, or as the trace's reference"
        )
    screen = None if options.screen_with is None else load_engine(options.screen_with)
    if screen is not None:
        require(screen, SCREENS, by="screening for another model")
    columns = candidates(generation.segments)
    too_long = _too_long(generation, columns, response, engine)
    later = tuple(claim for claim in chosen if claim.index > 0)
    setup = Setup(
        trace=trace,
        generation=generation,
        response=response,
        columns=columns,
        claims=claims,
        chosen=chosen,
        totals=later if options.totals and columns and not algorithm.needs_reference else (),
        spans=spans,
        values=tuple(values[:MAX_VALUES]),
        engine=engine,
        screen=screen,
        algorithm=algorithm,
        estimator=DebiasedLasso(),
        expected=trace.reference if algorithm.needs_reference else None,
        n_repeats=0 if algorithm.needs_reference else N_REPEATS,
        n_regenerations=_n_regenerations(options, engine, len(chosen), len(columns)),
        notes=(*_notes(trace, generation, engine, n_values=len(values)), *([too_long] if too_long else [])),
    )
    setup = replace(setup, estimator=_estimator(setup, options, None, sample=too_long is not None))
    return _within_tokens(_within_budget(setup, options, sample=too_long is not None), options)


def _generation(trace: Trace, options: Options) -> Generation:
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


def _estimator(setup: Setup, options: Options, max_masks: int | None, *, sample: bool) -> Estimator:
    """What the caller wants, or the default, for at most that many calls a continuation."""
    n_segments, wanted = len(setup.columns), options.estimator or setup.algorithm.estimator
    screens = can_hide(_screen_of(setup), setup.generation, setup.columns, setup.response)
    if wanted is None:
        gates = most_gate_calls(setup, Screened()) if screens else None
        return default_estimator(n_segments, max_masks, sample=sample, gates=gates)
    estimator = estimator_named(wanted) if isinstance(wanted, str) else wanted
    if isinstance(estimator, Screened | PathGradients):
        require(_screen_of(setup), SCREENS, by=f"the estimator {estimator.name}")
        if not screens and not sample:
            raise ConfigurationError(
                f"{estimator.name} cannot hide segments in this prompt, whose chat template rewrites them; "
                "use debiased-lasso"
            )
    if sample and not isinstance(estimator, DebiasedLasso | ContextCite | Hierarchical):
        raise ConfigurationError(
            f"{estimator.name} needs prompts that exceed the model's window; use debiased-lasso, or a larger window"
        )
    needed = estimator.n_masks(n_segments) + most_gate_calls(setup, estimator)
    if max_masks is not None and needed > max_masks:
        raise BudgetExceededError(
            f"{estimator.name} over {n_segments} segments needs up to {needed} calls, the budget leaves {max_masks};"
            " raise it, or leave the estimator to attrkit"
        )
    return estimator


def _screen_of(setup: Setup) -> Engine:
    """What hides segments, if it can."""
    return setup.engine if setup.screen is None else setup.screen


def _n_regenerations(options: Options, engine: Engine, n_claims: int, n_segments: int) -> int:
    if not options.regenerations or Capability.GENERATE not in offered(engine):
        return 0
    return 2 + min(n_claims, n_segments, MAX_COUNTERFACTUALS) if n_segments else 1


def _within_budget(setup: Setup, options: Options, *, sample: bool) -> Setup:
    """Leave out what the budget of calls cannot pay: first regenerations, then repeats, totals, and ablations."""
    calls = options.budget.calls
    if calls is None:
        return setup
    notes = list(setup.notes)
    if setup.totals and _most_calls(setup) > calls:
        notes.append(f"later claims are read given the earlier ones only, to keep the budget of {calls} calls")
        setup = replace(setup, totals=())
    setup = replace(setup, estimator=_estimator(setup, options, calls // setup.n_continuations, sample=sample))
    left = calls - _most_calls(setup)
    repeats = min(setup.n_repeats, left)
    regenerations = min(setup.n_regenerations, left - repeats)
    if repeats < setup.n_repeats or regenerations < setup.n_regenerations:
        missing = setup.n_repeats + setup.n_regenerations - repeats - regenerations
        notes.append(f"{missing} checks and regenerations left out, to keep the budget of {calls} calls")
    return replace(setup, n_repeats=repeats, n_regenerations=regenerations, notes=tuple(notes))


def _most_calls(setup: Setup) -> int:
    """Of the estimate alone."""
    of_masks = setup.estimator.n_masks(len(setup.columns))
    return (of_masks + most_gate_calls(setup, setup.estimator)) * setup.n_continuations


def _within_tokens(setup: Setup, options: Options) -> Setup:
    """As for calls: what a budget of tokens cannot pay at most is left out, or refused before anything is sent."""
    tokens = options.budget.tokens
    if tokens is None:
        return setup
    smaller = replace(setup, n_regenerations=0, n_repeats=0)
    for tried, missing in (
        (setup, ""),
        (smaller, "checks and regenerations"),
        (replace(smaller, totals=()), "checks, regenerations and the total reading of later claims"),
    ):
        if plan_of(tried).maximum.tokens_in <= tokens:
            left_out = f"{missing} left out, to keep the budget of {tokens} tokens"
            return replace(tried, notes=(*setup.notes, left_out)) if missing else tried
    most = plan_of(replace(smaller, totals=())).maximum.tokens_in
    raise BudgetExceededError(
        f"this needs up to {most} tokens, the budget allows {tokens}; raise it, or lower calls for fewer ablations"
    )


def _too_long(generation: Generation, columns: Sequence[Segment], response: str, engine: Engine) -> str | None:
    """What to say where the full prompt exceeds the model's window; ``None`` where it does not."""
    limit = engine.max_context
    if limit is None:
        return None
    answer = count_tokens(engine, Prompt((Message("user", response),)))
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


def _notes(trace: Trace, generation: Generation, engine: Engine, *, n_values: int) -> list[str]:
    notes = []
    if lost := unlocated(documents_before(trace, generation), generation.segments):
        names = ", ".join(document.id for document in lost[:5])
        notes.append(f"{len(lost)} of the retrieved documents were not found in the prompt: {names}")
    if parts := partly_located(generation.segments):
        shares = ", ".join(f"{name} ({share:.0%})" for name, share in list(parts.items())[:5])
        notes.append(f"{len(parts)} of the retrieved documents were found only in part: {shares}")
    if isinstance(engine, Renders):
        notes += engine.render(generation.prompt).notes
    if generation.tool_calls:
        notes.append("tool calls were scored as JSON text, not in the call syntax of the model that wrote them")
    if n_values > MAX_VALUES:
        notes.append(f"the tool calls hold {n_values} values, the first {MAX_VALUES} are targets; name others as spans")
    return notes
