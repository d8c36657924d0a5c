"""From a trace to an attribution or a diagnosis. Wiring only; the maths is below.

Longer than a module should be, since most of it is what the public functions' parameters mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from attr_core._diagnosis_price import plan_of_diagnosis
from attr_core._setup import Options, Span
from attr_core.algorithms import Algorithm
from attr_core.attribution import Attribution
from attr_core.cache import Cache
from attr_core.capabilities import offered, require
from attr_core.diagnosing import Replay, case_of, diagnosed, replayed
from attr_core.diagnosis import Case, Thresholds
from attr_core.engines import load_engine
from attr_core.errors import AttrkitError, ConfigurationError, InputError, StoreError
from attr_core.judge import LLMJudge, load_judge
from attr_core.measuring import MeasuringInterrupted, measure
from attr_core.metering import MeteredEngine
from attr_core.placebo import PLACEBO
from attr_core.planning import algorithm_for, settle
from attr_core.pricing import plan_of
from attr_core.protocols import Capability, Engine, Estimator, Judge, Progress, Sampling
from attr_core.results import Budget, Cost, Diagnosis, PlaceboCheck, Plan
from attr_core.store import Store
from attr_core.types import Claim, Document, Generation, Granularity, Message, Trace

__all__ = [
    "aattribute",
    "adiagnose",
    "aexplain",
    "attribute",
    "check_placebos",
    "diagnose",
    "explain",
    "plan",
    "plan_diagnosis",
    "prove",
]

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


def diagnose(
    trace: Trace,
    *,
    expected: str | None = None,
    instead: str | None = None,
    judge: str | Judge | Any | None = None,
    engine: str | Engine | None = None,
    strategy: Literal["cause", "support"] = "cause",
    generation: str | None = None,
    step: int | None = None,
    granularity: Granularity | None = None,
    repeats: int = 1,
    decompose: bool = False,
    thresholds: Thresholds = Thresholds(),
    budget: Budget = Budget(),
    seed: int = 0,
    db: str | Path | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Which failure an answer is, which segment is to blame, what proves it, and what to do.

    The answer is judged claim by claim against every segment and the expected answer, in one table. Where something is
    wrong with it, its prompt is run again, unchanged and with segments removed or moved, until a change repairs it more
    often than chance; ``docs/diagnosis.md`` has the table by which that becomes a label.
    Cost: the judge's (``judge_answer``), an attribution where the engine scores, and in reruns: 5 of the unchanged
    prompt and about one per segment, or one of each on an engine that reproduces itself, and a few to prove what
    repaired. Everything is cached; the same diagnosis again costs nothing.

    Parameters
    ----------
    trace : Trace
    expected : str, optional
        The answer that would have been right; by default the trace's ``reference``. It is stored with the trace.
    instead : str, optional
        An answer to hold against the one that was given without saying that it is right; not stored.
    judge : str, Judge, callable or object, optional
        As for :func:`attr_core.judge.load_judge`; by default ``ATTRKIT_JUDGE``, else likelihoods of the local model,
        and the diagnosis says that no judge has spoken.
    engine : str or Engine, optional
        What runs the prompt again; see :func:`explain`.
    strategy : {"cause", "support"}, default "cause"
        ``support`` asks the judge alone: for quick scans, and for traces that nobody can run again.
    generation, step, granularity, seed, db, progress
        As for :func:`attribute`.
    repeats : int, default 1
        Whole judgements by the judge; see :class:`attr_core.judge.LLMJudge`.
    decompose : bool, default False
        Whether the judge first takes the answer's sentences apart into atomic claims; one more call or two.
    thresholds : Thresholds, optional
        How much is run again, and what is taken as proved.
    budget : Budget
        Hard caps over engine and judge together, for the attribution, and again for judging and running again.

    Raises
    ------
    InputError
        No such step or generation, or one that wrote nothing.
    ConfigurationError
        Both ``expected`` and ``instead``, or an engine that cannot generate and strategy ``cause``.
    """
    if expected and instead:
        raise ConfigurationError("an expected answer and one to hold instead cannot both be given; give one of them")
    if strategy not in ("cause", "support"):
        raise ConfigurationError(f"strategy {strategy!r} is unknown; give 'cause' or 'support'")
    options = Options(engine=engine, generation=generation, step=step, granularity=granularity, seed=seed)
    if expected:
        trace = replace(trace, reference=expected)
    case = case_of(trace, options, expected=instead or trace.reference or None)
    notes = ["the answer named instead is taken as the right one here"] if instead else []
    with Store(db) as store, Cache(db) as cache:
        meters: list[MeteredEngine] = []

        def meter(engine: Engine) -> MeteredEngine:
            """All on one account, under one budget."""
            new = MeteredEngine(engine, cache=cache, budget=budget, progress=progress)
            meters.append(meters[0].alongside(engine) if meters else new)
            return meters[-1]

        metered, attribution = None, None
        if strategy == "cause":
            running = load_engine(engine)
            require(running, {Capability.GENERATE}, by="running the prompt again, as strategy cause does,")
            metered = meter(running)
            if Capability.SCORE in offered(running) and case.sources:
                try:
                    attribution = attribute(
                        trace,
                        engine=running,
                        generation=generation,
                        step=step,
                        granularity=granularity,
                        regenerations=False,
                        budget=budget,
                        seed=seed,
                        db=db,
                        progress=progress,
                    )
                except AttrkitError as error:
                    notes.append(f"causes were not measured: {error}")
        judging = load_judge(judge, meter=meter, repeats=repeats)
        if decompose:
            case = replace(case, claims=_decomposed(case, judging))
        found = diagnosed(
            case,
            trace,
            judge=judging,
            engine=metered,
            attribution=attribution,
            thresholds=thresholds,
            seed=seed,
            notes=notes,
        )
        spent = [found.cost] if isinstance(judge, Judge) else []
        spent += [meters[0].cost] if meters else []
        spent += [attribution.cost] if attribution is not None else []
        found = replace(found, cost=sum(spent, Cost()))
        trouble = _keep_diagnosis(store, trace, found, with_reference=bool(expected))
    return replace(found, notes=(*found.notes, *trouble))


