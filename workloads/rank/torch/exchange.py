"""Schedules of sends and receives that average gradients, for each strategy, and their execution.

The graphs are those of KungFu: STAR, TREE and BINARY_TREE_STAR reduce along a tree and broadcast along it; CLIQUE does
so along as many stars as there are ranks, each for its part of the gradient; RING along as many chains. What differs:
KungFu cuts tensors into chunks of 1 MiB, and a hash of a chunk's name says which star or chain takes it; here each
takes an equal part.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..compute import training
from .program import TorchSettings

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

    from .program import Rank


@dataclass(frozen=True)
class Send:
    """The elements from `low` up to `high`, to a rank."""

    peer: int
    low: int
    high: int


@dataclass(frozen=True)
class Receive:
    """The elements from `low` up to `high`, from a rank: added to what is there, or in its place."""

    peer: int
    low: int
    high: int
    add: bool


@dataclass(frozen=True)
class Round:
    """What a rank sends and receives at the same time; the next round begins when all of it has ended."""

    sends: tuple[Send, ...] = ()
    receives: tuple[Receive, ...] = ()


def schedule(strategy: str, *, rank: int, hosts: list[int], size: int, servers: int = 1) -> list[Round]:
    """Return the rounds of a rank, after which all ranks hold the sum over ranks of `size` elements.

    `hosts` numbers the host of each rank. Of a parameter server's ranks the first `servers` are servers: their own
    elements do not count, and they hold the sum of the workers'.
    """
    world = len(hosts)
    if strategy == "ring":
        return _ring(rank, world, size)
    if strategy == "halving-doubling":
        return _halving_doubling(rank, world, size)
    if strategy == "clique":
        return _stars(rank, size, roots=list(range(world)), leaves=list(range(world)))
    if strategy == "parameter-server":
        return _stars(rank, size, roots=list(range(servers)), leaves=list(range(servers, world)))
    return _tree(rank, parents(strategy, hosts), size)


def parents(strategy: str, hosts: list[int]) -> list[int]:
    """Return the parent of each rank in the tree that a strategy reduces along; the root's is -1.

    In `tree` and `binary-tree-star` the first rank of each host stands for it: the others hang on it. The first ranks
    are a star (`tree`) or a binary tree in the order of their hosts (`binary-tree-star`).
    """
    if strategy == "star":
        return [-1] + [0] * (len(hosts) - 1)
    first = [hosts.index(host) for host in dict.fromkeys(hosts)]
    above = [hosts.index(host) for host in hosts]
    for place, rank in enumerate(first):
        higher = 0 if strategy == "tree" else (place - 1) // 2
        above[rank] = first[higher] if place else -1
    return above


def pulling(order: str, *, buckets: int, iteration: int, seed: int) -> list[int]:
    """Return the order in which workers get the buckets of an iteration back; bucket 0 is that of the last layers.

    `ready`: as their gradients come in the backward pass. `layer`: those of the first layers first, as the next forward
    pass needs them. `reverse`: the last layers first. `random`: another order each iteration, the same on all ranks.
    """
    numbers = list(range(buckets))
    if order == "layer":
        numbers.reverse()
    elif order == "random":
        random.Random(f"{seed} {iteration}").shuffle(numbers)  # noqa: S311
    return numbers


def asked(drawn: int, *, rank: int, world: int) -> int:
    """Return the peer of a rank in KungFu's PairAveraging that drew one of all `world` ranks: itself means the next.

    So the next rank is asked twice as often as each of the others.
    """
    return (rank + 1) % world if drawn == rank else drawn


def asking_share(peers: str, peer: int, *, rank: int, world: int) -> float:
    """Return the share of iterations in which a rank asks `peer`: by `asked` for `random` peers, else equal."""
    if peers == "random":
        return sum(asked(drawn, rank=rank, world=world) == peer for drawn in range(world)) / world
    return 0.0 if peer == rank else 1 / (world - 1)


def _parts(size: int, count: int) -> list[tuple[int, int]]:
    return [(size * i // count, size * (i + 1) // count) for i in range(count)]


def _ring(rank: int, world: int, size: int) -> list[Round]:
    """Return Patarasuk and Yuan's bandwidth-optimal ring: world - 1 rounds of adding, as many of passing on."""
    parts = _parts(size, world)
    after, before = (rank + 1) % world, (rank - 1) % world
    rounds = []
    for step in range(2 * (world - 1)):
        adding = step < world - 1
        outgoing = parts[(rank - step) % world]
        incoming = parts[(rank - step - 1) % world]
        rounds.append(Round((Send(after, *outgoing),), (Receive(before, *incoming, add=adding),)))
    return rounds


def _halving_doubling(rank: int, world: int, size: int) -> list[Round]:
    """Return Rabenseifner's schedule: halves are exchanged and added, then gathered.

    Ranks beyond a power of two send all of theirs to one below first, and get the sum back last.
    """
    power = 1 << (world.bit_length() - 1)
    if rank >= power:
        return [Round(sends=(Send(rank - power, 0, size),)), Round(receives=(Receive(rank - power, 0, size, False),))]
    extra = rank + power if rank + power < world else None
    rounds = [] if extra is None else [Round(receives=(Receive(extra, 0, size, True),))]
    low, high = 0, size
    doubling: list[Round] = []
    distance = power // 2
    while distance:
        peer, middle = rank ^ distance, (low + high) // 2
        keep, give = ((low, middle), (middle, high)) if rank < peer else ((middle, high), (low, middle))
        rounds.append(Round((Send(peer, *give),), (Receive(peer, *keep, add=True),)))
        doubling.append(Round((Send(peer, *keep),), (Receive(peer, *give, add=False),)))
        low, high = keep
        distance //= 2
    rounds += reversed(doubling)
    return rounds if extra is None else [*rounds, Round(sends=(Send(extra, 0, size),))]


