"""Collective operations over message sizes, on gloo or NCCL: their time, and how much of the link they use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from orchestrator.launch import Launch, Requirement
from orchestrator.protocols import Problem, Theory
from orchestrator.rows import TABLES, Columns, Home
from orchestrator.topology import Job, Topology
from orchestrator.units import Size
from workloads import between, torch_ranks
from workloads.between import Pairs
from workloads.iterations import read_training
from workloads.placement import placement_problems
from workloads.torch_ranks import TorchConfig

NAME = "collective"

LOG = "collectives.jsonl"

Operation = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"]


class Config(TorchConfig):
    """A benchmark of collective operations; an iteration is one pass over all operations and sizes."""

    operations: tuple[Operation, ...] = Field(default=("all-reduce",), min_length=1)
    """The operations, in the order in which each iteration passes over them."""

    sizes: tuple[Annotated[Size, Field(gt=0)], ...] = Field(default=(1e6, 10e6, 100e6), min_length=1)
    """Message sizes as nccl-tests counts them, divided by the testbed's scale; rounded up to a float for each rank."""

    repeats: int = Field(default=3, ge=1)
    """How often an operation is done back to back; what is told is the mean time of one."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    return placement_problems(config.hosts, topology) or torch_ranks.backend_problems(config, topology)


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """A launch for each rank; training and rendezvous flows stand on that of rank 0."""
    told = {
        "operations": config.operations,
        "sizes": [max(1, round(size / topology.scale)) for size in config.sizes],
        "repeats": config.repeats,
        "link_bps": [topology.link(rank.node).rate / topology.scale for rank in job.ranks],
    }
    return torch_ranks.launches(config, job, topology, program="collective.py", siblings=(), told=told, seed=seed)


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:  # noqa: ARG001
    return torch_ranks.requirements(job, topology, needed_by=NAME)


def bus_factor(operation: str, world: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests' PERFORMANCE.md defines it.

    It is the share of the message that the busiest link must carry at least, so that a bus bandwidth can be held
    against the link's rate whatever the operation and the number of ranks.
    """
    if operation == "all-reduce":
        return 2 * (world - 1) / world
    return 1.0 if operation == "broadcast" else (world - 1) / world


def sent_in(operation: str, world: int, size: float, *, backend: str) -> Pairs:
    """Who sends how much to whom in one operation: rings, a mesh, and a binomial tree rooted at rank 0.

    Gloo's reduce-scatter is an all-reduce of which each rank keeps its share: it sends twice what it would have to.
    """
    if operation == "all-to-all":
        return {(a, b): size / world for a in range(world) for b in range(world) if a != b}
    if operation == "broadcast":
        return {(rank - (1 << (rank.bit_length() - 1)), rank): size for rank in range(1, world)}
    if operation == "reduce-scatter" and backend == "gloo":
        operation = "all-reduce"
    ring = between.ring(world, bus_factor(operation, world) * size)
    return between.turned(ring) if operation == "all-gather" else ring


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Bytes that the backend's algorithms send in one pass over all operations and sizes."""
    world = len(job.ranks)
    backend = torch_ranks.backend_of(config, job.ranks)
    total: dict[tuple[int, int], float] = {}
    for operation in config.operations:
        for asked in config.sizes:
            size = 4 * world * max(1, math.ceil(max(1, round(asked / topology.scale)) / (4 * world)))
            for pair, sent in sent_in(operation, world, size, backend=backend).items():
                total[pair] = total.get(pair, 0.0) + sent * config.repeats
    source = f"one pass of {', '.join(config.operations)}: rings, mesh and binomial tree on {backend}"
    return between.theory(job, total, parameters=0, source=source)


def read(home: Home) -> Mapping[str, Columns]:
    """The tables of a rank, and `collectives`; damaged lines are left out."""
    path = home.folder / LOG
    text = path.read_bytes().decode("utf-8", "replace") if path.exists() else ""
    rows = [
        {"job": home.job or "", "rank": home.rank if home.rank is not None else -1, "window": "", **row}
        for row in map(_row, text.splitlines())
        if row is not None
    ]
    return {
        **read_training(home),
        "collectives": {column: [row[column] for row in rows] for column in TABLES["collectives"]},
    }


def _row(line: str) -> dict[str, Any] | None:
    """The line as a row, or None where it is not a complete one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = ("iteration", "bytes", "repeats", "world")
    if not isinstance(record, dict) or any(type(record.get(name)) is not int for name in whole):
        return None
    seconds, link = record.get("seconds"), record.get("link_bps")
    if not isinstance(seconds, float) or not isinstance(link, int | float) or not 0 < seconds < math.inf:
        return None
    operation = str(record.get("operation"))
    algorithm = record["bytes"] * 8 / seconds
    return {
        "iteration": record["iteration"],
        "operation": operation,
        "bytes": record["bytes"],
        "repeats": record["repeats"],
        "seconds": seconds,
        "algorithm_bps": algorithm,
        "bus_bps": algorithm * bus_factor(operation, record["world"]),
        "link_bps": float(link),
    }
