"""Describes hosts that Slurm allocates: the keys of `testbed: slurm`, facts of the allocation, and the topology."""

from __future__ import annotations

import ipaddress
import sys
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from orchestrator.core.fields import Model, Rate
from orchestrator.core.units import Mistake
from orchestrator.parts.topology import WORK, Link, Node, Topology
from orchestrator.testbed import inventory
from orchestrator.testbed.inventory import Absolute, Data, Device, Name


def _network(value: str) -> str:
    try:
        return str(ipaddress.IPv4Network(value))
    except ValueError:
        raise Mistake("not an IPv4 network", accepted="one such as 10.0.0.0/16") from None


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


class SlurmSpec(Model):
    """Hosts of the Slurm allocation that the command runs in: h1, h2, ... in rank order."""

    network: Annotated[str, AfterValidator(_network)] | None = None
    """The network that is measured, such as 10.0.0.0/16: each host's address in it, and that address's device."""

    device: Device | None = None
    """The device that is measured, such as ens1f0, in the place of `network`."""

    link: Rate | None = None
    """Rate of the links; what each device says when left out."""

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

    @model_validator(mode="after")
    def _one_way(self) -> SlurmSpec:
        if (self.network is None) == (self.device is None):
            given = "neither network nor device" if self.network is None else "both network and device"
            raise Mistake(f"holds {given}", accepted="exactly one of network, device")
        return self


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
