"""A proved diagnosis as a regression test: what was measured is kept beside it, and decided again without a model.

The test fails where the decision changes: because attrkit decides otherwise, or because what was recorded was edited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from attr_core import __version__
from attr_core._recorded import NotedEngine, NotedJudge, RecordedEngine, RecordedJudge
from attr_core._setup import Options
from attr_core._trace_json import trace_from_json, trace_to_json
from attr_core.attribution import Attribution
from attr_core.cache import Cache
from attr_core.diagnosing import case_of, sampling_of
from attr_core.diagnosis import Case, Thresholds, decide, examine
from attr_core.engines import load_engine
from attr_core.errors import ConfigurationError, InputError
from attr_core.judge import load_judge
from attr_core.measuring import answers_for
from attr_core.metering import MeteredEngine
from attr_core.protocols import Engine, Judge, Sampling
from attr_core.results import Diagnosis
from attr_core.store import Store
from attr_core.types import Granularity, Trace

__all__ = ["SCHEMA", "DecisionChangedError", "RegressionTest", "check_recorded", "redecide", "write_regression_test"]

SCHEMA = "attrkit.regression/1"

_COMPARED = ("label", "outcome", "culprits")
_TEST = '''"""Written by attrkit {version}: decides a recorded diagnosis again, without a model and without network."""

from pathlib import Path

from attr_core.regression import check_recorded


def test_{name}_is_still_{label}() -> None:
    check_recorded(Path(__file__).with_name("{recorded}"))
'''


class DecisionChangedError(AssertionError):
    """What was recorded is decided otherwise now."""


@dataclass(frozen=True, slots=True)
class RegressionTest:
    """The two files that were written, and how much they hold."""

    test: Path
    recorded: Path
    n_answers: int
    n_verdicts: int


def write_regression_test(
    trace: Trace,
    diagnosis: Diagnosis | None = None,
    *,
    out: str | Path | None = None,
    judge: str | Judge | Any | None = None,
    engine: str | Engine | None = None,
    repeats: int = 1,
    granularity: Granularity | None = None,
    thresholds: Thresholds = Thresholds(),
    db: str | Path | None = None,
) -> RegressionTest:
    """Write a pytest module, and a JSON file beside it, that decide a diagnosis again offline.

    The JSON file holds the trace, the diagnosis, and every answer and verdict that it rests on. Cost: nothing; answers
    and verdicts come from the cache, and nothing is sent. A judge that is handed over as an object is asked again.

    Parameters
    ----------
    trace : Trace
    diagnosis : Diagnosis, optional
        By default the last one that is stored for the trace.
    out : path, optional
        The test's file, by default ``test_LABEL_ID.py`` here; both files are written over.
    judge, engine : optional
        By default those of the diagnosis.
    repeats, granularity, thresholds : optional
        Those with which it was diagnosed.

    Raises
    ------
    InputError
        There is no diagnosis, it is inconclusive, or what it rests on is no longer all in the cache.
    ConfigurationError
        ``out`` is no Python file, or cannot be written.
    """
    with Store(db) as store, Cache(db) as cache:
        found = diagnosis or _last(store, trace)
        if found.label == "inconclusive":
            raise InputError(f"the diagnosis of trace {trace.id} is inconclusive; there is nothing to hold on to")
        known = store.attributions(trace.id, skip_damaged=True) if trace.id in store else []
        options = Options(generation=found.generation_id, granularity=granularity)
        case = case_of(trace, options, expected=found.expected)
        judging = load_judge(judge or found.judge, meter=partial(_from_cache, cache=cache), repeats=repeats)
        metered = None
        if found.strategy == "cause":
            metered = _from_cache(load_engine(engine or found.measured_on), cache=cache)
        record = _record(case, found, _suspects(case, known), judging, metered, thresholds)
    target = Path(out or f"test_{_name(found.label)}_{_name(trace.id)}.py")
    data = {"schema": SCHEMA, "attrkit": __version__, "granularity": granularity, **record}
    return _write(target, {**data, "diagnosis": found.to_dict(), "trace": trace_to_json(trace)}, found)


def redecide(recorded: str | Path) -> tuple[Diagnosis, Diagnosis]:
    """The diagnosis that a file holds, and what its measurements are decided to be now; asks nobody.

    Raises
    ------
    InputError
        The file cannot be read, or has another schema.
    """
    data = _read(Path(recorded))
    try:
        then = Diagnosis.from_dict(data["diagnosis"])
        trace = trace_from_json(data["trace"])
        options = Options(generation=then.generation_id, granularity=data["granularity"])
        case = replace(case_of(trace, options, expected=then.expected), **_about(data))
        judge = RecordedJudge(data["judge"])
        engine = None if data["engine"] is None else RecordedEngine(data["engine"])
        sampling, thresholds = Sampling(**_tupled(data["sampling"])), Thresholds(**data["thresholds"])
    except (AttributeError, KeyError, TypeError, ConfigurationError) as error:
        raise InputError(f"{recorded} cannot be read: {error!r}; record the test again") from error
    return then, _decided(case, then, judge, engine, sampling, thresholds)


def check_recorded(recorded: str | Path) -> Diagnosis:
    """Decide a recorded diagnosis again; for tests.

    Raises
    ------
    DecisionChangedError
        Label, outcome, culprits or the intervention that proves it are not what they were.
    InputError
        See :func:`redecide`.
    """
    __tracebackhide__ = True
    then, now = redecide(recorded)
    changed = [name for name in _COMPARED if getattr(then, name) != getattr(now, name)]
    if _proof(then) != _proof(now):
        changed.append("proof")
    if changed:
        raise DecisionChangedError("\n".join(_told(Path(recorded), then, now, changed)))
    return now


def _told(path: Path, then: Diagnosis, now: Diagnosis, changed: list[str]) -> Iterator[str]:
    from attr_core.reports.terminal import visible

    yield f"{path.name}: the recorded measurements are decided otherwise now ({', '.join(changed)})"
    for name, one in (("then", then), ("now", now)):
        yield f"  {name}: {one.label}: {visible(one.headline)} (outcome {one.outcome}, culprits {list(one.culprits)})"
        yield from (f"    {visible(line)}" for line in one.evidence)
        yield f"    proof: {json.dumps(_proof(one), ensure_ascii=True)}"
    yield "  if this is meant, record it again: attrkit diagnose ID && attrkit prove ID --pytest"


def _proof(diagnosis: Diagnosis) -> Any:
    """What was changed, and in how many runs that repaired."""
    if diagnosis.proof is None:
        return None
    sides = {
        name: [diagnosis.proof[name][count] for count in ("repaired", "runs")] for name in ("changed", "unchanged")
    }
    return {"intervention": diagnosis.proof["intervention"], **sides}


def _from_cache(engine: Engine, *, cache: Cache) -> MeteredEngine:
    return MeteredEngine(engine, cache=cache).only_known()


def _record(
    case: Case,
    found: Diagnosis,
    suspects: list[tuple[int, ...]],
    judging: Judge,
    metered: MeteredEngine | None,
    thresholds: Thresholds,
) -> dict[str, Any]:
    """What the diagnosis rests on: with the first order of suspects under which it is decided as it was."""
    missed: list[str] = []
    for order in suspects:
        noted, judged = None if metered is None else NotedEngine(metered), NotedJudge(judging)
        by_other = metered is not None and answers_for(case.generation.model, metered.spec)
        about: dict[str, Any] = {"suspects": order, "is_answered_by_other": by_other}
        sampling = Sampling() if metered is None else sampling_of(case.generation, metered, found.seed)
        now = _decided(replace(case, **about), found, judged, noted, sampling, thresholds)
        missed = [*judged.missed, *(noted.missed if noted else ())] or missed
        if all(getattr(found, name) == getattr(now, name) for name in _COMPARED) and _proof(found) == _proof(now):
            return {
                "suspects": list(order),
                "is_answered_by_other": by_other,
                "sampling": asdict(sampling),
                "thresholds": asdict(thresholds),
                "engine": None if noted is None else noted.to_dict(),
                "judge": judged.to_dict(),
            }
    why = missed[0] if missed else "what is in the cache is decided otherwise now"
    raise InputError(
        f"the diagnosis of trace {found.trace_id} cannot be recorded: {why}; run attrkit diagnose again, then this"
    )


def _decided(
    case: Case,
    then: Diagnosis,
    judge: Judge,
    engine: NotedEngine | RecordedEngine | None,
    sampling: Sampling,
    thresholds: Thresholds,
) -> Diagnosis:
    reruns = cast("MeteredEngine | None", engine)  # of which reruns ask for no more than this has
    facts = examine(case, judge=judge, engine=reruns, sampling=sampling, thresholds=thresholds)
    return decide(facts, trace_id=then.trace_id, generation_id=then.generation_id, expected=then.expected)


def _suspects(case: Case, attributions: list[Attribution]) -> list[tuple[int, ...]]:
    """Orders in which the sources may have been tried: by each stored attribution, the last first, and by none."""
    column = {source.id: n for n, source in enumerate(case.sources)}
    orders = []
    for one in reversed(attributions):
        if one.generation_id == case.generation.id and one.effects.size:
            largest = np.nan_to_num(one.effects, nan=-np.inf).max(axis=0, initial=-np.inf)
            by_id = {segment.id: float(effect) for segment, effect in zip(one.segments, largest, strict=True)}
            known = [n for name, n in column.items() if name in by_id]
            orders.append(tuple(sorted(known, key=lambda n: -by_id[case.sources[n].id])))
    return list(dict.fromkeys([*orders, ()]))


def _about(data: Mapping[str, Any]) -> dict[str, Any]:
    return {"suspects": tuple(data["suspects"]), "is_answered_by_other": bool(data["is_answered_by_other"])}


def _tupled(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def _last(store: Store, trace: Trace) -> Diagnosis:
    known = store.diagnoses(trace.id) if trace.id in store else []
    if not known:
        raise InputError(f"trace {trace.id} has no diagnosis yet; run attrkit diagnose {trace.id}")
    return known[-1]


def _write(target: Path, data: Mapping[str, Any], found: Diagnosis) -> RegressionTest:
    if target.suffix != ".py":
        raise ConfigurationError(f"{target} is no Python file; give a name such as test_answer.py")
    recorded = target.with_suffix(".json")
    names = {"name": _name(found.trace_id), "label": _name(found.label), "version": __version__}
    if not re.fullmatch(r"[\w.-]+", recorded.name, re.ASCII):
        raise ConfigurationError(f"{target.name!r} cannot stand in a test; use letters, digits, dots and underscores")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(data, indent=1, ensure_ascii=True, allow_nan=False)
        recorded.write_text(text + "\n", encoding="utf-8")
        target.write_text(_TEST.format(recorded=recorded.name, **names), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{target} cannot be written: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"trace {found.trace_id} holds numbers that JSON cannot say: {error}") from error
    n_answers = sum(len(runs) for one in (data["engine"] or {"said": []})["said"] for runs in one["runs"].values())
    return RegressionTest(target, recorded, n_answers, len(data["judge"]["verdicts"]))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON; record the test again") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        schema = data.get("schema") if isinstance(data, dict) else None
        raise InputError(f"{path} has the schema {schema!r}, not {SCHEMA}; record the test again")
    return data


def _name(text: str) -> str:
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "trace"
