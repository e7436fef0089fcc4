"""Run a rank of a training whose gradients are averaged by our own sends and receives, in a pattern of choice."""

from __future__ import annotations

import queue
import random
import threading
import time
from typing import TYPE_CHECKING

from ..compute import computing, training
from ..lifecycle import Step, peer_lost, timed
from . import parameter_server
from .exchange import Bucket, P2pSettings, asked, exchange_rounds, split_into_buckets
from .program import Join, Rank, gradient_of, run

if TYPE_CHECKING:
    import torch

    from ..compute.computing import Compute

_ASK, _ANSWER = 1, 2  # tags of pair averaging


class Synchronizer:
    """Sums gradients over ranks, bucket by bucket, on a thread of its own while the backward pass goes on.

    Buckets are filled from the last parameter to the first and travel in that order on every rank.
    """

    def __init__(self, module: torch.nn.Module, rank: Rank[P2pSettings]) -> None:
        self._rank = rank
        self._ready: queue.SimpleQueue[Bucket] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        self._early: set[int] = set()
        self.buckets = split_into_buckets(module, rank)
        self._next = 0
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(lambda p, bucket=bucket: self._arrived(p, bucket))
        threading.Thread(target=self._serve, name="synchronizer", daemon=True).start()

    def begin(self) -> None:
        """Prepare for the gradients of a new iteration."""
        self._next = 0
        self._early.clear()
        for bucket in self.buckets:
            bucket.missing = len(bucket.parameters)

    def nothing_to_add(self) -> None:
        """Contribute zeros to every sum, as a rank that computes nothing."""
        for bucket in self.buckets:
            bucket.flat.zero_()
            self._ready.put(bucket)

    def _arrived(self, parameter: torch.nn.Parameter, bucket: Bucket) -> None:
        bucket.view(parameter).copy_(gradient_of(parameter))
        bucket.missing -= 1
        if bucket.missing == 0:
            self._early.add(bucket.number)
        while self._next in self._early:
            self._ready.put(self.buckets[self._next])
            self._next += 1

    def _serve(self) -> None:
        while True:
            bucket = self._ready.get()
            try:
                exchange_rounds(bucket, bucket.rounds, self._rank)
            except RuntimeError as error:
                self._done.put(error)
                return
            self._done.put(None)

    def wait(self) -> None:
        """Wait until every bucket holds its sum; RuntimeError when a peer is gone."""
        for _ in self.buckets:
            error = self._done.get()
            if error is not None:
                raise error

    def average(self, contributors: int) -> None:
        """Replace each gradient by the mean over contributing ranks."""
        for bucket in self.buckets:
            bucket.flat.div_(contributors)
            for parameter in bucket.parameters:
                mean = bucket.view(parameter)
                if parameter.grad is None:
                    parameter.grad = mean.clone()
                else:
                    parameter.grad.copy_(mean)


class PairAverager:
    """Asynchronous decentralized SGD (Lian et al.; KungFu's PairAveraging).

    A rank fetches the weights of one peer and goes on from the mean of both. Nobody waits for a slower rank: a thread
    answers whoever asks.
    """

    def __init__(self, module: torch.nn.Module, rank: Rank[P2pSettings]) -> None:
        import torch

        self._rank = rank
        self._parameters = list(module.parameters())
        self._lock = threading.Lock()
        self._theirs = torch.empty(sum(parameter.numel() for parameter in self._parameters))
        self._choose = random.Random(rank.config["seed"] + rank.number)  # noqa: S311
        threading.Thread(target=self._serve, name="pair-averager", daemon=True).start()

    def _flat(self) -> torch.Tensor:
        import torch

        with self._lock:
            return torch.cat([parameter.detach().reshape(-1) for parameter in self._parameters])

    def _serve(self) -> None:
        import torch
        import torch.distributed as dist

        asked = torch.zeros(1)
        try:
            while True:
                peer = dist.recv(asked, tag=_ASK)
                begin_ns = time.monotonic_ns()
                weights = self._flat()
                dist.send(weights, peer, tag=_ANSWER)
                self._rank.trace.communicated("send", begin_ns, size=weights.numel() * 4, what="weights", peer=peer)
        except RuntimeError as error:
            peer_lost(error)

    def peer(self, iteration: int) -> int:
        """Return the peer to ask: as KungFu draws, any other rank equally often, or one after the other."""
        rank, world, peers = self._rank.number, self._rank.world, self._rank.config["peers"]
        if peers == "random":
            return asked(self._choose.randrange(world), rank=rank, world=world)
        if peers == "uniform":
            return self._choose.choice([other for other in range(world) if other != rank])
        return (rank + 1 + iteration % (world - 1)) % world

    def step(self, iteration: int, optimizer: torch.optim.Optimizer) -> None:
        """Average with a peer's weights, then apply this rank's own gradients."""
        import torch
        import torch.distributed as dist

        peer = self.peer(iteration)
        begin_ns = time.monotonic_ns()
        dist.send(torch.ones(1), peer, tag=_ASK)
        dist.recv(self._theirs, peer, tag=_ANSWER)
        self._rank.trace.communicated("receive", begin_ns, size=self._theirs.numel() * 4, what="weights", peer=peer)
        with self._lock, torch.no_grad():
            at = 0
            for parameter in self._parameters:
                part = self._theirs[at : at + parameter.numel()].view_as(parameter)
                parameter.lerp_(part, 0.5)
                at += parameter.numel()
            optimizer.step()


