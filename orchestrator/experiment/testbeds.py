"""Choose the testbed that an experiment names, and testbeds by which a run's hosts are reached again.

A run's folder may be somebody else's, so its hosts are reached only by a testbed that the caller names: no host, key,
program or SSH option is taken from the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.core.errors import StoreError, TestbedError
from orchestrator.experiment.experiment import TestbedChoice
from orchestrator.parts.protocols import Testbed
from orchestrator.parts.topology import Node, Topology
from orchestrator.testbed import inventory
from orchestrator.testbed.inventory import InventoryTestbed
from orchestrator.testbed.kubernetes import spec as kubernetes
from orchestrator.testbed.kubernetes.spec import KubernetesSpec, Pods
from orchestrator.testbed.kubernetes.testbed import KubernetesTestbed
from orchestrator.testbed.local import netns
from orchestrator.testbed.local.local_spec import NAMESPACES, Containers, LocalTestbed
from orchestrator.testbed.local.netns import NetnsTestbed
from orchestrator.testbed.slurm import job
from orchestrator.testbed.slurm import spec as slurm
from orchestrator.testbed.slurm.spec import Allocation, SlurmSpec
from orchestrator.testbed.slurm.testbed import SlurmTestbed

LOCAL_RETRY_S = 1.0
NAMED = "the inventory, experiment or sweep file by which it ran"
REMOTE_RETRY_S = 10.0  # each try starts an agent on every host


@dataclass(frozen=True, slots=True, kw_only=True)
class UnopenedTestbed:
    """A testbed before it is opened.

    `made` makes one for the run of this id, and `retry_s` is how long to wait, in seconds, before it is tried again
    where it is in use.
    """

    topology: Topology
    made: Callable[[str], Testbed]
    retry_s: float


def place(choice: TestbedChoice) -> UnopenedTestbed:
    """Return the testbed that an experiment names, without opening it."""
    if choice.local is not None:
        spec = local_spec(choice.local)
        return UnopenedTestbed(topology=netns.topology(spec), made=partial(NetnsTestbed, spec), retry_s=LOCAL_RETRY_S)
    if choice.slurm is not None:
        return _allocated(choice.slurm)
    if choice.kubernetes is not None:
        return _of_pods(choice.kubernetes)
    if choice.inventory is None:
        raise AssertionError("the model lets one of them through")
    hosts = choice.inventory
    return UnopenedTestbed(
        topology=inventory.topology(hosts), made=lambda _run: InventoryTestbed(hosts), retry_s=REMOTE_RETRY_S
    )


def _allocated(spec: slurm.SlurmSpec) -> UnopenedTestbed:
    """Return the testbed of an allocation, whose properties are known."""
    allocation = spec.allocation
    if allocation is None:
        raise TestbedError("this is not inside an allocation of Slurm", hint=job.OUTSIDE)
    return UnopenedTestbed(
        topology=slurm.topology(spec, allocation),
        made=lambda _run: SlurmTestbed(spec, allocation),
        retry_s=REMOTE_RETRY_S,
    )


def _of_pods(spec: KubernetesSpec) -> UnopenedTestbed:
    """Return the testbed of pods, whose properties are known."""
    pods = spec.pods
    if pods is None:
        raise AssertionError("pods are asked before anything is planned")
    return UnopenedTestbed(
        topology=kubernetes.topology(spec, pods),
        made=lambda _run: KubernetesTestbed(spec, pods),
        retry_s=REMOTE_RETRY_S,
    )


def learned_pods(spec: KubernetesSpec) -> KubernetesSpec:
    """Ask the pods that are there now, and return the testbed with their properties.

    TestbedError where they cannot be asked.
    """
    from orchestrator.testbed.kubernetes import survey

    return spec.model_copy(update={"pods": survey.learn(spec)})


def learned(spec: SlurmSpec) -> SlurmSpec:
    """Ask the hosts of this process's allocation, and return the Slurm testbed with their properties.

    Outside of one it keeps those that were recorded. TestbedError where they cannot be asked.
    """
    if not (job.id_here() or spec.allocation is None):
        return spec
    from orchestrator.testbed.slurm import survey

    return spec.model_copy(update={"allocation": survey.learn(spec)})


@dataclass(frozen=True, slots=True)
class Named:
    """A testbed that the caller names; `file` is the file that describes it."""

    choice: TestbedChoice
    file: str

    def lacks(self, host: Node) -> str:
        """Return why a host that a run recorded cannot be reached by this testbed; empty where it can.

        The names of two racks may be the same, so addresses in the data plane have to be, too; in Slurm a node has
        one name, and a pod has a name and an address. Another `work` would look for the run's folder where it is not.
        """
        if self.choice.slurm is not None:
            known = {one.node for one in _allocation(self.choice.slurm).hosts.values()}
            return self._works(host, self.choice.slurm.work) if host.of_slurm in known else self._hint(host)
        if self.choice.kubernetes is not None:
            return self._lacks_pod(host, self.choice.kubernetes)
        if self.choice.inventory is None:
            return f"{self.file}: its hosts are on this machine, and end with their runs"
        mine = {one.name: one for one in inventory.topology(self.choice.inventory).nodes}.get(host.name)
        if mine is None:
            return f"{self.file}: names no host {host.name}"
        if mine.addresses != host.addresses:
            own, theirs = (", ".join(one.addresses) or "none" for one in (mine, host))
            return f"{self.file}: its {host.name} is another host, of address {own}, not {theirs}"
        return self._works(host, mine.work)

    def _lacks_pod(self, host: Node, spec: KubernetesSpec) -> str:
        """Return why no pod is the one of a host; one that was made anew by the same name has another address."""
        mine = {one.scheduled: one for one in kubernetes.topology(spec, _pods(spec)).nodes}.get(host.scheduled)
        if mine is None or mine.addresses != host.addresses:
            gone = f"there is no pod {host.scheduled or host.name} of address {host.address} any more"
            return f"{self.file}: {gone}, and its files went with it: `orch recover --without {host.name}`"
        return self._works(host, spec.work)

    def _works(self, host: Node, work: str) -> str:
        same = work.rstrip("/") == host.work.rstrip("/")
        return "" if same else f"{self.file}: its `work` for {host.name} is {work}, and in the run it was {host.work}"

    def _hint(self, host: Node) -> str:
        return f"{self.file}: {host.of_slurm} is not in the allocation (salloc --nodelist={host.of_slurm})"

    def made(self, recorded: Topology) -> Testbed:
        """Make the testbed, with the run's names of its hosts."""
        if self.choice.inventory is not None:
            return InventoryTestbed(self.choice.inventory)
        if self.choice.kubernetes is not None:
            pods = _pods(self.choice.kubernetes)
            by_name = {one.pod: one for one in pods.hosts.values()}
            there = {node.name: by_name[node.scheduled] for node in recorded.nodes if node.scheduled in by_name}
            return KubernetesTestbed(self.choice.kubernetes, pods.model_copy(update={"hosts": there}))
        if self.choice.slurm is None:
            raise AssertionError("it has no host of any run")
        allocation = _allocation(self.choice.slurm)
        known = {one.node: one for one in allocation.hosts.values()}
        hosts = {node.name: known[node.of_slurm] for node in recorded.nodes if node.of_slurm in known}
        return SlurmTestbed(self.choice.slurm, allocation.model_copy(update={"hosts": hosts}))


