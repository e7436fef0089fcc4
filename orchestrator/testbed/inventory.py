"""Reads inventories of real machines, and makes the testbed that reaches them by SSH."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from orchestrator.core.deadline import Deadline
from orchestrator.core.fields import Model, Rate
from orchestrator.core.machines import packages
from orchestrator.core.units import Mistake
from orchestrator.parts.launch import Requirement
from orchestrator.parts.protocols import Channel
from orchestrator.parts.shared import named_hosts
from orchestrator.parts.topology import WORK, Fabric, Link, Node, Rail, Topology, Uplink

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")  # longer ones would find no room in names of sockets
_RDMA = re.compile(r"[A-Za-z0-9_.-]{1,63}(:[0-9]{1,3})?\Z")
_DEVICE = re.compile(r"[^\s/]{1,15}\Z")
# What a shell gives a meaning to has no place in them: a ProxyCommand is a line for a shell with host and user in it.
_HOST = re.compile(r"[\w:\[][\w.:%\[\]-]*\Z")
_USER = re.compile(r"\w[\w.@+-]*\Z")
_JUMP = re.compile(r"(?:\w[\w.@+-]*@)?[\w:\[][\w.:%\[\]-]*(?:,(?:\w[\w.@+-]*@)?[\w:\[][\w.:%\[\]-]*)*\Z")
MOST_RAILS = 16


def _matching(pattern: re.Pattern[str], what: str, accepted: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.match(value):
            raise Mistake(f"not {what}", accepted=accepted)
        return value

    return AfterValidator(check)


def interface(value: str) -> str:
    try:
        interface = ipaddress.ip_interface(value)
    except ValueError:
        raise Mistake("not an IP address", accepted="one with its prefix, such as 10.0.0.1/24 or fd00::1/64") from None
    if "/" not in value:
        raise Mistake(f"{value!r} needs its prefix", accepted=f"such as {value}/{24 if interface.version == 4 else 64}")
    if interface.version == 6 and interface.ip.is_link_local:
        raise Mistake(
            f"{value!r} is of one link alone", accepted="an address that other hosts can name, such as fd00::1/64"
        )
    return str(interface)


def absolute(value: str) -> str:
    if not PurePosixPath(value).is_absolute() or len(PurePosixPath(value).parts) < 3:
        raise Mistake("not a folder of its own", accepted="an absolute path such as /var/tmp/orch-{uid}")
    return value


def program(value: str) -> str:
    if not PurePosixPath(value).is_absolute():
        raise Mistake("not a program's path", accepted="true, false, or a path such as /usr/local/sbin/orch-agent")
    return value


Absolute = Annotated[str, AfterValidator(absolute)]
Name = Annotated[str, _matching(_NAME, "a name", "at most 63 letters, digits, '.', '-' and '_'")]
Device = Annotated[str, _matching(_DEVICE, "a network device's name", "one such as ens1f0")]
SshHost = Annotated[
    str,
    _matching(
        _HOST,
        "a host name",
        "a name, an address or an alias of the SSH configuration, of letters, digits and . - _ : % [ ]",
    ),
]
SshUser = Annotated[
    str, _matching(_USER, "a user's name", "letters, digits, '.', '-', '_', '+' and '@', not '-' at its beginning")
]
Jump = Annotated[
    str, _matching(_JUMP, "hosts to jump through", "[USER@]HOST[:PORT], several with commas between, as for ssh -J")
]


RdmaDevice = Annotated[str, _matching(_RDMA, "an RDMA device", "its name and port, such as mlx5_0:1")]


def _listed(value: Any) -> Any:
    """Return a value as a list: a single rail need not stand in one."""
    return (value,) if isinstance(value, (dict, Data)) else value


class Reach(Model):
    """How hosts are reached, and their properties; keys left out come from `defaults`, then from SSH's own files."""

    user: SshUser | None = None
    """User to log in as."""

    port: int | None = Field(default=None, ge=1, le=65535)
    """Port of the SSH server."""

    key: Path | None = None
    """Private key file; only it is tried then, by the program `ssh` those of its configuration too."""

    config: Path | None = None
    """SSH configuration file to read instead of the user's and the system's."""

    jump: Jump | None = None
    """Hosts to jump through, as for `ssh -J`."""

    python: str | None = Field(default=None, min_length=1)
    """Python interpreter on the host, 3.8 or later: a name or a path; python3 when left out."""

    work: Absolute | None = None
    """Absolute folder on the host under which runs make theirs, each user another; `{uid}` in it is the user's number
    there. /var/tmp/orch-{uid} when left out."""

    gpus: int | None = Field(default=None, ge=0)
    """GPUs of the host; 0 when left out."""

    sudo: bool | Annotated[str, AfterValidator(program)] | None = None
    """How captures and changed links get the rights that they need. true: the user may run python with `sudo -n`, and
    the agent is root; a path: the user may run that program so, such as /usr/local/sbin/orch-agent, which starts the
    agent as the user with two of root's rights. False when left out."""


