"""What a run's tables and manifest tell of the processors that it was measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.windows.judging.waiting import Processors, Waiting
from orchestrator.analysis.windows.readings import processors
from orchestrator.analysis.windows.readings.processors import COUNTERS, Sampled, Series, Steps
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.manifests.window_records import ProcessorShares, Window

PART = "collector.processor"
PREFIX = "processor."
NEEDED = tuple(PREFIX + name for name in COUNTERS)  # counters


@dataclass(frozen=True, slots=True)
class Served:
    """What the gates and the table `processors` need of one window."""

    waiting: tuple[Waiting, ...]
    processors: tuple[Processors, ...]
    rows: tuple[ProcessorShares, ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """What was sampled over a whole run, which nodes share a kernel, and the processes of each job by node and name."""

    nodes: Mapping[str, Sampled]
    shared: Mapping[str, str]
    jobs: Mapping[str, tuple[tuple[str, str], ...]]

    def window(self, window: Window) -> Served:
        """How processors served a window of the manifest; nothing of a run that was sealed before they were sampled."""
        if not self.nodes:
            return Served((), (), ())
        steps = Steps.of(window.start_ns, window.end_ns)
        kernel = processors.kernels(self.nodes, self.shared, steps)
        watched = {
            job: tuple(processors.watched(self.nodes, kernel, steps, members)) for job, members in self.jobs.items()
        }
        everyone = [one for members in watched.values() for one in members]
        rows = tuple(processors.rows(self.nodes, kernel, everyone, steps))
        return Served(
            tuple(processors.waiting(job, members, kernel, steps) for job, members in watched.items() if members),
            tuple(processors.shares(rows, kernel)),
            rows,
        )


def samples(counters: Any, tasks: Any, manifest: Manifest) -> Samples:
    """Of the tables `counters` (or what keeps it) and `tasks`; of a node without a sampler nothing is known."""
    if not any(launch.part == PART for launch in manifest.launches):
        return Samples({}, {}, {})
    jobs: dict[str, tuple[tuple[str, str], ...]] = {job.name: () for job in manifest.jobs}
    for launch in manifest.launches:
        if launch.job in jobs:
            jobs[launch.job] += ((launch.node, launch.name),)
    return Samples({node: _sampled(counters, tasks, node) for node in manifest.nodes}, manifest.kernels.nodes, jobs)


def _sampled(counters: Any, tasks: Any, node: str) -> Sampled:
    import pyarrow.compute as pc

    known = {name: throughput.samples(counters, node=node, port="", counter=PREFIX + name) for name in COUNTERS}
    mine = tasks.filter(pc.equal(tasks["node"], node))
    run: dict[str, Series] = {}
    wait: dict[str, Series] = {}
    for process in pc.unique(mine["process"]).to_pylist():
        rows = mine.filter(pc.equal(mine["process"], process)).sort_by("time_ns")
        time_ns = rows["time_ns"].to_numpy(zero_copy_only=False).astype(np.int64)
        for found, column in ((run, "run_s"), (wait, "wait_s")):
            found[process] = Series(time_ns, rows[column].to_numpy(zero_copy_only=False).astype(np.float64))
    return Sampled({name: Series(*series) for name, series in known.items() if len(series[0])}, run, wait)