def _allocation(spec: SlurmSpec) -> Allocation:
    allocation = learned(spec).allocation
    if allocation is None:
        raise AssertionError("what is learned is an allocation")
    return allocation


def _pods(spec: KubernetesSpec) -> Pods:
    pods = learned_pods(spec).pods
    if pods is None:
        raise AssertionError("what is learned are pods")
    return pods


def reached(recorded: Topology, hosts: Iterable[str], named: Sequence[Named]) -> dict[str, Testbed]:
    """Find the testbed by which each of a run's hosts is reached again: the first named one that has it.

    `recorded` is what the run's manifest says of its hosts; they are held against it, and reached by nothing of it.
    TestbedError where a host is in none of those named, StoreError where the manifest does not describe it.
    """
    known = {node.name: node for node in recorded.nodes}
    made: dict[int, Testbed] = {}
    found: dict[str, Testbed] = {}
    for name in hosts:
        if name not in known:
            raise StoreError(
                f"its manifest has processes or files on {name}, and does not say what {name} is",
                hint="it is damaged: restore it from a copy",
            )
        if not named:
            raise TestbedError(
                "its hosts are reached only by a testbed that you name, not by what lies in its folder",
                node=name,
                hint=f"--testbed FILE, {NAMED}",
            )
        reasons = [one.lacks(known[name]) for one in named]
        if "" not in reasons:
            hint = f"--testbed FILE, {NAMED}; may be repeated"
            raise TestbedError("; ".join(dict.fromkeys(reasons)), node=name, hint=hint)
        place = reasons.index("")
        if place not in made:
            made[place] = named[place].made(recorded)
        found[name] = made[place]
    return found


def local_spec(local: LocalTestbed) -> netns.LocalSpec:
    """Return the specification of the local testbed from the experiment."""
    return netns.LocalSpec(
        hosts=local.names,
        rates={name: local.rate_of(name) for name in local.names},
        rails=local.rails,
        ip=local.ip,
        scale=local.scale,
        dilation=local.dilation,
        mtu=local.mtu,
        offloads=local.offloads,
        queue_s=local.queue,
        containers=_containers(local),
        fabric=local.fabric,
        uplink=local.fabric.uplink_rate(local.link) if local.fabric else 0.0,
    )


def _containers(local: LocalTestbed) -> Containers | None:
    if local.runtime == NAMESPACES:
        return None
    python = local.python or "python3"
    return Containers(runtime=local.runtime, image=local.image, python=python, mounts=local.mounts)