class Data(Model):
    """A host's end of the data plane, or of one rail of it."""

    address: Annotated[str, AfterValidator(interface)]
    """Address and prefix in the network that is measured, such as 10.0.0.1/24 or fd00::1/64."""

    device: Device
    """Network device that carries it."""

    rdma: RdmaDevice | None = None
    """The RDMA device behind it, such as mlx5_0 or mlx5_0:1; nccl then uses those of the rails and no others."""


_ONE_OR_SEVERAL = BeforeValidator(_listed, json_schema_input_type=Data | tuple[Data, ...])


class Host(Reach):
    """One machine."""

    ssh: SshHost
    """Host name, address or alias at which its SSH server answers: best on a network that is not measured."""

    data: Annotated[tuple[Data, ...], Field(min_length=1, max_length=MOST_RAILS), _ONE_OR_SEVERAL]
    """Its end of the data plane; of a host with several NICs a list of them, one a rail, in the same order on every
    host: those of the same place must reach each other."""

    link: Rate | None = None
    """Rate of its link, when it differs from the others'."""

    slots: int = Field(default=1, ge=1, le=1024)
    """Ranks that a workload has there which names no hosts."""


class Switch(Model):
    """A switch between the hosts: declared for the record, nothing on it is changed."""

    name: Name
    """What it is called."""

    ports: dict[Name, str] = Field(default_factory=dict)
    """Port of the switch that each host is plugged into, by host."""


class SwitchFabric(Model):
    """Leaves and spines between the hosts, each leaf linked to every spine: declared, nothing on them is changed."""

    leaves: dict[Name, tuple[Name, ...]] = Field(min_length=2)
    """Hosts that hang on each leaf, by the leaf's name."""

    spines: tuple[Name, ...] = Field(min_length=1)
    """Names of the spines."""

    uplink: Rate
    """Rate of each link between a leaf and a spine, such as 100gbit."""

    @model_validator(mode="after")
    def _names_differ(self) -> SwitchFabric:
        names = [*self.leaves, *self.spines]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise Mistake(f"{name!r} stands here twice", accepted="each switch once", at=("spines",))
        return self

    def leaf_of(self, host: str) -> str:
        """Return the leaf on which a host hangs; empty where it hangs on none."""
        return next((leaf for leaf, hosts in self.leaves.items() if host in hosts), "")


