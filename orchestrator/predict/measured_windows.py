"""Find windows of the store that measured what is simulated: the same training, network and cross traffic."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.screen import console
from orchestrator.experiment import fitting, loading
from orchestrator.experiment.experiment import Experiment, WindowSpec
from orchestrator.predict.simulation.machine import Floats
from orchestrator.store import index
from orchestrator.store.rundir import Listed
from orchestrator.store.tabular import tables

_NO_MATTER = frozenset({"env", "env_from", "threads", "python", "realtime", "most_open", "most_streams"})

WindowKey = str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWindow:
    """Iterations of rank 0 of a job in seconds: statistics of each run, and their mean over runs."""

    runs: tuple[str, ...]
    salts: tuple[str, ...]
    mean_s: float
    p50_s: float
    p99_s: float
    valid: bool  # whether all of these windows are


def key(experiment: Experiment, window: WindowSpec) -> WindowKey:
    """Return what decides an iteration in a window, as text: testbed, conditions, jobs and cross traffic."""
    jobs = [(spec.name, spec.workload.name, _options(spec.workload.config)) for spec in experiment.all_jobs()]
    traffic = [(one.name, _options(one.config)) for one in window.traffic if not fitting.is_silent(one)]
    conditions = [(one.name, _options(one.config)) for one in experiment.conditions]
    testbed = experiment.testbed.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return json.dumps([testbed, conditions, jobs, traffic], sort_keys=True)


def _options(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {name: value for name, value in found.items() if name not in _NO_MATTER}


def find(results: Path, experiments: Sequence[Experiment]) -> dict[tuple[WindowKey, str], MeasuredWindow]:
    """Return by window and job what completed runs of the store measured; what was never measured is left out."""
    wanted = {key(one, window) for one in experiments for window in one.all_windows()}
    workloads = {tuple(spec.workload.name for spec in one.all_jobs()) for one in experiments}
    found: defaultdict[tuple[WindowKey, str], list[tuple[Listed, str, Floats, bool]]] = defaultdict(list)
    for entry in index.entries(results) if results.is_dir() else []:
        if not entry.sealed or tuple(job.workload for job in entry.manifest.jobs) not in workloads:
            continue
        for name, job, seconds, valid in _measured(entry, wanted):
            found[name, job].append((entry, entry.manifest.salt or "", seconds, valid))
    return {name: _combined(runs) for name, runs in found.items()}


def _measured(entry: Listed, wanted: set[WindowKey]) -> list[tuple[WindowKey, str, Floats, bool]]:
    """Return iterations of rank 0 by window and job of a run, of the windows that are wanted."""
    try:
        experiment = loading.sealed(entry.path)
        names = {window.name: key(experiment, window) for window in experiment.all_windows()}
        if not wanted & set(names.values()):
            return []
        rows = tables.read(entry.path / "tables", "iterations").to_pylist()
    except ConfigError:
        return []  # of a part that this version does not know
    except StoreError as error:
        console.note(f"left out: {error.message}", hint=error.hint)
        return []
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["window_name"] and row["rank"] == 0:
            seconds[row["window_name"], row["job"]].append(row["seconds"])
    valid: Mapping[str, bool] = {window.name: window.valid for window in entry.manifest.windows}
    return [
        (names[window], job, np.array(values), valid.get(window, False))
        for (window, job), values in seconds.items()
        if names.get(window) in wanted
    ]


def _combined(runs: Sequence[tuple[Listed, str, Floats, bool]]) -> MeasuredWindow:
    return MeasuredWindow(
        runs=tuple(entry.run for entry, _, _, _ in runs),
        salts=tuple(salt for _, salt, _, _ in runs),
        mean_s=fmean(float(np.mean(seconds)) for _, _, seconds, _ in runs),
        p50_s=fmean(float(np.percentile(seconds, 50)) for _, _, seconds, _ in runs),
        p99_s=fmean(float(np.percentile(seconds, 99)) for _, _, seconds, _ in runs),
        valid=all(valid for _, _, _, valid in runs),
    )
