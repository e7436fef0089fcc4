"""Finds the properties of an allocation's hosts: address and device of the data plane, its rate, GPUs, rights."""

from __future__ import annotations

import functools
import ipaddress
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, TestbedError
from orchestrator.core.units import rate_text
from orchestrator.parts.launch import PRIVILEGES, Requirement
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.inventory import Data
from orchestrator.testbed.slurm import job as jobs
from orchestrator.testbed.slurm.spec import Allocation, SlurmSpec
from orchestrator.testbed.slurm.testbed import Step

LEARN_S = 60.0
EACH_S = 0.5  # more for each host
NET = "/sys/class/net"
GPUS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Properties of one host, as it reports them; `speed` in bit/s, None where its driver has none or makes it up."""

    data: Data
    mtu: int
    speed: float | None
    gpus: int
    rights: tuple[str, ...]


def learn(spec: SlurmSpec) -> Allocation:
    """Return the properties of this process's allocation, asked once of agents on all of its hosts.

    TestbedError where it is in none, where a host has no such device or several, or where they differ in what must be
    the same on all.
    """
    return _learned(spec.model_copy(update={"allocation": None}).model_dump_json(), jobs.id_here())


@functools.cache
def _learned(text: str, _job: str) -> Allocation:
    """Return what `learn` returns, cached by the model's text and the job: one process asks hosts once."""
    spec, job = SlurmSpec.model_validate_json(text), jobs.current()
    deadline = Deadline.after(LEARN_S + EACH_S * len(job.nodes))
    step = Step(job, job.nodes, python=spec.interpreter)
    try:
        found = fanout.each(
            job.nodes, partial(_asked, spec, step, deadline), deadline=deadline, what="asking the hosts"
        )
    finally:
        step.close()
    return summed_up(spec, job.id, found)


def summed_up(spec: SlurmSpec, job: str, found: Mapping[str, HostFacts]) -> Allocation:
    """Return an allocation from the properties of each of its nodes, in their order; pure."""
    mtus = {one.mtu: node for node, one in found.items()}
    if len(mtus) > 1:
        listed = ", ".join(f"{mtu} on {node}" for mtu, node in mtus.items())
        raise TestbedError(f"the data plane has no common MTU: {listed}", hint="set one, or measure another network")
    hosts = {
        f"h{place}": {"node": node, "data": one.data, "link": rate_text(_rate(spec, node, one)), "gpus": one.gpus}
        for place, (node, one) in enumerate(found.items(), 1)
    }
    rights = set.intersection(*(set(one.rights) for one in found.values()))
    return Allocation.model_validate(
        {"job": job, "mtu": next(iter(mtus)), "rights": tuple(sorted(rights)), "hosts": hosts}
    )


def _rate(spec: SlurmSpec, node: str, one: HostFacts) -> float:
    """Return the rate of a host's link, bit/s: what the file says, else what the device does."""
    rate = spec.link or one.speed
    if rate is None:
        message = f"{one.data.device} does not say how fast it is"
        raise TestbedError(message, node=node, hint="say it: `slurm: {link: 25gbit}`")
    return rate


def _asked(spec: SlurmSpec, step: Step, deadline: Deadline, name: str) -> HostFacts:
    node = Node(name=name, python=spec.interpreter, work=spec.work)
    run = f"slurm-{time.time_ns()}"
    client = AgentClient(node, step.channel(name, deadline), run=run, holder={}, on_event=lambda _: None)
    try:
        client.hello(deadline)
        try:
            return _found(spec, client, deadline)
        finally:
            client.remove(deadline)
    finally:
        client.close(deadline)


def _found(spec: SlurmSpec, client: AgentClient, deadline: Deadline) -> HostFacts:
    name = client.node.name
    argv = ("ip", "-j", "address", "show")
    done = client.run(argv, deadline, privileged=False)
    data = data_plane(spec, done.stdout, node=name)
    folder = f"{NET}/{data.device}"
    texts = client.read([f"{folder}/mtu", f"{folder}/speed"], deadline).texts
    wanted = [Requirement(node=name, kind="privilege", what=what, remedy="", needed_by="Slurm") for what in PRIVILEGES]
    return HostFacts(
        data=data,
        mtu=_whole(texts[f"{folder}/mtu"]) or 0,
        speed=_speed(client, data.device, texts[f"{folder}/speed"], deadline),
        gpus=_gpus(client, deadline),
        rights=tuple(one.requirement.what for one in client.check(wanted, deadline) if one.found),
    )


def data_plane(spec: SlurmSpec, addresses: str, *, node: str) -> Data:
    """Return the device and address of a host's data plane, from its output of `ip -j address show`."""
    found = list(_candidates(spec, addresses, node))
    meant = f"an address in {spec.network}" if spec.network else f"a device {spec.device} with an IPv4 address"
    if len(found) != 1:
        listed = ", ".join(f"{data.device} {data.address}" for data in found)
        raise TestbedError(
            f"it has {f'more than {meant}: {listed}' if found else f'no {meant.partition(chr(32))[2]}'}",
            node=node,
            hint="see `srun ip -br address`, and correct `network` or `device`",
        )
    return found[0]


def _candidates(spec: SlurmSpec, addresses: str, node: str) -> Sequence[Data]:
    try:
        listed: Any = json.loads(addresses or "[]")
        entries = [
            (str(link["ifname"]), ipaddress.IPv4Interface(f"{one['local']}/{one['prefixlen']}"))
            for link in listed
            for one in link.get("addr_info", ())
            if one.get("family") == "inet"
        ]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise AgentError("`ip -j address show` says nothing that can be read", node=node, tail=addresses) from None
    within = None if spec.network is None else ipaddress.IPv4Network(spec.network)
    return [
        Data(address=str(address), device=device)
        for device, address in entries
        if (device == spec.device if within is None else address.ip in within)
    ]


def _speed(client: AgentClient, device: str, text: str | None, deadline: Deadline) -> float | None:
    """Return the rate that a device reports; None for a device whose driver makes one up."""
    speed = _whole(text)
    if speed is None or speed <= 0:
        return None
    faster = Requirement(
        node=client.node.name, kind="speed", what=f"{speed + 1} Mbit/s on {device}", remedy="", needed_by="Slurm"
    )
    (finding,) = client.check([faster], deadline)
    return None if finding.found else speed * 1e6  # a made-up one is never held against anything


def _gpus(client: AgentClient, deadline: Deadline) -> int:
    """Return how many GPUs the job has on the host, by the variables that Slurm sets for frameworks."""
    for name in GPUS:
        said = client.run(("printenv", name), deadline, privileged=False).stdout.strip()
        if said and said != "NoDevFiles":
            return len(said.split(","))
    return 0


def _whole(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None