class Inventory(Model):
    """Real machines and the network between them."""

    link: Rate
    """Rate of the links between hosts and switch, such as 25gbit."""

    mtu: int = Field(default=1500, ge=576, le=65535)
    """MTU of the data plane, in bytes."""

    ssh: Literal["program"] | None = None
    """`program`: agents are reached by the program `ssh` itself, as by hand, whatever its settings ask for. When left
    out, that is so where the SSH settings or a server want what a login by key alone cannot give."""

    defaults: Reach = Reach()
    """What holds for every host that does not say otherwise."""

    hosts: dict[Name, Host] = Field(min_length=1)
    """The machines by name; the order is that of `first: N` and of ranks. In a file one key may stand for many: a node
    set, such as n[1-64], or @FILE, a hosts file."""

    switch: Switch | None = None
    """The switch between them."""

    fabric: SwitchFabric | None = None
    """The leaves and spines between them, instead of one switch."""

    @model_validator(mode="after")
    def _consistent(self) -> Inventory:
        self._check_addresses()
        self._check_rails()
        self._check_fabric()
        for name in self.switch.ports if self.switch else ():
            if name not in self.hosts:
                raise Mistake(
                    named_hosts.absent(name), accepted=named_hosts.one_of(self.hosts), at=("switch", "ports", name)
                )
        return self

    def _check_fabric(self) -> None:
        """Check that each host hangs on one leaf of the fabric, where there is one."""
        if self.fabric is None:
            return
        if self.switch is not None:
            raise Mistake("stands beside fabric", accepted="one of them", at=("switch",))
        hanging = [host for hosts in self.fabric.leaves.values() for host in hosts]
        for place, host in enumerate(hanging):
            at = ("fabric", "leaves", self.fabric.leaf_of(host))
            if host not in self.hosts:
                raise Mistake(named_hosts.absent(host), accepted=named_hosts.one_of(self.hosts), at=at)
            if host in hanging[:place]:
                raise Mistake(f"{host!r} hangs on two leaves", accepted="each host on one", at=at)
        if missing := [host for host in self.hosts if host not in hanging]:
            raise Mistake(f"{missing[0]!r} hangs on no leaf", accepted="each host on one", at=("fabric", "leaves"))

    def _check_addresses(self) -> None:
        """Check that an address belongs to one rail of one host."""
        owners: dict[str, str] = {}
        for name, host in self.hosts.items():
            for rail in host.data:
                address = rail.address.partition("/")[0]
                if address in owners:
                    message = f"hosts {owners[address]} and {name} have the same data address {address}"
                    raise Mistake(message, accepted="an address of its own", at=("hosts", name, "data", "address"))
                owners[address] = name

    def _check_rails(self) -> None:
        """Check that hosts have equally many rails, each with its own device, and addresses of one version of IP."""
        first, *_ = self.hosts
        count, version = len(self.hosts[first].data), ipaddress.ip_interface(self.hosts[first].data[0].address).version
        for name, host in self.hosts.items():
            at = ("hosts", name, "data")
            if len(host.data) != count:
                message = f"{name} has {len(host.data)} rails and {first} has {count}"
                raise Mistake(message, accepted="as many on every host, in the same order", at=at)
            if len({rail.device for rail in host.data}) < count:
                raise Mistake(f"rails of {name} share a device", accepted="a device a rail", at=at)
            if any(ipaddress.ip_interface(rail.address).version != version for rail in host.data):
                message = f"addresses of {first} are of IPv{version}, and one of {name} is not"
                raise Mistake(message, accepted="one version of IP on all rails of all hosts", at=at)

    def value(self, host: str, key: str, otherwise: Any = None) -> Any:
        """Return a `Reach` value of a host: its own, else the common one, else `otherwise`."""
        for place in (self.hosts[host], self.defaults):
            if (value := getattr(place, key)) is not None:
                return value
        return otherwise


