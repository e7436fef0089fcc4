"""Synchronization strategies made of sends and receives on torch: rings, trees, stars, cliques, servers, pairs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import Field

from orchestrator.core.fields import Size
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Bucket, Compute, Theory
from orchestrator.parts.topology import Job, Topology
from workloads.common import rank_traffic, real_training, replicated_tasks, server_tasks, torch_ranks, trained_model
from workloads.common.collective_tasks import Done, Ready
from workloads.common.real_training import TorchModelConfig
from workloads.common.replicated_tasks import buckets
from workloads.common.trained_model import BYTES_PER_PARAMETER
from workloads.models import catalog
from workloads.rank.lifecycle import LayerPlan
from workloads.rank.torch.exchange import P2pSettings, asked, asking_share, pulling, schedule
from workloads.rank.torch.transfer_order import Op, tac, tic
from workloads.readers.evaluations import read_evaluations
from workloads.readers.iteration_logs import read_training

NAME = "p2p"

_CYCLE = 16  # iterations of a graph in which ranks draw something anew

Strategy = Literal[
    "ring", "halving-doubling", "parameter-server", "star", "tree", "binary-tree-star", "clique", "pair-averaging"
]


class Config(TorchModelConfig):
    """A training whose gradients are averaged by sends and receives in a pattern of choice."""

    strategy: Strategy
    """Who sends what to whom. `star`, `tree`, `binary-tree-star` and `clique` are KungFu's STAR, TREE,
    BINARY_TREE_STAR and CLIQUE. In `tree` and `binary-tree-star` the first rank of each host stands for its others.
    `parameter-server`: the first ranks are servers and compute nothing. `pair-averaging` is asynchronous: each rank
    fetches one peer's weights an iteration and goes on from the mean of both."""

    servers: int = Field(default=1, ge=1)
    """Parameter server: how many of the first ranks are servers, each of an equal part of every bucket."""

    order: Literal["ready", "layer", "reverse", "random", "tic", "tac"] | None = None
    """Parameter server: the order in which workers pull, while their next forward pass begins; each layer waits for its
    own parameters. `ready`: each bucket as soon as its sum is there. The others once all of them are, as TensorFlow's
    synchronous replicas do: `layer`: priority to the layers that compute first; `reverse`: the last ones first;
    `random`: another order each iteration, drawn from the seed. `tic` and `tac` are TicTac's: computed after six
    iterations in random orders from what the first worker computed, `tac` with its measured times. Default: all is
    pulled before the step ends."""

    graph: bool = False
    """Order: the forward pass computes one layer at a time, whichever has its inputs and its parameters, as TensorFlow
    runs a graph, instead of one after the other as PyTorch's programs do. Of a model without branches both are the
    same, and so are `layer`, `tic` and `tac`. Emulated compute."""

    peers: Literal["random", "uniform", "round-robin"] = "random"
    """Pair averaging: whom a rank asks. `random`: as KungFu draws, any of all ranks, and the next one when it draws
    itself, so that the next one is asked twice as often. `uniform`: any other one alike. `round-robin`: one after the
    other."""

    bucket: Annotated[Size, Field(gt=0)] = 25 * 2.0**20
    """Gradients travel in buckets of at least this size. Divided by the testbed's scale."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = real_training.torch_problems(config.model_copy(update={"backend": "gloo"}), topology)
    if config.backend == "nccl":
        found.append(
            Problem(
                at=("backend",),
                message="sends and receives of our own run on threads that NCCL cannot serve",
                accepted="gloo",
            )
        )
    if config.order is not None and config.strategy != "parameter-server":
        found.append(
            Problem(
                at=("order",),
                message=f"all ranks of {config.strategy} carry each bucket together, in the order of the backward pass",
                accepted="strategy: parameter-server, or no order",
            )
        )
    if config.graph:
        found += _graph_problems(config)
    count = len(config.hosts if config.hosts is not None else topology.placed)
    if config.strategy == "parameter-server" and config.servers >= count:
        found.append(
            Problem(
                at=("servers",),
                message=f"of {count} ranks {config.servers} are servers, and none is left to compute",
                accepted=f"at most {count - 1}",
            )
        )
    return found


def _graph_problems(config: Config) -> Iterator[Problem]:
    if config.order is None:
        message = "without an order all parameters are there before the first layer computes"
        yield Problem(at=("graph",), message=message, accepted="strategy: parameter-server with an order, or no graph")
    if config.compute == "real":
        message = "PyTorch runs a real model's layers in the order of its program"
        yield Problem(at=("graph",), message=message, accepted="compute: emulated, or no graph")
    elif config.model not in catalog.branching():
        message = f"the layers of {config.model} are known as one after the other"
        yield Problem(at=("graph",), message=message, accepted=f"no graph, or one of {', '.join(catalog.branching())}")


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return a launch for each rank; training and rendezvous flows stand on that of rank 0."""
    settled = config.model_copy(update={"backend": "gloo"})
    settings: P2pSettings = {
        **torch_ranks.settings(settled, job, seed=seed),
        **real_training.torch_settings(config, topology, seed=seed),
        "bucket_bytes": config.bucket / topology.scale,
        "strategy": config.strategy,
        "servers": config.servers,
        "order": config.order,
        "after": _after(config),
        "peers": config.peers,
        "hosts": _hosts(job),
    }
    return torch_ranks.launches(
        settled,
        job,
        topology,
        program="torch.p2p",
        settings=settings,
        footprint=real_training.torch_footprint(settled, job, topology),
    )


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    return torch_ranks.requirements(job, topology, needed_by=NAME, modules=real_training.torch_modules(config))


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return the bytes that the strategy's schedule sends; of pair averaging the mean over many iterations."""
    moved = trained_model.parameters(config, topology)
    world = len(job.ranks)
    pairs: dict[tuple[int, int], float] = {}
    if config.strategy == "pair-averaging":
        size = moved * BYTES_PER_PARAMETER
        pairs = {
            (peer, rank): size * asking_share(config.peers, peer, rank=rank, world=world)
            for rank in range(world)
            for peer in range(world)
            if peer != rank
        }
        source = "pair averaging, each rank sends its weights once in the mean"
    else:
        for rank in range(world):
            rounds = schedule(config.strategy, rank=rank, hosts=_hosts(job), size=moved, servers=config.servers)
            for send in (send for one in rounds for send in one.sends):
                sent = (send.high - send.low) * BYTES_PER_PARAMETER
                pairs[rank, send.peer] = pairs.get((rank, send.peer), 0) + sent
        source = f"the schedule of {config.strategy}, mean over ranks"
    return rank_traffic.theory(job, pairs, parameters=moved, source=source)


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph | str:
    """Return an iteration as tasks: rounds of buckets, pulls beside the next forward pass, or a peer's weights."""
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
    world = len(job.ranks)
    forward_s = sum(forward_s for forward_s, _, _ in layers)
    backward_s = sum(backward_s for _, backward_s, _ in layers)
    if config.strategy == "pair-averaging":
        size = sum(sum(sizes) for _, _, sizes in layers) * BYTES_PER_PARAMETER
        turns = world - 1 if config.peers == "round-robin" else _CYCLE
        peers = [[_asked(config, turn, rank, world) for rank in range(world)] for turn in range(turns)]
        return server_tasks.pair_averaged(world, size, peers, forward_s=forward_s, backward_s=backward_s, step_s=step_s)
    made = buckets(layers, cap=config.bucket / topology.scale, first=None, element_bytes=BYTES_PER_PARAMETER)
    if config.order is not None:
        return _pulling(config, job, topology, layers, made, step_s=step_s)

    def reduce(graph: TaskGraph, _number: int, size: float, ready: Ready) -> Done:
        elements = round(size / BYTES_PER_PARAMETER)
        rounds = {
            rank: schedule(config.strategy, rank=rank, hosts=_hosts(job), size=elements, servers=config.servers)
            for rank in range(world)
        }
        return replicated_tasks.scheduled(graph, rounds, ready, element_bytes=BYTES_PER_PARAMETER)

    return replicated_tasks.overlapped(
        world,
        made,
        reduce,
        forward_s=forward_s,
        backward_s=backward_s,
        idle=range(config.servers) if config.strategy == "parameter-server" else (),
        step_s=step_s,
    )