def synchronous(work: Compute, rank: Rank[P2pSettings], optimizer: torch.optim.Optimizer) -> Step:
    """Return a step in which all ranks apply the same mean gradient; a server takes part in the exchange alone."""
    config, trace = rank.config, rank.trace
    synchronizer = Synchronizer(work.module, rank)
    servers = config["servers"] if config["strategy"] == "parameter-server" else 0
    computes = rank.number >= servers

    def step(_iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        optimizer.zero_grad()
        synchronizer.begin()
        value, waited_s, forward_ns = 0.0, 0.0, begin_ns
        if computes:
            loss = work.loss(work.module)
            forward_ns = time.monotonic_ns()
            loss.backward()
            value = loss.item()
            last_ns = time.monotonic_ns() - int(work.waited_s() * 1e9)
            trace.computed("forward", begin_ns, forward_ns)
            trace.computed("backward", forward_ns, last_ns)
        else:
            last_ns = begin_ns
            synchronizer.nothing_to_add()
        synchronizer.wait()
        arrived_ns = time.monotonic_ns()
        waited_s = (arrived_ns - last_ns) / 1e9
        synchronizer.average(rank.world - servers)
        optimizer.step()
        end_ns = time.monotonic_ns()
        trace.computed("step", arrived_ns, end_ns)
        return {
            **timed(begin_ns, forward_ns, arrived_ns, wait_s=waited_s),
            "step_s": round((end_ns - arrived_ns) * 1e-9, 9),
            "loss": value,
            "samples": config["batch"] if computes else 0,
            **(work.end_iteration() if computes else {}),
            **rank.checksum_of(work.module),
        }

    return step


def asynchronous(work: Compute, rank: Rank[P2pSettings], optimizer: torch.optim.Optimizer) -> Step:
    """Return a step in which a rank averages its weights with one peer's."""
    config, trace = rank.config, rank.trace
    averager = PairAverager(work.module, rank)

    def step(iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        optimizer.zero_grad()
        loss = work.loss(work.module)
        forward_ns = time.monotonic_ns()
        loss.backward()
        value = loss.item()
        last_ns = time.monotonic_ns()
        averager.step(iteration, optimizer)
        end_ns = time.monotonic_ns()
        trace.computed("forward", begin_ns, forward_ns)
        trace.computed("backward", forward_ns, last_ns)
        return {
            **timed(begin_ns, forward_ns, end_ns, wait_s=(end_ns - last_ns) / 1e9),
            "loss": value,
            "samples": config["batch"],
            **work.end_iteration(),
            **rank.checksum_of(work.module),
        }

    return step


def build(rank: Rank[P2pSettings]) -> Join:
    config = rank.config
    servers = config["servers"] if config["strategy"] == "parameter-server" else 0
    place = max(0, rank.number - servers)  # a server computes nothing: its place among those that do is never used
    work = computing.build(config, rank=place, world=rank.world - servers, device=rank.device)

    def join() -> Step:
        if config["order"] is not None:
            return parameter_server.prepare(work, rank)
        make = asynchronous if config["strategy"] == "pair-averaging" else synchronous
        step = make(work, rank, training.torch_optimizer(config, work.module.parameters()))
        return work.evaluated(step) if rank.number >= servers else step

    return join


def main() -> None:
    run(build)
