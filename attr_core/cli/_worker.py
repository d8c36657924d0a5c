"""``attrkit worker``: attribute, or diagnose, what was stored without, in a process of its own."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any

import typer

from attr_core.cli._diagnose import JudgeOption
from attr_core.cli._shared import INTERRUPTED, DatabaseOption, JsonOption, counted, moment, progress_bar, show_json

EXAMPLES = """
Examples:

  attrkit worker --engine hf:MODEL

  attrkit worker --once --engine hf:MODEL --budget-per-day calls=20000

  attrkit worker --once --since 7d --tag checkout --sample-rate 0.1 --dry-run

  attrkit worker --diagnose --engine hf:MODEL --judge litellm:nvidia_nim/meta/llama-3.1-70b-instruct --budget usd=0.05

  attrkit worker --once --diagnose --strategy support --judge hf:MODEL

Without --once it looks for new traces until it is stopped (Ctrl-C or SIGTERM), which it heeds after the slice of
measurements under way; these are kept, and the next worker goes on from there.
"""

_BLINK = 0.1
_COSTS = ("traces", "calls", "tokens", "max_calls", "max_tokens")
_STATES = ("done", "failed", "no engine", "postponed", "elsewhere", "gone", "stopped")


def worker(
    once: Annotated[bool, typer.Option("--once", help="End when nothing waits any more.")] = False,
    engine: Annotated[
        str | None,
        typer.Option(help="What measures, e.g. hf:MODEL; default $ATTRKIT_ENGINE, else what each trace names."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Attribute at most so many traces.", min=1)] = None,
    since: Annotated[
        str | None, typer.Option(help="Only traces started then or later: 2026-11-30, 7d, 12h, 30m.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    framework: Annotated[str | None, typer.Option(help="Only of this framework, e.g. langchain.")] = None,
    sample_rate: Annotated[float, typer.Option(help="Share of the traces to look at, decided by their ids.")] = 1.0,
    budget: Annotated[str, typer.Option(help="Hard caps of each trace, e.g. calls=64,tokens=20000.")] = "",
    budget_per_day: Annotated[
        str, typer.Option(help="Hard caps of all workers on this database and UTC day, e.g. calls=20000.")
    ] = "",
    algorithm: Annotated[
        str, typer.Option(help="What is measured: likelihood, similarity, or reference (where an answer is expected).")
    ] = "likelihood",
    estimator: Annotated[
        str | None, typer.Option(help="As for attrkit inspect; default by number of segments.")
    ] = None,
    granularity: Annotated[
        str | None, typer.Option(help="How finely the context is cut: message, chunk, paragraph or sentence.")
    ] = None,
    direct_only: Annotated[
        bool, typer.Option("--direct-only", help="Read later claims given the earlier ones only.")
    ] = False,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Also say which failure each answer is; takes traces without diagnosis.")
    ] = False,
    judge: JudgeOption = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="With --diagnose: cause (run the prompt again), or support (ask the judge alone; attributes nothing)."
        ),
    ] = "cause",
    interval: Annotated[float, typer.Option(help="Seconds between two looks for new traces.", min=_BLINK)] = 5.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count and plan; spend nothing.")] = False,
    db: DatabaseOption = None,
    json_: JsonOption = False,
) -> None:
    """Attribute every stored trace that has no attribution yet, the oldest first; with --diagnose, diagnose it too."""
    from attr_core.backlog import Backlog
    from attr_core.results import Budget
    from attr_core.store import Store

    with (
        Store(db) as store,
        Backlog(
            store,
            engine=engine,
            algorithm=algorithm,
            budget=Budget.parse(budget),
            budget_per_day=Budget.parse(budget_per_day),
            options={"estimator": estimator, "granularity": granularity, "totals": not direct_only},
            since=None if since is None else moment(since, option="--since"),
            tag=tag,
            framework=framework,
            sample_rate=sample_rate,
            diagnose=diagnose,
            judge=judge,
            strategy=strategy,  # type: ignore[arg-type]  # checked there
        ) as backlog,
    ):
        if dry_run:
            code = _show_plans(backlog, limit, json_)
            if diagnose and not json_:
                typer.echo(f"would diagnose {counted(_n_waiting(backlog), 'trace')}: at what cost is not known before")
            raise typer.Exit(code)
        tally = _Tally(json_, diagnoses=diagnose)
        with _until_told_to_stop() as told:
            while True:
                _work_off(backlog, tally, told, limit)
                tally.ask_for_engine()
                if once or told.stop or (limit is not None and tally.n_tried >= limit):
                    break
                told.wait(interval)
        tally.show_summary(_n_waiting(backlog))
    raise typer.Exit(INTERRUPTED if told.stop else tally.code)


def _n_waiting(backlog: Any) -> int:
    return sum(1 for _ in backlog.waiting())


def _work_off(backlog: Any, tally: _Tally, told: _Told, limit: int | None) -> None:
    """One look at what waits."""
    if limit is not None and tally.n_tried >= limit:
        return
    with progress_bar(quiet=tally.json) as advance:
        n_before, n_waiting = tally.n_tried, 0 if advance is None else _n_waiting(backlog)
        for outcome in backlog.work_off(stop=lambda: told.stop):
            tally.add(outcome, quiet=advance is not None)
            if advance is not None:
                advance(tally.n_tried - n_before, n_waiting)
            if limit is not None and tally.n_tried >= limit:
                return


@dataclass(slots=True)
class _Told:
    """Whether somebody wants the process to stop."""

    stop: bool = False

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.stop and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _BLINK))


@contextmanager
def _until_told_to_stop() -> Iterator[_Told]:
    """The first Ctrl-C or SIGTERM is heeded after the slice of measurements under way, the second at once."""
    told = _Told()

    def heed(number: int, frame: object) -> None:
        if told.stop:
            raise KeyboardInterrupt
        told.stop = True
        typer.echo("attrkit: stopping after the measurements under way; once more to stop at once", err=True)

    before = {number: signal.signal(number, heed) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(slots=True)
class _Tally:
    """What became of the traces so far, shown as it comes and summed up in the end."""

    json: bool
    diagnoses: bool = False
    started: float = field(default_factory=time.monotonic)
    calls: int = 0
    cache_hits: int = 0
    n_asked: int = 0
    ids: dict[str, list[str]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    @property
    def n_tried(self) -> int:
        return sum(len(self.ids.get(state, ())) for state in ("done", "failed", "stopped"))

    @property
    def _what(self) -> str:
        return "a diagnosis" if self.diagnoses else "an attribution"

    @property
    def code(self) -> int:
        return 2 if self.ids.get("failed") or self.ids.get("no engine") else 0

    def add(self, outcome: Any, *, quiet: bool) -> None:
        known = self.ids.setdefault(outcome.state, [])
        is_new = outcome.trace_id not in known
        if is_new:  # what is postponed or at work elsewhere is met again at the next look
            known.append(outcome.trace_id)
        self.calls += outcome.cost.calls
        self.cache_hits += outcome.cost.cache_hits
        if outcome.reason is not None and is_new:
            reason = outcome.reason.replace(outcome.trace_id, "ID")
            self.reasons.setdefault((outcome.state, reason), []).append(outcome.trace_id)
        if self.json and is_new:
            show_json(_record(outcome))
        elif is_new and not quiet and outcome.state != "no engine":
            _say(_line(outcome))

    def ask_for_engine(self) -> None:
        """Once for all traces that nobody said what to measure on, and again when there are more."""
        reasons = {reason: len(ids) for (state, reason), ids in self.reasons.items() if state == "no engine"}
        if (n := sum(reasons.values())) > self.n_asked:
            self.n_asked = n
            why = ", ".join(f"{number} since {reason}" for reason, number in reasons.items())
            left = f"{counted(n, 'trace')} left without {self._what}, {why}"
            more = " --diagnose" if self.diagnoses else ""
            _say(f"attrkit: {left}; name one: attrkit worker --once{more} --engine hf:MODEL", err=True)

    def show_summary(self, n_waiting: int) -> None:
        n = {state: len(self.ids.get(state, ())) for state in _STATES}
        seconds = time.monotonic() - self.started
        grouped = [(state, reason, ids) for (state, reason), ids in self.reasons.items() if state != "no engine"]
        if self.json:
            counts = {state.replace(" ", "_"): number for state, number in n.items()}
            spent = {"calls": self.calls, "cache_hits": self.cache_hits, "seconds": round(seconds, 3)}
            told = [{"state": state, "reason": reason, "traces": len(ids)} for state, reason, ids in grouped]
            show_json({"summary": {**counts, "waiting": n_waiting, **spent, "reasons": told}})
            return
        if not any(n.values()) and not n_waiting:
            typer.echo(f"no trace waits for {self._what}")
            return
        spent_ = f"{counted(self.calls, 'call')}, {counted(self.cache_hits, 'measurement')} from the cache"
        done = "diagnosed" if self.diagnoses else "attributed"
        typer.echo(f"{done} {counted(n['done'], 'trace')}: {spent_}, {seconds:.1f} s")
        for state, reason, ids in grouped:
            _say(_group(state, reason, ids))
        if n_waiting:
            typer.echo(f"{counted(n_waiting, 'trace')} still to do")


def _say(text: str, *, err: bool = False) -> None:
    from attr_core.reports.terminal import visible

    typer.echo(visible(text), err=err)


def _line(outcome: Any) -> str:
    if outcome.state == "done":
        calls, hits = counted(outcome.cost.calls, "call"), f"{outcome.cost.cache_hits:,} from the cache"
        label = "" if outcome.label is None else f"{outcome.label}: "
        return f"{outcome.trace_id}  {label}{calls}, {hits}, {outcome.cost.seconds:.1f} s"
    return f"{outcome.trace_id}  {outcome.state}: {outcome.reason}"


def _group(state: str, reason: str, ids: list[str]) -> str:
    shown = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
    return f"{state}: {counted(len(ids), 'trace')} ({shown}): {reason}"


def _record(outcome: Any) -> dict[str, Any]:
    cost = outcome.cost
    return {
        "trace_id": outcome.trace_id,
        "state": outcome.state,
        "reason": outcome.reason,
        "engine": outcome.engine,
        "calls": cost.calls,
        "cache_hits": cost.cache_hits,
        "tokens": cost.tokens_in + cost.tokens_out,
        "seconds": round(cost.seconds, 3),
        **({} if outcome.label is None else {"label": outcome.label}),
    }


def _show_plans(backlog: Any, limit: int | None, json_: bool) -> int:
    """What would be done, at what cost; the exit code."""
    total: Counter[str] = Counter()
    reasons: dict[str, list[str]] = {}
    for planned in islice(backlog.plans(), limit):
        if planned.plan is None:
            reasons.setdefault(planned.reason.replace(planned.trace_id, "ID"), []).append(planned.trace_id)
            costs = {}
        else:
            plan, most = planned.plan, planned.plan.maximum
            costs = {"calls": plan.calls, "tokens": plan.tokens, "max_calls": most.calls, "max_tokens": most.tokens_in}
            total.update(costs, traces=1)
        if json_:
            engine = None if planned.plan is None else planned.plan.engine
            show_json({"trace_id": planned.trace_id, "reason": planned.reason, "engine": engine, **costs})
    if json_:
        told = [{"reason": reason, "traces": len(ids)} for reason, ids in reasons.items()]
        show_json({"summary": {**{name: total[name] for name in _COSTS}, "reasons": told}})
    else:
        typer.echo(
            f"would attribute {counted(total['traces'], 'trace')}: {counted(total['calls'], 'call')} (at most "
            f"{total['max_calls']:,}), {counted(total['tokens'], 'token')} (at most {total['max_tokens']:,}), "
            "were nothing in the cache"
        )
        for reason, ids in reasons.items():
            _say(_group("would not attribute", reason, ids))
    return 2 if reasons else 0
