"""KungFu on PyTorch, for hosts that have it: a `kungfu-run` on each, with emulated compute and a chosen strategy."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from orchestrator.parts.launch import Flow, Launch, Line, Requirement, Stop
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import KUNGFU_PORT, Job, Topology, in_url
from workloads.common import environments, rank_traffic, replicated_tasks, shipping, trained_model
from workloads.common.collective_tasks import Done, Ready
from workloads.common.replicated_tasks import buckets
from workloads.common.trained_model import EmulatedConfig
from workloads.rank.external.command import LoggedCommandSettings as CommandSettings
from workloads.rank.torch.exchange import schedule
from workloads.readers.iteration_logs import LOG, read_iterations

NAME = "kungfu"

_PROGRAM = "external.kungfu_worker"
_STARTER = "external.command"
_GRACE_S = 5.0
_FIELDS = ("seconds", "forward_s", "backward_s", "wait_s", "loss", "absorbed_s")
_GRAPHS = {  # of one worker a host, where several stars or trees carry parts of the gradients
    "STAR": "star",
    "MULTI_STAR": "clique",
    "RING": "ring",
    "CLIQUE": "clique",
    "TREE": "tree",
    "BINARY_TREE": "binary-tree-star",
    "BINARY_TREE_STAR": "binary-tree-star",
    "MULTI_BINARY_TREE_STAR": "binary-tree-star",
    "AUTO": "binary-tree-star",
}
_REMEDY = "build KungFu (github.com/lsds/KungFu) there: no package index has it, and PyPI's `kungfu` is another project"


class Config(EmulatedConfig):
    """A training with KungFu's synchronous SGD, one worker a host. It is started at the gate."""

    strategy: Literal[
        "STAR",
        "MULTI_STAR",
        "RING",
        "CLIQUE",
        "TREE",
        "BINARY_TREE",
        "BINARY_TREE_STAR",
        "MULTI_BINARY_TREE_STAR",
        "AUTO",
    ] = "BINARY_TREE_STAR"
    """How gradients travel between the workers, by KungFu's own names."""

    launcher: str = Field(default="kungfu-run", min_length=1)
    """The program `kungfu-run` on the hosts, where it is not on the PATH."""


def own_pace(config: Config) -> str:  # noqa: ARG001 - of every one
    return "kungfu-run"


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = trained_model.emulated_problems(config, topology)
    hosts = config.hosts or []
    return found + [
        Problem(at=("hosts", index), message=f"{name} is named twice", accepted="each host once: one worker a host")
        for index, name in enumerate(hosts)
        if name in hosts[:index]
    ]


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """Return a launch for each rank: `kungfu-run` under a program that waits for the gate and reads the log."""
    settings = trained_model.emulated_settings(config, topology, seed=seed)
    workers = ",".join(f"{in_url(topology.node(rank.node).address)}:1" for rank in job.ranks)
    addresses = rank_traffic.flows(job, topology, port=KUNGFU_PORT)[1:]
    fields = (*_FIELDS, "jitter") if settings.get("jitter") else _FIELDS
    runners = Flow(kind="control", name=job.name, port=KUNGFU_PORT)
    started = []
    for rank in job.ranks:
        node = topology.node(rank.node)
        command: CommandSettings = {
            "argv": [
                *(config.launcher, "-np", str(len(job.ranks)), "-H", workers, "-nic", node.first.device),
                *("-strategy", config.strategy, *shipping.argv(config.python or node.python, _PROGRAM)),
            ],
            "cwd": None,
            "launcher": None,
            "join_s": 0.0,
            "reads": True,
            "pattern": None,
            "json": {name: name for name in fields},
            "file": "steps.jsonl",
            "samples": trained_model.batch(config),
            "first_within_s": trained_model.READY_S,
            "grace_s": _GRACE_S,
        }
        started.append(
            Launch(
                name=f"{job.name}-rank{rank.rank}",
                node=rank.node,
                role="rank",
                argv=shipping.argv(node.python, _STARTER),
                env={
                    "RANK": str(rank.rank),
                    "OMP_NUM_THREADS": str(config.threads),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **environments.TORCH_FILES,
                    **config.env,
                },
                files={
                    **shipping.files(_PROGRAM, _STARTER, settings=settings),
                    "command.json": json.dumps(command).encode(),
                },
                ready=Line("^ready"),
                ready_within_s=trained_model.READY_S,
                gate=True,
                follow=LOG,
                stop=Stop(signals=((signal.SIGTERM, _GRACE_S + 2.0),)),
                job=job.name,
                rank=rank.rank,
                footprint=trained_model.footprint(config, topology, ranks=len(job.ranks)),
                flows=(runners, *addresses) if rank.rank == 0 else (),
                ports=(KUNGFU_PORT,),
            )
        )
    return started


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    """Return requirements of `kungfu-run`, torch and KungFu's module on every host, and of data-plane devices."""
    needed = []
    for name in job.nodes:
        node = topology.node(name)
        python = config.python or node.python
        needed += [
            Requirement(node=name, kind="program", what=config.launcher, remedy=_REMEDY, needed_by=NAME),
            Requirement(node=name, kind="module", what="kungfu", python=python, remedy=_REMEDY, needed_by=NAME),
            Requirement(
                node=name,
                kind="module",
                what="torch",
                python=python,
                remedy="pip install torch==2.13.0",
                needed_by=NAME,
            ),
            *environments.device_requirements(node, needed_by=NAME),
        ]
    return needed


def theory(config: Config, job: Job, topology: Topology) -> Theory:
    """Return the bytes of reducing along any tree and back: N-1 times the gradients each way, over all ranks."""
    moved = trained_model.parameters(config, topology)
    world = len(job.ranks)
    return Theory(
        bytes_per_iteration=2 * (world - 1) / world * trained_model.BYTES_PER_PARAMETER * moved,
        parameters=moved,
        source="mean over ranks of a reduction tree and the way back, 2 (N-1)/N x parameters x 4 bytes, whatever its "
        "shape",
    )


def tasks(config: Config, job: Job, topology: Topology) -> TaskGraph:
    """Return an iteration as tasks: each gradient along the strategy's graph as soon as it is there, all at once."""
    layers = trained_model.layers(config, topology)
    world = len(job.ranks)

    def reduce(graph: TaskGraph, _number: int, size: float, ready: Ready) -> Done:
        elements = round(size / trained_model.BYTES_PER_PARAMETER)
        rounds = {
            rank: schedule(_GRAPHS[config.strategy], rank=rank, hosts=list(range(world)), size=elements)
            for rank in range(world)
        }
        return replicated_tasks.scheduled(graph, rounds, ready, element_bytes=trained_model.BYTES_PER_PARAMETER)

    single = buckets(layers, cap=0.0, first=None, element_bytes=trained_model.BYTES_PER_PARAMETER)
    return replicated_tasks.overlapped(
        world,
        single,
        reduce,
        forward_s=sum(forward_s for forward_s, _, _ in layers),
        backward_s=sum(backward_s for _, backward_s, _ in layers),
        at_once=len(single),
    )


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    return read_iterations(output)
