"""What a local testbed looks like: its hosts, their rails and links, as numbers and names alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from orchestrator.core.errors import ConfigError
from orchestrator.parts.topology import Link, Node, Rail, Topology

SWITCH = "switch"
DEVICE = "eth"  # and the number of the rail
WORK = "/run/orch"  # in a node's own tmpfs, where the run's folder of the node is mounted
DEVICE_NAME_LIMIT = 15  # IFNAMSIZ without the final zero
MOST_HOSTS = 250  # addresses and their last bytes; an experiment asks for 64 at most
# Both are set apart for benchmarks: 198.18.0.0/15 by RFC 2544, 2001:2::/48 by RFC 5180. A network a rail, hosts from 1.
_FIRST = MappingProxyType({4: int(ip_address("198.18.0.0")), 6: int(ip_address("2001:2::"))})
_PREFIX = MappingProxyType({4: 24, 6: 64})
CONGESTION = "cubic"
CONGESTIONS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
SYSCTLS: Mapping[str, int] = MappingProxyType(
    {"net.ipv4.tcp_slow_start_after_idle": 0, "net.ipv4.tcp_no_metrics_save": 1}
)


def usual_congestion() -> str | None:
    """Cubic, as Linux comes with, whatever this machine was set to; None where its kernel has none."""
    try:
        known = CONGESTIONS.read_text(encoding="ascii").split()
    except OSError:
        return None
    return CONGESTION if CONGESTION in known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """Hosts that are containers: whose runtime, of which image (ours when it is None), and what they see besides.

    `python` is the image's interpreter; `mounts` are folders of this machine, read-only at the same path.
    """

    runtime: str
    image: str | None = None
    python: str = "python3"
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSpec:
    """What a local testbed looks like: 2 to 250 host names, and their links' rates in bit/s, unscaled.

    A rate of infinity leaves the link unlimited; each of a host's `rails` has a link of its own, of that rate, in the
    network of the rail. `queue_s` is the longest queueing delay at a link's end, `congestion` the congestion control of
    connections between hosts (None: this machine's own). Hosts are network namespaces where `containers` is None.
    """

    hosts: tuple[str, ...]
    rates: Mapping[str, float]
    rails: int = 1
    ip: Literal[4, 6] = 4
    scale: int = 1
    mtu: int = 1500
    offloads: bool = False
    queue_s: float = 0.005
    sysctls: Mapping[str, int | str] = field(default_factory=lambda: SYSCTLS)
    congestion: str | None = field(default_factory=usual_congestion)
    containers: Containers | None = None

    @property
    def python(self) -> str:
        """The hosts' interpreter: this one, unless their image brings its own."""
        given = self.containers
        return given.python if given is not None and given.image is not None else sys.executable


def port_name(index: int, host: str, rail: int = 0) -> str:
    """The switch port of the host with this index: "p-h1", or a number and as much of the name as fits.

    Those of its second rail and later ones begin with the rail's number: "r1p-h1".
    """
    begin = f"r{rail}p" if rail else "p"
    plain = f"{begin}-{host}"
    return plain if len(plain) <= DEVICE_NAME_LIMIT else f"{begin}{index}-{host}"[:DEVICE_NAME_LIMIT]


def bridge_name(rail: int) -> str:
    """The switch of a rail, which no frame of another rail reaches."""
    return f"br{rail}"


def _rail(spec: LocalSpec, rail: int, index: int) -> Rail:
    """The end at a rail of the host with this index."""
    prefix = _PREFIX[spec.ip]
    width = {4: 32, 6: 128}[spec.ip]
    address = ip_address(_FIRST[spec.ip] + (rail << width - prefix) + index)
    return Rail(device=f"{DEVICE}{rail}", address=str(address), prefix=prefix)


def topology(spec: LocalSpec) -> Topology:
    """The testbed as the plan sees it."""
    if not 2 <= len(spec.hosts) <= MOST_HOSTS or len(set(spec.hosts)) != len(spec.hosts) or SWITCH in spec.hosts:
        raise ConfigError(f"a local testbed has 2 to {MOST_HOSTS} hosts with different names, none called {SWITCH}")
    hosts = tuple(
        Node(name=name, rails=tuple(_rail(spec, rail, i) for rail in range(spec.rails)), python=spec.python, work=WORK)
        for i, name in enumerate(spec.hosts, 1)
    )
    links = tuple(
        Link(
            host=host.name,
            device=end.device,
            switch=SWITCH,
            switch_port=port_name(i, host.name, rail),
            rate=spec.rates[host.name],
        )
        for i, host in enumerate(hosts, 1)
        for rail, end in enumerate(host.rails)
    )
    switch = Node(name=SWITCH, kind="switch", python=sys.executable, work=WORK)
    given = spec.containers
    return Topology(
        kind="local",
        nodes=(*hosts, switch),
        links=links,
        scale=spec.scale,
        mtu=spec.mtu,
        runtime=given.runtime if given else "",
        image=given.image or "" if given else "",
    )


def mac_address(index: int, rail: int) -> str:
    """The hardware address at a rail of the host with this index, from 1."""
    return f"02:00:c6:12:{rail:02x}:{index:02x}"
