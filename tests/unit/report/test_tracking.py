"""Runs logged to MLflow: read back by MLflow itself, from a store of its own."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from orchestrator.cli.main import main
from orchestrator.report.runs import Run
from orchestrator.report.traces import tracking
from tests.helpers.sealed_run import loose, make_run

STORE = Path(__file__).parents[2] / "data" / "store"


@pytest.fixture
def logged(tmp_path, monkeypatch):
    """A run, and MLflow's client of the store that it was exported to."""
    import mlflow  # two seconds, which processes that only collect this do without

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    (recorded,) = (STORE / "swept").iterdir()
    run = tmp_path / "results" / "swept" / recorded.name
    shutil.copytree(recorded, run)
    to = tmp_path / "tracking"
    command = ["export", "mlflow", recorded.name, "-o", str(to), "--results", str(tmp_path / "results")]
    assert main(command) == 0
    return Run(run), mlflow.MlflowClient(tracking_uri=to.as_uri()), command


def read(run, client):
    experiment = client.get_experiment_by_name(run.manifest.experiment)
    return client.search_runs([experiment.experiment_id])


def test_mlflow_reads_back_iterations_windows_settings_and_verdict(logged):
    run, client, _ = logged
    (found,) = read(run, client)
    (job,) = run.jobs
    windows = list(enumerate(run.windows, start=1))
    assert windows
    history = client.get_metric_history(found.info.run_id, f"{job.job}.iteration_s")
    assert [one.step for one in history] == job.iteration.tolist()
    assert [one.value for one in history] == job.seconds.tolist()
    achieved = client.get_metric_history(found.info.run_id, "window.achieved_bps")
    known = [(step, one.achieved_bps * run.scale) for step, one in windows if one.achieved_bps is not None]
    assert [(one.step, one.value) for one in achieved] == known
    medians = client.get_metric_history(found.info.run_id, f"window.{job.job}.p50_s")
    assert [one.value for one in medians] == [one.training[0].p50_s for _, one in windows]
    assert found.data.tags["orch.verdict"] == ("valid" if run.manifest.valid else "invalid")
    assert found.data.tags["orch.scale"] == str(run.scale)
    assert found.data.params == tracking.params(run) != {}
    assert {one.path for one in client.list_artifacts(found.info.run_id)} >= {"manifest.json"}
    assert (found.info.status, found.info.run_name) == ("FINISHED", run.id)


def test_a_run_is_logged_once(logged, capsys):
    run, client, command = logged
    assert main(command) == 2
    assert "was logged to MLflow's experiment" in capsys.readouterr().err
    assert len(read(run, client)) == 1


def test_a_store_that_mlflow_refuses_is_told_in_a_line(logged, capsys):
    _, _, command = logged
    command[command.index("-o") + 1] = "nosuch://server"
    assert main(command) not in (0, 2)
    err = capsys.readouterr().err
    assert "MLflow cannot log" in err
    assert "Traceback" not in err


def test_names_are_those_that_mlflow_takes_and_values_are_known(tmp_path):
    run = Run(make_run(tmp_path / "e", tolerances=loose(), iterations=60))
    assert tracking.named("traffic[0].load:é\n") == "traffic_0_.load___"
    assert all(math.isfinite(one.value) for one in tracking.values(run))
