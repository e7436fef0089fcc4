"""Gradients that travel together, and how a bucket of them is carried through its rounds of sends and receives."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ..compute import compute_settings
from .context import Settings as TorchSettings
from .exchange import Round, schedule

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

    from .context import Rank


class Settings(TorchSettings, compute_settings.Settings):
    """How gradients travel."""

    bucket_bytes: float  # least size of a bucket
    strategy: str
    servers: int
    order: Literal["ready", "layer", "reverse", "random", "tic", "tac"] | None
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


def exchange(bucket: Bucket, rounds: Sequence[Round], rank: Rank[Settings]) -> None:
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
    """A send or receive that was begun, in the group of the rank that began it."""
    if work is None:
        raise AssertionError("every rank is in the group of all")
    return work


def split(module: torch.nn.Module, rank: Rank[Settings]) -> list[Bucket]:
    """The buckets of a module, in the order in which gradients come: the last parameters first."""
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
