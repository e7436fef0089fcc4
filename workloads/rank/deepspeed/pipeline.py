"""Run a rank of a DeepSpeed training with pipeline stages until it is told to end."""

from __future__ import annotations

import itertools
import time
from typing import Any, TypedDict

import torch
from torch import nn

from ..compute.training import clock_of, sharpen_timer
from ..lifecycle import Jittered, Step
from ..torch.program import Join, Rank, precision_of, run
from . import engine
from .engine import engine_of, settings, start, watch


class StagePlan(TypedDict):
    """A stage's compute time of one microbatch, in seconds, and the sizes of its parameter tensors."""

    forward_s: float
    backward_s: float
    sizes: list[int]


class PipelineSettings(engine.DeepSpeedSettings, Jittered):
    """Settings of the pipeline."""

    stages: list[StagePlan]
    activation: int  # elements that a stage passes on of a microbatch


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, stage: Stage, activation: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.stage = stage
        stage.compute("forward")
        # The mean is what the loss then tells of the last stage's parameters.
        return activation + parameters[-1].square().mean() if stage.last else activation.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        stage: Stage = ctx.stage
        stage.compute("backward")
        return (None, gradients[0], *stage.noise)


class Stage(nn.Module):
    """The layers of one stage, which sleep: their parameters, and gradients that were made beforehand."""

    def __init__(self, rank: Rank[PipelineSettings], number: int) -> None:
        super().__init__()
        plan = rank.config["stages"][number]
        self._seconds = {"forward": plan["forward_s"], "backward": plan["backward_s"]}
        self._trace = rank.trace
        self._clock = clock_of(rank.config, rank.number)
        self.last = number == len(rank.config["stages"]) - 1
        self.spent_s = dict.fromkeys(self._seconds, 0.0)
        draw = torch.Generator().manual_seed(rank.config["seed"] + rank.number)
        sizes = plan["sizes"]
        self.noise = tuple(torch.randn(size, generator=draw).to(rank.device) for size in sizes)
        for index, size in enumerate(sizes):
            self.register_parameter(f"weight{index}", nn.Parameter(torch.ones(size)))

    def compute(self, name: str) -> None:
        """Sleep for as long as a pass of a microbatch takes."""
        begin_ns = time.monotonic_ns()
        self._clock.start()
        self._clock.sleep_until(self._seconds[name])
        end_ns = time.monotonic_ns()
        self._trace.computed(name, begin_ns, end_ns)
        self.spent_s[name] += (end_ns - begin_ns) * 1e-9

    def end_iteration(self) -> dict[str, float]:
        return self._clock.end_iteration()

    def forward(self, activation: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Pass.apply(self, activation, *self.parameters())  # type: ignore[no-untyped-call]
        return result


def prepare(rank: Rank[PipelineSettings]) -> Step:
    """Divide the ranks into stages and replicas, and return the step of one iteration."""
    from deepspeed.pipe import LayerSpec, PipelineModule

    config = rank.config
    start(rank)
    sharpen_timer()
    count = len(config["stages"])
    module = PipelineModule(
        layers=[LayerSpec(Stage, rank, number) for number in range(count)],
        num_stages=count,
        loss_fn=lambda activation, _label: activation.float().mean(),
        partition_method="uniform",
    )
    staged = {**settings(config), "zero_optimization": {"stage": config["zero_stage"]}}
    trained = engine_of(module, staged)
    log = watch(rank)
    (stage,) = (part for part in module.modules() if isinstance(part, Stage))
    activation = torch.zeros(config["activation"], dtype=precision_of(config["precision"]), device=rank.device)
    batches = itertools.repeat((activation, torch.zeros((), device=rank.device)))

    def step(iteration: int) -> dict[str, float]:
        begin_ns = time.monotonic_ns()
        stage.spent_s = dict.fromkeys(stage.spent_s, 0.0)
        loss = trained.train_batch(batches)
        forward_s, backward_s = stage.spent_s["forward"], stage.spent_s["backward"]
        fields = {
            "forward_s": round(forward_s, 9),
            "backward_s": round(backward_s, 9),
            "wait_s": round((time.monotonic_ns() - begin_ns) * 1e-9 - forward_s - backward_s, 9),
            "loss": float(loss),
            # The last stage counts the samples of its replica.
            "samples": config["batch"] if stage.last else 0,
            **stage.end_iteration(),
            **rank.checksum_of(module),
        }
        if log is not None:
            log.close_iteration(iteration)
        return fields

    return step


def build(rank: Rank[PipelineSettings]) -> Join:
    import deepspeed  # noqa: F401  # slow, and before the others are met a rank may take its time

    return lambda: prepare(rank)


def main() -> None:
    run(build)
