"""Whether a diagnosis is what a test says it should be: yes, no, or undetermined, with what would decide it.

Light to import, since the pytest plugin is loaded in suites that never use it.
"""

from __future__ import annotations

import io
import math
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from attr_core.errors import ConfigurationError

if TYPE_CHECKING:
    from attr_core.results import Diagnosis
    from attr_core.types import Trace

__all__ = ["DiagnosisFailedError", "UndeterminedError", "UndeterminedWarning", "assert_diagnosis", "wilson"]

MOST_TRIALS = 100_000
_WAYS = ("fail", "skip", "warn")
_SUGGESTED = 1000
"""Verdicts beyond which it is not said how many would decide."""


class DiagnosisFailedError(AssertionError):
    """A diagnosis is not what the test says, or a metric is beyond its threshold."""


class UndeterminedError(AssertionError):
    """What was measured is too little to say whether the test passes."""


class UndeterminedWarning(UserWarning):
    """As :class:`UndeterminedError`, where the test goes on."""


class Finding(NamedTuple):
    """``passes`` is ``None`` where that is undetermined; ``told`` says so in words."""

    passes: bool | None
    told: str


def assert_diagnosis(
    trace: Trace | Diagnosis | Sequence[Trace | Diagnosis],
    label: str | Collection[str] | None = "ok",
    *,
    expected: str | None = None,
    at_least: Mapping[str, float] | None = None,
    at_most: Mapping[str, float] | None = None,
    level: float = 0.95,
    on_undetermined: Literal["fail", "skip", "warn"] = "fail",
    judge: Any = None,
    repeats: int = 1,
    db: str | Path | None = None,
    **options: Any,
) -> tuple[Diagnosis, ...]:
    """Diagnose, and fail where the label is another one or a metric is beyond its threshold.

    A metric is held against its threshold by Wilson's interval of the share of verdicts that count for it, over all
    items (claims or segments) of all rows and, with ``repeats`` above 1, over every whole judgement. Items without a
    verdict widen it: below they count against, above in favour. Where the threshold lies within, a few claims more
    could turn the outcome, so it is *undetermined*; so is a diagnosis that is ``inconclusive``. For averages that are
    no share of items (``context_precision``) the interval is a wide guess. Repeats tell the judge's noise only: one
    that always says the same adds no information about the application, rows do.

    Parameters
    ----------
    trace : Trace, Diagnosis, or sequence of either
        Several rows each need the label; their metrics are taken together.
    label : str, collection of str or None, default "ok"
        What is to come out; one of several; ``None`` for any.
    expected : str, optional
        As for :func:`attr_core.diagnose`; for one trace.
    at_least, at_most : mapping, optional
        Metric -> threshold, e.g. ``{"faithfulness": 0.8}``.
    level : float, default 0.95
        Of the interval; 0 takes the mean for the truth.
    on_undetermined : {"fail", "skip", "warn"}, default "fail"
    judge, repeats, db, **options
        As for :func:`attr_core.diagnose`; by default a database that lasts as long as the call.

    Returns
    -------
    tuple of Diagnosis
        One for each row.

    Raises
    ------
    DiagnosisFailedError, UndeterminedError
        Both are AssertionErrors; the message has headline, evidence, proof and remedy.
    ConfigurationError
        An unknown metric, or an option out of range.
    """
    __tracebackhide__ = True
    if on_undetermined not in _WAYS or not 0 <= level < 1:
        raise ConfigurationError(
            f"{on_undetermined=} must be one of {', '.join(_WAYS)}, and {level=} lie from 0 to below 1"
        )
    rows: list[Any] = list(trace) if isinstance(trace, list | tuple) else [trace]
    if not rows or (expected is not None and len(rows) > 1):
        raise ConfigurationError(
            f"{len(rows)} rows were given; give at least one, and expected for a single one (else as its reference)"
        )
    with tempfile.TemporaryDirectory() as folder:
        known = {"judge": judge, "repeats": repeats, "db": db or Path(folder) / "attrkit.db"}
        found = [_diagnosed(row, expected=expected, **known, **options) for row in rows]
        scores = [
            score
            for row, diagnosis in zip(rows, found, strict=True)
            for score in (_scores(row, diagnosis, **known) if at_least or at_most else ())
        ]
    wanted = {label} if isinstance(label, str) else None if label is None else set(label)
    findings = [_labelled(one, wanted) for one in found]
    findings += [_held(scores, *limit, True, level) for limit in (at_least or {}).items()]
    findings += [_held(scores, *limit, False, level) for limit in (at_most or {}).items()]
    _tell(findings, found, wanted, on_undetermined)
    return tuple(found)


def wilson(successes: float, n: float, level: float) -> tuple[float, float]:
    """Wilson's score interval of a share; from 0 to 1 where nothing was counted.

    Examples
    --------
    >>> low, high = wilson(9, 10, 0.95)
    >>> round(low, 3), round(high, 3)
    (0.596, 0.982)
    """
    if n <= 0:
        return 0.0, 1.0
    from scipy import stats

    z2, share = float(stats.norm.ppf(0.5 + level / 2)) ** 2, successes / n
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def _diagnosed(row: Trace | Diagnosis, *, expected: str | None, **known: Any) -> Diagnosis:
    from attr_core.api import diagnose
    from attr_core.results import Diagnosis
    from attr_core.types import Trace

    if isinstance(row, Diagnosis):
        return row
    if not isinstance(row, Trace):
        raise ConfigurationError(f"{type(row).__name__} is neither a trace nor a diagnosis; give what was recorded")
    return diagnose(row, expected=expected, **known)


