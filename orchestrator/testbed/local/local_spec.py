"""Describes a testbed on this machine: the keys of `testbed: local`, and its hosts, rails and links as plain data."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration, Model, Rate
from orchestrator.core.units import Mistake, rate_text
from orchestrator.parts.shared import named_hosts
from orchestrator.parts.topology import Fabric, Link, Node, Rail, Topology, Uplink

LEAST_RATE = 1e6  # bit/s of a link as it is set up
NAMESPACES: Final = "namespaces"

_HOST = re.compile(r"[a-z][a-z0-9-]{0,30}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")

SWITCH = "switch"
DEVICE = "eth"  # and the number of the rail
WORK = "/run/orch"  # in a node's own tmpfs, where the run's folder of the node is mounted
DEVICE_NAME_LIMIT = 15  # IFNAMSIZ without the final zero
MOST_HOSTS_ASKED = 64
MOST_HOSTS = 250  # addresses and their last bytes
# Both are set apart for benchmarks: 198.18.0.0/15 by RFC 2544, 2001:2::/48 by RFC 5180. A network a rail, hosts from 1.
_FIRST = MappingProxyType({4: int(ip_address("198.18.0.0")), 6: int(ip_address("2001:2::"))})
_PREFIX = MappingProxyType({4: 24, 6: 64})
LEAST_RTO_MS = 200  # the kernel's least retransmission time-out (TCP_RTO_MIN)
CONGESTION = "cubic"
CONGESTIONS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
SYSCTLS: Mapping[str, int] = MappingProxyType(
    {"net.ipv4.tcp_slow_start_after_idle": 0, "net.ipv4.tcp_no_metrics_save": 1}
)


def _checked_host(value: str) -> str:
    if not _HOST.fullmatch(value) or value == SWITCH:
        accepted = "a small letter, then at most 30 small letters, digits or '-'; 'switch' is taken"
        raise Mistake("not a host name", accepted=accepted)
    return value


def _checked_image(value: str) -> str:
    if not _IMAGE.fullmatch(value):
        raise Mistake("not an image's name", accepted="[REGISTRY/]NAME[:TAG] or an id, as `podman images` tells them")
    return value


def _checked_program(value: str) -> str:
    if not value or value.startswith("-") or "\0" in value:
        raise Mistake("not a program", accepted="a name such as python3, or a path")
    return value


def _checked_folder(value: str) -> str:
    path = PurePosixPath(value)
    if not path.is_absolute() or path.parent == path or ".." in path.parts or "\0" in value:
        raise Mistake("not a folder of this machine", accepted="an absolute path such as /data/imagenet")
    return str(path)


HostName = Annotated[str, AfterValidator(_checked_host)]
ImageName = Annotated[str, AfterValidator(_checked_image)]
Program = Annotated[str, AfterValidator(_checked_program)]
Folder = Annotated[str, AfterValidator(_checked_folder)]
RuntimeName = Literal["namespaces", "podman", "docker"]


class Multipath(Model):
    """How a leaf chooses among its uplinks."""

    hash: Literal["per-5-tuple", "per-packet", "per-flowlet"] = "per-5-tuple"
    """By what: each connection stays on one uplink. The kernel's routes give neither of the other two."""
    seed: int = Field(default=1, ge=1, le=(1 << 32) - 1)
    """Seed of the hash on every leaf, where the kernel takes one (6.11 and later); the manifest says whether it did."""

    @model_validator(mode="after")
    def _given(self) -> Multipath:
        if self.hash != "per-5-tuple":
            message = f"routes of Linux choose a path by a packet's addresses and ports, and none {self.hash}"
            raise Mistake(message, accepted="per-5-tuple", at=("hash",))
        return self


