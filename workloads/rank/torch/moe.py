"""Run a rank of a mixture of experts: real gates that learn, emulated blocks, tokens sent all to all."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..compute.training import LEARNING_RATE
from ..lifecycle import Jittered, Step
from ..logs import IterationLog
from .program import Join, Precision, Rank, TorchSettings, gradient_of, precision_of, run, size_of

if TYPE_CHECKING:
    import torch


class MoeSettings(TorchSettings, Jittered):
    """The model's blocks, and a rank's compute times in an iteration, in seconds, forward, with even gates."""

    blocks: int
    sparse: list[int]  # the blocks that have experts
    experts: int
    top: int
    gate_rate: float
    batch: int
    tokens: int  # of a rank
    hidden: int
    scale: int
    dense: int  # parameters that each rank has, scaled
    precision: Precision
    attention_s: float
    feed_forward_s: float
    head_s: float
    backward: float  # how many times longer a backward pass takes


class Experts:
    """The blocks of a model, some with experts on all ranks, and the bytes that this rank sends to each other."""

    def __init__(self, rank: Rank[MoeSettings]) -> None:
        import torch

        from ..compute.training import clock_of, sharpen_timer
        from .gating import Gate, Tokens

        config = rank.config
        self._rank, self._config, self._trace = rank, config, rank.trace
        self._clock = clock_of(rank.config, rank.number)
        self._precision = precision_of(config["precision"])
        self.gates = torch.nn.ModuleList(
            Gate(config["experts"], top=config["top"], seed=config["seed"] + block)
            if block in config["sparse"]
            else torch.nn.Identity()
            for block in range(config["blocks"])
        )
        self._tokens = Tokens(config["tokens"], seed=config["seed"], rank=rank.number)
        draw = torch.Generator().manual_seed(config["seed"] + rank.number)
        self.dense = torch.nn.Parameter(torch.ones(config["dense"]))
        self._noise = torch.randn(config["dense"], generator=draw).to(self._precision)
        self._gradients = torch.empty_like(self._noise)
        self._routes: dict[int, torch.Tensor] = {}
        self._balance: list[torch.Tensor] = []
        self._optimizer = torch.optim.SGD(self.gates.parameters(), lr=config["gate_rate"])
        sharpen_timer()

    def end_iteration(self) -> dict[str, float]:
        return self._clock.end_iteration()

    def _compute(self, name: str, seconds: float, block: int) -> None:
        begin_ns = time.monotonic_ns()
        self._clock.start()
        self._clock.sleep_until(seconds)
        self._trace.computed(name, begin_ns, time.monotonic_ns(), what=f"block {block}")

    def _route(self, block: int) -> None:
        """Run the gate, and share its choice: copies of tokens from each rank (row) to each (column)."""
        import torch
        import torch.distributed as dist

        begin_ns = time.monotonic_ns()
        copies, balance = self.gates[block](self._tokens.next(), self._tokens.chance(self._config["top"]))
        self._balance.append(balance)
        mine = copies.view(self._rank.world, -1).sum(dim=1)
        self._trace.computed("gate", begin_ns, time.monotonic_ns(), what=f"block {block}")
        begin_ns = time.monotonic_ns()
        self._routes[block] = torch.empty(self._rank.world, self._rank.world, dtype=torch.int64)
        dist.all_gather(list(self._routes[block].unbind()), mine)
        self._trace.communicated("all-gather", begin_ns, size=size_of(self._routes[block]), what=f"block {block}")

    def _exchange(self, block: int, *, back: bool) -> None:
        """Exchange all to all: tokens to the ranks of their experts, or the results back."""
        import torch
        import torch.distributed as dist

        elements = self.elements(block)
        if back:
            elements = elements.T
        out, into = elements[self._rank.number].tolist(), elements[:, self._rank.number].tolist()
        sent, got = torch.zeros(sum(out), dtype=self._precision), torch.empty(sum(into), dtype=self._precision)
        begin_ns = time.monotonic_ns()
        dist.all_to_all_single(got, sent, into, out)
        self._trace.communicated("all-to-all", begin_ns, size=size_of(sent), what=f"block {block}")

    def elements(self, block: int) -> torch.Tensor:
        """Return the elements of a block's tokens on the way to their experts, from each rank to each."""
        return self._routes[block] * self._config["hidden"] // self._config["scale"]

    def _expert_s(self, block: int) -> float:
        """Return the seconds that this rank's experts in a block compute, in proportion to received tokens."""
        return (
            float(self._config["feed_forward_s"] * self._routes[block][:, self._rank.number].sum())
            / self._config["tokens"]
        )

    def forward(self) -> None:
        self._balance.clear()
        for block in range(self._config["blocks"]):
            self._compute("forward", self._config["attention_s"], block)
            if block in self._config["sparse"]:
                self._route(block)
                self._exchange(block, back=False)
                self._compute("forward", self._expert_s(block), block)
                self._exchange(block, back=True)
            else:
                self._compute("forward", self._config["feed_forward_s"], block)
        self._compute("forward", self._config["head_s"], self._config["blocks"])

    def backward(self) -> None:
        """Run the backward pass: gradients of returned tokens go to the experts, those of sent tokens come back."""
        times = self._config["backward"]
        self._compute("backward", self._config["head_s"] * times, self._config["blocks"])
        for block in reversed(range(self._config["blocks"])):
            if block in self._config["sparse"]:
                self._exchange(block, back=False)
                self._compute("backward", self._expert_s(block) * times, block)
                self._exchange(block, back=True)
            else:
                self._compute("backward", self._config["feed_forward_s"] * times, block)
            self._compute("backward", self._config["attention_s"] * times, block)
        self._optimizer.zero_grad()
        sum(self._balance, start=self._balance[0].new_zeros(())).backward()

    def reduce(self) -> None:
        """Average the gradients of what all ranks hold: everything but the experts."""
        import torch
        import torch.distributed as dist

        self._gradients.copy_(self._noise)
        choosing = torch.cat([gradient_of(gate).flatten() for gate in self.gates.parameters()])
        for what, gradients in (("dense", self._gradients), ("gates", choosing)):
            begin_ns = time.monotonic_ns()
            dist.all_reduce(gradients)
            self._trace.communicated("all-reduce", begin_ns, size=size_of(gradients), what=what)
        choosing /= self._rank.world
        at = 0
        for gate in self.gates.parameters():
            gradient_of(gate).copy_(choosing[at : at + gate.numel()].view_as(gate))
            at += gate.numel()

    def update(self) -> float:
        """Apply plain gradient descent; return the mean balancing loss of the gates: one when all is even."""
        import torch

        self._optimizer.step()
        with torch.no_grad():
            self.dense.add_(self._gradients, alpha=-LEARNING_RATE / self._rank.world)
        return float(torch.stack(self._balance).detach().mean())

    def routing(self) -> dict[str, object]:
        """Return copies of tokens from each rank to each in the iteration, and bytes in all four exchanges."""
        import torch

        copies = torch.stack(list(self._routes.values())).sum(dim=0)
        there = torch.stack([self.elements(block) for block in self._routes]).sum(dim=0)
        sent = 2 * (there + there.T) * torch.finfo(self._precision).bits // 8
        others = sent[~torch.eye(self._rank.world, dtype=torch.bool)]
        me = self._rank.number
        return {
            "copies": copies[me].tolist(),
            "bytes": sent[me].tolist(),
            "highest": int(others.max()),
            "lowest": int(others.min()),
        }


def build(rank: Rank[MoeSettings]) -> Join:
    experts = Experts(rank)
    return lambda: prepare(experts, rank)


def prepare(experts: Experts, rank: Rank[MoeSettings]) -> Step:
    """Return the step of one iteration, which logs the tokens that each rank received."""
    log = IterationLog(Path("routing.jsonl"))

    def step(iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        experts.forward()
        forward_ns = time.monotonic_ns()
        experts.backward()
        backward_ns = time.monotonic_ns()
        experts.reduce()
        reduced_ns = time.monotonic_ns()
        loss = experts.update()
        log.write({"iteration": iteration, **experts.routing()})
        fields: dict[str, float] = {
            "forward_s": round((forward_ns - begin_ns) * 1e-9, 9),
            "backward_s": round((backward_ns - forward_ns) * 1e-9, 9),
            "wait_s": round((reduced_ns - backward_ns) * 1e-9, 9),
            "loss": loss,
            "samples": rank.config["batch"],
            **experts.end_iteration(),
        }
        if rank.checksum:
            shared = [experts.dense, *experts.gates.parameters()]
            fields["checksum"] = sum(float(values.detach().double().sum()) for values in shared)
        return fields

    return step


def main() -> None:
    run(build)
