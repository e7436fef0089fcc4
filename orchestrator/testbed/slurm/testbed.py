"""The hosts of a Slurm allocation as a testbed: one step for the agents of all, and one more for each that is lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import TestbedError
from orchestrator.parts.protocols import Channel
from orchestrator.testbed.slurm import job as jobs
from orchestrator.testbed.slurm.spec import Allocation, SlurmSpec, topology
from orchestrator.testbed.slurm.step import Step


class SlurmTestbed:
    """Hosts that are there for as long as their allocation."""

    __test__ = False

    def __init__(self, spec: SlurmSpec, allocation: Allocation) -> None:
        self.allocation = allocation
        self.topology = topology(spec, allocation)
        self._python = spec.interpreter
        self._steps: list[Step] = []
        self._waiting: dict[str, Step] = {}  # node of Slurm -> the step that has an agent there that nobody has yet

    def open(self, run_folder: Path, deadline: Deadline) -> None:  # noqa: ARG002 - the protocol's
        """Start an agent on every host by one step; nothing of `run_folder` can be seen there."""
        nodes = [host.node for host in self.allocation.hosts.values()]
        self._waiting = dict.fromkeys(nodes, self._step(nodes))

    def connect(self, node: str, deadline: Deadline) -> Channel:
        """The channel to a host's agent; after its first one to that of a fresh step of its own."""
        name = self.allocation.hosts[node].node
        step = self._waiting.pop(name, None)
        return (step or self._step([name])).channel(name, deadline)

    def _step(self, nodes: list[str]) -> Step:
        job = jobs.current()
        if strangers := [node for node in nodes if node not in job.nodes]:
            raise TestbedError(
                f"{', '.join(strangers)}: not in the allocation of job {job.id}",
                hint=f"salloc --nodelist={','.join(strangers)}",
            )
        step = Step(job, [node for node in job.nodes if node in nodes], python=self._python)
        self._steps.append(step)
        return step

    def local_folder(self, node: str) -> Path | None:  # noqa: ARG002 - the protocol's
        return None

    def about(self) -> Mapping[str, str]:
        names = " ".join(f"{name}={host.node}" for name, host in self.allocation.hosts.items())
        return {"slurm-job": self.allocation.job, "nodes": names}

    def close(self) -> None:
        """End what channels are left, and every step; a second call does nothing."""
        while self._steps:
            self._steps.pop().close()