def plan_diagnosis(
    trace: Trace,
    *,
    expected: str | None = None,
    judge: str | Judge | Any | None = None,
    engine: str | Engine | None = None,
    strategy: Literal["cause", "support"] = "cause",
    generation: str | None = None,
    step: int | None = None,
    granularity: Granularity | None = None,
    repeats: int = 1,
    thresholds: Thresholds = Thresholds(),
) -> Plan:
    """What :func:`diagnose` with the same options would cost, expected and at most; asks and sends nothing."""
    options = Options(engine=engine, generation=generation, step=step, granularity=granularity)
    case = case_of(trace, options, expected=expected or trace.reference or None)
    engines: list[Engine] = []
    metered, causes = None, None
    if strategy == "cause":
        running = load_engine(engine)
        require(running, {Capability.GENERATE}, by="running the prompt again, as strategy cause does,")
        metered = MeteredEngine(running)
        if Capability.SCORE in offered(running) and case.sources:
            causes = plan(
                trace, engine=running, generation=generation, step=step, granularity=granularity, regenerations=False
            )

    def note(engine: Engine) -> MeteredEngine:
        engines.append(engine)
        return MeteredEngine(engine)

    judging = load_judge(judge, meter=note, repeats=repeats)
    of_judge = engines[0] if engines else None
    return plan_of_diagnosis(
        case, judge=judging, judge_engine=of_judge, engine=metered, attribution=causes, thresholds=thresholds
    )


def prove(
    trace: Trace,
    diagnosis: Diagnosis | None = None,
    *,
    judge: str | Judge | Any | None = None,
    engine: str | Engine | None = None,
    fresh: bool = False,
    thresholds: Thresholds = Thresholds(),
    budget: Budget = Budget(),
    db: str | Path | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Run the proof of a diagnosis again: its intervention, and the unchanged prompt, as often as then.

    Cost: nothing where everything is still in the cache; with ``fresh``, as many generations as the proof has runs, and
    their judging.

    Parameters
    ----------
    trace : Trace
    diagnosis : Diagnosis, optional
        By default the last one that is stored for the trace.
    judge, engine : optional
        By default those of the diagnosis.
    fresh : bool, default False
        Generate and judge anew instead of reading what is cached.

    Raises
    ------
    InputError
        There is no diagnosis, or it rests on the judge alone.
    """
    with Store(db) as store, Cache(":memory:" if fresh else db) as cache:
        if diagnosis is None:
            known = store.diagnoses(trace.id, skip_damaged=True)
            if not known:
                raise InputError(f"trace {trace.id} has no diagnosis yet; run attrkit diagnose {trace.id}")
            diagnosis = known[-1]
        cut: Any = (diagnosis.proof or {}).get("granularity")
        options = Options(generation=diagnosis.generation_id, granularity=cut)
        case = case_of(trace, options, expected=diagnosis.expected)
        metered = MeteredEngine(
            load_engine(engine or diagnosis.measured_on), cache=cache, budget=budget, progress=progress
        )
        judging = load_judge(judge or diagnosis.judge, meter=metered.alongside)
        found = replayed(case, diagnosis, judge=judging, engine=metered, thresholds=thresholds)
        apart = found.cost if isinstance(judge, Judge) else Cost()
    return replace(found, cost=metered.cost + apart)


async def aexplain(question: str, documents: Iterable[Any], answer: str | None = None, **options: Any) -> Attribution:
    """:func:`explain` in a thread, for callers that run an event loop."""
    return await asyncio.to_thread(explain, question, documents, answer, **options)


async def aattribute(trace: Trace, **options: Any) -> Attribution:
    """:func:`attribute` in a thread, for callers that run an event loop."""
    return await asyncio.to_thread(attribute, trace, **options)


async def adiagnose(trace: Trace, **options: Any) -> Diagnosis:
    """:func:`diagnose` in a thread, for callers that run an event loop."""
    return await asyncio.to_thread(diagnose, trace, **options)


def _keep(store: Store, trace: Trace, attribution: Attribution, *, cut: Generation | None) -> list[str]:
    """Store both; what to say where that failed, since the result itself is not to be lost for it."""
    try:
        store.add(trace)
        store.save_attribution(attribution, cut=cut)
    except StoreError as error:
        return [f"the result was not stored: {error}"]
    return []


def _decomposed(case: Case, judge: Judge) -> tuple[Claim, ...]:
    if not isinstance(judge, LLMJudge):
        raise ConfigurationError("sentences are taken apart by a judge that reads; name one with judge=, or --judge")
    return judge.decompose(case.claims)


def _keep_diagnosis(store: Store, trace: Trace, diagnosis: Diagnosis, *, with_reference: bool) -> list[str]:
    try:
        if with_reference:
            store.save(trace)
        else:
            store.add(trace)
        store.save_diagnosis(diagnosis)
    except StoreError as error:
        return [f"the diagnosis was not stored: {error}"]
    return []


def _messages(question: str, documents: Sequence[Document], instruction: str) -> list[Message]:
    context = "\n\n".join(document.text for document in documents)
    user = f"Context:\n{context}\n\nQuestion: {question}" if documents else question
    return [Message("system", instruction), Message("user", user)]
