"""Learn from measured runs what no file says: how long ranks compute, and what an iteration takes beside all costs.

A framework spends time that no cost of a message stands for: copies, its own threads, timers that wake late. A run of
the same training, alone on its links, tells it: what its iterations took beyond a simulation of that very run. That
much is added to the end of every iteration of the training, whatever shares its links.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.experiment import fitting, loading, seeds
from orchestrator.experiment.experiment import Experiment, JobSpec
from orchestrator.parts.topology import Topology
from orchestrator.predict import computing, foreseeing
from orchestrator.predict.computing import BATCHES, LEAST, NO_MATTER, STUDENT, Computed, Floats
from orchestrator.predict.foreseeing import How
from orchestrator.predict.network_costs import Costs, Quantity
from orchestrator.store import index
from orchestrator.store.rundir import Listed
from orchestrator.store.tabular import tables
from workloads.common import placement

MOST_RUNS = 3  # the newest ones: each is simulated
HARMLESS = frozenset({"congestion-control", "offloads", "firewall"})  # conditions that leave a training alone
_NO_MATTER = NO_MATTER - {"trace", "checksum"} | {"servers"}  # tracing takes time; of servers the number is compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Compute times, and seconds of an iteration for which no cost stands, by job; and the runs that told them."""

    computed: Mapping[str, Computed] = field(default_factory=dict)
    beside: Mapping[str, Quantity] = field(default_factory=dict)
    runs: frozenset[str] = frozenset()

    def quantities(self) -> dict[str, Quantity]:
        """Return what was learned by its name, with its unit."""
        computing_s = {f"computing of {job} in an iteration (s)": one.mean for job, one in self.computed.items()}
        return computing_s | {
            f"{job}, beside computing and messages, in an iteration (s)": one for job, one in self.beside.items()
        }


def find(
    results: Path, experiments: Sequence[Experiment], costs: Costs, *, named: Sequence[Listed] = ()
) -> list[Learned]:
    """Return what the `named` runs tell of each experiment's jobs, or all completed ones of the store.

    What iterations take beside all costs is returned of jobs of which it is known in every experiment: those without it
    would look quicker than they are. StoreError for named runs that tell nothing of any experiment.
    """
    runs = list(named) or (index.entries(results) if results.is_dir() else [])
    newest = sorted(runs, key=lambda entry: entry.manifest.began_ns, reverse=True)
    teachers = [
        _Teacher(results=results, entry=entry, costs=costs, named=bool(named))
        for entry in newest
        if entry.sealed and entry.manifest.outcome == "completed" and len(entry.manifest.jobs) == 1
    ]
    found = [_of(results, experiment, costs, teachers, named) for experiment in experiments]
    if named and not any(one.runs for one in found):
        raise StoreError(
            f"{', '.join(entry.run for entry in named)}: tells nothing of what this experiment computes",
            hint="name a run of the same training, or of its model and batch with real compute, or one of `collective`",
        )
    known = [set(one.beside) for one in found]
    common = set.intersection(*known) if known else set()
    return [
        Learned(
            computed=one.computed,
            beside={job: quantity for job, quantity in one.beside.items() if job in common},
            runs=one.runs,
        )
        for one in found
    ]


def _of(
    results: Path, experiment: Experiment, costs: Costs, teachers: Sequence[_Teacher], named: Sequence[Listed]
) -> Learned:
    computed = computing.find(results, experiment, step_s=costs.step_s.value, named=named)
    runs = {run for one in computed.values() for run in one.runs}
    beside = {}
    if not next(foreseeing.refusals(experiment), ""):
        topology = fitting.topology_of(experiment)
        for spec in experiment.all_jobs():
            told: list[_Teacher] = []
            for teacher in teachers:
                if len(told) < MOST_RUNS and teacher.tells_of(spec, topology) and teacher.apart:
                    told.append(teacher)
            if told:
                beside[spec.name] = _mean(told)
                runs |= {teacher.entry.run for teacher in told}
    return Learned(computed=computed, beside=beside, runs=frozenset(runs))


