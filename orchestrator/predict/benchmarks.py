"""Runs of `collective` as measurements of the model's inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.experiment import fitting, loading
from orchestrator.parts.topology import Job, Topology
from orchestrator.predict import inputs
from orchestrator.predict.inputs import Timed
from orchestrator.predict.network_costs import Costs, network
from orchestrator.store import index, rundir, stores
from orchestrator.store.rundir import Listed
from orchestrator.store.tabular import tables
from workloads.common import placement, torch_ranks
from workloads.common.collective_traffic import exchanged

WORKLOAD = "collective"
TORCH = ("auto", "gloo", "nccl")  # backends of the trainings that are predicted


def costs(results: Path, topology: Topology, *, named: Sequence[str] = ()) -> Costs:
    """Inputs fitted to the named runs, or to all completed runs of `collective` on such a testbed.

    Without a name they are assumed where the store has too few messages that torch.distributed carried. StoreError for
    a named run that cannot be used.
    """
    if named:
        runs = stores.entries(stores.opened(str(results)), named)
        return inputs.fitted(
            [one for entry in runs for one in _timed(entry)], inputs.usual(topology), source=_names(runs)
        )
    found = index.entries(results) if results.is_dir() else []
    return fitted_to([entry for entry in found if is_benchmark(entry) and _like(entry, topology)], topology)


def fitted_to(runs: Sequence[Listed], topology: Topology) -> Costs:
    """Inputs fitted to those of these runs of `collective` that can be used; assumed where they are too few."""
    timed, used = [], []
    for entry in runs:
        with suppress(StoreError):
            timed += list(_timed(entry))
            used.append(entry)
    base = inputs.usual(topology)
    return inputs.fitted(timed, base, source=_names(used)) if len(timed) >= inputs.LEAST else base


def _names(runs: Sequence[Listed]) -> str:
    return ", ".join(entry.run for entry in runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")


def is_benchmark(entry: Listed) -> bool:
    """Whether a run timed messages: a completed one of `collective`."""
    jobs = entry.manifest.jobs
    return entry.sealed and entry.outcome == "completed" and len(jobs) == 1 and jobs[0].workload == WORKLOAD


def _like(entry: Listed, topology: Topology) -> bool:
    """Whether a run was on this kind of testbed: on this machine at all, or on hosts of the same names."""
    theirs = rundir.opened(entry.path).manifest.topology
    names = {host.name for host in theirs.hosts}
    return theirs.kind == topology.kind and (theirs.kind == "local" or names >= {host.name for host in topology.hosts})


def _timed(entry: Listed) -> Iterator[Timed]:
    """Each operation and size of a run: the median time over iterations and ranks. StoreError where it has none."""
    try:
        experiment = loading.sealed(entry.path)
        rows = tables.read(entry.path / "tables", "collectives").to_pylist()
    except (ConfigError, OSError) as error:
        raise StoreError(f"{entry.run}: cannot be read: {error}", hint="name another run of `collective`") from None
    topology = fitting.topology_of(experiment)
    spec = experiment.all_jobs()[0]
    config = spec.workload.config
    if spec.workload.name != WORKLOAD or config.backend not in TORCH:
        raise StoreError(
            f"{entry.run}: its messages were not timed by `collective` on torch.distributed",
            hint=f"name a run of `collective` with backend {' or '.join(TORCH)}",
        )
    job = Job(name=spec.name, index=0, ranks=placement.ranks(config.hosts, topology))
    spread = torch_ranks.spread(config, job, traced=True) if topology.rails > 1 else ""
    net = network(job, topology, spread=spread)
    seconds: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        if row["window_name"]:
            seconds[row["operation"], row["bytes"]].append(row["seconds"])
    for (operation, size), times in sorted(seconds.items()):
        backend = torch_ranks.backend_of(config, job.ranks)
        pairs, rounds = exchanged(operation, len(job.ranks), size, groups=config.groups, backend=backend)
        yield Timed(pairs=pairs, rounds=rounds, network=net, seconds=median(times))
