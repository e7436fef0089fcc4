"""Which testbed an experiment names: hosts of this machine, of an inventory, or of an allocation. Nobody else asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from orchestrator.core.errors import TestbedError
from orchestrator.experiment.experiment import TestbedChoice
from orchestrator.parts.protocols import Testbed
from orchestrator.parts.topology import Topology
from orchestrator.testbed import inventory
from orchestrator.testbed.inventory import InventoryTestbed
from orchestrator.testbed.local import netns
from orchestrator.testbed.local.local_spec import Containers
from orchestrator.testbed.local.local_testbed import NAMESPACES, LocalTestbed
from orchestrator.testbed.local.netns import NetnsTestbed
from orchestrator.testbed.slurm import job
from orchestrator.testbed.slurm import spec as slurm
from orchestrator.testbed.slurm.testbed import SlurmTestbed

LOCAL_RETRY_S = 1.0
REMOTE_RETRY_S = 10.0  # each try starts an agent on every host


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A testbed before it is opened.

    `made` gives one for the run of this id, and `retry_s` is how long to wait, in seconds, before it is tried again
    where it is in use.
    """

    topology: Topology
    made: Callable[[str], Testbed]
    retry_s: float


def place(choice: TestbedChoice) -> Place:
    """The testbed that an experiment names."""
    if choice.local is not None:
        spec = local_spec(choice.local)
        return Place(topology=netns.topology(spec), made=partial(NetnsTestbed, spec), retry_s=LOCAL_RETRY_S)
    if choice.slurm is not None:
        return _allocated(choice.slurm)
    if choice.inventory is None:
        raise AssertionError("the model lets one of them through")
    hosts = choice.inventory
    return Place(topology=inventory.topology(hosts), made=lambda _run: InventoryTestbed(hosts), retry_s=REMOTE_RETRY_S)


def _allocated(spec: slurm.SlurmSpec) -> Place:
    """The hosts of an allocation, of which everything has been learned by now."""
    allocation = spec.allocation
    if allocation is None:
        raise TestbedError("this is not inside an allocation of Slurm", hint=job.OUTSIDE)
    return Place(
        topology=slurm.topology(spec, allocation), made=lambda _run: SlurmTestbed(spec, allocation),
        retry_s=REMOTE_RETRY_S,
    )  # fmt: skip


def local_spec(local: LocalTestbed) -> netns.LocalSpec:
    """What the local testbed needs to know of the experiment file."""
    return netns.LocalSpec(
        hosts=local.names,
        rates={name: local.rate_of(name) for name in local.names},
        rails=local.rails,
        ip=local.ip,
        scale=local.scale,
        mtu=local.mtu,
        offloads=local.offloads,
        queue_s=local.queue,
        containers=_containers(local),
    )


def _containers(local: LocalTestbed) -> Containers | None:
    if local.runtime == NAMESPACES:
        return None
    python = local.python or "python3"
    return Containers(runtime=local.runtime, image=local.image, python=python, mounts=local.mounts)