class _Teacher:
    """A completed run with one job, and by how much its iterations alone were longer than simulated ones."""

    def __init__(self, *, results: Path, entry: Listed, costs: Costs, named: bool) -> None:
        self.entry = entry
        self._results, self._costs, self._named = results, costs, named

    def tells_of(self, spec: JobSpec, topology: Topology) -> bool:
        """Return whether the run is of the same training, on as many hosts likewise, with nothing in its way."""
        about = self.entry.manifest
        alike = (about.jobs[0].workload, about.scale, about.dilation)
        if alike != (spec.workload.name, topology.scale, topology.dilation) or not self._quiet or self._opened is None:
            return False
        experiment, where = self._opened
        (other,) = experiment.all_jobs()
        clear = {condition.name for condition in experiment.conditions} <= HARMLESS
        clear = clear and (where.fabric is None or len(where.fabric.spines) < 2)  # whose spines nobody knows
        hosts = {host.name for host in where.hosts} >= {host.name for host in topology.hosts}
        if not clear or where.kind != topology.kind or not (hosts or where.kind == "local"):
            return False
        dumps = [one.workload.config.model_dump(mode="json", exclude=_NO_MATTER) for one in (other, spec)]
        return dumps[0] == dumps[1] and _placed(other, where) == _placed(spec, topology)

    @cached_property
    def _quiet(self) -> set[str]:
        """Valid windows without any load, by the summary that listings have: most runs need not be opened."""
        return {
            window.name
            for window in self.entry.manifest.windows
            if (window.valid or self._named) and not any(load.requested_bps for load in window.loads)
        }

    @cached_property
    def _opened(self) -> tuple[Experiment, Topology] | None:
        try:
            experiment = loading.sealed(self.entry.path)
            return (experiment, fitting.topology_of(experiment)) if len(experiment.all_jobs()) == 1 else None
        except (ConfigError, StoreError):
            return None  # of a part that this version does not know, or damaged: other runs tell

    @cached_property
    def apart(self) -> tuple[Quantity, ...]:
        """Each window in which the training was alone: its median iteration less the simulated one, in seconds."""
        if self._opened is None:
            return ()
        experiment, _ = self._opened
        alone = [one for one in experiment.all_windows() if one.name in self._quiet and not foreseeing.noisy(one)]
        if not alone:
            return ()
        try:
            rows = tables.read(self.entry.path / "tables", "iterations").to_pylist()
            known = computing.find(self._results, experiment, step_s=self._costs.step_s.value, named=[self.entry])
            how = How(
                salt=self.entry.manifest.salt or seeds.PLANNED,
                repetition=self.entry.manifest.repetition or 1,
                draws=1,
                computed=known,
            )
            found = []
            for window in alone:
                mine = [row["seconds"] for row in rows if row["window_name"] == window.name and row["rank"] == 0]
                if len(mine) >= LEAST:
                    only = foreseeing.with_window(experiment, window)
                    (simulated,) = foreseeing.foresee(only, self._costs, file=self.entry.run, how=how)
                    found.append(_apart(np.array(mine), simulated.jobs[0].p50.value, self.entry.run))
        except (ConfigError, StoreError):
            return ()
        return tuple(found)


def _placed(spec: JobSpec, topology: Topology) -> tuple[list[int], int, int]:
    """Return how many ranks its hosts have, how many servers there are, and how many of them on hosts of ranks."""
    hosts = Counter(rank.node for rank in placement.ranks(spec.workload.config.hosts, topology))
    servers = getattr(spec.workload.config, "servers", 0) or 0
    if isinstance(servers, int):
        return sorted(hosts.values()), servers, 0
    return sorted(hosts.values()), len(servers), sum(server in hosts for server in servers)


def _apart(seconds: Floats, simulated_s: float, run: str) -> Quantity:
    """Return by how much the median iteration is longer than the simulated one, with its interval by batch medians."""
    value = float(np.median(seconds)) - simulated_s
    medians = [float(np.median(part)) for part in np.array_split(seconds, BATCHES)]
    half = STUDENT * float(np.std(medians, ddof=1)) / BATCHES**0.5
    return Quantity(value=value, low=value - half, high=value + half, source=run)


def _mean(told: Sequence[_Teacher]) -> Quantity:
    each = [one for teacher in told for one in teacher.apart]
    return Quantity(
        value=float(np.mean([one.value for one in each])),
        low=min(one.low for one in each),
        high=max(one.high for one in each),
        source=f"measured: {', '.join(teacher.entry.run for teacher in told)}, alone",
    )
