"""Horovod on PyTorch or TensorFlow over Gloo, MPI or NCCL, each rank started by us, with emulated or real compute."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.core.fields import Duration, Size
from orchestrator.parts.launch import Launch, Line, Listening, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Bucket, Compute, Theory
from orchestrator.parts.topology import RENDEZVOUS_PORT, Job, Rank, Topology, in_url
from workloads.common import (
    collective_tasks,
    environments,
    mpi_ranks,
    nccl_evidence,
    placement,
    rank_traffic,
    real_training,
    replicated_tasks,
    shipping,
    torch_ranks,
    trained_model,
)
from workloads.common.collective_tasks import Done, Ready
from workloads.common.mpi_ranks import Mpi
from workloads.common.nccl_evidence import NcclConfig
from workloads.common.real_training import RealConfig
from workloads.common.replicated_tasks import gradients
from workloads.rank.horovod.on_torch import HorovodTorchSettings
from workloads.rank.lifecycle import LayerPlan
from workloads.readers.evaluations import read_evaluations
from workloads.readers.horovod_timeline import read_timeline
from workloads.readers.iteration_logs import LOG, read_iterations
from workloads.readers.nccl import read_nccl

NAME = "horovod"

TIMELINE = "timeline.json"
_ELEMENT_BYTES = {"none": trained_model.BYTES_PER_PARAMETER, "fp16": 2}
_PROGRAMS = {"torch": "horovod.on_torch", "tensorflow": "horovod.on_tensorflow"}
_RENDEZVOUS = "horovod.rendezvous_server"
_TIMEOUT_S = 900  # published iterations under burst traffic last up to 183 s


class Config(RealConfig, NcclConfig):
    """A training with Horovod: a background thread of each rank fuses gradients and reduces them, cycle by cycle."""

    framework: Literal["torch", "tensorflow"] = "torch"
    """What Horovod averages gradients for: PyTorch's optimizer, or TensorFlow's gradient tape in a graph."""

    controller: Literal["gloo", "mpi"] = "gloo"
    """What the ranks meet by, agree by and send gradients by: Gloo, or Open MPI, whose `mpirun` we start."""

    operations: Literal["cpu", "nccl"] = "cpu"
    """What reduces gradients: the controller, in the memory of the hosts, or NCCL on GPUs, on PyTorch, for a Horovod
    that was built with HOROVOD_GPU_OPERATIONS=NCCL (`python` names its environment)."""

    hierarchical: bool = False
    """Whether NCCL sums up within each host and Open MPI between hosts (HOROVOD_HIERARCHICAL_ALLREDUCE)."""

    algorithm: mpi_ranks.Algorithm | None = None
    """How Open MPI reduces gradients over all ranks, whatever their size. Default: `ring`, as Gloo does."""

    transport: Literal["auto", "tcp", "rdma"] = "auto"
    """What Open MPI and NCCL send over: `rdma` (InfiniBand or RoCE; Open MPI by UCX), or `tcp`, which is Open MPI's
    default; NCCL takes what it finds best. Gloo knows TCP alone."""

    rdma_device: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.:,-]+$")
    """RDMA devices that Open MPI and NCCL may use, such as `mlx5_0:1`. Default: all that they find."""

    mpirun: str = Field(default="mpirun", min_length=1)
    """The program `mpirun` on the hosts, where it is not on the PATH; its `orted` lies beside it. In the family of RHEL
    the package openmpi has it as /usr/lib64/openmpi/bin/mpirun."""

    fusion: Annotated[Size, Field(ge=0)] = 64 * 2.0**20
    """Fusion threshold: gradients that are ready in one cycle are reduced together up to this size; 0: each by itself.
    Divided by the testbed's scale."""

    cycle_time: Annotated[Duration, Field(gt=0)] = 1e-3
    """Time between two rounds in which the ranks agree on what is ready. Each costs control traffic, which no scale
    divides."""

    compression: Literal["none", "fp16"] = "none"
    """What happens to gradients before they travel: `fp16` halves their floats."""

    checksum: bool = False
    """Whether each rank logs the sum of all parameters after each iteration: equal sums show that gradients agree."""

    timeline: bool = False
    """Whether rank 0 writes Horovod's Timeline, `timeline.json` in its folder, for chrome://tracing or Perfetto; what
    it tells of measured iterations is in the run's own timeline, too, and the share of its collectives during which
    each rank computed in the table `variation`. No other rank can write one. The thread that writes polls, and keeps a
    processor busy."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    known = real_training.on_torch() if config.framework == "torch" else (real_training.SMALL,)
    found = real_training.problems(config, topology, known=known)
    hosts = config.hosts or []
    split = [i for i, name in enumerate(hosts) if i and name != hosts[i - 1] and name in hosts[:i]]
    found += [
        Problem(
            at=("hosts", index),
            message=f"Horovod numbers the ranks of a host one after the other, and {hosts[index]} was named before",
            accepted="the ranks of each host side by side, such as [h1, h1, h2, h2]",
        )
        for index in split
    ]
    if found:
        return found
    return _mpi_problems(config) + _nccl_problems(config, placement.ranks(config.hosts, topology))


def _nccl_problems(config: Config, ranks: tuple[Rank, ...]) -> list[Problem]:
    found = nccl_evidence.problems(config, used=config.operations == "nccl", accepted="operations: nccl beside it")
    if config.operations == "nccl":
        if config.framework != "torch":
            message = "gradients of emulated layers are on GPUs with PyTorch alone"
            found.append(Problem(at=("operations",), message=message, accepted="cpu, or framework: torch beside it"))
        found += torch_ranks.gpu_problems(ranks, at="operations", asked="nccl", instead="cpu")
    if config.hierarchical and (config.operations != "nccl" or config.controller != "mpi"):
        accepted = "both beside it, or no hierarchical"
        message = "requires operations: nccl and controller: mpi"
        found.append(Problem(at=("hierarchical",), message=message, accepted=accepted))
    elif config.hierarchical and len(set(Counter(rank.node for rank in ranks).values())) > 1:
        message = "Horovod sums up by hosts only where all have as many ranks"
        found.append(Problem(at=("hosts",), message=message, accepted="as many ranks on each host"))
    elif config.algorithm is not None and config.operations == "nccl" and not config.hierarchical:
        message = "NCCL chooses for itself"
        found.append(Problem(at=("algorithm",), message=message, accepted="hierarchical: true beside it"))
    return found


def _mpi_problems(config: Config) -> list[Problem]:
    if config.controller == "mpi":
        found = mpi_ranks.problems(config.hosts or [])
    else:
        by_rdma = config.transport == "rdma" and config.operations != "nccl"
        given = ("algorithm", config.algorithm), ("transport", "rdma" if by_rdma else None)
        found = [
            Problem(at=(name,), message="Gloo has one all-reduce, over TCP", accepted=f"controller: mpi beside {name}")
            for name, value in given
            if value is not None
        ]
    if config.rdma_device is not None and config.transport != "rdma":
        message = "names what a transport other than rdma does not use"
        found.append(Problem(at=("rdma_device",), message=message, accepted="transport: rdma beside it"))
    return found


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return the launches of the ranks' rendezvous, then one for each rank."""
    by_mpi = config.controller == "mpi"
    settings: HorovodTorchSettings = {
        **real_training.settings(config, topology, seed=seed),
        "compression": config.compression,
        "join_s": mpi_ranks.MEET_S if by_mpi else None,
        "device": "cuda" if config.operations == "nccl" else "cpu",
    }
    options = ("--checksum",) if config.checksum else ()
    program = _PROGRAMS[config.framework]
    files = shipping.files(program, settings=settings)
    meeting = mpi_ranks.launches(_mpi(config), job, topology) if by_mpi else [_rendezvous(config, job, topology)]
    return [
        *meeting,
        *(
            Launch(
                name=f"{job.name}-rank{rank.rank}",
                node=rank.node,
                role="rank",
                argv=shipping.argv(_python(config, rank.node, topology), program, *options),
                env=_env(config, job, rank, topology),
                files=files,
                order=0 if by_mpi else 1,
                ready=Line("^ready"),
                ready_within_s=trained_model.READY_S,
                gate=True,
                follow=LOG,
                job=job.name,
                rank=rank.rank,
                footprint=real_training.footprint(config, topology, ranks=len(job.ranks), framework=config.framework),
            )
            for rank in job.ranks
        ),
    ]


