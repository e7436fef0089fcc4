"""Log a run to MLflow: its settings, its iterations by step, what its windows say, and its manifest.

A run becomes a run of MLflow's experiment of the same name. Rates and sizes are at full size, durations are seconds.
MLflow refuses some letters in names (its `validate_metric_name`): those become `_`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.analysis.compare import window_settings
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.report.runs import Run
from orchestrator.store.manifests.summaries import Training
from orchestrator.store.rundir import Entry
from orchestrator.store.stamps import MANIFEST

if TYPE_CHECKING:
    from mlflow import MlflowClient

RUN_TAG = "orch.run"
_BATCH = 1000  # metrics that MLflow takes at once
_MOST_LETTERS = 5000  # of a tag
_REFUSED = re.compile(r"[^\w\-. /]", re.ASCII)
_OF_TRAINING = ("mean_s", "p50_s", "p50_low_s", "p50_high_s", "p99_s")


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a metric at a step, and when it was measured."""

    name: str
    value: float
    time_ns: int
    step: int


def log(run: Run, where: str) -> str:
    """Log the run to an MLflow tracking address, or a folder as one; return the id that MLflow gave it.

    ConfigError without the package mlflow, and where the run is there already; StoreError where MLflow refuses.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException
    except ImportError:
        raise ConfigError(
            "export mlflow needs the package mlflow-skinny", hint="pip install 'orch-testbed[mlflow]'"
        ) from None
    address = where if "://" in where else Path(where).resolve().as_uri()
    try:
        return _logged(run, MlflowClient(tracking_uri=address))
    except (MlflowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise StoreError(f"{where}: MLflow cannot log {run.id}: {reason}") from error


def _logged(run: Run, client: MlflowClient) -> str:
    from mlflow.entities import Metric

    name = run.manifest.experiment
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known else client.create_experiment(name)
    if client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{run.id}'", max_results=1):
        raise ConfigError(
            f"{run.id} was logged to MLflow's experiment {name} before", hint="delete its run there to log it again"
        )
    settings = params(run)
    made = client.create_run(experiment, start_time=run.manifest.began_ns // 10**6, tags=tags(run), run_name=run.id)
    logged: str = made.info.run_id
    for key, value in settings.items():
        client.log_param(logged, key, value)
    rest = values(run)
    while batch := list(islice(rest, _BATCH)):
        metrics = [Metric(one.name, one.value, one.time_ns // 10**6, one.step) for one in batch]
        client.log_batch(logged, metrics=metrics)
    for file in (MANIFEST, "experiment.yaml"):
        if (run.path / file).is_file():
            client.log_artifact(logged, str(run.path / file))
    status = "FINISHED" if run.manifest.outcome == "completed" else "FAILED"
    client.set_tag(logged, RUN_TAG, run.id)  # last: what was cut off can be logged again
    client.set_terminated(logged, status, end_time=run.end_ns // 10**6)
    return logged


def tags(run: Run) -> dict[str, str]:
    """Return what a run was and whether its numbers count."""
    manifest = run.manifest
    verdict = manifest.outcome if manifest.outcome != "completed" else "valid" if manifest.valid else "invalid"
    found = {
        "orch.verdict": verdict,
        "orch.reasons": "; ".join(manifest.reasons),
        "orch.scale": str(run.scale),
        "orch.dilation": str(manifest.dilation),
        "orch.sweep": manifest.sweep.id if manifest.sweep else "",
        "mlflow.source.git.commit": (manifest.git.commit or "") if manifest.git else "",
    }
    return {name: text[:_MOST_LETTERS] for name, text in found.items() if text}


def params(run: Run) -> dict[str, str]:
    """Return the settings that all windows of the run share, by path."""
    settings = window_settings.of_windows(Entry(run.path, run.manifest)).values()
    found = [{**dict(one.setting.shared), **dict(one.setting.traffic)} for one in settings]
    first = found[0] if found else {}
    shared = {key: value for key, value in first.items() if all(one.get(key) == value for one in found)}
    return {named(key): value[:_MOST_LETTERS] for key, value in shared.items() if value}


def values(run: Run) -> Iterator[Value]:
    """Yield each iteration of each job, then what each window says, its number as the step."""
    for job in run.jobs:
        name = named(f"{job.job}.iteration_s")
        columns = job.iteration.tolist(), job.seconds.tolist(), job.start_ns.tolist()
        for step, seconds, begin_ns in zip(*columns, strict=True):
            yield Value(name, seconds, begin_ns, step)
    for step, window in enumerate(run.windows, start=1):
        said: dict[str, Any] = {
            "valid": float(window.valid),
            "requested_bps": window.requested_bps * run.scale,
            "achieved_bps": None if window.achieved_bps is None else window.achieved_bps * run.scale,
        }
        for row in window.training:
            said |= {f"{row.job}.{key}": value for key, value in _of_training(row, run.scale).items()}
        for key, value in said.items():
            if value is not None and math.isfinite(value):
                yield Value(named(f"window.{key}"), value, window.end_ns, step)


def _of_training(row: Training, scale: int) -> dict[str, float | None]:
    sent = None if row.sent_bytes is None else row.sent_bytes * scale
    return {**{key: getattr(row, key) for key in _OF_TRAINING}, "sent_bytes": sent}


def named(text: str) -> str:
    """Return a name that MLflow takes."""
    return _REFUSED.sub("_", text)[:250]
