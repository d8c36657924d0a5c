"""From a trace to an attribution: :func:`explain`, :func:`attribute`, :func:`plan`. Wiring only; the maths is below."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attr_core._setup import Options, Span
from attr_core.algorithms import Algorithm
from attr_core.attribution import Attribution
from attr_core.cache import Cache
from attr_core.capabilities import require
from attr_core.engines import load_engine
from attr_core.errors import InputError, StoreError
from attr_core.measuring import MeasuringInterrupted, measure
from attr_core.metering import MeteredEngine
from attr_core.placebo import PLACEBO
from attr_core.planning import algorithm_for, settle
from attr_core.pricing import plan_of
from attr_core.protocols import Capability, Engine, Estimator, Progress, Sampling
from attr_core.results import Budget, Cost, PlaceboCheck, Plan
from attr_core.store import Store
from attr_core.types import Document, Generation, Granularity, Message, Trace

__all__ = ["aattribute", "aexplain", "attribute", "check_placebos", "explain", "plan"]

INSTRUCTION = "Answer the question in one short sentence, using only the context."


def explain(
    question: str,
    documents: Iterable[Any],
    answer: str | None = None,
    *,
    engine: str | Engine | None = None,
    instruction: str = INSTRUCTION,
    max_tokens: int = 128,
    budget: Budget = Budget(),
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
    parsed = Document.parse_all(documents)
    messages = _messages(question, parsed, instruction)
    measuring = load_engine(engine)
    algorithm_for(measuring, options.get("algorithm", "likelihood"))  # before an answer is paid for
    spent = Cost()
    model: str | None = None
    if answer is None:
        require(measuring, {Capability.GENERATE}, by="explain() without an answer")
        with Cache(db) as cache:
            metered = MeteredEngine(measuring, cache=cache, budget=budget)
            probe = Trace.from_messages(messages, None).target_generation
            answer = metered.generate([probe.prompt], Sampling(max_tokens=max_tokens))[0].text
            spent, model = metered.cost, measuring.spec
    trace = Trace.from_messages(
        messages,
        answer,
        documents=parsed,
        query=question,
        model=model,
        parameters={"max_tokens": max_tokens, "temperature": 0.0} if model else {},
        framework="attrkit",
    )
    found = attribute(trace, engine=measuring, budget=budget.less(spent), db=db, **options)
    return replace(found, cost=found.cost + spent)


def attribute(
    trace: Trace,
    *,
    engine: str | Engine | None = None,
    algorithm: str | Algorithm = "likelihood",
    estimator: str | Estimator | None = None,
    screen_with: str | Engine | None = None,
    generation: str | None = None,
    step: int | None = None,
    claims: Sequence[int] | None = None,
    spans: Sequence[Span] = (),
    granularity: Granularity | None = None,
    totals: bool = True,
    regenerations: bool = True,
    budget: Budget = Budget(),
    seed: int = 0,
    db: str | Path | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """Which segment of the context caused which claim of what the model wrote.

    Parameters
    ----------
    trace : Trace
    engine : str or Engine, optional
        What measures; see :func:`explain`.
    algorithm : str or algorithm, default "likelihood"
    estimator : str or Estimator, optional
        By default what suits the number of segments, the engine and the budget.
    screen_with : str or Engine, optional
        A smaller local model that finds who matters in the place of ``engine``, on which then only a few deletions are
        made. Their agreement says how far the small model stands for the large one on this prompt.
    generation : str, optional
        Id of the model call to attribute; by default the one that gave the answer.
    step : int, optional
        Its number instead, from 1 in the trace's order. What the model wrote there may be tool calls: their names and
        argument values are then targets too.
    claims : sequence of int, optional
        Indices of the claims to attribute; by default all.
    spans : sequence of str or (start, end)
        Further targets: phrases of the response (their first occurrence) or half-open character ranges.
    granularity : {"message", "chunk", "paragraph", "sentence"}, optional
        How finely the context is cut; by default by chunk, or as the stored trace was cut before.
    totals : bool, default True
        Whether each later claim is also scored without the earlier ones, which costs every ablation once more.
    regenerations : bool, default True
        Whether to generate anew with the unchanged prompt, without context and without each claim's leading segment,
        where the engine can generate and the budget allows.
    budget : Budget
        Hard caps; what would pass them is settled before anything is sent.
    seed : int, default 0
    db : path, optional
        See :func:`explain`.
    progress : callable, optional
        Called with (calls made, calls planned).

    Returns
    -------
    Attribution
        Rows: each claim's pivots and the claim (a tool call is one; its name and values come first), the named spans,
        the whole response. Columns: every segment that is not fixed.

    Raises
    ------
    InputError
        No such step or generation, one that wrote nothing, or a claim or span that is not in what it wrote.
    MissingCapabilityError, BudgetExceededError, ContextTooLongError
        Before anything is spent. The second also where a cap in tokens or USD ends the run: what was measured is kept.
    MeasuringInterrupted
        At a keyboard interrupt, with the partial result, which is stored. Measurements are kept: the same call goes on.
    """
    setup = settle(
        trace,
        Options(
            engine=engine,
            algorithm=algorithm,
            estimator=estimator,
            screen_with=screen_with,
            generation=generation,
            step=step,
            claims=claims,
            spans=spans,
            granularity=granularity,
            totals=totals,
            regenerations=regenerations,
            budget=budget,
            seed=seed,
        ),
    )
    # Segments of another granularity are this look's, not the trace's.
    cut = setup.generation if granularity in (None, "chunk") else None
    with Store(db) as store, Cache(db) as cache:
        planned = plan_of(setup).maximum.calls
        metered = MeteredEngine(setup.engine, cache=cache, budget=budget, progress=progress, planned=planned)
        try:
            attribution = measure(setup, metered, seed=seed)
        except MeasuringInterrupted as stopped:
            _keep(store, trace, stopped.partial, cut=cut)
            raise
        trouble = [cache.trouble] if cache.trouble else []
        trouble += _keep(store, trace, attribution, cut=cut)
    return replace(attribution, warnings=(*attribution.warnings, *trouble))


def plan(trace: Trace, **options: Any) -> Plan:
    """What :func:`attribute` with the same options would do, and cost, as if the cache were empty; spends nothing.

    ``db`` and ``progress`` change nothing and are not taken.
    """
    return plan_of(settle(trace, Options(**options)))


def check_placebos(
    trace: Trace,
    *,
    n_placebos: int = 3,
    budget: Budget = Budget(),
    seed: int = 0,
    db: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> PlaceboCheck:
    """Whether the margin δ is wide enough on this prompt: the effects of unrelated sentences put into its context.

    A run of its own on the longer prompt, so it costs as much as an attribution with ``n_placebos`` more segments; the
    measurements are kept, the run is not stored. Further ``options`` are those of :func:`attribute`.

    Raises
    ------
    InputError
        Nothing in the prompt can be removed, or too many placebos are asked for.
    """
    if n_placebos < 1:
        raise InputError(f"{n_placebos} placebos were asked for; ask for at least 1")
    asked = Options(**{**options, "placebos": n_placebos, "regenerations": False, "budget": budget, "seed": seed})
    setup = settle(trace, asked)
    with Cache(db) as cache:
        planned = plan_of(setup).maximum.calls
        metered = MeteredEngine(setup.engine, cache=cache, budget=budget, progress=progress, planned=planned)
        found = measure(setup, metered, seed=seed)
    columns = [s for s, segment in enumerate(found.segments) if PLACEBO in segment.source]
    return PlaceboCheck(
        sentences=tuple(found.segments[column].text for column in columns),
        targets=found.targets,
        effects=found.effects[:, columns],
        delta=found.delta,
        unit=found.unit,
        cost=found.cost,
    )


async def aexplain(question: str, documents: Iterable[Any], answer: str | None = None, **options: Any) -> Attribution:
    """:func:`explain` in a thread, for callers that run an event loop."""
    return await asyncio.to_thread(explain, question, documents, answer, **options)


async def aattribute(trace: Trace, **options: Any) -> Attribution:
    """:func:`attribute` in a thread, for callers that run an event loop."""
    return await asyncio.to_thread(attribute, trace, **options)


def _keep(store: Store, trace: Trace, attribution: Attribution, *, cut: Generation | None) -> list[str]:
    """Store both; what to say where that failed, since the result itself is not to be lost for it."""
    try:
        store.add(trace)
        store.save_attribution(attribution, cut=cut)
    except StoreError as error:
        return [f"the result was not stored: {error}"]
    return []


def _messages(question: str, documents: Sequence[Document], instruction: str) -> list[Message]:
    context = "\n\n".join(document.text for document in documents)
    user = f"Context:\n{context}\n\nQuestion: {question}" if documents else question
    return [Message("system", instruction), Message("user", user)]
