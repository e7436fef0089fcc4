"""PyTorch DistributedDataParallel over gloo or NCCL, with real or emulated compute."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from orchestrator.launch import Flow, Launch, Line, Requirement
from orchestrator.protocols import Problem, Theory
from orchestrator.rows import Columns, Home
from orchestrator.topology import RENDEZVOUS_PORT, Job, Rank, Topology
from orchestrator.units import Duration, Mistake, Size
from workloads import catalog
from workloads.iterations import LOG, read_iterations
from workloads.placement import WorkloadConfig, placement_problems, ranks

NAME = "ddp"

_TRAINING = Path(__file__).parent / "training"
_PROGRAM = "ddp.py"
_SIBLINGS = ("emulated.py", "iteration_log.py", "lifecycle.py", "vision.py")

RENDEZVOUS_S = 90.0  # for all ranks to import torch and to meet
COLLECTIVE_S = 900.0  # published iterations under burst traffic last up to 183 s
READY_S = 120.0

BYTES_PER_PARAMETER = 4  # float32


def _known_model(name: str) -> str:
    if name not in catalog.names():
        raise Mistake(f"no model {name!r}", accepted=f"one of {', '.join(catalog.names())}")
    return name


ModelName = Annotated[
    str, AfterValidator(_known_model), WithJsonSchema({"type": "string", "enum": list(catalog.names())})
]


class Config(WorkloadConfig):
    """A training with PyTorch DistributedDataParallel: all ranks hold the model and average their gradients."""

    model: ModelName
    """The model that is trained; its layers, sizes and calibrated time are in `workloads/models`."""

    batch: int | None = Field(default=None, ge=1)
    """Samples per rank and iteration. Default: the batch that the model's compute time was calibrated with."""

    compute: Literal["emulated", "real"] = "emulated"
    """`emulated`: layers sleep for their share of the compute time, real gradients travel. `real`: torchvision's model
    is trained on synthetic images."""

    compute_time: Duration | None = None
    """Emulated compute: time of the forward and the backward pass of one iteration on the accelerator that is modelled.
    Default: the model's calibrated time, times batch over the batch it was calibrated with."""

    bucket: Annotated[Size, Field(gt=0)] = 25 * 2.0**20
    """Gradients are reduced in buckets of at least this size, the first one as well. Divided by the testbed's scale."""

    backend: Literal["auto", "gloo", "nccl"] = "auto"
    """What carries the gradients. `auto`: nccl where each rank has a GPU of its own, else gloo."""

    image: int = Field(default=224, ge=32)
    """Real compute: edge of the square input images in pixels."""

    threads: int = Field(default=1, ge=1)
    """CPU threads that each rank may compute with."""

    env: dict[str, str] = Field(default_factory=dict)
    """More environment variables for each rank, such as NCCL_IB_HCA; they win over those that are set here."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = placement_problems(config.hosts, topology)
    if config.compute == "real":
        found += _real_problems(config, topology)
    elif _compute_time(config) is None:
        found.append(
            Problem(
                at=("compute_time",),
                message=f"{config.model} has no calibrated compute time",
                accepted="compute_time: the time of one forward and backward pass, such as 150ms",
            )
        )
    if not found and config.backend == "nccl":
        found += [
            Problem(
                at=("backend",),
                message=f"nccl needs a GPU for each rank, and rank {rank.rank} on {rank.node} has none",
                accepted="gloo, or hosts whose testbed entry has as many gpus as they have ranks",
            )
            for rank in ranks(config.hosts, topology)
            if rank.device == "cpu"
        ]
    return found


def _real_problems(config: Config, topology: Topology) -> list[Problem]:
    found = []
    if topology.scale != 1:
        found.append(
            Problem(
                at=("compute",),
                message=f"real gradients cannot be divided by the testbed's scale of {topology.scale}",
                accepted="compute: emulated, or a testbed with scale: 1",
            )
        )
    if not catalog.load(config.model).torchvision:
        known = [name for name in catalog.names() if catalog.load(name).torchvision]
        found.append(
            Problem(
                at=("model",),
                message=f"{config.model} has no real compute",
                accepted=f"compute: emulated, or one of {', '.join(known)}",
            )
        )
    if config.compute_time is not None:
        found.append(
            Problem(
                at=("compute_time",),
                message="real compute takes the time that it takes",
                accepted="no compute_time, or compute: emulated",
            )
        )
    return found


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """A launch for each rank; training and rendezvous flows stand on that of rank 0."""
    backend = _backend(config, job.ranks)
    master = topology.node(job.ranks[0].node).address
    port = RENDEZVOUS_PORT + job.index
    program = json.dumps(_program_config(config, job, topology, seed=seed, backend=backend)).encode()
    files: dict[str, bytes | Path] = {name: _TRAINING / name for name in (_PROGRAM, *_SIBLINGS)}
    started = []
    for rank in job.ranks:
        node = topology.node(rank.node)
        env = {
            "RANK": str(rank.rank),
            "WORLD_SIZE": str(len(job.ranks)),
            "LOCAL_RANK": str(rank.local_rank),
            "MASTER_ADDR": master,
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": str(config.threads),
            "PYTHONDONTWRITEBYTECODE": "1",
            "GLOO_SOCKET_IFNAME": node.device,
            **({"NCCL_SOCKET_IFNAME": node.device} if backend == "nccl" else {}),
            **config.env,
        }
        started.append(
            Launch(
                name=f"{job.name}-rank{rank.rank}",
                node=rank.node,
                role="rank",
                argv=(node.python, "-u", _PROGRAM, "--config", "config.json"),
                env=env,
                files={**files, "config.json": program},
                ready=Line("^ready"),
                ready_within_s=READY_S,
                gate=True,
                follow=LOG,
                job=job.name,
                rank=rank.rank,
                flows=_flows(job, topology, port=port) if rank.rank == 0 else (),
            )
        )
    return started


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    modules = {"torch": "pip install torch==2.13.0"}
    if config.compute == "real":
        modules["torchvision"] = "pip install --no-deps torchvision pillow"
    needed = []
    for name in job.nodes:
        node = topology.node(name)
        needed += [
            Requirement(node=name, kind="module", what=module, python=node.python, remedy=remedy, needed_by=NAME)
            for module, remedy in modules.items()
        ]
        needed.append(
            Requirement(
                node=name,
                kind="device",
                what=node.device,
                remedy=f"name the data-plane device of {name} in the testbed file",
                needed_by=NAME,
            )
        )
    return needed


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Bytes that a rank sends over the network in a ring all-reduce of all gradients: 2 (N - 1) / N times their size.

    Between two ranks of one host they do not cross the network: of the ring's N edges only those between hosts count,
    so that this is the mean over ranks, as it is measured.
    """
    parameters = catalog.load(config.model).parameters // topology.scale
    count = len(job.ranks)
    crossing = sum(rank.node != job.ranks[i - 1].node for i, rank in enumerate(job.ranks))
    rest = "; without DDP's broadcast of buffers" if config.compute == "real" else ""
    if crossing < count:
        rest = f", {crossing} of {count} ring edges between hosts{rest}"
    return Theory(
        bytes_per_iteration=2 * (count - 1) / count * parameters * BYTES_PER_PARAMETER * crossing / count,
        parameters=parameters,
        source=f"ring all-reduce, 2 (N-1)/N x parameters x 4 bytes (Salamy, eq. 3.1){rest}",
    )


