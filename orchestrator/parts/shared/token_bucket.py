"""A token bucket (tbf) at the root of a device: its parameters, and what `tc` tells of it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from orchestrator.core.opendata import JsonObject
from orchestrator.parts.topology import WIRE_HEADER_BYTES

DEFAULT = "default"  # the state of a device whose root qdisc the kernel chose
LEAST_BURST_BYTES = 32 * 1024
OFFLOADED_BURST_BYTES = 128 * 1024
BURST_S = 0.5e-3
LEAST_QUEUE_PACKETS = 16
TICK_NS = 64  # unit in which the kernel reports a bucket's depth (PSCHED_SHIFT, include/net/pkt_sched.h)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket's parameters: bytes a second, depth in ticks of 64 ns at that rate, queue in bytes."""

    rate: int
    depth_ticks: int
    limit_bytes: int

    @property
    def depth_bytes(self) -> int:
        """A depth in bytes that the kernel turns into just these ticks, away from its rounding where it can be."""
        middle = round((self.depth_ticks + 0.5) * TICK_NS * self.rate / 1e9)
        if _ticks(self.rate, middle) == self.depth_ticks:
            return middle
        return -(-self.depth_ticks * TICK_NS * self.rate // 10**9)

    @property
    def arguments(self) -> tuple[str, ...]:
        """What follows `tc qdisc replace dev X root`."""
        return (
            *("tbf", "rate", f"{self.rate * 8}bit"),
            *("burst", f"{self.depth_bytes}b", "limit", f"{self.limit_bytes}b"),
        )

    @property
    def state(self) -> str:
        """Canonical text: what `parse` returns for a device with this bucket at its root."""
        return f"tbf rate {self.rate} depth {self.depth_ticks} limit {self.limit_bytes}"


def bucket(rate_bps: float, *, queue_s: float, mtu: int, offloads: bool = False) -> Bucket:
    """Return a bucket for `rate_bps` (layer 2, scaled) whose queue holds `queue_s` seconds.

    Depth: 0.5 ms worth of the rate, so that a late timer costs nothing, and at least 32 KiB: at 1 Gbit/s of TCP over
    veth a bucket of 0.13 ms lost 1.2 % and one of 0.04 ms 13 %, while one of 0.26 ms and more lost nothing. With
    segmentation offloads at least 128 KiB, so that super-packets of 64 KiB need not be split. But never deeper than
    half the queue: at 50 Mbit/s with 32 KB of either, BBR took bursts for the link's rate, lost 4000 packets in 3 s
    and carried 41 Mbit/s; with a depth of 8 KB it carried 47.8. Queue: at least 16 full packets (or four
    super-packets), since packets do not shrink with the scale.
    """
    rate = max(1, int(rate_bps / 8))
    packet = 65536 if offloads else mtu + WIRE_HEADER_BYTES
    limit = max(int(rate * queue_s), (4 if offloads else LEAST_QUEUE_PACKETS) * packet)
    depth = min(usual_depth(rate, offloads=offloads), limit // 2)
    return Bucket(rate, _ticks(rate, depth), limit)


def usual_depth(rate: int, *, offloads: bool = False) -> int:
    """Return the bytes of a bucket for `rate` bytes a second whose queue is long."""
    return max(OFFLOADED_BURST_BYTES if offloads else LEAST_BURST_BYTES, math.ceil(rate * BURST_S))


def _ticks(rate: int, size: int) -> int:
    return size * 10**9 // (rate * TICK_NS)


def parse(output: str) -> str:
    """Return the state of a device's root from `tc -j -r qdisc show dev X`: "default", or a bucket's.

    ValueError for any other qdisc: it could not be put back as it was.
    """
    found: list[JsonObject] = json.loads(output or "[]")
    roots = [qdisc for qdisc in found if qdisc.get("root")]
    if not roots or roots[0]["handle"] == "0:":
        return DEFAULT
    root = roots[0]
    below = [qdisc["kind"] for qdisc in found if str(qdisc.get("parent", "")).startswith(root["handle"])]
    options = root.get("options", {})
    odd = sorted(set(options) - {"rate", "burst", "burst_raw", "lat", "limit"})
    if root["kind"] != "tbf" or below or odd or "burst_raw" not in options or "limit" not in options:
        what = " with ".join([str(root["kind"]), *below, *odd])
        raise ValueError(f"its root qdisc is {what}, which could not be put back: remove it first (tc qdisc del)")
    return Bucket(int(options["rate"]), int(str(options["burst_raw"]), 16), int(options["limit"])).state


def of_state(state: str) -> Bucket:
    """Return the bucket that `parse` told of."""
    words = state.split()
    return Bucket(int(words[2]), int(words[4]), int(words[6]))