def _asked(config: Config, turn: int, rank: int, world: int) -> int:
    """Return the peer that a rank asks in an iteration of a cycle: drawn as the ranks of a run draw it."""
    draw = random.Random(f"{turn} {rank}")  # noqa: S311 - a model, no secret
    if config.peers == "random":
        return asked(draw.randrange(world), rank=rank, world=world)
    if config.peers == "uniform":
        return draw.choice([other for other in range(world) if other != rank])
    return (rank + 1 + turn % (world - 1)) % world


def _pulling(
    config: Config, job: Job, topology: Topology, layers: Sequence[LayerPlan], made: Sequence[Bucket], *, step_s: float
) -> TaskGraph:
    """Return iterations with pulls in an order, in which a graph's layers compute as buckets come.

    When these come is reckoned by the slowest link alone.
    """
    bounds = accumulate(bucket.size // BYTES_PER_PARAMETER for bucket in made)
    needed = list(server_tasks.layers_of([sizes for _, _, sizes in layers], list(bounds)))
    needs = [frozenset(b for b, own in enumerate(needed) if place in own) for place in range(len(layers))]
    workers = len(job.ranks) - config.servers
    rate = min(topology.link(node).rate for node in job.nodes) / 8 / topology.scale
    pull_s = {number: bucket.size * workers / config.servers / rate for number, bucket in enumerate(made)}
    after = _after(config) or [[place - 1] if place else [] for place in range(len(layers))]
    ops = [
        Op(after=tuple(before), transfers=own, seconds=layer[0])
        for before, own, layer in zip(after, needs, layers, strict=True)
    ]

    def order(turn: int) -> list[int]:
        if config.order == "tic":
            return tic(ops)
        if config.order == "tac":
            return tac(ops, pull_s)
        return pulling(str(config.order), buckets=len(made), iteration=turn, seed=0)

    def computing(turn: int) -> list[int]:
        pulled = order((turn - 1) % cycle)
        there_s = dict(zip(pulled, accumulate(pull_s[number] for number in pulled), strict=True))
        return server_tasks.by_graph(after, layers, needs, [there_s[number] for number in range(len(made))])

    cycle = _CYCLE if config.order == "random" else 1
    return server_tasks.pulling(
        config.servers,
        workers,
        layers,
        [(bucket.size, own) for bucket, own in zip(made, needed, strict=True)],
        order=None if config.order == "ready" else order,
        computing=computing if config.graph else None,
        cycle=cycle,
        step_s=step_s,
    )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    return {**read_training(output), **read_evaluations(output)}


def _after(config: Config) -> list[list[int]] | None:
    after = trained_model.data(config).after if config.graph else None
    return None if after is None else [list(places) for places in after]


def _hosts(job: Job) -> list[int]:
    """Return the number of each rank's host, in the order in which hosts first appear."""
    return [job.nodes.index(rank.node) for rank in job.ranks]
