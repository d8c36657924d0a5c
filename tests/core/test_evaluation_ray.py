"""Rows on a local Ray cluster: the same results as in threads, and no row lost with a worker."""

from __future__ import annotations

import os
from pathlib import Path

import evaluation_parts
import pytest
from evaluation_parts import app, calls, rows

from attr_core.errors import MissingDependencyError
from attr_core.evaluation.runner import Evaluation

try:
    import ray
except ImportError:
    ray = None

needs_ray = [pytest.mark.slow, pytest.mark.skipif(ray is None, reason="ray is not installed")]
N = 200


@pytest.fixture(scope="module")
def cluster():
    """Two workers of this machine, that find the tests' modules."""
    paths = os.pathsep.join([str(Path(evaluation_parts.__file__).parent), str(Path.cwd())])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


def results(run) -> list[dict[str, object]]:
    """All of a run but where and when it was."""
    found = [row.to_dict() for row in run.rows]
    for row in found:
        row.pop("trace_id")
        row.pop("seconds")
    return found


def test_ray_that_is_not_installed_is_named_with_its_extra(tmp_path, monkeypatch) -> None:
    def missing(module, *, extra):
        raise MissingDependencyError(module, extra=extra)

    monkeypatch.setattr("attr_core.evaluation.ray_runner.require", missing)
    with pytest.raises(MissingDependencyError, match=r"attrkit\[ray\]"):
        Evaluation(app, rows(), judge="likelihood", db=tmp_path / "a.db", runner="ray").run()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("cluster")
class TestOnRay:
    pytestmark = needs_ray

    def test_two_hundred_rows_give_the_same_results_as_in_threads(self, tmp_path) -> None:
        judge = evaluation_parts.YearJudge()
        here = Evaluation(app, rows(N), judge=judge, db=tmp_path / "a.db").run()
        there = Evaluation(app, rows(N), judge=judge, db=tmp_path / "b.db", runner="ray").run()
        assert (there.summary().n_done, len(there.rows)) == (N, N)
        assert results(here) == results(there)
        assert here.summary().to_dict()["metrics"] == there.summary().to_dict()["metrics"]

    def test_a_row_that_fails_is_recorded_and_the_others_go_on(self, tmp_path) -> None:
        judge = evaluation_parts.YearJudge()
        run = Evaluation(evaluation_parts.failing_app, rows(), judge=judge, db=tmp_path / "a.db", runner="ray").run()
        assert [row.error for row in run.rows if row.status == "failed"] == ["RuntimeError: the index is away"]
        assert run.summary().n_done == 5

    @pytest.mark.parametrize("where", ["app", "judge"])
    def test_killing_a_worker_loses_no_row(self, tmp_path, where) -> None:
        marker = tmp_path / "killed"
        options = {"app": app, "judge": evaluation_parts.YearJudge()}
        options[where] = (
            evaluation_parts.DyingApp(str(marker)) if where == "app" else evaluation_parts.YearJudge(str(marker))
        )
        run = Evaluation(
            options["app"], rows(12), judge=options["judge"], db=tmp_path / "a.db", runner="ray", concurrency=2
        ).run()
        assert marker.exists()
        assert (run.summary().n_done, run.summary().n_failed) == (12, 0)

    def test_a_row_that_kills_every_worker_is_recorded_as_failed(self, tmp_path) -> None:
        run = Evaluation(
            evaluation_parts.deadly_app, rows(3), judge=evaluation_parts.YearJudge(), db=tmp_path / "a.db", runner="ray"
        ).run()
        assert (run.summary().n_done, run.summary().n_failed) == (2, 1)
        assert "workers died at it" in (run.rows[1].error or "")

    def test_what_is_there_is_not_asked_again(self, tmp_path) -> None:
        judge = evaluation_parts.YearJudge()
        db = tmp_path / "a.db"
        Evaluation(app, rows(4), judge=judge, db=db, name="mine").run()
        counted = evaluation_parts.CountedApp(str(tmp_path / "calls.jsonl"))
        counted_run = Evaluation(counted, rows(8), judge=judge, db=db, name="other", limit=4).run()
        assert counted_run.summary().n_done == 4
        whole = Evaluation(counted, rows(8), judge=judge, db=db, name="other", runner="ray").run()
        assert whole.summary().n_done == 8
        made = calls(tmp_path / "calls.jsonl", "app")
        assert sorted(made) == sorted(row["query"] for row in rows(8))
