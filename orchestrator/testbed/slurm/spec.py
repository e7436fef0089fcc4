"""Describes hosts that Slurm allocates: the keys of `testbed: slurm`, facts of the allocation, and the topology."""

from __future__ import annotations

import sys
from typing import ClassVar

from pydantic import Field

from orchestrator.core.fields import Model, Rate
from orchestrator.parts.topology import WORK, Link, Node, Topology
from orchestrator.testbed import inventory
from orchestrator.testbed.data_plane import DataPlane
from orchestrator.testbed.inventory import Absolute, Data, Name


class AllocatedHost(Model):
    """A node of an allocation, with its properties when it was asked."""

    node: Name
    """What Slurm calls it."""

    data: Data
    """Its end of the data plane."""

    link: Rate
    """Rate of its link."""

    gpus: int = Field(default=0, ge=0)
    """GPUs that the job has there."""


class Allocation(Model):
    """Facts of an allocation, found by its agents: written with the results, and not by hand."""

    job: str
    """The job's id."""

    mtu: int = Field(ge=576, le=65535)
    """MTU of the data plane, in bytes."""

    rights: tuple[str, ...] = ()
    """What the job's processes may do on every host, of what parts ask for: none without root."""

    hosts: dict[Name, AllocatedHost] = Field(min_length=1)
    """h1, h2, ... in rank order: the order in which Slurm lists the nodes."""


class SlurmSpec(DataPlane):
    """Hosts of the Slurm allocation that the command runs in: h1, h2, ... in rank order."""

    KEY: ClassVar[str] = "slurm"
    LOOK: ClassVar[str] = "srun ip -br address"

    python: str | None = Field(default=None, min_length=1)
    """Python interpreter on the hosts, 3.8 or later: a name or a path; the one that runs this command when left out,
    which hosts of an allocation usually see too."""

    work: Absolute = WORK
    """Absolute folder on each host under which runs make theirs; `{uid}` in it is the user's number there."""

    allocation: Allocation | None = None
    """What the hosts said of themselves: filled in by the run."""

    @property
    def interpreter(self) -> str:
        """The hosts' interpreter."""
        return self.python or sys.executable


def topology(spec: SlurmSpec, allocation: Allocation) -> Topology:
    """Return the topology of the testbed for the plan."""
    nodes, links = [], []
    for name, host in allocation.hosts.items():
        rails = (inventory.rail(host.data),)
        nodes.append(
            Node(name=name, rails=rails, python=spec.interpreter, gpus=host.gpus, work=spec.work, scheduled=host.node)
        )
        links.append(Link(host=name, device=host.data.device, rate=host.link))
    return Topology(kind="slurm", nodes=tuple(nodes), links=tuple(links), mtu=allocation.mtu, rights=allocation.rights)
