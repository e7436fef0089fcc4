"""Learn from measured runs what no file says: how long ranks compute, and what an iteration takes beside all costs.

A framework spends time that no cost of a message stands for: copies, its own threads, timers that wake late. A run of
the same training, alone on its links, tells it: what its iterations took beyond a simulation of that very run. That
much is added to every iteration of the training, whatever shares its links.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.experiment import fitting, loading, seeds
from orchestrator.experiment.experiment import Experiment, JobSpec
from orchestrator.parts.topology import Topology
from orchestrator.predict import computing, foreseeing, inputs, measured_windows
from orchestrator.predict.computing import BATCHES, LEAST, STUDENT, Computed
from orchestrator.predict.foreseeing import How
from orchestrator.predict.measured_windows import WindowKey
from orchestrator.predict.network_costs import Costs, Quantity
from orchestrator.store import index
from orchestrator.store.rundir import Listed
from orchestrator.store.tabular import tables
from workloads.common import placement

MOST_RUNS = 3  # the newest ones: each is simulated
HARMLESS = frozenset({"congestion-control", "offloads", "firewall"})  # conditions that leave a training alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Compute times by job, and by window and job the seconds of an iteration for which no cost stands."""

    computed: Mapping[str, Computed] = field(default_factory=dict)
    beside: Mapping[tuple[str, str], Quantity] = field(default_factory=dict)

    def quantities(self) -> dict[str, Quantity]:
        """Return what was learned by its name, with its unit; of windows that differ each."""
        found = {f"computing of {job} in an iteration (s)": one.mean for job, one in self.computed.items()}
        by_job: defaultdict[str, dict[str, Quantity]] = defaultdict(dict)
        for (window, job), one in self.beside.items():
            by_job[job][window] = one
        for job, each in by_job.items():
            alike = len({one.source for one in each.values()}) == 1
            for window, one in list(each.items())[: 1 if alike else None]:
                where = job if alike else f"{job} in {window}"
                found[f"{where}, beside computing and messages, in an iteration (s)"] = one
        return found


def find(results: Path, experiment: Experiment, costs: Costs, *, named: Sequence[Listed] = ()) -> Learned:
    """Return what the `named` runs tell of an experiment's jobs, or all completed ones of the store.

    A window that was measured does not tell of itself: it tells of others. StoreError for named runs that tell nothing
    of any job.
    """
    computed = computing.find(results, experiment, step_s=costs.step_s.value, named=named)
    beside = _beside(results, experiment, costs, named) if not next(foreseeing.refusals(experiment), "") else {}
    if named and not computed and not beside:
        raise StoreError(
            f"{', '.join(entry.run for entry in named)}: tells nothing of what this experiment computes",
            hint="name a run of the same training alone, or one of `collective`",
        )
    return Learned(computed=computed, beside=beside)


def _beside(
    results: Path, experiment: Experiment, costs: Costs, named: Sequence[Listed]
) -> dict[tuple[str, str], Quantity]:
    topology = fitting.topology_of(experiment)
    entries = list(named) or (index.entries(results) if results.is_dir() else [])
    keys = {window.name: measured_windows.key(experiment, window) for window in experiment.all_windows()}
    found: dict[tuple[str, str], Quantity] = {}
    for spec in experiment.all_jobs():
        told: list[tuple[str, WindowKey, Quantity]] = []
        for entry in reversed(entries):
            if len({run for run, _, _ in told}) == MOST_RUNS:
                break
            told += _of_run(results, entry, spec, topology, costs)
        for window, own in keys.items():
            others = [(run, one) for run, key, one in told if key != own]
            if others:
                found[window, spec.name] = _mean(others)
    return found


def _of_run(
    results: Path, entry: Listed, spec: JobSpec, topology: Topology, costs: Costs
) -> Iterator[tuple[str, WindowKey, Quantity]]:
    """Yield each window in which a run had the training of a job alone; none where it cannot tell."""
    jobs = entry.manifest.jobs
    if not entry.sealed or entry.outcome != "completed" or [job.workload for job in jobs] != [spec.workload.name]:
        return
    try:
        experiment = loading.sealed(entry.path)
        where = fitting.topology_of(experiment)
        if not inputs.like(entry, topology) or not _alike(experiment, where, spec, topology):
            return
        alone = [window for window in experiment.all_windows() if not foreseeing.noisy(window)]
        rows = tables.read(entry.path / "tables", "iterations").to_pylist()
        how = How(salt=entry.manifest.salt or seeds.PLANNED, draws=1)
        how = replace(how, computed=computing.find(results, experiment, step_s=costs.step_s.value))
        for window in alone:
            seconds = [row["seconds"] for row in rows if row["window_name"] == window.name and row["rank"] == 0]
            if len(seconds) >= LEAST:
                only = foreseeing.with_window(experiment, window)
                simulated = foreseeing.foresee(only, costs, file=entry.run, how=how)[0].jobs[0].p50.value
                found = _apart(np.array(seconds), simulated, source=f"measured: {entry.run}")
                yield entry.run, measured_windows.key(experiment, window), found
    except (ConfigError, StoreError):
        return  # of a part that this version does not know, or damaged: other runs tell


def _alike(experiment: Experiment, where: Topology, spec: JobSpec, topology: Topology) -> bool:
    """Return whether a run has one job, the same training on as many hosts likewise, and nothing in its way."""
    (other,) = experiment.all_jobs()
    ranks, others = (
        sorted(Counter(rank.node for rank in placement.ranks(one.workload.config.hosts, at)).values())
        for one, at in ((spec, topology), (other, where))
    )
    clear = {condition.name for condition in experiment.conditions} <= HARMLESS
    return clear and where.scale == topology.scale and ranks == others and computing.same(other, spec)


def _apart(seconds: computing.Floats, simulated: float, *, source: str) -> Quantity:
    """Return by how much the median iteration is longer than the simulated one, with its interval by batch means."""
    value = float(np.median(seconds)) - simulated
    means = [float(np.median(part)) for part in np.array_split(seconds, BATCHES)]
    half = STUDENT * float(np.std(means, ddof=1)) / BATCHES**0.5
    return Quantity(value=value, low=value - half, high=value + half, source=source)


def _mean(told: Sequence[tuple[str, Quantity]]) -> Quantity:
    names = ", ".join(dict.fromkeys(run for run, _ in told))
    return Quantity(
        value=float(np.mean([one.value for _, one in told])),
        low=min(one.low for _, one in told),
        high=max(one.high for _, one in told),
        source=f"measured: {names}, alone",
    )
