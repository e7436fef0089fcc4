"""Fit the prediction's inputs (network costs) to benchmarks of `collective` on the same kind of testbed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.experiment import fitting, loading
from orchestrator.parts.topology import Job, Topology
from orchestrator.predict.network_costs import Costs, Network, Quantity, assumed, network
from orchestrator.store import index, rundir
from orchestrator.store.rundir import Listed
from orchestrator.store.tabular import tables
from workloads.common import placement, rank_traffic, torch_ranks
from workloads.common.collective_traffic import exchanged
from workloads.common.rank_traffic import Pairs
from workloads.common.skew import parts_of

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

FITTED = ("round_s", "link_factor", "inside_round_s", "inside_byte_s", "message_s", "byte_s", "wake_s")
_ACKNOWLEDGED = 66 / 2 / 1514  # of a frame: one acknowledgement for two, the other way on the same link
_BOUNDS = np.array(  # between which FITTED are looked for
    ((1e-7, 1.0), (1.0, 10.0), (1e-7, 1.0), (1e-14, 1e-6), (1e-7, 1.0), (1e-14, 1e-6), (1e-9, 1e-3))
)
_RESAMPLES = 50
_SD_OF_MEDIAN = 1.4826  # standard deviations of a normal in its median absolute deviation
LEAST = 6  # messages, and one more than there are quantities, so that these and their intervals mean something

WORKLOAD = "collective"
TORCH = ("auto", "gloo", "nccl")  # backends of the trainings that are predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A message of a benchmark: bytes by sender and receiver, number of rounds, and its time in seconds."""

    pairs: Pairs
    rounds: int
    network: Network
    seconds: float


def usual(topology: Topology) -> Costs:
    """Return assumed inputs of a testbed on which nothing was measured, with wide intervals and their source.

    Dilated time divides what processors and timers take, as it divides all that is measured.
    """
    headers = topology.wire_per_payload + _ACKNOWLEDGED
    link = assumed(headers, low=headers - _ACKNOWLEDGED, high=1.25 * headers, source="headers and acknowledgements")
    if topology.kind == "local":

        def passed(value: float, *, low: float, high: float, source: str) -> Quantity:
            by = topology.dilation
            return assumed(value / by, low=low / by, high=high / by, source=source)

        return Costs(
            round_s=passed(0.5e-3, low=0.1e-3, high=2e-3, source="gloo between namespaces"),
            link_factor=link,
            inside_round_s=passed(0.1e-3, low=0.03e-3, high=0.3e-3, source="gloo within a namespace"),
            inside_byte_s=passed(0.0, low=0.0, high=2e-9, source="loopback costs processors alone"),
            message_s=passed(30e-6, low=10e-6, high=0.2e-3, source="gloo on two shared cores"),
            byte_s=passed(3e-9, low=1e-9, high=6e-9, source="two shared cores"),
            wake_s=passed(30e-6, low=15e-6, high=45e-6, source="two shared cores"),
            piece_s=passed(0.1e-3, low=0.03e-3, high=0.5e-3, source="timers of a machine with other work"),
            step_s=passed(1e-3, low=0.3e-3, high=4e-3, source="optimizer and logs"),
        )
    return Costs(
        round_s=assumed(30e-6, low=5e-6, high=100e-6, source="TCP within a rack"),
        link_factor=link,
        inside_round_s=assumed(20e-6, low=3e-6, high=100e-6, source="TCP within a host"),
        inside_byte_s=assumed(1e-10, low=0.1e-10, high=2e-10, source="10 GB/s within a host (PCIe 3 x16)"),
        message_s=assumed(0.0, low=0.0, high=0.0, source="hosts are machines of their own"),
        byte_s=assumed(0.0, low=0.0, high=0.0, source="hosts are machines of their own"),
        wake_s=assumed(0.0, low=0.0, high=0.0, source="links are hardware"),
        piece_s=assumed(0.0, low=0.0, high=0.1e-3, source="no emulated pieces but timers"),
        step_s=assumed(1e-3, low=0.3e-3, high=4e-3, source="optimizer and logs"),
    )


def fitted(timed: Sequence[Timed], base: Costs, *, source: str) -> Costs:
    """Fit the costs of communication in `base` to these messages.

    The fit is least squares of logarithms, robust to single outliers. Intervals are 95 % percentile intervals over
    resampled messages. StoreError where there are too few.
    """
    rows = np.array([_row(one) for one in timed]).reshape(-1, len(FITTED))
    seconds = np.array([one.seconds for one in timed])
    known = np.flatnonzero(rows.any(axis=0))
    if len(timed) < (least := max(LEAST, len(known) + 1)):
        raise StoreError(
            f"{source}: {len(timed)} timed messages, and {len(known)} quantities to fit",
            hint=f"a run of `collective` with {least} sizes or more, of which the smallest are a few kB",
        )
    behind_s = np.array([one.rounds * one.network.behind_s for one in timed])
    likely = _solved(rows, behind_s, seconds, known)
    draw = np.random.default_rng(1)
    again = []
    for _ in range(_RESAMPLES):
        some = draw.integers(0, len(rows), len(rows))
        told = rows[some].any(axis=0)
        solved = _solved(rows[some], behind_s[some], seconds[some], np.flatnonzero(told))
        again.append(np.where(told, solved, likely))
    low, high = np.percentile(again, [2.5, 97.5], axis=0)
    off = np.log(_seconds(rows, behind_s, likely) / seconds)
    found = {
        FITTED[place]: Quantity(
            value=float(likely[place]),
            low=float(min(low[place], likely[place])),
            high=float(max(high[place], likely[place])),
            source=f"measured: {source}",
        )
        for place in known
    }
    return replace(
        base,
        **found,
        fits=tuple({FITTED[place]: float(one[place]) for place in known} for one in again),
        scatter=_SD_OF_MEDIAN * float(np.median(np.abs(off))),
    )


