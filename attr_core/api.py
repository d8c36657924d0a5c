"""From a trace to an attribution: :func:`explain`, :func:`attribute`, :func:`plan`. Wiring only; the maths is below."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from attr_core import __version__
from attr_core.algorithms import LikelihoodAlgorithm, algorithm_named, default_estimator
from attr_core.cache import Cache
from attr_core.capabilities import offered, require
from attr_core.claims import split_claims
from attr_core.engines import load_engine
from attr_core.errors import BudgetExceededError, InputError, StoreError
from attr_core.estimators import estimator_named
from attr_core.interventions import regenerate, sampling_like
from attr_core.metering import MeteredEngine, count_tokens
from attr_core.pivots import find_pivots
from attr_core.prompt import ablate, candidates
from attr_core.protocols import Capability, Engine, Estimator, Progress, Renders, Sampling
from attr_core.results import Attribution, Budget, Cost, Estimate, FloatArray, Plan, Regeneration, Step
from attr_core.segmenter import segment_trace, unlocated
from attr_core.store import Store
from attr_core.types import Claim, Document, Generation, Message, Segment, Target, TargetKind, Trace
from attr_core.verdicts import margins, weigh

__all__ = ["IMPROBABLE", "attribute", "explain", "plan"]

IMPROBABLE = -2.5
"""Mean log-probability per token, in nats, below which the measuring model is said to find the response improbable."""

MAX_COUNTERFACTUALS = 3
"""Leading segments without which the answer is generated anew."""

INSTRUCTION = "Answer the question in one short sentence, using only the context."

Span = str | tuple[int, int]


def explain(
    question: str,
    documents: Iterable[Any],
    answer: str | None = None,
    *,
    engine: str | Engine | None = None,
    instruction: str = INSTRUCTION,
    max_tokens: int = 128,
    db: str | Path | None = None,
    **options: Any,
) -> Attribution:
    """Answer a question from documents, if no answer is given, and say which document caused what.

    Parameters
    ----------
    question : str
    documents : iterable
        Strings, dicts with ``text`` (and ``id``, ``metadata``), or any framework's document objects.
    answer : str, optional
        What was answered; by default the engine answers, greedily, in at most ``max_tokens`` tokens.
    engine : str or Engine, optional
        Spec such as ``"hf:MODEL"`` or a loaded engine; by default ``ATTRKIT_ENGINE``, else the packaged small model.
    db : path, optional
        Where the trace, the result and every measurement are kept; by default ``ATTRKIT_DB``, else
        ``~/.attrkit/attrkit.db``. ``":memory:"`` keeps nothing.
    **options
        As for :func:`attribute`.

    Raises
    ------
    InputError
        No question, or a document without text.
    """
    if not question.strip():
        raise InputError("the question is empty; pass what was asked")
    parsed = [Document.parse(document, position) for position, document in enumerate(documents)]
    messages = _messages(question, parsed, instruction)
    measuring = load_engine(engine)
    spent = Cost()
    model: str | None = None
    if answer is None:
        require(measuring, {Capability.GENERATE}, by="explain() without an answer")
        with Cache(db) as cache:
            metered = MeteredEngine(measuring, cache=cache)
            probe = Trace.from_messages(messages, None).target_generation
            answer = metered.generate([probe.prompt], Sampling(max_tokens=max_tokens))[0].text
            spent, model = metered.cost, measuring.spec
    trace = Trace.from_messages(
        messages,
        answer,
        documents=parsed,
        query=question,
        model=model,
        parameters={"max_tokens": max_tokens, "temperature": 0.0},
        framework="attrkit",
    )
    found = attribute(trace, engine=measuring, db=db, **options)
    return replace(found, cost=found.cost + spent)


def attribute(
    trace: Trace,
    *,
    engine: str | Engine | None = None,
    algorithm: str | LikelihoodAlgorithm = "likelihood",
    estimator: str | Estimator | None = None,
    generation: str | None = None,
    claims: Sequence[int] | None = None,
    spans: Sequence[Span] = (),
    budget: Budget = Budget(),
    seed: int = 0,
    regenerations: bool = True,
    db: str | Path | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """Which segment of the context caused which claim of a trace's response.

    Parameters
    ----------
    trace : Trace
    engine : str or Engine, optional
        What measures; see :func:`explain`.
    algorithm : str or algorithm, default "likelihood"
    estimator : str or Estimator, optional
        By default what suits the number of segments and the budget.
    generation : str, optional
        Id of the model call to attribute; by default the one that gave the answer.
    claims : sequence of int, optional
        Indices of the claims to attribute; by default all.
    spans : sequence of str or (start, end)
        Further targets: phrases of the response (their first occurrence) or half-open character ranges.
    budget : Budget
        Hard caps; what would pass them is settled before anything is sent.
    seed : int, default 0
    regenerations : bool, default True
        Whether to generate anew with the unchanged prompt, without context and without each claim's leading segment,
        where the engine can generate and the budget allows.
    db : path, optional
        See :func:`explain`.
    progress : callable, optional
        Called with (calls made, calls planned).

    Returns
    -------
    Attribution
        Rows: each claim's pivots and the claim, the named spans, the whole response. Columns: every segment that is not fixed.

    Raises
    ------
    InputError
        An empty response, or a claim or span that is not in it.
    MissingCapabilityError, BudgetExceededError
        Before anything is spent.
    """
    setup = _settle(trace, engine, algorithm, estimator, generation, claims, spans, budget, regenerations)
    planned = _plan(setup)
    with Store(db) as store, Cache(db) as cache:
        metered = MeteredEngine(
            setup.engine, cache=cache, budget=budget, progress=progress, planned=planned.maximum.calls
        )
        attribution = _measure(setup, metered, seed)
        try:
            store.save(trace.with_generation(setup.generation))
            store.save_attribution(attribution)
        except StoreError as error:
            attribution = replace(attribution, warnings=(*attribution.warnings, f"the result was not stored: {error}"))
    return attribution


def plan(
    trace: Trace,
    *,
    engine: str | Engine | None = None,
    algorithm: str | LikelihoodAlgorithm = "likelihood",
    estimator: str | Estimator | None = None,
    generation: str | None = None,
    claims: Sequence[int] | None = None,
    spans: Sequence[Span] = (),
    budget: Budget = Budget(),
    regenerations: bool = True,
) -> Plan:
    """What :func:`attribute` would do with the same arguments, and cost, as if the cache were empty; spends nothing."""
    return _plan(_settle(trace, engine, algorithm, estimator, generation, claims, spans, budget, regenerations))


@dataclass(frozen=True, slots=True)
class _Setup:
    """Everything settled before anything is measured."""

    trace: Trace
    generation: Generation
    response: str
    columns: tuple[Segment, ...]
    claims: tuple[Claim, ...]
    chosen: tuple[Claim, ...]
    spans: tuple[Target, ...]
    engine: Engine
    algorithm: LikelihoodAlgorithm
    estimator: Estimator
    n_regenerations: int
    notes: tuple[str, ...]


def _settle(
    trace: Trace,
    engine: str | Engine | None,
    algorithm: str | LikelihoodAlgorithm,
    estimator: str | Estimator | None,
    generation: str | None,
    claims: Sequence[int] | None,
    spans: Sequence[Span],
    budget: Budget,
    regenerations: bool,
) -> _Setup:
    target = segment_trace(trace, _generation(trace, generation))
    response = target.response or ""
    if not response.strip():
        raise InputError(f"trace {trace.id} has an empty response; there is nothing to attribute")
    columns = candidates(target.segments)
    split = split_claims(response)
    chosen = _choose(split, claims)
    named = tuple(_span(response, span) for span in spans)
    pair = algorithm_named(algorithm) if isinstance(algorithm, str) else algorithm
    measuring = load_engine(engine)
    require(measuring, pair.needs, by=f"the {pair.name} algorithm")
    designed = _estimator(estimator or pair.estimator, len(columns), budget)
    wanted = 2 + min(len(chosen), len(columns), MAX_COUNTERFACTUALS) if regenerations else 0
    if Capability.GENERATE not in offered(measuring):
        wanted = 0
    notes = []
    if budget.calls is not None:
        wanted, asked = min(wanted, max(budget.calls - designed.n_masks(len(columns)), 0)), wanted
        if wanted < asked:
            notes.append(f"{asked - wanted} regenerations left out to keep the budget of {budget.calls} calls")
    if lost := unlocated(trace, target.segments):
        names = ", ".join(document.id for document in lost[:5])
        notes.append(f"{len(lost)} of the retrieved documents do not stand in the prompt as they are: {names}")
    if isinstance(measuring, Renders):
        notes += measuring.render(target.prompt).notes
    return _Setup(
        trace=trace,
        generation=target,
        response=response,
        columns=columns,
        claims=split,
        chosen=chosen,
        spans=named,
        engine=measuring,
        algorithm=pair,
        estimator=designed,
        n_regenerations=wanted,
        notes=tuple(notes),
    )


def _generation(trace: Trace, identifier: str | None) -> Generation:
    if identifier is None:
        return trace.target_generation
    for generation in trace.generations:
        if generation.id == identifier:
            return generation
    known = ", ".join(generation.id for generation in trace.generations)
    raise InputError(f"trace {trace.id} has no generation {identifier!r}; it has {known or 'none'}")


def _choose(split: tuple[Claim, ...], wanted: Sequence[int] | None) -> tuple[Claim, ...]:
    if wanted is None:
        return split
    for index in wanted:
        if not 0 <= index < len(split):
            raise InputError(f"claim {index + 1} does not exist; the response has {len(split)}")
    return tuple(split[index] for index in dict.fromkeys(wanted))


def _span(response: str, span: Span) -> Target:
    if isinstance(span, str):
        start = response.find(span) if span.strip() else -1
        if start < 0:
            raise InputError(f"span {span!r} does not stand in the response; quote it as it is written there")
        return Target(TargetKind.SPAN, start, start + len(span), span)
    start, end = span
    if not 0 <= start < end <= len(response):
        raise InputError(f"span {start}:{end} lies outside the response of {len(response)} characters")
    return Target(TargetKind.SPAN, start, end, response[start:end])


def _estimator(wanted: str | Estimator | None, n_segments: int, budget: Budget) -> Estimator:
    if wanted is None:
        return default_estimator(n_segments, budget.calls)
    estimator = estimator_named(wanted) if isinstance(wanted, str) else wanted
    needed = estimator.n_masks(n_segments)
    if budget.calls is not None and needed > budget.calls:
        raise BudgetExceededError(
            f"{estimator.name} over {n_segments} segments needs up to {needed} calls, the budget allows {budget.calls};"
            " raise it, or leave the estimator to attrkit"
        )
    return estimator


def _plan(setup: _Setup) -> Plan:
    n_masks = setup.estimator.n_masks(len(setup.columns))
    nothing = ablate(setup.generation, setup.columns, np.zeros(len(setup.columns), dtype=np.bool_))
    full, empty = (count_tokens(setup.engine, prompt) for prompt in (setup.generation.prompt, nothing))
    answer = count_tokens(setup.engine, setup.generation.prompt.__class__((Message("user", setup.response),)))
    steps = [Step("ablations scored", n_masks, n_masks * ((full + empty) // 2 + answer))]
    most = n_masks * (full + answer)
    if setup.n_regenerations:
        length = sampling_like(setup.generation, response_tokens=answer).max_tokens
        steps.append(Step("answers regenerated", setup.n_regenerations, setup.n_regenerations * (full + answer)))
        most += setup.n_regenerations * (full + length)
    calls, tokens = sum(step.calls for step in steps), sum(step.tokens for step in steps)
    return Plan(
        method=f"{setup.algorithm.name} × {setup.estimator.name}",
        engine=setup.engine.spec,
        steps=tuple(steps),
        calls=calls,
        tokens=tokens,
        usd=0.0,
        maximum=Cost(calls=calls, tokens_in=most),
        notes=setup.notes,
    )


def _measure(setup: _Setup, metered: MeteredEngine, seed: int) -> Attribution:
    n = len(setup.columns)
    ends = np.array([[True] * n, [False] * n], dtype=np.bool_).reshape(2, n)
    untargeted = setup.algorithm.value(
        metered, setup.generation, segments=setup.columns, response=setup.response, targets=()
    )
    offsets, (token_full, token_closed_book) = untargeted.tokens(ends)
    pivots = find_pivots(
        setup.response, setup.chosen, offsets, full=token_full, closed_book=token_closed_book, floor=untargeted.floor
    )
    targets = _targets(setup, pivots)
    value = untargeted.with_targets(targets)
    estimate = setup.estimator.estimate(value, seed=seed)
    full, closed_book = value.exact(ends)
    delta = margins(estimate.effects, floor=value.floor)
    regenerated = _regenerate(setup, metered, targets, estimate, delta, response_tokens=len(offsets))
    return Attribution(
        method=f"{value.name} × {setup.estimator.name}",
        estimand=setup.estimator.estimand,
        unit=value.unit,
        trace_id=setup.trace.id,
        generation_id=setup.generation.id,
        response=setup.response,
        segments=setup.columns,
        claims=setup.claims,
        targets=targets,
        effects=estimate.effects,
        low=estimate.low,
        high=estimate.high,
        p_values=estimate.p_values,
        verdicts=weigh(estimate, delta, knows_right=value.knows_right),
        drops=estimate.drops,
        delta=delta,
        full=full,
        closed_book=closed_book,
        token_offsets=offsets,
        token_full=token_full,
        token_closed_book=token_closed_book,
        exact=estimate.exact,
        cost=metered.cost,
        seed=seed,
        versions=_versions(),
        answered_by=setup.generation.model,
        measured_on=setup.engine.spec,
        level=estimate.level,
        groups=estimate.groups,
        pairs=estimate.pairs,
        fit=estimate.fit,
        agreement=estimate.agreement,
        resolution=("individual",) * n,
        regenerated=regenerated,
        warnings=(*setup.notes, *_warnings(setup, token_full, regenerated)),
        partial=estimate.partial,
    )


def _targets(setup: _Setup, pivots: Sequence[Target]) -> tuple[Target, ...]:
    targets: list[Target] = []
    for claim in setup.chosen:
        targets += [pivot for pivot in pivots if pivot.claim == claim.index]
        targets.append(Target(TargetKind.CLAIM, claim.start, claim.end, claim.text, claim.index))
    targets += setup.spans
    targets.append(Target(TargetKind.RESPONSE, 0, len(setup.response), setup.response))
    return tuple(targets)


def _regenerate(
    setup: _Setup,
    metered: MeteredEngine,
    targets: Sequence[Target],
    estimate: Estimate,
    delta: FloatArray,
    *,
    response_tokens: int,
) -> tuple[Regeneration, ...]:
    everything = tuple(range(len(setup.columns)))
    leading = [_leading(targets, estimate.effects, delta, claim) for claim in setup.chosen]
    removals = [(), everything, *((column,) for column in leading if column is not None)]
    removals = list(dict.fromkeys(removals))[: setup.n_regenerations]
    if not removals:
        return ()
    return regenerate(
        metered,
        setup.generation,
        segments=setup.columns,
        removals=removals,
        sampling=sampling_like(setup.generation, response_tokens=response_tokens),
    )


def _leading(targets: Sequence[Target], effects: FloatArray, delta: FloatArray, claim: Claim) -> int | None:
    """The column with the largest effect on the claim's pivots (on the claim itself if it has none), if beyond δ."""
    rows = [row for row, target in enumerate(targets) if target.claim == claim.index]
    rows = [row for row in rows if targets[row].kind is TargetKind.PIVOT] or rows
    best = max(((effects[row, s], -s, row) for row in rows for s in range(effects.shape[1])), default=None)
    return None if best is None or best[0] <= delta[best[2]] else -best[1]