def read(home: Home) -> Mapping[str, Columns]:
    return read_iterations(home)


def _batch(config: Config) -> int:
    return config.batch if config.batch is not None else catalog.load(config.model).batch


def _compute_time(config: Config) -> float | None:
    """Seconds of emulated compute in an iteration; None where they are neither given nor calibrated."""
    if config.compute_time is not None:
        return config.compute_time
    return catalog.compute_time(catalog.load(config.model), _batch(config))


def _backend(config: Config, placed: tuple[Rank, ...]) -> Literal["gloo", "nccl"]:
    if config.backend != "auto":
        return config.backend
    return "gloo" if any(rank.device == "cpu" for rank in placed) else "nccl"


def _program_config(config: Config, job: Job, topology: Topology, *, seed: int, backend: str) -> dict[str, object]:
    """What the rank program is told; the same for all ranks."""
    real = config.compute == "real"
    compute_s = _compute_time(config)
    layers = (
        []
        if real or compute_s is None
        else catalog.emulate(catalog.load(config.model), compute_s=compute_s, scale=topology.scale)
    )
    # Gloo takes gradients from the CPU; only where real compute has a GPU for each rank does it run there.
    on_gpu = backend == "nccl" or (real and all(rank.device != "cpu" for rank in job.ranks))
    return {
        "model": config.model,
        "batch": _batch(config),
        "image": config.image,
        "compute": config.compute,
        "layers": [astuple(layer) for layer in layers],
        "bucket_mib": config.bucket / topology.scale / 2**20,
        "backend": backend,
        "device": "cuda" if on_gpu else "cpu",
        "seed": seed,
        "rendezvous_s": RENDEZVOUS_S,
        "collective_s": COLLECTIVE_S,
    }


def _flows(job: Job, topology: Topology, *, port: int) -> tuple[Flow, ...]:
    """The rendezvous store at rank 0, then the gradients between each two hosts of the job."""
    addresses = [topology.node(name).address for name in job.nodes]
    store = Flow(kind="control", name=job.name, src=addresses[0], port=port)
    gradients = [Flow(kind="training", name=job.name, src=src, dst=dst) for src, dst in combinations(addresses, 2)]
    return (store, *gradients)
