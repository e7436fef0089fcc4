"""Holds what a capture saw at a port against what the port's own counters say, whatever joins and cuts packets there.

A capture sees packets before the device cuts them (TSO) and after they were joined (GRO, LRO), with one set of headers
for many frames. What the counters see differs. veth, virtio and ena count what they are handed; mlx5, ixgbe, ice and
i40e count frames as they are on the wire; a veth or a bridge behind a device with GRO counts some of each. The count of
packets tells which: the counters' bytes are the capture's, and the headers once more for each packet that they count
beyond those captured. A driver that counts packets as frames and bytes as it is handed them (netvsc) counts the
capture's bytes as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.store.manifests.window_records import Gate

FCS_BYTES = 4  # of a frame, which hardware may count (e1000e) and a capture never sees
REMEDY = "the condition `offloads: off` has captures and counters see frames alike"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortBytes:
    """Layer-2 bytes of a port in a window: by the capture (NaN: not whole), and the interface's counter (NaN: unknown).

    `captured` is of `packets` as they were captured; on the wire these are `frames`, with `wire` bytes. The interface
    counted `counted` bytes and `counted_packets`.
    `edges` are those bytes that may fall on either side of the window's two ends, since captures are counted in bins
    and counters between samples.
    """

    node: str
    port: str
    direction: str
    captured: float
    counted: float
    edges: float = 0.0
    packets: float = 0.0
    frames: float = 0.0
    wire: float = 0.0
    counted_packets: float = 0.0
    counting: bool = False  # whether the counters were to be sampled

    @property
    def joined(self) -> bool:
        """Whether packets were captured that are several frames on the wire."""
        return self.frames > self.packets

    @property
    def expected(self) -> float:
        """Bytes that the interface counts for what was captured, of its possible ways the one nearest to its count."""
        header = (self.wire - self.captured) / (self.frames - self.packets) if self.joined else 0.0
        units = self.captured + header * max(0.0, self.counted_packets - self.packets)
        ways = (units, self.captured, units + FCS_BYTES * self.counted_packets)
        return min(ways, key=lambda way: abs(way - self.counted))


def judge(ports: Iterable[PortBytes], limit: float, *, floor: float) -> Iterator[Gate]:
    """A gate for each direction of a port; one with fewer bytes than `floor` is too quiet to compare.

    Counters that were to be sampled, and of which nothing is known over the window, are a required gate's input lost.
    """
    for port in ports:
        name = f"{port.node}:{port.port} {port.direction}"
        if math.isnan(port.captured):
            text = f"{name}: no whole capture to hold against the interface's counters"
            yield gate("capture-nic", None, text, measured=math.nan, limit=limit, required=False)
        elif math.isnan(port.counted):
            text = f"{name}: no interface counters to hold the capture against"
            text += ", which were to be sampled" if port.counting else ""
            yield gate("capture-nic", None, text, measured=math.nan, limit=limit, required=port.counting)
        elif max(port.counted, port.captured) >= floor:
            expected = port.expected
            off = expected / port.counted - 1 if port.counted > 0 else math.inf
            near = abs(expected - port.counted) <= limit * port.counted + port.edges
            text = f"{name}: captured {port.captured / 1e6:.4g} MB"
            text += f" ({port.wire / 1e6:.4g} MB as frames)" if port.joined else ""
            text += f", the interface counted {port.counted / 1e6:.4g} MB ({off:+.1%})"
            text += f"; {REMEDY}" if port.joined and not near else ""
            yield gate("capture-nic", near, text, measured=off, limit=limit)