def _labelled(found: Diagnosis, wanted: set[str] | None) -> Finding:
    if wanted is None or found.label in wanted:
        return Finding(True, f"label {found.label}")
    named = " or ".join(sorted(wanted))
    if found.label == "inconclusive":
        return Finding(None, f"label: could be {named}, but the diagnosis is inconclusive; see the evidence")
    return Finding(False, f"label: {found.label}, not {named}")


def _scores(row: Trace | Diagnosis, found: Diagnosis, *, judge: Any, repeats: int, db: Any) -> Sequence[Any]:
    """The row's scores; with repeats those of every whole judgement, read from the cache."""
    from attr_core.results import Diagnosis

    if isinstance(row, Diagnosis) or repeats < 2:
        return found.scores
    return _of_repeats(row, found, judge, repeats, db) or found.scores


def _of_repeats(trace: Trace, found: Diagnosis, judge: Any, repeats: int, db: Any) -> list[Mapping[str, Any]]:
    from attr_core._repeated import scores_of_repeats
    from attr_core.cache import Cache
    from attr_core.judge import load_judge
    from attr_core.metering import MeteredEngine

    with Cache(db) as cache:
        judging = load_judge(
            judge, meter=lambda engine: MeteredEngine(engine, cache=cache).only_known(), repeats=repeats
        )
        each = scores_of_repeats(trace, found, judging)
    names = {score["name"] for score in each}
    return [*each, *(score for score in found.scores if each and score["name"] not in names)]


def _held(scores: Sequence[Mapping[str, Any]], name: str, limit: float, is_least: bool, level: float) -> Finding:
    """A metric against its threshold."""
    if not 0 <= limit <= 1:
        raise ConfigurationError(f"threshold {limit} of {name!r} is not from 0 to 1; correct it")
    own = [score for score in scores if score["name"] == name]
    if not own:
        known = ", ".join(dict.fromkeys(str(score["name"]) for score in scores)) or "none: nothing was judged"
        raise ConfigurationError(f"metric {name!r} is not among those measured; known are {known}")
    n, of = sum(score["n"] for score in own), sum(score["of"] for score in own)
    way = "at least" if is_least else "at most"
    if not n:
        reason = next((str(score["reason"]) for score in own if score["reason"]), "nothing was judged")
        return Finding(None, f"{name}: N/A, so {way} {limit:g} is undetermined: {reason}")
    counted = math.fsum(score["value"] * score["n"] for score in own if score["n"])
    low, high = wilson(counted, of, level)[0], wilson(counted + of - n, of, level)[1]
    passes, fails = (low >= limit, high < limit) if is_least else (high <= limit, low > limit)
    measured = f"{name}: {counted / n:.2f} ({n} of {of} verdicts; {level:.0%} interval {low:.2f} to {high:.2f})"
    if passes or fails:
        return Finding(passes, f"{measured}, {way} {limit:g} {'holds' if passes else 'does not hold'}")
    return Finding(None, f"{measured}: {way} {limit:g} is undetermined; {_decides(counted / n, limit, level, of)}")


def _decides(value: float, limit: float, level: float, of: int) -> str:
    """How many verdicts would decide, if they went on as they did."""
    n = of
    while n < MOST_TRIALS:
        low, high = wilson(value * n, n, level)
        if low > limit or high < limit or low == high:
            break
        n = n + 1 if n < _SUGGESTED else n * 2
    about = f"about {n} verdicts at this value" if n <= _SUGGESTED else "many more verdicts"
    return f"{about} would decide it: give more rows (a list of traces), or a larger repeats="


def _tell(
    findings: Sequence[Finding], found: Sequence[Diagnosis], wanted: set[str] | None, on_undetermined: str
) -> None:
    __tracebackhide__ = True
    failed = [one.told for one in findings if one.passes is False]
    unclear = [one.told for one in findings if one.passes is None]
    if not failed and not unclear:
        return
    shown = [one for one in found if wanted is not None and one.label not in wanted] or list(found)
    message = "\n".join(_lines(failed, unclear, shown))
    if failed:
        raise DiagnosisFailedError(message)
    if on_undetermined == "fail":
        raise UndeterminedError(message)
    if on_undetermined == "skip":
        import pytest

        pytest.skip(message)
    warnings.warn(message, UndeterminedWarning, stacklevel=4)


def _lines(failed: Sequence[str], unclear: Sequence[str], shown: Sequence[Diagnosis]) -> Iterator[str]:
    from attr_core.reports.terminal import visible

    yield "the diagnosis fails the test" if failed else "undetermined: what was measured decides neither way"
    yield from (f"  failed: {visible(one)}" for one in failed)
    yield from (f"  undetermined: {visible(one)}" for one in unclear)
    if unclear and any(one.label == "inconclusive" for one in shown):
        yield "  name a judge (judge=) or the engine that answered (engine=), or give a larger repeats="
    for one in shown[:3]:
        yield ""
        yield from _rendered(one)
    if len(shown) > 3:
        yield f"\n… and {len(shown) - 3} more"


def _rendered(diagnosis: Diagnosis) -> Iterator[str]:
    from rich.console import Console

    from attr_core.reports.diagnosis import render_diagnosis

    console = Console(width=110, highlight=False, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(render_diagnosis(diagnosis))
    yield from (line.rstrip() for line in captured.get().splitlines())
