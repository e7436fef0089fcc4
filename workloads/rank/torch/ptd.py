"""Run a rank of a GPT that is split by pipeline stage, tensor and data: emulated compute, real messages."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ..compute.training import LEARNING_RATE
from ..lifecycle import Jittered, Step
from .parallel import REPLICA, STAGE, TENSOR, Place, ends, groups, one_forward_one_backward
from .program import Join, Precision, Rank, TorchSettings, members_of, precision_of, run, size_of

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

    from ..logs import Trace

_FORWARD_TAG, _BACKWARD_TAG = 0, 1  # + twice the number of the microbatch


class StagePlan(TypedDict):
    """A stage's blocks, and its times for one microbatch in seconds, forward; `backward` is how many times longer."""

    blocks: int
    attention_s: float
    feed_forward_s: float
    head_s: float
    backward: float


class PtdSettings(TorchSettings, Jittered):
    """The split of the GPT, and its messages, in elements."""

    places: list[Place]  # of each rank
    stages: list[StagePlan]
    batch: int  # samples of a microbatch
    microbatches: int
    recompute: bool
    precision: Precision
    activation: int
    gradients: Sequence[int]  # of a rank of each stage
    embedding: int  # those of them that are the table's


def _places(config: PtdSettings) -> list[Place]:
    """Return the place of each rank as tuples, which JSON lacks."""
    return [(stage, tensor, replica) for stage, tensor, replica in config["places"]]


class Sender:
    """Sends one message after the other on a thread of its own, so that each one's end is known."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._todo: queue.SimpleQueue[tuple[torch.Tensor, int, int, str]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[RuntimeError | None] = queue.SimpleQueue()
        self._open = 0
        threading.Thread(target=self._serve, name="sender", daemon=True).start()

    def begin(self, tensor: torch.Tensor, peer: int, *, tag: int, what: str) -> None:
        self._open += 1
        self._todo.put((tensor, peer, tag, what))

    def wait(self) -> None:
        """Wait until all was sent; RuntimeError when a peer is gone."""
        while self._open:
            error = self._done.get()
            if error is not None:
                raise error
            self._open -= 1

    def _serve(self) -> None:
        import torch.distributed as dist

        while True:
            tensor, peer, tag, what = self._todo.get()
            begin_ns = time.monotonic_ns()
            try:
                dist.send(tensor, peer, tag=tag)
            except RuntimeError as error:
                self._done.put(error)
                return
            self._trace.communicated("send", begin_ns, size=size_of(tensor), what=what, peer=peer)
            self._done.put(None)


class Stage:
    """This rank's part of the model: its parameters, its neighbours, and the passes of a microbatch."""

    def __init__(self, rank: Rank[PtdSettings]) -> None:
        import torch

        from ..compute.training import clock_of, sharpen_timer

        config = rank.config
        self._rank = rank
        self._trace = rank.trace
        self._clock = clock_of(rank.config, rank.number)
        where = _places(config)
        self.stage = where[rank.number][STAGE]
        self.stages = max(place[STAGE] for place in where) + 1
        self._plan = config["stages"][self.stage]
        line = next(line for line in groups(where, STAGE) if rank.number in line)
        self._before = line[self.stage - 1] if self.stage else None
        self._after = line[self.stage + 1] if self.stage + 1 < self.stages else None
        precision = precision_of(config["precision"])
        self._activation, self._outgoing, self._incoming = (
            torch.zeros(config["activation"], dtype=precision) for _ in range(3)
        )
        draw = torch.Generator().manual_seed(config["seed"] + rank.number)
        size = config["gradients"][self.stage]
        self.weights = torch.nn.Parameter(torch.ones(size))
        # Noise of its own for each rank: where ranks must agree, only averaging makes them.
        self._noise = torch.randn(size, generator=draw).to(precision)
        self._gradients = torch.empty_like(self._noise)
        self._sender = Sender(rank.trace)
        sharpen_timer()

    def join(self) -> None:
        """Make the process groups; all ranks make all of them, in the same order."""
        where = _places(self._rank.config)
        self._tensor = self._group(groups(where, TENSOR))
        self._data = self._group(groups(where, REPLICA))
        self._ends = self._group(ends(where))

    def _group(self, all_members: Sequence[list[int]]) -> dist.ProcessGroup | None:
        """Return the group that this rank is in; None where it would be alone."""
        import torch.distributed as dist

        mine = None
        for members in all_members:
            if len(members) < 2:
                continue
            made = dist.new_group(members)
            if self._rank.number in members:
                mine = made
        return mine

    def _all_reduce(self, tensor: torch.Tensor, group: dist.ProcessGroup | None, what: str) -> None:
        import torch.distributed as dist

        if group is None:
            return
        begin_ns = time.monotonic_ns()
        dist.all_reduce(tensor, group=group)
        among = members_of(group, self._rank.world)
        self._trace.communicated("all-reduce", begin_ns, size=size_of(tensor), what=what, group=among)

    def end_iteration(self) -> dict[str, float]:
        return self._clock.end_iteration()

    def _compute(self, name: str, seconds: float, what: str) -> None:
        begin_ns = time.monotonic_ns()
        self._clock.start()
        self._clock.sleep_until(seconds)
        self._trace.computed(name, begin_ns, time.monotonic_ns(), what=what)

    def _blocks(self, name: str, what: str, *, times: float) -> None:
        """Run a pass through the blocks: half a block's products, an all-reduce of their result, the other half's."""
        for _ in range(self._plan["blocks"]):
            for seconds in (self._plan["attention_s"], self._plan["feed_forward_s"]):
                self._compute(name, seconds * times, what)
                self._all_reduce(self._activation, self._tensor, f"tensor, {what}")

    def forward(self, microbatch: int) -> float:
        """Run the forward pass of one microbatch; return the seconds from the arrival of its input."""
        what = f"microbatch {microbatch}"
        self._receive(self._before, _FORWARD_TAG + 2 * microbatch, what)
        begin_ns = time.monotonic_ns()
        if self._before is None:
            self._all_reduce(self._activation, self._tensor, f"tensor, {what}")
        self._blocks("forward", what, times=1.0)
        if self._after is None:
            self._compute("forward", self._plan["head_s"], what)
        self._send(self._after, _FORWARD_TAG + 2 * microbatch, what)
        return (time.monotonic_ns() - begin_ns) * 1e-9

    def backward(self, microbatch: int) -> float:
        """Run the backward pass of one microbatch; return the seconds from when its gradients could be computed."""
        what = f"microbatch {microbatch}"
        self._receive(self._after, _BACKWARD_TAG + 2 * microbatch, what)
        begin_ns = time.monotonic_ns()
        if self._after is None:
            self._compute("backward", self._plan["head_s"] * self._plan["backward"], what)
            self._all_reduce(self._activation, self._tensor, f"tensor, {what}")
        if self._rank.config["recompute"]:
            self._blocks("recompute", what, times=1.0)
        self._blocks("backward", what, times=self._plan["backward"])
        self._send(self._before, _BACKWARD_TAG + 2 * microbatch, what)
        return (time.monotonic_ns() - begin_ns) * 1e-9

    def _receive(self, peer: int | None, tag: int, what: str) -> None:
        import torch.distributed as dist

        if peer is None:
            return
        begin_ns = time.monotonic_ns()
        dist.recv(self._incoming, peer, tag=tag)
        self._trace.communicated("receive", begin_ns, size=size_of(self._incoming), what=what, peer=peer)

    def _send(self, peer: int | None, tag: int, what: str) -> None:
        """Begin to send; its end is waited for at the iteration's end."""
        if peer is not None:
            self._sender.begin(self._outgoing, peer, tag=tag, what=what)

    def reduce(self) -> None:
        """Average all gradients over replicas, then add up those of the embedding table over first and last stage."""
        self._sender.wait()
        self._gradients.copy_(self._noise)
        self._all_reduce(self._gradients, self._data, "data")
        # The table comes first in the first stage and in the last one alike.
        self._all_reduce(self.table(self._gradients), self._ends, "embedding")

    def table(self, values: torch.Tensor) -> torch.Tensor:
        """Return the part of a stage's values that belongs to the embedding table, of a stage that has one."""
        return values[: self._rank.config["embedding"]]

    def update(self) -> float:
        """Apply plain gradient descent; return the mean square of the weights, which moves with them."""
        import torch

        with torch.no_grad():
            replicas = 1 + max(place[REPLICA] for place in self._rank.config["places"])
            self.weights.add_(self._gradients, alpha=-LEARNING_RATE / replicas)
            return float(self.weights.square().mean())


