"""Gate `capture-nic`: what a capture saw at a port is what the port's own counters say.

A capture sees packets before the device cuts them (TSO) and after they were joined (GRO, LRO), with one set of headers
for many frames. What the counters see differs. veth, virtio and ena count what they are handed; mlx5, ixgbe, ice and
i40e count frames as they are on the wire; a veth or a bridge behind a device with GRO counts some of each. The count of
packets tells which: the counters' bytes are the capture's, and the headers once more for each packet that they count
beyond those captured. A driver that counts packets as frames and bytes as it is handed them (netvsc) counts the
capture's bytes as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.core.fields import Share
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow, PortBytes

NAME = "capture-nic"
ORDER = 80
QUIET_BYTES = 1e6  # below it a direction of a port is too quiet to compare
FCS_BYTES = 4  # of a frame, which hardware may count (e1000e) and a capture never sees
REMEDY = "the condition `offloads: off` has captures and counters see frames alike"
MOST_OFF = Limit(
    key="capture_nic",
    kind=Share,
    default=0.02,
    help="Largest difference between captured bytes and the counters of the NIC.",
)
GATES = (
    GateSpec(
        name="capture-nic",
        passes="captured bytes agree with the counters of the NIC",
        limit=MOST_OFF,
        remedy="Often a driver counts packets that it joined or will cut: use the condition `offloads: off`. It costs "
        "processor time for each frame.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each direction of a port that is not quiet.

    Counters that were to be sampled, and of which nothing is known over the window, are a required gate's input lost.
    """
    limit = float(MOST_OFF.of(window.manifest.validity))
    for port in window.port_bytes:
        name = f"{port.node}:{port.port} {port.direction}"
        if math.isnan(port.captured):
            text = f"{name}: no whole capture to hold against the interface's counters"
            yield verdict("capture-nic", None, text, measured=math.nan, limit=limit, required=False)
        elif math.isnan(port.counted):
            text = f"{name}: no interface counters to hold the capture against"
            text += ", which were to be sampled" if port.counting else ""
            yield verdict("capture-nic", None, text, measured=math.nan, limit=limit, required=port.counting)
        elif max(port.counted, port.captured) >= QUIET_BYTES:
            due = expected(port)
            off = due / port.counted - 1 if port.counted > 0 else math.inf
            near = abs(due - port.counted) <= limit * port.counted + port.edges
            text = f"{name}: captured {port.captured / 1e6:.4g} MB"
            text += f" ({port.wire / 1e6:.4g} MB as frames)" if port.joined else ""
            text += f", the interface counted {port.counted / 1e6:.4g} MB ({off:+.1%})"
            text += f"; {REMEDY}" if port.joined and not near else ""
            yield verdict("capture-nic", near, text, measured=off, limit=limit)


def expected(port: PortBytes) -> float:
    """Return the bytes that an interface counts for what was captured, of its ways the one nearest to its count."""
    header = (port.wire - port.captured) / (port.frames - port.packets) if port.joined else 0.0
    units = port.captured + header * max(0.0, port.counted_packets - port.packets)
    ways = (units, port.captured, units + FCS_BYTES * port.counted_packets)
    return min(ways, key=lambda way: abs(way - port.counted))