def _stars(rank: int, size: int, *, roots: list[int], leaves: list[int]) -> list[Round]:
    """Return schedules of stars: each root gathers and adds its part from all leaves, then sends the sum back."""
    parts = dict(zip(roots, _parts(size, len(roots)), strict=True))
    others = [root for root in roots if root != rank and rank in leaves]
    mine = [leaf for leaf in leaves if leaf != rank] if rank in parts else []
    up = Round(
        tuple(Send(root, *parts[root]) for root in others),
        tuple(Receive(leaf, *parts[rank], add=True) for leaf in mine),
    )
    down = Round(
        tuple(Send(leaf, *parts[rank]) for leaf in mine),
        tuple(Receive(root, *parts[root], add=False) for root in others),
    )
    return [up, down]


def _tree(rank: int, above: list[int], size: int) -> list[Round]:
    children = [child for child, parent in enumerate(above) if parent == rank]
    parent = above[rank]
    rounds = [Round(receives=tuple(Receive(child, 0, size, True) for child in children))] if children else []
    if parent >= 0:
        rounds.append(Round(sends=(Send(parent, 0, size),)))
        rounds.append(Round(receives=(Receive(parent, 0, size, False),)))
    if children:
        rounds.append(Round(sends=tuple(Send(child, 0, size) for child in children)))
    return rounds


class P2pSettings(TorchSettings, training.ModelSettings):
    """Settings of the exchange of gradients."""

    bucket_bytes: float  # least size of a bucket
    strategy: str
    servers: int
    order: Literal["ready", "layer", "reverse", "random", "tic", "tac"] | None
    after: list[list[int]] | None  # graph: the places of the layers whose results each layer takes
    peers: Literal["random", "uniform", "round-robin"]
    hosts: list[int]  # the number of each rank's host


class Bucket:
    """Gradients that travel together, as one flat tensor in the order in which they come."""

    def __init__(self, number: int, parameters: list[torch.nn.Parameter], rounds: list[Round]) -> None:
        import torch

        self.number = number
        self.parameters = parameters
        self.rounds = rounds
        self.flat = torch.zeros(sum(parameter.numel() for parameter in parameters), device=parameters[0].device)
        self.missing = 0
        self._begins: dict[int, int] = {}
        at = 0
        for parameter in parameters:
            self._begins[id(parameter)] = at
            at += parameter.numel()

    def view(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        begin = self._begins[id(parameter)]
        return self.flat[begin : begin + parameter.numel()].view_as(parameter)


def exchange_rounds(bucket: Bucket, rounds: Sequence[Round], rank: Rank[P2pSettings]) -> None:
    """Carry out rounds of a bucket; after all of them it holds the sum over ranks."""
    import torch
    import torch.distributed as dist

    for one in rounds:
        begin_ns = time.monotonic_ns()
        landed = [torch.empty_like(bucket.flat[got.low : got.high]) for got in one.receives]
        receiving = [begun(dist.irecv(into, got.peer)) for got, into in zip(one.receives, landed, strict=True)]
        sending = [begun(dist.isend(bucket.flat[part.low : part.high], part.peer)) for part in one.sends]
        what = f"bucket {bucket.number}"
        for got, into, work in zip(one.receives, landed, receiving, strict=True):
            work.wait()
            rank.trace.communicated("receive", begin_ns, size=into.numel() * 4, what=what, peer=got.peer)
        for part, work in zip(one.sends, sending, strict=True):
            work.wait()
            rank.trace.communicated("send", begin_ns, size=(part.high - part.low) * 4, what=what, peer=part.peer)
        for got, into in zip(one.receives, landed, strict=True):
            here = bucket.flat[got.low : got.high]
            here.add_(into) if got.add else here.copy_(into)


def begun(work: dist.Work | None) -> dist.Work:
    """Return the handle of a send or receive, which exists in the group of the rank that begins it."""
    if work is None:
        raise AssertionError("every rank is in the group of all")
    return work


def split_into_buckets(module: torch.nn.Module, rank: Rank[P2pSettings]) -> list[Bucket]:
    """Return the buckets of a module, in the order in which gradients come: the last parameters first."""
    config = rank.config
    groups: list[list[torch.nn.Parameter]] = [[]]
    held = 0
    for parameter in reversed(list(module.parameters())):
        if held >= config["bucket_bytes"]:
            groups.append([])
            held = 0
        groups[-1].append(parameter)
        held += parameter.numel() * 4
    return [
        Bucket(
            number,
            group,
            schedule(
                config["strategy"],
                rank=rank.number,
                hosts=config["hosts"],
                servers=config["servers"],
                size=sum(parameter.numel() for parameter in group),
            ),
        )
        for number, group in enumerate(groups)
    ]
