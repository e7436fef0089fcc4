"""The workload `ping-pong`: two ranks send a message back and forth, an iteration each time it has come back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from orchestrator.core.fields import Size
from orchestrator.core.units import size_text
from orchestrator.parts.launch import Flow, Launch, Line, Requirement
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import RENDEZVOUS_PORT, Job, Topology
from workloads.common.placement import WorkloadConfig, placement_problems
from workloads.readers.iteration_logs import LOG, read_iterations

NAME = "ping-pong"

_PROGRAM = Path(__file__).with_name("ping_pong_rank.py")  # runs on hosts: Python 3.8, nothing but its own library
_RANKS = 2
_UNKNOWN = frozenset({"forward_s", "backward_s", "wait_s", "loss", "samples"})  # of a row: nothing is trained


class Config(WorkloadConfig):
    """Two ranks that send a message back and forth."""

    message: Size = Field(default=1e6, gt=0)
    """Size of the message."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    """What is wrong with it on this testbed: hosts that are not there, or more of them than two."""
    found = placement_problems(config.hosts, topology)
    if len(config.hosts or topology.hosts) != _RANKS:
        found.append(Problem(at=("hosts",), message="does not name two hosts", accepted="two, such as [h1, h2]"))
    return found


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    """Nothing that a host lacks: its Python runs the program."""
    return []


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:
    """A process each rank; both wait at the gate, so that they start together."""
    port = RENDEZVOUS_PORT + job.index
    ends = [topology.node(rank.node).address for rank in job.ranks]
    return [
        Launch(
            name=f"{job.name}-rank{rank.rank}",
            node=rank.node,
            role="rank",
            argv=(
                *(topology.node(rank.node).python, "-I", "-S", _PROGRAM.name),
                *(str(rank.rank), ends[0], str(port), str(_sent(config, topology))),
            ),
            env=dict(config.env),
            files={_PROGRAM.name: _PROGRAM},
            ready=Line("^ready$"),
            gate=True,
            follow=LOG,
            job=job.name,
            rank=rank.rank,
            flows=(Flow(kind="training", name=job.name, src=ends[0], dst=ends[1], port=port),) if not rank.rank else (),
        )
        for rank in job.ranks
    ]


def theory(config: Config, job: Job, topology: Topology) -> Theory | None:
    """Each rank sends the message once an iteration."""
    sent = _sent(config, topology)
    return Theory(bytes_per_iteration=sent, parameters=0, source=f"{size_text(config.message)}, once each way")


def _sent(config: Config, topology: Topology) -> int:
    """Bytes of the message on this testbed: sizes shrink with the scale, durations do not."""
    return max(1, int(config.message / topology.scale))


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    """Rows of `iterations`: the log has the format of orch's own ranks, whose reader takes it."""
    return read_iterations(output, unknown=_UNKNOWN)