def build(rank: Rank[PtdSettings]) -> Join:
    stage = Stage(rank)
    return lambda: prepare(stage, rank)


def prepare(stage: Stage, rank: Rank[PtdSettings]) -> Step:
    """Make the groups, and return the step of one iteration."""
    stage.join()
    config = rank.config
    passes = one_forward_one_backward(stage.stage, stage.stages, config["microbatches"])
    # Be a rank of each replica counts its samples, where their loss would be.
    counts = stage.stage == stage.stages - 1 and config["places"][rank.number][TENSOR] == 0
    holds_table = stage.stage in (0, stage.stages - 1)

    def step(_iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        spent = {"forward": 0.0, "backward": 0.0}
        for kind, microbatch in passes:
            spent[kind] += stage.forward(microbatch) if kind == "forward" else stage.backward(microbatch)
        stage.reduce()
        loss = stage.update()
        all_s = (time.monotonic_ns() - begin_ns) * 1e-9
        fields: dict[str, float] = {
            "forward_s": round(spent["forward"], 9),
            "backward_s": round(spent["backward"], 9),
            "wait_s": round(all_s - sum(spent.values()), 9),
            "loss": loss,
            "samples": config["batch"] * config["microbatches"] if counts else 0,
            **stage.end_iteration(),
        }
        if rank.checksum:
            fields["checksum"] = float(stage.weights.double().sum())
            fields["table"] = float(stage.table(stage.weights).double().sum()) if holds_table else 0.0
        return fields

    return step


def main() -> None:
    run(build)