class FabricSpec(Model):
    """Leaves, each linked to every spine; switches are network namespaces that route."""

    leaves: int = Field(ge=2, le=16)
    """How many leaves (leaf1, leaf2, ...), on which the hosts hang: the first hosts on the first leaf."""
    spines: int = Field(ge=1, le=16)
    """How many spines (spine1, spine2, ...), between which leaves choose."""
    hosts: int = Field(ge=1, le=32)
    """How many hosts each leaf has."""
    oversubscription: float = Field(default=1.0, ge=0.1, le=100)
    """What the links of a leaf's hosts carry together, over what its uplinks do: it sets the rate of uplinks."""
    uplink: Rate | None = None
    """Rate of each link between a leaf and a spine, instead of `oversubscription`."""
    multipath: Multipath = Multipath()
    """How a leaf chooses among its uplinks."""

    @model_validator(mode="after")
    def _possible(self) -> FabricSpec:
        if not 2 <= self.leaves * self.hosts <= MOST_HOSTS_ASKED:
            message = f"{self.leaves} leaves of {self.hosts} hosts are {self.leaves * self.hosts} hosts"
            raise Mistake(message, accepted=f"at most {MOST_HOSTS_ASKED}", at=("hosts",))
        if self.uplink is not None and "oversubscription" in self.model_fields_set:
            raise Mistake("stands beside oversubscription", accepted="one of them", at=("uplink",))
        return self

    def uplink_rate(self, link: float) -> float:
        """Return the rate of an uplink in bit/s, unscaled, where hosts' links have this one."""
        return self.uplink or self.hosts * link / self.spines / self.oversubscription


class LocalTestbed(Model):
    """Hosts on this machine, behind a switch of their own: network namespaces, or containers of an image."""

    hosts: (
        Annotated[int, Field(strict=True, ge=2, le=MOST_HOSTS_ASKED)]
        | Annotated[tuple[HostName, ...], Field(min_length=2, max_length=MOST_HOSTS_ASKED)]
        | None
    ) = None
    """How many hosts (named h1, h2, ...), or their names. Of a fabric they may be left out, as it says how many."""
    fabric: FabricSpec | None = None
    """Leaves and spines instead of one switch."""
    link: Rate
    """Capacity of both ends of every host's link."""
    links: dict[HostName, Rate] = Field(default_factory=dict)
    """Capacity of single hosts' links where it differs."""
    rails: int = Field(default=1, ge=1, le=8)
    """How many links each host has, each of that capacity and on a switch of its own, as hosts with several NICs."""
    ip: Literal[4, 6] = 4
    """Version of IP of the data plane."""
    scale: int = Field(default=1, ge=1, le=1_000_000)
    """Divides every rate and size of the experiment; durations stay."""
    dilation: int = Field(default=1, ge=1, le=1000)
    """Multiplies every duration, and divides `scale` for sizes: rates stay divided by `scale`, a flow has as many times
    more packets, and results are divided back. For heavy loads, where packets and time-outs decide."""
    mtu: int = Field(default=1500, ge=1280, le=9000)
    """Largest IP packet, bytes."""
    offloads: bool = False
    """Keep segmentation offloads on: cheaper, but captures show super-packets and queues count them whole."""
    queue: Duration = Field(default=0.005, gt=0)
    """Longest queueing delay at a link's end: the queue holds that many seconds of its rate."""
    runtime: RuntimeName = NAMESPACES
    """What hosts are: network namespaces of this machine, or containers that podman or docker runs."""
    image: ImageName | None = None
    """Image of the hosts, with its own Python and frameworks: one that is here, as a run downloads none. Default: ours,
    with this machine's programs and Python, read-only."""
    python: Program | None = None
    """The image's interpreter, 3.8 or later, which has what ranks need. Default: python3."""
    mounts: tuple[Folder, ...] = ()
    """Folders of this machine that containers see, read-only, at the same path: data sets, say."""

    @model_validator(mode="after")
    def _of_containers(self) -> LocalTestbed:
        for key in ("image", "mounts"):
            if getattr(self, key) and self.runtime == NAMESPACES:
                raise Mistake("is for containers", accepted="with runtime: podman or runtime: docker", at=(key,))
        if self.python is not None and self.image is None:
            raise Mistake("is of an image", accepted="with image: NAME", at=("python",))
        return self

    @model_validator(mode="after")
    def _of_a_fabric(self) -> LocalTestbed:
        fabric = self.fabric
        if fabric is None:
            if self.hosts is None:
                raise Mistake("is missing", accepted="how many hosts there are, or their names", at=("hosts",))
            return self
        if self.hosts is not None and len(self.names) != fabric.leaves * fabric.hosts:
            message = f"{len(self.names)} hosts, and the fabric has {fabric.leaves} leaves of {fabric.hosts}"
            raise Mistake(message, accepted=f"{fabric.leaves * fabric.hosts}, or leave it out", at=("hosts",))
        for key, value, usual in (("rails", self.rails, 1), ("ip", self.ip, 4), ("runtime", self.runtime, NAMESPACES)):
            if value != usual:
                raise Mistake(f"{value} has no fabric of leaves and spines", accepted=f"{usual} with one", at=(key,))
        for name in self.names:
            if name in leaf_names(fabric) + spine_names(fabric):
                raise Mistake(f"{name!r} is a switch of the fabric", accepted="another name", at=("hosts",))
        return self

    @model_validator(mode="after")
    def _possible(self) -> LocalTestbed:
        names = self.names
        for place, name in enumerate(names):
            if name in names[:place]:
                raise Mistake(f"{name!r} stands here twice", accepted="each name once", at=("hosts", place))
        for name in self.links:
            if name not in names:
                raise Mistake(named_hosts.absent(name), accepted=named_hosts.one_of(names), at=("links", name))
        rates: list[tuple[tuple[str, ...], float]] = [(("link",), self.link)]
        rates += [(("links", name), rate) for name, rate in self.links.items()]
        if self.fabric is not None:
            rates.append((("fabric",), self.fabric.uplink_rate(self.link)))
        for at, rate in rates:
            if rate < LEAST_RATE:
                raise Mistake(f"{rate_text(rate)} is too slow", accepted=f"{rate_text(LEAST_RATE)} or more", at=at)
        slowest = min(rate for _, rate in rates)
        if slowest / self.scale < LEAST_RATE:
            raise Mistake(
                f"{self.scale} leaves a link of less than {rate_text(LEAST_RATE)}",
                accepted=f"at most {int(slowest / LEAST_RATE)} with these links",
                at=("scale",),
            )
        if self.scale % self.dilation:
            raise Mistake(
                f"{self.dilation} does not divide the scale of {self.scale}",
                accepted="one of "
                + ", ".join(str(n) for n in range(1, min(self.scale, 100) + 1) if self.scale % n == 0),
                at=("dilation",),
            )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        if isinstance(self.hosts, tuple):
            return self.hosts
        if self.hosts is None and self.fabric is not None:
            return _numbered("h", self.fabric.leaves * self.fabric.hosts)
        return _numbered("h", self.hosts or 0)

    def rate_of(self, host: str) -> float:
        """Return the capacity of the host's link in bit/s, unscaled."""
        return self.links.get(host, self.link)


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}{number}" for number in range(1, count + 1))


