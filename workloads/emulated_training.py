"""What workloads share whose ranks train a model of the catalog with emulated compute, whatever their framework."""

from __future__ import annotations

from dataclasses import astuple
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from orchestrator.launch import Flow
from orchestrator.protocols import Problem, Theory
from orchestrator.topology import Job, Topology
from orchestrator.units import Duration, Mistake
from workloads import catalog
from workloads.placement import WorkloadConfig, placement_problems

TRAINING = Path(__file__).parent / "training"
SIBLINGS = ("iteration_log.py", "lifecycle.py", "stepping.py")
READY_S = 180.0  # for all ranks to import their framework and to meet
BYTES_PER_PARAMETER = 4  # float32


def _known_model(name: str) -> str:
    if name not in catalog.names():
        raise Mistake(f"no model {name!r}", accepted=f"one of {', '.join(catalog.names())}")
    return name


ModelName = Annotated[
    str, AfterValidator(_known_model), WithJsonSchema({"type": "string", "enum": list(catalog.names())})
]


class EmulatedConfig(WorkloadConfig):
    """A training whose layers sleep for their share of the compute time while real gradients travel."""

    model: ModelName
    """The model that is trained; its layers, sizes and calibrated time are in `workloads/models`."""

    batch: int | None = Field(default=None, ge=1)
    """Samples per rank and iteration. Default: the batch that the model's compute time was calibrated with."""

    compute_time: Duration | None = None
    """Time of the forward and the backward pass of one iteration on the accelerator that is modelled.
    Default: the model's calibrated time, times batch over the batch it was calibrated with."""

    threads: int = Field(default=1, ge=1)
    """CPU threads that each rank may compute with."""

    python: str | None = Field(default=None, min_length=1)
    """Python interpreter that has the framework, the same path on each host. Default: on containers of this machine the
    one that `make frameworks` built, else the host's `python`."""

    env: dict[str, str] = Field(default_factory=dict)
    """More environment variables for each rank; they win over those that are set here."""


def problems(config: EmulatedConfig, topology: Topology, *, least: int = 2) -> list[Problem]:
    """Hosts that are not there, and a model whose time nobody knows."""
    found = placement_problems(config.hosts, topology, least=least)
    if _compute_time(config) is None:
        found.append(
            Problem(
                at=("compute_time",),
                message=f"{config.model} has no calibrated compute time",
                accepted="compute_time: the time of one forward and backward pass, such as 150ms",
            )
        )
    return found


def told(config: EmulatedConfig, topology: Topology, *, seed: int) -> dict[str, Any]:
    """What every rank program is told of the model."""
    compute_s = _compute_time(config)
    if compute_s is None:
        raise AssertionError("a configuration without problems has a compute time")
    layers = catalog.emulate(catalog.load(config.model), compute_s=compute_s, scale=topology.scale)
    batch = config.batch if config.batch is not None else catalog.load(config.model).batch
    return {"layers": [astuple(layer) for layer in layers], "batch": batch, "seed": seed}


def files(program: str, *siblings: str) -> dict[str, bytes | Path]:
    """The program and what it imports, for a rank's folder."""
    return {name: TRAINING / name for name in (program, *SIBLINGS, *siblings)}


def parameters(config: EmulatedConfig, topology: Topology) -> int:
    """Parameters that are trained, scaled."""
    return catalog.load(config.model).parameters // topology.scale


def ring(config: EmulatedConfig, job: Job, topology: Topology, *, apart: str) -> Theory:
    """Bytes that a rank sends over the network in a ring all-reduce of all gradients: 2 (N - 1) / N times their size.

    Of the ring's N edges only those between hosts cross the network, so that this is the mean over ranks, as it is
    measured. `apart` says what the framework sends beside it.
    """
    moved = parameters(config, topology)
    count = len(job.ranks)
    crossing = sum(rank.node != job.ranks[i - 1].node for i, rank in enumerate(job.ranks))
    return Theory(
        bytes_per_iteration=2 * (count - 1) / count * moved * BYTES_PER_PARAMETER * crossing / count,
        parameters=moved,
        source=f"ring all-reduce, 2 (N-1)/N x parameters x 4 bytes (Salamy, eq. 3.1), "
        f"{crossing} of {count} ring edges between hosts; {apart}",
    )


def flows(nodes: tuple[str, ...], job: Job, topology: Topology, *, control: int | None) -> tuple[Flow, ...]:
    """What is exchanged on the `control` port of the first node, then what travels between each two of them."""
    addresses = [topology.node(name).address for name in nodes]
    between = [Flow(kind="training", name=job.name, src=src, dst=dst) for src, dst in combinations(addresses, 2)]
    if len(addresses) == 1:
        between = [Flow(kind="training", name=job.name, src=addresses[0], dst=addresses[0])]
    store = [] if control is None else [Flow(kind="control", name=job.name, src=addresses[0], port=control)]
    return (*store, *between)


def _compute_time(config: EmulatedConfig) -> float | None:
    """Seconds of emulated compute in an iteration; None where they are neither given nor calibrated."""
    if config.compute_time is not None:
        return config.compute_time
    model = catalog.load(config.model)
    return catalog.compute_time(model, config.batch if config.batch is not None else model.batch)
