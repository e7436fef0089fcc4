"""Runs of `collective` as measurements of the model's inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.experiment import fitting, loading
from orchestrator.parts.topology import Job, Topology
from orchestrator.predict import inputs
from orchestrator.predict.inputs import Timed
from orchestrator.predict.network_costs import Costs, network
from orchestrator.store import index, rundir, tables
from orchestrator.store.rundir import Listed
from workloads.collective import exchanged
from workloads.common import placement

WORKLOAD = "collective"


def costs(results: Path, topology: Topology, *, named: Sequence[str] = ()) -> Costs:
    """Inputs fitted to the named runs, or to all completed runs of `collective` on such a testbed; else assumed.

    StoreError for a named run that measured no messages, or too few of them.
    """
    base = inputs.usual(topology)
    if named:
        chosen: list[Listed] = [rundir.find(results, name) for name in named]
    else:
        chosen = [entry for entry in _benchmarks(results) if _like(entry, topology)]
        if not chosen:
            return base
    timed = [one for entry in chosen for one in _timed(entry)]
    told = ", ".join(entry.run for entry in chosen[:3]) + (f" and {len(chosen) - 3} more" if len(chosen) > 3 else "")
    return inputs.fitted(timed, base, source=told)


def _benchmarks(results: Path) -> Iterator[Listed]:
    for entry in index.entries(results) if results.is_dir() else []:
        jobs = entry.manifest.jobs
        if entry.sealed and entry.outcome == "completed" and len(jobs) == 1 and jobs[0].workload == WORKLOAD:
            yield entry


def _like(entry: Listed, topology: Topology) -> bool:
    """Whether a run was on this kind of testbed: on this machine at all, or on hosts of the same names."""
    theirs = rundir.opened(entry.path).manifest.topology
    names = {host.name for host in theirs.hosts}
    return theirs.kind == topology.kind and (theirs.kind == "local" or names >= {host.name for host in topology.hosts})


def _timed(entry: Listed) -> Iterator[Timed]:
    """Each operation and size of a run: the median time over iterations and ranks."""
    try:
        experiment = loading.sealed(entry.path / "experiment.yaml")
        rows = tables.read(entry.path / "tables", "collectives").to_pylist()
    except (ConfigError, OSError) as error:
        raise StoreError(f"{entry.run}: cannot be read: {error}", hint="name another run of `collective`") from None
    topology = fitting.topology_of(experiment)
    spec = experiment.all_jobs()[0]
    config = spec.workload.config
    job = Job(name=spec.name, index=0, ranks=placement.ranks(config.hosts, topology))
    net = network(job, topology)
    seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        if row["window_name"]:
            seconds[row["operation"], row["bytes"]].append(row["seconds"])
    for (operation, size), times in sorted(seconds.items()):
        pairs, rounds = exchanged(config, operation, len(job.ranks), size)
        yield Timed(pairs=pairs, rounds=rounds, network=net, seconds=median(times))
