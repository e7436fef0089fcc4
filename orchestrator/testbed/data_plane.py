"""Finds what hosts say that no file describes: address and device of their data plane, its rate and MTU, and rights."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, model_validator

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, TestbedError
from orchestrator.core.fields import Model, Rate
from orchestrator.core.units import Mistake
from orchestrator.parts.launch import PRIVILEGES, Requirement
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.inventory import Data, Device

NET = "/sys/class/net"


def _network(value: str) -> str:
    try:
        return str(ipaddress.IPv4Network(value))
    except ValueError:
        raise Mistake("not an IPv4 network", accepted="one such as 10.0.0.0/16") from None


class DataPlane(Model):
    """Which network of hosts is measured, where no file says their addresses."""

    KEY: ClassVar[str]
    """What the testbed is called in a file."""

    LOOK: ClassVar[str]
    """A command that shows a person the addresses of hosts."""

    network: Annotated[str, AfterValidator(_network)] | None = None
    """The network that is measured, such as 10.0.0.0/16: each host's address in it, and that address's device."""

    device: Device | None = None
    """The device that is measured, such as ens1f0, in the place of `network`."""

    link: Rate | None = None
    """Rate of the links; what each device says when left out."""

    @model_validator(mode="after")
    def _one_way(self) -> DataPlane:
        if (self.network is None) == (self.device is None):
            given = "neither network nor device" if self.network is None else "both network and device"
            raise Mistake(f"holds {given}", accepted="exactly one of network, device")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Properties of one host, as it reports them; `speed` in bit/s, None where its driver has none or makes it up."""

    data: Data
    mtu: int
    speed: float | None
    gpus: int
    rights: tuple[str, ...]


def facts_of(plane: DataPlane, client: AgentClient, deadline: Deadline, *, gpus: int) -> HostFacts:
    """Ask a greeted agent for the properties of its host; `gpus` are known otherwise.

    TestbedError where the host has no such network, or several.
    """
    done = client.run(("ip", "-j", "address", "show"), deadline, privileged=False)
    data = data_of(plane, done.stdout, node=client.node.name)
    folder = f"{NET}/{data.device}"
    texts = client.read([f"{folder}/mtu", f"{folder}/speed"], deadline).texts
    wanted = [_need(plane, client, "privilege", what) for what in PRIVILEGES]
    return HostFacts(
        data=data,
        mtu=_whole(texts[f"{folder}/mtu"]) or 0,
        speed=_speed(plane, client, data.device, texts[f"{folder}/speed"], deadline),
        gpus=gpus,
        rights=tuple(one.requirement.what for one in client.check(wanted, deadline) if one.found),
    )


def data_of(plane: DataPlane, addresses: str, *, node: str) -> Data:
    """Return the device and address of a host's data plane, from its output of `ip -j address show`."""
    found = list(_candidates(plane, addresses, node))
    meant = f"address in {plane.network}" if plane.network else f"device {plane.device} with an IPv4 address"
    if len(found) != 1:
        listed = ", ".join(f"{data.device} {data.address}" for data in found)
        raise TestbedError(
            f"it has more than one {meant}: {listed}" if found else f"it has no {meant}",
            node=node,
            hint=f"see `{plane.LOOK}`, and correct `network` or `device`",
        )
    return found[0]


def common_mtu(found: Mapping[str, HostFacts]) -> int:
    """Return the MTU of the data plane in bytes; TestbedError where hosts differ."""
    mtus = {one.mtu: node for node, one in found.items()}
    if len(mtus) > 1:
        listed = ", ".join(f"{mtu} on {node}" for mtu, node in mtus.items())
        raise TestbedError(f"the data plane has no common MTU: {listed}", hint="set one, or measure another network")
    return next(iter(mtus))


def common_rights(found: Mapping[str, HostFacts]) -> tuple[str, ...]:
    """Return the rights that every host grants."""
    return tuple(sorted(set.intersection(*(set(one.rights) for one in found.values()))))


def rate_of(plane: DataPlane, node: str, one: HostFacts) -> float:
    """Return the rate of a host's link, bit/s: what the file says, else what the device does."""
    rate = plane.link or one.speed
    if rate is None:
        message = f"{one.data.device} does not say how fast it is"
        raise TestbedError(message, node=node, hint=f"say it: `{plane.KEY}: {{link: 25gbit}}`")
    return rate


def _candidates(plane: DataPlane, addresses: str, node: str) -> Iterator[Data]:
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
    within = None if plane.network is None else ipaddress.IPv4Network(plane.network)
    for device, address in entries:
        if device == plane.device if within is None else address.ip in within:
            yield Data(address=str(address), device=device)


def _speed(plane: DataPlane, client: AgentClient, device: str, text: str | None, deadline: Deadline) -> float | None:
    """Return the rate that a device reports; None for a device whose driver makes one up."""
    speed = _whole(text)
    if speed is None or speed <= 0:
        return None
    (finding,) = client.check([_need(plane, client, "speed", f"{speed + 1} Mbit/s on {device}")], deadline)
    return None if finding.found else speed * 1e6  # a made-up one is never held against anything


def _need(plane: DataPlane, client: AgentClient, kind: Any, what: str) -> Requirement:
    return Requirement(node=client.node.name, kind=kind, what=what, remedy="", needed_by=plane.KEY)


def _whole(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None
