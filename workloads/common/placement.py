"""Who plays which rank: the part of a workload's configuration that all frameworks share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import Field, model_validator

from orchestrator.core.fields import Model
from orchestrator.core.units import Mistake
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import named_hosts
from orchestrator.parts.topology import Rank, Topology
from workloads.common.container_config import ContainerConfig
from workloads.common.variables import Recorded, Taken


class WorkloadConfig(Model):
    """What every workload's configuration has."""

    hosts: list[str] | None = None
    """The host of each rank, in rank order; a host named twice has two ranks. Default: all hosts, one rank each, or as
    many as an inventory has slots."""

    env: Recorded = Field(default_factory=dict)
    """More environment variables for each rank, such as NCCL_IB_HCA; they win over those that are set here. They are
    recorded with the results: no place for secrets."""

    env_from: Taken | None = None
    """Variables for each rank whose values are never recorded, such as `[WANDB_API_KEY]`: taken from the environment of
    this command when a run begins. Or where each comes from: another variable's name, or the path of a file, which has
    a '/' in it."""

    container: ContainerConfig | None = None
    """An image in which all processes of this workload run, instead of the hosts' own programs."""

    @model_validator(mode="after")
    def _one_origin(self) -> WorkloadConfig:
        for name in self.env_from or ():
            if name in self.env:
                raise Mistake("stands in env, too", accepted="each variable once", at=("env_from", name))
        return self


def ranks(hosts: Sequence[str] | None, topology: Topology) -> tuple[Rank, ...]:
    """One rank for each entry of `hosts` (default: each host once); the first ranks of a node get its GPUs."""
    seen: Counter[str] = Counter()
    placed = []
    for rank, name in enumerate(hosts if hosts is not None else topology.placed):
        local = seen[name]
        seen[name] += 1
        device = f"cuda:{local}" if local < topology.node(name).gpus else "cpu"
        placed.append(Rank(rank=rank, node=name, local_rank=local, device=device))
    return tuple(placed)


def placement_problems(hosts: Sequence[str] | None, topology: Topology, *, least: int = 2) -> list[Problem]:
    """Hosts that the testbed does not have, and fewer than `least` ranks."""
    known = [node.name for node in topology.hosts]
    named = topology.placed if hosts is None else hosts
    problems = named_hosts.problems(named_hosts.listed("hosts", named), topology)
    if len(named) < least:
        problems.append(
            Problem(
                at=("hosts",),
                message=f"a training over the network needs at least {least} ranks, here {len(named)}",
                accepted=f"{least} or more of {', '.join(known)}; a host may be named more than once",
            )
        )
    return problems
