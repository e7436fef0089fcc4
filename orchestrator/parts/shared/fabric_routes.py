"""Routes of a local fabric: addresses of its ports, and the lines of `ip` by which its switches route.

Every host keeps one address and takes all others for its neighbours, whose frames its leaf answers for. A leaf has a
nexthop (ip-nexthop(8)) for each uplink, numbered as its spine, and a group of them for each other leaf, by which its
hosts are routed: the kernel chooses one of a group by a packet's hash.
"""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.parts.topology import Fabric, Link, Topology, Uplink

FIRST_GROUP = 1000  # number of the group of nexthops to the first leaf; below are nexthops
MOST_UPLINKS = 256  # a /24 of link-local addresses each


def fabric_of(topology: Topology) -> Fabric:
    """Return the fabric of a topology that has one."""
    if topology.fabric is None:
        raise AssertionError("its problems are told before it is routed")
    return topology.fabric


def port_mac(topology: Topology, switch: str, port: str) -> str:
    """Return the hardware (MAC) address of a port of a switch."""
    fabric = fabric_of(topology)
    ports = [name for node, name, _ in topology.switch_ports if node == switch]
    return f"02:00:c6:13:{(*fabric.leaves, *fabric.spines).index(switch):02x}:{ports.index(port):02x}"


def links_of_leaf(topology: Topology, leaf: str) -> list[Link]:
    """Return the links of the hosts that hang on a leaf."""
    return [link for link in topology.links if link.switch == leaf]


def _gateway(fabric: Fabric, uplink: Uplink, end: int) -> str:
    """Return the address of an uplink's leaf end (0) or spine end (1): a name for its MAC, which no device has."""
    return f"169.254.{fabric.uplinks.index(uplink)}.{end + 1}"


def _neighbour(topology: Topology, uplink: Uplink, end: int) -> str:
    """Return the line of `ip` by which the other end of an uplink knows the MAC of this one (0: leaf, 1: spine)."""
    switch, port = uplink.ends[end]
    gateway, mac = _gateway(fabric_of(topology), uplink, end), port_mac(topology, switch, port)
    return f"neigh replace {gateway} lladdr {mac} dev {uplink.ends[1 - end][1]} nud permanent"


def nexthop(topology: Topology, uplink: Uplink) -> list[str]:
    """Return the lines by which a leaf knows an uplink."""
    fabric = fabric_of(topology)
    number = fabric.spines.index(uplink.spine) + 1
    gateway = _gateway(fabric, uplink, 1)
    return [_neighbour(topology, uplink, 1), f"nexthop replace id {number} via {gateway} dev {uplink.leaf_port} onlink"]


def group(fabric: Fabric, leaf: str) -> int:
    """Return the number of the group of nexthops to a leaf."""
    return FIRST_GROUP + fabric.leaves.index(leaf)


def group_line(fabric: Fabric, leaf: str, *, without: Collection[str] = ()) -> str:
    """Return the line by which another leaf sends to a leaf over all spines but these."""
    numbers = [number for number, spine in enumerate(fabric.spines, 1) if spine not in without]
    return f"nexthop replace id {group(fabric, leaf)} group {'/'.join(map(str, numbers))}"


def leaf_lines(topology: Topology, leaf: str) -> list[str]:
    """Return the lines of `ip` by which a leaf routes, once its ports are up; hosts' neighbours are the caller's."""
    fabric = fabric_of(topology)
    others = [other for other in fabric.leaves if other != leaf]
    lines = [line for uplink in fabric.uplinks_of(leaf) for line in nexthop(topology, uplink)]
    lines += [group_line(fabric, other) for other in others]
    for link in topology.links:
        way = f"dev {link.switch_port}" if link.switch == leaf else f"nhid {group(fabric, link.switch)}"
        lines.append(f"route replace {topology.node(link.host).address}/32 {way}")
    return lines


def spine_lines(topology: Topology, spine: str) -> list[str]:
    """Return the same of a spine, which has one way to each host."""
    fabric = fabric_of(topology)
    lines = []
    for uplink in fabric.uplinks:
        if uplink.spine == spine:
            lines.append(_neighbour(topology, uplink, 0))
            lines += [
                f"route replace {topology.node(link.host).address}/32 via {_gateway(fabric, uplink, 0)}"
                f" dev {uplink.spine_port} onlink"
                for link in links_of_leaf(topology, uplink.leaf)
            ]
    return lines
