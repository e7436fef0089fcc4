"""Launch ranks of torch.distributed: the options of every workload on it, its launches, and what they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field

from orchestrator.parts.launch import Footprint, Launch, Line, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.theory import Spread
from orchestrator.parts.topology import RENDEZVOUS_PORT, Job, Node, Rank, Topology
from workloads.common import environments, nccl_evidence, shipping
from workloads.common.nccl_evidence import NcclConfig
from workloads.common.placement import ranks
from workloads.common.rank_traffic import flows
from workloads.rank.torch.program import TorchSettings
from workloads.readers.iteration_logs import LOG

RENDEZVOUS_S = 90.0  # for all ranks to import torch and to meet
COLLECTIVE_S = 900.0  # published iterations under burst traffic last up to 183 s
READY_S = 120.0


class TorchConfig(NcclConfig):
    """Options of every workload on torch.distributed."""

    backend: Literal["auto", "gloo", "nccl"] = "auto"
    """What carries the tensors. `auto`: nccl where each rank has a GPU of its own, else gloo."""

    transport: Literal["auto", "tcp", "rdma"] = "auto"
    """What nccl sends over: `tcp` sockets on the data-plane device, `rdma` (InfiniBand or RoCE) and nothing else, or
    what it finds best (`auto`). Gloo knows TCP alone."""

    rdma_device: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.^=:,-]+$")
    """RDMA devices that nccl may use, as NCCL_IB_HCA names them, such as `=mlx5_0:1`. Default: those of the rails where
    the inventory names them, else those it finds."""

    threads: int = Field(default=1, ge=1)
    """CPU threads that each rank may compute with."""

    trace: bool = True
    """Whether each rank records when it computes and when each of its communications begins and ends."""


def backend_problems(config: TorchConfig, topology: Topology) -> list[Problem]:
    """Find why backend or transport cannot be the requested ones; the placement must be without problems."""
    placed = ranks(config.hosts, topology)
    found = transport_problems(config, backend_of(config, placed))
    if config.backend != "nccl":
        return found
    return found + gpu_problems(placed, at="backend", asked="nccl", instead="gloo")


def gpu_problems(placed: Iterable[Rank], *, at: str, asked: str, instead: str) -> list[Problem]:
    """Find ranks without a GPU of their own, where `asked` stands `at` this option and needs one.

    `instead` is an alternative that needs none.
    """
    return [
        Problem(
            at=(at,),
            message=f"{asked} needs a GPU for each rank, and rank {rank.rank} on {rank.node} has none",
            accepted=f"{instead}, or hosts whose testbed entry has as many gpus as they have ranks",
        )
        for rank in placed
        if rank.device == "cpu"
    ]


def transport_problems(config: TorchConfig, backend: Literal["gloo", "nccl", "mpi"]) -> list[Problem]:
    """Find a transport that the backend lacks, and a device for one that is not used."""
    found = []
    if config.transport == "rdma" and backend == "gloo":
        message = "gloo sends over TCP alone"
        found.append(Problem(at=("transport",), message=message, accepted="tcp, or ranks on GPUs with nccl"))
    if config.rdma_device is not None and config.transport != "rdma":
        message = "names what a transport other than rdma does not use"
        found.append(Problem(at=("rdma_device",), message=message, accepted="transport: rdma beside it"))
    return found + nccl_evidence.problems(config, used=backend == "nccl", accepted="ranks on GPUs with nccl")


def backend_of(config: TorchConfig, placed: tuple[Rank, ...]) -> Literal["gloo", "nccl"]:
    """Return the backend that these ranks use."""
    if config.backend != "auto":
        return config.backend
    return "gloo" if any(rank.device == "cpu" for rank in placed) else "nccl"


def spread(config: TorchConfig, job: Job, *, traced: bool) -> Spread:
    """Return how the collectives of a job's one process group share rails; gloo's order is known where `traced`."""
    if backend_of(config, job.ranks) == "nccl":
        return "even"
    return "turns" if traced else ""


def settings(config: TorchConfig, job: Job, *, seed: int, on_gpu: bool | None = None) -> TorchSettings:
    """Return settings for the programs of all such workloads.

    `on_gpu` overrides the default, by which ranks compute on the GPU with nccl alone.
    """
    backend = backend_of(config, job.ranks)
    return {
        "backend": backend,
        "device": "cuda" if (backend == "nccl" if on_gpu is None else on_gpu) else "cpu",
        "seed": seed,
        "trace": config.trace,
        "rendezvous_s": RENDEZVOUS_S,
        "collective_s": COLLECTIVE_S,
    }


def launches(
    config: TorchConfig, job: Job, topology: Topology, *, program: str, settings: TorchSettings, footprint: Footprint
) -> list[Launch]:
    """Return a launch for each rank of `program`; training and rendezvous flows stand on that of rank 0."""
    port = RENDEZVOUS_PORT + job.index
    files = shipping.files(program, settings=settings)
    started = []
    for rank in job.ranks:
        node = topology.node(rank.node)
        env = {
            "RANK": str(rank.rank),
            "WORLD_SIZE": str(len(job.ranks)),
            "LOCAL_RANK": str(rank.local_rank),
            "MASTER_ADDR": topology.node(job.ranks[0].node).address,
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": str(config.threads),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environments.TORCH_FILES,
            "GLOO_SOCKET_IFNAME": ",".join(node.devices),
            **(_nccl(config, node) if settings["backend"] == "nccl" else {}),
            **config.env,
        }
        started.append(
            Launch(
                name=f"{job.name}-rank{rank.rank}",
                node=rank.node,
                role="rank",
                argv=shipping.argv(node.python, program),
                env=env,
                files=files,
                ready=Line("^ready"),
                ready_within_s=READY_S,
                gate=True,
                follow=LOG,
                job=job.name,
                rank=rank.rank,
                footprint=footprint,
                flows=flows(job, topology, port=port) if rank.rank == 0 else (),
                ports=(port,) if rank.rank == 0 else (),
            )
        )
    return started


def _nccl(config: TorchConfig, node: Node) -> dict[str, str]:
    return {**nccl(config.transport, config.rdma_device, node=node), **nccl_evidence.env(config)}


def nccl(transport: Literal["auto", "tcp", "rdma"], rdma_device: str | None, *, node: Node) -> dict[str, str]:
    """Return variables of NCCL's transport and of a node's rails, by their exact names ("=").

    The socket interfaces are those of its own rendezvous whatever carries tensors. Of several rails a ring keeps to one
    (NCCL_CROSS_NIC), since different ones need not reach each other.
    """
    env = {"NCCL_SOCKET_IFNAME": f"={','.join(node.devices)}"}
    if len(node.rails) > 1:
        env["NCCL_CROSS_NIC"] = "0"
    if transport == "tcp":
        return env | {"NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
    devices = rdma_device or (f"={','.join(node.rdma)}" if node.rdma else None)
    if devices is not None:
        env["NCCL_IB_HCA"] = devices
    return env | {"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB"} if transport == "rdma" else env


def requirements(
    job: Job, topology: Topology, *, needed_by: str, modules: Mapping[str, str] | None = None
) -> list[Requirement]:
    """Return requirements of torch and `modules` (name -> how to get it) on every node, and of data-plane devices."""
    wanted = {"torch": "pip install torch==2.13.0", **(modules or {})}
    needed = []
    for name in job.nodes:
        node = topology.node(name)
        needed += [
            Requirement(node=name, kind="module", what=module, python=node.python, remedy=remedy, needed_by=needed_by)
            for module, remedy in wanted.items()
        ]
        needed += environments.device_requirements(node, needed_by=needed_by)
    return needed
