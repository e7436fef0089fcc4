"""Benchmark of collective operations over message sizes, on gloo, NCCL or MPI: time and bandwidth of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Size
from orchestrator.core.opendata import JsonObject
from orchestrator.parts.launch import Launch, Line, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput, Row, gathered
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import Job, Topology
from workloads import nccl_tests
from workloads.common import (
    collective_tasks,
    environments,
    footprints,
    mpi_ranks,
    nccl_evidence,
    rank_traffic,
    replicated_tasks,
    shipping,
    torch_ranks,
)
from workloads.common.collective_tasks import Done, Ready
from workloads.common.collective_traffic import bus_factor, exchanged, members
from workloads.common.mpi_ranks import Mpi
from workloads.common.placement import placement_problems, ranks
from workloads.common.skew import Skew, busiest, parts_of
from workloads.common.torch_ranks import TorchConfig
from workloads.nccl_tests import Benchmark
from workloads.rank import collective_passes as benchmark
from workloads.rank.mpi.collective_mpi import MpiCollectiveSettings as MpiSettings
from workloads.rank.torch.collective import CollectiveSettings
from workloads.readers import lines
from workloads.readers.iteration_logs import LOG as ITERATIONS
from workloads.readers.iteration_logs import read_training

NAME = "collective"

LOG = "collectives.jsonl"

_MPI_PROGRAM = "mpi.collective_mpi"

Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-receive"]


class Config(TorchConfig):
    """A benchmark of collective operations; an iteration is one pass over all operations and sizes."""

    backend: Literal["auto", "gloo", "nccl", "mpi", "nccl-tests"] = "auto"  # type: ignore[assignment]
    """What carries out the operations. `mpi`: Open MPI between the memories of hosts, each operation by one algorithm
    whatever its size. `nccl-tests`: NVIDIA's programs of that name, which time NCCL themselves, with Open MPI to meet
    by. `auto`: nccl where each rank has a GPU of its own, else gloo."""

    algorithm: mpi_ranks.Algorithm | None = None
    """How Open MPI reduces over all ranks. Default: `ring`. Its all-gather and reduce-scatter are rings, its all-to-all
    goes pair by pair, its broadcast along a binomial tree."""

    transport: Literal["auto", "tcp", "rdma"] = "auto"
    """What nccl and MPI send over: `tcp` sockets on the data-plane device, `rdma` (InfiniBand or RoCE) and nothing
    else, or the default (`auto`): what nccl finds best, and `tcp` for MPI. Gloo knows TCP alone, and ranks of
    nccl-tests meet by it."""

    rdma_device: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.^=:,-]+$")
    """RDMA devices that may be used, as NCCL_IB_HCA (such as `=mlx5_0:1`) or, for MPI, UCX_NET_DEVICES (`mlx5_0:1`)
    names them. Default: those that are found."""

    python: str | None = Field(default=None, min_length=1)
    """Python interpreter that has mpi4py, for `backend: mpi`, the same path on each host. Default: on containers of
    this machine the one that `orch prepare` built, else the host's `python`."""

    mpirun: str | None = Field(default=None, min_length=1)
    """The program `mpirun` on the hosts, where it is not on the PATH; its `orted` lies beside it. In the family of RHEL
    the package openmpi has it as /usr/lib64/openmpi/bin/mpirun."""

    nccl_tests: str | None = Field(default=None, min_length=1)
    """Folder on the hosts with the programs of nccl-tests, built with MPI=1, where they are not on the PATH."""

    operations: tuple[Operation, ...] = Field(default=("all-reduce",), min_length=1)
    """The operations, in the order in which each iteration passes over them; with nccl-tests a single one. In
    `send-receive` each rank sends to the next one and receives from the one before it, as in nccl-tests."""

    groups: int = Field(default=1, ge=1)
    """Groups of ranks that each do every operation at the same time, such as the replicas of a model: neighbours in
    rank order, so `hosts` says which links they share."""

    sizes: tuple[Annotated[Size, Field(gt=0)], ...] = Field(default=(1e6, 10e6, 100e6), min_length=1)
    """Message sizes as nccl-tests counts them, divided by the testbed's scale; rounded up to a float for each rank. For
    nccl-tests itself each is the same multiple of the one before."""

    skew: Skew | None = None
    """How uneven an all-to-all is, as that of experts whose popularity differs: `{zipf: 0.5}`, or `{matrix: FILE}` of
    recorded tokens. `sizes` are then what a rank sends on average. Default: even. For gloo and nccl."""

    repeats: int = Field(default=3, ge=1)
    """How often an operation is done back to back; what is told is the mean time of one. With nccl-tests twice: with
    the result beside the message, and in its place."""


