"""An evaluation: an application, a set of questions and how answers are judged; which run it is, and what is left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from attr_core._storage.at_work import AtWork
from attr_core._storage.evaluations import Evaluations, StoredRun
from attr_core.capabilities import require
from attr_core.engines import load_engine
from attr_core.errors import ConfigurationError, DatasetError
from attr_core.evaluation.answers import load_app, name_of
from attr_core.evaluation.plans import planned
from attr_core.evaluation.purse import Purse
from attr_core.evaluation.results import EvaluationRun, load_run
from attr_core.evaluation.rows import EvaluationSet, read_rows
from attr_core.evaluation.steps import Begun, Steps, run_in_threads
from attr_core.evaluation.work import Settings
from attr_core.judge import JUDGE_VARIABLE, load_judge
from attr_core.judge._callables import engine_of
from attr_core.protocols import Capability, Judge, Progress
from attr_core.results import Budget, Plan
from attr_core.types import new_id

__all__ = ["Evaluation", "Runner"]

Runner = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An application, a set of questions, and how its answers are judged.

    :meth:`run` stores each row's answer before it is diagnosed, and the diagnosis as soon as it is there. Interrupted
    or killed, the same call goes on: no answer is asked for twice, and what was measured is in the cache. Only an
    application call that was under way when the process was killed is made again. One row that fails is recorded with
    its error, and the others go on.

    Parameters
    ----------
    app : callable or str, optional
        Function of the question, or ``module:function``: gives a text, ``(answer, chunks)``, a dict, a ``Trace`` or a
        framework's object; a coroutine is run. Not needed where all rows have answers.
    dataset : path, list of dicts, DataFrame, datasets.Dataset or EvaluationSet
        See :func:`~attr_core.evaluation.rows.read_rows`.
    judge, engine, strategy
        As for :func:`attr_core.api.diagnose`; here ``support`` is the default: it asks the judge alone.
    concurrency : int, default 4
        Rows at a time, each in a thread.
    budget : Budget
        Hard caps over all rows of this call of :meth:`run`, for measuring and judging. Rows that they leave are left.
    budget_per_row : Budget
        Hard caps for each row, as :func:`attr_core.api.diagnose` takes them.
    db : path, optional
        Where all is kept; by default ``ATTRKIT_DB``, else ``~/.attrkit/attrkit.db``.
    name : str, optional
        Name of the run. A run of that name goes on, if it is of the same application, judge and engine. Without a name
        the last unfinished run of the same set and settings goes on, and where there is none a new one begins.
    diagnose : bool, default True
        Whether answers are judged; without, they are only gathered.
    fields : iterable of str or mapping
        What columns are, where that is not clear: ``["query=question"]``.
    limit, tags
        Only the first rows, only those with one of the tags.
    retry_failed : bool, default False
        Whether rows that failed before are tried again.
    options : mapping
        Further ones of :func:`attr_core.api.diagnose`: ``repeats``, ``granularity``, ``thresholds``, ``seed``.
    runner : {"local", "ray"}
        ``ray`` runs rows on a Ray cluster, as many at a time as ``concurrency`` says; results are the same.

    Raises
    ------
    ConfigurationError
        No such application, or options that do not fit.
    DatasetError
        The set cannot be read.

    Examples
    --------
    >>> from attr_core.testing import ScriptedJudge
    >>> rows = [{"query": "When did it open?", "answer": "In 1911.", "contexts": ["It opened in 1911."]}]
    >>> run = Evaluation(None, rows, judge=ScriptedJudge(), db=":memory:").run()
    >>> run.summary().n_done, run.rows[0].answer
    (1, 'In 1911.')
    """

    app: str | Callable[[str], Any] | None
    dataset: Any
    judge: Any = field(default=None, kw_only=True)
    engine: Any = field(default=None, kw_only=True)
    strategy: Literal["cause", "support"] = field(default="support", kw_only=True)
    concurrency: int = field(default=4, kw_only=True)
    budget: Budget = field(default=Budget(), kw_only=True)
    budget_per_row: Budget = field(default=Budget(), kw_only=True)
    db: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    name: str | None = field(default=None, kw_only=True)
    diagnose: bool = field(default=True, kw_only=True)
    fields: Iterable[str] | Mapping[str, str] = field(default=(), kw_only=True)
    limit: int | None = field(default=None, kw_only=True)
    tags: Sequence[str] = field(default=(), kw_only=True)
    retry_failed: bool = field(default=False, kw_only=True)
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    runner: Runner = field(default="local", kw_only=True)

    def __post_init__(self) -> None:
        if self.strategy not in ("cause", "support"):
            raise ConfigurationError(f"strategy {self.strategy!r} is unknown; give 'cause' or 'support'")
        if self.runner not in ("local", "ray"):
            raise ConfigurationError(f"runner {self.runner!r} is unknown; give 'local' or 'ray'")
        if self.concurrency < 1:
            raise ConfigurationError(f"concurrency={self.concurrency} runs nothing; give at least 1")
        if self.runner == "ray" and self.budget != Budget():
            raise ConfigurationError("caps over all rows hold in one process only; give budget_per_row with ray")
        if self.app is not None:
            load_app(self.app)

    def rows(self) -> EvaluationSet:
        """The rows that :meth:`run` works on.

        Raises
        ------
        DatasetError
            The set cannot be read, no row is left, or there is no application and no row has an answer.
        """
        found = read_rows(self.dataset, fields=self.fields).selected(limit=self.limit, tags=self.tags)
        if self.app is None and all(row.answer is None for row in found.rows):
            raise DatasetError(
                f"{found.source} hold no answer, and no application is named that gives one; its fields are "
                f"{', '.join((*found.fields.columns, *found.fields.left))}; give app, or --field answer=NAME"
            )
        return found

    def plan(self) -> tuple[Plan, int]:
        """What judging the answers that are in the rows will cost, as if the cache were empty; sends nothing.

        What an application will answer nobody knows: where it is asked, this is of the rows that hold an answer.

        Returns
        -------
        plan : Plan
        n_rows : int
            How many answers it is of.
        """
        return planned(self.rows().rows, self._settings(Purse(Budget())))

    def run(self, *, progress: Progress | None = None, told: Callable[[str], None] | None = None) -> EvaluationRun:
        """Work on every row that is left.

        Cost: a call of the application and a diagnosis for each row.

        Parameters
        ----------
        progress : callable, optional
            Called with (rows done, rows).
        told : callable, optional
            Called with what is to be told at once: how fields were read, that a run goes on.

        Returns
        -------
        EvaluationRun
            Also where the budget ended it: ``stopped`` then says so.

        Raises
        ------
        ConfigurationError
            A run of that name is of other settings, or under way in another process.
        KeyboardInterrupt
            All that is stored stays; rows under way end at their next slice of measurements.
        """
        tell = told or (lambda _: None)
        data = self.rows()
        if data.note:
            tell(f"note: {data.note}")
        purse = Purse(self.budget)
        settings = self._settings(purse)
        with Evaluations(self.db) as store, self._begun(store, data, tell) as begun:
            steps = Steps(begun, settings, purse=purse, budget=self.budget_per_row, progress=progress)
            try:
                if self.runner == "ray":
                    from attr_core.evaluation.ray_runner import run_on_ray

                    run_on_ray(steps, concurrency=self.concurrency)
                else:
                    run_in_threads(steps, concurrency=self.concurrency)
            finally:
                if not steps.n_left:
                    store.finish(begun.run.id)
            return replace(load_run(store, begun.run.id), stopped=steps.why_stopped, note=data.note)

    def _settings(self, purse: Purse) -> Settings:
        """What is loaded once for all rows, so that a wrong name is told before anything is spent."""
        judge, engine = self.judge, self.engine
        if self.diagnose and self.runner == "local":
            if self.strategy == "cause":
                engine = load_engine(engine)
                require(engine, {Capability.GENERATE}, by="running the prompt again, as strategy cause does,")
                engine = purse.capped(engine)
            judge = self._judge(purse)
        if self.diagnose and "budget" in self.options:
            raise ConfigurationError("option budget is not known here; give budget, or budget_per_row")
        return Settings(self.app, judge, engine, self.strategy, self.diagnose, dict(self.options))

    def _judge(self, purse: Purse) -> Any:
        """A judge as it is, or the engine that judges, under the caps; likelihood judges stay what they are."""
        judge = _named(self.judge)
        if judge is None or (isinstance(judge, str) and judge.startswith("likelihood")) or isinstance(judge, Judge):
            load_judge(judge)
            if self.budget != Budget() and not isinstance(judge, Judge):
                raise ConfigurationError(
                    "a budget over all rows holds for a judge that reads; name one such as hf:MODEL, or give "
                    "budget_per_row"
                )
            return judge
        return purse.capped(engine_of(judge, by="LLMJudge"))

    @contextlib.contextmanager
    def _begun(self, store: Evaluations, data: EvaluationSet, tell: Callable[[str], None]) -> Iterator[Begun]:
        key = self._key(data)
        run = self._known(store, key)
        if run is None:
            identifier = new_id("ev")
            asked = {**self._names(), "source": data.source, "fields": data.note}
            run = StoredRun(
                identifier, self.name or identifier, key, len(data.rows), time.time(), finished_at=None, settings=asked
            )
            store.begin(run)
        with AtWork(store.path).on(f"evaluation {run.id}") as is_mine:
            if not is_mine:
                raise ConfigurationError(
                    f"run {run.name!r} is under way in another process; wait, or give another name"
                )
            begun = self._left(store, run, data)
            if begun.n_before:
                tell(f"note: run {run.name} goes on: {begun.n_before} of {len(data.rows)} rows are there")
            yield begun

    def _known(self, store: Evaluations, key: str) -> StoredRun | None:
        """The run that is to go on, if any."""
        if self.name is None:
            latest = store.latest(key)
            return latest if latest is not None and (latest.finished_at is None or self.retry_failed) else None
        run = store.named(self.name)
        if run is not None:
            names = self._names()
            other = [name for name, value in names.items() if run.settings.get(name) != value]
            if other:
                was = run.settings.get(other[0])
                raise ConfigurationError(
                    f"run {self.name!r} was made with {other[0]} {was!r}, not {names[other[0]]!r}; give another name"
                )
        return run

    def _left(self, store: Evaluations, run: StoredRun, data: EvaluationSet) -> Begun:
        states = store.states(run.id)
        over = {"done"} if self.retry_failed else {"done", "failed"}
        left = []
        for position, row in enumerate(data.rows):
            status, trace_id, digest = states.get(row.id, ("", None, None))
            if status and digest != row.digest:
                raise ConfigurationError(f"row {row.id!r} is another one than in run {run.name!r}; give another name")
            if status not in over:
                left.append((position, row, trace_id))
        known = {*states, *(row.id for row in data.rows)}
        if left or len(known) > run.n_rows:
            store.resize(run.id, max(len(known), run.n_rows))
        return Begun(run, store, tuple(left), len(data.rows) - len(left))

    def _names(self) -> dict[str, Any]:
        """What makes two runs of one name the same, as far as it has names."""
        return {
            "app": name_of(self.app),
            "judge": name_of(_named(self.judge)),
            "engine": name_of(self.engine) if self.strategy == "cause" else None,
            "strategy": self.strategy,
            "diagnose": self.diagnose,
            "options": {name: repr(value) for name, value in sorted(self.options.items())},
        }

    def _key(self, data: EvaluationSet) -> str:
        said_of = {**self._names(), "rows": [[row.id, row.digest] for row in data.rows]}
        return hashlib.sha256(json.dumps(said_of, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def _named(judge: Any) -> Any:
    """The judge that is given, else what the environment names."""
    return os.environ.get(JUDGE_VARIABLE, "").strip() or None if judge is None else judge
