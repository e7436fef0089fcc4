"""Capture points by a manifest: the addresses behind a port, and the flows that pass it."""

from __future__ import annotations

from orchestrator.parts.shared.capture_files import CapturePoint, device
from orchestrator.store.manifests.records import Clock, Manifest

GENERATOR = "flow_sender.py"  # the program of every source of single flows
CAPTURING = "collector.tcpdump"
METERING = "collector.meter"  # which gives the tables of captures where nothing is captured


def capture_point(manifest: Manifest, *, node: str, launch: str, port: str) -> CapturePoint:
    """Return the point at a port of a node that a launch captured."""
    addresses, peers = _ends(manifest, node, port)
    flows = [flow for one in manifest.launches for flow in one.flows]
    flows.sort(key=lambda flow: flow.port is None)  # a training names hosts alone, and cross traffic may join the same
    generated = [
        flow
        for one in manifest.launches
        if GENERATOR in one.argv
        for flow in one.flows
        if {flow.src, flow.dst} & set(addresses)
    ]
    clock = manifest.clocks.get(node, Clock()).before
    return CapturePoint(
        launch=launch,
        port=port,
        addresses=tuple(addresses),
        peers=tuple(peers),
        flows=tuple(flows),
        generated=tuple(generated),
        offset_ns=0 if clock is None else clock.offset_ns,
        segment=manifest.topology.mtu,
        dilation=manifest.dilation,
    )


def alone(manifest: Manifest) -> list[tuple[str, str, str]]:
    """Return node, launch and port of each meter whose rows are those of its port, since it is not captured."""
    captured = {(one.node, device(one.argv)) for one in manifest.launches if one.part == CAPTURING}
    found = [(one.node, one.name, device(one.argv)) for one in manifest.launches if one.part == METERING]
    return [one for one in found if (one[0], one[2]) not in captured]


def capture_points(manifest: Manifest, node: str) -> list[CapturePoint]:
    """Return the points that launches of a node were to capture."""
    return [
        capture_point(manifest, node=node, launch=launch.name, port=device(launch.argv))
        for launch in manifest.launches
        if launch.part == CAPTURING and launch.node == node
    ]


def _ends(manifest: Manifest, node: str, port: str) -> tuple[list[str], list[str]]:
    """Return the addresses of a node at a port, and at a switch's port those of the host behind it."""
    topology = manifest.topology
    own = [rail.address for rail in topology.node(node).rails if rail.address and rail.device in ("", port)]
    behind = [link for link in topology.links if (link.switch, link.switch_port) == (node, port)]
    return own, [
        rail.address for link in behind for rail in topology.node(link.host).rails if rail.device in ("", link.device)
    ]