def own_pace(config: Config) -> str:
    return "a program of nccl-tests" if config.backend == "nccl-tests" else ""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = placement_problems(config.hosts, topology)
    if found:
        return found
    found = _foreign_options(config)
    found += _group_problems(config, len(ranks(config.hosts, topology)))
    found += _skew_problems(config, len(ranks(config.hosts, topology)) // config.groups)
    if config.backend == "mpi":
        return [*found, *mpi_ranks.problems(config.hosts or []), *torch_ranks.transport_problems(config, "mpi")]
    if config.backend == "nccl-tests":
        return [
            *found,
            *nccl_tests.problems(config.operations, config.sizes, ranks(config.hosts, topology)),
            *mpi_ranks.problems(config.hosts or []),
            *torch_ranks.transport_problems(config, "nccl"),
        ]
    return found + torch_ranks.backend_problems(config, topology)


def _group_problems(config: Config, count: int) -> list[Problem]:
    """Find groups that so many ranks cannot form, and options that only torch.distributed has."""
    found = []
    if count % config.groups or count // config.groups < 2:
        message = f"{count} ranks do not make {config.groups} groups of the same size, of two ranks or more"
        found.append(Problem(at=("groups",), message=message, accepted=f"a divisor of {count}, at most {count // 2}"))
    if config.backend in ("mpi", "nccl-tests"):
        if config.groups > 1:
            message = f"{config.backend} works on all ranks at once"
            found.append(Problem(at=("groups",), message=message, accepted="1, or backend: gloo or nccl"))
        if "send-receive" in config.operations:
            message = f"is not among the operations of {config.backend} here"
            found.append(Problem(at=("operations",), message=message, accepted="another one, or backend: gloo or nccl"))
    return found


def _skew_problems(config: Config, own: int) -> list[Problem]:
    """Find a skew that is of no operation, or not of groups of so many ranks."""
    if config.skew is None:
        return []
    if "all-to-all" not in config.operations or config.backend in ("mpi", "nccl-tests"):
        accepted = "operations with all-to-all, and backend: gloo or nccl"
        return [Problem(at=("skew",), message="is of an all-to-all of gloo or nccl alone", accepted=accepted)]
    try:
        parts_of(config.skew, own)
    except ConfigError as error:
        return [Problem(at=("skew",), message=error.message, accepted=error.hint or "a file of numbers")]
    return []


def _foreign_options(config: Config) -> list[Problem]:
    """Find options that the backend does not have."""
    of_mpi, of_tests = ("mpi",), ("nccl-tests",)
    given = {
        "algorithm": (config.algorithm, of_mpi),
        "python": (config.python, of_mpi),
        "mpirun": (config.mpirun, of_mpi + of_tests),
        "nccl_tests": (config.nccl_tests, of_tests),
    }
    return [
        Problem(
            at=(name,), message=f"is for {' and '.join(owners)} alone", accepted=f"backend: {owners[0]} beside {name}"
        )
        for name, (value, owners) in given.items()
        if value is not None and config.backend not in owners
    ]


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return a launch for each rank; training and rendezvous flows stand on that of rank 0."""
    parts = parts_of(config.skew, len(job.ranks) // config.groups)
    passes: benchmark.PassSettings = {
        "operations": config.operations,
        "sizes": [max(1, round(size / topology.scale)) for size in config.sizes],
        "repeats": config.repeats,
        "link_bps": [topology.link(rank.node).rate / topology.wire_scale for rank in job.ranks],
        "busiest": None if parts is None else busiest(parts),
    }
    if config.backend == "mpi":
        return _mpi_launches(config, job, topology, passes)
    if config.backend == "nccl-tests":
        return nccl_tests.launches(_benchmark(config, job, topology), job, topology)
    settings: CollectiveSettings = {
        **torch_ranks.settings(config, job, seed=seed),
        **passes,
        "groups": members(len(job.ranks), config.groups),
        "parts": parts,
    }
    return torch_ranks.launches(
        config,
        job,
        topology,
        program="torch.collective",
        settings=settings,
        footprint=footprints.unknown(len(job.ranks)),
    )


def _mpi_launches(config: Config, job: Job, topology: Topology, passes: benchmark.PassSettings) -> list[Launch]:
    """Return launches of mpirun and its daemons, then one for each rank."""
    mpi = _mpi(config)
    settings: MpiSettings = {**passes, "trace": config.trace, "join_s": mpi_ranks.MEET_S}
    files = shipping.files(_MPI_PROGRAM, settings=settings)
    return [
        *mpi_ranks.launches(mpi, job, topology),
        *(
            Launch(
                name=mpi_ranks.rank_name(job, rank.rank),
                node=rank.node,
                role="rank",
                argv=shipping.argv(environments.interpreter(config.python, "torch", node, topology), _MPI_PROGRAM),
                env={
                    "RANK": str(rank.rank),  # for messages of our own
                    "OMP_NUM_THREADS": str(config.threads),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **mpi_ranks.rank_env(mpi, job, rank, topology),
                    **config.env,
                },
                files=files,
                ready=Line("^ready"),
                ready_within_s=torch_ranks.READY_S,
                gate=True,
                follow=ITERATIONS,
                job=job.name,
                rank=rank.rank,
                footprint=footprints.unknown(len(job.ranks)),
            )
            for rank in job.ranks
            for node in (topology.node(rank.node),)
        ),
    ]


def _mpi(config: Config) -> Mpi:
    return Mpi(
        mpirun=config.mpirun or "mpirun",
        algorithm=config.algorithm or "ring",
        transport=config.transport,
        rdma_device=config.rdma_device,
        env=config.env,
    )


def _benchmark(config: Config, job: Job, topology: Topology) -> Benchmark:
    return Benchmark(
        operation=config.operations[0],
        sizes=nccl_tests.sizes(config.sizes, len(job.ranks), topology.scale),
        repeats=config.repeats,
        folder=config.nccl_tests,
        mpirun=config.mpirun or "mpirun",
        transport=config.transport,
        rdma_device=config.rdma_device,
        evidence=nccl_evidence.env(config),
        env=config.env,
    )


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    if config.backend == "mpi":
        remedy = environments.remedy("torch", topology)
        return [
            *environments.requirements(
                ("numpy", "mpi4py"), job.nodes, topology, given=config.python, environment="torch", needed_by=NAME
            ),
            *mpi_ranks.requirements(_mpi(config), job, remedy=remedy, needed_by=NAME),
        ]
    if config.backend == "nccl-tests":
        return nccl_tests.requirements(_benchmark(config, job, topology), job, topology, needed_by=NAME)
    return torch_ranks.requirements(job, topology, needed_by=NAME)


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return the bytes that the backend's algorithms send in one pass over all operations and sizes."""
    world = len(job.ranks)
    if config.backend == "nccl-tests":
        backend, times = "nccl", nccl_tests.operations_in_a_pass(config.repeats)
        sizes = nccl_tests.sizes(config.sizes, world, topology.scale)
    else:
        backend = "mpi" if config.backend == "mpi" else torch_ranks.backend_of(config, job.ranks)
        own = world // config.groups
        sizes, times = tuple(_whole(asked / topology.scale, own) for asked in config.sizes), config.repeats
    once = rank_traffic.summed(
        exchanged(
            operation,
            world,
            size,
            groups=config.groups,
            backend=backend,
            algorithm=config.algorithm,
            parts=parts_of(config.skew, world // config.groups),
        )[0]
        for operation in config.operations
        for size in sizes
    )
    total = {pair: sent * times for pair, sent in once.items()}
    reduced = f", all-reduce by {config.algorithm}" if config.algorithm else ""
    at_once = f" in {config.groups} groups at once" if config.groups > 1 else ""
    uneven = f", all-to-all by {_skewed(config.skew)}" if config.skew is not None else ""
    source = f"one pass of {', '.join(config.operations)}: rings, mesh and binomial tree on {backend}"
    source += f"{reduced}{uneven}{at_once}"
    return rank_traffic.theory(job, total, parameters=0, source=source)


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph | str:
    """Return a pass over all operations and sizes as tasks, each operation once all ranks of its group are ready."""
    if config.backend == "nccl-tests":
        return "which algorithms NCCL's own programs choose is not known; accepted: backend gloo, nccl or mpi"
    world = len(job.ranks)
    backend = "mpi" if config.backend == "mpi" else torch_ranks.backend_of(config, job.ranks)
    own = world // config.groups
    graph = TaskGraph(ranks=world)
    last = list(graph.begins)
    for operation in config.operations:
        for asked in config.sizes:
            size = _whole(asked / topology.scale, own)
            for _ in range(config.repeats):
                for group in members(world, config.groups):
                    ready = {rank: (last[rank],) for rank in group}
                    done = _operation(
                        graph,
                        operation,
                        group,
                        size,
                        ready,
                        backend=backend,
                        algorithm=config.algorithm,
                        skew=config.skew,
                    )
                    for rank in group:
                        last[rank] = graph.join(rank, (last[rank], *done[rank]))
    graph.end([(task,) for task in last])
    return graph


def _operation(
    graph: TaskGraph,
    operation: Operation,
    group: Sequence[int],
    size: float,
    ready: Ready,
    *,
    backend: str,
    algorithm: mpi_ranks.Algorithm | None,
    skew: Skew | None,
) -> Done:
    if backend == "mpi" and operation == "all-reduce":
        return replicated_tasks.by_mpi(graph, algorithm or "ring", len(group), size, ready)
    within, _ = exchanged(operation, len(group), size, groups=1, backend=backend, parts=parts_of(skew, len(group)))
    pairs = {(group[src], group[dst]): sent for (src, dst), sent in within.items()}
    return collective_tasks.collective(graph, operation, group, size, ready, backend=backend, pairs=pairs)


def _skewed(skew: Skew) -> str:
    return f"Zipf's law, exponent {skew.zipf:g}" if skew.matrix is None else str(skew.matrix)


def _whole(size: float, world: int) -> int:
    """Return the bytes of a message of that size, rounded up to whole floats of each rank."""
    return 4 * world * max(1, math.ceil(max(1, round(size)) / (4 * world)))


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read the tables of a rank, and `collectives`; damaged lines are passed over."""
    rows = (
        {"job": output.job or "", "rank": output.rank if output.rank is not None else -1, "window_name": "", **row}
        for row in lines.records(output.folder / LOG, output.unread, _row)
    )
    return {**read_training(output), "collectives": gathered("collectives", rows)}


def _row(record: JsonObject) -> Row | None:
    """Return the record as a row, or None where it is not a complete one."""
    if not all(lines.is_whole(record.get(name)) for name in ("iteration", "bytes", "repeats", "world")):
        return None
    seconds, link, operation = record.get("seconds"), record.get("link_bps"), str(record.get("operation"))
    if not isinstance(seconds, float) or not lines.is_time(seconds) or not isinstance(link, int | float):
        return None
    # Rates are shares of the link and means over repeats, and nothing of them may be divided by nothing.
    if (
        seconds <= 0
        or not lines.is_real(link)
        or link <= 0
        or not all(record[name] for name in ("bytes", "repeats", "world"))
    ):
        return None
    busy = record.get("busiest", bus_factor(str(operation), record["world"]))
    if not isinstance(busy, int | float) or not lines.is_real(busy) or busy < 0:
        return None
    algorithm = record["bytes"] * 8 / seconds
    if not lines.is_text(operation) or not lines.is_real(algorithm):
        return None
    return {
        "iteration": record["iteration"],
        "operation": operation,
        "bytes": record["bytes"],
        "repeats": record["repeats"],
        "seconds": seconds,
        "algorithm_bps": algorithm,
        "bus_bps": algorithm * busy,
        "link_bps": float(record["link_bps"]),
    }
