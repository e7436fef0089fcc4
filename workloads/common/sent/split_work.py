"""What ranks of a model do that is split by stage, tensor and replica, as plain data."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.parts.work import Pipelined, StageWork
from workloads.models.gpt import Stage
from workloads.rank.torch import parallel
from workloads.rank.torch.parallel import REPLICA, STAGE, TENSOR, Place
from workloads.rank.torch.ptd import StagePlan


def pipelined(
    where: Sequence[Place], stages: Sequence[StageWork], *, microbatches: int, activation: int, embedding: int
) -> Pipelined:
    """The work of ranks in these places; sizes in bytes, scaled."""
    return Pipelined(
        microbatches=microbatches,
        activation=activation,
        embedding=embedding,
        stages=tuple(stages),
        stage_of=tuple(place[STAGE] for place in where),
        tensor_groups=parallel.groups(where, TENSOR),
        lines=parallel.groups(where, STAGE),
        data_groups=parallel.groups(where, REPLICA),
        ends=parallel.ends(where),
    )


def of_stage(stage: Stage, plan: StagePlan, *, recompute: bool, gradients: int) -> StageWork:
    """A micro-batch in a stage, as `rank/torch/ptd.py` goes through it: half a block, then an all-reduce."""
    halves = 2 * stage.blocks
    blocks_s = stage.blocks * (plan["attention_s"] + plan["feed_forward_s"])
    return StageWork(
        forward_s=blocks_s + plan["head_s"],
        forward_pieces=halves + stage.last,
        forward_all_reduces=halves + stage.first,
        backward_s=blocks_s * recompute + (blocks_s + plan["head_s"]) * plan["backward"],
        backward_pieces=halves * (1 + recompute) + stage.last,
        backward_all_reduces=halves * (1 + recompute) + stage.last,
        gradients=gradients,
    )