def _warnings(setup: _Setup, token_full: FloatArray, regenerated: Sequence[Regeneration]) -> list[str]:
    warnings: list[str] = []
    answered, measured = setup.generation.model, setup.engine.spec
    proxy = answered is not None and answered != measured
    if proxy:
        warnings.append(f"{answered} answered; {measured} measured as a proxy: causes are the proxy's")
    if not setup.columns:
        warnings.append("the prompt holds nothing but the question: there is no context to rank")
    mean = float(token_full.mean())
    if mean < IMPROBABLE:
        warnings.append(
            f"{measured} finds the response improbable ({np.exp(mean):.1%} a token): effects may not be those of the"
            " model that wrote it"
        )
    unchanged = next((again for again in regenerated if not again.removed), None)
    if unchanged is not None and not unchanged.same and not proxy:
        warnings.append("the unchanged prompt does not reproduce the recorded response")
    return warnings


def _messages(question: str, documents: Sequence[Document], instruction: str) -> list[Message]:
    context = "\n\n".join(document.text for document in documents)
    user = f"Context:\n{context}\n\nQuestion: {question}" if documents else question
    return [Message("system", instruction), Message("user", user)]


def _versions() -> dict[str, str]:
    versions = {"attrkit": __version__, "python": ".".join(map(str, sys.version_info[:3]))}
    for package in ("numpy", "scikit-learn", "torch", "transformers"):
        if package.replace("scikit-learn", "sklearn") in sys.modules:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                continue
    return versions
