"""Links of a fabric that a file names: whether the testbed has them, and their ends."""

from __future__ import annotations

from typing import Literal, NamedTuple

from orchestrator.core.units import Mistake
from orchestrator.parts.protocols import Problem
from orchestrator.parts.shared import named_hosts
from orchestrator.parts.topology import Topology


class NamedLink(NamedTuple):
    """A link by its name ("leaf1-spine2", "leaf1-h3"): rate (bit/s, unscaled), and node and device of both ends.

    The first end is of a leaf. A device is empty on a switch that no agent runs on.
    """

    name: str
    rate: float
    ends: tuple[tuple[str, str], tuple[str, str]]

    def hooks(self, topology: Topology) -> list[tuple[str, str, Literal["ingress", "egress"]]]:
        """Return node, device and hook of `netdev` at which a packet can be lost in silence, one a direction.

        Never where a host sends, whose TCP would be told.
        """
        (leaf, port), (other, device) = self.ends
        if topology.node(other).kind == "switch":
            return [(leaf, port, "egress"), (other, device, "egress")]
        return [(leaf, port, "egress"), (leaf, port, "ingress")]


def links(topology: Topology) -> dict[str, NamedLink]:
    """Return the links of a fabric by their names; none where there is one switch."""
    if topology.fabric is None:
        return {}
    found = [NamedLink(uplink.name, uplink.rate, uplink.ends) for uplink in topology.fabric.uplinks]
    found += [
        NamedLink(f"{link.switch}-{link.host}", link.rate, ((link.switch, link.switch_port), (link.host, link.device)))
        for link in topology.links
    ]
    return {link.name: link for link in found}


def one_of(host: str | None, link: str | None, **of_a_host: object) -> None:
    """Raise Mistake unless either a host or a link is named, and for a key of a host's link that stands beside a link.

    Such a key is None where it was left out.
    """
    if (host is None) == (link is None):
        named = "neither a host nor a link" if host is None else "a host and a link"
        raise Mistake(f"names {named}", accepted="host, or link")
    for key, value in of_a_host.items():
        if link is not None and value is not None:
            raise Mistake("stands beside link", accepted="with host", at=(key,))


def problems(name: str, topology: Topology) -> list[Problem]:
    """Return what keeps a link of this name from being changed."""
    known = links(topology)
    if not known:
        message = "the testbed has no fabric, whose links have names"
        return [Problem(at=("link",), message=message, accepted="host, or a testbed with `fabric`")]
    if name not in known:
        message = f"the fabric has no link {name!r}"
        return [Problem(at=("link",), message=message, accepted=named_hosts.one_of(known))]
    if mute := [node for node, device in known[name].ends if not device]:
        message = f"no agent runs on {' and '.join(mute)}, so nothing can be set there"
        return [Problem(at=("link",), message=message, accepted="a local fabric, or the switch's own configuration")]
    return []