def requirements(topology: Topology, names: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements that data-plane devices are up, with the rate and MTU that the file says.

    A device may be faster than its link, which something else may limit to the rate in the file.
    """
    by = "the data plane"
    for name in names:
        yield Requirement(node=name, kind="program", what="ip", remedy=packages.remedy("ip"), needed_by=by)
        for device in topology.node(name).devices:
            yield from _device_requirements(topology, name, device)


def _device_requirements(topology: Topology, name: str, device: str) -> Iterator[Requirement]:
    by = "the data plane"
    speed = round(topology.link(name, topology.rail_of(name, device)).rate / 1e6)
    remedy = f"sudo ip link set dev {device} up; where it is up, see its cable and the port behind it"
    yield Requirement(node=name, kind="link", what=device, remedy=remedy, needed_by=by)
    remedy = f"correct `mtu` in the testbed file, or: sudo ip link set dev {device} mtu {topology.mtu}"
    yield Requirement(node=name, kind="mtu", what=f"{topology.mtu} on {device}", remedy=remedy, needed_by=by)
    remedy = f"correct the `link` of {name} in the testbed file"
    yield Requirement(node=name, kind="speed", what=f"{speed} Mbit/s on {device}", remedy=remedy, needed_by=by)


def topology(inventory: Inventory) -> Topology:
    """Return the topology of the testbed for the plan; the switch has a name but no port, as no agent runs on it."""
    nodes = []
    for name, host in inventory.hosts.items():
        nodes.append(
            Node(
                name=name,
                rails=tuple(map(rail, host.data)),
                python=inventory.value(name, "python", "python3"),
                gpus=inventory.value(name, "gpus", 0),
                slots=host.slots,
                work=inventory.value(name, "work", WORK),
            )
        )
    only = inventory.switch.name if inventory.switch else ""
    between = inventory.fabric
    links = tuple(
        Link(
            host=name,
            device=rail.device,
            switch=between.leaf_of(name) if between else only,
            rate=host.link or inventory.link,
        )
        for name, host in inventory.hosts.items()
        for rail in host.data
    )
    return Topology(
        kind="inventory",
        nodes=tuple(nodes),
        links=links,
        mtu=inventory.mtu,
        fabric=_fabric(between) if between else None,
    )


def _fabric(declared: SwitchFabric) -> Fabric:
    return Fabric(
        leaves=tuple(declared.leaves),
        spines=declared.spines,
        uplinks=tuple(
            Uplink(leaf=leaf, spine=spine, rate=declared.uplink)
            for leaf in declared.leaves
            for spine in declared.spines
        ),
    )


def rail(data: Data) -> Rail:
    interface = ipaddress.ip_interface(data.address)
    rdma = data.rdma if data.rdma is None or ":" in data.rdma else f"{data.rdma}:1"
    return Rail(device=data.device, address=str(interface.ip), prefix=interface.network.prefixlen, rdma=rdma or "")


class InventoryTestbed:
    """Hosts that exist before and after the run."""

    __test__ = False

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.topology = topology(inventory)
        self._channels: list[Channel] = []

    def open(self, run_folder: Path, deadline: Deadline) -> None:
        """Do nothing: the hosts exist already, and see nothing of `run_folder`."""

    def connect(self, node: str, deadline: Deadline) -> Channel:
        """Start an agent on a host by SSH, under sudo where the inventory grants it."""
        from orchestrator.remote.transport import ssh
        from orchestrator.remote.transport.ssh_config import SshTarget

        value = self.inventory.value
        target = SshTarget(
            name=node,
            host=self.inventory.hosts[node].ssh,
            user=value(node, "user"),
            port=value(node, "port"),
            key=value(node, "key"),
            config=value(node, "config"),
            jump=value(node, "jump"),
        )
        python = self.topology.node(node).python
        channel = ssh.reach(
            target,
            program=self.inventory.ssh == "program",
            python=python,
            sudo=value(node, "sudo", otherwise=False),
            deadline=deadline,
        )
        self._channels.append(channel)
        return channel

    def local_folder(self, node: str) -> Path | None:  # noqa: ARG002 - the protocol's
        return None

    def about(self) -> dict[str, str]:
        return {}

    def close(self) -> None:
        """Close the channels that are left; each agent ends its node's part of the run."""
        while self._channels:
            self._channels.pop().close()
