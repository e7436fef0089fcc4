"""Keys that every workload has (hosts, environment variables, container), and the placement of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from orchestrator.core import secret_looks
from orchestrator.core.fields import Model
from orchestrator.core.units import Mistake
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import named_hosts, secret_source
from orchestrator.parts.topology import Rank, Topology
from workloads.common.container_config import ContainerConfig

_INSTEAD = "env_from, such as `env_from: [{name}]`, which takes it from your environment and never records it"


def _recorded(value: Any) -> Any:
    """Refuse what looks like a secret, without showing it."""
    for name, text in value.items() if isinstance(value, dict) else ():
        sign = "its name" if text is not None and secret_looks.looks_secret(str(name), str(text)) else ""
        if not sign and isinstance(text, str) and secret_looks.value_looks_secret(text):
            sign = "its value"
        if sign:
            message = f"by {sign} this is a secret, and env is recorded with the results"
            raise Mistake(message, accepted=_INSTEAD.format(name=name), at=(name,))
    return value


def _taken(value: Any) -> Any:
    """Read the sources of variables: a list of names stands for variables of the same names."""
    if not isinstance(value, dict) and not (isinstance(value, list) and all(isinstance(name, str) for name in value)):
        raise Mistake("is neither a list of names nor a mapping", accepted="such as [WANDB_API_KEY]")
    entries = value if isinstance(value, dict) else {name: name for name in value}
    for name, source in entries.items():
        at = (name,) if isinstance(value, dict) else (value.index(name),)
        if not secret_looks.VARIABLE.fullmatch(name):
            raise Mistake("no name of a variable", accepted="letters, digits and '_', such as WANDB_API_KEY", at=at)
        secret_source.checked(source, at=at)
    return entries


def _beside(sources: dict[str, str], info: ValidationInfo) -> dict[str, str]:
    """Resolve relative paths from the folder of the file that names them."""
    return {name: secret_source.beside(source, info) for name, source in sources.items()}


RecordedEnv = Annotated[dict[str, str], BeforeValidator(_recorded)]
EnvSources = Annotated[
    dict[str, str],
    BeforeValidator(_taken),
    AfterValidator(_beside),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": {"type": "string"}},
            ]
        }
    ),
]


class WorkloadConfig(Model):
    """The keys that every workload has."""

    hosts: list[str] | None = None
    """The host of each rank, in rank order; a host named twice has two ranks. Default: all hosts, one rank each, or as
    many as an inventory has slots."""

    env: RecordedEnv = Field(default_factory=dict)
    """More environment variables for each rank, such as NCCL_IB_HCA; they win over those that are set here. They are
    recorded with the results: no place for secrets."""

    env_from: EnvSources | None = None
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
    """Return one rank for each entry of `hosts` (default: each host once); the first ranks of a node get its GPUs."""
    seen: Counter[str] = Counter()
    placed = []
    for rank, name in enumerate(hosts if hosts is not None else topology.placed):
        local = seen[name]
        seen[name] += 1
        device = f"cuda:{local}" if local < topology.node(name).gpus else "cpu"
        placed.append(Rank(rank=rank, node=name, local_rank=local, device=device))
    return tuple(placed)


def placement_problems(hosts: Sequence[str] | None, topology: Topology, *, least: int = 2) -> list[Problem]:
    """Find hosts that the testbed does not have, and fewer than `least` ranks."""
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