def leaf_names(fabric: FabricSpec) -> tuple[str, ...]:
    return _numbered("leaf", fabric.leaves)


def spine_names(fabric: FabricSpec) -> tuple[str, ...]:
    return _numbered("spine", fabric.spines)


def usual_congestion() -> str | None:
    """Return "cubic", the default of Linux, whatever this machine was set to; None where its kernel lacks it."""
    try:
        known = CONGESTIONS.read_text(encoding="ascii").split()
    except OSError:
        return None
    return CONGESTION if CONGESTION in known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """Hosts that are containers: their runtime, their image (ours when it is None), and folders mounted in them.

    `python` is the image's interpreter; `mounts` are folders of this machine, read-only at the same path.
    """

    runtime: str
    image: str | None = None
    python: str = "python3"
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSpec:
    """The specification of a local testbed: 2 to 250 host names, and their links' rates in bit/s, unscaled.

    Where `fabric` is not None its leaves share the hosts out in their order, and `uplink` is the rate of each link
    between a leaf and a spine.
    A rate of infinity leaves the link unlimited; each of a host's `rails` has a link of its own, of that rate, in the
    network of the rail. `queue_s` is the longest queueing delay at a link's end, `congestion` the congestion control of
    connections between hosts (None: this machine's own). Hosts are network namespaces where `containers` is None.
    `scale` divides rates; `dilation`, which divides it, multiplies durations (also the queue's and TCP's least
    retransmission time-out), and sizes are divided by `scale / dilation`.
    """

    hosts: tuple[str, ...]
    rates: Mapping[str, float]
    rails: int = 1
    ip: Literal[4, 6] = 4
    scale: int = 1
    dilation: int = 1
    mtu: int = 1500
    offloads: bool = False
    queue_s: float = 0.005
    sysctls: Mapping[str, int | str] = field(default_factory=lambda: SYSCTLS)
    congestion: str | None = field(default_factory=usual_congestion)
    containers: Containers | None = None
    fabric: FabricSpec | None = None
    uplink: float = 0.0

    @property
    def python(self) -> str:
        """The hosts' interpreter: this one, unless their image brings its own."""
        given = self.containers
        return given.python if given is not None and given.image is not None else sys.executable