def _seconds(rows: Floats, behind_s: Floats, costs: Floats) -> Floats:
    """Return how long messages take at these costs, as `network_costs.moving` has it."""
    rounds_s, link_s, inside_rounds_s, inside_s, messages_s, bytes_s, wakes_s = (rows * costs).T
    held_up_s = np.maximum(link_s, np.minimum(bytes_s + wakes_s, link_s + behind_s))
    return np.asarray(np.maximum(rounds_s + inside_rounds_s + messages_s, held_up_s) + inside_s)


def _row(one: Timed) -> list[float]:
    """Return the factors of each of `FITTED` in the time of a message (`network_costs.moving`)."""
    net = one.network
    rounds = (one.rounds, 0) if net.crosses(one.pairs) else (0, one.rounds)
    processors = [net.messages(one.pairs, one.rounds), net.shared(one.pairs), net.woken(one.pairs, one.rounds)]
    return [rounds[0], net.link_s(one.pairs), rounds[1], net.inside(one.pairs), *processors]


def _solved(rows: Floats, behind_s: Floats, seconds: Floats, known: Places) -> Floats:
    """Solve for the costs with which rows take their seconds; those of columns that are zero throughout are 0.

    `behind_s` is by how much processors hold up each row at most. Each cost begins as high as the quickest message lets
    it: no step leads from a bound that no message reaches.
    """
    from scipy.optimize import least_squares

    def costs_of(free: Floats) -> Floats:
        full = np.zeros(rows.shape[1])
        full[known] = np.exp(free)
        return full

    def apart(free: Floats) -> Floats:
        return np.asarray(np.log(_seconds(rows, behind_s, costs_of(free)) / seconds))

    low, high = _BOUNDS[known].T
    columns = rows.T[known]
    start = np.log([np.min(seconds[column > 0] / column[column > 0]) for column in columns])
    start, bounds = np.clip(start, np.log(low), np.log(high)), np.log((low, high))
    return costs_of(least_squares(apart, start, bounds=tuple(bounds), loss="soft_l1", f_scale=0.1).x)


def all_reduced(groups: Iterable[Sequence[int]], size: float) -> tuple[Pairs, int]:
    """Return bytes and rounds of ring all-reduces in these groups at once."""
    made = [list(members) for members in groups]
    rings = (rank_traffic.ring_of(members, 2 * (len(members) - 1) / len(members) * size) for members in made)
    return rank_traffic.summed(rings), 2 * (max(map(len, made)) - 1)


def costs(results: Path, topology: Topology, *, named: Sequence[Listed] = ()) -> Costs:
    """Return inputs fitted to those of the named runs that timed messages, else to all completed runs of `collective`.

    Of those not named the ones on such a testbed count. Inputs are assumed where the store has too few messages that
    torch.distributed carried. StoreError for a named run that cannot be used.
    """
    runs = [entry for entry in named if is_benchmark(entry)]
    if runs:
        return fitted([one for entry in runs for one in _timed(entry)], usual(topology), source=_names(runs))
    found = index.entries(results) if results.is_dir() else []
    return fitted_to([entry for entry in found if is_benchmark(entry) and like(entry, topology)], topology)


def fitted_to(runs: Sequence[Listed], topology: Topology) -> Costs:
    """Return inputs fitted to the usable ones of these runs of `collective`; assumed where they are too few."""
    timed, used = [], []
    for entry in runs:
        with suppress(StoreError):
            timed += list(_timed(entry))
            used.append(entry)
    base = usual(topology)
    try:
        return fitted(timed, base, source=_names(used))
    except StoreError:
        return base


def _names(runs: Sequence[Listed]) -> str:
    return ", ".join(entry.run for entry in runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")


def is_benchmark(entry: Listed) -> bool:
    """Return whether a run timed messages: a completed one of `collective`."""
    jobs = entry.manifest.jobs
    return entry.sealed and entry.outcome == "completed" and len(jobs) == 1 and jobs[0].workload == WORKLOAD


def like(entry: Listed, topology: Topology) -> bool:
    """Return whether a run was on this kind of testbed: on this machine at all, or on hosts of the same names.

    Dilated time divides costs, so that those of a run with another dilation are others.
    """
    theirs = rundir.opened(entry.path).manifest.topology
    names = {host.name for host in theirs.hosts}
    alike = theirs.kind == topology.kind and entry.manifest.dilation == topology.dilation
    return alike and (theirs.kind == "local" or names >= {host.name for host in topology.hosts})


def _timed(entry: Listed) -> Iterator[Timed]:
    """Yield each operation and size of a run with the median time over iterations and ranks.

    StoreError where it has none.
    """
    try:
        experiment = loading.sealed(entry.path)
        rows = tables.read(entry.path / "tables", "collectives").to_pylist()
    except (ConfigError, OSError) as error:
        raise StoreError(f"{entry.run}: cannot be read: {error}", hint="name another run of `collective`") from None
    topology = fitting.topology_of(experiment)
    if topology.fabric is not None:
        raise StoreError(
            f"{entry.run}: its messages crossed a fabric, and rounds are fitted to two links",
            hint="name a run of `collective` on hosts of one switch",
        )
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
        parts = parts_of(config.skew, len(job.ranks) // config.groups)
        pairs, rounds = exchanged(operation, len(job.ranks), size, groups=config.groups, backend=backend, parts=parts)
        yield Timed(pairs=pairs, rounds=rounds, network=net, seconds=median(times))