def _rendezvous(config: Config, job: Job, topology: Topology) -> Launch:
    first = topology.node(job.ranks[0].node)
    ranks_of = Counter(rank.node for rank in job.ranks)
    hosts = ",".join(f"{name}:{count}" for name, count in ranks_of.items())
    port = RENDEZVOUS_PORT + job.index
    return Launch(
        name=f"{job.name}-rendezvous",
        node=first.name,
        role="rank",
        argv=shipping.argv(
            _python(config, first.name, topology), _RENDEZVOUS, *(first.address, str(port), hosts, str(len(job.ranks)))
        ),
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        files=shipping.files(_RENDEZVOUS),
        ready=Listening(port),
        ready_within_s=trained_model.READY_S,
        job=job.name,
        flows=rank_traffic.flows(job, topology, port=port),
    )


def _env(config: Config, job: Job, rank: Rank, topology: Topology) -> dict[str, str]:
    by_mpi = config.controller == "mpi"
    env = {
        "RANK": str(rank.rank),  # for messages of our own
        **(_mpi_env(config, job, rank, topology) if by_mpi else _gloo_env(job, rank, topology)),
        "HOROVOD_FUSION_THRESHOLD": str(round(config.fusion / topology.scale)),
        "HOROVOD_CYCLE_TIME": f"{config.cycle_time * 1e3:g}",
        "OMP_NUM_THREADS": str(config.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if config.timeline:  # rank 0 alone writes; a rank that is not told of it waits for the others for ever
        env |= {"HOROVOD_TIMELINE": TIMELINE, "HOROVOD_TIMELINE_MARK_CYCLES": "1"}
    env |= environments.QUIET_TENSORFLOW if config.framework == "tensorflow" else environments.TORCH_FILES
    if config.operations == "nccl":
        env |= {
            "HOROVOD_HIERARCHICAL_ALLREDUCE": str(int(config.hierarchical)),
            **torch_ranks.nccl(config.transport, config.rdma_device, node=topology.node(rank.node)),
            **nccl_evidence.env(config),
        }
    return env | config.env


def _mpi_env(config: Config, job: Job, rank: Rank, topology: Topology) -> dict[str, str]:
    return {
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_CPU_OPERATIONS": "mpi",
        **mpi_ranks.rank_env(_mpi(config), job, rank, topology),
    }


def _mpi(config: Config) -> Mpi:
    return Mpi(
        mpirun=config.mpirun,
        algorithm=config.algorithm or "ring",
        transport=config.transport,
        rdma_device=config.rdma_device,
        env=config.env,
        tensors=config.operations == "cpu" or config.hierarchical,
    )


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    needed = environments.requirements(
        (config.framework, "horovod"),
        job.nodes,
        topology,
        given=config.python,
        environment=config.framework,
        needed_by=NAME,
    )
    if config.controller == "mpi":
        remedy = environments.remedy(config.framework, topology)
        needed += mpi_ranks.requirements(_mpi(config), job, remedy=remedy, needed_by=NAME)
    return needed


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return the bytes of the gradients alone; negotiation in each cycle uses the same connections and comes on top."""
    moved = trained_model.parameters(config, topology)
    world = len(job.ranks)
    each = _ELEMENT_BYTES[config.compression]
    exchanged = f"parameters x {each} bytes, without Horovod's control traffic, so much a cycle at any scale"
    algorithm = config.algorithm or "ring"
    if config.hierarchical:
        sent = mpi_ranks.between_hosts(job, algorithm, moved * each)
        source = f"Open MPI's {algorithm} all-reduce between hosts, after NCCL's within each, of {exchanged}"
        return rank_traffic.theory(job, sent, parameters=moved, source=source)
    if config.controller == "mpi" and config.operations == "cpu":
        sent = mpi_ranks.all_reduce(algorithm, world, moved * each)
        return rank_traffic.theory(
            job, sent, parameters=moved, source=f"Open MPI's {algorithm} all-reduce of {exchanged}"
        )
    return rank_traffic.theory(
        job,
        rank_traffic.ring(world, 2 * (world - 1) / world * moved * each),
        parameters=moved,
        source=f"ring all-reduce, 2 (N-1)/N x {exchanged} (Salamy, eq. 3.1)",
    )


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph | str:
    """Return an iteration as tasks: gradients that are ready when a cycle begins are fused and reduced together.

    A cycle begins when the one before has ended, which is reckoned by the slowest link alone.
    """
    if config.compute == "real":
        return real_training.UNPREDICTED
    return _graph(config, job, topology, trained_model.layers(config, topology))


computes = real_training.computes


def computed_tasks(config: Config, job: Job, topology: Topology, compute: Compute) -> TaskGraph | str:
    """Return the same with these times of computing."""
    layers = real_training.layers(config, topology, compute)
    return _graph(config, job, topology, layers, step_s=compute.step_s)


def _graph(
    config: Config, job: Job, topology: Topology, layers: Sequence[LayerPlan], *, step_s: float = 0.0
) -> TaskGraph | str:
    if config.hierarchical:
        return (
            "what NCCL does within a host before Open MPI reduces between them is not known; accepted: not hierarchical"
        )
    world = len(job.ranks)
    each = _ELEMENT_BYTES[config.compression]
    rate = min(topology.link(node).rate for node in job.nodes) / 8 / topology.scale
    by_mpi = config.controller == "mpi" and config.operations == "cpu"

    def reduce(graph: TaskGraph, _number: int, size: float, ready: Ready) -> Done:
        if by_mpi:
            return replicated_tasks.by_mpi(graph, config.algorithm or "ring", world, size, ready)
        return collective_tasks.ring_all_reduce(graph, range(world), size, ready)

    return replicated_tasks.overlapped(
        world,
        _fused(config, list(gradients(layers)), scale=topology.scale, element_bytes=each, second=2 / rate),
        reduce,
        forward_s=sum(forward_s for forward_s, _, _ in layers),
        backward_s=sum(backward_s for _, backward_s, _ in layers),
        step_s=step_s,
    )


def _fused(
    config: Config, ready: Sequence[tuple[float, int]], *, scale: int, element_bytes: int, second: float
) -> list[Bucket]:
    """Return what is reduced together; a byte of it is taken to need so many seconds."""
    most = config.fusion / scale
    found: list[Bucket] = []
    at_s, left = 0.0, deque(ready)
    while left:
        at_s = max(at_s + config.cycle_time, left[0][0])
        size = left.popleft()[1] * element_bytes
        while left and left[0][0] <= at_s and size + left[0][1] * element_bytes <= most:
            size += left.popleft()[1] * element_bytes
        found.append(Bucket(size=size, ready_s=min(at_s, ready[-1][0])))
        at_s += size * second
    return found


def _python(config: Config, node: str, topology: Topology) -> str:
    return environments.interpreter(config.python, config.framework, topology.node(node), topology)


def _gloo_env(job: Job, rank: Rank, topology: Topology) -> dict[str, str]:
    """Return the variables that `horovodrun` would set for a rank."""
    node = topology.node(rank.node)
    across = [other.node for other in job.ranks if other.local_rank == rank.local_rank]
    return {
        "HOROVOD_HOSTNAME": rank.node,
        "HOROVOD_RANK": str(rank.rank),
        "HOROVOD_SIZE": str(len(job.ranks)),
        "HOROVOD_LOCAL_RANK": str(rank.local_rank),
        "HOROVOD_LOCAL_SIZE": str(sum(other.node == rank.node for other in job.ranks)),
        "HOROVOD_CROSS_RANK": str(across.index(rank.node)),
        "HOROVOD_CROSS_SIZE": str(len(across)),
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": in_url(topology.node(job.ranks[0].node).address),
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(RENDEZVOUS_PORT + job.index),
        "HOROVOD_GLOO_IFACE": node.first.device,  # it takes one alone
        "HOROVOD_TIMEOUT_SECONDS": str(_TIMEOUT_S),
    }


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    tables = read_iterations(output)
    timeline = read_timeline(output, TIMELINE, tables["iterations"])
    return {**tables, **read_evaluations(output), **timeline, **read_nccl(output)}