def port_name(index: int, host: str, rail: int = 0) -> str:
    """Return the switch port of the host of this index: "p-h1", or a number and the part of the name that fits.

    Those of its second rail and later ones begin with the rail's number: "r1p-h1".
    """
    begin = f"r{rail}p" if rail else "p"
    plain = f"{begin}-{host}"
    return plain if len(plain) <= DEVICE_NAME_LIMIT else f"{begin}{index}-{host}"[:DEVICE_NAME_LIMIT]


def bridge_name(rail: int) -> str:
    """Return the name of the switch of a rail, which no frame of another rail reaches."""
    return f"br{rail}"


def _rail(spec: LocalSpec, rail: int, index: int) -> Rail:
    """Return the end at a rail of the host with this index."""
    prefix = _PREFIX[spec.ip]
    width = {4: 32, 6: 128}[spec.ip]
    address = ip_address(_FIRST[spec.ip] + (rail << width - prefix) + index)
    return Rail(device=f"{DEVICE}{rail}", address=str(address), prefix=prefix)


def topology(spec: LocalSpec) -> Topology:
    """Return the topology of the testbed for the plan."""
    if not 2 <= len(spec.hosts) <= MOST_HOSTS or len(set(spec.hosts)) != len(spec.hosts) or SWITCH in spec.hosts:
        raise ConfigError(f"a local testbed has 2 to {MOST_HOSTS} hosts with different names, none called {SWITCH}")
    hosts = tuple(
        Node(name=name, rails=tuple(_rail(spec, rail, i) for rail in range(spec.rails)), python=spec.python, work=WORK)
        for i, name in enumerate(spec.hosts, 1)
    )
    fabric = None if spec.fabric is None else _fabric(spec.fabric, spec.uplink)
    links = tuple(
        Link(
            host=host.name,
            device=end.device,
            switch=SWITCH if spec.fabric is None else leaf_names(spec.fabric)[(i - 1) // spec.fabric.hosts],
            switch_port=port_name(i, host.name, rail),
            rate=spec.rates[host.name],
        )
        for i, host in enumerate(hosts, 1)
        for rail, end in enumerate(host.rails)
    )
    switches = (SWITCH,) if fabric is None else (*fabric.leaves, *fabric.spines)
    given = spec.containers
    return Topology(
        kind="local",
        nodes=(*hosts, *(Node(name=name, kind="switch", python=sys.executable, work=WORK) for name in switches)),
        links=links,
        scale=spec.scale // spec.dilation,
        dilation=spec.dilation,
        mtu=spec.mtu,
        runtime=given.runtime if given else "",
        image=given.image or "" if given else "",
        fabric=fabric,
    )


def _fabric(spec: FabricSpec, rate: float) -> Fabric:
    leaves, spines = leaf_names(spec), spine_names(spec)
    return Fabric(
        leaves=leaves,
        spines=spines,
        uplinks=tuple(
            Uplink(leaf=leaf, leaf_port=f"p-{spine}", spine=spine, spine_port=f"p-{leaf}", rate=rate)
            for leaf in leaves
            for spine in spines
        ),
        multipath=spec.multipath.hash,
        seed=spec.multipath.seed,
    )


def mac_address(index: int, rail: int) -> str:
    """Return the hardware (MAC) address at a rail of the host with this index, from 1."""
    return f"02:00:c6:12:{rail:02x}:{index:02x}"
