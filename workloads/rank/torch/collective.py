"""Run a rank of a benchmark of collectives: an iteration is one pass over all operations and message sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import collective_passes as benchmark
from ..collective_passes import Operation, floats_of, passes
from ..lifecycle import Step
from .exchange import begun
from .program import Join, Rank, TorchSettings, run


class CollectiveSettings(TorchSettings, benchmark.PassSettings):
    """Settings of the passes on torch.distributed, the ranks of each group, and what goes where in an all-to-all."""

    groups: Sequence[Sequence[int]]
    parts: Sequence[Sequence[float]] | None  # of an uneven all-to-all, in messages, of each rank of a group to each one


def operation(
    name: str, size: int, rank: Rank[CollectiveSettings], own: Sequence[int], group: Any
) -> tuple[Operation, int]:
    """Return a function that carries out the operation once in `group`, of these ranks, and its message in bytes."""
    import torch
    import torch.distributed as dist

    world = len(own)
    part = floats_of(size, world)
    parts = rank.config["parts"]
    if name == "all-to-all" and parts is not None:
        return uneven(parts, part * world, place=own.index(rank.number), rank=rank, group=group), 4 * part * world
    whole = torch.ones(part * world, device=rank.device)
    share = torch.ones(part, device=rank.device)
    result = torch.empty_like(whole)
    place = own.index(rank.number)
    after, before = own[(place + 1) % world], own[place - 1]

    def send_receive() -> None:
        for work in (dist.irecv(result, before, group=group), dist.isend(whole, after, group=group)):
            begun(work).wait()

    done: dict[str, Operation] = {
        "all-reduce": lambda: dist.all_reduce(whole, group=group),
        "all-gather": lambda: dist.all_gather_into_tensor(result, share, group=group),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(share, whole, group=group),
        "all-to-all": lambda: dist.all_to_all_single(result, whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, own[0], group=group),
        "send-receive": send_receive,
    }
    return done[name], 4 * part * world


def uneven(
    parts: Sequence[Sequence[float]], message: int, *, place: int, rank: Rank[CollectiveSettings], group: Any
) -> Operation:
    """Return an all-to-all in which the rank at `place` sends and receives its parts of a message of so many floats."""
    import torch
    import torch.distributed as dist

    sizes = [[round(share * message) for share in row] for row in parts]
    sent, received = sizes[place], [row[place] for row in sizes]
    whole = torch.ones(sum(sent), device=rank.device)
    result = torch.empty(sum(received), device=rank.device)
    return lambda: dist.all_to_all_single(result, whole, received, sent, group=group)


def build(rank: Rank[CollectiveSettings]) -> Join:
    return lambda: prepare(rank)


def prepare(rank: Rank[CollectiveSettings]) -> Step:
    """Make the groups and the messages, and return a step that passes over all of them once."""
    import torch
    import torch.distributed as dist

    group, own = None, rank.config["groups"][0]
    if len(rank.config["groups"]) > 1:
        for members in rank.config["groups"]:  # all ranks make all of them, in the same order
            made = dist.new_group(list(members))
            if rank.number in members:
                group, own = made, members

    def finished() -> None:
        """Wait until the device has finished; a CPU's operations have ended when they return."""
        if rank.device.type == "cuda":
            torch.cuda.synchronize()

    return passes(
        lambda name, size: operation(name, size, rank, own, group),
        rank.config,
        rank.trace,
        number=rank.number,
        world=len(own),
        finished=finished,
        group=own if len(own) < rank.world else (),
    )


def main() -> None:
    import warnings

    # torch renames these functions while the versions in use have only the old names.
    warnings.filterwarnings("ignore", category=FutureWarning)
    run(build)
